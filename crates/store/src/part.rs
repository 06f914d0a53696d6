//! Part file format: chunks of many series, immutable.
//!
//! ```text
//! offset  size  field
//!      0     8  magic    b"tdpart\0\0"
//!      8     4  version  1; readers refuse any other
//!     12     8  number   number of the part
//!     20     4  checksum CRC-32C of the 20 bytes before
//! ```
//! Then the chunks (`chunk.rs`) without padding, the canonical keys, the index, and the footer of
//! 52 bytes:
//!
//! ```text
//! keys      zstd of each series' canonical key as length and bytes, by ascending id
//! index     48 bytes a chunk, by ascending series, start and offset: see ENTRY
//! footer    magic b"tdpend\0\0", offset of keys u64, offset of index u64, chunks u64, uncompressed
//!           bytes of keys u64, CRC-32C of the compressed keys, of the index, and of the 48 bytes
//!           before: see FOOTER
//! ```
//! A part with a corrupt footer or index is scanned for chunks: each names its series.
//! Specification: `docs/formats/part.md`.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use disk::{Disk, File, IoContext, OpenMode};
use model::SeriesId;
use model::wire::{WireReader, put_bytes};

use crate::backend::{ChunkInfo, ChunkLocation, ChunkTaker, Part, PartWriter};
use crate::chunk::{self, ChunkHeader};
use crate::error::{Error, Result};
use crate::gallop::count_before;

/// First bytes of a part.
pub const MAGIC: [u8; 8] = *b"tdpart\0\0";
/// First bytes of its footer.
pub const FOOTER_MAGIC: [u8; 8] = *b"tdpend\0\0";
/// The version written, and the only one read.
pub const VERSION: u32 = 1;
/// Bytes before the first chunk.
pub const HEADER_BYTES: usize = 24;
/// The fields of the header: name, offset, size.
pub const HEADER: [(&str, usize, usize); 4] =
    [("magic", 0, 8), ("version", 8, 4), ("number", 12, 8), ("checksum", 20, 4)];
/// Bytes of an index entry.
pub const ENTRY_BYTES: usize = 48;
/// Fields of an index entry: name, offset, size.
pub const ENTRY: [(&str, usize, usize); 6] = [
    ("series", 0, 16),
    ("offset", 16, 8),
    ("length", 24, 4),
    ("rows", 28, 4),
    ("start", 32, 8),
    ("end", 40, 8),
];
/// Bytes of the footer.
pub const FOOTER_BYTES: usize = 52;
/// The fields of the footer: name, offset, size.
pub const FOOTER: [(&str, usize, usize); 8] = [
    ("magic", 0, 8),
    ("keys", 8, 8),
    ("index", 16, 8),
    ("chunks", 24, 8),
    ("unpacked", 32, 8),
    ("keys checksum", 40, 4),
    ("index checksum", 44, 4),
    ("checksum", 48, 4),
];

/// Maximum size of the canonical keys of a part, uncompressed.
const KEYS_BYTES_MAX: u64 = 4 << 30;
const KEYS_ZSTD_LEVEL: i32 = 3;
/// Size of the write buffer.
const WRITE_BYTES: usize = 1 << 20;

/// Bytes between two chunks that take less time to read than another system call.
const UNUSED_BYTES_MAX: u64 = 4 << 10;
/// Maximum size of adjacent chunks that are read at once.
const SPAN_BYTES_MAX: u64 = 256 << 10;

/// Writes a part to a file.
pub(crate) struct FilePartWriter {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    file: Box<dyn File>,
    /// Bytes not written yet.
    pending: Vec<u8>,
    bytes_written: u64,
    locations: Vec<ChunkLocation>,
}

impl FilePartWriter {
    pub(crate) fn new(disk: Arc<dyn Disk>, path: PathBuf, number: u64) -> Result<FilePartWriter> {
        let file = disk.open(&path, OpenMode::CreateNew).io_context("create", &path)?;
        let mut pending = Vec::with_capacity(WRITE_BYTES);
        pending.extend(MAGIC);
        pending.extend(VERSION.to_le_bytes());
        pending.extend(number.to_le_bytes());
        pending.extend(crc32c::crc32c(&pending).to_le_bytes());
        Ok(FilePartWriter { disk, path, file, pending, bytes_written: 0, locations: Vec::new() })
    }

    fn add(&mut self, bytes: &[u8]) -> Result<()> {
        self.pending.extend_from_slice(bytes);
        if self.pending.len() >= WRITE_BYTES { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<()> {
        self.file
            .write_all_at(&self.pending, self.bytes_written)
            .io_context("write", &self.path)?;
        self.bytes_written = self.bytes_written.saturating_add(self.pending.len() as u64);
        self.pending.clear();
        Ok(())
    }

    fn at(&self) -> u64 {
        self.bytes_written.saturating_add(self.pending.len() as u64)
    }
}

impl PartWriter for FilePartWriter {
    fn put_chunk(&mut self, chunk: &ChunkInfo, bytes: &[u8]) -> Result<()> {
        self.locations.push(ChunkLocation {
            series: chunk.series,
            offset: self.at(),
            length: bytes.len() as u32,
            rows: chunk.rows,
            start: chunk.start,
            end: chunk.end,
        });
        self.add(bytes)
    }

    #[expect(
        clippy::expect_used,
        reason = "zstd packs whatever fits memory; a part lies in a directory"
    )]
    fn finish(mut self: Box<Self>, key: &dyn Fn(&SeriesId) -> Vec<u8>) -> Result<u64> {
        self.locations.sort_by_key(|place| (place.series, place.start, place.offset));
        let ids: BTreeSet<SeriesId> = self.locations.iter().map(|place| place.series).collect();
        let mut canonical_keys = Vec::new();
        ids.iter().for_each(|id| put_bytes(&mut canonical_keys, &key(id)));
        let packed = zstd::bulk::compress(&canonical_keys, KEYS_ZSTD_LEVEL);
        let packed = packed.expect("BUG: zstd packs whatever fits memory");
        let index: Vec<u8> = self.locations.iter().flat_map(encode_entry).collect();

        let keys_at = self.at();
        self.add(&packed)?;
        let index_at = self.at();
        self.add(&index)?;
        let mut footer = FOOTER_MAGIC.to_vec();
        for number in [keys_at, index_at, self.locations.len() as u64, canonical_keys.len() as u64]
        {
            footer.extend(number.to_le_bytes());
        }
        footer.extend(crc32c::crc32c(&packed).to_le_bytes());
        footer.extend(crc32c::crc32c(&index).to_le_bytes());
        footer.extend(crc32c::crc32c(&footer).to_le_bytes());
        self.add(&footer)?;
        self.write()?;
        self.file.sync().io_context("fsync", &self.path)?;
        let dir = self.path.parent().expect("BUG: a part lies in a directory");
        self.disk.sync_dir(dir).io_context("fsync", dir)?;
        Ok(self.bytes_written)
    }
}

fn encode_entry(location: &ChunkLocation) -> [u8; ENTRY_BYTES] {
    let mut bytes = [0; ENTRY_BYTES];
    bytes[..16].copy_from_slice(&location.series.0);
    bytes[16..24].copy_from_slice(&location.offset.to_le_bytes());
    bytes[24..28].copy_from_slice(&location.length.to_le_bytes());
    bytes[28..32].copy_from_slice(&location.rows.to_le_bytes());
    bytes[32..40].copy_from_slice(&location.start.to_le_bytes());
    bytes[40..].copy_from_slice(&location.end.to_le_bytes());
    bytes
}

#[expect(clippy::expect_used, reason = "an entry has as many bytes as are read here")]
fn decode_entry(bytes: &[u8; ENTRY_BYTES]) -> ChunkLocation {
    let mut reader = WireReader::new(bytes);
    let mut read = || -> model::Result<ChunkLocation> {
        Ok(ChunkLocation {
            series: SeriesId(reader.array("series")?),
            offset: reader.u64("offset")?,
            length: reader.u32("length")?,
            rows: reader.u32("rows")?,
            start: reader.i64("start")?,
            end: reader.i64("end")?,
        })
    };
    read().expect("BUG: an entry has 48 bytes")
}

/// A part stored as a file.
pub(crate) struct FilePart {
    file: Box<dyn File>,
    path: PathBuf,
    bytes: u64,
    /// Read on first use.
    contents: OnceLock<PartContents>,
}

struct PartContents {
    locations: Vec<ChunkLocation>,
    /// Start of the series of each location: a search through these alone misses the cache less
    /// often.
    prefixes: Vec<u64>,
    damage: Vec<String>,
}

impl PartContents {
    /// Contents by ascending series.
    fn new(locations: Vec<ChunkLocation>, damage: Vec<String>) -> PartContents {
        let prefixes = locations.iter().map(|location| location.series.prefix()).collect();
        PartContents { locations, prefixes, damage }
    }

    /// The chunks of a series.
    fn find<'a>(&'a self, series: &'a SeriesId) -> impl Iterator<Item = &'a ChunkLocation> {
        let first = series.prefix();
        let start = self.prefixes.partition_point(|&held| held < first);
        let rest = self.locations.get(start..).unwrap_or_default().iter();
        let from = rest.skip_while(move |location| location.series < *series);
        from.take_while(move |location| location.series == *series)
    }
}

/// Runs of chunks that are adjacent, or nearly, and are read at once.
fn spans(locations: &[ChunkLocation]) -> impl Iterator<Item = Range<usize>> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let first = locations.get(start)?;
        let mut end = start.saturating_add(1);
        while let (Some(before), Some(next)) =
            (locations.get(end.wrapping_sub(1)), locations.get(end))
            && let Some(unused) = next.offset.checked_sub(before.end_offset())
            && unused <= UNUSED_BYTES_MAX
            && next.end_offset().saturating_sub(first.offset) <= SPAN_BYTES_MAX
        {
            end = end.saturating_add(1);
        }
        Some(std::mem::replace(&mut start, end)..end)
    })
}

impl fmt::Debug for FilePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FilePart").field("path", &self.path).finish_non_exhaustive()
    }
}

impl FilePart {
    pub(crate) fn open(disk: &dyn Disk, path: &Path) -> Result<FilePart> {
        let file = disk.open(path, OpenMode::Read).io_context("open", path)?;
        let bytes = file.len().io_context("get the length of", path)?;
        let part = FilePart { file, path: path.to_owned(), bytes, contents: OnceLock::new() };
        let header = part.read_at(0, HEADER_BYTES)?;
        let version = header.get(8..12).and_then(|bytes| bytes.first_chunk()).copied();
        let found = version.map_or(VERSION, u32::from_le_bytes);
        // A damaged header does not invalidate the chunks; an intact header of another version
        // does.
        if found != VERSION && is_header_valid(&header) {
            return Err(Error::Version { path: path.to_owned(), found, supported: VERSION });
        }
        Ok(part)
    }

    fn read_at(&self, offset: u64, len: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        let have = self.file.read_full_at(&mut bytes, offset).io_context("read", &self.path)?;
        bytes.truncate(have);
        Ok(bytes)
    }

    /// Bytes of a range; fewer if the file ends early. The memory of `buffer` is reused as it is.
    fn read_span<'b>(&self, range: Range<u64>, buffer: &'b mut Vec<u8>) -> Result<&'b [u8]> {
        let end = range.end.min(self.bytes);
        let length = end.saturating_sub(range.start) as usize;
        if buffer.len() < length {
            buffer.resize(length, 0);
        }
        let bytes = buffer.get_mut(..length).unwrap_or_default();
        let have = self.file.read_full_at(bytes, range.start).io_context("read", &self.path)?;
        Ok(bytes.get(..have).unwrap_or_default())
    }

    fn contents(&self) -> Result<&PartContents> {
        if let Some(contents) = self.contents.get() {
            return Ok(contents);
        }
        let contents = self.load()?;
        Ok(self.contents.get_or_init(|| contents))
    }

    fn load(&self) -> Result<PartContents> {
        let mut damage = Vec::new();
        if !is_header_valid(&self.read_at(0, HEADER_BYTES)?) {
            damage.push("part header corrupt (no data lost)".to_owned());
        }
        let footer = match self.footer()? {
            Ok(footer) => footer,
            Err(reason) => {
                damage.push(format!("{reason}; chunks recovered by scanning"));
                return Ok(PartContents::new(self.scan_for_chunks()?, damage));
            }
        };
        damage.extend(self.read_packed_keys(&footer)?.err());
        let index = self.read_at(footer.index_offset, footer.chunks.saturating_mul(ENTRY_BYTES))?;
        let (entries, rest) = index.as_chunks::<ENTRY_BYTES>();
        if entries.len() != footer.chunks
            || !rest.is_empty()
            || crc32c::crc32c(&index) != footer.index_checksum
        {
            damage.push("part index corrupt; chunks recovered by scanning".to_owned());
            return Ok(PartContents::new(self.scan_for_chunks()?, damage));
        }
        Ok(PartContents::new(entries.iter().map(decode_entry).collect(), damage))
    }

    fn footer(&self) -> Result<Result<PartFooter, String>> {
        let Some(at) = self.bytes.checked_sub(FOOTER_BYTES as u64) else {
            return Ok(Err(format!("file ends after {} bytes, before its footer", self.bytes)));
        };
        let bytes = self.read_at(at, FOOTER_BYTES)?;
        Ok(PartFooter::read(&bytes)
            .filter(|footer| footer.fits(at))
            .ok_or_else(|| "part footer corrupt".to_owned()))
    }

    /// The compressed keys.
    fn read_packed_keys(&self, footer: &PartFooter) -> Result<Result<Vec<u8>, String>> {
        let packed = self.read_at(
            footer.keys_offset,
            footer.index_offset.saturating_sub(footer.keys_offset) as usize,
        )?;
        Ok(match crc32c::crc32c(&packed) == footer.keys_checksum {
            true => Ok(packed),
            false => Err("series keys of the part corrupt".to_owned()),
        })
    }

    /// Finds chunks without an index: scans from the start, and resumes at the next magic after
    /// invalid bytes.
    fn scan_for_chunks(&self) -> Result<Vec<ChunkLocation>> {
        const WINDOW: usize = 1 << 20;
        let mut places = Vec::new();
        let mut at = HEADER_BYTES as u64;
        let mut bytes = Vec::new();
        while at.saturating_add(chunk::HEADER_BYTES as u64) <= self.bytes {
            if let Ok(header) = ChunkHeader::read(&self.read_at(at, chunk::HEADER_BYTES)?) {
                let length = chunk::HEADER_BYTES.saturating_add(header.length) as u32;
                let location = ChunkLocation {
                    series: header.series,
                    offset: at,
                    length,
                    rows: header.rows as u32,
                    start: header.start,
                    end: header.end,
                };
                self.read(&location, &mut bytes)?;
                if chunk::check(&bytes).is_ok() {
                    places.push(location);
                    at = at.saturating_add(length.into());
                    continue;
                }
            }
            let window = self.read_at(at.saturating_add(1), WINDOW)?;
            let next = window.windows(4).position(|four| four == chunk::MAGIC);
            let passed = match next {
                Some(next) => next.saturating_add(1),
                None => window.len().saturating_sub(3).max(1),
            };
            at = at.saturating_add(passed as u64);
        }
        places.sort_by_key(|location| (location.series, location.start, location.offset));
        Ok(places)
    }
}

fn is_header_valid(header: &[u8]) -> bool {
    header.len() == HEADER_BYTES
        && header[..8] == MAGIC
        && crc32c::crc32c(&header[..20]).to_le_bytes() == header[20..]
}

struct PartFooter {
    keys_offset: u64,
    index_offset: u64,
    chunks: usize,
    keys_bytes: u64,
    keys_checksum: u32,
    index_checksum: u32,
}

impl PartFooter {
    fn read(bytes: &[u8]) -> Option<PartFooter> {
        let (body, checksum) = bytes.split_last_chunk::<4>()?;
        if bytes.len() != FOOTER_BYTES || !body.starts_with(&FOOTER_MAGIC) {
            return None;
        }
        if crc32c::crc32c(body) != u32::from_le_bytes(*checksum) {
            return None;
        }
        let mut reader = WireReader::new(&body[8..]);
        let mut read = || -> model::Result<PartFooter> {
            Ok(PartFooter {
                keys_offset: reader.u64("keys")?,
                index_offset: reader.u64("index")?,
                chunks: reader.u64("chunks")? as usize,
                keys_bytes: reader.u64("unpacked")?,
                keys_checksum: reader.u32("keys checksum")?,
                index_checksum: reader.u32("index checksum")?,
            })
        };
        read().ok()
    }

    /// Whether the section fits before `end`, where the footer starts.
    fn fits(&self, end: u64) -> bool {
        let index = (self.chunks as u64).checked_mul(ENTRY_BYTES as u64);
        (HEADER_BYTES as u64) <= self.keys_offset
            && self.keys_offset <= self.index_offset
            && index.and_then(|bytes| self.index_offset.checked_add(bytes)) == Some(end)
            && self.keys_bytes <= KEYS_BYTES_MAX
    }
}

impl Part for FilePart {
    fn find(&self, series: &SeriesId) -> Result<Vec<ChunkLocation>> {
        Ok(self.contents()?.find(series).copied().collect())
    }

    fn find_all(
        &self,
        series: &[SeriesId],
        each: &mut dyn FnMut(usize, &ChunkLocation),
    ) -> Result<()> {
        let PartContents { locations, prefixes, .. } = self.contents()?;
        let mut rest = prefixes.as_slice();
        for (at, series) in series.iter().enumerate() {
            let prefix = series.prefix();
            rest = &rest[count_before(rest, prefix)..];
            let from = prefixes.len().saturating_sub(rest.len());
            let same = rest.iter().take_while(|held| **held == prefix).count();
            let same = locations.iter().skip(from).take(same);
            same.filter(|held| held.series == *series).for_each(|location| each(at, location));
        }
        Ok(())
    }

    fn chunks(&self) -> Result<usize> {
        Ok(self.contents()?.locations.len())
    }

    fn for_each_series(&self, each: &mut dyn FnMut(&SeriesId)) -> Result<()> {
        self.contents()?.locations.iter().for_each(|place| each(&place.series));
        Ok(())
    }

    fn chunk_locations(&self) -> Result<Vec<ChunkLocation>> {
        Ok(self.contents()?.locations.clone())
    }

    fn chunk_location_range(&self, first: usize, count: usize) -> Result<Vec<ChunkLocation>> {
        let locations = &self.contents()?.locations;
        Ok(locations.iter().skip(first).take(count).copied().collect())
    }

    fn read(&self, location: &ChunkLocation, bytes: &mut Vec<u8>) -> Result<()> {
        bytes.clear();
        let room = self.bytes.saturating_sub(location.offset).min(u64::from(location.length));
        bytes.resize(room as usize, 0);
        let have = self.file.read_full_at(bytes, location.offset).io_context("read", &self.path)?;
        bytes.truncate(have);
        Ok(())
    }

    fn read_all(&self, locations: &[ChunkLocation], each: &mut ChunkTaker<'_>) -> Result<()> {
        let (mut buffer, mut bytes) = (Vec::new(), Vec::new());
        for span in spans(locations) {
            let (chunks, first) = (locations.get(span.clone()).unwrap_or_default(), span.start);
            let whole = match chunks {
                [start, .., end] => {
                    self.read_span(start.offset..end.end_offset(), &mut buffer).ok()
                }
                _ => None,
            };
            let start = chunks.first().map_or(0, |chunk| chunk.offset);
            for (at, chunk) in chunks.iter().enumerate() {
                let at = first.saturating_add(at);
                let Some(bytes) = whole else {
                    // Alone, or which one cannot be read is not known.
                    let read = self.read(chunk, &mut bytes);
                    each(at, read.map(|()| &*bytes))?;
                    continue;
                };
                // A file that ends early has less.
                let from = chunk.offset.saturating_sub(start) as usize;
                let to = from.saturating_add(chunk.length as usize).min(bytes.len());
                each(at, Ok(bytes.get(from..to).unwrap_or_default()))?;
            }
        }
        Ok(())
    }

    // The keys take more memory than the index, only the repair of a series file reads them: they
    // are not kept.
    fn for_each_key(&self, each: &mut dyn FnMut(&[u8])) -> Result<()> {
        // Damage of footer and keys is listed by `damage`.
        let Ok(footer) = self.footer()? else { return Ok(()) };
        let Ok(packed) = self.read_packed_keys(&footer)? else { return Ok(()) };
        let damage = |reason| Error::Damage { location: self.name(), reason };
        let canonical_keys = zstd::bulk::decompress(&packed, footer.keys_bytes as usize)
            .map_err(|error| damage(format!("cannot decompress the series keys: {error}")))?;
        let mut reader = WireReader::new(&canonical_keys);
        while !reader.is_empty() {
            each(reader.bytes("canonical key").map_err(|error| damage(error.to_string()))?);
        }
        Ok(())
    }

    fn damage(&self) -> Result<Vec<String>> {
        Ok(self.contents()?.damage.clone())
    }

    fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }
}
