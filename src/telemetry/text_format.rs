//! The text formats of a scrape: OpenMetrics for clients that accept it, else that of Prometheus.
//!
//! The two differ in the names in metadata: a counter `x_total` is declared as `x` in OpenMetrics and as `x_total` in
//! Prometheus' format, which has neither units nor an end mark.

use std::fmt::Write;

/// A text format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TextFormat {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus 0.0.4.
    Prometheus,
}

impl TextFormat {
    /// The format for a client that sent this `Accept` header.
    pub fn accepted(header: Option<&str>) -> TextFormat {
        let types = header.into_iter().flat_map(|header| header.split(','));
        let mut names = types.map(|media_type| media_type.split(';').next().unwrap_or_default().trim());
        if names.any(|name| name.eq_ignore_ascii_case("application/openmetrics-text")) {
            TextFormat::OpenMetrics
        } else {
            TextFormat::Prometheus
        }
    }

    /// The `Content-Type` of a response.
    pub fn content_type(self) -> &'static str {
        match self {
            TextFormat::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            TextFormat::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// An OpenMetrics page in Prometheus' format.
pub(super) fn prometheus(page: &str) -> String {
    let mut out = String::with_capacity(page.len());
    let mut help: Option<(&str, &str)> = None;
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            // Written together with the type, on which the name depends.
            help = rest.split_once(' ');
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let total = if kind == "counter" { "_total" } else { "" };
            // Writing into a String does not fail.
            if let Some((_, text)) = help.take().filter(|(metric, _)| *metric == name) {
                let _ = writeln!(out, "# HELP {name}{total} {text}");
            }
            let _ = writeln!(out, "# TYPE {name}{total} {kind}");
        } else if !line.starts_with('#') {
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prometheus_names_counters_with_their_suffix_and_has_no_units_or_end() {
        let page = "# HELP x_bytes Size.\n# TYPE x_bytes gauge\n# UNIT x_bytes bytes\nx_bytes 3\n\
                    # HELP y Calls.\n# TYPE y counter\ny_total{a=\"b\"} 1\n# EOF\n";
        let expected = "# HELP x_bytes Size.\n# TYPE x_bytes gauge\nx_bytes 3\n\
                        # HELP y_total Calls.\n# TYPE y_total counter\ny_total{a=\"b\"} 1\n";
        assert_eq!(prometheus(page), expected);
    }

    #[test]
    fn openmetrics_is_for_clients_that_accept_it() {
        let format_for = TextFormat::accepted;
        let scraper =
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        assert_eq!(format_for(Some(scraper)), TextFormat::OpenMetrics);
        assert_eq!(format_for(Some("text/plain; version=0.0.4")), TextFormat::Prometheus);
        assert_eq!(format_for(Some("*/*")), TextFormat::Prometheus);
        assert_eq!(format_for(None), TextFormat::Prometheus);
    }
}
