//! Questions to an embedding endpoint and to judges about pairs of steps of a plan and its reference that rules cannot
//! decide.
//!
//! In: an assessed plan. Out: one question of each kind, and from its answer the pairs that ask for the same.
//! Embeddings decide the pairs above and below the two thresholds, judges the pairs between them; without an answer a
//! pair stays undecided.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};
use verdict_config::{Problem, settings};

use super::assessment::PlanAssessment;
use super::judge_questions::RenderSystem;
use super::prompt::{DATA, fence};
use super::reference::PairDecisions;
use crate::measure::defects::clip;
use crate::measure::question::object_schema;
use crate::measure::table::PLAN_RATING;
use crate::measure::{AnswerForm, Opinion, Prompt, Question};

/// The key of the question to an embedding endpoint.
pub(crate) const EMBEDDED_KEY: &str = "plan.rating.embeddings";
/// The key of the question to judges.
pub const JUDGED_KEY: &str = PLAN_RATING;
/// Maximum number of pairs of one question, the most similar by words.
const MAX_PAIRS: usize = 40;
/// Maximum length of a prompt that is shown or embedded, in bytes.
const MAX_PROMPT_BYTES: usize = 2 << 10;

const RUBRIC: &str = "\
You compare pairs of instructions, each to the same tool. Two instructions are the same if carrying out either \
gives the same information. Wording, order, politeness and the name of a thing may differ. What may not differ: \
what is asked for, every condition and restriction, negation, numbers, comparisons, names, dates. One that asks \
for more than the other, or adds a condition, is not the same. Placeholders in parentheses stand for outputs of \
other steps; which step they name does not matter.
For every pair give the reason first: what differs, if anything. Then 'same': yes or no.";

// The form of a judge's answer.
static PAIRS_FORM: LazyLock<Arc<AnswerForm>> = LazyLock::new(|| {
    let pair = object_schema(json!({
        "reason": { "type": "string" },
        "pair": { "type": "integer" },
        "same": { "type": "string", "enum": ["yes", "no"] },
    }));
    AnswerForm::object("plan_pairs", json!({ "pairs": { "type": "array", "items": pair } }))
});

// The form of an answer of an embedding endpoint.
static COSINES_FORM: LazyLock<Arc<AnswerForm>> = LazyLock::new(|| {
    let numbers = json!({ "type": "array", "items": { "type": "number" } });
    AnswerForm::object("embeddings", json!({ "cosines": numbers }))
});

settings! {
    /// How steps of a plan are matched with those of its reference where rules cannot tell whether two prompts ask
    /// for the same. Negations, numbers, comparisons and names are compared by rules in any case.
    pub struct Matching {
        /// Default none. A judge of dialect `embeddings`. The judges of the plan decide the pairs between the two
        /// cuts; without any, these are reported as unsure and do not match.
        embeddings: Option<String>,
        /// Default 0.92. Cosine from which two prompts ask for the same. It depends on the model.
        same_from: f64 = 0.92,
        /// Default 0.6. Cosine below which they do not.
        different_below: f64 = 0.6,
    }
}

impl Matching {
    pub(crate) fn problems(&self) -> Vec<Problem> {
        let mut out = Vec::new();
        for (key, value) in [("same_from", self.same_from), ("different_below", self.different_below)] {
            if !(-1.0..=1.0).contains(&value) {
                out.push(Problem::new(key, format!("expected a cosine from -1 to 1, found {value}")));
            }
        }
        if out.is_empty() && self.different_below > self.same_from {
            out.push(Problem::new("different_below", "exceeds same_from"));
        }
        out
    }
}

/// The undecided pairs of `assessment`, by position. A pair whose texts are changed in `shown` is not asked about,
/// since the redacted part may be the difference.
fn askable_pairs(assessment: &PlanAssessment, shown: &PlanAssessment) -> Vec<(usize, usize)> {
    let mut pairs = assessment.open_pairs();
    pairs.retain(|pair| prompts(assessment, *pair) == prompts(shown, *pair));
    pairs.truncate(MAX_PAIRS);
    pairs
}

/// The prompts of a pair.
fn prompts(shown: &PlanAssessment, (i, j): (usize, usize)) -> Option<[&str; 2]> {
    let plan_step = shown.plan.steps.get(i)?;
    let reference_step = shown.reference.as_ref()?.steps.get(j)?;
    Some([plan_step, reference_step].map(|step| clip(&step.prompt, MAX_PROMPT_BYTES)))
}

/// The distinct prompts of `pairs`, sorted.
fn distinct_prompts<'a>(shown: &'a PlanAssessment, pairs: &[(usize, usize)]) -> Vec<&'a str> {
    let mut texts: Vec<&str> = pairs.iter().filter_map(|pair| prompts(shown, *pair)).flatten().collect();
    texts.sort_unstable();
    texts.dedup();
    texts
}

/// The question to the embedding endpoint `judge`; `shown` is `assessment` with sanitised texts. `None` without an
/// undecided pair.
pub fn embedding_question(
    assessment: &PlanAssessment,
    shown: &PlanAssessment,
    judge: &str,
) -> Option<Question> {
    let texts = distinct_prompts(shown, &askable_pairs(assessment, shown));
    if texts.len() < 2 {
        return None;
    }
    let prompt = Prompt::new("", Value::from(texts).to_string());
    let judges = vec![judge.to_owned()];
    Some(Question { judges, ..Question::new(EMBEDDED_KEY, prompt, Arc::clone(&COSINES_FORM)) })
}

/// The decisions that follow from the cosines of an answer.
pub fn read_cosines(
    assessment: &PlanAssessment,
    shown: &PlanAssessment,
    answer: &Value,
    matching: &Matching,
) -> PairDecisions {
    let pairs = askable_pairs(assessment, shown);
    let texts = distinct_prompts(shown, &pairs);
    let cosines: Vec<f64> = answer
        .get("cosines")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_f64)
        .collect();
    if cosines.len() != texts.len() * texts.len().saturating_sub(1) / 2 {
        return PairDecisions::new();
    }
    let index = |text: &str| texts.binary_search(&text).ok();
    let cosine = |pair| {
        let [a, b] = prompts(shown, pair)?.map(index);
        let (a, b) = (a?.min(b?), a?.max(b?));
        // The cosines of the first text with each later text come first, then those of the second text, and so on.
        let row_start = a * texts.len() - a * (a + 1) / 2;
        if a == b { Some(1.0) } else { cosines.get(row_start + b - a - 1).copied() }
    };
    let decide = |pair| match cosine(pair)? {
        cosine if cosine >= matching.same_from => Some((pair, true)),
        cosine if cosine < matching.different_below => Some((pair, false)),
        _ => None,
    };
    pairs.into_iter().filter_map(decide).collect()
}

/// The question to judges about the undecided pairs; `None` if there are none.
pub fn pair_question(
    assessment: &PlanAssessment,
    shown: &PlanAssessment,
    system: RenderSystem<'_>,
) -> Option<Question> {
    let mut pair_list = String::new();
    for (n, pair) in askable_pairs(assessment, shown).into_iter().enumerate() {
        let [plan_prompt, reference_prompt] = prompts(shown, pair)?;
        let tool = shown.plan.steps.get(pair.0).and_then(|step| step.tool.as_deref()).unwrap_or("none");
        pair_list
            .push_str(&format!("pair {} (tool: {tool})\nA: {plan_prompt}\nB: {reference_prompt}\n", n + 1));
    }
    let prompt = Prompt::new(format!("{}\n\n{DATA}", system(JUDGED_KEY, RUBRIC)), fence("PAIRS", &pair_list));
    (!pair_list.is_empty()).then(|| Question::new(JUDGED_KEY, prompt, Arc::clone(&PAIRS_FORM)))
}

/// The decisions on which more than half of the opinions agree.
pub fn read_pairs(
    assessment: &PlanAssessment,
    shown: &PlanAssessment,
    opinions: &[Opinion],
) -> PairDecisions {
    let pairs = askable_pairs(assessment, shown);
    let mut votes: BTreeMap<(usize, usize), [usize; 2]> = BTreeMap::new();
    for opinion in opinions {
        let answers =
            opinion.value.get("pairs").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let mut answered = Vec::new();
        for answer in answers {
            let number = answer.get("pair").and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok());
            let pair = number.and_then(|n| pairs.get(n.checked_sub(1)?));
            let Some(pair) = pair.filter(|pair| !answered.contains(*pair)) else { continue };
            answered.push(*pair);
            let is_same = answer.get("same").and_then(Value::as_str) == Some("yes");
            votes.entry(*pair).or_default()[usize::from(is_same)] += 1;
        }
    }
    let is_majority = |count: usize| count * 2 > opinions.len();
    let decide = |(pair, [no_votes, yes_votes]): ((usize, usize), [usize; 2])| match () {
        () if is_majority(yes_votes) => Some((pair, true)),
        () if is_majority(no_votes) => Some((pair, false)),
        () => None,
    };
    votes.into_iter().filter_map(decide).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::plan::parse::parse_plan;
    use crate::measure::plan::reference::Rating;
    use crate::measure::plan::tools::Toolbox;

    fn assessment_with_open_pairs() -> PlanAssessment {
        let plan = |one: &str, two: &str| {
            parse_plan(&format!(
                r#"{{"1": {{"step": "T2S([], '{one}')", "depends_on": []}}, "2": {{"step": "RAG((1), '{two}')", "depends_on": [1]}}}}"#
            ))
        };
        let judged_plan =
            plan("Fetch ids of interactions on refunds", "What are customers most unhappy about?");
        let best = plan("Fetch ids of calls on refunds", "What are the main complaints of customers?");
        PlanAssessment::new(judged_plan, Toolbox::default(), Some(best))
    }

    fn opinion(pairs: Value) -> Opinion {
        Opinion { value: json!({ "pairs": pairs }), weighted: None, judge: Arc::from("m/1") }
    }

    #[test]
    fn judges_decide_by_majority_and_pairs_without_a_vote_stay_unsure() {
        let mut assessment = assessment_with_open_pairs();
        assert_eq!(assessment.open_pairs(), [(0, 0), (1, 1)]);
        let pair = |n: u64, answer: &str| json!({ "reason": "", "pair": n, "same": answer });
        let all = [
            opinion(json!([pair(1, "yes"), pair(2, "no"), pair(2, "yes"), pair(9, "yes")])),
            opinion(json!([pair(1, "yes"), pair(2, "yes")])),
            opinion(json!([pair(1, "no")])),
        ];
        let decisions = read_pairs(&assessment, &assessment, &all);
        assert_eq!(decisions, PairDecisions::from([((0, 0), true)]), "one vote of three is no majority");
        assessment.decide(decisions);
        let found = assessment.reference_match.as_ref().unwrap();
        assert_eq!((&found.matched[..], &found.unsure[..]), (&[(1, 1)][..], &[(2, 2)][..]));
        assert_eq!((found.rating, found.rating_at_most), (Rating::Bad, Rating::ExtremelyGood));
        assessment.decide(PairDecisions::from([((1, 1), true)]));
        assert_eq!(assessment.reference_match.as_ref().unwrap().f1, 1.0, "decisions add up");
        assert_eq!(pair_question(&assessment, &assessment, &|_, rubric| rubric.to_owned()), None);
    }

    #[test]
    fn cosines_decide_above_and_below_the_thresholds() {
        let assessment = assessment_with_open_pairs();
        let question = embedding_question(&assessment, &assessment, "vectors").unwrap();
        let texts: Vec<String> = serde_json::from_str(&question.prompt.user).unwrap();
        assert_eq!((texts.len(), &question.judges[..]), (4, &["vectors".to_owned()][..]));
        let decisions_for = |cosine: &dyn Fn(&str, &str) -> f64| {
            let pairs_from = |i: usize| (i + 1..texts.len()).map(move |j| (i, j));
            let cosines: Vec<f64> =
                (0..texts.len()).flat_map(pairs_from).map(|(i, j)| cosine(&texts[i], &texts[j])).collect();
            read_cosines(&assessment, &assessment, &json!({ "cosines": cosines }), &Matching::default())
        };
        let are_fetches = |a: &str, b: &str| a.starts_with("Fetch") && b.starts_with("Fetch");
        let decisions = decisions_for(&|a, b| if are_fetches(a, b) { 0.95 } else { 0.7 });
        assert_eq!(decisions, PairDecisions::from([((0, 0), true)]));
        let decisions = decisions_for(&|a, b| if are_fetches(a, b) { 0.92 } else { 0.1 });
        assert_eq!(decisions, PairDecisions::from([((0, 0), true), ((1, 1), false)]));
        let short =
            read_cosines(&assessment, &assessment, &json!({ "cosines": [0.99] }), &Matching::default());
        assert_eq!(short, PairDecisions::new());
    }

    #[test]
    fn prompt_matches_golden_file() {
        let assessment = assessment_with_open_pairs();
        let q = pair_question(&assessment, &assessment, &|_, rubric| rubric.to_owned()).unwrap();
        let text = format!("{}\n## user\n{}\n## form\n{:#}\n", q.prompt.system, q.prompt.user, q.form.schema);
        crate::measure::testing::golden("plan_pairs", &text);
    }
}
