//! Segments: files of frames with ascending positions. [`SegmentScan`] is the only code that reads
//! frames: for readers, at opening, and for `verify` and `repair`.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::io;
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::{Disk, File, FileError, IoContext, OpenMode};

use crate::compression::Decompressor;
use crate::error::{Error, Result};
use crate::frame::{self, FrameHeader, RecordIter};
use crate::layout::{
    FRAME_ALIGN, FRAME_BYTES, FieldTable, PRODUCER, PRODUCER_BYTES, SEGMENT, SEGMENT_BYTES,
    SEGMENT_MAGIC, VERSION, checksum, field,
};
use crate::level::BatchIdentity;
use crate::paths::{self, Paths};
use crate::settings::DEDUP_PRODUCERS_MAX;

/// Last sequence of a producer epoch and the position after its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ProducerEntry {
    pub(crate) identity: BatchIdentity,
    pub(crate) end: u64,
}

/// Segment header with its producer table: their last sequences when the segment was created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) journal_id: u128,
    pub(crate) first: u64,
    pub(crate) created: i64,
    pub(crate) producers: Vec<ProducerEntry>,
}

impl SegmentHeader {
    /// Encoded header, up to the first frame.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let frames_offset = self.frames_offset();
        let mut bytes = vec![0; frames_offset as usize];
        let mut fields = FieldTable::into(&SEGMENT, &mut bytes[..SEGMENT_BYTES]);
        fields.put("magic", &SEGMENT_MAGIC);
        fields.put("version", &VERSION.to_le_bytes());
        fields.put("journal_id", &self.journal_id.to_le_bytes());
        fields.put("first_position", &self.first.to_le_bytes());
        fields.put("created", &self.created.to_le_bytes());
        fields.put("producers", &(self.producers.len() as u32).to_le_bytes());
        fields.put("frames_offset", &frames_offset.to_le_bytes());
        for (last, entry) in
            self.producers.iter().zip(bytes[SEGMENT_BYTES..].chunks_exact_mut(PRODUCER_BYTES))
        {
            let mut fields = FieldTable::into(&PRODUCER, entry);
            fields.put("producer", &last.identity.producer.to_le_bytes());
            fields.put("epoch", &last.identity.epoch.to_le_bytes());
            fields.put("sequence", &last.identity.sequence.to_le_bytes());
            fields.put("end_position", &last.end.to_le_bytes());
        }
        let crc = checksum(&bytes);
        bytes[field(&SEGMENT, "header_crc")].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads the header of this segment of this journal; `None` if it is corrupt or of another
    /// journal.
    pub(crate) fn read(
        file: &dyn File,
        path: &Path,
        journal_id: u128,
        first: u64,
    ) -> Result<Option<SegmentHeader>> {
        let head = SegmentHeader::read_any(file, path)?;
        Ok(head.filter(|head| head.journal_id == journal_id && head.first == first))
    }

    /// Reads the header of any journal's segment; `None` if it is corrupt.
    pub(crate) fn read_any(file: &dyn File, path: &Path) -> Result<Option<SegmentHeader>> {
        let mut bytes = vec![0; SEGMENT_BYTES];
        if file.read_full_at(&mut bytes, 0).io_context("read the header of", path)? < SEGMENT_BYTES
        {
            return Ok(None);
        }
        let fields = FieldTable::read_only(&SEGMENT, &bytes);
        let producers = fields.u32("producers");
        if producers > DEDUP_PRODUCERS_MAX {
            return Ok(None);
        }
        let table_bytes = (producers as usize).saturating_mul(PRODUCER_BYTES);
        let head_bytes = table_bytes.saturating_add(SEGMENT_BYTES);
        let frames_offset = head_bytes as u64;
        let len = file.len().io_context("get the length of", path)?;
        if fields.bytes("magic") != SEGMENT_MAGIC
            || fields.u64("frames_offset") != frames_offset
            || frames_offset > len
        {
            return Ok(None);
        }
        bytes.resize(head_bytes, 0);
        let have = file
            .read_full_at(&mut bytes[SEGMENT_BYTES..], SEGMENT_BYTES as u64)
            .io_context("read the producers of", path)?;
        let fields = FieldTable::read_only(&SEGMENT, &bytes);
        if have < table_bytes || fields.u32("header_crc") != checksum(&bytes) {
            return Ok(None);
        }
        if fields.u32("version") > VERSION {
            return Err(Error::Version {
                path: path.to_owned(),
                found: fields.u32("version"),
                supported: VERSION,
            });
        }
        let producers = bytes[SEGMENT_BYTES..].chunks_exact(PRODUCER_BYTES).map(|entry| {
            let fields = FieldTable::read_only(&PRODUCER, entry);
            let identity = BatchIdentity {
                producer: fields.u64("producer"),
                epoch: fields.u64("epoch"),
                sequence: fields.u64("sequence"),
            };
            ProducerEntry { identity, end: fields.u64("end_position") }
        });
        Ok(Some(SegmentHeader {
            journal_id: fields.u128("journal_id"),
            first: fields.u64("first_position"),
            created: fields.i64("created"),
            producers: producers.collect(),
        }))
    }

    /// Offset of the first frame.
    pub(crate) fn frames_offset(&self) -> u64 {
        let table_bytes = self.producers.len().saturating_mul(PRODUCER_BYTES);
        table_bytes.saturating_add(SEGMENT_BYTES) as u64
    }
}

/// First positions of all segments, ascending.
pub(crate) fn list(disk: &dyn Disk, paths: &Paths) -> Result<Vec<u64>> {
    let dir = paths.segments();
    let names = disk.list(&dir).io_context("list", &dir)?;
    let mut firsts: Vec<u64> =
        names.iter().filter_map(|name| paths::first_position(name)).collect();
    firsts.sort_unstable();
    Ok(firsts)
}

/// Total size of all segments in bytes.
pub(crate) fn total_bytes(disk: &dyn Disk, paths: &Paths) -> Result<u64> {
    let mut sum = 0u64;
    for first in list(disk, paths)? {
        let path = paths.segment(first);
        match disk.open(&path, OpenMode::Read) {
            Ok(file) => {
                sum = sum.saturating_add(file.len().io_context("get the length of", &path)?);
            }
            // Deleted since it was listed.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(FileError::new("open", &path, error).into()),
        }
    }
    Ok(sum)
}

/// Result of a scan step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ScanItem {
    /// A valid frame; its stored body is at this range of `SegmentScan::bytes`.
    Frame { head: FrameHeader, offset: u64, body: Range<usize> },
    /// Invalid bytes, up to the next frame.
    Damage { offset: u64, end: u64 },
    /// No frame from here to the limit; `torn_bytes` of the rest are not the zeros a segment is
    /// created with.
    End { offset: u64, torn_bytes: u64 },
}

/// Reads the frames of one segment sequentially, in large pieces, with memory for about one frame.
pub(crate) struct SegmentScan {
    file: Arc<dyn File>,
    path: PathBuf,
    salt: u32,
    /// Expected offset of the next frame, and its minimum position.
    offset: u64,
    position: u64,
    window: Vec<u8>,
    window_at: u64,
    decompressor: Decompressor,
    has_valid_header: bool,
    broken: Option<BrokenFrames>,
}

/// Consecutive frames with valid headers and corrupt bodies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BrokenFrames {
    /// Positions of their records.
    pub(crate) positions: Range<u64>,
    /// Append times of those records.
    pub(crate) time: RangeInclusive<i64>,
}

/// Read size: large enough for the full throughput of a disk.
const WINDOW_BYTES: u64 = 256 << 10;

impl SegmentScan {
    /// Opens a segment. Frames start after the header or, if that is corrupt, where the first one
    /// is found.
    pub(crate) fn open(
        disk: &dyn Disk,
        paths: &Paths,
        journal_id: u128,
        first: u64,
    ) -> Result<SegmentScan> {
        let path = paths.segment(first);
        let file: Arc<dyn File> =
            disk.open(&path, OpenMode::Read).io_context("open", &path)?.into();
        let head = SegmentHeader::read(&*file, &path, journal_id, first)?;
        let has_head = head.is_some();
        let offset = head.map_or(0, |head| head.frames_offset());
        let salt = frame::salt(journal_id, first);
        Ok(SegmentScan {
            has_valid_header: has_head,
            ..SegmentScan::at(file, path, salt, offset, first)
        })
    }

    pub(crate) fn at(
        file: Arc<dyn File>,
        path: PathBuf,
        salt: u32,
        offset: u64,
        position: u64,
    ) -> SegmentScan {
        SegmentScan {
            file,
            path,
            salt,
            offset,
            position,
            window: Vec::new(),
            window_at: 0,
            decompressor: Decompressor::default(),
            has_valid_header: true,
            broken: None,
        }
    }

    /// Resumes at an offset where the frame of a position is expected.
    pub(crate) fn resume_at(self, offset: u64, position: u64) -> SegmentScan {
        SegmentScan { offset, position, ..self }
    }

    /// Position after the last frame.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the segment's header is valid.
    pub(crate) fn has_valid_header(&self) -> bool {
        self.has_valid_header
    }

    pub(crate) fn file_bytes(&self) -> Result<u64> {
        Ok(self.file.len().io_context("get the length of", &self.path)?)
    }

    /// Decompresses a frame's body; false if it is not valid writer output although its checksum is
    /// right.
    pub(crate) fn body(
        &mut self,
        head: &FrameHeader,
        body: Range<usize>,
        raw: &mut Vec<u8>,
    ) -> bool {
        raw.resize(head.raw_bytes as usize, 0);
        self.decompressor.decompress(head.compression, &self.window[body], raw)
            && RecordIter::new(raw, head.first).contains_exactly(u64::from(head.records))
    }

    /// Scans the next item before `limit`, the length in bytes up to which the file is written.
    pub(crate) fn next(&mut self, limit: u64) -> Result<ScanItem> {
        let offset = self.offset;
        if let Some(head) = self.head_at(offset, limit)? {
            let end = offset.saturating_add(head.frame_bytes());
            if end <= limit && self.fill(offset, head.frame_bytes(), limit)? >= head.frame_bytes() {
                let start = self.place(offset);
                let padded_start = start.saturating_add(FRAME_BYTES);
                let padded = padded_start..start.saturating_add(head.frame_bytes() as usize);
                if head.is_body_valid(&self.window[padded], self.salt) {
                    self.offset = end;
                    self.position = head.positions().end;
                    let body =
                        padded_start..padded_start.saturating_add(head.stored_bytes as usize);
                    return Ok(ScanItem::Frame { head, offset, body });
                }
            }
            self.add_broken(&head);
        }
        self.search(limit)
    }

    /// Frames with valid headers in damaged ranges since the last call.
    pub(crate) fn take_broken(&mut self) -> Option<BrokenFrames> {
        self.broken.take()
    }

    fn add_broken(&mut self, head: &FrameHeader) {
        let (positions, time) = (head.positions(), head.time_min..=head.time_max);
        let joined = self.broken.take().filter(|known| known.positions.end == positions.start);
        self.broken = Some(match joined {
            Some(known) => BrokenFrames {
                positions: known.positions.start..positions.end,
                time: (*known.time.start()).min(*time.start())
                    ..=(*known.time.end()).max(*time.end()),
            },
            None => BrokenFrames { positions, time },
        });
    }

    /// A valid header of a possible next frame at an offset.
    fn head_at(&mut self, offset: u64, limit: u64) -> Result<Option<FrameHeader>> {
        if self.fill(offset, FRAME_BYTES as u64, limit)? < FRAME_BYTES as u64 {
            return Ok(None);
        }
        let start = self.place(offset);
        Ok(FrameHeader::parse(&self.window[start..], self.salt)
            .filter(|head| head.first >= self.position))
    }

    /// Searches for the next valid header after invalid bytes.
    fn search(&mut self, limit: u64) -> Result<ScanItem> {
        let from = self.offset;
        let mut at = from.saturating_add(1).checked_next_multiple_of(FRAME_ALIGN).unwrap_or(limit);
        let mut torn_end = self.last_nonzero_end(from, at.min(limit), limit)?;
        while at.saturating_add(FRAME_BYTES as u64) <= limit {
            if self.head_at(at, limit)?.is_some() {
                self.offset = at;
                return Ok(ScanItem::Damage { offset: from, end: at });
            }
            if self.fill(at, FRAME_ALIGN, limit)? == 0 {
                break;
            }
            let next = at.saturating_add(FRAME_ALIGN);
            torn_end = torn_end.max(self.last_nonzero_end(at, next, limit)?);
            at = next;
        }
        torn_end = torn_end.max(self.last_nonzero_end(at, limit, limit)?);
        Ok(ScanItem::End { offset: from, torn_bytes: torn_end.saturating_sub(from) })
    }

    /// End of the nonzero bytes in a short range; 0 if all are zero.
    fn last_nonzero_end(&mut self, from: u64, to: u64, limit: u64) -> Result<u64> {
        let Some(want @ 1..) = to.checked_sub(from) else { return Ok(0) };
        let have = self.fill(from, want, limit)?.min(want);
        let bytes = &self.window[self.place(from)..][..have as usize];
        let last = bytes.iter().rposition(|&byte| byte != 0);
        Ok(last.map_or(0, |last| from.saturating_add(last as u64).saturating_add(1)))
    }

    /// Loads `want` bytes from `offset` on into the window, or as many as exist; returns their
    /// number.
    fn fill(&mut self, offset: u64, want: u64, limit: u64) -> Result<u64> {
        let window_end = self.window_end();
        if offset < self.window_at
            || offset > window_end
            || offset.saturating_add(want.min(limit.saturating_sub(offset))) > window_end
        {
            let room = limit.saturating_sub(offset);
            let size = want.max(WINDOW_BYTES).min(room) as usize;
            // Keeps the bytes already read: each byte is read once.
            let keep = if (self.window_at..=window_end).contains(&offset) {
                let start = self.place(offset);
                self.window.drain(..start);
                self.window.len()
            } else {
                0
            };
            self.window.resize(size.max(keep), 0);
            let at = offset.saturating_add(keep as u64);
            let read = self.file.read_full_at(&mut self.window[keep..], at);
            if read.is_err() {
                // The content is invalid now; a retry reads it again.
                self.window.clear();
            }
            let have = read.io_context("read", &self.path)?;
            self.window.truncate(keep.saturating_add(have));
            self.window_at = offset;
        }
        Ok(self.window_end().saturating_sub(offset))
    }

    /// File offset of the window's end.
    fn window_end(&self) -> u64 {
        self.window_at.saturating_add(self.window.len() as u64)
    }

    /// Index in the window of an offset that it holds.
    fn place(&self, offset: u64) -> usize {
        offset.saturating_sub(self.window_at) as usize
    }
}

/// Calls back for every valid frame and each of its records.
pub(crate) fn for_each_record(
    scan: &mut SegmentScan,
    limit: u64,
    frame: &mut dyn FnMut(&FrameHeader),
    record: &mut dyn FnMut(frame::Record<'_>),
) -> Result<()> {
    let mut raw = Vec::new();
    loop {
        match scan.next(limit)? {
            ScanItem::Frame { head, body, .. } => {
                if scan.body(&head, body, &mut raw) {
                    frame(&head);
                    RecordIter::new(&raw, head.first).for_each(&mut *record);
                }
            }
            ScanItem::Damage { .. } => {}
            ScanItem::End { .. } => return Ok(()),
        }
    }
}

/// Rewrites a file's bytes in place. After a failed or interrupted sync the page cache may hold
/// pages that are not on disk and count as clean; rewriting makes them dirty, so the next sync
/// writes them.
pub(crate) fn rewrite(file: &dyn File, upto: u64) -> io::Result<()> {
    let len = file.len()?.min(upto);
    let mut bytes = vec![0; 256 << 10];
    let mut at = 0;
    while at < len {
        let want = len.saturating_sub(at).min(bytes.len() as u64) as usize;
        let have = file.read_full_at(&mut bytes[..want], at)?;
        if have == 0 {
            break;
        }
        file.write_all_at(&bytes[..have], at)?;
        at = at.saturating_add(have as u64);
    }
    Ok(())
}

/// Smallest segment on a disk that lacks space: this part of the segment size, 4 MiB of a server's
/// 64 MiB. At least as much stays free.
const SEGMENT_PART_MIN: u64 = 16;

/// Reserves `size` bytes for a segment; returns the size. On a disk without space for them, it is
/// half of the largest power-of-two part of them that is free, from [`SEGMENT_PART_MIN`] on, if it
/// takes `least` bytes. The rest is for the parts of a store: without space for them the journal
/// would never be freed.
pub(crate) fn reserve_space(file: &dyn File, size: u64, least: u64) -> io::Result<u64> {
    let mut part = size;
    loop {
        // Some file systems keep what they reserved before they failed.
        file.set_len(0)?;
        let no_space = match file.allocate(part) {
            Ok(()) if part == size => return Ok(size),
            Ok(()) => {
                file.set_len(part / 2)?;
                return Ok(part / 2);
            }
            Err(error) if is_no_space(&error) => error,
            Err(error) => return Err(error),
        };
        part /= 2;
        if part / 2 < least.max(size / SEGMENT_PART_MIN) {
            return Err(no_space);
        }
    }
}

pub(crate) fn is_no_space(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
