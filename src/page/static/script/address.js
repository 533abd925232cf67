// The part of the address after '#'. It names the view, with its filter or its trace and span, so that a view can be
// shared: `#/traces?result=fail&agent=planner`, `#/trace/<trace id>/<span id>`, `#/open`, `#/health`.

const FILTER_KEYS =
  ["result", "agent", "service", "session", "user", "metric", "category", "tool", "signature", "q"];

/** The address, with every key of the filter; the value of a condition that is not set is empty. */
function currentRoute() {
  const decoded = (part) => { try { return decodeURIComponent(part); } catch { return ""; } };
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [view, traceId, spanId] = path.split("/").map(decoded);
  const parameters = new URLSearchParams(query || "");
  const filter = Object.fromEntries(FILTER_KEYS.map((key) => [key, parameters.get(key) || ""]));
  return { view: view || "traces", traceId: traceId || "", spanId: spanId || "", filter };
}

const isFiltered = (filter) => FILTER_KEYS.some((key) => filter[key]);
const filterQuery = (filter) => new URLSearchParams(Object.entries(filter).filter(([, value]) => value));

function listLink(filter) {
  const query = filterQuery(filter).toString();
  return query ? `#/traces?${query}` : "#/traces";
}

const traceLink = (traceId, spanId) => `#/trace/${traceId}${spanId ? `/${spanId}` : ""}`;
