//! Finds the nearest reference of a path among all words of an acyclic graph.
//!
//! In: a path, and references as an acyclic graph. Out: length and distance of the reference of
//! least normalized distance (002, equations 3 and 4), without listing the references.
//!
//! The least of `2d / (m + l + d)` over all references at once is a ratio, so it is found as the
//! root of `2d q - p (m + l + d) = 0` (Dinkelbach 1967): for a ratio `p / q` one pass over the
//! pairs (node, position in the path) finds the reference for which the left side is least, with a
//! cost for each edit and a gain for each token; its ratio is the next `p / q`, until none is
//! better. The computation is exact, in integers, and needs a few passes.
//!
//! A reference better than a known one is within a computable distance, so that only a band of
//! positions around each node's depth is computed. A cell contains cost and length in one number, so
//! the minimum of two is one instruction.

use std::rc::Rc;

use super::distance::Code;
use crate::measure::work_budget::Allows;

/// The token that an edge of the graph adds to a reference.
#[derive(Clone, Debug)]
pub(super) enum EdgeLabel {
    One(Code),
    /// One token of a set, which is indexed by code.
    AnyOf(Rc<[bool]>),
    Nothing,
}

/// An edge to a node.
#[derive(Clone, Debug)]
pub(super) struct ReferenceEdge {
    pub from: usize,
    pub label: EdgeLabel,
}

/// A node of the graph. Its incoming edges come from nodes of lower indexes.
#[derive(Clone, Debug, Default)]
pub(super) struct GraphNode {
    pub incoming: Vec<ReferenceEdge>,
    /// Whether a reference may end here.
    pub is_end: bool,
    /// The fewest and the most tokens on a path to this node.
    depth: (usize, usize),
}

/// References as the paths from the first node to end nodes.
#[derive(Clone, Debug)]
pub(super) struct References {
    nodes: Vec<GraphNode>,
    /// The number of outgoing edges of each node.
    outgoing_counts: Vec<usize>,
}

/// The distance of the nearest reference, and its length in tokens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NearestReference {
    pub distance: usize,
    pub length: usize,
}

/// Maximum number of cells of one pass, about a quarter of a second: a path of 10,000 calls against a golden
/// path of that length.
pub(super) const MAX_CELLS: usize = 1 << 27;
/// Maximum number of tokens of a path and its reference together, so that cost and length fit into one cell.
const MAX_TOKENS: usize = 1 << 19;
/// Width of the first band.
const FIRST_BAND: usize = 32;
/// Factor by which each next band is wider.
const BAND_GROWTH: usize = 4;
/// Maximum number of passes. Far fewer are needed, since the terms of the ratios are bounded by the path's length.
const MAX_PASSES: usize = 64;
/// Cells that count as one step of the work budget.
const CELLS_PER_STEP: usize = 8;
/// The low bits of a cell, which are a length; the other bits are a cost.
const LENGTH_BITS: u32 = 20;
/// The value of cells that are not reached; costs are far below half of it.
const UNREACHED: i64 = i64::MAX / 2;

/// A cost and a length as a cell. Cells are added like their parts, and compare by cost.
fn cell(cost: i64, length: i64) -> i64 {
    (cost << LENGTH_BITS) + length
}

/// The cells of one node: positions `first..first + cells.len()` in the path.
struct CostRow {
    first: usize,
    cells: Vec<i64>,
}

/// The ratio `p / q` of two integers; `q` is positive.
#[derive(Clone, Copy)]
struct Ratio {
    p: i64,
    q: i64,
}

impl Ratio {
    fn new(nearest: NearestReference, path_len: usize) -> Ratio {
        let NearestReference { distance, length } = nearest;
        Ratio { p: 2 * distance as i64, q: ((path_len + length + distance) as i64).max(1) }
    }

    /// The weights with which a reference of a lower ratio has a negative cost.
    fn weights(self) -> EditWeights {
        EditWeights { edit: 2 * self.q - self.p, gain: self.p }
    }
}

/// The cost of an edit, and the gain of a token of the reference.
#[derive(Clone, Copy)]
struct EditWeights {
    edit: i64,
    gain: i64,
}

impl References {
    /// A graph of one node, where every reference begins.
    pub(super) fn new() -> References {
        References { nodes: vec![GraphNode::default()], outgoing_counts: vec![0] }
    }

    /// Adds a node with edges from earlier nodes; returns its index.
    pub(super) fn add_node(&mut self, incoming: Vec<ReferenceEdge>) -> usize {
        let mut depth = (usize::MAX, 0);
        for edge in &incoming {
            let (shortest, longest) = self.nodes.get(edge.from).map_or((0, 0), |n| n.depth);
            let tokens = usize::from(!matches!(edge.label, EdgeLabel::Nothing));
            depth = (depth.0.min(shortest + tokens), depth.1.max(longest + tokens));
            if let Some(count) = self.outgoing_counts.get_mut(edge.from) {
                *count += 1;
            }
        }
        self.nodes.push(GraphNode { incoming, is_end: false, depth });
        self.outgoing_counts.push(0);
        self.nodes.len() - 1
    }

    /// Marks `node` as an end node.
    pub(super) fn mark_end(&mut self, node: usize) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.is_end = true;
        }
    }

    /// The nearest reference; `None` if there is none, if a pass would take more than [`MAX_CELLS`], or if `allows` is
    /// false for a pass.
    pub(super) fn nearest(&self, path: &[Code], allows: Allows<'_>) -> Option<NearestReference> {
        let end_depths = || self.nodes.iter().filter(|n| n.is_end).map(|n| n.depth);
        let (shortest, longest) = (end_depths().map(|d| d.0).min()?, end_depths().map(|d| d.1).max()?);
        let max_tokens = path.len() + longest;
        if max_tokens > MAX_TOKENS {
            return None;
        }
        // If all references have one length, the least distance is the least ratio: one pass
        // suffices.
        let passes = if shortest == longest { 1 } else { MAX_PASSES };
        let mut band = FIRST_BAND.min(max_tokens);
        let mut best = None;
        loop {
            let cells = self.cell_count(path.len(), band);
            if cells > MAX_CELLS {
                return None;
            }
            let allows_pass = || allows(1 + cells / CELLS_PER_STEP);
            best = self.improve(path, band, best, passes, &allows_pass)?;
            // A better reference has d < p (m + l) / (2q - p), where l is at most the length of the longest one.
            let needed_band = best.map_or(max_tokens, |best| {
                let EditWeights { edit, gain } = Ratio::new(best, path.len()).weights();
                let limit = i128::from(gain) * max_tokens as i128 / i128::from(edit.max(1));
                usize::try_from(limit).unwrap_or(max_tokens).min(max_tokens)
            });
            if needed_band <= band {
                return best;
            }
            band = (band * BAND_GROWTH).min(needed_band);
        }
    }

    /// The nearest reference within `band`, or `known` if none is nearer; `None` if a pass is not allowed.
    fn improve(
        &self,
        path: &[Code],
        band: usize,
        known: Option<NearestReference>,
        passes: usize,
        allows_pass: &dyn Fn() -> bool,
    ) -> Option<Option<NearestReference>> {
        let mut best = known;
        for _ in 0..passes {
            let ratio = best.map_or(Ratio { p: 1, q: 1 }, |best| Ratio::new(best, path.len()));
            if ratio.p == 0 {
                break;
            }
            if !allows_pass() {
                return None;
            }
            match self.pass(path, band, ratio) {
                // The first ratio belongs to no reference, so any reference replaces it.
                Some((cost, nearest)) if cost < 0 || best.is_none() => best = Some(nearest),
                _ => break,
            }
        }
        Some(best)
    }

    /// The first and last position in the path that are computed for a node.
    fn band_of(&self, node: usize, path_len: usize, band: usize) -> (usize, usize) {
        let (shortest, longest) = self.nodes.get(node).map_or((0, 0), |n| n.depth);
        (shortest.saturating_sub(band), longest.saturating_add(band).min(path_len))
    }

    /// The number of cells of one pass.
    fn cell_count(&self, path_len: usize, band: usize) -> usize {
        let node_cells = |i: usize, node: &GraphNode| {
            let (first, last) = self.band_of(i, path_len, band);
            (last + 1).saturating_sub(first).saturating_mul(node.incoming.len().max(1))
        };
        self.nodes.iter().enumerate().map(|(i, node)| node_cells(i, node)).fold(0, usize::saturating_add)
    }

    /// The reference of least `d (2q - p) - l p - m p`, which is negative for a better ratio.
    fn pass(&self, path: &[Code], band: usize, ratio: Ratio) -> Option<(i64, NearestReference)> {
        let weights = ratio.weights();
        let mut unused_edges = self.outgoing_counts.clone();
        let mut rows: Vec<Option<CostRow>> = Vec::with_capacity(self.nodes.len());
        // The cells of rows that no further node needs, to be reused.
        let mut free_cells: Vec<Vec<i64>> = Vec::new();
        let mut best = UNREACHED / 2;
        for (i, node) in self.nodes.iter().enumerate() {
            let (first, last) = self.band_of(i, path.len(), band);
            let mut cells = free_cells.pop().unwrap_or_default();
            cells.clear();
            cells.resize((last + 1).saturating_sub(first), UNREACHED);
            if let (0, Some(first_cell)) = (i, cells.first_mut()) {
                *first_cell = 0;
            }
            let mut row = CostRow { first, cells };
            for edge in &node.incoming {
                let from = rows.get_mut(edge.from);
                if let Some(source) = from.as_ref().and_then(|row| row.as_ref()) {
                    row.relax(source, &edge.label, path, weights);
                }
                if let (Some(unused), Some(from)) = (unused_edges.get_mut(edge.from), from) {
                    *unused -= 1;
                    if *unused == 0 {
                        free_cells.extend(from.take().map(|row| row.cells));
                    }
                }
            }
            row.relax_insertions(weights);
            if node.is_end {
                best = best.min(row.cell_at(path.len()).unwrap_or(UNREACHED));
            }
            rows.push(Some(row));
        }
        if best >= UNREACHED / 2 {
            return None;
        }
        let (cost, length) = (best >> LENGTH_BITS, best & ((1 << LENGTH_BITS) - 1));
        let distance = (cost + weights.gain * length) / weights.edit.max(1);
        let nearest = NearestReference { distance: distance as usize, length: length as usize };
        Some((cost - weights.gain * path.len() as i64, nearest))
    }
}

impl CostRow {
    fn cell_at(&self, position: usize) -> Option<i64> {
        self.cells.get(position.checked_sub(self.first)?).copied()
    }

    /// Lowers the cells by the paths through one incoming edge from the row `source`.
    fn relax(
        &mut self,
        source: &CostRow,
        label: &EdgeLabel,
        path: &[Code],
        EditWeights { edit, gain }: EditWeights,
    ) {
        let (equal, different) = (cell(-gain, 1), cell(edit - gain, 1));
        let cost = |is_equal: bool| if is_equal { equal } else { different };
        match label {
            EdgeLabel::Nothing => self.shift(source, 0, path, |_| 0),
            EdgeLabel::One(code) => {
                self.shift(source, 0, path, |_| different);
                self.shift(source, 1, path, |token| cost(token == *code));
            }
            EdgeLabel::AnyOf(set) => {
                let contains = |token: Code| set.get(token as usize).is_some_and(|is_member| *is_member);
                self.shift(source, 0, path, |_| different);
                self.shift(source, 1, path, |token| cost(contains(token)));
            }
        }
    }

    /// Takes the minimum with the cells `offset` positions earlier in the row `source`; `cost` is
    /// called with the token before each cell's position.
    fn shift(&mut self, source: &CostRow, offset: usize, path: &[Code], cost: impl Fn(Code) -> i64) {
        let start = self.first.max(source.first + offset);
        let Some(cells) = self.cells.get_mut(start - self.first..) else { return };
        let from = source.cells.get(start - offset - source.first..).unwrap_or(&[]);
        if offset == 0 {
            cells.iter_mut().zip(from).for_each(|(cell, from)| *cell = (*cell).min(from + cost(0)));
            return;
        }
        let tokens = path.get(start - 1..).unwrap_or(&[]);
        for ((cell, from), token) in cells.iter_mut().zip(from).zip(tokens) {
            *cell = (*cell).min(from + cost(*token));
        }
    }

    /// Lowers the cells by paths with tokens that are not in the reference.
    fn relax_insertions(&mut self, weights: EditWeights) {
        let edit = cell(weights.edit, 0);
        let mut previous = UNREACHED;
        for cell in &mut self.cells {
            previous = (*cell).min(previous + edit);
            *cell = previous;
        }
    }
}
