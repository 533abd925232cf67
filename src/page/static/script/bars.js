// The bars of the timeline: counts of verdicts by interval.
//
// A bar is `{ at, pass, fail, unmeasured, categories }`; `at` is the start of its interval in seconds since 1970. A
// timeline is `{ bars, step, start, slots }`: `step` is the duration of an interval in seconds, `start` the start of
// the first interval, and `slots` the number of intervals, of which those without a verdict have no bar.

const RESULTS = ["fail", "pass", "unmeasured"];
/** The ranges of the live page in minutes. */
const RANGES = [[60, "1 h"], [360, "6 h"], [1440, "24 h"]];
/** Slots of each range. Because they are 60, the interval of a range of n minutes takes n seconds. */
const LIVE_SLOTS = 60;
/** Minimum number of slots of a report: the bars of a few traces would be too wide otherwise. */
const MIN_REPORT_SLOTS = 24;

let selectedRange = 60; // Of the timeline, the pass rate and the categories.

function addCategories(totals, categories) {
  for (const [category, number] of Object.entries(categories || {})) {
    totals[category] = (totals[category] || 0) + number;
  }
}

/** The timeline of the selected range, from the server's counts by minute. */
function liveTimeline(minutes) {
  const step = selectedRange;
  const startOf = (seconds) => Math.floor(seconds / step) * step;
  const last = startOf(Date.now() / 1000), start = last - (LIVE_SLOTS - 1) * step;
  const bars = new Map();
  for (const minute of minutes) {
    const at = startOf(minute.at);
    if (at < start || at > last) continue;
    const bar = bars.get(at) || { at, pass: 0, fail: 0, unmeasured: 0, categories: {} };
    for (const result of RESULTS) bar[result] += minute[result];
    addCategories(bar.categories, minute.categories);
    bars.set(at, bar);
  }
  return { bars: [...bars.values()].sort((a, b) => a.at - b.at), step, start, slots: LIVE_SLOTS };
}

/** The timeline of a report, whose bars are complete. */
function reportTimeline({ timeline: bars, step }) {
  const start = bars[0]?.at ?? 0;
  const slots = bars.length ? Math.round((bars[bars.length - 1].at - start) / step) + 1 : 1;
  return { bars, step, start, slots: Math.max(slots, MIN_REPORT_SLOTS) };
}

const total = (bars, result) => bars.reduce((sum, bar) => sum + bar[result], 0);
const startText = (bar) => `${formatDay(bar.at * 1000)} ${formatClock(bar.at * 1000)}`;
const judgedCount = (bar) => bar.pass + bar.fail;
const passRate = (bar) => bar.pass / judgedCount(bar);
const passRateText = (bar) => formatPercentage(bar.pass, judgedCount(bar));

/** Pairs of a category and its number of failing traces, the most frequent first. */
const rankedCategories = (categories) => Object.entries(categories || {}).sort(([, a], [, b]) => b - a);
const categoriesText = (bar) =>
  rankedCategories(bar.categories).map(([category, number]) => `${category} ${number}`).join("; ");

function categoriesOf(bars) {
  const totals = {};
  for (const bar of bars) addCategories(totals, bar.categories);
  return rankedCategories(totals);
}
