//! Rows of threads that are late, skip boundaries, start anew, or follow a clock that steps.

use std::collections::BTreeMap;
use std::time::Duration;

use wire::{InFlightSummary, ServiceInterval, StatementStatistics, find_protocol};

use super::*;
use crate::capture_status::CaptureStatus;
use crate::interval_clock::IntervalClock;
use crate::interval_queue::{IntervalQueue, QueuedIntervals};
use crate::metrics::{
    CAPTURED_PACKETS, CLOCK_STEPS, CONNECT_LATENCY, FORGOTTEN_SERVERS, IN_FLIGHT, MEASURED,
    NOT_MEASURED, REQUESTS, WireMetric,
};
use crate::pending_samples::WireLabels;
use crate::shard_interval::ObservedService;

const SECOND: i64 = 1_000_000_000;

/// A merger, and the rows that it has written.
struct TestMerger {
    merger: IntervalMerger,
    queue: IntervalQueue,
    rows: Vec<QueuedIntervals>,
    /// Rows that were checked.
    checked: usize,
}

impl TestMerger {
    fn new(shards: usize) -> TestMerger {
        TestMerger::with_keys(shards, "")
    }

    fn with_keys(shards: usize, keys: &str) -> TestMerger {
        let settings = CaptureSettings::with_keys("h", keys).unwrap();
        let (queue, status) = (IntervalQueue::default(), CaptureStatus::new(&[]));
        let composer = IntervalComposer::new(&settings, 0, queue.clone(), status);
        let merger = IntervalMerger::new(&settings, shards, composer);
        TestMerger { merger, queue, rows: Vec::new(), checked: 0 }
    }

    fn push(&mut self, shard: usize, interval: ShardInterval) {
        self.merger.state().push(shard, interval);
        self.write_rows();
    }

    fn finish(&mut self, shard: usize, interval: ShardInterval) {
        self.merger.state().push(shard, interval);
        self.merger.state().shards[shard].is_finished = true;
        self.write_rows();
    }

    /// Writes each row apart; the queue would merge them.
    fn write_rows(&mut self) {
        let mut state = self.merger.state();
        while let Some(end) = state.row_end() {
            state.write_row(end);
            assert!(self.queue.is_backlogged());
            self.rows.push(self.queue.pop().unwrap());
        }
        let waiting = state.shards.iter().map(|shard| shard.intervals.len()).max();
        assert!(waiting <= Some(WAITING_MAX), "{waiting:?}");
    }

    /// Checks the rows since the last call: ends, and the cumulative value of a metric.
    #[track_caller]
    fn check(&mut self, metric: &WireMetric, expected: &[(i64, f64)]) {
        let new = &self.rows[self.checked..];
        let found: Vec<_> = new.iter().map(|row| (row.end.unwrap(), sum(row, metric))).collect();
        assert_eq!(found, expected);
        self.checked = self.rows.len();
    }
}

/// Sum of a metric in a row.
fn sum(row: &QueuedIntervals, metric: &WireMetric) -> f64 {
    row.numbers.iter().filter(|sample| sample.metric == metric).map(|sample| sample.value).sum()
}

/// Measured requests by service.
fn measured(row: &QueuedIntervals) -> Vec<(String, f64)> {
    let samples = row.numbers.iter().filter(|sample| *sample.metric == MEASURED);
    samples.map(|sample| (sample.labels[0].1.to_string(), sample.value)).collect()
}

/// An interval with this number of packets.
fn interval(start: i64, end: i64, packets: u64) -> ShardInterval {
    let measured = MeasuredInterval { start, end, ..MeasuredInterval::default() };
    let mut interval = ShardInterval { measured, state: ShardState::default() };
    interval.measured.counts.ring.packets = packets;
    interval
}

impl ShardInterval {
    /// Adds a server with measured requests, and with requests in flight at the end.
    fn with_server(mut self, name: &str, measured: u64, in_flight: u64) -> ShardInterval {
        let protocol = find_protocol("http").unwrap();
        let mut service = ServiceInterval::new(name.to_owned(), false, protocol);
        service.completeness.measured = measured;
        (0..measured).for_each(|_| service.connect.record(1.0));
        let state = &mut self.state;
        let own = InFlightSummary {
            service: state.services.len(),
            verb: "GET".to_owned(),
            statement: "/".to_owned(),
            is_wait: false,
            requests: in_flight,
            oldest: 0,
        };
        state.in_flight.extend((in_flight > 0).then_some(own));
        state.services.push(ObservedService::of(&service));
        self.measured.services.push(service);
        self
    }
}

#[test]
fn a_row_is_complete_when_all_threads_have_ended_it() {
    let mut test = TestMerger::new(2);
    test.push(0, interval(0, 10, 3));
    test.check(&CAPTURED_PACKETS, &[]);
    test.push(1, interval(0, 10, 4));
    test.check(&CAPTURED_PACKETS, &[(10, 7.0)]);
    test.push(0, interval(10, 20, 1));
    // A thread without packets ends a longer interval.
    test.push(1, interval(10, 30, 2));
    test.check(&CAPTURED_PACKETS, &[]);
    test.push(0, interval(20, 30, 5));
    test.check(&CAPTURED_PACKETS, &[(30, 15.0)]);
    // Threads that skip each other's boundaries.
    for end in [50, 70, 90] {
        test.push(0, interval(end - 20, end, 1));
        test.push(1, interval(end - 10, end + 10, 1));
    }
    test.check(&CAPTURED_PACKETS, &[(60, 17.0), (80, 19.0)]);
}

#[test]
fn the_last_intervals_of_all_threads_are_one() {
    let mut test = TestMerger::new(2);
    test.push(0, interval(0, 10, 1));
    test.finish(0, interval(10, 13, 2));
    test.check(&CAPTURED_PACKETS, &[]);
    test.push(1, interval(0, 10, 3));
    test.check(&CAPTURED_PACKETS, &[(10, 4.0)]);
    test.merger.finish(1, interval(10, 14, 4));
    assert!(test.queue.is_closed());
    let row = test.queue.pop().unwrap();
    assert_eq!((row.end, sum(&row, &CAPTURED_PACKETS)), (Some(14), 10.0));
}

#[test]
fn a_thread_that_does_not_finish_loses_no_interval_of_others() {
    let mut test = TestMerger::new(2);
    test.finish(0, interval(0, 10, 1));
    test.merger.finish_all();
    assert!(test.queue.is_closed());
    assert_eq!(sum(&test.queue.pop().unwrap(), &CAPTURED_PACKETS), 1.0);
}

#[test]
fn rows_do_not_wait_long_for_a_thread() {
    let mut test = TestMerger::new(2);
    test.push(0, interval(0, 10, 1).with_server("a", 1, 0));
    test.push(1, interval(0, 10, 1).with_server("a", 1, 5));
    test.check(&REQUESTS, &[(10, 7.0)]);
    for end in [20, 30, 40, 50] {
        test.push(0, interval(end - 10, end, 1).with_server("a", 1, 0));
    }
    // The state of the second thread is that of its last interval.
    test.check(&REQUESTS, &[(20, 8.0), (30, 9.0)]);
    // It was late, not away.
    for end in [20, 30, 40] {
        test.push(1, interval(end - 10, end, 1).with_server("a", 2, 3));
    }
    test.check(&REQUESTS, &[(40, 14.0)]);
    let mut last = test.rows.pop().unwrap();
    let (_, connects) = last.distributions.pop_first().unwrap();
    assert_eq!((connects.start, connects.histogram.count()), (30, 7), "no time is written twice");
}

#[test]
fn requests_in_flight_of_a_thread_that_skips_a_boundary_are_not_missing() {
    let mut test = TestMerger::new(2);
    let both = |test: &mut TestMerger, start, end| {
        test.push(0, interval(start, end, 1).with_server("a", 10, 0));
        test.push(1, interval(start, end, 1).with_server("a", 0, 100));
    };
    both(&mut test, 0, 10);
    test.push(0, interval(10, 20, 1).with_server("a", 10, 0));
    test.push(1, interval(10, 30, 1).with_server("a", 0, 100));
    test.push(0, interval(20, 30, 1).with_server("a", 10, 0));
    both(&mut test, 30, 40);
    test.check(&REQUESTS, &[(10, 110.0), (30, 130.0), (40, 140.0)]);
}

#[test]
fn a_clock_that_steps_between_two_threads_stops_no_rows() {
    let mut test = TestMerger::new(2);
    for shard in [0, 1] {
        test.push(shard, interval(5_000, 5_010, 1).with_server("a", 1, 1));
    }
    // The second thread has not ended this interval when the clock is set back.
    test.push(0, interval(5_010, 5_020, 1).with_server("a", 1, 1));
    let mut back = interval(1_003, 1_010, 1).with_server("a", 1, 1);
    back.state.clock_steps = 1;
    test.push(1, back);
    test.check(&REQUESTS, &[(5_010, 4.0)]);
    let mut back = interval(1_003, 1_010, 1).with_server("a", 1, 1);
    back.state.clock_steps = 1;
    test.push(0, back);
    test.check(&REQUESTS, &[(1_010, 7.0)]);
    assert_eq!(sum(&test.rows[1], &CLOCK_STEPS), 1.0, "it is one step, which both have seen");
}

#[test]
fn rows_after_a_step_back_do_not_wait_long_for_a_thread() {
    let mut test = TestMerger::new(2);
    for shard in [0, 1] {
        test.push(shard, interval(5_000, 5_010, 1).with_server("a", 1, 1));
    }
    for end in [1_010, 1_020, 1_030] {
        test.push(0, interval(end - 10, end, 1).with_server("a", 1, 1));
    }
    test.check(&REQUESTS, &[(5_010, 4.0), (1_010, 5.0)]);
}

#[test]
fn requests_in_flight_of_a_thread_that_starts_anew_are_not_measured() {
    let mut test = TestMerger::new(1);
    test.push(0, interval(0, 10, 1).with_server("a", 5, 100).with_server("b", 1, 2));
    for at in [12, 13] {
        test.merger.restart(0, 10, at, "a panic");
    }
    test.push(0, interval(10, 20, 1).with_server("a", 1, 3));
    test.push(0, interval(20, 30, 1).with_server("a", 1, 0));
    test.check(&REQUESTS, &[(10, 108.0), (20, 112.0), (30, 107.0)]);
    let of = |row: usize| {
        [&MEASURED, &NOT_MEASURED, &IN_FLIGHT].map(|metric| sum(&test.rows[row], metric))
    };
    // The last numbers of the other server are complete, too.
    assert_eq!(of(1), [7.0, 102.0, 3.0]);
    assert_eq!(of(2), [7.0, 100.0, 0.0]);
    assert_eq!(test.rows[1].gaps.len(), 2);
}

#[test]
fn a_server_is_forgotten_when_no_thread_has_it() {
    let mut test = TestMerger::new(2);
    let both = |test: &mut TestMerger, end, counts: [u64; 2]| {
        for (shard, measured) in counts.into_iter().enumerate() {
            let own = interval(end - 10, end, 1).with_server("b", 1, 0);
            let is_known = measured > 0;
            test.push(shard, if is_known { own.with_server("a", measured, 0) } else { own });
        }
    };
    both(&mut test, 10, [2, 3]);
    both(&mut test, 20, [0, 4]);
    both(&mut test, 30, [0, 0]);
    test.check(&FORGOTTEN_SERVERS, &[(10, 0.0), (20, 0.0), (30, 1.0)]);
    assert_eq!(measured(&test.rows[1]), [("b".to_owned(), 4.0), ("a".to_owned(), 9.0)]);
    assert_eq!(measured(&test.rows[2]), [("b".to_owned(), 6.0)]);
}

#[test]
fn a_server_beyond_the_limit_stays_there_until_it_is_forgotten() {
    let mut test = TestMerger::with_keys(2, "max_servers = 1");
    let mut push_both = |end, first: &[&str], second: &[&str]| {
        for (shard, servers) in [first, second].into_iter().enumerate() {
            let with = |own: ShardInterval, name: &&str| own.with_server(name, 1, 1);
            test.push(shard, servers.iter().fold(interval(end - 10, end, 1), with));
        }
        measured(test.rows.last().unwrap())
    };
    let other = "other http servers";
    let named = |counts: &[(&str, f64)]| {
        counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect::<Vec<_>>()
    };
    assert_eq!(push_both(10, &["a"], &["b"]), named(&[("a", 1.0), (other, 1.0)]));
    // A place is free, for new servers.
    assert_eq!(push_both(20, &[], &["b"]), named(&[(other, 2.0)]));
    assert_eq!(push_both(30, &["c"], &["b"]), named(&[(other, 3.0), ("c", 1.0)]));
    assert_eq!(push_both(40, &["c"], &[]), named(&[("c", 2.0)]));
    assert_eq!(push_both(50, &["b"], &[]), named(&[("b", 1.0)]));
}

#[test]
fn an_interval_that_waits_has_the_statements_of_one() {
    let mut test = TestMerger::with_keys(2, "max_statements = 2");
    for end in [10, 20, 30, 40] {
        test.push(0, interval(end - 10, end, 1));
    }
    test.check(&CAPTURED_PACKETS, &[(10, 1.0), (20, 2.0)]);
    // Twenty intervals of the second thread that are late, each with another statement.
    for end in 0..20 {
        let mut own = interval(end, end + 1, 1).with_server("a", 0, 0);
        let mut statement = StatementStatistics {
            verb: "GET".into(),
            statement: format!("/{end}").into(),
            total_time_ns: [1, 9][usize::from(end == 3)],
            ..StatementStatistics::default()
        };
        statement.succeeded.last_byte.record(1.0);
        own.measured.services[0].statements.push(statement);
        test.push(1, own);
    }
    let state = test.merger.state();
    let waiting = &state.shards[1].intervals;
    let service = &waiting[0].measured.services[0];
    assert_eq!((waiting.len(), service.statements.len()), (1, 4));
    assert!(service.statements.iter().any(|statement| *statement.statement == *"/3"));
    assert_eq!(service.other.operations(), 16);
}

/// Which events a random schedule has.
#[derive(Clone, Copy, Debug)]
struct Schedule {
    seed: u64,
    shards: usize,
    has_steps: bool,
    has_restarts: bool,
    forgets: bool,
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }

    fn between(&mut self, min: i64, max: i64) -> i64 {
        min + self.below((max - min) as u64) as i64
    }
}

/// A thread of a capture without packets: what it has seen since the end of the last interval, and
/// its requests in flight, by server.
struct SimulatedThread {
    clock: IntervalClock,
    clock_steps: u64,
    /// Measured, not measured and in flight.
    servers: BTreeMap<&'static str, [u64; 3]>,
    /// Turns in which it does not run.
    stalled: u64,
}

impl SimulatedThread {
    /// What the thread has measured, and its state.
    fn take(&mut self, end: i64) -> ShardInterval {
        let mut taken = interval(self.clock.start().min(end), end, 1);
        taken.state.clock_steps = self.clock_steps;
        for (name, [measured, not_measured, in_flight]) in &mut self.servers {
            taken = taken.with_server(name, std::mem::take(measured), *in_flight);
            let service = taken.measured.services.last_mut().unwrap();
            service.completeness.not_measured.no_response = std::mem::take(not_measured);
        }
        taken
    }

    /// A request begins, or ends with or without a response.
    fn read(&mut self, random: &mut Random) {
        let name = ["a", "b", "c", "d", "e"][random.below(5) as usize];
        let [measured, not_measured, in_flight] = self.servers.entry(name).or_default();
        match random.below(8) {
            0..4 if *in_flight < 20 => *in_flight += 1,
            outcome if *in_flight > 0 => {
                let count = if outcome == 7 { not_measured } else { measured };
                *in_flight -= 1;
                *count += 1;
            }
            _ => {}
        }
    }
}

/// Threads in a random order, and what they have measured.
struct Simulation {
    schedule: Schedule,
    random: Random,
    now: i64,
    threads: Vec<SimulatedThread>,
    test: TestMerger,
    pushed_intervals: u64,
    pushed_measured: u64,
}

impl Simulation {
    fn new(schedule: Schedule) -> Simulation {
        let now = 1_000_003 * SECOND;
        let thread = |_| SimulatedThread {
            clock: IntervalClock::new(Duration::from_secs(10), now),
            clock_steps: 0,
            servers: BTreeMap::new(),
            stalled: 0,
        };
        Simulation {
            schedule,
            random: Random(schedule.seed),
            now,
            threads: (0..schedule.shards).map(thread).collect(),
            test: TestMerger::with_keys(schedule.shards, "max_servers = 3"),
            pushed_intervals: 0,
            pushed_measured: 0,
        }
    }

    fn note_pushed(&mut self, interval: &ShardInterval) {
        let of = |service: &ServiceInterval| service.completeness.measured;
        self.pushed_measured += interval.measured.services.iter().map(of).sum::<u64>();
        self.pushed_intervals += 1;
    }

    /// A turn of one thread, as the capture does it.
    fn turn(&mut self) {
        let index = self.random.below(self.threads.len() as u64) as usize;
        let (now, random) = (self.now, &mut self.random);
        let thread = &mut self.threads[index];
        if thread.stalled > 0 {
            thread.stalled -= 1;
            return;
        }
        if random.below(60) == 0 {
            thread.stalled = random.below(80);
        }
        let has_packet = random.below(3) > 0;
        if !has_packet {
            thread.clock_steps += u64::from(thread.clock.follow(now));
        }
        let ended = match has_packet {
            true => thread.clock.end_before_packet(now),
            false => thread.clock.end_before(now),
        };
        let taken = ended.map(|end| {
            let taken = thread.take(end);
            thread.clock.advance(end, now);
            // As the tracker: behind the interval.
            if self.schedule.forgets {
                thread.servers.retain(|_, [_, _, in_flight]| *in_flight > 0 || random.below(4) > 0);
            }
            taken
        });
        if has_packet {
            thread.clock_steps += u64::from(thread.clock.follow(now));
            thread.read(random);
        }
        if let Some(taken) = taken {
            self.note_pushed(&taken);
            self.test.push(index, taken);
        }
    }

    fn run(&mut self) {
        for _ in 0..1_000 {
            self.turn();
            let random = &mut self.random;
            self.now += random.between(1, SECOND);
            match random.below(300) {
                0 => self.now += random.between(0, 100 * SECOND),
                1 if self.schedule.has_steps => self.now -= random.between(0, 300 * SECOND),
                2 if self.schedule.has_steps => self.now -= random.between(0, 7_200 * SECOND),
                3 if self.schedule.has_restarts => {
                    let index = random.below(self.threads.len() as u64) as usize;
                    let thread = &mut self.threads[index];
                    let start = thread.clock.start();
                    self.test.merger.restart(index, start, self.now, "a panic");
                    thread.servers.clear();
                }
                _ => {}
            }
        }
        for index in 0..self.threads.len() {
            let thread = &mut self.threads[index];
            thread.clock_steps += u64::from(thread.clock.follow(self.now));
            let end = self.now.max(thread.clock.start() + 1);
            let taken = thread.take(end);
            self.note_pushed(&taken);
            self.test.finish(index, taken);
        }
    }

    fn check(self) {
        let (schedule, rows) = (self.schedule, self.test.rows);
        let (mut last_end, mut last_numbers) = (0, BTreeMap::new());
        let (mut connects, mut last_row) = (0, None);
        for mut row in rows {
            let end = row.end.unwrap();
            assert!(schedule.has_steps || end > last_end, "{schedule:?}: {last_end}, {end}");
            let counted = sum(&row, &MEASURED) + sum(&row, &NOT_MEASURED) + sum(&row, &IN_FLIGHT);
            assert_eq!(sum(&row, &REQUESTS), counted, "{schedule:?} at {end}");
            let mut numbers: BTreeMap<(&str, WireLabels), (i64, f64)> = BTreeMap::new();
            for sample in row.numbers.iter().filter(|sample| !sample.is_gauge()) {
                let (key, found) =
                    ((sample.metric.name, sample.labels.clone()), (sample.start, sample.value));
                if let Some((start, value)) = last_numbers.get(&key) {
                    let is_new = schedule.forgets || schedule.has_restarts;
                    let is_reset = is_new && sample.start != *start;
                    let what = || format!("{schedule:?} at {end}: {key:?}: {value}, {found:?}");
                    assert!(is_reset || sample.value >= *value, "{}", what());
                    assert!(is_reset || sample.start <= *start, "{}", what());
                }
                numbers.insert(key, found);
            }
            while let Some((series, pending)) = row.distributions.pop_first() {
                assert_eq!(*series.metric, CONNECT_LATENCY);
                connects += pending.histogram.count();
                assert!(schedule.has_steps || pending.start >= last_end, "{schedule:?} at {end}");
            }
            (last_end, last_numbers, last_row) = (end, numbers, Some(row));
        }
        let last = last_row.unwrap();
        assert_eq!(connects, self.pushed_measured, "{schedule:?}");
        assert_eq!(sum(&last, &CAPTURED_PACKETS), self.pushed_intervals as f64, "{schedule:?}");
        if !schedule.forgets && !schedule.has_restarts {
            assert_eq!(sum(&last, &MEASURED), connects as f64, "{schedule:?}");
        }
        let in_flight = self.threads.iter().flat_map(|thread| thread.servers.values());
        let in_flight: u64 = in_flight.map(|[_, _, in_flight]| in_flight).sum();
        assert_eq!(sum(&last, &IN_FLIGHT), in_flight as f64, "{schedule:?}");
    }
}

#[test]
fn counters_do_not_decrease_whatever_the_threads_and_the_clock_do() {
    for seed in 0..32 {
        let is_set = |bit: u32| seed >> bit & 1 == 1;
        let mut simulation = Simulation::new(Schedule {
            seed,
            shards: 1 + (seed / 8 % 4) as usize,
            has_steps: is_set(0),
            has_restarts: is_set(1),
            forgets: is_set(2),
        });
        simulation.run();
        simulation.check();
    }
}
