//! Builds the tree of a trace from spans in any order: sorts them, links them, and cuts cycles.

use std::cmp::Ordering;

use super::id::{ById, SpanId, TraceId};
use super::span::{Idx, Span};
use crate::work;

/// The spans of one trace, sorted by start time and id, and linked to parents and children.
///
/// No function recurses, since the sender determines the depth.
#[derive(Debug, Default)]
pub struct Tree {
    pub id: TraceId,
    /// [`Idx`] is an index of this vector.
    pub spans: Vec<Span>,
    parent: Vec<Option<Idx>>,
    /// Every span that has a parent, grouped by parent; `child_starts[i]` is the start of the group of span `i`.
    children: Vec<Idx>,
    child_starts: Vec<usize>,
    top: Vec<Idx>,
    /// Depth first.
    order: Vec<Idx>,
}

impl Tree {
    /// Links `spans` into a tree.
    ///
    /// A span whose parent is missing is a top span. If several spans have the same id, children are
    /// linked to the one that starts first. A cycle is cut at its earliest span, which becomes a top
    /// span.
    pub fn new(id: TraceId, mut spans: Vec<Span>) -> Tree {
        // Children mostly arrive before their parents, latest start first.
        if spans.windows(2).filter(|pair| pair[0].start > pair[1].start).count() > spans.len() / 2 {
            spans.reverse();
        }
        // Times nearly always differ, so they are compared first.
        spans.sort_by(|a, b| a.start.cmp(&b.start).then_with(|| compare_at_equal_start(a, b)));
        let mut by_id: ById<SpanId, Idx> = ById::with_capacity_and_hasher(spans.len(), Default::default());
        for (i, span) in spans.iter().enumerate() {
            by_id.entry(span.id).or_insert(i);
        }
        let mut parent: Vec<Option<Idx>> = spans
            .iter()
            .enumerate()
            .map(|(i, span)| by_id.get(&span.parent).copied().filter(|&p| p != i && !span.parent.is_zero()))
            .collect();
        cut_cycles(&mut parent);
        let mut tree = Tree { id, spans, parent, ..Tree::default() };
        tree.link_children();
        let mut stack: Vec<Idx> = tree.top.iter().rev().copied().collect();
        tree.order.reserve_exact(tree.spans.len());
        while let Some(i) = stack.pop() {
            tree.order.push(i);
            stack.extend(tree.children(i).iter().rev());
        }
        tree
    }

    /// Fills `top` and the children lists from `parent`, in the order of the spans.
    fn link_children(&mut self) {
        self.child_starts = vec![0; self.spans.len() + 1];
        for (i, parent) in self.parent.iter().enumerate() {
            match parent {
                Some(p) => self.child_starts[p + 1] += 1,
                None => self.top.push(i),
            }
        }
        for i in 1..self.child_starts.len() {
            self.child_starts[i] += self.child_starts[i - 1];
        }
        let mut next = self.child_starts.clone();
        self.children = vec![0; self.spans.len() - self.top.len()];
        for (i, parent) in self.parent.iter().enumerate() {
            if let Some(p) = parent {
                self.children[next[*p]] = i;
                next[*p] += 1;
            }
        }
    }

    pub fn len(&self) -> usize {
        self.spans.len()
    }

    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The parent, if it is in this tree.
    pub fn parent(&self, i: Idx) -> Option<Idx> {
        work::count(1);
        self.parent[i]
    }

    /// Whether the order of the spans depends on skews.
    pub fn has_skew(&self) -> bool {
        self.spans.iter().any(|span| span.skew != 0)
    }

    /// The indexes of all spans, ordered by the start times that the senders recorded.
    pub fn without_skew(&self) -> impl Iterator<Item = Idx> + use<> {
        let sorted = self.has_skew().then(|| {
            let start = |span: &Span| span.as_sent(span.start);
            let mut all: Vec<Idx> = (0..self.len()).collect();
            all.sort_by(|&a, &b| {
                let (a, b) = (&self.spans[a], &self.spans[b]);
                start(a).cmp(&start(b)).then_with(|| compare_at_equal_start(a, b))
            });
            all
        });
        (0..self.len()).map(move |n| sorted.as_ref().map_or(n, |all| all[n]))
    }

    /// Children in order of start time, then id.
    pub fn children(&self, i: Idx) -> &[Idx] {
        &self.children[self.child_starts[i]..self.child_starts[i + 1]]
    }

    /// Spans without a parent in this tree: roots, and orphans of an incomplete trace.
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

    /// The span and its ancestors, up to a top span.
    pub fn ancestors(&self, i: Idx) -> impl Iterator<Item = Idx> + '_ {
        std::iter::successors(Some(i), |&i| self.parent[i]).inspect(|_| work::count(1))
    }

    /// The span and its descendants, depth first.
    pub fn subtree(&self, i: Idx) -> impl Iterator<Item = Idx> + '_ {
        let mut stack = vec![i];
        std::iter::from_fn(move || {
            let next = stack.pop()?;
            stack.extend(self.children(next).iter().rev());
            work::count(1);
            Some(next)
        })
    }
}

/// The order of two spans that start at the same time.
fn compare_at_equal_start(a: &Span, b: &Span) -> Ordering {
    (a.id, a.as_sent(a.end), a.parent)
        .cmp(&(b.id, b.as_sent(b.end), b.parent))
        .then_with(|| a.bytes.cmp(&b.bytes))
        .then_with(|| a.envelope.cmp(&b.envelope))
}

/// Turns the earliest span of each cycle into a top span, so that every parent chain ends.
fn cut_cycles(parent: &mut [Option<Idx>]) {
    // For each span, the number of the walk that visited it; 0 if none has.
    let mut visited_by = vec![0usize; parent.len()];
    for start in 0..parent.len() {
        let walk = start + 1;
        let mut i = start;
        while visited_by[i] == 0 {
            visited_by[i] = walk;
            match parent[i] {
                Some(up) => i = up,
                None => break,
            }
        }
        if visited_by[i] == walk && parent[i].is_some() {
            // Span `i` was visited before in this walk, so it is on a cycle. The smallest index starts earliest.
            let mut least = i;
            let mut current = i;
            while let Some(up) = parent[current] {
                least = least.min(up);
                current = up;
                if current == i {
                    break;
                }
            }
            parent[least] = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;
    use crate::trace::{Envelope, Status};

    fn span(id: u8, parent: u8, start: u64) -> Span {
        let span_id = |n: u8| if n == 0 { SpanId::default() } else { SpanId([n; 8]) };
        Span {
            id: span_id(id),
            parent: span_id(parent),
            start,
            end: start + 1,
            status: Status::Unset,
            remote_parent: false,
            has_verdict: false,
            forwarded: false,
            skew: 0,
            bytes: Bytes::from(vec![id, parent, start as u8]),
            envelope: Arc::new(Envelope::default()),
        }
    }

    fn tree(spans: &[Span]) -> Tree {
        Tree::new(TraceId([1; 16]), spans.to_vec())
    }

    #[test]
    fn skew_changes_the_order_and_neither_times_as_sent_nor_the_order_without_it() {
        let sent = [span(1, 0, 10), span(2, 1, 20), span(3, 1, 30), span(4, 1, 30)];
        let mut spans = sent.to_vec();
        spans[3].set_skew(15);
        spans[2].end = 0;
        spans[2].set_skew(-40);
        let skewed = tree(&spans);
        let ids = |order: &[Idx]| order.iter().map(|&i| skewed.spans[i].id.0[0]).collect::<Vec<_>>();
        assert_eq!(ids(skewed.order()), [1, 4, 2, 3]);
        assert_eq!(ids(&skewed.without_skew().collect::<Vec<_>>()), [1, 2, 3, 4]);
        let times = |s: &Span| (s.as_sent(s.start), s.as_sent(s.end));
        let times_at = |n: Idx| times(&skewed.spans[skewed.without_skew().nth(n).unwrap()]);
        assert_eq!([times_at(1), times_at(2), times_at(3)], [(20, 21), (30, 0), (30, 31)]);
        assert!(tree(&sent).without_skew().eq(0..4));
    }

    #[test]
    fn children_are_linked_in_any_order_of_arrival() {
        let tree = tree(&[span(3, 2, 3), span(2, 1, 2), span(4, 1, 4), span(1, 0, 1)]);
        assert_eq!((tree.top(), tree.root()), (&[0][..], Some(0)));
        assert_eq!((tree.children(0), tree.children(1)), (&[1, 3][..], &[2][..]));
        assert_eq!(tree.order(), [0, 1, 2, 3]);
        assert_eq!(tree.ancestors(2).collect::<Vec<_>>(), [2, 1, 0]);
        assert_eq!(tree.subtree(1).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn orphans_are_top_spans_and_the_span_without_parent_is_the_root() {
        let tree = tree(&[span(2, 9, 1), span(1, 0, 2)]);
        assert_eq!((tree.top(), tree.root()), (&[0, 1][..], Some(1)));
    }

    #[test]
    fn a_cycle_is_cut_at_its_earliest_span() {
        let tree = tree(&[span(1, 3, 5), span(2, 1, 6), span(3, 2, 7), span(4, 3, 8), span(5, 5, 9)]);
        assert_eq!(tree.top(), [0, 4]);
        assert_eq!(tree.order(), [0, 1, 2, 3, 4]);
    }

    proptest! {
        #[test]
        fn every_span_is_in_the_order_once_and_arrival_order_does_not_matter(
            raw in prop::collection::vec((0u8..12, 0u8..12, 0u64..6), 0..24),
            seed in any::<u64>(),
        ) {
            let spans: Vec<Span> = raw.iter().map(|&(id, parent, start)| span(id + 1, parent, start)).collect();
            let mut shuffled = spans.clone();
            shuffled.sort_by_key(|s| s.bytes.iter().fold(seed, |h, &b| h.rotate_left(5) ^ u64::from(b).wrapping_mul(31)));
            let (one, other) = (tree(&spans), tree(&shuffled));
            let mut order = one.order().to_vec();
            order.sort_unstable();
            prop_assert_eq!(order, (0..spans.len()).collect::<Vec<_>>());
            for i in 0..spans.len() {
                prop_assert_eq!(&one.spans[i].bytes, &other.spans[i].bytes);
                prop_assert_eq!(one.parent(i), other.parent(i));
                let before = |j: usize| one.order().iter().position(|&k| k == j);
                prop_assert!(one.parent(i).is_none_or(|p| before(p) < before(i)));
            }
        }
    }
}
