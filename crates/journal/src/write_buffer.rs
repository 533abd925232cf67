//! Many frames as the slices of one vectored write.

use std::io::IoSlice;
use std::ops::Range;

use bytes::Bytes;

use super::record::Frame;

/// A body of at least this size is a slice of its own; copying a smaller one costs less than a slice.
const LARGE: usize = 4096;

/// Small parts in one buffer; large bodies by reference.
#[derive(Debug, Default)]
pub(super) struct WriteBuffer {
    small: Vec<u8>,
    parts: Vec<Part>,
    len: u64,
}

#[derive(Debug)]
enum Part {
    Small(Range<usize>),
    Body(Bytes),
}

impl WriteBuffer {
    /// Empties it, and keeps its allocations.
    pub fn clear(&mut self) {
        self.small.clear();
        self.parts.clear();
        self.len = 0;
    }

    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn raw(&mut self, bytes: &[u8]) {
        let from = self.small.len();
        self.small.extend_from_slice(bytes);
        self.push_small(from);
    }

    pub fn frame(&mut self, frame: &Frame, marker: [u8; 4]) {
        let from = self.small.len();
        frame.write_head(&mut self.small, marker);
        self.push_small(from);
        for body in &frame.body {
            if body.len() < LARGE {
                self.raw(body);
            } else {
                self.len += body.len() as u64;
                self.parts.push(Part::Body(body.clone()));
            }
        }
    }

    /// Makes the bytes of the small buffer since `from` the next part, or the end of the last one.
    fn push_small(&mut self, from: usize) {
        let to = self.small.len();
        self.len += (to - from) as u64;
        match self.parts.last_mut() {
            Some(Part::Small(last)) => last.end = to,
            _ => self.parts.push(Part::Small(from..to)),
        }
    }

    pub fn slices(&self) -> Vec<IoSlice<'_>> {
        let part = |part| match part {
            &Part::Small(Range { start, end }) => self.small.get(start..end).unwrap_or_default(),
            Part::Body(body) => body,
        };
        self.parts.iter().map(|p| IoSlice::new(part(p))).collect()
    }
}
