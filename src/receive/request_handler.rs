//! The part of request handling that both transports share: authentication, back pressure, offering
//! the message to the intake, and metrics.
//!
//! In: the decompressed message. Out: `Export*ServiceResponse`, or a [`RequestRejection`].

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{Extensions, HeaderMap};
use http_body_util::BodyExt as _;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceResponse,
};
use tokio::time::{Instant, timeout_at};
use verdict_otlp::{Signal, Transport};

use super::auth::Authenticator;
use super::body::{BodyDecoder, BodyError, Coding};
use super::connections::OpenConnection;
use super::intake::{Accepted, Intake, Offer, Refused};
use super::rejection::RequestRejection;
use crate::reservation::{ByteLimit, FairReservation};
use crate::telemetry::{RequestOutcome, Telemetry};

/// How long a sender may pause within a body before the request is rejected.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);

/// A body must be complete after this time, plus one second for each [`MIN_BYTES_PER_SECOND`] bytes. Senders time out
/// after 10 s by default.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// The lowest rate at which a sender may send a body. A slower sender would occupy its stream, its headers and its
/// memory for hours.
const MIN_BYTES_PER_SECOND: u32 = 64 << 10;

/// Handles the requests of one transport.
pub(crate) struct RequestHandler {
    pub(crate) transport: Transport,
    pub(crate) intake: Arc<dyn Intake>,
    pub(crate) telemetry: Arc<Telemetry>,
    /// Bytes of all requests in flight.
    pub(crate) in_flight: ByteLimit,
    /// Largest message after decompression, in bytes.
    pub(crate) max_message_bytes: usize,
    /// Largest ratio of decompressed to received bytes.
    pub(crate) max_ratio: u32,
    pub(crate) authenticator: Option<Arc<Authenticator>>,
}

impl RequestHandler {
    /// Rejects a request without valid credentials, if some are required.
    pub(crate) fn authenticate(&self, headers: &HeaderMap) -> Result<(), RequestRejection> {
        match &self.authenticator {
            Some(authenticator) if !authenticator.accepts(headers) => Err(RequestRejection::Unauthenticated),
            _ => Ok(()),
        }
    }

    /// Adds `WWW-Authenticate` to the response to an unauthenticated request.
    pub(crate) fn challenge(&self, rejection: &RequestRejection, response: &mut HeaderMap) {
        if let (Some(authenticator), RequestRejection::Unauthenticated) = (&self.authenticator, rejection) {
            authenticator.challenge(response);
        }
    }

    /// A decoder whose memory is charged to the peer of the request with these extensions. `overhead` is charged
    /// as well.
    pub(crate) fn body_decoder(
        &self,
        coding: Coding,
        content_length: Option<usize>,
        extensions: &Extensions,
        overhead: usize,
    ) -> Result<BodyDecoder, BodyError> {
        let reservation = self.in_flight.reserve_for(&OpenConnection::limit_of(extensions));
        BodyDecoder::new(
            coding,
            content_length,
            self.max_message_bytes,
            self.max_ratio,
            (overhead, reservation),
        )
    }

    /// Rejects the request while the pipeline is overloaded; called before the body is read.
    pub(crate) fn check_pressure(&self) -> Result<(), RequestRejection> {
        match self.intake.pressure() {
            Some(retry) => Err(RequestRejection::Refused(Refused::Overloaded { retry })),
            None => Ok(()),
        }
    }

    /// Offers a message to the intake; its bytes stay reserved until the intake has answered.
    pub(crate) async fn offer(
        &self,
        signal: Signal,
        body: Bytes,
        reservation: FairReservation,
    ) -> Result<Accepted, RequestRejection> {
        self.telemetry.receive.count_body(self.transport, signal, body.len());
        let result = self.intake.offer(Offer { signal, body }).await;
        drop(reservation);
        result.map_err(RequestRejection::Refused)
    }

    /// Counts the result of a request.
    pub(crate) fn count(&self, signal: Signal, result: &Result<Accepted, RequestRejection>) {
        let outcome = match result {
            Ok(accepted) if accepted.rejected > 0 => RequestOutcome::Partial,
            Ok(_) => RequestOutcome::Accepted,
            Err(rejection) => rejection.codes().2,
        };
        self.telemetry.receive.count_request(self.transport, signal, outcome);
        match result {
            Ok(accepted) => self.telemetry.receive.count_rejected(self.transport, signal, accepted.rejected),
            Err(rejection) => {
                let (transport, signal) = (self.transport.as_str(), signal.as_str());
                tracing::debug!(transport, signal, reason = %rejection.message(), "request rejected");
            }
        }
    }
}

/// The deadline of a body that has begun now; each chunk extends it.
pub(crate) fn body_deadline() -> Instant {
    Instant::now() + BODY_TIMEOUT
}

/// The next chunk of a request body; `None` at its end.
pub(crate) async fn next_chunk(body: &mut Body, deadline: &mut Instant) -> Result<Option<Bytes>, BodyError> {
    loop {
        match timeout_at((*deadline).min(Instant::now() + STALL_TIMEOUT), body.frame()).await {
            Err(_) => return Err(BodyError::CutOff("the request body arrives too slowly")),
            Ok(Some(Err(_))) => return Err(BodyError::CutOff("the request body was cut off")),
            Ok(None) => return Ok(None),
            Ok(Some(Ok(frame))) => {
                if let Ok(data) = frame.into_data() {
                    let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
                    *deadline += Duration::from_secs(1) * length / MIN_BYTES_PER_SECOND;
                    return Ok(Some(data));
                }
            }
        }
    }
}

/// The response of all three services: they differ only in the name of one field, which is not part
/// of the encoding.
pub(crate) fn response(accepted: Accepted) -> ExportTraceServiceResponse {
    // OTLP: absent on full success; a message without rejected items is a warning.
    let is_partial = accepted.rejected > 0 || !accepted.message.is_empty();
    ExportTraceServiceResponse {
        partial_success: is_partial.then(|| ExportTracePartialSuccess {
            rejected_spans: i64::try_from(accepted.rejected).unwrap_or(i64::MAX),
            error_message: accepted.message,
        }),
    }
}
