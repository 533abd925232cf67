//! An encoded `ExportTraceServiceRequest`, taken apart into spans by trace without decoding them.
//!
//! In: a request's bytes. Out: per trace, its spans: the few fields that assembling needs and the
//! bytes as they came, each under its shared [`Envelope`]; and what had to be rejected. One pass
//! reads and validates (structure, UTF-8, ids). Spans of one trace are copied into one allocation
//! of exactly their size, or few, so that nothing holds on to the request's buffer.
//!
//! A span that is bad is rejected by itself; so are all under a bad resource or scope. Only where
//! the frame around spans is broken is the whole request [`Malformed`]. Fields of the request
//! beside `resource_spans`, of which OTLP defines none, have no span to go with and end here.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use super::check::{self, MAX_DEPTH, Scan};
use super::fields::Malformed;
pub use super::intern::Interner;
use crate::trace::{ById, Envelope, Span, SpanId, Status, TraceId};

/// Fields 1-16, which OTLP defines for `Span`.
const SPAN: u32 = 0x1_fffe;

/// Spans for which there is room from the start: SDKs and Collectors send batches of 64 to 8,192.
const USUAL: usize = 64;
/// No useful span is smaller: its ids and times alone take as much.
const SMALLEST: usize = 64;

/// A request taken apart.
#[derive(Debug, Default)]
pub struct Split {
    /// Its traces, in order of their first span.
    pub groups: Vec<Group>,
    /// Spans that could not be taken.
    pub rejected: Rejected,
}

/// The spans that a request holds of one trace, in order.
#[derive(Debug)]
pub struct Group {
    /// The trace.
    pub trace: TraceId,
    /// Its spans here; at least one. Their bytes are slices of one allocation, or of a few.
    pub spans: Vec<Span>,
    /// Bytes of all the spans.
    pub size: usize,
}

/// Spans of a request that were not taken: how many, and the first few by name.
#[derive(Clone, Debug, Default)]
pub struct Rejected {
    /// All of them.
    pub count: u64,
    /// The first [`Rejected::NAMED`].
    pub first: Vec<Rejection>,
}

/// Why one span was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rejection {
    /// Its id, if it was readable.
    pub span: Option<SpanId>,
    /// What is bad.
    pub part: Part,
    /// How it is bad.
    pub reason: Malformed,
}

/// Where a rejected span is bad.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// In itself.
    Span,
    /// In the scope it came under.
    Scope,
    /// In the resource it came under.
    Resource,
}

impl Rejected {
    /// How many are told to the sender by name: enough to find the fault, and a short message.
    pub const NAMED: usize = 8;

    fn add(&mut self, rejection: Rejection) {
        self.count += 1;
        if self.first.len() < Self::NAMED {
            self.first.push(rejection);
        }
    }
}

/// The message for `partial_success`; empty if nothing was rejected.
impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, rejection) in self.first.iter().enumerate() {
            let part = match rejection.part {
                Part::Span => "",
                Part::Scope => "its scope: ",
                Part::Resource => "its resource: ",
            };
            f.write_str(if i == 0 { "rejected: " } else { "; " })?;
            match rejection.span {
                Some(id) => write!(f, "span {id}: {part}{}", rejection.reason)?,
                None => write!(f, "a span without readable id: {part}{}", rejection.reason)?,
            }
        }
        match self.count.saturating_sub(self.first.len() as u64) {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

/// Takes apart the request `body`. `verdict_prefix` begins the keys of our own attributes, which a
/// span may bring along already ([`Span::has_verdict`]); `envelopes` is shared between requests.
///
/// # Errors
/// The bytes are no such request; nothing of it was taken.
pub fn split(body: &[u8], verdict_prefix: &str, envelopes: &Interner) -> Result<Split, Malformed> {
    let mut splitter = Splitter {
        prefix: verdict_prefix.as_bytes(),
        envelopes,
        pending: Vec::with_capacity((body.len() / SMALLEST).min(USUAL)),
        scopes: Vec::new(),
        traces: Traces::default(),
        rejected: Rejected::default(),
    };
    let mut scan = Scan::new(body);
    while let Some(tag) = scan.tag()? {
        match tag {
            0x0a => splitter.resource_spans(scan.bytes()?)?,
            _ => scan.skip(tag, 0b10)?,
        }
    }
    let Splitter { pending, scopes, traces, rejected, .. } = splitter;
    Ok(Split { groups: copy(pending, &scopes, &traces.all), rejected })
}

/// A span read but not copied yet.
struct Pending<'a> {
    read: Read,
    bytes: &'a [u8],
    group: usize,
    scope: usize,
}

/// What assembling needs of a span.
#[derive(Default)]
struct Read {
    trace: TraceId,
    id: SpanId,
    parent: SpanId,
    start: u64,
    end: u64,
    status: Status,
    remote_parent: bool,
    has_verdict: bool,
}

struct Splitter<'a> {
    prefix: &'a [u8],
    envelopes: &'a Interner,
    pending: Vec<Pending<'a>>,
    scopes: Vec<Arc<Envelope>>,
    traces: Traces,
    rejected: Rejected,
}

type Bad = Option<(Part, Malformed)>;

impl<'a> Splitter<'a> {
    fn resource_spans(&mut self, encoded: &'a [u8]) -> Result<(), Malformed> {
        let (resource, bad) = around(encoded, check::resource, |_| ())?;
        let bad = bad.map(|reason| (Part::Resource, reason));
        let mut shared = None;
        let mut scan = Scan::new(encoded);
        while let Some(tag) = scan.tag()? {
            match tag {
                0x12 => self.scope_spans(scan.bytes()?, &resource, &mut shared, bad)?,
                _ => scan.skip(tag, 0)?,
            }
        }
        Ok(())
    }

    /// Reads the spans as it comes by them: finding each takes about as long as reading it, where
    /// the bytes are not in a cache. The scope may stand behind them, and be bad.
    fn scope_spans(
        &mut self,
        encoded: &'a [u8],
        resource: &[u8],
        shared: &mut Option<Bytes>,
        bad: Bad,
    ) -> Result<(), Malformed> {
        let (before, rejected) = (self.pending.len(), self.rejected.clone());
        let (scope, bad_scope) = around(encoded, check::scope, |span| self.span(span, bad))?;
        if let (Some(reason), None) = (bad_scope, bad) {
            let (taken, traces) = (self.pending.drain(before..), &mut self.traces);
            taken.for_each(|pending| traces.discount(&pending));
            self.rejected = rejected;
            around(encoded, check::scope, |span| self.span(span, Some((Part::Scope, reason))))?;
        }
        if self.pending.len() > before {
            self.scopes.push(self.envelopes.envelope(resource, shared, &scope));
        }
        Ok(())
    }

    fn span(&mut self, encoded: &'a [u8], bad: Bad) {
        let mut read = Read::default();
        let result = read_span(encoded, self.prefix, &mut read).map_err(|reason| (Part::Span, reason));
        if let Err((part, reason)) = bad.map_or(result, Err) {
            let id = Some(read.id).filter(|id| !id.is_zero());
            return self.rejected.add(Rejection { span: id, part, reason });
        }
        let group = self.traces.count(read.trace, encoded.len());
        self.pending.push(Pending { read, bytes: encoded, group, scope: self.scopes.len() });
    }
}

/// What stands around the spans (or the scopes) in a message, which `inner` is given: every field but
/// number 2, and what is wrong with it. An error is a broken frame.
fn around<'a>(
    encoded: &'a [u8],
    check: fn(&[u8]) -> Result<(), Malformed>,
    mut inner: impl FnMut(&'a [u8]),
) -> Result<(Vec<u8>, Option<Malformed>), Malformed> {
    let mut kept = Vec::new();
    let mut bad = Ok(());
    let mut scan = Scan::new(encoded);
    loop {
        let start = encoded.len() - scan.left();
        match scan.tag()? {
            None => return Ok((kept, bad.err())),
            Some(0x12) => {
                inner(scan.bytes()?);
                continue;
            }
            Some(0x0a) => bad = bad.and(check(scan.bytes()?)),
            Some(0x1a) => bad = bad.and(check::utf8(scan.bytes()?)),
            Some(tag) => scan.skip(tag, check::AROUND)?,
        }
        kept.extend_from_slice(encoded.get(start..encoded.len() - scan.left()).unwrap_or_default());
    }
}

/// Validates a span and reads what assembling needs. On error, what was read so far is there.
fn read_span(encoded: &[u8], prefix: &[u8], span: &mut Read) -> Result<(), Malformed> {
    let mut scan = Scan::new(encoded);
    while let Some(tag) = scan.tag()? {
        match tag {
            0x4a => {
                let key = check::key_value(scan.bytes()?, MAX_DEPTH)?;
                // The first byte tells nearly all apart, without a call.
                span.has_verdict |= key.first() == prefix.first() && key.starts_with(prefix);
            }
            0x0a => span.trace.0 = scan.bytes()?.try_into().map_err(|_| Malformed::TraceId)?,
            0x12 => span.id.0 = scan.bytes()?.try_into().map_err(|_| Malformed::SpanId)?,
            0x22 => span.parent.0 = check::optional_id(scan.bytes()?)?,
            0x1a | 0x2a => drop(scan.text()?),
            0x30 | 0x50 | 0x60 | 0x70 => drop(scan.varint()?),
            0x39 => span.start = scan.fixed64()?,
            0x41 => span.end = scan.fixed64()?,
            0x5a => check::event(scan.bytes()?)?,
            0x6a => check::link(scan.bytes()?)?,
            0x7a => {
                if let Some(code) = check::status(scan.bytes()?)? {
                    span.status = match code {
                        1 => Status::Ok,
                        2 => Status::Error,
                        _ => Status::Unset,
                    };
                }
            }
            // Bit 8 says that bit 9 is known, bit 9 that the parent is remote.
            0x85 => span.remote_parent = scan.fixed32()? & 0x300 == 0x300,
            _ => scan.skip(tag, SPAN)?,
        }
    }
    if span.trace.is_zero() {
        return Err(Malformed::TraceId);
    }
    if span.id.is_zero() {
        return Err(Malformed::SpanId);
    }
    Ok(())
}

/// Up to this many traces in a request are found by looking at each; a hash costs more.
const FEW: usize = 16;

/// The traces of a request: where each one's group is, how many spans and bytes it has.
#[derive(Default)]
struct Traces {
    all: Vec<Total>,
    by_id: ById<TraceId, usize>,
    last: usize,
}

struct Total {
    trace: TraceId,
    spans: usize,
    size: usize,
}

impl Traces {
    /// Counts a span and says which group it belongs to.
    #[inline]
    fn count(&mut self, trace: TraceId, size: usize) -> usize {
        if self.all.get(self.last).is_none_or(|total| total.trace != trace) {
            self.last = self.find(trace);
        }
        if let Some(total) = self.all.get_mut(self.last) {
            total.spans += 1;
            total.size += size;
        }
        self.last
    }

    /// Takes back what was counted.
    fn discount(&mut self, pending: &Pending<'_>) {
        if let Some(total) = self.all.get_mut(pending.group) {
            total.spans -= 1;
            total.size -= pending.bytes.len();
        }
    }

    fn find(&mut self, trace: TraceId) -> usize {
        let found = if self.all.len() <= FEW {
            self.all.iter().position(|total| total.trace == trace)
        } else {
            self.by_id.get(&trace).copied()
        };
        found.unwrap_or_else(|| {
            self.all.push(Total { trace, spans: 0, size: 0 });
            if self.all.len() > FEW {
                let missing = self.all.iter().enumerate().skip(self.by_id.len());
                self.by_id.extend(missing.map(|(i, total)| (total.trace, i)));
            }
            self.all.len() - 1
        })
    }
}

/// Copies every group's spans, those that stand together into one allocation of their exact size.
fn copy(pending: Vec<Pending<'_>>, scopes: &[Arc<Envelope>], totals: &[Total]) -> Vec<Group> {
    let mut groups: Vec<Group> = totals
        .iter()
        .map(|t| Group { trace: t.trace, spans: Vec::with_capacity(t.spans), size: t.size })
        .collect();
    let mut sources: Vec<Vec<&[u8]>> = totals.iter().map(|t| Vec::with_capacity(t.spans)).collect();
    for Pending { read, bytes, group, scope } in pending {
        groups[group].spans.push(Span {
            id: read.id,
            parent: read.parent,
            start: read.start,
            end: read.end,
            status: read.status,
            remote_parent: read.remote_parent,
            has_verdict: read.has_verdict,
            bytes: Bytes::new(),
            envelope: Arc::clone(&scopes[scope]),
        });
        sources[group].push(bytes);
    }
    for (group, sources) in groups.iter_mut().zip(sources) {
        fill(&mut group.spans, &sources, group.size);
    }
    // All spans of a trace may have stood in a scope that was bad.
    groups.retain(|group| !group.spans.is_empty());
    groups
}

/// Gives spans their bytes, which are of `size` in all.
fn fill(mut spans: &mut [Span], mut sources: &[&[u8]], mut size: usize) {
    while !sources.is_empty() {
        let (count, bytes) = together(sources, size);
        let (now, later) = sources.split_at(count);
        let mut buffer = Vec::with_capacity(bytes);
        now.iter().for_each(|source| buffer.extend_from_slice(source));
        let mut buffer = Bytes::from(buffer);
        let (filled, rest) = spans.split_at_mut(count);
        if let Some((last, others)) = filled.split_last_mut() {
            for (span, source) in others.iter_mut().zip(now) {
                span.bytes = buffer.split_to(source.len());
            }
            last.bytes = buffer;
        }
        (spans, sources, size) = (rest, later, size - bytes);
    }
}

/// Spans that are smaller together than this share an allocation without further thought.
const SMALL: usize = 4 << 10;
/// Spans share no allocation that is larger, but for one that is larger alone.
const LARGE: usize = 64 << 10;
/// What an allocation of its own costs beside its bytes, about.
const OWN: usize = 64;

/// How many of the first spans share an allocation, and its size. Allocators hand out a few sizes
/// only, and what is left of one is lost for as long as the trace is open: of spans that came
/// together as many are taken as lose least for their size.
fn together(sources: &[&[u8]], size: usize) -> (usize, usize) {
    if size <= SMALL {
        return (sources.len(), size);
    }
    let mut best = (1, sources.first().map_or(0, |first| first.len()));
    let mut bytes = 0;
    for (n, source) in sources.iter().enumerate() {
        bytes += source.len();
        if bytes > LARGE && n > 0 {
            break;
        }
        let lost = |bytes: usize| handed_out(bytes) - bytes + OWN;
        // Fractions compared without dividing.
        if lost(bytes) * best.1 <= lost(best.1) * bytes {
            best = (n + 1, bytes);
        }
    }
    best
}

/// Bytes that an allocator hands out for so many: sizes stand a quarter of a power of two apart, in
/// mimalloc as in jemalloc.
fn handed_out(bytes: usize) -> usize {
    let step = (bytes.saturating_sub(1).max(64)).ilog2() - 2;
    bytes.div_ceil(1 << step) << step
}

#[cfg(test)]
mod tests;
