//! DOT, the input of Graphviz (`dot -Tsvg`).
//!
//! In: a [`Picture`]. Out: a DOT document.

use std::fmt::Write as _;

use super::super::picture::Picture;
use super::join_names;

/// The picture as DOT. Allowed steps of the walk are green, harmful steps are red.
pub(in super::super) fn dot(picture: &Picture) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write(&mut out, picture);
    out
}

fn write(out: &mut String, picture: &Picture) -> std::fmt::Result {
    writeln!(out, "digraph {} {{", quoted(&picture.title))?;
    writeln!(
        out,
        "  rankdir=LR; node [shape=circle, fontname=\"sans-serif\"]; edge [fontname=\"sans-serif\"];"
    )?;
    writeln!(out, "  begin [shape=point]; begin -> s0;")?;
    for (i, state) in picture.states.iter().enumerate() {
        let shape = if state.is_final { "doublecircle" } else { "circle" };
        let fill = match (state.is_end, state.is_visited) {
            (true, _) => ", style=filled, fillcolor=\"#b7e1c0\"",
            (false, true) => ", style=filled, fillcolor=\"#e6f4ea\"",
            (false, false) => "",
        };
        writeln!(out, "  s{i} [label={}, shape={shape}{fill}];", quoted(&state.name))?;
        let stays = |harmful: bool| -> Vec<String> {
            state.stays.iter().filter(|(_, h)| *h == harmful).map(|(name, _)| name.clone()).collect()
        };
        for (names, color, style) in [
            (state.loops.clone(), "gray", "solid"),
            (stays(false), "#1a7f37", "solid"),
            (stays(true), "#cf222e", "dashed"),
        ] {
            if !names.is_empty() {
                let label = quoted(&join_names(&names));
                let look = format!("color=\"{color}\", fontcolor=\"{color}\", style={style}");
                writeln!(out, "  s{i} -> s{i} [label={label}, {look}];")?;
            }
        }
    }
    for edge in &picture.edges {
        let (label, look) = match edge.walked.is_empty() {
            true => (join_names(&edge.symbols), ""),
            false => (join_names(&edge.walked), ", color=\"#1a7f37\", fontcolor=\"#1a7f37\", penwidth=2"),
        };
        writeln!(out, "  s{} -> s{} [label={}{look}];", edge.from, edge.to, quoted(&label))?;
    }
    writeln!(out, "}}")
}

fn quoted(text: &str) -> String {
    let mut out = String::from('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' | '\r' => out.push(' '),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
