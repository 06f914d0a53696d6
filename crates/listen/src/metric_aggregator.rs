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

/// How far ahead a value's time may be, in nanoseconds: clocks differ, and a day is what wrong
/// zones make of it.
const AHEAD_MAX: i64 = 86_400_000_000_000;
/// Messages about lines that a thread writes in an interval; the others are only counted.
const MESSAGES_MAX: u64 = 8;
/// Intervals that are over and wait for the flusher, before they are merged.
const FINISHED_MAX: usize = 8;

/// State shared by the threads of a listener.
#[derive(Debug)]
pub(crate) struct ListenerShared {
    pub(crate) format: AnyLineFormat,
    pub(crate) limits: Limits,
    /// Nanoseconds.
    pub(crate) interval: i64,
    pub(crate) counters: ListenerCounters,
    pub(crate) recent_errors: RecentErrors,
    pub(crate) set_hasher: SetHasher,
    /// What is kept for the intake has no room for more: nothing is taken from collectors.
    pub(crate) is_blocked: AtomicBool,
    pub(crate) supervisor: Supervisor,
}

/// A series of a packet, and its place in the interval of a time, if it has one yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeriesPlace {
    aggregation: AggregateKind,
    time: i64,
    index: Option<usize>,
}

impl SeriesPlace {
    pub(crate) fn new(aggregation: AggregateKind, time: i64) -> SeriesPlace {
        SeriesPlace { aggregation, time, index: None }
    }
}

/// Policy when memory is full: drop (UDP) or backpressure (TCP).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OverflowPolicy {
    /// They are lost, and counted: nobody can ask the senders of datagrams to wait.
    Drop,
    /// They are taken: who reads looks first, so that it is one read more at the most.
    Backpressure,
}

#[derive(Debug)]
pub(crate) struct MetricAggregator {
    shared: Arc<ListenerShared>,
    overflow_policy: OverflowPolicy,
    now_ns: i64,
    current: FlushInterval,
    /// What has a time of its own that is not now.
    future: BTreeMap<i64, FlushInterval>,
    finished: Vec<FlushInterval>,
    /// Of all intervals but those that are done; about.
    bytes: usize,
    finished_bytes: usize,
    series: usize,
    random: SamplingRng,
    key: Vec<u8>,
    packet_counts: PacketCounts,
    messages: u64,
}

/// Counted in a packet.
#[derive(Debug, Default)]
struct PacketCounts {
    received: u64,
    rejected: u64,
    skipped: u64,
    /// As how many values timings count.
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

    /// It is now, in nanoseconds since the Unix epoch: what comes next came now.
    pub(crate) fn set_now(&mut self, now: i64) {
        self.now_ns = now;
        if !self.current.contains(now) {
            self.finish_interval(FlushInterval::containing(now, self.shared.interval));
            self.messages = 0;
        }
    }

    /// Ends what is open.
    fn finish_interval(&mut self, next: FlushInterval) {
        let current = std::mem::replace(&mut self.current, next);
        let ended = std::mem::take(&mut self.future).into_values().chain([current]);
        self.finished.extend(ended.filter(|interval| !interval.is_empty()));
        (self.bytes, self.series) = (0, 0);
        self.finished_bytes = self.finished.iter().map(FlushInterval::bytes).sum();
        // Only where nobody takes them: while there is room the flusher comes each interval.
        while self.finished.len() > FINISHED_MAX
            && self.finished_bytes > self.shared.limits.memory_bytes_max / 2
        {
            let other = self.finished.remove(1);
            let lost = self.finished[0].merge(other);
            self.shared.counters.count_drops(&lost);
            self.finished_bytes = self.finished.iter().map(FlushInterval::bytes).sum();
        }
    }

    /// Intervals that are over, with what was lost in them, which is counted already. With `all`,
    /// also what came of the one that is not, as if it ended now.
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

    /// Half of what memory there may be is used: it is time to take what there is.
    pub(crate) fn is_near_limit(&self) -> bool {
        self.bytes + self.finished_bytes > self.shared.limits.memory_bytes_max / 2
    }

    /// No more is to come.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes + self.finished_bytes >= self.shared.limits.memory_bytes_max
    }

    /// Lines, as they came from somewhere. If reading them panics, the rest of them is refused.
    pub(crate) fn add_packet(&mut self, bytes: &[u8], from: &dyn Display) {
        let read = || {
            self.parse_packet(bytes, from);
            self.shared.supervisor.fault_point("listen packet");
        };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(read)) {
            let (name, message) = (self.shared.format.name(), panic_message(&*panic));
            self.shared.supervisor.thread(format!("{name} lines")).record_caught_panic(&*panic);
            let start = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned();
            let why = format!("reading {start:?} panicked, please report it: {message}");
            self.reject(&why, from);
        }
        self.publish_counts();
    }

    fn parse_packet(&mut self, bytes: &[u8], from: &dyn Display) {
        let shared = Arc::clone(&self.shared);
        shared.format.read(bytes, &mut LineSink::new(self, from));
    }

    /// The time, in nanoseconds since the Unix epoch.
    pub(crate) fn now(&self) -> i64 {
        self.now_ns
    }

    /// The key of the series that values are added to.
    pub(crate) fn set_key(&mut self, kind: u8, name: &[&str]) {
        self.key.clear();
        self.key.push(kind);
        name.iter().for_each(|part| self.key.extend_from_slice(part.as_bytes()));
    }

    /// A line that holds no metric.
    pub(crate) fn skip_line(&mut self) {
        self.packet_counts.skipped += 1;
    }

    /// A line that was not even looked at.
    pub(crate) fn reject_line(&mut self, why: &dyn Display, from: &dyn Display) {
        self.reject(why, from);
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

    pub(crate) fn reject(&mut self, why: &dyn Display, from: &dyn Display) {
        self.packet_counts.rejected += 1;
        if self.messages < MESSAGES_MAX {
            self.messages += 1;
            self.shared.recent_errors.push(format!("{from}: {why}"));
        }
    }

    /// Datagrams that the kernel dropped in the interval.
    pub(crate) fn record_kernel_drops(&mut self, n: u64) {
        let mut lost = DropCounts::default();
        lost.add(DropReason::SocketBuffer, n);
        self.current.drops.merge(&lost);
        self.shared.counters.count_drops(&lost);
    }

    /// A value of the series that [`Self::set_key`] named, in the interval of the place's time.
    pub(crate) fn add(&mut self, place: &mut SeriesPlace, value: LineValue<'_>, rate: f64) {
        self.packet_counts.received += 1;
        let ahead_max = self.now_ns.saturating_add(AHEAD_MAX);
        // Points have times of their own, and go with what comes now.
        if matches!(value, LineValue::Point { time, .. } if time > ahead_max) {
            return self.record_drop(DropReason::TimestampInFuture);
        }
        let SeriesPlace { aggregation, time, index } = *place;
        let found = index.map_or_else(|| self.find_or_insert(time, aggregation), Ok);
        let added = found.and_then(|found| {
            place.index = Some(found);
            self.add_value(time, found, value, rate)
        });
        if let Err(reason) = added {
            self.record_drop(reason);
        }
    }

    /// Counted at once, and in the interval for its gap.
    fn record_drop(&mut self, reason: DropReason) {
        self.current.drops.add(reason, 1);
        self.packet_counts.drops.add(reason, 1);
    }

    /// The series of the key in the interval of a time, where there is room for one more value.
    fn find_or_insert(&mut self, at: i64, aggregation: AggregateKind) -> Result<usize, DropReason> {
        if at > self.now_ns.saturating_add(AHEAD_MAX) {
            return Err(DropReason::TimestampInFuture);
        }
        if self.overflow_policy == OverflowPolicy::Drop && self.is_full() {
            // Relaxed: nothing else is read by it.
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
        // Before an interval is made for it: one without series would cost nothing, and there could
        // be any number.
        if self.series >= self.shared.limits.series_max {
            return Err(DropReason::SeriesLimit);
        }
        let what = AggregateValue::new(aggregation, at);
        self.series += 1;
        // Another interval's own cost is that of its first series.
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
        place: usize,
        value: LineValue<'_>,
        rate: f64,
    ) -> Result<(), DropReason> {
        let interval = match self.current.contains(at) {
            true => &mut self.current,
            false => {
                let start = FlushInterval::containing(at, self.shared.interval).start;
                self.future.get_mut(&start).expect("BUG: the series has a place")
            }
        };
        let held = interval.get_mut(place);
        match (&mut held.value, value) {
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
            (AggregateValue::Count(sum), LineValue::Number(number)) => *sum += number / rate,
            (AggregateValue::Gauge { set, change, time: last }, LineValue::Number(number)) => {
                (*set, *change, *last) = (Some(number), 0.0, at);
            }
            (AggregateValue::Gauge { set, change, time: last }, LineValue::Delta(number)) => {
                match set {
                    Some(set) => *set += number,
                    None => *change += number,
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
            (held, value) => unreachable!("BUG: {value:?} for a series that is {held:?}"),
        }
        held.received += 1;
        Ok(())
    }
}
