//! Short columns that were encoded last. Many series have the same numbers of rows, and many
//! columns of a series are equal, while the memory that pco allocates for a column takes several
//! microseconds.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::cell::RefCell;

use super::{ColumnNumber, NumberKind};

/// Maximum numbers of a column that is kept: those of a day by the hour. The time of longer ones is
/// that of their numbers.
const NUMBERS_MAX: usize = 32;
/// Columns that are kept by each thread that encodes: at most half a megabyte. A power of two.
const COLUMNS: usize = 1 << 10;

thread_local! {
    static RECENT: RefCell<RecentColumns> = const { RefCell::new(RecentColumns(Vec::new())) };
}

/// Columns, each at the place that its numbers give it.
pub(super) struct RecentColumns(Vec<Option<RecentColumn>>);

struct RecentColumn {
    kind: NumberKind,
    numbers: Box<[u64]>,
    encoded: Box<[u8]>,
}

impl RecentColumn {
    fn holds<T: ColumnNumber>(&self, numbers: &[T]) -> bool {
        self.kind == T::KIND
            && self.numbers.len() == numbers.len()
            && self.numbers.iter().zip(numbers).all(|(held, number)| *held == number.bits())
    }
}

impl RecentColumns {
    /// The encoded column, from `encode` unless it is known.
    pub(super) fn get_or_put<T: ColumnNumber>(
        numbers: &[T],
        encode: fn(&[T]) -> Vec<u8>,
    ) -> Vec<u8> {
        if numbers.len() > NUMBERS_MAX {
            return encode(numbers);
        }
        RECENT.with_borrow_mut(|RecentColumns(columns)| {
            if columns.is_empty() {
                columns.resize_with(COLUMNS, || None);
            }
            let Some(place) = columns.get_mut(place(numbers)) else { return encode(numbers) };
            if let Some(held) = place.as_ref().filter(|held| held.holds(numbers)) {
                return held.encoded.to_vec();
            }
            let encoded = encode(numbers);
            *place = Some(RecentColumn {
                kind: T::KIND,
                numbers: numbers.iter().map(|number| number.bits()).collect(),
                encoded: encoded.as_slice().into(),
            });
            encoded
        })
    }
}

/// Place of a column by a hash of its numbers (multiplication, as of Knuth).
fn place<T: ColumnNumber>(numbers: &[T]) -> usize {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let start = (numbers.len() as u64) << 2 | T::KIND as u64;
    let hash = numbers
        .iter()
        .fold(start, |hash, number| (hash.rotate_left(5) ^ number.bits()).wrapping_mul(FACTOR));
    // The high bits are the best mixed.
    (hash >> 32) as usize & COLUMNS.wrapping_sub(1)
}
