// The current view: it is drawn at each change of the address, and drawn again by a timer or by a new verdict.

/**
 * The views by their name in the address; the file of a view adds it. A view is a function of the route and of
 * `isCurrent`, which is false as soon as the view was left or drawn again. It must not draw after that.
 */
const views = new Map();

/** The link from a trace to the view from which it was opened. */
let backLink = { href: "#/traces", text: "← Traces" };
/** Called with the row of each trace that is evaluated while the view is current. */
let onVerdict = () => {};

let viewNumber = 0; // The number of views drawn so far.
let refreshTimer = 0;

async function showView() {
  const number = (viewNumber += 1);
  const isCurrent = () => number === viewNumber;
  clearTimeout(refreshTimer);
  onVerdict = () => {};
  const route = currentRoute();
  for (const link of $("nav").children) {
    const { view } = link.dataset;
    const isSelected = view === route.view || (view === "traces" && route.view === "trace");
    isSelected ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current");
  }
  // A report file has no open traces and no state of a process.
  const isShowable = !report || route.view === "trace";
  const draw = isShowable && views.get(route.view) || views.get("traces");
  const restoreFocus = rememberFocus($("main"));
  try {
    await draw(route, isCurrent);
    showProblem("");
    if (isCurrent() && !restoreFocus()) $("main").focus({ preventScroll: true });
  } catch (error) {
    if (isCurrent()) showProblem(error.message);
  }
}

/** Calls `refresh` every `ms` milliseconds while the view is current, except in a background tab. */
function refreshEvery(ms, refresh, isCurrent) {
  clearTimeout(refreshTimer);
  refreshTimer = setTimeout(async () => {
    if (!isCurrent()) return;
    if (!document.hidden) {
      try { await refresh(); showProblem(""); } catch (error) { showProblem(error.message); }
    }
    if (isCurrent()) refreshEvery(ms, refresh, isCurrent);
  }, ms);
}

/** Shows a message above the view; an empty text removes it. */
function showProblem(text) {
  $("problem").textContent = text;
  $("problem").hidden = !text;
}

/** A message for screen readers. */
function announce(text) {
  $("announcement").textContent = text;
}

/** Shows the number of open traces in the navigation. */
function showOpenCount(number) {
  $("nav").querySelector("[data-view=open] .count")?.replaceChildren(formatCount(number));
}
