//! The files of the page.

pub(super) const HTML: &str = include_str!("static/page.html");
pub(super) const CSS: &str = include_str!("static/page.css");
pub(super) const JS: &str = include_str!("static/page.js");
