//! Reads values from the cells of all lanes, by kind. `small_offset` and `large_offset` are the
//! offsets of a metric's small and large cells in a lane.

use hist::{DoubleDouble, Histogram, HistogramParts, Integers, Scheme, TrackedValue};

use super::MetricsFileReader;
use crate::cells::{read_distribution, read_text};
use crate::entry::RegistryEntry;
use crate::error::{Error, Result};
use crate::layout::{self, BUCKETS, GROUP, SCALE, SLOT_BYTES, kind};
use crate::metric_snapshot::{
    HeartbeatSnapshot, InFlightSnapshot, MetricValue, NumericValue, OperationSnapshot,
};
use crate::source::ReadBudget;

/// Limit of listed operations per table; the rest counts as untracked.
const OPERATIONS_MAX: usize = 65_536;

impl MetricsFileReader {
    pub(super) fn value_within(&self, budget: &ReadBudget, at: usize) -> Result<MetricValue> {
        let entry = self.catalog.entry(at);
        let (small_offset, _) = entry.cells();
        Ok(match entry.kind() {
            kind::COUNTER => {
                MetricValue::Counter(NumericValue::Unsigned(self.sum_lanes(small_offset)?))
            }
            kind::UP_DOWN => {
                MetricValue::Gauge(NumericValue::Signed(self.sum_lanes(small_offset)? as i64))
            }
            kind::GAUGE => {
                MetricValue::Gauge(NumericValue::Signed(self.read_shared(small_offset)? as i64))
            }
            kind::FLOAT_GAUGE => MetricValue::Gauge(NumericValue::Float(f64::from_bits(
                self.read_shared(small_offset)?,
            ))),
            kind::TEXT => self.text_value(budget, small_offset)?,
            kind::HISTOGRAM => match self.histogram(budget, entry)? {
                Some(histogram) => MetricValue::Histogram(Box::new(histogram)),
                None => MetricValue::Unknown("invalid histogram buckets"),
            },
            kind::IN_FLIGHT => MetricValue::InFlight(self.in_flight(budget, entry)?),
            kind::HEARTBEAT => MetricValue::Heartbeat(HeartbeatSnapshot {
                beats: self.read_shared(small_offset)?,
                last_ns: self.read_shared(small_offset + 8)?,
                every_ns: entry.parameter(),
            }),
            _ => MetricValue::Unknown("unsupported metric kind"),
        })
    }

    /// Lanes in which the small cells have space.
    fn lanes_with(&self, small_offset: usize, bytes: usize) -> impl Iterator<Item = usize> {
        (0..self.lanes()).filter(move |&lane| {
            small_offset.saturating_add(bytes) <= self.source.reserved_small_cells(lane)
        })
    }

    /// Number of values of a histogram, including records in progress: one word per lane instead of
    /// all buckets. `None` for other kinds.
    pub fn histogram_count(&self, at: usize) -> Result<Option<u64>> {
        let entry = self.catalog.entry(at);
        if entry.kind() != kind::HISTOGRAM {
            return Ok(None);
        }
        let (small_offset, _) = entry.cells();
        // `begun`, the first word of `layout::HISTOGRAM`.
        self.lanes_with(small_offset, 64)
            .try_fold(0u64, |sum, lane| {
                Ok(sum.saturating_add(self.source.small(lane, small_offset)?))
            })
            .map(Some)
    }

    fn sum_lanes(&self, small_offset: usize) -> Result<u64> {
        self.lanes_with(small_offset, 8).try_fold(0u64, |sum, lane| {
            Ok(sum.wrapping_add(self.source.small(lane, small_offset)?))
        })
    }

    fn read_shared(&self, small_offset: usize) -> Result<u64> {
        if small_offset.saturating_add(8) > self.source.reserved_small_cells(0) {
            return Ok(0);
        }
        self.source.small(0, small_offset)
    }

    fn text_value(&self, budget: &ReadBudget, small_offset: usize) -> Result<MetricValue> {
        if small_offset.saturating_add(layout::TEXT_BYTES) > self.source.reserved_small_cells(0) {
            return Ok(MetricValue::Text(String::new()));
        }
        let read = |offset: usize, words: &mut [u64]| {
            self.source.lane(budget, 0, small_offset + offset, words)
        };
        let current = || {
            let mut word = [0];
            read(0, &mut word)?;
            Ok(word[0])
        };
        let buffer = |number: usize| {
            let mut words = [0; 1 + layout::TEXT_MAX / 8];
            read(layout::TEXT_BUFFERS[number], &mut words)?;
            Ok::<_, Error>(words)
        };
        Ok(match read_text(current, buffer)? {
            Some([length, text @ ..]) => {
                let length = (length as usize).min(layout::TEXT_MAX);
                let bytes: Vec<u8> = text.iter().flat_map(|word| word.to_le_bytes()).collect();
                MetricValue::Text(String::from_utf8_lossy(&bytes[..length]).into_owned())
            }
            None => MetricValue::Unknown("changes faster than it can be read"),
        })
    }

    fn histogram(
        &self,
        budget: &ReadBudget,
        entry: RegistryEntry<'_>,
    ) -> Result<Option<Histogram>> {
        let (small_offset, large_offset) = entry.cells();
        let is_inside = large_offset >= layout::SMALL_BYTES
            && large_offset.saturating_add(layout::BUCKETS_BYTES) <= layout::LANE_STRIDE;
        if !is_inside {
            return Ok(None);
        }
        let read = |lane: usize, offset: usize, words: &mut [u64]| {
            self.source.lane(budget, lane, offset, words)
        };
        let mut total = vec![0u64; BUCKETS];
        let mut of_lane = vec![0u64; BUCKETS];
        let (mut zero, mut sum, mut min, mut max, mut is_exact) = (0u64, 0u128, u64::MAX, 0, true);
        for lane in self.lanes_with(small_offset, 64) {
            // In most lanes nothing was recorded.
            if self.source.small(lane, small_offset)? == 0 {
                continue;
            }
            let mut touched_then = 0;
            let summary = read_distribution(
                |offset| {
                    let mut word = [0];
                    read(lane, small_offset + offset, &mut word)?;
                    Ok(word[0])
                },
                |touched| {
                    touched_then = touched;
                    let mut count = 0u64;
                    for (start, end) in touched_groups(touched) {
                        let words = &mut of_lane[start..end];
                        read(lane, large_offset + start * 8, words)?;
                        count = words.iter().fold(count, |sum, n| sum.wrapping_add(*n));
                    }
                    Ok::<u64, Error>(count)
                },
            )?;
            for (start, end) in touched_groups(touched_then) {
                for at in start..end {
                    total[at] = total[at].saturating_add(of_lane[at]);
                }
            }
            zero = zero.saturating_add(summary.zero);
            sum = sum.saturating_add(summary.sum);
            (min, max) = (min.min(summary.min), max.max(summary.max));
            is_exact &= summary.is_exact;
        }
        let mut parts = HistogramParts::new(Scheme::Exp2(Integers::<SCALE>::grid()));
        let counted = total.iter().enumerate().filter(|&(_, &count)| count > 0);
        parts.positive =
            counted.map(|(place, &count)| (Integers::<SCALE>::index(place), count)).collect();
        parts.zero = zero;
        let exactness = |value| {
            if is_exact { TrackedValue::Exact(value) } else { TrackedValue::Estimated(value) }
        };
        parts.sum = match is_exact {
            true => TrackedValue::Exact(DoubleDouble::from_integer(sum)),
            false => TrackedValue::Estimated(DoubleDouble::from_integer(sum)),
        };
        (parts.min, parts.max) = (exactness(min as f64), exactness(max as f64));
        Ok(Histogram::from_parts(parts).ok())
    }

    fn in_flight(&self, budget: &ReadBudget, entry: RegistryEntry<'_>) -> Result<InFlightSnapshot> {
        let (small_offset, large_offset) = entry.cells();
        let mut found = InFlightSnapshot::default();
        let is_inside = large_offset >= layout::SMALL_BYTES
            && large_offset.saturating_add(layout::SLOTS_MAX * SLOT_BYTES) <= layout::LANE_STRIDE;
        for lane in self.lanes_with(small_offset, 64) {
            let is_idle = self.source.small(lane, small_offset)? == 0
                && self.source.small(lane, small_offset + 8)? == 0;
            if is_idle {
                continue;
            }
            let mut words = [0; 4];
            // `ended` is read first: operations may start in between, and no count is negative.
            self.source.lane(budget, lane, small_offset + 8, &mut words[1..])?;
            self.source.lane(budget, lane, small_offset, &mut words[..1])?;
            found.started = found.started.wrapping_add(words[0]);
            found.ended = found.ended.wrapping_add(words[1]);
            found.untracked = found.untracked.wrapping_add(words[2]);
            let slots = (words[3] as usize).min(layout::SLOTS_MAX);
            if is_inside {
                self.operations(budget, entry, lane, slots, &mut found)?;
            }
        }
        found.operations.sort_by_key(|operation| operation.start_ns);
        Ok(found)
    }

    fn operations(
        &self,
        budget: &ReadBudget,
        entry: RegistryEntry<'_>,
        lane: usize,
        slots: usize,
        found: &mut InFlightSnapshot,
    ) -> Result<()> {
        let (_, large_offset) = entry.cells();
        let names = entry.tags().unwrap_or_default();
        let mut first = vec![0; slots * SLOT_BYTES / 8];
        let mut second = first.clone();
        self.source.lane(budget, lane, large_offset, &mut first)?;
        self.source.lane(budget, lane, large_offset, &mut second)?;
        let (first, second) = (first.as_chunks::<4>().0, second.as_chunks::<4>().0);
        for (slot, again) in first.iter().zip(second) {
            let [start_ns, number, tags_1, tags_2] = *slot;
            // The slot did not change between the two reads; otherwise the operation ended or
            // started just now.
            if start_ns <= layout::FILLING || slot != again {
                continue;
            }
            let tags = [tags_1 as u32, (tags_1 >> 32) as u32, tags_2 as u32, (tags_2 >> 32) as u32];
            let tags = names.iter().zip(tags).filter(|(_, tag)| *tag != 0);
            // An unknown text was interned after the last refresh, and the operation started after
            // that.
            let tags = tags.map(|(name, tag)| Some((*name, self.catalog.text(tag.into())?)));
            let Some(tags) = tags.collect::<Option<Vec<_>>>() else { continue };
            let bytes = tags.iter().map(|(name, value)| TAG_BYTES + name.len() + value.len());
            let is_paid = budget.charge_bytes(OPERATION_BYTES + bytes.sum::<usize>());
            if found.operations.len() == OPERATIONS_MAX || !is_paid {
                found.untracked = found.untracked.wrapping_add(1);
                continue;
            }
            let tags = tags.into_iter().map(|(name, value)| {
                (name.to_owned(), String::from_utf8_lossy(value).into_owned())
            });
            found.operations.push(OperationSnapshot { start_ns, tags: tags.collect(), number });
        }
        Ok(())
    }
}

/// Memory of an operation without its texts, and of each tag.
const OPERATION_BYTES: usize = size_of::<OperationSnapshot>();
const TAG_BYTES: usize = size_of::<(String, String)>();

/// Ranges of bucket groups with space, consecutive groups joined: from, to. The last bucket belongs
/// to the first group.
fn touched_groups(touched: u64) -> impl Iterator<Item = (usize, usize)> {
    let mut at = 0;
    let groups = std::iter::from_fn(move || {
        let rest = touched.checked_shr(at).filter(|rest| *rest != 0)?;
        let start = at + rest.trailing_zeros();
        let length = (touched >> start).trailing_ones();
        at = start + length;
        Some((start as usize * GROUP, at as usize * GROUP))
    });
    groups.chain((touched & 1 == 1).then_some((64 * GROUP, BUCKETS)))
}
