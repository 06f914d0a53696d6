//! Reports: answers to queries as text, and as JSON documents.
//!
//! An answer is a value of crate `query` or `store`: a [`query::QueryResult`], a
//! [`query::compare::Comparison`], a [`query::breakdown::Breakdown`], a [`store::Cardinality`].
//! `*_text` functions draw it for a terminal; [`document`] writes it as JSON and reads it back. So
//! a report does not depend on where its answer came from: a store, or the response of a server.
#![forbid(unsafe_code)]

mod audit;
mod breakdown;
mod cardinality;
mod comparison;
mod deletion;
pub mod distribution;
pub mod document;
mod error;
mod gap;
mod query_plot;
mod query_table;
mod stream_point;

pub use audit::audit_text;
pub use breakdown::breakdown_text;
pub use cardinality::cardinality_text;
pub use comparison::{comparison_body, comparison_text};
pub use deletion::{Deletion, deletion_text};
pub use error::AnswerError;
pub use gap::gap_text;
pub use query_plot::{StepWindow, plot_text};
pub use query_table::query_text;
pub use stream_point::point_line;
