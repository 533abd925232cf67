//! The scores of a request, and which of them the back end has already: a retry sends the others.

use std::sync::MutexGuard;

use super::read::Score;
use crate::export::pack::{Delivered, ExportRequest};
use crate::export::response::ExportResponse;

/// The scores of a request. They are the same in every attempt.
#[derive(Debug)]
pub(super) struct Scores<'a> {
    request: &'a ExportRequest,
    /// Each with the number of its chunk.
    all: Vec<(usize, Score)>,
}

/// The result of an attempt: `Err` if scores are left.
pub(super) type Sent = Result<(), ExportResponse>;

impl<'a> Scores<'a> {
    pub(super) fn new(request: &'a ExportRequest, all: Vec<(usize, Score)>) -> Scores<'a> {
        Scores { request, all }
    }

    /// Scores that are still to be sent, with their numbers.
    pub(super) fn left(&self) -> Vec<(usize, &Score)> {
        let delivered = self.request.delivered();
        let all = self.all.iter().enumerate().map(|(at, (_, score))| (at, score));
        all.filter(|(at, _)| !delivered.messages.contains(at)).collect()
    }

    /// Records that the back end has these scores, or that they are none of its scores.
    pub(super) fn mark_delivered(&self, scores: impl IntoIterator<Item = usize>) {
        self.request.delivered().messages.extend(scores);
    }

    /// Records that the back end refused this score for good, while it takes others.
    pub(super) fn refused(&self, score: usize, reason: String) {
        let mut delivered = self.request.delivered();
        delivered.messages.insert(score);
        delivered.refused.insert(score);
        if delivered.reason.is_empty() {
            delivered.reason = reason;
        }
    }

    /// Notes the chunks none of whose scores is left.
    pub(super) fn end_attempt(&self) -> MutexGuard<'a, Delivered> {
        let mut delivered = self.request.delivered();
        delivered.chunks = (0..self.request.chunks().len()).map(|chunk| (chunk, 0)).collect();
        for (at, (chunk, _)) in self.all.iter().enumerate() {
            if !delivered.messages.contains(&at) {
                delivered.chunks.remove(chunk);
            } else if delivered.refused.contains(&at)
                && let Some(refused) = delivered.chunks.get_mut(chunk)
            {
                *refused += 1;
            }
        }
        delivered
    }
}
