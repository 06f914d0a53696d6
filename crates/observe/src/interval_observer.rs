//! Packets and plaintext of TLS of one thread in, its intervals out.

use wire::{
    CapturedPacket, ConnectionTracker, FingerprintCacheCounts, RingStatistics, ServiceRule,
    TlsEvent,
};

use crate::interval_clock::IntervalClock;
use crate::interval_merger::IntervalMerger;
use crate::settings::CaptureSettings;
use crate::shard_interval::{
    MeasuredInterval, ObservedService, ShardCounts, ShardInterval, ShardState,
};

pub(crate) struct IntervalObserver {
    settings: CaptureSettings,
    /// Index of the thread.
    shard: usize,
    tracker: ConnectionTracker,
    clock: IntervalClock,
    ring: RingStatistics,
    /// See [`ShardState::clock_steps`].
    clock_steps: u64,
    /// Cumulative counts at the end of the last interval.
    last_ring: RingStatistics,
    last_cache: FingerprintCacheCounts,
    /// Chunks of plaintext that were lost.
    lost_tls_events: u64,
    last_lost_tls_events: u64,
    /// Time of the packet that was read last, in nanoseconds since the Unix epoch.
    last_packet: Option<i64>,
    merger: IntervalMerger,
}

impl IntervalObserver {
    pub(crate) fn new(
        settings: CaptureSettings,
        shard: usize,
        clock: IntervalClock,
        merger: IntervalMerger,
    ) -> IntervalObserver {
        IntervalObserver {
            tracker: new_tracker(&settings),
            settings,
            shard,
            clock,
            ring: RingStatistics::default(),
            clock_steps: 0,
            last_ring: RingStatistics::default(),
            last_cache: FingerprintCacheCounts::default(),
            lost_tls_events: 0,
            last_lost_tls_events: 0,
            last_packet: None,
            merger,
        }
    }

    /// Starts anew after a panic, with what is left of the interval as a gap: the state of the
    /// connections is unknown.
    pub(crate) fn restart(&mut self, now: i64) {
        let reason = "wire: the capture started anew after a panic; operations are missing";
        self.merger.restart(self.shard, self.clock.start(), now, reason);
        self.tracker = new_tracker(&self.settings);
        self.last_cache = FingerprintCacheCounts::default();
    }

    /// Observes other servers from now on.
    pub(crate) fn set_rules(&mut self, rules: Vec<ServiceRule>) {
        self.settings.rules.clone_from(&rules);
        self.tracker.set_rules(rules);
    }

    /// Reads a packet. One behind the end of the interval ends it.
    pub(crate) fn read(&mut self, packet: &CapturedPacket<'_>) {
        packet.time.into_iter().for_each(|time| self.reach(time));
        self.tracker.read(packet);
    }

    /// Reads a chunk of plaintext. One behind the end of the interval ends it.
    pub(crate) fn read_tls(&mut self, event: &TlsEvent<'_>) {
        self.reach(event.end);
        self.tracker.read_tls(event);
    }

    /// Hands over requests that are compared with those of the other end.
    pub(crate) fn report_requests(&mut self) {
        if let Some(queue) = &self.settings.end_queue
            && let Some(records) = self.tracker.take_end_records()
        {
            queue.push(records);
        }
    }

    /// Notes the time of what is read next.
    fn reach(&mut self, time: u64) {
        let time = i64::try_from(time).unwrap_or(i64::MAX);
        self.last_packet = Some(time);
        if let Some(end) = self.clock.end_before_packet(time) {
            self.end_interval(end, time);
        }
    }

    /// There are no packets up to now: ends the interval if its time is over.
    pub(crate) fn end_idle_interval(&mut self, now: i64) {
        self.follow_clock(now);
        if let Some(end) = self.clock.end_before(now) {
            self.end_interval(end, now);
        }
    }

    /// Follows a clock that was set back.
    pub(crate) fn follow_clock(&mut self, now: i64) {
        self.clock_steps += u64::from(self.clock.follow(now));
    }

    /// Ends the last interval, which may be shorter. A packet of the next interval may have ended
    /// the one before: counters must not be written behind it.
    pub(crate) fn end_last_interval(&mut self, now: i64) {
        let end = now.max(self.clock.start().saturating_add(1));
        let interval = self.take_interval(end);
        self.merger.finish(self.shard, interval);
        self.clock.advance(end, end);
    }

    pub(crate) fn set_ring(&mut self, ring: RingStatistics) {
        self.ring = ring;
    }

    pub(crate) fn set_lost_tls_events(&mut self, lost: u64) {
        self.lost_tls_events = lost;
    }

    /// Whether the packet that was read last is of this time or later. The clock may have been set
    /// back since an earlier packet.
    pub(crate) fn has_reached(&self, time: i64) -> bool {
        self.last_packet.is_some_and(|last| last >= time)
    }

    fn end_interval(&mut self, end: i64, now: i64) {
        let interval = self.take_interval(end);
        self.merger.push(self.shard, interval);
        self.clock.advance(end, now);
    }

    fn take_interval(&mut self, end: i64) -> ShardInterval {
        let in_flight = self.tracker.in_flight();
        let open_connections = self.tracker.open_connections();
        let connection_memory = self.tracker.connection_memory();
        let statement_memory = self.tracker.statement_memory();
        let found = self.tracker.take_interval();
        // Before services have other numbers.
        self.report_requests();
        self.tracker.forget_idle_services();
        let lost = self.lost_tls_events;
        let lost_tls_events = lost - std::mem::replace(&mut self.last_lost_tls_events, lost);
        let (ring, last) = (self.ring, std::mem::replace(&mut self.last_ring, self.ring));
        let ring = RingStatistics {
            packets: ring.packets - last.packets,
            drops: ring.drops - last.drops,
            freezes: ring.freezes - last.freezes,
        };
        let cache = self.tracker.fingerprint_cache_counts();
        let last = std::mem::replace(&mut self.last_cache, cache);
        let cache = FingerprintCacheCounts {
            hits: cache.hits - last.hits,
            misses: cache.misses - last.misses,
        };
        let state = ShardState {
            services: found.services.iter().map(ObservedService::of).collect(),
            in_flight,
            open_connections,
            connection_memory,
            statement_memory,
            clock_steps: self.clock_steps,
        };
        let (totals, tls) = (found.totals, found.tls);
        let counts = ShardCounts { ring, totals, tls, lost_tls_events, cache };
        let (start, services) = (self.clock.start().min(end), found.services);
        ShardInterval { measured: MeasuredInterval { start, end, services, counts }, state }
    }
}

fn new_tracker(settings: &CaptureSettings) -> ConnectionTracker {
    let mut tracker = ConnectionTracker::new(settings.tracker());
    if settings.end_queue.is_some() {
        tracker.record_live_requests();
    }
    tracker
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use wire::LinkType;

    use super::*;
    use crate::capture_status::CaptureStatus;
    use crate::interval_composer::IntervalComposer;
    use crate::interval_queue::IntervalQueue;

    const SECOND: i64 = 1_000_000_000;
    const INTERVAL: Duration = Duration::from_secs(10);

    /// An observer that starts at this time, and its queue.
    fn observer(start: i64) -> (IntervalObserver, IntervalQueue) {
        let settings = CaptureSettings::with_keys("h", "").unwrap();
        let (queue, status) = (IntervalQueue::default(), CaptureStatus::new(&[]));
        let clock = IntervalClock::new(INTERVAL, start);
        let composer = IntervalComposer::new(&settings, start, queue.clone(), status);
        let merger = IntervalMerger::new(&settings, 1, composer);
        (IntervalObserver::new(settings, 0, clock, merger), queue)
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
