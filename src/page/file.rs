//! The page as one file, without a server: style, script and data are in it.
//!
//! In: evaluated traces, one by one. Out: HTML, written trace by trace, so that only rows stay in memory. Each trace is
//! JSON in an element of its own that browsers do not execute; `<` is escaped in it, so that no text of a trace ends
//! the element. The content security policy names the script and the style by their hashes, so that nothing else runs.
//! A browser parses the whole file before it shows anything, so the size of the file is limited: a trace beyond the
//! limits is in the list without its spans, or left out and counted.

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

/// Maximum bytes of the spans of all traces: browsers open a file of this size within a few seconds.
const MAX_DETAIL_BYTES: usize = 64 << 20;
/// Maximum bytes of the spans of traces that do not fail. The other half is for failing traces.
const MAX_NOT_FAILING_BYTES: usize = MAX_DETAIL_BYTES / 2;
/// Maximum number of traces in the list, of about a kilobyte each.
const MAX_TRACES: usize = 20_000;

/// A report file that is being written.
#[derive(Debug)]
pub(crate) struct PageFile {
    disclosure: Disclosure,
    rows: Vec<TraceRow>,
    /// Indexes of the rows, for late spans.
    row_indexes: ById<TraceId, usize>,
    /// Bytes of the spans written so far.
    detail_bytes: usize,
    /// Traces that are in the list without spans.
    without_spans: usize,
    /// Traces that are not in the list.
    omitted: usize,
}

impl PageFile {
    pub(crate) fn new(disclosure: Disclosure) -> PageFile {
        PageFile {
            disclosure,
            rows: Vec::new(),
            row_indexes: ById::default(),
            detail_bytes: 0,
            without_spans: 0,
            omitted: 0,
        }
    }

    /// Writes a trace, after the beginning if it is the first one. Late spans revise the row of their trace; its tree
    /// is written already and stays without them.
    ///
    /// # Errors
    /// Writing to `out` failed.
    pub(crate) fn add(&mut self, trace: &EvaluatedTrace, out: &mut impl Write) -> io::Result<()> {
        if self.rows.is_empty() {
            out.write_all(beginning().as_bytes())?;
        }
        let (row, detail) = trace_view::trace(trace, &self.disclosure, false);
        if let Some(existing) =
            self.row_indexes.get(&trace.trace.tree.id).and_then(|&index| self.rows.get_mut(index))
        {
            *existing = with_late(existing, row);
            return Ok(());
        }
        if self.rows.len() >= MAX_TRACES {
            self.omitted += 1;
            return Ok(());
        }
        self.row_indexes.insert(trace.trace.tree.id, self.rows.len());
        let limit =
            if trace.summary.passed == Some(false) { MAX_DETAIL_BYTES } else { MAX_NOT_FAILING_BYTES };
        let element = data_element(&format!("trace-{}", row.trace_id), &detail)?;
        if self.detail_bytes.saturating_add(element.len()) <= limit {
            self.detail_bytes += element.len();
            out.write_all(element.as_bytes())?;
        } else {
            self.without_spans += 1;
        }
        self.rows.push(row);
        Ok(())
    }

    /// A message to the user about the traces and spans that the file lacks, if any.
    pub(crate) fn omission(&self) -> Option<String> {
        let PageFile { without_spans, omitted, .. } = self;
        (without_spans + omitted > 0).then(|| {
            format!(
                "the HTML file has {without_spans} traces without their spans and lacks {omitted} further traces, \
                 because browsers could not open it otherwise; select traces with --only fail, or evaluate fewer files"
            )
        })
    }

    /// Writes the list of traces, the overview and the end of the page.
    ///
    /// # Errors
    /// Writing to `out` failed.
    pub(crate) fn finish(&mut self, out: &mut impl Write) -> io::Result<()> {
        let mut rows = std::mem::take(&mut self.rows);
        if rows.is_empty() {
            out.write_all(beginning().as_bytes())?;
        }
        rows.sort_by(|a, b| (a.start, &a.trace_id).cmp(&(b.start, &b.trace_id)));
        rows.iter_mut().zip(1..).for_each(|(row, seq)| row.seq = seq);
        let overview = Overview::from_rows(rows.iter().rev()).with_start_times(rows.iter());
        let version = env!("CARGO_PKG_VERSION");
        let list =
            json!({ "traces": rows, "overview": overview, "version": version, "left_out": self.omitted });
        out.write_all(data_element("data", &list)?.as_bytes())?;
        let script = format!("<script>{}</script>", assets::JS);
        let (_, end) = split_page();
        out.write_all(end.replacen("<script src=\"page.js\"></script>", &script, 1).as_bytes())
    }
}

/// The page up to its data, with the style and a content security policy in it.
fn beginning() -> String {
    let hash = |text: &str| STANDARD.encode(Sha256::digest(text.as_bytes()));
    let policy = format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; img-src data:; base-uri 'none'; \
         form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
        hash(assets::JS),
        hash(assets::CSS)
    );
    let (head, _) = split_page();
    let charset = "<meta charset=\"utf-8\">";
    let meta = format!("{charset}\n<meta http-equiv=\"content-security-policy\" content=\"{policy}\">");
    let style = format!("<style>{}</style>", assets::CSS);
    head.replacen(charset, &meta, 1).replacen("<link rel=\"stylesheet\" href=\"page.css\">", &style, 1)
}

/// JSON in an element that browsers do not execute.
fn data_element(id: &str, value: &impl Serialize) -> io::Result<String> {
    let json = serde_json::to_string(value)?.replace('<', "\\u003c");
    Ok(format!("<script type=\"application/json\" id=\"{id}\">{json}</script>\n"))
}

/// The page before its script, and the page from the script on.
fn split_page() -> (&'static str, &'static str) {
    let script_start = assets::HTML.find("<script src=").unwrap_or(assets::HTML.len());
    assets::HTML.split_at(script_start)
}

#[cfg(test)]
mod tests {
    use verdict_eval::Evaluator;
    use verdict_otlp::trace::{CloseReason, ClosedTrace, TraceId};

    use super::*;

    #[test]
    fn beyond_its_limits_a_file_has_verdicts_without_spans_and_counts_the_others() {
        let config = verdict_eval::Config::default();
        let mut file = PageFile::new(Disclosure::new(&config).unwrap());
        let evaluator = Evaluator::builder(&config).build().unwrap();
        let mut out = Vec::new();
        let mut add = |file: &mut PageFile, trace: u8, passed| {
            let (spans, logs, reason) = (Vec::new(), Vec::new(), CloseReason::Idle);
            let trace = TraceId([trace; 16]);
            let closed = ClosedTrace {
                trace,
                spans,
                logs,
                bytes: 0,
                close_reason: reason,
                incomplete: false,
                prior_verdict: None,
            };
            let mut evaluated = evaluator.unmeasured(closed, 0);
            evaluated.summary.passed = Some(passed);
            file.add(&evaluated, &mut out).unwrap();
        };
        add(&mut file, 1, true);
        assert_eq!(file.omission(), None);
        file.detail_bytes = MAX_NOT_FAILING_BYTES;
        add(&mut file, 2, true);
        add(&mut file, 3, false);
        file.detail_bytes = MAX_DETAIL_BYTES;
        add(&mut file, 4, false);
        file.rows = vec![TraceRow::default(); MAX_TRACES];
        add(&mut file, 5, false);
        assert_eq!((file.without_spans, file.omitted), (2, 1));
        assert!(file.omission().unwrap().contains("2 traces without"), "{:?}", file.omission());
        let text = String::from_utf8(out).unwrap();
        let has_spans =
            [1, 2, 3, 4, 5].map(|n: u8| text.contains(&format!("id=\"trace-{}\"", TraceId([n; 16]))));
        assert_eq!(has_spans, [true, false, true, false, false]);
    }

    #[test]
    fn data_cannot_end_its_element() {
        let text = data_element("x", &"</script><!--<script>").unwrap();
        assert_eq!(text.matches('<').count(), 2, "{text}");
        assert!(text.contains(r"\u003c/script>\u003c!--\u003cscript>"), "{text}");
    }

    #[test]
    fn page_has_the_elements_that_a_file_replaces() {
        let beginning = beginning();
        assert!(
            beginning.contains("content-security-policy") && beginning.contains("<style>"),
            "{beginning}"
        );
        assert!(!beginning.contains("page.css"));
        let (_, end) = split_page();
        assert!(end.starts_with("<script src=\"page.js\"></script>"), "{end}");
        assert!(
            !assets::JS.contains("</script")
                && !assets::JS.contains("<!--")
                && !assets::CSS.contains("</style")
        );
    }
}
