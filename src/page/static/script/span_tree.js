// The spans of a trace as a tree: which of them are visible, and which findings refer to them. It draws nothing.
//
// A span is identified by its index in `spans`, which are in the order of the tree; `span.up` is the index of its
// parent.

/** Of a tree with more spans, subtrees without a failure are collapsed at first. */
const MAX_EXPANDED_SPANS = 120;

class SpanTree {
  constructor({ spans, root_cause: rootCause, failure_chain: failureChain }) {
    Object.assign(this, { spans, rootCause, failureChain });
    this.indexes = new Map(); // By id. Of spans with the same id, that of the first.
    this.roots = [];
    this.children = spans.map(() => []);
    this.depths = [];
    spans.forEach(({ id, up }, n) => {
      (up === undefined ? this.roots : this.children[up]).push(n);
      this.depths[n] = up === undefined ? 0 : this.depths[up] + 1;
      if (!this.indexes.has(id)) this.indexes.set(id, n);
    });
    const isCollapsed = (n) => this.children[n].length > 0 && !this.fails(n);
    this.collapsed = new Set(spans.length > MAX_EXPANDED_SPANS ? [...spans.keys()].filter(isCollapsed) : []);
    this.failingOnly = false; // Whether spans that do not fail are hidden.
    this.references = spanReferences(spans, this.indexes);
  }

  fails(n) { return this.spans[n].result === "fail"; }

  /** Whether a span fails by its own metrics, and not only because of its children. */
  failsItself(n) { return ["self", "both"].includes(this.spans[n].cause); }

  failedMetrics(n) {
    return (this.spans[n].metrics || []).filter((metric) => metric.result === "fail").map((metric) => metric.metric);
  }

  /** The span that is selected at first: that of the address, the root cause, or the worst failure. */
  initialSelection(spanId) {
    const candidates = [spanId, this.rootCause, this.failureChain[this.failureChain.length - 1]];
    return candidates.map((id) => this.indexes.get(id)).find((n) => n !== undefined) ?? this.roots[0] ?? 0;
  }

  visibleSpans() {
    const visible = [], stack = [...this.roots].reverse();
    while (stack.length) {
      const n = stack.pop();
      if (this.failingOnly && !this.fails(n)) continue;
      visible.push(n);
      if (!this.collapsed.has(n)) stack.push(...[...this.children[n]].reverse());
    }
    return visible;
  }

  setCollapsed(n, collapsed) {
    collapsed ? this.collapsed.add(n) : this.collapsed.delete(n);
  }

  /** Expands the ancestors of a span, and shows all spans if it does not fail. Returns whether it was hidden. */
  reveal(n) {
    let wasHidden = false;
    for (let up = this.spans[n].up; up !== undefined; up = this.spans[up].up) {
      wasHidden = this.collapsed.delete(up) || wasHidden;
    }
    if (this.failingOnly && !this.fails(n)) {
      this.failingOnly = false;
      wasHidden = true;
    }
    return wasHidden;
  }

  /** The state that a later version of the same trace restores. Its spans may have other indexes. */
  state() {
    return { collapsedIds: [...this.collapsed].map((n) => this.spans[n].id), failingOnly: this.failingOnly };
  }

  restore({ collapsedIds, failingOnly }) {
    this.collapsed = new Set(collapsedIds.map((id) => this.indexes.get(id)).filter((n) => n !== undefined));
    this.failingOnly = failingOnly;
  }
}

/**
 * The references of findings to other spans: for each span, those that refer to it. Of several references from the same
 * metric of the same span only the first is kept.
 */
function spanReferences(spans, indexes) {
  const references = spans.map(() => []);
  const add = (from, metric, relation, id) => {
    const to = indexes.get(id);
    if (to === undefined || to === from) return;
    const isKnown = references[to].some((other) => other.from === from && other.metric === metric);
    if (!isKnown) references[to].push({ from, metric, relation });
  };
  spans.forEach((span, n) => {
    for (const { metric, findings } of span.metrics || []) {
      for (const finding of findings || []) {
        add(n, metric, "quoted", finding.seen_in);
        add(n, metric, "origin", finding.origin);
        for (const id of finding.cited || []) add(n, metric, "cited", id);
      }
    }
  });
  return references;
}
