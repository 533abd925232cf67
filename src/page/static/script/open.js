// Open traces: those whose spans still arrive.

const OPEN_TRACES_REFRESH_MS = 2000;

views.set("open", async (_route, isCurrent) => {
  document.title = "Open traces – otel-verdict";
  backLink = { href: "#/open", text: "← Open traces" };
  const container = el("div", null);
  const load = async () => {
    const { open } = await source.open();
    if (!isCurrent()) return;
    showOpenCount(open.length);
    const restoreFocus = rememberFocus(container);
    replaceContent(container, openTable(open));
    restoreFocus();
  };
  await load();
  if (!isCurrent()) return;
  replaceContent($("main"), el("h1", null, "Open traces"),
    el("p", { class: "dim" }, "Traces whose spans still arrive. They are judged when they close."), container);
  refreshEvery(OPEN_TRACES_REFRESH_MS, load, isCurrent);
});

function openTable(traces) {
  if (!traces.length) return el("p", { class: "empty card" }, "No trace is open.");
  const columns = [
    ["State"], ["Trace"], ["Spans", "num"], ["Bytes", "num wide-only"], ["Age", "num"], ["Idle", "num wide-only"],
    ["Closes in", "num"],
  ];
  const row = (trace) => el("tr", null,
    cell(null, verdictElement("open")),
    cell(null, traceCell(trace.trace_id, trace.name, [trace.service, trace.incomplete && "incomplete"])),
    cell("num", formatCount(trace.spans)),
    cell("num wide-only", formatBytes(trace.bytes)),
    cell("num", formatDuration(trace.age_ms)),
    cell("num wide-only", formatDuration(trace.idle_ms)),
    cell("num", formatDuration(trace.closes_in_ms), " ", dim(trace.close_reason)));
  return el("div", { class: "traces" }, el("table", null,
    el("caption", { class: "visually-hidden" }, "Open traces, those with the latest spans first"),
    tableHead(columns), el("tbody", null, traces.map(row))));
}
