//! The output of `plan check` and `plan score`.
//!
//! In: the assessment of a plan, and weights. Out: a table or JSON.

use serde_json::{Map, Value, json};
use verdict_eval::plan::{self, PlanAssessment, PlanPart, PlanWeights, Rating, ReferenceMatch};

/// The plan with its issues, layout and metrics.
pub(super) fn object(assessment: &PlanAssessment, weights: &PlanWeights) -> Value {
    let metrics: Map<String, Value> =
        PlanPart::ALL.iter().map(|p| (p.name().to_owned(), json!(assessment.value(*p)))).collect();
    let issues: Vec<Value> = assessment
        .issues
        .iter()
        .map(|i| json!({ "step": i.step, "metric": PlanPart::for_fault(i.fault).map(PlanPart::name), "said": i.message }))
        .collect();
    json!({
        "shape": plan::shape(&assessment.plan),
        "structured": assessment.plan.is_structured,
        "rejected": plan::is_rejected(&assessment.plan),
        "issues": issues,
        "metrics": metrics,
        "score": assessment.score(weights),
        "weights": weights,
        "with_reference": assessment.reference.is_some(),
        "comparison": assessment.reference_match,
        "plan": assessment.plan.to_json(),
    })
}

/// The plan's issues and layout; with `with_metrics` its metrics as well.
pub(super) fn table(assessment: &PlanAssessment, weights: &PlanWeights, with_metrics: bool) -> String {
    let shape = plan::shape(&assessment.plan);
    let mut out = format!("{} steps, {} hops, {} wide\n", shape.steps, shape.hops, shape.width);
    if plan::is_rejected(&assessment.plan) {
        out.push_str("rejected: the plan cannot be executed\n");
    } else if !assessment.plan.is_structured {
        out.push_str("prose: no format, and dependencies only where steps mention one another\n");
    }
    for issue in &assessment.issues {
        let part = PlanPart::for_fault(issue.fault).map_or("noted", PlanPart::name);
        out.push_str(&format!("  {issue} [{part}]\n"));
    }
    if with_metrics {
        metrics(&mut out, assessment, weights);
        if let Some(comparison) = &assessment.reference_match {
            rating(&mut out, comparison, assessment.plan.is_structured);
        }
    }
    out
}

fn metrics(out: &mut String, assessment: &PlanAssessment, weights: &PlanWeights) {
    for part in PlanPart::ALL {
        let weight = part.weight(weights);
        let value = assessment.value(part).map_or("not measured".to_owned(), |v| format!("{v:.3}"));
        out.push_str(&format!("{:<26} {value:>12}  of weight {weight:.1}\n", part.name()));
    }
    let score = assessment.score(weights).map_or("not measured".to_owned(), |s| format!("{s:.1}"));
    out.push_str(&format!("{:<26} {score:>12}\n", "score"));
}

fn rating(out: &mut String, comparison: &ReferenceMatch, structured: bool) {
    let label = |rating: Rating| rating.as_str().replace('_', " ");
    out.push_str(&format!("{:<26} {:>12}\n", "rating", label(comparison.rating)));
    if let Some(rating) = comparison.rating_if_valid {
        out.push_str(&format!("  not valid JSON; by F1 it is {}\n", label(rating)));
    }
    let shares = [
        ("precision", comparison.precision),
        ("recall", comparison.recall),
        ("F1", comparison.f1),
        ("steps of right format", comparison.format),
        ("right dependencies", comparison.dependencies),
        ("right placeholders", comparison.placeholders),
    ];
    // Prose has neither format nor placeholders.
    for (name, share) in shares.into_iter().take(if structured { shares.len() } else { 3 }) {
        out.push_str(&format!("  {name:<24} {share:>12.3}\n"));
    }
    if !comparison.unsure.is_empty() {
        let pairs: Vec<String> =
            comparison.unsure.iter().map(|(step, other)| format!("{step}={other}")).collect();
        out.push_str(&format!(
            "  unsure (plan=reference)  {}: with them F1 {:.3}, {}\n",
            pairs.join(" "),
            comparison.f1_at_most,
            label(comparison.rating_at_most)
        ));
    }
}
