// The page: the list of evaluated traces, one trace, open traces, and the state of the process.
//
// In: JSON of the listener, or of elements of this document if it is a file. Out: elements. Every text of a trace becomes
// a text node; nothing is parsed as markup. The address after '#' names what is shown, so that it can be sent to others.
"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const own = $("data") && JSON.parse($("data").textContent);
  const SVG = "http://www.w3.org/2000/svg";

  // ---- elements

  /** An element. `props` are attributes; functions are event listeners; null and false leave the attribute out. */
  function el(tag, props, ...children) {
    return fill(document.createElement(tag), props, children);
  }
  function svg(tag, props, ...children) {
    return fill(document.createElementNS(SVG, tag), props, children);
  }
  function fill(node, props, children) {
    for (const [key, value] of Object.entries(props || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (typeof value === "function") node.addEventListener(key, value);
      else node.setAttribute(key, value === true ? "" : String(value));
    }
    node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
    return node;
  }
  const bdi = (text) => el("bdi", null, text);
  const unseen = (text) => el("span", { class: "unseen" }, text);
  const dim = (...children) => el("span", { class: "dim" }, ...children);
  const replace = (node, ...children) => node.replaceChildren(...children.flat(Infinity).filter((child) => child));

  // ---- figures

  const WORDS = { pass: ["✓", "pass"], fail: ["✕", "fail"], unmeasured: ["–", "unmeasured"], open: ["…", "open"] };
  const verdict = (result) => {
    const [mark, word] = WORDS[result] || WORDS.unmeasured;
    return el("span", { class: `verdict ${result}` }, el("span", { "aria-hidden": "true" }, mark), word);
  };
  const count = (number) => Number(number || 0).toLocaleString("en");
  const plural = (number, one, many) => `${count(number)} ${number === 1 ? one : many || `${one}s`}`;
  function bytes(number) {
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let n = Number(number || 0), unit = 0;
    while (n >= 1024 && unit < units.length - 1) { n /= 1024; unit += 1; }
    return `${unit === 0 || n >= 100 ? Math.round(n) : n.toFixed(1)} ${units[unit]}`;
  }
  function duration(ms) {
    if (ms === undefined || ms === null) return "";
    if (ms < 1) return `${ms.toFixed(2)} ms`;
    if (ms < 1000) return `${Math.round(ms)} ms`;
    if (ms < 60000) return `${(ms / 1000).toFixed(ms < 10000 ? 2 : 1)} s`;
    if (ms < 3600000) return `${Math.floor(ms / 60000)} min ${Math.round((ms % 60000) / 1000)} s`;
    return `${Math.floor(ms / 3600000)} h ${Math.round((ms % 3600000) / 60000)} min`;
  }
  const two = (number) => String(number).padStart(2, "0");
  function clock(ms, seconds = true) {
    const at = new Date(ms);
    return `${two(at.getHours())}:${two(at.getMinutes())}${seconds ? `:${two(at.getSeconds())}` : ""}`;
  }
  const day = (ms) => { const at = new Date(ms); return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`; };
  function moment(ms) {
    if (!ms) return "";
    const text = day(ms) === day(Date.now()) ? clock(ms) : `${day(ms)} ${clock(ms, false)}`;
    return el("time", { datetime: new Date(ms).toISOString(), title: new Date(ms).toISOString() }, text);
  }
  const dollars = (usd) => (usd === undefined || usd === null ? "" : `$${usd < 0.1 ? usd.toPrecision(2) : usd.toFixed(2)}`);
  const share = (part, all) => (all ? `${Math.round((100 * part) / all)} %` : "–");
  const score = (metric) => {
    const shown = metric.score ?? metric.value;
    return metric.label ?? (shown === undefined ? "" : Number.isInteger(shown) ? String(shown) : shown.toFixed(2));
  };

  // ---- data

  async function fetched(path) {
    const response = await fetch(path, { headers: { accept: "application/json" } });
    const body = await response.json().catch(() => ({}));
    if (!response.ok) throw new Error(body.error || `the server answered ${response.status}`);
    return body;
  }
  /** The same comparison as the server's. */
  function matches(row, wanted) {
    const has = (value, part) => (value || "").toLowerCase().includes(part.toLowerCase());
    const names = (shares) => shares.map((entry) => entry.name);
    const agents = [...names(row.agents), row.agent];
    const texts = [row.name, row.trace_id, row.service, row.session, row.user, row.task, row.signature, ...agents, ...row.failed_metrics];
    const fields = {
      result: (value) => row.result === value,
      signature: (value) => row.signature === value,
      service: (value) => has(row.service, value),
      session: (value) => has(row.session, value),
      user: (value) => has(row.user, value),
      agent: (value) => agents.some((name) => has(name, value)),
      metric: (value) => row.failed_metrics.some((name) => has(name, value)),
      category: (value) => row.categories.some((name) => has(name, value)),
      tool: (value) => names(row.tools).some((name) => has(name, value)),
      q: (value) => texts.some((text) => has(text, value)),
    };
    return Object.entries(wanted).every(([key, value]) => !value || !fields[key] || fields[key](value));
  }
  const live = {
    overview: () => fetched("api/overview"),
    open: () => fetched("api/open"),
    trace: (id) => fetched(`api/traces/${encodeURIComponent(id)}`),
    list: (wanted, before) => {
      const query = new URLSearchParams(Object.entries(wanted).filter(([, value]) => value));
      if (before) query.set("before", before);
      return fetched(`api/traces?${query}`);
    },
  };
  const file = own && {
    overview: async () => ({ overview: own.overview }),
    trace: async (id) => {
      const row = own.traces.find((one) => one.trace_id === id);
      const data = /^[0-9a-f]{32}$/.test(id) && $(`trace-${id}`);
      if (!row || !data) throw new Error(row ? "This file has the verdict of the trace without its spans: it would have become too large." : "the trace is not in this file");
      return { trace: row, detail: JSON.parse(data.textContent) };
    },
    list: async (wanted, before) => {
      const all = own.traces.filter((row) => matches(row, wanted)).sort((a, b) => b.seq - a.seq);
      const rest = all.filter((row) => !before || row.seq < before);
      return { traces: rest.slice(0, 100), more: rest.length > 100, matching: all.length, all: own.traces.length };
    },
  };
  const source = file || live;

  // ---- the address

  const KEYS = ["result", "agent", "service", "session", "user", "metric", "category", "tool", "signature", "q"];
  function address() {
    const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
    const [view, ...rest] = path.split("/").map((part) => { try { return decodeURIComponent(part); } catch { return ""; } });
    const params = new URLSearchParams(query || "");
    const wanted = Object.fromEntries(KEYS.map((key) => [key, params.get(key) || ""]));
    return { view: view || "traces", id: rest[0] || "", span: rest[1] || "", wanted };
  }
  function listLink(wanted) {
    const query = new URLSearchParams(Object.entries(wanted).filter(([, value]) => value)).toString();
    return query ? `#/traces?${query}` : "#/traces";
  }
  const traceLink = (id, span) => `#/trace/${id}${span ? `/${span}` : ""}`;

  let shown = 0; // Counts renderings, so that an answer to an old question is not shown.
  let timer = 0; // Repeats the current view.
  let back = ["#/traces", "← Traces"]; // From a trace.
  let onUpdate = () => {};

  async function show() {
    const mine = (shown += 1);
    clearTimeout(timer);
    onUpdate = () => {};
    const at = address();
    for (const link of $("nav").children) {
      const current = link.dataset.view === at.view || (link.dataset.view === "traces" && at.view === "trace");
      current ? link.setAttribute("aria-current", "page") : link.removeAttribute("aria-current");
    }
    const view = { traces: listView, trace: traceView, open: openView, health: healthView }[at.view] || listView;
    const refocus = focusIn($("main"));
    try {
      await view(at, () => mine === shown);
      problem("");
      if (mine === shown && !refocus()) $("main").focus({ preventScroll: true });
    } catch (error) {
      if (mine === shown) problem(error.message);
    }
  }
  // The focus is on an element of `within`: returns a function that restores it after `within` was drawn again. That returns
  // false if the element is no longer there.
  function focusIn(within) {
    const named = (node) => [node.tagName, node.getAttribute("href"), node.getAttribute("aria-label") || node.textContent].join("\n");
    const focused = within.contains(document.activeElement) && document.activeElement !== within && named(document.activeElement);
    return () => {
      if (!focused || within.contains(document.activeElement)) return true;
      const same = [...within.querySelectorAll("a, button, summary, input, select")].find((node) => named(node) === focused);
      if (same) same.focus({ preventScroll: true });
      return Boolean(same);
    };
  }
  function again(ms, work, current) {
    clearTimeout(timer);
    timer = setTimeout(async () => {
      if (!current()) return;
      if (!document.hidden) {
        try { await work(); problem(""); } catch (error) { problem(error.message); }
      }
      if (current()) again(ms, work, current);
    }, ms);
  }
  function problem(text) {
    $("problem").textContent = text;
    $("problem").hidden = !text;
  }
  const announce = (text) => { $("announce").textContent = text; };

  // ---- list

  const RANGES = [[60, "1 h"], [360, "6 h"], [1440, "24 h"]];
  let range = 60; // Minutes of the timeline, the pass rate and the categories.

  async function listView(at, current) {
    back = [listLink(at.wanted), "← Traces"];
    document.title = "Traces – otel-verdict";
    const sums = el("div", null), results = el("div", null), search = searchBar(at.wanted);
    const state = { rows: [], pages: 1, waiting: 0 };
    const fresh = el("button", { type: "button", class: "fresh", hidden: true, click: () => { window.scrollTo(0, 0); load(); } });
    async function loadSums() {
      const { overview, health } = await source.overview();
      if (!current()) return;
      const refocus = focusIn(sums);
      replace(sums, summary(overview));
      refocus();
      search.offer(overview);
      countOpen(health);
    }
    async function load() {
      let page = await source.list(at.wanted);
      let rows = page.traces;
      for (let n = 1; n < state.pages && page.more; n += 1) {
        page = await source.list(at.wanted, rows[rows.length - 1].seq);
        rows = rows.concat(page.traces);
      }
      if (!current()) return;
      Object.assign(state, { rows, waiting: 0 });
      fresh.hidden = true;
      search.found(page);
      const refocus = focusIn(results);
      replace(results, table(rows, at.wanted), page.more && el("button", {
        type: "button", class: "more", click: () => { state.pages += 1; load(); },
      }, `Show more of ${count(page.matching)}`));
      refocus();
    }
    await Promise.all([loadSums(), load()]);
    if (!current()) return;
    replace($("main"), el("h1", { class: "unseen" }, "Evaluated traces"), sums, search.node, fresh, results);
    if (own) return;
    again(5000, loadSums, current);
    let due = 0;
    onUpdate = () => {
      state.waiting += 1;
      if (window.scrollY > 300) {
        fresh.textContent = `Show ${plural(state.waiting, "new verdict")}`;
        fresh.hidden = false;
      } else if (!due) {
        due = setTimeout(async () => {
          due = 0;
          if (!current()) return;
          const news = state.waiting;
          await Promise.all([load(), loadSums()]).catch((error) => problem(error.message));
          announce(plural(news, "new verdict"));
        }, 700);
      }
    };
  }

  function searchBar(wanted) {
    const go = (change) => { location.hash = listLink({ ...wanted, ...change }); };
    const text = el("input", { type: "search", id: "q", value: wanted.q, placeholder: "Search task, agent, service, session, id", "aria-label": "Search",
      keydown: (event) => { if (event.key === "Enter") go({ q: text.value.trim() }); },
      search: () => { if (!text.value && wanted.q) go({ q: "" }); } });
    const segments = el("div", { class: "segments", role: "group", "aria-label": "Verdict" },
      [["", "All"], ["fail", "Failing"], ["pass", "Passing"], ["unmeasured", "Unmeasured"]].map(([value, word]) =>
        el("button", { type: "button", "aria-pressed": String(wanted.result === value), click: () => go({ result: value }) }, word)));
    const selects = [["agent", "Any agent", "agents"], ["service", "Any service", "services"], ["metric", "Any metric", "metrics"], ["category", "Any category", "categories"]]
      .map(([key, any, list]) => ({ key, any, list, node: el("select", { "aria-label": key, change: (event) => go({ [key]: event.target.value }) }) }));
    const more = ["session", "user", "tool", "signature"].filter((key) => wanted[key]).map((key) =>
      el("button", { type: "button", click: () => go({ [key]: "" }), "aria-label": `Remove the filter ${key}` }, `${key}: ${wanted[key]} ✕`));
    const found = el("span", { class: "dim", role: "status" });
    const options = (select, names) => {
      const all = [...new Set([...(wanted[select.key] ? [wanted[select.key]] : []), ...names])];
      replace(select.node, el("option", { value: "" }, select.any),
        all.map((name) => el("option", { value: name, selected: name === wanted[select.key] }, name)));
    };
    selects.forEach((select) => options(select, []));
    return {
      node: el("form", { class: "search", role: "search", submit: (event) => event.preventDefault() }, segments, text, selects.map((one) => one.node), more,
        KEYS.some((key) => wanted[key]) && el("a", { href: "#/traces" }, "Clear"), found),
      offer: (overview) => selects.forEach((select) => {
        if (document.activeElement !== select.node) options(select, overview[select.list].map((entry) => entry.name ?? entry[0]));
      }),
      found: (page) => { found.textContent = page.matching === page.all ? plural(page.all, "trace") : `${count(page.matching)} of ${plural(page.all, "trace")}`; },
    };
  }

  function table(rows, wanted) {
    if (!rows.length) {
      const filtered = KEYS.some((key) => wanted[key]);
      return el("p", { class: "empty card" }, filtered ? "No trace matches." : "No trace has been judged yet. A trace is judged when it closes.");
    }
    const line = (row) => el("tr", { class: row.result },
      el("td", null, verdict(row.result)),
      el("td", null,
        el("a", { href: traceLink(row.trace_id), class: "what" }, bdi(row.task || row.name || row.trace_id)),
        el("span", { class: "under" }, joined([row.agent, row.service, row.session && `session ${row.session}`]))),
      el("td", null, el("span", { class: "why" },
        row.failed_metrics.slice(0, 4).map((metric) => el("span", { class: row.result === "fail" ? "tag fail" : "tag" }, metric)),
        row.failed_metrics.length > 4 && el("span", { class: "tag" }, `+${row.failed_metrics.length - 4}`),
        row.categories.slice(0, 2).map((category) => el("span", { class: "tag" }, category)),
        row.result === "unmeasured" && row.reason && el("span", { class: "tag" }, row.reason),
        row.incomplete && el("span", { class: "tag" }, "incomplete"))),
      el("td", { class: "num wide" }, count(row.spans)),
      el("td", { class: "num wide" }, row.tokens ? count(row.tokens) : ""),
      el("td", { class: "num wide" }, duration(row.duration_ms)),
      el("td", { class: "num" }, moment(own ? row.start : row.judged_at)));
    const heads = [["Verdict"], ["Task"], ["Why"], ["Spans", "num wide"], ["Tokens", "num wide"], ["Duration", "num wide"], [own ? "Start" : "Judged", "num"]];
    return el("div", { class: "traces" }, el("table", null,
      el("caption", { class: "unseen" }, "Evaluated traces, the latest first"),
      el("thead", null, el("tr", null, heads.map(([head, kind]) => el("th", { scope: "col", class: kind }, head)))),
      el("tbody", null, rows.map(line))));
  }
  function joined(parts) {
    const given = parts.filter(Boolean);
    return given.flatMap((part, n) => (n ? [" · ", bdi(part)] : [bdi(part)]));
  }

  // ---- sums

  function summary(overview) {
    // A file has one range; the page counts what was judged in the chosen one, whether or not it is still in the list.
    const over = own ? { bars: overview.timeline, step: overview.step } : grouped(overview.timeline);
    const results = own ? overview.traces : Object.fromEntries(["pass", "fail", "unmeasured"].map((key) => [key, sum(over.bars, key)]));
    const { pass = 0, fail = 0, unmeasured = 0 } = results;
    const within = !own && dim(`last ${RANGES.find(([minutes]) => minutes === range)[1]}`);
    const rate = el("section", { class: "card", "aria-label": "Pass rate" },
      el("div", { class: "cardhead" }, el("h2", null, "Pass rate"), within),
      el("div", { class: "rate" }, share(pass, pass + fail)),
      el("dl", { class: "tallies" },
        [["Passing", pass], ["Failing", fail], ["Unmeasured", unmeasured], ["Tokens", overview.tokens], ["Judges’ cost", overview.judge_cost_usd > 0 && dollars(overview.judge_cost_usd)]]
          .filter(([name, value]) => value || ["Passing", "Failing"].includes(name))
          .map(([name, value]) => [el("dt", null, name), el("dd", null, typeof value === "number" ? count(value) : value)])));
    const first = el("div", { class: "grid head" }, rate, timeline(over), categories(own ? overview.categories : ranked(over.bars), over, within && within.cloneNode(true)));
    const kept = sumOf(overview.traces);
    if (!overview.traces.fail && !overview.agents.length && !overview.tools.length) return first;
    return [first, el("div", { class: "grid three" }, recurring(overview), shares("Agents", overview.agents, "agent", `failed runs of ${plural(kept, "trace")}`), shares("Tools", overview.tools, "tool", `failed calls of ${plural(kept, "trace")}`))];
  }

  /** The begin of the first bar, and how many there would be without gaps. */
  function extent({ bars: list, step, from = list[0]?.at ?? 0, slots }) {
    return { from, slots: slots ?? (list.length ? Math.round((list[list.length - 1].at - from) / step) + 1 : 1) };
  }
  function timeline(over) {
    const { bars: list, step } = over, { from, slots } = extent(over);
    const most = Math.max(1, ...list.map((bar) => bar.pass + bar.fail + bar.unmeasured));
    const width = 1000 / Math.max(slots, 24), height = 100;
    const chart = svg("svg", { class: "chart", viewBox: "0 0 1000 104", preserveAspectRatio: "none", role: "img",
      "aria-label": `Verdicts over time: ${plural(sum(list, "fail"), "trace")} failing, ${count(sum(list, "pass"))} passing, ${count(sum(list, "unmeasured"))} unmeasured` },
      svg("line", { class: "axis", x1: 0, x2: 1000, y1: 102, y2: 102 }));
    for (const bar of list) {
      const x = ((bar.at - from) / step) * width;
      let y = height;
      const part = svg("g", null, svg("title", null, `${when(bar)}: ${bar.fail} failing, ${bar.pass} passing, ${bar.unmeasured} unmeasured${named(bar)}`));
      for (const kind of ["fail", "pass", "unmeasured"]) {
        const tall = (bar[kind] / most) * height;
        y -= tall;
        if (tall) part.append(svg("rect", { class: kind, x: x + width * 0.08, y, width: width * 0.84, height: tall }));
      }
      chart.append(part);
    }
    const ranges = own ? null : el("div", { class: "segments", role: "group", "aria-label": "Range" }, RANGES.map(([minutes, word]) =>
      el("button", { type: "button", "aria-pressed": String(range === minutes), click: () => { range = minutes; show(); } }, word)));
    const ends = [from, from + step * Math.max(slots, 24)].map((at) => (step >= 86400 ? day(at * 1000) : `${own ? `${day(at * 1000)} ` : ""}${clock(at * 1000, step < 60)}`));
    const data = el("table", { class: "unseen" }, el("caption", null, "Verdicts over time"),
      el("tr", null, ["Begin", "Pass rate", "Failing", "Passing", "Unmeasured", "Failure categories"].map((head) => el("th", { scope: "col" }, head))),
      list.map((bar) => el("tr", null, [when(bar), share(bar.pass, bar.pass + bar.fail), bar.fail, bar.pass, bar.unmeasured, named(bar).slice(2)].map((cell) => el("td", null, String(cell))))));
    const plot = (drawn, top, bottom) => el("div", { class: "plot" }, el("div", { class: "ticks", "aria-hidden": "true" }, el("span", null, top), el("span", null, bottom)), drawn);
    return el("section", { class: "card over", "aria-label": "Verdicts over time" },
      el("div", { class: "cardhead" }, el("h2", null, own ? "Verdicts by start" : "Verdicts over time"), el("span", { class: "grow" }),
        el("span", { class: "legend" }, el("span", { class: "passrate" }, el("i", null), "pass rate"), ["fail", "pass", "unmeasured"].map((kind) => el("span", { class: kind }, el("i", null), kind))), ranges),
      plot(rates(list, (bar) => ((bar.at - from) / step + 0.5) * width), "100 %", "0 %"), plot(chart, count(most), "0"),
      el("div", { class: "scale" }, ends.map((end) => el("span", null, end))), data);
  }
  const when = (bar) => `${day(bar.at * 1000)} ${clock(bar.at * 1000)}`;
  /** The pass rate of each bar that has one, as a line with a dot for each; `place` is the middle of a bar. */
  function rates(list, place) {
    const judged = list.filter((bar) => bar.pass + bar.fail > 0);
    const rate = (bar) => bar.pass / (bar.pass + bar.fail);
    const said = (bar) => `${share(bar.pass, bar.pass + bar.fail)} at ${when(bar)}`;
    const sorted = [...judged].sort((a, b) => rate(a) - rate(b));
    const [first, last] = [judged[0], judged[judged.length - 1]];
    const label = !judged.length ? "Pass rate over time: no verdict"
      : `Pass rate over time: ${share(sum(judged, "pass"), sum(judged, "pass") + sum(judged, "fail"))} in total, ${said(first)}, ${said(last)}, lowest ${said(sorted[0])}, highest ${said(sorted[sorted.length - 1])}`;
    const at = (bar) => `${place(bar).toFixed(1)},${(4 + 96 * (1 - rate(bar))).toFixed(1)}`;
    const axis = (y) => svg("line", { class: "axis", x1: 0, x2: 1000, y1: y, y2: y });
    return svg("svg", { class: "chart passrate", viewBox: "0 0 1000 104", preserveAspectRatio: "none", role: "img", "aria-label": label },
      axis(4), axis(52), axis(100),
      judged.length > 1 && svg("polyline", { points: judged.map(at).join(" ") }),
      // A line without a length keeps its round ends whatever the chart is stretched to.
      judged.map((bar) => svg("path", { class: "dot", d: `M${at(bar)}h0` }, svg("title", null, `${when(bar)}: ${share(bar.pass, bar.pass + bar.fail)} of ${count(bar.pass + bar.fail)} pass`))));
  }
  const sum = (list, key) => list.reduce((total, entry) => total + entry[key], 0);
  const sumOf = (counts) => Object.values(counts).reduce((total, number) => total + number, 0);
  const entriesOf = (bar) => Object.entries(bar.categories || {}).sort(([, a], [, b]) => b - a);
  const named = (bar) => entriesOf(bar).map(([category, number]) => `; ${category} ${number}`).join("");
  function addCategories(to, from) {
    for (const [category, number] of Object.entries(from || {})) to[category] = (to[category] || 0) + number;
  }
  /** Failing traces of all bars by category, the most frequent first. */
  function ranked(list) {
    const all = {};
    for (const bar of list) addCategories(all, bar.categories);
    return entriesOf({ categories: all });
  }
  function grouped(minutes) {
    const slots = 60, step = range, now = Math.floor(Date.now() / 1000 / step) * step, from = now - (slots - 1) * step;
    const by = new Map();
    for (const minute of minutes) {
      const at = Math.floor(minute.at / step) * step;
      if (at < from || at > now) continue;
      const bar = by.get(at) || { at, pass: 0, fail: 0, unmeasured: 0, categories: {} };
      for (const key of ["pass", "fail", "unmeasured"]) bar[key] += minute[key];
      addCategories(bar.categories, minute.categories);
      by.set(at, bar);
    }
    return { bars: [...by.values()].sort((a, b) => a.at - b.at), step, from, slots };
  }

  /** Failing traces by category, each with its own timeline; all have one scale. */
  function categories(entries, over, within) {
    const { from, slots } = extent(over), width = 96 / Math.max(slots, 24);
    const shown = entries.slice(0, 6);
    const most = Math.max(1, ...over.bars.flatMap((bar) => shown.map(([name]) => bar.categories?.[name] || 0)));
    const line = ([name, number]) => {
      const spark = svg("svg", { class: "spark", viewBox: "0 0 96 16", preserveAspectRatio: "none", "aria-hidden": "true" }, svg("line", { class: "axis", x1: 0, x2: 96, y1: 15.5, y2: 15.5 }));
      for (const bar of over.bars) {
        const tall = (15 * (bar.categories?.[name] || 0)) / most;
        if (tall) spark.append(svg("rect", { x: ((bar.at - from) / over.step) * width, y: 15 - tall, width: Math.max(width * 0.84, 1), height: tall }));
      }
      return el("li", null, el("a", { href: listLink({ category: name }) }, name), spark, el("span", { class: "num" }, count(number)));
    };
    return el("section", { class: "card", "aria-label": "Failure categories" }, el("div", { class: "cardhead" }, el("h2", null, "Failure categories"), within),
      shown.length ? el("ul", { class: "list" }, shown.map(line)) : el("p", { class: "empty" }, "No failure has a category."));
  }

  function shares(title, entries, key, counted) {
    const worst = entries.slice(0, 5);
    const line = (entry) => {
      const inner = el("i", null);
      inner.style.width = `${(100 * entry.failed) / Math.max(1, entry.count)}%`;
      return el("tr", null, el("td", null, el("a", { href: listLink({ [key]: entry.name }) }, bdi(entry.name))),
        el("td", { class: "num" }, el("span", { class: "meter", "aria-hidden": "true" }, inner)),
        el("td", { class: "num" }, `${count(entry.failed)} of ${count(entry.count)}`));
    };
    return el("section", { class: "card", "aria-label": title },
      el("div", { class: "cardhead" }, el("h2", null, title), dim(counted)),
      worst.length ? el("table", { class: "bars" }, el("tbody", null, worst.map(line))) : el("p", { class: "empty" }, `No ${key} is named.`));
  }

  function recurring(overview) {
    const line = (failure) => el("li", null,
      el("span", null, el("a", { href: listLink({ signature: failure.signature }) }, failure.metrics.join(", ") || failure.signature), " ",
        dim(joined([failure.agent, failure.categories[0]]))),
      el("span", { class: "num" }, `${count(failure.count)} ×`));
    return el("section", { class: "card", "aria-label": "Recurring failures" },
      el("div", { class: "cardhead" }, el("h2", null, "Recurring failures"), dim("same signature")),
      overview.recurring.length ? el("ul", { class: "list" }, overview.recurring.slice(0, 5).map(line)) : el("p", { class: "empty" }, "No failure occurred twice."));
  }

  // ---- one trace

  // A trace that is drawn again because it has grown looks as before.
  let redrawn = null;

  async function traceView(at, current) {
    const { trace, detail } = await source.trace(at.id);
    if (!current()) return;
    document.title = `${trace.task || trace.name || trace.trace_id} – otel-verdict`;
    const view = new Trace(trace, detail);
    const before = redrawn?.id === trace.trace_id && redrawn.state;
    redrawn = null;
    if (before) view.fold(before);
    replace($("main"), view.node());
    view.select(view.initial(at.span), false);
    if (before) view.place(before);
    if (own) return;
    const reload = async () => {
      const next = await source.trace(at.id);
      if (!current() || (next.trace.spans === trace.spans && next.trace.result === trace.result && next.trace.revision === trace.revision)) return;
      redrawn = { id: trace.trace_id, state: view.state() };
      show();
    };
    if (trace.result === "open") again(3000, reload, current);
    onUpdate = (row) => { if (row.trace_id === trace.trace_id) reload().catch((error) => problem(error.message)); };
  }

  class Trace {
    constructor(row, detail) {
      Object.assign(this, { row, detail, spans: detail.spans });
      this.children = this.spans.map(() => []);
      this.depth = [];
      this.byId = new Map();
      this.spans.forEach((span, n) => {
        if (span.up !== undefined) this.children[span.up].push(n);
        this.depth[n] = span.up === undefined ? 0 : this.depth[span.up] + 1;
        if (!this.byId.has(span.id)) this.byId.set(span.id, n);
      });
      this.tops = this.spans.flatMap((span, n) => (span.up === undefined ? [n] : []));
      // Of many spans, those without a failure below are closed at first.
      this.shut = new Set(this.spans.length > 120 ? this.spans.flatMap((span, n) => (span.result !== "fail" && this.children[n].length ? [n] : [])) : []);
      this.failingOnly = false;
      this.cited = new Map();
      this.spans.forEach((span, n) => span.metrics?.forEach((metric) => metric.findings?.forEach((finding) => {
        const why = [["quoted", [finding.seen_in]], ["origin", [finding.origin]], ["cited", finding.cited || []]];
        for (const [how, ids] of why) for (const id of ids) {
          const to = id && this.byId.get(id);
          if (to === undefined || to === n) continue;
          if (!this.cited.has(to)) this.cited.set(to, []);
          this.cited.get(to).push({ from: n, metric: metric.metric, how });
        }
      })));
      this.end = Math.max(row.duration_ms, 0.001);
    }

    state() {
      return { shut: [...this.shut].map((n) => this.spans[n].id), failingOnly: this.failingOnly, top: this.list.scrollTop, focused: this.list.contains(document.activeElement) };
    }
    fold(before) {
      this.shut = new Set(before.shut.map((id) => this.byId.get(id)).filter((n) => n !== undefined));
      this.failingOnly = before.failingOnly;
    }
    place(before) {
      this.list.scrollTop = before.top;
      if (before.focused) this.list.querySelector("[tabindex='0']")?.focus({ preventScroll: true });
    }

    isSelf(span) { return span.cause === "self" || span.cause === "both"; }

    initial(id) {
      const known = (wanted) => this.byId.get(wanted);
      return known(id) ?? known(this.detail.root_cause) ?? known(this.detail.failure_chain[this.detail.failure_chain.length - 1]) ?? this.tops[0] ?? 0;
    }

    node() {
      const { row, detail } = this;
      this.panel = el("div", { class: "card span", role: "region", "aria-label": "Selected span" });
      this.list = el("div", { class: "rows", role: "tree", "aria-label": "Spans of the trace", keydown: (event) => this.key(event) });
      this.chainNode = this.chain();
      this.render();
      const failing = el("button", { type: "button", "aria-pressed": String(this.failingOnly), click: () => {
        this.failingOnly = !this.failingOnly;
        failing.setAttribute("aria-pressed", String(this.failingOnly));
        this.render();
        this.select(this.selected, false);
      } }, "Failing only");
      const facts = [
        ["Agent", row.agent, "agent"], ["Service", row.service, "service"], ["Session", row.session, "session"], ["User", row.user, "user"], ["Started", moment(row.start)], ["Duration", duration(row.duration_ms)],
        ["Spans", count(row.spans)], ["Models", row.models.join(", ")], ["Tokens", row.tokens && count(row.tokens)], ["Cost", dollars(row.cost_usd)], ["Judges’ cost", row.judge_cost_usd > 0 && dollars(row.judge_cost_usd)],
        ["Measured", row.result !== "open" && `${count(detail.measured)}, ${count(detail.unmeasured)} unmeasured`], ["Closed", row.close_reason], ["Revision", row.revision > 1 && String(row.revision)],
        ["Failure probability", detail.failure_probability !== undefined && detail.failure_probability.toFixed(2)], ["Signature", row.signature, "signature"], ["Trace", el("code", null, row.trace_id)],
      ].filter(([, value]) => value);
      const fact = ([name, value, key]) => el("div", null, el("dt", null, name),
        el("dd", null, key ? el("a", { href: listLink({ [key]: value }) }, bdi(value)) : value instanceof Node ? value : bdi(value)));
      const said = [["Task", row.task], ["Answer", detail.answer], ["Judges on the outcome", detail.outcome && `${detail.outcome.score.toFixed(2)}${detail.outcome.rationale ? `: ${detail.outcome.rationale}` : ""}`]]
        .filter(([, text]) => text);
      return [
        el("div", { class: "crumbs" }, el("a", { href: back[0] }, back[1])),
        el("div", { class: "title" }, verdict(row.result), el("h1", null, bdi(row.name || row.trace_id)), row.incomplete && el("span", { class: "tag" }, "incomplete"),
          row.failed_metrics.map((metric) => el("a", { class: "tag fail", href: listLink({ metric }) }, metric)), row.categories.map((category) => el("a", { class: "tag", href: listLink({ category }) }, category))),
        el("dl", { class: "facts" }, facts.map(fact)),
        said.length > 0 && el("dl", { class: "said" }, said.map(([name, text]) => [el("dt", null, name), el("dd", { dir: "auto" }, text)])),
        detail.closed && el("p", { class: "dim" }, "The content of this trace is not shown: explanations are off, or one of its services is withheld."),
        this.chainNode && el("section", { class: "card", "aria-label": "Failure chain" }, this.chainNode),
        el("div", { class: "split grid" },
          el("section", { class: "card tree", "aria-label": "Tree" },
            el("div", { class: "cardhead" }, el("h2", null, plural(this.spans.length, "span")), detail.omitted > 0 && dim(`${count(detail.omitted)} more are not shown`), el("span", { class: "grow" }),
              this.spans.some((span) => span.result === "fail") && failing),
            this.list),
          this.panel),
      ];
    }

    chain() {
      const { detail } = this;
      const ids = detail.failure_chain.filter((id) => this.byId.has(id));
      const cause = detail.root_cause;
      const others = [...new Set([...detail.failed_spans, cause])].filter((id) => this.byId.has(id) && !ids.includes(id));
      if (!ids.length && !others.length) return null;
      const step = (id) => {
        const n = this.byId.get(id), span = this.spans[n];
        const failed = (span.metrics || []).filter((metric) => metric.result === "fail").map((metric) => metric.metric);
        const isCause = id === cause;
        const under = isCause ? `root cause${failed.length ? ` · ${failed.join(", ")}` : ""}` : failed.join(", ") || "through its children";
        return el("li", null, el("button", { type: "button", class: `step${this.isSelf(span) ? " self" : ""}${isCause ? " cause" : ""}`, "data-n": n, "aria-pressed": "false",
          click: () => this.select(n, true) }, el("b", null, bdi(span.name || span.kind)), el("span", null, under)));
      };
      return [
        el("div", { class: "cardhead" }, el("h2", null, "Failure chain"), dim("from the root to the worst failure")),
        el("ol", { class: "chain" }, ids.map((id) => step(id))),
        others.length > 0 && [el("h3", { class: "besides" }, ids.length ? "Failing besides" : "Failing spans"),
          el("ul", { class: "chain apart" }, others.slice(0, 24).map((id) => step(id)), others.length > 24 && el("li", null, dim(`and ${others.length - 24} more`)))],
      ];
    }

    visible() {
      const out = [], stack = [...this.tops].reverse();
      while (stack.length) {
        const n = stack.pop();
        if (this.failingOnly && this.spans[n].result !== "fail") continue;
        out.push(n);
        if (!this.shut.has(n)) stack.push(...[...this.children[n]].reverse());
      }
      return out;
    }

    render() {
      this.items = new Map();
      replace(this.list, this.visible().map((n) => {
        const item = this.item(n);
        this.items.set(n, item);
        return item;
      }));
    }

    item(n) {
      const span = this.spans[n], kids = this.children[n].filter((kid) => !this.failingOnly || this.spans[kid].result === "fail"), level = this.depth[n] + 1;
      const siblings = span.up === undefined ? this.tops : this.children[span.up];
      const failed = (span.metrics || []).filter((metric) => metric.result === "fail");
      const label = el("span", { class: "label" },
        el("span", { class: "twist", "aria-hidden": "true" }, kids.length ? (this.shut.has(n) ? "▸" : "▾") : ""),
        el("span", { class: `mark ${span.result || "none"}`, "aria-hidden": "true" }, { fail: this.isSelf(span) ? "✕" : "↑", pass: "✓" }[span.result] || "·"),
        el("span", { class: "kind" }, span.kind === "unknown" ? "" : span.kind),
        el("span", { class: "name", title: span.name }, bdi(span.name || span.id)),
        unseen(span.result ? (span.result === "fail" && !this.isSelf(span) ? "fails through its children" : span.result) : "not measured"),
        span.id === this.detail.root_cause && el("span", { class: "tag cause" }, "root cause"),
        span.late && el("span", { class: "tag" }, "late"),
        span.id !== this.detail.root_cause && [failed.slice(0, 1).map((metric) => el("span", { class: "tag fail wide" }, metric.metric)), failed.length > 1 && el("span", { class: "tag fail wide" }, `+${failed.length - 1}`)]);
      label.style.paddingLeft = `${8 + Math.min(this.depth[n], 16) * 14}px`;
      const bar = el("i", null);
      const begin = Math.min(span.offset_ms / this.end, 1);
      bar.style.left = `${100 * begin}%`;
      bar.style.width = `${100 * Math.max(0, Math.min((span.duration_ms || 0) / this.end, 1 - begin))}%`;
      return el("div", { role: "treeitem", class: `${span.result || ""}${this.isSelf(span) ? " self" : ""}`, tabindex: n === this.selected ? "0" : "-1", "aria-level": level, "aria-setsize": siblings.length,
        "aria-posinset": siblings.indexOf(n) + 1, "aria-selected": String(n === this.selected), "aria-expanded": kids.length ? String(!this.shut.has(n)) : null,
        click: (event) => { if (event.target.closest(".twist") && kids.length) this.toggle(n); this.select(n, true); } },
        label, el("span", { class: "num dim" }, duration(span.duration_ms)), el("span", { class: "lane", "aria-hidden": "true" }, bar));
    }

    toggle(n, shut = !this.shut.has(n)) {
      shut ? this.shut.add(n) : this.shut.delete(n);
      this.render();
    }

    /** Shows a span; its ancestors are opened. */
    select(n, focus) {
      if (n === undefined || !this.spans[n]) return;
      const before = this.selected;
      this.selected = n;
      let changed = false;
      for (let up = this.spans[n].up; up !== undefined; up = this.spans[up].up) changed = this.shut.delete(up) || changed;
      if (this.failingOnly && this.spans[n].result !== "fail") { this.failingOnly = false; changed = true; }
      if (changed) this.render();
      for (const one of [before, n]) {
        const item = this.items.get(one);
        item?.setAttribute("aria-selected", String(one === n));
        item?.setAttribute("tabindex", one === n ? "0" : "-1");
      }
      const item = this.items.get(n);
      if (focus) item?.focus({ preventScroll: true });
      if (item) {
        const { offsetTop, offsetHeight } = item;
        if (offsetTop < this.list.scrollTop) this.list.scrollTop = offsetTop;
        else if (offsetTop + offsetHeight > this.list.scrollTop + this.list.clientHeight) this.list.scrollTop = offsetTop + offsetHeight - this.list.clientHeight;
      }
      for (const step of document.querySelectorAll(".chain .step")) step.setAttribute("aria-pressed", String(Number(step.dataset.n) === n));
      replace(this.panel, this.spanPanel(n));
      this.panel.scrollTop = 0;
      // Browsers limit how often the address may change.
      clearTimeout(this.naming);
      this.naming = setTimeout(() => {
        const at = address();
        if (at.view === "trace" && at.id === this.row.trace_id) history.replaceState(null, "", traceLink(at.id, this.spans[this.selected].id));
      }, 150);
    }

    key(event) {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const visible = this.visible(), at = visible.indexOf(this.selected), span = this.spans[this.selected], kids = this.children[this.selected];
      const failing = visible.slice(at + 1).concat(visible.slice(0, at)).find((n) => this.isSelf(this.spans[n]));
      const move = {
        ArrowDown: () => visible[at + 1], ArrowUp: () => visible[at - 1], Home: () => visible[0], End: () => visible[visible.length - 1], n: () => failing,
        ArrowRight: () => { if (kids.length && this.shut.has(this.selected)) { this.toggle(this.selected, false); return this.selected; } return kids[0]; },
        ArrowLeft: () => { if (kids.length && !this.shut.has(this.selected)) { this.toggle(this.selected, true); return this.selected; } return span.up; },
        Enter: () => { this.panel.querySelector("a, button, summary")?.focus(); return undefined; },
      }[event.key];
      if (!move) return;
      event.preventDefault();
      this.select(move(), event.key !== "Enter");
    }

    link(id, text) {
      const n = this.byId.get(id);
      if (n === undefined) return el("code", null, id);
      return el("a", { href: traceLink(this.row.trace_id, id), click: (event) => { event.preventDefault(); this.select(n, true); } }, text || bdi(this.spans[n].name || id));
    }

    spanPanel(n) {
      const span = this.spans[n], metrics = span.metrics || [];
      const of = (result) => metrics.filter((metric) => metric.result === result);
      const failing = of("fail"), passing = of("pass"), missing = of("unmeasured");
      const facts = [["Kind", span.kind], ["Agent", span.agent], ["Model", span.model], ["Service", span.service !== this.row.service && span.service], ["Duration", duration(span.duration_ms)],
        ["Tokens", span.tokens !== undefined && count(span.tokens)], ["Cost", dollars(span.cost_usd)], ["Span", el("code", null, span.id)]].filter(([, value]) => value);
      // The same error is often recorded as a status, an exception and an attribute.
      const errors = (span.errors || []).filter((error, i, all) => !all.some((other, j) => j !== i && other.includes(error.replace(/^error: /, "")) && (other.length > error.length || j < i)));
      const cited = (this.cited.get(n) || []).filter((entry, i, all) => all.findIndex((other) => other.from === entry.from && other.metric === entry.metric) === i);
      return [
        el("div", { class: "title" }, span.result && verdict(span.result), el("h2", null, bdi(span.name || span.id)), span.id === this.detail.root_cause && el("span", { class: "tag cause" }, "root cause"),
          span.result === "fail" && span.cause === "children" && dim("fails through its children")),
        el("dl", { class: "facts" }, facts.map(([name, value]) => el("div", null, el("dt", null, name), el("dd", null, value instanceof Node ? value : bdi(value))))),
        failing.map((metric) => this.metric(metric)),
        !failing.length && passing.some((metric) => metric.findings) && passing.filter((metric) => metric.findings).map((metric) => this.metric(metric)),
        errors.length > 0 && el("section", null, el("h3", null, "Recorded errors"), errors.map((error) => el("pre", { dir: "auto", tabindex: "0" }, error))),
        cited.length > 0 && el("section", null, el("h3", null, "Evidence of"), el("ul", { class: "list" }, cited.slice(0, 12).map((entry) =>
          el("li", null, el("span", null, entry.metric, " on ", this.link(this.spans[entry.from].id), " ", dim(`(${entry.how})`)))))),
        (span.input || span.output) && el("section", null,
          span.input && [el("h3", null, span.kind === "tool" ? "Arguments" : "Input"), el("pre", { dir: "auto", tabindex: "0" }, span.input)],
          span.output && [el("h3", null, span.kind === "tool" ? "Result" : "Output"), el("pre", { dir: "auto", tabindex: "0" }, span.output)]),
        metrics.length - failing.length > 0 && el("section", null, el("details", failing.length ? null : { open: true },
          el("summary", null, `${plural(passing.length, "passing metric")}${missing.length ? `, ${count(missing.length)} unmeasured` : ""}`),
          el("table", { class: "plain" }, el("tbody", null, [...passing, ...missing].map((metric) => el("tr", null, el("td", null, metric.metric),
            el("td", { class: "num" }, metric.result === "pass" ? score(metric) : dim(metric.reason || "unmeasured")), el("td", { class: "dim" }, metric.result === "pass" ? metric.judge : ""))))))),
        span.evaluations?.length > 0 && el("section", null, el("h3", null, "Recorded evaluations"), el("table", { class: "plain" }, el("tbody", null, span.evaluations.map((one) =>
          el("tr", null, el("td", null, bdi(one.name)), el("td", { class: "num" }, bdi([one.error ? `failed: ${one.error}` : one.label, one.score].filter((value) => value !== undefined).join(" "))),
            el("td", { dir: "auto" }, one.explanation, one.by && [" ", dim(joined(one.by))])))))),
        !metrics.length && el("p", { class: "empty" }, this.row.result === "open" ? "Spans are measured when the trace closes." : "Nothing was measured on this span."),
      ];
    }

    metric(metric) {
      const details = Object.entries(metric.details || {});
      return el("div", { class: "metric" },
        el("header", null, verdict(metric.result), el("h3", null, metric.metric), el("b", null, score(metric)), dim(metric.judge)),
        metric.rationale && el("p", { dir: "auto" }, metric.rationale),
        (metric.findings || []).map((finding) => this.finding(finding)),
        details.length > 0 && el("details", null, el("summary", null, "Details"), el("table", { class: "plain" }, el("tbody", null, details.map(([key, value]) => el("tr", null, el("td", null, key), el("td", { dir: "auto" }, value)))))));
    }

    finding(finding) {
      const quotedIn = finding.seen_in && ["Quoted from ", this.link(finding.seen_in)];
      const rests = (finding.cited || []).filter((id) => id !== finding.seen_in);
      return el("div", { class: finding.note ? "finding note" : "finding" },
        finding.rationale && el("p", { dir: "auto" }, finding.rationale),
        finding.quote && el("blockquote", { dir: "auto", tabindex: "0" }, finding.quote),
        (quotedIn || finding.origin || rests.length > 0) && el("p", { class: "dim" }, quotedIn, finding.origin && [quotedIn && " · ", "Began in ", this.link(finding.origin)],
          rests.length > 0 && [(quotedIn || finding.origin) && " · ", "Rests on ", rests.slice(0, 6).map((id, i) => [i ? ", " : "", this.link(id)]), rests.length > 6 && ` and ${rests.length - 6} more`]),
        el("div", { class: "tags" }, el("span", { class: "tag" }, finding.severity), finding.category && el("a", { class: "tag", href: listLink({ category: finding.category }) }, finding.category),
          finding.blame && el("span", { class: "tag" }, `blame: ${finding.blame}`), finding.touched_outcome !== undefined && el("span", { class: "tag" }, finding.touched_outcome ? "touched the outcome" : "did not touch the outcome"),
          finding.confidence !== undefined && el("span", { class: "tag", title: "the precision of the rule on labelled traces" }, `confidence ${finding.confidence.toFixed(2)}`), finding.note && el("span", { class: "tag" }, "note")));
    }
  }

  // ---- open traces

  async function openView(at, current) {
    document.title = "Open traces – otel-verdict";
    back = ["#/open", "← Open traces"];
    const place = el("div", null);
    const load = async () => {
      const { open } = own ? { open: [] } : await source.open();
      if (!current()) return;
      $("nav").querySelector("[data-view=open] .count")?.replaceChildren(count(open.length));
      const line = (trace) => el("tr", null,
        el("td", null, verdict("open")),
        el("td", null, el("a", { href: traceLink(trace.trace_id), class: "what" }, bdi(trace.name || trace.trace_id)), el("span", { class: "under" }, joined([trace.service, trace.incomplete && "incomplete"]))),
        el("td", { class: "num" }, count(trace.spans)), el("td", { class: "num wide" }, bytes(trace.bytes)), el("td", { class: "num" }, duration(trace.age_ms)),
        el("td", { class: "num wide" }, duration(trace.idle_ms)), el("td", { class: "num" }, duration(trace.closes_in_ms), " ", dim(trace.close_reason)));
      const heads = [["State"], ["Trace"], ["Spans", "num"], ["Bytes", "num wide"], ["Age", "num"], ["Idle", "num wide"], ["Closes in", "num"]];
      const refocus = focusIn(place);
      replace(place, open.length ? el("div", { class: "traces" }, el("table", null, el("caption", { class: "unseen" }, "Open traces, those with the latest spans first"),
        el("thead", null, el("tr", null, heads.map(([head, kind]) => el("th", { scope: "col", class: kind }, head)))), el("tbody", null, open.map(line)))) : el("p", { class: "empty card" }, "No trace is open."));
      refocus();
    };
    await load();
    if (!current()) return;
    replace($("main"), el("h1", null, "Open traces"), el("p", { class: "dim" }, "Traces whose spans still arrive. They are judged when they close."), place);
    again(2000, load, current);
  }

  // ---- health

  function countOpen(health) {
    if (health) $("nav").querySelector("[data-view=open] .count")?.replaceChildren(count(health.memory.open_traces));
  }
  const level = (part, all) => {
    const inner = el("i", null), filled = all ? Math.min(part / all, 1) : 0;
    inner.style.width = `${100 * filled}%`;
    return el("span", { class: `meter calm${filled > 0.8 ? " full" : ""}`, role: "img", "aria-label": share(part, all) }, inner);
  };

  async function healthView(at, current) {
    document.title = "Health – otel-verdict";
    const place = el("div", null);
    const load = async () => {
      const { health, page } = await source.overview();
      if (!current()) return;
      countOpen(health);
      replace(place, healthCards(health, page));
    };
    await load();
    if (!current()) return;
    replace($("main"), el("h1", { class: "unseen" }, "Health"), place);
    again(3000, load, current);
  }

  function healthCards(health, page) {
    const { memory, spans, journal } = health;
    const used = memory.open_bytes + memory.in_transit_bytes + memory.closed_bytes;
    const pairs = (title, entries) => el("section", { class: "card", "aria-label": title }, el("h2", null, title),
      el("dl", { class: "tallies" }, entries.filter(Boolean).map(([name, value]) => [el("dt", null, name), el("dd", null, value)])));
    const tableOf = (title, heads, rows, none) => el("section", { class: "card", "aria-label": title }, el("h2", null, title),
      rows.length ? el("table", null, el("thead", null, el("tr", null, heads.map((head, n) => el("th", { scope: "col", class: n > 1 && "num" }, head)))),
        el("tbody", null, rows.map((row) => el("tr", null, row.map((cell, n) => el("td", { class: n > 1 && "num" }, cell)))))) : el("p", { class: "empty" }, none));
    const judge = ({ judge, model, breaker, in_flight, waiting, report }) => {
      const failed = Object.entries(report?.failed || {});
      return [el("span", null, bdi(judge), " ", dim(bdi(model))), el("span", { class: breaker === "closed" ? "verdict pass" : "verdict fail" }, { closed: "in use", half_open: "being tried again", open: "suspended" }[breaker]),
        count(report?.answered), count((report?.cached || 0) + (report?.replayed || 0)), failed.length ? failed.map(([why, number]) => `${why} ${count(number)}`).join(", ") : "0", `${count(in_flight)} / ${count(waiting)}`,
        report?.seconds_mean ? `${report.seconds_mean.toFixed(1)} s` : "", report ? count(report.tokens.input + report.tokens.cached + report.tokens.output) : "", dollars(report?.cost_usd)];
    };
    const exporter = (one) => [one.exporter, el("span", null, level(one.queue_bytes, one.queue_capacity), " ", dim(`${bytes(one.queue_bytes)} of ${bytes(one.queue_capacity)}`)), count(one.exported),
      one.dropped ? el("span", { title: Object.entries(one.why).map(([why, number]) => `${why}: ${number}`).join(", ") }, count(one.dropped)) : "0", count(one.dead_lettered), count(one.retries)];
    const messages = health.judges.flatMap((one) => (one.report?.messages || []).map((message) => el("li", null, el("span", { dir: "auto" }, `${one.judge}: ${message}`))));
    return [
      health.obstacles.length > 0 ? el("p", { class: "card verdict fail" }, health.obstacles.join("; ")) : null,
      el("div", { class: "grid three" },
        pairs("Process", [["Version", health.version], ["Up", duration(health.uptime_s * 1000)], ["State", health.obstacles.length ? "does not accept requests" : "ready"],
          ["Spans received", count(spans.received)], ["Spans accepted", count(spans.accepted)], ["Late spans", count(spans.late)]]),
        pairs("Memory", [["Open traces", count(memory.open_traces)], ["Their spans", count(memory.buffered_spans)], ["Buffered", el("span", null, level(used, memory.budget_bytes), ` ${bytes(used)} of ${bytes(memory.budget_bytes)}`)],
          ["Requests being read", bytes(memory.reading_bytes)], ["Waiting for delivery", bytes(memory.closed_bytes)]]),
        pairs("Journal and page", [
          journal ? ["Journal", el("span", null, level(journal.bytes, journal.max_bytes), ` ${bytes(journal.bytes)} of ${bytes(journal.max_bytes)}`)] : ["Journal", "off: traces in memory do not survive a crash"],
          journal && ["Refused requests, errors", `${count(journal.refused_requests)}, ${count(journal.errors)}`], journal && ["Dead letters", bytes(journal.dead_letter_bytes)],
          ["Traces shown", count(page.traces)], ["Their memory", el("span", null, level(page.bytes, page.max_bytes), ` ${bytes(page.bytes)} of ${bytes(page.max_bytes)}`)], page.skipped > 0 && ["Traces left out", count(page.skipped)], ["Open pages", count(page.clients)]])),
      el("div", { class: "grid" }, tableOf("Judges", ["Judge", "State", "Answered", "From cache", "Failed", "Asked / waiting", "Mean", "Tokens", "Cost"], health.judges.map(judge), "No judge is configured; rules judge alone."),
        messages.length > 0 && el("section", { class: "card", "aria-label": "Messages of judges" }, el("h2", null, "Messages of judges’ servers"), el("ul", { class: "list" }, messages)),
        tableOf("Exporters", ["Exporter", "Queue", "Exported", "Dropped", "Dead letters", "Retries"], health.exporters.map(exporter), "There is none.")),
    ];
  }

  // ---- frame

  const THEMES = ["auto", "light", "dark"];
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let theme = "auto";
  try { theme = THEMES.includes(localStorage.getItem("theme")) ? localStorage.getItem("theme") : "auto"; } catch { /* A file may have no storage. */ }
  function paint() {
    document.documentElement.dataset.theme = theme === "auto" ? (dark.matches ? "dark" : "light") : theme;
    $("theme").textContent = { auto: "◐ Auto", light: "○ Light", dark: "● Dark" }[theme];
    $("theme").setAttribute("aria-label", `Colours: ${theme}`);
  }
  $("theme").addEventListener("click", () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    try { localStorage.setItem("theme", theme); } catch { /* As above. */ }
    paint();
  });
  dark.addEventListener("change", paint);
  paint();

  const views = own ? [["traces", "Traces"]] : [["traces", "Traces"], ["open", "Open"], ["health", "Health"]];
  replace($("nav"), views.map(([view, word]) => el("a", { href: `#/${view}`, "data-view": view }, word, view === "open" && el("span", { class: "count" }))));

  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) && $("q")) {
      event.preventDefault();
      $("q").focus();
    }
  });
  // The address names the view, so that a link to an element would leave it.
  document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); $("main").focus(); });
  window.addEventListener("hashchange", () => { window.scrollTo(0, 0); show(); });

  // Browsers have about six connections to one host: a page in the background leaves them to the others.
  let events = null, wasLost = false;
  function listen() {
    if (events || document.hidden) return;
    events = new EventSource("api/events");
    events.addEventListener("open", () => {
      $("connection").className = "live";
      $("connection").textContent = "live";
      // What was missed meanwhile.
      if (wasLost) show();
      wasLost = false;
    });
    events.addEventListener("error", () => {
      wasLost = true;
      $("connection").className = "lost";
      $("connection").textContent = "not connected";
      // The browser tries again by itself, unless the server has refused.
      if (events?.readyState === EventSource.CLOSED) {
        events = null;
        setTimeout(listen, 5000);
      }
    });
    events.addEventListener("trace", (event) => { try { onUpdate(JSON.parse(event.data)); } catch { /* The next one tells. */ } });
  }
  if (!own) {
    listen();
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden) return listen();
      events?.close();
      events = null;
      wasLost = true;
    });
  } else $("connection").textContent = `${plural(own.traces.length, "trace")}, otel-verdict ${own.version}${own.left_out ? `; ${plural(own.left_out, "further trace")} not in this file` : ""}`;
  show();
})();
