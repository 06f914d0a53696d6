//! Storage traits: where the chunks of series are stored.
//!
//! [`StorageWriter`] puts chunks into parts and adds series; [`StorageReader`] scans parts and
//! lists series. A part is written once and never changed. The layers above know no files: a part
//! can also be a partition of a distributed database whose rows are chunks. The manifest
//! ([`crate::manifest_file`]) belongs to the store and is not part of these traits: it says which
//! parts are live, what rollups cover and up to where the journal is in parts.

use std::fmt::Debug;
use std::sync::Arc;

use model::SeriesId;

use crate::error::Result;

/// Write half of a storage.
pub trait StorageWriter: Send + Sync + Debug {
    /// Begins a part. The part is not read before a manifest names it. A part with this number that
    /// a crash left behind is replaced.
    fn create_part(&self, number: u64) -> Result<Box<dyn PartWriter>>;

    /// Removes a part; open handles can still read it.
    fn remove_part(&self, number: u64) -> Result<()>;

    /// Appends series: the producer that each one counts for, and its canonical key. They survive a
    /// process crash; they survive a power loss, with everything appended before, only if `durable`
    /// is set.
    fn add_series(&self, series: &[(Option<u64>, Vec<u8>)], durably: bool) -> Result<()>;

    /// Appends further producers of series that were added before; durability as above.
    fn add_producers(&self, producers: &[(SeriesId, u64)], durably: bool) -> Result<()>;

    /// Appends deletions of series, durably and in one write.
    fn delete_series(&self, ids: &[SeriesId]) -> Result<()>;
}

/// Read half of a storage.
pub trait StorageReader: Send + Sync + Debug {
    /// Opens a finished part.
    fn open_part(&self, number: u64) -> Result<Arc<dyn Part>>;

    /// Numbers of all existing parts, including those that a crash left behind.
    fn part_numbers(&self) -> Result<Vec<u64>>;

    /// Yields every appended record, in order. Returns the number of damaged places, whose keys are
    /// then missing; each part also has the keys of its own series. Called once before anything is
    /// appended.
    fn list_series(&self, each: &mut dyn FnMut(SeriesRecord<'_>)) -> Result<u64>;
}

/// Both halves of a storage.
pub trait Storage: StorageWriter + StorageReader {}

impl<T: StorageWriter + StorageReader> Storage for T {}

/// Record of the series log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeriesRecord<'a> {
    /// A series was added.
    Added {
        /// Its canonical key.
        key: &'a [u8],
        /// The producer that it counts for; `None` for series stored before producers were
        /// recorded.
        producer: Option<u64>,
    },
    /// Another producer than the one that the series counts for sent it too.
    Sent {
        /// The series.
        id: SeriesId,
        /// The producer.
        producer: u64,
    },
    /// The series was deleted.
    Deleted(SeriesId),
}

/// Summary of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkInfo {
    /// Series of the chunk.
    pub series: SeriesId,
    /// Number of rows.
    pub rows: u32,
    /// Earliest start of a row, in ns since the Unix epoch.
    pub start: i64,
    /// Latest end of a row.
    pub end: i64,
}

/// Writes a part.
pub trait PartWriter {
    /// Adds a chunk.
    fn put_chunk(&mut self, chunk: &ChunkInfo, bytes: &[u8]) -> Result<()>;

    /// Finishes the part and makes it durable; `canonical_key` returns the canonical key of each
    /// series in it. Returns the size of the part in bytes.
    fn finish(self: Box<Self>, canonical_key: &dyn Fn(&SeriesId) -> Vec<u8>) -> Result<u64>;
}

/// Location of a chunk in its part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkLocation {
    /// Series of the chunk.
    pub series: SeriesId,
    /// Offset, or any other number by which the part finds the chunk.
    pub offset: u64,
    /// Length in bytes, including the header.
    pub length: u32,
    /// Number of rows.
    pub rows: u32,
    /// Earliest start of a row, in ns since the Unix epoch.
    pub start: i64,
    /// Latest end of a row.
    pub end: i64,
}

impl ChunkLocation {
    /// Offset of the byte after the chunk.
    pub(crate) fn end_offset(&self) -> u64 {
        self.offset.saturating_add(self.length.into())
    }
}

/// Takes the bytes of a chunk, by its position among those that are read.
pub type ChunkTaker<'a> = dyn FnMut(usize, Result<&[u8]>) -> Result<()> + 'a;

/// Reads a part.
pub trait Part: Send + Sync + Debug {
    /// The chunks of a series.
    fn find(&self, series: &SeriesId) -> Result<Vec<ChunkLocation>>;

    /// Yields the chunks of series in ascending order, each with the position of its series.
    fn find_all(
        &self,
        series: &[SeriesId],
        each: &mut dyn FnMut(usize, &ChunkLocation),
    ) -> Result<()> {
        for (at, series) in series.iter().enumerate() {
            self.find(series)?.iter().for_each(|location| each(at, location));
        }
        Ok(())
    }

    /// Number of chunks.
    fn chunks(&self) -> Result<usize>;

    /// Yields the series of each chunk, ascending.
    fn for_each_series(&self, each: &mut dyn FnMut(&SeriesId)) -> Result<()>;

    /// All chunks, ordered by series, then by time.
    fn chunk_locations(&self) -> Result<Vec<ChunkLocation>>;

    /// At most `count` of [`Self::chunk_locations`], from number `first` on; none behind the last.
    fn chunk_location_range(&self, first: usize, count: usize) -> Result<Vec<ChunkLocation>> {
        Ok(self.chunk_locations()?.into_iter().skip(first).take(count).collect())
    }

    /// Reads the bytes of a chunk, unchecked.
    fn read(&self, location: &ChunkLocation, bytes: &mut Vec<u8>) -> Result<()>;

    /// Reads many chunks, unchecked. Passes the bytes of each to `each`, with its position, until
    /// that fails.
    fn read_all(&self, locations: &[ChunkLocation], each: &mut ChunkTaker<'_>) -> Result<()> {
        let mut bytes = Vec::new();
        for (at, location) in locations.iter().enumerate() {
            let read = self.read(location, &mut bytes);
            each(at, read.map(|()| &*bytes))?;
        }
        Ok(())
    }

    /// Yields the canonical key of each series in the part.
    fn for_each_key(&self, each: &mut dyn FnMut(&[u8])) -> Result<()>;

    /// Damage outside chunks, such as a corrupt index; empty if none is known.
    fn damage(&self) -> Result<Vec<String>>;

    /// Name shown to users.
    fn name(&self) -> String;
}
