//! Part file of traces: spans of kept traces that were received in an hour, immutable.
//!
//! ```text
//! magic    b"tdtraces", version u32 1; 2 of a part that was merged of others
//! blocks   zstd of entries as in a batch (docs/formats/batch.md), by ascending trace id
//! index    20 bytes a trace, by ascending id: see INDEX
//! table    20 bytes a block: see TABLE
//! footer   56 bytes: see FOOTER; of version 2 after 8 bytes: FROM
//! ```
//! Numbers are little-endian, checksums CRC-32C. `docs/formats/traces.md` is the specification.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::collections::BTreeMap;

use model::wire::WireReader;
use model::{TraceId, TraceReader, TraceSpans, TraceWriter};

use crate::error::{Error, Result};

/// First bytes of a part.
pub const MAGIC: [u8; 8] = *b"tdtraces";
/// Version of a part of new traces.
pub const VERSION: u32 = 1;
/// Version of a part that took the place of others.
pub const MERGED_TRACE_VERSION: u32 = 2;
/// Bytes before the footer of such a part: number of the first part that it replaces.
const FROM_BYTES: usize = 8;
/// Bytes before the first block.
const HEADER_BYTES: u64 = 12;
/// Bytes of an entry of the index.
pub const TRACE_INDEX_BYTES: usize = 20;
/// Fields of an entry of the index: name, offset, size.
pub const INDEX: [(&str, usize, usize); 2] = [("trace", 0, 16), ("block", 16, 4)];
/// Bytes of an entry of the table of blocks.
pub const TRACE_TABLE_BYTES: usize = 20;
/// Fields of an entry of the table of blocks: name, offset, size.
pub const TABLE: [(&str, usize, usize); 4] =
    [("offset", 0, 8), ("length", 8, 4), ("unpacked", 12, 4), ("checksum", 16, 4)];
/// Bytes of the footer.
pub const FOOTER_BYTES: usize = 56;
/// Fields of the footer: name, offset, size.
pub const FOOTER: [(&str, usize, usize); 8] = [
    ("journal", 0, 16),
    ("end", 16, 8),
    ("first", 24, 8),
    ("last", 32, 8),
    ("traces", 40, 4),
    ("blocks", 44, 4),
    ("tables checksum", 48, 4),
    ("checksum", 52, 4),
];
/// Size from which a block is complete, uncompressed.
const BLOCK_BYTES: usize = 256 << 10;
/// Maximum size of a block, uncompressed: one trace may exceed [`BLOCK_BYTES`].
const UNPACKED_MAX: u32 = 64 << 20;
const ZSTD_LEVEL: i32 = 3;

/// Reads bytes of a file: offset and length.
pub(crate) type ReadPart<'r> = &'r dyn Fn(u64, usize) -> Result<Vec<u8>>;

/// The footer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TraceFooter {
    /// Journal that the traces are of.
    pub(crate) journal: u128,
    /// All traces of records before this position are in this part or in others.
    pub(crate) end: u64,
    /// When the first and the last of the records were written.
    pub(crate) first: i64,
    pub(crate) last: i64,
    /// It has all spans of the parts from this number on that come before it.
    pub(crate) from: Option<u64>,
    traces: u32,
    blocks: u32,
    tables_checksum: u32,
}

/// An open part.
pub(crate) struct TracePart<'r> {
    read: ReadPart<'r>,
    /// As in [`TraceFooter`].
    pub(crate) from: Option<u64>,
    index: Vec<u8>,
    table: Vec<u8>,
}

fn damage(reason: &str) -> Error {
    Error::Damage { location: "traces".to_owned(), reason: reason.to_owned() }
}

/// What a footer says besides the sizes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PartOrigin {
    pub(crate) journal: u128,
    pub(crate) end: u64,
    pub(crate) first: i64,
    pub(crate) last: i64,
    pub(crate) from: Option<u64>,
}

/// Writes a part, in memory. Traces come by ascending id.
#[derive(Default)]
pub(crate) struct PartEncoder {
    /// The file without its header.
    blocks: Vec<u8>,
    index: Vec<u8>,
    table: Vec<u8>,
    block: u32,
    traces: u32,
    writer: TraceWriter,
}

impl PartEncoder {
    /// Adds a trace.
    pub(crate) fn push(&mut self, spans: TraceSpans<'_>) -> Result<()> {
        self.index.extend_from_slice(&spans.trace_id);
        self.index.extend_from_slice(&self.block.to_le_bytes());
        self.traces = self.traces.saturating_add(1);
        self.writer.push(spans);
        match self.writer.bytes().len() >= BLOCK_BYTES {
            true => self.finish_block(),
            false => Ok(()),
        }
    }

    fn finish_block(&mut self) -> Result<()> {
        let writer = std::mem::take(&mut self.writer);
        let packed = zstd::bulk::compress(writer.bytes(), ZSTD_LEVEL);
        let packed = packed.map_err(|error| damage(&error.to_string()))?;
        let offset = HEADER_BYTES.saturating_add(self.blocks.len() as u64);
        self.table.extend_from_slice(&offset.to_le_bytes());
        self.table.extend_from_slice(&(packed.len() as u32).to_le_bytes());
        self.table.extend_from_slice(&(writer.bytes().len() as u32).to_le_bytes());
        self.table.extend_from_slice(&crc32c::crc32c(&packed).to_le_bytes());
        self.blocks.extend_from_slice(&packed);
        self.block = self.block.saturating_add(1);
        Ok(())
    }

    /// The file.
    pub(crate) fn finish(mut self, origin: &PartOrigin) -> Result<Vec<u8>> {
        if !self.writer.is_empty() {
            self.finish_block()?;
        }
        let version = if origin.from.is_some() { MERGED_TRACE_VERSION } else { VERSION };
        let tables = [self.index, self.table].concat();
        let mut footer = Vec::new();
        footer.extend(origin.from.iter().flat_map(|from| from.to_le_bytes()));
        footer.extend_from_slice(&origin.journal.to_le_bytes());
        footer.extend_from_slice(&origin.end.to_le_bytes());
        footer.extend_from_slice(&origin.first.to_le_bytes());
        footer.extend_from_slice(&origin.last.to_le_bytes());
        footer.extend_from_slice(&self.traces.to_le_bytes());
        footer.extend_from_slice(&self.block.to_le_bytes());
        footer.extend_from_slice(&crc32c::crc32c(&tables).to_le_bytes());
        footer.extend_from_slice(&crc32c::crc32c(&footer).to_le_bytes());
        Ok([&MAGIC[..], &version.to_le_bytes(), &self.blocks, &tables, &footer].concat())
    }
}

impl TraceFooter {
    /// Reads the header and the footer of a file with a length.
    pub(crate) fn read(read: ReadPart<'_>, length: u64) -> Result<TraceFooter> {
        let header = read(0, HEADER_BYTES as usize)?;
        let mut header = WireReader::new(&header);
        if header.array::<8>("magic")? != MAGIC {
            return Err(damage("it is no part of traces"));
        }
        let from_bytes = match header.u32("version")? {
            VERSION => 0,
            MERGED_TRACE_VERSION => FROM_BYTES,
            version => {
                return Err(damage(&format!(
                    "version {version}, expected up to {MERGED_TRACE_VERSION}"
                )));
            }
        };
        let size = FOOTER_BYTES.saturating_add(from_bytes);
        let offset = length.checked_sub(size as u64);
        let offset = offset.ok_or_else(|| damage("the footer is truncated"))?;
        let bytes = read(offset, size)?;
        let mut reader = WireReader::new(&bytes);
        let from = if from_bytes > 0 { Some(reader.u64("from")?) } else { None };
        let footer = TraceFooter {
            from,
            journal: u128::from_le_bytes(reader.array("journal")?),
            end: reader.u64("end")?,
            first: reader.i64("first")?,
            last: reader.i64("last")?,
            traces: reader.u32("traces")?,
            blocks: reader.u32("blocks")?,
            tables_checksum: reader.u32("checksum")?,
        };
        let checked = bytes.get(..reader.offset()).unwrap_or_default();
        match reader.u32("checksum")? == crc32c::crc32c(checked) {
            true => Ok(footer),
            false => Err(damage("the footer is damaged")),
        }
    }
}

impl TraceFooter {
    fn size(&self) -> u64 {
        FOOTER_BYTES.saturating_add(if self.from.is_some() { FROM_BYTES } else { 0 }) as u64
    }

    /// What a part in the place of this one has.
    pub(crate) fn origin(&self) -> PartOrigin {
        let TraceFooter { journal, end, first, last, from, .. } = *self;
        PartOrigin { journal, end, first, last, from }
    }
}

impl<'r> TracePart<'r> {
    /// Reads the index and the table of blocks.
    pub(crate) fn open(
        footer: &TraceFooter,
        length: u64,
        read: ReadPart<'r>,
    ) -> Result<TracePart<'r>> {
        let index_bytes = u64::from(footer.traces).saturating_mul(TRACE_INDEX_BYTES as u64);
        let table_bytes = u64::from(footer.blocks).saturating_mul(TRACE_TABLE_BYTES as u64);
        let bytes = index_bytes.saturating_add(table_bytes);
        let offset = length.checked_sub(footer.size().saturating_add(bytes));
        let Some(offset) = offset.filter(|offset| *offset >= HEADER_BYTES) else {
            return Err(damage("the index is truncated"));
        };
        let mut index = read(offset, bytes as usize)?;
        if crc32c::crc32c(&index) != footer.tables_checksum || index.len() as u64 != bytes {
            return Err(damage("the index is damaged"));
        }
        let table = index.split_off(index_bytes as usize);
        Ok(TracePart { read, from: footer.from, index, table })
    }

    /// Number of blocks.
    pub(crate) fn blocks(&self) -> usize {
        self.table.as_chunks::<TRACE_TABLE_BYTES>().0.len()
    }

    /// Number of the block with a trace.
    pub(crate) fn block_of(&self, trace_id: &TraceId) -> Option<usize> {
        let entries = self.index.as_chunks::<TRACE_INDEX_BYTES>().0;
        let at = entries.partition_point(|entry| entry[..16] < trace_id[..]);
        let entry = entries.get(at).filter(|entry| entry[..16] == trace_id[..])?;
        WireReader::new(entry.get(16..)?).u32("block").ok().map(|block| block as usize)
    }

    /// Numbers of the blocks with some traces, whose ids ascend.
    pub(crate) fn blocks_of(&self, trace_ids: &[TraceId]) -> Vec<usize> {
        let mut blocks: Vec<usize> = trace_ids.iter().filter_map(|id| self.block_of(id)).collect();
        blocks.dedup();
        blocks
    }

    /// Trace ids, ascending.
    pub(crate) fn trace_ids(&self) -> impl Iterator<Item = TraceId> {
        let entries = self.index.as_chunks::<TRACE_INDEX_BYTES>().0.iter();
        entries.filter_map(|entry| entry.first_chunk().copied())
    }

    /// Length of a block, uncompressed.
    pub(crate) fn unpacked(&self, number: usize) -> usize {
        let entry = self.table.as_chunks::<TRACE_TABLE_BYTES>().0.get(number);
        let length = entry.and_then(|entry| entry[12..].first_chunk().copied());
        length.map_or(0, |length| u32::from_le_bytes(length) as usize)
    }

    /// A block, uncompressed.
    pub(crate) fn block(&self, number: usize) -> Result<Vec<u8>> {
        let entry = self.table.as_chunks::<TRACE_TABLE_BYTES>().0.get(number);
        let mut entry = WireReader::new(entry.ok_or_else(|| damage("a block is missing"))?);
        let (offset, length) = (entry.u64("offset")?, entry.u32("length")?);
        let (unpacked, checksum) = (entry.u32("unpacked")?, entry.u32("checksum")?);
        let packed = (self.read)(offset, length as usize)?;
        if crc32c::crc32c(&packed) != checksum || unpacked > UNPACKED_MAX {
            return Err(damage(&format!("block {number} is damaged")));
        }
        zstd::bulk::decompress(&packed, unpacked as usize)
            .map_err(|error| damage(&format!("block {number}: {error}")))
    }
}

/// Spans of a trace in a block.
pub(crate) fn add_from_block(
    block: &[u8],
    trace_id: &TraceId,
    found: &mut BTreeMap<TraceId, (bool, Vec<u8>)>,
) -> Result<()> {
    for spans in TraceReader::new(block) {
        let spans = spans?;
        if spans.trace_id == *trace_id {
            super::append(found.entry(*trace_id).or_default(), &spans);
        }
    }
    Ok(())
}

/// Parses a part with correct checksums in place of its own, for fuzzing.
pub(crate) fn parse_resealed(bytes: &[u8]) -> Option<usize> {
    let mut bytes = [&MAGIC[..], &VERSION.to_le_bytes(), bytes].concat();
    let footer = bytes.len().checked_sub(FOOTER_BYTES)?;
    let count = |at: usize| {
        let of = bytes.get(footer.saturating_add(at)..)?.first_chunk()?;
        usize::try_from(u32::from_le_bytes(*of)).ok()
    };
    let index_bytes = count(40)?.checked_mul(TRACE_INDEX_BYTES)?;
    let tables_bytes = index_bytes.checked_add(count(44)?.checked_mul(TRACE_TABLE_BYTES)?)?;
    let tables = footer.checked_sub(tables_bytes).filter(|at| *at >= HEADER_BYTES as usize)?;
    // The first block is all that is between the header and the tables.
    if let Some(table) = bytes.get_mut(tables.saturating_add(index_bytes)..footer)
        && let Some(entry) = table.first_chunk_mut::<TRACE_TABLE_BYTES>()
    {
        let length = (tables as u64).saturating_sub(HEADER_BYTES) as u32;
        entry[..8].copy_from_slice(&HEADER_BYTES.to_le_bytes());
        entry[8..12].copy_from_slice(&length.to_le_bytes());
        entry[13..16].fill(0);
    }
    let block = crc32c::crc32c(bytes.get(HEADER_BYTES as usize..tables)?);
    if let Some(checksum) =
        bytes.get_mut(tables.saturating_add(index_bytes)..footer)?.get_mut(16..20)
    {
        checksum.copy_from_slice(&block.to_le_bytes());
    }
    let checksum = crc32c::crc32c(bytes.get(tables..footer)?).to_le_bytes();
    bytes.get_mut(footer.saturating_add(48)..)?.get_mut(..4)?.copy_from_slice(&checksum);
    let checksum = crc32c::crc32c(bytes.get(footer..footer.saturating_add(52))?).to_le_bytes();
    bytes.get_mut(footer.saturating_add(52)..)?.copy_from_slice(&checksum);
    let read = |offset: u64, length: usize| {
        let rest = bytes.get(usize::try_from(offset).unwrap_or(usize::MAX)..).unwrap_or_default();
        Ok(rest.get(..length).unwrap_or(rest).to_owned())
    };
    let length = bytes.len() as u64;
    let part = TracePart::open(&TraceFooter::read(&read, length).ok()?, length, &read).ok()?;
    let _ = part.trace_ids().filter_map(|trace_id| part.block_of(&trace_id)).count();
    let block = part.block(0).ok()?;
    Some(TraceReader::new(&block).map_while(Result::ok).count())
}

#[cfg(test)]
mod tests {
    use super::super::TraceHead;
    use super::*;

    fn encode(head: &TraceHead, from: Option<u64>) -> Vec<u8> {
        head.encode(&PartOrigin { journal: 7, end: 99, first: head.first, last: head.last, from })
            .unwrap()
    }

    fn head(traces: u8, bytes: usize) -> TraceHead {
        let mut head = TraceHead::default();
        for trace in (0..traces).rev() {
            let spans: Vec<u8> = (0..bytes as u64)
                .map(|at| model::splitmix64(at | u64::from(trace) << 40) as u8)
                .collect();
            let trace_id = [trace; 16];
            let spans = TraceSpans { trace_id, is_cut: trace % 2 == 1, spans: &spans };
            head.add(&spans, 1000 + i64::from(trace));
            head.add(&TraceSpans { spans: b"more", ..spans }, 1000);
        }
        head
    }

    #[track_caller]
    fn check_damage(bytes: &[u8], expected: &str) {
        let read = |offset: u64, length: usize| {
            let rest = bytes.get(offset as usize..).unwrap_or_default();
            Ok(rest.get(..length).unwrap_or(rest).to_owned())
        };
        let length = bytes.len() as u64;
        let opened = TraceFooter::read(&read, length).and_then(|footer| {
            let part = TracePart::open(&footer, length, &read)?;
            (0..part.blocks()).try_for_each(|block| part.block(block).map(drop))
        });
        let error = opened.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }

    /// A block of any number of large batches can be read.
    #[test]
    fn a_very_large_trace_is_cut() {
        let (mut head, spans) = (TraceHead::default(), vec![0; 12 << 20]);
        for trace in [1, 1, 1, 1, 1, 1, 2] {
            head.add(&TraceSpans { trace_id: [trace; 16], is_cut: false, spans: &spans }, 0);
        }
        assert!(head.bytes < 37 << 20, "{}", head.bytes);
        let bytes = encode(&head, None);
        let read = |offset: u64, length: usize| Ok(bytes[offset as usize..][..length].to_owned());
        let footer = TraceFooter::read(&read, bytes.len() as u64).unwrap();
        let part = TracePart::open(&footer, bytes.len() as u64, &read).unwrap();
        let block = part.block(part.block_of(&[1; 16]).unwrap()).unwrap();
        let found = TraceReader::new(&block).next().unwrap().unwrap();
        assert_eq!((found.is_cut, found.spans.len()), (true, 24 << 20));
    }

    /// Of a merged part, and one without traces.
    #[test]
    fn first_part_that_a_merged_one_replaces_is_in_its_footer() {
        let full = head(9, 100);
        for (head, from) in [(&full, Some(5)), (&full, None), (&head(0, 0), Some(u64::MAX))] {
            let bytes = encode(head, from);
            let read = |offset: u64, length: usize| Ok(bytes[offset as usize..][..length].to_vec());
            let footer = TraceFooter::read(&read, bytes.len() as u64).unwrap();
            assert_eq!((footer.from, footer.end, footer.first), (from, 99, head.first));
            let part = TracePart::open(&footer, bytes.len() as u64, &read).unwrap();
            assert!(part.trace_ids().eq(head.traces.keys().copied()));
            assert_eq!(part.blocks(), usize::from(!head.traces.is_empty()));
        }
        let mut damaged = encode(&full, Some(5));
        let from = damaged.len() - FOOTER_BYTES - FROM_BYTES;
        damaged[from] = 4;
        check_damage(&damaged, "the footer is damaged");
    }

    #[test]
    fn traces_of_a_part_are_found_by_their_ids() {
        let head = head(40, 30_000);
        let bytes = encode(&head, None);
        let read = |offset: u64, length: usize| Ok(bytes[offset as usize..][..length].to_owned());
        let footer = TraceFooter::read(&read, bytes.len() as u64).unwrap();
        assert_eq!((footer.journal, footer.end, footer.traces), (7, 99, 40));
        assert_eq!((footer.first, footer.last), (1039, 1039), "as they came");
        let part = TracePart::open(&footer, bytes.len() as u64, &read).unwrap();
        assert!((4..8).contains(&part.blocks()), "{} blocks", part.blocks());
        assert!(part.trace_ids().eq((0..40).map(|trace| [trace; 16])));
        for (trace_id, expected) in &head.traces {
            let mut found = BTreeMap::new();
            let block = part.block(part.block_of(trace_id).unwrap()).unwrap();
            add_from_block(&block, trace_id, &mut found).unwrap();
            assert_eq!(found.get(trace_id), Some(expected));
        }
        assert_eq!(part.block_of(&[40; 16]), None);
        assert_eq!(part.block_of(&[3, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), None);
        // Damage is noticed wherever it is.
        for at in (12..bytes.len()).step_by(997) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            check_damage(&damaged, "damaged");
        }
        check_damage(&bytes[..bytes.len() - 1], "damaged");
        check_damage(&bytes[..20], "truncated");
        check_damage(b"something else", "it is no part of traces");
        let mut later = bytes.clone();
        later[8] = 3;
        check_damage(&later, "version 3, expected up to 2");
        assert_eq!(parse_resealed(&encode(&super::tests::head(2, 9), None)[12..]), Some(2));
    }
}
