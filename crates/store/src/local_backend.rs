//! Local backend: parts as files of a directory.
//!
//! ```text
//! DIR/series              series keys and deletions, append-only: `series_file.rs`
//! DIR/parts/NUMBER.part   parts; named by the number in 16 hexadecimal digits
//! ```

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use disk::{Disk, FileError, IoContext, OpenMode};

use model::SeriesId;

use crate::backend::{Part, PartWriter, SeriesRecord, StorageReader, StorageWriter};
use crate::error::Result;
use crate::mutex::lock;
use crate::part::{FilePart, FilePartWriter};
use crate::series_file::{self, SeriesWriter};

/// State of the series file.
#[derive(Debug, Default)]
struct SeriesFileState {
    /// Writer for the next append.
    writer: SeriesWriter,
    /// Data was appended and not fsynced.
    is_unsynced: bool,
    /// The directory entry is durable.
    is_name_durable: bool,
    /// The file was read: `writer` is valid, and only appends change it.
    is_loaded: bool,
}

/// Directory of a store.
pub(crate) struct LocalBackend {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    series: Mutex<SeriesFileState>,
}

impl fmt::Debug for LocalBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Local").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl LocalBackend {
    /// Backend for an existing store directory.
    pub(crate) fn new(disk: Arc<dyn Disk>, dir: &Path) -> LocalBackend {
        LocalBackend { disk, dir: dir.to_owned(), series: Mutex::default() }
    }

    /// File name of a part.
    pub(crate) fn part_name(number: u64) -> PathBuf {
        Path::new("parts").join(format!("{number:016x}.part"))
    }

    fn part_path(&self, number: u64) -> PathBuf {
        self.dir.join(LocalBackend::part_name(number))
    }

    fn series_path(&self) -> PathBuf {
        self.dir.join("series")
    }

    /// Appends to the series file. The next append overwrites a failed one.
    fn append(&self, durably: bool, put: impl FnOnce(&mut SeriesWriter)) -> Result<()> {
        let mut series = lock(&self.series);
        let mut writer = series.writer.clone();
        put(&mut writer);
        let (at, bytes) = writer.take_pending();
        if bytes.is_empty() && !(durably && series.is_unsynced) {
            return Ok(());
        }
        let path = self.series_path();
        let file = self.disk.open(&path, OpenMode::Create).io_context("open", &path)?;
        file.write_all_at(&bytes, at).io_context("write", &path)?;
        if durably {
            file.sync().io_context("fsync", &path)?;
            if !series.is_name_durable {
                self.disk.sync_dir(&self.dir).io_context("fsync", &self.dir)?;
            }
            series.is_name_durable = true;
        }
        (series.writer, series.is_unsynced) = (writer, !durably);
        Ok(())
    }
}

impl StorageWriter for LocalBackend {
    fn create_part(&self, number: u64) -> Result<Box<dyn PartWriter>> {
        let path = self.part_path(number);
        match self.disk.remove(&path) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(FileError::new("remove", &path, error).into()),
        }
        Ok(Box::new(FilePartWriter::new(Arc::clone(&self.disk), path, number)?))
    }

    fn remove_part(&self, number: u64) -> Result<()> {
        let path = self.part_path(number);
        match self.disk.remove(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(FileError::new("remove", &path, error).into())
            }
            _ => Ok(()),
        }
    }

    fn add_series(&self, series: &[(Option<u64>, Vec<u8>)], durably: bool) -> Result<()> {
        self.append(durably, |writer| {
            series.iter().for_each(|(producer, key)| writer.add(*producer, key));
        })
    }

    fn add_producers(&self, producers: &[(SeriesId, u64)], durably: bool) -> Result<()> {
        self.append(durably, |writer| {
            producers.iter().for_each(|(id, producer)| writer.add_producer(id, *producer));
        })
    }

    fn delete_series(&self, ids: &[SeriesId]) -> Result<()> {
        self.append(true, |writer| ids.iter().for_each(|id| writer.delete(id)))
    }
}

impl StorageReader for LocalBackend {
    fn open_part(&self, number: u64) -> Result<Arc<dyn Part>> {
        Ok(Arc::new(FilePart::open(&*self.disk, &self.part_path(number))?))
    }

    fn part_numbers(&self) -> Result<Vec<u64>> {
        let dir = self.dir.join("parts");
        let names = self.disk.list(&dir).io_context("list", &dir)?;
        let number = |name: &String| {
            let digits = name.strip_suffix(".part").filter(|digits| digits.len() == 16)?;
            u64::from_str_radix(digits, 16).ok()
        };
        let mut numbers: Vec<u64> = names.iter().filter_map(number).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    fn list_series(&self, each: &mut dyn FnMut(SeriesRecord<'_>)) -> Result<u64> {
        let Some(bytes) = disk::read_file(&*self.disk, &self.series_path(), u64::MAX)? else {
            return Ok(0);
        };
        let (damaged, writer) = series_file::read(&bytes, each);
        let mut series = lock(&self.series);
        if !series.is_loaded {
            // The previous process may have left data unsynced.
            (series.is_unsynced, series.writer) = (writer.intact_end() > 0, writer);
            series.is_loaded = true;
        }
        Ok(damaged)
    }
}
