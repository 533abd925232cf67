//! Counts the data points of an encoded `ExportMetricsServiceRequest`, and removes malformed ones.
//!
//! Metrics are forwarded unchanged; outcomes are counted by data point.

use std::borrow::Cow;

use bytes::Bytes;

use super::check;
use super::json::messages;
use super::json::table::MessageDescriptor;
use super::malformed::Malformed;
use super::scan::{for_each_field, utf8};
use super::tags::{export_metrics_service_request as export, gauge, metric, resource_metrics, scope_metrics};

/// The fields of a `Metric` that contain data points, each in its field 1.
const DATA_FIELDS: [u32; 5] =
    [metric::GAUGE, metric::SUM, metric::HISTOGRAM, metric::EXPONENTIAL_HISTOGRAM, metric::SUMMARY];
/// The types of the data points in the fields of [`DATA_FIELDS`].
static POINT_DESCRIPTORS: [&MessageDescriptor; 5] = [
    &messages::NUMBER_DATA_POINT,
    &messages::NUMBER_DATA_POINT,
    &messages::HISTOGRAM_DATA_POINT,
    &messages::EXPONENTIAL_HISTOGRAM_DATA_POINT,
    &messages::SUMMARY_DATA_POINT,
];

/// The data points of a metrics request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Points {
    /// Number of all points, malformed ones included.
    pub all: u64,
    /// Data points that are malformed, or belong to a malformed metric.
    pub malformed: u64,
}

/// Counts the data points in the metrics request `body`. A malformed point is only counted;
/// [`without_malformed`] removes it.
///
/// # Errors
/// `body` is not such a request: its framing above the metrics is malformed.
pub fn count(body: &[u8]) -> Result<Points, Malformed> {
    let mut count = Points::default();
    for_each_field(body, &[export::RESOURCE_METRICS], &mut |_, encoded| {
        use resource_metrics::{RESOURCE, SCHEMA_URL, SCOPE_METRICS};
        for_each_field(encoded, &[RESOURCE, SCOPE_METRICS, SCHEMA_URL], &mut |tag, content| match tag {
            RESOURCE => check::message(content, &messages::RESOURCE),
            SCOPE_METRICS => count_in_scope(content, &mut count),
            _ => utf8(content),
        })
    })?;
    Ok(count)
}

fn count_in_scope(encoded: &[u8], count: &mut Points) -> Result<(), Malformed> {
    use scope_metrics::{METRICS, SCHEMA_URL, SCOPE};
    for_each_field(encoded, &[SCOPE, METRICS, SCHEMA_URL], &mut |tag, content| match tag {
        SCOPE => check::message(content, &messages::INSTRUMENTATION_SCOPE),
        METRICS => {
            // A metric whose points cannot be counted counts as one point.
            let all = points(content).unwrap_or(1);
            let valid = without_malformed_points(content).map_or(0, |metric| points(&metric).unwrap_or(0));
            count.all += all;
            count.malformed += all - valid;
            Ok(())
        }
        _ => utf8(content),
    })
}

/// A copy of the metrics request `body` without its malformed points. Destinations refuse a request with a
/// malformed point as a whole.
pub fn without_malformed(body: &[u8]) -> Bytes {
    let path = [export::RESOURCE_METRICS, resource_metrics::SCOPE_METRICS, scope_metrics::METRICS];
    check::copy_valid(body, &path, &mut without_malformed_points).into()
}

/// A metric without its malformed points; `None` if it is malformed itself.
fn without_malformed_points(metric: &[u8]) -> Option<Cow<'_, [u8]>> {
    let is_valid = |metric: &[u8]| check::message(metric, &messages::METRIC).is_ok();
    if is_valid(metric) {
        return Some(metric.into());
    }
    points(metric).ok()?;
    let copy = DATA_FIELDS.iter().zip(POINT_DESCRIPTORS).fold(metric.to_vec(), |metric, (data, point)| {
        let valid = |encoded| check::message(encoded, point).is_ok();
        check::copy_valid(&metric, &[*data, gauge::DATA_POINTS], &mut |encoded| {
            valid(encoded).then_some(encoded.into())
        })
    });
    is_valid(&copy).then_some(copy.into())
}

/// The number of data points in one encoded `Metric`.
///
/// # Errors
/// `metric` is not such a message.
pub fn points(metric: &[u8]) -> Result<u64, Malformed> {
    let mut points = 0;
    for_each_field(metric, &DATA_FIELDS, &mut |_, data| {
        for_each_field(data, &[gauge::DATA_POINTS], &mut |_, _| {
            points += 1;
            Ok(())
        })
    })?;
    Ok(points)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;
    use crate::signal::Signal;

    const METRICS: &[u8] =
        br#"{"resourceMetrics":[{"resource":{},"scopeMetrics":[{"schemaUrl":"u","metrics":[
        {"name":"a","gauge":{"dataPoints":[{"asInt":1},{"asInt":2}]}},
        {"name":"b","sum":{"isMonotonic":true,"dataPoints":[{}]}},
        {"name":"c","histogram":{"dataPoints":[{"bucketCounts":[1,2]}]}},
        {"name":"d","exponentialHistogram":{"dataPoints":[{"positive":{"bucketCounts":[1,300]}}]}},
        {"name":"e","summary":{"dataPoints":[{}]}}]}]},{}]}"#;

    fn request(metrics: &[&[u8]]) -> Vec<u8> {
        let field = |number: u32, content: &[u8]| {
            let mut out = Vec::new();
            crate::write::bytes(&mut out, number, content);
            out
        };
        let metrics: Vec<u8> = metrics.iter().flat_map(|metric| field(2, metric)).collect();
        field(1, &field(2, &metrics))
    }

    #[test]
    fn counts_points_of_every_kind_of_metric() {
        let body = json::decode(Signal::Metrics, METRICS).unwrap();
        assert_eq!(count(&body), Ok(Points { all: 6, malformed: 0 }));
        assert_eq!(without_malformed(&body), body);
        assert_eq!(count(&body[..body.len() - 3]), Err(Malformed::CutOff));
        assert_eq!(count(&[]), Ok(Points::default()));
        assert_eq!(count(&[0x08, 1]), Err(Malformed::Type));
    }

    #[test]
    fn a_malformed_point_or_metric_is_only_counted() {
        // A gauge of three points; the second has a field `as_double` of three bytes.
        let good = b"\x0a\x01g\x2a\x04\x0a\x00\x0a\x00";
        let bad = b"\x0a\x01g\x2a\x0a\x0a\x00\x0a\x04\x21\x01\x02\x03\x0a\x00";
        // A metric whose name is not UTF-8, with two points; a histogram whose packed counts have 9 bytes.
        let named = b"\x0a\x01\xff\x2a\x04\x0a\x00\x0a\x00";
        let packed = b"\x4a\x0d\x0a\x0b\x32\x09123456789";
        let body = request(&[bad, named, packed, b"\x2a\x05", good]);
        assert_eq!(count(&body), Ok(Points { all: 3 + 2 + 1 + 1 + 2, malformed: 1 + 2 + 1 + 1 }));
        let valid = without_malformed(&body);
        assert_eq!(valid, request(&[good, b"\x4a\x00", good]));
        assert_eq!(count(&valid), Ok(Points { all: 4, malformed: 0 }));
    }

    #[test]
    fn numbers_that_are_not_packed_are_valid() {
        // Two `bucket_counts` of a histogram's point, each with its own tag.
        let point = b"\x31\x01\x00\x00\x00\x00\x00\x00\x00\x31\x02\x00\x00\x00\x00\x00\x00\x00";
        let metric = [&b"\x4a\x14\x0a\x12"[..], point].concat();
        assert_eq!(count(&request(&[&metric])), Ok(Points { all: 1, malformed: 0 }));
    }
}
