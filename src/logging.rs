//! Where our own logs go: one line an event on standard error, as text or JSON.
//!
//! In: a level (or directives) and a format. Out: the process-wide subscriber, whose level can be
//! changed. At `info` and
//! above no event carries span content or secrets; secrets cannot be printed at all
//! ([`verdict_config::Secret`]).

use std::io::IsTerminal;
use std::sync::OnceLock;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::time::SystemTime;

/// How log lines look.
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// `text` on a terminal, `json` elsewhere, where a program reads them.
    #[default]
    Auto,
    /// One readable line an event.
    Text,
    /// One JSON object a line.
    Json,
}

/// Logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Neither a level nor a list of `target=level`.
    #[error("log level {level:?}: {why}")]
    Level {
        /// What was written.
        level: String,
        /// What is wrong with it.
        why: String,
    },
    /// A subscriber is set already.
    #[error("logging is set up already")]
    Again,
    /// There is no subscriber of ours whose level could be changed.
    #[error("logging is not set up")]
    Missing,
}

/// Libraries below us say little of use under `warn`, and their `debug` would print headers,
/// tokens included.
const QUIET: &str = "h2=warn,hyper=warn,hyper_util=warn,tower=warn,rustls=warn,reqwest=warn,tonic=warn";

/// Reads a level (`info`) or directives (`info,otel_verdict::export=debug`).
///
/// # Errors
/// When it is neither.
pub fn filter(level: &str) -> Result<EnvFilter, Error> {
    let quiet = EnvFilter::builder()
        .parse(QUIET)
        .map_err(|e| Error::Level { level: QUIET.to_owned(), why: e.to_string() })?;
    level.split(',').map(str::trim).filter(|part| !part.is_empty()).try_fold(quiet, |filter, part| {
        let directive = part
            .parse()
            .map_err(|e| Error::Level { level: level.to_owned(), why: format!("{part:?}: {e}") })?;
        Ok(filter.add_directive(directive))
    })
}

/// Sets logging up for the whole process. Once.
///
/// # Errors
/// When `level` cannot be read, or logging is set up already.
pub fn init(level: &str, format: Format) -> Result<(), Error> {
    let filter = filter(level)?;
    let terminal = std::io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_timer(SystemTime)
        .with_ansi(terminal && std::env::var_os("NO_COLOR").is_none());
    let json = match format {
        Format::Auto => !terminal,
        Format::Text => false,
        Format::Json => true,
    };
    let set = if json {
        let lines = lines.json().flatten_event(true).with_current_span(false).with_span_list(false);
        let lines = lines.with_filter_reloading();
        let handle = lines.reload_handle();
        lines.try_init().map(|()| Changer::from(Box::new(move |filter| handle.reload(filter).is_ok())))
    } else {
        let lines = lines.with_filter_reloading();
        let handle = lines.reload_handle();
        lines.try_init().map(|()| Changer::from(Box::new(move |filter| handle.reload(filter).is_ok())))
    };
    let changer = set.map_err(|_| Error::Again)?;
    LEVEL.set(changer).map_err(|_| Error::Again)
}

type Changer = Box<dyn Fn(EnvFilter) -> bool + Send + Sync>;

/// Puts another filter in the place of the one in force.
static LEVEL: OnceLock<Changer> = OnceLock::new();

/// Another level, from now on.
///
/// # Errors
/// When `level` cannot be read, or logging was not set up by [`init`].
pub fn set_level(level: &str) -> Result<(), Error> {
    let filter = filter(level)?;
    let changed = LEVEL.get().is_some_and(|change| change(filter));
    if changed { Ok(()) } else { Err(Error::Missing) }
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
        let quiet = filter("debug").unwrap().to_string();
        assert!(quiet.contains("h2=warn") && quiet.contains("debug"), "{quiet}");
        let loud = filter("debug,h2=debug").unwrap().to_string();
        assert!(loud.contains("h2=debug") && !loud.contains("h2=warn"), "{loud}");
    }
}
