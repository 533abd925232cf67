//! The pipeline with a journal: what is written before what, and how it is taken up again.
//!
//! In: requests to be stored, judged traces, and what the journal recovered at start. Out: the same parcels
//! as without a journal, each with a [`Delivery`] whose acknowledgements release its records.
//!
//! Room in the shards' inboxes is taken first, then the request is written, then it is dealt: so a
//! request is in the log and in memory, or in neither.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;

use super::conclude::Leaving;
use super::shard::{Shared, Work};
use super::{MAX_REQUEST, Pipeline, RETRY, items};
use crate::assemble::{Assembler, Close};
use crate::export::Parcel;
use crate::receive::Refused;
use verdict_config::Size;
use verdict_eval::annotate::Marks;
use verdict_journal::{
    AppendedRequest, Delivery, Journal, Record, Recovered, RetainReason, Seq, VerdictRecord,
};
use verdict_otlp::Piece;
use verdict_otlp::Signal;
use verdict_otlp::logs;
use verdict_otlp::logs::Logs;
use verdict_otlp::request;
use verdict_otlp::request::Group;
use verdict_otlp::trace::CloseReason;
use verdict_otlp::trace::{Span, TraceId, Tree};
use verdict_otlp::write;

/// Not kept, so not taken: the sender has it still.
const NOT_KEPT: Refused = Refused::Overloaded { retry: RETRY };

impl Pipeline {
    /// Keeps a request's spans, then takes them. `whole` is the request, where nothing was rejected.
    pub(super) async fn keep_traces(
        &self,
        journal: &Arc<Journal>,
        body: Bytes,
        whole: bool,
        groups: Vec<Group>,
        passed: Vec<Group>,
    ) -> Result<(), Refused> {
        let traces = groups.iter().map(|group| RetainReason::Trace(group.trace));
        let mut passing = Vec::new();
        let mut reasons = Vec::new();
        let judged = if self.shared.shadow && whole && passed.is_empty() {
            reasons.push(RetainReason::PassThrough);
            reasons.extend(traces);
            Some(body.clone())
        } else {
            let on_their_way = groups.iter().filter(|_| self.shared.shadow).chain(&passed);
            passing = write::requests(&items(on_their_way), MAX_REQUEST);
            reasons.extend(traces);
            match (groups.is_empty(), passed.is_empty()) {
                (true, _) => None,
                (false, true) => Some(body.clone()),
                (false, false) => write::requests(&items(&groups), usize::MAX).pop().map(|p| p.bytes),
            }
        };
        let spans = groups.iter().map(|group| group.spans.len() as u64).sum();
        let places = self.reserve(groups, |group| group.trace).await?;
        let mut admitted: Vec<(AppendedRequest, Piece)> = Vec::with_capacity(passing.len());
        let mut forward = Vec::new();
        for piece in passing {
            let kept = journal
                .append_request(Signal::Traces, vec![RetainReason::PassThrough], piece.bytes.clone())
                .await;
            admitted.push((kept.ok_or(NOT_KEPT)?, piece));
        }
        if let Some(judged) = judged {
            let passes = reasons.first() == Some(&RetainReason::PassThrough);
            let kept = journal.append_request(Signal::Traces, reasons, judged).await.ok_or(NOT_KEPT)?;
            let seq = kept.accept();
            self.put(places, |groups| self.spans(groups, Some(seq)));
            if passes {
                forward.push((seq, Piece { bytes: body, items: spans }));
            }
        }
        forward.extend(admitted.into_iter().map(|(kept, piece)| (kept.accept(), piece)));
        self.pass_on(journal, Signal::Traces, forward).await;
        Ok(())
    }

    /// Forwards stored requests, in a task of its own: if the sender disconnects they still have to be
    /// exported and released.
    async fn pass_on(&self, journal: &Arc<Journal>, signal: Signal, kept: Vec<(Seq, Piece)>) {
        if kept.is_empty() {
            return;
        }
        let (shared, journal) = (Arc::clone(&self.shared), Arc::clone(journal));
        let passing = self.tasks.spawn(async move {
            for (seq, piece) in kept {
                pass(&shared, &journal, seq, signal, piece, &[]).await;
            }
        });
        if let Err(error) = passing.await {
            tracing::error!(%error, "forwarding a request ended abnormally; this is a bug");
        }
    }

    /// Keeps a request of log records, then takes it; and forwards it, where anybody takes it.
    pub(super) async fn keep_logs(
        &self,
        journal: &Arc<Journal>,
        body: Bytes,
        found: Logs,
        forward: bool,
    ) -> Result<(), Refused> {
        let traces: BTreeSet<TraceId> = found.gen_ai.iter().map(|record| record.trace).collect();
        let forward = forward && found.records > 0;
        let reasons: Vec<RetainReason> = forward
            .then_some(RetainReason::PassThrough)
            .into_iter()
            .chain(traces.into_iter().map(RetainReason::Trace))
            .collect();
        if reasons.is_empty() {
            return Ok(());
        }
        let places = self.reserve(found.gen_ai, |record| record.trace).await?;
        let kept = journal.append_request(Signal::Logs, reasons, body.clone()).await.ok_or(NOT_KEPT)?;
        let seq = kept.accept();
        self.put(places, |records| self.records(records, Some(seq)));
        if forward {
            let piece = Piece { bytes: body, items: found.records };
            self.pass_on(journal, Signal::Logs, vec![(seq, piece)]).await;
        }
        Ok(())
    }

    /// Keeps a request that only passes through, then forwards it.
    pub(super) async fn keep_passing(
        &self,
        journal: &Arc<Journal>,
        signal: Signal,
        piece: Piece,
    ) -> Result<(), Refused> {
        if piece.items == 0 {
            return Ok(());
        }
        let kept = journal
            .append_request(signal, vec![RetainReason::PassThrough], piece.bytes.clone())
            .await
            .ok_or(NOT_KEPT)?;
        self.pass_on(journal, signal, vec![(kept.accept(), piece)]).await;
        Ok(())
    }

    /// Takes up what was in the log at start: open traces at once, what is to be sent again behind
    /// that, as the exporters have room.
    pub(super) async fn take_up(self: &Arc<Self>, journal: &Arc<Journal>, recovered: Recovered) {
        let Recovered { open, verdicts, passes, closed, corrupt, torn } = recovered;
        let (requests, judged, passing) = (open.len(), verdicts.len(), passes.len());
        if requests + judged + passing > 0 || corrupt + torn > 0 {
            tracing::info!(requests, judged, passing, corrupt, torn, "taking up what the journal held");
        }
        // First, so that what came after a trace had closed is known to be late.
        if let Ok(places) = self.reserve(closed, |(trace, _)| *trace).await {
            self.put(places, Work::Closed);
        }
        for (seq, traces) in open {
            self.reopen(journal, seq, &traces.into_iter().collect()).await;
        }
        let (this, journal) = (Arc::clone(self), Arc::clone(journal));
        self.tasks.spawn(async move {
            let records =
                verdicts.into_iter().map(|v| (v, true)).chain(passes.into_iter().map(|p| (p, false)));
            for ((seq, acked), is_verdict) in records {
                // What has not gone out by now stays in the log for the next start.
                if this.inboxes().is_empty() {
                    return;
                }
                match journal.read(seq).await {
                    Some(Record::Verdict(verdict)) if is_verdict => {
                        this.resend(&journal, seq, verdict, &acked).await
                    }
                    Some(Record::Request { signal, body, .. }) => {
                        let parcel = Parcel::request(signal, body);
                        for piece in parcel.pieces {
                            pass(&this.shared, &journal, seq, signal, piece, &acked).await;
                        }
                    }
                    _ => tracing::error!(seq, "a record of the journal cannot be read any more"),
                }
            }
        });
    }

    async fn reopen(&self, journal: &Arc<Journal>, seq: Seq, traces: &BTreeSet<TraceId>) {
        let Some(Record::Request { signal, body, .. }) = journal.read(seq).await else {
            return tracing::error!(seq, "a record of the journal cannot be read any more");
        };
        let sent = match signal {
            Signal::Traces => {
                let mut groups = self.groups(&body);
                groups.retain(|group| traces.contains(&group.trace));
                let places = self.reserve(groups, |group| group.trace).await;
                places.map(|all| self.put(all, |groups| self.spans(groups, Some(seq))))
            }
            Signal::Logs => {
                let mut records = logs::find(&body).map(|found| found.gen_ai).unwrap_or_default();
                records.retain(|record| traces.contains(&record.trace));
                let places = self.reserve(records, |record| record.trace).await;
                places.map(|all| self.put(all, |records| self.records(records, Some(seq))))
            }
            Signal::Metrics => Ok(()),
        };
        if sent.is_err() {
            tracing::warn!(seq, "stopped while taking up the journal; the rest stays there");
        }
    }

    fn groups(&self, body: &[u8]) -> Vec<Group> {
        // It was read once before it was kept.
        request::split(body, &self.prefix, &self.envelopes).map(|split| split.groups).unwrap_or_default()
    }

    /// Sends a judged trace again, with the verdict that it was given.
    async fn resend(&self, journal: &Arc<Journal>, seq: Seq, verdict: VerdictRecord, acked: &[String]) {
        let mut spans = Spans::new(verdict.trace);
        for &of in verdict.requests.iter().filter(|_| verdict.with_spans) {
            if let Some(Record::Request { signal: Signal::Traces, body, .. }) = journal.read(of).await {
                spans.add(self.groups(&body));
            }
        }
        let tree = Tree::new(verdict.trace, spans.all());
        if tree.len() != verdict.lengths.len() {
            tracing::error!(trace = %verdict.trace, "a judged trace in the journal is not whole; it is judged anew");
            journal.release(vec![(seq, RetainReason::Verdict)]);
            for of in verdict.requests {
                self.reopen(journal, of, &BTreeSet::from([verdict.trace])).await;
            }
            return;
        }
        let pieces = match verdict.with_spans {
            true => {
                let lengths = verdict.lengths.iter().map(|&n| n as usize).collect();
                let marks = Marks { appended: verdict.appended.clone(), lengths, events: Vec::new() };
                self.shared.live.get().engine.join(&tree, &marks).0
            }
            false => Vec::new(),
        };
        send(&self.shared, journal, seq, verdict, pieces, acked).await;
    }
}

/// The spans of one trace as the assembler has them: exact resends left out.
struct Spans {
    trace: TraceId,
    assembler: Assembler,
}

impl Spans {
    fn new(trace: TraceId) -> Spans {
        let caps = Close { max_spans: usize::MAX, max_bytes: Size(u64::MAX), ..Close::default() };
        Spans { trace, assembler: Assembler::new(caps) }
    }

    fn add(&mut self, groups: Vec<Group>) {
        let now = std::time::Instant::now();
        for group in groups.into_iter().filter(|group| group.trace == self.trace) {
            self.assembler.add(group.trace, group.spans, group.size, |_| None, now);
        }
    }

    fn all(mut self) -> Vec<Span> {
        self.assembler.close_all(CloseReason::Shutdown).pop().map(|closing| closing.spans).unwrap_or_default()
    }
}

/// Keeps verdicts, then sends the traces on.
pub(super) async fn conclude(shared: &Shared, journal: &Arc<Journal>, leaving: Vec<Leaving>) {
    // Spans that were accepted flow on either way; what may not be kept is that these were their verdicts.
    let (seqs, _) = journal.append_verdicts(leaving.iter().map(|leaving| &leaving.verdict)).await;
    for (Leaving { verdict, pieces, since }, seq) in leaving.into_iter().zip(seqs) {
        send(shared, journal, seq, verdict, pieces, &[]).await;
        shared.meter.exported(since.elapsed());
    }
}

/// Sends a judged trace, its spans in `pieces`, to those exporters that have it not.
async fn send(
    shared: &Shared,
    journal: &Arc<Journal>,
    seq: Seq,
    verdict: VerdictRecord,
    pieces: Vec<Piece>,
    acked: &[String],
) {
    let VerdictRecord { trace, requests, with_spans, events, .. } = verdict;
    let mut releases: Vec<(Seq, RetainReason)> =
        requests.into_iter().map(|request| (request, RetainReason::Trace(trace))).collect();
    releases.push((seq, RetainReason::Verdict));
    let mut signals = Vec::new();
    signals.extend(with_spans.then_some(Signal::Traces));
    signals.extend((!events.is_empty()).then_some(Signal::Logs));
    let delivery = Delivery::new(journal, seq, releases, shared.exporters.takers(&signals, acked));
    if with_spans {
        let parcel = Parcel { signal: Signal::Traces, pieces, trace: Some(trace) };
        shared.exporters.send_record(parcel, Some(&delivery)).await;
    }
    if !events.is_empty() {
        let pieces = events.into_iter().map(|(items, bytes)| Piece { bytes, items }).collect();
        let parcel = Parcel { signal: Signal::Logs, pieces, trace: Some(trace) };
        shared.exporters.send_record(parcel, Some(&delivery)).await;
    }
    delivery.dispatched();
}

/// Forwards a kept request to those exporters that have it not.
async fn pass(
    shared: &Shared,
    journal: &Arc<Journal>,
    seq: Seq,
    signal: Signal,
    piece: Piece,
    acked: &[String],
) {
    let releases = vec![(seq, RetainReason::PassThrough)];
    let delivery = Delivery::new(journal, seq, releases, shared.exporters.takers(&[signal], acked));
    let parcel = Parcel { signal, pieces: vec![piece], trace: None };
    shared.exporters.send_record(parcel, Some(&delivery)).await;
    delivery.dispatched();
}

/// What a shard keeps of its verdict on a trace.
pub(super) fn verdict_record(
    trace: TraceId,
    requests: Vec<Seq>,
    passed: Option<bool>,
    revision: u32,
    shadow: bool,
    marks: Marks,
) -> VerdictRecord {
    VerdictRecord {
        trace,
        requests,
        passed,
        revision,
        with_spans: !shadow,
        lengths: marks.lengths.into_iter().map(|n| u32::try_from(n).unwrap_or(u32::MAX)).collect(),
        appended: marks.appended,
        events: marks.events.into_iter().map(|piece| (piece.items, piece.bytes)).collect(),
    }
}
