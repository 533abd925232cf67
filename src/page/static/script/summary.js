// The summary above the list: pass rate, timeline, failure categories, recurring failures, agents and tools.

const MAX_SHOWN_CATEGORIES = 6;
/** Maximum number of recurring failures, agents and tools that a card shows. */
const MAX_SHOWN_ENTRIES = 5;

/**
 * The cards of an overview. On the live page the pass rate and the categories are those of the selected range, and
 * include traces that are no longer in the list; the other cards are about the traces in the list.
 */
function summaryCards(overview) {
  const timeline = report ? reportTimeline(overview) : liveTimeline(overview.timeline);
  const { bars } = timeline;
  const results = report
    ? { pass: 0, fail: 0, unmeasured: 0, ...overview.traces }
    : { pass: total(bars, "pass"), fail: total(bars, "fail"), unmeasured: total(bars, "unmeasured") };
  const categories = report ? overview.categories : categoriesOf(bars);
  const cards = [el("div", { class: "grid summary" },
    passRateCard(results, overview), timelineCard(timeline), categoriesCard(categories, timeline))];
  if (overview.traces.fail || overview.agents.length || overview.tools.length) {
    const listed = plural(Object.values(overview.traces).reduce((sum, number) => sum + number, 0), "trace");
    cards.push(el("div", { class: "grid three-columns" }, recurringFailuresCard(overview.recurring),
      usageCard("Agents", "agent", overview.agents, `failed runs of ${listed}`),
      usageCard("Tools", "tool", overview.tools, `failed calls of ${listed}`)));
  }
  return cards;
}

/** The selected range in words; a report has no ranges. */
const rangeNote = () => !report && dim(`last ${RANGES.find(([minutes]) => minutes === selectedRange)[1]}`);

function passRateCard({ pass, fail, unmeasured }, overview) {
  const cost = overview.judge_cost_usd;
  const entries = [
    ["Passing", formatCount(pass)], ["Failing", formatCount(fail)],
    ["Unmeasured", unmeasured && formatCount(unmeasured)],
    ["Tokens", overview.tokens && formatCount(overview.tokens)],
    ["Judges’ cost", cost > 0 && formatDollars(cost)],
  ].filter(([, value]) => value);
  return card("Pass rate", cardHead("Pass rate", rangeNote()),
    el("div", { class: "rate" }, formatPercentage(pass, pass + fail)),
    el("dl", { class: "tallies" }, definitions(entries)));
}

/** Failing traces by category, each with its own small chart; all charts have the same scale. */
function categoriesCard(categories, { bars, step, start, slots }) {
  const shown = categories.slice(0, MAX_SHOWN_CATEGORIES);
  const countIn = (bar, category) => bar.categories?.[category] || 0;
  const highest = Math.max(1, ...bars.flatMap((bar) => shown.map(([category]) => countIn(bar, category))));
  const width = 96, slotWidth = width / slots, baseline = 15;
  const sparkline = (category) => {
    const rect = (bar) => {
      const height = (baseline * countIn(bar, category)) / highest;
      const x = ((bar.at - start) / step) * slotWidth;
      return height > 0 && svg("rect", { x, y: baseline - height, width: Math.max(slotWidth * BAR_WIDTH, 1), height });
    };
    const attributes = { viewBox: `0 0 ${width} 16`, preserveAspectRatio: "none", "aria-hidden": "true" };
    return svg("svg", { class: "sparkline", ...attributes }, axis(baseline + 0.5, width), bars.map(rect));
  };
  const item = ([category, number]) => el("li", null, el("a", { href: listLink({ category }) }, category),
    sparkline(category), el("span", { class: "num" }, formatCount(number)));
  return card("Failure categories", cardHead("Failure categories", rangeNote()),
    shown.length ? el("ul", { class: "list" }, shown.map(item))
      : el("p", { class: "empty" }, "No failure has a category."));
}

function recurringFailuresCard(failures) {
  const item = (failure) => el("li", null,
    el("span", null,
      el("a", { href: listLink({ signature: failure.signature }) }, failure.metrics.join(", ") || failure.signature),
      " ", dim(joinedTexts([failure.agent, failure.categories[0]]))),
    el("span", { class: "num" }, `${formatCount(failure.count)} ×`));
  return card("Recurring failures", cardHead("Recurring failures", dim("same signature")),
    failures.length ? el("ul", { class: "list" }, failures.slice(0, MAX_SHOWN_ENTRIES).map(item))
      : el("p", { class: "empty" }, "No failure occurred twice."));
}

/** Agents by failed runs, or tools by failed calls; `key` is the condition of the list to which their names link. */
function usageCard(title, key, usages, note) {
  const row = (usage) => {
    const level = el("i", null);
    level.style.width = `${(100 * usage.failed) / Math.max(1, usage.count)}%`;
    return el("tr", null, cell(null, el("a", { href: listLink({ [key]: usage.name }) }, bdi(usage.name))),
      cell("num", el("span", { class: "meter", "aria-hidden": "true" }, level)),
      cell("num", `${formatCount(usage.failed)} of ${formatCount(usage.count)}`));
  };
  return card(title, cardHead(title, dim(note)),
    usages.length ? el("table", null, el("tbody", null, usages.slice(0, MAX_SHOWN_ENTRIES).map(row)))
      : el("p", { class: "empty" }, `No ${key} is named.`));
}
