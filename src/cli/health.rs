//! `health`: asks a running process whether it is ready, for images without a shell or an HTTP client.
//!
//! In: the address of the admin endpoint. Out: exit code 0 or 1, and the response on standard output.

use std::time::Duration;

use clap::Args;
use reqwest::Url;
use verdict_client::{Tls, reasons};

use super::command::{CommandFailure, ConfigFiles, runtime, write_stdout};
use crate::receive::config::Endpoint;

pub(super) const LONG_ABOUT: &str = "\
Ask a running process whether it accepts spans (/readyz) or is alive (/livez), and exit with 0 or 1.

For health checks of containers, whose image has no other HTTP client. The address is that of
'admin.endpoint' in the configuration, through the loopback interface if it listens on all.";

pub(super) const EXAMPLES: &str = "\
Examples:
  otel-verdict health
  otel-verdict health --config /etc/otel-verdict/config.yaml
  otel-verdict health --endpoint 127.0.0.1:13133 --live

Exit codes:
  0  ready (with --live: alive)
  1  not, or no answer
  2  wrong configuration or usage";

#[derive(Args, Debug)]
pub(super) struct HealthArgs {
    /// Address of the admin endpoint, instead of the configuration's
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "files")]
    endpoint: Option<String>,
    /// Ask /livez instead of /readyz: only failures that need a restart count
    #[arg(long)]
    live: bool,
    /// Time until an answer is given up
    #[arg(long, value_parser = humantime::parse_duration, value_name = "DURATION", default_value = "3s")]
    timeout: Duration,
    #[command(flatten)]
    config: ConfigFiles,
}

pub(super) fn health(args: &HealthArgs) -> Result<(), CommandFailure> {
    let endpoint = match &args.endpoint {
        Some(text) => Endpoint::new(text).map_err(|e| CommandFailure::Usage(e.to_string()))?,
        None => args.config.load()?.admin.endpoint,
    };
    let path = if args.live { "livez" } else { "readyz" };
    let url = format!("http://{}/{path}", connectable(endpoint.as_str()));
    let url = Url::parse(&url).map_err(|e| CommandFailure::Usage(format!("{url}: {e}")))?;
    let client =
        verdict_client::client(&[&url], &Tls::default(), args.timeout, 0).map_err(CommandFailure::run)?;
    runtime()?.block_on(async {
        let failed = |error: reqwest::Error| CommandFailure::Run(format!("{url}: {}", reasons(&error)));
        let response = client.get(url.clone()).send().await.map_err(failed)?;
        let status = response.status();
        let text = response.text().await.map_err(failed)?;
        if !status.is_success() {
            return Err(CommandFailure::Run(format!("{url}: {status}: {}", text.trim().replace('\n', ", "))));
        }
        write_stdout(format!("{}\n", text.trim()).as_bytes())
    })
}

/// The address to connect to, for a listener that is bound to `endpoint`.
fn connectable(endpoint: &str) -> String {
    match endpoint.rsplit_once(':') {
        Some(("" | "0.0.0.0", port)) => format!("127.0.0.1:{port}"),
        Some(("[::]", port)) => format!("[::1]:{port}"),
        _ => endpoint.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listener_on_every_interface_is_asked_through_loopback() {
        for (bound, asked) in [
            ("0.0.0.0:13133", "127.0.0.1:13133"),
            (":13133", "127.0.0.1:13133"),
            ("[::]:1", "[::1]:1"),
            ("10.0.0.7:1", "10.0.0.7:1"),
        ] {
            assert_eq!(connectable(bound), asked);
        }
    }
}
