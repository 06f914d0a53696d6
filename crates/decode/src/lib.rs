//! Decoders of ingest formats.
//!
//! Each decoder is a pure function in a file of its own: it reads bytes and passes samples and
//! errors with their positions to a [`SampleSink`]. Nothing is converted: a foreign histogram keeps
//! its buckets and its unit. [`detect`] detects the format by content.
#![forbid(unsafe_code)]

pub mod circllhist;
pub mod collectd;
mod convention;
pub mod ddsketch;
mod decimal;
mod decoded_sample;
mod duration;
mod exemplar;
pub mod exposition;
mod format;
pub mod frames;
pub mod graphite;
mod histogram_lines;
pub mod hlog;
pub mod httptrap;
pub mod influx;
mod input_error;
mod json;
mod lines;
pub mod mapper;
pub mod otlp;
pub mod plain_numbers;
pub mod prometheus_protobuf;
pub mod remote_read;
pub mod remote_write;
mod series_sink;
pub mod spans;
pub mod staleness;
pub mod statsd;
pub mod tsdb;
mod unit;

pub use convention::{is_monotonic, unit_of_name};
pub use decoded_sample::{DecodedSample, DecodedValue, SampleSink, SampleTemporality};
pub use duration::{DURATION_EXPECTED, duration_text, parse_duration, rounded_duration_text};
pub use exemplar::{DecodedExemplar, ExemplarProblem};
pub use format::{InputFormat, detect, read};
pub use input_error::{InputError, InputPosition};
pub use series_sink::{SeriesSink, VecSeriesSink};
pub use unit::{Quantity, Unit};
