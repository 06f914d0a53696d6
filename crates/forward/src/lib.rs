//! Replication of batches to remotes, one cursor each.
//!
//! A site is another topdeck. For each there is a subscriber of the journal, "site NAME" (a name on
//! disk, of earlier versions), that holds what the site does not have yet, and a task that reads
//! what is durable here, sends it, and moves the subscriber when the site says that it is durable
//! there. Sites do not wait for each other.
//!
//! What a site has is in a book of its own, see [`intake::Hop`]: the audit holds it to the
//! journal's.
//!
//! A batch goes as (journal's number, its position): the site knows a repeat whatever was restarted
//! in between, so what is not answered is sent again. What the journal has dropped goes as a gap.
//! Nothing is skipped in silence: what a site will not take for good is set aside in a folder, and
//! the site is told a gap in its place.
//!
//! Memory per site: a parcel of about 3 MiB, the same compressed, and the reader's two frames,
//! whatever the backlog. The format of parcels is in `model::Parcel`, the way they travel in
//! `docs/formats/forward.md`.
#![forbid(unsafe_code)]

mod backoff;
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
