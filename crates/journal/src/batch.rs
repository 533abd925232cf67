//! Frames made into one write.
//!
//! In: frames. Out: slices in order, of which large bodies are where they lay before.

use std::io::IoSlice;
use std::ops::Range;

use bytes::Bytes;

use super::record::Frame;

/// A body from this size on is written from where it lies; a smaller one is cheaper copied than
/// named to the operating system.
const LARGE: usize = 4096;

/// Frames as one write takes them: what is small, in one buffer; large bodies where they lie.
#[derive(Debug, Default)]
pub(super) struct Batch {
    small: Vec<u8>,
    parts: Vec<Part>,
    len: u64,
}

#[derive(Debug)]
enum Part {
    Small(Range<usize>),
    Body(Bytes),
}

impl Batch {
    /// Empties it, keeping its room.
    pub fn clear(&mut self) {
        self.small.clear();
        self.parts.clear();
        self.len = 0;
    }

    /// Bytes in it.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Adds bytes as they are.
    pub fn raw(&mut self, bytes: &[u8]) {
        let from = self.small.len();
        self.small.extend_from_slice(bytes);
        self.note(from);
    }

    /// Adds a frame.
    pub fn frame(&mut self, frame: &Frame, marker: [u8; 4]) {
        let from = self.small.len();
        frame.begin(&mut self.small, marker);
        self.note(from);
        for body in &frame.body {
            if body.len() < LARGE {
                self.raw(body);
            } else {
                self.len += body.len() as u64;
                self.parts.push(Part::Body(body.clone()));
            }
        }
    }

    /// What was added to the buffer since `from` comes next.
    fn note(&mut self, from: usize) {
        let to = self.small.len();
        self.len += (to - from) as u64;
        match self.parts.last_mut() {
            Some(Part::Small(last)) => last.end = to,
            _ => self.parts.push(Part::Small(from..to)),
        }
    }

    /// As a write takes it.
    pub fn slices(&self) -> Vec<IoSlice<'_>> {
        let part = |part| match part {
            &Part::Small(Range { start, end }) => self.small.get(start..end).unwrap_or_default(),
            Part::Body(body) => body,
        };
        self.parts.iter().map(|p| IoSlice::new(part(p))).collect()
    }
}
