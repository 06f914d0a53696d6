//! Numeric columns compressed by pco (github.com/pcodec/pcodec), lossless to the last bit including
//! NaN.
//!
//! Input that claims a dictionary makes pco reserve up to 256 MiB (2^25 numbers) before it checks
//! that the dictionary exists. Only input with a matching checksum is decoded here.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use pco::data_types::Number;
use pco::{ChunkConfig, standalone};

/// Encodes a column.
#[expect(clippy::expect_used, reason = "this level is one of pco's")]
pub(crate) fn put<T: Number>(numbers: &[T]) -> Vec<u8> {
    standalone::simple_compress(numbers, &ChunkConfig::default().with_compression_level(LEVEL))
        .expect("BUG: this level is one of pco's")
}

/// Of pco's levels 0 to 12, below its default of 8: a column has at most 360 numbers. Chosen, not
/// measured.
const LEVEL: usize = 4;

/// Decodes a column of exactly `rows` numbers.
pub(crate) fn read<T: Number + Default>(bytes: &[u8], rows: usize) -> model::Result<Vec<T>> {
    let invalid = |found: String| model::Error::Invalid {
        offset: 0,
        field: "column",
        found,
        expected: "a pco stream of one number per row",
    };
    let mut numbers = vec![T::default(); rows];
    let progress = standalone::simple_decompress_into(bytes, &mut numbers)
        .map_err(|error| invalid(error.to_string()))?;
    if progress.n_processed != rows || !progress.finished {
        return Err(invalid(format!("{} numbers", progress.n_processed)));
    }
    Ok(numbers)
}
