//! The reference that is nearest to a path, out of as many as an automaton spells.
//!
//! In: a path, and references as an acyclic graph. Out: length and distance of the reference of
//! least normalised distance (002, equations 3 and 4). No reference is listed.
//!
//! The least of `2d / (m + l + d)` over all references at once is a ratio, so it is found as the
//! root of `2d q - p (m + l + d) = 0` (Dinkelbach 1967): for a ratio `p / q` one pass over the
//! pairs (node, position in the path) finds the reference for which the left side is least, with a
//! cost for each edit and a gain for each token; its ratio is the next `p / q`, until none is
//! better. All of it is exact, in integers; a few passes suffice. A further dimension for the
//! length, as one would first think of, is not needed.
//!
//! A reference that is better than one at hand lies within a distance that can be told, so that
//! only a band of positions around each node's own depth matters.

use std::rc::Rc;

use super::distance::Code;

/// What an edge of the graph adds to a reference.
#[derive(Clone, Debug)]
pub(super) enum Label {
    /// This token.
    One(Code),
    /// Any one of these: a set by code.
    AnyOf(Rc<[bool]>),
    /// Nothing.
    Nothing,
}

#[derive(Clone, Debug)]
pub(super) struct Edge {
    pub from: usize,
    pub label: Label,
}

/// A node; edges lead to it from earlier ones.
#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    pub into: Vec<Edge>,
    /// A reference may end here.
    pub ends: bool,
    /// The fewest and the most tokens on the way here.
    depth: (usize, usize),
}

/// References as the ways from the first node to those where they may end.
#[derive(Clone, Debug)]
pub(super) struct References {
    nodes: Vec<Node>,
    /// How many edges leave each node.
    leaving: Vec<usize>,
}

/// The nearest reference.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Nearest {
    /// Its distance.
    pub distance: usize,
    /// Its length.
    pub length: usize,
}

/// Cells looked at in one pass at most, which takes a quarter of a second or so: a path of 10,000
/// calls against a golden path as long.
pub(super) const MAX_CELLS: usize = 1 << 27;
/// The band of the first pass: a path with so few edits is done with it.
const NARROW: usize = 32;
/// How much wider the next band is where nothing ends within one.
const WIDER: usize = 8;
/// Far more passes than such ratios need, whose parts are bounded by the path's length.
const MAX_PASSES: usize = 64;
/// Not reached. What is reached costs far less than half of it.
const FAR: i64 = i64::MAX / 4;

#[derive(Clone, Copy)]
struct Cell {
    cost: i64,
    length: u32,
}

/// The cells of one node: positions `first..first + cells.len()` in the path.
struct Row {
    first: usize,
    cells: Vec<Cell>,
}

/// A ratio of two whole numbers, the second positive.
#[derive(Clone, Copy)]
struct Ratio {
    p: i64,
    q: i64,
}

impl Ratio {
    fn of(nearest: Nearest, path: usize) -> Ratio {
        let Nearest { distance, length } = nearest;
        Ratio { p: 2 * distance as i64, q: ((path + length + distance) as i64).max(1) }
    }

    /// The cost of an edit and the gain of a token of the reference.
    fn weights(self) -> (i64, i64) {
        (2 * self.q - self.p, self.p)
    }
}

impl References {
    /// Of one node, where every reference begins.
    pub fn new() -> References {
        References { nodes: vec![Node::default()], leaving: vec![0] }
    }

    /// Adds a node that edges of earlier ones lead to; its number.
    pub fn node(&mut self, into: Vec<Edge>) -> usize {
        let mut depth = (usize::MAX, 0);
        for edge in &into {
            let (fewest, most) = self.nodes.get(edge.from).map_or((0, 0), |n| n.depth);
            let more = usize::from(!matches!(edge.label, Label::Nothing));
            depth = (depth.0.min(fewest + more), depth.1.max(most + more));
            if let Some(leaving) = self.leaving.get_mut(edge.from) {
                *leaving += 1;
            }
        }
        self.nodes.push(Node { into, ends: false, depth });
        self.leaving.push(0);
        self.nodes.len() - 1
    }

    /// A reference may end at `node`.
    pub fn end(&mut self, node: usize) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.ends = true;
        }
    }

    /// The nearest one; `None` where there is none, or it would take more than [`MAX_CELLS`].
    pub fn nearest(&self, path: &[Code]) -> Option<Nearest> {
        let longest = self.nodes.iter().filter(|n| n.ends).map(|n| n.depth.1).max()?;
        let everything = path.len() + longest;
        let mut band = NARROW.min(everything);
        let guess = loop {
            match self.improve(path, band, None) {
                None if band < everything => band = (band * WIDER).min(everything),
                found => break found?,
            }
        };
        // Better ones have d < p (m + l) / (2q - p), and no l is larger than the longest.
        let (edit, gain) = Ratio::of(guess, path.len()).weights();
        let limit = i128::from(gain) * everything as i128 / i128::from(edit.max(1));
        let far = usize::try_from(limit).unwrap_or(everything).min(everything);
        if far <= band { Some(guess) } else { self.improve(path, far, Some(guess)) }
    }

    /// The best within `band`, if it is better than `known`.
    fn improve(&self, path: &[Code], band: usize, known: Option<Nearest>) -> Option<Nearest> {
        if self.cells(path.len(), band) > MAX_CELLS {
            return None;
        }
        let mut best = known;
        for _ in 0..MAX_PASSES {
            let ratio = best.map_or(Ratio { p: 1, q: 1 }, |best| Ratio::of(best, path.len()));
            if ratio.p == 0 {
                break;
            }
            match self.pass(path, band, ratio) {
                // The first ratio is no reference's: whatever is found replaces it.
                Some((cost, found)) if cost < 0 || best.is_none() => best = Some(found),
                _ => break,
            }
        }
        best
    }

    fn span(&self, node: usize, path: usize, band: usize) -> (usize, usize) {
        let (fewest, most) = self.nodes.get(node).map_or((0, 0), |n| n.depth);
        (fewest.saturating_sub(band), most.saturating_add(band).min(path))
    }

    fn cells(&self, path: usize, band: usize) -> usize {
        let of = |i: usize, node: &Node| {
            let (first, last) = self.span(i, path, band);
            (last + 1).saturating_sub(first).saturating_mul(node.into.len().max(1))
        };
        self.nodes.iter().enumerate().map(|(i, node)| of(i, node)).fold(0, usize::saturating_add)
    }

    /// The reference of least `d (2q - p) - l p - m p`, which is negative for a better ratio.
    fn pass(&self, path: &[Code], band: usize, ratio: Ratio) -> Option<(i64, Nearest)> {
        let (edit, gain) = ratio.weights();
        let mut leaving = self.leaving.clone();
        let mut rows: Vec<Option<Row>> = Vec::with_capacity(self.nodes.len());
        let mut spare: Vec<Vec<Cell>> = Vec::new();
        let mut best: Option<(i64, u32)> = None;
        for (i, node) in self.nodes.iter().enumerate() {
            let (first, last) = self.span(i, path.len(), band);
            let mut cells = spare.pop().unwrap_or_default();
            cells.clear();
            cells.resize((last + 1).saturating_sub(first), Cell { cost: FAR, length: 0 });
            if let (0, Some(cell)) = (i, cells.first_mut()) {
                cell.cost = 0;
            }
            let mut row = Row { first, cells };
            for edge in &node.into {
                let from = rows.get_mut(edge.from);
                if let Some(before) = from.as_ref().and_then(|row| row.as_ref()) {
                    row.relax(before, &edge.label, path, edit, gain);
                }
                if let (Some(left), Some(from)) = (leaving.get_mut(edge.from), from) {
                    *left -= 1;
                    if *left == 0 {
                        spare.extend(from.take().map(|row| row.cells));
                    }
                }
            }
            row.run_on(edit);
            if node.ends
                && let Some(cell) = row.at(path.len()).filter(|cell| cell.cost < FAR / 2)
                && best.is_none_or(|(cost, _)| cell.cost < cost)
            {
                best = Some((cell.cost, cell.length));
            }
            rows.push(Some(row));
        }
        let (cost, length) = best?;
        let distance = (cost + gain * i64::from(length)) / edit;
        let nearest = Nearest { distance: distance as usize, length: length as usize };
        Some((cost - gain * path.len() as i64, nearest))
    }
}

impl Row {
    fn at(&self, position: usize) -> Option<Cell> {
        self.cells.get(position.checked_sub(self.first)?).copied()
    }

    /// What comes in over one edge.
    fn relax(&mut self, before: &Row, label: &Label, path: &[Code], edit: i64, gain: i64) {
        let cost = |met: bool| if met { -gain } else { edit - gain };
        match label {
            Label::Nothing => self.shift(before, 0, 0, |_| 0),
            Label::One(code) => {
                self.shift(before, 0, 1, |_| edit - gain);
                self.shift(before, 1, 1, |last| cost(path.get(last) == Some(code)));
            }
            Label::AnyOf(set) => {
                let has = |code: &Code| set.get(*code as usize).is_some_and(|is| *is);
                self.shift(before, 0, 1, |_| edit - gain);
                self.shift(before, 1, 1, |last| cost(path.get(last).is_some_and(has)));
            }
        }
    }

    /// Takes what is cheaper by way of the cells `by` positions earlier in the row `before`. `cost`
    /// is asked for the position of the token before each cell.
    fn shift(&mut self, before: &Row, by: usize, more: u32, cost: impl Fn(usize) -> i64) {
        let start = self.first.max(before.first + by);
        let Some(own) = self.cells.get_mut(start - self.first..) else { return };
        let from = before.cells.get(start - by - before.first..).unwrap_or(&[]);
        for (n, (cell, from)) in own.iter_mut().zip(from).enumerate() {
            let cost = from.cost + cost((start + n).wrapping_sub(1));
            if cost < cell.cost {
                *cell = Cell { cost, length: from.length + more };
            }
        }
    }

    /// Tokens of the path that the reference does not have.
    fn run_on(&mut self, edit: i64) {
        let mut before = Cell { cost: FAR, length: 0 };
        for cell in &mut self.cells {
            let cost = before.cost + edit;
            if cost < cell.cost {
                *cell = Cell { cost, length: before.length };
            }
            before = *cell;
        }
    }
}
