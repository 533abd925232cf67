//! Splits an encoded `ExportTraceServiceRequest` into spans by trace without decoding them.
//!
//! In: a request's bytes. Out: per trace, its spans (the few fields that assembling needs, the
//! encoded bytes, the shared [`Envelope`]) and the rejected spans. One pass reads and validates
//! structure, UTF-8 and ids. Spans of one trace are copied into one or few allocations of their exact
//! size, so that no span retains the request's buffer.
//!
//! An invalid span is rejected alone; an invalid resource or scope rejects all its spans. Malformed
//! framing above the spans makes the whole request [`Malformed`]. Unknown fields of the request itself
//! belong to no span and are dropped.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use super::check::{self, MAX_DEPTH};
pub use super::intern::Interner;
use super::json::messages;
use super::json::table::MessageDescriptor;
use super::malformed::Malformed;
use super::scan::{self, Scan, for_each_field};
use super::tags::{export_trace_service_request as export, resource_spans, scope_spans, span};
use super::trace::{ById, Envelope, EnvelopeFields, Span, SpanId, Status, TraceId};

/// Largest initial capacity in spans: SDKs and Collectors send batches of 64 to 8,192.
const MAX_INITIAL_SPANS: usize = 64;
/// Smallest size of a span in bytes, which its ids and times alone take.
const MIN_SPAN_BYTES: usize = 64;

#[derive(Debug, Default)]
pub struct SplitRequest {
    /// The traces, in order of their first span.
    pub groups: Vec<Group>,
    pub rejected: Rejected,
}

/// The spans of one trace in a request, in order.
#[derive(Debug)]
pub struct Group {
    pub trace: TraceId,
    /// At least one. Their bytes are slices of one or few allocations.
    pub spans: Vec<Span>,
    /// Sum of the spans' encoded sizes, in bytes.
    pub size: usize,
}

/// The spans of a request that were rejected.
#[derive(Clone, Debug, Default)]
pub struct Rejected {
    pub count: u64,
    /// The first [`Rejected::MAX_NAMED_SPANS`].
    pub first: Vec<SpanRejection>,
}

/// The reason for which one span was rejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpanRejection {
    /// The span's id, if it was readable.
    pub span: Option<SpanId>,
    pub part: RejectedPart,
    pub reason: Malformed,
}

/// The part of a rejected span that is invalid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RejectedPart {
    Span,
    Scope,
    Resource,
}

impl Rejected {
    /// The number of spans that the message for the sender names.
    pub const MAX_NAMED_SPANS: usize = 8;

    fn add(&mut self, rejection: SpanRejection) {
        self.count += 1;
        if self.first.len() < Self::MAX_NAMED_SPANS {
            self.first.push(rejection);
        }
    }
}

/// Formats the message for `partial_success`; empty if nothing was rejected.
impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, rejection) in self.first.iter().enumerate() {
            let part = match rejection.part {
                RejectedPart::Span => "",
                RejectedPart::Scope => "its scope: ",
                RejectedPart::Resource => "its resource: ",
            };
            f.write_str(if i == 0 { "rejected: " } else { "; " })?;
            match rejection.span {
                Some(id) => write!(f, "span {id}: {part}{}", rejection.reason)?,
                None => write!(f, "a span without readable id: {part}{}", rejection.reason)?,
            }
        }
        match self.count.saturating_sub(self.first.len() as u64) {
            0 => Ok(()),
            unnamed => write!(f, "; and {unnamed} more"),
        }
    }
}

/// Splits the request `body`. `verdict_prefix` is the prefix of the product's attribute keys, which an
/// incoming span may have already ([`Span::has_verdict`]); `envelopes` is shared by all requests.
///
/// # Errors
/// `body` is not such a request; none of its spans is accepted.
pub fn split(body: &[u8], verdict_prefix: &str, envelopes: &Interner) -> Result<SplitRequest, Malformed> {
    let mut splitter = RequestSplitter {
        prefix: verdict_prefix.as_bytes(),
        envelopes,
        pending: Vec::with_capacity((body.len() / MIN_SPAN_BYTES).min(MAX_INITIAL_SPANS)),
        scopes: Vec::new(),
        traces: RequestTraces::default(),
        rejected: Rejected::default(),
    };
    for_each_field(body, &[export::RESOURCE_SPANS], &mut |_, encoded| splitter.resource_spans(encoded))?;
    let RequestSplitter { pending, scopes, traces, rejected, .. } = splitter;
    Ok(SplitRequest { groups: copy_spans(pending, &scopes, &traces.all), rejected })
}

/// A span that has been read, and is not copied yet.
struct PendingSpan<'a> {
    fields: SpanFields,
    bytes: &'a [u8],
    group: usize,
    scope: usize,
}

/// The fields of a span that assembling needs.
#[derive(Default)]
struct SpanFields {
    trace: TraceId,
    id: SpanId,
    parent: SpanId,
    start: u64,
    end: u64,
    status: Status,
    remote_parent: bool,
    has_verdict: bool,
}

struct RequestSplitter<'a> {
    prefix: &'a [u8],
    envelopes: &'a Interner,
    pending: Vec<PendingSpan<'a>>,
    scopes: Vec<Arc<Envelope>>,
    traces: RequestTraces,
    rejected: Rejected,
}

/// The reason for which all spans of a resource or scope are rejected, if there is one.
type EnvelopeFault = Option<(RejectedPart, Malformed)>;

impl<'a> RequestSplitter<'a> {
    fn resource_spans(&mut self, encoded: &'a [u8]) -> Result<(), Malformed> {
        let (resource, fault) = envelope_fields(encoded, &messages::RESOURCE, |_| ())?;
        let fault = fault.map(|reason| (RejectedPart::Resource, reason));
        let mut resource_copy = None;
        for_each_field(encoded, &[resource_spans::SCOPE_SPANS], &mut |_, scope_spans| {
            self.scope_spans(scope_spans, &resource, &mut resource_copy, fault)
        })
    }

    /// Reads each span when it is found, while its bytes are in the CPU's cache. The scope may follow its
    /// spans in the message; if it is invalid, the spans that were read are removed and rejected.
    fn scope_spans(
        &mut self,
        encoded: &'a [u8],
        resource: &[u8],
        resource_copy: &mut Option<EnvelopeFields>,
        fault: EnvelopeFault,
    ) -> Result<(), Malformed> {
        let (pending_before, rejected_before) = (self.pending.len(), self.rejected.clone());
        let descriptor = &messages::INSTRUMENTATION_SCOPE;
        let (scope, scope_fault) = envelope_fields(encoded, descriptor, |span| self.span(span, fault))?;
        if let (Some(reason), None) = (scope_fault, fault) {
            let (discarded, traces) = (self.pending.drain(pending_before..), &mut self.traces);
            discarded.for_each(|pending| traces.remove(&pending));
            self.rejected = rejected_before;
            envelope_fields(encoded, descriptor, |span| {
                self.span(span, Some((RejectedPart::Scope, reason)))
            })?;
        }
        if self.pending.len() > pending_before {
            self.scopes.push(self.envelopes.envelope(resource, resource_copy, &scope));
        }
        Ok(())
    }

    fn span(&mut self, encoded: &'a [u8], fault: EnvelopeFault) {
        let mut fields = SpanFields::default();
        let result =
            read_span(encoded, self.prefix, &mut fields).map_err(|reason| (RejectedPart::Span, reason));
        if let Err((part, reason)) = fault.map_or(result, Err) {
            let id = Some(fields.id).filter(|id| !id.is_zero());
            return self.rejected.add(SpanRejection { span: id, part, reason });
        }
        let group = self.traces.add(fields.trace, encoded.len());
        self.pending.push(PendingSpan { fields, bytes: encoded, group, scope: self.scopes.len() });
    }
}

/// The envelope fields of a `ResourceSpans` or `ScopeSpans`, and their first problem. Envelope fields are all
/// fields except the repeated one, whose contents are passed to `on_content`. Both messages use the same field numbers.
///
/// # Errors
/// The framing of the message itself is malformed.
fn envelope_fields<'a>(
    encoded: &'a [u8],
    descriptor: &'static MessageDescriptor,
    mut on_content: impl FnMut(&'a [u8]),
) -> Result<(Vec<u8>, Option<Malformed>), Malformed> {
    const RESOURCE_OR_SCOPE: u32 = scope_spans::SCOPE;
    const REPEATED: u32 = scope_spans::SPANS;
    const SCHEMA_URL: u32 = scope_spans::SCHEMA_URL;
    let mut fields = Vec::new();
    let mut fault = Ok(());
    let mut scan = Scan::new(encoded);
    loop {
        let start = encoded.len() - scan.remaining();
        match scan.tag()? {
            None => return Ok((fields, fault.err())),
            Some(REPEATED) => {
                on_content(scan.bytes()?);
                continue;
            }
            Some(RESOURCE_OR_SCOPE) => fault = fault.and(check::message(scan.bytes()?, descriptor)),
            Some(SCHEMA_URL) => fault = fault.and(scan::utf8(scan.bytes()?)),
            Some(tag) => scan.skip(tag, scope_spans::DEFINED)?,
        }
        fields.extend_from_slice(encoded.get(start..encoded.len() - scan.remaining()).unwrap_or_default());
    }
}

/// In `Span.flags`: bit 8 is set if bit 9 is valid, bit 9 if the parent is remote.
const REMOTE_PARENT: u32 = 0x300;

/// Validates a span and reads the fields that assembling needs. On error `fields` contains
/// the fields that were read before the error.
fn read_span(encoded: &[u8], prefix: &[u8], fields: &mut SpanFields) -> Result<(), Malformed> {
    let mut scan = Scan::new(encoded);
    while let Some(tag) = scan.tag()? {
        match tag {
            span::ATTRIBUTES => {
                let key = check::key_value(scan.bytes()?, MAX_DEPTH)?;
                // The first byte differs for most other keys, which are then not compared further.
                fields.has_verdict |= key.first() == prefix.first() && key.starts_with(prefix);
            }
            span::TRACE_ID => fields.trace.0 = scan.bytes()?.try_into().map_err(|_| Malformed::TraceId)?,
            span::SPAN_ID => fields.id.0 = scan.bytes()?.try_into().map_err(|_| Malformed::SpanId)?,
            span::PARENT_SPAN_ID => fields.parent.0 = check::optional_id(scan.bytes()?)?,
            span::TRACE_STATE | span::NAME => drop(scan.text()?),
            span::KIND
            | span::DROPPED_ATTRIBUTES_COUNT
            | span::DROPPED_EVENTS_COUNT
            | span::DROPPED_LINKS_COUNT => drop(scan.varint()?),
            span::START_TIME_UNIX_NANO => fields.start = scan.fixed64()?,
            span::END_TIME_UNIX_NANO => fields.end = scan.fixed64()?,
            span::EVENTS => check::message(scan.bytes()?, &messages::SPAN_EVENT)?,
            span::LINKS => check::message(scan.bytes()?, &messages::SPAN_LINK)?,
            span::STATUS => {
                if let Some(code) = check::status(scan.bytes()?)? {
                    fields.status = match code {
                        1 => Status::Ok,
                        2 => Status::Error,
                        _ => Status::Unset,
                    };
                }
            }
            span::FLAGS => fields.remote_parent = scan.fixed32()? & REMOTE_PARENT == REMOTE_PARENT,
            _ => scan.skip(tag, span::DEFINED)?,
        }
    }
    if fields.trace.is_zero() {
        return Err(Malformed::TraceId);
    }
    if fields.id.is_zero() {
        return Err(Malformed::SpanId);
    }
    Ok(())
}

/// Up to this many traces of a request are looked up by linear search, which is cheaper than hashing.
const MAX_SCANNED_TRACES: usize = 16;

/// The traces of a request, each with its number of spans and bytes; indexes are those of the groups. `last` is the
/// index of the previous span's trace, since spans of one trace are usually adjacent.
#[derive(Default)]
struct RequestTraces {
    all: Vec<TraceTotals>,
    by_id: ById<TraceId, usize>,
    last: usize,
}

struct TraceTotals {
    trace: TraceId,
    spans: usize,
    size: usize,
}

impl RequestTraces {
    /// Adds a span to the totals of its trace; returns the index of its group.
    #[inline]
    fn add(&mut self, trace: TraceId, size: usize) -> usize {
        if self.all.get(self.last).is_none_or(|total| total.trace != trace) {
            self.last = self.index_of(trace);
        }
        if let Some(total) = self.all.get_mut(self.last) {
            total.spans += 1;
            total.size += size;
        }
        self.last
    }

    /// Reverts [`RequestTraces::add`].
    fn remove(&mut self, pending: &PendingSpan<'_>) {
        if let Some(total) = self.all.get_mut(pending.group) {
            total.spans -= 1;
            total.size -= pending.bytes.len();
        }
    }

    fn index_of(&mut self, trace: TraceId) -> usize {
        let index = if self.all.len() <= MAX_SCANNED_TRACES {
            self.all.iter().position(|total| total.trace == trace)
        } else {
            self.by_id.get(&trace).copied()
        };
        index.unwrap_or_else(|| {
            self.all.push(TraceTotals { trace, spans: 0, size: 0 });
            if self.all.len() > MAX_SCANNED_TRACES {
                let missing = self.all.iter().enumerate().skip(self.by_id.len());
                self.by_id.extend(missing.map(|(i, total)| (total.trace, i)));
            }
            self.all.len() - 1
        })
    }
}

/// Copies the bytes of every group's spans into allocations of exact size.
fn copy_spans(pending: Vec<PendingSpan<'_>>, scopes: &[Arc<Envelope>], totals: &[TraceTotals]) -> Vec<Group> {
    let mut groups: Vec<Group> = totals
        .iter()
        .map(|t| Group { trace: t.trace, spans: Vec::with_capacity(t.spans), size: t.size })
        .collect();
    let mut sources: Vec<Vec<&[u8]>> = totals.iter().map(|t| Vec::with_capacity(t.spans)).collect();
    for PendingSpan { fields, bytes, group, scope } in pending {
        groups[group].spans.push(Span {
            id: fields.id,
            parent: fields.parent,
            start: fields.start,
            end: fields.end,
            status: fields.status,
            remote_parent: fields.remote_parent,
            has_verdict: fields.has_verdict,
            forwarded: false,
            skew: 0,
            bytes: Bytes::new(),
            envelope: Arc::clone(&scopes[scope]),
        });
        sources[group].push(bytes);
    }
    for (group, sources) in groups.iter_mut().zip(sources) {
        assign_bytes(&mut group.spans, &sources, group.size);
    }
    // All spans of a trace may have been removed because of an invalid scope.
    groups.retain(|group| !group.spans.is_empty());
    groups
}

/// Assigns to each span a copy of its bytes; the copies have `size` bytes in total.
fn assign_bytes(mut spans: &mut [Span], mut sources: &[&[u8]], mut size: usize) {
    while !sources.is_empty() {
        let (count, bytes) = next_allocation(sources, size);
        let (fitting, remaining_sources) = sources.split_at(count);
        let mut buffer = Vec::with_capacity(bytes);
        fitting.iter().for_each(|source| buffer.extend_from_slice(source));
        let mut buffer = Bytes::from(buffer);
        let (filled, remaining_spans) = spans.split_at_mut(count);
        if let Some((last, others)) = filled.split_last_mut() {
            for (span, source) in others.iter_mut().zip(fitting) {
                span.bytes = buffer.split_to(source.len());
            }
            last.bytes = buffer;
        }
        (spans, sources, size) = (remaining_spans, remaining_sources, size - bytes);
    }
}

/// A group of at most this many bytes uses one allocation.
const SINGLE_ALLOCATION_BYTES: usize = 4 << 10;
/// Largest shared allocation in bytes; a larger span has its own.
const MAX_SHARED_BYTES: usize = 64 << 10;
/// Approximate overhead of an allocation, in bytes.
const ALLOCATION_OVERHEAD: usize = 64;

/// The number of spans that share the next allocation, and its size. Allocators round sizes up to size
/// classes, which wastes memory while the trace is open. The returned number of spans wastes the smallest
/// share of its allocation.
fn next_allocation(sources: &[&[u8]], size: usize) -> (usize, usize) {
    if size <= SINGLE_ALLOCATION_BYTES {
        return (sources.len(), size);
    }
    let mut best = (1, sources.first().map_or(0, |first| first.len()));
    let mut bytes = 0;
    for (n, source) in sources.iter().enumerate() {
        bytes += source.len();
        if bytes > MAX_SHARED_BYTES && n > 0 {
            break;
        }
        let wasted = |bytes: usize| size_class(bytes) - bytes + ALLOCATION_OVERHEAD;
        // Compares the two shares without division.
        if wasted(bytes) * best.1 <= wasted(best.1) * bytes {
            best = (n + 1, bytes);
        }
    }
    best
}

/// The allocator's size class for `bytes`: classes are a quarter of a power of two apart in mimalloc
/// and jemalloc.
fn size_class(bytes: usize) -> usize {
    let step = (bytes.saturating_sub(1).max(64)).ilog2() - 2;
    bytes.div_ceil(1 << step) << step
}

#[cfg(test)]
mod tests;
