//! Builds the row and the tree of a trace from its evaluation.
//!
//! In: an evaluated trace, and the disclosure of its content. Out: [`TraceRow`] and [`TraceDetail`].

use std::collections::{BTreeMap, BTreeSet};

use verdict_eval::annotation::{finding_id, signature};
use verdict_eval::metrics::{Finding, Measurement, Unmeasured};
use verdict_eval::propagation::Verdict;
use verdict_eval::trace::{AgentTrace, Kind, RecordedEvaluation, SpanView};
use verdict_eval::{Disclosure, EvaluatedTrace};
use verdict_otlp::trace::{CloseReason, Idx, SpanId};

use super::model::{
    EvaluationNode, FindingNode, MetricNode, OutcomeNote, SpanNode, TraceDetail, TraceRow, UsageCount,
};
use super::texts::{MAX_CONTENT_BYTES, MAX_EXCERPT_BYTES, MAX_PASSAGE_BYTES, MAX_TASK_BYTES, ShownTexts};
use crate::telemetry::ResultLabel;

/// Maximum number of spans of a tree. In a larger trace, spans with failures take precedence.
pub(super) const MAX_SPANS: usize = 2_000;
/// Maximum number of agents, tools and models that a row lists.
const MAX_USAGE_COUNTS: usize = 32;
/// Maximum number of entries of the lists of a finding or a trace.
pub(super) const MAX_ITEMS: usize = 100;

/// The row and the tree of an evaluated trace. `is_open`: the trace has not closed.
pub(crate) fn trace(
    evaluated: &EvaluatedTrace,
    disclosure: &Disclosure,
    is_open: bool,
) -> (TraceRow, TraceDetail) {
    let (mut row, detail) = bounded_view(evaluated, disclosure, MAX_SPANS, MAX_CONTENT_BYTES);
    if is_open {
        (row.result, row.reason, row.close_reason) = ("open", None, "");
    }
    (row, detail)
}

/// Like [`trace`], and the tree as JSON of at most `max_bytes` bytes: with fewer spans and less content if the limit
/// requires it.
pub(super) fn trace_within(
    evaluated: &EvaluatedTrace,
    disclosure: &Disclosure,
    max_bytes: usize,
) -> (TraceRow, TraceDetail, Vec<u8>) {
    let (mut spans, mut text) = (MAX_SPANS.min(evaluated.trace.tree.len()), MAX_CONTENT_BYTES);
    loop {
        let (row, detail) = bounded_view(evaluated, disclosure, spans, text);
        let json = serde_json::to_vec(&detail).unwrap_or_default();
        if json.len() <= max_bytes || spans == 0 {
            return (row, detail, json);
        }
        (spans, text) = (spans / 2, text / 2);
    }
}

/// The row and the tree with at most `max_spans` spans and `max_content` bytes of content.
fn bounded_view(
    evaluated: &EvaluatedTrace,
    disclosure: &Disclosure,
    max_spans: usize,
    max_content: usize,
) -> (TraceRow, TraceDetail) {
    let view = TraceView::new(evaluated);
    let mut texts = ShownTexts::new(disclosure, disclosure.shows_texts(&evaluated.trace), max_content);
    let row = view.row(&mut texts);
    let detail = view.detail(&mut texts, max_spans);
    (row, detail)
}

struct TraceView<'a> {
    evaluated: &'a EvaluatedTrace,
    trace: &'a AgentTrace,
    /// The measurements of each span.
    span_measurements: Vec<Vec<&'a Measurement>>,
    /// Nanoseconds since 1970.
    start: u64,
    end: u64,
}

impl<'a> TraceView<'a> {
    fn new(evaluated: &'a EvaluatedTrace) -> TraceView<'a> {
        let trace = &evaluated.trace;
        let mut span_measurements: Vec<Vec<&Measurement>> = vec![Vec::new(); trace.tree.len()];
        for m in &evaluated.measurements {
            if let Some(measurements) = span_measurements.get_mut(m.at) {
                measurements.push(m);
            }
        }
        let spans = &trace.tree.spans;
        let start = spans.iter().map(|span| span.start).filter(|start| *start > 0).min().unwrap_or(0);
        let end = spans.iter().map(|span| span.end.max(span.start)).max().unwrap_or(0);
        TraceView { evaluated, trace, span_measurements, start, end }
    }

    fn row(&self, texts: &mut ShownTexts<'_>) -> TraceRow {
        let EvaluatedTrace { measurements, verdicts, summary, .. } = self.evaluated;
        let trace_verdict = &verdicts.trace;
        let root = self.trace.tree.root();
        let root = root.and_then(|root| self.trace.views.get(root));
        let first_value = |field: fn(&SpanView) -> Option<&str>| self.trace.views.iter().find_map(field);
        let agent = self.trace.agents.first();
        let task = agent.and_then(|agent| agent.task.as_deref());
        let failing = failing_findings(measurements);
        let severity = failing.clone().map(|finding| finding.severity).max();
        let worst = trace_verdict.failure_chain.last().and_then(|&at| self.span_measurements.get(at));
        let metrics: BTreeSet<&str> = trace_verdict.failed_metrics.iter().copied().collect();
        let models: BTreeSet<&str> =
            self.trace.views.iter().filter_map(|view| view.model.as_deref()).collect();
        let model_calls = || self.trace.views.iter().filter(|view| !view.wrapper && view.kind == Kind::Llm);
        let tokens = model_calls().filter_map(|view| view.tokens.sum()).reduce(u64::saturating_add);
        let cost_usd = model_calls().filter_map(|view| view.cost).reduce(|a, b| a + b);
        TraceRow {
            seq: 0,
            trace_id: self.trace.tree.id.to_string(),
            result: ResultLabel::from(summary.passed).as_str(),
            reason: summary.unmeasured_reason.map(Unmeasured::as_str),
            revision: summary.revision,
            judged_at: summary.now / 1_000_000,
            start: self.start / 1_000_000,
            duration_ms: milliseconds(self.end.saturating_sub(self.start)),
            name: texts.optional_name(root.and_then(|view| view.name.as_deref())).unwrap_or_default(),
            service: texts.optional_name(
                root.and_then(|view| view.service.as_deref())
                    .or_else(|| first_value(|v| v.service.as_deref())),
            ),
            agent: texts.optional_name(agent.and_then(|agent| agent.name.as_deref())),
            session: texts.optional_name(first_value(|view| view.session.as_deref())),
            user: texts.optional_name(first_value(|view| view.user.as_deref())),
            task: texts.content(task, MAX_TASK_BYTES),
            spans: self.trace.tree.len(),
            failed_spans: trace_verdict.failed_spans.len(),
            failed_metrics: metrics.into_iter().take(MAX_ITEMS).map(str::to_owned).collect(),
            categories: categories(measurements),
            severity: severity.map(|severity| severity.as_str()),
            signature: worst
                .and_then(|span_measurements| signature(self.trace, span_measurements.iter().copied())),
            agents: self.agents(texts),
            tools: self.tools(texts),
            models: models.into_iter().take(MAX_USAGE_COUNTS).map(|model| texts.name(model)).collect(),
            tokens,
            cost_usd,
            judge_cost_usd: summary.usage.map(|usage| usage.cost_usd),
            close_reason: summary.close_reason.as_str(),
            incomplete: summary.incomplete,
        }
    }

    fn failed(&self, at: Idx) -> bool {
        self.evaluated.verdicts.by_span.get(at).copied().flatten().is_some_and(Verdict::failed)
    }

    fn agents(&self, texts: &ShownTexts<'_>) -> Vec<UsageCount> {
        let all = self.trace.agents.iter();
        let names = all.filter_map(|agent| Some((agent.name.as_deref()?, self.failed(agent.at))));
        usage_counts(names, texts)
    }

    fn tools(&self, texts: &ShownTexts<'_>) -> Vec<UsageCount> {
        let calls = self.trace.calls.iter();
        let failed = |tool: Option<Idx>| tool.is_some_and(|at| self.failed(at));
        usage_counts(calls.map(|call| (&*call.name, call.failed || failed(call.tool))), texts)
    }

    fn detail(&self, texts: &mut ShownTexts<'_>, max_spans: usize) -> TraceDetail {
        let trace_verdict = &self.evaluated.verdicts.trace;
        let answer = self.trace.agents.first().and_then(|agent| agent.answer.as_deref());
        let ids = |spans: &[Idx]| spans.iter().take(MAX_ITEMS).filter_map(|&at| self.id(at)).collect();
        let outcome = trace_verdict.outcome.as_ref().map(|outcome| OutcomeNote {
            score: outcome.score,
            judge: texts.name(&outcome.judge),
            rationale: texts.content(Some(&outcome.rationale), MAX_PASSAGE_BYTES),
        });
        let answer = texts.content(answer, MAX_EXCERPT_BYTES);
        let spans = self.spans(texts, max_spans);
        TraceDetail {
            is_content_hidden: !texts.shows_content,
            answer,
            root_cause: trace_verdict.root_cause.and_then(|at| self.id(at)),
            failure_chain: ids(&trace_verdict.failure_chain),
            failed_spans: ids(&trace_verdict.failed_spans),
            measured: trace_verdict.measured,
            unmeasured: trace_verdict.unmeasured,
            failure_probability: trace_verdict.failure.as_ref().map(|failure| failure.probability),
            outcome,
            omitted: self.trace.tree.len() - spans.len(),
            spans,
        }
    }

    fn id(&self, at: Idx) -> Option<String> {
        self.trace.tree.spans.get(at).map(|span| span.id.to_string())
    }

    /// The spans with failures, and the spans that these cite, quote or originate in.
    fn evidence(&self) -> BTreeSet<Idx> {
        let trace_verdict = &self.evaluated.verdicts.trace;
        let mut evidence: BTreeSet<Idx> = trace_verdict.failed_spans.iter().copied().collect();
        evidence.extend(trace_verdict.root_cause);
        let mut referenced: BTreeSet<SpanId> = BTreeSet::new();
        for m in self.evaluated.measurements.iter().filter(|m| failed(m)) {
            evidence.insert(m.at);
            for finding in m.outcome.iter().flat_map(|measured| &measured.findings) {
                referenced.extend(finding.cited.iter().take(MAX_ITEMS).chain(&finding.seen_in));
                evidence.extend(finding.origin);
            }
        }
        if !referenced.is_empty() {
            let spans = self.trace.tree.spans.iter().enumerate();
            evidence.extend(spans.filter(|(_, span)| referenced.contains(&span.id)).map(|(at, _)| at));
        }
        evidence
    }

    /// At most `max_spans` spans, in which spans with failures take precedence.
    fn spans(&self, texts: &mut ShownTexts<'_>, max_spans: usize) -> Vec<SpanNode> {
        let (tree, evidence) = (&self.trace.tree, self.evidence());
        let mut selected = vec![tree.len() <= max_spans; tree.len()];
        if tree.len() > max_spans {
            let chain = self.evaluated.verdicts.trace.failure_chain.iter().copied();
            let preferred = tree.root().into_iter().chain(chain).chain(evidence.iter().copied());
            let mut remaining = max_spans;
            for at in preferred.chain(tree.order().iter().copied()) {
                if remaining > 0
                    && let Some(flag) = selected.get_mut(at).filter(|flag| !**flag)
                {
                    *flag = true;
                    remaining -= 1;
                }
            }
        }
        let mut nodes: Vec<SpanNode> = Vec::with_capacity(tree.len().min(max_spans));
        // The index of each span in `nodes`; of a span that is left out, that of its nearest ancestor there.
        let mut node_indexes: Vec<Option<usize>> = vec![None; tree.len()];
        for &at in tree.order() {
            let up = tree.parent(at).and_then(|parent| node_indexes.get(parent).copied().flatten());
            let is_kept = selected.get(at).copied().unwrap_or(false);
            if let Some(index) = node_indexes.get_mut(at) {
                *index = if is_kept { Some(nodes.len()) } else { up };
            }
            if is_kept {
                nodes.push(self.span(at, up, evidence.contains(&at), texts));
            }
        }
        nodes
    }

    fn span(&self, at: Idx, up: Option<usize>, with_excerpts: bool, texts: &mut ShownTexts<'_>) -> SpanNode {
        let unknown = SpanView::default();
        let view = self.trace.views.get(at).unwrap_or(&unknown);
        let verdict = self.evaluated.verdicts.by_span.get(at).copied().flatten();
        let cause = match verdict {
            Some(Verdict::Fail(cause)) => Some(cause.as_str()),
            _ => None,
        };
        let errors: Vec<String> = view.errors.iter().take(4).map(|error| error_text(error, texts)).collect();
        let (input, output) = if with_excerpts { self.excerpts(view, texts) } else { (None, None) };
        let span = self.trace.tree.spans.get(at);
        let start = span.map_or(self.start, |span| span.start);
        let measurements = self.span_measurements.get(at).map_or(&[][..], Vec::as_slice);
        let metrics = measurements.iter().filter(|m| !matches!(m.outcome, Err(Unmeasured::NotApplicable)));
        SpanNode {
            id: self.id(at).unwrap_or_default(),
            up,
            parent: span.filter(|span| up.is_none() && !span.parent.is_zero()).map(|s| s.parent.to_string()),
            name: texts.optional_name(view.name.as_deref()).unwrap_or_default(),
            kind: view.kind.as_str(),
            service: texts.optional_name(view.service.as_deref()),
            agent: texts.optional_name(view.agent.as_deref()),
            model: texts.optional_name(view.model.as_deref()),
            result: verdict.map(|verdict| ResultLabel::from(Some(!verdict.failed())).as_str()),
            cause,
            offset_ms: milliseconds(start.saturating_sub(self.start)),
            duration_ms: view.duration_ms,
            tokens: view.tokens.sum(),
            cost_usd: view.cost,
            errors,
            late: self.evaluated.summary.close_reason == CloseReason::Late,
            input,
            output,
            metrics: metrics.map(|m| self.metric(m, texts)).collect(),
            evaluations: view.evaluations.iter().take(MAX_ITEMS).map(|e| evaluation_node(e, texts)).collect(),
        }
    }

    /// The input and the output of a span: the arguments and the result of a tool call, the last message of the input
    /// and the output of a model call.
    fn excerpts(&self, view: &SpanView, texts: &mut ShownTexts<'_>) -> (Option<String>, Option<String>) {
        let arguments = view.call.as_ref().and_then(|call| call.arguments.as_deref());
        // The last message of a conversation, which the model answers.
        let last_message = view.input.last().map(message_text);
        let input = texts.content(arguments.or(last_message.as_deref()), MAX_EXCERPT_BYTES);
        let output: Vec<String> = view.output.iter().map(message_text).collect();
        let output = output.join("\n");
        let result = view.result.as_deref().unwrap_or(&output);
        (input, texts.content(Some(result), MAX_EXCERPT_BYTES))
    }

    fn metric(&self, m: &Measurement, texts: &mut ShownTexts<'_>) -> MetricNode {
        let measured = m.outcome.as_ref().ok();
        let shows_content = failed(m) || texts.disclosure.shows_passed();
        let mut node = MetricNode {
            metric: m.name().into_owned(),
            result: ResultLabel::from(measured.map(|measured| measured.passed)).as_str(),
            reason: m.outcome.as_ref().err().map(|reason| reason.as_str()),
            score: None,
            label: None,
            value: None,
            judge: texts.name(&m.judge),
            rationale: None,
            findings: Vec::new(),
            details: BTreeMap::new(),
        };
        match measured.map(|measured| &measured.value) {
            Some(verdict_eval::metrics::Value::Score(score)) => node.score = Some(*score),
            Some(verdict_eval::metrics::Value::Label(label)) => node.label = Some(label),
            Some(verdict_eval::metrics::Value::Number(value)) => node.value = Some(*value),
            None => {}
        }
        if !shows_content {
            return node;
        }
        node.rationale = texts.content(m.rationale.as_deref(), MAX_PASSAGE_BYTES);
        let findings = measured.into_iter().flat_map(|measured| &measured.findings).enumerate();
        node.findings = findings.take(MAX_ITEMS).map(|(n, f)| self.finding(m, n, f, texts)).collect();
        for detail in &m.details {
            let json = serde_json::to_string(&detail.value).unwrap_or_default();
            if let Some(value) = texts.content(Some(&json), MAX_PASSAGE_BYTES) {
                node.details.insert(m.with_task(detail.key).into_owned(), value);
            }
        }
        node
    }

    fn finding(&self, m: &Measurement, index: usize, f: &Finding, texts: &mut ShownTexts<'_>) -> FindingNode {
        FindingNode {
            id: finding_id(self.trace, m, index),
            rationale: texts.content(Some(&f.rationale), MAX_PASSAGE_BYTES),
            quote: texts.content(Some(&f.quote), MAX_PASSAGE_BYTES),
            seen_in: f.seen_in.map(|id| id.to_string()),
            cited: f.cited.iter().take(MAX_ITEMS).map(ToString::to_string).collect(),
            origin: f.origin.filter(|&origin| origin != m.at).and_then(|origin| self.id(origin)),
            category: f.category.map(|category| category.as_str()),
            severity: f.severity.as_str(),
            blame: f.blame().map(|blame| blame.as_str()),
            touched_outcome: self.evaluated.verdicts.trace.touched_outcome(m.at, m.metric, index),
            note: f.is_note(),
            confidence: f.confidence,
        }
    }
}

fn failed(m: &Measurement) -> bool {
    m.outcome.as_ref().is_ok_and(|measured| !measured.passed)
}

fn failing_findings(measurements: &[Measurement]) -> impl Iterator<Item = &Finding> + Clone {
    let failing = measurements.iter().filter(|m| failed(m));
    failing.flat_map(|m| m.outcome.iter().flat_map(|o| &o.findings)).filter(|finding| !finding.is_note())
}

/// The failure categories of a trace, each once.
pub(crate) fn categories(measurements: &[Measurement]) -> Vec<&'static str> {
    let all = failing_findings(measurements).filter_map(|finding| finding.category);
    all.collect::<BTreeSet<_>>().into_iter().map(|category| category.as_str()).collect()
}

fn evaluation_node(evaluation: &RecordedEvaluation, texts: &mut ShownTexts<'_>) -> EvaluationNode {
    let passed = evaluation.passed.map(|passed| ResultLabel::from(Some(passed)).as_str().to_owned());
    let evaluator = [&evaluation.evaluator, &evaluation.evaluator_version, &evaluation.evaluator_type];
    EvaluationNode {
        name: texts.name(&evaluation.name),
        label: texts.optional_name(evaluation.label.as_deref()).or(passed),
        score: evaluation.score.filter(|score| score.is_finite()),
        explanation: texts.content(evaluation.explanation.as_deref(), MAX_PASSAGE_BYTES),
        error: texts.optional_name(evaluation.error.as_deref()),
        by: evaluator.into_iter().filter_map(|text| texts.optional_name(text.as_deref())).collect(),
    }
}

fn milliseconds(nanos: u64) -> f64 {
    nanos as f64 / 1e6
}

fn error_text(error: &verdict_eval::trace::ErrorSign, texts: &mut ShownTexts<'_>) -> String {
    let error_type = texts.optional_name(error.error_type.as_deref()).unwrap_or_else(|| "error".to_owned());
    match texts.content(error.message.as_deref(), MAX_PASSAGE_BYTES) {
        Some(message) => format!("{error_type}: {message}"),
        None => error_type,
    }
}

fn message_text(message: &verdict_eval::trace::Message) -> String {
    let mut text = String::new();
    for part in &message.parts {
        if !text.is_empty() {
            text.push('\n');
        }
        match part {
            verdict_eval::trace::Part::Text(part_text) => text.push_str(part_text),
            verdict_eval::trace::Part::Call(call) => {
                text.push_str(&format!("{}({})", call.name, call.arguments.as_deref().unwrap_or_default()));
            }
            verdict_eval::trace::Part::Result { content, .. } => text.push_str(content),
            _ => {}
        }
    }
    text
}

/// Counts by name, the most failures first.
fn usage_counts<'n>(all: impl Iterator<Item = (&'n str, bool)>, texts: &ShownTexts<'_>) -> Vec<UsageCount> {
    let mut by_name: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for (name, failed) in all.filter(|(name, _)| !name.is_empty()) {
        let (count, failures) = by_name.entry(name).or_default();
        *count += 1;
        *failures += u64::from(failed);
    }
    let mut all: Vec<_> = by_name.into_iter().collect();
    all.sort_by_key(|(_, (count, failed))| std::cmp::Reverse((*failed, *count)));
    let usage = |(name, (count, failed))| UsageCount { name: texts.name(name), count, failed };
    all.into_iter().take(MAX_USAGE_COUNTS).map(usage).collect()
}
