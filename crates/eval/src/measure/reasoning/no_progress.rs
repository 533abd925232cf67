//! Signs of work without progress.
//!
//! In: an agent's outputs in order, and its prompts. Out: findings that are recorded and fail nothing
//! by themselves: repeated changes of approach (on the first one); a path in the model's code that
//! nothing it has read contains; and a patch given as the answer without having been applied or tested.

use verdict_otlp::trace::{Idx, Kind};

use super::answer::masked;
use super::answer_span::answered_by;
use super::prefilter::{ANOTHER_WAY_WORDS, Prefilter};
use crate::measure::conversation::{prompt_texts, readable_text, writes_code};
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
/// Fewest changes of approach of a finding: a single one may be progress.
const MIN_RESTARTS: usize = 3;
/// Most bytes of prompts that are searched for one agent's paths.
const MAX_SEARCHED: usize = 32 << 20;
/// Most outputs of one agent that are read.
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
        // Masking removes code between words, so the text must match as well.
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
        "progress or a revised plan was expected; {} times in this run, first here, one approach is replaced by \
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
        searched += named.len() * prompt_texts(view).map(|text| text.len()).sum::<usize>();
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

/// Whether the prompt contains the whole path; a part of it may have been completed by a guess.
fn is_in_prompt(view: &SpanView, path: &str) -> bool {
    let contains = |text: &str| memchr::memmem::find(text.as_bytes(), path.as_bytes()).is_some();
    view.input.iter().flat_map(|m| &m.parts).any(|part| match part {
        Part::Call(call) => call.arguments.as_deref().is_some_and(contains),
        part => readable_text(part).is_some_and(|text| contains(text)),
    })
}

/// Whether a text is a patch, or contains one.
pub(crate) fn is_patch(text: &str) -> bool {
    PATCH.is_match(text)
}

/// A patch that is the answer and that no call or code applied or tested; on the span that gave the
/// answer, of a model or of a tool.
pub(crate) fn untested_patch(trace: &AgentTrace, memo: &Memo, agent: &Agent) -> Option<(Idx, Finding)> {
    let answer = agent.answer.as_deref()?;
    let patch = PATCH.find(answer)?;
    let at = agent.answer_at.or_else(|| answered_by(trace, memo, agent))?;
    let mut outputs = agent.llms.iter().filter_map(|at| trace.views.get(*at)).map(SpanView::output_text);
    let mut calls = agent.calls.iter().filter_map(|c| trace.calls.get(*c)).filter(|c| c.at != at);
    let by_call = calls.any(|c| {
        TRIED.is_match(&c.name) || c.arguments.as_deref().is_some_and(|a| TRIED.is_match(clip(a, 4096)))
    });
    if trace.incomplete || by_call || outputs.any(|text| writes_code(&text) && TRIED.is_match(&text)) {
        return None;
    }
    let rationale =
        "a test of the patch was expected before the answer; nothing in the run applied, ran or tested it";
    let finding =
        Defect::UntestedDelivery.finding(rationale, around(answer, patch.start(), patch.end(), 100));
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
