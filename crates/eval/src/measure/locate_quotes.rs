//! Locates the quote of each finding.
//!
//! In: the rules' measurements of a trace. Out: the same, with [`Finding::seen_in`] set to the span that
//! contains the quote if it is not the finding's own. Searched are the spans that the finding cites, and
//! those with the agent's task, plans and answer, and with results for the model. Within JSON or code a
//! quote may be escaped. A quote that no span contains as a whole, as it joins several texts by line
//! breaks, is replaced by its longest line that a span contains.

use std::cell::{OnceCell, RefCell};

use foldhash::HashSet;
use memchr::memmem::Finder;
use verdict_otlp::trace::{ById, Idx, SpanId};

use super::conversation::Turns;
use super::{Finding, Measurement, Memo};
use crate::recognise::{AgentTrace, Part, SpanView, ToolRequest};

/// Maximum spans in which one quote is searched: a finding may cite a hundred.
const MAX_PLACES: usize = 160;
/// Maximum lines of a quote that are searched separately.
const MAX_LINES: usize = 8;
/// Minimum bytes of such a line: a shorter one occurs anywhere.
const MIN_LINE: usize = 8;

/// The spans of a trace by their ids.
struct SpanIndex(ById<SpanId, Idx>);

/// Locates every quote.
pub(crate) fn locate(trace: &AgentTrace, memo: &Memo, measurements: &mut [Measurement]) {
    memo.budget.begin();
    for m in measurements {
        let Ok(measured) = &mut m.outcome else { continue };
        for finding in measured.findings.iter_mut().filter(|f| f.seen_in.is_none() && !f.quote.is_empty()) {
            let places = candidate_spans(trace, memo, m.at, finding);
            if let Some((at, quote)) = find_place(trace, memo, &places, &finding.quote) {
                finding.seen_in = trace.tree.spans.get(at).filter(|_| at != m.at).map(|span| span.id);
                finding.quote = quote;
            }
        }
    }
}

/// The first of `places` that contains the quote or a line of it: the finding's own span, else one with
/// the quote in its output, else one with the quote in its input. Later prompts repeat earlier outputs.
fn find_place(trace: &AgentTrace, memo: &Memo, places: &[Idx], quote: &str) -> Option<(Idx, String)> {
    let mut lines: Vec<&str> = quote.lines().map(str::trim).filter(|l| l.len() >= MIN_LINE).collect();
    lines.truncate(MAX_LINES);
    lines.sort_by_key(|line| std::cmp::Reverse(line.len()));
    std::iter::once(quote).chain(lines).find_map(|piece| {
        let search = QuoteSearch::new(piece);
        // Beyond the budget a quote has no place.
        let counted =
            |at: Idx| memo.budget.spend(trace.tree.spans.get(at).map_or(0, |span| span.bytes.len() / 64));
        let wrote = |at: &&Idx| counted(**at) && trace.views.get(**at).is_some_and(|r| search.is_of(r));
        let shown = |at: &&Idx| counted(**at) && trace.views.get(**at).is_some_and(|r| search.was_shown(r));
        let finding_span = places.iter().take(1).find(|at| wrote(at) || shown(at));
        let place = finding_span.or_else(|| places.iter().find(wrote)).or_else(|| places.iter().find(shown));
        place.map(|at| (*at, piece.to_owned()))
    })
}

/// The spans that may contain the quote, the most likely first.
fn candidate_spans(trace: &AgentTrace, memo: &Memo, at: Idx, finding: &Finding) -> Vec<Idx> {
    let spans =
        memo.trace(|| SpanIndex(trace.tree.spans.iter().enumerate().map(|(i, s)| (s.id, i)).collect()));
    let turns = Turns::cached(trace, memo);
    let cited = finding.cited.iter().filter_map(|id| spans.0.get(id).copied());
    let agent = trace.owner.get(at).copied().flatten().and_then(|a| trace.agents.get(a));
    let written = agent.into_iter().flat_map(|a| {
        let plans = a.plans.iter().map(|(at, _)| *at);
        [Some(a.at), a.answer_at, a.llms.first().copied()].into_iter().flatten().chain(plans)
    });
    let adjacent_spans = [turns.before(at), turns.after(at), trace.tree.parent(at), trace.tree.root()];
    let mut out: Vec<Idx> = Vec::new();
    for place in [at]
        .into_iter()
        .chain(finding.origin)
        .chain(cited)
        .chain(written)
        .chain(adjacent_spans.into_iter().flatten())
    {
        if out.len() < MAX_PLACES && !out.contains(&place) {
            out.push(place);
        }
    }
    out
}

/// Searches a quote as it is and as escaped in JSON.
struct QuoteSearch<'q> {
    quote: &'q str,
    plain: OnceCell<Finder<'q>>,
    /// As escaped in JSON; most quotes are found as they are.
    escaped: OnceCell<Vec<Finder<'static>>>,
    /// The addresses of results without the quote: later prompts repeat them.
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

    fn in_text(&self, text: &str) -> bool {
        let has = |finder: &Finder<'_>| finder.find(text.as_bytes()).is_some();
        // Most quotes begin a text.
        text.starts_with(self.quote)
            || has(self.plain.get_or_init(|| Finder::new(self.quote)))
            || self.escaped.get_or_init(|| QuoteSearch::escaped(self.quote)).iter().any(has)
    }

    fn in_request(&self, request: &ToolRequest) -> bool {
        self.in_text(&request.name) || request.arguments.as_deref().is_some_and(|a| self.in_text(a))
    }

    fn in_part(&self, part: &Part) -> bool {
        match part {
            Part::Text(text) | Part::Reasoning(text) => self.in_text(text),
            Part::Call(request) => self.in_request(request),
            Part::Result { content, .. } => {
                let is_new = self.unmatched_results.borrow_mut().insert(content.as_ptr());
                is_new && self.in_text(content)
            }
            Part::Media => false,
        }
    }

    /// Whether the span's output, call, result or error contains the quote.
    fn is_of(&self, r: &SpanView) -> bool {
        let words = [&r.result, &r.name, &r.agent, &r.model].into_iter().flatten();
        let errors =
            r.errors.iter().chain(&r.inherited_errors).flat_map(|e| [&e.error_type, &e.message]).flatten();
        r.output.iter().flat_map(|m| &m.parts).any(|p| self.in_part(p))
            || self.quote.contains('\n') && self.in_text(&r.output_text())
            || words.chain(errors).chain(&r.finish).any(|t| self.in_text(t))
            || r.call.as_ref().is_some_and(|c| self.in_request(c))
            || r.plans.iter().any(|p| self.in_text(&p.text))
    }

    /// Whether the span's input contains the quote. The newest message is last.
    fn was_shown(&self, r: &SpanView) -> bool {
        r.input.iter().rev().flat_map(|m| &m.parts).any(|p| self.in_part(p))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::defects::{Defect, Findings};
    use crate::measure::testing::{Script, row};
    use crate::measure::{Context, Settings, Unmeasured};

    fn located(trace: &AgentTrace, at: Idx, quote: &str) -> (Option<Idx>, String) {
        let (settings, memo) = (Settings::default(), Memo::new());
        let context = Context {
            row: row("plan_efficiency"),
            trace,
            at,
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
