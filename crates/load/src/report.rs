//! What is reported of a run: as text, JSON (`docs/formats/load-run.md`), HTML page, HdrHistogram
//! log, and as seconds that are pushed to a server. A search has text and JSON of its own.
//!
//! [`run_report::RunReport`] and [`search_report::SearchReport`] are the values; every output takes
//! one of them. [`stored_run`] reads a run back. Who prints them is above.

mod error;
pub mod hlog;
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
