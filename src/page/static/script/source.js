// The data of the page: JSON of the server, or of elements of this document if it is a report file.

/** The list and the overview in a report file; null on the live page. */
const report = $("data") && JSON.parse($("data").textContent);
/** Rows that the report adds to the list at once, as many as the server by default. */
const PAGE_ROWS = 100;

async function fetchJson(path) {
  const response = await fetch(path, { headers: { accept: "application/json" } });
  const body = await response.json().catch(() => ({}));
  if (!response.ok) throw new Error(body.error || `the server answered ${response.status}`);
  return body;
}

const serverSource = {
  overview: () => fetchJson("api/overview"),
  open: () => fetchJson("api/open"),
  trace: (id) => fetchJson(`api/traces/${encodeURIComponent(id)}`),
  /** The latest rows that match; with `before`, those with smaller sequence numbers. */
  list: (filter, before) => {
    const query = filterQuery(filter);
    if (before) query.set("before", before);
    return fetchJson(`api/traces?${query}`);
  },
};

/** Whether a row matches a filter, by the same comparison as `RowFilter` of the server. */
function matches(row, filter) {
  const contains = (text, part) => (text || "").toLowerCase().includes(part.toLowerCase());
  const anyContains = (texts, part) => texts.some((text) => contains(text, part));
  const names = (usages) => usages.map((usage) => usage.name);
  const agents = [...names(row.agents), row.agent];
  const searched = [row.name, row.trace_id, row.service, row.session, row.user, row.task, row.signature];
  const conditions = {
    result: (value) => row.result === value,
    signature: (value) => row.signature === value,
    service: (value) => contains(row.service, value),
    session: (value) => contains(row.session, value),
    user: (value) => contains(row.user, value),
    agent: (value) => anyContains(agents, value),
    metric: (value) => anyContains(row.failed_metrics, value),
    category: (value) => anyContains(row.categories, value),
    tool: (value) => anyContains(names(row.tools), value),
    q: (value) => anyContains([...searched, ...agents, ...row.failed_metrics], value),
  };
  return FILTER_KEYS.every((key) => !filter[key] || conditions[key](filter[key]));
}

const reportSource = {
  overview: async () => ({ overview: report.overview }),
  trace: async (id) => {
    const row = report.traces.find((candidate) => candidate.trace_id === id);
    if (!row) throw new Error("the trace is not in this file");
    const element = /^[0-9a-f]{32}$/.test(id) && $(`trace-${id}`);
    if (!element) {
      throw new Error(
        "This file has the verdict of the trace without its spans: it would have become too large.");
    }
    return { trace: row, detail: JSON.parse(element.textContent) };
  },
  list: async (filter, before) => {
    const matching = report.traces.filter((row) => matches(row, filter)).sort((a, b) => b.seq - a.seq);
    const older = matching.filter((row) => !before || row.seq < before);
    return {
      traces: older.slice(0, PAGE_ROWS), more: older.length > PAGE_ROWS,
      matching: matching.length, all: report.traces.length,
    };
  },
};

const source = report ? reportSource : serverSource;
