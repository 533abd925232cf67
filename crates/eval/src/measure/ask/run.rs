//! A metric of an agent's run, or of the whole trace.
//!
//! In: the agent or root span, its story, what the rules found in it. Out: a question for each part
//! of the story; where there are several parts and something was found, one more that grades the
//! findings of all together, so that a long run is scored once; then one measurement.

use std::sync::Arc;

use super::content::{WITHHELD, What, title};
use super::form;
use super::opinion::{self, Found, Grade, Said, Shown};
use super::parts::{HEADING, cut, size};
use super::prompt_page::{Block, Sheet};
use super::step::{ask, evidence, of_span};
use super::transcript::{Scope, tell};
use super::verdict::{Heard, conclude};
use super::{asker, plans, topology};
use crate::measure::defects::unmeasured;
use crate::measure::settings::Per;
use crate::measure::table::{About, MetricSpec};
use crate::measure::{Answer, Context, Question, Settings, Step, Unmeasured, Value};
use crate::recognise::{Agent, AgentTrace, Content};
use verdict_otlp::trace::Idx;

/// The key of the question that grades all parts together; sorts after those of the parts.
const SCORE: &str = "score";
/// Findings that are graded together, the worst.
const MOST_GRADED: usize = 60;
/// Failing spans that are told beforehand.
const MOST_FAILING: usize = 30;

/// See the module.
pub fn step(topic: &'static MetricSpec, context: &Context<'_>, answers: &[Answer]) -> Step {
    let Ok(scope) = stands(topic, context) else { return Step::Done(Vec::new()) };
    let missing = |reason| Step::Done(vec![unmeasured(context.at, topic.name, reason)]);
    let system = asker(context.settings).system(topic, context.trace, context.at);
    let room = asker(context.settings).room(&system);
    let inquiry = match Inquiry::new(topic, context, scope, room) {
        Ok(inquiry) => inquiry,
        Err(reason) => return missing(reason),
    };
    let sheets = inquiry.sheets();
    if answers.is_empty() {
        let keyed = sheets.iter().enumerate();
        return Step::Ask(
            keyed.map(|(i, sheet)| ask(topic, &key(i), sheet.prompt(system.clone()), sheet)).collect(),
        );
    }
    match read(topic, &sheets, answers) {
        Err(reason) => missing(reason),
        Ok(parts) => inquiry.conclude(parts, answers, system),
    }
}

fn key(part: usize) -> String {
    format!("part-{:04}", part + 1)
}

/// What a question on the span `at` is about: an agent's run, the trace, or nothing.
fn scope(about: About, trace: &AgentTrace, settings: &Settings, at: Idx) -> Option<Scope> {
    let own = trace.owner.get(at).copied().flatten();
    let agent = own.filter(|&i| trace.agents.get(i).is_some_and(|agent| agent.at == at));
    if about == About::Agent {
        return agent.map(Scope::Beneath);
    }
    let per = |per: Per| settings.gpa.per.contains(&per);
    let is_root = trace.tree.root() == Some(at);
    // One measurement fits on a span: where the root is an agent's, that of the trace. Of a lone
    // agent beneath a root that only holds it, the same would be asked twice.
    let holds_one = trace.agents.len() == 1 && agent.is_none() && per(Per::Agents);
    if is_root && per(Per::Trace) && !trace.agents.is_empty() && !holds_one {
        return Some(Scope::Trace);
    }
    agent.filter(|_| per(Per::Agents)).map(Scope::Own)
}

/// The agent that a run is of; of a trace its outermost.
fn agent_of(trace: &AgentTrace, scope: Scope) -> Option<&Agent> {
    match scope {
        Scope::Own(i) | Scope::Beneath(i) => trace.agents.get(i),
        Scope::Trace => trace.agents.first(),
    }
}

/// See [`super::stands`].
pub(super) fn stands(topic: &MetricSpec, context: &Context<'_>) -> Result<Scope, Option<Unmeasured>> {
    let scope = scope(topic.about, context.trace, context.settings, context.at).ok_or(None)?;
    let about_answer = matches!(topic.name, "completeness" | "gpa.goal_fulfillment");
    let unseen = |agent: &Agent| agent.answer.is_none() && agent.answer_content != Content::Present;
    if about_answer && agent_of(context.trace, scope).is_some_and(unseen) {
        return Err(Some(Unmeasured::NoContent));
    }
    let needs_plan = matches!(topic.about, About::Plans | About::Segments);
    if needs_plan && plans::planners(context.trace, scope).is_empty() {
        return Err(Some(Unmeasured::NotApplicable));
    }
    Ok(scope)
}

/// What is to be asked of one run.
struct Inquiry<'a, 'v> {
    topic: &'static MetricSpec,
    context: &'a Context<'v>,
    scope: Scope,
    head: Vec<Block>,
    parts: Vec<Vec<Block>>,
    room: usize,
}

impl<'a, 'v> Inquiry<'a, 'v> {
    fn new(
        topic: &'static MetricSpec,
        context: &'a Context<'v>,
        scope: Scope,
        room: usize,
    ) -> Result<Inquiry<'a, 'v>, Unmeasured> {
        let mut inquiry = Inquiry { topic, context, scope, head: Vec::new(), parts: Vec::new(), room };
        inquiry.head = inquiry.head();
        let taken: usize = inquiry.head.iter().map(size).sum();
        let left = room.saturating_sub(taken).max(room / 3);
        // Part of it for the plan in force, where a part begins after it.
        let body = left - left / 8;
        let asker = asker(context.settings);
        inquiry.parts = match topic.about {
            About::Plans => cut(plans::with_triggers(asker, context.trace, scope, body / 2), body),
            about => {
                let story = tell(asker, context.trace, scope, body);
                if story.iter().all(|block| block.label.ends_with(What::Error.words())) {
                    return Err(Unmeasured::NoContent);
                }
                match about {
                    About::Segments => plans::segments(story, body),
                    _ => cut(story, body),
                }
            }
        };
        inquiry.remind(left / 8);
        Ok(inquiry)
    }

    fn agent(&self) -> Option<&'v Agent> {
        agent_of(self.context.trace, self.scope)
    }

    /// What every part begins with.
    fn head(&self) -> Vec<Block> {
        let (trace, asker) = (self.context.trace, asker(self.context.settings));
        let mut out = Vec::new();
        let Some(agent) = self.agent() else { return out };
        let of_plans = self.topic.about == About::Plans;
        if trace.agents.len() > 1 && !of_plans {
            let text = topology::describe(asker, trace);
            let text = super::content::excerpt(&text, self.room / 8).into_owned();
            out.push(Block::about("how the agents are built, as observed", text, false));
        }
        if let Some(task) = agent.task.as_ref().filter(|_| !of_plans) {
            let at = agent.task_at.unwrap_or(agent.at);
            let text = asker.shown(trace, at, task, self.room / 8);
            out.push(Block::about("the task", text, true));
        }
        if let Some(answer) = agent.answer.as_ref().filter(|_| self.topic.about != About::Plans) {
            let at = agent.answer_at.unwrap_or(agent.at);
            let text = match asker.withholds_answer(trace, agent) {
                true => WITHHELD.to_owned(),
                false => asker.shown(trace, at, answer, self.room / 8),
            };
            out.push(Block::about("the final answer", text, false));
        }
        // The rules quote whatever they read, also what is withheld.
        if !of_plans && !asker.withholds_any(trace) {
            out.extend(evidence(self.context, self.room / 12));
            out.extend(self.failing());
            out.extend(self.steps_done());
        }
        out
    }

    /// For adherence: which call carried out which planned step, as far as names and arguments tell.
    fn steps_done(&self) -> Option<Block> {
        if self.topic.about != About::Segments {
            return None;
        }
        let i = match self.scope {
            Scope::Own(i) | Scope::Beneath(i) => i,
            Scope::Trace => 0,
        };
        let text = crate::measure::agent::plan_efficiency::evidence(self.context, i)?;
        let text = asker(self.context.settings).clean(&text);
        let text = super::content::excerpt(&text, self.room / 12).into_owned();
        Some(Block::about("the last plan's steps and the calls that seem to be theirs", text, false))
    }

    /// Spans beneath in which the rules found a failure: a judge finds the rest more easily.
    fn failing(&self) -> Option<Block> {
        let trace = self.context.trace;
        let mut lines = Vec::new();
        let mut spans: Vec<Idx> = self.context.rules.iter().map(|m| m.at).collect();
        spans.dedup();
        let within = |at: &Idx| *at != self.context.at && super::transcript::of_scope(trace, self.scope, *at);
        for at in spans.into_iter().filter(within) {
            let failed =
                of_span(self.context.rules, at).iter().find(|m| m.outcome.as_ref().is_ok_and(|o| !o.passed));
            let Some(failed) = failed else { continue };
            let value = match failed.outcome.as_ref().map(|o| &o.value) {
                Ok(Value::Label(label)) => (*label).to_owned(),
                Ok(Value::Score(score) | Value::Number(score)) => score.to_string(),
                Err(_) => continue,
            };
            let id = trace.tree.spans.get(at).map(|span| span.id).unwrap_or_default();
            lines.push(format!(
                "span {id} ({}): {} {value}",
                title(asker(self.context.settings), trace, at),
                failed.metric
            ));
            if lines.len() >= MOST_FAILING {
                break;
            }
        }
        let label = "spans in which built-in rules found a failure";
        let text = super::content::excerpt(&lines.join("\n"), self.room / 12).into_owned();
        (!lines.is_empty()).then(|| Block::about(label, text, false))
    }

    /// Where a part begins after a plan was made, the plan once more.
    fn remind(&mut self, most: usize) {
        let mut in_force: Option<Block> = None;
        for part in &mut self.parts {
            let first_is_plan = part.first().is_some_and(|block| block.plan);
            if let Some(plan) = in_force.clone().filter(|_| !first_is_plan) {
                let text =
                    super::content::excerpt(&plan.text, most.saturating_sub(plan.label.len() + 2 * HEADING));
                let reminder = Block {
                    of: None,
                    label: format!("in force since before this part: {}", plan.label),
                    text: text.into_owned(),
                    ..plan
                };
                part.insert(0, reminder);
            }
            in_force = part.iter().rev().find(|block| block.plan && block.of.is_some()).cloned().or(in_force);
        }
    }

    fn sheets(&self) -> Vec<Sheet> {
        let n = self.parts.len();
        let all = self.parts.iter().enumerate().map(|(i, part)| {
            let mut intro = self.intro();
            if n > 1 {
                intro.push_str(&format!(
                    " It is too long for one reading: this is part {} of {n}; parts overlap a little. \
                     Judge what this part shows. What seems to be missing may stand in another part, so \
                     that only what is shown counts.",
                    i + 1
                ));
            }
            Sheet {
                intro,
                blocks: self.head.iter().chain(part).cloned().collect(),
                question: self.question(),
            }
        });
        all.collect()
    }

    fn intro(&self) -> String {
        let who = |agent: &Agent| {
            agent
                .name
                .as_ref()
                .map(|n| asker(self.context.settings).name(n))
                .filter(|n| !n.is_empty())
                .map_or_else(String::new, |n| format!(" {n}"))
        };
        let what = match (self.scope, self.agent()) {
            (Scope::Trace, _) => "the whole run, of all its agents".to_owned(),
            (Scope::Own(_), Some(agent)) => format!(
                "the agent{} by itself. What agents that it called were asked and answered is shown; \
                 their own steps are judged apart",
                who(agent)
            ),
            (_, Some(agent)) => format!("the agent{} with everything that it called", who(agent)),
            (_, None) => "the run".to_owned(),
        };
        let mut out = format!("Judge {} of {what}.", self.topic.name);
        if self.context.trace.incomplete {
            out.push_str(
                " The record is incomplete: the run may have gone on. That something is missing, above \
                 all a final answer, is no problem then.",
            );
        }
        out
    }

    fn question(&self) -> String {
        format!(
            "Now judge {} by the rubric. List every problem with the span where it began and its \
             quotation; go through the agents one after the other.",
            self.topic.name
        )
    }

    /// From the opinions on the parts to a measurement, or to the last question.
    fn conclude(&self, parts: Vec<Vec<Heard>>, answers: &[Answer], system: Arc<str>) -> Step {
        let done = |heard: Vec<Heard>| Step::Done(vec![conclude(self.topic, self.context, heard)]);
        if parts.len() == 1 {
            return done(parts.into_iter().flatten().collect());
        }
        let said = || parts.iter().flatten().filter_map(|heard| heard.said.as_ref());
        let found = united(said());
        let dropped: usize = said().map(|said| said.dropped).sum();
        if found.is_empty() {
            return done(worst(parts));
        }
        match answers.iter().find(|answer| answer.key == SCORE) {
            None => Step::Ask(vec![self.grade(&found, &parts, system)]),
            Some(Answer { opinions: Err(reason), .. }) => {
                Step::Done(vec![unmeasured(self.context.at, self.topic.name, *reason)])
            }
            Some(Answer { opinions: Ok(opinions), .. }) => {
                let nothing = Shown::of(&Sheet::default());
                let heard = opinions.iter().enumerate().map(|(i, opinion)| {
                    let said = opinion::read(self.topic, &nothing, opinion).map(|said| Said {
                        found: found.clone(),
                        // Told once, whoever's they were.
                        dropped: if i == 0 { dropped } else { 0 },
                        ..said
                    });
                    Heard { judge: opinion.judge.clone(), said }
                });
                done(heard.collect())
            }
        }
    }

    /// Asks for one grade of what was found in all parts.
    fn grade(&self, found: &[Found], parts: &[Vec<Heard>], system: Arc<str>) -> Question {
        let asker = asker(self.context.settings);
        let mut blocks = self.head.clone();
        let mut left = self.room.saturating_sub(blocks.iter().map(size).sum());
        let rationales: Vec<&Said> =
            parts.iter().filter_map(|part| part.iter().find_map(|heard| heard.said.as_ref())).collect();
        let told = rationales.len().min(left / 3 / (2 * HEADING));
        let share = (left / 3 / told.max(1)).saturating_sub(HEADING).min(600);
        for (i, said) in rationales.iter().enumerate().take(told) {
            let text = asker.clean(&super::content::excerpt(&said.rationale, share));
            blocks.push(Block::about(format!("what a judge said of part {}", i + 1), text, false));
        }
        left = left.saturating_sub(blocks.iter().skip(self.head.len()).map(size).sum());
        for (i, found) in found.iter().take(MOST_GRADED).enumerate() {
            let category = found.category.map_or("no category", |c| c.as_str());
            let text = asker.clean(&format!("{}\nquote: {}", found.problem, found.quote));
            let label =
                format!("finding {}: span {}, {}, {category}", i + 1, found.id, found.severity.as_str());
            let block = Block::about(label, text, false);
            if size(&block) > left {
                break;
            }
            left -= size(&block);
            blocks.push(block);
        }
        let sheet = Sheet {
            intro: format!(
                "{} It was read in {} parts. These are the problems that were found in them, their \
                 quotations checked; some may be the same, or be explained by another part.",
                self.intro(),
                parts.len()
            ),
            blocks,
            question: format!("Now grade {} of the whole, once, by the rubric.", self.topic.name),
        };
        Question {
            key: SCORE.to_owned(),
            prompt: sheet.prompt(system),
            form: form::grade_only(self.topic),
            judges: Vec::new(),
        }
    }
}

/// What was said of each part; why not, where one of them has no answer.
fn read(topic: &MetricSpec, sheets: &[Sheet], answers: &[Answer]) -> Result<Vec<Vec<Heard>>, Unmeasured> {
    let part = |(i, sheet): (usize, &Sheet)| {
        let answer = answers.iter().find(|answer| answer.key == key(i)).ok_or(Unmeasured::JudgeError)?;
        let shown = Shown::of(sheet);
        let opinions = answer.opinions.as_ref().map_err(|reason| *reason)?;
        let heard: Vec<Heard> = opinions
            .iter()
            .map(|opinion| Heard {
                judge: opinion.judge.clone(),
                said: opinion::read(topic, &shown, opinion),
            })
            .collect();
        Ok(heard)
    };
    sheets.iter().enumerate().map(part).collect()
}

/// Findings of all parts, the worst first, each once.
fn united<'s>(said: impl Iterator<Item = &'s Said>) -> Vec<Found> {
    let mut out: Vec<Found> = Vec::new();
    for found in said.flat_map(|said| &said.found) {
        if !out.iter().any(|known| known.at == found.at && known.quote == found.quote) {
            out.push(found.clone());
        }
    }
    out.sort_by_key(|found| (std::cmp::Reverse(found.severity), found.at));
    out
}

/// Without findings, a run is as good as its worst part.
fn worst(parts: Vec<Vec<Heard>>) -> Vec<Heard> {
    let mut parts = parts.into_iter();
    let mut out = parts.next().unwrap_or_default();
    for part in parts {
        out.truncate(part.len());
        for (kept, other) in out.iter_mut().zip(part) {
            let score = |heard: &Heard| match heard.said.as_ref().map(|said| said.grade) {
                Some(Grade::Score(score)) => score,
                Some(Grade::Label(_)) | None => f64::NEG_INFINITY,
            };
            if score(&other) < score(kept) {
                *kept = other;
            }
        }
    }
    out
}
