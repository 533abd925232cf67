//! The reason for which a request was rejected, as gRPC code, HTTP status, `google.rpc.Status`, retry delay and
//! metric label.

use std::time::Duration;

use http::{HeaderValue, StatusCode};
use tonic::Code;

use super::body::BodyError;
use super::intake::Refused;
use crate::rpc;
use crate::telemetry::RequestOutcome;

/// Retry delay after the limit of bytes in flight was reached: they are released as fast as requests
/// are acknowledged.
const IN_FLIGHT_RETRY: Duration = Duration::from_secs(1);

/// Maximum characters of the message in a response; gRPC sends it in a header.
const MAX_MESSAGE_CHARS: usize = 1024;

/// The reason for which a request was rejected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum RequestRejection {
    Body(BodyError),
    Refused(Refused),
    /// Name of an unsupported compression.
    Encoding(String),
    /// Over HTTP, neither protobuf nor JSON.
    ContentType,
    /// Missing or unknown credentials.
    Unauthenticated,
}

impl From<BodyError> for RequestRejection {
    fn from(error: BodyError) -> RequestRejection {
        RequestRejection::Body(error)
    }
}

impl RequestRejection {
    /// The retry delay, if retrying would help.
    pub(crate) fn retry_delay(&self) -> Option<Duration> {
        match self {
            RequestRejection::Refused(Refused::Overloaded { retry }) => Some(*retry),
            RequestRejection::Refused(Refused::ShuttingDown | Refused::Undeliverable(_))
            | RequestRejection::Body(BodyError::InFlightLimit) => Some(IN_FLIGHT_RETRY),
            _ => None,
        }
    }

    /// The retry delay as a `Retry-After`: whole seconds, rounded up, so that no retry comes too early.
    pub(super) fn retry_after(&self) -> Option<HeaderValue> {
        let seconds = u64::try_from(self.retry_delay()?.as_millis().div_ceil(1000)).unwrap_or(u64::MAX);
        Some(seconds.max(1).into())
    }

    /// The text of the response.
    pub(crate) fn message(&self) -> String {
        let text = match self {
            RequestRejection::Body(error) => error.to_string(),
            RequestRejection::Refused(refused) => refused.to_string(),
            RequestRejection::Encoding(name) => {
                format!("compression {name:?} is not supported; use gzip or zstd")
            }
            RequestRejection::ContentType => "send application/x-protobuf or application/json".to_owned(),
            RequestRejection::Unauthenticated => "credentials are missing or unknown".to_owned(),
        };
        text.chars().take(MAX_MESSAGE_CHARS).collect()
    }

    /// The gRPC code, the HTTP status, and the outcome in the self-metrics.
    pub(crate) fn codes(&self) -> (Code, StatusCode, RequestOutcome) {
        use BodyError::{CutOff, DecompressionRatio, InFlightLimit, Malformed, TooLarge};
        match self {
            RequestRejection::Body(TooLarge { .. } | DecompressionRatio { .. }) => {
                (Code::ResourceExhausted, StatusCode::PAYLOAD_TOO_LARGE, RequestOutcome::TooLarge)
            }
            RequestRejection::Body(Malformed(_)) | RequestRejection::Refused(Refused::Malformed(_)) => {
                (Code::InvalidArgument, StatusCode::BAD_REQUEST, RequestOutcome::Malformed)
            }
            // The body was lost in transit. Clients retry CANCELLED, and 503 but not 408: OTLP/HTTP lists
            // 429, 502, 503 and 504 as retryable.
            RequestRejection::Body(CutOff(_)) => {
                (Code::Cancelled, StatusCode::SERVICE_UNAVAILABLE, RequestOutcome::CutOff)
            }
            RequestRejection::Body(InFlightLimit) | RequestRejection::Refused(Refused::Overloaded { .. }) => {
                (Code::Unavailable, StatusCode::SERVICE_UNAVAILABLE, RequestOutcome::Overloaded)
            }
            RequestRejection::Refused(Refused::ShuttingDown) => {
                (Code::Unavailable, StatusCode::SERVICE_UNAVAILABLE, RequestOutcome::ShuttingDown)
            }
            RequestRejection::Refused(Refused::Undeliverable(_)) => {
                (Code::Unavailable, StatusCode::SERVICE_UNAVAILABLE, RequestOutcome::Unsupported)
            }
            RequestRejection::Refused(Refused::Unsupported(_)) => {
                (Code::Unimplemented, StatusCode::NOT_FOUND, RequestOutcome::Unsupported)
            }
            RequestRejection::Encoding(_) | RequestRejection::ContentType => {
                (Code::Unimplemented, StatusCode::UNSUPPORTED_MEDIA_TYPE, RequestOutcome::Unsupported)
            }
            RequestRejection::Unauthenticated => {
                (Code::Unauthenticated, StatusCode::UNAUTHORIZED, RequestOutcome::Unauthenticated)
            }
        }
    }

    /// The body of an error response.
    pub(crate) fn status(&self) -> rpc::RpcStatus {
        rpc::RpcStatus::new(self.codes().0 as i32, self.message(), self.retry_delay())
    }
}
