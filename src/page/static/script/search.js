// The search bar of the list. A change of a condition changes the address, which draws the list again.

const RESULT_OPTIONS = [["", "All"], ["fail", "Failing"], ["pass", "Passing"], ["unmeasured", "Unmeasured"]];
/** Conditions with a menu: the key of the filter, the text without a condition, and the options in the overview. */
const MENUS = [
  ["agent", "Any agent", (overview) => overview.agents.map((usage) => usage.name)],
  ["service", "Any service", (overview) => overview.services.map((usage) => usage.name)],
  ["metric", "Any metric", (overview) => overview.metrics.map(([metric]) => metric)],
  ["category", "Any category", (overview) => overview.categories.map(([category]) => category)],
];
/** Conditions that links set, and that the search bar can only remove. */
const LINKED_KEYS = ["session", "user", "tool", "signature"];

/** The search bar, and functions that update its menus and its number of matching traces. */
function searchBar(filter) {
  const change = (conditions) => { location.hash = listLink({ ...filter, ...conditions }); };
  const input = el("input", {
    type: "search", id: "q", value: filter.q,
    placeholder: "Search task, agent, service, session, id", "aria-label": "Search",
    keydown: (event) => { if (event.key === "Enter") change({ q: input.value.trim() }); },
    // The button of the browser that empties the field.
    search: () => { if (!input.value && filter.q) change({ q: "" }); },
  });
  const results = segmentedControl("Verdict", RESULT_OPTIONS, filter.result, (result) => change({ result }));
  const menus = MENUS.map(([key, anyText, namesIn]) => {
    const element = el("select", { "aria-label": key, change: (event) => change({ [key]: event.target.value }) });
    const setNames = (names) => {
      const selected = filter[key];
      const options = [...new Set(selected ? [selected, ...names] : names)].map((name) =>
        el("option", { value: name, selected: name === selected }, name));
      replaceContent(element, el("option", { value: "" }, anyText), options);
    };
    setNames([]);
    return { element, update: (overview) => setNames(namesIn(overview)) };
  });
  const removeButton = (key) => {
    const attributes = { type: "button", click: () => change({ [key]: "" }), "aria-label": `Remove the filter ${key}` };
    return el("button", attributes, `${key}: ${filter[key]} ✕`);
  };
  const matchCount = el("span", { class: "dim", role: "status" });
  const element = el("form", { class: "search", role: "search", submit: (event) => event.preventDefault() },
    results, input, menus.map((menu) => menu.element), LINKED_KEYS.filter((key) => filter[key]).map(removeButton),
    isFiltered(filter) && el("a", { href: "#/traces" }, "Clear"), matchCount);
  return {
    element,
    updateMenus: (overview) => {
      // A menu that may be open is not changed.
      for (const menu of menus) if (document.activeElement !== menu.element) menu.update(overview);
    },
    updateCount: ({ matching, all }) => {
      matchCount.textContent =
        matching === all ? plural(all, "trace") : `${formatCount(matching)} of ${plural(all, "trace")}`;
    },
  };
}
