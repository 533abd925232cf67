//! `plan check` and `plan score`: one plan by rules and judges.
//!
//! In: a plan, tools, a reference, judges. Out: issues, layout and scores.

use std::path::PathBuf;

use clap::Args;
use verdict_eval::metrics::PLAN_SCORE;
use verdict_eval::metrics::Unmeasured;
use verdict_eval::plan::{self, JUDGED_PARTS, Matching, PlanAssessment, PlanPart, Toolbox};

use super::files::{self, PlanOptions};
use super::show;
use crate::cli::command::{CommandFailure, write_stderr};
use crate::cli::judge::run::JudgeRun;
use crate::cli::judge::session::JudgeSession;
use crate::config::Config;

pub(super) const CHECK_LONG_ABOUT: &str = "\
Print the faults of a plan and its layout.

By rules alone: whether the plan can be parsed and what had to be repaired, placeholders,
dependencies, steps that no other step uses, limits of the tools if their specs contain any, and
with a reference prompts for one tool only. Hops are the edges of the longest chain of
dependencies, width is the number of steps that run in parallel.";

pub(super) const SCORE_LONG_ABOUT: &str = "\
Measure a plan: seven metrics from 0 to 1, and a score from 0 to 100.

Effectiveness (tool-prompt alignment, format, step executability, query adherence) makes 70
points of the score, efficiency (dependencies, redundancy, tool-usage completeness) 30. The
weight of an unmeasured metric goes to the rest of its group, and the output names the metric.
Alignment and adherence need a judge: name one with --judge; of several judges or samples the
median counts. With a reference the plan is also rated by the number of matching steps. Where rules
cannot tell whether two prompts ask for the same, the judge decides, or embeddings
(verdict.metrics.plan.matching); without either, the pair is printed as unsure and does not match.
A plan that is not valid JSON is rated extremely bad. A plan
in prose is measured in part: no format, dependencies where steps mention one another, metrics
about tools over the steps that name one, and the rating by words alone.

Of a folder, each '.json' file is an object {\"query\", \"plan\", \"reference\"} or a lineage of
'plan improve' with a reference added, and each line of a '.jsonl' file such an object. Optional
members are \"before\" (the plan before the loop; a lineage has it), \"kind\" (a text or a list:
\"simple\", \"objective\"), \"planner\", \"rating\" (the tier that people gave the plan) and \"tags\"
(those that people gave its steps: {\"2\": [\"COMPLEX_PROMPT\"]}). References are also looked up
in the configuration. The output is the tables of paper 004: shares of the tiers, before and
after, for all plans and by steps and hops of the reference, kind and planner; means of the
metrics; and agreement with people on tiers and, with --judge, on tags.";

#[derive(Args, Debug)]
pub(in crate::cli) struct PlanArgs {
    /// The plan; '-' is standard input. For 'score' also a folder of plans
    pub(super) file: PathBuf,
    /// The best plan for the same query
    #[arg(long, value_name = "FILE")]
    reference: Option<PathBuf>,
    #[command(flatten)]
    pub(super) options: PlanOptions,
}

#[derive(Args, Debug)]
pub(in crate::cli) struct PlanScoreArgs {
    #[command(flatten)]
    pub(super) plan: PlanArgs,
    /// The query that the plan answers, if its file does not contain it
    #[arg(long, value_name = "TEXT")]
    query: Option<String>,
    /// Judge for the metrics that rules cannot measure, by its name under 'judges' of the
    /// configuration; may be given several times
    #[arg(long, value_name = "NAME")]
    pub(super) judge: Vec<String>,
}

/// The assessment of a plan by rules, the query that it answers, and the configuration.
fn examine(
    args: &PlanArgs,
    query: Option<&str>,
) -> Result<(PlanAssessment, Option<String>, Config), CommandFailure> {
    let config = args.options.load()?;
    let (plan, query_in_file) = files::read_plan(&args.file)?;
    let query = query.map(str::to_owned).or(query_in_file);
    let settings = &config.verdict.evaluation.metrics.plan;
    let reference = match &args.reference {
        Some(path) => Some(files::readable_plan(path)?.0),
        None => query.as_deref().and_then(|query| plan::Plan::reference(settings, query)),
    };
    Ok((PlanAssessment::new(plan, Toolbox::new(&settings.tools), reference), query, config))
}

pub(super) fn check(args: &PlanArgs) -> Result<(), CommandFailure> {
    let (assessment, _, config) = examine(args, None)?;
    let weights = &config.verdict.evaluation.metrics.plan.weights;
    let table = || show::table(&assessment, weights, false);
    args.options.output.print(&show::object(&assessment, weights), table)?;
    let has_faults = assessment.issues.iter().any(|i| PlanPart::for_fault(i.fault).is_some());
    if has_faults { Err(CommandFailure::ThresholdMet) } else { Ok(()) }
}

pub(super) fn score(args: &PlanScoreArgs) -> Result<(), CommandFailure> {
    let (mut assessment, query, config) = examine(&args.plan, args.query.as_deref())?;
    let run = JudgeRun::start(&args.plan.options.judges, &config, !args.judge.is_empty())?;
    if !args.judge.is_empty() && !assessment.is_rejected() {
        let judge = JudgeSession::new(&run, &config, &args.judge)?;
        let matching = &config.verdict.evaluation.metrics.plan.matching;
        ask_judges(&mut assessment, &files::required_query(None, query)?, &judge, matching);
    }
    let weights = &config.verdict.evaluation.metrics.plan.weights;
    run.print(args.plan.options.output, &show::object(&assessment, weights), || {
        show::table(&assessment, weights, true)
    })
}

/// Asks the judges: for the metrics that rules cannot measure, and about pairs of steps that rules cannot decide. A
/// metric without an answer stays unmeasured and is named on standard error.
pub(super) fn ask_judges(
    assessment: &mut PlanAssessment,
    query: &str,
    judge: &JudgeSession,
    matching: &Matching,
) {
    let clean = |text: &str| judge.clean(text);
    let shown = assessment.sanitized(clean);
    let system = |question: &str, rubric: &str| {
        judge.asker.question_system_prompt((PLAN_SCORE, question), rubric, None).to_string()
    };
    let mut questions = plan::judge_questions(&clean(query), &shown, &system);
    match &matching.embeddings {
        Some(name) => {
            let question = plan::embedding_question(assessment, &shown, name);
            let answer = question.and_then(|question| judge.ask_judge(name, PLAN_SCORE, question));
            if let Some(opinion) = answer.as_ref().and_then(|a| a.opinions.as_deref().ok()?.first()) {
                assessment.decide(plan::read_cosines(assessment, &shown, &opinion.value, matching));
            }
            questions.extend(plan::pair_question(assessment, &shown, &system));
        }
        None => questions.extend(plan::pair_question(assessment, &shown, &system)),
    }
    for answer in judge.ask(PLAN_SCORE, questions) {
        if answer.key == plan::JUDGED_KEY {
            match answer.opinions {
                Ok(opinions) => assessment.decide(plan::read_pairs(assessment, &shown, &opinions)),
                Err(reason) => write_stderr(&format!("steps: the judge did not answer: {}", reason.as_str())),
            }
            continue;
        }
        let Some(part) = JUDGED_PARTS.into_iter().find(|part| part.metric() == answer.key) else { continue };
        let judged = answer.opinions.and_then(|opinions| {
            plan::median_judgement(part, &assessment.plan, &opinions).ok_or(Unmeasured::JudgeError)
        });
        match judged {
            Ok((judged, _)) => drop(assessment.apply_judgement(part, &judged)),
            Err(reason) => {
                write_stderr(&format!("{}: the judge did not answer: {}", part.name(), reason.as_str()))
            }
        }
    }
}
