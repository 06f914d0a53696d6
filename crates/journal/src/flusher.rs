//! Flusher: moves entries from the buffer to segments, fsyncs, deletes segments; one process at a
//! time holds the lease. One process has the role at a time, by a lock; another takes it over when
//! it ends, however it ends, or asks for it.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use disk::{File, OpenMode};

use crate::buffer::{FAIL_STOP, FULL, FlushMark};
use crate::codec::Compressor;
use crate::error::{Error, FullReason, IoContext, Result};
use crate::frame::{self, FrameBody};
use crate::gap::GapSet;
use crate::handle_locks;
use crate::layout::{FRAME_ALIGN, FRAME_BYTES, PRODUCER_BYTES};
use crate::level::BatchIdentity;
use crate::origin::fair_order;
use crate::recovery;
use crate::segment::{self, ProducerState, SegmentHeader, is_no_space, rewrite};
use crate::shared::JournalShared;

/// Raw bytes in a frame, unless one batch alone has more. Compression gains little beyond, and a
/// reader holds one frame in memory; what damage destroys at once is a frame, too.
const FRAME_RAW_BYTES: usize = 128 << 10;

/// Segment being written (active segment).
struct ActiveSegment {
    file: Arc<dyn File>,
    path: PathBuf,
    first: u64,
    salt: u32,
    offset: u64,
    /// Frames may be written up to here.
    limit: u64,
}

/// Retained segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RetainedSegment {
    pub(crate) first: u64,
    pub(crate) bytes: u64,
    /// When its newest record was appended; found when the age limit asks.
    pub(crate) newest: Option<i64>,
}

/// Files and directory still to be fsynced.
pub(crate) struct PendingSync {
    files: Vec<(PathBuf, Arc<dyn File>)>,
    is_dir_dirty: bool,
    /// The durable position once it is done.
    up_to: u64,
}

pub(crate) struct SegmentFlusher {
    lease_file: Box<dyn File>,
    pub(crate) holds_lease: bool,
    /// How the journal was when this one gave the role up: the mark and the first position. As long
    /// as nobody has done anything since, all that is known here is right.
    released_at: Option<(FlushMark, u64)>,
    compressor: Compressor,
    active: Option<ActiveSegment>,
    /// Segments from the oldest on, the one being written last.
    pub(crate) retained: Vec<RetainedSegment>,
    /// Full segments and others to be synchronised, besides the one being written.
    pub(crate) pending_files: Vec<(PathBuf, Arc<dyn File>)>,
    /// The one being written has something to be synchronised.
    is_dirty: bool,
    /// Names of segments were made that may not be durable.
    pub(crate) is_dir_dirty: bool,
    /// What is in segments: the table for the next one's head.
    producers: HashMap<(u64, u64), ProducerState>,
    raw: Vec<u8>,
    entry: Vec<u8>,
    frame: Vec<u8>,
}

/// Result of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlushOutcome {
    /// The buffer was found empty.
    Drained,
    /// Another process has the role.
    NotOwner,
}

impl SegmentFlusher {
    pub(crate) fn new(store: &JournalShared) -> Result<SegmentFlusher> {
        let compressor = Compressor::new(store.stored_settings.settings.codec);
        Ok(SegmentFlusher {
            lease_file: handle_locks::open(&*store.disk, &store.paths, "flusher")?,
            holds_lease: false,
            released_at: None,
            compressor: compressor.io_context("prepare compression for it", &store.paths.dir)?,
            active: None,
            retained: Vec::new(),
            pending_files: Vec::new(),
            is_dirty: false,
            is_dir_dirty: false,
            producers: HashMap::new(),
            raw: Vec::new(),
            entry: Vec::new(),
            frame: Vec::new(),
        })
    }

    pub(crate) fn holds_lease(&self) -> bool {
        self.holds_lease
    }

    /// Takes back what could not be synchronised for a reason that lost nothing.
    pub(crate) fn requeue_unsynced(&mut self, unsynced: PendingSync) {
        self.pending_files.extend(unsynced.files);
        self.is_dir_dirty |= unsynced.is_dir_dirty;
    }

    /// Has the role or takes it if it is free.
    pub(crate) fn acquire_lease(&mut self, store: &JournalShared) -> Result<bool> {
        if !self.holds_lease {
            if !self.lease_file.try_lock().io_context("lock it", &store.paths.lock("flusher"))? {
                return Ok(false);
            }
            // What the one before began and did not publish is still in the buffer.
            let known = self.is_unchanged_since_release(store);
            if let Err(error) = known
                .and_then(|known| if known { Ok(()) } else { self.load_published_state(store) })
            {
                let _ = self.lease_file.unlock();
                return Err(error);
            }
            self.holds_lease = true;
        }
        Ok(true)
    }

    /// Moves all that is in the buffer to segments.
    pub(crate) fn drain(&mut self, store: &JournalShared) -> Result<FlushOutcome> {
        if !self.acquire_lease(store)? {
            return Ok(FlushOutcome::NotOwner);
        }
        if store.buffer.state() & FAIL_STOP != 0 {
            return Err(Error::Poisoned);
        }
        // What is there now: with appenders that are as fast as this, more would always come.
        let (goal, next) = store.buffer.end();
        loop {
            let mark = store.buffer.mark();
            if mark.ring >= goal {
                if mark.position < next {
                    store.lock_append()?.discard_lost();
                }
                store.buffer.clear_state(FULL);
                return Ok(FlushOutcome::Drained);
            }
            self.write_frame(store, mark, goal)?;
        }
    }

    /// Writes one frame of entries that follow `mark`.
    fn write_frame(&mut self, store: &JournalShared, mark: FlushMark, tail: u64) -> Result<()> {
        let quarter = (store.buffer.ring_bytes() / 4) as usize;
        // A segment must hold it, whatever its last batch and the table of producers have.
        let most = FRAME_RAW_BYTES.min(store.stored_settings.settings.segment_bytes as usize / 4);
        let enough = most.min(quarter.max(1));
        self.raw.clear();
        let mut content: Option<FrameBody> = None;
        let mut batches: Vec<ProducerState> = Vec::new();
        let mut at = mark.ring;
        while at < tail && self.raw.len() < enough {
            self.entry.clear();
            let Some(entry) = store.buffer.ring().entry(at, tail, &mut self.entry) else {
                // No entry begins here: memory that all processes can write was damaged. The next
                // sound one has a later position, which readers see as a gap.
                at = at.wrapping_add(1);
                continue;
            };
            let content = content.get_or_insert(FrameBody {
                first: entry.first,
                records: 0,
                time_min: entry.time,
                time_max: entry.time,
            });
            let records = content.records.checked_add(entry.records);
            let Some(records) = records.filter(|_| entry.first == content.end()) else { break };
            content.records = records;
            content.time_min = content.time_min.min(entry.time);
            content.time_max = content.time_max.max(entry.time);
            frame::encode_group(&mut self.raw, entry.identity, entry.records);
            if !entry.is_packed {
                frame::put_varint(&mut self.raw, self.entry.len() as u64);
            }
            self.raw.extend_from_slice(&self.entry);
            batches.extend(
                entry.identity.map(|identity| ProducerState { identity, end: entry.end() }),
            );
            at = at.wrapping_add(entry.words);
        }
        let mark = match content {
            Some(content) => self.put_frame(store, mark, content)?,
            None => mark,
        };
        store.supervisor.fault_point("journal frame");
        match store.lock_append() {
            Ok(turn) => store.buffer.publish(FlushMark { ring: at, ..mark }, turn),
            Err(error) => {
                // Whoever has the role next begins at what is published.
                self.release_lease(store);
                return Err(error);
            }
        }
        for last in batches {
            self.record_producer(store, last);
        }
        Ok(())
    }

    /// Writes what is in `raw` as a frame; where the next one goes, not published yet.
    fn put_frame(
        &mut self,
        store: &JournalShared,
        mark: FlushMark,
        content: FrameBody,
    ) -> Result<FlushMark> {
        self.ensure_segment_space(store, self.raw.len(), content.first)?;
        let Some(writing) = self.active.as_mut() else {
            unreachable!("BUG: there is no segment after one was begun")
        };
        self.frame.clear();
        frame::encode_frame(
            &mut self.frame,
            content,
            &self.raw,
            &mut self.compressor,
            writing.salt,
        );
        match writing.file.write_all_at(&self.frame, writing.offset) {
            Ok(()) => {}
            Err(error) if is_no_space(&error) => {
                // Only where space cannot be reserved. Nothing was counted: it is tried again.
                store.buffer.set_state(FULL);
                return Err(FullReason::NoSpace.into());
            }
            Err(error) => {
                store.buffer.set_state(FAIL_STOP);
                return Err(error).io_context("write to it", &writing.path);
            }
        }
        self.is_dirty = true;
        writing.offset = writing.offset.saturating_add(self.frame.len() as u64);
        Ok(FlushMark {
            position: content.end(),
            segment: writing.first,
            offset: writing.offset,
            ..mark
        })
    }

    /// Begins another segment, unless a frame with so many raw bytes fits the present one.
    /// Compression never makes it larger.
    fn ensure_segment_space(
        &mut self,
        store: &JournalShared,
        raw_bytes: usize,
        first: u64,
    ) -> Result<()> {
        // What does not fit 64 bits fits no segment.
        let bytes = (FRAME_BYTES as u64).checked_add(raw_bytes as u64);
        let room = bytes.and_then(|bytes| bytes.checked_next_multiple_of(FRAME_ALIGN));
        match (&self.active, room) {
            (Some(writing), Some(room)) if writing.offset.saturating_add(room) <= writing.limit => {
                Ok(())
            }
            _ => self.roll_segment(store, first),
        }
    }

    /// Writes a batch that is too large for the buffer straight to a segment; `group` is its
    /// records with their lengths.
    pub(crate) fn write_direct(
        &mut self,
        store: &JournalShared,
        identity: Option<BatchIdentity>,
        records: u32,
        group: &[u8],
    ) -> Result<DirectAppend> {
        loop {
            if self.drain(store)? == FlushOutcome::NotOwner {
                return Ok(DirectAppend::NotOwner);
            }
            // Beginning a segment can take long: not with the lock that all appends need.
            let most = group.len().saturating_add(frame::GROUP_HEADER_BYTES_MAX);
            self.ensure_segment_space(store, most, store.buffer.mark().position)?;
            let turn = store.lock_append()?;
            if let Some(end) = turn.duplicate_end(identity) {
                return Ok(DirectAppend::Duplicate(end));
            }
            if !turn.is_empty() {
                continue;
            }
            let (_, first) = store.buffer.end();
            let now = store.now();
            self.raw.clear();
            frame::encode_group(&mut self.raw, identity, records);
            self.raw.extend_from_slice(group);
            let content = FrameBody { first, records, time_min: now, time_max: now };
            let mark = self.put_frame(store, store.buffer.mark(), content)?;
            turn.commit_direct(identity, mark);
            drop(turn);
            if let Some(identity) = identity {
                self.record_producer(store, ProducerState { identity, end: mark.position });
            }
            store.buffer.wake_readers_of_direct();
            return Ok(DirectAppend::At(first));
        }
    }

    fn record_producer(&mut self, store: &JournalShared, last: ProducerState) {
        let key = (last.identity.producer, last.identity.epoch);
        let known = self.producers.entry(key).or_insert(last);
        if known.identity.sequence <= last.identity.sequence {
            *known = last;
        }
        // Twice as many as are kept, so that forgetting is rare.
        let most = store.stored_settings.settings.producers_max as usize;
        if self.producers.len() > most.saturating_mul(2) {
            let keep = newest(self.producers.values().copied(), most);
            self.producers = keep
                .into_iter()
                .map(|last| ((last.identity.producer, last.identity.epoch), last))
                .collect();
        }
    }

    // ----
    // segments --------------------------------------------------------------------------------------

    /// Ends the segment being written and begins another.
    fn roll_segment(&mut self, store: &JournalShared, first: u64) -> Result<()> {
        let size = store.stored_settings.settings.segment_bytes;
        if let Err(error) = self.free_space_for(store, size) {
            if let Error::Full(_) = error {
                store.buffer.set_state(FULL);
            }
            return Err(error);
        }
        self.end_segment();
        // The table must leave room for the largest batch.
        let most = (store.stored_settings.settings.producers_max as usize)
            .min(size as usize / 4 / PRODUCER_BYTES);
        let head = SegmentHeader {
            journal_id: store.stored_settings.id,
            first,
            created: store.now(),
            producers: newest(self.producers.values().copied(), most),
        };
        let path = store.paths.segment(first);
        let begun = store.disk.open(&path, OpenMode::Create).and_then(|file| {
            file.set_len(0)?;
            file.allocate(size)?;
            file.write_all_at(&head.encode(), 0)?;
            Ok(file)
        });
        let file = match begun {
            Ok(file) => file,
            Err(error) => {
                // Nothing in it counts yet.
                let _ = store.disk.remove(&path);
                if is_no_space(&error) {
                    store.buffer.set_state(FULL);
                    return Err(FullReason::NoSpace.into());
                }
                return Err(error).io_context("begin it", &path);
            }
        };
        self.is_dir_dirty = true;
        self.is_dirty = true;
        // One that was begun and has no frame, nor room for one, is begun again under the same
        // name.
        self.retained.pop_if(|last| last.first == first);
        self.retained.push(RetainedSegment { first, bytes: size, newest: None });
        self.active = Some(ActiveSegment {
            file: file.into(),
            path,
            first,
            salt: frame::salt(store.stored_settings.id, first),
            offset: head.frames_offset(),
            limit: size,
        });
        Ok(())
    }

    fn end_segment(&mut self) {
        if let Some(writing) = self.active.take() {
            // What was reserved and not used goes back. It is no harm if it does not: readers find
            // zeros.
            if writing.file.set_len(writing.offset).is_ok()
                && let Some(last) = self.retained.last_mut()
            {
                last.bytes = writing.offset;
            }
            self.pending_files.push((writing.path, writing.file));
            self.is_dirty = false;
        }
    }

    /// Begins to use the journal as it is published: what lies behind the mark was not counted and
    /// is cut off, and what was not synchronised is noted for the next sync.
    fn load_published_state(&mut self, store: &JournalShared) -> Result<()> {
        let mark = store.buffer.mark();
        let durable = store.buffer.durable();
        (self.active, self.is_dirty, self.is_dir_dirty) = (None, false, true);
        (self.retained, self.pending_files, self.producers) =
            (Vec::new(), Vec::new(), HashMap::new());
        let firsts = segment::list(&*store.disk, &store.paths)?;
        for (i, &first) in firsts.iter().enumerate() {
            let path = store.paths.segment(first);
            let file: Arc<dyn File> =
                store.disk.open(&path, OpenMode::Write).io_context("open it", &path)?.into();
            if mark.offset == 0 || first > mark.segment {
                // Begun, and nothing in it was counted.
                store.disk.remove(&path).io_context("remove it", &path)?;
                continue;
            }
            let writing = first == mark.segment;
            let end = if writing {
                mark.position
            } else {
                firsts.get(i.saturating_add(1)).copied().unwrap_or(mark.position)
            };
            if end > durable {
                if store.buffer.is_syncing() {
                    rewrite(&*file, if writing { mark.offset } else { u64::MAX })
                        .io_context("write it again", &path)?;
                }
                self.pending_files.push((path.clone(), Arc::clone(&file)));
            }
            let mut bytes = file.len().io_context("ask for its length", &path)?;
            if writing {
                let size = store.stored_settings.settings.segment_bytes;
                file.set_len(mark.offset).io_context("cut off its uncounted end", &path)?;
                // Without space it has none behind the mark, and the next frame begins another
                // segment.
                let limit =
                    if file.allocate(size).is_ok() { size.max(mark.offset) } else { mark.offset };
                bytes = limit;
                let salt = frame::salt(store.stored_settings.id, first);
                self.active =
                    Some(ActiveSegment { file, path, first, salt, offset: mark.offset, limit });
            }
            self.retained.push(RetainedSegment { first, bytes, newest: None });
        }
        let firsts: Vec<u64> = self.retained.iter().map(|kept| kept.first).collect();
        let (disk, places) = (&*store.disk, &store.paths);
        let (gaps, _) = GapSet::load(disk, places)?;
        let lasts = recovery::recover_producers(
            disk,
            places,
            &store.stored_settings,
            &firsts,
            mark.offset,
            &gaps,
        )?;
        // A batch that went past the buffer may have been published by one who died before it was
        // noted.
        let turn = store.lock_append()?;
        lasts.iter().for_each(|last| store.buffer.sequences().record(last.identity, last.end));
        drop(turn);
        for last in lasts {
            self.record_producer(store, last);
        }
        Ok(())
    }

    /// Gives back what is reserved and not used: a journal that nobody has open takes what it
    /// holds.
    pub(crate) fn truncate_reservation(&mut self) {
        if let Some(writing) = self.active.as_mut().filter(|_| self.holds_lease) {
            // If it fails, it takes more, that is all.
            if writing.file.set_len(writing.offset).is_ok() {
                writing.limit = writing.offset;
            }
        }
    }

    /// Lets another process have the role; false when this one does not have it.
    pub(crate) fn release_lease(&mut self, store: &JournalShared) -> bool {
        if !std::mem::take(&mut self.holds_lease) {
            return false;
        }
        let mark = store.buffer.mark();
        // Unless something was begun and not published.
        let published = self.active.as_ref().map(|writing| (writing.first, writing.offset));
        self.released_at =
            (published == Some((mark.segment, mark.offset))).then(|| (mark, store.buffer.first()));
        // What is not synchronised yet the next one finds by the durable position.
        self.lease_file.unlock().is_ok()
    }

    /// Gives the role up, and all that is known here with it: whoever has it next finds it out
    /// anew.
    pub(crate) fn drop_lease_state(&mut self, store: &JournalShared) {
        self.release_lease(store);
        self.released_at = None;
    }

    /// Whether nobody else has done anything since the role was given up. A segment that was begun
    /// and not counted is a new name.
    fn is_unchanged_since_release(&mut self, store: &JournalShared) -> Result<bool> {
        if self.released_at.take() != Some((store.buffer.mark(), store.buffer.first())) {
            return Ok(false);
        }
        let firsts = segment::list(&*store.disk, &store.paths)?;
        Ok(firsts.iter().eq(self.retained.iter().map(|kept| &kept.first)))
    }

    // ----
    // synchronising ---------------------------------------------------------------------------------

    /// What a sync has to do for all that is flushed now. It is done without the flusher, which
    /// goes on.
    pub(crate) fn pending_sync(&mut self, store: &JournalShared) -> PendingSync {
        let mut files = std::mem::take(&mut self.pending_files);
        if let Some(writing) = self.active.as_ref().filter(|_| self.is_dirty) {
            files.push((writing.path.clone(), Arc::clone(&writing.file)));
        }
        self.is_dirty = false;
        PendingSync {
            files,
            is_dir_dirty: std::mem::take(&mut self.is_dir_dirty),
            up_to: store.buffer.mark().position,
        }
    }
}

/// Result of an append that bypasses the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DirectAppend {
    At(u64),
    Duplicate(u64),
    NotOwner,
}

impl PendingSync {
    /// Synchronises; the position up to which everything is durable then.
    pub(crate) fn sync(&self, store: &JournalShared) -> Result<u64> {
        store.buffer.set_syncing(true);
        for (path, file) in &self.files {
            file.sync().io_context("make it durable", path)?;
        }
        if self.is_dir_dirty {
            let dir = store.paths.segments();
            store.disk.sync_dir(&dir).io_context("make new names in it durable", &dir)?;
        }
        store.buffer.set_syncing(false);
        Ok(self.up_to)
    }
}

/// The entries accepted last, at most so many and of each origin about as many, in a fixed order.
fn newest(lasts: impl Iterator<Item = ProducerState>, most: usize) -> Vec<ProducerState> {
    let entry = |last: ProducerState| (last.identity.origin(), last.end, last);
    let mut lasts = fair_order(lasts.map(entry).collect());
    lasts.truncate(most);
    lasts.sort_unstable_by_key(|last| last.identity);
    lasts
}
