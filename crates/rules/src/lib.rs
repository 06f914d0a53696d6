//! Rules: alerting and recording rules of Prometheus.
//!
//! The crate reads no clock, no disk and no network: times and query results are arguments.
#![forbid(unsafe_code)]

pub mod template;
