//! Storage traits: where chunks of series lie.
//!
//! What writes puts chunks into parts and names series ([`StorageWriter`]); what reads scans parts
//! and lists series ([`StorageReader`]). Parts are written once and never changed. Nothing above
//! knows of files; a part can as well be a partition of a distributed database, whose rows are
//! chunks. Which parts count, what rollups cover and how far the journal is in them says the
//! manifest, which is the store's own ([`crate::manifest_file`]), and no part of these traits.

use std::fmt::Debug;
use std::sync::Arc;

use model::SeriesId;

use crate::error::Result;

/// Write half of a storage.
pub trait StorageWriter: Send + Sync + Debug {
    /// Begins a part. Nobody asks for it before a manifest names it; one of that number that is
    /// there already was left behind by a crash and is replaced.
    fn create_part(&self, number: u64) -> Result<Box<dyn PartWriter>>;

    /// Forgets a part; who has it open may read on.
    fn remove_part(&self, number: u64) -> Result<()>;

    /// Appends series: the producer that each counts for, and its form. They survive the process;
    /// durable, with all that was appended before, only if that is asked for.
    fn add_series(&self, series: &[(Option<u64>, Vec<u8>)], durably: bool) -> Result<()>;

    /// Appends that series were deleted, durably and in one write.
    fn delete_series(&self, ids: &[SeriesId]) -> Result<()>;
}

/// Read half of a storage.
pub trait StorageReader: Send + Sync + Debug {
    /// A finished part.
    fn open_part(&self, number: u64) -> Result<Arc<dyn Part>>;

    /// The numbers of all parts that are there, also of those left behind.
    fn part_numbers(&self) -> Result<Vec<u64>>;

    /// Gives everything that was appended, in order. Says how many places were damaged, whose forms
    /// are then missing: each part has those of its own series too. Before anything is appended it
    /// is called once.
    fn list_series(&self, each: &mut dyn FnMut(SeriesRecord<'_>)) -> Result<u64>;
}

/// Both halves of a storage.
pub trait Storage: StorageWriter + StorageReader {}

impl<T: StorageWriter + StorageReader> Storage for T {}

/// What is remembered of series, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeriesRecord<'a> {
    /// There is a series.
    Added {
        /// Its canonical form.
        key: &'a [u8],
        /// The producer that it counts for; `None` if it was stored before producers were
        /// remembered.
        producer: Option<u64>,
    },
    /// There is no such series any more.
    Deleted(SeriesId),
}

/// What a storage knows of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkInfo {
    /// Whose it is.
    pub series: SeriesId,
    /// Its rows.
    pub rows: u32,
    /// When its earliest row began, in ns since the Unix epoch.
    pub start: i64,
    /// When its latest row ended.
    pub end: i64,
}

/// Writes a part.
pub trait PartWriter {
    /// Adds a chunk.
    fn put_chunk(&mut self, chunk: &ChunkInfo, bytes: &[u8]) -> Result<()>;

    /// Ends the part and makes it durable; `form` gives the form of each series in it. How many
    /// bytes it takes.
    fn finish(self: Box<Self>, form: &dyn Fn(&SeriesId) -> Vec<u8>) -> Result<u64>;
}

/// Location of a chunk in its part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkLocation {
    /// Whose it is.
    pub series: SeriesId,
    /// Where it begins: any number by which the part finds it.
    pub offset: u64,
    /// Its bytes, header included.
    pub length: u32,
    /// Its rows.
    pub rows: u32,
    /// When its earliest row began, in ns since the Unix epoch.
    pub start: i64,
    /// When its latest row ended.
    pub end: i64,
}

/// Reads a part.
pub trait Part: Send + Sync + Debug {
    /// The chunks of a series.
    fn find(&self, series: &SeriesId) -> Result<Vec<ChunkLocation>>;

    /// How many chunks there are.
    fn chunks(&self) -> Result<usize>;

    /// Gives the series of each chunk, ascending.
    fn for_each_series(&self, each: &mut dyn FnMut(&SeriesId)) -> Result<()>;

    /// All chunks, by series, those of a series in the order of their times.
    fn chunk_locations(&self) -> Result<Vec<ChunkLocation>>;

    /// Reads the bytes of a chunk, unchecked.
    fn read(&self, place: &ChunkLocation, bytes: &mut Vec<u8>) -> Result<()>;

    /// Gives the form of each series in it.
    fn for_each_key(&self, each: &mut dyn FnMut(&[u8])) -> Result<()>;

    /// What of it is damaged besides chunks, such as its index; empty if nothing is known to be.
    fn damage(&self) -> Result<Vec<String>>;

    /// What people call it.
    fn name(&self) -> String;
}
