//! Reports of a run: text, JSON (`docs/formats/load-run.md`), HTML page, HdrHistogram log, and
//! metrics pushed to a server. A search has its own text and JSON.
//!
//! [`run_report::RunReport`] and [`search_report::SearchReport`] contain the data of a report;
//! every output takes one of them. [`stored_run`] reads a run from JSON. The caller prints the
//! reports.

mod error;
pub mod hlog;
pub mod live_view;
pub mod machine_info;
pub mod page;
pub mod push_sink;
pub mod run_document;
pub mod run_plan;
pub mod run_report;
pub mod search_document;
pub mod search_report;
pub mod sessions;
mod spectra;
pub mod statistics;
pub mod stored_run;

pub use error::{ReportError, Result};
