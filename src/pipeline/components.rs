//! The judges and exporters that a configuration describes, and the configuration of a running service.
//!
//! In: the configuration, with the extensions of the embedding program. Out: judges, and started exporters.

use std::sync::Arc;

use arc_swap::ArcSwap;
use verdict_eval::annotation::RenderedTrace;
use verdict_judge::Judges;
use verdict_otlp::Signal;
use verdict_telemetry::JudgeMetrics;

use super::ask_judges::QuestionAnswerer;
use super::budget::Budget;
use super::error::Error;
use super::runtime_config::RuntimeConfig;
use crate::config::Config;
use crate::export::{ExportContext, Exporters};
use crate::extensions::Extensions;

/// The configuration that a running service applies, and its judges. A reload replaces both.
#[derive(Debug)]
pub(super) struct CurrentComponents {
    pub config: Config,
    pub judges: Option<Judges>,
}

/// The judges; `None` if no metric names one. After a reload they continue the spending and the caches of `previous`.
pub(super) fn judges(
    config: &Config,
    extensions: &Extensions,
    previous: Option<&Judges>,
    metrics: &JudgeMetrics,
) -> Result<Option<Judges>, Error> {
    let mut are_asked = config.verdict.evaluation.named_judges().next().is_some();
    for metric in &extensions.metrics {
        for judge in metric.named_judges() {
            are_asked = true;
            if !config.has_judge(judge) && !extensions.judges.provides(judge) {
                return Err(Error::UnknownJudge { metric: metric.row.name, judge: judge.to_owned() });
            }
        }
    }
    if !are_asked {
        return Ok(None);
    }
    let judges = match previous {
        Some(previous) => previous.renewed(&config.judges, &config.judging),
        None => Judges::new(&config.judges, &config.judging, metrics, &extensions.judges),
    };
    Ok(Some(judges?))
}

/// The judges as the answerer of questions.
pub(super) fn answerer(judges: &Option<Judges>) -> Option<Arc<dyn QuestionAnswerer>> {
    judges.clone().map(|judges| Arc::new(judges) as Arc<dyn QuestionAnswerer>)
}

/// Starts the exporters of a configuration.
///
/// # Errors
/// An exporter cannot be started, or none accepts traces.
pub(super) fn exporters(
    config: &Config,
    extensions: &Extensions,
    budget: &Budget,
    runtime_config: &Arc<ArcSwap<RuntimeConfig>>,
) -> Result<Exporters, Error> {
    let context = ExportContext {
        clients: extensions.exporters.clone(),
        max_best_effort: budget.for_best_effort(),
        ..export_context(runtime_config, &config.verdict.evaluation.prefix)
    };
    let exporters = Exporters::start(&config.exporters, &config.service.exporters, &context)
        .map_err(|(id, source)| Error::Exporter { id, source })?;
    if exporters.accepts(Signal::Traces) { Ok(exporters) } else { Err(Error::NoTraces) }
}

/// The console exporter recognises spans by the conventions of the current configuration.
fn export_context(runtime_config: &Arc<ArcSwap<RuntimeConfig>>, prefix: &str) -> ExportContext {
    let (config, scales) = (Arc::clone(runtime_config), Arc::clone(runtime_config));
    let recognise = move |tree| {
        let config = config.load();
        RenderedTrace::new(config.evaluator.recogniser(), tree, config.evaluator.emission())
    };
    let normalize = move |name: &str, score| scales.load().evaluator.emission().normalized(name, score);
    ExportContext { normalize: Arc::new(normalize), ..ExportContext::new(Arc::new(recognise), prefix) }
}

#[cfg(test)]
mod tests {
    use verdict_config::Source;
    use verdict_otlp::trace::{Envelope, Kind, Span, SpanId, Status, TraceId, Tree};
    use verdict_otlp::value::SPAN_ATTRIBUTES;
    use verdict_otlp::write::{self, Scalar};

    use super::*;
    use crate::config::from_sources;

    #[test]
    fn console_exporter_uses_the_conventions_of_a_reload() {
        let runtime_config = |recognise: &str| {
            let text = format!("verdict: {{ recognise: {{ {recognise} }} }}");
            let config = from_sources(&[Source { name: "test".to_owned(), text }], &|_| None).unwrap();
            RuntimeConfig::new(&config.verdict, &Extensions::default(), None).unwrap()
        };
        let config = Arc::new(ArcSwap::from_pointee(runtime_config("")));
        let context = export_context(&config, "verdict.");
        let mut bytes = Vec::new();
        write::attribute(&mut bytes, SPAN_ATTRIBUTES, "acme.type", Scalar::Str("step"));
        let span = Span {
            id: SpanId([1; 8]),
            parent: SpanId::default(),
            start: 1,
            end: 2,
            status: Status::Unset,
            remote_parent: false,
            has_verdict: false,
            forwarded: false,
            skew: 0,
            bytes: bytes.into(),
            envelope: Envelope::default().into(),
        };
        let kind = || (context.recognise)(Tree::new(TraceId([1; 16]), vec![span.clone()])).kinds;
        assert_eq!(kind(), [Kind::Unknown]);
        config.store(Arc::new(runtime_config("kinds: [{ key: acme.type, values: { step: tool } }]")));
        assert_eq!(kind(), [Kind::Tool]);
    }
}
