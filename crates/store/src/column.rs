//! Numeric columns compressed by pco (github.com/pcodec/pcodec), lossless to the last bit including
//! NaN.
//!
//! Input that claims a dictionary makes pco reserve up to 256 MiB (2^25 numbers) before it checks
//! that the dictionary exists. Only input with a matching checksum is decoded here.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

mod recent_columns;
mod short_column;

use std::borrow::Cow;
use std::sync::OnceLock;

use pco::data_types::Number;
use pco::{ChunkConfig, standalone};

use crate::chunk::ROWS_MAX;
use recent_columns::RecentColumns;

/// Number of a column.
pub(crate) trait ColumnNumber: Number + Default {
    /// Distinguishes numbers of other types with the same bits.
    const KIND: NumberKind;
    /// The type in pco's format.
    const PCO_TYPE: u8;
    fn bits(self) -> u64;
    /// What pco stores of the number, in the order of numbers.
    fn to_latent(self) -> u64;
    /// The number of which pco stores this.
    fn from_latent(latent: u64) -> Self;
}

/// Type of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NumberKind {
    Unsigned,
    Signed,
    Double,
}

impl ColumnNumber for u64 {
    const KIND: NumberKind = NumberKind::Unsigned;
    const PCO_TYPE: u8 = 2;
    fn bits(self) -> u64 {
        self
    }
    fn to_latent(self) -> u64 {
        self
    }
    fn from_latent(latent: u64) -> u64 {
        latent
    }
}

impl ColumnNumber for i64 {
    const KIND: NumberKind = NumberKind::Signed;
    const PCO_TYPE: u8 = 4;
    fn bits(self) -> u64 {
        self as u64
    }
    fn to_latent(self) -> u64 {
        self as u64 ^ 1 << 63
    }
    fn from_latent(latent: u64) -> i64 {
        (latent ^ 1 << 63) as i64
    }
}

impl ColumnNumber for f64 {
    const KIND: NumberKind = NumberKind::Double;
    const PCO_TYPE: u8 = 6;
    fn bits(self) -> u64 {
        self.to_bits()
    }
    fn to_latent(self) -> u64 {
        // Negative numbers are complements.
        let bits = self.to_bits();
        if bits >> 63 == 1 { !bits } else { bits ^ 1 << 63 }
    }
    fn from_latent(latent: u64) -> f64 {
        f64::from_bits(if latent >> 63 == 1 { latent ^ 1 << 63 } else { !latent })
    }
}

/// Encodes a column.
pub(crate) fn put<T: ColumnNumber>(numbers: &[T]) -> Vec<u8> {
    match *numbers {
        [number] => short_column::put_one(number, |zero| compress(&[zero])),
        _ => RecentColumns::get_or_put(numbers, compress),
    }
}

#[expect(clippy::expect_used, reason = "this level is one of pco's")]
fn compress<T: Number>(numbers: &[T]) -> Vec<u8> {
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
pub(crate) fn read<T: ColumnNumber>(bytes: &[u8], rows: usize) -> model::Result<Vec<T>> {
    let mut numbers = Vec::new();
    read_into(bytes, rows, &mut numbers)?;
    Ok(numbers)
}

/// Replaces `numbers` by what is decoded.
pub(crate) fn read_into<T: ColumnNumber>(
    bytes: &[u8],
    rows: usize,
    numbers: &mut Vec<T>,
) -> model::Result<()> {
    let invalid = |found: String| model::Error::Invalid {
        offset: 0,
        field: "column",
        found,
        expected: "a pco stream of one number per row",
    };
    numbers.clear();
    numbers.resize(rows, T::default());
    if short_column::read(bytes, numbers).is_some() {
        return Ok(());
    }
    let progress = standalone::simple_decompress_into(bytes, numbers)
        .map_err(|error| invalid(error.to_string()))?;
    if progress.n_processed != rows || !progress.finished {
        return Err(invalid(format!("{} numbers", progress.n_processed)));
    }
    Ok(())
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
    fn short_columns_are_those_of_pco() {
        #[track_caller]
        fn check_one<T: ColumnNumber>(numbers: &[T]) {
            for _ in 0..2 {
                assert_eq!(put(numbers), compress(numbers));
            }
        }
        let mut seed = 3u64;
        for round in 0..3_000 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            // Few different ones, so that some are met again.
            let length = (seed >> 60) as usize % 5 + if round % 7 == 0 { 30 } else { 1 };
            let numbers: Vec<u64> = (0..length).map(|at| (seed >> 58) % 4 * at as u64).collect();
            check_one(&numbers);
            check_one(&numbers.iter().map(|&n| n as i64 - 1).collect::<Vec<_>>());
            check_one(&numbers.iter().map(|&n| n as f64 * -0.5).collect::<Vec<_>>());
        }
        check_one(&[0.0, f64::NAN]);
        check_one(&[-0.0, f64::from_bits(f64::NAN.to_bits() + 1)]);
        check_one::<f64>(&[]);
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
