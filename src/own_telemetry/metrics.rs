//! Self-metrics as OTLP: the page that `/metrics` serves, read back into data points.
//!
//! In: OpenMetrics text of this process' registry. Out: an OTLP request. Both a push and a scrape use this text, so
//! that they cannot differ. Sums are cumulative since the start of the process.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value as Number;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics,
    ScopeMetrics, Sum,
};
use opentelemetry_proto::tonic::resource::v1::Resource;

use verdict_telemetry::SELF_SCOPE;

/// One sample line of a page.
struct MetricSample<'p> {
    name: &'p str,
    /// In the order of the page.
    labels: Vec<(&'p str, String)>,
    value: &'p str,
}

/// The times of data points, in nanoseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(super) struct DataPointTimes {
    /// The start of the process.
    pub start: u64,
    pub now: u64,
}

/// The page as a request. `resource` contains the attributes of this process.
pub(super) fn export_request(
    page: &str,
    resource: Vec<KeyValue>,
    times: DataPointTimes,
) -> ExportMetricsServiceRequest {
    let scope = InstrumentationScope {
        name: SELF_SCOPE.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    };
    let scope_metrics =
        vec![ScopeMetrics { scope: Some(scope), metrics: metrics(page, times), ..ScopeMetrics::default() }];
    let resource = Some(Resource { attributes: resource, ..Resource::default() });
    let resource_metrics = vec![ResourceMetrics { resource, scope_metrics, ..ResourceMetrics::default() }];
    ExportMetricsServiceRequest { resource_metrics }
}

/// A text attribute.
pub(super) fn attribute(key: &str, value: &str) -> KeyValue {
    let value = Some(AnyValue { value: Some(Value::StringValue(value.to_owned())) });
    KeyValue { key: key.to_owned(), value, ..KeyValue::default() }
}

fn metrics(page: &str, times: DataPointTimes) -> Vec<Metric> {
    let mut all = Vec::new();
    let mut metric = Metric::default();
    let mut metric_type = "";
    let mut samples: Vec<MetricSample<'_>> = Vec::new();
    for line in page.lines() {
        let Some(meta) = line.strip_prefix("# ") else {
            samples.extend(parse_sample(line));
            continue;
        };
        let mut parts = meta.splitn(3, ' ');
        let (keyword, name, text) =
            (parts.next(), parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        if name != metric.name {
            push_metric(
                &mut all,
                std::mem::take(&mut metric),
                metric_type,
                std::mem::take(&mut samples),
                times,
            );
            metric_type = "";
            name.clone_into(&mut metric.name);
        }
        match keyword {
            Some("HELP") => text.clone_into(&mut metric.description),
            Some("TYPE") => metric_type = text,
            Some("UNIT") => metric.unit = ucum_unit(text).to_owned(),
            _ => {}
        }
    }
    push_metric(&mut all, metric, metric_type, samples, times);
    all
}

/// The UCUM code of a unit of OpenMetrics.
fn ucum_unit(name: &str) -> &str {
    match name {
        "bytes" => "By",
        "seconds" => "s",
        other => other,
    }
}

/// Adds a metric with its data points, unless it has none or a type that OTLP pushes do not contain.
fn push_metric(
    all: &mut Vec<Metric>,
    mut metric: Metric,
    metric_type: &str,
    samples: Vec<MetricSample<'_>>,
    times: DataPointTimes,
) {
    if samples.is_empty() {
        return;
    }
    let temporality = AggregationTemporality::Cumulative as i32;
    metric.data = match metric_type {
        "counter" => Some(Data::Sum(Sum {
            data_points: number_points(&samples, times),
            aggregation_temporality: temporality,
            is_monotonic: true,
        })),
        "gauge" => Some(Data::Gauge(Gauge { data_points: number_points(&samples, times) })),
        "histogram" => Some(Data::Histogram(Histogram {
            data_points: histogram_points(&metric.name, samples, times),
            aggregation_temporality: temporality,
        })),
        _ => None,
    };
    if metric.data.is_some() {
        all.push(metric);
    }
}

fn attributes(labels: &[(&str, String)]) -> Vec<KeyValue> {
    labels.iter().map(|(key, value)| attribute(key, value)).collect()
}

fn number_points(
    samples: &[MetricSample<'_>],
    DataPointTimes { start, now }: DataPointTimes,
) -> Vec<NumberDataPoint> {
    let point = |sample: &MetricSample<'_>| {
        let value = match sample.value.parse::<i64>() {
            Ok(whole) => Number::AsInt(whole),
            Err(_) => Number::AsDouble(sample.value.parse().ok()?),
        };
        Some(NumberDataPoint {
            attributes: attributes(&sample.labels),
            start_time_unix_nano: start,
            time_unix_nano: now,
            value: Some(value),
            ..NumberDataPoint::default()
        })
    };
    samples.iter().filter_map(point).collect()
}

fn histogram_points(
    name: &str,
    samples: Vec<MetricSample<'_>>,
    DataPointTimes { start, now }: DataPointTimes,
) -> Vec<HistogramDataPoint> {
    let mut points: BTreeMap<Vec<(&str, String)>, HistogramDataPoint> = BTreeMap::new();
    for mut sample in samples {
        let bound =
            sample.labels.iter().position(|(key, _)| *key == "le").map(|index| sample.labels.remove(index).1);
        let attributes = attributes(&sample.labels);
        let point = points.entry(sample.labels).or_insert_with(|| HistogramDataPoint {
            attributes,
            start_time_unix_nano: start,
            time_unix_nano: now,
            ..HistogramDataPoint::default()
        });
        match sample.name.strip_prefix(name) {
            Some("_sum") => point.sum = sample.value.parse().ok(),
            Some("_count") => point.count = sample.value.parse().unwrap_or(0),
            Some("_bucket") => {
                // Buckets of the Prometheus page are cumulative, and are in the order of their bounds.
                let cumulative: u64 = sample.value.parse().unwrap_or(0);
                let before: u64 = point.bucket_counts.iter().sum();
                point.bucket_counts.push(cumulative.saturating_sub(before));
                // The last bound, infinity, is not written in OTLP.
                point
                    .explicit_bounds
                    .extend(bound.and_then(|b| b.parse::<f64>().ok()).filter(|b| b.is_finite()));
            }
            _ => {}
        }
    }
    points.into_values().collect()
}

/// Parses a line `name{key="value",...} value`; `None` if it has another form.
fn parse_sample(line: &str) -> Option<MetricSample<'_>> {
    let name = line.split(['{', ' ']).next().filter(|name| !name.is_empty())?;
    let mut remaining = line.get(name.len()..)?;
    let mut labels = Vec::new();
    if let Some(inner) = remaining.strip_prefix('{') {
        remaining = inner;
        while !remaining.starts_with('}') {
            let (key, after) = remaining.split_once("=\"")?;
            let (value, after) = unquote(after)?;
            labels.push((key.trim_start_matches(','), value));
            remaining = after;
        }
        remaining = remaining.get(1..)?;
    }
    Some(MetricSample { name, labels, value: remaining.trim().split(' ').next()? })
}

/// The unescaped text up to the closing quotation mark, and the text after it; `None` without a closing mark.
fn unquote(text: &str) -> Option<(String, &str)> {
    let mut out = String::new();
    let mut chars = text.char_indices();
    while let Some((index, c)) = chars.next() {
        match c {
            '"' => return Some((out, text.get(index + 1..)?)),
            '\\' => match chars.next()?.1 {
                'n' => out.push('\n'),
                other => out.push(other),
            },
            c => out.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::{Telemetry, TextFormat};

    const TIMES: DataPointTimes = DataPointTimes { start: 1, now: 2 };

    #[test]
    fn counters_gauges_and_histograms_are_data_points() {
        let page = "# HELP a_x Runs.\n# TYPE a_x counter\na_x_total{agent=\"p \\\"q\\\" \\\\ \\n\",n=\"\"} 3\na_x_total{agent=\"b\"} 0.5\n\
                    # HELP a_size_bytes Size.\n# TYPE a_size_bytes gauge\n# UNIT a_size_bytes bytes\na_size_bytes -4\n\
                    # HELP a_t_seconds Time.\n# TYPE a_t_seconds histogram\n# UNIT a_t_seconds seconds\n\
                    a_t_seconds_sum{k=\"v\"} 2.5\na_t_seconds_count{k=\"v\"} 6\na_t_seconds_bucket{le=\"0.1\",k=\"v\"} 1\n\
                    a_t_seconds_bucket{le=\"1.0\",k=\"v\"} 4\na_t_seconds_bucket{le=\"+Inf\",k=\"v\"} 6\n# EOF\n";
        let all = metrics(page, TIMES);
        let [count, size, time] = &all[..] else { panic!("{all:?}") };
        assert_eq!((&*count.name, &*count.description, &*count.unit), ("a_x", "Runs.", ""));
        let Some(Data::Sum(sum)) = &count.data else { panic!("{count:?}") };
        assert!(sum.is_monotonic && sum.aggregation_temporality == 2);
        assert_eq!(sum.data_points[0].attributes, [attribute("agent", "p \"q\" \\ \n"), attribute("n", "")]);
        let values: Vec<_> = sum.data_points.iter().map(|point| point.value).collect();
        assert_eq!(values, [Some(Number::AsInt(3)), Some(Number::AsDouble(0.5))]);
        assert_eq!((sum.data_points[0].start_time_unix_nano, sum.data_points[0].time_unix_nano), (1, 2));
        assert_eq!((&*size.name, &*size.unit), ("a_size_bytes", "By"));
        assert!(
            matches!(&size.data, Some(Data::Gauge(g)) if g.data_points[0].value == Some(Number::AsInt(-4)))
        );
        let Some(Data::Histogram(histogram)) = &time.data else { panic!("{time:?}") };
        let [point] = &histogram.data_points[..] else { panic!("{histogram:?}") };
        assert_eq!((point.count, point.sum, &time.unit[..]), (6, Some(2.5), "s"));
        assert_eq!((&point.bucket_counts[..], &point.explicit_bounds[..]), (&[1, 3, 2][..], &[0.1, 1.0][..]));
        assert_eq!(point.attributes, [attribute("k", "v")]);
    }

    #[test]
    fn every_sample_of_the_registry_is_read() {
        let telemetry = Telemetry::new();
        telemetry.agents.set_limit(10);
        telemetry.agents.run("shop", "a \"b\" \\", "m").count_trace(crate::telemetry::ResultLabel::Fail);
        telemetry.verdicts.record_close_to_export(std::time::Duration::from_millis(3));
        let page = telemetry.render(TextFormat::OpenMetrics);
        let all = metrics(&page, TIMES);
        let read_samples: usize = all
            .iter()
            .map(|metric| match metric.data.as_ref().unwrap() {
                Data::Sum(sum) => sum.data_points.len(),
                Data::Gauge(gauge) => gauge.data_points.len(),
                Data::Histogram(h) => h.data_points.iter().map(|p| p.bucket_counts.len() + 2).sum(),
                _ => 0,
            })
            .sum();
        let lines = page.lines().filter(|line| !line.starts_with('#')).count();
        assert!(lines > 100);
        assert_eq!(read_samples, lines);
    }
}
