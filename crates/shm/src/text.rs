//! Text metrics.

use crate::cells::{U64Cells, write_text};
use crate::entry::to_words;
use crate::gauge::shared_cells;
use crate::layout::{TEXT_BUFFERS, TEXT_MAX};
use crate::metric::CellLocation;
use crate::sync::Ordering;

/// Text of up to 240 bytes.
#[derive(Clone, Debug)]
pub struct TextMetric {
    pub(crate) cells: CellLocation,
}

impl TextMetric {
    /// Sets the text, truncated to 240 bytes. Returns whether all of it fit.
    pub fn set(&self, text: &str) -> bool {
        let mut end = text.len().min(TEXT_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let Some(U64Cells(words)) = shared_cells::<U64Cells<64>>(self.cells.small()) else {
            return false;
        };
        write_text(&words[0], |buffer| {
            let first = TEXT_BUFFERS[buffer] / 8;
            words[first].store(end as u64, Ordering::Relaxed);
            for (word, at) in to_words(&text.as_bytes()[..end]).zip(first + 1..) {
                words[at].store(word, Ordering::Relaxed);
            }
        });
        end == text.len()
    }
}
