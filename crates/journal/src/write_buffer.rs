//! Many frames as the slices of one vectored write.

use std::io::IoSlice;

use bytes::Bytes;

use super::record::Frame;

/// Size in bytes from which a body is a slice of its own; copying a smaller one costs less than a slice.
const MIN_SLICE_BYTES: usize = 4096;

/// Small parts in one buffer; large bodies by reference.
#[derive(Debug, Default)]
pub(crate) struct WriteBuffer {
    small_parts: Vec<u8>,
    /// Large bodies, each with its position in `small_parts`.
    large_bodies: Vec<(usize, Bytes)>,
}

impl WriteBuffer {
    /// Removes the contents, and keeps the allocations.
    pub(crate) fn clear(&mut self) {
        self.small_parts.clear();
        self.large_bodies.clear();
    }

    pub(crate) fn len(&self) -> u64 {
        let large_bodies: usize = self.large_bodies.iter().map(|(_, body)| body.len()).sum();
        (self.small_parts.len() + large_bodies) as u64
    }

    pub(crate) fn push_bytes(&mut self, bytes: &[u8]) {
        self.small_parts.extend_from_slice(bytes);
    }

    pub(crate) fn push_frame(&mut self, frame: &Frame, marker: [u8; 4]) {
        frame.write_head(&mut self.small_parts, marker);
        for body in &frame.body {
            match body.len() < MIN_SLICE_BYTES {
                true => self.push_bytes(body),
                false => self.large_bodies.push((self.small_parts.len(), body.clone())),
            }
        }
    }

    pub(crate) fn slices(&self) -> Vec<IoSlice<'_>> {
        let (mut slices, mut remaining, mut position) = (Vec::new(), &self.small_parts[..], 0);
        for (end, body) in &self.large_bodies {
            let (before, after) = remaining.split_at(end - position);
            slices.extend([IoSlice::new(before), IoSlice::new(body)]);
            (remaining, position) = (after, *end);
        }
        slices.push(IoSlice::new(remaining));
        slices
    }
}
