//! Reports: answers to queries as text, and as JSON documents.
//!
//! An answer is a value of crate `query` or `store`: a [`query::QueryResult`], a
//! [`query::compare::Comparison`], a [`query::breakdown::Breakdown`], a [`store::Cardinality`].
//! `*_text` functions draw it for a terminal, [`document`] writes it as JSON. Neither depends on
//! where the answer came from.
#![forbid(unsafe_code)]

mod breakdown;
mod cardinality;
mod comparison;
pub mod document;
mod error;
mod gap;
mod query_plot;
mod query_table;

pub use breakdown::breakdown_text;
pub use cardinality::cardinality_text;
pub use comparison::{comparison_body, comparison_text};
pub use error::ReportError;
pub use gap::gap_text;
pub use query_plot::{StepWindow, plot_text};
pub use query_table::query_text;
