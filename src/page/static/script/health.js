// The state of the process: memory, journal, judges and exporters.

const HEALTH_REFRESH_MS = 3000;
/** The fraction of a limit beyond which its meter has the colour of failures. */
const NEARLY_FULL = 0.8;

views.set("health", async (_route, isCurrent) => {
  document.title = "Health – otel-verdict";
  const container = el("div", null);
  const load = async () => {
    const { health, page } = await source.overview();
    if (!isCurrent()) return;
    showOpenCount(health.memory.open_traces);
    replaceContent(container, healthCards(health, page));
  };
  await load();
  if (!isCurrent()) return;
  replaceContent($("main"), el("h1", { class: "visually-hidden" }, "Health"), container);
  refreshEvery(HEALTH_REFRESH_MS, load, isCurrent);
});

function healthCards(health, page) {
  const { obstacles, judges, exporters } = health;
  const messages = judges.flatMap(({ judge, report: calls }) =>
    (calls?.messages || []).map((message) => el("li", null, el("span", { dir: "auto" }, `${judge}: ${message}`))));
  const judgeTitles =
    ["Judge", "State", "Answered", "From cache", "Failed", "Asked / waiting", "Mean", "Tokens", "Cost"];
  const exporterTitles = ["Exporter", "Queue", "Exported", "Dropped", "Dead letters", "Retries"];
  return [
    obstacles.length > 0 && el("p", { class: "card verdict fail" }, obstacles.join("; ")),
    el("div", { class: "grid three-columns" },
      processCard(health), memoryCard(health.memory), storageCard(health.journal, page)),
    el("div", { class: "grid" },
      tableCard("Judges", judgeTitles, judges.map(judgeCells), "No judge is configured; rules judge alone."),
      messages.length > 0 && card("Messages of judges", el("h2", null, "Messages of judges’ servers"),
        el("ul", { class: "list" }, messages)),
      tableCard("Exporters", exporterTitles, exporters.map(exporterCells), "There is none.")),
  ];
}

const tallyCard = (title, entries) =>
  card(title, el("h2", null, title), el("dl", { class: "tallies" }, definitions(entries.filter(Boolean))));

/** A table whose columns are numbers from the third on; `emptyText` is shown without rows. */
function tableCard(title, columnTitles, rows, emptyText) {
  const className = (column) => column > 1 && "num";
  const row = (values) => el("tr", null, values.map((value, column) => cell(className(column), value)));
  return card(title, el("h2", null, title), rows.length
    ? el("table", null, tableHead(columnTitles.map((text, column) => [text, className(column)])),
      el("tbody", null, rows.map(row)))
    : el("p", { class: "empty" }, emptyText));
}

/** A meter of the used part of a limit. */
function usageMeter(used, limit) {
  const fraction = limit ? Math.min(used / limit, 1) : 0, level = el("i", null);
  level.style.width = `${100 * fraction}%`;
  const className = `meter usage${fraction > NEARLY_FULL ? " nearly-full" : ""}`;
  return el("span", { class: className, role: "img", "aria-label": formatPercentage(used, limit) }, level);
}
const usageText = (used, limit) => `${formatBytes(used)} of ${formatBytes(limit)}`;
const bytesUsage = (used, limit) => el("span", null, usageMeter(used, limit), ` ${usageText(used, limit)}`);

function processCard({ version, uptime_s: uptime, obstacles, spans }) {
  return tallyCard("Process", [
    ["Version", version], ["Up", formatDuration(uptime * 1000)],
    ["State", obstacles.length ? "does not accept requests" : "ready"],
    ["Spans received", formatCount(spans.received)], ["Spans accepted", formatCount(spans.accepted)],
    ["Late spans", formatCount(spans.late)],
  ]);
}

function memoryCard(memory) {
  const used = memory.open_bytes + memory.in_transit_bytes + memory.closed_bytes;
  return tallyCard("Memory", [
    ["Open traces", formatCount(memory.open_traces)], ["Their spans", formatCount(memory.buffered_spans)],
    ["Buffered", bytesUsage(used, memory.budget_bytes)],
    ["Requests being read", formatBytes(memory.reading_bytes)],
    ["Waiting for delivery", formatBytes(memory.closed_bytes)],
  ]);
}

function storageCard(journal, page) {
  const journalEntries = journal ? [
    ["Journal", bytesUsage(journal.bytes, journal.max_bytes)],
    ["Refused requests, errors", `${formatCount(journal.refused_requests)}, ${formatCount(journal.errors)}`],
    ["Dead letters", formatBytes(journal.dead_letter_bytes)],
  ] : [["Journal", "off: traces in memory do not survive a crash"]];
  return tallyCard("Journal and page", [
    ...journalEntries,
    ["Traces shown", formatCount(page.traces)], ["Their memory", bytesUsage(page.bytes, page.max_bytes)],
    page.skipped > 0 && ["Traces left out", formatCount(page.skipped)], ["Open pages", formatCount(page.clients)],
  ]);
}

/** The cells of a judge; `calls` counts its calls, and is absent before the first one. */
function judgeCells({ judge, model, breaker, in_flight: inFlight, waiting, report: calls }) {
  const stateText = { closed: "in use", half_open: "being tried again", open: "suspended" }[breaker];
  const failed = Object.entries(calls?.failed || {});
  const failedText = failed.map(([reason, number]) => `${reason} ${formatCount(number)}`).join(", ");
  return [
    el("span", null, bdi(judge), " ", dim(bdi(model))),
    el("span", { class: breaker === "closed" ? "verdict pass" : "verdict fail" }, stateText),
    formatCount(calls?.answered), formatCount((calls?.cached || 0) + (calls?.replayed || 0)), failedText || "0",
    `${formatCount(inFlight)} / ${formatCount(waiting)}`,
    calls?.seconds_mean ? `${calls.seconds_mean.toFixed(1)} s` : "",
    calls ? formatCount(calls.tokens.input + calls.tokens.cached + calls.tokens.output) : "",
    formatDollars(calls?.cost_usd),
  ];
}

/** The cells of an exporter; `why` are the numbers of dropped spans by reason. */
function exporterCells(exporter) {
  const { queue_bytes: queued, queue_capacity: capacity, dropped, why } = exporter;
  const reasons = Object.entries(why).map(([reason, number]) => `${reason}: ${number}`).join(", ");
  return [
    exporter.exporter, el("span", null, usageMeter(queued, capacity), " ", dim(usageText(queued, capacity))),
    formatCount(exporter.exported), dropped ? el("span", { title: reasons }, formatCount(dropped)) : "0",
    formatCount(exporter.dead_lettered), formatCount(exporter.retries),
  ];
}
