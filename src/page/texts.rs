//! Texts of a trace as the page shows them.
//!
//! Every text of a trace passes through [`ShownTexts`]: it is redacted, cut, and its control characters and marks that
//! change the direction of other text are replaced. Names (of spans, agents, tools, models, services, sessions, users)
//! are shown in any case; content (tasks, answers, rationales, quotes, arguments, results, error messages) only if
//! [`Disclosure::shows_texts`].

use verdict_eval::Disclosure;

use crate::plain_text::is_hidden;

/// Maximum bytes of all content of one trace.
pub(super) const MAX_CONTENT_BYTES: usize = 1 << 20;
/// Maximum bytes of a name.
const MAX_NAME_BYTES: usize = 200;
/// Maximum bytes of a task in the list.
pub(super) const MAX_TASK_BYTES: usize = 300;
/// Maximum bytes of an explanation, a quote or a value.
pub(super) const MAX_PASSAGE_BYTES: usize = 2_000;
/// Maximum bytes of an answer, or of an excerpt of a span's content.
pub(super) const MAX_EXCERPT_BYTES: usize = 4_000;

/// The texts of one trace.
pub(super) struct ShownTexts<'a> {
    pub disclosure: &'a Disclosure,
    /// Whether content is shown.
    pub shows_content: bool,
    /// Bytes of content that may still be shown.
    remaining: usize,
}

impl<'a> ShownTexts<'a> {
    /// Texts of a trace, with at most `remaining` bytes of content.
    pub(super) fn new(disclosure: &'a Disclosure, shows_content: bool, remaining: usize) -> ShownTexts<'a> {
        ShownTexts { disclosure, shows_content, remaining }
    }

    /// A name on one line.
    pub(super) fn name(&self, text: &str) -> String {
        redact_and_cut(self.disclosure, text, MAX_NAME_BYTES).replace('\n', " ")
    }

    /// A name; `None` if there is none or it is empty.
    pub(super) fn optional_name(&self, text: Option<&str>) -> Option<String> {
        text.filter(|text| !text.is_empty()).map(|text| self.name(text))
    }

    /// Content of at most `max_bytes` bytes; `None` if content is not shown, there is none, or no bytes remain for it.
    pub(super) fn content(&mut self, text: Option<&str>, max_bytes: usize) -> Option<String> {
        let text = text.filter(|text| self.shows_content && self.remaining > 0 && !text.trim().is_empty())?;
        let shown = redact_and_cut(self.disclosure, text, max_bytes.min(self.remaining));
        self.remaining = self.remaining.saturating_sub(shown.len());
        Some(shown)
    }
}

/// A text redacted and then cut, without control characters and marks that change the direction of other text.
fn redact_and_cut(disclosure: &Disclosure, text: &str, max_bytes: usize) -> String {
    const ELLIPSIS: &str = "\u{2026}";
    // The prefix is longer than the shown text, so a secret that this cut divides is not shown.
    let prefix = text.get(..text.floor_char_boundary(4 * max_bytes + 1_024)).unwrap_or_default();
    let redacted = disclosure.redacted(prefix);
    let end = redacted.floor_char_boundary(max_bytes);
    let is_replaced = |c: char| is_hidden(c) && !matches!(c, '\n' | '\t');
    let shown = redacted.get(..end).unwrap_or_default();
    let mut text: String = shown.chars().map(|c| if is_replaced(c) { '\u{fffd}' } else { c }).collect();
    if end < redacted.len() || prefix.len() < text.len() {
        text.push_str(ELLIPSIS);
    }
    text
}
