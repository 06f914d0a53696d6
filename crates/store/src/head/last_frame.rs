//! Last frame of a cumulative histogram in the head: the next row is stored as its increment.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use hist::codec::frame_increment;

/// Last frame of a series, and the last one of each partition before.
#[derive(Debug, Default)]
pub(super) struct LastFrame {
    /// The frame; empty while it is at the end of the rows.
    bytes: Vec<u8>,
    /// Length of the frame at the end of the rows.
    length: usize,
    /// End of the last row of a partition, and its frame.
    closed: Vec<(i64, Vec<u8>)>,
}

/// A head has rows of few partitions. Rows that arrive from many in turn would double its memory.
const CLOSED_MAX: usize = 8;

impl LastFrame {
    /// The frame. `rows` are those of the series.
    fn frame<'a>(&'a self, rows: &'a [u8]) -> &'a [u8] {
        match self.bytes.is_empty() {
            true => {
                rows.len().checked_sub(self.length).and_then(|at| rows.get(at..)).unwrap_or(&[])
            }
            false => &self.bytes,
        }
    }

    /// Writes the increment to a frame; false if there is none that is shorter.
    pub(super) fn write_increment(&self, rows: &[u8], frame: &[u8], out: &mut Vec<u8>) -> bool {
        out.clear();
        frame_increment::put_increment(self.frame(rows), frame, out) && out.len() < frame.len()
    }

    /// Sets the frame, which was added to the rows, or its increment.
    pub(super) fn set(&mut self, frame: &[u8], is_increment: bool) {
        self.bytes.clear();
        self.length = frame.len();
        if is_increment {
            self.bytes.extend_from_slice(frame);
        }
    }

    /// Keeps the frame of the last row of a partition.
    pub(super) fn close(&mut self, rows: &[u8], end: i64) {
        if self.closed.len() < CLOSED_MAX {
            self.closed.push((end, self.frame(rows).to_owned()));
        }
    }

    /// Frame of the last row of a partition before, by its end.
    pub(super) fn closed(&self, end: i64) -> Option<&[u8]> {
        self.closed.iter().find(|closed| closed.0 == end).map(|closed| &*closed.1)
    }

    /// Memory in bytes.
    pub(super) fn held_bytes(&self) -> usize {
        let held = self.closed.iter().map(|(_, frame)| frame.capacity());
        held.fold(
            self.bytes.capacity().saturating_add(size_of::<LastFrame>()),
            usize::saturating_add,
        )
    }
}
