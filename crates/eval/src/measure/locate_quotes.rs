//! Where the quote of each finding stands.
//!
//! In: the rules' measurements of a trace. Out: the same, each finding naming the span that its
//! quote is from where that is another than its own. Looked for in what the finding points to, and
//! in the places where an agent's task, plan and answer, and what came back to a model, are
//! written. Texts are read as `recognise` gives them; what stands in JSON or code may be written
//! with escapes there. A quote that stands nowhere as a whole gives way to its longest line that
//! does: texts of several parts are joined by line breaks.

use memchr::memmem::Finder;
use verdict_otlp::trace::{ById, Idx, SpanId};

use super::conversation::Turns;
use super::{Finding, Measurement, Memo};
use crate::recognise::{AgentTrace, Part, SpanView, ToolRequest};

/// Spans that one quote is looked for in: a finding may cite a hundred.
const MAX_PLACES: usize = 160;
/// Lines of a quote that are tried by themselves.
const MAX_LINES: usize = 8;
/// A shorter line is found anywhere.
const LEAST_LINE: usize = 8;

/// The spans of a trace by their ids.
struct SpanIndex(ById<SpanId, Idx>);

/// Names the place of every quote.
pub(crate) fn locate(trace: &AgentTrace, memo: &Memo, measurements: &mut [Measurement]) {
    for m in measurements {
        let Ok(measured) = &mut m.outcome else { continue };
        for finding in measured.findings.iter_mut().filter(|f| f.seen_in.is_none() && !f.quote.is_empty()) {
            let places = candidate_spans(trace, memo, m.at, finding);
            if let Some((at, quote)) = find_place(trace, &places, &finding.quote) {
                finding.seen_in = trace.tree.spans.get(at).filter(|_| at != m.at).map(|span| span.id);
                finding.quote = quote;
            }
        }
    }
}

/// The first of `places` that holds the quote, or a line of it: its own, else one that wrote it,
/// else one that was shown it. Every later prompt repeats what was written before.
fn find_place(trace: &AgentTrace, places: &[Idx], quote: &str) -> Option<(Idx, String)> {
    let mut lines: Vec<&str> = quote.lines().map(str::trim).filter(|l| l.len() >= LEAST_LINE).collect();
    lines.truncate(MAX_LINES);
    lines.sort_by_key(|line| std::cmp::Reverse(line.len()));
    std::iter::once(quote).chain(lines).find_map(|piece| {
        let search = QuoteSearch::of(piece);
        let wrote = |at: &&Idx| trace.views.get(**at).is_some_and(|r| search.is_of(r));
        let shown = |at: &&Idx| trace.views.get(**at).is_some_and(|r| search.was_shown(r));
        let own = places.iter().take(1).find(|at| wrote(at) || shown(at));
        let place = own.or_else(|| places.iter().find(wrote)).or_else(|| places.iter().find(shown));
        place.map(|at| (*at, piece.to_owned()))
    })
}

/// Where the quote may be from, the likeliest first.
fn candidate_spans(trace: &AgentTrace, memo: &Memo, at: Idx, finding: &Finding) -> Vec<Idx> {
    let spans =
        memo.trace(|| SpanIndex(trace.tree.spans.iter().enumerate().map(|(i, s)| (s.id, i)).collect()));
    let turns = Turns::of(trace, memo);
    let cited = finding.cited.iter().filter_map(|id| spans.0.get(id).copied());
    let agent = trace.owner.get(at).copied().flatten().and_then(|a| trace.agents.get(a));
    let written = agent.into_iter().flat_map(|a| {
        let plans = a.plans.iter().map(|(at, _)| *at);
        [Some(a.at), a.answer_at, a.llms.first().copied()].into_iter().flatten().chain(plans)
    });
    let near = [turns.before(at), turns.after(at), trace.tree.parent(at), trace.tree.root()];
    let mut out: Vec<Idx> = Vec::new();
    for place in
        [at].into_iter().chain(finding.origin).chain(cited).chain(written).chain(near.into_iter().flatten())
    {
        if out.len() < MAX_PLACES && !out.contains(&place) {
            out.push(place);
        }
    }
    out
}

/// A quote, ready to be looked for as it is and as JSON writes it.
struct QuoteSearch<'q> {
    quote: &'q str,
    spellings: Vec<Finder<'static>>,
}

impl<'q> QuoteSearch<'q> {
    fn of(quote: &'q str) -> QuoteSearch<'q> {
        let escaped = serde_json::to_string(quote).unwrap_or_default();
        let escaped = escaped.get(1..escaped.len().saturating_sub(1)).unwrap_or_default().to_owned();
        let ascii: String = escaped.chars().fold(String::new(), |mut out, c| {
            if c.is_ascii() {
                out.push(c);
            } else {
                let units =
                    c.encode_utf16(&mut [0; 2]).iter().map(|u| format!("\\u{u:04x}")).collect::<String>();
                out.push_str(&units);
            }
            out
        });
        let mut spellings = vec![quote.to_owned(), escaped, ascii];
        spellings.dedup();
        let spellings = spellings.iter().map(|s| Finder::new(s).into_owned()).collect();
        QuoteSearch { quote, spellings }
    }

    fn in_text(&self, text: &str) -> bool {
        self.spellings.iter().any(|finder| finder.find(text.as_bytes()).is_some())
    }

    fn in_request(&self, request: &ToolRequest) -> bool {
        self.in_text(&request.name) || request.arguments.as_deref().is_some_and(|a| self.in_text(a))
    }

    fn in_part(&self, part: &Part) -> bool {
        match part {
            Part::Text(text) | Part::Reasoning(text) => self.in_text(text),
            Part::Call(request) => self.in_request(request),
            Part::Result { content, .. } => self.in_text(content),
            Part::Media => false,
        }
    }

    /// In what a span said, did or came to.
    fn is_of(&self, r: &SpanView) -> bool {
        let words = [&r.result, &r.name, &r.agent, &r.model].into_iter().flatten();
        let errors = r.errors.iter().chain(&r.inherited_errors).flat_map(|e| [&e.kind, &e.message]).flatten();
        r.output.iter().flat_map(|m| &m.parts).any(|p| self.in_part(p))
            || self.quote.contains('\n') && self.in_text(&r.output_text())
            || words.chain(errors).chain(&r.finish).any(|t| self.in_text(t))
            || r.call.as_ref().is_some_and(|c| self.in_request(c))
            || r.plans.iter().any(|p| self.in_text(&p.text))
    }

    /// In what a span was given. The newest message stands last.
    fn was_shown(&self, r: &SpanView) -> bool {
        r.input.iter().rev().flat_map(|m| &m.parts).any(|p| self.in_part(p))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::defects::{Defect, Findings};
    use crate::measure::testing::Script;
    use crate::measure::{Context, Settings};

    fn located(trace: &AgentTrace, at: Idx, quote: &str) -> (Option<Idx>, String) {
        let (settings, memo) = (Settings::default(), Memo::new());
        let context = Context { trace, at, settings: &settings, memo: &memo, rules: &[] };
        let mut findings = Findings::new();
        findings.push(Defect::StepSkipped.finding("expected", quote));
        let mut all = vec![findings.scored(&context, "plan_efficiency")];
        locate(trace, &memo, &mut all);
        let finding = all.remove(0).outcome.unwrap().findings.remove(0);
        let seen = finding.seen_in.and_then(|id| trace.tree.spans.iter().position(|s| s.id == id));
        (seen, finding.quote)
    }

    #[test]
    fn a_quote_is_told_where_it_stands() {
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
    fn of_a_joined_quote_the_longest_line_that_stands_somewhere_is_kept() {
        let trace = Script::new("find the height").answers("42 metres").build();
        let (_, quote) = located(&trace, trace.agents[0].at, "find the height\nof a mountain elsewhere");
        assert_eq!(quote, "find the height");
    }
}
