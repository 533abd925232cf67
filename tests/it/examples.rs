//! The examples of embedding.

use verdict_eval::metrics::{Metric, MetricSpec, Scale};
use verdict_eval::{BuildError, Config, Evaluator};

#[allow(dead_code)]
#[path = "../../crates/eval/examples/configure.rs"]
mod configure;
#[allow(dead_code)]
#[path = "../../examples/custom_exporter.rs"]
mod custom_exporter;
#[allow(dead_code)]
#[path = "../../crates/eval/examples/custom_metric.rs"]
mod custom_metric;
#[allow(dead_code)]
#[path = "../../crates/eval/examples/embed.rs"]
mod embed;

fn demo(run: &str) -> Vec<u8> {
    std::fs::read(format!("{}/demo/{run}/001.pb", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

#[tokio::test]
async fn embedded_evaluator_is_called_from_async_code() {
    let evaluator = embed::evaluator().unwrap();
    let evaluated = embed::evaluate(&evaluator, &[demo("langgraph-openinference-m")]).await.unwrap();
    let lines: Vec<String> = evaluated.iter().flat_map(|e| embed::lines(&evaluator, e)).collect();
    assert!(
        lines.iter().any(|line| line.contains("passes Some(") && !line.contains(" 0 judged")),
        "{lines:?}"
    );
    assert!(lines.iter().all(|line| !line.contains(" 0 bytes")), "{lines:?}");
}

#[test]
fn custom_metric_is_measured_thresholded_propagated_and_written() {
    let request = demo("pydanticai-b");
    let failing = custom_metric::run(&request, 1.0).unwrap();
    let passing = custom_metric::run(&request, 0.0).unwrap();
    let brevity =
        |lines: &[String]| lines.iter().find(|line| line.starts_with("style.brevity Score(")).cloned();
    assert!(brevity(&failing).unwrap().contains("false at most 3 words were expected"), "{failing:?}");
    assert_eq!(failing.last().unwrap(), "trace passes: Some(false)");
    assert!(brevity(&passing).unwrap().contains(" true"), "{passing:?}");
}

#[test]
fn configuration_built_from_types_applies_and_invalid_values_are_refused() {
    let request = demo("pydanticai-b");
    let [failing, passing] = [1.0, 1e9].map(|max_ms| configure::run(&request, max_ms).unwrap());
    assert!(passing.contains(&"path.correctness 1".to_owned()), "{passing:?}");
    let failed =
        |lines: &[String]| lines.last().unwrap().split(' ').next().unwrap().parse::<usize>().unwrap();
    assert!(failed(&failing) > failed(&passing) + 1, "{failing:?} {passing:?}");
    let mut config = configure::config(1.0);
    config.metrics.completeness.threshold = 9.0;
    config.redact.patterns.push("a*".to_owned());
    let error = Evaluator::builder(&config).build().unwrap_err();
    let BuildError::Config(problems) = &error else { panic!("{error}") };
    let keys: Vec<&str> = problems.iter().map(|problem| problem.key.as_str()).collect();
    assert_eq!(keys, ["metrics.completeness.threshold", "redact.patterns[1]"], "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn custom_exporter_receives_annotated_spans() {
    let lines = Box::pin(custom_exporter::run(vec![demo("pydanticai-b"), demo("strands-c")])).await.unwrap();
    assert_eq!(lines.last().unwrap(), "0 dropped", "{lines:?}");
    let numbers = |line: &String| {
        let mut words = line.split(' ').filter_map(|word| word.parse::<usize>().ok());
        (words.next().unwrap(), words.next().unwrap())
    };
    let counts: Vec<(usize, usize)> = lines.iter().take(lines.len() - 1).map(numbers).collect();
    assert!(
        !counts.is_empty() && counts.iter().all(|(spans, results)| *spans > 0 && *results > 0),
        "{lines:?}"
    );
}

/// A metric without measurements.
struct NoMeasurements;

impl Metric for NoMeasurements {
    fn step(
        &self,
        _: &verdict_eval::metrics::Context<'_>,
        _: &[verdict_eval::questions::Answer],
    ) -> verdict_eval::metrics::MetricProgress {
        verdict_eval::metrics::MetricProgress::Done(Vec::new())
    }
}

#[test]
fn metric_with_a_taken_or_invalid_name_is_refused() {
    static TAKEN: MetricSpec = MetricSpec::custom("avoidance", Scale::FIVE, Some(4.0));
    static NO_KEY: MetricSpec = MetricSpec::custom("My Metric", Scale::FIVE, Some(4.0));
    static OFF_SCALE: MetricSpec = MetricSpec::custom("mine", Scale::UNIT, Some(4.0));
    static FINE: MetricSpec = MetricSpec::custom("mine.too", Scale::UNIT, Some(0.4));
    let config = Config::default();
    let built = |row: &'static MetricSpec| {
        Evaluator::builder(&config).metric(row, row.defaults(), NoMeasurements).build()
    };
    for row in [&TAKEN, &NO_KEY, &OFF_SCALE] {
        let error = built(row).unwrap_err().to_string();
        assert!(error.starts_with(&format!("metric '{}': ", row.name)), "{error}");
    }
    built(&FINE).unwrap();
    let twice = Evaluator::builder(&config).metric(&FINE, FINE.defaults(), NoMeasurements);
    let error = twice.metric(&FINE, FINE.defaults(), NoMeasurements).build().unwrap_err();
    assert_eq!(error.to_string(), "metric 'mine.too': added twice");
}
