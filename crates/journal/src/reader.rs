//! Journal reader: record batches in order of position, from segments and buffer.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::buffer::FlushMark;
use crate::error::{Error, Result};
use crate::frame::{self, RecordIter};
use crate::gap::{GapReason, GapSet, RecordGap};
use crate::level::Level;
use crate::open_journal::OpenJournal;
use crate::readiness::Readiness;
use crate::segment::{self, BrokenFrames, ScanItem, SegmentScan};

/// Start position of a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartPosition {
    /// The first retained record.
    First,
    /// After the last record.
    End,
    /// A position.
    At(u64),
}

/// Item returned by a reader.
#[derive(Clone, Debug)]
pub enum ReadItem<'a> {
    /// Contiguous records.
    Batch(RecordBatch<'a>),
    /// Missing records.
    Gap(RecordGap),
}

/// Records with contiguous positions. Iterating yields slices of the reader's memory.
#[derive(Clone, Debug)]
pub struct RecordBatch<'a> {
    raw: &'a [u8],
    /// Position of the first record in `raw`, which may precede the requested ones.
    first: u64,
    positions: Range<u64>,
    time: (i64, i64),
}

impl<'a> RecordBatch<'a> {
    /// Positions of the records.
    pub fn positions(&self) -> Range<u64> {
        self.positions.clone()
    }

    /// Earliest and latest append time of the frame, in nanoseconds since the Unix epoch.
    pub fn times(&self) -> (i64, i64) {
        self.time
    }

    /// The records.
    pub fn records(&self) -> impl Iterator<Item = frame::Record<'a>> + use<'a> {
        let skip = self.positions.start.saturating_sub(self.first) as usize;
        let take = self.positions.end.saturating_sub(self.positions.start) as usize;
        RecordIter::new(self.raw, self.first).skip(skip).take(take)
    }
}

/// Reads a journal from a position on, with memory for about two frames.
pub struct JournalReader {
    inner: Arc<OpenJournal>,
    position: u64,
    level: Level,
    reads_buffer: bool,
    scan: Option<(u64, SegmentScan)>,
    raw: Vec<u8>,
    entry: Vec<u8>,
    gaps: Vec<RecordGap>,
    readiness: Option<Readiness>,
}

/// Result of `advance`; the batch is in `raw`.
enum ReadStep {
    Batch { first: u64, positions: Range<u64>, time: (i64, i64) },
    Gap(RecordGap),
    End,
}

/// Maximum bytes read from the buffer at once: as in a frame.
const BUFFER_BATCH_BYTES: usize = 128 << 10;

impl JournalReader {
    pub(crate) fn new(inner: Arc<OpenJournal>, position: u64) -> Result<JournalReader> {
        Ok(JournalReader {
            inner,
            position,
            level: Level::Memory,
            reads_buffer: true,
            scan: None,
            raw: Vec::new(),
            entry: Vec::new(),
            gaps: Vec::new(),
            readiness: None,
        })
    }

    /// Returns only records that have reached a level: with `disk`, none that a power loss could
    /// remove.
    pub fn set_level(&mut self, level: Level) {
        self.level = level;
    }

    /// Whether it reads the buffer too, as it does by default, or only segments.
    pub fn set_reads_buffer(&mut self, buffered: bool) {
        self.reads_buffer = buffered;
    }

    /// Next position to read.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Moves to a position.
    pub fn seek(&mut self, position: u64) -> Result<()> {
        let (first, end) = (self.inner.mapped.buffer.first(), self.end());
        if !(first..=end).contains(&position) {
            return Err(Error::PositionOutOfRange { found: position, first, end });
        }
        self.position = position;
        self.scan = None;
        self.gaps.clear();
        Ok(())
    }

    fn end(&self) -> u64 {
        let buffer = &self.inner.mapped.buffer;
        buffer.end().1.max(buffer.mark().position)
    }

    /// End of the readable records.
    fn readable_end(&self) -> u64 {
        let buffer = &self.inner.mapped.buffer;
        match (self.level, self.reads_buffer) {
            (Level::Disk, _) => buffer.durable(),
            (_, true) => buffer.end().1,
            (_, false) => buffer.mark().position,
        }
    }

    /// The next records or gap; `None` if there are none now.
    #[expect(
        clippy::should_implement_trait,
        reason = "what it gives is the reader's memory, which no iterator can lend"
    )]
    pub fn next(&mut self) -> Result<Option<ReadItem<'_>>> {
        match self.advance()? {
            ReadStep::Batch { first, positions, time } => {
                self.position = positions.end;
                Ok(Some(ReadItem::Batch(RecordBatch { raw: &self.raw, first, positions, time })))
            }
            ReadStep::Gap(gap) => {
                self.position = gap.positions.end;
                Ok(Some(ReadItem::Gap(gap)))
            }
            ReadStep::End => {
                if let Some(readiness) = &self.readiness {
                    readiness.arm(self.position);
                }
                Ok(None)
            }
        }
    }

    fn advance(&mut self) -> Result<ReadStep> {
        loop {
            if let Some(gap) = self.gaps.pop() {
                return Ok(ReadStep::Gap(gap));
            }
            let mark = self.inner.mapped.buffer.mark();
            let limit = if self.level == Level::Disk {
                self.inner.mapped.buffer.durable()
            } else {
                mark.position
            };
            if self.position < limit.min(mark.position) {
                match self.read_segments(limit.min(mark.position))? {
                    Some(step) => return Ok(step),
                    // Next segment, or a gap.
                    None => continue,
                }
            }
            if !self.reads_buffer || self.level == Level::Disk {
                return Ok(ReadStep::End);
            }
            match self.read_buffer(mark)? {
                Some(step) => return Ok(step),
                // Flushed in the meantime: it is in a segment now.
                None if self.inner.mapped.buffer.mark() != mark => continue,
                None => return Ok(ReadStep::End),
            }
        }
    }

    /// Reads the segment with the position, opening it if needed. `None`: retry.
    fn read_segments(&mut self, limit: u64) -> Result<Option<ReadStep>> {
        if self.scan.is_none() && !self.open_segment()? {
            return Ok(None);
        }
        let Some((first, scan)) = &mut self.scan else { return Ok(None) };
        let mark = self.inner.mapped.buffer.mark();
        let writing = *first == mark.segment;
        let bytes = if writing { mark.offset } else { scan.file_bytes()? };
        match scan.next(bytes)? {
            ScanItem::Frame { head, body, .. } => {
                let end = head.positions().end;
                let broken = scan.take_broken();
                if end <= self.position {
                    return Ok(None);
                }
                if head.first > self.position {
                    self.record_missing(self.position..head.first, broken)?;
                    // Opened again after the gap.
                    self.scan = None;
                    return Ok(None);
                }
                let is_valid = scan.body(&head, body, &mut self.raw);
                if !is_valid {
                    // The checksum is right: it was written like this.
                    self.record_missing(self.position..end, None)?;
                    return Ok(None);
                }
                let positions = self.position..end.min(limit.max(self.position));
                Ok(Some(ReadStep::Batch {
                    first: head.first,
                    positions,
                    time: (head.time_min, head.time_max),
                }))
            }
            ScanItem::Damage { .. } => Ok(None),
            ScanItem::End { .. } => {
                // End of this segment: its remaining positions are missing.
                let next = segment::list(&*self.inner.mapped.disk, &self.inner.mapped.paths)?
                    .into_iter()
                    .find(|next| next > first);
                let broken = scan.take_broken();
                self.scan = None;
                let upto = match next {
                    Some(next) if !writing => next,
                    _ => mark.position,
                };
                if upto > self.position {
                    self.record_missing(self.position..upto, broken)?;
                }
                Ok(None)
            }
        }
    }

    /// Opens the segment with the position. False: there is none, and the gap was recorded.
    fn open_segment(&mut self) -> Result<bool> {
        let mapped = &self.inner.mapped;
        let firsts = segment::list(&*mapped.disk, &mapped.paths)?;
        let Some(&first) = firsts.iter().rev().find(|&&first| first <= self.position) else {
            let next = firsts.first().copied().unwrap_or_else(|| mapped.buffer.mark().position);
            self.record_missing(self.position..next, None)?;
            return Ok(false);
        };
        match SegmentScan::open(&*mapped.disk, &mapped.paths, mapped.stored_settings.id, first) {
            Ok(scan) => {
                self.scan = Some((first, scan));
                Ok(true)
            }
            // Deleted since it was listed.
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Records missing positions as the next gap. Intact headers of damaged frames give the append
    /// times.
    fn record_missing(
        &mut self,
        positions: Range<u64>,
        broken: Option<BrokenFrames>,
    ) -> Result<()> {
        let (gaps, _) = GapSet::load(&*self.inner.mapped.disk, &self.inner.mapped.paths)?;
        self.gaps = gaps.resolve(positions);
        if let Some(broken) = broken {
            let is_within = |gap: &&mut RecordGap| {
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

    /// Reports damage to the supervisor. Segments that all subscribers have passed are deleted, not
    /// damaged, even if an anonymous reader misses them.
    fn report_damage(&self) {
        let mapped = &self.inner.mapped;
        let first_kept = mapped.buffer.first();
        let is_damage =
            |gap: &&RecordGap| gap.reason == GapReason::Damaged && gap.positions.end > first_kept;
        for gap in self.gaps.iter().filter(is_damage) {
            let location = format!("records {:?} of the journal", gap.positions);
            let dir = mapped.paths.dir.display();
            let remedy = format!(
                "`topdeck audit` reports the loss; check the disk, stop topdeck and run \
                 `topdeck journal repair {dir}`"
            );
            self.inner.options.supervisor.report_damage(location, gap.records(), remedy);
        }
    }

    /// Reads buffer entries from the position on. `None`: there are none, or they were moved.
    /// `mark` shows that nothing from the position on is in segments.
    fn read_buffer(&mut self, mark: FlushMark) -> Result<Option<ReadStep>> {
        let buffer = &self.inner.mapped.buffer;
        let (tail, next) = buffer.end();
        self.raw.clear();
        let mut at = mark.ring;
        let (mut first, mut end) = (None, 0);
        let mut time = (i64::MAX, i64::MIN);
        while at < tail && self.raw.len() < BUFFER_BATCH_BYTES {
            self.entry.clear();
            let Some(entry) = buffer.ring().entry(at, tail, &mut self.entry) else {
                // Corrupt: search for the next valid entry. If it was moved instead, the check
                // below detects it.
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
            frame::encode_batch_header(&mut self.raw, entry.identity, entry.records);
            if !entry.is_packed {
                frame::put_varint(&mut self.raw, self.entry.len() as u64);
            }
            self.raw.extend_from_slice(&self.entry);
        }
        // The copy is valid only if nothing was published in the meantime: otherwise the ring's
        // words may have been overwritten.
        if buffer.mark() != mark {
            return Ok(None);
        }
        // Records lost after the last entry are known only by the next position.
        let lost = if at >= tail && next > self.position { Some(next) } else { None };
        let Some(first) = first.or(lost) else { return Ok(None) };
        if first > self.position {
            self.record_missing(self.position..first, None)?;
            return Ok(self.gaps.pop().map(ReadStep::Gap));
        }
        Ok(Some(ReadStep::Batch { first, positions: self.position..end, time }))
    }

    /// Waits until there is something to read; false on timeout.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<bool> {
        let since = Instant::now();
        loop {
            if self.is_ready() {
                return Ok(true);
            }
            let remaining = match timeout.map(|timeout| timeout.saturating_sub(since.elapsed())) {
                Some(Duration::ZERO) => return Ok(false),
                remaining => remaining,
            };
            self.sleep(remaining);
        }
    }

    fn is_ready(&self) -> bool {
        self.readable_end() > self.position || !self.gaps.is_empty()
    }

    fn sleep(&self, timeout: Option<Duration>) {
        let longest = self.inner.options.recheck_interval;
        let piece = timeout.map_or(longest, |timeout| timeout.min(longest));
        self.inner.mapped.buffer.sleep_reader(Some(piece), &mut || self.is_ready());
    }

    /// A file descriptor (eventfd) for event loops that becomes readable when
    /// [`JournalReader::next`], after returning `None`, has something again. Reading its 8 bytes
    /// clears it. A dedicated thread waits.
    #[expect(clippy::expect_used, reason = "it was made above")]
    pub fn readiness(&mut self) -> std::io::Result<std::os::fd::BorrowedFd<'_>> {
        if self.readiness.is_none() {
            let readiness =
                Readiness::start(Arc::clone(&self.inner), self.level, self.reads_buffer)?;
            readiness.arm(self.position);
            self.readiness = Some(readiness);
        }
        Ok(self.readiness.as_ref().expect("BUG: just made").fd())
    }

    pub(crate) fn inner(&self) -> &OpenJournal {
        &self.inner
    }
}

impl fmt::Debug for JournalReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("position", &self.position).finish_non_exhaustive()
    }
}
