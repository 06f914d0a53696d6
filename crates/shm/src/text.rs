//! Texts: versions, states, names of leaders.

use crate::cells::Words;
use crate::gauge::of_lane_0;
use crate::layout::TEXT_MAX;
use crate::metric::Cells;
use crate::registry::words_of;
use crate::sync::Ordering;

/// A text of up to 240 bytes.
#[derive(Clone, Debug)]
pub struct Text {
    pub(crate) cells: Cells,
}

/// In `current`: somebody writes into the buffer that does not count.
const WRITING: u64 = 1 << 63;

impl Text {
    /// Says this from now on, or as much of it as fits 240 bytes. Whether all of it did.
    pub fn set(&self, text: &str) -> bool {
        let mut end = text.len().min(TEXT_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let Some(Words(words)) = of_lane_0::<Words<64>>(self.cells.small()) else { return false };
        let current = loop {
            let current = words[0].load(Ordering::Relaxed) & !WRITING;
            let taken = words[0].compare_exchange_weak(
                current,
                current | WRITING,
                Ordering::Acquire,
                Ordering::Relaxed,
            );
            if taken.is_ok() {
                break current;
            }
            std::thread::yield_now();
        };
        let next = current + 1;
        let first = if next & 1 == 0 { 1 } else { 32 };
        words[first].store(end as u64, Ordering::Relaxed);
        for (word, at) in words_of(&text.as_bytes()[..end]).zip(first + 1..) {
            words[at].store(word, Ordering::Relaxed);
        }
        words[0].store(next, Ordering::Release);
        end == text.len()
    }
}
