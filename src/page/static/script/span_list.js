// The visible spans of a tree as rows, with selection and keyboard.

/** The indentation of a row in pixels, and the depth beyond which rows are not indented further. */
const BASE_INDENT_PX = 8, INDENT_PX = 14, MAX_INDENTED_DEPTH = 16;

class SpanList {
  /** `onSelect` is called with the index of each selected span, `onEnter` when Enter is pressed. */
  constructor(tree, traceDurationMs, { onSelect, onEnter }) {
    Object.assign(this, { tree, onSelect, onEnter });
    this.durationMs = Math.max(traceDurationMs, 0.001); // No division by 0.
    const keydown = (event) => this.handleKey(event);
    this.element =
      el("div", { class: "tree-rows", role: "tree", "aria-label": "Spans of the trace", keydown });
    this.selected = undefined;
    this.draw();
  }

  draw() {
    this.rows = new Map(this.tree.visibleSpans().map((n) => [n, this.row(n)]));
    replaceContent(this.element, [...this.rows.values()]);
  }

  row(n) {
    const { tree } = this;
    const span = tree.spans[n];
    const siblings = span.up === undefined ? tree.roots : tree.children[span.up];
    const hasChildren = tree.children[n].some((child) => !tree.failingOnly || tree.fails(child));
    const click = (event) => {
      if (event.target.closest(".expander") && hasChildren) this.setCollapsed(n, !tree.collapsed.has(n));
      this.select(n, true);
    };
    return el("div", {
      role: "treeitem", class: `${span.result || ""}${tree.failsItself(n) ? " self" : ""}`,
      tabindex: n === this.selected ? "0" : "-1", "aria-level": tree.depths[n] + 1,
      "aria-setsize": siblings.length, "aria-posinset": siblings.indexOf(n) + 1,
      "aria-selected": String(n === this.selected),
      "aria-expanded": hasChildren ? String(!tree.collapsed.has(n)) : null, click,
    }, this.label(n, hasChildren), el("span", { class: "num dim" }, formatDuration(span.duration_ms)), this.lane(span));
  }

  label(n, hasChildren) {
    const { tree } = this;
    const span = tree.spans[n], failed = tree.failedMetrics(n), isRootCause = span.id === tree.rootCause;
    const failsThroughChildren = tree.fails(n) && !tree.failsItself(n);
    const expander = !hasChildren ? "" : tree.collapsed.has(n) ? "▸" : "▾";
    const symbol = { fail: failsThroughChildren ? "↑" : "✕", pass: "✓" }[span.result] || "·";
    const label = el("span", { class: "label" },
      el("span", { class: "expander", "aria-hidden": "true" }, expander),
      el("span", { class: `mark ${span.result || "none"}`, "aria-hidden": "true" }, symbol),
      el("span", { class: "kind" }, span.kind === "unknown" ? "" : span.kind),
      el("span", { class: "name", title: span.name }, bdi(span.name || span.id)),
      hiddenText(failsThroughChildren ? "fails through its children" : span.result || "not measured"),
      isRootCause && tag("root cause", "cause"),
      span.late && tag("late"),
      !isRootCause && failed.length > 0 && tag(failed[0], "fail wide-only"),
      !isRootCause && failed.length > 1 && tag(`+${failed.length - 1}`, "fail wide-only"));
    const indent = Math.min(tree.depths[n], MAX_INDENTED_DEPTH) * INDENT_PX;
    label.style.paddingLeft = `${BASE_INDENT_PX + indent}px`;
    return label;
  }

  /** The time of a span within its trace, as a bar. */
  lane(span) {
    const bar = el("i", null);
    const start = Math.min(span.offset_ms / this.durationMs, 1);
    const length = Math.max(0, Math.min((span.duration_ms || 0) / this.durationMs, 1 - start));
    bar.style.left = `${100 * start}%`;
    bar.style.width = `${100 * length}%`;
    return el("span", { class: "lane", "aria-hidden": "true" }, bar);
  }

  setCollapsed(n, collapsed) {
    this.tree.setCollapsed(n, collapsed);
    this.draw();
  }

  /** Shows failing spans only, or all. If the selected span is hidden thereby, the first visible one is selected. */
  setFailingOnly(failingOnly) {
    const { tree } = this;
    tree.failingOnly = failingOnly;
    this.draw();
    this.select(this.rows.has(this.selected) ? this.selected : tree.visibleSpans()[0], false);
  }

  /** Selects a span, and makes it visible if it is hidden. An index without a span is ignored. */
  select(n, withFocus) {
    if (n === undefined || !this.tree.spans[n]) return;
    const previous = this.selected;
    this.selected = n;
    if (this.tree.reveal(n)) this.draw();
    for (const changed of [previous, n]) {
      const row = this.rows.get(changed);
      row?.setAttribute("aria-selected", String(changed === n));
      row?.setAttribute("tabindex", changed === n ? "0" : "-1");
    }
    const row = this.rows.get(n);
    if (withFocus) row?.focus({ preventScroll: true });
    if (row) this.scrollTo(row);
    this.onSelect(n);
  }

  /** Scrolls no farther than necessary. */
  scrollTo({ offsetTop, offsetHeight }) {
    const { scrollTop, clientHeight } = this.element, bottom = offsetTop + offsetHeight;
    if (offsetTop < scrollTop) this.element.scrollTop = offsetTop;
    else if (bottom > scrollTop + clientHeight) this.element.scrollTop = bottom - clientHeight;
  }

  handleKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { tree, selected } = this;
    const visible = tree.visibleSpans(), position = visible.indexOf(selected), children = tree.children[selected];
    const isCollapsed = tree.collapsed.has(selected);
    const setCollapsed = (collapsed) => { this.setCollapsed(selected, collapsed); return selected; };
    const nextFailing = () =>
      [...visible.slice(position + 1), ...visible.slice(0, position)].find((n) => tree.failsItself(n));
    // Each returns the span to select.
    const targets = {
      ArrowDown: () => visible[position + 1],
      ArrowUp: () => visible[position - 1],
      Home: () => visible[0],
      End: () => visible[visible.length - 1],
      ArrowRight: () => (children.length && isCollapsed ? setCollapsed(false) : children[0]),
      ArrowLeft: () => (children.length && !isCollapsed ? setCollapsed(true) : tree.spans[selected].up),
      n: nextFailing,
    };
    if (event.key === "Enter") {
      event.preventDefault();
      this.onEnter();
    } else if (targets[event.key]) {
      event.preventDefault();
      this.select(targets[event.key](), true);
    }
  }
}
