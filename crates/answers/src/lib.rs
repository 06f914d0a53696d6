//! Answers for commands: from the directory of a store, or from a server.
//!
//! [`StoreArguments`] has the arguments that name either, [`AnswerSource`] answers. [`store_dir`]
//! opens a store and explains its errors. Errors are only printed, so they are those of `anyhow`.
#![forbid(unsafe_code)]

mod answer_source;
mod query_error;
mod store_arguments;
pub mod store_dir;

pub use answer_source::{AnswerSource, BoundedQuery, BreakdownThresholds};
pub use query_error::{error_text, with_flags};
pub use store_arguments::StoreArguments;
