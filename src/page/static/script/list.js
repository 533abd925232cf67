// The list of evaluated traces, below the summary and the search bar.

const SUMMARY_REFRESH_MS = 5000;
/** Verdicts that arrive within this time are shown together. */
const UPDATE_DELAY_MS = 700;
/** A list that is scrolled farther than this is not updated by itself, since its rows would move. */
const MAX_UPDATED_SCROLL_PX = 300;
const MAX_SHOWN_METRICS = 4;
const MAX_SHOWN_ROW_CATEGORIES = 2;

/** The traces of `pageCount` pages; the other fields are those of the last page. */
async function loadPages(filter, pageCount) {
  let page = await source.list(filter);
  let rows = page.traces;
  for (let n = 1; n < pageCount && page.more; n += 1) {
    page = await source.list(filter, rows[rows.length - 1].seq);
    rows = rows.concat(page.traces);
  }
  return { ...page, traces: rows };
}

views.set("traces", async ({ filter }, isCurrent) => {
  backLink = { href: listLink(filter), text: "← Traces" };
  document.title = "Traces – otel-verdict";
  const summaryContainer = el("div", null), tableContainer = el("div", null), search = searchBar(filter);
  let pageCount = 1, newVerdicts = 0, updateTimer = 0;
  const showNewVerdicts = () => { window.scrollTo(0, 0); loadTable(); };
  const newVerdictsButton =
    el("button", { type: "button", class: "new-verdicts", hidden: true, click: showNewVerdicts });

  async function loadSummary() {
    const { overview, health } = await source.overview();
    if (!isCurrent()) return;
    const restoreFocus = rememberFocus(summaryContainer);
    replaceContent(summaryContainer, summaryCards(overview));
    restoreFocus();
    search.updateMenus(overview);
    if (health) showOpenCount(health.memory.open_traces);
  }
  async function loadTable() {
    const page = await loadPages(filter, pageCount);
    if (!isCurrent()) return;
    newVerdicts = 0;
    newVerdictsButton.hidden = true;
    search.updateCount(page);
    const showMore = () => { pageCount += 1; loadTable(); };
    const moreButton = page.more && el("button", { type: "button", class: "more", click: showMore },
      `Show more of ${formatCount(page.matching)}`);
    const restoreFocus = rememberFocus(tableContainer);
    replaceContent(tableContainer, traceTable(page.traces, isFiltered(filter)), moreButton);
    restoreFocus();
  }
  async function update() {
    updateTimer = 0;
    if (!isCurrent()) return;
    const announced = newVerdicts;
    await Promise.all([loadTable(), loadSummary()]).catch((error) => showProblem(error.message));
    announce(plural(announced, "new verdict"));
  }

  await Promise.all([loadSummary(), loadTable()]);
  if (!isCurrent()) return;
  replaceContent($("main"), el("h1", { class: "visually-hidden" }, "Evaluated traces"),
    summaryContainer, search.element, newVerdictsButton, tableContainer);
  if (report) return;
  refreshEvery(SUMMARY_REFRESH_MS, loadSummary, isCurrent);
  onVerdict = () => {
    newVerdicts += 1;
    if (window.scrollY > MAX_UPDATED_SCROLL_PX) {
      newVerdictsButton.textContent = `Show ${plural(newVerdicts, "new verdict")}`;
      newVerdictsButton.hidden = false;
    } else if (!updateTimer) {
      updateTimer = setTimeout(update, UPDATE_DELAY_MS);
    }
  };
});

/** The link to a trace, above further texts about it. */
const traceCell = (traceId, name, texts) => [
  el("a", { href: traceLink(traceId), class: "trace-link" }, bdi(name || traceId)),
  el("span", { class: "subtitle" }, joinedTexts(texts)),
];

function traceTable(rows, hasFilter) {
  if (!rows.length) {
    const text = "No trace has been judged yet. A trace is judged when it closes.";
    return el("p", { class: "empty card" }, hasFilter ? "No trace matches." : text);
  }
  const columns = [
    ["Verdict"], ["Task"], ["Why"], ["Spans", "num wide-only"], ["Tokens", "num wide-only"],
    ["Duration", "num wide-only"], [report ? "Start" : "Judged", "num"],
  ];
  return el("div", { class: "traces" }, el("table", null,
    el("caption", { class: "visually-hidden" }, "Evaluated traces, the latest first"),
    tableHead(columns), el("tbody", null, rows.map(traceTableRow))));
}

function traceTableRow(row) {
  const session = row.session && `session ${row.session}`;
  return el("tr", { class: row.result },
    cell(null, verdictElement(row.result)),
    cell(null, traceCell(row.trace_id, row.task || row.name, [row.agent, row.service, session])),
    cell(null, reasonTags(row)),
    cell("num wide-only", formatCount(row.spans)),
    cell("num wide-only", row.tokens ? formatCount(row.tokens) : ""),
    cell("num wide-only", formatDuration(row.duration_ms)),
    cell("num", timeElement(report ? row.start : row.judged_at)));
}

/** The failed metrics and the categories of a trace, and why it has no verdict. */
function reasonTags(row) {
  const metrics = row.failed_metrics, modifier = row.result === "fail" ? "fail" : "";
  return el("span", { class: "reasons" },
    metrics.slice(0, MAX_SHOWN_METRICS).map((metric) => tag(metric, modifier)),
    metrics.length > MAX_SHOWN_METRICS && tag(`+${metrics.length - MAX_SHOWN_METRICS}`),
    row.categories.slice(0, MAX_SHOWN_ROW_CATEGORIES).map((category) => tag(category)),
    row.result === "unmeasured" && row.reason && tag(row.reason),
    row.incomplete && tag("incomplete"));
}
