//! Recovery at start: traces of the journal that were open are opened again, and records that a required
//! exporter has not acknowledged are exported again.
//!
//! In: the recovered records. Out: work for the shards, and deliveries to the exporters that have not
//! acknowledged them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::timeout;
use verdict_config::Size;
use verdict_eval::EncodedAnnotations;
use verdict_journal::{Journal, JournalRecord, Recovered, RetainReason, Seq, VerdictRecord};
use verdict_otlp::request::{self, Group};
use verdict_otlp::trace::{CloseReason, Span, TraceId, Tree};
use verdict_otlp::{Signal, logs};

use super::Pipeline;
use super::deliver::{export, forward};
use super::forwarding::set_forwarded;
use super::ingest::ShardItem;
use super::store::EncodedTrace;
use crate::assemble::{Assembler, Close};
use crate::export::Parcel;
use crate::receive::Refused;

/// A shard that accepts no message for this time is assumed to wait for an exporter.
const STALL_TIMEOUT: Duration = Duration::from_secs(2);

impl Pipeline {
    /// Opens traces again before it returns, unless a shard waits for an exporter, whose destination may be unreachable
    /// for hours: then a task opens the remaining traces while requests are accepted. The task also exports the other
    /// records when the exporters have room.
    pub(super) async fn recover(self: &Arc<Self>, journal: &Arc<Journal>, recovered: Recovered) {
        let Recovered { open, verdicts, forwarded, closed, corrupt, truncated_bytes } = recovered;
        let records = open.len() + verdicts.len() + forwarded.len();
        if records > 0 || corrupt + truncated_bytes > 0 {
            tracing::info!(
                requests = open.len(),
                evaluated = verdicts.len(),
                forwarded = forwarded.len(),
                corrupt,
                torn = truncated_bytes,
                "recovering records of the journal; corrupt and torn ones are skipped"
            );
        }
        // Closed traces come first, so that their further spans are recognised as late.
        if let Ok(reserved) = self.reserve(closed).await {
            reserved.send(&self.shared.budget, None);
        }
        let (progress, mut reopened) = watch::channel(());
        let (pipeline, journal) = (Arc::clone(self), Arc::clone(journal));
        self.tasks.spawn(async move {
            for (seq, traces) in open {
                if pipeline.inboxes().is_empty() {
                    return;
                }
                pipeline.reopen(&journal, seq, &traces.into_iter().collect()).await;
                progress.send_replace(());
            }
            drop(progress);
            for (seq, acked) in verdicts.into_iter().chain(forwarded) {
                // The process stops, and the remaining records stay in the journal for the next start.
                if pipeline.inboxes().is_empty() {
                    return;
                }
                match journal.read(seq).await {
                    Some(JournalRecord::Verdict(verdict)) => {
                        pipeline.resend(&journal, seq, verdict, &acked).await
                    }
                    Some(JournalRecord::Request { signal, body, .. }) => {
                        for piece in Parcel::request(signal, body).pieces {
                            forward(&pipeline.shared, Some(seq), signal, piece, &acked).await;
                        }
                    }
                    _ => log_unreadable(seq),
                }
            }
        });
        // `changed` fails once the sender is dropped, after the last trace was reopened.
        while let Ok(changed) = timeout(STALL_TIMEOUT, reopened.changed()).await {
            if changed.is_err() {
                return;
            }
        }
        tracing::warn!(
            "recovery waits for an exporter that does not respond; requests are accepted meanwhile, and spans of the journal may be late for their trace"
        );
    }

    /// Sends the spans or logs of a stored request that belong to `traces` to their shards.
    async fn reopen(&self, journal: &Arc<Journal>, seq: Seq, traces: &BTreeSet<TraceId>) {
        let Some(JournalRecord::Request { signal, forwarded, body, .. }) = journal.read(seq).await else {
            return log_unreadable(seq);
        };
        let sent = match signal {
            Signal::Traces => self.reopen_items(seq, self.groups(&body, forwarded), traces).await,
            Signal::Logs => {
                let records = logs::find(&body).map(|records| records.gen_ai).unwrap_or_default();
                self.reopen_items(seq, records, traces).await
            }
            Signal::Metrics => Ok(()),
        };
        if sent.is_err() {
            tracing::warn!(
                seq,
                "recovery was stopped; this record and later ones stay in the journal for the next start"
            );
        }
    }

    /// Sends the items that belong to `traces` to their shards.
    async fn reopen_items<T: ShardItem>(
        &self,
        seq: Seq,
        mut items: Vec<T>,
        traces: &BTreeSet<TraceId>,
    ) -> Result<(), Refused> {
        items.retain(|item| traces.contains(&item.trace()));
        self.reserve(items).await?.send(&self.shared.budget, Some(seq));
        Ok(())
    }

    /// The spans of a stored request. `forwarded`: they were exported on arrival.
    fn groups(&self, body: &[u8], forwarded: bool) -> Vec<Group> {
        // The body was valid when it was stored.
        let split = request::split(body, &self.prefix, &self.envelopes);
        let mut groups = split.map(|split| split.groups).unwrap_or_default();
        if forwarded {
            set_forwarded(&mut groups);
        }
        groups
    }

    /// Exports an evaluated trace again, with its stored verdict.
    async fn resend(&self, journal: &Arc<Journal>, seq: Seq, verdict: VerdictRecord, acked: &[String]) {
        let mut groups = Vec::new();
        for &request in verdict.requests.iter().filter(|_| verdict.with_spans) {
            if let Some(JournalRecord::Request { signal: Signal::Traces, forwarded, body, .. }) =
                journal.read(request).await
            {
                let request_groups = self.groups(&body, forwarded).into_iter();
                groups.extend(request_groups.filter(|group| group.trace == verdict.trace));
            }
        }
        let tree = Tree::new(verdict.trace, without_duplicates(groups));
        if tree.len() != verdict.lengths.len() {
            tracing::error!(trace = %verdict.trace, "spans of an evaluated trace are missing in the journal; the trace is evaluated again");
            journal.release(vec![(seq, RetainReason::Verdict)]);
            for request in verdict.requests {
                self.reopen(journal, request, &BTreeSet::from([verdict.trace])).await;
            }
            return;
        }
        let lengths = verdict.lengths.iter().map(|&n| n as usize).collect();
        let annotations =
            EncodedAnnotations { appended: verdict.appended.clone(), lengths, events: Vec::new() };
        let spans = annotations.apply(&self.shared.config.load_full().evaluator, &tree).0;
        let trace = EncodedTrace { verdict, spans, started: Instant::now() };
        export(&self.shared, Some(seq), trace, acked).await;
    }
}

fn log_unreadable(seq: Seq) {
    tracing::error!(seq, "a record of the journal cannot be read; it is not recovered");
}

/// The spans of one trace without resends, in the order in which the assembler closed it.
fn without_duplicates(groups: Vec<Group>) -> Vec<Span> {
    let unlimited = Close { max_spans: usize::MAX, max_bytes: Size(u64::MAX), ..Close::default() };
    let mut assembler = Assembler::new(unlimited);
    for group in groups {
        assembler.add(group.trace, group.spans, group.size, |_| None, Instant::now());
    }
    assembler.close_all(CloseReason::Shutdown).pop().map(|closed| closed.spans).unwrap_or_default()
}
