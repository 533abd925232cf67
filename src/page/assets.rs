//! HTML, style and script of the page, which are part of the binary.

pub(super) const HTML: &str = include_str!("static/page.html");
pub(super) const CSS: &str = include_str!("static/page.css");
/// The script. The function around its files keeps their names out of the global scope. A file uses only names of the
/// files above it.
pub(super) const JS: &str = concat!(
    "\"use strict\";\n(() => {\n",
    include_str!("static/script/elements.js"),
    include_str!("static/script/formats.js"),
    include_str!("static/script/address.js"),
    include_str!("static/script/source.js"),
    include_str!("static/script/views.js"),
    include_str!("static/script/bars.js"),
    include_str!("static/script/timeline.js"),
    include_str!("static/script/summary.js"),
    include_str!("static/script/search.js"),
    include_str!("static/script/list.js"),
    include_str!("static/script/span_tree.js"),
    include_str!("static/script/span_list.js"),
    include_str!("static/script/span_panel.js"),
    include_str!("static/script/trace.js"),
    include_str!("static/script/open.js"),
    include_str!("static/script/health.js"),
    include_str!("static/script/theme.js"),
    include_str!("static/script/updates.js"),
    include_str!("static/script/main.js"),
    "})();\n"
);
