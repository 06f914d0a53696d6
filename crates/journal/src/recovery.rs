//! Recovery of a journal that no process has open, after any crash: truncates a torn tail, counts
//! damage, finds entries left in the buffer, and continues positions after every one that may have
//! been seen.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::ops::Range;
use std::sync::Arc;

use disk::{Disk, File, IoContext, OpenMode};

use crate::buffer::{Buffer, BufferHeader, FAIL_STOP, FlushMark};
use crate::checkpoint;
use crate::error::Result;
use crate::frame;
use crate::gap::{GapReason, GapSet, RecordGap};
use crate::mapped_journal::StoredSettings;
use crate::paths::Paths;
use crate::segment::{self, ProducerEntry, ScanItem, SegmentHeader, SegmentScan};
use crate::segment::{for_each_record, is_no_space, rewrite};

/// Result of recovery. All zero after a clean shutdown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// Records that were still in the buffer and are retained.
    pub from_buffer: u64,
    /// Bytes of a torn tail of the last segment that were truncated.
    pub torn_bytes: u64,
    /// Records missing from the last segment, or seen by a reader and lost. Damage in older
    /// segments is found by reading them or by `verify`.
    pub gaps: Vec<RecordGap>,
    /// Files with unusable content: the name and the action taken.
    pub damaged_files: Vec<String>,
}

/// Reconciles segments, gaps and the buffer before any other process has opened the journal.
pub(crate) fn recover(
    disk: &dyn Disk,
    paths: &Paths,
    stored_settings: &StoredSettings,
    buffer: &Buffer,
) -> Result<RecoveryReport> {
    let mut recovery = Recovery::new(disk, paths, stored_settings, buffer);
    recovery.find_tail()?;
    // Assigned positions are never assigned again, or a checkpoint would skip new records.
    let (checkpoints, damaged) = checkpoint::list(disk, paths)?;
    let both_damaged =
        |name: &String| format!("checkpoint {name:?}: both superblock copies are corrupt");
    recovery.report.damaged_files.extend(damaged.iter().map(both_damaged));
    let checkpoints: Vec<u64> = checkpoints.iter().map(|c| c.position).collect();
    let (gaps, are_gaps_intact) = GapSet::load(disk, paths)?;
    let gap_ends = gaps.iter().map(|gap| gap.positions.end);
    let mark = recovery.mark.map(|mark| mark.position);
    let reader_position =
        checkpoints.iter().copied().chain(mark).chain(gap_ends).max().unwrap_or(0);
    let buffered = recovery.find_buffered(reader_position);
    if !are_gaps_intact {
        let damaged = "gaps: corrupt; records dropped earlier are reported as damaged".to_owned();
        recovery.report.damaged_files.push(damaged);
    }
    let gaps = recovery.note_gaps(gaps, &checkpoints, &buffered)?;
    recovery.make_durable(&buffered)?;
    recovery.reset_buffer(&buffered, &gaps)?;
    Ok(recovery.report)
}

/// State of a recovery.
struct Recovery<'a> {
    disk: &'a dyn Disk,
    paths: &'a Paths,
    settings: &'a StoredSettings,
    buffer: &'a Buffer,
    report: RecoveryReport,
    /// Published flush mark, if the buffer belongs to this journal and has a valid one.
    mark: Option<FlushMark>,
    durable: u64,
    /// A sync was in progress or had failed: everything not known to be durable is rewritten.
    must_rewrite: bool,
    /// First positions of the segments.
    segment_starts: Vec<u64>,
    /// The last segment, if any.
    tail: Option<TailScan>,
}

/// Entries of the buffer after the segments.
struct BufferedEntries {
    /// Their ring words.
    words: Option<(u64, u64)>,
    /// Number of other nonzero ring words that were erased.
    erased: u64,
    /// Positions between the entries, or seen by a reader, that no entry has.
    missing: Vec<Range<u64>>,
    /// Position after all of them.
    next: u64,
}

impl<'a> Recovery<'a> {
    fn new(
        disk: &'a dyn Disk,
        paths: &'a Paths,
        settings: &'a StoredSettings,
        buffer: &'a Buffer,
    ) -> Recovery<'a> {
        let is_ours = buffer.is_same_journal(settings.id);
        let mark = if is_ours { buffer.latest_valid_mark() } else { None };
        let durable = if mark.is_some() { buffer.durable() } else { 0 };
        let must_rewrite =
            mark.is_some() && (buffer.is_syncing() || buffer.state() & FAIL_STOP != 0);
        Recovery {
            disk,
            paths,
            settings,
            buffer,
            report: RecoveryReport::default(),
            mark,
            durable,
            must_rewrite,
            segment_starts: Vec::new(),
            tail: None,
        }
    }

    /// Position after the segments.
    fn position(&self) -> u64 {
        self.tail.as_ref().map_or(0, |tail| tail.position)
    }

    /// Offset of the next frame in the last segment.
    fn offset(&self) -> u64 {
        self.tail.as_ref().map_or(0, |tail| tail.offset)
    }

    /// Finds the end of the segments; unusable ones at the end are quarantined.
    fn find_tail(&mut self) -> Result<()> {
        let Recovery { disk, paths, settings, buffer, .. } = *self;
        self.segment_starts = segment::list(disk, paths)?;
        if let Some(mark) = self.mark {
            drop_superseded_frame(disk, paths, settings, buffer, mark, &mut self.segment_starts)?;
        }
        while let Some(&first) = self.segment_starts.last() {
            self.tail = scan_tail(disk, paths, settings, first, &mut self.report)?;
            if self.tail.is_some() {
                break;
            }
            quarantine_segment(disk, paths, first, &mut self.report)?;
            self.segment_starts.pop();
        }
        Ok(())
    }

    /// Entries of the buffer that follow the segments. `reader_position` is the last position
    /// known to a reader.
    fn find_buffered(&mut self, reader_position: u64) -> BufferedEntries {
        let (buffer, position) = (self.buffer, self.position());
        let boot = self.disk.boot_id();
        let matches_segments = |mark: &FlushMark| mark.position == position;
        let known = self.mark.filter(matches_segments).filter(|_| buffer.is_from_this_boot(boot));
        let (words, erased) = match known.and_then(|mark| buffer.entries_after(mark)) {
            Some(words) => (words, 0),
            None => buffer.ring().recover_entries(position, reader_position),
        };
        let (mut missing, mut next, mut scratch) = (Vec::new(), position, Vec::new());
        let (mut at, end) = words.unwrap_or_default();
        while at < end {
            scratch.clear();
            let Some(entry) = buffer.ring().entry(at, end, &mut scratch) else {
                at = at.saturating_add(1);
                continue;
            };
            missing.push(next..entry.first);
            next = entry.end();
            let records = u64::from(entry.records);
            self.report.from_buffer = self.report.from_buffer.saturating_add(records);
            at = at.saturating_add(entry.words);
        }
        missing.push(next..reader_position.max(next));
        BufferedEntries { words, erased, missing, next: next.max(reader_position) }
    }

    /// Adds missing positions to the gaps, and saves them if any were added.
    fn note_gaps(
        &mut self,
        mut gaps: GapSet,
        checkpoints: &[u64],
        buffered: &BufferedEntries,
    ) -> Result<GapSet> {
        let Recovery { disk, paths, settings, durable, .. } = *self;
        let before = gaps.clone();
        // Gaps of the last segment, and of others that were not durable at a power loss.
        let mut torn = Vec::new();
        for pair in self.segment_starts.windows(2) {
            if let &[first, next] = pair
                && next > durable
            {
                torn.extend(missing_positions(disk, paths, settings, first, next)?);
            }
        }
        torn.extend(self.tail.iter().flat_map(|tail| tail.damaged.iter().cloned()));
        let mut note = |range: Range<u64>, reason| {
            if !range.is_empty() && !gaps.contains(&range) {
                let gap = RecordGap::unknown(range, reason);
                gaps.add(gap.clone(), checkpoints);
                self.report.gaps.push(gap);
            }
        };
        for range in torn.iter().chain(&buffered.missing) {
            // Below the durable position a power loss cannot be the cause.
            let split = durable.clamp(range.start, range.end);
            note(range.start..split, GapReason::Damaged);
            note(split..range.end, GapReason::LostBeforeSync);
        }
        if gaps != before {
            match gaps.save(disk, paths) {
                // On a full disk a journal can still be report: these gaps are reported as damage
                // later.
                Err(crate::Error::Io(error)) if is_no_space(&error.source) => {
                    let note =
                        "gaps: cannot save those found: disk full; they are reported as damage"
                            .to_owned();
                    self.report.damaged_files.push(note);
                }
                other => other?,
            }
        }
        Ok(gaps)
    }

    /// Makes durable what was read, which may only be in the page cache, and truncates a torn tail.
    fn make_durable(&self, buffered: &BufferedEntries) -> Result<()> {
        let Recovery { disk, paths, durable, must_rewrite, .. } = *self;
        self.buffer.begin_opening(self.settings.id);
        if buffered.erased > 0 || must_rewrite {
            // After another power loss it must not reappear beside records appended in its place.
            let path = paths.buffer();
            let file = disk.open(&path, OpenMode::Write).io_context("open", &path)?;
            file.sync().io_context("fsync", &path)?;
        }
        let ends = self.segment_starts.iter().skip(1).copied().map(Some).chain([None]);
        for (&first, next) in self.segment_starts.iter().zip(ends) {
            let end = next.unwrap_or(self.position());
            if end <= durable && next.is_some() {
                continue;
            }
            let path = paths.segment(first);
            let file = disk.open(&path, OpenMode::Write).io_context("open", &path)?;
            if must_rewrite && end > durable {
                rewrite(&*file, u64::MAX).io_context("rewrite", &path)?;
            }
            if next.is_none() && self.report.torn_bytes > 0 {
                file.set_len(self.offset()).io_context("truncate the torn tail of", &path)?;
            }
            file.sync().io_context("fsync", &path)?;
        }
        for dir in [paths.segments(), paths.dir.clone()] {
            disk.sync_dir(&dir).io_context("fsync directory", &dir)?;
        }
        Ok(())
    }

    /// Initialises the buffer's header and its producer table.
    fn reset_buffer(&self, buffered: &BufferedEntries, gaps: &GapSet) -> Result<()> {
        let Recovery { disk, paths, settings, buffer, .. } = *self;
        let next = buffered.next;
        let (ring, tail) = buffered.words.unwrap_or_default();
        // Without entries in between, the segments extend to the last seen position.
        let position = if buffered.words.is_some() { self.position() } else { next };
        let segment = self.segment_starts.last().copied().unwrap_or(0);
        let mark = FlushMark { ring, position, segment, offset: self.offset() };
        let first = self.segment_starts.first().copied().unwrap_or(position);
        let boot = disk.boot_id().unwrap_or(u128::MAX);
        buffer.reset(settings.id, &BufferHeader { mark, tail, next, first, boot });
        let last_batches =
            recover_producers(disk, paths, settings, &self.segment_starts, mark.offset, gaps)?;
        for last in last_batches {
            buffer.sequences().record(last.identity, last.end);
        }
        Ok(())
    }
}

/// A batch that bypasses the buffer counts once its frame is published. If its writer was killed
/// between writing the frame and publishing it, other batches may have been appended at the same
/// positions: the buffer is authoritative, and the frame is truncated.
fn drop_superseded_frame(
    disk: &dyn Disk,
    paths: &Paths,
    stored_settings: &StoredSettings,
    buffer: &Buffer,
    mark: FlushMark,
    segment_starts: &mut Vec<u64>,
) -> Result<()> {
    let (tail, _) = buffer.end();
    // A corrupt value can be anything.
    if tail.checked_sub(mark.ring).is_none_or(|used| used > buffer.ring_bytes() / 8) {
        return Ok(());
    }
    let mut body = Vec::new();
    let Some(entry) = buffer.ring().entry(mark.ring, tail, &mut body) else { return Ok(()) };
    if entry.first != mark.position {
        return Ok(());
    }
    let mut start = Vec::new();
    frame::encode_batch_header(&mut start, entry.identity, entry.records);
    if !entry.is_packed {
        frame::put_varint(&mut start, body.len() as u64);
    }
    start.extend_from_slice(&body);
    let published = |first: u64| first == mark.segment && mark.offset > 0;
    for &first in segment_starts.iter().filter(|&&first| published(first) || first == mark.position)
    {
        let mut scan = SegmentScan::open(disk, paths, stored_settings.id, first)?;
        if published(first) {
            scan = scan.resume_at(mark.offset, mark.position);
        }
        let limit = scan.file_bytes()?;
        let ScanItem::Frame { head, body, .. } = scan.next(limit)? else { continue };
        let mut raw = Vec::new();
        let is_valid = scan.body(&head, body, &mut raw);
        // A frame that was flushed from the buffer starts with the buffer's entries.
        if head.first != mark.position || !is_valid || raw.starts_with(&start) {
            continue;
        }
        let path = paths.segment(first);
        if published(first) {
            let file = disk.open(&path, OpenMode::Write).io_context("open", &path)?;
            file.set_len(mark.offset).io_context("truncate the unpublished tail of", &path)?;
        } else {
            disk.remove(&path).io_context("remove", &path)?;
            segment_starts.retain(|&other| other != first);
        }
        return Ok(());
    }
    Ok(())
}

/// Result of scanning the last segment.
struct TailScan {
    position: u64,
    offset: u64,
    /// Missing positions before its end.
    damaged: Vec<Range<u64>>,
}

/// Scans the last segment; `None` if nothing in it is usable.
fn scan_tail(
    disk: &dyn Disk,
    paths: &Paths,
    stored_settings: &StoredSettings,
    first: u64,
    report: &mut RecoveryReport,
) -> Result<Option<TailScan>> {
    let path = paths.segment(first);
    let file: Arc<dyn File> = disk.open(&path, OpenMode::Read).io_context("open", &path)?.into();
    let head = SegmentHeader::read(&*file, &path, stored_settings.id, first)?;
    let mut scan = SegmentScan::open(disk, paths, stored_settings.id, first)?;
    let limit = scan.file_bytes()?;
    let mut frames = 0u64;
    let mut damaged = Vec::new();
    // After the last complete frame; the bytes after it may still look like a frame header.
    let mut end = head.as_ref().map_or(0, SegmentHeader::frames_offset);
    loop {
        let before = scan.position();
        match scan.next(limit)? {
            ScanItem::Frame { head, offset, .. } => {
                frames = frames.saturating_add(1);
                end = offset.saturating_add(head.frame_bytes());
                if head.first > before {
                    damaged.push(before..head.first);
                }
            }
            ScanItem::Damage { .. } => {}
            ScanItem::End { offset, torn_bytes } => {
                if head.is_none() && frames == 0 {
                    return Ok(None);
                }
                report.torn_bytes = offset.saturating_add(torn_bytes).saturating_sub(end);
                return Ok(Some(TailScan { position: scan.position(), offset: end, damaged }));
            }
        }
    }
}

/// Positions before `next` for which a segment has no frame.
fn missing_positions(
    disk: &dyn Disk,
    paths: &Paths,
    stored_settings: &StoredSettings,
    first: u64,
    next: u64,
) -> Result<Vec<Range<u64>>> {
    let mut scan = SegmentScan::open(disk, paths, stored_settings.id, first)?;
    let limit = scan.file_bytes()?;
    let mut missing = Vec::new();
    loop {
        let before = scan.position();
        match scan.next(limit)? {
            ScanItem::Frame { head, .. } => missing.push(before..head.first),
            ScanItem::Damage { .. } => {}
            ScanItem::End { .. } => {
                missing.push(before..next.max(before));
                missing.retain(|range| !range.is_empty());
                return Ok(missing);
            }
        }
    }
}

/// Moves a last segment without header and frames out of the way. It is empty if power was lost
/// while it was created; otherwise it is corrupt and kept for inspection.
fn quarantine_segment(
    disk: &dyn Disk,
    paths: &Paths,
    first: u64,
    report: &mut RecoveryReport,
) -> Result<()> {
    let path = paths.segment(first);
    let file = disk.open(&path, OpenMode::Read).io_context("open", &path)?;
    let mut bytes = vec![0; 64 << 10];
    let have = file.read_full_at(&mut bytes, 0).io_context("read", &path)?;
    if bytes[..have].iter().all(|&byte| byte == 0) {
        return Ok(disk.remove(&path).io_context("remove", &path)?);
    }
    let dir = paths.quarantine();
    disk.create_dir(&dir).io_context("create", &dir)?;
    let name = format!("{first:016x}.seg");
    disk.rename(&path, &dir.join(&name)).io_context("quarantine", &path)?;
    disk.sync_dir(&dir).io_context("fsync directory", &dir)?;
    report.damaged_files.push(format!("segments/{name}: unreadable, moved to quarantine/{name}"));
    Ok(())
}

/// Last sequences of producers up to the end of the segments: from the newest valid header and all
/// frames after it. A header may list batches that were not durable at a power loss and are in a
/// gap: those were not accepted after all, and an older header has the batches accepted before
/// them.
pub(crate) fn recover_producers(
    disk: &dyn Disk,
    paths: &Paths,
    stored_settings: &StoredSettings,
    segment_starts: &[u64],
    end: u64,
    gaps: &GapSet,
) -> Result<Vec<ProducerEntry>> {
    let lost = |last: &ProducerEntry| {
        gaps.iter().any(|gap| {
            matches!(gap.reason, GapReason::Damaged | GapReason::LostBeforeSync)
                && gap.positions.contains(&(last.end.saturating_sub(1)))
        })
    };
    let mut last_batches = Vec::new();
    for (i, &first) in segment_starts.iter().enumerate().rev() {
        let mut scan = SegmentScan::open(disk, paths, stored_settings.id, first)?;
        let limit =
            if i.saturating_add(1) == segment_starts.len() { end } else { scan.file_bytes()? };
        for_each_record(&mut scan, limit, &mut |_| {}, &mut |record| {
            if let Some(identity) = record.identity {
                let after = record.position.saturating_add(1);
                // Batches are contiguous: the last record of each decides, and it comes last.
                match last_batches.last_mut() {
                    Some(ProducerEntry { identity: last, end }) if *last == identity => {
                        *end = after
                    }
                    _ => last_batches.push(ProducerEntry { identity, end: after }),
                }
            }
        })?;
        let path = paths.segment(first);
        let file = disk.open(&path, OpenMode::Read).io_context("open", &path)?;
        if let Some(head) = SegmentHeader::read(&*file, &path, stored_settings.id, first)? {
            let (lost_producers, retained): (Vec<_>, Vec<_>) =
                head.producers.into_iter().partition(lost);
            last_batches.extend(retained);
            if lost_producers.is_empty() {
                break;
            }
        }
    }
    Ok(last_batches)
}
