//! Opening a journal that nobody else has open, whatever happened to it: the torn end is cut off, what is
//! damaged is counted, entries left in the buffer are found, and positions go on behind everything that
//! anybody may have seen.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::ops::Range;
use std::sync::Arc;

use disk::{Disk, File, OpenMode};

use crate::buffer::{Buffer, BufferHeader, FAIL_STOP, FlushMark};
use crate::checkpoint;
use crate::error::{IoContext, Result};
use crate::flusher::{for_each_record, is_no_space, rewrite};
use crate::frame;
use crate::gap::{Gap, GapReason, GapSet};
use crate::paths::Paths;
use crate::segment::{self, ProducerState, ScanItem, SegmentHeader, SegmentScan};
use crate::shared::StoredSettings;

/// Result of recovery. All zero after a clean end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// Records that were still in the buffer, and are kept.
    pub from_buffer: u64,
    /// Bytes at the end of the last segment that were no whole frame, and were cut off.
    pub torn_bytes: u64,
    /// Records that are missing from the last segment, or were seen by somebody and are gone. Damage in
    /// older segments is found when they are read, or by `verify`.
    pub gaps: Vec<Gap>,
    /// Files whose contents could not be used: the name and what was done.
    pub damaged_files: Vec<String>,
}

pub(crate) fn recover(
    disk: &dyn Disk,
    places: &Paths,
    born: &StoredSettings,
    buffer: &Buffer,
) -> Result<RecoveryReport> {
    let mut opened = RecoveryReport::default();
    let trusted = buffer.is_same_journal(born.id);
    let was = if trusted { buffer.latest_valid_mark() } else { None };
    let durable = if was.is_some() { buffer.durable() } else { 0 };
    let unsure = was.is_some() && (buffer.is_syncing() || buffer.state() & FAIL_STOP != 0);

    let mut firsts = segment::list(disk, places)?;
    if let Some(mark) = was {
        drop_superseded_frame(disk, places, born, buffer, mark, &mut firsts)?;
    }
    let mut last = None;
    while let Some(&first) = firsts.last() {
        match scan_tail(disk, places, born, first, &mut opened)? {
            Some(end) => {
                last = Some(end);
                break;
            }
            None => {
                quarantine_segment(disk, places, first, &mut opened)?;
                firsts.pop();
            }
        }
    }

    // Positions that were given out are never given out again, or a checkpoint would skip new records.
    let (checkpoints, damaged) = checkpoint::list(disk, places)?;
    opened
        .damaged_files
        .extend(damaged.iter().map(|name| format!("checkpoint {name:?}: both copies are damaged")));
    let position = last.as_ref().map_or(0, |end| end.position);
    let (mut gaps, gaps_sound) = GapSet::load(disk, places)?;
    let told = gaps.iter().map(|gap| gap.positions.end);
    let seen =
        checkpoints.iter().map(|c| c.position).chain(was.map(|mark| mark.position)).chain(told);
    let seen = seen.max().unwrap_or(0);
    let boot = disk.boot_id();
    let known = was.filter(|mark| mark.position == position && buffer.is_from_this_boot(boot));
    let (found, erased) = match known.and_then(|mark| buffer.entries_after(mark)) {
        Some(found) => (found, 0),
        None => buffer.find_entries(position, seen),
    };
    let mut missing = Vec::new();
    let mut next = position;
    let mut scratch = Vec::new();
    if let Some((begin, end)) = found {
        let mut at = begin;
        while at < end {
            scratch.clear();
            let Some(entry) = buffer.entry(at, end, &mut scratch) else {
                at = at.saturating_add(1);
                continue;
            };
            missing.push(next..entry.first);
            let records = u64::from(entry.records);
            next = entry.first.saturating_add(records);
            opened.from_buffer = opened.from_buffer.saturating_add(records);
            at = at.saturating_add(entry.words);
        }
    }
    missing.push(next..seen.max(next));
    next = next.max(seen);
    if !gaps_sound {
        opened
            .damaged_files
            .push("gaps: damaged; what was dropped before is shown as damage".to_owned());
    }
    let before = gaps.clone();
    let positions: Vec<u64> = checkpoints.iter().map(|c| c.position).collect();
    let mut note = |range: Range<u64>, reason| {
        if !range.is_empty() && !gaps.contains(&range) {
            let gap = Gap::unknown(range, reason);
            gaps.add(gap.clone(), &positions);
            opened.gaps.push(gap);
        }
    };
    // What lies in the last segment, and in others that the power may have caught before they were durable.
    let mut torn = Vec::new();
    for (i, &first) in firsts.iter().enumerate() {
        match firsts.get(i.saturating_add(1)) {
            Some(&next) if next > durable => {
                torn.extend(missing_positions(disk, places, born, first, next)?);
            }
            _ => {}
        }
    }
    torn.extend(last.iter().flat_map(|end| end.damaged.iter().cloned()));
    for range in torn.into_iter().chain(missing) {
        // Below the durable position it cannot be the power that failed.
        let split = durable.clamp(range.start, range.end);
        note(range.start..split, GapReason::Damaged);
        note(split..range.end, GapReason::Interrupted);
    }
    if gaps != before {
        match gaps.save(disk, places) {
            // On a full disk a journal can still be opened: these gaps will show as damage.
            Err(crate::Error::Io { source, .. }) if is_no_space(&source) => {
                opened.damaged_files.push("gaps: no space to note those found".to_owned());
            }
            other => other?,
        }
    }

    // What is read here may be in the page cache only.
    buffer.begin_opening(born.id);
    if erased > 0 || unsure {
        // It must not come back with the next power cut, beside what is appended in its place.
        let path = places.buffer();
        let file = disk.open(&path, OpenMode::Write).io_context("open it", &path)?;
        file.sync().io_context("make it durable", &path)?;
    }
    for (i, &first) in firsts.iter().enumerate() {
        let end = firsts.get(i.saturating_add(1)).copied().unwrap_or(position);
        if end > durable || i.saturating_add(1) == firsts.len() {
            let path = places.segment(first);
            let file = disk.open(&path, OpenMode::Write).io_context("open it", &path)?;
            if unsure && end > durable {
                rewrite(&*file, u64::MAX).io_context("write it again", &path)?;
            }
            if i.saturating_add(1) == firsts.len() && opened.torn_bytes > 0 {
                let offset = last.as_ref().map_or(0, |end| end.offset);
                file.set_len(offset).io_context("cut off its torn end", &path)?;
            }
            file.sync().io_context("make it durable", &path)?;
        }
    }
    for dir in [places.segments(), places.dir.clone()] {
        disk.sync_dir(&dir).io_context("make new names in it durable", &dir)?;
    }

    let (ring, tail) = found.unwrap_or_default();
    // Without entries in between, the segments have come as far as anybody has seen.
    let position = if found.is_some() { position } else { next };
    let mark = FlushMark {
        ring,
        position,
        segment: firsts.last().copied().unwrap_or(0),
        offset: last.as_ref().map_or(0, |end| end.offset),
    };
    let first = firsts.first().copied().unwrap_or(position);
    buffer
        .reset(born.id, &BufferHeader { mark, tail, next, first, boot: boot.unwrap_or(u128::MAX) });
    for last in recover_producers(disk, places, born, &firsts, mark.offset, &gaps)? {
        buffer.record_sequence(last.identity, last.end);
    }
    Ok(opened)
}

/// A batch that goes past the buffer counts when its frame is published. If its writer was killed between the
/// two, others may have appended at the same positions since: what counts is in the buffer, and the frame is
/// cut off.
fn drop_superseded_frame(
    disk: &dyn Disk,
    places: &Paths,
    born: &StoredSettings,
    buffer: &Buffer,
    mark: FlushMark,
    firsts: &mut Vec<u64>,
) -> Result<()> {
    let (tail, _) = buffer.end();
    // Damaged, it may say anything.
    if tail.checked_sub(mark.ring).is_none_or(|used| used > buffer.ring_bytes() / 8) {
        return Ok(());
    }
    let mut body = Vec::new();
    let Some(entry) = buffer.entry(mark.ring, tail, &mut body) else { return Ok(()) };
    if entry.first != mark.position {
        return Ok(());
    }
    let mut group = Vec::new();
    frame::encode_group(&mut group, entry.identity, entry.records);
    if !entry.is_packed {
        frame::put_varint(&mut group, body.len() as u64);
    }
    group.extend_from_slice(&body);
    let published = |first: u64| first == mark.segment && mark.offset > 0;
    for &first in firsts.iter().filter(|&&first| published(first) || first == mark.position) {
        let mut scan = SegmentScan::open(disk, places, born.id, first)?;
        if published(first) {
            scan = scan.resume_at(mark.offset, mark.position);
        }
        let limit = scan.file_bytes()?;
        let ScanItem::Frame { head, body, .. } = scan.next(limit)? else { continue };
        let mut raw = Vec::new();
        let sound = scan.body(&head, body, &mut raw);
        // A frame from the buffer begins with what is in the buffer.
        if head.first != mark.position || !sound || raw.starts_with(&group) {
            continue;
        }
        let path = places.segment(first);
        if published(first) {
            let file = disk.open(&path, OpenMode::Write).io_context("open it", &path)?;
            file.set_len(mark.offset).io_context("cut off its uncounted end", &path)?;
        } else {
            disk.remove(&path).io_context("remove it", &path)?;
            firsts.retain(|&other| other != first);
        }
        return Ok(());
    }
    Ok(())
}

/// Result of scanning the last segment.
struct TailScan {
    position: u64,
    offset: u64,
    /// Positions missing before.
    damaged: Vec<Range<u64>>,
}

/// Scans the last segment; `None` when there is nothing in it that can be used.
fn scan_tail(
    disk: &dyn Disk,
    places: &Paths,
    born: &StoredSettings,
    first: u64,
    opened: &mut RecoveryReport,
) -> Result<Option<TailScan>> {
    let path = places.segment(first);
    let file: Arc<dyn File> = disk.open(&path, OpenMode::Read).io_context("open it", &path)?.into();
    let head = SegmentHeader::read(&*file, &path, born.id, first)?;
    let mut scan = SegmentScan::open(disk, places, born.id, first)?;
    let limit = scan.file_bytes()?;
    let mut frames = 0u64;
    let mut damaged = Vec::new();
    // Behind the last frame that is whole: what follows it may still look like the head of one.
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
                opened.torn_bytes = offset.saturating_add(torn_bytes).saturating_sub(end);
                return Ok(Some(TailScan { position: scan.position(), offset: end, damaged }));
            }
        }
    }
}

/// Positions before `next` of which a segment has no frame.
fn missing_positions(
    disk: &dyn Disk,
    places: &Paths,
    born: &StoredSettings,
    first: u64,
    next: u64,
) -> Result<Vec<Range<u64>>> {
    let mut scan = SegmentScan::open(disk, places, born.id, first)?;
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

/// Takes a last segment that has neither a head nor a frame out of the way: the power failed while it was
/// begun, and then it is empty; or it is damaged all over, and then it is kept for people to look at.
fn quarantine_segment(
    disk: &dyn Disk,
    places: &Paths,
    first: u64,
    opened: &mut RecoveryReport,
) -> Result<()> {
    let path = places.segment(first);
    let file = disk.open(&path, OpenMode::Read).io_context("open it", &path)?;
    let mut bytes = vec![0; 64 << 10];
    let have = file.read_full_at(&mut bytes, 0).io_context("read it", &path)?;
    if bytes[..have].iter().all(|&byte| byte == 0) {
        return disk.remove(&path).io_context("remove it", &path);
    }
    let dir = places.quarantine();
    disk.create_dir(&dir).io_context("create it", &dir)?;
    let name = format!("{first:016x}.seg");
    disk.rename(&path, &dir.join(&name)).io_context("move it to the quarantine", &path)?;
    disk.sync_dir(&dir).io_context("make a new name in it durable", &dir)?;
    opened
        .damaged_files
        .push(format!("segments/{name}: nothing in it can be read; moved to quarantine/{name}"));
    Ok(())
}

/// The last sequences of producers up to the end of the segments: from the newest head that is sound, and
/// all frames from there on. A head may know of batches that were not durable when the power went, and then
/// are in a gap: those were not accepted after all, and what was accepted before them an older head knows.
pub(crate) fn recover_producers(
    disk: &dyn Disk,
    places: &Paths,
    born: &StoredSettings,
    firsts: &[u64],
    end: u64,
    gaps: &GapSet,
) -> Result<Vec<ProducerState>> {
    let lost = |last: &ProducerState| {
        gaps.iter().any(|gap| {
            matches!(gap.reason, GapReason::Damaged | GapReason::Interrupted)
                && gap.positions.contains(&(last.end.saturating_sub(1)))
        })
    };
    let mut lasts = Vec::new();
    for (i, &first) in firsts.iter().enumerate().rev() {
        let mut scan = SegmentScan::open(disk, places, born.id, first)?;
        let limit = if i.saturating_add(1) == firsts.len() { end } else { scan.file_bytes()? };
        for_each_record(&mut scan, limit, &mut |_| {}, &mut |record| {
            if let Some(identity) = record.identity {
                let after = record.position.saturating_add(1);
                // Batches are contiguous: only the last record of each matters, and it comes last.
                match lasts.last_mut() {
                    Some(ProducerState { identity: last, end }) if *last == identity => {
                        *end = after
                    }
                    _ => lasts.push(ProducerState { identity, end: after }),
                }
            }
        })?;
        let path = places.segment(first);
        let file = disk.open(&path, OpenMode::Read).io_context("open it", &path)?;
        if let Some(head) = SegmentHeader::read(&*file, &path, born.id, first)? {
            let (gone, there): (Vec<_>, Vec<_>) = head.producers.into_iter().partition(lost);
            lasts.extend(there);
            if gone.is_empty() {
                break;
            }
        }
    }
    Ok(lasts)
}
