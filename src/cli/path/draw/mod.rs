//! A picture as text: DOT for Graphviz, SVG for everything else.

pub(super) mod dot;
pub(super) mod svg;

/// Names of one label at most; the rest is a number.
const MOST_NAMES: usize = 6;
/// Characters of one name.
const MOST_CHARS: usize = 36;

/// Names in one line, not too long.
fn joined(names: &[String]) -> String {
    let short = |name: &String| match name.char_indices().nth(MOST_CHARS) {
        Some((end, _)) => format!("{}...", &name[..end]),
        None => name.clone(),
    };
    let mut text = names.iter().take(MOST_NAMES).map(short).collect::<Vec<_>>().join(", ");
    if names.len() > MOST_NAMES {
        text.push_str(&format!(", and {} more", names.len() - MOST_NAMES));
    }
    text
}
