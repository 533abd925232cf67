//! Between a transport and the intake: offers the message, counts the answer, and encodes what
//! OTLP says in the body of an answer.
//!
//! In: the unpacked message, or a [`Rejection`]. Out: `Export*ServiceResponse`, or
//! `google.rpc.Status` with `RetryInfo` where trying again would help.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceResponse,
};
use prost::Message as _;

use super::auth::Guard;
use super::body::{BodyError, Hold, Room};
use super::rpc;
use super::{Accepted, Intake, Offer, Refused};
use crate::telemetry::{RequestOutcome, Telemetry};
use verdict_otlp::{Signal, Transport};

/// When to come again after the room for requests in flight was full: it empties as fast as
/// acknowledgements go out.
const ROOM_RETRY: Duration = Duration::from_secs(1);

/// How long a sender may stall within a body before it is given up.
pub(crate) const STALL: Duration = Duration::from_secs(30);

/// Longest message in an answer; gRPC carries it in a header.
const MESSAGE_CHARS: usize = 1024;

/// What requests of one transport are handed in at.
pub(crate) struct Desk {
    pub(crate) transport: Transport,
    pub(crate) intake: Arc<dyn Intake>,
    pub(crate) telemetry: Arc<Telemetry>,
    pub(crate) room: Room,
    /// Largest message, unpacked.
    pub(crate) limit: usize,
    /// How many times larger than sent.
    pub(crate) ratio: u32,
    /// Who asks for credentials, if anybody.
    pub(crate) guard: Option<Arc<Guard>>,
}

/// Why a request was turned away.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Rejection {
    Body(BodyError),
    Refused(Refused),
    /// A compression that is not served; its name.
    Encoding(String),
    /// No credential, or one that is not known.
    Unauthenticated,
}

impl From<BodyError> for Rejection {
    fn from(error: BodyError) -> Rejection {
        Rejection::Body(error)
    }
}

impl Rejection {
    /// When to try again, where that would help.
    pub(crate) fn retry(&self) -> Option<Duration> {
        match self {
            Rejection::Refused(Refused::Overloaded { retry }) => Some(*retry),
            Rejection::Refused(Refused::ShuttingDown) | Rejection::Body(BodyError::NoRoom) => {
                Some(ROOM_RETRY)
            }
            _ => None,
        }
    }

    pub(crate) fn message(&self) -> String {
        let text = match self {
            Rejection::Body(error) => error.to_string(),
            Rejection::Refused(refused) => refused.to_string(),
            Rejection::Encoding(name) => format!("compression {name:?} is not served; use gzip or zstd"),
            Rejection::Unauthenticated => "credentials are missing or not known".to_owned(),
        };
        text.chars().take(MESSAGE_CHARS).collect()
    }

    fn outcome(&self) -> RequestOutcome {
        match self {
            Rejection::Body(BodyError::TooLarge { .. } | BodyError::Ratio { .. }) => RequestOutcome::TooLarge,
            Rejection::Body(BodyError::Malformed(_)) | Rejection::Refused(Refused::Malformed(_)) => {
                RequestOutcome::Malformed
            }
            Rejection::Body(BodyError::CutOff(_)) => RequestOutcome::CutOff,
            Rejection::Body(BodyError::NoRoom) | Rejection::Refused(Refused::Overloaded { .. }) => {
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

impl Desk {
    /// Asked first of all.
    pub(crate) fn admit(&self, headers: &HeaderMap) -> Result<(), Rejection> {
        match &self.guard {
            Some(guard) if !guard.admits(headers) => Err(Rejection::Unauthenticated),
            _ => Ok(()),
        }
    }

    /// What a refusal for want of credentials says would help.
    pub(crate) fn challenge(&self, answer: &mut HeaderMap) {
        if let Some(guard) = &self.guard {
            guard.challenge(answer);
        }
    }

    /// Asked before a body is read.
    pub(crate) fn pressure(&self) -> Result<(), Rejection> {
        match self.intake.pressure() {
            Some(retry) => Err(Rejection::Refused(Refused::Overloaded { retry })),
            None => Ok(()),
        }
    }

    /// Offers a message; its share of the room is held until the answer is there.
    pub(crate) async fn offer(&self, signal: Signal, body: Bytes, hold: Hold) -> Result<Accepted, Rejection> {
        self.telemetry.receive.body(self.transport, signal, body.len());
        let answer = self.intake.offer(Offer { signal, body }).await;
        drop(hold);
        answer.map_err(Rejection::Refused)
    }

    /// Counts a request in a type that is not served.
    pub(crate) fn unsupported(&self, signal: Signal) {
        self.telemetry.receive.request(self.transport, signal, RequestOutcome::Unsupported);
    }

    /// Counts how a request ended.
    pub(crate) fn count(&self, signal: Signal, answer: &Result<Accepted, Rejection>) {
        let outcome = match answer {
            Ok(accepted) if accepted.rejected > 0 => RequestOutcome::Partial,
            Ok(_) => RequestOutcome::Accepted,
            Err(rejection) => rejection.outcome(),
        };
        self.telemetry.receive.request(self.transport, signal, outcome);
        match answer {
            Ok(accepted) => self.telemetry.receive.rejected(self.transport, signal, accepted.rejected),
            Err(rejection) => {
                let (transport, signal) = (self.transport.as_str(), signal.as_str());
                tracing::debug!(transport, signal, why = %rejection.message(), "request refused");
            }
        }
    }
}

/// The type of details that say when to try again.
pub(crate) const RETRY_INFO: &str = "type.googleapis.com/google.rpc.RetryInfo";

/// The response of all three services: they differ in the name of one field, which does not show
/// on the wire.
pub(crate) fn response(accepted: Accepted) -> ExportTraceServiceResponse {
    // OTLP: left out on full success; a message with nothing rejected is a warning.
    let partial = accepted.rejected > 0 || !accepted.message.is_empty();
    ExportTraceServiceResponse {
        partial_success: partial.then(|| ExportTracePartialSuccess {
            rejected_spans: i64::try_from(accepted.rejected).unwrap_or(i64::MAX),
            error_message: accepted.message,
        }),
    }
}

/// A rejection in the body of an error answer.
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

/// The gRPC code of a rejection; OTLP/HTTP writes it into its error bodies as well.
pub(crate) fn code(rejection: &Rejection) -> tonic::Code {
    match rejection {
        Rejection::Body(BodyError::TooLarge { .. } | BodyError::Ratio { .. }) => {
            tonic::Code::ResourceExhausted
        }
        Rejection::Body(BodyError::NoRoom) => tonic::Code::Unavailable,
        Rejection::Body(BodyError::Malformed(_)) => tonic::Code::InvalidArgument,
        // Retryable by OTLP's table, which a body lost on its way deserves.
        Rejection::Body(BodyError::CutOff(_)) => tonic::Code::Cancelled,
        Rejection::Refused(Refused::Malformed(_)) => tonic::Code::InvalidArgument,
        Rejection::Refused(Refused::Overloaded { .. } | Refused::ShuttingDown) => tonic::Code::Unavailable,
        Rejection::Encoding(_) | Rejection::Refused(Refused::Unsupported(_)) => tonic::Code::Unimplemented,
        Rejection::Unauthenticated => tonic::Code::Unauthenticated,
    }
}
