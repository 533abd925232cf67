//! The one table from a rule's defect to its score, severity and failure category, and the
//! builder that merges defects into one measurement.
//!
//! In: a [`Defect`] with its evidence. Out: a [`Finding`], and from several of them one
//! [`Measurement`]. Anchors are those of paper 001 (section 4.3, table 3 and appendix C: explicit
//! traceback or no result 1, fabricated answer 2, wrong arguments or missing tag 3); categories
//! are the TRAIL taxonomy's. Every rule takes its score from here, so that scores compare.

use verdict_otlp::trace::{Idx, SpanId};

use super::Context;
pub use super::defect::Defect;
use super::excerpt::head;
pub(crate) use super::excerpt::{QUOTE_BYTES, clip, clip_end};
use super::measurement::{Category, Finding, Measured, Measurement, Severity, Unmeasured, Value};
use crate::recognise::AgentTrace;

/// What is written as the judge of a rule-based measurement: bump when verdicts change meaning.
pub const RULES: &str = "rules/1";
/// The best score on 1-5: what a measurement without findings gets.
pub(crate) const BEST: f64 = 5.0;
/// Most findings kept on one measurement; the worst are kept.
pub(crate) const MAX_FINDINGS: usize = 16;

/// The score of what is worth recording and fails nothing by itself.
pub(crate) const NOTED: f64 = 4.0;

impl Defect {
    /// The score on 1-5 that this defect alone leaves.
    pub fn score(self) -> f64 {
        use Defect::*;
        match self {
            RateLimited | Unauthenticated | ServiceDown | NotFound | Exhausted | TimedOut
            | EnvironmentBroken | ToolMisdefined | WrongArguments | CodeBroken | Errored => 1.0,
            EmptyResult | NothingCovered | MissingAnswer | EmptyAnswer => 1.0,
            MalformedArguments | UnknownTool | UnsupportedFact | UnsupportedQuote | UnsupportedUrl
            | FalseClaim | RepeatedFailingCall | CallLoop | NoAdaptation | AnswerUnsupported | Refusal
            | GiveUp | Evasion => 2.0,
            OverLimit | RetryAnnounced | MissingParameter | UnknownParameter | IllTypedParameter
            | TruncatedResult | IrrelevantResult | MissingTag | WrongFormat | CodeBlockRule | LengthLimit
            | ForbiddenText | RequiredToolUnused | TooManyCalls | RepeatedCall | NearIdenticalCalls
            | PartNotCovered | PlannedCallMissing | StepSkipped | StepsReordered | StepRepeated
            | NoReplan | PartUnanswered | ToolLeftUnused | AnnouncedCallMissing | FilterDropped
            | ReadTooMuch => 3.0,
            PlanUnworked | ContradictsResult | InventedContext => 2.0,
            ErrorMet | CharactersForItems | VainQuery | ApproachGivenUp | GuessedPath | UntriedDelivery => {
                NOTED
            }
        }
    }

    /// How bad: from the score, but for what never decides an outcome by itself.
    pub fn severity(self) -> Severity {
        Severity::of_score(self.score())
    }

    /// The category that usually fits; a rule that knows better says so on its finding.
    pub fn category(self) -> Option<Category> {
        use Defect::*;
        Some(match self {
            RateLimited => Category::RateLimiting,
            Unauthenticated => Category::AuthenticationErrors,
            ServiceDown => Category::ServiceErrors,
            NotFound => Category::ResourceNotFound,
            Exhausted => Category::ResourceExhaustion,
            TimedOut => Category::TimeoutIssues,
            EnvironmentBroken => Category::EnvironmentSetupErrors,
            ToolMisdefined => Category::ToolDefinitionIssues,
            // The annotators of TRAIL put code and arguments that do not fit under formatting.
            WrongArguments | CodeBroken | MalformedArguments | MissingParameter | UnknownParameter
            | IllTypedParameter | WrongFormat | CharactersForItems => Category::FormattingErrors,
            Errored | RetryAnnounced | OverLimit | ErrorMet => return None,
            UnknownTool | FalseClaim => Category::ToolRelated,
            EmptyResult | IrrelevantResult | VainQuery => Category::PoorInformationRetrieval,
            // TRAIL's annotators put a deliverable whose effect nobody has seen here too.
            TruncatedResult | UntriedDelivery => Category::ContextHandlingFailures,
            Refusal | GiveUp | Evasion | PartUnanswered | EmptyAnswer | MissingAnswer => {
                Category::GoalDeviation
            }
            MissingTag | CodeBlockRule | LengthLimit | ForbiddenText | RequiredToolUnused | TooManyCalls
            | FilterDropped | ReadTooMuch => Category::InstructionNonCompliance,
            UnsupportedFact | UnsupportedQuote | UnsupportedUrl | AnswerUnsupported | GuessedPath
            | InventedContext => Category::LanguageOnly,
            RepeatedFailingCall | RepeatedCall | NearIdenticalCalls | CallLoop | ApproachGivenUp => {
                Category::ResourceAbuse
            }
            NoAdaptation | ContradictsResult => Category::ToolOutputMisinterpretation,
            NothingCovered | PartNotCovered => Category::PoorInformationRetrieval,
            PlannedCallMissing | StepSkipped | PlanUnworked => Category::GoalDeviation,
            StepsReordered | StepRepeated | NoReplan | AnnouncedCallMissing => Category::TaskOrchestration,
            ToolLeftUnused => Category::ToolSelectionErrors,
        })
    }

    /// A finding of this defect: `rationale` in plain words, `quote` verbatim (it is clipped).
    pub fn finding(self, rationale: impl Into<String>, quote: &str) -> Finding {
        Finding {
            category: self.category(),
            fact: self.is_fact(),
            defect: Some(self),
            ..Finding::new(rationale, head(quote, QUOTE_BYTES), self.score())
        }
    }

    /// Read off the trace's structure, so that no judge overrules it: errors that were raised or
    /// returned, arguments against their schema, limits. The rest compares texts.
    fn is_fact(self) -> bool {
        use Defect::*;
        matches!(
            self,
            RateLimited
                | Unauthenticated
                | ServiceDown
                | NotFound
                | Exhausted
                | TimedOut
                | EnvironmentBroken
                | ToolMisdefined
                | WrongArguments
                | CodeBroken
                | Errored
                | RetryAnnounced
                | MalformedArguments
                | UnknownTool
                | MissingParameter
                | UnknownParameter
                | IllTypedParameter
                | OverLimit
                | RepeatedFailingCall
        )
    }
}

/// Spans that a finding cites at most: as many as are written.
const MOST_CITED: usize = 100;

impl Finding {
    /// The same, resting on another span too; a hundred prove no less than a thousand.
    #[must_use]
    pub fn citing(mut self, span: SpanId) -> Finding {
        if self.cited.len() < MOST_CITED && !self.cited.contains(&span) {
            self.cited.push(span);
        }
        self
    }

    /// The same, resting on the span at `at` too.
    #[must_use]
    pub fn citing_at(self, trace: &AgentTrace, at: Idx) -> Finding {
        match trace.tree.spans.get(at) {
            Some(span) => self.citing(span.id),
            None => self,
        }
    }

    /// The same, under another category than the table's.
    #[must_use]
    pub fn under(mut self, category: Category) -> Finding {
        self.category = Some(category);
        self
    }

    /// The same, as the manifestation of what the span `origin` did.
    #[must_use]
    pub fn from_origin(mut self, origin: Idx) -> Finding {
        self.origin = Some(origin);
        self
    }
}

/// Findings on one span, on their way to one measurement.
#[derive(Debug, Default)]
pub(crate) struct Findings(Vec<Finding>);

impl Findings {
    pub(crate) fn new() -> Findings {
        Findings::default()
    }

    /// Adds one; the same rationale and quote twice counts once.
    pub(crate) fn push(&mut self, finding: Finding) {
        // Past the cap only a worse finding than the mildest kept may enter.
        if self.0.iter().any(|f| f.rationale == finding.rationale && f.quote == finding.quote) {
            return;
        }
        if self.0.len() >= MAX_FINDINGS {
            let mildest = self.0.iter().enumerate().max_by(|a, b| a.1.score.total_cmp(&b.1.score));
            match mildest.map(|(i, f)| (i, f.score)) {
                Some((i, score)) if score > finding.score => {
                    self.0.remove(i);
                }
                _ => return,
            }
        }
        self.0.push(finding);
    }

    /// True while nothing was found.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The worst score, or [`BEST`] without findings.
    pub(crate) fn score(&self) -> f64 {
        self.0.iter().map(|f| f.score).fold(BEST, f64::min)
    }

    /// Worst first; equals keep the order in which they were found.
    pub(crate) fn into_sorted(mut self) -> Vec<Finding> {
        self.0.sort_by(|a, b| a.score.total_cmp(&b.score).then(b.severity.cmp(&a.severity)));
        self.0
    }

    /// A measurement on 1-5: the worst score wins and is held against the metric's threshold.
    pub(crate) fn scored(self, context: &Context<'_>, metric: &'static str) -> Measurement {
        let score = self.score();
        let passed = score >= context.settings.threshold(metric, context.trace, context.at);
        measured(
            context.at,
            metric,
            Measured { value: Value::Score(score), passed, findings: self.into_sorted() },
        )
    }

    /// A measurement that is a label; which labels fail is the metric's setting.
    pub(crate) fn labelled(
        self,
        context: &Context<'_>,
        metric: &'static str,
        label: &'static str,
    ) -> Measurement {
        let passed = !context.settings.fails(metric, label);
        measured(
            context.at,
            metric,
            Measured { value: Value::Label(label), passed, findings: self.into_sorted() },
        )
    }
}

/// A quantity in a whole number of `unit`s, compared with the operator's limit.
pub(crate) fn quantity(
    context: &Context<'_>,
    metric: &'static str,
    quantity: Option<f64>,
    limit: f64,
    unit: &str,
) -> Measurement {
    let Some(taken) = quantity else { return unmeasured(context.at, metric, Unmeasured::NoContent) };
    let finding = || {
        let quote = format!("{taken:.0} {unit}");
        let rationale = format!("at most {limit:.0} {unit} were expected, by the limit set; it took {quote}");
        Defect::OverLimit.finding(rationale, &quote)
    };
    let findings: Vec<Finding> = (taken > limit).then(finding).into_iter().collect();
    let value = Value::Number(taken);
    measured(context.at, metric, Measured { value, passed: findings.is_empty(), findings })
}

/// A measurement by the built-in rules.
pub fn measured(at: Idx, metric: &'static str, measured: Measured) -> Measurement {
    Measurement::new(at, metric, RULES, Ok(measured))
}

/// No measurement, and why.
pub(crate) fn unmeasured(at: Idx, metric: &'static str, reason: Unmeasured) -> Measurement {
    Measurement::new(at, metric, RULES, Err(reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_anchors_hold() {
        assert_eq!(Defect::Errored.score(), 1.0);
        assert_eq!(Defect::EmptyResult.score(), 1.0);
        assert_eq!(Defect::NothingCovered.score(), 1.0);
        assert_eq!(Defect::UnsupportedFact.score(), 2.0);
        assert_eq!(Defect::MissingParameter.score(), 3.0);
        assert_eq!(Defect::MissingTag.score(), 3.0);
        assert_eq!(Defect::MissingTag.severity(), Severity::Low);
        assert_eq!(Defect::TimedOut.severity(), Severity::High);
    }

    #[test]
    fn the_worst_findings_are_kept_and_come_first() {
        let mut findings = Findings::new();
        for i in 0..40 {
            findings.push(Defect::MissingTag.finding(format!("tag {i}"), ""));
        }
        findings.push(Defect::Errored.finding("error", "boom"));
        findings.push(Defect::Errored.finding("error", "boom"));
        assert_eq!(findings.score(), 1.0);
        let sorted = findings.into_sorted();
        assert_eq!(sorted.len(), MAX_FINDINGS);
        assert_eq!(sorted[0].rationale, "error");
        assert_ne!(sorted[1].rationale, "error");
    }
}
