//! Sources: what other systems write, read into histograms and plain values.
//!
//! Each source is a pure reader, one file each: it takes bytes and hands a [`Sink`] what it finds, with
//! the place of whatever it cannot read. Nothing is converted: a foreign histogram keeps its buckets and
//! its unit. [`detect`] tells the formats apart by content.
#![forbid(unsafe_code)]

pub mod circllhist;
mod convention;
pub mod exposition;
mod format;
pub mod frames;
pub mod graphite;
pub mod hlog;
pub mod httptrap;
pub mod influx;
mod json;
mod length;
mod lines;
mod number;
pub mod numbers;
pub mod otlp;
pub mod place;
pub mod prometheus_protobuf;
mod reading;
pub mod remote_write;
mod rows;
pub mod statsd;
pub mod synthetic;
mod trouble;
mod unit;

pub use format::{Format, detect, fuzz, read};
pub use length::{LENGTH_EXPECTED, parse_length};
pub use reading::{Over, Reading, Sink, Value};
pub use rows::{Rows, RowsKept};
pub use trouble::{Place, Trouble};
pub use unit::{Quantity, Unit};
