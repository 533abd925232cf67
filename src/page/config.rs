//! `page`: the settings of the live page.

use verdict_config::{Problem, Size, settings};

use crate::receive::config::{Endpoint, non_null};
use crate::receive::restricted_listener;
use crate::receive::{Auth, ServerTls};

/// Minimum of `max_memory`: the size of a few large traces.
const MIN_MEMORY: u64 = 1 << 20;

settings! {
    /// The live page.
    pub struct PageConfig {
        /// Default 127.0.0.1:4321, which only this machine can reach. Any other address needs `auth`, or `tls`
        /// with `client_ca_file`.
        endpoint: Endpoint = Endpoint::loopback(4321),
        /// Default none: connections are not encrypted.
        #[serde(default, deserialize_with = "non_null", skip_serializing_if = "Option::is_none")]
        tls: Option<ServerTls>,
        /// Default none: on loopback callers are not authenticated. Browsers ask for the user and password of `basic`.
        #[serde(default, deserialize_with = "non_null", skip_serializing_if = "Option::is_none")]
        auth: Option<Auth>,
        /// Default none. Host names under which the page is opened, besides `localhost`, IP addresses and the host
        /// of `endpoint`. Requests with another `Host` are refused, since a page of another site could send them.
        hosts: Vec<String>,
        /// Default 2000. Evaluated traces that the page shows; of more, the oldest are forgotten.
        max_traces: u32 = 2_000,
        /// Default 64MiB. Bytes of these traces, in addition to `memory.budget`.
        max_memory: Size = Size(64 << 20),
    }
}

impl PageConfig {
    /// The settings with unusable values.
    pub(crate) fn problems(&self) -> Vec<Problem> {
        let mut problems =
            restricted_listener::problems(&self.endpoint, self.tls.as_ref(), self.auth.as_ref());
        for (n, host) in self.hosts.iter().enumerate() {
            let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
            if host.is_empty() || !host.chars().all(is_name) {
                let message = "expected a host name without port, such as traces.example.com";
                problems.push(Problem::new(format!("hosts[{n}]"), message));
            }
        }
        if self.max_traces == 0 {
            problems.push(Problem::new(
                "max_traces",
                "must be at least 1; without the section `page` there is no page",
            ));
        }
        if self.max_memory.0 < MIN_MEMORY {
            problems.push(Problem::new("max_memory", "must be at least 1MiB"));
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(yaml: &str) -> Vec<String> {
        let config: PageConfig = serde_saphyr::from_str(yaml).unwrap();
        config.problems().into_iter().map(|problem| problem.key).collect()
    }

    #[test]
    fn address_on_the_network_needs_authentication() {
        assert!(problems("{}").is_empty());
        assert_eq!(problems("{ endpoint: '0.0.0.0:1' }"), ["endpoint"]);
        assert!(problems("{ endpoint: '0.0.0.0:1', auth: { bearer_token_file: /t } }").is_empty());
    }

    #[test]
    fn names_and_limits_are_checked() {
        assert!(problems("{ hosts: [traces.example.com] }").is_empty());
        for bad in ["''", "'a:1'", "'http://a'", "'*'"] {
            assert_eq!(problems(&format!("{{ hosts: [{bad}] }}")), ["hosts[0]"], "{bad}");
        }
        assert_eq!(problems("{ max_traces: 0, max_memory: 1KiB }"), ["max_traces", "max_memory"]);
    }
}
