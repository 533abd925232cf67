// The timeline: pass rates and verdicts as charts, and as a table for screen readers.

/** The coordinates of both charts, which are stretched to the width of the card. */
const CHART_WIDTH = 1000;
const CHART = { viewBox: `0 0 ${CHART_WIDTH} 104`, preserveAspectRatio: "none", role: "img" };
/** The height of the highest bar. */
const BARS_HEIGHT = 100;
/** The position of 100 %, above which there is space for a dot, and the distance from it to 0 %. */
const RATES_TOP = 4, RATES_HEIGHT = 96;
/** The parts of a slot that its bar and the margin on each side take. */
const BAR_WIDTH = 0.84, BAR_MARGIN = 0.08;

const axis = (y, width = CHART_WIDTH) => svg("line", { class: "axis", x1: 0, x2: width, y1: y, y2: y });

/** The verdicts of each bar, stacked. */
function verdictChart({ bars, step, start, slots }, highest) {
  const passing = formatCount(total(bars, "pass")), unmeasured = formatCount(total(bars, "unmeasured"));
  const label =
    `Verdicts over time: ${plural(total(bars, "fail"), "trace")} failing, ${passing} passing, ${unmeasured} unmeasured`;
  const slotWidth = CHART_WIDTH / slots;
  const stack = (bar) => {
    const title = [`${startText(bar)}: ${bar.fail} failing, ${bar.pass} passing, ${bar.unmeasured} unmeasured`];
    if (categoriesText(bar)) title.push(categoriesText(bar));
    const x = ((bar.at - start) / step) * slotWidth + slotWidth * BAR_MARGIN;
    const width = slotWidth * BAR_WIDTH;
    let y = BARS_HEIGHT;
    const parts = RESULTS.map((result) => {
      const height = (bar[result] / highest) * BARS_HEIGHT;
      y -= height;
      return height > 0 && svg("rect", { class: result, x, y, width, height });
    });
    return svg("g", null, svg("title", null, title.join("; ")), parts);
  };
  return svg("svg", { class: "chart", ...CHART, "aria-label": label }, axis(BARS_HEIGHT + 2), bars.map(stack));
}

/** The pass rate of each bar with a verdict, as a line with a dot for each. */
function passRateChart({ bars, step, start, slots }) {
  const judged = bars.filter((bar) => judgedCount(bar) > 0);
  const slotWidth = CHART_WIDTH / slots;
  const point = (bar) => {
    const x = ((bar.at - start) / step + 0.5) * slotWidth;
    return `${x.toFixed(1)},${(RATES_TOP + RATES_HEIGHT * (1 - passRate(bar))).toFixed(1)}`;
  };
  const title = (bar) => `${startText(bar)}: ${passRateText(bar)} of ${formatCount(judgedCount(bar))} pass`;
  return svg("svg", { class: "chart passrate", ...CHART, "aria-label": passRateLabel(judged) },
    axis(RATES_TOP), axis(RATES_TOP + RATES_HEIGHT / 2), axis(RATES_TOP + RATES_HEIGHT),
    judged.length > 1 && svg("polyline", { points: judged.map(point).join(" ") }),
    // A line of length 0 keeps its round ends when the chart is stretched; a circle would become an ellipse.
    judged.map((bar) => svg("path", { class: "dot", d: `M${point(bar)}h0` }, svg("title", null, title(bar)))));
}

/** A description of the chart of pass rates for screen readers. */
function passRateLabel(judged) {
  if (!judged.length) return "Pass rate over time: no verdict";
  const rateText = (bar) => `${passRateText(bar)} at ${startText(bar)}`;
  const sorted = [...judged].sort((a, b) => passRate(a) - passRate(b));
  const all = { pass: total(judged, "pass"), fail: total(judged, "fail") };
  return `Pass rate over time: ${passRateText(all)} in total, ${rateText(judged[0])}, ` +
    `${rateText(judged[judged.length - 1])}, lowest ${rateText(sorted[0])}, ` +
    `highest ${rateText(sorted[sorted.length - 1])}`;
}

function timelineTable(bars) {
  const titles = ["Begin", "Pass rate", "Failing", "Passing", "Unmeasured", "Failure categories"];
  const values = (bar) =>
    [startText(bar), passRateText(bar), bar.fail, bar.pass, bar.unmeasured, categoriesText(bar)];
  return el("table", { class: "visually-hidden" }, el("caption", null, "Verdicts over time"),
    el("tr", null, titles.map((title) => el("th", { scope: "col" }, title))),
    bars.map((bar) => el("tr", null, values(bar).map((value) => cell(null, String(value))))));
}

function timelineCard(timeline) {
  const { bars, step, start, slots } = timeline;
  const highest = Math.max(1, ...bars.map((bar) => bar.pass + bar.fail + bar.unmeasured));
  const legend = el("span", { class: "legend" }, el("span", { class: "passrate" }, el("i", null), "pass rate"),
    RESULTS.map((result) => el("span", { class: result }, el("i", null), result)));
  const selectRange = (minutes) => { selectedRange = minutes; showView(); };
  const ranges = !report && segmentedControl("Range", RANGES, selectedRange, selectRange);
  const plot = (chart, top, bottom) => el("div", { class: "plot" },
    el("div", { class: "ticks", "aria-hidden": "true" }, el("span", null, top), el("span", null, bottom)), chart);
  const edgeText = (seconds) => {
    const ms = seconds * 1000;
    if (step >= 86400) return formatDay(ms);
    return report ? `${formatDay(ms)} ${formatClock(ms, step < 60)}` : formatClock(ms, step < 60);
  };
  const edges = [start, start + step * slots].map((seconds) => el("span", null, edgeText(seconds)));
  return el("section", { class: "card timeline", "aria-label": "Verdicts over time" },
    cardHead(report ? "Verdicts by start" : "Verdicts over time", spacer(), legend, ranges),
    plot(passRateChart(timeline), "100 %", "0 %"), plot(verdictChart(timeline, highest), formatCount(highest), "0"),
    el("div", { class: "time-edges" }, edges), timelineTable(bars));
}
