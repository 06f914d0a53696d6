//! Flusher: moves entries from the buffer to segments, fsyncs and deletes segments. One process at
//! a time holds the flusher lease, a file lock; another process takes it over when the owner ends,
//! in whatever way, or on request.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use disk::{File, FileError, IoContext, OpenMode};

use crate::buffer::{FAIL_STOP, FULL, FlushMark};
use crate::compression::Compressor;
use crate::error::{Error, FullReason, Result};
use crate::frame::{self, FrameBody};
use crate::gap::GapSet;
use crate::handle_locks;
use crate::layout::{FRAME_ALIGN, FRAME_BYTES, PRODUCER_BYTES};
use crate::level::BatchIdentity;
use crate::mapped_journal::MappedJournal;
use crate::origin::fair_order;
use crate::recovery;
use crate::segment::{self, ProducerEntry, SegmentHeader, is_no_space, rewrite};

/// Maximum uncompressed bytes of a frame, unless a single batch is larger. Larger frames compress
/// little better, a reader holds one frame in memory, and one corruption destroys one frame.
const FRAME_RAW_BYTES: usize = 128 << 10;

/// Segment being written (active segment).
struct ActiveSegment {
    file: Arc<dyn File>,
    path: PathBuf,
    first: u64,
    salt: u32,
    offset: u64,
    /// Frames may be written up to this offset.
    limit: u64,
}

/// Retained segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RetainedSegment {
    pub(crate) first: u64,
    pub(crate) bytes: u64,
    /// Append time of its newest record; computed when the age limit needs it.
    pub(crate) newest: Option<i64>,
}

/// Files and directory still to be fsynced.
pub(crate) struct PendingSync {
    files: Vec<(PathBuf, Arc<dyn File>)>,
    is_dir_dirty: bool,
    /// Durable position after the sync.
    up_to: u64,
}

pub(crate) struct SegmentFlusher {
    lease_file: Box<dyn File>,
    pub(crate) holds_lease: bool,
    /// State at the release of the lease: mark and first position. While both are unchanged, the
    /// cached state is valid.
    released_at: Option<(FlushMark, u64)>,
    compressor: Compressor,
    active: Option<ActiveSegment>,
    /// Segments, oldest first; the last is the active one.
    pub(crate) retained: Vec<RetainedSegment>,
    /// Files to be fsynced, besides the active segment.
    pub(crate) pending_files: Vec<(PathBuf, Arc<dyn File>)>,
    /// The active segment has unsynced data.
    is_dirty: bool,
    /// The directory has unsynced entries.
    pub(crate) is_dir_dirty: bool,
    /// Producer table of flushed records, for the header of the next segment.
    producers: HashMap<(u64, u64), ProducerEntry>,
    raw: Vec<u8>,
    entry: Vec<u8>,
    frame: Vec<u8>,
}

/// Result of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlushOutcome {
    /// The buffer was empty at the end.
    Drained,
    /// Another process holds the lease.
    NotOwner,
}

impl SegmentFlusher {
    pub(crate) fn new(mapped: &MappedJournal) -> Result<SegmentFlusher> {
        let compressor = Compressor::new(mapped.stored_settings.settings.compression);
        Ok(SegmentFlusher {
            lease_file: handle_locks::open(&*mapped.disk, &mapped.paths, "flusher")?,
            holds_lease: false,
            released_at: None,
            compressor: compressor.io_context("set up compression for", &mapped.paths.dir)?,
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

    /// Requeues files whose sync failed without losing data.
    pub(crate) fn requeue_unsynced(&mut self, unsynced: PendingSync) {
        self.pending_files.extend(unsynced.files);
        self.is_dir_dirty |= unsynced.is_dir_dirty;
    }

    /// Returns whether this process holds the lease, acquiring it if it is free.
    pub(crate) fn acquire_lease(&mut self, mapped: &MappedJournal) -> Result<bool> {
        if !self.holds_lease {
            if !self.lease_file.try_lock().io_context("lock", &mapped.paths.lock("flusher"))? {
                return Ok(false);
            }
            // Unpublished work of the previous owner is still in the buffer.
            let known = self.is_unchanged_since_release(mapped);
            if let Err(error) = known
                .and_then(|known| if known { Ok(()) } else { self.load_published_state(mapped) })
            {
                let _ = self.lease_file.unlock();
                return Err(error);
            }
            self.holds_lease = true;
        }
        Ok(true)
    }

    /// Moves all buffered entries to segments.
    pub(crate) fn drain(&mut self, mapped: &MappedJournal) -> Result<FlushOutcome> {
        if !self.acquire_lease(mapped)? {
            return Ok(FlushOutcome::NotOwner);
        }
        if mapped.buffer.state() & FAIL_STOP != 0 {
            return Err(Error::FailStop);
        }
        // The end as of now: concurrent appenders could keep the loop running forever.
        let (goal, next) = mapped.buffer.end();
        loop {
            let mark = mapped.buffer.mark();
            if mark.ring >= goal {
                if mark.position < next {
                    mapped.lock_append()?.discard_lost();
                }
                // An empty buffer is no space: the next frame needs a segment.
                if mapped.buffer.state() & FULL != 0
                    && self.ensure_segment_space(mapped, 0, mark.position).is_ok()
                {
                    mapped.buffer.clear_state(FULL);
                }
                return Ok(FlushOutcome::Drained);
            }
            self.write_frame(mapped, mark, goal)?;
        }
    }

    /// Writes one frame of the entries that follow `mark`.
    fn write_frame(&mut self, mapped: &MappedJournal, mark: FlushMark, tail: u64) -> Result<()> {
        let quarter = (mapped.buffer.ring_bytes() / 4) as usize;
        // A segment must hold the frame together with its producer table.
        let most = FRAME_RAW_BYTES.min(mapped.stored_settings.settings.segment_bytes as usize / 4);
        let enough = most.min(quarter.max(1));
        self.raw.clear();
        let mut content: Option<FrameBody> = None;
        let mut batches: Vec<ProducerEntry> = Vec::new();
        let mut at = mark.ring;
        while at < tail && self.raw.len() < enough {
            self.entry.clear();
            let Some(entry) = mapped.buffer.ring().entry(at, tail, &mut self.entry) else {
                // No valid entry: shared memory was corrupted. The next valid entry has a later
                // position, which readers see as a gap.
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
            frame::encode_batch_header(&mut self.raw, entry.identity, entry.records);
            if !entry.is_packed {
                frame::put_varint(&mut self.raw, self.entry.len() as u64);
            }
            self.raw.extend_from_slice(&self.entry);
            batches.extend(
                entry.identity.map(|identity| ProducerEntry { identity, end: entry.end() }),
            );
            at = at.wrapping_add(entry.words);
        }
        let mark = match content {
            Some(content) => self.put_frame(mapped, mark, content)?,
            None => mark,
        };
        mapped.supervisor.failpoint("journal frame");
        match mapped.lock_append() {
            Ok(guard) => mapped.buffer.publish(FlushMark { ring: at, ..mark }, guard),
            Err(error) => {
                // The next owner starts from the published mark.
                self.release_lease(mapped);
                return Err(error);
            }
        }
        for last in batches {
            self.record_producer(mapped, last);
        }
        Ok(())
    }

    /// Writes `raw` as a frame; returns the unpublished offset of the next one.
    fn put_frame(
        &mut self,
        mapped: &MappedJournal,
        mark: FlushMark,
        content: FrameBody,
    ) -> Result<FlushMark> {
        self.ensure_segment_space(mapped, self.raw.len(), content.first)?;
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
                // Reached only where space cannot be reserved. Nothing was published: retry.
                mapped.buffer.set_state(FULL);
                return Err(FullReason::NoSpace.into());
            }
            Err(error) => {
                mapped.buffer.set_state(FAIL_STOP);
                return Err(FileError::new("write to", &writing.path, error).into());
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

    /// Starts a new segment unless a frame with `raw_bytes` fits the active one. Compression never
    /// enlarges a frame.
    fn ensure_segment_space(
        &mut self,
        mapped: &MappedJournal,
        raw_bytes: usize,
        first: u64,
    ) -> Result<()> {
        // Overflow of 64 bits fits no segment.
        let bytes = (FRAME_BYTES as u64).checked_add(raw_bytes as u64);
        let room = bytes.and_then(|bytes| bytes.checked_next_multiple_of(FRAME_ALIGN));
        match (&self.active, room) {
            (Some(writing), Some(room)) if writing.offset.saturating_add(room) <= writing.limit => {
                Ok(())
            }
            (_, room) => self.roll_segment(mapped, first, room.unwrap_or(u64::MAX)),
        }
    }

    /// Creates the first segment, so that an append finds space for it.
    pub(crate) fn reserve_first_segment(&mut self, mapped: &MappedJournal) -> Result<()> {
        if !self.acquire_lease(mapped)? || !self.retained.is_empty() {
            return Ok(());
        }
        let mark = mapped.buffer.mark();
        self.ensure_segment_space(mapped, 0, mark.position)
    }

    /// Writes a batch that is larger than the buffer directly to a segment; `body` is its records
    /// with their lengths.
    pub(crate) fn write_direct(
        &mut self,
        mapped: &MappedJournal,
        identity: Option<BatchIdentity>,
        records: u32,
        body: &[u8],
    ) -> Result<DirectAppend> {
        loop {
            if self.drain(mapped)? == FlushOutcome::NotOwner {
                return Ok(DirectAppend::NotOwner);
            }
            // Starting a segment can be slow: without the append lock.
            let most = body.len().saturating_add(frame::BATCH_HEADER_BYTES_MAX);
            self.ensure_segment_space(mapped, most, mapped.buffer.mark().position)?;
            let guard = mapped.lock_append()?;
            if let Some(end) = guard.duplicate_end(identity) {
                return Ok(DirectAppend::Duplicate(end));
            }
            if !guard.is_empty() {
                continue;
            }
            let (_, first) = mapped.buffer.end();
            let now = mapped.now();
            self.raw.clear();
            frame::encode_batch_header(&mut self.raw, identity, records);
            self.raw.extend_from_slice(body);
            let content = FrameBody { first, records, time_min: now, time_max: now };
            let mark = self.put_frame(mapped, mapped.buffer.mark(), content)?;
            guard.commit_direct(identity, mark);
            drop(guard);
            if let Some(identity) = identity {
                self.record_producer(mapped, ProducerEntry { identity, end: mark.position });
            }
            mapped.buffer.wake_readers_of_direct();
            return Ok(DirectAppend::At(first));
        }
    }

    fn record_producer(&mut self, mapped: &MappedJournal, last: ProducerEntry) {
        let key = (last.identity.producer, last.identity.epoch);
        let known = self.producers.entry(key).or_insert(last);
        if known.identity.sequence <= last.identity.sequence {
            *known = last;
        }
        // Twice the retained number, so that pruning is rare.
        let most = mapped.stored_settings.settings.dedup_producers as usize;
        if self.producers.len() > most.saturating_mul(2) {
            let keep = newest(self.producers.values().copied(), most);
            self.producers = keep
                .into_iter()
                .map(|last| ((last.identity.producer, last.identity.epoch), last))
                .collect();
        }
    }

    // ---- segments ----

    /// Closes the active segment and starts another, with at least `room` bytes for frames.
    fn roll_segment(&mut self, mapped: &MappedJournal, first: u64, room: u64) -> Result<()> {
        let size = mapped.stored_settings.settings.segment_bytes;
        if let Err(error) = self.free_space_for(mapped, size) {
            if let Error::Full(_) = error {
                mapped.buffer.set_state(FULL);
            }
            return Err(error);
        }
        self.end_segment();
        // The table must leave space for the largest batch.
        let most = (mapped.stored_settings.settings.dedup_producers as usize)
            .min(size as usize / 4 / PRODUCER_BYTES);
        let head = SegmentHeader {
            journal_id: mapped.stored_settings.id,
            first,
            created: mapped.now(),
            producers: newest(self.producers.values().copied(), most),
        };
        let path = mapped.paths.segment(first);
        let least = head.frames_offset().saturating_add(room);
        let created = mapped.disk.open(&path, OpenMode::Create).and_then(|file| {
            let size = segment::reserve_space(&*file, size, least)?;
            file.write_all_at(&head.encode(), 0)?;
            Ok((file, size))
        });
        let (file, size) = match created {
            Ok(created) => created,
            Err(error) => {
                // It holds nothing published.
                let _ = mapped.disk.remove(&path);
                if is_no_space(&error) {
                    mapped.buffer.set_state(FULL);
                    return Err(FullReason::NoSpace.into());
                }
                return Err(FileError::new("create", &path, error).into());
            }
        };
        self.is_dir_dirty = true;
        self.is_dirty = true;
        // A segment without frames that is too small is recreated under the same name.
        self.retained.pop_if(|last| last.first == first);
        self.retained.push(RetainedSegment { first, bytes: size, newest: None });
        self.active = Some(ActiveSegment {
            file: file.into(),
            path,
            first,
            salt: frame::salt(mapped.stored_settings.id, first),
            offset: head.frames_offset(),
            limit: size,
        });
        Ok(())
    }

    fn end_segment(&mut self) {
        if let Some(writing) = self.active.take() {
            // Releases unused reserved space. Failure is harmless: readers find zeros.
            if writing.file.set_len(writing.offset).is_ok()
                && let Some(last) = self.retained.last_mut()
            {
                last.bytes = writing.offset;
            }
            self.pending_files.push((writing.path, writing.file));
            self.is_dirty = false;
        }
    }

    /// Loads the published state: bytes after the mark were not published and are truncated, and
    /// unsynced files are queued.
    fn load_published_state(&mut self, mapped: &MappedJournal) -> Result<()> {
        let mark = mapped.buffer.mark();
        let durable = mapped.buffer.durable();
        (self.active, self.is_dirty, self.is_dir_dirty) = (None, false, true);
        (self.retained, self.pending_files, self.producers) =
            (Vec::new(), Vec::new(), HashMap::new());
        let firsts = segment::list(&*mapped.disk, &mapped.paths)?;
        for (i, &first) in firsts.iter().enumerate() {
            let path = mapped.paths.segment(first);
            let file: Arc<dyn File> =
                mapped.disk.open(&path, OpenMode::Write).io_context("open", &path)?.into();
            if mark.offset == 0 || first > mark.segment {
                // Created, with nothing published.
                mapped.disk.remove(&path).io_context("remove", &path)?;
                continue;
            }
            let writing = first == mark.segment;
            let end = if writing {
                mark.position
            } else {
                firsts.get(i.saturating_add(1)).copied().unwrap_or(mark.position)
            };
            if end > durable {
                if mapped.buffer.is_syncing() {
                    rewrite(&*file, if writing { mark.offset } else { u64::MAX })
                        .io_context("rewrite", &path)?;
                }
                self.pending_files.push((path.clone(), Arc::clone(&file)));
            }
            let mut bytes = file.len().io_context("get the length of", &path)?;
            if writing {
                let size = mapped.stored_settings.settings.segment_bytes;
                file.set_len(mark.offset).io_context("truncate the unpublished tail of", &path)?;
                // Without reservable space there is none after the mark; the next frame starts
                // another segment.
                let limit =
                    if file.allocate(size).is_ok() { size.max(mark.offset) } else { mark.offset };
                bytes = limit;
                let salt = frame::salt(mapped.stored_settings.id, first);
                self.active =
                    Some(ActiveSegment { file, path, first, salt, offset: mark.offset, limit });
            }
            self.retained.push(RetainedSegment { first, bytes, newest: None });
        }
        let firsts: Vec<u64> = self.retained.iter().map(|kept| kept.first).collect();
        let (disk, paths) = (&*mapped.disk, &mapped.paths);
        let (gaps, _) = GapSet::load(disk, paths)?;
        let lasts = recovery::recover_producers(
            disk,
            paths,
            &mapped.stored_settings,
            &firsts,
            mark.offset,
            &gaps,
        )?;
        // A batch that bypassed the buffer may have been published by a process that died before
        // recording its sequence.
        let guard = mapped.lock_append()?;
        lasts.iter().for_each(|last| mapped.buffer.sequences().record(last.identity, last.end));
        drop(guard);
        for last in lasts {
            self.record_producer(mapped, last);
        }
        Ok(())
    }

    /// Releases unused reserved space, so that a closed journal takes only the space it needs.
    pub(crate) fn truncate_reservation(&mut self) {
        if let Some(writing) = self.active.as_mut().filter(|_| self.holds_lease) {
            // If this fails, the file only takes more space.
            if writing.file.set_len(writing.offset).is_ok() {
                writing.limit = writing.offset;
            }
        }
    }

    /// Releases the lease to another process; false if this process does not hold it.
    pub(crate) fn release_lease(&mut self, mapped: &MappedJournal) -> bool {
        if !std::mem::take(&mut self.holds_lease) {
            return false;
        }
        let mark = mapped.buffer.mark();
        // Unless unpublished work exists.
        let published = self.active.as_ref().map(|writing| (writing.first, writing.offset));
        self.released_at =
            (published == Some((mark.segment, mark.offset))).then(|| (mark, mapped.buffer.first()));
        // The next owner finds unsynced data by the durable position.
        self.lease_file.unlock().is_ok()
    }

    /// Releases the lease and discards the cached state; the next owner reloads it.
    pub(crate) fn drop_lease_state(&mut self, mapped: &MappedJournal) {
        self.release_lease(mapped);
        self.released_at = None;
    }

    /// Whether no other process changed anything since the lease was released. An unpublished new
    /// segment counts as a change.
    fn is_unchanged_since_release(&mut self, mapped: &MappedJournal) -> Result<bool> {
        if self.released_at.take() != Some((mapped.buffer.mark(), mapped.buffer.first())) {
            return Ok(false);
        }
        let firsts = segment::list(&*mapped.disk, &mapped.paths)?;
        Ok(firsts.iter().eq(self.retained.iter().map(|kept| &kept.first)))
    }

    // ---- fsync ----

    /// Files to sync for everything flushed by now. The sync runs without the flusher lock.
    pub(crate) fn pending_sync(&mut self, mapped: &MappedJournal) -> PendingSync {
        let mut files = std::mem::take(&mut self.pending_files);
        if let Some(writing) = self.active.as_ref().filter(|_| self.is_dirty) {
            files.push((writing.path.clone(), Arc::clone(&writing.file)));
        }
        self.is_dirty = false;
        PendingSync {
            files,
            is_dir_dirty: std::mem::take(&mut self.is_dir_dirty),
            up_to: mapped.buffer.mark().position,
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
    /// Fsyncs; returns the new durable position.
    pub(crate) fn sync(&self, mapped: &MappedJournal) -> Result<u64> {
        mapped.buffer.set_syncing(true);
        for (path, file) in &self.files {
            file.sync().io_context("fsync", path)?;
        }
        if self.is_dir_dirty {
            let dir = mapped.paths.segments();
            mapped.disk.sync_dir(&dir).io_context("fsync directory", &dir)?;
        }
        mapped.buffer.set_syncing(false);
        Ok(self.up_to)
    }
}

/// At most `most` of the entries accepted last, shared fairly between origins, in a deterministic
/// order.
fn newest(lasts: impl Iterator<Item = ProducerEntry>, most: usize) -> Vec<ProducerEntry> {
    let entry = |last: ProducerEntry| (last.identity.origin(), last.end, last);
    let mut lasts = fair_order(lasts.map(entry).collect());
    lasts.truncate(most);
    lasts.sort_unstable_by_key(|last| last.identity);
    lasts
}
