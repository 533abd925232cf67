//! SVG with a layout of its own: layers from left to right, so that progress goes one way.

use std::fmt::Write as _;

use super::super::picture::{Picture, Place, Way};
use super::joined;

/// Pixels between layers, and between states of one layer.
const ACROSS: usize = 210;
const DOWN: usize = 150;
/// Radius of a state.
const RADIUS: usize = 34;
/// Room around everything.
const MARGIN: usize = 90;
/// Height of a line of text.
const LINE: usize = 15;
/// Lines of what the walk did in one state.
const MOST_STAYS: usize = 5;

/// The picture as SVG. The walk is green where it was allowed, red where it was not.
pub(in super::super) fn svg(picture: &Picture) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = Layout::new(picture).write(&mut out);
    out
}

struct Layout<'p> {
    picture: &'p Picture,
    /// The centre of each state.
    at: Vec<(usize, usize)>,
    size: (usize, usize),
}

impl<'p> Layout<'p> {
    fn new(picture: &'p Picture) -> Layout<'p> {
        let layers = picture.places.iter().map(|p| p.layer + 1).max().unwrap_or(1);
        let mut filled = vec![0usize; layers];
        picture.places.iter().for_each(|p| filled[p.layer] += 1);
        let tallest = filled.iter().copied().max().unwrap_or(1);
        let mut used = vec![0usize; layers];
        let at = picture.places.iter().map(|place| {
            let row = used[place.layer];
            used[place.layer] += 1;
            let spare = (tallest - filled[place.layer]) * DOWN / 2;
            (MARGIN + place.layer * ACROSS, MARGIN + spare + row * DOWN)
        });
        let at = at.collect();
        let size =
            (2 * MARGIN + (layers - 1) * ACROSS, 2 * MARGIN + (tallest - 1) * DOWN + LINE * MOST_STAYS);
        Layout { picture, at, size }
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let (width, height) = self.size;
        writeln!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\" text-anchor=\"middle\">"
        )?;
        writeln!(out, "<title>{}</title>", escaped(&self.picture.title))?;
        writeln!(
            out,
            "<defs><marker id=\"tip\" viewBox=\"0 0 10 10\" refX=\"9\" refY=\"5\" markerWidth=\"7\" \
             markerHeight=\"7\" orient=\"auto-start-reverse\"><path d=\"M0 0 10 5 0 10z\" fill=\"context-stroke\"/>\
             </marker></defs>"
        )?;
        writeln!(out, "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>")?;
        if let Some((x, y)) = self.at.first() {
            line(out, (x - RADIUS - 30, *y), (x - RADIUS, *y), "#57606a", 1)?;
        }
        for way in &self.picture.ways {
            self.way(out, way)?;
        }
        for (place, at) in self.picture.places.iter().zip(&self.at) {
            state(out, place, *at)?;
        }
        writeln!(out, "</svg>")
    }

    fn way(&self, out: &mut String, way: &Way) -> std::fmt::Result {
        let (Some(&from), Some(&to)) = (self.at.get(way.from), self.at.get(way.to)) else { return Ok(()) };
        let (color, width, label) = match way.walked.is_empty() {
            true => ("#57606a", 1, joined(&way.symbols)),
            false => ("#1a7f37", 3, joined(&way.walked)),
        };
        let layers = to.0.saturating_sub(from.0) / ACROSS;
        let middle = ((from.0 + to.0) / 2, (from.1 + to.1) / 2);
        if layers <= 1 {
            line(out, edge_of(from, to), edge_of(to, from), color, width)?;
            return text(out, (middle.0, middle.1.saturating_sub(6)), color, &label);
        }
        // Over the heads of the layers between.
        let bend = (middle.0, middle.1.saturating_sub(40 * layers));
        let (start, end) = (edge_of(from, bend), edge_of(to, bend));
        writeln!(
            out,
            "<path d=\"M{} {} Q{} {} {} {}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"{width}\" \
             marker-end=\"url(#tip)\"/>",
            start.0, start.1, bend.0, bend.1, end.0, end.1
        )?;
        text(out, (middle.0, ((middle.1 + bend.1) / 2).saturating_sub(6)), color, &label)
    }
}

fn state(out: &mut String, place: &Place, (x, y): (usize, usize)) -> std::fmt::Result {
    let fill = match (place.ended, place.visited) {
        (true, _) => "#b7e1c0",
        (false, true) => "#e6f4ea",
        (false, false) => "#ffffff",
    };
    writeln!(out, "<circle cx=\"{x}\" cy=\"{y}\" r=\"{RADIUS}\" fill=\"{fill}\" stroke=\"#24292f\"/>")?;
    if place.is_final {
        let inner = RADIUS - 4;
        writeln!(out, "<circle cx=\"{x}\" cy=\"{y}\" r=\"{inner}\" fill=\"none\" stroke=\"#24292f\"/>")?;
    }
    text(out, (x, y + 4), "#24292f", &joined(std::slice::from_ref(&place.name)))?;
    if !place.loops.is_empty() {
        let top = y - RADIUS;
        writeln!(
            out,
            "<path d=\"M{} {top} C{} {} {} {} {} {top}\" fill=\"none\" stroke=\"#8c959f\" \
             marker-end=\"url(#tip)\"/>",
            x - 12,
            x - 28,
            top - 30,
            x + 28,
            top - 30,
            x + 12
        )?;
        text(out, (x, top - 28), "#8c959f", &joined(&place.loops))?;
    }
    for (n, (name, harmful)) in place.stays.iter().take(MOST_STAYS).enumerate() {
        let (color, mark) = if *harmful { ("#cf222e", "\u{2717} ") } else { ("#1a7f37", "\u{21ba} ") };
        let last = n + 1 == MOST_STAYS && place.stays.len() > MOST_STAYS;
        let more = format!("and {} more", place.stays.len() - n);
        let label = if last { more } else { joined(&[format!("{mark}{name}")]) };
        text(out, (x, y + RADIUS + LINE * (n + 1)), color, &label)?;
    }
    Ok(())
}

/// Where the line from `from` to `to` leaves the circle of `from`.
fn edge_of(from: (usize, usize), to: (usize, usize)) -> (usize, usize) {
    let (dx, dy) = (to.0 as f64 - from.0 as f64, to.1 as f64 - from.1 as f64);
    let length = dx.hypot(dy).max(1.0);
    let out = |at: usize, d: f64| (at as f64 + d / length * RADIUS as f64).max(0.0) as usize;
    (out(from.0, dx), out(from.1, dy))
}

fn line(
    out: &mut String,
    from: (usize, usize),
    to: (usize, usize),
    color: &str,
    width: usize,
) -> std::fmt::Result {
    writeln!(
        out,
        "<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" stroke=\"{color}\" stroke-width=\"{width}\" \
         marker-end=\"url(#tip)\"/>",
        from.0, from.1, to.0, to.1
    )
}

fn text(out: &mut String, (x, y): (usize, usize), color: &str, text: &str) -> std::fmt::Result {
    writeln!(out, "<text x=\"{x}\" y=\"{y}\" fill=\"{color}\">{}</text>", escaped(text))
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // XML has no other control characters, not even escaped.
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}
