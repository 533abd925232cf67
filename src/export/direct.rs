//! One destination spoken to without queue, joining or retries: `replay` sends what was recorded
//! as it was recorded, and hears what became of each request.
//!
//! In: an encoded request. Out: how many of its items were not taken, or why all were not.

use std::time::Duration;

use bytes::Bytes;

use super::StartError;
use super::answer::Answer;
use super::config::{Compression, OtlpGrpc, OtlpHttp};
use super::grpc::GrpcClient;
use super::http::HttpClient;
use super::otlp::Client;
use super::pack::Packing;
use verdict_otlp::Signal;

/// A client that sends one request at a time.
#[derive(Debug)]
pub struct Direct {
    client: Client,
}

/// A request was not taken.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[error("{why}")]
pub struct NotTaken {
    /// Sending it again may help; not before this, where the destination says so.
    pub again: Option<Option<Duration>>,
    /// The destination's reason.
    pub why: String,
}

impl Direct {
    /// Over gRPC. Connects with the first request.
    ///
    /// # Errors
    /// The endpoint, a header or TLS cannot be used.
    pub fn grpc(config: &OtlpGrpc) -> Result<Direct, StartError> {
        Ok(Direct { client: Client::Grpc(Box::new(GrpcClient::new(config)?)) })
    }

    /// Over HTTP. Connects with the first request.
    ///
    /// # Errors
    /// The endpoint, a header or TLS cannot be used.
    pub fn http(config: &OtlpHttp) -> Result<Direct, StartError> {
        Ok(Direct { client: Client::Http(Box::new(HttpClient::new(config)?)) })
    }

    /// Sends one encoded request. `Ok` says how many items were rejected, and why.
    ///
    /// # Errors
    /// None of it was taken.
    pub async fn send(&self, signal: Signal, body: &Bytes) -> Result<(u64, String), NotTaken> {
        let packing = Packing { compression: Compression::None, level: 0 };
        let packed = packing.pack(std::iter::once(body)).await;
        match self.client.export(signal, &packed).await.answer {
            Answer::Taken { rejected, message } => Ok((rejected, message)),
            Answer::Later { after, why } => Err(NotTaken { again: Some(after), why }),
            Answer::TooLarge(why)
            | Answer::Invalid(why)
            | Answer::Refused(why)
            | Answer::Unsupported(why) => Err(NotTaken { again: None, why }),
        }
    }
}
