//! Results of the questions to judges, as text and JSON.
//!
//! In: the tallies of the judges, and the outcome of each metric that asked one. Out: [`RunReport`].

use std::collections::BTreeMap;

use serde::Serialize;
use verdict_eval::metrics::Unmeasured;
use verdict_judge::{CascadeReport, JudgeReport, PlannedQuestions};

use crate::cli::table::TextTable;
use crate::pipeline::offline::{AskOutcome, AskedMetric};

/// The outcomes of a metric for which judges were asked.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub(in crate::cli) struct MetricOutcomes {
    pub(super) asked: u64,
    pub(super) by_judge: u64,
    /// The judge gave no valid answer, and the rules' result applies.
    pub(super) by_rules: u64,
    pub(super) unmeasured: BTreeMap<&'static str, u64>,
}

/// The outcomes by metric. A command's own questions have names of their own.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
#[serde(transparent)]
pub(in crate::cli) struct Outcomes(pub(super) BTreeMap<&'static str, MetricOutcomes>);

impl Outcomes {
    pub(super) fn add(&mut self, asked: &AskedMetric) {
        let outcomes = self.0.entry(asked.metric).or_default();
        outcomes.asked += 1;
        match asked.outcome {
            AskOutcome::Judge => outcomes.by_judge += 1,
            AskOutcome::Rules => outcomes.by_rules += 1,
            AskOutcome::Unmeasured(reason) => *outcomes.unmeasured.entry(reason.as_str()).or_default() += 1,
        }
    }

    /// Adds the outcome of a question that a command asked; `failed` is the reason for an absent answer.
    pub(super) fn add_question(&mut self, metric: &'static str, failed: Option<Unmeasured>) {
        let outcome = failed.map_or(AskOutcome::Judge, AskOutcome::Unmeasured);
        self.add(&AskedMetric { metric, outcome });
    }

    /// The share that a judge measured; `None` if none was asked.
    #[allow(clippy::cast_precision_loss)]
    fn judged_share(&self) -> Option<f64> {
        let sum = |field: fn(&MetricOutcomes) -> u64| self.0.values().map(field).sum::<u64>();
        let asked = sum(|outcomes| outcomes.asked);
        (asked > 0).then(|| sum(|outcomes| outcomes.by_judge) as f64 / asked as f64)
    }
}

/// The report at the end of a command.
#[derive(Clone, Debug, Serialize)]
pub(in crate::cli) struct RunReport {
    pub(super) dry_run: bool,
    pub(super) seconds: f64,
    /// The share of the metrics and questions below that a judge answered.
    pub(super) judged_share: Option<f64>,
    pub(super) judges: Vec<JudgeReport>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) cascades: Vec<CascadeReport>,
    pub(super) metrics: Outcomes,
}

impl RunReport {
    pub(super) fn new(seconds: f64, judges: Vec<JudgeReport>, metrics: Outcomes, dry_run: bool) -> RunReport {
        let judged_share = metrics.judged_share();
        RunReport { dry_run, seconds, judged_share, judges, cascades: Vec::new(), metrics }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.judges.is_empty()
    }

    /// A message that names the shares below `required`; `None` if there are none.
    pub(super) fn shortfall(&self, required: f64) -> Option<String> {
        let percent = |share: f64| format!("{:.1} %", 100.0 * share);
        let Some(share) = self.judged_share else {
            return Some("no question was sent to a judge".to_owned());
        };
        let mut shortfalls = Vec::new();
        if share < required {
            shortfalls.push(format!("judges measured {}", percent(share)));
        }
        for judge in &self.judges {
            let share = judge.answered_share().filter(|share| *share < required);
            shortfalls
                .extend(share.map(|share| format!("judge '{}' answered {}", judge.judge, percent(share))));
        }
        let needed = format!("--require-judged needs {}", percent(required));
        (!shortfalls.is_empty()).then(|| format!("{}; {needed}", shortfalls.join(", ")))
    }

    pub(super) fn text(&self) -> String {
        if self.dry_run {
            return self.dry_run_text();
        }
        let mut out = format!("judges ({}):\n", duration(self.seconds));
        for judge in &self.judges {
            out.push_str(&judge_text(judge));
        }
        self.cascades.iter().for_each(|cascade| out.push_str(&cascade_text(cascade)));
        let partly_judged = self.metrics.0.iter().filter(|(_, outcomes)| outcomes.by_judge < outcomes.asked);
        let mut table =
            TextTable::new(["not measured by a judge", "asked", "by judges", "by rules", "unmeasured"]);
        let mut rows = 0;
        for (metric, outcomes) in partly_judged {
            rows += 1;
            let counts = [outcomes.asked, outcomes.by_judge, outcomes.by_rules].map(|n| n.to_string());
            let reasons: Vec<String> =
                outcomes.unmeasured.iter().map(|(reason, n)| format!("{reason} {n}")).collect();
            table.add_row([(*metric).to_owned()].into_iter().chain(counts).chain([reasons.join(", ")]));
        }
        if rows > 0 {
            out.push_str(&table.render());
        }
        out
    }

    /// The report of a dry run: the questions that would be asked.
    fn dry_run_text(&self) -> String {
        let mut table = TextTable::new([
            "judge",
            "questions",
            "cached",
            "prompt tokens",
            "answer tokens",
            "at most",
            "USD",
            "at most",
        ]);
        for judge in &self.judges {
            let PlannedQuestions {
                questions,
                input_tokens,
                output_tokens,
                output_tokens_at_most,
                cost_usd,
                cost_usd_at_most,
            } = judge.planned.unwrap_or_default();
            let counts = [questions, judge.cached, input_tokens, output_tokens, output_tokens_at_most];
            let in_usd = |usd: f64| if judge.priced { format!("{usd:.2}") } else { "no price".to_owned() };
            let usd = [cost_usd, cost_usd_at_most].map(in_usd);
            let cells = counts.map(|n| n.to_string()).into_iter().chain(usd);
            table.add_row([judge.judge.clone()].into_iter().chain(cells));
        }
        format!(
            "{}\nEstimates: four bytes a token, answers of usual length. Questions that depend on answers (further \
             rounds, scores of runs judged in parts, categories, repeated requests) are not counted; those to the \
             second judge of a cascade only under 'at most'.\n",
            table.render()
        )
    }
}

fn cascade_text(cascade: &CascadeReport) -> String {
    let CascadeReport { cascade: name, first, then, questions, compared, agreed, spent, avoided } = cascade;
    let counts: Vec<String> = questions.iter().map(|(result, n)| format!("{n} {result}")).collect();
    let total: u64 = questions.values().sum();
    let kept_answers = questions.get("kept").copied().unwrap_or(0);
    let saved = avoided.cost_usd - spent.cost_usd;
    format!(
        "  {name} ({first}, then {then}): {total} questions, {kept_answers} without {then} ({})\n    both answered {compared}, \
         agreed on {agreed}; {then} would have taken about {} tokens and {:.4} USD more, {first} took {} and {:.4}: \
         saved {saved:.4} USD\n",
        counts.join(", "),
        avoided.tokens,
        avoided.cost_usd,
        spent.tokens,
        spent.cost_usd,
    )
}

fn judge_text(judge: &JudgeReport) -> String {
    let JudgeReport { judge: name, model, tokens, .. } = judge;
    let mut parts = vec![format!("{} asked", judge.asked), format!("{} answered", judge.answered)];
    let mut add_count = |n: u64, label: &str| parts.extend((n > 0).then(|| format!("{n} {label}")));
    add_count(judge.cached, "from cache");
    add_count(judge.replayed, "from a recording");
    add_count(judge.repaired, "repaired");
    add_count(judge.withheld, "withheld");
    let failed: u64 = judge.failed.values().sum();
    if failed > 0 {
        let reasons: Vec<String> = judge.failed.iter().map(|(reason, n)| format!("{reason} {n}")).collect();
        parts.push(format!("{failed} failed ({})", reasons.join(", ")));
    }
    let input = tokens.input + tokens.cached;
    let mut out = format!("  {name} ({model}): {}\n", parts.join(", "));
    out.push_str(&format!(
        "    {input} tokens in, {} out, {:.4} USD; {} requests, {:.2} s each, {:.2} s at most\n",
        tokens.output, judge.cost_usd, judge.requests, judge.seconds_mean, judge.seconds_max
    ));
    for change in &judge.adapted {
        out.push_str(&format!("    request adapted to the server: {change}\n"));
    }
    for message in &judge.messages {
        out.push_str(&format!("    message of the server: {message}\n"));
    }
    out
}

fn duration(seconds: f64) -> String {
    let whole = std::time::Duration::from_secs_f64(seconds.max(0.0).round());
    humantime::format_duration(whole).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(answered: u64, failed: u64, by_judge: u64, by_rules: u64) -> RunReport {
        let mut judge =
            JudgeReport { judge: "main".into(), asked: answered + failed, answered, ..Default::default() };
        if failed > 0 {
            judge.failed.insert("http_500".to_owned(), failed);
        }
        let mut metrics = Outcomes::default();
        for (n, outcome) in [(by_judge, AskOutcome::Judge), (by_rules, AskOutcome::Rules)] {
            (0..n).for_each(|_| metrics.add(&AskedMetric { metric: "completeness", outcome }));
        }
        RunReport::new(61.2, vec![judge], metrics, false)
    }

    #[test]
    fn the_required_share_holds_for_metrics_and_for_each_judge() {
        assert_eq!(report(19, 1, 20, 0).shortfall(0.95), None);
        let half_judged = report(20, 0, 10, 10).shortfall(0.95).unwrap();
        assert_eq!(half_judged, "judges measured 50.0 %; --require-judged needs 95.0 %");
        let unanswered = report(18, 2, 20, 0).shortfall(0.95).unwrap();
        assert!(unanswered.starts_with("judge 'main' answered 90.0 %"), "{unanswered}");
        assert!(report(0, 0, 0, 0).shortfall(0.0).is_some(), "nothing was asked");
    }

    #[test]
    fn failures_and_metrics_without_a_judge_are_named() {
        let text = report(18, 2, 18, 2).text();
        for part in ["judges (1m 1s)", "20 asked, 18 answered, 2 failed (http_500 2)", "completeness"] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert!(!report(20, 0, 20, 0).text().contains("completeness"));
    }
}
