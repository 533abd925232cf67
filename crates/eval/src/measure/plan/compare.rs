//! Compares two or three responses to one query (004, table 34, paraphrased), such as those of an agent without a plan
//! and with different plans.
//!
//! In: a query and responses; a judge's scores for each. Out: scores after the table's gates, and
//! the decision by its rule. The judge scores; the decision is computed from the scores.
//!
//! Gates: an invalid response has consistency 0, completeness 1 and redundancy 7; one that does not
//! answer the query has completeness 1. Decision: the responses that are valid and consistent,
//! compared by completeness, then redundancy; equal responses are all listed; without a valid and
//! consistent response the decision is "Neither".

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::prompt::{DATA, fence};
use crate::measure::question::object_schema;
use crate::measure::{AnswerForm, Prompt, Question};

/// The worst and the best of completeness and redundancy.
const SCALE: (i64, i64) = (1, 7);

/// Names of responses.
pub const NAMES: [&str; 3] = ["R1", "R2", "R3"];

const RUBRIC: &str = "\
You compare responses to one query. Score each by itself, from its text alone: bring in no knowledge of \
your own, and do not take a number for right because two responses agree on it, or for wrong because \
one differs. How a response is laid out does not matter: a bare list or record can be complete.
- validity: 0 for a refusal, an error message, or word that there is no data; 1 for anything else.
- consistency: 1 if it answers this query; 0 if it is about something else, or not valid.
- completeness, 1 to 7: how fully it gives what the query asks. 7 leaves nothing open, 1 gives next to \
nothing.
- redundancy, 1 to 7: how free it is of what the query does not ask. 7 has nothing to spare; each \
addition costs.
First write 'rationale': two to four sentences on how the responses differ. Then score them.";

/// A judge's scores of one response.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ResponseScores {
    /// 0 or 1.
    pub validity: i64,
    /// 0 or 1.
    pub consistency: i64,
    /// 1 to 7.
    pub completeness: i64,
    /// 1 to 7; 7 is free of redundancy.
    pub redundancy: i64,
}

impl ResponseScores {
    /// The scores after the table's gates.
    fn gated(self) -> ResponseScores {
        let on_scale = |n: i64| n.clamp(SCALE.0, SCALE.1);
        let is_valid = self.validity >= 1;
        let is_consistent = is_valid && self.consistency >= 1;
        ResponseScores {
            validity: is_valid.into(),
            consistency: is_consistent.into(),
            completeness: if is_consistent { on_scale(self.completeness) } else { SCALE.0 },
            redundancy: if is_valid { on_scale(self.redundancy) } else { SCALE.1 },
        }
    }
}

/// The scores of all responses to a query, and the decision.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ResponseComparison {
    /// The judge's reasons.
    pub rationale: String,
    pub scores: Vec<ResponseScores>,
    /// `Neither`, `R1`, `R1,R3`, ...; `All` if three responses are equally good.
    pub decision: String,
}

/// The key of the question with the responses in their order.
pub(crate) const KEY: &str = "compare";
/// The key of the question with the responses in the opposite order.
pub(crate) const EXCHANGED: &str = "compare.exchanged";

/// The questions about two or three `responses`, in their order and in the opposite order, since judges prefer
/// positions. Empty for any other number of responses.
pub fn questions(query: &str, responses: &[String]) -> Vec<Question> {
    let exchanged: Vec<String> = responses.iter().rev().cloned().collect();
    let both_orders = [question(query, responses), question(query, &exchanged)];
    let keyed = both_orders.into_iter().flatten().zip([KEY, EXCHANGED]);
    keyed.map(|(question, key)| Question { key: key.to_owned(), ..question }).collect()
}

/// The question about two or three `responses`; `None` for any other number.
pub(crate) fn question(query: &str, responses: &[String]) -> Option<Question> {
    let names = NAMES.get(..responses.len()).filter(|names| names.len() > 1)?;
    let mut user = fence("QUERY", query);
    for (name, response) in names.iter().zip(responses) {
        user.push_str(&fence(name, response));
    }
    let number = |values: Vec<i64>| json!({ "type": "integer", "enum": values });
    let on_scale = || number((SCALE.0..=SCALE.1).collect());
    let scores = object_schema(json!({
        "validity": number(vec![0, 1]),
        "consistency": number(vec![0, 1]),
        "completeness": on_scale(),
        "redundancy": on_scale(),
    }));
    let mut fields = json!({ "rationale": { "type": "string" } });
    for name in names {
        fields[*name] = scores.clone();
    }
    let prompt = Prompt::new(format!("{RUBRIC}\n\n{DATA}"), user);
    Some(Question::new(KEY, prompt, AnswerForm::object("compared_responses", fields)))
}

/// Reads an answer about `count` responses. `None` if it does not fit its form.
pub(crate) fn read(count: usize, answer: &Value) -> Option<ResponseComparison> {
    let scores = |name| Some(ResponseScores::deserialize(answer.get(name)?).ok()?.gated());
    let scores: Vec<ResponseScores> = NAMES.get(..count)?.iter().map(scores).collect::<Option<_>>()?;
    let rationale = answer.get("rationale").and_then(Value::as_str).unwrap_or_default().to_owned();
    Some(ResponseComparison { rationale, decision: decision(&scores), scores })
}

/// As `read`, for the answer to the question `key`. The scores of the question in the opposite order are reversed; its
/// rationale is marked, since it names the responses in the order of the question.
pub fn read_keyed(key: &str, count: usize, answer: &Value) -> Option<ResponseComparison> {
    let mut comparison = read(count, answer)?;
    if key == EXCHANGED {
        comparison.scores.reverse();
        comparison.decision = decision(&comparison.scores);
        comparison.rationale = format!("(shown in the opposite order) {}", comparison.rationale);
    }
    Some(comparison)
}

/// How often each decision was made over many queries.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct WinRates {
    pub queries: usize,
    /// Queries without an answer of a judge.
    pub unanswered: usize,
    /// By response: the share of the compared queries for which it is the only best response.
    pub wins: Vec<f64>,
    /// By response: the share of the compared queries for which it is one of the best responses.
    pub best: Vec<f64>,
    /// The share of ties of some responses.
    pub ties: f64,
    /// The share of ties of all responses.
    pub all: f64,
    /// The share of queries without a valid and consistent response.
    pub neither: f64,
    /// The share of queries with the same decision in both orders, among those with answers in both.
    pub consistent: Option<f64>,
    pub decisions: BTreeMap<String, usize>,
}

/// Win rates of `count` responses. Each query has its combined comparison, and whether both orders agree where both
/// were answered.
pub fn win_rates(count: usize, queries: &[Option<(ResponseComparison, Option<bool>)>]) -> WinRates {
    let compared: Vec<&(ResponseComparison, Option<bool>)> = queries.iter().flatten().collect();
    let share = |n: usize| if compared.is_empty() { 0.0 } else { n as f64 / compared.len() as f64 };
    let decision_share = |is_counted: &dyn Fn(&str) -> bool| {
        share(compared.iter().filter(|(c, _)| is_counted(&c.decision)).count())
    };
    let includes =
        |name: &str, decision: &str| decision == "All" || decision.split(',').any(|one| one == name);
    let names = NAMES.get(..count).unwrap_or_default();
    let mut decisions = BTreeMap::new();
    compared.iter().for_each(|(c, _)| *decisions.entry(c.decision.clone()).or_default() += 1);
    let agreeing: Vec<bool> = compared.iter().filter_map(|(_, agree)| *agree).collect();
    let agreement_count = agreeing.iter().filter(|agree| **agree).count();
    // Of two responses, a tie of both is a tie of all, although the decision lists them.
    let is_all = |decision: &str| decision == "All" || names.iter().all(|name| includes(name, decision));
    WinRates {
        queries: queries.len(),
        unanswered: queries.len() - compared.len(),
        wins: names.iter().map(|name| decision_share(&|decision| decision == *name)).collect(),
        best: names.iter().map(|name| decision_share(&|decision| includes(name, decision))).collect(),
        ties: decision_share(&|decision| decision.contains(',') && !is_all(decision)),
        all: decision_share(&is_all),
        neither: decision_share(&|decision| decision == "Neither"),
        consistent: (!agreeing.is_empty()).then(|| agreement_count as f64 / agreeing.len() as f64),
        decisions,
    }
}

/// Combines several judges or samples: the lower median of each score, and the decision from these.
/// The rationale is that of the first comparison with this decision.
pub fn combine(mut all: Vec<ResponseComparison>) -> Option<ResponseComparison> {
    let count = all.first()?.scores.len();
    let median = |response: usize, score: fn(&ResponseScores) -> i64| {
        let mut values: Vec<i64> = all.iter().filter_map(|c| c.scores.get(response)).map(score).collect();
        values.sort_unstable();
        values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(0)
    };
    let combined = |response| ResponseScores {
        validity: median(response, |s| s.validity),
        consistency: median(response, |s| s.consistency),
        completeness: median(response, |s| s.completeness),
        redundancy: median(response, |s| s.redundancy),
    };
    let scores: Vec<ResponseScores> = (0..count).map(|response| combined(response).gated()).collect();
    let decision = decision(&scores);
    let first = all.iter().position(|c| c.decision == decision).unwrap_or(0);
    let rationale = all.swap_remove(first).rationale;
    Some(ResponseComparison { rationale, scores, decision })
}

/// The decision by the rule of the table.
fn decision(scores: &[ResponseScores]) -> String {
    let rank = |s: &ResponseScores| (s.completeness, s.redundancy);
    let eligible = || NAMES.iter().zip(scores).filter(|(_, s)| s.validity == 1 && s.consistency == 1);
    let Some(best) = eligible().map(|(_, s)| rank(s)).max() else { return "Neither".to_owned() };
    let winners: Vec<&str> = eligible().filter(|(_, s)| rank(s) == best).map(|(name, _)| *name).collect();
    // The table has a label only for a tie of three; a tie of two is listed.
    if winners.len() == NAMES.len() { "All".to_owned() } else { winners.join(",") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scores(v: i64, c: i64, completeness: i64, redundancy: i64) -> Value {
        json!({ "validity": v, "consistency": c, "completeness": completeness, "redundancy": redundancy })
    }

    fn comparison_of_answers(given: &[Value]) -> ResponseComparison {
        let mut answer = json!({ "rationale": "they differ" });
        for (name, scores) in NAMES.iter().zip(given) {
            answer[*name] = scores.clone();
        }
        read(given.len(), &answer).unwrap()
    }

    #[test]
    fn gates_of_table_34_override_the_judge() {
        let compared = comparison_of_answers(&[scores(0, 1, 6, 3), scores(1, 0, 6, 3), scores(1, 1, 6, 3)]);
        let rows: Vec<[i64; 4]> = compared
            .scores
            .iter()
            .map(|s| [s.validity, s.consistency, s.completeness, s.redundancy])
            .collect();
        assert_eq!(rows, [[0, 0, 1, 7], [1, 0, 1, 3], [1, 1, 6, 3]]);
        assert_eq!(compared.decision, "R3");
    }

    #[test]
    fn best_completeness_then_redundancy_decides_and_ties_are_listed() {
        let good = || scores(1, 1, 6, 5);
        assert_eq!(comparison_of_answers(&[good(), good(), good()]).decision, "All");
        assert_eq!(comparison_of_answers(&[good(), scores(1, 1, 6, 4), good()]).decision, "R1,R3");
        assert_eq!(comparison_of_answers(&[scores(1, 1, 5, 7), good(), scores(1, 1, 6, 4)]).decision, "R2");
        assert_eq!(comparison_of_answers(&[good(), scores(0, 0, 7, 7), good()]).decision, "R1,R3");
        assert_eq!(comparison_of_answers(&[good(), good()]).decision, "R1,R2");
        assert_eq!(comparison_of_answers(&[scores(0, 0, 7, 7), scores(1, 0, 7, 7)]).decision, "Neither");
    }

    #[test]
    fn combined_scores_are_lower_medians_and_decide() {
        let one = |first, second, words: &str| {
            let compared = comparison_of_answers(&[first, second]);
            ResponseComparison { rationale: words.to_owned(), ..compared }
        };
        let good = || scores(1, 1, 6, 6);
        let all = vec![
            one(good(), scores(1, 1, 7, 1), "the second has more"),
            one(good(), scores(1, 1, 5, 7), "the first has more"),
            one(good(), scores(1, 1, 5, 6), "the second lacks something"),
        ];
        let joint = combine(all.clone()).unwrap();
        assert_eq!((joint.decision.as_str(), joint.rationale.as_str()), ("R1", "the first has more"));
        assert_eq!((joint.scores[1].completeness, joint.scores[1].redundancy), (5, 6));
        // Two opinions that differ on validity: the lower one counts, with its gates.
        let split =
            vec![one(good(), good(), "both"), one(good(), scores(0, 0, 1, 7), "only one is an answer")];
        let joint = combine(split).unwrap();
        assert_eq!((joint.decision.as_str(), joint.rationale.as_str()), ("R1", "only one is an answer"));
        assert_eq!(combine(vec![all[1].clone()]), Some(all[1].clone()));
        assert_eq!(combine(Vec::new()), None);
    }

    #[test]
    fn scores_off_the_scale_are_clamped_and_missing_ones_are_none() {
        assert_eq!(comparison_of_answers(&[scores(1, 1, 9, -2), scores(1, 1, 7, 1)]).decision, "R1,R2");
        assert_eq!(read(2, &json!({ "R1": scores(1, 1, 1, 1) })), None);
        assert_eq!(read(4, &json!({})), None);
    }

    #[test]
    fn exchanged_answers_are_brought_into_the_given_order() {
        let responses = ["one", "two", "three"].map(str::to_owned);
        let asked = questions("q", &responses);
        assert_eq!(asked.iter().map(|q| q.key.as_str()).collect::<Vec<_>>(), [KEY, EXCHANGED]);
        assert!(asked[1].prompt.user.contains("<<<R1\nthree\n"));
        assert!(questions("q", &responses[..1]).is_empty());
        // A judge that prefers the first position decides nothing.
        let biased = json!({ "rationale": "the first", "R1": scores(1, 1, 7, 7), "R2": scores(1, 1, 6, 7) });
        let both: Vec<ResponseComparison> =
            [KEY, EXCHANGED].iter().filter_map(|key| read_keyed(key, 2, &biased)).collect();
        assert_eq!((both[0].decision.as_str(), both[1].decision.as_str()), ("R1", "R2"));
        assert_eq!(both[1].rationale, "(shown in the opposite order) the first");
        assert_eq!(combine(both).unwrap().decision, "R1,R2");
    }

    #[test]
    fn win_rates_count_wins_ties_and_agreement_of_both_orders() {
        let compare_with = |first: i64, second: i64, agree| {
            let one = comparison_of_answers(&[scores(1, 1, first, 7), scores(1, 1, second, 7)]);
            Some((one, Some(agree)))
        };
        let invalid = Some((comparison_of_answers(&[scores(0, 0, 1, 7), scores(0, 0, 1, 7)]), None));
        let found = win_rates(
            2,
            &[compare_with(7, 5, true), compare_with(5, 6, true), compare_with(6, 6, false), invalid, None],
        );
        assert_eq!((found.queries, found.unanswered), (5, 1));
        assert_eq!((found.wins, found.best), (vec![0.25, 0.25], vec![0.5, 0.5]));
        assert_eq!(
            (found.ties, found.all, found.neither, found.consistent),
            (0.0, 0.25, 0.25, Some(2.0 / 3.0))
        );
        assert_eq!(found.decisions["R1,R2"], 1);
        let three = comparison_of_answers(&[scores(1, 1, 6, 5), scores(1, 1, 6, 4), scores(1, 1, 6, 5)]);
        assert_eq!(win_rates(3, &[Some((three, None))]).ties, 1.0);
    }

    #[test]
    fn question_requires_two_or_three_responses() {
        let responses = vec!["a".to_owned(); 4];
        assert!(question("q", &responses[..1]).is_none() && question("q", &responses).is_none());
        let asked = question("q", &responses[..2]).unwrap();
        assert_eq!(asked.form.schema["required"], json!(["rationale", "R1", "R2"]));
        assert!(!asked.prompt.user.contains("R3"));
    }

    #[test]
    fn prompt_matches_golden_file() {
        let responses = ["12.3 %", "There is no data.", "About an eighth; and the weather was fine."];
        let q = question("What share of calls was escalated?", &responses.map(str::to_owned)).unwrap();
        let text = format!("{}\n## user\n{}\n## form\n{:#}\n", q.prompt.system, q.prompt.user, q.form.schema);
        crate::measure::testing::golden("compare", &text);
    }
}
