//! Decoder of the rows of a cumulative histogram in the head: frames and increments.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use hist::codec::{frame, frame_increment};
use hist::{Histogram, TrackedValue};

use super::READ;
use crate::cumulative_sample::SampleContent;

/// Decodes rows in order of arrival. A row that is not needed is decoded with the next one that is.
#[derive(Default)]
pub(super) struct SampleDecoder<'a> {
    /// Value of the last decoded row.
    last: Option<Histogram>,
    /// Values after it, from the last frame on.
    skipped: Vec<&'a [u8]>,
    /// Whether the row before is the last decoded one, whole or as its increment.
    is_continued: bool,
}

impl<'a> SampleDecoder<'a> {
    /// Passes over a row.
    pub(super) fn skip(&mut self, value: &'a [u8]) {
        if !frame_increment::is_increment(value) {
            self.last = None;
            self.skipped.clear();
        }
        self.skipped.push(value);
        self.is_continued = false;
    }

    /// The histogram of a row.
    #[expect(clippy::expect_used, reason = "add takes values that a batch was read with")]
    pub(super) fn decode(&mut self, value: &'a [u8]) -> &Histogram {
        self.skip(value);
        self.is_continued = true;
        for value in self.skipped.drain(..) {
            match &mut self.last {
                Some(last) if frame_increment::is_increment(value) => {
                    let (added, sum) = frame_increment::read_increment(last, value).expect(READ);
                    let unknown = TrackedValue::Absent;
                    assert!(last.add_counts(&added, sum, unknown, unknown), "{READ}");
                }
                _ => self.last = Some(frame::decode(value).expect(READ).0),
            }
        }
        self.last.as_ref().expect(READ)
    }

    /// The content of a row: what it adds, if it is the increment of the row before it, which was
    /// decoded too.
    #[expect(clippy::expect_used, reason = "add takes values that a batch was read with")]
    pub(super) fn decode_content(&mut self, value: &'a [u8]) -> SampleContent {
        match &self.last {
            Some(last) if self.is_continued && frame_increment::is_increment(value) => {
                let (counts, sum) = frame_increment::read_increment(last, value).expect(READ);
                self.skip(value);
                self.is_continued = true;
                SampleContent::Increment { counts, sum }
            }
            _ => SampleContent::Whole(self.decode(value).clone()),
        }
    }
}
