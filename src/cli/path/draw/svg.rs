//! SVG with its own layout: layers of states from left to right, in the direction of progress.
//!
//! In: a [`Picture`]. Out: an SVG document.

use super::super::picture::{DrawnEdge, DrawnState, Picture};
use super::join_names;
use crate::score::report::html::Html;

/// Pixels between layers, and between states of one layer.
const LAYER_DISTANCE: usize = 210;
const ROW_DISTANCE: usize = 150;
/// Radius of a state.
const RADIUS: usize = 34;
const MARGIN: usize = 90;
/// Height of a line of text.
const LINE_HEIGHT: usize = 15;
/// Lines for the steps of the walk that stayed in one state.
const MAX_STAYS: usize = 5;

/// The picture as SVG. Allowed steps of the walk are green, harmful steps are red.
pub(in super::super) fn svg(picture: &Picture) -> String {
    let mut out = Html::default();
    Layout::new(picture).write(&mut out);
    out.into_string()
}

type SvgPoint = (usize, usize);

struct Layout<'p> {
    picture: &'p Picture,
    /// The centre of each state.
    centres: Vec<SvgPoint>,
    size: SvgPoint,
}

impl<'p> Layout<'p> {
    fn new(picture: &'p Picture) -> Layout<'p> {
        let layers = picture.states.iter().map(|p| p.layer + 1).max().unwrap_or(1);
        let mut states_per_layer = vec![0usize; layers];
        picture.states.iter().for_each(|p| states_per_layer[p.layer] += 1);
        let tallest = states_per_layer.iter().copied().max().unwrap_or(1);
        let mut placed_states = vec![0usize; layers];
        let centres = picture.states.iter().map(|state| {
            let row = placed_states[state.layer];
            placed_states[state.layer] += 1;
            let top_gap = (tallest - states_per_layer[state.layer]) * ROW_DISTANCE / 2;
            (MARGIN + state.layer * LAYER_DISTANCE, MARGIN + top_gap + row * ROW_DISTANCE)
        });
        let size = (
            2 * MARGIN + (layers - 1) * LAYER_DISTANCE,
            2 * MARGIN + (tallest - 1) * ROW_DISTANCE + LINE_HEIGHT * MAX_STAYS,
        );
        Layout { picture, centres: centres.collect(), size }
    }

    fn write(&self, out: &mut Html) {
        write(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {0}\" width=\"{0}\" height=\"{0}\" \
             font-family=\"sans-serif\" font-size=\"12\" text-anchor=\"middle\">\n<title>",
            &[self.size, self.size],
        );
        out.text(&self.picture.title).raw(
            "</title>\n<defs><marker id=\"tip\" viewBox=\"0 0 10 10\" refX=\"9\" refY=\"5\" markerWidth=\"7\" \
             markerHeight=\"7\" orient=\"auto-start-reverse\"><path d=\"M0 0 10 5 0 10z\" fill=\"context-stroke\"/>\
             </marker></defs>\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
        );
        if let Some((x, y)) = self.centres.first() {
            line(out, (x - RADIUS - 30, *y), (x - RADIUS, *y), "#57606a", "1");
        }
        for edge in &self.picture.edges {
            self.draw_edge(out, edge);
        }
        for (state, centre) in self.picture.states.iter().zip(&self.centres) {
            draw_state(out, state, *centre);
        }
        out.raw("</svg>\n");
    }

    fn draw_edge(&self, out: &mut Html, edge: &DrawnEdge) {
        let (Some(&from), Some(&to)) = (self.centres.get(edge.from), self.centres.get(edge.to)) else {
            return;
        };
        let (color, width, label) = match edge.walked.is_empty() {
            true => ("#57606a", "1", join_names(&edge.symbols)),
            false => ("#1a7f37", "3", join_names(&edge.walked)),
        };
        let layers = to.0.saturating_sub(from.0) / LAYER_DISTANCE;
        let middle = ((from.0 + to.0) / 2, (from.1 + to.1) / 2);
        if layers <= 1 {
            line(out, boundary(from, to), boundary(to, from), color, width);
            return text(out, (middle.0, middle.1.saturating_sub(6)), color, &label);
        }
        // The edge passes above the states of the layers between.
        let bend = (middle.0, middle.1.saturating_sub(40 * layers));
        let (start, end) = (boundary(from, bend), boundary(to, bend));
        write(out, "<path d=\"M{0} {0} Q{0} {0} {0} {0}\" fill=\"none\" stroke=\"", &[start, bend, end]);
        out.raw(color).raw("\" stroke-width=\"").raw(width).raw("\" marker-end=\"url(#tip)\"/>\n");
        text(out, (middle.0, ((middle.1 + bend.1) / 2).saturating_sub(6)), color, &label);
    }
}

fn draw_state(out: &mut Html, state: &DrawnState, (x, y): SvgPoint) {
    let fill = match (state.is_end, state.is_visited) {
        (true, _) => "#b7e1c0",
        (false, true) => "#e6f4ea",
        (false, false) => "#ffffff",
    };
    let outer = std::iter::once((RADIUS, fill));
    for (radius, fill) in outer.chain(state.is_final.then_some((RADIUS - 4, "none"))) {
        let numbers = [x as f64, y as f64, radius as f64];
        out.numbers("<circle cx=\"{0}\" cy=\"{0}\" r=\"{0}\" fill=\"", &numbers);
        out.raw(fill).raw("\" stroke=\"#24292f\"/>\n");
    }
    text(out, (x, y + 4), "#24292f", &join_names(std::slice::from_ref(&state.name)));
    if !state.loops.is_empty() {
        let top = y - RADIUS;
        write(
            out,
            "<path d=\"M{0} {0} C{0} {0} {0} {0} {0} {0}\" fill=\"none\" stroke=\"#8c959f\" \
             marker-end=\"url(#tip)\"/>\n",
            &[(x - 12, top), (x - 28, top - 30), (x + 28, top - 30), (x + 12, top)],
        );
        text(out, (x, top - 28), "#8c959f", &join_names(&state.loops));
    }
    for (n, (name, harmful)) in state.stays.iter().take(MAX_STAYS).enumerate() {
        let (color, mark) = if *harmful { ("#cf222e", "\u{2717} ") } else { ("#1a7f37", "\u{21ba} ") };
        let last = n + 1 == MAX_STAYS && state.stays.len() > MAX_STAYS;
        let more = format!("and {} more", state.stays.len() - n);
        let label = if last { more } else { join_names(&[format!("{mark}{name}")]) };
        text(out, (x, y + RADIUS + LINE_HEIGHT * (n + 1)), color, &label);
    }
}

/// The point where the line from `from` to `to` crosses the circle around `from`.
fn boundary(from: SvgPoint, to: SvgPoint) -> SvgPoint {
    let (dx, dy) = (to.0 as f64 - from.0 as f64, to.1 as f64 - from.1 as f64);
    let length = dx.hypot(dy).max(1.0);
    let shifted =
        |coordinate: usize, d: f64| (coordinate as f64 + d / length * RADIUS as f64).max(0.0) as usize;
    (shifted(from.0, dx), shifted(from.1, dy))
}

/// Writes markup with the coordinates of `points`.
fn write(out: &mut Html, markup: &'static str, points: &[SvgPoint]) {
    let numbers: Vec<f64> = points.iter().flat_map(|(x, y)| [*x as f64, *y as f64]).collect();
    out.numbers(markup, &numbers);
}

fn line(out: &mut Html, from: SvgPoint, to: SvgPoint, color: &'static str, width: &'static str) {
    write(out, "<line x1=\"{0}\" y1=\"{0}\" x2=\"{0}\" y2=\"{0}\" stroke=\"", &[from, to]);
    out.raw(color).raw("\" stroke-width=\"").raw(width).raw("\" marker-end=\"url(#tip)\"/>\n");
}

fn text(out: &mut Html, position: SvgPoint, color: &'static str, text: &str) {
    write(out, "<text x=\"{0}\" y=\"{0}\" fill=\"", &[position]);
    out.raw(color).raw("\">").text(text).raw("</text>\n");
}
