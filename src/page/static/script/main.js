// Starts the page: navigation, keyboard, and the first view.

const viewLinks = report
  ? [["traces", "Traces"]]
  : [["traces", "Traces"], ["open", "Open"], ["health", "Health"]];
replaceContent($("nav"), viewLinks.map(([view, text]) =>
  el("a", { href: `#/${view}`, "data-view": view }, text, view === "open" && el("span", { class: "count" }))));

document.addEventListener("keydown", (event) => {
  const isTyping = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
  if (event.key === "/" && !isTyping && $("q")) {
    event.preventDefault();
    $("q").focus();
  }
});
// Without this handler the link would replace the address of the view by that of the element.
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  $("main").focus();
});
window.addEventListener("hashchange", () => { window.scrollTo(0, 0); showView(); });

if (report) {
  const omitted = report.left_out ? `; ${plural(report.left_out, "further trace")} not in this file` : "";
  $("connection").textContent = `${plural(report.traces.length, "trace")}, otel-verdict ${report.version}${omitted}`;
} else {
  followUpdates();
}
showView();
