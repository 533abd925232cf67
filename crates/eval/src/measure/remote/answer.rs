//! Answers of evaluators, compared with the outline that was sent.
//!
//! In: answers that fit their form, and the outline. Out: one measurement, with the findings whose spans are in the
//! outline and whose quotations occur in it. A failing answer without such a finding is set aside, as with judges.

use serde_json::Value;

use super::outline::Outline;
use super::protocol::SpanOutline;
use crate::measure::ask::form::{LABEL, SCORE};
use crate::measure::ask::opinion::{Grade, JudgeOpinion, ShownContent, label_of};
use crate::measure::ask::verdict::{ParsedOpinion, combine_replies};
use crate::measure::table::{MetricSpec, Scale};
use crate::measure::{Context, Measurement, Opinion, Unmeasured};

/// The measurement from the answers of the evaluators.
pub(super) fn measured(context: &Context<'_>, outline: &Outline, opinions: &[Opinion]) -> Measurement {
    let shown = quotable_content(outline);
    let applicable = opinions.iter().filter(|opinion| !abstains(&opinion.value));
    let replies: Vec<ParsedOpinion> = applicable
        .map(|opinion| ParsedOpinion {
            judge: opinion.judge.clone(),
            opinion: read_opinion(context.row, &shown, &opinion.value),
        })
        .collect();
    if replies.is_empty() {
        let mut not_applicable = context.unmeasured(Unmeasured::NotApplicable);
        // The evaluator answered that the metric does not apply.
        not_applicable.judge =
            opinions.first().map(|opinion| opinion.judge.to_string()).unwrap_or_default().into();
        return not_applicable;
    }
    combine_replies(context, replies)
}

/// Whether the evaluator answered that the metric does not apply.
fn abstains(value: &Value) -> bool {
    value.get(SCORE).or(value.get(LABEL)).is_none_or(Value::is_null)
}

/// The opinion in an answer; `None` if it has no value on the metric's scale.
fn read_opinion(row: &MetricSpec, shown: &ShownContent, value: &Value) -> Option<JudgeOpinion> {
    let grade = match row.scale {
        Scale::Labels(labels) => label_of(labels, value)?,
        scale => {
            let (lowest, best) = scale.range()?;
            Grade::Score(value.get(SCORE)?.as_f64().filter(|score| (lowest..=best).contains(score))?)
        }
    };
    Some(shown.opinion(grade, value))
}

/// The content that may be quoted: every text and value of a span, and for any span tasks and instructions.
fn quotable_content(outline: &Outline) -> ShownContent {
    let request = &outline.request;
    let spans = outline.spans.iter().zip(&request.spans);
    let texts = spans.map(|(shown_span, span)| (*shown_span, values(span)));
    let instructions =
        request.spans.iter().flat_map(|span| &span.content).filter(|text| text.r#type.is_binding());
    let tasks = request.agents.iter().filter_map(|agent| agent.task.as_deref());
    ShownContent::new(texts, instructions.map(|text| text.text.as_str()).chain(tasks))
}

/// The texts and values of a span.
fn values(span: &SpanOutline) -> Vec<String> {
    let texts = span.content.iter().map(|text| text.text.clone());
    let SpanOutline { name, service, model, duration_ms, tokens, .. } = span;
    let names = [name, service, model].into_iter().flatten().cloned();
    let numbers = duration_ms.map(|ms| ms.to_string()).into_iter().chain(tokens.map(|n| n.to_string()));
    texts.chain(names).chain(numbers).collect()
}
