//! Reservoir of exemplars: per series, minute and cell of a ladder at most two, and the maximum of
//! each series and minute.
//!
//! Each exemplar has a key, a hash of what it is. A cell keeps the exemplars with the lowest keys
//! (a bottom-k sample), which is a uniform sample of all that were offered. What is kept depends
//! neither on the order nor on repetitions, so that records may be read twice, and reservoirs are
//! merged by offering the exemplars of one to the other. Two exemplars of a series and minute with
//! equal value, ids and attributes are one: a scrape repeats what it returned before.
//!
//! The maximum is outside its cell's sample. A larger one takes its place, and the former maximum
//! is offered to the sample of its cell: each cell with offered exemplars has one.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use model::{Exemplar, ExemplarSource, LadderCell, SeriesId, span_sampling_key, splitmix64};

use super::ExemplarOptions;
use crate::resolution::MINUTE;

/// Exemplars of a cell besides the maximum.
const KEPT_PER_CELL: usize = 2;
/// Exemplars that are later than now by more nanoseconds are not kept: they would outlive all
/// others, and have the budget evict what other senders sent.
pub const EXEMPLAR_AHEAD_MAX: i64 = 5 * MINUTE;
/// Room for further exemplars of a series.
const GROWTH: usize = 4;
/// Upper estimate of a series' memory in a minute, apart from its exemplars: an entry of a hash
/// table that has just grown, and an allocation.
const SERIES_BYTES: usize = 2 * (size_of::<(SeriesId, SeriesExemplars)>() + 1) + ALLOCATION_BYTES;
/// Upper estimate of an allocation's overhead.
const ALLOCATION_BYTES: usize = 16;
/// Upper estimate of a minute's memory apart from its series.
const MINUTE_BYTES: usize = 256;
/// Upper bound of what one exemplar adds: the budget is kept whatever it has as attributes.
const KEPT_EXEMPLAR_BYTES_MAX: usize = 4 << 10;

/// An exemplar with its key.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct KeptExemplar {
    pub(super) key: u64,
    pub(super) cell: LadderCell,
    pub(super) exemplar: Exemplar,
}

impl KeptExemplar {
    /// Memory of the attributes.
    fn attribute_bytes(&self) -> usize {
        match self.exemplar.attributes.bytes().len() {
            0 => 0,
            bytes => bytes.saturating_add(ALLOCATION_BYTES),
        }
    }

    /// Whether it is the maximum beside another one. Of equal values the one with the lower key.
    fn exceeds(&self, other: &KeptExemplar) -> bool {
        let (a, b) = (self.exemplar.value, other.exemplar.value);
        a > b || a == b && self.key < other.key
    }
}

/// Exemplars of a series in a minute.
#[derive(Debug)]
struct SeriesExemplars {
    maximum: KeptExemplar,
    /// By cell, then by key.
    sample: Vec<KeptExemplar>,
}

#[derive(Debug, Default)]
struct MinuteExemplars {
    series: HashMap<SeriesId, SeriesExemplars>,
    bytes: usize,
}

/// What became of the exemplars since the start of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExemplarCounts {
    /// Kept, at least for some time.
    pub kept: u64,
    /// Not kept, or replaced: a uniform sample of the cell has others.
    pub sampled_out: u64,
    /// Known already.
    pub duplicate: u64,
    /// Before the retention, or in the future.
    pub outside_time: u64,
    /// Evicted, or not kept, because of the budget.
    pub evicted: u64,
    /// Of a series that the store does not have.
    pub unknown_series: u64,
}

/// State of the exemplars.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExemplarStat {
    /// Number of exemplars.
    pub exemplars: u64,
    /// Upper estimate of their memory, in bytes.
    pub bytes: u64,
    /// Start of the time of which exemplars are complete, in ns since the Unix epoch: earlier ones
    /// have expired, were evicted or were lost.
    pub covered_from: i64,
    /// What became of all exemplars.
    pub counts: ExemplarCounts,
}

/// A kept exemplar and where it is kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExemplarMatch<'a> {
    pub(super) series: SeriesId,
    pub(super) kept: &'a KeptExemplar,
    /// Whether it is the maximum of its series and minute.
    pub(super) is_maximum: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Reservoir {
    options: ExemplarOptions,
    /// Start of the hashes.
    seed: u64,
    minutes: BTreeMap<i64, MinuteExemplars>,
    bytes: usize,
    /// End of the last minute of which exemplars were evicted, have expired or were rejected.
    evicted_to: i64,
    /// Exemplars before it may be missing, such as those of a damaged file.
    complete_from: i64,
    counts: ExemplarCounts,
    is_changed: bool,
}

impl Reservoir {
    pub(crate) fn new(options: ExemplarOptions, seed: u64) -> Reservoir {
        Reservoir {
            options,
            seed,
            minutes: BTreeMap::new(),
            bytes: 0,
            evicted_to: i64::MIN,
            complete_from: i64::MIN,
            counts: ExemplarCounts::default(),
            is_changed: false,
        }
    }

    /// Offers an exemplar.
    pub(crate) fn offer(&mut self, series: SeriesId, exemplar: Exemplar, now: i64) {
        match exemplar.time > now.saturating_add(EXEMPLAR_AHEAD_MAX) {
            true => self.counts.outside_time = self.counts.outside_time.saturating_add(1),
            false => self.restore(series, exemplar, now),
        }
    }

    /// Offers an exemplar that was kept before: if the clock was set back, it may be in the future.
    pub(crate) fn restore(&mut self, series: SeriesId, exemplar: Exemplar, now: i64) {
        self.expire(now);
        let minute = exemplar.time.div_euclid(MINUTE).saturating_mul(MINUTE);
        let end = minute.saturating_add(MINUTE);
        if end <= self.evicted_to.max(self.retained_from(now)) {
            // The clock may be wrong: then the minute is incomplete although it is not over.
            self.evicted_to = self.evicted_to.max(end);
            self.counts.outside_time = self.counts.outside_time.saturating_add(1);
            return;
        }
        let key = key_of(self.seed, &exemplar);
        let offered = KeptExemplar { key, cell: LadderCell::of(exemplar.value), exemplar };
        let budget = self.options.bytes_max.saturating_sub(KEPT_EXEMPLAR_BYTES_MAX);
        let is_first = self.minutes.range(..minute).next().is_none();
        let is_full = is_first && self.bytes >= budget;
        if is_full && !self.minutes.get(&minute).is_some_and(|of| of.series.contains_key(&series)) {
            self.counts.evicted = self.counts.evicted.saturating_add(1);
            self.set_incomplete_before(end);
            self.set_changed();
            return;
        }
        let of_minute = self.minutes.entry(minute).or_insert_with(|| {
            self.bytes = self.bytes.saturating_add(MINUTE_BYTES);
            MinuteExemplars { bytes: MINUTE_BYTES, ..MinuteExemplars::default() }
        });
        let before = of_minute.bytes;
        let counts = &mut self.counts;
        let is_kept = match is_full {
            false => of_minute.offer(series, offered, counts),
            true => of_minute.offer_maximum(series, offered, self.seed, counts),
        };
        self.is_changed |= is_kept;
        self.bytes = self.bytes.saturating_sub(before).saturating_add(of_minute.bytes);
        while self.bytes > budget && self.minutes.len() > 1 {
            self.evict_first_minute();
        }
    }

    pub(crate) fn count_unknown_series(&mut self) {
        self.counts.unknown_series = self.counts.unknown_series.saturating_add(1);
    }

    fn evict_first_minute(&mut self) {
        let Some((&minute, evicted)) = self.minutes.first_key_value() else { return };
        self.counts.evicted = self.counts.evicted.saturating_add(evicted.len());
        self.remove_minute(minute);
    }

    fn remove_minute(&mut self, minute: i64) {
        if let Some(removed) = self.minutes.remove(&minute) {
            self.bytes = self.bytes.saturating_sub(removed.bytes);
            self.evicted_to = self.evicted_to.max(minute.saturating_add(MINUTE));
            self.is_changed = true;
        }
    }

    fn retained_from(&self, now: i64) -> i64 {
        now.saturating_sub(self.options.retention)
    }

    /// Removes the minutes before the retention.
    pub(crate) fn expire(&mut self, now: i64) {
        let first = self.retained_from(now);
        while let Some((&minute, _)) = self.minutes.first_key_value()
            && minute.saturating_add(MINUTE) <= first
        {
            self.remove_minute(minute);
        }
    }

    /// Removes the exemplars of series in a range.
    pub(crate) fn delete(&mut self, is_deleted: &dyn Fn(&SeriesId) -> bool, range: &Range<i64>) {
        for minute in self.minutes.values_mut() {
            let before = minute.bytes;
            let ids: Vec<SeriesId> =
                minute.series.keys().filter(|id| is_deleted(id)).copied().collect();
            ids.iter().for_each(|id| minute.delete(*id, range));
            self.bytes = self.bytes.saturating_sub(before).saturating_add(minute.bytes);
        }
        self.minutes.retain(|_, minute| match minute.series.is_empty() {
            true => {
                self.bytes = self.bytes.saturating_sub(minute.bytes);
                false
            }
            false => true,
        });
        self.is_changed = true;
    }

    /// Exemplars of a time range, with their series.
    pub(super) fn matches<'a>(
        &'a self,
        range: &Range<i64>,
        is_selected: &'a dyn Fn(&SeriesId) -> bool,
    ) -> impl Iterator<Item = ExemplarMatch<'a>> {
        let first = range.start.div_euclid(MINUTE).saturating_mul(MINUTE);
        let last = range.end.max(first);
        let minutes = self.minutes.range(first..last).map(|(_, minute)| minute);
        let series = minutes.flat_map(|minute| &minute.series);
        let range = range.clone();
        series
            .filter(|(id, _)| is_selected(id))
            .flat_map(SeriesExemplars::matches)
            .filter(move |found| range.contains(&found.kept.exemplar.time))
    }

    /// An exemplar, unless it was removed meanwhile.
    pub(super) fn find(&self, series: &SeriesId, time: i64, key: u64) -> Option<&Exemplar> {
        let minute = time.div_euclid(MINUTE).saturating_mul(MINUTE);
        let of = self.minutes.get(&minute)?.series.get(series)?;
        let mut all = of.sample.iter().chain([&of.maximum]);
        all.find(|kept| kept.key == key).map(|kept| &kept.exemplar)
    }

    /// Start of the time of which exemplars are known; not in the future.
    pub(crate) fn covered_from(&self, now: i64) -> i64 {
        self.complete_from.max(self.evicted_to).max(self.retained_from(now)).min(now)
    }

    /// The same of a store that was created at a time: nothing was received for the time before it,
    /// unless there are such exemplars.
    pub(crate) fn kept_from(&self, now: i64, created_at: i64) -> i64 {
        let oldest = self.minutes.keys().next().copied().unwrap_or(created_at);
        self.covered_from(now).max(oldest.min(created_at).min(now))
    }

    /// Exemplars before this time may be missing whatever the clock says.
    pub(super) fn complete_from(&self) -> i64 {
        self.complete_from.max(self.evicted_to)
    }

    /// Records that exemplars before a time may be missing.
    pub(crate) fn set_incomplete_before(&mut self, time: i64) {
        self.complete_from = self.complete_from.max(time);
    }

    /// Whether something changed since the last call.
    pub(crate) fn take_changes(&mut self) -> bool {
        std::mem::take(&mut self.is_changed)
    }

    pub(crate) fn set_changed(&mut self) {
        self.is_changed = true;
    }

    pub(crate) fn stat(&self, now: i64) -> ExemplarStat {
        let exemplars = self.minutes.values().map(MinuteExemplars::len).sum();
        let (bytes, covered_from) = (self.bytes as u64, self.covered_from(now));
        ExemplarStat { exemplars, bytes, covered_from, counts: self.counts }
    }
}

impl MinuteExemplars {
    /// Returns whether something changed.
    fn offer(
        &mut self,
        series: SeriesId,
        offered: KeptExemplar,
        counts: &mut ExemplarCounts,
    ) -> bool {
        let Some(known) = self.series.get_mut(&series) else {
            let bytes = SERIES_BYTES.saturating_add(offered.attribute_bytes());
            self.bytes = self.bytes.saturating_add(bytes);
            self.series.insert(series, SeriesExemplars { maximum: offered, sample: Vec::new() });
            counts.kept = counts.kept.saturating_add(1);
            return true;
        };
        let before = known.bytes();
        let is_changed = known.offer(offered, counts);
        self.bytes = self.bytes.saturating_sub(before).saturating_add(known.bytes());
        is_changed
    }

    /// Offers an exemplar if the budget has no room for it: only a new maximum is kept, in the
    /// place of the former one, and with attributes only if they are no longer.
    fn offer_maximum(
        &mut self,
        series: SeriesId,
        mut offered: KeptExemplar,
        seed: u64,
        counts: &mut ExemplarCounts,
    ) -> bool {
        counts.evicted = counts.evicted.saturating_add(1);
        let Some(known) = self.series.get_mut(&series) else { return false };
        if !offered.exceeds(&known.maximum) {
            return false;
        }
        if offered.attribute_bytes() > known.maximum.attribute_bytes() {
            offered.exemplar.attributes = model::ExemplarAttributes::default();
            // The key is that of what is kept, as if it were read from a file.
            offered.key = key_of(seed, &offered.exemplar);
            if offered.key == known.maximum.key {
                return known.maximum.set_earlier(&offered);
            }
        }
        let before = known.bytes();
        known.maximum = offered;
        self.bytes = self.bytes.saturating_sub(before).saturating_add(known.bytes());
        true
    }

    fn len(&self) -> u64 {
        self.series.values().map(|series| (series.sample.len() as u64).saturating_add(1)).sum()
    }

    /// Removes the exemplars of a series in a range.
    fn delete(&mut self, id: SeriesId, range: &Range<i64>) {
        let Some(of) = self.series.remove(&id) else { return };
        let bytes = SERIES_BYTES.saturating_add(of.bytes());
        self.bytes = self.bytes.saturating_sub(bytes);
        let left = of.sample.into_iter().chain([of.maximum]);
        // They were counted when they were kept.
        let mut counts = ExemplarCounts::default();
        for kept in left.filter(|kept| !range.contains(&kept.exemplar.time)) {
            self.offer(id, kept, &mut counts);
        }
    }
}

impl SeriesExemplars {
    fn matches<'a>(
        (&series, of): (&SeriesId, &'a SeriesExemplars),
    ) -> impl Iterator<Item = ExemplarMatch<'a>> + use<'a> {
        let of_sample =
            of.sample.iter().map(move |kept| ExemplarMatch { series, kept, is_maximum: false });
        of_sample.chain([ExemplarMatch { series, kept: &of.maximum, is_maximum: true }])
    }

    /// Memory of the exemplars.
    fn bytes(&self) -> usize {
        let all = self.sample.iter().chain([&self.maximum]);
        let attributes = all.map(KeptExemplar::attribute_bytes).fold(0, usize::saturating_add);
        self.sample.capacity().saturating_mul(size_of::<KeptExemplar>()).saturating_add(attributes)
    }

    /// Returns whether something changed.
    fn offer(&mut self, mut offered: KeptExemplar, counts: &mut ExemplarCounts) -> bool {
        if offered.key == self.maximum.key {
            counts.duplicate = counts.duplicate.saturating_add(1);
            return self.maximum.set_earlier(&offered);
        }
        if offered.exceeds(&self.maximum) {
            std::mem::swap(&mut self.maximum, &mut offered);
            counts.kept = counts.kept.saturating_add(1);
            // The former maximum was counted before.
            let mut of_former = ExemplarCounts::default();
            self.sample_in(offered, &mut of_former);
            counts.sampled_out = counts.sampled_out.saturating_add(of_former.sampled_out);
            return true;
        }
        self.sample_in(offered, counts)
    }

    /// Offers an exemplar to the sample of its cell.
    fn sample_in(&mut self, offered: KeptExemplar, counts: &mut ExemplarCounts) -> bool {
        let start = self.sample.partition_point(|kept| kept.cell < offered.cell);
        let rest = self.sample.get(start..).unwrap_or_default();
        let count = rest.iter().take_while(|kept| kept.cell == offered.cell).count();
        let end = start.saturating_add(count);
        let within = self.sample.get_mut(start..end).unwrap_or_default();
        if let Some(known) = within.iter_mut().find(|known| known.key == offered.key) {
            counts.duplicate = counts.duplicate.saturating_add(1);
            return known.set_earlier(&offered);
        }
        let before = within.partition_point(|kept| kept.key < offered.key);
        if count == KEPT_PER_CELL {
            counts.sampled_out = counts.sampled_out.saturating_add(1);
            if before == count {
                return false;
            }
            self.sample.remove(end.saturating_sub(1));
        } else if self.sample.len() == self.sample.capacity() {
            self.sample.reserve_exact(GROWTH);
        }
        counts.kept = counts.kept.saturating_add(1);
        self.sample.insert(start.saturating_add(before), offered);
        true
    }
}

impl KeptExemplar {
    /// Of equal exemplars the earliest time counts; returns whether that changes something.
    fn set_earlier(&mut self, other: &KeptExemplar) -> bool {
        let is_earlier = other.exemplar.time < self.exemplar.time;
        if is_earlier {
            self.exemplar.time = other.exemplar.time;
        }
        is_earlier
    }
}

/// Hash of what makes an exemplar unique in its series and minute. That of a span is the one by
/// which its receiver chose it among the spans of a request: what is kept is a uniform sample of
/// all spans, however they are divided among requests.
fn key_of(seed: u64, exemplar: &Exemplar) -> u64 {
    let Exemplar { value, trace_id, span_id, attributes, .. } = exemplar;
    if exemplar.source == ExemplarSource::Span {
        return span_sampling_key(trace_id, span_id);
    }
    let value = value.to_bits().to_le_bytes();
    let parts: [&[u8]; 4] = [&value, trace_id, span_id, attributes.bytes()];
    parts.into_iter().fold(seed, |hash, part| {
        part.chunks(8).fold(splitmix64(hash ^ part.len() as u64), |hash, chunk| {
            let mut word = [0; 8];
            word.iter_mut().zip(chunk).for_each(|(to, &from)| *to = from);
            splitmix64(hash ^ u64::from_le_bytes(word))
        })
    })
}

#[cfg(test)]
mod tests;
