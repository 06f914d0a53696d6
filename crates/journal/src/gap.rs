//! Gaps: what a reader does not get, and why. Gaps that are made on purpose, or found, are kept in the file
//! `gaps` for as long as somebody who missed something may ask.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Range, RangeInclusive};

use disk::{Disk, Mode};

use crate::error::{Doing, Error, Result};
use crate::layout::{
    Fields, GAP, GAP_BYTES, GAP_PRODUCER, GAP_PRODUCER_BYTES, GAPS, GAPS_BYTES, GAPS_MAGIC,
    VERSION, checksum, field,
};
use crate::level::Identity;
use crate::places::Places;

/// Why records are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Dropped: the journal had reached its limit in bytes.
    BytesLimit,
    /// Dropped: they were older than the journal keeps.
    AgeLimit,
    /// Their bytes on disk are not what was written, or their segment is gone.
    Damaged,
    /// Not yet durable when the machine stopped: somebody may have seen these positions, nothing more is known.
    Interrupted,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::BytesLimit => "dropped at the limit in bytes",
            Reason::AgeLimit => "dropped at the age limit",
            Reason::Damaged => "damaged",
            Reason::Interrupted => "not durable when the machine stopped",
        })
    }
}

/// A producer's part in a gap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducerGap {
    /// The producer.
    pub producer: u64,
    /// Its boot.
    pub boot: u64,
    /// The sequences of its batches, from the first to the last.
    pub sequences: RangeInclusive<u64>,
    /// How many records they had.
    pub records: u64,
}

/// Records that are missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Their positions: exact, and so is their count.
    pub positions: Range<u64>,
    /// Why.
    pub reason: Reason,
    /// When they were appended, from the earliest to the latest, in nanoseconds since the Unix epoch;
    /// `None` when it is not known.
    pub time: Option<RangeInclusive<i64>>,
    /// Whose they were, as far as known; records without an identity are nobody's.
    pub producers: Vec<ProducerGap>,
    /// Whether `producers` and `time` are about exactly these positions. If not, they are about a longer
    /// stretch that contains them, or not known.
    pub complete: bool,
}

impl Gap {
    pub(crate) fn unknown(positions: Range<u64>, reason: Reason) -> Gap {
        Gap { positions, reason, time: None, producers: Vec::new(), complete: false }
    }

    /// How many records.
    pub fn records(&self) -> u64 {
        self.positions.end.saturating_sub(self.positions.start)
    }

    /// The part of the gap in a range.
    fn within(&self, range: &Range<u64>) -> Option<Gap> {
        let positions = self.positions.start.max(range.start)..self.positions.end.min(range.end);
        let whole = positions == self.positions;
        (!positions.is_empty()).then(|| Gap {
            positions,
            complete: self.complete && whole,
            ..self.clone()
        })
    }
}

/// Adds up what is being lost.
#[derive(Default)]
pub(crate) struct Tally {
    producers: BTreeMap<(u64, u64), (u64, u64, u64)>,
    time: Option<RangeInclusive<i64>>,
    records: u64,
    /// A frame has records from before, too: its times are theirs as well.
    straddles: bool,
}

impl Tally {
    /// A frame with records that are lost: its times, and whether it has no others.
    pub(crate) fn frame(&mut self, min: i64, max: i64, whole: bool) {
        self.straddles |= !whole;
        self.time = Some(match self.time.take() {
            Some(time) => min.min(*time.start())..=max.max(*time.end()),
            None => min..=max,
        });
    }

    pub(crate) fn record(&mut self, identity: Option<Identity>) {
        self.records = self.records.saturating_add(1);
        if let Some(Identity { producer, boot, sequence }) = identity {
            let part = self.producers.entry((producer, boot)).or_insert((sequence, sequence, 0));
            *part = (part.0.min(sequence), part.1.max(sequence), part.2.saturating_add(1));
        }
    }

    /// The gap; complete if all of it was there to be added up.
    pub(crate) fn gap(self, positions: Range<u64>, reason: Reason) -> Gap {
        let complete =
            self.records == positions.end.saturating_sub(positions.start) && !self.straddles;
        let producers =
            self.producers.into_iter().map(|((producer, boot), (first, last, records))| {
                ProducerGap { producer, boot, sequences: first..=last, records }
            });
        Gap { positions, reason, time: self.time, producers: producers.collect(), complete }
    }
}

/// All gaps that are remembered, by position, not overlapping.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gaps {
    gaps: Vec<Gap>,
}

impl Gaps {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Gap> {
        self.gaps.iter()
    }

    /// Adds the part of a gap that is not known yet. `checkpoints` are the positions somebody may read from:
    /// neighbours of the same reason become one gap unless one of them lies inside.
    pub(crate) fn add(&mut self, gap: Gap, checkpoints: &[u64]) {
        let mut from = gap.positions.start;
        let known: Vec<Range<u64>> = self.gaps.iter().map(|gap| gap.positions.clone()).collect();
        let behind = gap.positions.end..u64::MAX;
        for known in known.into_iter().chain(std::iter::once(behind)) {
            let free = from..known.start.min(gap.positions.end);
            self.gaps.extend(gap.within(&free));
            from = from.max(known.end);
            if from >= gap.positions.end {
                break;
            }
        }
        self.gaps.sort_by_key(|gap| gap.positions.start);
        self.merge(checkpoints);
    }

    fn merge(&mut self, checkpoints: &[u64]) {
        let mut merged: Vec<Gap> = Vec::new();
        for gap in self.gaps.drain(..) {
            match merged.last_mut() {
                Some(last)
                    if last.positions.end == gap.positions.start
                        && last.reason == gap.reason
                        && !checkpoints.iter().any(|at| {
                            (last.positions.start.saturating_add(1)..gap.positions.end).contains(at)
                        }) =>
                {
                    join(last, gap);
                }
                _ => merged.push(gap),
            }
        }
        self.gaps = merged;
    }

    /// Whether all of a range is in gaps that are known.
    pub(crate) fn knows(&self, range: &Range<u64>) -> bool {
        let known = self.gaps.iter().filter_map(|gap| gap.within(range));
        let records = known.fold(0u64, |sum, gap| sum.saturating_add(gap.records()));
        records == range.end.saturating_sub(range.start)
    }

    /// Forgets what every checkpoint has passed. With none, nobody can ask.
    pub(crate) fn forget_before(&mut self, position: u64) -> bool {
        let before = self.gaps.len();
        self.gaps.retain(|gap| gap.positions.end > position);
        self.gaps.len() < before
    }

    /// The gaps that make up a range of missing positions: known ones, and damage where nothing is known.
    pub(crate) fn explain(&self, range: Range<u64>) -> Vec<Gap> {
        let mut parts = Vec::new();
        let mut from = range.start;
        for known in self.gaps.iter().filter_map(|gap| gap.within(&range)) {
            if known.positions.start > from {
                parts.push(Gap::unknown(from..known.positions.start, Reason::Damaged));
            }
            from = known.positions.end;
            parts.push(known);
        }
        if from < range.end {
            parts.push(Gap::unknown(from..range.end, Reason::Damaged));
        }
        parts
    }

    /// Reads the file. One that is missing has no gaps; of one that is damaged, nothing is known, and what
    /// it said appears as damage.
    pub(crate) fn load(disk: &dyn Disk, places: &Places) -> Result<(Gaps, bool)> {
        let path = places.gaps();
        let file = match disk.open(&path, Mode::Read) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok((Gaps::default(), true));
            }
            Err(error) => return Err(error).doing("open it", &path),
        };
        let len = file.len().doing("ask for its length", &path)?;
        // It holds a few entries per producer; a length beyond memory is not ours.
        let mut bytes = vec![0; usize::try_from(len.min(1 << 30)).unwrap_or(0)];
        let have = file.read_full_at(&mut bytes, 0).doing("read it", &path)?;
        bytes.truncate(have);
        match decode(&bytes) {
            Decoded::Gaps(gaps) => Ok((gaps, true)),
            Decoded::Damaged => Ok((Gaps::default(), false)),
            Decoded::Newer(found) => Err(Error::Version { path, found, known: VERSION }),
        }
    }

    /// Replaces the file, durably.
    pub(crate) fn save(&self, disk: &dyn Disk, places: &Places) -> Result<()> {
        let path = places.gaps();
        let fresh = path.with_added_extension("new");
        let file = disk.open(&fresh, Mode::Create).doing("create it", &fresh)?;
        file.set_len(0).doing("empty it", &fresh)?;
        file.write_all_at(&self.encode(), 0).doing("write it", &fresh)?;
        file.sync().doing("make it durable", &fresh)?;
        disk.rename(&fresh, &path).doing("give it its name", &path)?;
        disk.sync_dir(&places.dir).doing("make a new name in it durable", &places.dir)
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; GAPS_BYTES];
        let mut fields = Fields::into(&GAPS, &mut bytes);
        fields.put("magic", &GAPS_MAGIC);
        fields.put("version", &VERSION.to_le_bytes());
        fields.put("gaps", &(self.gaps.len() as u32).to_le_bytes());
        for gap in &self.gaps {
            let mut entry = [0; GAP_BYTES];
            let mut fields = Fields::into(&GAP, &mut entry);
            // A latest time before the earliest stands for one that is not known.
            let (earliest, latest) =
                gap.time.clone().map_or((i64::MAX, i64::MIN), RangeInclusive::into_inner);
            fields.put("first_position", &gap.positions.start.to_le_bytes());
            fields.put("end_position", &gap.positions.end.to_le_bytes());
            fields.put("time_min", &earliest.to_le_bytes());
            fields.put("time_max", &latest.to_le_bytes());
            fields.put("reason", &[number(gap.reason)]);
            fields.put("complete", &[u8::from(gap.complete)]);
            fields.put("producers", &(gap.producers.len() as u32).to_le_bytes());
            bytes.extend_from_slice(&entry);
            for part in &gap.producers {
                let mut entry = [0; GAP_PRODUCER_BYTES];
                let mut fields = Fields::into(&GAP_PRODUCER, &mut entry);
                fields.put("producer", &part.producer.to_le_bytes());
                fields.put("boot", &part.boot.to_le_bytes());
                fields.put("first_sequence", &part.sequences.start().to_le_bytes());
                fields.put("last_sequence", &part.sequences.end().to_le_bytes());
                fields.put("records", &part.records.to_le_bytes());
                bytes.extend_from_slice(&entry);
            }
        }
        let crc = checksum(&bytes);
        bytes[field(&GAPS, "crc")].copy_from_slice(&crc.to_le_bytes());
        bytes
    }
}

fn join(last: &mut Gap, gap: Gap) {
    last.positions.end = gap.positions.end;
    last.complete &= gap.complete;
    last.time = match (last.time.take(), gap.time) {
        (Some(a), Some(b)) => Some(*a.start().min(b.start())..=*a.end().max(b.end())),
        (a, b) => a.or(b),
    };
    for part in gap.producers {
        match last
            .producers
            .iter_mut()
            .find(|have| (have.producer, have.boot) == (part.producer, part.boot))
        {
            Some(have) => {
                let first = *have.sequences.start().min(part.sequences.start());
                have.sequences = first..=*have.sequences.end().max(part.sequences.end());
                have.records = have.records.saturating_add(part.records);
            }
            None => last.producers.push(part),
        }
    }
    last.producers.sort_by_key(|part| (part.producer, part.boot));
}

fn number(reason: Reason) -> u8 {
    match reason {
        Reason::BytesLimit => 1,
        Reason::AgeLimit => 2,
        Reason::Damaged => 3,
        Reason::Interrupted => 4,
    }
}

enum Decoded {
    Gaps(Gaps),
    Damaged,
    Newer(u32),
}

/// How many gaps there are in any bytes.
pub(crate) fn count(bytes: &[u8]) -> usize {
    match decode(bytes) {
        Decoded::Gaps(gaps) => gaps.gaps.len(),
        Decoded::Damaged | Decoded::Newer(_) => 0,
    }
}

fn decode(bytes: &[u8]) -> Decoded {
    decode_sound(bytes).unwrap_or(Decoded::Damaged)
}

fn decode_sound(bytes: &[u8]) -> Option<Decoded> {
    let (head, mut rest) = bytes.split_at_checked(GAPS_BYTES)?;
    let fields = Fields::of(&GAPS, head);
    if fields.bytes("magic") != GAPS_MAGIC || fields.u32("crc") != checksum(bytes) {
        return None;
    }
    if fields.u32("version") > VERSION {
        return Some(Decoded::Newer(fields.u32("version")));
    }
    let mut gaps: Vec<Gap> = Vec::new();
    for _ in 0..fields.u32("gaps") {
        let (entry, after) = rest.split_at_checked(GAP_BYTES)?;
        rest = after;
        let fields = Fields::of(&GAP, entry);
        let positions = fields.u64("first_position")..fields.u64("end_position");
        let after_last = gaps.last().is_none_or(|last| last.positions.end <= positions.start);
        if positions.is_empty() || !after_last {
            return None;
        }
        let reasons = [Reason::BytesLimit, Reason::AgeLimit, Reason::Damaged, Reason::Interrupted];
        let reason = reasons.into_iter().find(|&reason| number(reason) == fields.u8("reason"))?;
        let time = fields.i64("time_min")..=fields.i64("time_max");
        let mut producers = Vec::new();
        for _ in 0..fields.u32("producers") {
            let (entry, after) = rest.split_at_checked(GAP_PRODUCER_BYTES)?;
            rest = after;
            let fields = Fields::of(&GAP_PRODUCER, entry);
            producers.push(ProducerGap {
                producer: fields.u64("producer"),
                boot: fields.u64("boot"),
                sequences: fields.u64("first_sequence")..=fields.u64("last_sequence"),
                records: fields.u64("records"),
            });
        }
        let complete = fields.u8("complete") != 0;
        gaps.push(Gap {
            positions,
            reason,
            time: (!time.is_empty()).then_some(time),
            producers,
            complete,
        });
    }
    rest.is_empty().then_some(Decoded::Gaps(Gaps { gaps }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gap(positions: Range<u64>, sequence: u64) -> Gap {
        let mut tally = Tally::default();
        tally.frame(sequence.cast_signed(), sequence.cast_signed() + 1, true);
        for _ in positions.clone() {
            tally.record(Some(Identity { producer: 1, boot: 2, sequence }));
        }
        tally.gap(positions, Reason::BytesLimit)
    }

    #[test]
    fn neighbours_become_one_gap_that_adds_up() {
        let mut gaps = Gaps::default();
        gaps.add(gap(0..10, 5), &[0]);
        gaps.add(gap(10..30, 6), &[0]);
        let all: Vec<_> = gaps.iter().cloned().collect();
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].positions, 0..30);
        assert_eq!(all[0].time, Some(5..=7));
        assert_eq!(
            (all[0].producers[0].sequences.clone(), all[0].producers[0].records),
            (5..=6, 30)
        );
    }

    #[test]
    fn what_somebody_may_read_from_the_middle_of_stays_apart() {
        let mut gaps = Gaps::default();
        gaps.add(gap(0..10, 5), &[0, 10]);
        gaps.add(gap(10..30, 6), &[0, 10]);
        assert_eq!(gaps.explain(10..30), [gap(10..30, 6)]);
    }

    #[test]
    fn nothing_is_counted_twice() {
        let mut gaps = Gaps::default();
        gaps.add(gap(10..20, 1), &[]);
        gaps.add(gap(10..20, 1), &[]);
        gaps.add(Gap::unknown(5..25, Reason::Damaged), &[]);
        let ranges: Vec<_> = gaps.iter().map(|gap| gap.positions.clone()).collect();
        assert_eq!(ranges, [5..10, 10..20, 20..25]);
        assert_eq!(gaps.iter().map(Gap::records).sum::<u64>(), 20);
    }

    #[test]
    fn a_part_of_a_gap_says_that_its_producers_are_those_of_more() {
        let mut gaps = Gaps::default();
        gaps.add(gap(10..20, 1), &[]);
        let parts = gaps.explain(8..15);
        let shown: Vec<_> =
            parts.iter().map(|gap| (gap.positions.clone(), gap.reason, gap.complete)).collect();
        assert_eq!(shown, [(8..10, Reason::Damaged, false), (10..15, Reason::BytesLimit, false)]);
    }

    #[test]
    fn the_file_comes_back_and_any_flipped_bit_is_seen() {
        let mut gaps = Gaps::default();
        gaps.add(gap(10..20, 1), &[]);
        gaps.add(Gap::unknown(30..31, Reason::Interrupted), &[]);
        let bytes = gaps.encode();
        assert!(matches!(decode(&bytes), Decoded::Gaps(again) if again == gaps));
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(decode(&flipped), Decoded::Damaged), "bit {bit}");
        }
    }
}
