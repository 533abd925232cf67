//! The result of sending some scores.

use crate::export::response::ExportResponse;

/// Scores that the back end refused for good, while it took others, and the first reason.
#[derive(Debug, Default)]
pub(super) struct Refused {
    pub scores: u64,
    pub reason: String,
}

impl Refused {
    pub(super) fn add(&mut self, scores: usize, reason: String) {
        self.scores += scores as u64;
        if self.reason.is_empty() {
            self.reason = reason;
        }
    }
}

/// The result of sending some scores.
pub(super) type Sent = Result<Refused, ExportResponse>;
