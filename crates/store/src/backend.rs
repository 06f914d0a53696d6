//! Storage backend interface.
//!
//! A backend puts chunks under (part, series), finds them again, lists and removes parts, and replaces one
//! small value, the manifest, at once. Parts are written once and never changed. Nothing above this trait
//! knows of files; a part can as well be a partition of a distributed database, whose rows are chunks.

use std::fmt::Debug;
use std::sync::Arc;

use model::SeriesId;

use crate::chunk::ChunkHeader;
use crate::error::Result;

/// Storage backend: parts, series keys, manifest.
pub(crate) trait Backend: Send + Sync + Debug {
    /// Begins a part. Nobody finds it before a manifest names it; one of that number that is there already was
    /// left behind by a crash and is replaced.
    fn create(&self, number: u64) -> Result<Box<dyn PartWriter>>;

    /// A finished part.
    fn open(&self, number: u64) -> Result<Arc<dyn Part>>;

    /// Forgets a part; who has it open may read on.
    fn remove(&self, number: u64) -> Result<()>;

    /// The numbers of all parts that are there, also of those left behind.
    fn parts(&self) -> Result<Vec<u64>>;

    /// The manifest, and whether all copies of it are the same; `None` in a new store.
    fn manifest(&self) -> Result<Option<(Vec<u8>, bool)>>;

    /// Replaces the manifest, durably and at once.
    fn set_manifest(&self, bytes: &[u8]) -> Result<()>;

    /// Appends series: the producer that each counts for, and its form. They survive the process;
    /// durable, with all that was appended before, only if that is asked for.
    fn add_series(&self, series: &[(Option<u64>, Vec<u8>)], durably: bool) -> Result<()>;

    /// Appends that series were deleted, durably and in one write.
    fn delete_series(&self, ids: &[SeriesId]) -> Result<()>;

    /// Gives everything that was appended, in order. Says how many places were damaged, whose forms are then
    /// missing: each part has those of its own series too. Before anything is appended it is called once.
    fn series(&self, each: &mut dyn FnMut(SeriesRecord<'_>)) -> Result<u64>;
}

/// What is remembered of series, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SeriesRecord<'a> {
    /// There is a series.
    Added {
        /// Its canonical form.
        key: &'a [u8],
        /// The producer that it counts for; `None` if it was stored before producers were remembered.
        producer: Option<u64>,
    },
    /// There is no such series any more.
    Deleted(SeriesId),
}

/// Writes a part.
pub(crate) trait PartWriter {
    /// Adds a chunk.
    fn put(&mut self, header: &ChunkHeader, bytes: &[u8]) -> Result<()>;

    /// Ends the part and makes it durable; `form` gives the form of each series in it. How many bytes it takes.
    fn finish(self: Box<Self>, form: &dyn Fn(&SeriesId) -> Vec<u8>) -> Result<u64>;
}

/// Location of a chunk in its part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkLocation {
    /// Whose it is.
    pub(crate) series: SeriesId,
    /// Where it begins.
    pub(crate) offset: u64,
    /// Its bytes, header included.
    pub(crate) length: u32,
    /// Its rows.
    pub(crate) rows: u32,
    /// When its earliest row began, in ns since the Unix epoch.
    pub(crate) start: i64,
    /// When its latest row ended.
    pub(crate) end: i64,
}

/// Reads a part.
pub(crate) trait Part: Send + Sync + Debug {
    /// The chunks of a series.
    fn find(&self, series: &SeriesId) -> Result<Vec<ChunkLocation>>;

    /// How many chunks there are.
    fn chunks(&self) -> Result<usize>;

    /// Gives the series of each chunk, ascending.
    fn for_each_series(&self, each: &mut dyn FnMut(&SeriesId)) -> Result<()>;

    /// All chunks, by series.
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
