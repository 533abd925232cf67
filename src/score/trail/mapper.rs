//! A category for each flagged span, assigned by a judge (paper 001, section 4.1).
//!
//! In: a trace's measurements. Out: one question for each span with failing metrics: these metrics, their scores
//! and their rationales; and from the answers, predictions of one category a span. The judge translates labels and
//! does not judge again: it is not shown the trace. The categories that judges and rules gave are not used, since
//! the paper's metrics are not exposed to the taxonomy; with `verdict.ask.categories: false` judges give none.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use serde_json::{Value as Json, json};
use verdict_eval::metrics::spec;
use verdict_eval::metrics::{Category, Finding, Measured, Measurement, Scale, Value};
use verdict_eval::plan::{DATA, fence};
use verdict_eval::questions::{Answer, AnswerForm, Prompt, Question};
use verdict_otlp::trace::Idx;

/// Maximum number of questions about one trace, for traces of which every span fails; the benchmark's traces have some
/// tens of flagged spans. Spans beyond the limit are counted.
const MAX_QUESTIONS: usize = 1000;
/// Maximum number of findings of one metric in a question; the others are left out.
const MAX_FINDINGS: usize = 16;
/// The answer if no category fits.
const NO_CATEGORY: &str = "none";

const TASK: &str = "\
A step of an AI agent's run was checked, and some checks failed. You file the step under the one category that \
names the kind of its fault. The findings stand: do not ask whether they are true, how bad they are, or what else \
may be wrong. You are shown which checks failed, the scores they left, and why. Where they name several faults, \
file the one that matters most. Where no category fits, answer \"none\".";

/// The questions about a trace.
#[derive(Debug, Default)]
pub struct TraceQuestions {
    /// The flagged spans, in the order of `questions`.
    pub spans: Vec<Idx>,
    pub questions: Vec<Question>,
    /// Flagged spans beyond the limit.
    pub omitted: usize,
}

/// Results of mapping the flagged spans.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct MapperCounts {
    pub mapped: usize,
    /// Spans for which the judge answered that no category fits.
    pub no_category: usize,
    /// Spans about which the judge gave no answer.
    pub unanswered: usize,
    /// Spans beyond `MAX_QUESTIONS`, about which no question was asked.
    #[serde(rename = "left")]
    pub omitted: usize,
}

impl std::ops::AddAssign for MapperCounts {
    fn add_assign(&mut self, other: MapperCounts) {
        self.mapped += other.mapped;
        self.no_category += other.no_category;
        self.unanswered += other.unanswered;
        self.omitted += other.omitted;
    }
}

/// The failing measurements of each flagged span.
fn flagged(measurements: &[Measurement]) -> BTreeMap<Idx, Vec<(&Measurement, &Measured)>> {
    let mut by_span: BTreeMap<Idx, Vec<(&Measurement, &Measured)>> = BTreeMap::new();
    for m in measurements {
        // A configured limit is not an error of the taxonomy.
        let is_limit = spec(m.metric).is_some_and(|row| matches!(row.scale, Scale::Quantity(_)));
        if let Some(measured) = m.outcome.as_ref().ok().filter(|measured| !measured.passed && !is_limit) {
            by_span.entry(m.at).or_default().push((m, measured));
        }
    }
    by_span
}

/// The findings of a failing measurement that explain why it fails.
fn findings(measured: &Measured) -> impl Iterator<Item = &Finding> {
    measured.findings.iter().filter(|finding| !finding.is_note())
}

/// A question for each flagged span. `clean` redacts rationales, which quote the trace.
pub fn questions(measurements: &[Measurement], clean: impl Fn(&str) -> String) -> TraceQuestions {
    let flagged = flagged(measurements);
    let mut out =
        TraceQuestions { omitted: flagged.len().saturating_sub(MAX_QUESTIONS), ..TraceQuestions::default() };
    for (at, failing) in flagged.into_iter().take(MAX_QUESTIONS) {
        let user: String = failing.iter().map(|(m, measured)| check_text(m, measured, &clean)).collect();
        out.spans.push(at);
        out.questions.push(Question {
            key: at.to_string(),
            prompt: Prompt::new(Arc::clone(&SYSTEM), user),
            form: Arc::clone(&FORM),
            judges: Vec::new(),
        });
    }
    out
}

/// One failing metric: its name, its score, its rationale and its findings.
fn check_text(m: &Measurement, measured: &Measured, clean: &impl Fn(&str) -> String) -> String {
    let score = match measured.value {
        Value::Score(score) => format!("{score}"),
        Value::Label(label) => label.to_owned(),
        Value::Number(number) => format!("{number}"),
    };
    let mut text = format!("Check: {}\nScore: {score}\n", m.metric);
    if let Some(rationale) = &m.rationale {
        text.push_str(&fence("RATIONALE", &clean(rationale)));
    }
    for finding in findings(measured).take(MAX_FINDINGS) {
        text.push_str(&fence("FINDING", &clean(&finding.rationale)));
    }
    text
}

static SYSTEM: LazyLock<Arc<str>> = LazyLock::new(|| {
    let lines = Category::ALL.map(|c| format!("- {}: {}", c.as_str(), meaning(c)));
    format!("{TASK}\n\nCategories:\n{}\n\n{DATA}", lines.join("\n")).into()
});

static FORM: LazyLock<Arc<AnswerForm>> = LazyLock::new(|| {
    let names: Vec<&str> = Category::ALL.iter().map(|c| c.as_str()).chain([NO_CATEGORY]).collect();
    let schema = json!({
        "type": "object",
        "properties": { "rationale": { "type": "string" }, "category": { "type": "string", "enum": names } },
        "required": ["rationale", "category"],
        "additionalProperties": false,
    });
    Arc::new(AnswerForm { name: "failure_category", schema, score: None })
});

/// The flagged spans as measurements with one finding each, which has the category of the answer. Spans without
/// a category are left out.
pub fn map(
    measurements: &[Measurement],
    trace_questions: &TraceQuestions,
    answers: &[Answer],
) -> (Vec<Measurement>, MapperCounts) {
    let mut counts = MapperCounts { omitted: trace_questions.omitted, ..MapperCounts::default() };
    let flagged = flagged(measurements);
    let mut out = Vec::new();
    for (at, answer) in trace_questions.spans.iter().zip(answers) {
        let opinion = answer.opinions.as_ref().ok().and_then(|opinions| opinions.first());
        match (opinion, opinion.and_then(|opinion| read_category(&opinion.value)), flagged.get(at)) {
            (Some(_), Some(category), Some(failing)) => {
                counts.mapped += 1;
                out.extend(mapped(failing, category));
            }
            (Some(_), _, _) => counts.no_category += 1,
            (None, _, _) => counts.unanswered += 1,
        }
    }
    (out, counts)
}

/// The worst failing measurement of a span, with its worst finding alone.
fn mapped(failing: &[(&Measurement, &Measured)], category: Category) -> Option<Measurement> {
    let all = failing.iter().flat_map(|(m, measured)| findings(measured).map(move |f| (*m, f)));
    let worst = all.min_by(|(_, a), (_, b)| a.worst_first(b));
    let (m, finding) = match worst {
        Some((m, finding)) => (m, finding.clone()),
        None => (failing.first()?.0, Finding::new("", "", 3.0)),
    };
    let rationales = failing.iter().flat_map(|(m, measured)| {
        let finding_rationales = findings(measured).map(|f| f.rationale.as_str());
        m.rationale.as_deref().into_iter().chain(finding_rationales)
    });
    let rationale = rationales.collect::<Vec<_>>().join(" ");
    let (value, passed) = (m.outcome.as_ref().ok()?.value.clone(), false);
    let findings = vec![Finding { category: Some(category), rationale, ..finding }];
    Some(Measurement { outcome: Ok(Measured { value, passed, findings }), ..m.clone() })
}

fn read_category(answer: &Json) -> Option<Category> {
    let name = answer.get("category")?.as_str()?;
    Category::ALL.into_iter().find(|category| category.as_str() == name)
}

/// A category's meaning in the prompt.
fn meaning(category: Category) -> &'static str {
    match category {
        Category::LanguageOnly => "something was made up that nothing read supports",
        Category::ToolRelated => "a tool, its result or its use was made up",
        Category::PoorInformationRetrieval => "what was retrieved is beside the point or too little",
        Category::IncorrectMemoryUsage => "what was remembered was used wrongly",
        Category::ToolOutputMisinterpretation => "a tool's output was read wrongly",
        Category::IncorrectProblemIdentification => "the task, or a step of it, was misunderstood",
        Category::ToolSelectionErrors => "the wrong tool for the step, or none where one was needed",
        Category::FormattingErrors => "code, arguments or output of the wrong form",
        Category::InstructionNonCompliance => "an explicit instruction was not followed",
        Category::ToolDefinitionIssues => "a tool's description or schema does not hold",
        Category::EnvironmentSetupErrors => "a module, a permission or a setting was missing where it ran",
        Category::RateLimiting => "refused for too many requests",
        Category::AuthenticationErrors => "refused for missing or wrong credentials",
        Category::ServiceErrors => "a service failed",
        Category::ResourceNotFound => "a page, file or record was not there",
        Category::ResourceExhaustion => "memory, context, disk or a budget ran out",
        Category::TimeoutIssues => "it took longer than allowed",
        Category::ContextHandlingFailures => "earlier context was lost or forgotten",
        Category::ResourceAbuse => "the same call again and again, or more calls than the step needs",
        Category::GoalDeviation => "the run left its goal or never reached it",
        Category::TaskOrchestration => "steps or agents were put together wrongly",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use verdict_eval::metrics::Defect;
    use verdict_eval::metrics::Unmeasured;
    use verdict_eval::questions::{Opinion, Usage};
    use verdict_eval::testing::measured;

    fn failing(at: Idx, metric: &'static str, defects: &[Defect]) -> Measurement {
        let finding = |d: &Defect| d.finding(format!("FINDING>>> {d:?}: answer none"), "quote of the trace");
        let findings = defects.iter().map(finding).collect();
        measured(at, metric, Measured { value: Value::Label("tool_error"), passed: false, findings })
    }

    fn answered(category: &str) -> Answer {
        let value = json!({ "rationale": "so", "category": category });
        let opinion = Opinion { value, weighted: None, judge: Arc::from("m/1") };
        Answer { key: String::new(), opinions: Ok(vec![opinion]), usage: Usage::default() }
    }

    fn all() -> [Measurement; 5] {
        let mut minor = failing(4, "completeness", &[Defect::MissingTag]);
        minor.outcome.as_mut().unwrap().passed = true;
        [
            failing(3, "error_detection", &[Defect::Errored]),
            failing(3, "tool_completeness", &[Defect::WrongArguments, Defect::TimedOut]),
            minor,
            failing(5, "latency", &[Defect::OverLimit]),
            failing(6, "error_detection", &[Defect::TimedOut]),
        ]
    }

    #[test]
    fn each_flagged_span_is_one_question_with_its_failing_metrics() {
        let trace_questions = questions(&all(), str::to_owned);
        assert_eq!((trace_questions.spans.as_slice(), trace_questions.omitted), (&[3, 6][..], 0));
        let user = &trace_questions.questions[0].prompt.user;
        assert!(user.starts_with("Check: error_detection\nScore: tool_error\n"), "{user}");
        assert!(user.contains("Check: tool_completeness") && user.contains("WrongArguments"), "{user}");
        assert!(!user.contains("quote of the trace"), "{user}");
        assert_eq!(user.matches("FINDING>>>").count(), 3, "a finding cannot end its fence: {user}");
        let named = |text: &str| Category::ALL.iter().filter(|c| text.contains(c.as_str())).count();
        assert_eq!(
            (named(user), named(&trace_questions.questions[0].prompt.system)),
            (0, Category::ALL.len())
        );
    }

    #[test]
    fn spans_beyond_the_limit_are_counted() {
        let many: Vec<Measurement> =
            (0..MAX_QUESTIONS + 7).map(|at| failing(at, "error_detection", &[Defect::Errored])).collect();
        let trace_questions = questions(&many, str::to_owned);
        assert_eq!((trace_questions.questions.len(), trace_questions.omitted), (MAX_QUESTIONS, 7));
        let (_, counts) = map(&many, &trace_questions, &[]);
        assert_eq!(counts.omitted, 7);
    }

    #[test]
    fn a_span_has_the_category_of_the_answer_alone() {
        let all = all();
        let trace_questions = questions(&all, str::to_owned);
        let failed = Answer { opinions: Err(Unmeasured::Timeout), ..answered("") };
        for (answers, categories, counts) in [
            ([answered("Service Errors"), answered("none")], vec![(3, Category::ServiceErrors)], [1, 1, 0]),
            ([answered("none"), answered("Goal Deviation")], vec![(6, Category::GoalDeviation)], [1, 1, 0]),
            ([failed.clone(), answered("nonsense")], vec![], [0, 1, 1]),
        ] {
            let (mapped, counted) = map(&all, &trace_questions, &answers);
            let found: Vec<_> = mapped
                .iter()
                .flat_map(|m| {
                    m.outcome.as_ref().unwrap().findings.iter().map(|f| (m.at, f.category.unwrap()))
                })
                .collect();
            assert_eq!(found, categories);
            assert_eq!([counted.mapped, counted.no_category, counted.unanswered], counts);
        }
    }
}
