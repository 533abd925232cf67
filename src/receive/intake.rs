//! The interface between receivers and the pipeline.
//!
//! In: an [`Offer`]. Out: [`Accepted`] or [`Refused`], which each protocol encodes by OTLP's rules.

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use verdict_journal::Seq;
use verdict_otlp::Signal;

/// One decompressed request: the encoded `Export*ServiceRequest` message.
#[derive(Clone, Debug)]
pub struct Offer {
    pub signal: Signal,
    /// The message in an allocation of its own; a JSON request has been converted to protobuf.
    pub body: Bytes,
}

/// The request was accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accepted {
    /// Rejected spans, log records or data points; 0 for full success.
    pub rejected: u64,
    /// Names rejected items and the reasons; empty for full success.
    pub message: String,
}

/// The whole request was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// Not a valid message: INVALID_ARGUMENT / 400, not retryable.
    #[error("malformed request: {0}")]
    Malformed(String),
    /// UNAVAILABLE with RetryInfo / 503 with Retry-After.
    #[error("overloaded, try again in {retry:?}")]
    Overloaded {
        /// Delay after which the sender should retry.
        retry: Duration,
    },
    /// No exporter is configured for the signal, so accepting would drop it: UNIMPLEMENTED / 404.
    #[error("no exporter accepts {}", .0.as_str())]
    Unsupported(Signal),
    /// The destinations do not accept the signal at present. Retryable as [`Refused::Overloaded`], since the response
    /// of a proxy without a route is the same as that of a destination without the signal.
    #[error("no destination accepts {} at present", .0.as_str())]
    Undeliverable(Signal),
    /// Retryable as [`Refused::Overloaded`]: another instance may accept the request.
    #[error("shutting down")]
    ShuttingDown,
}

/// Boxed, so that receivers are not generic over the pipeline.
pub type OfferFuture<'a> = Pin<Box<dyn Future<Output = Result<Accepted, Refused>> + Send + 'a>>;

/// The future of [`Intake::drop_revoked`].
pub type DropFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The destination of requests. Implemented by `pipeline`.
pub trait Intake: Send + Sync + 'static {
    /// Called before a body is read: `Some(delay)` to refuse the request and ask for a retry.
    fn pressure(&self) -> Option<Duration>;
    /// Accepts a request; returns when it may be acknowledged.
    fn offer(&self, offer: Offer) -> OfferFuture<'_>;
    /// Like [`Intake::offer`], for a request that is stored as `_record`: the record is released when it is no longer
    /// needed.
    fn offer_stored(&self, offer: Offer, _record: Seq) -> OfferFuture<'_> {
        self.offer(offer)
    }
    /// Drops the open traces whose partitions were revoked; returns when none of them is open.
    fn drop_revoked(&self) -> DropFuture {
        Box::pin(std::future::ready(()))
    }
    /// Counts bytes of the receiver in the memory budget until the returned value is dropped.
    fn charge(&self, _bytes: usize) -> Box<dyn Any + Send> {
        Box::new(())
    }
}
