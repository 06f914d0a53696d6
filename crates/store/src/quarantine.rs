//! Quarantine of inputs whose processing panics repeatedly.
//!
//! A journal record is tried three times, each time on a rebuilt head. Then its bytes are saved as
//! `quarantine/<position>.batch` in the store's directory, and a gap records its producer and
//! number of samples. After a restart the file marks the record as skipped. A series whose flush
//! panics is left out of the part, and a gap per day records the number of lost rows. Maintenance
//! that panics, such as the rollup of a day, is retried with exponential backoff
//! (`StoreInner::run_guarded`).

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::{Disk, FileError, IoContext, OpenMode};
use journal::Supervisor;
use model::SeriesId;

use crate::error::{Error, Result};

/// Panics on the same input before it is quarantined.
pub(crate) const ATTEMPTS_MAX: u32 = 3;
/// Maximum number of saved records; further records are skipped without saving.
const FILES_MAX: usize = 1024;
/// Directory of saved records, in the store's directory.
const DIR: &str = "quarantine";
const SUFFIX: &str = ".batch";

pub(crate) struct Quarantine {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    supervisor: Supervisor,
    files: usize,
    records: BTreeSet<u64>,
    series: BTreeSet<SeriesId>,
    attempts: HashMap<QuarantineInput, u32>,
}

/// Input that may be quarantined.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum QuarantineInput {
    Record(u64),
    Series(SeriesId),
}

impl Quarantine {
    /// Opens the quarantine of a store with the records that earlier processes skipped.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        store: &Path,
        supervisor: Supervisor,
    ) -> Result<Quarantine> {
        let dir = store.join(DIR);
        let names = match disk.list(&dir) {
            Ok(names) => names,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(FileError::new("list", &dir, error).into()),
        };
        let position = |name: &String| name.strip_suffix(SUFFIX)?.parse().ok();
        let records: BTreeSet<u64> = names.iter().filter_map(position).collect();
        for position in &records {
            supervisor.quarantine_permanently(
                record_name(*position),
                format!("saved in {DIR}/{position}{SUFFIX}"),
            );
        }
        let (files, series, attempts) = (records.len(), BTreeSet::new(), HashMap::new());
        Ok(Quarantine { disk, dir, supervisor, files, records, series, attempts })
    }

    pub(crate) fn has_record(&self, position: u64) -> bool {
        self.records.contains(&position)
    }

    pub(crate) fn has_series(&self, id: &SeriesId) -> bool {
        self.series.contains(id)
    }

    /// Handles a panic on a journal record. Saves its bytes after the last attempt; if that fails,
    /// the record is quarantined anyway and the error is returned.
    pub(crate) fn failed_record(
        &mut self,
        position: u64,
        bytes: &[u8],
        reason: &str,
    ) -> Result<()> {
        if self.attempt(QuarantineInput::Record(position)) < ATTEMPTS_MAX {
            return Ok(());
        }
        self.records.insert(position);
        self.supervisor.quarantine_permanently(record_name(position), reason);
        if self.files >= FILES_MAX {
            let reason = format!("quarantine limit ({FILES_MAX} records) reached in {DIR}");
            return Err(Error::Damage { location: record_name(position), reason });
        }
        self.files = self.files.saturating_add(1);
        let path = self.dir.join(format!("{position}{SUFFIX}"));
        self.disk.create_dir(&self.dir).io_context("create", &self.dir)?;
        let file = self.disk.open(&path, OpenMode::Create).io_context("create", &path)?;
        file.write_all_at(bytes, 0).io_context("write", &path)?;
        file.sync().io_context("write", &path)?;
        Ok(self.disk.sync_dir(&self.dir).io_context("write", &self.dir)?)
    }

    /// Handles a panic while flushing a series.
    pub(crate) fn failed_series(&mut self, id: SeriesId, series: &str, cause: &str) {
        if self.attempt(QuarantineInput::Series(id)) >= ATTEMPTS_MAX {
            self.series.insert(id);
            let reason = format!("flushing {series} panicked: {cause}");
            self.supervisor.quarantine(format!("series {id} of the head"), reason);
        }
    }

    /// The head was flushed without the quarantined inputs; later inputs are tried again.
    pub(crate) fn clear_attempts(&mut self, position: u64) {
        self.series.clear();
        self.attempts.clear();
        // The files remain; their records are never read again.
        self.records = self.records.split_off(&position);
    }

    fn attempt(&mut self, input: QuarantineInput) -> u32 {
        let attempts = self.attempts.entry(input).or_default();
        *attempts = attempts.saturating_add(1);
        *attempts
    }
}

/// Name of a record for users.
pub(crate) fn record_name(position: u64) -> String {
    format!("record {position} of the journal")
}
