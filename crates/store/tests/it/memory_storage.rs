//! In-memory storage that implements the storage traits; tests run stores on it.
//!
//! It lives as long as it is referenced: a store can be closed and reopened on it. Manifest,
//! journal and quarantine of such a store are on a disk as usual. Tests of crate `query` use this
//! file too.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use disk::FileError;
use model::SeriesId;
use store::{
    ChunkInfo, ChunkLocation, Part, PartWriter, Result, SeriesRecord, StorageReader, StorageWriter,
};

/// Parts, series keys and a manifest in memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryStorage(Arc<Mutex<MemoryState>>);

#[derive(Debug, Default)]
struct MemoryState {
    parts: BTreeMap<u64, Arc<MemoryPart>>,
    series: Vec<MemoryRecord>,
}

#[derive(Debug)]
enum MemoryRecord {
    Added { key: Vec<u8>, producer: Option<u64> },
    Sent { id: SeriesId, producer: u64 },
    Deleted(SeriesId),
}

#[derive(Clone, Debug, Default)]
struct MemoryPart {
    number: u64,
    bytes: Vec<u8>,
    /// Ordered by series, then by time.
    chunks: Vec<ChunkLocation>,
    keys: Vec<Vec<u8>>,
}

struct MemoryPartWriter {
    storage: MemoryStorage,
    part: MemoryPart,
}

impl StorageWriter for MemoryStorage {
    fn create_part(&self, number: u64) -> Result<Box<dyn PartWriter>> {
        self.0.lock().unwrap().parts.remove(&number);
        let part = MemoryPart { number, ..MemoryPart::default() };
        Ok(Box::new(MemoryPartWriter { storage: self.clone(), part }))
    }

    fn remove_part(&self, number: u64) -> Result<()> {
        self.0.lock().unwrap().parts.remove(&number);
        Ok(())
    }

    fn add_series(&self, series: &[(Option<u64>, Vec<u8>)], _durably: bool) -> Result<()> {
        let added = series.iter().cloned();
        let records = added.map(|(producer, key)| MemoryRecord::Added { key, producer });
        self.0.lock().unwrap().series.extend(records);
        Ok(())
    }

    fn add_producers(&self, producers: &[(SeriesId, u64)], _durably: bool) -> Result<()> {
        let records = producers.iter().map(|&(id, producer)| MemoryRecord::Sent { id, producer });
        self.0.lock().unwrap().series.extend(records);
        Ok(())
    }

    fn delete_series(&self, ids: &[SeriesId]) -> Result<()> {
        self.0.lock().unwrap().series.extend(ids.iter().map(|id| MemoryRecord::Deleted(*id)));
        Ok(())
    }
}

impl StorageReader for MemoryStorage {
    fn open_part(&self, number: u64) -> Result<Arc<dyn Part>> {
        let part = self.0.lock().unwrap().parts.get(&number).cloned();
        let part = part.map(|part| part as Arc<dyn Part>);
        part.ok_or_else(|| {
            let path = Path::new("memory").join(number.to_string());
            FileError::new("open", &path, std::io::ErrorKind::NotFound.into()).into()
        })
    }

    fn part_numbers(&self) -> Result<Vec<u64>> {
        Ok(self.0.lock().unwrap().parts.keys().copied().collect())
    }

    fn list_series(&self, each: &mut dyn FnMut(SeriesRecord<'_>)) -> Result<u64> {
        for record in &self.0.lock().unwrap().series {
            each(match record {
                MemoryRecord::Added { key, producer } => {
                    SeriesRecord::Added { key, producer: *producer }
                }
                &MemoryRecord::Sent { id, producer } => SeriesRecord::Sent { id, producer },
                MemoryRecord::Deleted(id) => SeriesRecord::Deleted(*id),
            });
        }
        Ok(0)
    }
}

impl PartWriter for MemoryPartWriter {
    fn put_chunk(&mut self, chunk: &ChunkInfo, bytes: &[u8]) -> Result<()> {
        self.part.chunks.push(ChunkLocation {
            series: chunk.series,
            offset: self.part.bytes.len() as u64,
            length: bytes.len() as u32,
            rows: chunk.rows,
            start: chunk.start,
            end: chunk.end,
        });
        self.part.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn finish(self: Box<Self>, canonical_key: &dyn Fn(&SeriesId) -> Vec<u8>) -> Result<u64> {
        let MemoryPartWriter { storage, mut part } = *self;
        part.chunks.sort_by_key(|chunk| (chunk.series, chunk.start, chunk.offset));
        let mut ids: Vec<SeriesId> = part.chunks.iter().map(|chunk| chunk.series).collect();
        ids.dedup();
        part.keys = ids.iter().map(canonical_key).collect();
        let bytes = part.bytes.len() as u64;
        storage.0.lock().unwrap().parts.insert(part.number, Arc::new(part));
        Ok(bytes)
    }
}

impl Part for MemoryPart {
    fn find(&self, series: &SeriesId) -> Result<Vec<ChunkLocation>> {
        let of_series = self.chunks.iter().filter(|chunk| chunk.series == *series);
        Ok(of_series.copied().collect())
    }

    fn chunks(&self) -> Result<usize> {
        Ok(self.chunks.len())
    }

    fn for_each_series(&self, each: &mut dyn FnMut(&SeriesId)) -> Result<()> {
        self.chunks.iter().for_each(|chunk| each(&chunk.series));
        Ok(())
    }

    fn chunk_locations(&self) -> Result<Vec<ChunkLocation>> {
        Ok(self.chunks.clone())
    }

    fn read(&self, place: &ChunkLocation, bytes: &mut Vec<u8>) -> Result<()> {
        bytes.clear();
        let stored = self.bytes.get(place.offset as usize..).unwrap_or_default();
        bytes.extend_from_slice(stored.get(..place.length as usize).unwrap_or_default());
        Ok(())
    }

    fn for_each_key(&self, each: &mut dyn FnMut(&[u8])) -> Result<()> {
        self.keys.iter().for_each(|key| each(key));
        Ok(())
    }

    fn damage(&self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    fn name(&self) -> String {
        format!("part {:016x} in memory", self.number)
    }
}
