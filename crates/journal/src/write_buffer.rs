//! Many frames as the slices of one vectored write.

use std::io::IoSlice;

use bytes::Bytes;

use super::record::Frame;

/// Size in bytes from which a body is a slice of its own; copying a smaller one costs less than a slice.
const LARGE_BODY: usize = 4096;

/// Small parts in one buffer; large bodies by reference.
#[derive(Debug, Default)]
pub(crate) struct WriteBuffer {
    small: Vec<u8>,
    /// Large bodies, each with its position in `small`.
    large: Vec<(usize, Bytes)>,
}

impl WriteBuffer {
    /// Removes the contents, and keeps the allocations.
    pub(crate) fn clear(&mut self) {
        self.small.clear();
        self.large.clear();
    }

    pub(crate) fn len(&self) -> u64 {
        let large: usize = self.large.iter().map(|(_, body)| body.len()).sum();
        (self.small.len() + large) as u64
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.small.extend_from_slice(bytes);
    }

    pub(crate) fn frame(&mut self, frame: &Frame, marker: [u8; 4]) {
        frame.write_head(&mut self.small, marker);
        for body in &frame.body {
            match body.len() < LARGE_BODY {
                true => self.raw(body),
                false => self.large.push((self.small.len(), body.clone())),
            }
        }
    }

    pub(crate) fn slices(&self) -> Vec<IoSlice<'_>> {
        let (mut slices, mut rest, mut at) = (Vec::new(), &self.small[..], 0);
        for (end, body) in &self.large {
            let (before, after) = rest.split_at(end - at);
            slices.extend([IoSlice::new(before), IoSlice::new(body)]);
            (rest, at) = (after, *end);
        }
        slices.push(IoSlice::new(rest));
        slices
    }
}
