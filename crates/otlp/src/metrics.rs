//! Counts the data points of an encoded `ExportMetricsServiceRequest`.
//!
//! Metrics are forwarded unchanged; outcomes are counted by data point.

use super::malformed::Malformed;
use super::scan::each;
use super::tags::{export_metrics_service_request, gauge, metric, resource_metrics, scope_metrics};

/// The fields of a `Metric` that hold data points, each in its field 1.
const DATA: [u32; 5] =
    [metric::GAUGE, metric::SUM, metric::HISTOGRAM, metric::EXPONENTIAL_HISTOGRAM, metric::SUMMARY];

/// The number of data points in the metrics request `body`.
///
/// # Errors
/// `body` is not such a request.
pub fn count(body: &[u8]) -> Result<u64, Malformed> {
    let mut count = 0;
    each(body, &[export_metrics_service_request::RESOURCE_METRICS], &mut |_, resource| {
        each(resource, &[resource_metrics::SCOPE_METRICS], &mut |_, scope| {
            each(scope, &[scope_metrics::METRICS], &mut |_, metric| {
                count += points(metric)?;
                Ok(())
            })
        })
    })?;
    Ok(count)
}

/// The number of data points in one encoded `Metric`.
///
/// # Errors
/// `metric` is not such a message.
pub fn points(metric: &[u8]) -> Result<u64, Malformed> {
    let mut points = 0;
    each(metric, &DATA, &mut |_, data| {
        each(data, &[gauge::DATA_POINTS], &mut |_, _| {
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

    #[test]
    fn counts_points_of_every_kind_of_metric() {
        let metrics = br#"{"resourceMetrics":[{"resource":{},"scopeMetrics":[{"schemaUrl":"u","metrics":[
            {"name":"a","gauge":{"dataPoints":[{"asInt":1},{"asInt":2}]}},
            {"name":"b","sum":{"isMonotonic":true,"dataPoints":[{}]}},
            {"name":"c","histogram":{"dataPoints":[{"bucketCounts":[1,2]}]}},
            {"name":"d","exponentialHistogram":{"dataPoints":[{}]}},
            {"name":"e","summary":{"dataPoints":[{}]}}]}]},{}]}"#;
        let body = json::decode(Signal::Metrics, metrics).unwrap();
        assert_eq!(count(&body), Ok(6));
        assert_eq!(count(&body[..body.len() - 3]), Err(Malformed::CutOff));
        assert_eq!(count(&[]), Ok(0));
        assert_eq!(count(&[0x08, 1]), Err(Malformed::Type));
    }
}
