//! Reports: answers to queries, and the state of stores and journals, as text and as JSON.
//!
//! An answer is a value of crate `query` or `store`: a [`query::QueryResult`], a
//! [`query::compare::Comparison`], a [`query::breakdown::Breakdown`], a [`store::Cardinality`].
//! `*_text` functions draw it for a terminal; [`document`] writes it as JSON and reads it back;
//! [`csv_text`] makes a table of a document. So a report does not depend on where its answer came
//! from: a store, or the response of a server.
#![forbid(unsafe_code)]

mod alerts;
mod audit;
mod breakdown;
mod bucket_stream;
mod cardinality;
mod changes;
mod comparison;
mod csv;
mod damage;
mod deletion;
pub mod distribution;
pub mod document;
mod error;
mod exemplars;
mod gap;
pub mod journal_check;
pub mod journal_format;
pub mod journal_stat;
mod overview;
mod overview_alarms;
mod overview_headline;
mod query_frames;
mod query_plot;
mod query_table;
mod retention;
mod rules;
mod silences;
mod slo;
mod status;
mod store_check;
mod store_report;
mod stream_point;
mod targets;
mod trace;
mod trace_shape;

pub use alerts::alerts_text;
pub use audit::audit_text;
pub use breakdown::breakdown_text;
pub use bucket_stream::BucketStream;
pub use cardinality::cardinality_text;
pub use changes::changes_text;
pub use comparison::{comparison_body, comparison_text};
pub use csv::{CsvTable, csv_text, document_csv};
pub use damage::damage_text;
pub use deletion::{Deletion, DeletionOutcome, deletion_text, sample_count_text};
pub use error::DrawError;
pub use exemplars::exemplars_text;
pub use gap::gap_text;
pub use overview::overview_text;
pub use overview_alarms::OverviewAlarms;
pub use query_frames::frames_text;
pub use query_plot::{StepWindow, plot_text};
pub use query_table::query_text;
pub use retention::{retention_json, retention_rule_text, retention_text};
pub use rules::rules_text;
pub use silences::silences_text;
pub use slo::{slo_text, slos_text};
pub use status::{StatusProblem, status_problems, status_text};
pub use store_check::{scrub_json, scrub_text};
pub use store_report::{StoreReport, store_json, store_text};
pub use stream_point::point_line;
pub use targets::{ListedTarget, targets_json, targets_text};
pub use trace::trace_text;
pub use trace_shape::trace_shape_text;
