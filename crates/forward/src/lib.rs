//! Replication of batches to remotes, each with its own position in the journal.
//!
//! A remote is another topdeck. Each has a journal subscriber, "site NAME" (a name on disk, of
//! earlier versions), that retains the records that the remote lacks, and a task that reads durable
//! records, sends them, and advances the subscriber when the remote reports them durable. Remotes
//! do not wait for each other.
//!
//! The acknowledged progress of a remote is in its own ledger, see [`intake::DownstreamStage`]; the
//! audit reconciles it with the journal's ledger.
//!
//! A batch is identified by the journal's number and its position: the remote detects repeats
//! across all restarts, so unacknowledged batches are sent again. Records that the journal has
//! dropped are sent as a gap. Nothing is skipped silently: a batch that a remote rejects
//! permanently becomes a dead letter, and a gap is sent in its place.
//!
//! Memory per remote: a request of about 3 MiB, its compressed form, and two frames of the reader,
//! for any backlog. Request format: `model::ForwardRequest`; protocol: `docs/formats/forward.md`.
#![forbid(unsafe_code)]

mod dead_letter_dir;
mod encoded_request;
mod error;
mod forward;
mod forward_reader;
mod key;
mod remote_metrics;
mod remote_progress;
mod remote_response;
mod remote_task;
mod role;
mod settings;
mod status;

pub use crate::role::{ForwardRole, ForwardTables};
pub use error::{Error, Result};
pub use forward::{Forward, ForwardStatusHandle};
pub use settings::{Remote, Settings};
pub use status::{OrphanedSubscriber, RemoteStatus};
