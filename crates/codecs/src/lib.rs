//! Codecs of other histogram formats, one file each: conversion to and from a [`hist::Histogram`]
//! that keeps the source's buckets.
//!
//! A decoder accepts any bytes and returns a histogram or an error with the offset. Its allocations
//! are proportional to its input, never to sizes that the input claims. An encoder rejects what its
//! format cannot represent. Conversion to another scheme is a separate, explicit step
//! ([`hist::Histogram::convert`]).
//!
//! topdeck's own formats, frame and block, are in [`hist::codec`], for programs that need only
//! those.
//!
//! Here and in all files below, `checked_` and `saturating_` methods add sizes and counts from the
//! input. If a check or the size of memory bounds a result already, `wrapping_` methods cannot
//! panic and compile to the same instructions as `+` in a release build.
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
