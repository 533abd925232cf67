//! The score and failure category of each defect, and the builder that merges findings into one
//! measurement.
//!
//! In: a [`Defect`] with its evidence. Out: a [`Finding`], and from several of them one
//! [`Measurement`]. The anchors of the scores are those of paper 001 (section 4.3, table 3 and appendix C: explicit
//! traceback or no result 1, fabricated answer 2, wrong arguments or missing tag 3). The categories are those of the
//! TRAIL taxonomy. Every rule takes its score from this table, so that scores are comparable.

use verdict_otlp::trace::{Idx, SpanId};

use super::Context;
pub(crate) use super::defect::Defect;
use super::excerpt::head;
pub(crate) use super::excerpt::{QUOTE_BYTES, clip, clip_end};
use super::measurement::{Category, Finding, Measured, Measurement, Severity, Unmeasured, Value};
use crate::recognise::AgentTrace;

/// The judge of a measurement by rules; incremented when the meaning of a verdict changes.
pub const RULES_JUDGE: &str = "rules/1";
/// The best score on 1-5, that of a measurement without findings.
pub const BEST_SCORE: f64 = 5.0;
/// Maximum number of findings of one measurement; the worst are kept.
pub(crate) const MAX_FINDINGS: usize = 16;

impl Defect {
    /// The score on 1-5 that this defect alone leaves.
    pub fn score(self) -> f64 {
        self.row().0
    }

    /// The default category; a rule may set another one on its finding.
    pub fn category(self) -> Option<Category> {
        self.row().1
    }

    /// Whether the defect is a part of an answer that nothing in the run supports.
    pub(crate) fn is_unsupported(self) -> bool {
        matches!(self, Defect::UnsupportedFact | Defect::UnsupportedQuote | Defect::UnsupportedUrl)
    }

    /// How general a defect of a statement is, 0 for the most specific; `None` for other defects. From specific to
    /// general: an action that was not carried out, a result that contradicts the statement, values that the model
    /// itself calls invented or guessed, and a statement that no text supports.
    fn generality(self) -> Option<u8> {
        match self {
            Defect::FalseClaim => Some(0),
            Defect::ContradictsResult => Some(1),
            Defect::InventedData | Defect::GuessStated => Some(2),
            Defect::AnswerUnsupported => Some(3),
            _ if self.is_unsupported() => Some(3),
            _ => None,
        }
    }

    /// A finding of this defect. `quote` is verbatim; it is clipped to `QUOTE_BYTES`.
    pub fn finding(self, rationale: impl Into<String>, quote: &str) -> Finding {
        let (score, category, fact) = self.row();
        let quote = head(quote, QUOTE_BYTES);
        let confidence = Some(self.confidence());
        let finding = Finding::new(rationale, quote, score);
        let severity = category.and_then(Category::severity).unwrap_or(finding.severity);
        Finding { category, severity, fact, defect: Some(self), confidence, ..finding }
    }

    /// Score, category, and whether the defect is a fact: it follows from the structure of the trace (an error that was
    /// raised or returned, arguments that violate their schema, a limit), so that no judge overrules it. Other defects
    /// follow from a comparison of texts.
    fn row(self) -> (f64, Option<Category>, bool) {
        use Category::*;
        use Defect::*;
        let (score, category, fact) = match self {
            RateLimited => (1.0, RateLimiting, true),
            Unauthenticated => (1.0, AuthenticationErrors, true),
            ServiceDown => (1.0, ServiceErrors, true),
            NotFound => (1.0, ResourceNotFound, true),
            Exhausted => (1.0, ResourceExhaustion, true),
            TimedOut => (1.0, TimeoutIssues, true),
            EnvironmentBroken => (1.0, EnvironmentSetupErrors, true),
            ToolMisdefined => (1.0, ToolDefinitionIssues, true),
            // TRAIL defines "Formatting Errors" as "errors with formatting and execution of code or structuring of
            // output in a specific format", and 001 (table 3) counts the form of arguments among them.
            WrongArguments | InvalidCode => (1.0, FormattingErrors, true),
            UndefinedName => (1.0, ContextHandlingFailures, true),
            MalformedArguments => (2.0, FormattingErrors, true),
            MissingParameter | UnknownParameter | IllTypedParameter => (3.0, FormattingErrors, true),
            UnknownTool => (2.0, ToolRelated, true),
            RepeatedFailingCall => (2.0, ResourceAbuse, true),
            EmptyResult | NothingCovered => (1.0, PoorInformationRetrieval, false),
            MissingAnswer | EmptyAnswer => (1.0, GoalDeviation, false),
            UnsupportedFact | UnsupportedQuote | UnsupportedUrl | AnswerUnsupported | InventedContext => {
                (2.0, LanguageOnly, false)
            }
            InventedIdentifier | InventedData | GuessStated | PlaceholderExecuted => {
                (2.0, LanguageOnly, false)
            }
            // A limit of tokens, as in `Exhausted`.
            CutAnswer => (2.0, ResourceExhaustion, true),
            FalseClaim => (2.0, ToolRelated, false),
            // "Failed to adapt after repeated errors" is "Resource Abuse" (001, table 3).
            CallLoop | NoAdaptation => (2.0, ResourceAbuse, false),
            ContradictsResult => (2.0, ToolOutputMisinterpretation, false),
            Refusal | GiveUp | Evasion | LookupsSkipped | ConfirmedActionMissing => {
                (2.0, GoalDeviation, false)
            }
            PartNotCovered => (3.0, PoorInformationRetrieval, false),
            TruncatedResult => (3.0, ContextHandlingFailures, false),
            MissingTag | CodeBlockRule | LengthLimit | ForbiddenText | RequiredToolUnused | TooManyCalls
            | ReadTooMuch => (3.0, InstructionNonCompliance, false),
            ContradictsRequest | ExceedsLimit => (2.0, InstructionNonCompliance, false),
            WrongFormat => (3.0, FormattingErrors, false),
            RepeatedCall | NearIdenticalCalls => (3.0, ResourceAbuse, false),
            PlannedCallMissing | StepSkipped | PartUnanswered => (3.0, GoalDeviation, false),
            StepsReordered | StepRepeated | NoReplan | AnnouncedCallMissing => {
                (3.0, TaskOrchestration, false)
            }
            Errored => return (1.0, None, true),
            RetryAnnounced | OverLimit => return (3.0, None, true),
        };
        (score, Some(category), fact)
    }
}

/// Maximum number of spans that a finding cites, which is the number that the output contains.
const MAX_CITED: usize = 100;

impl Finding {
    /// Adds a span to the spans that the finding is based on.
    #[must_use]
    pub fn citing(mut self, span: SpanId) -> Finding {
        if self.cited.len() < MAX_CITED && !self.cited.contains(&span) {
            self.cited.push(span);
        }
        self
    }

    /// Adds the span `span_index`.
    #[must_use]
    pub fn citing_at(self, trace: &AgentTrace, span_index: Idx) -> Finding {
        match trace.tree.spans.get(span_index) {
            Some(span) => self.citing(span.id),
            None => self,
        }
    }

    /// Sets the name of the rule, where several rules report the defect. A finding with a rule keeps it.
    #[must_use]
    pub(crate) fn by_rule(mut self, name: &'static str) -> Finding {
        self.rule.get_or_insert(name);
        let confidence = self.defect.zip(self.rule_name()).map(|(defect, rule)| defect.confidence_of(&rule));
        Finding { confidence, ..self }
    }

    /// The name of the finding's rule in tables: the name of the defect, and of the rule where several rules report it
    /// (`ContradictsResult.counts`). `None` for a finding of a judge.
    pub fn rule_name(&self) -> Option<String> {
        let defect = self.defect?.name();
        Some(self.rule.map_or_else(|| defect.to_owned(), |rule| format!("{defect}.{rule}")))
    }

    /// Adds the spans of these calls (indexes into [`AgentTrace::calls`]).
    #[must_use]
    pub(crate) fn citing_calls<'c>(
        self,
        trace: &AgentTrace,
        calls: impl IntoIterator<Item = &'c usize>,
    ) -> Finding {
        let calls = calls.into_iter().filter_map(|i| trace.calls.get(*i));
        calls.fold(self, |finding, call| finding.citing_at(trace, call.at))
    }

    /// Makes the finding a note: no metric fails because of it under any threshold, and it has no category.
    #[must_use]
    pub fn noted(self) -> Finding {
        Finding { score: BEST_SCORE, severity: Severity::Low, category: None, fact: false, ..self }
    }

    /// The generality of its defect; `None` for a note and for a defect that is not about a statement.
    pub(crate) fn generality(&self) -> Option<u8> {
        self.defect.filter(|_| !self.is_note()).and_then(Defect::generality)
    }

    /// Whether `other`, on the same text, has a more specific defect and quotes the same passage (the same sentence, or
    /// one quote is a part of the other), so that both are one failure.
    pub(crate) fn is_implied_by(&self, other: &Finding) -> bool {
        let (part, whole) = match self.quote.len() <= other.quote.len() {
            true => (&self.quote, &other.quote),
            false => (&other.quote, &self.quote),
        };
        let generality = self.generality().zip(other.generality());
        generality.is_some_and(|(self_generality, other_generality)| self_generality > other_generality)
            && (part == whole || part.len() >= MIN_PASSAGE_BYTES && whole.contains(part.as_str()))
    }

    /// Whether the finding is a note, which is recorded and fails no metric.
    pub fn is_note(&self) -> bool {
        self.score >= BEST_SCORE
    }

    /// Replaces the category of the defect.
    #[must_use]
    pub fn under(mut self, category: Category) -> Finding {
        self.category = Some(category);
        self
    }

    /// Marks the finding as the consequence of a fault of the span `origin`.
    #[must_use]
    pub fn from_origin(mut self, origin: Idx) -> Finding {
        self.origin = Some(origin);
        self
    }
}

/// Minimum bytes of a quote that is compared with a longer one as a part of it: a shorter quote is a name or a value,
/// which occurs in several statements.
const MIN_PASSAGE_BYTES: usize = 16;

/// Findings on one span, which are merged into one measurement, and the number of examined items. Without either the
/// metric is unmeasured: a rule that examined nothing does not pass.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    all: Vec<Finding>,
    examined: usize,
}

impl Findings {
    pub(crate) fn new() -> Findings {
        Findings::default()
    }

    /// Adds to the number of examined items: facts, parts of a request, instructions, calls.
    pub(crate) fn examine(&mut self, items: usize) {
        self.examined = self.examined.saturating_add(items);
    }

    /// Adds a finding unless one with the same rationale and quote exists. Findings with different defects on one
    /// statement are one failure, of which the most specific finding is kept. If there are [`MAX_FINDINGS`], the new
    /// finding replaces the mildest one, or is dropped if it is not worse.
    pub(crate) fn push(&mut self, finding: Finding) {
        let is_known = |f: &Finding| f.rationale == finding.rationale && f.quote == finding.quote;
        let is_on_same_text = |f: &Finding| (f.seen_in, f.origin) == (finding.seen_in, finding.origin);
        if self.all.iter().any(|f| is_known(f) || is_on_same_text(f) && finding.is_implied_by(f)) {
            return;
        }
        self.all.retain(|f| !is_on_same_text(f) || !f.is_implied_by(&finding));
        if self.all.len() >= MAX_FINDINGS {
            let mildest = self.all.iter().enumerate().max_by(|a, b| a.1.score.total_cmp(&b.1.score));
            match mildest.map(|(i, f)| (i, f.score)) {
                Some((i, score)) if score > finding.score => {
                    self.all.remove(i);
                }
                _ => return,
            }
        }
        self.all.push(finding);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The worst score, or [`BEST_SCORE`] without findings.
    pub(crate) fn score(&self) -> f64 {
        self.all.iter().map(|f| f.score).fold(BEST_SCORE, f64::min)
    }

    /// The findings, worst first; equally bad ones keep the order in which they were added.
    fn into_sorted(mut self) -> Vec<Finding> {
        self.all.sort_by(|a, b| a.score.total_cmp(&b.score).then(b.severity.cmp(&a.severity)));
        self.all
    }

    /// A measurement on 1-5: the worst score, compared with the metric's threshold. `unmeasured_reason` applies if
    /// nothing was examined.
    pub(crate) fn scored(self, context: &Context<'_>, unmeasured_reason: Unmeasured) -> Measurement {
        let score = self.score();
        let passed = score >= context.threshold();
        self.measurement(context, unmeasured_reason, Value::Score(score), passed)
    }

    /// As [`Findings::scored`], with a label; the metric's settings define which labels fail.
    pub(crate) fn labelled(
        self,
        context: &Context<'_>,
        unmeasured_reason: Unmeasured,
        label: &'static str,
    ) -> Measurement {
        let passed = !context.fails(label);
        self.measurement(context, unmeasured_reason, Value::Label(label), passed)
    }

    fn measurement(
        self,
        context: &Context<'_>,
        unmeasured_reason: Unmeasured,
        value: Value,
        passed: bool,
    ) -> Measurement {
        // Each finding is about an examined item, even if the rule did not count it.
        let examined = self.examined.max(self.all.len());
        if examined == 0 {
            return context.unmeasured(unmeasured_reason);
        }
        let outcome = Measured { value, passed, findings: self.into_sorted() };
        measured(context.at, context.row.name, outcome).having_examined(examined)
    }
}

impl Extend<Finding> for Findings {
    fn extend<T: IntoIterator<Item = Finding>>(&mut self, findings: T) {
        findings.into_iter().for_each(|finding| self.push(finding));
    }
}

/// The measurement of a quantity in `unit`s, compared with the configured limit; unmeasured without a quantity.
pub(crate) fn quantity(
    context: &Context<'_>,
    measured_amount: Option<f64>,
    limit: f64,
    unit: &str,
) -> Measurement {
    let Some(amount) = measured_amount else { return context.unmeasured(Unmeasured::NoContent) };
    let finding = || {
        let quote = format!("{amount:.0} {unit}");
        let rationale = format!("at most {limit:.0} {unit} were expected, by the limit set; it took {quote}");
        Defect::OverLimit.finding(rationale, &quote)
    };
    let findings: Vec<Finding> = (amount > limit).then(finding).into_iter().collect();
    let value = Value::Number(amount);
    let outcome = Measured { value, passed: findings.is_empty(), findings };
    measured(context.at, context.row.name, outcome).having_examined(1)
}

/// A measurement by the built-in rules.
pub(crate) fn measured(span_index: Idx, metric: &'static str, measured: Measured) -> Measurement {
    Measurement::new(span_index, metric, RULES_JUDGE, Ok(measured))
}

impl Context<'_> {
    /// The metric of the context as unmeasured by the rules, with the reason.
    pub(crate) fn unmeasured(&self, reason: Unmeasured) -> Measurement {
        unmeasured(self.at, self.row.name, reason)
    }
}

/// An unmeasured metric with its reason.
pub(crate) fn unmeasured(span_index: Idx, metric: &'static str, reason: Unmeasured) -> Measurement {
    Measurement::new(span_index, metric, RULES_JUDGE, Err(reason))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::testing::row;
    use crate::measure::{Memo, Settings};

    #[test]
    fn scores_and_severities_are_those_of_the_paper() {
        assert_eq!(Defect::Errored.score(), 1.0);
        assert_eq!(Defect::EmptyResult.score(), 1.0);
        assert_eq!(Defect::NothingCovered.score(), 1.0);
        assert_eq!(Defect::UnsupportedFact.score(), 2.0);
        assert_eq!(Defect::MissingParameter.score(), 3.0);
        assert_eq!(Defect::MissingTag.score(), 3.0);
        assert_eq!(Defect::MissingTag.finding("", "").severity, Severity::Low);
        assert_eq!(Defect::TimedOut.finding("", "").severity, Severity::High);
    }

    #[test]
    fn categories_are_those_of_the_taxonomy() {
        for (defect, category) in [
            (Defect::NoAdaptation, Category::ResourceAbuse),
            (Defect::CutAnswer, Category::ResourceExhaustion),
            (Defect::InvalidCode, Category::FormattingErrors),
            (Defect::ContradictsResult, Category::ToolOutputMisinterpretation),
        ] {
            assert_eq!(defect.category(), Some(category), "{defect:?}");
        }
    }

    #[test]
    fn category_overrides_the_severity_of_the_score() {
        let score_and_severity = |defect: Defect| (defect.score(), defect.finding("", "").severity);
        assert_eq!(score_and_severity(Defect::UnsupportedFact), (2.0, Severity::High));
        assert_eq!(score_and_severity(Defect::PartUnanswered), (3.0, Severity::High));
        assert_eq!(score_and_severity(Defect::EmptyResult), (1.0, Severity::Medium));
        assert_eq!(score_and_severity(Defect::RepeatedCall), (3.0, Severity::Medium));
        assert_eq!(score_and_severity(Defect::IllTypedParameter), (3.0, Severity::Low), "by its score");
        assert_eq!(Defect::PartUnanswered.finding("", "").noted().severity, Severity::Low);
    }

    #[test]
    fn note_lowers_no_score_and_has_no_category() {
        let mut findings = Findings::new();
        let note = Defect::StepsReordered.finding("the plan's order was expected", "step 2").noted();
        assert!(note.is_note() && note.category.is_none() && note.severity == Severity::Low);
        findings.push(note);
        assert_eq!(findings.score(), BEST_SCORE);
        findings.push(Defect::MissingTag.finding("tag", "x"));
        assert_eq!(findings.score(), 3.0);
        assert!(!findings.into_sorted()[0].is_note());
    }

    #[test]
    fn findings_with_several_defects_on_one_statement_are_merged() {
        const STATEMENT: &str = "I have moved parcel 88-12 to locker 5, and its weight is 3.4 kg.";
        let merged_defects = |found: &[(Defect, &str)]| -> Vec<Defect> {
            let merge = |found: &[(Defect, &str)]| -> Vec<Defect> {
                let mut findings = Findings::new();
                findings.extend(found.iter().map(|(defect, quote)| defect.finding(defect.name(), quote)));
                findings.all.iter().filter_map(|finding| finding.defect).collect()
            };
            let reversed: Vec<(Defect, &str)> = found.iter().rev().copied().collect();
            assert_eq!(merge(found).len(), merge(&reversed).len(), "the order has no effect");
            merge(found)
        };
        use Defect::*;
        // The most specific defect is kept, independent of the order of the findings.
        assert_eq!(
            merged_defects(&[
                (UnsupportedFact, STATEMENT),
                (ContradictsResult, STATEMENT),
                (FalseClaim, STATEMENT)
            ]),
            [FalseClaim]
        );
        assert_eq!(
            merged_defects(&[(ContradictsResult, STATEMENT), (UnsupportedFact, STATEMENT)]),
            [ContradictsResult]
        );
        assert_eq!(
            merged_defects(&[(InventedData, STATEMENT), (UnsupportedFact, STATEMENT)]),
            [InventedData]
        );
        // One quote is a part of the sentence, or the answer that contains it.
        assert_eq!(
            merged_defects(&[(FalseClaim, "moved parcel 88-12"), (ContradictsResult, STATEMENT)]),
            [FalseClaim]
        );
        let answer = format!("Good morning. {STATEMENT} Anything else?");
        assert_eq!(merged_defects(&[(AnswerUnsupported, &answer), (FalseClaim, STATEMENT)]), [FalseClaim]);
        // Findings on different statements are not merged, nor are those whose shorter quote is only a name.
        let other = "The locker closes at 18:30.";
        assert_eq!(
            merged_defects(&[(FalseClaim, STATEMENT), (ContradictsResult, other)]),
            [FalseClaim, ContradictsResult]
        );
        assert_eq!(merged_defects(&[(ContradictsResult, STATEMENT), (FalseClaim, "locker 5")]).len(), 2);
        // Findings of one generality each name a value, and defects of calls or instructions have no generality.
        assert_eq!(merged_defects(&[(UnsupportedFact, STATEMENT), (UnsupportedUrl, STATEMENT)]).len(), 2);
        assert_eq!(
            merged_defects(&[
                (ContradictsResult, STATEMENT),
                (ContradictsRequest, STATEMENT),
                (ForbiddenText, STATEMENT)
            ])
            .len(),
            3
        );
    }

    #[test]
    fn note_and_statement_of_another_span_are_not_merged() {
        let statement = "The kiln reached 1240 degrees at noon.";
        let count_findings = |first: Finding, second: Finding| {
            let mut findings = Findings::new();
            findings.extend([first, second]);
            findings.all.len()
        };
        let contradicts = || Defect::ContradictsResult.finding("it was 1140", statement);
        let unsupported_finding = || Defect::UnsupportedFact.finding("no result has it", statement);
        assert_eq!(count_findings(contradicts(), unsupported_finding()), 1);
        assert_eq!(count_findings(contradicts().noted(), unsupported_finding()), 2);
        assert_eq!(count_findings(contradicts(), Finding { origin: Some(3), ..unsupported_finding() }), 2);
        assert_eq!(
            count_findings(contradicts(), Finding { seen_in: Some(SpanId([7; 8])), ..unsupported_finding() }),
            2
        );
    }

    #[test]
    fn nothing_examined_is_no_pass() {
        let (trace, settings, memo) = (AgentTrace::default(), Settings::default(), Memo::new());
        let row = row("completeness");
        let context =
            Context { row, trace: &trace, at: 0, settings: &settings, memo: &memo, rule_measurements: &[] };
        let measurement_with = |examined: usize, found: Option<Finding>| {
            let mut findings = Findings::new();
            findings.examine(examined);
            findings.extend(found);
            findings.scored(&context, Unmeasured::Truncated)
        };
        assert_eq!(measurement_with(0, None).outcome, Err(Unmeasured::Truncated));
        assert!(measurement_with(2, None).outcome.unwrap().passed);
        let failed = measurement_with(0, Some(Defect::EmptyAnswer.finding("", "")));
        assert_eq!((failed.outcome.unwrap().passed, failed.examined), (false, 1));
    }

    #[test]
    fn worst_findings_are_kept_and_sorted_first() {
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
