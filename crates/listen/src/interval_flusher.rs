//! Flusher: passes intervals from the aggregators to the intake.
//!
//! While the intake is full, intervals are retained and retried. Above a number of intervals, the
//! oldest are merged, which reduces time resolution but loses no values. Above a memory limit, the
//! flusher stops draining the aggregators; when these are full too, connections get backpressure
//! and datagrams are dropped.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use intake::{Intake, SeriesKeyEncoding};

use crate::drop_counts::{DropCounts, DropReason};
use crate::flush_interval::{AggregateRow, FlushInterval};
use crate::metric_aggregator::{ListenerShared, MetricAggregator};
use crate::rows::{self, POINTS_MAX};
use crate::series_aggregate::{AggregateValue, SeriesAggregate};

/// Approximate batch size in bytes; a journal's buffer holds several.
const BATCH_BYTES: usize = 768 << 10;
/// Number of intervals retained while the intake is full, before the oldest are merged.
const RETAINED_MAX: usize = 8;
/// Polling interval for free space in the journal during a stop.
const STOP_RETRY: Duration = Duration::from_millis(50);

/// Early wake-up of the flusher.
#[derive(Debug, Default)]
pub(crate) struct FlushSignal {
    request: Mutex<FlushRequest>,
    wake: Condvar,
}

#[derive(Clone, Copy, Debug, Default)]
struct FlushRequest {
    stop: bool,
    is_requested: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl FlushSignal {
    /// An aggregator is near its memory limit.
    pub(crate) fn request_flush(&self) {
        lock(&self.request).is_requested = true;
        self.wake.notify_one();
    }

    /// All aggregators have received their last value.
    pub(crate) fn stop(&self) {
        lock(&self.request).stop = true;
        self.wake.notify_one();
    }

    /// Without `hears_press`, only a stop ends the wait early.
    fn wait(&self, time: Duration, hears_press: bool) -> FlushRequest {
        let request = lock(&self.request);
        let still =
            |request: &mut FlushRequest| !(request.stop || hears_press && request.is_requested);
        let waited = self.wake.wait_timeout_while(request, time, still);
        let (mut request, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let now = *request;
        request.is_requested = false;
        now
    }
}

pub(crate) struct IntervalFlusher {
    shared: Arc<ListenerShared>,
    intake: Arc<Intake>,
    aggregators: Vec<Arc<Mutex<MetricAggregator>>>,
    retained: BTreeMap<i64, FlushInterval>,
    /// Last value and time of gauges, for senders of changes only.
    gauges: HashMap<Box<[u8]>, (f64, i64)>,
    /// The last write found the intake full.
    is_full: bool,
    /// Loss to record if processing panics: intervals being processed, without their rows.
    in_flight: Vec<(FlushInterval, DropCounts)>,
}

impl IntervalFlusher {
    pub(crate) fn new(
        common: Arc<ListenerShared>,
        intake: Arc<Intake>,
        aggregators: Vec<Arc<Mutex<MetricAggregator>>>,
    ) -> IntervalFlusher {
        let (tables, gauges) = (BTreeMap::new(), HashMap::new());
        IntervalFlusher {
            shared: common,
            intake,
            aggregators,
            retained: tables,
            gauges,
            is_full: false,
            in_flight: Vec::new(),
        }
    }

    /// Runs until stopped.
    pub(crate) fn run(&mut self, flush_signal: &FlushSignal) {
        self.drop_in_flight();
        loop {
            let now = self.intake.now();
            let end = FlushInterval::containing(now, self.shared.interval).end;
            let remaining = u64::try_from(end.saturating_sub(now)).unwrap_or(0);
            let has_capacity = self.has_capacity();
            self.shared.is_blocked.store(!has_capacity, Ordering::Relaxed);
            let request = flush_signal.wait(
                Duration::from_nanos(remaining).min(self.shared.limits.pause_max),
                has_capacity,
            );
            if has_capacity || request.stop {
                self.collect(request.stop || request.is_requested);
            }
            self.write_retained();
            if request.stop {
                return self.finish();
            }
            self.merge_retained();
        }
    }

    /// Counts the values lost in a panic and records them as gaps.
    fn drop_in_flight(&mut self) {
        for (mut interval, lost) in std::mem::take(&mut self.in_flight) {
            self.shared.counters.count_drops(&lost);
            interval.drops.merge(&lost);
            self.retain(interval);
        }
    }

    fn retain(&mut self, interval: FlushInterval) {
        match self.retained.get_mut(&interval.start) {
            Some(ours) => self.shared.counters.count_drops(&ours.merge(interval)),
            None => drop(self.retained.insert(interval.start, interval)),
        }
    }

    /// Whether the aggregators may be drained: the result can be retained if the intake is full.
    fn has_capacity(&self) -> bool {
        let max = self.shared.limits.memory_bytes_max;
        self.retained.values().map(FlushInterval::bytes).sum::<usize>() < max
    }

    fn finish(&mut self) {
        let until = Instant::now() + self.shared.limits.stop_timeout;
        while !self.retained.is_empty() && Instant::now() < until {
            std::thread::sleep(STOP_RETRY);
            self.write_retained();
        }
        let mut lost = DropCounts::default();
        for (_, aggregate) in self.retained.values_mut().flat_map(FlushInterval::drain_rows) {
            lost.add_aggregate(DropReason::JournalFull, &aggregate);
        }
        self.shared.counters.count_drops(&lost);
        if self.retained.is_empty() {
            self.intake.end_volatile_producer(&self.shared.counters.producer);
        } else {
            // Writes the rows or, if they are lost, only the gap: otherwise a gap would not be
            // recorded before the next start.
            self.intake.mark_unclean_shutdown();
        }
    }

    fn collect(&mut self, all: bool) {
        let now = self.intake.now();
        let mut drained: BTreeMap<(i64, i64), FlushInterval> = BTreeMap::new();
        for aggregator in &self.aggregators {
            for interval in lock(aggregator).drain_finished(now, all) {
                match drained.get_mut(&(interval.start, interval.end)) {
                    Some(ours) => self.shared.counters.count_drops(&ours.merge(interval)),
                    None => drop(drained.insert((interval.start, interval.end), interval)),
                }
            }
        }
        self.in_flight = drained.values().map(drop_rows_of).collect();
        for mut interval in drained.into_values() {
            self.resolve_gauges(&mut interval);
            self.retain(interval);
            self.in_flight.remove(0);
        }
    }

    /// Resolves gauge changes to values.
    fn resolve_gauges(&mut self, interval: &mut FlushInterval) {
        let mut rows = interval.drain_rows();
        for (key, aggregate) in &mut rows {
            if let AggregateValue::Last { absolute, delta, time: at } = aggregate.value {
                let known = self.gauges.get(&**key).copied();
                let value = absolute.unwrap_or_else(|| known.map_or(0.0, |known| known.0) + delta);
                if known.is_none_or(|known| known.1 <= at) {
                    self.gauges.insert(key.clone(), (value, at));
                }
                aggregate.value = AggregateValue::Points(vec![(at, value)]);
            }
        }
        self.shared.counters.count_drops(&interval.add_rows(rows));
        let max = self.shared.limits.series_max;
        if self.gauges.len() > max {
            // Forgets the gauges that were not updated, or all gauges.
            self.gauges.retain(|_, (_, at)| *at >= interval.start);
            if self.gauges.len() > max {
                self.gauges.clear();
            }
        }
    }

    /// Merges retained intervals to free memory.
    fn merge_retained(&mut self) {
        while self.retained.len() > RETAINED_MAX {
            let (_, mut oldest) =
                self.retained.pop_first().expect("BUG: several intervals are retained");
            let (_, next) = self.retained.pop_first().expect("BUG: several intervals are retained");
            self.shared.counters.count_drops(&oldest.merge(next));
            self.retained.insert(oldest.start, oldest);
        }
    }

    /// Writes retained intervals, oldest first, until the intake is full.
    fn write_retained(&mut self) {
        while let Some((start, mut interval)) = self.retained.pop_first() {
            self.in_flight = vec![drop_rows_of(&interval)];
            let mut rows = split_large_rows(interval.drain_rows());
            self.shared.supervisor.failpoint("listen write");
            let finished = self.write_rows(&mut interval, &mut rows);
            let rest = rows.drain(finished..);
            let has_rest = rest.len() > 0;
            interval.add_rows(rest);
            let is_done = !has_rest && self.write_gaps(&mut interval);
            if !is_done {
                self.retained.insert(start, interval);
                return;
            }
        }
    }

    /// Number of rows that are finished: accepted or lost.
    fn write_rows(&mut self, interval: &mut FlushInterval, rows: &mut [AggregateRow]) -> usize {
        let mut ranges: VecDeque<Range<usize>> = std::iter::once(0..rows.len()).collect();
        let mut lost = DropCounts::default();
        let mut done = 0;
        while let Some(range) = ranges.pop_front().filter(|range| !range.is_empty()) {
            let times = (interval.start, interval.end);
            let (end, outcome) = self.write_batch(times, &mut rows[range.clone()], &mut lost);
            let (end, period_range) = (range.start + end, range.end);
            match outcome {
                Err(error @ intake::Error::Full { .. }) => {
                    if !std::mem::replace(&mut self.is_full, true) {
                        let name = self.shared.format.name();
                        let message = format!(
                            "{name}: {error}; the interval is retained in memory until then"
                        );
                        self.shared.recent_errors.push(message);
                    }
                    break;
                }
                // One row is at fault: each half is retried separately.
                Err(intake::Error::Rejected(_) | intake::Error::TooLarge { .. })
                    if end - range.start > 1 =>
                {
                    let middle = range.start + (end - range.start) / 2;
                    [end..period_range, middle..end, range.start..middle]
                        .into_iter()
                        .filter(|range| !range.is_empty())
                        .for_each(|range| ranges.push_front(range));
                    continue;
                }
                Err(error) => self.drop_rows(&error, &rows[range.start..end], &mut lost),
                Ok(()) => self.is_full = false,
            }
            done = end;
            let mut panicked = lost;
            rows[done..]
                .iter()
                .for_each(|(_, aggregate)| panicked.add_aggregate(DropReason::Panic, aggregate));
            self.in_flight = vec![(interval.without_rows(), panicked)];
            if end < period_range {
                ranges.push_front(end..period_range);
            }
        }
        self.shared.counters.count_drops(&lost);
        interval.drops.merge(&lost);
        self.in_flight.clear();
        done
    }

    fn drop_rows(&self, error: &intake::Error, rows: &[AggregateRow], lost: &mut DropCounts) {
        let reason = match error {
            intake::Error::JournalFailed(_) => DropReason::JournalFailed,
            _ => DropReason::Rejected,
        };
        self.shared.recent_errors.push(format!("{}: {error}", self.shared.format.name()));
        rows.iter().for_each(|(_, aggregate)| lost.add_aggregate(reason, aggregate));
    }

    fn key_encoding(&self) -> SeriesKeyEncoding {
        SeriesKeyEncoding::new(self.shared.format.name())
    }

    /// Writes the first rows, up to a batch; returns their number and the outcome. Rows that the
    /// model rejects are dropped if the others are accepted.
    fn write_batch(
        &self,
        times: (i64, i64),
        rows: &mut [AggregateRow],
        lost: &mut DropCounts,
    ) -> (usize, intake::Result<()>) {
        let producer = self.shared.counters.producer.id();
        let mut writer = self.intake.writer_for(producer, self.key_encoding()).with_own_gaps();
        let (mut count, mut received, mut booked, mut refused) = (0, 0, 0, DropCounts::default());
        for (key, aggregate) in rows {
            count += 1;
            match rows::write_row(&self.shared.format, times, key, aggregate, &mut writer) {
                Ok(()) => {
                    received += aggregate.received;
                    if let AggregateValue::Histogram(histogram) = &aggregate.value {
                        booked += histogram.count();
                    }
                }
                Err(error) => {
                    refused.add_aggregate(DropReason::Rejected, aggregate);
                    let name = String::from_utf8_lossy(&key[1..key.len().min(60)]).into_owned();
                    self.shared.recent_errors.push(format!("series {name:?}: {error}"));
                }
            }
            if writer.bytes() >= BATCH_BYTES {
                break;
            }
        }
        let values = writer.values();
        if !writer.is_empty() {
            // No sender waits for a response, so the write does not wait for durability.
            match self.intake.append(&self.shared.counters.producer, writer) {
                Ok(pending_ack) => drop(pending_ack),
                Err(error) => return (count, Err(error)),
            }
        }
        self.shared.counters.accepted.add(received);
        self.shared.counters.producer.add_received(values.saturating_sub(booked));
        lost.merge(&refused);
        (count, Ok(()))
    }

    /// Whether the rows are finished: accepted, or rejected permanently.
    fn write_gaps(&self, interval: &mut FlushInterval) -> bool {
        if interval.drops.is_empty() {
            return true;
        }
        let mut writer = self.intake.writer(self.key_encoding());
        rows::write_gaps(
            interval,
            &interval.drops,
            self.shared.counters.producer.id(),
            &mut writer,
        );
        match self.intake.append(&self.shared.counters.producer, writer) {
            Ok(pending_ack) => drop(pending_ack),
            Err(error) if error.is_retryable() => return false,
            Err(error) => self.shared.recent_errors.push(format!("a gap: {error}")),
        }
        true
    }
}

/// The interval without its lost rows, with the loss added to its drop counts.
fn drop_rows_of(interval: &FlushInterval) -> (FlushInterval, DropCounts) {
    (interval.without_rows(), interval.as_dropped(DropReason::Panic))
}

/// Splits rows with many points so that each fits a batch.
fn split_large_rows(rows: Vec<AggregateRow>) -> Vec<AggregateRow> {
    let mut parted = Vec::with_capacity(rows.len());
    for (key, mut aggregate) in rows {
        if let AggregateValue::Points(points) = &mut aggregate.value {
            while points.len() > POINTS_MAX {
                let first: Vec<(i64, f64)> = points.drain(..POINTS_MAX).collect();
                let received = aggregate.received.min(POINTS_MAX as u64);
                aggregate.received -= received;
                parted.push((
                    key.clone(),
                    SeriesAggregate { received, value: AggregateValue::Points(first) },
                ));
            }
        }
        parted.push((key, aggregate));
    }
    parted
}
