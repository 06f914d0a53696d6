//! The flusher's role: moving entries from the buffer to segments, synchronising, freeing. One process has
//! the role at a time, by a lock; another takes it over when it ends, however it ends, or asks for it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use disk::{File, Mode};

use crate::buffer::{FULL, Mark, POISONED};
use crate::checkpoint::Claims;
use crate::codec::Compressor;
use crate::error::{Doing, Error, Full, Result};
use crate::frame::{self, Content, Head, Records};
use crate::gap::{Gaps, Reason, Tally};
use crate::layout::{FRAME_ALIGN, FRAME_BYTES, PRODUCER_BYTES};
use crate::level::Identity;
use crate::origin::fair_order;
use crate::presence;
use crate::segment::{self, Found, LastOf, Scan, SegmentHead};
use crate::settings::AtLimit;
use crate::store::Store;
use crate::{checkpoint, opening};

/// Raw bytes in a frame, unless one batch alone has more. Compression gains little beyond, and a reader
/// holds one frame in memory; what damage destroys at once is a frame, too.
const FRAME_RAW_BYTES: usize = 128 << 10;

/// The segment being written.
struct Writing {
    file: Arc<dyn File>,
    path: PathBuf,
    first: u64,
    salt: u32,
    offset: u64,
    /// Frames may be written up to here.
    limit: u64,
}

/// A segment that is kept.
#[derive(Clone, Copy, Debug)]
struct Kept {
    first: u64,
    bytes: u64,
    /// When its newest record was appended; found when the age limit asks.
    newest: Option<i64>,
}

/// A segment that goes.
#[derive(Clone, Copy, Debug)]
struct Gone {
    first: u64,
    /// The position behind its last record.
    end: u64,
    /// Why, if somebody has not read it.
    reason: Option<Reason>,
}

/// What remains to be synchronised.
pub(crate) struct Unsynced {
    files: Vec<(PathBuf, Arc<dyn File>)>,
    names: bool,
    /// The durable position once it is done.
    upto: u64,
}

pub(crate) struct Flusher {
    role: Box<dyn File>,
    has_role: bool,
    /// How the journal was when this one gave the role up: the mark and the first position. As long as nobody
    /// has done anything since, all that is known here is right.
    left: Option<(Mark, u64)>,
    compressor: Compressor,
    writing: Option<Writing>,
    /// Segments from the oldest on, the one being written last.
    kept: Vec<Kept>,
    /// Full segments and others to be synchronised, besides the one being written.
    unsynced: Vec<(PathBuf, Arc<dyn File>)>,
    /// The one being written has something to be synchronised.
    dirty: bool,
    /// Names of segments were made that may not be durable.
    names: bool,
    /// What is in segments: the table for the next one's head.
    producers: HashMap<(u64, u64), LastOf>,
    raw: Vec<u8>,
    entry: Vec<u8>,
    frame: Vec<u8>,
}

/// What a flush came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flushed {
    /// The buffer was found empty.
    All,
    /// Another process has the role.
    Elsewhere,
}

impl Flusher {
    pub(crate) fn new(store: &Store) -> Result<Flusher> {
        let compressor = Compressor::new(store.born.settings.codec);
        Ok(Flusher {
            role: presence::open(&*store.disk, &store.places, "flusher")?,
            has_role: false,
            left: None,
            compressor: compressor.doing("prepare compression for it", &store.places.dir)?,
            writing: None,
            kept: Vec::new(),
            unsynced: Vec::new(),
            dirty: false,
            names: false,
            producers: HashMap::new(),
            raw: Vec::new(),
            entry: Vec::new(),
            frame: Vec::new(),
        })
    }

    pub(crate) fn has_role(&self) -> bool {
        self.has_role
    }

    /// Takes back what could not be synchronised for a reason that lost nothing.
    pub(crate) fn put_back(&mut self, unsynced: Unsynced) {
        self.unsynced.extend(unsynced.files);
        self.names |= unsynced.names;
    }

    /// Has the role or takes it if it is free.
    pub(crate) fn take_role(&mut self, store: &Store) -> Result<bool> {
        if !self.has_role {
            if !self.role.try_lock().doing("lock it", &store.places.lock("flusher"))? {
                return Ok(false);
            }
            // What the one before began and did not publish is still in the buffer.
            let known = self.is_as_left(store);
            if let Err(error) =
                known.and_then(|known| if known { Ok(()) } else { self.take_over(store) })
            {
                let _ = self.role.unlock();
                return Err(error);
            }
            self.has_role = true;
        }
        Ok(true)
    }

    /// Moves all that is in the buffer to segments.
    pub(crate) fn drain(&mut self, store: &Store) -> Result<Flushed> {
        if !self.take_role(store)? {
            return Ok(Flushed::Elsewhere);
        }
        if store.buffer.state() & POISONED != 0 {
            return Err(Error::Poisoned);
        }
        // What is there now: with appenders that are as fast as this, more would always come.
        let (goal, next) = store.buffer.end();
        loop {
            let mark = store.buffer.mark();
            if mark.ring >= goal {
                if mark.position < next {
                    store.turn()?.pass_lost();
                }
                store.buffer.clear_state(FULL);
                return Ok(Flushed::All);
            }
            self.write_frame(store, mark, goal)?;
        }
    }

    /// Writes one frame of entries that follow `mark`.
    fn write_frame(&mut self, store: &Store, mark: Mark, tail: u64) -> Result<()> {
        let quarter = (store.buffer.ring_bytes() / 4) as usize;
        // A segment must hold it, whatever its last batch and the table of producers have.
        let most = FRAME_RAW_BYTES.min(store.born.settings.segment_bytes as usize / 4);
        let enough = most.min(quarter.max(1));
        self.raw.clear();
        let mut content: Option<Content> = None;
        let mut batches: Vec<LastOf> = Vec::new();
        let mut at = mark.ring;
        while at < tail && self.raw.len() < enough {
            self.entry.clear();
            let Some(entry) = store.buffer.entry(at, tail, &mut self.entry) else {
                // No entry begins here: memory that all processes can write was damaged. The next sound one
                // has a later position, which readers see as a gap.
                at += 1;
                continue;
            };
            let content = content.get_or_insert(Content {
                first: entry.first,
                records: 0,
                time_min: entry.time,
                time_max: entry.time,
            });
            if entry.first != content.first + u64::from(content.records) {
                break;
            }
            content.records += entry.records;
            content.time_min = content.time_min.min(entry.time);
            content.time_max = content.time_max.max(entry.time);
            frame::put_group(&mut self.raw, entry.identity, entry.records);
            if !entry.packed {
                frame::put_varint(&mut self.raw, self.entry.len() as u64);
            }
            self.raw.extend_from_slice(&self.entry);
            batches.extend(
                entry.identity.map(|identity| LastOf {
                    identity,
                    end: entry.first + u64::from(entry.records),
                }),
            );
            at += entry.words;
        }
        let mark = match content {
            Some(content) => self.put_frame(store, mark, content)?,
            None => mark,
        };
        store.supervisor.fault_point("journal frame");
        match store.turn() {
            Ok(turn) => store.buffer.publish(Mark { ring: at, ..mark }, turn),
            Err(error) => {
                // Whoever has the role next begins at what is published.
                self.give_up_role(store);
                return Err(error);
            }
        }
        for last in batches {
            self.remember(store, last);
        }
        Ok(())
    }

    /// Writes what is in `raw` as a frame; where the next one goes, not published yet.
    fn put_frame(&mut self, store: &Store, mark: Mark, content: Content) -> Result<Mark> {
        self.have_room(store, self.raw.len(), content.first)?;
        let writing = self.writing.as_mut().expect("BUG: rolling made no segment");
        self.frame.clear();
        frame::put(&mut self.frame, content, &self.raw, &mut self.compressor, writing.salt);
        match writing.file.write_all_at(&self.frame, writing.offset) {
            Ok(()) => {}
            Err(error) if is_no_space(&error) => {
                // Only where space cannot be reserved. Nothing was counted: it is tried again.
                store.buffer.set_state(FULL);
                return Err(Full::Disk.into());
            }
            Err(error) => {
                store.buffer.set_state(POISONED);
                return Err(error).doing("write to it", &writing.path);
            }
        }
        self.dirty = true;
        writing.offset += self.frame.len() as u64;
        let position = content.first + u64::from(content.records);
        Ok(Mark { position, segment: writing.first, offset: writing.offset, ..mark })
    }

    /// Begins another segment, unless a frame with so many raw bytes fits the present one. Compression never
    /// makes it larger.
    fn have_room(&mut self, store: &Store, raw_bytes: usize, first: u64) -> Result<()> {
        let room = (FRAME_BYTES as u64 + raw_bytes as u64).next_multiple_of(FRAME_ALIGN);
        match &self.writing {
            Some(writing) if writing.offset + room <= writing.limit => Ok(()),
            _ => self.roll(store, first),
        }
    }

    /// Writes a batch that is too large for the buffer straight to a segment; `group` is its records with their
    /// lengths.
    pub(crate) fn pass(
        &mut self,
        store: &Store,
        identity: Option<Identity>,
        records: u32,
        group: &[u8],
    ) -> Result<Passed> {
        loop {
            if self.drain(store)? == Flushed::Elsewhere {
                return Ok(Passed::Elsewhere);
            }
            // Beginning a segment can take long: not with the lock that all appends need.
            let most = group.len() + frame::GROUP_HEAD_BYTES_MAX;
            self.have_room(store, most, store.buffer.mark().position)?;
            let turn = store.turn()?;
            if let Some(end) = turn.repeated(identity) {
                return Ok(Passed::Repeated(end));
            }
            if !turn.is_empty() {
                continue;
            }
            let (_, first) = store.buffer.end();
            let now = store.now();
            self.raw.clear();
            frame::put_group(&mut self.raw, identity, records);
            self.raw.extend_from_slice(group);
            let content = Content { first, records, time_min: now, time_max: now };
            let mark = self.put_frame(store, store.buffer.mark(), content)?;
            turn.passed(identity, mark);
            drop(turn);
            if let Some(identity) = identity {
                self.remember(store, LastOf { identity, end: mark.position });
            }
            store.buffer.passed_wake();
            return Ok(Passed::At(first));
        }
    }

    fn remember(&mut self, store: &Store, last: LastOf) {
        let key = (last.identity.producer, last.identity.boot);
        let known = self.producers.entry(key).or_insert(last);
        if known.identity.sequence <= last.identity.sequence {
            *known = last;
        }
        // Twice as many as are kept, so that forgetting is rare.
        let most = store.born.settings.producers_max as usize;
        if self.producers.len() > 2 * most {
            let keep = newest(self.producers.values().copied(), most);
            self.producers = keep
                .into_iter()
                .map(|last| ((last.identity.producer, last.identity.boot), last))
                .collect();
        }
    }

    // ---- segments --------------------------------------------------------------------------------------

    /// Ends the segment being written and begins another.
    fn roll(&mut self, store: &Store, first: u64) -> Result<()> {
        let size = store.born.settings.segment_bytes;
        if let Err(error) = self.make_room(store, size) {
            if let Error::Full(_) = error {
                store.buffer.set_state(FULL);
            }
            return Err(error);
        }
        self.end_segment();
        // The table must leave room for the largest batch.
        let most =
            (store.born.settings.producers_max as usize).min(size as usize / 4 / PRODUCER_BYTES);
        let head = SegmentHead {
            journal_id: store.born.id,
            first,
            created: store.now(),
            producers: newest(self.producers.values().copied(), most),
        };
        let path = store.places.segment(first);
        let begun = store.disk.open(&path, Mode::Create).and_then(|file| {
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
                    return Err(Full::Disk.into());
                }
                return Err(error).doing("begin it", &path);
            }
        };
        self.names = true;
        self.dirty = true;
        // One that was begun and has no frame, nor room for one, is begun again under the same name.
        self.kept.pop_if(|last| last.first == first);
        self.kept.push(Kept { first, bytes: size, newest: None });
        self.writing = Some(Writing {
            file: file.into(),
            path,
            first,
            salt: frame::salt(store.born.id, first),
            offset: head.frames_offset(),
            limit: size,
        });
        Ok(())
    }

    fn end_segment(&mut self) {
        if let Some(writing) = self.writing.take() {
            // What was reserved and not used goes back. It is no harm if it does not: readers find zeros.
            if writing.file.set_len(writing.offset).is_ok()
                && let Some(last) = self.kept.last_mut()
            {
                last.bytes = writing.offset;
            }
            self.unsynced.push((writing.path, writing.file));
            self.dirty = false;
        }
    }

    /// Begins to use the journal as it is published: what lies behind the mark was not counted and is cut
    /// off, and what was not synchronised is noted for the next sync.
    fn take_over(&mut self, store: &Store) -> Result<()> {
        let mark = store.buffer.mark();
        let durable = store.buffer.durable();
        (self.writing, self.dirty, self.names) = (None, false, true);
        (self.kept, self.unsynced, self.producers) = (Vec::new(), Vec::new(), HashMap::new());
        let firsts = segment::list(&*store.disk, &store.places)?;
        for (i, &first) in firsts.iter().enumerate() {
            let path = store.places.segment(first);
            let file: Arc<dyn File> =
                store.disk.open(&path, Mode::Write).doing("open it", &path)?.into();
            if mark.offset == 0 || first > mark.segment {
                // Begun, and nothing in it was counted.
                store.disk.remove(&path).doing("remove it", &path)?;
                continue;
            }
            let writing = first == mark.segment;
            let end = if writing {
                mark.position
            } else {
                firsts.get(i + 1).copied().unwrap_or(mark.position)
            };
            if end > durable {
                if store.buffer.syncing() {
                    rewrite(&*file, if writing { mark.offset } else { u64::MAX })
                        .doing("write it again", &path)?;
                }
                self.unsynced.push((path.clone(), Arc::clone(&file)));
            }
            let mut bytes = file.len().doing("ask for its length", &path)?;
            if writing {
                let size = store.born.settings.segment_bytes;
                file.set_len(mark.offset).doing("cut off its uncounted end", &path)?;
                // Without space it has none behind the mark, and the next frame begins another segment.
                let limit =
                    if file.allocate(size).is_ok() { size.max(mark.offset) } else { mark.offset };
                bytes = limit;
                let salt = frame::salt(store.born.id, first);
                self.writing =
                    Some(Writing { file, path, first, salt, offset: mark.offset, limit });
            }
            self.kept.push(Kept { first, bytes, newest: None });
        }
        let firsts: Vec<u64> = self.kept.iter().map(|kept| kept.first).collect();
        let (disk, places) = (&*store.disk, &store.places);
        let (gaps, _) = Gaps::load(disk, places)?;
        let lasts = opening::producers(disk, places, &store.born, &firsts, mark.offset, &gaps)?;
        // A batch that went past the buffer may have been published by one who died before it was noted.
        let turn = store.turn()?;
        lasts.iter().for_each(|last| store.buffer.remember(last.identity, last.end));
        drop(turn);
        for last in lasts {
            self.remember(store, last);
        }
        Ok(())
    }

    /// Gives back what is reserved and not used: a journal that nobody has open takes what it holds.
    pub(crate) fn trim(&mut self) {
        if let Some(writing) = self.writing.as_mut().filter(|_| self.has_role) {
            // If it fails, it takes more, that is all.
            if writing.file.set_len(writing.offset).is_ok() {
                writing.limit = writing.offset;
            }
        }
    }

    /// Lets another process have the role; false when this one does not have it.
    pub(crate) fn give_up_role(&mut self, store: &Store) -> bool {
        if !std::mem::take(&mut self.has_role) {
            return false;
        }
        let mark = store.buffer.mark();
        // Unless something was begun and not published.
        let published = self.writing.as_ref().map(|writing| (writing.first, writing.offset));
        self.left =
            (published == Some((mark.segment, mark.offset))).then(|| (mark, store.buffer.first()));
        // What is not synchronised yet the next one finds by the durable position.
        self.role.unlock().is_ok()
    }

    /// Gives the role up, and all that is known here with it: whoever has it next finds it out
    /// anew.
    pub(crate) fn forget(&mut self, store: &Store) {
        self.give_up_role(store);
        self.left = None;
    }

    /// Whether nobody else has done anything since the role was given up. A segment that was begun and not
    /// counted is a new name.
    fn is_as_left(&mut self, store: &Store) -> Result<bool> {
        if self.left.take() != Some((store.buffer.mark(), store.buffer.first())) {
            return Ok(false);
        }
        let firsts = segment::list(&*store.disk, &store.places)?;
        Ok(firsts.iter().eq(self.kept.iter().map(|kept| &kept.first)))
    }

    // ---- synchronising ---------------------------------------------------------------------------------

    /// What a sync has to do for all that is flushed now. It is done without the flusher, which goes on.
    pub(crate) fn unsynced(&mut self, store: &Store) -> Unsynced {
        let mut files = std::mem::take(&mut self.unsynced);
        if let Some(writing) = self.writing.as_ref().filter(|_| self.dirty) {
            files.push((writing.path.clone(), Arc::clone(&writing.file)));
        }
        self.dirty = false;
        Unsynced {
            files,
            names: std::mem::take(&mut self.names),
            upto: store.buffer.mark().position,
        }
    }

    // ---- freeing ---------------------------------------------------------------------------------------

    /// Whether freeing could do something for a reader that has come to `position`.
    pub(crate) fn may_free(&self, position: u64) -> bool {
        self.has_role && self.kept.get(1).is_some_and(|second| position >= second.first)
    }

    /// Frees what all have passed and what is too old.
    pub(crate) fn free(&mut self, store: &Store) -> Result<()> {
        if !self.take_role(store)? {
            return Ok(());
        }
        self.make_room(store, 0)
    }

    /// Frees what may go, and more until `want` bytes fit below the limit.
    fn make_room(&mut self, store: &Store, want: u64) -> Result<()> {
        let limits = store.born.settings.limits;
        let claims = Claims::read(&*store.disk, &store.places)?;
        let (slowest, held) = (claims.slowest(), claims.holder().map(|(position, _)| position));
        let may_drop = |end: u64| match limits.at_limit {
            AtLimit::DropOldest => true,
            // With nobody there, somebody may still come.
            AtLimit::Refuse => match (held, slowest) {
                (Some(held), _) => end <= held,
                (None, Some(_)) => true,
                (None, None) => false,
            },
        };
        let mut gone: Vec<Gone> = Vec::new();
        let mut bytes: u64 = self.kept.iter().map(|kept| kept.bytes).sum();
        // The newest segment stays: positions go on from it.
        while gone.len() + 1 < self.kept.len() {
            let oldest = self.kept[gone.len()];
            let end = self.kept[gone.len() + 1].first;
            let over = limits.bytes_max.is_some_and(|max| want > 0 && bytes + want > max);
            let reason = if slowest.is_some_and(|slowest| end <= slowest) {
                None
            } else if limits.age_max.is_some()
                && may_drop(end)
                && self.too_old(store, gone.len())?
            {
                Some(Reason::AgeLimit)
            } else if over && may_drop(end) {
                Some(Reason::BytesLimit)
            } else {
                break;
            };
            bytes -= oldest.bytes;
            gone.push(Gone { first: oldest.first, end, reason });
        }
        self.drop_segments(store, &gone, &claims)?;
        match limits.bytes_max {
            Some(max) if want > 0 && bytes + want > max => Err(store.why_full()?.into()),
            _ => Ok(()),
        }
    }

    fn too_old(&mut self, store: &Store, index: usize) -> Result<bool> {
        let Some(age_max) = store.born.settings.limits.age_max else { return Ok(false) };
        let kept = self.kept[index];
        let newest = match kept.newest {
            Some(newest) => newest,
            None => {
                let mut newest = i64::MIN;
                // Of what cannot be read no time is known.
                if let Ok(mut scan) =
                    Scan::open(&*store.disk, &store.places, store.born.id, kept.first)
                    && let Ok(limit) = scan.file_bytes()
                {
                    while let Ok(found) = scan.next(limit) {
                        match found {
                            Found::Frame { head, .. } => newest = newest.max(head.time_max),
                            Found::Damage { .. } => {}
                            Found::End { .. } => break,
                        }
                    }
                }
                self.kept[index].newest = Some(newest);
                newest
            }
        };
        // A segment in which no time can be read has no age: the limit in bytes concerns it.
        Ok(newest != i64::MIN
            && i128::from(store.now()) - i128::from(newest) > age_max.as_nanos() as i128)
    }

    /// Removes the oldest segments; what somebody has not read is noted first, durably.
    fn drop_segments(&mut self, store: &Store, gone: &[Gone], claims: &Claims) -> Result<()> {
        let (disk, places) = (&*store.disk, &store.places);
        let Some(last) = gone.last() else { return Ok(()) };
        let slowest = claims.slowest();
        // A position that the power may take back must not have cost what lies behind it.
        for checkpoint in &claims.checkpoints {
            checkpoint::sync(disk, places, &checkpoint.name)?;
        }
        let positions: Vec<u64> = claims.checkpoints.iter().map(|c| c.position).collect();
        let (mut gaps, _) = Gaps::load(disk, places)?;
        let mut changed = gaps.forget_before(slowest.unwrap_or(u64::MAX).min(store.buffer.first()));
        for &Gone { first, end, reason } in gone {
            let Some(reason) = reason else { continue };
            let missed = slowest.map_or(first, |slowest| slowest.max(first))..end;
            gaps.add(tally(store, first, missed.start).gap(missed, reason), &positions);
            changed = true;
        }
        if changed {
            gaps.save(disk, places)?;
        }
        // From here on nobody can begin to read there; who did so in the meantime is seen.
        let before = store.buffer.first();
        store.buffer.set_first(last.end);
        let now = Claims::read(disk, places)?.slowest();
        if now.is_some_and(|now| now < last.end && slowest.is_none_or(|slowest| now < slowest)) {
            store.buffer.set_first(before);
            return Ok(());
        }
        for &Gone { first, .. } in gone {
            let path = places.segment(first);
            match disk.remove(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(error).doing("remove it", &path);
                }
                _ => {}
            }
            // Only now: while it is there, its records count as durable with those behind them.
            self.unsynced.retain(|(unsynced, _)| *unsynced != path);
            self.kept.remove(0);
        }
        self.names = true;
        Ok(())
    }
}

/// What became of a batch that went past the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passed {
    At(u64),
    Repeated(u64),
    Elsewhere,
}

impl Unsynced {
    /// Synchronises; the position up to which everything is durable then.
    pub(crate) fn sync(&self, store: &Store) -> Result<u64> {
        store.buffer.set_syncing(true);
        for (path, file) in &self.files {
            file.sync().doing("make it durable", path)?;
        }
        if self.names {
            let dir = store.places.segments();
            store.disk.sync_dir(&dir).doing("make new names in it durable", &dir)?;
        }
        store.buffer.set_syncing(false);
        Ok(self.upto)
    }
}

/// The producers' parts of the records of a segment from a position on, as far as they can be read: a segment
/// that cannot must not keep its place for ever.
fn tally(store: &Store, first: u64, from: u64) -> Tally {
    let tally = RefCell::new(Tally::default());
    let scan = Scan::open(&*store.disk, &store.places, store.born.id, first);
    let _ = scan.and_then(|mut scan| {
        let limit = scan.file_bytes()?;
        each_record(
            &mut scan,
            limit,
            &mut |head| {
                if head.positions().end > from {
                    let whole = head.first >= from;
                    tally.borrow_mut().frame(head.time_min, head.time_max, whole);
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

/// Calls back for every sound frame and each of its records.
pub(crate) fn each_record(
    scan: &mut Scan,
    limit: u64,
    frame: &mut dyn FnMut(&Head),
    record: &mut dyn FnMut(frame::Record<'_>),
) -> Result<()> {
    let mut raw = Vec::new();
    loop {
        match scan.next(limit)? {
            Found::Frame { head, body, .. } => {
                if scan.body(&head, body, &mut raw) {
                    frame(&head);
                    Records::new(&raw, head.first).for_each(&mut *record);
                }
            }
            Found::Damage { .. } => {}
            Found::End { .. } => return Ok(()),
        }
    }
}

/// The entries accepted last, at most so many and of each origin about as many, in a fixed order.
fn newest(lasts: impl Iterator<Item = LastOf>, most: usize) -> Vec<LastOf> {
    let entry = |last: LastOf| (last.identity.origin(), last.end, last);
    let mut lasts = fair_order(lasts.map(entry).collect());
    lasts.truncate(most);
    lasts.sort_unstable_by_key(|last| last.identity);
    lasts
}

/// Writes a file's bytes over themselves. After a failed or interrupted sync the page cache may hold pages
/// that are not on disk and count as clean; written again, the next sync is about them again.
pub(crate) fn rewrite(file: &dyn File, upto: u64) -> io::Result<()> {
    let len = file.len()?.min(upto);
    let mut bytes = vec![0; 256 << 10];
    let mut at = 0;
    while at < len {
        let want = (len - at).min(bytes.len() as u64) as usize;
        let have = file.read_full_at(&mut bytes[..want], at)?;
        if have == 0 {
            break;
        }
        file.write_all_at(&bytes[..have], at)?;
        at += have as u64;
    }
    Ok(())
}

pub(crate) fn is_no_space(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
