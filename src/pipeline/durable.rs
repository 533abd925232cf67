//! The pipeline with a journal: what is written before what, and how it is taken up again.
//!
//! In: requests to be kept, judged traces, and what a log held at start. Out: the same parcels as
//! without a journal, each with a [`Ticket`] by which the log learns that it has arrived.
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
use verdict_journal::{Admitted, Claim, Journal, Record, Recovered, Sealed, Seq, Ticket};
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
        let traces = groups.iter().map(|group| Claim::Trace(group.trace));
        let mut passing = Vec::new();
        let mut claims = Vec::new();
        let judged = if self.shared.shadow && whole && passed.is_empty() {
            claims.push(Claim::Pass);
            claims.extend(traces);
            Some(body.clone())
        } else {
            let on_their_way = groups.iter().filter(|_| self.shared.shadow).chain(&passed);
            passing = write::requests(&items(on_their_way), MAX_REQUEST);
            claims.extend(traces);
            match (groups.is_empty(), passed.is_empty()) {
                (true, _) => None,
                (false, true) => Some(body.clone()),
                (false, false) => write::requests(&items(&groups), usize::MAX).pop().map(|p| p.bytes),
            }
        };
        let spans = groups.iter().map(|group| group.spans.len() as u64).sum();
        let places = self.reserve(groups, |group| group.trace).await?;
        let mut admitted: Vec<(Admitted, Piece)> = Vec::with_capacity(passing.len());
        let mut forward = Vec::new();
        for piece in passing {
            let kept = journal.admit(Signal::Traces, vec![Claim::Pass], piece.bytes.clone()).await;
            admitted.push((kept.ok_or(NOT_KEPT)?, piece));
        }
        if let Some(judged) = judged {
            let passes = claims.first() == Some(&Claim::Pass);
            let kept = journal.admit(Signal::Traces, claims, judged).await.ok_or(NOT_KEPT)?;
            let seq = kept.take();
            self.put(places, |groups| self.spans(groups, Some(seq)));
            if passes {
                forward.push((seq, Piece { bytes: body, items: spans }));
            }
        }
        forward.extend(admitted.into_iter().map(|(kept, piece)| (kept.take(), piece)));
        self.pass_on(journal, Signal::Traces, forward).await;
        Ok(())
    }

    /// Forwards kept requests; also where the sender waits for that no longer, since they are ours by
    /// now, and what holds them is to be let go of.
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
        let claims: Vec<Claim> =
            forward.then_some(Claim::Pass).into_iter().chain(traces.into_iter().map(Claim::Trace)).collect();
        if claims.is_empty() {
            return Ok(());
        }
        let places = self.reserve(found.gen_ai, |record| record.trace).await?;
        let kept = journal.admit(Signal::Logs, claims, body.clone()).await.ok_or(NOT_KEPT)?;
        let seq = kept.take();
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
        let kept = journal.admit(signal, vec![Claim::Pass], piece.bytes.clone()).await.ok_or(NOT_KEPT)?;
        self.pass_on(journal, signal, vec![(kept.take(), piece)]).await;
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
                    Some(Record::Verdict(sealed)) if is_verdict => {
                        this.resend(&journal, seq, sealed, &acked).await
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
    async fn resend(&self, journal: &Arc<Journal>, seq: Seq, sealed: Sealed, acked: &[String]) {
        let mut spans = Spans::new(sealed.trace);
        for &of in sealed.of.iter().filter(|_| sealed.with_spans) {
            if let Some(Record::Request { signal: Signal::Traces, body, .. }) = journal.read(of).await {
                spans.add(self.groups(&body));
            }
        }
        let tree = Tree::new(sealed.trace, spans.all());
        if tree.len() != sealed.lengths.len() {
            tracing::error!(trace = %sealed.trace, "a judged trace in the journal is not whole; it is judged anew");
            journal.release(vec![(seq, Claim::Verdict)]);
            for of in sealed.of {
                self.reopen(journal, of, &BTreeSet::from([sealed.trace])).await;
            }
            return;
        }
        let pieces = match sealed.with_spans {
            true => {
                let lengths = sealed.lengths.iter().map(|&n| n as usize).collect();
                let marks = Marks { appended: sealed.appended.clone(), lengths, events: Vec::new() };
                self.shared.live.get().engine.join(&tree, &marks).0
            }
            false => Vec::new(),
        };
        send(&self.shared, journal, seq, sealed, pieces, acked).await;
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
    let (seqs, _) = journal.seal(leaving.iter().map(|leaving| &leaving.sealed)).await;
    for (Leaving { sealed, pieces, since }, seq) in leaving.into_iter().zip(seqs) {
        send(shared, journal, seq, sealed, pieces, &[]).await;
        shared.meter.exported(since.elapsed());
    }
}

/// Sends a judged trace, its spans in `pieces`, to those exporters that have it not.
async fn send(
    shared: &Shared,
    journal: &Arc<Journal>,
    seq: Seq,
    sealed: Sealed,
    pieces: Vec<Piece>,
    acked: &[String],
) {
    let Sealed { trace, of, with_spans, events, .. } = sealed;
    let mut ends: Vec<(Seq, Claim)> = of.into_iter().map(|of| (of, Claim::Trace(trace))).collect();
    ends.push((seq, Claim::Verdict));
    let mut signals = Vec::new();
    signals.extend(with_spans.then_some(Signal::Traces));
    signals.extend((!events.is_empty()).then_some(Signal::Logs));
    let ticket = Ticket::new(journal, seq, ends, shared.exporters.takers(&signals, acked));
    if with_spans {
        let parcel = Parcel { signal: Signal::Traces, pieces, trace: Some(trace) };
        shared.exporters.send_kept(parcel, Some(&ticket)).await;
    }
    if !events.is_empty() {
        let pieces = events.into_iter().map(|(items, bytes)| Piece { bytes, items }).collect();
        let parcel = Parcel { signal: Signal::Logs, pieces, trace: Some(trace) };
        shared.exporters.send_kept(parcel, Some(&ticket)).await;
    }
    ticket.handed_out();
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
    let ends = vec![(seq, Claim::Pass)];
    let ticket = Ticket::new(journal, seq, ends, shared.exporters.takers(&[signal], acked));
    let parcel = Parcel { signal, pieces: vec![piece], trace: None };
    shared.exporters.send_kept(parcel, Some(&ticket)).await;
    ticket.handed_out();
}

/// What a shard keeps of its verdict on a trace.
pub(super) fn sealed(
    trace: TraceId,
    of: Vec<Seq>,
    passed: Option<bool>,
    revision: u32,
    shadow: bool,
    marks: Marks,
) -> Sealed {
    Sealed {
        trace,
        of,
        passed,
        revision,
        with_spans: !shadow,
        lengths: marks.lengths.into_iter().map(|n| u32::try_from(n).unwrap_or(u32::MAX)).collect(),
        appended: marks.appended,
        events: marks.events.into_iter().map(|piece| (piece.items, piece.bytes)).collect(),
    }
}
