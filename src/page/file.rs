//! The page as one file, without a server: style, script and data are in it.
//!
//! In: evaluated traces, one by one. Out: HTML, written as they come, so that only rows stay in memory. Each trace is JSON in
//! an element of its own that browsers do not execute; `<` is escaped in it, so that no text of a trace ends the element.
//! The policy names the script and the style by their hashes: nothing else runs.

use std::io::{self, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use verdict_eval::{Disclosure, EvaluatedTrace};
use verdict_otlp::trace::{ById, TraceId};

use super::assets;
use super::history::with_late;
use super::model::TraceRow;
use super::overview::Overview;
use super::trace_view;

/// A file that is being written.
#[derive(Debug)]
pub(crate) struct PageFile {
    disclosure: Disclosure,
    rows: Vec<TraceRow>,
    /// Indexes of the rows, for late spans.
    places: ById<TraceId, usize>,
}

impl PageFile {
    pub(crate) fn new(disclosure: Disclosure) -> PageFile {
        PageFile { disclosure, rows: Vec::new(), places: ById::default() }
    }

    /// Writes a trace, after the beginning if it is the first one. Late spans revise the row of their trace; its tree is
    /// written already and stays without them.
    ///
    /// # Errors
    /// Those of `out`.
    pub(crate) fn add(&mut self, trace: &EvaluatedTrace, out: &mut impl Write) -> io::Result<()> {
        if self.rows.is_empty() {
            out.write_all(beginning().as_bytes())?;
        }
        let (row, detail) = trace_view::trace(trace, &self.disclosure, false);
        if let Some(before) = self.places.get(&trace.trace.tree.id).and_then(|&at| self.rows.get_mut(at)) {
            *before = with_late(before, row);
            return Ok(());
        }
        self.places.insert(trace.trace.tree.id, self.rows.len());
        write_data(out, &format!("trace-{}", row.trace_id), &detail)?;
        self.rows.push(row);
        Ok(())
    }

    /// Writes the list, the sums and the end.
    ///
    /// # Errors
    /// Those of `out`.
    pub(crate) fn finish(&mut self, out: &mut impl Write) -> io::Result<()> {
        let mut rows = std::mem::take(&mut self.rows);
        if rows.is_empty() {
            out.write_all(beginning().as_bytes())?;
        }
        rows.sort_by(|a, b| (a.start, &a.trace_id).cmp(&(b.start, &b.trace_id)));
        rows.iter_mut().zip(1..).for_each(|(row, seq)| row.seq = seq);
        let overview = Overview::of(rows.iter().rev()).over_starts(rows.iter());
        let data = json!({ "traces": rows, "overview": overview, "version": env!("CARGO_PKG_VERSION") });
        write_data(out, "data", &data)?;
        let script = format!("<script>{}</script>", assets::JS);
        let (_, end) = parts();
        out.write_all(end.replacen("<script src=\"page.js\"></script>", &script, 1).as_bytes())
    }
}

/// The page up to its data, with the style and a policy in it.
fn beginning() -> String {
    let hash = |text: &str| STANDARD.encode(Sha256::digest(text.as_bytes()));
    let policy = format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; img-src data:; base-uri 'none'; \
         form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
        hash(assets::JS),
        hash(assets::CSS)
    );
    let (head, _) = parts();
    let charset = "<meta charset=\"utf-8\">";
    let meta = format!("{charset}\n<meta http-equiv=\"content-security-policy\" content=\"{policy}\">");
    let style = format!("<style>{}</style>", assets::CSS);
    head.replacen(charset, &meta, 1).replacen("<link rel=\"stylesheet\" href=\"page.css\">", &style, 1)
}

fn write_data(out: &mut impl Write, id: &str, value: &impl Serialize) -> io::Result<()> {
    let json = serde_json::to_string(value)?.replace('<', "\\u003c");
    writeln!(out, "<script type=\"application/json\" id=\"{id}\">{json}</script>")
}

/// The page before and from its script on.
fn parts() -> (&'static str, &'static str) {
    let at = assets::HTML.find("<script src=").unwrap_or(assets::HTML.len());
    assets::HTML.split_at(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_cannot_end_its_element() {
        let mut out = Vec::new();
        write_data(&mut out, "x", &"</script><!--<script>").unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.matches('<').count(), 2, "{text}");
        assert!(text.contains(r"\u003c/script>\u003c!--\u003cscript>"), "{text}");
    }

    #[test]
    fn the_page_has_the_places_that_a_file_replaces() {
        let beginning = beginning();
        assert!(
            beginning.contains("content-security-policy") && beginning.contains("<style>"),
            "{beginning}"
        );
        assert!(!beginning.contains("page.css"));
        let (_, end) = parts();
        assert!(end.starts_with("<script src=\"page.js\"></script>"), "{end}");
        assert!(
            !assets::JS.contains("</script")
                && !assets::JS.contains("<!--")
                && !assets::CSS.contains("</style")
        );
    }
}
