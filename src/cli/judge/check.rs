//! `judge check`: one question to every configured judge.
//!
//! In: the configuration. Out: for each judge whether it answers in the required form, how fast, what its server
//! accepts, and the price of the question.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use clap::{Args, Subcommand};
use futures_util::future::join_all;
use serde::Serialize;
use serde_json::{Value, json};
use verdict_eval::evaluators::{RequestedScale, probe, run_code};
use verdict_eval::questions::{AnswerForm, Ask, Prompt, Question, QuestionContext, ScoreField};
use verdict_judge::{BatchMode, EVALUATOR, JudgeConfig, JudgeExtensions, JudgeReport, Judges, JudgingConfig};
use verdict_otlp::trace::TraceId;
use verdict_telemetry::JudgeMetrics;

use crate::cli::command::{CommandFailure, ConfigFiles, FiguresFormat, runtime};
use crate::cli::table::TextTable;

pub(in crate::cli) const LONG_ABOUT: &str = "Examine the judges of a configuration.";

pub(in crate::cli) const EXAMPLES: &str = "\
Examples:
  otel-verdict judge check -c judges.yaml
  otel-verdict judge check main -c judges.yaml --output json

Exit codes:
  0  every judge answered
  1  a judge did not
  2  wrong configuration or usage";

const CHECK_LONG_ABOUT: &str = "\
Ask every configured judge one question.

Prints whether the answer has the required form, its latency, how the server takes the schema of
answers, whether it returns probabilities of tokens, what it refuses (and what is sent instead),
and the tokens and price of the question. No cache is used and nothing is recorded. A judge that
only replays a recording is not asked.";

#[derive(Subcommand, Debug)]
pub(in crate::cli) enum JudgeCommand {
    /// Ask every configured judge one question
    #[command(long_about = CHECK_LONG_ABOUT, after_long_help = EXAMPLES)]
    Check(JudgeCheckArgs),
}

#[derive(Args, Debug)]
pub(in crate::cli) struct JudgeCheckArgs {
    /// Names of judges, or of cascades for their members; default: all
    #[arg(value_name = "JUDGE")]
    names: Vec<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: FiguresFormat,
    #[command(flatten)]
    config: ConfigFiles,
}

/// The result of one question to a judge.
#[derive(Serialize)]
struct JudgeCheck {
    judge: String,
    model: String,
    ok: bool,
    /// Why there is no answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    seconds: f64,
    /// How the request contains the schema of the answer.
    schema: &'static str,
    /// Whether probabilities of tokens were returned; they were requested from chat completions only.
    logprobs: bool,
    tokens_in: u64,
    tokens_out: u64,
    /// The cost of this question; `None` without a configured price.
    #[serde(skip_serializing_if = "Option::is_none")]
    cost_usd: Option<f64>,
    adapted: Vec<&'static str>,
    messages: Vec<String>,
}

pub(in crate::cli) fn judge(command: &JudgeCommand) -> Result<(), CommandFailure> {
    let JudgeCommand::Check(args) = command;
    let config = args.config.load()?;
    if let Some(name) = args.names.iter().find(|name| !config.has_judge(name)) {
        return Err(CommandFailure::Usage(format!("judge '{name}' is not defined under 'judges'")));
    }
    // A cascade is replaced by its members.
    let names: Vec<&str> = args.names.iter().flat_map(|name| config.judging.members(name)).collect();
    let is_chosen = |name: &String| names.is_empty() || names.contains(&name.as_str());
    let asked_judges: BTreeMap<String, JudgeConfig> = config
        .judges
        .iter()
        .filter(|(name, judge)| is_chosen(name) && judge.replay.is_none())
        .map(|(name, judge)| (name.clone(), config_for_check(judge)))
        .collect();
    if asked_judges.is_empty() {
        return Err(CommandFailure::Usage(
            "the configuration (--config) defines no judge that can be asked".to_owned(),
        ));
    }
    let mut judging = JudgingConfig::default();
    judging.cache.entries = 0;
    let (metrics, extensions) = (JudgeMetrics::default(), JudgeExtensions::default());
    let judges = Judges::for_batch(&asked_judges, &judging, &metrics, &extensions, BatchMode::default());
    let judges = judges.map_err(|e| CommandFailure::Usage(e.to_string()))?;
    let runtime = runtime()?;
    let evaluation = &config.verdict.evaluation;
    let checks = asked_judges.iter().map(|(name, judge)| check(&judges, name, judge, evaluation));
    let checked = runtime.block_on(join_all(checks));
    args.output.print(&checked, || table(&checked))?;
    let failed: Vec<&str> = checked
        .iter()
        .filter(|check_result| !check_result.ok)
        .map(|check_result| check_result.judge.as_str())
        .collect();
    if failed.is_empty() {
        Ok(())
    } else {
        Err(CommandFailure::Run(format!("no answer: {}", failed.join(", "))))
    }
}

/// The configuration with one sample, one attempt and probabilities of tokens.
fn config_for_check(config: &JudgeConfig) -> JudgeConfig {
    JudgeConfig { samples: 1, retries: 0, hedge_after: None, logprobs: true, record: None, ..config.clone() }
}

async fn check(
    judges: &Judges,
    name: &str,
    config: &JudgeConfig,
    evaluation: &verdict_eval::Config,
) -> JudgeCheck {
    let started = Instant::now();
    let ask = Ask {
        id: 0,
        at: 0,
        metric: "judge.check",
        question: match config.dialect.as_str() {
            EVALUATOR => evaluator_question(name, evaluation),
            dialect => question(dialect),
        },
        judges: vec![name.to_owned()],
        services: Arc::default(),
        context: QuestionContext::default(),
    };
    let answer = judges.ask(TraceId([0; 16]), &ask).await;
    let elapsed = started.elapsed();
    let report = judges.report().into_iter().find(|report| report.judge == name).unwrap_or_default();
    let opinion = answer.opinions.as_ref().ok().and_then(|opinions| opinions.first());
    let failure = report.failed.keys().next().cloned().unwrap_or_else(|| "no answer".to_owned());
    let priced = config.price.input > 0.0 || config.price.output > 0.0;
    JudgeCheck {
        judge: name.to_owned(),
        model: config.model.clone(),
        ok: opinion.is_some(),
        error: opinion.is_none().then_some(failure),
        seconds: if report.seconds_max > 0.0 { report.seconds_max } else { elapsed.as_secs_f64() },
        schema: schema(config, &report),
        logprobs: opinion.is_some_and(|opinion| opinion.weighted.is_some()),
        tokens_in: report.tokens.input + report.tokens.cached,
        tokens_out: report.tokens.output,
        cost_usd: priced.then_some(report.cost_usd),
        adapted: report.adapted.into_iter().collect(),
        messages: report.messages.into_iter().collect(),
    }
}

/// How the server accepts the schema of an answer.
fn schema(config: &JudgeConfig, report: &JudgeReport) -> &'static str {
    use verdict_judge::config::Format;
    let is_adapted = |part: &str| report.adapted.iter().any(|change| change.contains(part));
    match (config.dialect.as_str(), config.format) {
        ("rerank" | "embeddings" | EVALUATOR, _) => "-",
        ("anthropic", _) => "tool",
        (_, Format::Text) => "in prompt",
        (_, _) if is_adapted("in the prompt only") => "in prompt",
        (_, Format::Object) => "JSON object",
        (_, _) if is_adapted("JSON object") => "JSON object",
        (_, _) if is_adapted("not strict") => "schema, not strict",
        _ => "strict schema",
    }
}

/// The id of an invented trace.
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// A question about the first metric that the evaluator answers; a program, if the evaluator runs programs; otherwise a
/// question about an unknown metric.
fn evaluator_question(name: &str, evaluation: &verdict_eval::Config) -> Question {
    let assignment = evaluation.evaluator_judges().find(|(_, judge)| *judge == name);
    let metric_evaluator =
        assignment.and_then(|(metric, _)| Some((metric, evaluation.evaluators.get(metric)?)));
    match metric_evaluator {
        Some((metric, evaluator)) => probe(metric, RequestedScale::from_config(evaluator)),
        None if evaluation.named_judges().any(|(_, judge)| judge == name) => {
            // A metric names this evaluator, and it answers no custom metric: it runs the programs of tool calls.
            run_code("check", "print(6 * 7)", "00f067aa0ba902b7".to_owned(), TRACE.to_owned())
        }
        None => probe("check", RequestedScale::Score { min: 1, max: 5 }),
    }
}

/// A question whose answer costs few tokens.
fn question(dialect: &str) -> Question {
    let numbers = |key: &str| {
        let list = json!({ "type": "array", "items": { "type": "number" } });
        json!({ "type": "object", "properties": { key: list }, "required": [key] })
    };
    let texts = json!(["The capital of France is Paris.", "Bread is baked in an oven."]).to_string();
    let (prompt, schema, score) = match dialect {
        "rerank" => (Prompt::new("Which city is the capital of France?", texts), numbers("scores"), None),
        "embeddings" => (Prompt::new("", texts), numbers("cosines"), None),
        _ => {
            let system = "You rate whether an answer follows its instruction, from 1 (not at all) to 5 (fully). \
                          Give a rationale of one short sentence, then the score.";
            let user = "Instruction: count to three. Answer: one, two, three.";
            let score = Some(ScoreField { key: "score", values: vec![1, 2, 3, 4, 5] });
            (Prompt::new(system, user), rating_schema(), score)
        }
    };
    let form = Arc::new(AnswerForm { name: "verdict", schema, score });
    Question { key: "check".to_owned(), prompt, form, judges: Vec::new() }
}

fn rating_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "rationale": { "type": "string" },
            "score": { "type": "integer", "enum": [1, 2, 3, 4, 5] },
        },
        "required": ["rationale", "score"],
        "additionalProperties": false,
    })
}

fn table(checked: &[JudgeCheck]) -> String {
    let mut table = TextTable::new([
        "judge",
        "model",
        "answer",
        "seconds",
        "schema",
        "logprobs",
        "tokens in",
        "out",
        "USD",
    ]);
    let mut notes = String::new();
    for check_result in checked {
        let answer = check_result.error.clone().unwrap_or_else(|| "ok".to_owned());
        let usd = check_result.cost_usd.map_or_else(|| "no price".to_owned(), |usd| format!("{usd:.6}"));
        let logprobs = if check_result.logprobs { "yes" } else { "no" };
        table.add_row([
            check_result.judge.clone(),
            check_result.model.clone(),
            answer,
            format!("{:.2}", check_result.seconds),
            check_result.schema.to_owned(),
            logprobs.to_owned(),
            check_result.tokens_in.to_string(),
            check_result.tokens_out.to_string(),
            usd,
        ]);
        for change in &check_result.adapted {
            notes.push_str(&format!("{}: request adapted to the server: {change}\n", check_result.judge));
        }
        for message in &check_result.messages {
            notes.push_str(&format!("{}: message of the server: {message}\n", check_result.judge));
        }
    }
    table.render() + &notes
}
