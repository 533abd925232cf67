//! Runs every rule over a trace.
//!
//! In: an [`AgentTrace`] and [`Settings`]. Out: [`Measurement`]s, ordered by span, then as the rows of the
//! [`table`](super::table). Evaluator spans, spans beneath them, and cancelled spans are not measured.
//! On wrappers (a second span for one model call, the creation of an agent) only rows with `on_wrappers` are
//! measured, and on a wrapper at the root also the rows about the run.

use super::ask::JudgedMetric;
use super::custom_metric::CustomMetric;
use super::evaluated_spans::evaluated_spans;
use super::rule::{AgentRule, ModelRule, Rule, SpanRule, count_prompts};
use super::table::{MetricSpec, TABLE};
// The rows of the table name modules relative to `measure`.
use super::*;
use crate::recognise::AgentTrace;

/// A metric that asks judges, with its row.
pub(crate) type JudgedRow<'a> = (&'static MetricSpec, Box<dyn Metric + 'a>);

/// The code of a row of the table. The fields have the names that the table uses after `by`.
struct Implementation {
    rules: Option<&'static dyn Rule>,
    /// The name under which the rule is timed, if it is not that of the row.
    timing_name: Option<&'static str>,
    asks: Option<&'static dyn Metric>,
}

const NO_IMPLEMENTATION: Implementation = Implementation { rules: None, timing_name: None, asks: None };

macro_rules! implementations {
    ($(
        $(#[doc = $doc:literal])*
        $section:ident: $settings:ty = $(
            $name:expr => $base:ident { $($data:tt)* }
            $(by { $($field:ident: $value:expr),* $(,)? })?
        ),+;
    )*) => {
        /// The implementations of the rows, in the order of the table.
        static IMPLEMENTATIONS: &[Implementation] = &[$($(
            Implementation { $($($field: Some($value),)*)? ..NO_IMPLEMENTATION },
        )*)*];
    };
}
metric_table!(implementations);

fn implementations() -> impl Iterator<Item = (&'static MetricSpec, &'static Implementation)> {
    TABLE.iter().zip(IMPLEMENTATIONS)
}

/// Every metric with a rule: its row, the name under which it is timed, the rule.
pub(crate) fn rules() -> impl Iterator<Item = (&'static MetricSpec, &'static str, &'static dyn Rule)> {
    implementations().filter_map(|(row, implementation)| {
        Some((row, implementation.timing_name.unwrap_or(row.name), implementation.rules?))
    })
}

/// Every metric that asks judges and for which the settings name at least one.
pub(crate) fn judged_rows<'a>(settings: &Settings, custom: &'a [CustomMetric]) -> Vec<JudgedRow<'a>> {
    // Rows with their own prompts follow those that ask by their rubric.
    let by_rubric =
        super::table::rows_with_rubric().map(|row| (row, Box::new(JudgedMetric) as Box<dyn Metric>));
    let by_other_prompts = implementations()
        .filter_map(|(row, implementation)| Some((row, Box::new(implementation.asks?) as Box<dyn Metric>)));
    let custom = custom.iter().map(|metric| (metric.row, Box::new(metric) as Box<dyn Metric>));
    by_rubric
        .chain(by_other_prompts)
        .chain(custom)
        .filter(|(row, _)| !settings.judges(row).is_empty())
        .collect()
}

/// Whether any metric may apply to any span. If none may, spans need not be read.
pub(crate) fn measures_anything(settings: &Settings) -> bool {
    let has_evaluator = |(row, implementation): &(&MetricSpec, &Implementation)| {
        implementation.rules.is_some() || !settings.judges(row).is_empty()
    };
    let is_enabled = |(row, _): (&MetricSpec, _)| settings.metric_settings(row).may_be_enabled();
    !settings.custom.is_empty() || implementations().filter(has_evaluator).any(is_enabled)
}

/// The usual number of measurements of a span, for which memory is reserved.
const USUAL_MEASUREMENTS: usize = 4;
/// Maximum spans for whose measurements memory is reserved.
const MAX_RESERVED_SPANS: usize = 256;

/// The names under which the rules are timed: those of the rows, except for `path`.
pub fn names() -> impl Iterator<Item = &'static str> {
    rules().map(|(_, name, _)| name)
}

/// Runs every rule of the table over every evaluated span.
pub fn run(trace: &AgentTrace, settings: &Settings) -> Vec<Measurement> {
    run_each(trace, settings, &[], &Memo::new(), &mut |_| ())
}

/// As [`run`], with custom metrics. `after` is called when a metric has run over the trace, so that a caller with a
/// clock can measure its duration. `memo` contains the work budget; the result is empty if the budget is void.
pub(crate) fn run_each(
    trace: &AgentTrace,
    settings: &Settings,
    custom: &[CustomMetric],
    memo: &Memo,
    after: &mut dyn FnMut(&'static str),
) -> Vec<Measurement> {
    let evaluated = evaluated_spans(trace);
    let all_spans: Vec<Idx> = (0..trace.views.len()).collect();
    let mut out = Vec::with_capacity(trace.views.len().min(MAX_RESERVED_SPANS) * USUAL_MEASUREMENTS);
    let custom = custom.iter().map(|metric| (metric.row, metric.row.name, metric as &dyn Rule));
    for (row, name, rule) in rules().map(|(row, name, rule)| (row, name, rule as &dyn Rule)).chain(custom) {
        let row_settings = settings.metric_settings(row);
        let enabled_on_all = row_settings.is_enabled_on_all();
        let is_enabled =
            settings.is_measured_by_rules(row) && enabled_on_all != Some(false) && row.may_be_in(trace);
        let rule_spans = if is_enabled { rule.spans(trace) } else { Some(Vec::new()) };
        for &index in rule_spans.as_deref().unwrap_or(&all_spans) {
            let Some(view) = trace.views.get(index) else { continue };
            let applies = evaluated.get(index).copied().unwrap_or(false)
                && row.may_be_on(view.kind)
                && (!view.wrapper || row.on_wrappers || row.is_on_wrapper(trace, index))
                && enabled_on_all.unwrap_or_else(|| row_settings.is_enabled_on(trace, index));
            if !applies {
                continue;
            }
            let context = Context { row, trace, at: index, settings, memo, rule_measurements: &[] };
            measure_within_budget(rule, &context, &mut out);
            if memo.budget.is_void() {
                return Vec::new();
            }
        }
        after(name);
    }
    let mut sorted = sorted_by_span(out);
    locate_quotes::locate(trace, memo, &mut sorted);
    sorted
}

/// Sorts measurements by span. The sort is stable, so that the order of metrics within a span is that of the table. It
/// sorts indices, since a measurement is large.
fn sorted_by_span(measurements: Vec<Measurement>) -> Vec<Measurement> {
    let mut order: Vec<(usize, usize)> = measurements.iter().map(|m| m.at).zip(0..).collect();
    order.sort_unstable();
    let mut unsorted: Vec<Option<Measurement>> = measurements.into_iter().map(Some).collect();
    let mut sorted = Vec::with_capacity(unsorted.len());
    sorted.extend(order.into_iter().filter_map(|(_, index)| unsorted.get_mut(index)?.take()));
    sorted
}

/// Adds the measurements of a rule to `out`. They are unmeasured if the rule exceeds the metric's share of the work
/// budget.
fn measure_within_budget(rule: &dyn Rule, context: &Context<'_>, out: &mut Vec<Measurement>) {
    let (budget, first) = (&context.memo.budget, out.len());
    budget.begin();
    rule.measure(context, out);
    if budget.is_exceeded() {
        mark_over_limit(context, out, first);
    }
}

/// The step of a metric, or unmeasured measurements if the step exceeds the metric's share of the work budget.
pub(crate) fn step_within_budget(
    metric: &dyn Metric,
    context: &Context<'_>,
    answers: &[Answer],
) -> MetricProgress {
    let budget = &context.memo.budget;
    budget.begin();
    let step = metric.step(context, answers);
    if let MetricProgress::Ask(questions) = &step {
        count_prompts(questions, budget);
    }
    if !budget.is_exceeded() {
        return step;
    }
    let mut measurements = match step {
        MetricProgress::Done(measurements) => measurements,
        MetricProgress::Ask(_) => Vec::new(),
    };
    mark_over_limit(context, &mut measurements, 0);
    MetricProgress::Done(measurements)
}

/// Marks the measurements from index `first` on, which are of a metric that exceeded its share, as unmeasured: their
/// values may be wrong. If there are none, one unmeasured measurement is added.
fn mark_over_limit(context: &Context<'_>, measurements: &mut Vec<Measurement>, first: usize) {
    match measurements.get_mut(first..) {
        Some(own_measurements) if !own_measurements.is_empty() => {
            own_measurements.iter_mut().for_each(|m| m.outcome = Err(Unmeasured::Limit));
        }
        _ => measurements.push(context.unmeasured(Unmeasured::Limit)),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;
    use crate::measure::question_rounds::{JudgeInputs, Questions};
    use crate::measure::sections::Scored;
    use crate::measure::settings::CustomSettings;
    use crate::measure::table::{Scale, rows_with_rubric};
    use crate::measure::testing::Script;
    use crate::measure::{AnswerForm, Measured, Need, Prompt, Question, Unmeasured, Value};

    #[test]
    fn every_rubric_has_its_sections_and_anchors_its_scale() {
        for row in rows_with_rubric() {
            let text = row.rubric.unwrap().text;
            assert!(text.starts_with("<!-- version "), "{}", row.name);
            for part in ["## What is judged", "## What is not", "## Scale", "## Findings"] {
                assert!(text.contains(part), "{} lacks {part}", row.name);
            }
            let anchors: Vec<String> = match row.scale {
                Scale::Labels(labels) => labels.iter().map(|l| format!("\n- `{l}`: ")).collect(),
                scale => scale.scores().iter().map(|s| format!("\n- {s}: ")).collect(),
            };
            for anchor in anchors {
                assert_eq!(text.matches(&anchor).count(), 1, "{}: {anchor}", row.name);
            }
        }
    }

    static BREVITY: MetricSpec =
        MetricSpec::custom("style.brevity", Scale::UNIT, Some(0.5)).with_need(Need::Trace);

    /// A metric whose measurements have a mistyped name, and which asks one question about an open trace.
    struct Brevity;

    impl Metric for Brevity {
        fn step(&self, context: &Context<'_>, _: &[Answer]) -> MetricProgress {
            let (score, findings) = (0.4, Vec::new());
            let measured =
                Measured { value: Value::Score(score), passed: score >= context.threshold(), findings };
            MetricProgress::Done(vec![Measurement::new(context.at, "style.brevty", "test/1", Ok(measured))])
        }

        fn early_step(&self, _: &Context<'_>, _: &[Answer]) -> MetricProgress {
            let prompt = Prompt::new("Is the task short?", String::new());
            let form = AnswerForm::object("brevity", json!({ "short": { "type": "boolean" } }));
            MetricProgress::Ask(vec![Question { key: "early".to_owned(), prompt, form, judges: Vec::new() }])
        }
    }

    fn with_brevity(judges: &[&str]) -> (Settings, [CustomMetric; 1]) {
        let judges = judges.iter().map(|judge| (*judge).to_owned()).collect();
        let custom = CustomMetric::new(&BREVITY, Scored { judges, ..BREVITY.defaults() }, Brevity);
        let custom_settings = CustomSettings { row: &BREVITY, settings: custom.settings.clone() };
        (Settings { custom: vec![custom_settings], ..Settings::default() }, [custom])
    }

    #[test]
    fn measurement_with_a_mistyped_name_gets_the_name_of_its_row() {
        let (settings, custom) = with_brevity(&[]);
        let trace = Script::new("Say hello.").answers("Hello.").build();
        let all = run_each(&trace, &settings, &custom, &Memo::new(), &mut |_| ());
        let measurements: Vec<_> = all.iter().filter(|m| m.metric.starts_with("style.")).collect();
        assert_eq!(measurements.len(), trace.tree.len());
        assert!(measurements.iter().all(|m| m.metric == BREVITY.name && !m.outcome.as_ref().unwrap().passed));
    }

    #[test]
    fn custom_metric_asks_its_early_questions_about_an_open_trace() {
        let (settings, custom) = with_brevity(&["main"]);
        let trace = Script::new("Say hello.").answers("Hello.").build();
        let inputs = JudgeInputs { trace: &trace, settings: &settings, rule_measurements: &[] };
        let mut early = Questions::early(inputs, &custom);
        let ask = early.next_question().unwrap();
        assert_eq!((ask.metric, ask.question.key.as_str()), (BREVITY.name, "early"));
    }

    #[test]
    fn rows_with_questions_of_their_own_are_those_that_ask_by_other_prompts_than_a_rubric() {
        for (row, implementation) in implementations() {
            assert_eq!(implementation.asks.is_some(), !row.named_prompts.is_empty(), "{}", row.name);
        }
    }

    #[test]
    fn names_are_distinct() {
        let names: BTreeSet<_> = TABLE.iter().map(|row| row.name).collect();
        assert_eq!(names.len(), TABLE.len());
        assert!(rows_with_rubric().all(|row| row.form() == row.name.replace('.', "_")));
        assert_eq!(rows_with_rubric().count(), 16);
    }

    #[test]
    fn rows_belong_to_the_section_of_their_name_and_agree_with_its_defaults() {
        let settings = Settings::default();
        for row in TABLE {
            assert_eq!(row.name.split('.').next().unwrap(), format!("{:?}", row.section.unwrap()));
            let default = settings.section(row.section.unwrap()).settings_for(row.name);
            assert_eq!(default.threshold, row.threshold, "{}", row.name);
            if let (Scale::Labels(labels), true) = (row.scale, row.rubric.is_some()) {
                let fails = |label: &&&str| settings.fails(row, label);
                let failing: BTreeSet<_> = labels.iter().filter(fails).collect();
                assert_eq!(failing, row.fail_labels.iter().collect(), "{}", row.name);
            }
        }
    }

    const TASK: &str = r#"
task: refund
alphabet: { look: get_order, pay: issue_refund }
states:
  begin: { on: { look: seen } }
  seen: { on: { pay: paid } }
  paid: { final: true }
weights: { correctness: 1 }
"#;

    #[test]
    fn rules_and_judges_together_write_exactly_the_metrics_of_the_table() {
        let settings = "judges: [rules, main]\nplan: { enabled: true }\nlatency: { max_ms: { llm: 1 } }\n\
            tokens: { max: 1 }\nchecklist: { fixed: [{ items: [{ question: 'Is it done?' }] }] }\n\
            path: { tasks: [refund.yaml] }\n";
        let mut settings: Settings = serde_saphyr::from_str(settings).unwrap();
        let task = verdict_config::Source { name: "refund.yaml".into(), text: TASK.into() };
        settings.path_tasks = path::settings::TaskSet::parse(&[task]).unwrap();
        let trace = Script::new("Please refund order A-17.")
            .tools(&["get_order", "issue_refund"])
            .says("First look, then pay.")
            .plan(&["get_order", "issue_refund"])
            .calls("", &[("issue_refund", "{}")])
            .returns("paid")
            .answers("Done.")
            .build();
        let rules = run(&trace, &settings);
        let inputs = JudgeInputs { trace: &trace, settings: &settings, rule_measurements: &[] };
        let mut rounds = Questions::new(inputs, &[]);
        while rounds.next_question().is_some() {}
        let asked = rounds.finish(Unmeasured::Timeout);
        let written: BTreeSet<_> = rules.iter().chain(&asked).map(|m| m.metric).collect();
        assert_eq!(written, TABLE.iter().map(|row| row.name).collect());
    }
}
