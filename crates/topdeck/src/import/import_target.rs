//! Where an import writes: the store in a directory, or a server.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use journal::Compression;
use net::forward_protocol;
use store::Store;

use crate::import::batch_output::BatchOutput;
use crate::journal::progress_line::ProgressLine;
use crate::server_client::ServerClient;
use crate::store::flush::run_maintenance;
use crate::store::{create, disk, open, with_dir};

/// Destination of an import.
pub(crate) enum ImportTarget {
    Dir {
        dir: PathBuf,
        store: Box<Store>,
    },
    Server {
        client: ServerClient,
        /// How long a request is sent again without success.
        retry_for: Duration,
    },
}

impl ImportTarget {
    /// Opens the store in a directory; creates it first if requested and missing.
    pub(crate) fn directory(dir: &Path, creates: bool) -> Result<ImportTarget> {
        if creates && !Store::exists(&disk(), dir)? {
            create(dir, Compression::Lz4)?;
        }
        Ok(ImportTarget::Dir { dir: dir.to_owned(), store: Box::new(open(dir)?) })
    }

    /// Names the sender of the next batches after their file, for the server's list of sources.
    pub(crate) fn set_sender(&mut self, file: &Path) {
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

    /// Text that identifies the target.
    pub(crate) fn identity(&self) -> String {
        match self {
            ImportTarget::Dir { dir, .. } => {
                dir.canonicalize().unwrap_or_else(|_| dir.clone()).display().to_string()
            }
            ImportTarget::Server { client, .. } => client.url(),
        }
    }

    /// Flushes and compacts a store after an import. A server does this by itself.
    pub(crate) fn finish(&self, progress: &mut ProgressLine) -> Result<()> {
        let ImportTarget::Dir { dir, store } = self else { return Ok(()) };
        let describe_error = with_dir(dir);
        progress.show(|_| "flushing".to_owned());
        store.flush().map_err(&describe_error)?;
        run_maintenance(store, progress).map_err(&describe_error)?;
        progress.clear();
        Ok(())
    }
}
