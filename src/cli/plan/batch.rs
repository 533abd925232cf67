//! `plan score` of a folder: the tables of paper 004 over many plans.
//!
//! In: files of plans with references, and judges. Out: tables or JSON. The figures come from
//! [`verdict_eval::plan::batch_report`].

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;
use verdict_eval::plan::{
    self, BatchPlan, BatchReport, LabelAgreement, PlanAssessment, Rating, StepTags, Tag, Tiers, Toolbox,
};

use super::check_and_score::{self, PlanScoreArgs};
use crate::cli::command::{CommandFailure, read_text, write_stderr};
use crate::cli::judge::run::JudgeRun;
use crate::cli::judge::session::JudgeSession;
use crate::config::Config;

/// Maximum number of plans of one batch.
const MAX_PLANS: usize = 100_000;

/// One object of a file.
#[derive(Deserialize)]
struct PlanEntry {
    #[serde(default)]
    query: String,
    plan: Option<Value>,
    /// The revisions of a lineage, the first plan first.
    #[serde(default)]
    revisions: Vec<Revision>,
    before: Option<Value>,
    reference: Option<Value>,
    kind: Option<QueryKinds>,
    planner: Option<String>,
    rating: Option<Rating>,
    #[serde(default)]
    tags: std::collections::BTreeMap<usize, BTreeSet<Tag>>,
}

#[derive(Deserialize)]
struct Revision {
    plan: Value,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum QueryKinds {
    One(String),
    Several(Vec<String>),
}

impl PlanEntry {
    /// The plan, and the one before it was improved.
    fn plans(&self) -> Option<(&Value, Option<&Value>)> {
        let last = self.revisions.last().map(|revised| &revised.plan);
        let first = self.revisions.first().map(|revised| &revised.plan);
        Some((self.plan.as_ref().or(last)?, self.before.as_ref().or(first)))
    }
}

pub(super) fn score(args: &PlanScoreArgs) -> Result<(), CommandFailure> {
    let config = args.plan.options.load()?;
    let run = JudgeRun::start(&args.plan.options.judges, &config, !args.judge.is_empty())?;
    let judge =
        (!args.judge.is_empty()).then(|| JudgeSession::new(&run, &config, &args.judge)).transpose()?;
    let mut plans = Vec::new();
    let mut plans_with_skipped_tags = 0;
    for path in plan_files(&args.plan.file)? {
        for (location, object) in objects(&path)? {
            let problem =
                |message: String| CommandFailure::Usage(format!("{}{location}: {message}", path.display()));
            let entry: PlanEntry = serde_json::from_value(object).map_err(|e| problem(e.to_string()))?;
            let scored = assess_entry(&entry, &config, judge.as_ref()).map_err(problem)?;
            plans_with_skipped_tags += usize::from(judge.is_none() && !entry.tags.is_empty());
            plans.push(scored);
            if plans.len() > MAX_PLANS {
                return Err(CommandFailure::file(&args.plan.file, format!("more than {MAX_PLANS} plans")));
            }
        }
    }
    if plans.is_empty() {
        return Err(CommandFailure::file(
            &args.plan.file,
            "the folder has no .json or .jsonl file with a plan",
        ));
    }
    if plans_with_skipped_tags > 0 {
        write_stderr(&format!("tags of {plans_with_skipped_tags} plans are not compared: they need --judge"));
    }
    let report = plan::batch_report(&plans);
    run.print(args.plan.options.output, &report, || table(&report))
}

/// The files of a folder with plans, by name.
fn plan_files(folder: &Path) -> Result<Vec<PathBuf>, CommandFailure> {
    let entries = std::fs::read_dir(folder).map_err(|e| CommandFailure::file(folder, e))?;
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()
        .map_err(|e| CommandFailure::file(folder, e))?;
    files.retain(|path| path.extension().is_some_and(|end| end == "json" || end == "jsonl"));
    files.sort();
    Ok(files)
}

fn objects(path: &Path) -> Result<Vec<(String, Value)>, CommandFailure> {
    super::files::parse_objects(&read_text(path)?).map_err(|message| CommandFailure::file(path, message))
}

fn assess_entry(
    entry: &PlanEntry,
    config: &Config,
    judge: Option<&JudgeSession>,
) -> Result<BatchPlan, String> {
    let settings = &config.verdict.evaluation.metrics.plan;
    let text = |plan: &Value| plan.as_str().map_or_else(|| plan.to_string(), str::to_owned);
    let read = |plan: &Value| plan::parse_plan(&text(plan));
    let (after, before) = entry.plans().ok_or("the object has neither \"plan\" nor \"revisions\"")?;
    let reference =
        entry.reference.as_ref().map(read).or_else(|| plan::Plan::reference(settings, &entry.query));
    let tools = Toolbox::new(&settings.tools);
    let assess = |plan: &Value| {
        let mut assessment = PlanAssessment::new(read(plan), tools.clone(), reference.clone());
        if let Some(judge) = judge.filter(|_| !assessment.is_rejected() && !entry.query.trim().is_empty()) {
            check_and_score::ask_judges(&mut assessment, &entry.query, judge, &settings.matching);
        }
        assessment
    };
    let rating =
        |assessment: &PlanAssessment| assessment.reference_match.as_ref().map(|matched| matched.rating);
    let assessment = assess(after);
    let before = before.map(|plan| if plan == after { assessment.clone() } else { assess(plan) });
    let tags = match judge {
        Some(judge) if !entry.tags.is_empty() => tags(entry, &assessment, judge),
        _ => Vec::new(),
    };
    Ok(BatchPlan {
        kinds: match &entry.kind {
            Some(QueryKinds::One(kind)) => vec![kind.clone()],
            Some(QueryKinds::Several(kinds)) => kinds.clone(),
            None => Vec::new(),
        },
        planner: entry.planner.clone(),
        reference: assessment.reference.as_ref().map(plan::shape),
        before: before.as_ref().and_then(rating),
        rating: rating(&assessment),
        unsure: assessment.reference_match.as_ref().map_or(0, |matched| matched.unsure.len()),
        values: assessment.values,
        score: assessment.score(&settings.weights),
        people: entry.rating,
        tags,
    })
}

/// The tags of the steps that people have tagged. Steps about which the judge did not answer are left out.
fn tags(entry: &PlanEntry, assessment: &PlanAssessment, judge: &JudgeSession) -> Vec<StepTags> {
    let clean = |text: &str| judge.clean(text);
    let shown = assessment.sanitized(clean);
    let mut questions = plan::tag_questions(&clean(&entry.query), &shown.plan, &shown.tools);
    let people = |key: &str| entry.tags.get(&key.parse::<usize>().ok()?);
    questions.retain(|question| people(&question.key).is_some());
    let answers = judge.ask("plan.tags", questions);
    let step_tags = |answer: verdict_eval::questions::Answer| {
        let values: Vec<Value> = answer.opinions.ok()?.into_iter().map(|opinion| opinion.value).collect();
        Some(StepTags { people: people(&answer.key)?.clone(), judge: plan::read_tags(&values) })
    };
    answers.into_iter().filter_map(step_tags).collect()
}

fn table(report: &BatchReport) -> String {
    let mut out = format!("{} plans", report.plans);
    for (count, description) in
        [(report.unrated, "without a reference"), (report.unsure, "with pairs of steps that are unsure")]
    {
        if count > 0 {
            out.push_str(&format!(", {count} {description}"));
        }
    }
    out.push_str(
        "\n\ntiers, % of plans                plans     A+      A      B   before: A+      A      B\n",
    );
    for group in &report.tiers {
        let name = if group.by == "all" { "all".to_owned() } else { format!("{} {}", group.by, group.group) };
        let shares = |tiers: &Tiers| {
            [tiers.a_plus, tiers.a, tiers.b].map(|share| format!("{:>6.1}", 100.0 * share)).join(" ")
        };
        let before = group.before.as_ref().map_or("     -      -      -".to_owned(), &shares);
        out.push_str(&format!(
            "{name:<32} {:>5} {}      {before}\n",
            group.after.plans,
            shares(&group.after)
        ));
    }
    if let Some(all) = report.tiers.iter().find(|group| group.by == "all") {
        out.push('\n');
        for rating in Rating::ALL.iter().rev() {
            let count = |tiers: &Tiers| tiers.counts.get(rating).copied().unwrap_or(0).to_string();
            let before = all.before.as_ref().map_or("-".to_owned(), count);
            let name = rating.as_str().replace('_', " ");
            out.push_str(&format!("{name:<32} {:>5}   before: {before:>5}\n", count(&all.after)));
        }
    }
    out.push_str("\nmeans\n");
    for metric in &report.means {
        let mean = metric.mean.map_or("-".to_owned(), |mean| format!("{mean:.3}"));
        out.push_str(&format!("{:<32} {:>5} {mean:>8}\n", metric.metric, metric.plans));
    }
    for (title, agreement) in
        [("tiers and people", &report.rating_agreement), ("tags of steps and people", &report.tag_agreement)]
    {
        if let Some(agreement) = agreement {
            write_labels(&mut out, title, agreement);
        }
    }
    out
}

fn write_labels(out: &mut String, title: &str, agreement: &LabelAgreement) {
    let shown = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.2}"));
    out.push_str(&format!(
        "\n{:<32} people  judge  both  precision  recall    F1\n",
        format!("{title} ({})", agreement.items)
    ));
    for row in &agreement.labels {
        out.push_str(&format!(
            "{:<32} {:>6} {:>6} {:>5} {:>10} {:>7} {:>5}\n",
            row.label.replace('_', " ").to_lowercase(),
            row.people,
            row.judge,
            row.overlap,
            shown(row.precision),
            shown(row.recall),
            shown(row.f1)
        ));
    }
    out.push_str(&format!(
        "{:<32} {:>19} {:>10} {:>7} {:>5}\n",
        "macro average",
        "",
        shown(agreement.precision),
        shown(agreement.recall),
        shown(agreement.f1)
    ));
}
