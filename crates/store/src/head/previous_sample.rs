//! The previous sample of a cumulative histogram in the head: the next row is stored as the
//! difference from it.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use hist::codec::frame_increment;

/// Rows in succession that are increments. A reader of one row decodes those before it up to a
/// frame, so a whole frame is stored every now and then (video: keyframe).
pub(super) const INCREMENTS_MAX: u8 = 31;

/// Previous sample of a series.
#[derive(Debug, Default)]
pub(super) struct PreviousSample {
    /// Its frame; empty if that is the last of the rows.
    bytes: Vec<u8>,
    /// Length of the frame at the end of the rows.
    length: usize,
    /// Increments since the last row that is a frame.
    increments: u8,
    /// Length of all rows if they were whole frames.
    whole_bytes: usize,
}

impl PreviousSample {
    /// Writes the increment to a frame; false if it is stored as a frame: there is no increment, or
    /// none that is shorter, or the last ones were many. `rows` are those of the series.
    pub(super) fn write_increment(&self, rows: &[u8], frame: &[u8], out: &mut Vec<u8>) -> bool {
        out.clear();
        self.increments < INCREMENTS_MAX
            && frame_increment::put_increment(self.frame(rows), frame, out)
            && out.len() < frame.len()
    }

    fn frame<'a>(&'a self, rows: &'a [u8]) -> &'a [u8] {
        match self.bytes.is_empty() {
            true => {
                rows.len().checked_sub(self.length).and_then(|at| rows.get(at..)).unwrap_or(&[])
            }
            false => &self.bytes,
        }
    }

    /// Sets the frame that was added to the rows.
    pub(super) fn set_frame(&mut self, length: usize) {
        self.bytes.clear();
        (self.length, self.increments) = (length, 0);
        self.whole_bytes = self.whole_bytes.saturating_add(length);
    }

    /// Sets the frame whose increment was added to the rows.
    pub(super) fn set_increment(&mut self, frame: &[u8]) {
        self.bytes.clear();
        self.bytes.extend_from_slice(frame);
        self.increments = self.increments.saturating_add(1);
        self.whole_bytes = self.whole_bytes.saturating_add(frame.len());
    }

    /// Length of all rows if they were whole frames, in bytes.
    pub(super) fn whole_bytes(&self) -> usize {
        self.whole_bytes
    }

    /// Memory in bytes.
    pub(super) fn held_bytes(&self) -> usize {
        self.bytes.capacity().saturating_add(size_of::<PreviousSample>())
    }
}
