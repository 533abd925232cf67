//! `consistency`: agreement of judges with themselves (paper 000, section 4.1.4).
//!
//! In: traces, a configuration whose metrics name judges. Out: for each metric alpha, the spread between
//! runs, and the similarity of the rationales.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use serde_json::json;
use verdict_eval::trace::Text;
use verdict_judge::config::JudgeConfig;

use super::judge::options::JudgeOptions;
use super::judge::run::JudgeRun;
use super::judge::session::JudgeSession;
use crate::cli::command::{CommandFailure, ConfigFiles, FiguresFormat, write_stderr};
use crate::cli::recording;
use crate::cli::table::{TextTable, figure, optional_figure};
use crate::config::Config;
use crate::score::consistency::{self, Consistency, SpanKey, SpanRating};
use crate::score::likeness;

/// The dialect of endpoints that embed texts.
const EMBEDDINGS: &str = "embeddings";

pub(super) const LONG_ABOUT: &str = "\
Ask judges repeatedly and measure how much they agree with themselves.

Judges every trace several times; the runs share no cached answers. For each metric that a judge
answered: Krippendorff's alpha over scores (by distance, with a 95 % interval, and by rank), the
mean standard deviation between runs with the half-width of its 95 % interval, both on scores
scaled to 0..1, and how alike the rationales are: by their meaning, as the cosine of their
embeddings, where the configuration has a judge of dialect 'embeddings'; otherwise by their words
(TF-IDF cosine: lexical, synonyms are different words). Alpha is undefined ('-') if all scores are
equal.

A judge with temperature 0, the default with one sample, is asked for its most probable answer
each time: its agreement is that of a deterministic setting, and says little about how sure the
judge is. Set 'temperature' to measure that.

Every run asks all questions again: the cost grows with the number of runs.";

pub(super) const EXAMPLES: &str = "\
Examples:
  otel-verdict consistency recordings/ --config judges.yaml
  otel-verdict consistency trace.json --config judges.yaml --runs 10 --output json
  otel-verdict consistency recordings/ --config judges.yaml --dry-run";

#[derive(Args, Debug)]
pub(super) struct ConsistencyArgs {
    /// Files and folders to read; '-' is standard input
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Number of times that each trace is judged
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(2..=100))]
    runs: u32,
    /// Judge of dialect 'embeddings' that compares rationales; by default the only such judge
    #[arg(long, value_name = "JUDGE")]
    embeddings: Option<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: FiguresFormat,
    #[command(flatten)]
    judges: JudgeOptions,
    #[command(flatten)]
    config: ConfigFiles,
}

type MetricConsistency = BTreeMap<String, Option<Consistency>>;

pub(super) fn consistency(args: &ConsistencyArgs) -> Result<(), CommandFailure> {
    let config = args.config.load()?;
    if config.verdict.evaluation.named_judges().next().is_none() {
        let message =
            "no metric names a judge (verdict.metrics.judges): rules give the same answers in every run";
        return Err(CommandFailure::Usage(message.to_owned()));
    }
    let run = JudgeRun::start(&args.judges, &config, true)?;
    let embeddings = embedding_judge(&run, &config, args.embeddings.as_deref())?;
    let deterministic = deterministic_judges(&config);
    let print_warning = || {
        write_stderr(&format!(
            "temperature 0: {}; the runs of such a judge measure whether the setting is deterministic, not \
             how stable its judgement is (set judges.<name>.temperature)",
            deterministic.join(", ")
        ));
    };
    let mut is_warned = deterministic.is_empty();
    let mut runs: Vec<BTreeMap<(String, SpanKey), SpanRating>> = vec![BTreeMap::new(); args.runs as usize];
    let mut services: BTreeSet<Text> = BTreeSet::new();
    recording::evaluate_repeatedly(&config, &args.paths, args.runs, &run, |number, judged| {
        // Printed with the first answers: the input is readable then, and the user can still stop the other runs.
        if !std::mem::replace(&mut is_warned, true) {
            print_warning();
        }
        services.extend(verdict_eval::services(&judged.trace).iter().cloned());
        if let Some(run_ratings) = runs.get_mut(number as usize) {
            run_ratings.extend(consistency::ratings(&judged.trace, &judged.measurements));
        }
    })?;
    let ratings_by_metric = consistency::group_by_metric(&runs);
    if run.is_dry() {
        return run.finish();
    }
    if ratings_by_metric.is_empty() {
        run.finish()?;
        return Err(CommandFailure::Run("no judge measured anything in the input".to_owned()));
    }
    let summary = |(metric, ratings): (&String, &Vec<Vec<SpanRating>>)| {
        (metric.clone(), Consistency::from_ratings(ratings))
    };
    let mut figures: MetricConsistency = ratings_by_metric.iter().map(summary).collect();
    if let Some(judge) = &embeddings {
        compare_rationales(judge, &services.into_iter().collect(), &ratings_by_metric, &mut figures);
    }
    let likeness = embeddings.map_or("lexical (TF-IDF)".to_owned(), |judge| {
        format!("by embeddings of judge '{}'", judge.names().join(", "))
    });
    let json = json!({
        "runs": args.runs, "metrics": figures, "likeness": likeness, "temperature_0": deterministic,
    });
    run.print(args.output, &json, || table(&figures, args.runs, &likeness))
}

/// The judge that compares rationales: the named one, or the only one of its dialect.
fn embedding_judge(
    run: &JudgeRun,
    config: &Config,
    named: Option<&str>,
) -> Result<Option<JudgeSession>, CommandFailure> {
    let embedding_judges = config.judges.iter().filter(|(_, judge)| judge.dialect == EMBEDDINGS);
    let judge_names: Vec<&str> = embedding_judges.map(|(name, _)| name.as_str()).collect();
    let chosen = match (named, judge_names.as_slice()) {
        (Some(name), _) if config.judges.get(name).is_some_and(|judge| judge.dialect != EMBEDDINGS) => {
            let message = format!("--embeddings: judge '{name}' is not of dialect '{EMBEDDINGS}'");
            return Err(CommandFailure::Usage(message));
        }
        (Some(name), _) => name,
        (None, []) => return Ok(None),
        (None, [only]) => only,
        (None, several) => {
            let message = format!("several judges are of dialect '{EMBEDDINGS}' ({})", several.join(", "));
            return Err(CommandFailure::Usage(format!("{message}; choose one with --embeddings")));
        }
    };
    JudgeSession::new(run, config, &[chosen.to_owned()]).map(Some)
}

/// The judges named by metrics whose answers do not vary between runs.
fn deterministic_judges(config: &Config) -> Vec<&str> {
    let named: BTreeSet<&str> = config.asked_judges();
    let is_fixed = |name: &&str| config.judges.get(*name).is_some_and(JudgeConfig::is_deterministic);
    named.into_iter().filter(is_fixed).collect()
}

fn compare_rationales(
    judge: &JudgeSession,
    services: &Arc<[Text]>,
    ratings_by_metric: &BTreeMap<String, Vec<Vec<SpanRating>>>,
    figures: &mut MetricConsistency,
) {
    let (metrics, questions): (Vec<String>, Vec<_>) =
        likeness::questions(ratings_by_metric, |text| judge.clean(text)).into_iter().unzip();
    let answers = judge.ask_about(services, "consistency.likeness", questions);
    let failed = answers.iter().filter(|answer| answer.opinions.is_err()).count();
    if failed > 0 {
        write_stderr(&format!("{failed} of {} comparisons of rationales failed", answers.len()));
    }
    for (metric, mean) in likeness::means(&metrics, &answers) {
        if let Some(Some(metric_figures)) = figures.get_mut(&metric) {
            metric_figures.embedding_similarity = Some(mean);
        }
    }
}

fn table(figures: &MetricConsistency, runs: u32, likeness: &str) -> String {
    let head =
        ["metric", "places", "ratings", "alpha interval", "alpha ordinal", "mean sd", "+-", "likeness"];
    let mut t = TextTable::new(head);
    for (metric, figures) in figures {
        let Some(c) = figures else {
            t.add_row([metric.clone(), "no span was rated twice".to_owned()]);
            continue;
        };
        let alpha =
            c.alpha_interval.map_or_else(|| optional_figure(None), |alpha| figure(alpha, c.alpha_range));
        let similarity = c.embedding_similarity.or(c.similarity);
        let other_figures =
            [c.alpha_ordinal, Some(c.mean_deviation), c.half_width, similarity].map(optional_figure);
        let counts = [c.spans, c.ratings].map(|n| n.to_string());
        t.add_row([metric.clone()].into_iter().chain(counts).chain([alpha]).chain(other_figures));
    }
    format!("{runs} runs; likeness of rationales: {likeness}\n\n{}", t.render())
}
