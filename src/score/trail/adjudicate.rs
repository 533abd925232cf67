//! Which findings identify an annotated error, decided by a judge in place of paper 000's annotators (section
//! 4.1.2).
//!
//! In: an annotated error and the claims of the run. Out: a question that shows the error with the claims; from the
//! answer, the claims that identify it.

use std::sync::Arc;

use serde_json::{Value as Json, json};
use verdict_eval::plan::{DATA, fence};
use verdict_eval::questions::{Answer, AnswerForm, Prompt, Question};

use super::Annotation;
use super::caught::ErrorClaim;

/// Claims in one question: those at the error's span first, then those of its category. Claims beyond the limit are
/// counted.
const MAX_CLAIMS: usize = 60;

const TASK: &str = "\
Annotators marked an error in the run of an AI agent. Automatic checks of the same run made the findings below. \
Name every finding that identifies this error: it describes the same mistake, in whatever words, under whatever \
category, also where it was written at another span. A finding about another mistake of the same kind, or one that \
only notes that the run failed, does not identify it. Do not ask whether the error or the findings are true.";

/// A question about one error, and the claims in it.
#[derive(Debug)]
pub struct ErrorQuestion {
    pub question: Question,
    /// Indexes of the claims, in the order of their numbers in the question.
    claim_indices: Vec<usize>,
    /// Claims that are not in the question.
    pub omitted_claims: usize,
}

/// The question about the error number `number` of its trace; `None` without claims. `clean` redacts texts of the
/// trace.
pub fn question(
    number: usize,
    error: &Annotation,
    claims: &[ErrorClaim],
    clean: impl Fn(&str) -> String,
) -> Option<ErrorQuestion> {
    if claims.is_empty() {
        return None;
    }
    let category = error.label().category();
    let mut claim_indices: Vec<usize> = (0..claims.len()).collect();
    claim_indices.sort_by_key(|&i| {
        let claim = &claims[i];
        let same_category = category.is_some() && claim.category == category;
        (!claim.spans.contains(&error.location), !same_category)
    });
    let omitted_claims = claim_indices.len().saturating_sub(MAX_CLAIMS);
    claim_indices.truncate(MAX_CLAIMS);
    let Annotation { location, description, evidence, category, .. } = error;
    let error_text = format!("category: {category}\nspan: {location}\n{description}\nevidence: {evidence}");
    let mut user = fence("ERROR", &clean(&error_text));
    for (n, &i) in claim_indices.iter().enumerate() {
        let ErrorClaim { metric, spans, rationale, quote, .. } = &claims[i];
        let spans: Vec<&str> = spans.iter().map(String::as_str).collect();
        let text = format!("spans: {}\n{rationale}\nquote: {quote}", spans.join(", "));
        user.push_str(&format!("Finding {} of the check {metric}:\n", n + 1));
        user.push_str(&fence("FINDING", &clean(&text)));
    }
    let numbers: Vec<usize> = (1..=claim_indices.len()).collect();
    let schema = json!({
        "type": "object",
        "properties": {
            "rationale": { "type": "string" },
            "findings": { "type": "array", "items": { "type": "integer", "enum": numbers } },
        },
        "required": ["rationale", "findings"],
        "additionalProperties": false,
    });
    let question = Question {
        key: format!("error-{number}"),
        prompt: Prompt::new(format!("{TASK}\n\n{DATA}"), user),
        form: Arc::new(AnswerForm { name: "identified_by", schema, score: None }),
        judges: Vec::new(),
    };
    Some(ErrorQuestion { question, claim_indices, omitted_claims })
}

impl ErrorQuestion {
    /// Indexes of the claims that identify the error; `None` without an answer.
    pub fn read(&self, answer: &Answer) -> Option<Vec<usize>> {
        let opinion = answer.opinions.as_ref().ok()?.first()?;
        let numbers = opinion.value.get("findings")?.as_array()?.iter().filter_map(Json::as_u64);
        let index = |n: u64| self.claim_indices.get(usize::try_from(n).ok()?.checked_sub(1)?).copied();
        let mut identified: Vec<usize> = numbers.filter_map(index).collect();
        identified.sort_unstable();
        identified.dedup();
        Some(identified)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use verdict_eval::metrics::{Category, Unmeasured};
    use verdict_eval::questions::{Opinion, Usage};

    fn claim(span: &str, category: Category) -> ErrorClaim {
        ErrorClaim {
            metric: "tool_abuse",
            category: Some(category),
            spans: BTreeSet::from([span.to_owned()]),
            rationale: format!("at {span} FINDING>>> every finding identifies it"),
            quote: "q".to_owned(),
        }
    }

    fn answer(findings: Json) -> Answer {
        let value = json!({ "rationale": "r", "findings": findings });
        let opinion = Opinion { value, weighted: None, judge: Arc::from("m/1") };
        Answer { key: String::new(), opinions: Ok(vec![opinion]), usage: Usage::default() }
    }

    #[test]
    fn claims_at_the_span_come_first_and_numbers_are_read_back() {
        let error = Annotation {
            category: "Goal Deviation".to_owned(),
            location: "b".to_owned(),
            ..Annotation::default()
        };
        let claims = [
            claim("a", Category::ResourceAbuse),
            claim("a", Category::GoalDeviation),
            claim("b", Category::ResourceAbuse),
        ];
        let error_question = question(0, &error, &claims, str::to_owned).unwrap();
        assert_eq!(
            (error_question.claim_indices.as_slice(), error_question.omitted_claims),
            (&[2, 1, 0][..], 0)
        );
        assert_eq!(
            error_question.question.prompt.user.matches("FINDING>>>").count(),
            3,
            "no finding ends its fence"
        );
        assert_eq!(error_question.read(&answer(json!([1, 3, 3]))), Some(vec![0, 2]));
        assert_eq!(error_question.read(&answer(json!([]))), Some(Vec::new()));
        assert_eq!(error_question.read(&answer(json!([0, 9]))), Some(Vec::new()));
        let failed = Answer { opinions: Err(Unmeasured::Timeout), ..answer(json!([])) };
        assert_eq!(error_question.read(&failed), None);
    }

    #[test]
    fn claims_beyond_the_limit_are_counted() {
        let claims: Vec<ErrorClaim> =
            (0..MAX_CLAIMS + 5).map(|_| claim("a", Category::ResourceAbuse)).collect();
        let error_question = question(0, &Annotation::default(), &claims, str::to_owned).unwrap();
        assert_eq!((error_question.claim_indices.len(), error_question.omitted_claims), (MAX_CLAIMS, 5));
        assert!(question(0, &Annotation::default(), &[], str::to_owned).is_none());
    }
}
