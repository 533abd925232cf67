//! Work that is not getting anywhere, by its own signs.
//!
//! In: an agent's outputs in order, and its prompts. Out: findings worth recording, which fail
//! nothing by themselves: approaches given up one after another (on the first of them, where the
//! run begins to go in circles); a path that the model's code assumes and that nothing it has read
//! contains; and a patch handed over that nobody applied or tested.

use verdict_otlp::trace::{Idx, Kind};

use super::answer::masked;
use super::answer_span::answered_by;
use super::prefilter::{ANOTHER_WAY_WORDS, Prefilter};
use crate::measure::conversation::writes_code;
use crate::measure::defects::{Defect, clip};
use crate::measure::excerpt::{around, head};
use crate::measure::{Finding, Memo};
use crate::recognise::{Agent, AgentTrace, Content, Part, SpanView};

regex!(ANOTHER_WAY, ANOTHER_WAY_WORDS);
regex!(
    PATH,
    r#"["']/?((?:[\w-]+\\?[./])*[\w-]+/[\w-]+\\?\.(?:py|js|ts|go|rs|java|rb|c|h|cpp|md|txt|rst|cfg|toml|ini|json|ya?ml|csv|xlsx|pdf|pptx|docx))["']"#
);
regex!(PATCH, r"(?m)^@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@|^diff --git ");
regex!(
    TRIED,
    r"(?i)\b(git apply|patch -p|apply_patch|pytest|unittest|run_tests?|cargo test|npm (run )?test|go test|make test|tox)\b"
);
/// The first change of approach may be insight; from so many on the run goes in circles.
const MIN_RESTARTS: usize = 3;
/// Bytes of prompts that one agent's paths are looked for in.
const MAX_SEARCHED: usize = 32 << 20;
/// Outputs of one agent that are looked at.
const MAX_TURNS: usize = 200;

/// Findings by model span.
pub(crate) fn find(trace: &AgentTrace, memo: &Memo) -> Vec<(Idx, Finding)> {
    let mut out = Vec::new();
    for agent in &trace.agents {
        let turns: Vec<(Idx, &SpanView)> = agent
            .llms
            .iter()
            .take(MAX_TURNS)
            .filter_map(|&at| Some((at, trace.views.get(at)?)))
            .filter(|(_, r)| r.output_content == Content::Present && r.plans.is_empty())
            .collect();
        out.extend(repeated_restarts(trace, memo, &turns));
        out.extend(guessed_path(&turns));
        let by_llm = |(at, _): &(Idx, Finding)| trace.views.get(*at).is_some_and(|r| r.kind == Kind::Llm);
        out.extend(untested_patch(trace, memo, agent).filter(by_llm));
    }
    out
}

fn repeated_restarts(trace: &AgentTrace, memo: &Memo, turns: &[(Idx, &SpanView)]) -> Option<(Idx, Finding)> {
    let prefilter = Prefilter::of(trace, memo);
    let mut restarts = turns.iter().skip(1).filter_map(|(at, view)| {
        if !prefilter.may_match(trace, *at) {
            return None;
        }
        let text = view.output_text();
        // Masking brings words together that code stood between.
        if !ANOTHER_WAY.is_match(&text) {
            return None;
        }
        let prose = masked(&text);
        let found = ANOTHER_WAY.find(&prose)?;
        Some((*at, around(&text, found.start(), found.end(), 80).to_owned()))
    });
    let (at, quote) = restarts.next()?;
    let others: Vec<Idx> = restarts.map(|(at, _)| at).collect();
    if others.len() + 1 < MIN_RESTARTS {
        return None;
    }
    let rationale = format!(
        "progress or a revised plan was expected; {} times in this run, here first, one approach is given up for \
         another",
        others.len() + 1
    );
    let finding = Defect::ApproachGivenUp.finding(rationale, &quote);
    Some((at, others.iter().take(8).fold(finding, |f, &other| f.citing_at(trace, other))))
}

/// The first path of the agent's code that nothing it was shown contains.
fn guessed_path(turns: &[(Idx, &SpanView)]) -> Option<(Idx, Finding)> {
    let mut searched = 0;
    turns.iter().find_map(|(at, view)| {
        let text = view.output_text();
        if !writes_code(&text) || PATCH.is_match(&text) || view.input_content != Content::Present {
            return None;
        }
        let found = PATH.captures_iter(&text).take(8).filter_map(|c| c.get(1));
        let named: Vec<(std::ops::Range<usize>, String)> =
            found.map(|path| (path.range(), path.as_str().replace('\\', ""))).collect();
        searched += named.len() * bytes(view);
        if searched > MAX_SEARCHED {
            return None;
        }
        let (place, unknown) = named.iter().find(|(_, path)| !is_in_prompt(view, path))?;
        let rationale = format!(
            "a lookup of the path was expected first; the code assumes {}, which no earlier message or result \
             contains",
            head(unknown, 120)
        );
        let quote = around(&text, place.start, place.end, 60).to_owned();
        Some((*at, Defect::GuessedPath.finding(rationale, &quote)))
    })
}

fn bytes(view: &SpanView) -> usize {
    let parts = view.input.iter().flat_map(|m| &m.parts);
    parts
        .map(|p| match p {
            Part::Text(t) => t.len(),
            Part::Result { content, .. } => content.len(),
            _ => 0,
        })
        .sum()
}

/// The path as it is written stands somewhere in the prompt. Its end alone does not do: what
/// comes before it is then the guess.
fn is_in_prompt(view: &SpanView, path: &str) -> bool {
    let contains = |text: &str| memchr::memmem::find(text.as_bytes(), path.as_bytes()).is_some();
    view.input.iter().flat_map(|m| &m.parts).any(|p| match p {
        Part::Text(t) => contains(t),
        Part::Result { content, .. } => contains(content),
        Part::Call(call) => call.arguments.as_deref().is_some_and(contains),
        _ => false,
    })
}

/// Whether a text is a patch, or holds one.
pub(crate) fn is_patch(text: &str) -> bool {
    PATCH.is_match(text)
}

/// A patch handed over as the answer that nothing in the run applied or tested; on the span that
/// gave the answer, be it a model's or that of the tool which took it.
pub(crate) fn untested_patch(trace: &AgentTrace, memo: &Memo, agent: &Agent) -> Option<(Idx, Finding)> {
    let answer = agent.answer.as_deref()?;
    let patch = PATCH.find(answer)?;
    let at = agent.answer_at.or_else(|| answered_by(trace, memo, agent))?;
    let wrote = agent.llms.iter().filter_map(|at| trace.views.get(*at)).map(SpanView::output_text);
    let asked = agent.calls.iter().filter_map(|c| trace.calls.get(*c));
    let ran = asked.filter(|c| c.at != at).any(|c| {
        TRIED.is_match(&c.name) || c.arguments.as_deref().is_some_and(|a| TRIED.is_match(clip(a, 4096)))
    });
    if trace.incomplete || ran || wrote.filter(|t| writes_code(t)).any(|t| TRIED.is_match(&t)) {
        return None;
    }
    let rationale = "a test of the patch was expected before it was handed over; nothing in the run applied, ran or \
                     tested it";
    let finding = Defect::UntriedDelivery.finding(rationale, around(answer, patch.start(), patch.end(), 100));
    Some((at, finding))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_their_examples() {
        assert!(ANOTHER_WAY.is_match("Let me try a different approach to find it."));
        assert!(ANOTHER_WAY.is_match("I will use another method."));
        assert!(!ANOTHER_WAY.is_match("There are different ways of saying it."));
        assert_eq!(&PATH.captures(r#"open("src/app/main.py")"#).unwrap()[1], "src/app/main.py");
        assert!(!PATH.is_match(r#""text/html""#));
        assert!(PATCH.is_match("--- a\n+++ b\n@@ -1,2 +1,3 @@\n"));
        assert!(TRIED.is_match("python -m pytest -q"));
    }
}
