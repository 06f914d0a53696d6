//! Packets in, intervals of all services out.

use wire::{CapturedPacket, ConnectionTracker, RingStatistics, UndecodedReason};

use crate::capture_status::CaptureStatus;
use crate::interval_clock::IntervalClock;
use crate::interval_queue::{IntervalQueue, QueuedIntervals};
use crate::metrics::{self, WireMetric};
use crate::operation_series::{
    InFlightTotals, NumberSample, ServiceLabels, ServiceSnapshot, add_distributions, add_numbers,
    statement_weights,
};
use crate::settings::CaptureSettings;
use crate::statement_slots::StatementSlots;

pub(crate) struct IntervalObserver {
    settings: CaptureSettings,
    tracker: ConnectionTracker,
    /// By index of the service.
    services: Vec<ServiceRecord>,
    clock: IntervalClock,
    /// Start of the counters of services.
    began: i64,
    /// Start of the counters of the ring.
    ring_began: i64,
    ring: RingStatistics,
    /// Time of the packet that was read last, in nanoseconds since the Unix epoch.
    last_packet: Option<i64>,
    queue: IntervalQueue,
    status: CaptureStatus,
}

/// What is known of a service beside its statistics.
struct ServiceRecord {
    labels: ServiceLabels,
    slots: StatementSlots,
    overflow_operations: u64,
}

impl IntervalObserver {
    pub(crate) fn new(
        settings: CaptureSettings,
        clock: IntervalClock,
        queue: IntervalQueue,
        status: CaptureStatus,
    ) -> IntervalObserver {
        IntervalObserver {
            tracker: ConnectionTracker::new(settings.tracker()),
            services: Vec::new(),
            began: clock.start(),
            ring_began: clock.start(),
            clock,
            settings,
            ring: RingStatistics::default(),
            last_packet: None,
            queue,
            status,
        }
    }

    /// Starts anew after a panic, with what is left of the interval as a gap: the state of the
    /// connections is unknown.
    pub(crate) fn restart(&mut self, now: i64) {
        let start = self.clock.start();
        let reason = "wire: the capture started anew after a panic; operations are missing";
        let mut intervals = QueuedIntervals::default();
        intervals.add_gap(start.min(now), now, reason.to_owned());
        self.queue.push(intervals);
        self.tracker = ConnectionTracker::new(self.settings.tracker());
        self.services.clear();
        self.began = now;
    }

    /// Reads a packet. One behind the end of the interval ends it.
    pub(crate) fn read(&mut self, packet: &CapturedPacket<'_>) {
        if let Some(time) = packet.time {
            let time = i64::try_from(time).unwrap_or(i64::MAX);
            self.last_packet = Some(time);
            if let Some(end) = self.clock.end_before_packet(time) {
                self.end_interval(end, time);
            }
        }
        self.tracker.read(packet);
    }

    /// There are no packets up to now: ends the interval if its time is over.
    pub(crate) fn end_idle_interval(&mut self, now: i64) {
        if let Some(end) = self.clock.end_before(now) {
            self.end_interval(end, now);
        }
    }

    /// Follows a clock that was set back.
    pub(crate) fn follow_clock(&mut self, now: i64) {
        self.clock.follow(now);
    }

    /// Ends the interval, which may be shorter. A packet of the next interval may have ended the
    /// one before: counters must not be written behind it.
    pub(crate) fn end_last_interval(&mut self, now: i64) {
        let end = now.max(self.clock.start().saturating_add(1));
        self.end_interval(end, end);
    }

    pub(crate) fn set_ring(&mut self, ring: RingStatistics) {
        self.ring = ring;
    }

    /// Whether the packet that was read last is of this time or later. The clock may have been set
    /// back since an earlier packet.
    pub(crate) fn has_reached(&self, time: i64) -> bool {
        self.last_packet.is_some_and(|last| last >= time)
    }

    fn end_interval(&mut self, end: i64, now: i64) {
        let start = self.clock.start().min(end);
        // After the clock was set back, counters have one start, not another one in each row.
        self.began = self.began.min(start);
        self.ring_began = self.ring_began.min(start);
        let in_flight = self.tracker.in_flight();
        let mut intervals = QueuedIntervals { end: Some(end), ..QueuedIntervals::default() };
        self.add_services(&mut intervals, start, end);
        let services = self.tracker.services().iter().zip(&self.services);
        for (index, (service, record)) in services.enumerate() {
            let state = ServiceSnapshot {
                service,
                labels: &record.labels,
                in_flight: InFlightTotals::new(index, &in_flight),
                overflow_operations: record.overflow_operations,
                statements: record.slots.len(),
                statements_limit: self.settings.statements_max,
            };
            add_numbers(&mut intervals.numbers, &state, self.began, end);
        }
        self.add_capture(&mut intervals.numbers, end);
        self.status.set_interval(end, &self.tracker, &in_flight, self.ring);
        self.queue.push(intervals);
        self.clock.advance(end, now);
    }

    /// Adds the distributions of all services.
    fn add_services(&mut self, intervals: &mut QueuedIntervals, start: i64, end: i64) {
        let admits = !self.queue.is_backlogged();
        let all = self.tracker.take_interval();
        for service in &self.tracker.services()[self.services.len()..] {
            self.services.push(ServiceRecord {
                labels: ServiceLabels::new(service),
                slots: StatementSlots::new(self.settings.statements_max),
                overflow_operations: 0,
            });
        }
        for (interval, record) in all.iter().zip(&mut self.services) {
            record.slots.update(end, &statement_weights(interval), admits);
            let (labels, slots) = (&record.labels, &record.slots);
            let distributions = &mut intervals.distributions;
            record.overflow_operations +=
                add_distributions(distributions, labels, start, interval, slots);
        }
    }

    /// Adds counters and gauges of the capture.
    fn add_capture(&self, samples: &mut Vec<NumberSample>, end: i64) {
        let mut add =
            |metric: &'static WireMetric, label: Option<(&'static str, &str)>, n, start| {
                let labels = label.map(|(name, value)| (name, value.to_owned()));
                let labels = labels.into_iter().collect();
                samples.push(NumberSample { metric, labels, value: n as f64, start });
            };
        let totals = self.tracker.totals();
        for (metric, count) in [
            (&metrics::CAPTURED_PACKETS, self.ring.packets),
            (&metrics::DROPPED_PACKETS, self.ring.drops),
            (&metrics::RING_FREEZES, self.ring.freezes),
        ] {
            add(metric, None, count, self.ring_began);
        }
        for (reason, count) in UndecodedReason::ALL.iter().zip(totals.undecoded) {
            add(&metrics::UNDECODED_PACKETS, Some(("reason", reason.label())), count, self.began);
        }
        let others = [("tcp", totals.other_tcp.packets), ("udp", totals.other_udp.packets)];
        for (transport, count) in others {
            add(&metrics::OTHER_PACKETS, Some(("transport", transport)), count, self.began);
        }
        for (metric, value) in [
            (&metrics::OPEN_CONNECTIONS, self.tracker.open_connections()),
            (&metrics::CONNECTION_MEMORY, self.tracker.connection_memory()),
        ] {
            add(metric, None, value as u64, end);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use wire::LinkType;

    use super::*;

    const SECOND: i64 = 1_000_000_000;
    const INTERVAL: Duration = Duration::from_secs(10);

    /// An observer that starts at this time, and its queue.
    fn observer(start: i64) -> (IntervalObserver, IntervalQueue) {
        let settings = CaptureSettings::with_keys("h", "").unwrap();
        let (queue, status) = (IntervalQueue::default(), CaptureStatus::new(&[]));
        let clock = IntervalClock::new(INTERVAL, start);
        (IntervalObserver::new(settings, clock, queue.clone(), status), queue)
    }

    fn read(observer: &mut IntervalObserver, time: i64) {
        observer.read(&CapturedPacket {
            time: Some(time as u64),
            link_type: LinkType::RawIp,
            bytes: &[],
            original_bytes: 0,
        });
    }

    /// End of the interval in the queue, and the starts of its counters.
    fn pop(queue: &IntervalQueue) -> (i64, Vec<i64>) {
        let intervals = queue.pop().unwrap();
        let counters = intervals.numbers.iter().filter(|sample| !sample.is_gauge());
        let mut starts: Vec<i64> = counters.map(|sample| sample.start).collect();
        starts.dedup();
        (intervals.end.unwrap(), starts)
    }

    #[test]
    fn a_stop_writes_nothing_behind_the_interval_that_the_last_packet_ended() {
        let (mut observer, queue) = observer(13 * SECOND);
        read(&mut observer, 20 * SECOND);
        assert_eq!(pop(&queue), (20 * SECOND, vec![13 * SECOND]));
        observer.end_last_interval(20 * SECOND - 10_000_000);
        assert_eq!(pop(&queue), (20 * SECOND + 1, vec![13 * SECOND]));
    }

    #[test]
    fn counters_have_one_start_after_the_clock_was_set_back() {
        let (mut observer, queue) = observer(1_000 * SECOND);
        read(&mut observer, 1_001 * SECOND);
        observer.follow_clock(500 * SECOND);
        assert!(observer.has_reached(501 * SECOND), "by the packet before");
        for time in [501, 511, 521] {
            read(&mut observer, time * SECOND);
            assert!(observer.has_reached(time * SECOND));
            assert!(!observer.has_reached(time * SECOND + 1));
            if time > 501 {
                assert_eq!(pop(&queue), ((time - 1) * SECOND, vec![500 * SECOND]));
            }
        }
    }
}
