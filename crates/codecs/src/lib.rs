//! Codecs of foreign histogram formats, one file each: what other systems write becomes a
//! [`hist::Histogram`] that keeps the source's buckets, and the other way round.
//!
//! A decoder takes bytes of any origin and returns either a histogram or an error with the offset;
//! it allocates in proportion to its input, never to what the input claims. An encoder refuses what
//! its format cannot hold. Conversion is a separate, named step ([`hist::Histogram::convert`]).
//!
//! topdeck's own formats, frame and block, are in [`hist::codec`], for programs that need nothing
//! else.
//!
//! Here and in all files below, `checked_` and `saturating_` methods add up what bytes claim. Where
//! a check or the size of memory bounds a result already, `wrapping_` methods cannot panic, and are
//! the same instructions as `+` in a release.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

mod base64;
mod exponential;
mod leb9;
mod message;

pub mod circllhist;
pub mod ddsketch;
pub mod frame_text;
pub mod hdr;
pub mod hlog;
pub mod otlp;
pub mod prometheus;
pub mod protobuf;

pub use exponential::FoldResult;
