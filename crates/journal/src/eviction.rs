//! Eviction of segments: those that all subscribers have passed, and those beyond a limit.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::cell::RefCell;
use std::io;

use disk::FileError;

use crate::checkpoint;
use crate::checkpoint::CheckpointSet;
use crate::error::Result;
use crate::flusher::SegmentFlusher;
use crate::gap::{GapBuilder, GapReason, GapSet};
use crate::mapped_journal::MappedJournal;
use crate::segment::for_each_record;
use crate::segment::{ScanItem, SegmentScan};
use crate::settings::LimitPolicy;

/// Segment to be deleted.
#[derive(Clone, Copy, Debug)]
struct EvictedSegment {
    first: u64,
    /// Position after its last record.
    end: u64,
    /// Reason, if a subscriber has not read it.
    reason: Option<GapReason>,
}

impl SegmentFlusher {
    /// Whether eviction could free space for a reader at `position`.
    pub(crate) fn can_free(&self, position: u64) -> bool {
        self.holds_lease && self.retained.get(1).is_some_and(|second| position >= second.first)
    }

    /// Deletes segments that all subscribers have passed or that exceed the age limit.
    pub(crate) fn free(&mut self, mapped: &MappedJournal) -> Result<()> {
        if !self.acquire_lease(mapped)? {
            return Ok(());
        }
        self.free_space_for(mapped, 0)
    }

    /// Deletes segments until `want` bytes fit below the size limit.
    pub(crate) fn free_space_for(&mut self, mapped: &MappedJournal, want: u64) -> Result<()> {
        let limits = mapped.stored_settings.settings.limits;
        let checkpoints = CheckpointSet::read(&*mapped.disk, &mapped.paths)?;
        let (slowest, oldest_pinned) = (
            checkpoints.oldest_position(),
            checkpoints.oldest_pinned().map(|(position, _)| position),
        );
        let may_drop = |end: u64| match limits.on_full {
            LimitPolicy::DropOldest => true,
            // Without subscribers, nothing is deleted: one may be added.
            LimitPolicy::Reject => match (oldest_pinned, slowest) {
                (Some(oldest_pinned), _) => end <= oldest_pinned,
                (None, Some(_)) => true,
                (None, None) => false,
            },
        };
        let mut evicted_segments: Vec<EvictedSegment> = Vec::new();
        let mut bytes = self.retained.iter().map(|kept| kept.bytes).fold(0, u64::saturating_add);
        let is_over = |bytes: u64| {
            limits.bytes_max.is_some_and(|max| want > 0 && bytes.saturating_add(want) > max)
        };
        // The newest segment stays: the next position follows from it.
        for index in 0..self.retained.len().saturating_sub(1) {
            let oldest = self.retained[index];
            let end = self.retained[index.saturating_add(1)].first;
            let reason = if slowest.is_some_and(|slowest| end <= slowest) {
                None
            } else if limits.age_max.is_some() && may_drop(end) && self.is_expired(mapped, index)? {
                Some(GapReason::AgeLimit)
            } else if is_over(bytes) && may_drop(end) {
                Some(GapReason::BytesLimit)
            } else {
                break;
            };
            bytes = bytes.saturating_sub(oldest.bytes);
            evicted_segments.push(EvictedSegment { first: oldest.first, end, reason });
        }
        self.drop_segments(mapped, &evicted_segments, &checkpoints)?;
        match is_over(bytes) {
            true => Err(mapped.full_reason()?.into()),
            false => Ok(()),
        }
    }

    fn is_expired(&mut self, mapped: &MappedJournal, index: usize) -> Result<bool> {
        let Some(age_max) = mapped.stored_settings.settings.limits.age_max else {
            return Ok(false);
        };
        let segment = self.retained[index];
        let newest = match segment.newest {
            Some(newest) => newest,
            None => {
                let mut newest = i64::MIN;
                // The time of unreadable records is unknown.
                if let Ok(mut scan) = SegmentScan::open(
                    &*mapped.disk,
                    &mapped.paths,
                    mapped.stored_settings.id,
                    segment.first,
                ) && let Ok(limit) = scan.file_bytes()
                {
                    while let Ok(found) = scan.next(limit) {
                        match found {
                            ScanItem::Frame { head, .. } => newest = newest.max(head.time_max),
                            ScanItem::Damage { .. } => {}
                            ScanItem::End { .. } => break,
                        }
                    }
                }
                self.retained[index].newest = Some(newest);
                newest
            }
        };
        // A segment without readable times has no age; only the limit in bytes applies.
        Ok(newest != i64::MIN
            && i128::from(mapped.now()).saturating_sub(i128::from(newest))
                > age_max.as_nanos() as i128)
    }

    /// Deletes the oldest segments. Unread records are first recorded as gaps, durably.
    fn drop_segments(
        &mut self,
        mapped: &MappedJournal,
        evicted_segments: &[EvictedSegment],
        checkpoints: &CheckpointSet,
    ) -> Result<()> {
        let (disk, paths) = (&*mapped.disk, &mapped.paths);
        let Some(last) = evicted_segments.last() else { return Ok(()) };
        let slowest = checkpoints.oldest_position();
        // Checkpoints are synced first: after a power loss an older position must not refer to
        // deleted records.
        for checkpoint in &checkpoints.checkpoints {
            checkpoint::sync(disk, paths, &checkpoint.name)?;
        }
        let positions: Vec<u64> = checkpoints.checkpoints.iter().map(|c| c.position).collect();
        let (mut gaps, _) = GapSet::load(disk, paths)?;
        let mut changed = gaps.prune_before(slowest.unwrap_or(u64::MAX).min(mapped.buffer.first()));
        for &EvictedSegment { first, end, reason } in evicted_segments {
            let Some(reason) = reason else { continue };
            let missed_range = slowest.map_or(first, |slowest| slowest.max(first))..end;
            gaps.add(
                summarize_gap(mapped, first, missed_range.start).gap(missed_range, reason),
                &positions,
            );
            changed = true;
        }
        if changed {
            gaps.save(disk, paths)?;
        }
        // From here on no reader can start there; readers that did so before are detected below.
        let before = mapped.buffer.first();
        mapped.buffer.set_first(last.end);
        let now = CheckpointSet::read(disk, paths)?.oldest_position();
        if now.is_some_and(|now| now < last.end && slowest.is_none_or(|slowest| now < slowest)) {
            mapped.buffer.set_first(before);
            return Ok(());
        }
        for &EvictedSegment { first, .. } in evicted_segments {
            let path = paths.segment(first);
            match disk.remove(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(FileError::new("remove", &path, error).into());
                }
                _ => {}
            }
            // Only after the deletion: while the file exists, its records count as durable.
            self.pending_files.retain(|(unsynced, _)| *unsynced != path);
            self.retained.remove(0);
        }
        self.is_dir_dirty = true;
        Ok(())
    }
}

/// Producers of the records of a segment from a position on, as far as readable: an unreadable
/// segment must not block eviction forever.
fn summarize_gap(mapped: &MappedJournal, first: u64, from: u64) -> GapBuilder {
    let tally = RefCell::new(GapBuilder::default());
    let scan = SegmentScan::open(&*mapped.disk, &mapped.paths, mapped.stored_settings.id, first);
    let _ = scan.and_then(|mut scan| {
        let limit = scan.file_bytes()?;
        for_each_record(
            &mut scan,
            limit,
            &mut |head| {
                if head.positions().end > from {
                    let is_complete = head.first >= from;
                    tally.borrow_mut().frame(head.time_min, head.time_max, is_complete);
                }
            },
            &mut |record| {
                if record.position >= from {
                    tally.borrow_mut().record(record.identity);
                }
            },
        )
    });
    tally.into_inner()
}
