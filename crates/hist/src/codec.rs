//! topdeck's own histogram formats: a frame holds one histogram, a block many of one series.
//!
//! A decoder accepts any bytes and returns either histograms or an error with the offset. Its
//! allocations are proportional to its input, never to sizes that the input claims. Formats of
//! other systems are in the crate `codecs`.
//!
//! Here and in all files below, `checked_` and `saturating_` methods add sizes and counts from the
//! input. If a check or the size of memory bounds a result already, `wrapping_` methods cannot
//! panic and compile to the same instructions as `+` in a release build.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

pub(crate) mod bits;
pub mod bytes;
mod columns;
pub mod header;
mod huffman;
mod matrix;
mod row_bounds;
mod runs;

pub mod block;
pub mod decoded_block;
pub mod frame;
pub mod frame_body;
pub mod frame_increment;
