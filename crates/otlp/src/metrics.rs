//! An encoded `ExportMetricsServiceRequest`: whether its frame holds, and how many points it has.
//!
//! Metrics pass through untouched; the count is for the ledger.

use super::check::Scan;
use super::fields::Malformed;

/// The data points in the metrics request `body`.
///
/// # Errors
/// The bytes are no such request.
pub fn count(body: &[u8]) -> Result<u64, Malformed> {
    let mut points = 0;
    // Request, resource, scope: each repeats one field; the metrics come below.
    each(body, 0x0a, &mut |resource| {
        each(resource, 0x12, &mut |scope| {
            each(scope, 0x12, &mut |metric| {
                points += points_of(metric)?;
                Ok(())
            })
        })
    })?;
    Ok(points)
}

/// Hands over the content of every field with the (length-delimited) `tag`.
fn each<'a>(
    encoded: &'a [u8],
    tag: u32,
    then: &mut dyn FnMut(&'a [u8]) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    let mut scan = Scan::new(encoded);
    while let Some(met) = scan.tag()? {
        if met == tag {
            then(scan.bytes()?)?;
        } else {
            scan.skip(met, 1 << (tag >> 3))?;
        }
    }
    Ok(())
}

/// Gauge, sum, histogram, exponential histogram and summary hold their points in field 1.
fn points_of(metric: &[u8]) -> Result<u64, Malformed> {
    let mut points = 0;
    for kind in [0x2a, 0x3a, 0x4a, 0x52, 0x5a] {
        each(metric, kind, &mut |data| {
            each(data, 0x0a, &mut |_| {
                points += 1;
                Ok(())
            })
        })?;
    }
    Ok(points)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Signal;
    use crate::json;

    #[test]
    fn points_of_all_kinds_are_counted() {
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
