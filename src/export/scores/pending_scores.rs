//! The scores of a request, and whether the back end has accepted or refused each: a retry sends only the remaining
//! ones.

use std::sync::MutexGuard;

use super::read::Score;
use crate::export::pack::{DeliveryProgress, ExportRequest};
use crate::export::response::ExportResponse;

/// The scores of a request. Every attempt decodes the same scores in the same order, so that indices stay valid.
#[derive(Debug)]
pub(super) struct PendingScores<'a> {
    request: &'a ExportRequest,
    /// Each score with the index of its chunk.
    all: Vec<(usize, Score)>,
}

/// The result of an attempt: `Err` if scores remain to be sent.
pub(super) type SendResult = Result<(), ExportResponse>;

impl<'a> PendingScores<'a> {
    pub(super) fn new(request: &'a ExportRequest, all: Vec<(usize, Score)>) -> PendingScores<'a> {
        PendingScores { request, all }
    }

    /// Scores that the back end has neither accepted nor refused yet, with their indices.
    pub(super) fn unsent(&self) -> Vec<(usize, &Score)> {
        let delivered = self.request.delivered();
        let all = self.all.iter().enumerate().map(|(index, (_, score))| (index, score));
        all.filter(|(index, _)| !delivered.messages.contains(index)).collect()
    }

    /// Records that the back end has accepted these scores, or that it has no representation for them.
    pub(super) fn mark_delivered(&self, scores: impl IntoIterator<Item = usize>) {
        self.request.delivered().messages.extend(scores);
    }

    /// Records that the back end refused this score permanently because of its content.
    pub(super) fn mark_refused(&self, score: usize, reason: String) {
        let mut delivered = self.request.delivered();
        delivered.messages.insert(score);
        delivered.refused.insert(score);
        if delivered.reason.is_empty() {
            delivered.reason = reason;
        }
    }

    /// Records the chunks without unsent scores as delivered, each with the number of its refused scores.
    pub(super) fn end_attempt(&self) -> MutexGuard<'a, DeliveryProgress> {
        let mut delivered = self.request.delivered();
        delivered.chunks = (0..self.request.chunks().len()).map(|chunk| (chunk, 0)).collect();
        for (index, (chunk, _)) in self.all.iter().enumerate() {
            if !delivered.messages.contains(&index) {
                delivered.chunks.remove(chunk);
            } else if delivered.refused.contains(&index)
                && let Some(refused) = delivered.chunks.get_mut(chunk)
            {
                *refused += 1;
            }
        }
        delivered
    }
}
