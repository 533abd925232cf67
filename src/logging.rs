//! Logs of this process on standard error: one line per event, as text or JSON.
//!
//! In: a level (or directives) and a format. Out: the process-wide subscriber, whose level can be changed
//! while it runs. At `info` and above no event contains content of spans or secrets; secrets cannot be
//! printed at all ([`verdict_config::Secret`]). The message of a panic can quote the text that was read, so a panic is
//! logged by its location.

use std::io::IsTerminal;
use std::panic::PanicHookInfo;
use std::sync::OnceLock;

use tokio::task::JoinError;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::reload::{Handle, Layer};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Registry, fmt};

/// The format of log lines.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// `text` on a terminal, else `json`.
    #[default]
    Auto,
    /// One readable line per event.
    Text,
    /// One JSON object per line.
    Json,
}

/// Logging could not be initialised, or its level not changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Neither a level nor a list of `target=level`.
    #[error("log level {level:?}: {reason}")]
    Level { level: String, reason: String },
    /// The process has a subscriber already.
    #[error("logging is initialised already")]
    AlreadyInitialised,
    /// [`init`] was not called, so that there is no level to change.
    #[error("logging is not initialised")]
    NotInitialised,
}

/// A layer of the process-wide subscriber.
pub(crate) type BoxedLayer = Box<dyn tracing_subscriber::Layer<Registry> + Send + Sync>;

/// Libraries log little of use below `warn`, and their `debug` lines would contain headers with tokens.
const LIBRARY_DIRECTIVES: &str = "h2=warn,hyper=warn,hyper_util=warn,tower=warn,rustls=warn,reqwest=warn,tonic=warn,opentelemetry=warn,otel_verdict::self=off";

/// Parses a level (`info`) or directives (`info,otel_verdict::export=debug`).
///
/// # Errors
/// The text is neither.
pub fn filter(level: &str) -> Result<EnvFilter, Error> {
    let invalid = |level: &str, reason: String| Error::Level { level: level.to_owned(), reason };
    let libraries = EnvFilter::builder()
        .parse(LIBRARY_DIRECTIVES)
        .map_err(|e| invalid(LIBRARY_DIRECTIVES, e.to_string()))?;
    level.split(',').map(str::trim).filter(|part| !part.is_empty()).try_fold(libraries, |filter, part| {
        let directive = part.parse().map_err(|e| invalid(level, format!("{part:?}: {e}")))?;
        Ok(filter.add_directive(directive))
    })
}

/// Initialises logging for the whole process, and replaces the panic hook by one that logs. Can be called once.
///
/// # Errors
/// `level` is invalid, or logging is initialised already.
pub fn init(level: &str, format: Format) -> Result<(), Error> {
    init_with(level, format, None)
}

/// Like [`init`], with an additional layer that receives the spans of this process.
///
/// # Errors
/// `level` is invalid, or logging is initialised already.
pub(crate) fn init_with(level: &str, format: Format, spans: Option<BoxedLayer>) -> Result<(), Error> {
    let (filter, handle) = Layer::new(filter(level)?);
    let terminal = std::io::stderr().is_terminal();
    let line_layer = fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(terminal && std::env::var_os("NO_COLOR").is_none());
    let json = match format {
        Format::Auto => !terminal,
        Format::Text => false,
        Format::Json => true,
    };
    let line_layer = if json {
        line_layer.json().flatten_event(true).with_current_span(false).with_span_list(false).boxed()
    } else {
        line_layer.boxed()
    };
    // The filter is that of the lines alone: spans do not depend on the level.
    let line_layer = line_layer.with_filter(filter).boxed();
    let layers: Vec<BoxedLayer> = spans.into_iter().chain([line_layer]).collect();
    Registry::default().with(layers).try_init().map_err(|_| Error::AlreadyInitialised)?;
    std::panic::set_hook(Box::new(log_panic));
    FILTER.set(handle).map_err(|_| Error::AlreadyInitialised)
}

/// Logs the location of a panic. Its message is left out: that of an invalid slice of a text quotes the text.
fn log_panic(panic: &PanicHookInfo<'_>) {
    let location = panic.location().map(tracing::field::display);
    tracing::error!(location, "a panic, which is a bug");
}

/// The reason why a task ended without a result. The message of a panic can quote content and is left out;
/// [`log_panic`] has logged its location.
pub(crate) fn join_error_reason(error: &JoinError) -> &'static str {
    if error.is_panic() { "its task panicked" } else { "its task was cancelled" }
}

/// The filter of the process-wide subscriber.
static FILTER: OnceLock<Handle<EnvFilter, Registry>> = OnceLock::new();

/// Changes the level.
///
/// # Errors
/// `level` is invalid, or logging was not initialised by [`init`].
pub fn set_level(level: &str) -> Result<(), Error> {
    let filter = filter(level)?;
    FILTER.get().and_then(|handle| handle.reload(filter).ok()).ok_or(Error::NotInitialised)
}

/// The log output of the code under test.
#[cfg(test)]
pub(crate) mod testing {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Write for Log {
        fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(line)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// Collects the log lines of this thread until it is dropped.
    pub(crate) struct CapturedLog {
        log: Log,
        /// While a single dispatcher exists, tracing-core asks only the dispatcher of the thread that reaches a
        /// callsite first, and another test's thread has none: its "never" would be cached for this thread as well.
        _second: tracing::Dispatch,
        _guard: tracing::subscriber::DefaultGuard,
    }

    impl CapturedLog {
        pub(crate) fn begin() -> CapturedLog {
            let log = Log::default();
            let writer = log.clone();
            let subscriber =
                tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
            let _second = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::new());
            CapturedLog { log, _second, _guard: tracing::subscriber::set_default(subscriber) }
        }

        pub(crate) fn text(&self) -> String {
            String::from_utf8(self.log.0.lock().unwrap().clone()).unwrap()
        }
    }

    /// The log output of `work` on this thread.
    pub(crate) fn logged(work: impl FnOnce()) -> String {
        let log = CapturedLog::begin();
        work();
        log.text()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_directives_are_parsed_and_errors_name_the_value() {
        for level in ["info", "debug", "warn,otel_verdict::export=trace", "off"] {
            assert!(filter(level).is_ok(), "{level}");
        }
        let error = filter("info,otel_verdict=loudly").unwrap_err().to_string();
        assert!(error.contains("otel_verdict=loudly"), "{error}");
    }

    #[test]
    fn library_logs_stay_at_warn_unless_configured() {
        let default = filter("debug").unwrap().to_string();
        assert!(default.contains("h2=warn") && default.contains("debug"), "{default}");
        let configured = filter("debug,h2=debug").unwrap().to_string();
        assert!(configured.contains("h2=debug") && !configured.contains("h2=warn"), "{configured}");
    }
}
