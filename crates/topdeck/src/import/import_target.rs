//! Where an import writes: the store in a directory, or a server.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use journal::{BatchIdentity, Compression, Level};
use model::{Batch, ForwardRequestWriter};
use net::forward_protocol;
use store::Store;

use crate::import::import_batches::BATCH_FORMAT;
use crate::journal::progress_line::ProgressLine;
use crate::server_client::ServerClient;
use crate::store::flush::run_maintenance;
use crate::store::{create, disk, open, with_dir};

/// Approximate maximum of rows in memory before a flush.
const HEAD_BYTES_MAX: u64 = 128 << 20;

/// Destination of an import.
pub(crate) enum ImportTarget {
    Folder { dir: PathBuf, store: Box<Store> },
    Server(ServerClient),
}

impl ImportTarget {
    /// Opens the store in a directory; creates it first if requested and missing.
    pub(crate) fn folder(dir: &Path, creates: bool) -> Result<ImportTarget> {
        if creates && !Store::exists(&disk(), dir)? {
            create(dir, Compression::Lz4)?;
        }
        Ok(ImportTarget::Folder { dir: dir.to_owned(), store: Box::new(open(dir)?) })
    }

    /// Names the file that the next batches are of, for the server's list of sources.
    pub(crate) fn set_source(&mut self, file: &Path) {
        if let ImportTarget::Server(server) = self {
            let name = file.file_name().unwrap_or(file.as_os_str()).to_string_lossy();
            let name = if name == "-" { "standard input".into() } else { name };
            server.set_sender(&format!("{}{name}", forward_protocol::IMPORT_PREFIX));
        }
    }

    /// Writes a batch durably. Returns whether it was there before: a batch is identified by the
    /// number of its producer and its sequence.
    pub(crate) fn append(&self, producer: u64, sequence: u64, batch: &Batch) -> Result<bool> {
        match self {
            ImportTarget::Folder { store, .. } => {
                let identity = BatchIdentity { producer, epoch: BATCH_FORMAT, sequence };
                Ok(store.ingest(Some(identity), batch, Level::Disk)?.is_duplicate)
            }
            ImportTarget::Server(server) => {
                let journal = u128::from(BATCH_FORMAT) << 64 | u128::from(producer);
                let mut request = ForwardRequestWriter::new(journal);
                request.push(sequence, batch.bytes());
                let (path, content_type) = (forward_protocol::PATH, forward_protocol::CONTENT_TYPE);
                let answer = server.post(path, content_type, request.finish().into())?;
                let duplicates = answer["duplicates"].as_u64();
                Ok(duplicates.context("the server did not report duplicates")? > 0)
            }
        }
    }

    /// Seals the head if it is large. A server does this by itself.
    pub(crate) fn limit_memory(&self) -> Result<()> {
        if let ImportTarget::Folder { store, .. } = self
            && store.stat()?.head_bytes > HEAD_BYTES_MAX
        {
            store.flush()?;
        }
        Ok(())
    }

    /// Seals and compacts a store after an import. A server does this by itself.
    pub(crate) fn finish(&self, progress: &mut ProgressLine) -> Result<()> {
        let ImportTarget::Folder { dir, store } = self else { return Ok(()) };
        let describe_error = with_dir(dir);
        progress.show(|_| "sealing".to_owned());
        store.flush().map_err(&describe_error)?;
        run_maintenance(store, progress).map_err(&describe_error)?;
        progress.clear();
        Ok(())
    }
}
