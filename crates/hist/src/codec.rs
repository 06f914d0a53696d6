//! Histogram codecs, one file per format.
//!
//! A decoder takes bytes of any origin and returns either a histogram that keeps the source's buckets, or
//! an error with the offset; it allocates in proportion to its input, never to what the input claims.
//! An encoder refuses what its format cannot hold. Conversion is a separate, named step
//! ([`crate::Histogram::convert`]).
//!
//! Here and in all files below, `checked_` and `saturating_` methods add up what bytes claim. Where a
//! check or the size of memory bounds a result already, `wrapping_` methods cannot panic, and are
//! the same instructions as `+` in a release.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

mod base64;
pub(crate) mod bits;
pub(crate) mod bytes;
mod columns;
pub mod header;
mod huffman;
mod matrix;
mod protobuf;
mod runs;

pub mod block;
pub mod circllhist;
pub mod ddsketch;
pub mod frame;
pub mod hdr;
pub mod hlog;
pub mod otlp;
pub mod prometheus;

pub use protobuf::FoldResult;
