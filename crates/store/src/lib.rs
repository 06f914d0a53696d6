//! A time-series store whose datum is the histogram.
#![forbid(unsafe_code)]
#![allow(dead_code)]

mod chunk;
mod column;
mod error;
mod index;
mod resolution;
mod row;
mod times;

pub use error::{Error, Result};
