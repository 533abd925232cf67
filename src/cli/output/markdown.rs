//! Markdown for the summary of a CI job: totals, and a table of failing traces with the failures of each.
//!
//! Text of traces is shown in table cells, with every character escaped that Markdown or HTML gives a meaning.

use std::fmt::Write;

use super::entry::ReportEntry;
use super::totals::Totals;
use crate::plain_text::is_hidden;
use crate::telemetry::ResultLabel;

/// Maximum number of failing traces in the table: services limit the size of a summary.
const MAX_ROWS: usize = 100;
/// Maximum number of failures of one trace.
const MAX_FAILURES: usize = 3;

/// The document.
pub(super) fn document(totals: Totals, entries: &[ReportEntry]) -> String {
    let mut text = format!("### Verdicts: {totals}\n");
    let failing: Vec<&ReportEntry> =
        entries.iter().filter(|entry| entry.result == ResultLabel::Fail).collect();
    if failing.is_empty() {
        return text;
    }
    text.push_str("\n| trace | service | agent | task | failures |\n|---|---|---|---|---|\n");
    for entry in failing.iter().take(MAX_ROWS) {
        let shown = |name: &Option<String>| escaped(name.as_deref().unwrap_or("-"));
        let mut failures: Vec<String> =
            entry.failures.iter().take(MAX_FAILURES).map(|failed| escaped(&failed.text())).collect();
        let more = entry.failures.len().saturating_sub(MAX_FAILURES) + entry.omitted_failures;
        if more > 0 {
            failures.push(format!("and {more} more"));
        }
        // Writing into a String does not fail.
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} | {} |",
            entry.trace_id,
            shown(&entry.header.service),
            shown(&entry.header.agent),
            escaped(entry.title()),
            failures.join("<br>"),
        );
    }
    let more = failing.len().saturating_sub(MAX_ROWS);
    if more > 0 {
        let _ = writeln!(text, "\nand {more} more failing traces");
    }
    text
}

/// Text that is shown as it is written, on one line.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            // A mention or a reference would notify people.
            '@' => out.push_str("&#64;"),
            '#' => out.push_str("&#35;"),
            c if is_hidden(c) || c.is_whitespace() => out.push(' '),
            // GitHub makes a link of "www.".
            '.' if ends_with_www(&out) => out.push_str("\\."),
            '\\' | '`' | '*' | '_' | '[' | ']' | '(' | ')' | '|' | '~' | '!' | '$' | ':' => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
    }
    out
}

fn ends_with_www(text: &str) -> bool {
    text.len().checked_sub(3).and_then(|at| text.get(at..)).is_some_and(|end| end.eq_ignore_ascii_case("www"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::output::junit::tests::entry;

    #[test]
    fn failing_traces_are_rows() {
        let mut totals = Totals::default();
        let entries = [entry(ResultLabel::Pass, "Refund order 7"), entry(ResultLabel::Fail, "a < b")];
        entries.iter().for_each(|entry| totals.add(entry.result));
        insta::assert_snapshot!(document(totals, &entries), @r#"
        ### Verdicts: 2 traces: 1 pass, 1 fail, 0 unmeasured

        | trace | service | agent | task | failures |
        |---|---|---|---|---|
        | `abababababababababababababababab` | shop | clerk | a &lt; b | tool\_abuse \(Tool-related, high\)\: a &lt; b |
        "#);
        assert_eq!(document(totals, &entries[..1]).lines().count(), 1);
    }

    #[test]
    fn text_of_traces_has_no_meaning_in_markdown() {
        assert_eq!(escaped("a|b\n<img src=x> @team #12"), r"a\|b &lt;img src=x&gt; &#64;team &#35;12");
        assert_eq!(escaped("[x](javascript:y) `z`"), r"\[x\]\(javascript\:y\) \`z\`");
        assert_eq!(escaped("WWW.evil.example \u{202e}x"), r"WWW\.evil.example  x");
    }
}
