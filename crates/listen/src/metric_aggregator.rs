//! Metric aggregator of one thread.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use intake::{Supervisor, panic_message};

use crate::drop_counts::{DropCounts, DropReason, ListenerCounters};
use crate::flush_interval::{FlushInterval, SERIES_BYTES};
use crate::line_format::AnyLineFormat;
use crate::line_sink::{LineSink, LineValue};
use crate::recent_errors::RecentErrors;
use crate::sampling_rng::SamplingRng;
use crate::series_aggregate::{
    AggregateKind, AggregateValue, SET_MEMBERS_MAX, SeriesAggregate, SetHasher, buckets,
};
use crate::settings::Limits;

/// How far in the future a timestamp may be, in nanoseconds: clocks differ, and wrong time zones
/// shift up to a day.
const AHEAD_MAX: i64 = 86_400_000_000_000;
/// Messages about lines per thread and interval; further errors are only counted.
const MESSAGES_MAX: u64 = 8;
/// Completed intervals that wait for the flusher, before they are merged.
const FINISHED_MAX: usize = 8;

/// State shared by the threads of a listener.
#[derive(Debug)]
pub(crate) struct ListenerShared {
    pub(crate) format: AnyLineFormat,
    pub(crate) limits: Limits,
    /// In nanoseconds.
    pub(crate) interval: i64,
    pub(crate) counters: ListenerCounters,
    pub(crate) recent_errors: RecentErrors,
    pub(crate) set_hasher: SetHasher,
    /// The flusher's memory is full: it does not drain aggregators.
    pub(crate) is_blocked: AtomicBool,
    pub(crate) supervisor: Supervisor,
}

/// Series of a packet, and its index in the interval of its time, if present.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeriesSlot {
    aggregation: AggregateKind,
    time: i64,
    index: Option<usize>,
}

impl SeriesSlot {
    pub(crate) fn new(aggregation: AggregateKind, time: i64) -> SeriesSlot {
        SeriesSlot { aggregation, time, index: None }
    }
}

/// Policy when memory is full: drop (UDP) or backpressure (TCP).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OverflowPolicy {
    /// Values are dropped and counted: senders of datagrams cannot be slowed down.
    Drop,
    /// Values are accepted: the reader checks the limit before each read, so at most one read
    /// exceeds it.
    Backpressure,
}

#[derive(Debug)]
pub(crate) struct MetricAggregator {
    shared: Arc<ListenerShared>,
    overflow_policy: OverflowPolicy,
    now_ns: i64,
    current: FlushInterval,
    /// Intervals of values of StatsD with timestamps of their own.
    future: BTreeMap<i64, FlushInterval>,
    finished: Vec<FlushInterval>,
    /// Approximate memory of all intervals that are not drained.
    bytes: usize,
    finished_bytes: usize,
    series: usize,
    random: SamplingRng,
    key: Vec<u8>,
    packet_counts: PacketCounts,
    messages: u64,
}

/// Counts of the current packet.
#[derive(Debug, Default)]
struct PacketCounts {
    received: u64,
    rejected: u64,
    skipped: u64,
    /// Samples that the timings count for.
    weight: u64,
    drops: DropCounts,
}

impl MetricAggregator {
    pub(crate) fn new(
        common: Arc<ListenerShared>,
        at_full: OverflowPolicy,
        now: i64,
        random: SamplingRng,
    ) -> MetricAggregator {
        MetricAggregator {
            current: FlushInterval::containing(now, common.interval),
            shared: common,
            overflow_policy: at_full,
            now_ns: now,
            future: BTreeMap::new(),
            finished: Vec::new(),
            bytes: 0,
            finished_bytes: 0,
            series: 0,
            random,
            key: Vec::new(),
            packet_counts: PacketCounts::default(),
            messages: 0,
        }
    }

    /// Sets the current time, in nanoseconds since the Unix epoch, for the following values.
    pub(crate) fn set_now(&mut self, now: i64) {
        self.now_ns = now;
        if !self.current.contains(now) {
            self.finish_interval(FlushInterval::containing(now, self.shared.interval));
            self.messages = 0;
        }
    }

    /// Closes the current interval.
    fn finish_interval(&mut self, next: FlushInterval) {
        let current = std::mem::replace(&mut self.current, next);
        let ended = std::mem::take(&mut self.future).into_values().chain([current]);
        self.finished.extend(ended.filter(|interval| !interval.is_empty()));
        (self.bytes, self.series) = (0, 0);
        self.finished_bytes = self.finished.iter().map(FlushInterval::bytes).sum();
        // Only while the flusher does not drain; otherwise it drains every interval.
        while self.finished.len() > FINISHED_MAX
            && self.finished_bytes > self.shared.limits.memory_bytes_max / 2
        {
            let other = self.finished.remove(1);
            let lost = self.finished[0].merge(other);
            self.shared.counters.count_drops(&lost);
            self.finished_bytes = self.finished.iter().map(FlushInterval::bytes).sum();
        }
    }

    /// Removes the completed intervals with their drops, which are counted already. With `all`,
    /// also the current interval, as if it ended now.
    pub(crate) fn drain_finished(&mut self, now: i64, all: bool) -> Vec<FlushInterval> {
        self.set_now(now);
        if all {
            let FlushInterval { start, end, .. } = self.current;
            self.finish_interval(FlushInterval::new(start, end.saturating_sub(start)));
            if let Some(last) = self.finished.iter_mut().rfind(|done| done.end == end) {
                last.end = now.clamp(start.saturating_add(1), end);
            }
        }
        self.finished_bytes = 0;
        std::mem::take(&mut self.finished)
    }

    /// Half of the memory limit is used: the aggregator should be drained.
    pub(crate) fn is_near_limit(&self) -> bool {
        self.bytes + self.finished_bytes > self.shared.limits.memory_bytes_max / 2
    }

    /// The memory limit is reached.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes + self.finished_bytes >= self.shared.limits.memory_bytes_max
    }

    /// Reads lines of a sender. If the parser panics, the remaining lines are rejected.
    pub(crate) fn add_packet(&mut self, bytes: &[u8], from: &dyn Display) {
        let read = || {
            self.parse_packet(bytes, from);
            self.shared.supervisor.failpoint("listen packet");
        };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(read)) {
            let (name, message) = (self.shared.format.name(), panic_message(&*panic));
            self.shared.supervisor.thread(format!("{name} lines")).record_caught_panic(&*panic);
            let start = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned();
            let reason = format!(
                "cannot parse {start:?}: the parser panicked: {message}; please report this bug"
            );
            self.reject(&reason, from);
        }
        self.publish_counts();
    }

    fn parse_packet(&mut self, bytes: &[u8], from: &dyn Display) {
        let shared = Arc::clone(&self.shared);
        shared.format.read(bytes, &mut LineSink::new(self, from));
    }

    /// Current time, in nanoseconds since the Unix epoch.
    pub(crate) fn now(&self) -> i64 {
        self.now_ns
    }

    /// Sets the key of the series for the following values.
    pub(crate) fn set_key(&mut self, kind: u8, name: &[&str]) {
        self.key.clear();
        self.key.push(kind);
        name.iter().for_each(|part| self.key.extend_from_slice(part.as_bytes()));
    }

    /// Counts a line without a metric.
    pub(crate) fn skip_line(&mut self) {
        self.packet_counts.skipped += 1;
    }

    /// Counts a line that was not parsed.
    pub(crate) fn reject_line(&mut self, reason: &dyn Display, from: &dyn Display) {
        self.reject(reason, from);
        self.publish_counts();
    }

    fn publish_counts(&mut self) {
        let PacketCounts { received, rejected: refused, skipped, weight, drops: lost } =
            std::mem::take(&mut self.packet_counts);
        let counters = &self.shared.counters;
        counters.count_drops(&lost);
        counters.producer.add_received(weight);
        counters.received.add(received);
        counters.lines_rejected.add(refused);
        counters.lines_skipped.add(skipped);
    }

    pub(crate) fn reject(&mut self, reason: &dyn Display, from: &dyn Display) {
        self.packet_counts.rejected += 1;
        if self.messages < MESSAGES_MAX {
            self.messages += 1;
            self.shared.recent_errors.push(format!("{from}: {reason}"));
        }
    }

    /// Adds datagrams dropped by the kernel to the interval.
    pub(crate) fn record_kernel_drops(&mut self, n: u64) {
        let mut lost = DropCounts::default();
        lost.add(DropReason::SocketBuffer, n);
        self.current.drops.merge(&lost);
        self.shared.counters.count_drops(&lost);
    }

    /// Adds a value to the series set by [`Self::set_key`], in the interval of its time.
    pub(crate) fn add(&mut self, slot: &mut SeriesSlot, value: LineValue<'_>, rate: f64) {
        self.packet_counts.received += 1;
        let ahead_max = self.now_ns.saturating_add(AHEAD_MAX);
        // Points have their own timestamps and belong to the current interval.
        if matches!(value, LineValue::Point { time, .. } if time > ahead_max) {
            return self.record_drop(DropReason::TimestampInFuture);
        }
        let SeriesSlot { aggregation, time, index } = *slot;
        let found = index.map_or_else(|| self.find_or_insert(time, aggregation), Ok);
        let added = found.and_then(|found| {
            slot.index = Some(found);
            self.add_value(time, found, value, rate)
        });
        if let Err(reason) = added {
            self.record_drop(reason);
        }
    }

    /// Counted immediately, and kept in the interval for its gap.
    fn record_drop(&mut self, reason: DropReason) {
        self.current.drops.add(reason, 1);
        self.packet_counts.drops.add(reason, 1);
    }

    /// Series of the key in the interval of a time, if there is memory for another value.
    fn find_or_insert(&mut self, at: i64, aggregation: AggregateKind) -> Result<usize, DropReason> {
        if at > self.now_ns.saturating_add(AHEAD_MAX) {
            return Err(DropReason::TimestampInFuture);
        }
        if self.overflow_policy == OverflowPolicy::Drop && self.is_full() {
            // Relaxed: the flag orders no other memory.
            let is_stuck = self.shared.is_blocked.load(Ordering::Relaxed);
            return Err(if is_stuck { DropReason::JournalFull } else { DropReason::MemoryLimit });
        }
        let other = FlushInterval::containing(at, self.shared.interval);
        let known = match self.current.contains(at) {
            true => Some(&self.current),
            false => self.future.get(&other.start),
        };
        if let Some(found) = known.and_then(|known| known.find(&self.key)) {
            return Ok(found);
        }
        // Checked before an interval is created: an empty interval counts no memory, so their
        // number would be unlimited.
        if self.series >= self.shared.limits.series_max {
            return Err(DropReason::SeriesLimit);
        }
        let what = AggregateValue::new(aggregation, at);
        self.series += 1;
        // A new interval's overhead counts as that of its first series.
        self.bytes += SERIES_BYTES + self.key.len() + what.bytes();
        let interval = match self.current.contains(at) {
            true => &mut self.current,
            false => self.future.entry(other.start).or_insert(other),
        };
        Ok(interval
            .insert(self.key.as_slice().into(), SeriesAggregate { received: 0, value: what }))
    }

    fn add_value(
        &mut self,
        at: i64,
        index: usize,
        value: LineValue<'_>,
        rate: f64,
    ) -> Result<(), DropReason> {
        let interval = match self.current.contains(at) {
            true => &mut self.current,
            false => {
                let start = FlushInterval::containing(at, self.shared.interval).start;
                self.future.get_mut(&start).expect("BUG: the series has an index")
            }
        };
        let aggregate = interval.get_mut(index);
        match (&mut aggregate.value, value) {
            (AggregateValue::Histogram(histogram), LineValue::Number(number)) => {
                if histogram.count() > u64::MAX / 2 {
                    return Err(DropReason::MemoryLimit);
                }
                let had = buckets(histogram);
                let weight = self.random.sample_weight(rate);
                histogram.record_n(number, weight);
                self.packet_counts.weight += weight;
                self.bytes += 24 * (buckets(histogram) - had);
            }
            (AggregateValue::Sum(sum), LineValue::Number(number)) => *sum += number / rate,
            (AggregateValue::Last { absolute, delta, time: last }, LineValue::Number(number)) => {
                (*absolute, *delta, *last) = (Some(number), 0.0, at);
            }
            (AggregateValue::Last { absolute, delta, time: last }, LineValue::Delta(number)) => {
                match absolute {
                    Some(absolute) => *absolute += number,
                    None => *delta += number,
                }
                *last = at;
            }
            (AggregateValue::Set(members), LineValue::Member(member)) => {
                let member = self.shared.set_hasher.hash(member);
                if members.len() >= SET_MEMBERS_MAX && !members.contains(&member) {
                    return Err(DropReason::SetMembersLimit);
                }
                self.bytes += if members.insert(member) { 36 } else { 0 };
            }
            (AggregateValue::Points(points), LineValue::Point { time, value }) => {
                points.push((time, value));
                self.bytes += 32;
            }
            (aggregate, value) => unreachable!("BUG: {value:?} for a series that is {aggregate:?}"),
        }
        aggregate.received += 1;
        Ok(())
    }
}
