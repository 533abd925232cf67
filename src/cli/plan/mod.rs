//! `plan`: checks, scores and improves plans in files; learns weights from ranked plans.
//!
//! In: plans in any accepted form, tools and references, judges. Out: tables or JSON. The figures come from
//! [`verdict_eval::plan`]; this folder reads files and prints results.

mod batch;
mod files;
mod improve;
mod learn;
mod check_and_score;
mod show;

use clap::Subcommand;

use crate::cli::command::CommandFailure;

pub(super) const LONG_ABOUT: &str = "\
Check, score and improve plans in files.

A plan is an object of numbered steps, each with a call of a tool and the steps that it depends
on:

  {\"1\": {\"step\": \"T2S([], 'Fetch ids of long calls')\", \"depends_on\": []},
   \"2\": {\"step\": \"RAG((1), 'Why did they take so long?')\", \"depends_on\": [1]}}

Lists of steps with tool, prompt and depends_on are read as well, and so are todo lists and
numbered prose, of which fewer properties are measured. A file may hold {\"query\": ..., \"plan\":
...}; '-' is standard input.";

pub(super) const EXAMPLES: &str = "\
Examples:
  otel-verdict plan check plan.json --tools config/tools/contact-centre.yaml
  otel-verdict plan score plan.json --reference best.json --output json
  otel-verdict plan score plan.json --query 'Why do calls take long?' --judge main -c judges.yaml
  otel-verdict plan score plans/ --tools config/tools/contact-centre.yaml
  otel-verdict plan improve plan.json --judge main -c judges.yaml --lineage lineage.json
  otel-verdict plan learn-weights ordered.jsonl
  otel-verdict plan stats lineages/*.json

Exit codes:
  0  done
  1  'check' found something wrong, or less was judged than --require-judged demands
  2  unreadable input, wrong configuration or usage";

#[derive(Subcommand, Debug)]
pub(super) enum PlanCommand {
    /// Print the faults of a plan and its layout
    #[command(long_about = check_and_score::CHECK_LONG_ABOUT)]
    Check(check_and_score::PlanArgs),
    /// Measure a plan: seven metrics, a score, and a rating against a reference
    #[command(long_about = check_and_score::SCORE_LONG_ABOUT)]
    Score(check_and_score::PlanScoreArgs),
    /// Improve a plan with a judge, step by step
    #[command(long_about = improve::LONG_ABOUT)]
    Improve(improve::ImproveArgs),
    /// Fit the score's weights to plans that people have ranked
    #[command(long_about = learn::LONG_ABOUT)]
    LearnWeights(learn::PlanLearnArgs),
    /// Count what lineages of improved plans have in common
    #[command(long_about = learn::STATS_LONG_ABOUT)]
    Stats(learn::PlanStatsArgs),
}

pub(super) fn plan(command: &PlanCommand) -> Result<(), CommandFailure> {
    match command {
        PlanCommand::Check(args) => check_and_score::check(args),
        PlanCommand::Score(args) if args.plan.file.is_dir() => batch::score(args),
        PlanCommand::Score(args) => check_and_score::score(args),
        PlanCommand::Improve(args) => improve::improve(args),
        PlanCommand::LearnWeights(args) => learn::learn(args),
        PlanCommand::Stats(args) => learn::stats(args),
    }
}
