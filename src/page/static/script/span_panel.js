// The panel of the selected span: its metrics with their findings, errors, content and recorded evaluations.

/** Maximum number of findings of other spans that refer to a span, and of spans that a finding cites. */
const MAX_SHOWN_REFERENCES = 12, MAX_SHOWN_CITATIONS = 6;

/** A list of names with their values, which are texts or elements; entries without a value are omitted. */
function factList(entries) {
  const valueElement = (value) => (value instanceof Node ? value : bdi(value));
  return el("dl", { class: "facts" }, entries.filter(([, value]) => value).map(([name, value]) =>
    el("div", null, el("dt", null, name), el("dd", null, valueElement(value)))));
}

const titledSection = (title, ...children) => el("section", null, el("h3", null, title), ...children);
const textBlock = (text) => el("pre", { dir: "auto", tabindex: "0" }, text);
const compactTable = (rows) => el("table", { class: "compact" }, el("tbody", null, rows));

/**
 * The errors of a span, without those that another one contains: the same error is often recorded as a status, an
 * exception and an attribute.
 */
function distinctErrors(errors) {
  return errors.filter((error, n) => {
    const message = error.replace(/^error: /, "");
    return !errors.some((other, m) =>
      m !== n && other.includes(message) && (other.length > error.length || m < n));
  });
}

class SpanPanel {
  /** `onLink` is called with the index of a span whose link is followed. */
  constructor(row, tree, onLink) {
    Object.assign(this, { row, tree, onLink });
    this.element = el("div", { class: "card span-panel", role: "region", "aria-label": "Selected span" });
  }

  show(n) {
    replaceContent(this.element, this.content(n));
    this.element.scrollTop = 0;
  }

  focus() {
    this.element.querySelector("a, button, summary")?.focus();
  }

  content(n) {
    const { tree, row } = this;
    const span = tree.spans[n], metrics = span.metrics || [];
    const withResult = (result) => metrics.filter((metric) => metric.result === result);
    const failing = withResult("fail"), passing = withResult("pass"), unmeasured = withResult("unmeasured");
    const detailed = failing.length ? failing : passing.filter((metric) => metric.findings);
    const errors = distinctErrors(span.errors || []);
    const emptyText =
      row.result === "open" ? "Spans are measured when the trace closes." : "Nothing was measured on this span.";
    return [
      el("div", { class: "title" }, span.result && verdictElement(span.result),
        el("h2", null, bdi(span.name || span.id)), span.id === tree.rootCause && tag("root cause", "cause"),
        tree.fails(n) && span.cause === "children" && dim("fails through its children")),
      this.facts(span),
      detailed.map((metric) => this.metric(metric)),
      errors.length > 0 && titledSection("Recorded errors", errors.map(textBlock)),
      this.references(tree.references[n]),
      this.excerpts(span),
      this.otherMetrics(passing, unmeasured, !failing.length),
      this.evaluations(span.evaluations || []),
      !metrics.length && el("p", { class: "empty" }, emptyText),
    ];
  }

  facts(span) {
    return factList([
      ["Kind", span.kind], ["Agent", span.agent], ["Model", span.model],
      ["Service", span.service !== this.row.service && span.service], ["Duration", formatDuration(span.duration_ms)],
      ["Tokens", span.tokens !== undefined && formatCount(span.tokens)], ["Cost", formatDollars(span.cost_usd)],
      ["Span", el("code", null, span.id)],
    ]);
  }

  /** A link to a span of the trace; only its id if it is not in the tree. */
  link(id) {
    const { tree, row } = this;
    const n = tree.indexes.get(id);
    if (n === undefined) return el("code", null, id);
    const click = (event) => { event.preventDefault(); this.onLink(n); };
    return el("a", { href: traceLink(row.trace_id, id), click }, bdi(tree.spans[n].name || id));
  }

  metric(metric) {
    const details = Object.entries(metric.details || {});
    const detailRow = ([key, value]) =>
      el("tr", null, cell(null, key), el("td", { dir: "auto" }, value));
    return el("div", { class: "metric" },
      el("header", null, verdictElement(metric.result), el("h3", null, metric.metric),
        el("b", null, formatScore(metric)), dim(metric.judge)),
      metric.rationale && el("p", { dir: "auto" }, metric.rationale),
      (metric.findings || []).map((finding) => this.finding(finding)),
      details.length > 0 &&
        el("details", null, el("summary", null, "Details"), compactTable(details.map(detailRow))));
  }

  finding(finding) {
    const precision = "the precision of the rule on labelled traces";
    return el("div", { class: finding.note ? "finding note" : "finding" },
      finding.rationale && el("p", { dir: "auto" }, finding.rationale),
      finding.quote && el("blockquote", { dir: "auto", tabindex: "0" }, finding.quote),
      this.evidence(finding),
      el("div", { class: "tags" }, tag(finding.severity),
        finding.category && el("a", { class: "tag", href: listLink({ category: finding.category }) }, finding.category),
        finding.blame && tag(`blame: ${finding.blame}`),
        finding.touched_outcome !== undefined &&
          tag(finding.touched_outcome ? "touched the outcome" : "did not touch the outcome"),
        finding.confidence !== undefined &&
          el("span", { class: "tag", title: precision }, `confidence ${finding.confidence.toFixed(2)}`),
        finding.note && tag("note")));
  }

  /** The spans that a finding quotes, in which it began, and which it cites. */
  evidence(finding) {
    const cited = (finding.cited || []).filter((id) => id !== finding.seen_in);
    const citations = cited.slice(0, MAX_SHOWN_CITATIONS).map((id, i) => [i ? ", " : "", this.link(id)]);
    const parts = [
      finding.seen_in && ["Quoted from ", this.link(finding.seen_in)],
      finding.origin && ["Began in ", this.link(finding.origin)],
      cited.length > 0 && ["Rests on ", citations,
        cited.length > MAX_SHOWN_CITATIONS && ` and ${cited.length - MAX_SHOWN_CITATIONS} more`],
    ].filter(Boolean);
    return parts.length > 0 && el("p", { class: "dim" }, parts.map((part, i) => [i > 0 && " · ", part]));
  }

  /** The metrics of other spans whose findings refer to this one. */
  references(references) {
    const item = ({ from, metric, relation }) => el("li", null,
      el("span", null, metric, " on ", this.link(this.tree.spans[from].id), " ", dim(`(${relation})`)));
    return references.length > 0 && titledSection("Evidence of",
      el("ul", { class: "list" }, references.slice(0, MAX_SHOWN_REFERENCES).map(item)));
  }

  excerpts({ kind, input, output }) {
    const isTool = kind === "tool";
    return (input || output) && el("section", null,
      input && [el("h3", null, isTool ? "Arguments" : "Input"), textBlock(input)],
      output && [el("h3", null, isTool ? "Result" : "Output"), textBlock(output)]);
  }

  /** The metrics that do not fail. */
  otherMetrics(passing, unmeasured, isExpanded) {
    const row = (metric) => {
      const passed = metric.result === "pass";
      return el("tr", null, cell(null, metric.metric),
        cell("num", passed ? formatScore(metric) : dim(metric.reason || "unmeasured")),
        cell("dim", passed ? metric.judge : ""));
    };
    const metrics = [...passing, ...unmeasured];
    const unmeasuredText = unmeasured.length ? `, ${formatCount(unmeasured.length)} unmeasured` : "";
    return metrics.length > 0 && el("section", null, el("details", { open: isExpanded },
      el("summary", null, `${plural(passing.length, "passing metric")}${unmeasuredText}`),
      compactTable(metrics.map(row))));
  }

  /** Evaluations that other programs recorded; `by` is the evaluator, its version and its type. */
  evaluations(evaluations) {
    const row = ({ name, error, label, score, explanation, by }) => {
      const result = [error ? `failed: ${error}` : label, score].filter((value) => value !== undefined);
      return el("tr", null, cell(null, bdi(name)), cell("num", bdi(result.join(" "))),
        el("td", { dir: "auto" }, explanation, by && [" ", dim(joinedTexts(by))]));
    };
    return evaluations.length > 0 && titledSection("Recorded evaluations", compactTable(evaluations.map(row)));
  }
}
