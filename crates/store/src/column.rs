//! Numeric columns compressed by pco (github.com/pcodec/pcodec), lossless to the last bit including
//! NaN.
//!
//! Input that claims a dictionary makes pco reserve up to 256 MiB (2^25 numbers) before it checks
//! that the dictionary exists. Only input with a matching checksum is decoded here.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::borrow::Cow;
use std::sync::OnceLock;

use pco::data_types::Number;
use pco::{ChunkConfig, standalone};

use crate::chunk::ROWS_MAX;

/// Encodes a column.
#[expect(clippy::expect_used, reason = "this level is one of pco's")]
pub(crate) fn put<T: Number>(numbers: &[T]) -> Vec<u8> {
    standalone::simple_compress(numbers, &ChunkConfig::default().with_compression_level(LEVEL))
        .expect("BUG: this level is one of pco's")
}

/// Encodes a column of doubles.
pub(crate) fn put_doubles(numbers: &[f64]) -> Cow<'static, [u8]> {
    match numbers.iter().all(|number| number.to_bits() == 0) {
        true => zeros(numbers.len()),
        false => Cow::Owned(put(numbers)),
    }
}

/// A column of positive zeros, encoded once: three of the four summary columns of a usual
/// cumulative histogram are one.
fn zeros(rows: usize) -> Cow<'static, [u8]> {
    static KNOWN: [OnceLock<Vec<u8>>; ROWS_MAX + 1] = [const { OnceLock::new() }; ROWS_MAX + 1];
    let encoded = || put(&vec![0.0; rows]);
    match KNOWN.get(rows) {
        Some(known) => Cow::Borrowed(known.get_or_init(encoded)),
        None => Cow::Owned(encoded()),
    }
}

/// Decodes a column of exactly `rows` doubles.
pub(crate) fn read_doubles(bytes: &[u8], rows: usize) -> model::Result<Vec<f64>> {
    // The lengths differ mostly.
    match rows <= ROWS_MAX && *zeros(rows) == *bytes {
        true => Ok(vec![0.0; rows]),
        false => read(bytes, rows),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(numbers: &[f64]) {
        let bytes = put_doubles(numbers);
        assert_eq!(*bytes, put(numbers));
        let found = read_doubles(&bytes, numbers.len()).unwrap();
        let bits = |numbers: &[f64]| numbers.iter().map(|n| n.to_bits()).collect::<Vec<u64>>();
        assert_eq!(bits(&found), bits(numbers));
    }

    #[test]
    fn columns_of_zeros_are_those_of_pco() {
        for rows in [1, 2, 359, ROWS_MAX, ROWS_MAX + 1] {
            check(&vec![0.0; rows]);
            check(&vec![-0.0; rows]);
            check(&vec![0.1; rows]);
            let other = zeros(rows + 1);
            assert!(read_doubles(&other, rows).is_err(), "{rows}");
        }
        check(&[0.0, f64::NAN, -0.0]);
    }
}
