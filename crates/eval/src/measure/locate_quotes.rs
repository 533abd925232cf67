//! Locates the quote of each finding.
//!
//! In: the rules' measurements of a trace. Out: the same, with [`Finding::seen_in`] set to the span that contains the
//! quote if it is not the finding's own. The search covers the spans that the finding cites, the spans with the
//! agent's task, plans and answer, and the adjacent model calls, whose prompts contain results. Within JSON or code a
//! quote may be escaped. A quote that joins several texts by line breaks may be in no span as a whole; it is replaced
//! by its longest line that a span contains.

use std::cell::{OnceCell, RefCell};

use foldhash::HashSet;
use memchr::memmem::Finder;
use verdict_otlp::trace::{ById, Idx, SpanId};

use super::conversation::Turns;
use super::{Finding, Measurement, Memo};
use crate::recognise::{AgentTrace, Part, SpanView, ToolRequest};

/// Maximum spans in which one quote is searched: a finding may cite a hundred.
const MAX_SPANS: usize = 160;
/// Maximum lines of a quote that are searched separately.
const MAX_LINES: usize = 8;
/// Minimum bytes of such a line: a shorter one occurs in many texts.
const MIN_LINE_BYTES: usize = 8;

/// The spans of a trace by their ids.
struct SpanIndex(ById<SpanId, Idx>);

/// Locates every quote.
pub(crate) fn locate(trace: &AgentTrace, memo: &Memo, measurements: &mut [Measurement]) {
    memo.budget.begin();
    for m in measurements {
        let Ok(measured) = &mut m.outcome else { continue };
        for finding in measured.findings.iter_mut().filter(|f| f.seen_in.is_none() && !f.quote.is_empty()) {
            let candidates = candidate_spans(trace, memo, m.at, finding);
            if let Some((span_index, quote)) = find_quote(trace, memo, &candidates, &finding.quote) {
                finding.seen_in =
                    trace.tree.spans.get(span_index).filter(|_| span_index != m.at).map(|span| span.id);
                finding.quote = quote;
            }
        }
    }
}

/// The span of `candidates` that contains the quote or a line of it, and the part that it contains: the finding's own
/// span, which is the first one, or the first span with the quote in its output, or the first one with the quote in
/// its input. Outputs take precedence, since later prompts repeat them. `None` if no span contains the quote.
fn find_quote(trace: &AgentTrace, memo: &Memo, candidates: &[Idx], quote: &str) -> Option<(Idx, String)> {
    let mut lines: Vec<&str> = quote.lines().map(str::trim).filter(|l| l.len() >= MIN_LINE_BYTES).collect();
    lines.truncate(MAX_LINES);
    lines.sort_by_key(|line| std::cmp::Reverse(line.len()));
    std::iter::once(quote).chain(lines).find_map(|piece| {
        let search = QuoteSearch::new(piece);
        // Beyond the budget no span is searched, and the quote is not located.
        let may_search = |span_index: Idx| {
            memo.budget.spend(trace.tree.spans.get(span_index).map_or(0, |span| span.bytes.len() / 64))
        };
        let is_in_output = |span_index: &&Idx| {
            may_search(**span_index)
                && trace.views.get(**span_index).is_some_and(|view| search.is_in_output(view))
        };
        let is_in_input = |span_index: &&Idx| {
            may_search(**span_index)
                && trace.views.get(**span_index).is_some_and(|view| search.is_in_input(view))
        };
        let finding_span =
            candidates.iter().take(1).find(|span_index| is_in_output(span_index) || is_in_input(span_index));
        let containing = finding_span
            .or_else(|| candidates.iter().find(is_in_output))
            .or_else(|| candidates.iter().find(is_in_input));
        containing.map(|span_index| (*span_index, piece.to_owned()))
    })
}

/// The spans that may contain the quote, the most likely first.
fn candidate_spans(trace: &AgentTrace, memo: &Memo, span_index: Idx, finding: &Finding) -> Vec<Idx> {
    let spans =
        memo.trace(|| SpanIndex(trace.tree.spans.iter().enumerate().map(|(i, s)| (s.id, i)).collect()));
    let turns = Turns::cached(trace, memo);
    let cited = finding.cited.iter().filter_map(|id| spans.0.get(id).copied());
    let agent = trace.owner.get(span_index).copied().flatten().and_then(|agent| trace.agents.get(agent));
    let agent_spans = agent.into_iter().flat_map(|a| {
        let plans = a.plans.iter().map(|(span_index, _)| *span_index);
        [Some(a.at), a.answer_at, a.llms.first().copied()].into_iter().flatten().chain(plans)
    });
    let adjacent_spans =
        [turns.before(span_index), turns.after(span_index), trace.tree.parent(span_index), trace.tree.root()];
    let mut out: Vec<Idx> = Vec::new();
    for candidate in [span_index]
        .into_iter()
        .chain(finding.origin)
        .chain(cited)
        .chain(agent_spans)
        .chain(adjacent_spans.into_iter().flatten())
    {
        if out.len() < MAX_SPANS && !out.contains(&candidate) {
            out.push(candidate);
        }
    }
    out
}

/// Searches a quote verbatim, and as it is escaped in JSON.
struct QuoteSearch<'q> {
    quote: &'q str,
    plain: OnceCell<Finder<'q>>,
    /// The quote as it is escaped in JSON; computed only if the verbatim search fails.
    escaped: OnceCell<Vec<Finder<'static>>>,
    /// The addresses of results without the quote, which later prompts repeat.
    unmatched_results: RefCell<HashSet<*const u8>>,
}

impl<'q> QuoteSearch<'q> {
    fn new(quote: &'q str) -> QuoteSearch<'q> {
        QuoteSearch {
            quote,
            plain: OnceCell::new(),
            escaped: OnceCell::new(),
            unmatched_results: RefCell::default(),
        }
    }

    /// Searches for the spellings of a quote in JSON that differ from the quote.
    fn escaped(quote: &str) -> Vec<Finder<'static>> {
        let escaped = serde_json::to_string(quote).unwrap_or_default();
        let escaped = escaped.get(1..escaped.len().saturating_sub(1)).unwrap_or_default().to_owned();
        let mut ascii = String::new();
        for unit in escaped.encode_utf16() {
            match u8::try_from(unit) {
                Ok(byte) if byte.is_ascii() => ascii.push(char::from(byte)),
                _ => ascii.push_str(&format!("\\u{unit:04x}")),
            }
        }
        let mut spellings = vec![quote.to_owned(), escaped, ascii];
        spellings.dedup();
        spellings.iter().skip(1).map(|s| Finder::new(s).into_owned()).collect()
    }

    fn is_in_text(&self, text: &str) -> bool {
        let has = |finder: &Finder<'_>| finder.find(text.as_bytes()).is_some();
        // Most quotes begin a text.
        text.starts_with(self.quote)
            || has(self.plain.get_or_init(|| Finder::new(self.quote)))
            || self.escaped.get_or_init(|| QuoteSearch::escaped(self.quote)).iter().any(has)
    }

    fn is_in_request(&self, request: &ToolRequest) -> bool {
        self.is_in_text(&request.name) || request.arguments.as_deref().is_some_and(|a| self.is_in_text(a))
    }

    fn is_in_part(&self, part: &Part) -> bool {
        match part {
            Part::Text(text) | Part::Reasoning(text) => self.is_in_text(text),
            Part::Call(request) => self.is_in_request(request),
            Part::Result { content, .. } => {
                let is_new = self.unmatched_results.borrow_mut().insert(content.as_ptr());
                is_new && self.is_in_text(content)
            }
            Part::Media => false,
        }
    }

    /// Whether the span's output, call, result or error contains the quote.
    fn is_in_output(&self, view: &SpanView) -> bool {
        let fields = [&view.result, &view.name, &view.agent, &view.model].into_iter().flatten();
        let errors = view
            .errors
            .iter()
            .chain(&view.inherited_errors)
            .flat_map(|e| [&e.error_type, &e.message])
            .flatten();
        view.output.iter().flat_map(|m| &m.parts).any(|p| self.is_in_part(p))
            || self.quote.contains('\n') && self.is_in_text(&view.output_text())
            || fields.chain(errors).chain(&view.finish).any(|t| self.is_in_text(t))
            || view.call.as_ref().is_some_and(|c| self.is_in_request(c))
            || view.plans.iter().any(|p| self.is_in_text(&p.text))
    }

    /// Whether the span's input contains the quote. The search begins with the last message, which is the newest.
    fn is_in_input(&self, view: &SpanView) -> bool {
        view.input.iter().rev().flat_map(|m| &m.parts).any(|p| self.is_in_part(p))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::defects::{Defect, Findings};
    use crate::measure::testing::{Script, row};
    use crate::measure::{Context, Settings, Unmeasured};

    fn located(trace: &AgentTrace, span_index: Idx, quote: &str) -> (Option<Idx>, String) {
        let (settings, memo) = (Settings::default(), Memo::new());
        let context = Context {
            row: row("plan_efficiency"),
            trace,
            at: span_index,
            settings: &settings,
            memo: &memo,
            rule_measurements: &[],
        };
        let mut findings = Findings::new();
        findings.push(Defect::StepSkipped.finding("expected", quote));
        let mut all = vec![findings.scored(&context, Unmeasured::NotApplicable)];
        locate(trace, &memo, &mut all);
        let finding = all.remove(0).outcome.unwrap().findings.remove(0);
        let seen = finding.seen_in.and_then(|id| trace.tree.spans.iter().position(|s| s.id == id));
        (seen, finding.quote)
    }

    #[test]
    fn quote_is_located_in_its_span() {
        let trace = Script::new("task")
            .says("1. Look it up\n2. Answer")
            .plan(&["Look it up", "Answer"])
            .calls("", &[("look", "{\"q\":\"caf\\u00e9\\nbar\"}")])
            .returns("nothing")
            .answers("42")
            .build();
        let (agent, plan) = (trace.agents[0].at, trace.agents[0].plans[0].0);
        assert_eq!(located(&trace, agent, "Look it up"), (Some(plan), "Look it up".to_owned()));
        assert_eq!(located(&trace, plan, "Look it up").0, None);
        let call = trace.calls[0].llm.unwrap();
        assert_eq!(located(&trace, call, "caf\u{e9}\nbar"), (None, "caf\u{e9}\nbar".to_owned()));
    }

    #[test]
    fn joined_quote_is_reduced_to_its_longest_located_line() {
        let trace = Script::new("find the height").answers("42 metres").build();
        let (_, quote) = located(&trace, trace.agents[0].at, "find the height\nof a mountain elsewhere");
        assert_eq!(quote, "find the height");
    }
}
