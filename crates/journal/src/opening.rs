//! Opening a journal that nobody else has open, whatever happened to it: the torn end is cut off, what is
//! damaged is counted, entries left in the buffer are found, and positions go on behind everything that
//! anybody may have seen.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::ops::Range;
use std::sync::Arc;

use disk::{Disk, File, Mode};

use crate::buffer::{Begin, Buffer, Mark, POISONED};
use crate::checkpoint;
use crate::error::{Doing, Result};
use crate::flusher::{each_record, is_no_space, rewrite};
use crate::frame;
use crate::gap::{Gap, Gaps, Reason};
use crate::places::Places;
use crate::segment::{self, Found, LastOf, Scan, SegmentHead};
use crate::store::Born;

/// What opening a journal found and did. All zero after a clean end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Opened {
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
    places: &Places,
    born: &Born,
    buffer: &Buffer,
) -> Result<Opened> {
    let mut opened = Opened::default();
    let trusted = buffer.is_ours(born.id);
    let was = if trusted { buffer.sound_mark() } else { None };
    let durable = if was.is_some() { buffer.durable() } else { 0 };
    let unsure = was.is_some() && (buffer.syncing() || buffer.state() & POISONED != 0);

    let mut firsts = segment::list(disk, places)?;
    if let Some(mark) = was {
        drop_overtaken(disk, places, born, buffer, mark, &mut firsts)?;
    }
    let mut last = None;
    while let Some(&first) = firsts.last() {
        match end_of(disk, places, born, first, &mut opened)? {
            Some(end) => {
                last = Some(end);
                break;
            }
            None => {
                set_aside(disk, places, first, &mut opened)?;
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
    let (mut gaps, gaps_sound) = Gaps::load(disk, places)?;
    let told = gaps.iter().map(|gap| gap.positions.end);
    let seen =
        checkpoints.iter().map(|c| c.position).chain(was.map(|mark| mark.position)).chain(told);
    let seen = seen.max().unwrap_or(0);
    let boot = disk.boot_id();
    let known = was.filter(|mark| mark.position == position && buffer.is_of(boot));
    let (found, erased) = match known.and_then(|mark| buffer.entries_behind(mark)) {
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
        if !range.is_empty() && !gaps.knows(&range) {
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
                torn.extend(missing_in(disk, places, born, first, next)?);
            }
            _ => {}
        }
    }
    torn.extend(last.iter().flat_map(|end| end.damaged.iter().cloned()));
    for range in torn.into_iter().chain(missing) {
        // Below the durable position it cannot be the power that failed.
        let split = durable.clamp(range.start, range.end);
        note(range.start..split, Reason::Damaged);
        note(split..range.end, Reason::Interrupted);
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
        let file = disk.open(&path, Mode::Write).doing("open it", &path)?;
        file.sync().doing("make it durable", &path)?;
    }
    for (i, &first) in firsts.iter().enumerate() {
        let end = firsts.get(i.saturating_add(1)).copied().unwrap_or(position);
        if end > durable || i.saturating_add(1) == firsts.len() {
            let path = places.segment(first);
            let file = disk.open(&path, Mode::Write).doing("open it", &path)?;
            if unsure && end > durable {
                rewrite(&*file, u64::MAX).doing("write it again", &path)?;
            }
            if i.saturating_add(1) == firsts.len() && opened.torn_bytes > 0 {
                let offset = last.as_ref().map_or(0, |end| end.offset);
                file.set_len(offset).doing("cut off its torn end", &path)?;
            }
            file.sync().doing("make it durable", &path)?;
        }
    }
    for dir in [places.segments(), places.dir.clone()] {
        disk.sync_dir(&dir).doing("make new names in it durable", &dir)?;
    }

    let (ring, tail) = found.unwrap_or_default();
    // Without entries in between, the segments have come as far as anybody has seen.
    let position = if found.is_some() { position } else { next };
    let mark = Mark {
        ring,
        position,
        segment: firsts.last().copied().unwrap_or(0),
        offset: last.as_ref().map_or(0, |end| end.offset),
    };
    let first = firsts.first().copied().unwrap_or(position);
    buffer.reset(born.id, &Begin { mark, tail, next, first, boot: boot.unwrap_or(u128::MAX) });
    for last in producers(disk, places, born, &firsts, mark.offset, &gaps)? {
        buffer.remember(last.identity, last.end);
    }
    Ok(opened)
}

/// A batch that goes past the buffer counts when its frame is published. If its writer was killed between the
/// two, others may have appended at the same positions since: what counts is in the buffer, and the frame is
/// cut off.
fn drop_overtaken(
    disk: &dyn Disk,
    places: &Places,
    born: &Born,
    buffer: &Buffer,
    mark: Mark,
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
    frame::put_group(&mut group, entry.identity, entry.records);
    if !entry.packed {
        frame::put_varint(&mut group, body.len() as u64);
    }
    group.extend_from_slice(&body);
    let published = |first: u64| first == mark.segment && mark.offset > 0;
    for &first in firsts.iter().filter(|&&first| published(first) || first == mark.position) {
        let mut scan = Scan::open(disk, places, born.id, first)?;
        if published(first) {
            scan = scan.from(mark.offset, mark.position);
        }
        let limit = scan.file_bytes()?;
        let Found::Frame { head, body, .. } = scan.next(limit)? else { continue };
        let mut raw = Vec::new();
        let sound = scan.body(&head, body, &mut raw);
        // A frame from the buffer begins with what is in the buffer.
        if head.first != mark.position || !sound || raw.starts_with(&group) {
            continue;
        }
        let path = places.segment(first);
        if published(first) {
            let file = disk.open(&path, Mode::Write).doing("open it", &path)?;
            file.set_len(mark.offset).doing("cut off its uncounted end", &path)?;
        } else {
            disk.remove(&path).doing("remove it", &path)?;
            firsts.retain(|&other| other != first);
        }
        return Ok(());
    }
    Ok(())
}

/// Where the last segment ends.
struct EndOf {
    position: u64,
    offset: u64,
    /// Positions missing before.
    damaged: Vec<Range<u64>>,
}

/// Scans the last segment; `None` when there is nothing in it that can be used.
fn end_of(
    disk: &dyn Disk,
    places: &Places,
    born: &Born,
    first: u64,
    opened: &mut Opened,
) -> Result<Option<EndOf>> {
    let path = places.segment(first);
    let file: Arc<dyn File> = disk.open(&path, Mode::Read).doing("open it", &path)?.into();
    let head = SegmentHead::read(&*file, &path, born.id, first)?;
    let mut scan = Scan::open(disk, places, born.id, first)?;
    let limit = scan.file_bytes()?;
    let mut frames = 0u64;
    let mut damaged = Vec::new();
    // Behind the last frame that is whole: what follows it may still look like the head of one.
    let mut end = head.as_ref().map_or(0, SegmentHead::frames_offset);
    loop {
        let before = scan.position();
        match scan.next(limit)? {
            Found::Frame { head, offset, .. } => {
                frames = frames.saturating_add(1);
                end = offset.saturating_add(head.frame_bytes());
                if head.first > before {
                    damaged.push(before..head.first);
                }
            }
            Found::Damage { .. } => {}
            Found::End { offset, torn_bytes } => {
                if head.is_none() && frames == 0 {
                    return Ok(None);
                }
                opened.torn_bytes = offset.saturating_add(torn_bytes).saturating_sub(end);
                return Ok(Some(EndOf { position: scan.position(), offset: end, damaged }));
            }
        }
    }
}

/// Positions before `next` of which a segment has no frame.
fn missing_in(
    disk: &dyn Disk,
    places: &Places,
    born: &Born,
    first: u64,
    next: u64,
) -> Result<Vec<Range<u64>>> {
    let mut scan = Scan::open(disk, places, born.id, first)?;
    let limit = scan.file_bytes()?;
    let mut missing = Vec::new();
    loop {
        let before = scan.position();
        match scan.next(limit)? {
            Found::Frame { head, .. } => missing.push(before..head.first),
            Found::Damage { .. } => {}
            Found::End { .. } => {
                missing.push(before..next.max(before));
                missing.retain(|range| !range.is_empty());
                return Ok(missing);
            }
        }
    }
}

/// Takes a last segment that has neither a head nor a frame out of the way: the power failed while it was
/// begun, and then it is empty; or it is damaged all over, and then it is kept for people to look at.
fn set_aside(disk: &dyn Disk, places: &Places, first: u64, opened: &mut Opened) -> Result<()> {
    let path = places.segment(first);
    let file = disk.open(&path, Mode::Read).doing("open it", &path)?;
    let mut bytes = vec![0; 64 << 10];
    let have = file.read_full_at(&mut bytes, 0).doing("read it", &path)?;
    if bytes[..have].iter().all(|&byte| byte == 0) {
        return disk.remove(&path).doing("remove it", &path);
    }
    let dir = places.quarantine();
    disk.create_dir(&dir).doing("create it", &dir)?;
    let name = format!("{first:016x}.seg");
    disk.rename(&path, &dir.join(&name)).doing("move it to the quarantine", &path)?;
    disk.sync_dir(&dir).doing("make a new name in it durable", &dir)?;
    opened
        .damaged_files
        .push(format!("segments/{name}: nothing in it can be read; moved to quarantine/{name}"));
    Ok(())
}

/// The last sequences of producers up to the end of the segments: from the newest head that is sound, and
/// all frames from there on. A head may know of batches that were not durable when the power went, and then
/// are in a gap: those were not accepted after all, and what was accepted before them an older head knows.
pub(crate) fn producers(
    disk: &dyn Disk,
    places: &Places,
    born: &Born,
    firsts: &[u64],
    end: u64,
    gaps: &Gaps,
) -> Result<Vec<LastOf>> {
    let lost = |last: &LastOf| {
        gaps.iter().any(|gap| {
            matches!(gap.reason, Reason::Damaged | Reason::Interrupted)
                && gap.positions.contains(&(last.end.saturating_sub(1)))
        })
    };
    let mut lasts = Vec::new();
    for (i, &first) in firsts.iter().enumerate().rev() {
        let mut scan = Scan::open(disk, places, born.id, first)?;
        let limit = if i.saturating_add(1) == firsts.len() { end } else { scan.file_bytes()? };
        each_record(&mut scan, limit, &mut |_| {}, &mut |record| {
            if let Some(identity) = record.identity {
                let after = record.position.saturating_add(1);
                // Batches are contiguous: only the last record of each matters, and it comes last.
                match lasts.last_mut() {
                    Some(LastOf { identity: last, end }) if *last == identity => *end = after,
                    _ => lasts.push(LastOf { identity, end: after }),
                }
            }
        })?;
        let path = places.segment(first);
        let file = disk.open(&path, Mode::Read).doing("open it", &path)?;
        if let Some(head) = SegmentHead::read(&*file, &path, born.id, first)? {
            let (gone, there): (Vec<_>, Vec<_>) = head.producers.into_iter().partition(lost);
            lasts.extend(there);
            if gone.is_empty() {
                break;
            }
        }
    }
    Ok(lasts)
}
