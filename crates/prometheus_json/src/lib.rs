//! Query results in Prometheus' JSON (HTTP API v1), as text.
//!
//! A response of a heavy query has millions of numbers. Everything that is written once per number
//! is here, so that it is compiled for speed: see `[profile.release.package]` in the workspace's
//! manifest.

#![forbid(unsafe_code)]

mod bucket_texts;
mod number;
mod result;

pub use number::{write_number, write_time};
pub use result::{write_labels, write_list, write_result};
