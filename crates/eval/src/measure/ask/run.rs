//! A metric of an agent's run, or of the whole trace.
//!
//! In: the agent or root span, its transcript, the findings of the rules. Out: a question for each
//! part of the transcript; if several parts have findings, one more question that grades all
//! findings together, so that a long run is scored once; then one measurement.

use std::sync::Arc;

use verdict_otlp::trace::Idx;

use super::content::{PieceKind, TraceContent, excerpt, title};
use super::opinion::{
    JudgeFinding, JudgeOpinion, MAX_RATIONALE_BYTES, ShownContent, merge_findings, read_opinion,
};
use super::parts::{HEADING_BYTES, block_bytes, split_into_parts};
use super::prompt_page::{PromptBlock, PromptPage};
use super::step::{measurements_at, page_question, read_replies, rule_findings};
use super::transcript::{RunScope, spans_in_scope, transcribe};
use super::verdict::{ParsedOpinion, combine_replies};
use super::{form, plans, topology, utc};
use crate::measure::agent::plan_efficiency;
use crate::measure::defects::clip;
use crate::measure::gpa::Per;
use crate::measure::table::{About, MetricSpec, Requires};
use crate::measure::{Answer, Context, Measurement, MetricProgress, Opinion, Question, Unmeasured, Value};
use crate::recognise::{Agent, AgentTrace, Content};

/// The key of the question that grades all parts together; it sorts after the keys of the parts.
const GRADE_KEY: &str = "score";
/// Maximum number of findings that are graded together, the worst ones.
const MAX_GRADED_FINDINGS: usize = 60;
/// Maximum number of agents whose plans are compared with their calls for the judge.
const MAX_PLANNERS: usize = 4;
/// Maximum number of failing spans listed before the transcript.
const MAX_FAILING_SPANS: usize = 30;

/// The next step of a metric of an agent or a trace, which judges answer by a rubric.
pub(crate) fn step(context: &Context<'_>, answers: &[Answer]) -> MetricProgress {
    let Ok(scope) = applicability(context) else { return MetricProgress::Done(Vec::new()) };
    let unmeasured = |reason| MetricProgress::Done(vec![context.unmeasured(reason)]);
    let system = context.settings.asker.system_prompt(context.row, context.trace, context.at);
    let max_bytes = context.settings.asker.max_bytes(&system);
    let inquiry = match RunInquiry::new(context, scope, max_bytes) {
        Ok(inquiry) => inquiry,
        Err(reason) => return unmeasured(reason),
    };
    let pages = inquiry.pages();
    if answers.is_empty() {
        let keyed = pages.iter().enumerate();
        return MetricProgress::Ask(
            keyed
                .map(|(i, page)| {
                    let prompt = page.prompt(system.clone());
                    let question =
                        page_question(context.row, &context.settings.asker, &part_key(i), prompt, page);
                    match inquiry.is_plan_unmarked {
                        true => Question { form: form::asking_for_plan(&question.form), ..question },
                        false => question,
                    }
                })
                .collect(),
        );
    }
    if inquiry.is_plan_unmarked
        && let Some(measurement) = unmeasured_without_plan(context, answers)
    {
        return MetricProgress::Done(vec![measurement]);
    }
    match replies_by_part(context.row, &pages, answers) {
        Err(reason) => unmeasured(reason),
        Ok(parts) => inquiry.finish(parts, answers, system),
    }
}

fn part_key(part: usize) -> String {
    format!("part-{:04}", part + 1)
}

/// The scope of a question on the span `span_index`: an agent's run, the trace, or none.
pub(crate) fn run_scope(about: About, trace: &AgentTrace, per: &[Per], span_index: Idx) -> Option<RunScope> {
    let agent_index = trace.owner.get(span_index).copied().flatten();
    let agent = agent_index.filter(|&i| trace.agents.get(i).is_some_and(|agent| agent.at == span_index));
    if about == About::Agent {
        return agent.map(RunScope::Beneath);
    }
    let judges_per = |subject: Per| per.contains(&subject);
    let is_root = trace.tree.root() == Some(span_index);
    // A span has one measurement: if the root is an agent's span, that of the trace. For a single
    // agent beneath a wrapping root, the same question would be asked twice.
    let is_single_wrapped_agent = trace.agents.len() == 1 && agent.is_none() && judges_per(Per::Agents);
    if is_root && judges_per(Per::Trace) && !trace.agents.is_empty() && !is_single_wrapped_agent {
        return Some(RunScope::Trace);
    }
    agent.filter(|_| judges_per(Per::Agents)).map(RunScope::Own)
}

/// The agent of a run; for a trace the outermost agent.
fn agent_of(trace: &AgentTrace, scope: RunScope) -> Option<&Agent> {
    match scope {
        RunScope::Own(i) | RunScope::Beneath(i) => trace.agents.get(i),
        RunScope::Trace => trace.agents.first(),
    }
}

/// The scope of the metric on the span of the context; an error if it does not apply, with the reason if it is
/// unmeasured.
pub(super) fn applicability(context: &Context<'_>) -> Result<RunScope, Option<Unmeasured>> {
    let scope =
        run_scope(context.row.about, context.trace, &context.settings.gpa.per, context.at).ok_or(None)?;
    let lacks_answer = |agent: &Agent| agent.answer.is_none() && agent.answer_content != Content::Present;
    if let Some(agent) =
        agent_of(context.trace, scope).filter(|a| context.row.requires == Requires::Answer && lacks_answer(a))
    {
        return Err(Some(agent.answer_content.into()));
    }
    let may_have_plan = || {
        !plans::planners(context.trace, scope).is_empty()
            || !plans::first_words(context.trace, scope).is_empty()
    };
    if needs_plan(context.row) && !may_have_plan() {
        return Err(Some(Unmeasured::NotApplicable));
    }
    Ok(scope)
}

/// Whether the metric is about plans.
fn needs_plan(row: &MetricSpec) -> bool {
    matches!(row.about, About::Plans | About::Segments)
}

/// Whether a judge answered that the record states no plan.
fn states_no_plan(opinion: &Opinion) -> bool {
    opinion.value.get(form::PLAN).and_then(|value| value.as_str()) == Some(form::NO_PLAN)
}

/// The description of the agents of a trace.
struct Topology(String);

struct RunInquiry<'a, 'v> {
    context: &'a Context<'v>,
    scope: RunScope,
    head_blocks: Vec<PromptBlock>,
    parts: Vec<Vec<PromptBlock>>,
    max_bytes: usize,
    /// Whether the metric is about plans, and no plan is marked in the record.
    is_plan_unmarked: bool,
}

impl<'a, 'v> RunInquiry<'a, 'v> {
    fn new(
        context: &'a Context<'v>,
        scope: RunScope,
        max_bytes: usize,
    ) -> Result<RunInquiry<'a, 'v>, Unmeasured> {
        let is_plan_unmarked = needs_plan(context.row) && plans::planners(context.trace, scope).is_empty();
        let (head_blocks, parts) = (Vec::new(), Vec::new());
        let mut inquiry = RunInquiry { context, scope, head_blocks, parts, max_bytes, is_plan_unmarked };
        inquiry.head_blocks = inquiry.head_blocks();
        let head_bytes: usize = inquiry.head_blocks.iter().map(block_bytes).sum();
        let bytes_left = max_bytes.saturating_sub(head_bytes).max(max_bytes / 3);
        // An eighth is reserved for the plan in force, if a part begins after it.
        let part_bytes = bytes_left - bytes_left / 8;
        inquiry.parts = match context.row.about {
            About::Plans => {
                split_into_parts(plans::with_triggers(context.content(), scope, part_bytes / 2), part_bytes)
            }
            about => {
                let transcript = transcribe(context.content(), scope, part_bytes);
                // Each block is one step of work.
                context.memo.budget.spend(transcript.len());
                if transcript.iter().all(|block| block.label.ends_with(PieceKind::Error.as_str())) {
                    return Err(Unmeasured::NoContent);
                }
                match about {
                    About::Segments => plans::segments(transcript, part_bytes),
                    _ => split_into_parts(transcript, part_bytes),
                }
            }
        };
        inquiry.repeat_plan_in_force(bytes_left / 8);
        Ok(inquiry)
    }

    fn agent(&self) -> Option<&'v Agent> {
        agent_of(self.context.trace, self.scope)
    }

    /// The blocks that every part begins with; none if only plans are shown.
    fn head_blocks(&self) -> Vec<PromptBlock> {
        let content @ TraceContent { trace, asker, memo } = self.context.content();
        let mut out = Vec::new();
        let Some(agent) = self.agent().filter(|_| self.context.row.about != About::Plans) else { return out };
        let name = asker.agent_name(agent).filter(|_| self.scope != RunScope::Trace);
        out.extend(name.map(|name| PromptBlock::without_span("the agent's name", name, false)));
        let topology = memo.shared_value(|| Topology(topology::describe(asker, trace)));
        if !topology.0.is_empty() {
            let text = excerpt(&topology.0, self.max_bytes / 8);
            out.push(PromptBlock::without_span(topology::CONTROL_FLOW_TITLE, text, false));
        }
        let start_time = trace.tree.spans.get(agent.at).and_then(|span| utc::format_utc(span.start));
        out.extend(start_time.map(|time| PromptBlock::without_span("the run began", time, false)));
        if let Some(task) = &agent.task {
            let span_index = agent.task_at.unwrap_or(agent.at);
            let text = content.text(span_index, task, self.max_bytes / 8);
            out.push(PromptBlock::without_span("the task", text, true));
        }
        if let Some(answer) = &agent.answer {
            let text = content.answer(agent, answer, self.max_bytes / 8);
            out.push(PromptBlock::without_span("the final answer", text, false));
        }
        if self.is_plan_unmarked {
            let words = plans::first_words(trace, self.scope);
            let share = self.max_bytes / 8 / words.len().max(1);
            out.extend(words.iter().map(|words| words.block(content, share)));
        }
        // Rules may quote withheld content.
        if !content.withholds_any() {
            out.extend(rule_findings(self.context, self.max_bytes / 12));
            out.extend(self.failing_spans_block());
            out.extend(self.planned_steps_block());
        }
        out
    }

    /// For plan adherence: the planned steps with the calls that seem to have carried them out, by names and arguments.
    fn planned_steps_block(&self) -> Option<PromptBlock> {
        if self.context.row.about != About::Segments {
            return None;
        }
        let (trace, asker) = (self.context.trace, &self.context.settings.asker);
        let mut text = String::new();
        for agent in plans::planners(trace, self.scope).into_iter().take(MAX_PLANNERS) {
            let agent_index = trace.owner.get(agent.at).copied().flatten();
            let Some(evidence) = agent_index.and_then(|i| plan_efficiency::evidence(self.context, i)) else {
                continue;
            };
            let name = asker.agent_name(agent).filter(|_| trace.agents.len() > 1);
            text.extend(name.map(|name| format!("{name}\n")));
            text.push_str(&asker.clean(&evidence));
        }
        let shown = excerpt(&text, self.max_bytes / 12);
        let label = "the plans' steps and the calls that seem to be theirs";
        (!text.is_empty()).then(|| PromptBlock::without_span(label, shown, false))
    }

    /// Spans in the scope with failures found by rules, as hints for the judge.
    fn failing_spans_block(&self) -> Option<PromptBlock> {
        let Context { trace, rule_measurements, at: own_span, settings, .. } = *self.context;
        let line = |m: &Measurement| {
            let value = match m.outcome.as_ref().ok().filter(|measured| !measured.passed)?.value {
                Value::Label(label) => label.to_owned(),
                Value::Score(number) | Value::Number(number) => number.to_string(),
            };
            let id = trace.tree.spans.get(m.at).map(|span| span.id).unwrap_or_default();
            Some(format!("span {id} ({}): {} {value}", title(&settings.asker, trace, m.at), m.metric))
        };
        let spans = spans_in_scope(trace, self.context.memo, self.scope);
        let others = spans.into_iter().filter(|span_index| *span_index != own_span);
        let lines = others
            .filter_map(|span_index| measurements_at(rule_measurements, span_index).iter().find_map(line));
        let lines: Vec<String> = lines.take(MAX_FAILING_SPANS).collect();
        let label = "spans in which built-in rules found a failure";
        let text = lines.join("\n");
        (!lines.is_empty())
            .then(|| PromptBlock::without_span(label, excerpt(&text, self.max_bytes / 12), false))
    }

    /// Repeats the plan in force at the beginning of each part after it.
    fn repeat_plan_in_force(&mut self, max_bytes: usize) {
        let mut in_force: Option<PromptBlock> = None;
        for part in &mut self.parts {
            let begins_with_plan = part.first().is_some_and(|block| block.is_plan);
            if let Some(plan) = in_force.clone().filter(|_| !begins_with_plan) {
                let text =
                    excerpt(&plan.text, max_bytes.saturating_sub(plan.label.len() + 2 * HEADING_BYTES));
                let reminder = PromptBlock {
                    span: None,
                    label: format!("in force since before this part: {}", plan.label),
                    text: text.into_owned(),
                    ..plan
                };
                part.insert(0, reminder);
            }
            in_force =
                part.iter().rev().find(|block| block.is_plan && block.span.is_some()).cloned().or(in_force);
        }
    }

    /// The parts of the run as pages of prompts.
    fn pages(&self) -> Vec<PromptPage> {
        let part_count = self.parts.len();
        let pages = self.parts.iter().enumerate().map(|(i, part)| {
            let mut intro = self.intro();
            if part_count > 1 {
                intro.push_str(&format!(
                    " It is too long for one reading: this is part {} of {part_count}; parts overlap a little. \
                     Judge what this part shows. What seems to be missing may stand in another part, so \
                     that only what is shown counts.",
                    i + 1
                ));
            }
            PromptPage {
                intro,
                blocks: self.head_blocks.iter().chain(part).cloned().collect(),
                question: self.question(),
            }
        });
        pages.collect()
    }

    /// The introduction of a page: what is judged, and what the page contains.
    fn intro(&self) -> String {
        // The agent's name is untrusted text of the trace, so it is shown only in the record.
        let agent_label = |agent: &Agent| {
            let id = self.context.trace.tree.spans.get(agent.at).map(|span| span.id).unwrap_or_default();
            format!("the agent of span {id}")
        };
        let subject = match (self.scope, self.agent()) {
            (RunScope::Trace, _) => "the whole run, of all its agents".to_owned(),
            (RunScope::Own(_), Some(agent)) => format!(
                "{} by itself. What agents that it called were asked and answered is shown; \
                 their own steps are judged apart",
                agent_label(agent)
            ),
            (_, Some(agent)) => format!("{} with everything that it called", agent_label(agent)),
            (_, None) => "the run".to_owned(),
        };
        let mut out = format!("Judge {} of {subject}.", self.context.row.name);
        if self.context.trace.incomplete {
            out.push_str(
                " The record is incomplete: the run may have gone on. That something is missing, above \
                 all a final answer, is no problem then.",
            );
        }
        out
    }

    /// The request at the end of a page.
    fn question(&self) -> String {
        let mut out = format!(
            "Now judge {} by the rubric. List every problem with the span where it began and its \
             quotation; go through the agents one after the other.",
            self.context.row.name
        );
        if self.is_plan_unmarked {
            out.push_str(
                " No plan is marked in this record: what an agent thought or said first may state one. After the \
                 rationale, `plan` is `stated` if it says which steps are to be taken before they are, and `none` \
                 if not; do not infer a plan from the steps themselves. With `none` the run is not graded: give \
                 the best score and no findings.",
            );
        }
        out
    }

    /// The measurement from the opinions on the parts, or the question that grades all findings.
    fn finish(&self, parts: Vec<Vec<ParsedOpinion>>, answers: &[Answer], system: Arc<str>) -> MetricProgress {
        let done =
            |replies: Vec<ParsedOpinion>| MetricProgress::Done(vec![combine_replies(self.context, replies)]);
        if parts.len() == 1 {
            return done(parts.into_iter().flatten().collect());
        }
        let opinions = || parts.iter().flatten().filter_map(|reply| reply.opinion.as_ref());
        let findings = merge_findings(opinions());
        let dropped: usize = opinions().map(|opinion| opinion.dropped).sum();
        let over_limit: usize = opinions().map(|opinion| opinion.over_limit).sum();
        if findings.is_empty() {
            return done(worst_part(parts));
        }
        match answers.iter().find(|answer| answer.key == GRADE_KEY) {
            None => MetricProgress::Ask(vec![self.grade_question(&findings, &parts, system)]),
            Some(Answer { opinions: Err(reason), .. }) => {
                MetricProgress::Done(vec![self.context.unmeasured(*reason)])
            }
            Some(Answer { opinions: Ok(opinions), .. }) => {
                let no_content = ShownContent::from_page(&PromptPage::default());
                let replies = opinions.iter().enumerate().map(|(i, opinion)| {
                    let graded = read_opinion(self.context.row, &no_content, opinion);
                    // Findings dropped from all parts are reported once, with the first opinion.
                    let (dropped, over_limit) = if i == 0 { (dropped, over_limit) } else { (0, 0) };
                    let graded = graded.map(|grade| JudgeOpinion {
                        findings: findings.clone(),
                        dropped,
                        over_limit,
                        ..grade
                    });
                    ParsedOpinion { judge: opinion.judge.clone(), opinion: graded }
                });
                done(replies.collect())
            }
        }
    }

    /// The question that asks for one grade of the findings of all parts.
    fn grade_question(
        &self,
        findings: &[JudgeFinding],
        parts: &[Vec<ParsedOpinion>],
        system: Arc<str>,
    ) -> Question {
        let asker = &self.context.settings.asker;
        let mut blocks = self.head_blocks.clone();
        let mut bytes_left = self.max_bytes.saturating_sub(blocks.iter().map(block_bytes).sum());
        let rationales: Vec<&JudgeOpinion> =
            parts.iter().filter_map(|part| part.iter().find_map(|reply| reply.opinion.as_ref())).collect();
        let shown = rationales.len().min(bytes_left / 3 / (2 * HEADING_BYTES));
        let share = (bytes_left / 3 / shown.max(1)).saturating_sub(HEADING_BYTES).min(600);
        for (i, opinion) in rationales.iter().enumerate().take(shown) {
            let text = asker.cleaned_excerpt(&opinion.rationale, share);
            blocks.push(PromptBlock::without_span(
                format!("what a judge said of part {}", i + 1),
                text,
                false,
            ));
        }
        bytes_left =
            bytes_left.saturating_sub(blocks.iter().skip(self.head_blocks.len()).map(block_bytes).sum());
        for (i, finding) in findings.iter().take(MAX_GRADED_FINDINGS).enumerate() {
            let category = finding.category.map_or("no category", |c| c.as_str());
            let text = asker.clean(&format!("{}\nquote: {}", finding.problem, finding.quote));
            let label =
                format!("finding {}: span {}, {}, {category}", i + 1, finding.id, finding.severity.as_str());
            let block = PromptBlock::without_span(label, text, false);
            if block_bytes(&block) > bytes_left {
                break;
            }
            bytes_left -= block_bytes(&block);
            blocks.push(block);
        }
        let page = PromptPage {
            intro: format!(
                "{} It was read in {} parts. These are the problems that were found in them, their \
                 quotations checked; some may be the same, or be explained by another part.",
                self.intro(),
                parts.len()
            ),
            blocks,
            question: format!("Now grade {} of the whole, once, by the rubric.", self.context.row.name),
        };
        Question {
            key: GRADE_KEY.to_owned(),
            prompt: page.prompt(system),
            form: form::grade_only(self.context.row),
            judges: Vec::new(),
        }
    }
}

/// The replies on each part; the reason if one part has no answer.
fn replies_by_part(
    row: &MetricSpec,
    pages: &[PromptPage],
    answers: &[Answer],
) -> Result<Vec<Vec<ParsedOpinion>>, Unmeasured> {
    let part = |(i, page): (usize, &PromptPage)| {
        let answer = answers.iter().find(|answer| answer.key == part_key(i)).ok_or(Unmeasured::JudgeError)?;
        let opinions = answer.opinions.as_ref().map_err(|reason| *reason)?;
        let graded: Vec<Opinion> =
            opinions.iter().filter(|opinion| !states_no_plan(opinion)).cloned().collect();
        Ok(read_replies(row, page, &graded))
    };
    let parts: Result<Vec<Vec<ParsedOpinion>>, Unmeasured> = pages.iter().enumerate().map(part).collect();
    let mut parts = parts?;
    parts.retain(|replies| !replies.is_empty());
    Ok(parts)
}

/// The measurement if more than half of the opinions answer that the record states no plan.
fn unmeasured_without_plan(context: &Context<'_>, answers: &[Answer]) -> Option<Measurement> {
    let opinions = || answers.iter().filter_map(|answer| answer.opinions.as_ref().ok()).flatten();
    let without_plan: Vec<&Opinion> = opinions().filter(|opinion| states_no_plan(opinion)).collect();
    let first = without_plan.first().filter(|_| without_plan.len() * 2 > opinions().count())?;
    let rationale = first.value.get(form::RATIONALE).and_then(|value| value.as_str()).unwrap_or_default();
    let rationale = clip(rationale.trim(), MAX_RATIONALE_BYTES);
    Some(Measurement {
        judge: first.judge.to_string().into(),
        rationale: (!rationale.is_empty()).then(|| rationale.into()),
        ..context.unmeasured(Unmeasured::NotApplicable)
    })
}

/// The opinions on the worst part, by which a run without findings is graded. Opinions are paired by their order.
fn worst_part(parts: Vec<Vec<ParsedOpinion>>) -> Vec<ParsedOpinion> {
    let mut parts = parts.into_iter();
    let mut out = parts.next().unwrap_or_default();
    for part in parts {
        out.truncate(part.len());
        for (lowest, other) in out.iter_mut().zip(part) {
            let grade =
                |reply: &ParsedOpinion| reply.opinion.as_ref().and_then(|opinion| opinion.grade.score());
            let score = |reply: &ParsedOpinion| grade(reply).unwrap_or(f64::NEG_INFINITY);
            if score(&other) < score(lowest) {
                *lowest = other;
            }
        }
    }
    out
}
