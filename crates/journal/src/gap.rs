//! Gaps: records that a reader does not get, with the reason. Gaps made by eviction or found as
//! damage are kept in the file `gaps` as long as a reader may need them.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Range, RangeInclusive};

use disk::Disk;

use crate::error::{Error, Result};
use crate::layout::{
    FieldTable, GAP, GAP_BYTES, GAP_PRODUCER, GAP_PRODUCER_BYTES, GAPS, GAPS_BYTES, GAPS_MAGIC,
    VERSION, checksum, field,
};
use crate::level::BatchIdentity;
use crate::paths::Paths;

/// Why records are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GapReason {
    /// Size retention.
    BytesLimit,
    /// Time retention.
    AgeLimit,
    /// The bytes on disk are corrupt, or the segment is missing.
    Damaged,
    /// Not durable when the machine stopped: the positions may have been seen, their content is
    /// unknown.
    LostBeforeSync,
}

impl fmt::Display for GapReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            GapReason::BytesLimit => "dropped: size retention",
            GapReason::AgeLimit => "dropped: time retention",
            GapReason::Damaged => "damaged",
            GapReason::LostBeforeSync => "lost in crash before sync",
        })
    }
}

/// One producer's share of a gap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducerGap {
    /// The producer.
    pub producer: u64,
    /// Epoch.
    pub epoch: u64,
    /// First to last sequence of its lost batches.
    pub sequences: RangeInclusive<u64>,
    /// Number of lost records.
    pub records: u64,
}

/// Records that are missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordGap {
    /// Positions, exact.
    pub positions: Range<u64>,
    /// Reason.
    pub reason: GapReason,
    /// Append times, earliest to latest, in nanoseconds since the Unix epoch; `None` if unknown.
    pub time: Option<RangeInclusive<i64>>,
    /// Producers, as far as known; records without identity have none.
    pub producers: Vec<ProducerGap>,
    /// Whether `producers` and `time` describe exactly these positions. Otherwise they describe a
    /// longer range that contains them, or are unknown.
    pub is_complete: bool,
}

impl RecordGap {
    pub(crate) fn unknown(positions: Range<u64>, reason: GapReason) -> RecordGap {
        RecordGap { positions, reason, time: None, producers: Vec::new(), is_complete: false }
    }

    /// Number of records.
    pub fn records(&self) -> u64 {
        self.positions.end.saturating_sub(self.positions.start)
    }

    /// The part of the gap within a range.
    fn clip(&self, range: &Range<u64>) -> Option<RecordGap> {
        let positions = self.positions.start.max(range.start)..self.positions.end.min(range.end);
        let is_complete = positions == self.positions;
        (!positions.is_empty()).then(|| RecordGap {
            positions,
            is_complete: self.is_complete && is_complete,
            ..self.clone()
        })
    }
}

/// Collects the producers and times of records being lost.
#[derive(Default)]
pub(crate) struct GapBuilder {
    producers: BTreeMap<(u64, u64), (u64, u64, u64)>,
    time: Option<RangeInclusive<i64>>,
    records: u64,
    /// A frame also has earlier records: the times include theirs.
    is_partial_frame: bool,
}

impl GapBuilder {
    /// Adds a frame with lost records: its times, and whether all its records are lost.
    pub(crate) fn frame(&mut self, min: i64, max: i64, is_complete: bool) {
        self.is_partial_frame |= !is_complete;
        self.time = Some(match self.time.take() {
            Some(time) => min.min(*time.start())..=max.max(*time.end()),
            None => min..=max,
        });
    }

    pub(crate) fn record(&mut self, identity: Option<BatchIdentity>) {
        self.records = self.records.saturating_add(1);
        if let Some(BatchIdentity { producer, epoch, sequence }) = identity {
            let part = self.producers.entry((producer, epoch)).or_insert((sequence, sequence, 0));
            *part = (part.0.min(sequence), part.1.max(sequence), part.2.saturating_add(1));
        }
    }

    /// Builds the gap; complete if all its records were added.
    pub(crate) fn gap(self, positions: Range<u64>, reason: GapReason) -> RecordGap {
        let complete =
            self.records == positions.end.saturating_sub(positions.start) && !self.is_partial_frame;
        let producers =
            self.producers.into_iter().map(|((producer, epoch), (first, last, records))| {
                ProducerGap { producer, epoch, sequences: first..=last, records }
            });
        RecordGap {
            positions,
            reason,
            time: self.time,
            producers: producers.collect(),
            is_complete: complete,
        }
    }
}

/// Known gaps, sorted, not overlapping.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GapSet {
    gaps: Vec<RecordGap>,
}

impl GapSet {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &RecordGap> {
        self.gaps.iter()
    }

    /// Adds the part of a gap that is not recorded yet. `checkpoints` are positions from which a
    /// reader may start: neighbours with the same reason are merged unless one of these lies
    /// inside.
    pub(crate) fn add(&mut self, gap: RecordGap, checkpoints: &[u64]) {
        let mut from = gap.positions.start;
        let known: Vec<Range<u64>> = self.gaps.iter().map(|gap| gap.positions.clone()).collect();
        let behind = gap.positions.end..u64::MAX;
        for known in known.into_iter().chain(std::iter::once(behind)) {
            let free = from..known.start.min(gap.positions.end);
            self.gaps.extend(gap.clip(&free));
            from = from.max(known.end);
            if from >= gap.positions.end {
                break;
            }
        }
        self.gaps.sort_by_key(|gap| gap.positions.start);
        self.merge(checkpoints);
    }

    fn merge(&mut self, checkpoints: &[u64]) {
        let mut merged: Vec<RecordGap> = Vec::new();
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

    /// Whether recorded gaps cover all of a range.
    pub(crate) fn contains(&self, range: &Range<u64>) -> bool {
        let known = self.gaps.iter().filter_map(|gap| gap.clip(range));
        let records = known.fold(0u64, |sum, gap| sum.saturating_add(gap.records()));
        records == range.end.saturating_sub(range.start)
    }

    /// Removes gaps that every checkpoint has passed; all gaps if there is no checkpoint.
    pub(crate) fn prune_before(&mut self, position: u64) -> bool {
        let before = self.gaps.len();
        self.gaps.retain(|gap| gap.positions.end > position);
        self.gaps.len() < before
    }

    /// Gaps that make up a range of missing positions: recorded ones, and damage for the rest.
    pub(crate) fn resolve(&self, range: Range<u64>) -> Vec<RecordGap> {
        let mut parts = Vec::new();
        let mut from = range.start;
        for known in self.gaps.iter().filter_map(|gap| gap.clip(&range)) {
            if known.positions.start > from {
                parts.push(RecordGap::unknown(from..known.positions.start, GapReason::Damaged));
            }
            from = known.positions.end;
            parts.push(known);
        }
        if from < range.end {
            parts.push(RecordGap::unknown(from..range.end, GapReason::Damaged));
        }
        parts
    }

    /// Loads the file. A missing file means no gaps; the content of a corrupt file is lost, and its
    /// gaps are reported as damage.
    pub(crate) fn load(disk: &dyn Disk, paths: &Paths) -> Result<(GapSet, bool)> {
        let path = paths.gaps();
        // The file has a few entries per producer; a length beyond memory is invalid.
        let Some(bytes) = disk::read_file(disk, &path, 1 << 30)? else {
            return Ok((GapSet::default(), true));
        };
        match decode(&bytes) {
            DecodedGaps::Gaps(gaps) => Ok((gaps, true)),
            DecodedGaps::Damaged => Ok((GapSet::default(), false)),
            DecodedGaps::NewerVersion(found) => {
                Err(Error::Version { path, found, supported: VERSION })
            }
        }
    }

    /// Replaces the file, durably.
    pub(crate) fn save(&self, disk: &dyn Disk, paths: &Paths) -> Result<()> {
        Ok(disk::replace_file(disk, &paths.gaps(), &self.encode())?)
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; GAPS_BYTES];
        let mut fields = FieldTable::into(&GAPS, &mut bytes);
        fields.put("magic", &GAPS_MAGIC);
        fields.put("version", &VERSION.to_le_bytes());
        fields.put("gaps", &(self.gaps.len() as u32).to_le_bytes());
        for gap in &self.gaps {
            let mut entry = [0; GAP_BYTES];
            let mut fields = FieldTable::into(&GAP, &mut entry);
            // A latest time before the earliest encodes an unknown time.
            let (earliest, latest) =
                gap.time.clone().map_or((i64::MAX, i64::MIN), RangeInclusive::into_inner);
            fields.put("first_position", &gap.positions.start.to_le_bytes());
            fields.put("end_position", &gap.positions.end.to_le_bytes());
            fields.put("time_min", &earliest.to_le_bytes());
            fields.put("time_max", &latest.to_le_bytes());
            fields.put("reason", &[number(gap.reason)]);
            fields.put("complete", &[u8::from(gap.is_complete)]);
            fields.put("producers", &(gap.producers.len() as u32).to_le_bytes());
            bytes.extend_from_slice(&entry);
            for part in &gap.producers {
                let mut entry = [0; GAP_PRODUCER_BYTES];
                let mut fields = FieldTable::into(&GAP_PRODUCER, &mut entry);
                fields.put("producer", &part.producer.to_le_bytes());
                fields.put("epoch", &part.epoch.to_le_bytes());
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

fn join(last: &mut RecordGap, gap: RecordGap) {
    last.positions.end = gap.positions.end;
    last.is_complete &= gap.is_complete;
    last.time = match (last.time.take(), gap.time) {
        (Some(a), Some(b)) => Some(*a.start().min(b.start())..=*a.end().max(b.end())),
        (a, b) => a.or(b),
    };
    for part in gap.producers {
        match last
            .producers
            .iter_mut()
            .find(|have| (have.producer, have.epoch) == (part.producer, part.epoch))
        {
            Some(have) => {
                let first = *have.sequences.start().min(part.sequences.start());
                have.sequences = first..=*have.sequences.end().max(part.sequences.end());
                have.records = have.records.saturating_add(part.records);
            }
            None => last.producers.push(part),
        }
    }
    last.producers.sort_by_key(|part| (part.producer, part.epoch));
}

fn number(reason: GapReason) -> u8 {
    match reason {
        GapReason::BytesLimit => 1,
        GapReason::AgeLimit => 2,
        GapReason::Damaged => 3,
        GapReason::LostBeforeSync => 4,
    }
}

enum DecodedGaps {
    Gaps(GapSet),
    Damaged,
    NewerVersion(u32),
}

/// Number of gaps in arbitrary bytes.
pub(crate) fn count(bytes: &[u8]) -> usize {
    match decode(bytes) {
        DecodedGaps::Gaps(gaps) => gaps.gaps.len(),
        DecodedGaps::Damaged | DecodedGaps::NewerVersion(_) => 0,
    }
}

fn decode(bytes: &[u8]) -> DecodedGaps {
    decode_verified(bytes).unwrap_or(DecodedGaps::Damaged)
}

fn decode_verified(bytes: &[u8]) -> Option<DecodedGaps> {
    let (head, mut rest) = bytes.split_at_checked(GAPS_BYTES)?;
    let fields = FieldTable::read_only(&GAPS, head);
    if fields.bytes("magic") != GAPS_MAGIC || fields.u32("crc") != checksum(bytes) {
        return None;
    }
    if fields.u32("version") > VERSION {
        return Some(DecodedGaps::NewerVersion(fields.u32("version")));
    }
    let mut gaps: Vec<RecordGap> = Vec::new();
    for _ in 0..fields.u32("gaps") {
        let (entry, after) = rest.split_at_checked(GAP_BYTES)?;
        rest = after;
        let fields = FieldTable::read_only(&GAP, entry);
        let positions = fields.u64("first_position")..fields.u64("end_position");
        let after_last = gaps.last().is_none_or(|last| last.positions.end <= positions.start);
        if positions.is_empty() || !after_last {
            return None;
        }
        let reasons = [
            GapReason::BytesLimit,
            GapReason::AgeLimit,
            GapReason::Damaged,
            GapReason::LostBeforeSync,
        ];
        let reason = reasons.into_iter().find(|&reason| number(reason) == fields.u8("reason"))?;
        let time = fields.i64("time_min")..=fields.i64("time_max");
        let mut producers = Vec::new();
        for _ in 0..fields.u32("producers") {
            let (entry, after) = rest.split_at_checked(GAP_PRODUCER_BYTES)?;
            rest = after;
            let fields = FieldTable::read_only(&GAP_PRODUCER, entry);
            producers.push(ProducerGap {
                producer: fields.u64("producer"),
                epoch: fields.u64("epoch"),
                sequences: fields.u64("first_sequence")..=fields.u64("last_sequence"),
                records: fields.u64("records"),
            });
        }
        let complete = fields.u8("complete") != 0;
        gaps.push(RecordGap {
            positions,
            reason,
            time: (!time.is_empty()).then_some(time),
            producers,
            is_complete: complete,
        });
    }
    rest.is_empty().then_some(DecodedGaps::Gaps(GapSet { gaps }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gap(positions: Range<u64>, sequence: u64) -> RecordGap {
        let mut tally = GapBuilder::default();
        tally.frame(sequence.cast_signed(), sequence.cast_signed() + 1, true);
        for _ in positions.clone() {
            tally.record(Some(BatchIdentity { producer: 1, epoch: 2, sequence }));
        }
        tally.gap(positions, GapReason::BytesLimit)
    }

    #[test]
    fn neighbours_become_one_gap_that_adds_up() {
        let mut gaps = GapSet::default();
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
    fn gap_with_a_reader_inside_is_not_merged() {
        let mut gaps = GapSet::default();
        gaps.add(gap(0..10, 5), &[0, 10]);
        gaps.add(gap(10..30, 6), &[0, 10]);
        assert_eq!(gaps.resolve(10..30), [gap(10..30, 6)]);
    }

    #[test]
    fn nothing_is_counted_twice() {
        let mut gaps = GapSet::default();
        gaps.add(gap(10..20, 1), &[]);
        gaps.add(gap(10..20, 1), &[]);
        gaps.add(RecordGap::unknown(5..25, GapReason::Damaged), &[]);
        let ranges: Vec<_> = gaps.iter().map(|gap| gap.positions.clone()).collect();
        assert_eq!(ranges, [5..10, 10..20, 20..25]);
        assert_eq!(gaps.iter().map(RecordGap::records).sum::<u64>(), 20);
    }

    #[test]
    fn clipped_gap_is_incomplete() {
        let mut gaps = GapSet::default();
        gaps.add(gap(10..20, 1), &[]);
        let parts = gaps.resolve(8..15);
        let shown: Vec<_> =
            parts.iter().map(|gap| (gap.positions.clone(), gap.reason, gap.is_complete)).collect();
        assert_eq!(
            shown,
            [(8..10, GapReason::Damaged, false), (10..15, GapReason::BytesLimit, false)]
        );
    }

    #[test]
    fn gap_file_round_trips_and_detects_flipped_bits() {
        let mut gaps = GapSet::default();
        gaps.add(gap(10..20, 1), &[]);
        gaps.add(RecordGap::unknown(30..31, GapReason::LostBeforeSync), &[]);
        let bytes = gaps.encode();
        assert!(matches!(decode(&bytes), DecodedGaps::Gaps(again) if again == gaps));
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(decode(&flipped), DecodedGaps::Damaged), "bit {bit}");
        }
    }
}
