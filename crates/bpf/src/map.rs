//! Maps: memory that programs and this process share.

use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::load_error::load_error;
use crate::syscall::{self, MapCells, MapKind, MapSize};

/// A map. Programs that use it keep it alive.
#[derive(Debug)]
pub struct BpfMap {
    descriptor: OwnedFd,
}

impl BpfMap {
    /// An array map whose single value has `words` words of 8 bytes.
    pub fn array(name: &str, words: usize) -> Result<BpfMap, String> {
        let value_bytes = u32::try_from(8 * words)
            .map_err(|_| format!("BPF map of {words} words exceeds the limit"))?;
        BpfMap::create(name, MapKind::Array, MapSize { key_bytes: 4, value_bytes, entries: 1 })
    }

    /// A hash map. If it is full, the values that were not used for longest make room.
    pub fn lru_hash(
        name: &str,
        key_bytes: u32,
        value_bytes: u32,
        entries: u32,
    ) -> Result<BpfMap, String> {
        BpfMap::create(name, MapKind::LruHash, MapSize { key_bytes, value_bytes, entries })
    }

    /// A ring buffer of `bytes`, a power of two and a multiple of the page size.
    pub(crate) fn ring(name: &str, bytes: u32) -> Result<BpfMap, String> {
        let size = MapSize { key_bytes: 0, value_bytes: 0, entries: bytes };
        BpfMap::create(name, MapKind::RingBuffer, size)
    }

    fn create(name: &str, kind: MapKind, size: MapSize) -> Result<BpfMap, String> {
        let descriptor = syscall::create_map(name, kind, size)
            .map_err(|error| load_error("make a BPF map", &error))?;
        Ok(BpfMap { descriptor })
    }

    /// The number by which programs name the map when they are loaded.
    pub fn descriptor(&self) -> i32 {
        self.descriptor.as_raw_fd()
    }

    pub(crate) fn as_fd(&self) -> &OwnedFd {
        &self.descriptor
    }

    /// Maps a range of words of an array map. Only the mapped range takes memory of this process.
    pub fn cells(&self, range: Range<usize>) -> Result<MapCells, String> {
        MapCells::map(&self.descriptor, range).map_err(|error| load_error("map a BPF map", &error))
    }
}

#[cfg(test)]
impl From<OwnedFd> for BpfMap {
    /// A map that is none, for tests.
    fn from(descriptor: OwnedFd) -> BpfMap {
        BpfMap { descriptor }
    }
}
