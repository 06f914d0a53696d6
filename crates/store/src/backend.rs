//! Where parts are kept: the seam between the store and what is underneath.
//!
//! A backend puts chunks under (part, series), finds them again, lists and removes parts, and replaces one
//! small value, the manifest, at once. Parts are written once and never changed. Nothing above this trait
//! knows of files; a part can as well be a partition of a distributed database, whose rows are chunks.

use std::fmt::Debug;
use std::sync::Arc;

use model::SeriesId;

use crate::chunk::Header;
use crate::error::Result;

/// Keeps parts, the forms of series, and the manifest.
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

    /// Appends forms of series. They survive the process; durable, with all that were appended
    /// before, only if that is asked for.
    fn add_series(&self, forms: &[Vec<u8>], durably: bool) -> Result<()>;

    /// Gives every form that was added. Says how many places were damaged, whose forms are then missing:
    /// each part has those of its own series too.
    fn series(&self, each: &mut dyn FnMut(&[u8])) -> Result<u64>;
}

/// Writes a part.
pub(crate) trait PartWriter {
    /// Adds a chunk.
    fn put(&mut self, header: &Header, bytes: &[u8]) -> Result<()>;

    /// Ends the part and makes it durable; `form` gives the form of each series in it. How many bytes it takes.
    fn finish(self: Box<Self>, form: &dyn Fn(&SeriesId) -> Vec<u8>) -> Result<u64>;
}

/// Where a chunk lies in its part, and what its header says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
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
    fn find(&self, series: &SeriesId) -> Result<Vec<Place>>;

    /// All chunks, by series.
    fn places(&self) -> Result<Vec<Place>>;

    /// Reads the bytes of a chunk, unchecked.
    fn read(&self, place: &Place, bytes: &mut Vec<u8>) -> Result<()>;

    /// Gives the form of each series in it.
    fn forms(&self, each: &mut dyn FnMut(&[u8])) -> Result<()>;

    /// What of it is damaged besides chunks, such as its index; empty if nothing is known to be.
    fn damage(&self) -> Result<Vec<String>>;

    /// What people call it.
    fn name(&self) -> String;
}
