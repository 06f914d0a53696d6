//! Where an import writes: the store in a directory, or a server.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use client::{RequestParameters, ServerClient};
use net::forward_protocol;
use store::Store;

use crate::batch_output::BatchOutput;
use crate::retention_check::TargetRetention;

/// Destination of an import.
pub enum ImportTarget {
    /// A store that this process has open.
    Dir {
        /// Its directory, as given.
        dir: PathBuf,
        /// The store.
        store: Box<Store>,
    },
    /// A running server.
    Server {
        /// How to reach it.
        client: ServerClient,
        /// How long a request is sent again without success.
        retry_for: Duration,
    },
}

impl ImportTarget {
    /// Names the sender of the next batches after their file, for the server's list of sources.
    pub fn set_sender(&mut self, file: &Path) {
        if let ImportTarget::Server { client, .. } = self {
            let name = file.file_name().unwrap_or(file.as_os_str()).to_string_lossy();
            let name = if name == "-" { "standard input".into() } else { name };
            client.set_sender(&format!("{}{name}", forward_protocol::IMPORT_PREFIX));
        }
    }

    /// Output for the batches of a producer; finds out which of them the target has.
    pub(crate) fn open_output(&self, producer: u64) -> Result<BatchOutput<'_>> {
        match self {
            ImportTarget::Dir { store, .. } => BatchOutput::to_store(store, producer),
            ImportTarget::Server { client, retry_for } => {
                BatchOutput::to_server(client, *retry_for, producer)
            }
        }
    }

    /// Retention rules of the target.
    pub(crate) fn retention(&self) -> Result<TargetRetention> {
        let now = journal::wall_clock()();
        match self {
            ImportTarget::Dir { store, .. } => {
                Ok(TargetRetention::new(store.stat()?.retention, now))
            }
            ImportTarget::Server { client, .. } => {
                let status = client.get("/v1/status", RequestParameters::default())?;
                Ok(TargetRetention::of_status(&status, now))
            }
        }
    }

    /// Text that identifies the target.
    pub(crate) fn identity(&self) -> String {
        match self {
            ImportTarget::Dir { dir, .. } => {
                dir.canonicalize().unwrap_or_else(|_| dir.clone()).display().to_string()
            }
            ImportTarget::Server { client, .. } => client.url(),
        }
    }
}
