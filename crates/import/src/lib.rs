//! Imports files into a store or a server, each content once.
//!
//! A file is read twice. The first pass (`scan.rs`) checks the whole file, so that no part of a
//! damaged file is imported by accident, and hashes its content to a producer id. The second pass
//! (`import_batches.rs`) writes its samples to the store in batches with that number. The store
//! recognises its batches, so the same content is counted once, and an interrupted import continues
//! where it stopped. Errors are only printed, so they are those of `anyhow`.
#![forbid(unsafe_code)]

mod batch_output;
mod batch_sender;
mod block_batches;
mod block_files;
mod file_import;
mod file_result;
mod import_batches;
mod import_progress;
mod import_record;
mod import_target;
mod input_source;
mod mapping;
mod retention_check;
mod scan;
mod tsdb_dir;
mod tsdb_import;

pub use file_import::{ImportOptions, SourceFormat, import_path};
pub use file_result::{FileResult, results_json};
pub use import_record::ImportStart;
pub use import_target::ImportTarget;
pub use retention_check::TargetRetention;
