//! Delivers evaluated traces and forwarded requests to the exporters.
//!
//! In: encoded traces, whose verdicts are stored first, and stored requests. Out: parcels in the exporters' queues. A
//! record is released when every required exporter has acknowledged it.

use std::future::Future;

use verdict_journal::{RetainReason, Seq, VerdictRecord};
use verdict_otlp::{Piece, Signal};

use super::shared::Shared;
use super::store::EncodedTrace;
use crate::export::{Parcel, ParcelSource};

/// Stores the verdicts of some traces, then exports the traces.
pub(super) async fn deliver(shared: &Shared, mut traces: Vec<EncodedTrace>) {
    // A trace whose partition was revoked is read and evaluated by the next owner.
    traces.retain(|trace| !shared.store.has_lapsed(&trace.verdict.requests));
    let mut record = shared.store.append_verdicts(&traces).await;
    for trace in traces {
        let started = trace.started;
        export(shared, record, trace, &[]).await;
        shared.meter.telemetry.verdicts.record_close_to_export(started.elapsed());
        record = record.map(|seq| seq + 1);
    }
}

/// Queues a trace whose verdict is stored for every exporter that is not in `acked`. The returned future waits until
/// the queues of required exporters have room. Dropping it loses no span.
pub(super) fn export(
    shared: &Shared,
    record: Option<Seq>,
    trace: EncodedTrace,
    acked: &[String],
) -> impl Future<Output = ()> + use<> {
    let VerdictRecord { trace: id, requests, events, .. } = trace.verdict;
    let record = record.map(|seq| {
        let traces = requests.into_iter().map(|request| (request, RetainReason::Trace(id)));
        (seq, traces.chain([(seq, RetainReason::Verdict)]).collect())
    });
    let events = events.into_iter().map(|(items, bytes)| Piece { bytes, items }).collect();
    let parcel = |signal, pieces: Vec<Piece>| {
        (!pieces.is_empty()).then_some(Parcel { signal, pieces, source: ParcelSource::Trace })
    };
    let parcels = [parcel(Signal::Traces, trace.spans), parcel(Signal::Logs, events)];
    enqueue(shared, record, parcels, acked)
}

/// Queues a stored request for every exporter that is not in `acked`. As with [`export`], dropping the
/// future loses no item.
pub(super) fn forward(
    shared: &Shared,
    record: Option<Seq>,
    signal: Signal,
    piece: Piece,
    acked: &[String],
) -> impl Future<Output = ()> + use<> {
    let record = record.map(|seq| (seq, vec![(seq, RetainReason::Forwarded)]));
    let parcel = Parcel { signal, pieces: vec![piece], source: ParcelSource::Sender };
    enqueue(shared, record, [Some(parcel), None], acked)
}

/// Queues log events that are not stored: alarms of open traces. After a restart they are raised again.
pub(super) async fn forward_events(shared: &Shared, piece: Piece) {
    let parcel = Parcel { signal: Signal::Logs, pieces: vec![piece], source: ParcelSource::Alarm };
    enqueue(shared, None, [Some(parcel), None], &[]).await;
}

/// Tracks the acknowledgements of a record, if there is one, and queues its parcels for every exporter that is not in
/// `acked`.
fn enqueue(
    shared: &Shared,
    record: Option<(Seq, Vec<(Seq, RetainReason)>)>,
    parcels: [Option<Parcel>; 2],
    acked: &[String],
) -> impl Future<Output = ()> + use<> {
    let delivery = record.and_then(|(seq, releases)| {
        let exporters = shared.exporters.exporters_for(parcels.iter().flatten(), acked);
        shared.store.track(seq, releases, exporters)
    });
    let sent = shared.exporters.send_trace(parcels, delivery.as_ref());
    if let Some(delivery) = delivery {
        delivery.dispatched();
    }
    sent
}
