// Numbers, times and verdicts as they are shown. A missing duration, cost, score or time is an empty text.

const VERDICTS = { pass: ["✓", "pass"], fail: ["✕", "fail"], unmeasured: ["–", "unmeasured"], open: ["…", "open"] };

function verdictElement(result) {
  const [symbol, word] = VERDICTS[result] || VERDICTS.unmeasured;
  return el("span", { class: `verdict ${result}` }, el("span", { "aria-hidden": "true" }, symbol), word);
}

const formatCount = (number) => Number(number || 0).toLocaleString("en");
const plural = (number, singular) => `${formatCount(number)} ${number === 1 ? singular : `${singular}s`}`;
const formatPercentage = (part, whole) => (whole ? `${Math.round((100 * part) / whole)} %` : "–");

function formatBytes(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let number = Number(bytes || 0), unit = 0;
  while (number >= 1024 && unit < units.length - 1) { number /= 1024; unit += 1; }
  return `${unit === 0 || number >= 100 ? Math.round(number) : number.toFixed(1)} ${units[unit]}`;
}

function formatDuration(ms) {
  if (ms === undefined || ms === null) return "";
  if (ms < 1) return `${ms.toFixed(2)} ms`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60000) return `${(ms / 1000).toFixed(ms < 10000 ? 2 : 1)} s`;
  if (ms < 3600000) return `${Math.floor(ms / 60000)} min ${Math.round((ms % 60000) / 1000)} s`;
  return `${Math.floor(ms / 3600000)} h ${Math.round((ms % 3600000) / 60000)} min`;
}

function formatDollars(usd) {
  if (usd === undefined || usd === null) return "";
  return `$${usd < 0.1 ? usd.toPrecision(2) : usd.toFixed(2)}`;
}

/** The label of a measurement, or its score or value. */
function formatScore(metric) {
  const number = metric.score ?? metric.value;
  if (metric.label !== undefined) return metric.label;
  if (number === undefined) return "";
  return Number.isInteger(number) ? String(number) : number.toFixed(2);
}

const twoDigits = (number) => String(number).padStart(2, "0");

/** The local time of a day; `ms` are milliseconds since 1970, as in the functions below. */
function formatClock(ms, withSeconds = true) {
  const date = new Date(ms);
  const minutes = `${twoDigits(date.getHours())}:${twoDigits(date.getMinutes())}`;
  return withSeconds ? `${minutes}:${twoDigits(date.getSeconds())}` : minutes;
}

function formatDay(ms) {
  const date = new Date(ms);
  return `${date.getFullYear()}-${twoDigits(date.getMonth() + 1)}-${twoDigits(date.getDate())}`;
}

/** The time of today, or the day and the time of another day. */
function timeElement(ms) {
  if (!ms) return "";
  const isToday = formatDay(ms) === formatDay(Date.now());
  const text = isToday ? formatClock(ms) : `${formatDay(ms)} ${formatClock(ms, false)}`;
  const iso = new Date(ms).toISOString();
  return el("time", { datetime: iso, title: iso }, text);
}
