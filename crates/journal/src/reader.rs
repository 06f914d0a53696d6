//! Reading: batches of records in the order of their positions, from segments and, behind them, from the
//! buffer, with gaps where something is missing.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::buffer::Mark;
use crate::error::{Error, Result};
use crate::frame::{self, Records};
use crate::gap::{Gap, Gaps, Reason};
use crate::journal::Inner;
use crate::level::Level;
use crate::readiness::Readiness;
use crate::segment::{self, BrokenFrames, Found, Scan};

/// Where reading starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the first record kept.
    Begin,
    /// Behind the last record.
    End,
    /// At a position.
    At(u64),
}

/// What a reader gets.
#[derive(Clone, Debug)]
pub enum Item<'a> {
    /// Records, next to each other.
    Batch(Batch<'a>),
    /// Records that are missing.
    Gap(Gap),
}

/// Records with positions that follow each other. Iterating gives slices of the reader's memory.
#[derive(Clone, Debug)]
pub struct Batch<'a> {
    raw: &'a [u8],
    /// Position of the first record in `raw`, which may be before those that were asked for.
    first: u64,
    positions: Range<u64>,
    time: (i64, i64),
}

impl<'a> Batch<'a> {
    /// The records' positions.
    pub fn positions(&self) -> Range<u64> {
        self.positions.clone()
    }

    /// When the earliest and the latest of the frame were appended, in nanoseconds since the Unix epoch.
    pub fn times(&self) -> (i64, i64) {
        self.time
    }

    /// The records.
    pub fn records(&self) -> impl Iterator<Item = frame::Record<'a>> + use<'a> {
        let skip = self.positions.start.saturating_sub(self.first) as usize;
        let take = self.positions.end.saturating_sub(self.positions.start) as usize;
        Records::new(self.raw, self.first).skip(skip).take(take)
    }
}

/// Reads a journal from a position on. Memory for about two frames, however much there is to read.
pub struct Reader {
    inner: Arc<Inner>,
    position: u64,
    level: Level,
    buffered: bool,
    scan: Option<(u64, Scan)>,
    raw: Vec<u8>,
    entry: Vec<u8>,
    gaps: Vec<Gap>,
    readiness: Option<Readiness>,
}

/// What `advance` came to; the batch is in `raw`.
enum Step {
    Batch { first: u64, positions: Range<u64>, time: (i64, i64) },
    Gap(Gap),
    End,
}

/// From the buffer at once at most: as a frame's.
const BUFFER_BATCH_BYTES: usize = 128 << 10;

impl Reader {
    pub(crate) fn new(inner: Arc<Inner>, position: u64) -> Result<Reader> {
        Ok(Reader {
            inner,
            position,
            level: Level::Memory,
            buffered: true,
            scan: None,
            raw: Vec::new(),
            entry: Vec::new(),
            gaps: Vec::new(),
            readiness: None,
        })
    }

    /// Gives only what has reached a level: with `disk`, nothing that a power cut could still take back.
    pub fn set_level(&mut self, level: Level) {
        self.level = level;
    }

    /// Whether it reads the buffer too (it does unless told otherwise), or only segments.
    pub fn set_buffered(&mut self, buffered: bool) {
        self.buffered = buffered;
    }

    /// The next record to read.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Goes to a position.
    pub fn seek(&mut self, position: u64) -> Result<()> {
        let (first, end) = (self.inner.store.buffer.first(), self.end());
        if !(first..=end).contains(&position) {
            return Err(Error::Position { found: position, first, end });
        }
        self.position = position;
        self.scan = None;
        self.gaps.clear();
        Ok(())
    }

    fn end(&self) -> u64 {
        let buffer = &self.inner.store.buffer;
        buffer.end().1.max(buffer.mark().position)
    }

    /// How far it may read now.
    fn readable(&self) -> u64 {
        let buffer = &self.inner.store.buffer;
        match (self.level, self.buffered) {
            (Level::Disk, _) => buffer.durable(),
            (_, true) => buffer.end().1,
            (_, false) => buffer.mark().position,
        }
    }

    /// The next records or gap; `None` when there are no more now.
    #[expect(
        clippy::should_implement_trait,
        reason = "what it gives is the reader's memory, which no iterator can lend"
    )]
    pub fn next(&mut self) -> Result<Option<Item<'_>>> {
        match self.advance()? {
            Step::Batch { first, positions, time } => {
                self.position = positions.end;
                Ok(Some(Item::Batch(Batch { raw: &self.raw, first, positions, time })))
            }
            Step::Gap(gap) => {
                self.position = gap.positions.end;
                Ok(Some(Item::Gap(gap)))
            }
            Step::End => {
                if let Some(readiness) = &self.readiness {
                    readiness.arm(self.position);
                }
                Ok(None)
            }
        }
    }

    fn advance(&mut self) -> Result<Step> {
        loop {
            if let Some(gap) = self.gaps.pop() {
                return Ok(Step::Gap(gap));
            }
            let mark = self.inner.store.buffer.mark();
            let limit = if self.level == Level::Disk {
                self.inner.store.buffer.durable()
            } else {
                mark.position
            };
            if self.position < limit.min(mark.position) {
                match self.read_segments(limit.min(mark.position))? {
                    Some(step) => return Ok(step),
                    // The next segment, or a gap.
                    None => continue,
                }
            }
            if !self.buffered || self.level == Level::Disk {
                return Ok(Step::End);
            }
            match self.read_buffer(mark)? {
                Some(step) => return Ok(step),
                // It was flushed in the meantime: it is in a segment now.
                None if self.inner.store.buffer.mark() != mark => continue,
                None => return Ok(Step::End),
            }
        }
    }

    /// Reads from the segment of the position, opening it if need be. `None`: look again.
    fn read_segments(&mut self, limit: u64) -> Result<Option<Step>> {
        if self.scan.is_none() && !self.open_segment()? {
            return Ok(None);
        }
        let Some((first, scan)) = &mut self.scan else { return Ok(None) };
        let mark = self.inner.store.buffer.mark();
        let writing = *first == mark.segment;
        let bytes = if writing { mark.offset } else { scan.file_bytes()? };
        match scan.next(bytes)? {
            Found::Frame { head, body, .. } => {
                let end = head.positions().end;
                let broken = scan.take_broken();
                if end <= self.position {
                    return Ok(None);
                }
                if head.first > self.position {
                    self.miss(self.position..head.first, broken)?;
                    // Read again after the gap.
                    self.scan = None;
                    return Ok(None);
                }
                let sound = scan.body(&head, body, &mut self.raw);
                if !sound {
                    // Its checksum is right: it was written so.
                    self.miss(self.position..end, None)?;
                    return Ok(None);
                }
                let positions = self.position..end.min(limit.max(self.position));
                Ok(Some(Step::Batch {
                    first: head.first,
                    positions,
                    time: (head.time_min, head.time_max),
                }))
            }
            Found::Damage { .. } => Ok(None),
            Found::End { .. } => {
                // Of this segment; what should still come in it is missing.
                let next = segment::list(&*self.inner.store.disk, &self.inner.store.places)?
                    .into_iter()
                    .find(|next| next > first);
                let broken = scan.take_broken();
                self.scan = None;
                let upto = match next {
                    Some(next) if !writing => next,
                    _ => mark.position,
                };
                if upto > self.position {
                    self.miss(self.position..upto, broken)?;
                }
                Ok(None)
            }
        }
    }

    /// Opens the segment that has the position. False: there is none, and it was noted what is missing.
    fn open_segment(&mut self) -> Result<bool> {
        let store = &self.inner.store;
        let firsts = segment::list(&*store.disk, &store.places)?;
        let Some(&first) = firsts.iter().rev().find(|&&first| first <= self.position) else {
            let next = firsts.first().copied().unwrap_or_else(|| store.buffer.mark().position);
            self.miss(self.position..next, None)?;
            return Ok(false);
        };
        match Scan::open(&*store.disk, &store.places, store.born.id, first) {
            Ok(scan) => {
                self.scan = Some((first, scan));
                Ok(true)
            }
            // Freed since it was listed.
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Notes what is missing, to be told next. Heads of damaged frames that are sound themselves say
    /// when that was appended.
    fn miss(&mut self, positions: Range<u64>, broken: Option<BrokenFrames>) -> Result<()> {
        let (gaps, _) = Gaps::load(&*self.inner.store.disk, &self.inner.store.places)?;
        self.gaps = gaps.explain(positions);
        if let Some(broken) = broken {
            let is_within = |gap: &&mut Gap| {
                broken.positions.start <= gap.positions.start
                    && gap.positions.end <= broken.positions.end
            };
            let unknown = self.gaps.iter_mut().filter(|gap| gap.time.is_none());
            unknown.filter(is_within).for_each(|gap| gap.time = Some(broken.time.clone()));
        }
        self.report_damage();
        self.gaps.reverse();
        Ok(())
    }

    /// Reports damage to the supervisor. Segments that all subscribers have passed are freed and
    /// not damaged, though a reader without a place of its own misses them too.
    fn report_damage(&self) {
        let store = &self.inner.store;
        let first_kept = store.buffer.first();
        let is_damage =
            |gap: &&Gap| gap.reason == Reason::Damaged && gap.positions.end > first_kept;
        for gap in self.gaps.iter().filter(is_damage) {
            let place = format!("records {:?} of the journal", gap.positions);
            let dir = store.places.dir.display();
            let remedy = format!(
                "`topdeck audit` says what is lost; check the disk, stop topdeck and run \
                 `topdeck journal repair {dir}`"
            );
            self.inner.options.supervisor.report_damage(place, gap.records(), remedy);
        }
    }

    /// Reads entries of the buffer from the position on. `None`: there are none, or they have moved on.
    /// `mark` is the one that says that nothing from the position on is in segments.
    fn read_buffer(&mut self, mark: Mark) -> Result<Option<Step>> {
        let buffer = &self.inner.store.buffer;
        let (tail, next) = buffer.end();
        self.raw.clear();
        let mut at = mark.ring;
        let (mut first, mut end) = (None, 0);
        let mut time = (i64::MAX, i64::MIN);
        while at < tail && self.raw.len() < BUFFER_BATCH_BYTES {
            self.entry.clear();
            let Some(entry) = buffer.entry(at, tail, &mut self.entry) else {
                // Damaged: the next sound one is looked for. Or moved on, which is seen below.
                at = at.saturating_add(1);
                continue;
            };
            at = at.saturating_add(entry.words);
            let entry_end = entry.first.saturating_add(entry.records.into());
            if entry_end <= self.position {
                continue;
            }
            if first.is_some() && entry.first != end {
                break;
            }
            first.get_or_insert(entry.first);
            end = entry_end;
            time = (time.0.min(entry.time), time.1.max(entry.time));
            frame::put_group(&mut self.raw, entry.identity, entry.records);
            if !entry.packed {
                frame::put_varint(&mut self.raw, self.entry.len() as u64);
            }
            self.raw.extend_from_slice(&self.entry);
        }
        // What was copied is only what it was if nothing was published in between: then the ring's words may
        // have been written again.
        if buffer.mark() != mark {
            return Ok(None);
        }
        // What was lost behind the last entry leaves nothing but the position of the next.
        let lost = if at >= tail && next > self.position { Some(next) } else { None };
        let Some(first) = first.or(lost) else { return Ok(None) };
        if first > self.position {
            self.miss(self.position..first, None)?;
            return Ok(self.gaps.pop().map(Step::Gap));
        }
        Ok(Some(Step::Batch { first, positions: self.position..end, time }))
    }

    /// Waits until there is something to read; false when the time is over first.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<bool> {
        let since = Instant::now();
        loop {
            if self.is_ready() {
                return Ok(true);
            }
            let left = match timeout.map(|timeout| timeout.saturating_sub(since.elapsed())) {
                Some(Duration::ZERO) => return Ok(false),
                left => left,
            };
            self.sleep(left);
        }
    }

    fn is_ready(&self) -> bool {
        self.readable() > self.position || !self.gaps.is_empty()
    }

    fn sleep(&self, timeout: Option<Duration>) {
        let longest = self.inner.options.recheck_every;
        let piece = timeout.map_or(longest, |timeout| timeout.min(longest));
        self.inner.store.buffer.sleep_reader(Some(piece), &mut || self.is_ready());
    }

    /// A file descriptor (an eventfd) that becomes readable when [`Reader::next`], having said `None`, has
    /// something again: for an event loop. It is cleared by reading its 8 bytes. A thread of its own waits.
    #[expect(clippy::expect_used, reason = "it was made above")]
    pub fn readiness(&mut self) -> std::io::Result<std::os::fd::BorrowedFd<'_>> {
        if self.readiness.is_none() {
            let readiness = Readiness::start(Arc::clone(&self.inner), self.level, self.buffered)?;
            readiness.arm(self.position);
            self.readiness = Some(readiness);
        }
        Ok(self.readiness.as_ref().expect("BUG: just made").fd())
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.inner
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("position", &self.position).finish_non_exhaustive()
    }
}
