//! From spans in any order to an arena tree: sorted, de-duplicated links, cycles cut.

use std::collections::HashMap;

use super::{Idx, Span, SpanId, TraceId};

/// One trace's spans, sorted by start time then id, linked to parents and children.
///
/// Walks never recurse: depth comes from the sender and is untrusted.
#[derive(Debug, Default)]
pub struct Tree {
    /// The trace's id.
    pub id: TraceId,
    /// The spans; an [`Idx`] points into this.
    pub spans: Vec<Span>,
    parent: Vec<Option<Idx>>,
    children: Vec<Vec<Idx>>,
    top: Vec<Idx>,
    order: Vec<Idx>,
}

impl Tree {
    /// Links `spans` into a tree.
    ///
    /// A span whose parent is not here is a top span. Of several spans with the same id and other
    /// bytes, the first by start time is the one that children hang from. A cycle is cut at its
    /// earliest span, which becomes a top span.
    pub fn new(id: TraceId, mut spans: Vec<Span>) -> Tree {
        spans.sort_by(|a, b| {
            (a.start, a.id, a.end, a.parent)
                .cmp(&(b.start, b.id, b.end, b.parent))
                .then_with(|| a.bytes.cmp(&b.bytes))
        });
        let mut by_id: HashMap<SpanId, Idx> = HashMap::with_capacity(spans.len());
        for (i, span) in spans.iter().enumerate() {
            by_id.entry(span.id).or_insert(i);
        }
        let mut parent: Vec<Option<Idx>> = spans
            .iter()
            .enumerate()
            .map(|(i, span)| by_id.get(&span.parent).copied().filter(|&p| p != i && !span.parent.is_zero()))
            .collect();
        cut_cycles(&mut parent);
        let mut children = vec![Vec::new(); spans.len()];
        let mut top = Vec::new();
        for (i, p) in parent.iter().enumerate() {
            match p {
                Some(p) => children[*p].push(i),
                None => top.push(i),
            }
        }
        let mut order = Vec::with_capacity(spans.len());
        let mut stack: Vec<Idx> = top.iter().rev().copied().collect();
        while let Some(i) = stack.pop() {
            order.push(i);
            stack.extend(children[i].iter().rev());
        }
        Tree { id, spans, parent, children, top, order }
    }

    /// Number of spans.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// True without spans.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The parent, where it is in this tree.
    pub fn parent(&self, i: Idx) -> Option<Idx> {
        self.parent[i]
    }

    /// Children in order of start time, then id.
    pub fn children(&self, i: Idx) -> &[Idx] {
        &self.children[i]
    }

    /// Spans without a parent in this tree: roots, and orphans of a partial trace.
    pub fn top(&self) -> &[Idx] {
        &self.top
    }

    /// The trace's root: the first top span that has no parent id at all, else the first top span.
    pub fn root(&self) -> Option<Idx> {
        self.top.iter().copied().find(|&i| self.spans[i].parent.is_zero()).or(self.top.first().copied())
    }

    /// Every span in depth-first order: parents before children. Reverse it to go bottom-up.
    pub fn order(&self) -> &[Idx] {
        &self.order
    }

    /// The span, its parent, and so on to the top.
    pub fn ancestors(&self, i: Idx) -> impl Iterator<Item = Idx> + '_ {
        std::iter::successors(Some(i), |&i| self.parent[i])
    }

    /// The span and all beneath it, depth first.
    pub fn subtree(&self, i: Idx) -> impl Iterator<Item = Idx> + '_ {
        let mut stack = vec![i];
        std::iter::from_fn(move || {
            let next = stack.pop()?;
            stack.extend(self.children[next].iter().rev());
            Some(next)
        })
    }
}

/// Makes every parent chain end, by turning the earliest span of each cycle into a top span.
fn cut_cycles(parent: &mut [Option<Idx>]) {
    // 0 = unseen, otherwise the number of the walk that saw it.
    let mut seen = vec![0usize; parent.len()];
    for start in 0..parent.len() {
        let walk = start + 1;
        let mut at = start;
        while seen[at] == 0 {
            seen[at] = walk;
            match parent[at] {
                Some(up) => at = up,
                None => break,
            }
        }
        if seen[at] == walk && parent[at].is_some() {
            // Met this walk's own trail: `at` lies on a cycle. Spans are sorted, so least is earliest.
            let mut least = at;
            let mut on = at;
            while let Some(up) = parent[on] {
                least = least.min(up);
                on = up;
                if on == at {
                    break;
                }
            }
            parent[least] = None;
        }
    }
}
