//! Similarity of rationales by their meaning: the semantic consistency index of paper 000, section 4.1.4.
//!
//! In: the ratings of each metric's spans. Out: for each span with two rationales a question to a judge of dialect
//! `embeddings`, which answers with the cosines of all pairs; and for each metric the mean over its spans
//! of the mean cosine.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use serde_json::{Value as Json, json};
use verdict_eval::questions::{Answer, AnswerForm, Prompt, Question};

use super::consistency::SpanRating;

/// The questions about the rationales of each metric, each with its metric. `clean` redacts rationales, which quote
/// traces.
pub fn questions(
    by_metric: &BTreeMap<String, Vec<Vec<SpanRating>>>,
    clean: impl Fn(&str) -> String,
) -> Vec<(String, Question)> {
    let mut out = Vec::new();
    for (metric, spans) in by_metric {
        for runs in spans {
            let texts = runs.iter().map(|rating| rating.rationale.trim()).filter(|text| !text.is_empty());
            let texts: Vec<String> = texts.map(&clean).collect();
            if texts.len() > 1 {
                let prompt = Prompt::new("", json!(texts).to_string());
                let key = format!("{metric}.{}", out.len());
                let question = Question { key, prompt, form: Arc::clone(&FORM), judges: Vec::new() };
                out.push((metric.clone(), question));
            }
        }
    }
    out
}

static FORM: LazyLock<Arc<AnswerForm>> = LazyLock::new(|| {
    let schema = json!({
        "type": "object",
        "properties": { "cosines": { "type": "array", "items": { "type": "number" } } },
        "required": ["cosines"],
        "additionalProperties": false,
    });
    Arc::new(AnswerForm { name: "embeddings", schema, score: None })
});

/// The mean similarity of each metric. `metrics` has the metric of each answer; a question without an answer is left
/// out.
pub fn means<'a>(metrics: impl IntoIterator<Item = &'a String>, answers: &[Answer]) -> BTreeMap<String, f64> {
    let mut by_metric: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for (metric, answer) in metrics.into_iter().zip(answers) {
        let opinion = answer.opinions.as_ref().ok().and_then(|opinions| opinions.first());
        if let Some(mean) = opinion.and_then(|opinion| mean_cosine(&opinion.value)) {
            by_metric.entry(metric.clone()).or_default().push(mean);
        }
    }
    let mean = |means: Vec<f64>| means.iter().sum::<f64>() / means.len() as f64;
    by_metric.into_iter().map(|(metric, means)| (metric, mean(means))).collect()
}

fn mean_cosine(answer: &Json) -> Option<f64> {
    let cosines: Vec<f64> = answer.get("cosines")?.as_array()?.iter().filter_map(Json::as_f64).collect();
    (!cosines.is_empty()).then(|| cosines.iter().sum::<f64>() / cosines.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use verdict_eval::metrics::Unmeasured;
    use verdict_eval::questions::{Opinion, Usage};

    fn ratings_of_span(rationales: &[&str]) -> Vec<SpanRating> {
        rationales.iter().map(|text| SpanRating { score: 1.0, rationale: (*text).to_owned() }).collect()
    }

    #[test]
    fn each_span_with_two_rationales_is_one_question() {
        let spans = vec![
            ratings_of_span(&["a", "b", ""]),
            ratings_of_span(&["alone"]),
            ratings_of_span(&["c", "d", "e"]),
        ];
        let asked = questions(&BTreeMap::from([("m".to_owned(), spans)]), str::to_uppercase);
        let texts: Vec<&str> = asked.iter().map(|(_, question)| &*question.prompt.user).collect();
        assert_eq!(texts, [r#"["A","B"]"#, r#"["C","D","E"]"#]);
    }

    #[test]
    fn the_mean_is_over_spans() {
        let answer = |cosines: Json| {
            let opinion =
                Opinion { value: json!({ "cosines": cosines }), weighted: None, judge: Arc::from("e/1") };
            Answer { key: String::new(), opinions: Ok(vec![opinion]), usage: Usage::default() }
        };
        let failed =
            Answer { key: String::new(), opinions: Err(Unmeasured::Timeout), usage: Usage::default() };
        let asked = ["m", "m", "m", "n"].map(str::to_owned);
        // Means of 0.5 and 1, not of the four cosines.
        let answers = [answer(json!([0.25, 0.5, 0.75])), answer(json!([1.0])), failed.clone(), failed];
        assert_eq!(means(&asked, &answers), BTreeMap::from([("m".to_owned(), 0.75)]));
    }
}
