//! Why a request was rejected, as gRPC code, `google.rpc.Status`, retry delay and metric label.

use std::time::Duration;

use prost::Message as _;

use super::body::BodyError;
use super::intake::Refused;
use super::rpc;
use crate::telemetry::RequestOutcome;

/// Retry delay after the limit of bytes in flight was reached: they are released as fast as requests
/// are acknowledged.
const IN_FLIGHT_RETRY: Duration = Duration::from_secs(1);

/// Longest message in a response; gRPC sends it in a header.
const MESSAGE_CHARS: usize = 1024;

/// Type of the status details that hold the retry delay.
pub(crate) const RETRY_INFO: &str = "type.googleapis.com/google.rpc.RetryInfo";

/// Why a request was rejected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Rejection {
    Body(BodyError),
    Refused(Refused),
    /// Name of an unsupported compression.
    Encoding(String),
    /// Missing or unknown credentials.
    Unauthenticated,
}

impl From<BodyError> for Rejection {
    fn from(error: BodyError) -> Rejection {
        Rejection::Body(error)
    }
}

impl Rejection {
    /// The retry delay, if retrying would help.
    pub(crate) fn retry(&self) -> Option<Duration> {
        match self {
            Rejection::Refused(Refused::Overloaded { retry }) => Some(*retry),
            Rejection::Refused(Refused::ShuttingDown) | Rejection::Body(BodyError::InFlightLimit) => {
                Some(IN_FLIGHT_RETRY)
            }
            _ => None,
        }
    }

    pub(crate) fn message(&self) -> String {
        let text = match self {
            Rejection::Body(error) => error.to_string(),
            Rejection::Refused(refused) => refused.to_string(),
            Rejection::Encoding(name) => format!("compression {name:?} is not supported; use gzip or zstd"),
            Rejection::Unauthenticated => "credentials are missing or unknown".to_owned(),
        };
        text.chars().take(MESSAGE_CHARS).collect()
    }

    pub(crate) fn outcome(&self) -> RequestOutcome {
        match self {
            Rejection::Body(BodyError::TooLarge { .. } | BodyError::Ratio { .. }) => RequestOutcome::TooLarge,
            Rejection::Body(BodyError::Malformed(_)) | Rejection::Refused(Refused::Malformed(_)) => {
                RequestOutcome::Malformed
            }
            Rejection::Body(BodyError::CutOff(_)) => RequestOutcome::CutOff,
            Rejection::Body(BodyError::InFlightLimit) | Rejection::Refused(Refused::Overloaded { .. }) => {
                RequestOutcome::Overloaded
            }
            Rejection::Refused(Refused::ShuttingDown) => RequestOutcome::ShuttingDown,
            Rejection::Encoding(_) | Rejection::Refused(Refused::Unsupported(_)) => {
                RequestOutcome::Unsupported
            }
            Rejection::Unauthenticated => RequestOutcome::Unauthenticated,
        }
    }
}

/// The body of an error response.
pub(crate) fn status(rejection: &Rejection) -> rpc::Status {
    let details = rejection.retry().map(|retry| {
        let delay = rpc::Duration {
            seconds: i64::try_from(retry.as_secs()).unwrap_or(i64::MAX),
            nanos: i32::try_from(retry.subsec_nanos()).unwrap_or(0),
        };
        let info = rpc::RetryInfo { retry_delay: Some(delay) };
        rpc::Any { type_url: RETRY_INFO.to_owned(), value: info.encode_to_vec().into() }
    });
    rpc::Status {
        code: code(rejection) as i32,
        message: rejection.message(),
        details: details.into_iter().collect(),
    }
}

/// The gRPC code of a rejection; also part of OTLP/HTTP's error bodies.
pub(crate) fn code(rejection: &Rejection) -> tonic::Code {
    match rejection {
        Rejection::Body(BodyError::TooLarge { .. } | BodyError::Ratio { .. }) => {
            tonic::Code::ResourceExhausted
        }
        Rejection::Body(BodyError::InFlightLimit) => tonic::Code::Unavailable,
        Rejection::Body(BodyError::Malformed(_)) => tonic::Code::InvalidArgument,
        // Retryable by OTLP's table: the body was lost in transit.
        Rejection::Body(BodyError::CutOff(_)) => tonic::Code::Cancelled,
        Rejection::Refused(Refused::Malformed(_)) => tonic::Code::InvalidArgument,
        Rejection::Refused(Refused::Overloaded { .. } | Refused::ShuttingDown) => tonic::Code::Unavailable,
        Rejection::Encoding(_) | Rejection::Refused(Refused::Unsupported(_)) => tonic::Code::Unimplemented,
        Rejection::Unauthenticated => tonic::Code::Unauthenticated,
    }
}
