//! One thread's intervals: values go in, intervals that are over come out.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use collect::graphite;
use collect::statsd::{self, Metric, Type, Value};
use intake::{Supervisor, panic_message};

use crate::counters::{Counters, Lost, Reason};
use crate::held::{Held, Members, SET_MEMBERS_MAX, What, buckets};
use crate::interval::{Interval, SERIES_BYTES};
use crate::random::Random;
use crate::settings::{Limits, Protocol};
use crate::troubles::Troubles;

/// How far ahead a value's time may be, in nanoseconds: clocks differ, and a day is what wrong zones make of it.
const AHEAD_MAX: i64 = 86_400_000_000_000;
/// Messages about lines that a thread writes in an interval; the others are only counted.
const MESSAGES_MAX: u64 = 8;
/// Intervals that are over and wait for the flusher, before they are merged.
const DONE_MAX: usize = 8;

/// What the threads of a listener share.
#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) protocol: Protocol,
    pub(crate) limits: Limits,
    /// Nanoseconds.
    pub(crate) interval: i64,
    pub(crate) counters: Counters,
    pub(crate) troubles: Troubles,
    pub(crate) members: Members,
    /// What is kept for the intake has no room for more: nothing is taken from collectors.
    pub(crate) is_stuck: AtomicBool,
    pub(crate) supervisor: Supervisor,
}

/// What becomes of values when memory is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtFull {
    /// They are lost, and counted: nobody can ask the senders of datagrams to wait.
    Lose,
    /// They are taken: who reads looks first, so that it is one read more at the most.
    Wait,
}

#[derive(Debug)]
pub(crate) struct Collector {
    common: Arc<Common>,
    at_full: AtFull,
    now: i64,
    current: Interval,
    /// What has a time of its own that is not now.
    others: BTreeMap<i64, Interval>,
    done: Vec<Interval>,
    /// Of all intervals but those that are done; about.
    bytes: usize,
    done_bytes: usize,
    series: usize,
    random: Random,
    key: Vec<u8>,
    tally: Tally,
    messages: u64,
}

/// Counted in a packet.
#[derive(Debug, Default)]
struct Tally {
    received: u64,
    refused: u64,
    skipped: u64,
    /// As how many values timings count.
    weight: u64,
    lost: Lost,
}

impl Collector {
    pub(crate) fn new(common: Arc<Common>, at_full: AtFull, now: i64, random: Random) -> Collector {
        Collector {
            current: Interval::around(now, common.interval),
            common,
            at_full,
            now,
            others: BTreeMap::new(),
            done: Vec::new(),
            bytes: 0,
            done_bytes: 0,
            series: 0,
            random,
            key: Vec::new(),
            tally: Tally::default(),
            messages: 0,
        }
    }

    /// It is now, in nanoseconds since the Unix epoch: what comes next came now.
    pub(crate) fn turn(&mut self, now: i64) {
        self.now = now;
        if !self.current.contains(now) {
            self.cut(Interval::around(now, self.common.interval));
            self.messages = 0;
        }
    }

    /// Ends what is open.
    fn cut(&mut self, next: Interval) {
        let current = std::mem::replace(&mut self.current, next);
        let ended = std::mem::take(&mut self.others).into_values().chain([current]);
        self.done.extend(ended.filter(|interval| !interval.is_empty()));
        (self.bytes, self.series) = (0, 0);
        self.done_bytes = self.done.iter().map(Interval::bytes).sum();
        // Only where nobody takes them: while there is room the flusher comes each interval.
        while self.done.len() > DONE_MAX
            && self.done_bytes > self.common.limits.memory_bytes_max / 2
        {
            let other = self.done.remove(1);
            let lost = self.done[0].merge(other);
            self.common.counters.lost(&lost);
            self.done_bytes = self.done.iter().map(Interval::bytes).sum();
        }
    }

    /// Intervals that are over, with what was lost in them, which is counted already. With `all`, also what came of the
    /// one that is not, as if it ended now.
    pub(crate) fn take(&mut self, now: i64, all: bool) -> Vec<Interval> {
        self.turn(now);
        if all {
            let Interval { start, end, .. } = self.current;
            self.cut(Interval::new(start, end.saturating_sub(start)));
            if let Some(last) = self.done.iter_mut().rfind(|done| done.end == end) {
                last.end = now.clamp(start.saturating_add(1), end);
            }
        }
        self.done_bytes = 0;
        std::mem::take(&mut self.done)
    }

    /// Half of what memory there may be is used: it is time to take what there is.
    pub(crate) fn is_pressed(&self) -> bool {
        self.bytes + self.done_bytes > self.common.limits.memory_bytes_max / 2
    }

    /// No more is to come.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes + self.done_bytes >= self.common.limits.memory_bytes_max
    }

    /// Lines, as they came from somewhere. If reading them panics, the rest of them is refused.
    pub(crate) fn packet(&mut self, bytes: &[u8], from: &dyn Display) {
        let read = || {
            self.read(bytes, from);
            self.common.supervisor.fault_point("listen packet");
        };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(read)) {
            let (name, message) = (self.common.protocol.name(), panic_message(&*panic));
            self.common.supervisor.thread(format!("{name} lines")).caught(&*panic);
            let start = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned();
            let why = format!("reading {start:?} panicked, please report it: {message}");
            self.refuse(&why, from);
        }
        self.count();
    }

    fn read(&mut self, bytes: &[u8], from: &dyn Display) {
        match self.common.protocol {
            Protocol::Statsd => statsd::packet(bytes, |found| match found {
                Ok(statsd::Found::Metric(metric)) => self.metric(&metric, from),
                Ok(statsd::Found::Skipped(_)) => self.tally.skipped += 1,
                Err(trouble) => self.refuse(&trouble, from),
            }),
            Protocol::Graphite => {
                for (at, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
                    let line = line.trim_ascii();
                    if line.is_empty() {
                        continue;
                    }
                    match graphite::line(at as u64 + 1, line, self.now) {
                        Ok(graphite::Found::Metric(metric)) => self.point(&metric),
                        Ok(graphite::Found::Skipped(_)) => self.tally.skipped += 1,
                        Err(trouble) => self.refuse(&trouble, from),
                    }
                }
            }
        }
    }

    /// A line that was not even looked at.
    pub(crate) fn refuse_line(&mut self, why: &dyn Display, from: &dyn Display) {
        self.refuse(why, from);
        self.count();
    }

    fn count(&mut self) {
        let Tally { received, refused, skipped, weight, lost } = std::mem::take(&mut self.tally);
        let counters = &self.common.counters;
        counters.lost(&lost);
        counters.producer.received(weight);
        counters.received.add(received);
        counters.lines_refused.add(refused);
        counters.lines_skipped.add(skipped);
    }

    fn refuse(&mut self, why: &dyn Display, from: &dyn Display) {
        self.tally.refused += 1;
        if self.messages < MESSAGES_MAX {
            self.messages += 1;
            self.common.troubles.push(format!("{from}: {why}"));
        }
    }

    /// Datagrams that the kernel dropped in the interval.
    pub(crate) fn kernel_lost(&mut self, n: u64) {
        let mut lost = Lost::default();
        lost.add(Reason::Kernel, n);
        self.current.lost.merge(&lost);
        self.common.counters.lost(&lost);
    }

    fn metric(&mut self, metric: &Metric<'_>, from: &dyn Display) {
        let at = metric.time.unwrap_or(self.now);
        self.key.clear();
        self.key.push(match metric.kind {
            Type::Counter => b'c',
            Type::Gauge => b'g',
            Type::Milliseconds => b'm',
            Type::Distribution => b'd',
            Type::Set => b's',
        });
        self.key.extend_from_slice(metric.name.as_bytes());
        self.key.push(b'|');
        self.key.extend_from_slice(metric.tags.as_bytes());
        let new = || match metric.kind {
            Type::Counter => What::Count(0.0),
            Type::Gauge => What::Gauge { set: None, change: 0.0, at },
            Type::Milliseconds | Type::Distribution => What::Times(Box::default()),
            Type::Set => What::Set(Default::default()),
        };
        let mut place = None;
        for value in metric.values() {
            match value {
                Err(trouble) => self.refuse(&trouble, from),
                Ok(value) => {
                    self.tally.received += 1;
                    let found = place.map_or_else(|| self.place(at, new), Ok);
                    match found.and_then(|found| {
                        place = Some(found);
                        self.value(at, found, value, metric.rate)
                    }) {
                        Ok(()) => {}
                        Err(reason) => self.lose(reason),
                    }
                }
            }
        }
    }

    /// Counted at once, and in the interval for its gap.
    fn lose(&mut self, reason: Reason) {
        self.current.lost.add(reason, 1);
        self.tally.lost.add(reason, 1);
    }

    fn point(&mut self, metric: &graphite::Metric<'_>) {
        self.tally.received += 1;
        self.key.clear();
        self.key.push(b'p');
        self.key.extend_from_slice(metric.series.as_bytes());
        // Points have times of their own, and go with what comes now.
        let ahead = metric.time > self.now.saturating_add(AHEAD_MAX);
        let place = match ahead {
            true => Err(Reason::Time),
            false => self.place(self.now, || What::Points(Vec::new())),
        };
        match place {
            Err(reason) => self.lose(reason),
            Ok(place) => {
                let held = self.current.at(place);
                held.received += 1;
                if let What::Points(points) = &mut held.what {
                    points.push((metric.time, metric.value));
                    self.bytes += 32;
                }
            }
        }
    }

    /// The series of the key in the interval of a time, where there is room for one more value.
    fn place(&mut self, at: i64, new: impl Fn() -> What) -> Result<usize, Reason> {
        if at > self.now.saturating_add(AHEAD_MAX) {
            return Err(Reason::Time);
        }
        if self.at_full == AtFull::Lose && self.is_full() {
            // Relaxed: nothing else is read by it.
            let is_stuck = self.common.is_stuck.load(Ordering::Relaxed);
            return Err(if is_stuck { Reason::Full } else { Reason::Memory });
        }
        let other = Interval::around(at, self.common.interval);
        let known = match self.current.contains(at) {
            true => Some(&self.current),
            false => self.others.get(&other.start),
        };
        if let Some(found) = known.and_then(|known| known.find(&self.key)) {
            return Ok(found);
        }
        // Before an interval is made for it: one without series would cost nothing, and there could be any number.
        if self.series >= self.common.limits.series_max {
            return Err(Reason::Series);
        }
        let what = new();
        self.series += 1;
        // Another interval's own cost is that of its first series.
        self.bytes += SERIES_BYTES + self.key.len() + what.bytes();
        let interval = match self.current.contains(at) {
            true => &mut self.current,
            false => self.others.entry(other.start).or_insert(other),
        };
        Ok(interval.insert(self.key.as_slice().into(), Held { received: 0, what }))
    }

    fn value(&mut self, at: i64, place: usize, value: Value<'_>, rate: f64) -> Result<(), Reason> {
        let interval = match self.current.contains(at) {
            true => &mut self.current,
            false => {
                let start = Interval::around(at, self.common.interval).start;
                self.others.get_mut(&start).expect("BUG: the series has a place")
            }
        };
        let held = interval.at(place);
        match (&mut held.what, value) {
            (What::Times(histogram), Value::Number(number)) => {
                if histogram.count() > u64::MAX / 2 {
                    return Err(Reason::Memory);
                }
                let had = buckets(histogram);
                let weight = self.random.weight(rate);
                histogram.record_n(number, weight);
                self.tally.weight += weight;
                self.bytes += 24 * (buckets(histogram) - had);
            }
            (What::Count(sum), Value::Number(number)) => *sum += number / rate,
            (What::Gauge { set, change, at: last }, Value::Number(number)) => {
                (*set, *change, *last) = (Some(number), 0.0, at);
            }
            (What::Gauge { set, change, at: last }, Value::Change(number)) => {
                match set {
                    Some(set) => *set += number,
                    None => *change += number,
                }
                *last = at;
            }
            (What::Set(members), Value::Member(member)) => {
                let member = self.common.members.of(member);
                if members.len() >= SET_MEMBERS_MAX && !members.contains(&member) {
                    return Err(Reason::Members);
                }
                self.bytes += if members.insert(member) { 36 } else { 0 };
            }
            _ => unreachable!("BUG: the key has the type"),
        }
        held.received += 1;
        Ok(())
    }
}
