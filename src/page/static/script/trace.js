// One trace: its facts, its failure chain, its tree and the selected span.

const OPEN_TRACE_REFRESH_MS = 3000;
/** Browsers limit how often the address may change. */
const ADDRESS_DELAY_MS = 150;
/** Maximum number of failing spans outside the failure chain that are shown. */
const MAX_SHOWN_FAILURES = 24;

/** The id and the state of a trace that is about to be drawn again because it has changed; null otherwise. */
let redrawnTrace = null;

views.set("trace", async ({ traceId, spanId }, isCurrent) => {
  const { trace, detail } = await source.trace(traceId);
  if (!isCurrent()) return;
  document.title = `${trace.task || trace.name || trace.trace_id} – otel-verdict`;
  const earlierState = redrawnTrace?.id === trace.trace_id && redrawnTrace.state;
  redrawnTrace = null;
  const tree = new SpanTree(detail);
  if (earlierState) tree.restore(earlierState.tree);
  const view = new TraceView(trace, detail, tree);
  replaceContent($("main"), view.content());
  // Scrolling and focus need elements of the document.
  view.list.select(tree.initialSelection(spanId), false);
  if (earlierState) view.restoreList(earlierState);
  if (report) return;
  const refresh = async () => {
    const latest = (await source.trace(traceId)).trace;
    const isChanged = ["spans", "result", "revision"].some((key) => latest[key] !== trace[key]);
    if (!isCurrent() || !isChanged) return;
    redrawnTrace = { id: trace.trace_id, state: view.state() };
    showView();
  };
  if (trace.result === "open") refreshEvery(OPEN_TRACE_REFRESH_MS, refresh, isCurrent);
  onVerdict = (row) => {
    if (row.trace_id === trace.trace_id) refresh().catch((error) => showProblem(error.message));
  };
});

class TraceView {
  constructor(row, detail, tree) {
    Object.assign(this, { row, detail, tree });
    this.panel = new SpanPanel(row, tree, (n) => this.list.select(n, true));
    this.list = new SpanList(tree, row.duration_ms, {
      onSelect: (n) => this.showSpan(n),
      onEnter: () => this.panel.focus(),
    });
    this.addressTimer = 0;
  }

  state() {
    const { element } = this.list;
    const isFocused = element.contains(document.activeElement);
    return { tree: this.tree.state(), scrollTop: element.scrollTop, isFocused };
  }

  restoreList({ scrollTop, isFocused }) {
    const { element } = this.list;
    element.scrollTop = scrollTop;
    if (isFocused) element.querySelector("[tabindex='0']")?.focus({ preventScroll: true });
  }

  /** Shows the selected span in the panel, the failure chain and the address. */
  showSpan(n) {
    for (const step of document.querySelectorAll(".chain .step")) {
      step.setAttribute("aria-pressed", String(Number(step.dataset.n) === n));
    }
    this.panel.show(n);
    clearTimeout(this.addressTimer);
    this.addressTimer = setTimeout(() => {
      const { view, traceId } = currentRoute();
      if (view !== "trace" || traceId !== this.row.trace_id) return;
      history.replaceState(null, "", traceLink(traceId, this.tree.spans[this.list.selected].id));
    }, ADDRESS_DELAY_MS);
  }

  content() {
    const { detail } = this;
    const chain = this.failureChain();
    return [
      el("div", { class: "breadcrumbs" }, el("a", { href: backLink.href }, backLink.text)),
      this.title(),
      this.facts(),
      this.taskAndAnswer(),
      detail.closed && el("p", { class: "dim" },
        "The content of this trace is not shown: explanations are off, or one of its services is withheld."),
      chain && card("Failure chain", chain),
      el("div", { class: "split grid" }, this.treeCard(), this.panel.element),
    ];
  }

  title() {
    const { row } = this;
    const tagLink = (text, filter, className) => el("a", { class: className, href: listLink(filter) }, text);
    return el("div", { class: "title" }, verdictElement(row.result), el("h1", null, bdi(row.name || row.trace_id)),
      row.incomplete && tag("incomplete"),
      row.failed_metrics.map((metric) => tagLink(metric, { metric }, "tag fail")),
      row.categories.map((category) => tagLink(category, { category }, "tag")));
  }

  facts() {
    const { row, detail } = this;
    const link = (key) => row[key] && el("a", { href: listLink({ [key]: row[key] }) }, bdi(row[key]));
    const measured = `${formatCount(detail.measured)}, ${formatCount(detail.unmeasured)} unmeasured`;
    return factList([
      ["Agent", link("agent")], ["Service", link("service")], ["Session", link("session")], ["User", link("user")],
      ["Started", timeElement(row.start)], ["Duration", formatDuration(row.duration_ms)],
      ["Spans", formatCount(row.spans)], ["Models", row.models.join(", ")],
      ["Tokens", row.tokens && formatCount(row.tokens)], ["Cost", formatDollars(row.cost_usd)],
      ["Judges’ cost", row.judge_cost_usd > 0 && formatDollars(row.judge_cost_usd)],
      ["Measured", row.result !== "open" && measured], ["Closed", row.close_reason],
      ["Revision", row.revision > 1 && String(row.revision)],
      ["Failure probability", detail.failure_probability?.toFixed(2)],
      ["Signature", link("signature")], ["Trace", el("code", null, row.trace_id)],
    ]);
  }

  /** The task, the answer, and the judges' statement about the outcome; false if there is none. */
  taskAndAnswer() {
    const { row, detail } = this;
    const { score, rationale } = detail.outcome || {};
    const judgement = detail.outcome && `${score.toFixed(2)}${rationale ? `: ${rationale}` : ""}`;
    const entries = [["Task", row.task], ["Answer", detail.answer], ["Judges on the outcome", judgement]]
      .filter(([, text]) => text);
    return entries.length > 0 && el("dl", { class: "task-and-answer" },
      entries.map(([name, text]) => [el("dt", null, name), el("dd", { dir: "auto" }, text)]));
  }

  /** The spans from the root to the worst failure, and the failing spans outside this chain; null without failures. */
  failureChain() {
    const { detail, tree } = this;
    const chain = detail.failure_chain.filter((id) => tree.indexes.has(id));
    const failing = [...new Set([...detail.failed_spans, detail.root_cause])];
    const others = failing.filter((id) => tree.indexes.has(id) && !chain.includes(id));
    if (!chain.length && !others.length) return null;
    const step = (id) => this.chainStep(tree.indexes.get(id));
    const hiddenCount = others.length - MAX_SHOWN_FAILURES;
    return [
      cardHead("Failure chain", dim("from the root to the worst failure")),
      el("ol", { class: "chain" }, chain.map(step)),
      others.length > 0 && [
        el("h3", { class: "chain-title" }, chain.length ? "Failing besides" : "Failing spans"),
        el("ul", { class: "chain unlinked" }, others.slice(0, MAX_SHOWN_FAILURES).map(step),
          hiddenCount > 0 && el("li", null, dim(`and ${hiddenCount} more`)))],
    ];
  }

  chainStep(n) {
    const { tree } = this;
    const span = tree.spans[n], metrics = tree.failedMetrics(n).join(", "), isCause = span.id === tree.rootCause;
    const reason = isCause ? ["root cause", metrics].filter(Boolean).join(" · ") : metrics || "through its children";
    return el("li", null, el("button", {
      type: "button", class: `step${tree.failsItself(n) ? " self" : ""}${isCause ? " cause" : ""}`,
      "data-n": n, "aria-pressed": "false", click: () => this.list.select(n, true),
    }, el("b", null, bdi(span.name || span.kind)), el("span", null, reason)));
  }

  treeCard() {
    const { tree, detail } = this;
    const click = () => {
      const failingOnly = !tree.failingOnly;
      button.setAttribute("aria-pressed", String(failingOnly));
      this.list.setFailingOnly(failingOnly);
    };
    const button = el("button", { type: "button", "aria-pressed": String(tree.failingOnly), click }, "Failing only");
    const omitted = detail.omitted > 0 && dim(`${formatCount(detail.omitted)} more are not shown`);
    const hasFailing = tree.spans.some((span) => span.result === "fail");
    return el("section", { class: "card tree", "aria-label": "Tree" },
      cardHead(plural(tree.spans.length, "span"), omitted, spacer(), hasFailing && button), this.list.element);
  }
}
