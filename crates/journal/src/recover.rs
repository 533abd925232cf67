//! What a folder holds at start, whatever became of it: torn tails are cut off, what is damaged
//! is passed over and counted, and nothing that was written by whole is given up for it.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::io;

use bytes::Bytes;

use super::claims::Claims;
use super::disk::{Disk, HEADER, Opening, opening};
use super::log::remember;
use super::record::{Claim, Found, Record, Seq};
use verdict_otlp::trace::PriorVerdict;
use verdict_otlp::trace::{ById, TraceId};

/// What is still to be done, as the log has it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Recovered {
    /// Requests with spans or logs of traces without a verdict, and which traces.
    pub open: BTreeMap<Seq, Vec<TraceId>>,
    /// Verdicts not yet with every required exporter, and the exporters that have them.
    pub verdicts: BTreeMap<Seq, Vec<String>>,
    /// Requests that pass and are not yet with every required exporter, likewise.
    pub passes: BTreeMap<Seq, Vec<String>>,
    /// Traces that have closed, oldest first, and what came of them, as far as they are remembered.
    pub closed: Vec<(TraceId, PriorVerdict)>,
    /// Places where a record was, or may have been, and is not as it was written.
    pub corrupt: u64,
    /// Bytes cut off behind the last whole record of a segment.
    pub torn: u64,
}

/// A record that is held, and where it stands.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Kept {
    pub segment: u64,
    pub at: u64,
    pub len: u64,
    pub claims: Claims,
    /// Exporters that have what it gave them.
    pub acked: Vec<String>,
}

#[derive(Debug, Default)]
pub(super) struct Scan {
    pub kept: ById<Seq, Kept>,
    /// Bytes of each segment.
    pub sizes: BTreeMap<u64, u64>,
    /// The highest number of a segment, ours or not.
    pub last: u64,
    /// The first name that is free.
    pub next: Seq,
    verdicts: BTreeMap<Seq, (TraceId, PriorVerdict, Vec<Seq>)>,
    closed: VecDeque<(TraceId, PriorVerdict)>,
    /// How many closed traces are remembered.
    remember: usize,
    corrupt: u64,
    torn: u64,
}

/// Reads every segment in order.
///
/// # Errors
/// The folder cannot be listed. A segment that cannot be read is counted as corrupt.
pub(super) fn scan<D: Disk>(disk: &mut D, remember: usize) -> io::Result<Scan> {
    let mut scan = Scan { next: 1, remember, ..Scan::default() };
    let all = disk.list()?;
    scan.last = all.last().copied().unwrap_or_default();
    for &segment in &all {
        let bytes = match disk.read_all(segment) {
            Ok(bytes) => Bytes::from(bytes),
            Err(error) => {
                tracing::error!(segment, %error, "a segment of the journal cannot be read");
                scan.corrupt += 1;
                continue;
            }
        };
        let last = all.last() == Some(&segment);
        let Some(whole) = scan.segment(segment, &bytes, last) else { continue };
        let torn = (bytes.len() as u64).saturating_sub(whole);
        scan.torn += torn;
        // Whoever was killed has given back nothing of what was set aside for the last one.
        if (torn > 0 || last)
            && let Err(error) = disk.cut(segment, whole)
        {
            tracing::warn!(segment, %error, "cannot cut off what follows the last whole record; it is passed over");
        }
        scan.sizes.insert(segment, whole);
    }
    Ok(scan)
}

impl Scan {
    /// Takes in one segment; returns how many of its bytes are to stay, or that it is not ours.
    fn segment(&mut self, segment: u64, bytes: &Bytes, last: bool) -> Option<u64> {
        let marker = match opening(bytes) {
            Opening::Marker(marker) => marker,
            Opening::Other(version) => {
                tracing::error!(
                    segment,
                    version,
                    "the layout of another version of this program; left alone"
                );
                self.corrupt += 1;
                return None;
            }
            Opening::Damaged(_) if bytes.is_empty() || (bytes.len() <= HEADER && last) => return Some(0),
            Opening::Damaged(marker) => {
                self.damaged(segment, 0);
                match marker {
                    Some(marker) => marker,
                    None => return Some(bytes.len() as u64),
                }
            }
        };
        let mut at = HEADER;
        while at < bytes.len() {
            if let Some(found) = Found::read(bytes, at, marker) {
                match found.record(bytes) {
                    Some(record) => self.record(segment, found, record),
                    None => self.damaged(segment, at),
                }
                at += found.len;
                continue;
            }
            let marks = memchr::memmem::find_iter(bytes.get(at + 1..).unwrap_or_default(), &marker);
            let next = marks.map(|m| at + 1 + m).find(|&m| Found::read(bytes, m, marker).is_some());
            match next {
                Some(next) => {
                    self.damaged(segment, at);
                    at = next;
                }
                // Nothing whole follows: the end of what was being written when it ended.
                None if last => return Some(at as u64),
                None => {
                    self.damaged(segment, at);
                    break;
                }
            }
        }
        Some(bytes.len() as u64)
    }

    fn damaged(&mut self, segment: u64, at: usize) {
        self.corrupt += 1;
        tracing::error!(segment, at, "a damaged record in the journal was passed over");
    }

    fn record(&mut self, segment: u64, found: Found, record: Record) {
        let seq = found.seq;
        self.next = self.next.max(seq.saturating_add(1));
        let mut keep = |claims: Vec<Claim>| {
            // A later copy stands for the earlier ones; it never holds more than they.
            let claims = Claims::new(claims);
            let kept =
                Kept { segment, at: found.at as u64, len: found.len as u64, claims, acked: Vec::new() };
            self.kept.insert(seq, kept);
        };
        match record {
            Record::Request { claims, .. } => keep(claims),
            Record::Verdict(sealed) => {
                keep(vec![Claim::Verdict]);
                let remembered = sealed.remembered();
                if !found.is_again() {
                    remember(&mut self.closed, self.remember, sealed.trace, remembered);
                }
                self.verdicts.insert(seq, (sealed.trace, remembered, sealed.of));
            }
            Record::Acked { of, exporter } => {
                if let Some(kept) = self.kept.get_mut(&of)
                    && !kept.acked.contains(&exporter)
                {
                    kept.acked.push(exporter);
                }
            }
            Record::Done(all) => all.into_iter().for_each(|(seq, claim)| self.done(seq, claim)),
            // Whoever wrote it knew what stands before it.
            Record::Closed(all) => {
                let beyond = all.len().saturating_sub(self.remember);
                self.closed = all.into_iter().skip(beyond).collect();
            }
        }
    }

    fn done(&mut self, seq: Seq, claim: Option<Claim>) {
        let Some(kept) = self.kept.get_mut(&seq) else { return };
        if let Some(claim) = &claim {
            kept.claims.remove(claim);
        }
        if claim.is_none() || kept.claims.is_empty() {
            self.kept.remove(&seq);
        }
    }

    /// What follows from it. A verdict of which a request is missing is given up: what is left
    /// of its trace is open again.
    pub fn recovered(&mut self) -> Recovered {
        let mut out = Recovered { corrupt: self.corrupt, torn: self.torn, ..Recovered::default() };
        let mut judged: HashSet<(Seq, TraceId)> = HashSet::new();
        let mut given_up = HashSet::new();
        for (seq, (trace, remembered, of)) in std::mem::take(&mut self.verdicts) {
            let Some(kept) = self.kept.get(&seq) else { continue };
            let there = |of: &Seq| self.kept.get(of).is_some_and(|k| k.claims.contains(&Claim::Trace(trace)));
            if of.iter().all(there) {
                judged.extend(of.into_iter().map(|of| (of, trace)));
                out.verdicts.insert(seq, kept.acked.clone());
            } else {
                tracing::error!(%trace, "some requests of a judged trace are lost; the rest is judged again");
                self.kept.remove(&seq);
                given_up.insert((trace, remembered));
            }
        }
        self.closed.retain(|closed| !given_up.contains(closed));
        out.closed = std::mem::take(&mut self.closed).into();
        for (&seq, kept) in &self.kept {
            let mut open = Vec::new();
            for claim in kept.claims.iter() {
                match claim {
                    Claim::Pass => drop(out.passes.insert(seq, kept.acked.clone())),
                    Claim::Trace(trace) if !judged.contains(&(seq, trace)) => open.push(trace),
                    Claim::Trace(_) | Claim::Verdict => {}
                }
            }
            if !open.is_empty() {
                out.open.insert(seq, open);
            }
        }
        out
    }
}
