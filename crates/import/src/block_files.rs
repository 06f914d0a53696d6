//! Files of a Prometheus block: index, chunks and tombstones.
//!
//! The index and the chunks are read piece by piece; of the index, only the symbols are kept.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use decode::InputError;
use decode::tsdb::{
    self, BlockChunk, DeletedRanges, INDEX_CONTENTS_BYTES, INDEX_HEADER_BYTES, IndexSections,
    IndexSeries, SERIES_ALIGNMENT, SymbolTable, Tombstones,
};

use crate::tsdb_dir::TsdbBlock;

/// Bytes of the index that are read at once.
const INDEX_WINDOW_BYTES: u64 = 256 << 10;
/// Bytes that are read of a chunk at first: most chunks are shorter.
const CHUNK_HEAD_BYTES: u64 = 4096;
/// Bytes before the first chunk of a file.
const SEGMENT_HEADER_BYTES: u64 = 8;

/// Open files of a block. Prometheus may delete the block meanwhile.
pub(crate) struct BlockFiles {
    index: IndexFile,
    /// Series and chunks in `meta.json`.
    counts: (Option<u64>, Option<u64>),
    tombstones: Tombstones,
    chunks_dir: PathBuf,
    /// Chunk files by number.
    segments: HashMap<u32, SegmentFile>,
    /// Damage found at opening.
    damage: Vec<String>,
    /// Hash of the block's name, index and tombstones.
    pub(crate) hasher: blake3::Hasher,
}

struct IndexFile {
    path: PathBuf,
    file: File,
    sections: IndexSections,
    symbols: SymbolTable,
}

struct SegmentFile {
    path: PathBuf,
    file: File,
    size: u64,
}

/// Visitor of the chunks of a block.
pub(crate) trait BlockVisitor {
    /// A chunk, and its bytes.
    fn chunk(
        &mut self,
        series: &IndexSeries<'_>,
        chunk: &BlockChunk<'_>,
        deleted: &DeletedRanges,
        bytes: &[u8],
    ) -> Result<(), InputError>;
    /// Damage, with the file and the offset.
    fn damage(&mut self, _reason: String) {}
    /// Whether to continue; called between series.
    fn continues(&self) -> bool {
        true
    }
}

impl BlockFiles {
    /// Opens the files of a block.
    pub(crate) fn open(block: &TsdbBlock) -> Result<BlockFiles> {
        let mut hasher = blake3::Hasher::new();
        hasher.update(block.id.as_bytes());
        let index = IndexFile::open(&block.dir.join("index"), &mut hasher)?;
        let path = block.dir.join("tombstones");
        let tombstones = match path.exists() {
            true => {
                let bytes = fs::read(&path).with_context(|| cannot_read(&path))?;
                hasher.update(&bytes);
                Tombstones::parse(&bytes).with_context(|| path.display().to_string())?
            }
            false => Tombstones::default(),
        };
        let chunks_dir = block.dir.join("chunks");
        let (mut segments, mut damage) = (HashMap::new(), Vec::new());
        for entry in fs::read_dir(&chunks_dir).with_context(|| cannot_read(&chunks_dir))? {
            let path = entry.with_context(|| cannot_read(&chunks_dir))?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            let Some(number) = name.and_then(|name| name.parse().ok()) else { continue };
            let segment = SegmentFile::open(&path)?;
            // Chunks have their own checksums.
            damage.extend(segment.check_header().err());
            segments.insert(number, segment);
        }
        let counts = (block.series_count, block.chunk_count);
        Ok(BlockFiles { index, counts, tombstones, chunks_dir, segments, damage, hasher })
    }

    /// Reads all chunks, by series.
    pub(crate) fn visit(&self, visitor: &mut dyn BlockVisitor) {
        self.damage.iter().for_each(|reason| visitor.damage(reason.clone()));
        let (mut series_count, mut chunk_count, mut bytes) = (0, 0, Vec::new());
        let mut reader = self.index.reader();
        while let Some(series) = reader.next_series() {
            let series = match series {
                Ok(series) => series,
                Err(reason) => {
                    visitor.damage(reason);
                    continue;
                }
            };
            series_count += 1;
            let deleted = self.tombstones.of_series(series.reference);
            for place in &series.chunks {
                chunk_count += 1;
                let read = self.read_chunk((place.segment, place.offset), &mut bytes);
                let visited = read.and_then(|segment| {
                    BlockChunk::parse(&bytes, place.offset.into())
                        .and_then(|chunk| visitor.chunk(&series, &chunk, &deleted, &bytes))
                        .map_err(|error| segment.describe(&error))
                });
                if let Err(reason) = visited {
                    visitor.damage(reason);
                }
            }
            if !visitor.continues() {
                return;
            }
        }
        // Zeros in the index look like padding.
        for (what, found, expected) in
            [("series", series_count, self.counts.0), ("chunks", chunk_count, self.counts.1)]
        {
            if let Some(expected) = expected.filter(|expected| *expected != found) {
                visitor.damage(format!(
                    "{}: found {found} {what}, expected {expected} (meta.json)",
                    self.index.path.display()
                ));
            }
        }
    }

    /// Reads the bytes of a chunk.
    fn read_chunk(
        &self,
        (segment, offset): (u32, u32),
        bytes: &mut Vec<u8>,
    ) -> Result<&SegmentFile, String> {
        let number = segment.wrapping_add(1);
        let segment = self.segments.get(&number).ok_or_else(|| {
            let path = self.chunks_dir.join(format!("{number:06}"));
            format!("cannot read {}: the file is missing", path.display())
        })?;
        segment.read(offset.into(), bytes)?;
        Ok(segment)
    }
}

fn cannot_read(path: &Path) -> String {
    format!("cannot read {}", path.display())
}

impl IndexFile {
    fn open(path: &Path, hasher: &mut blake3::Hasher) -> Result<IndexFile> {
        let cannot = || cannot_read(path);
        let in_file = || path.display().to_string();
        let file = File::open(path).with_context(cannot)?;
        let size = file.metadata().with_context(cannot)?.len();
        hasher.update_reader(&file).with_context(cannot)?;
        let read = |start: u64, end: u64| {
            let mut bytes = vec![0; end.saturating_sub(start) as usize];
            file.read_exact_at(&mut bytes, start).with_context(cannot)?;
            Ok::<_, anyhow::Error>(bytes)
        };
        let header = read(0, size.min(INDEX_HEADER_BYTES as u64))?;
        let contents = read(size.saturating_sub(INDEX_CONTENTS_BYTES as u64), size)?;
        let sections = IndexSections::parse(&header, &contents, size).with_context(in_file)?;
        let (start, end) = sections.symbols;
        let symbols = SymbolTable::parse(read(start, end)?, start).with_context(in_file)?;
        Ok(IndexFile { path: path.to_owned(), file, sections, symbols })
    }

    fn reader(&self) -> IndexReader<'_> {
        let (next, end) = self.sections.series;
        IndexReader { index: self, window: Vec::new(), start: next, next, end }
    }
}

/// Reader of the series of an index, in order.
struct IndexReader<'a> {
    index: &'a IndexFile,
    /// Bytes from `start`.
    window: Vec<u8>,
    start: u64,
    /// Offset of the next series, and of the end of the section.
    next: u64,
    end: u64,
}

impl<'a> IndexReader<'a> {
    /// The next series, or a description of damage. A damaged series is skipped.
    fn next_series(&mut self) -> Option<Result<IndexSeries<'a>, String>> {
        loop {
            self.next = self.next.checked_next_multiple_of(SERIES_ALIGNMENT)?;
            if self.next >= self.end {
                return None;
            }
            let read = self.read_series();
            if let Err(reason) = &read
                && self.next >= self.end
            {
                let reason = format!("{reason}; later series cannot be located");
                return Some(Err(reason));
            }
            if let Some(series) = read.transpose() {
                return Some(series);
            }
        }
    }

    /// The series at `next`, which is moved behind it; `None` for padding.
    fn read_series(&mut self) -> Result<Option<IndexSeries<'a>>, String> {
        let (index, offset) = (self.index, self.next);
        let in_file = |error: InputError| format!("{}: {error}", index.path.display());
        // Without a valid size, the next series is unknown.
        self.next = self.end;
        let size = tsdb::series_size(self.bytes(offset, SERIES_ALIGNMENT)?, offset);
        let size = size.map_err(in_file)? as u64;
        let bytes = self.bytes(offset, size)?;
        let series = match size {
            0 => None,
            _ => Some(IndexSeries::parse(bytes, offset, &index.symbols)),
        };
        if offset.saturating_add(size) <= self.end {
            self.next = offset + size.max(SERIES_ALIGNMENT);
        }
        series.transpose().map_err(in_file)
    }

    /// Bytes at an offset; fewer at the end of the section.
    fn bytes(&mut self, offset: u64, size: u64) -> Result<&[u8], String> {
        let size = size.min(self.end - offset);
        if offset < self.start || offset + size > self.start + self.window.len() as u64 {
            let read = size.max(INDEX_WINDOW_BYTES).min(self.end - offset);
            self.window.resize(read as usize, 0);
            self.start = offset;
            let read = self.index.file.read_exact_at(&mut self.window, offset);
            read.map_err(|error| {
                self.window.clear();
                format!("{}: byte {offset}: {error}", cannot_read(&self.index.path))
            })?;
        }
        let from = (offset - self.start) as usize;
        Ok(&self.window[from..from + size as usize])
    }
}

impl SegmentFile {
    fn open(path: &Path) -> Result<SegmentFile> {
        let cannot = || cannot_read(path);
        let file = File::open(path).with_context(cannot)?;
        let size = file.metadata().with_context(cannot)?.len();
        Ok(SegmentFile { path: path.to_owned(), file, size })
    }

    fn check_header(&self) -> Result<(), String> {
        let mut header = vec![0; self.size.min(SEGMENT_HEADER_BYTES) as usize];
        self.file.read_exact_at(&mut header, 0).map_err(|error| self.describe(&error))?;
        tsdb::check_segment_header(&header).map_err(|error| self.describe(&error))
    }

    fn describe(&self, error: &dyn std::fmt::Display) -> String {
        format!("{}: {error}", self.path.display())
    }

    /// Reads the bytes of a chunk, up to the end of the file.
    fn read(&self, offset: u64, bytes: &mut Vec<u8>) -> Result<(), String> {
        let rest = self.size.saturating_sub(offset);
        let mut fill = |size: u64| {
            bytes.resize(size.min(rest) as usize, 0);
            let read = self.file.read_exact_at(bytes, offset);
            read.map_err(|error| self.describe(&format_args!("byte {offset}: {error}")))?;
            tsdb::chunk_size(bytes, offset).map_err(|error| self.describe(&error))
        };
        let size = fill(CHUNK_HEAD_BYTES)? as u64;
        if size > CHUNK_HEAD_BYTES {
            fill(size)?;
        } else {
            bytes.truncate(size as usize);
        }
        Ok(())
    }
}
