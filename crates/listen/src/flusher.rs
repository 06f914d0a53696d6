//! From the collectors into the intake, interval by interval.
//!
//! Where the intake is full an interval is kept and tried again; when there are more than a few, the oldest are
//! merged, which costs resolution in time and no value. Beyond a bound of memory nothing more is taken from the
//! collectors: they become full too, and connections are then not read, and datagrams lost.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use intake::{Intake, Way};

use crate::collector::{Collector, Common};
use crate::counters::{Lost, Reason};
use crate::held::{Held, What};
use crate::interval::{Interval, Row};
use crate::write::{self, POINTS_MAX};

/// Bytes of a batch, about: a journal's buffer holds several.
const BATCH_BYTES: usize = 768 << 10;
/// Intervals that are kept while the intake is full, before they are merged.
const KEPT_MAX: usize = 8;
/// Between one look for room in the journal and the next, at a stop.
const STOP_RETRY: Duration = Duration::from_millis(50);

/// How the flusher is woken before its time.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    rung: Mutex<Rung>,
    wake: Condvar,
}

#[derive(Clone, Copy, Debug, Default)]
struct Rung {
    stop: bool,
    pressed: bool,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Bell {
    /// A collector has much in memory.
    pub(crate) fn press(&self) {
        locked(&self.rung).pressed = true;
        self.wake.notify_one();
    }

    /// All collectors have got their last value.
    pub(crate) fn stop(&self) {
        locked(&self.rung).stop = true;
        self.wake.notify_one();
    }

    /// Without `hears_press` only a stop ends it early.
    fn wait(&self, time: Duration, hears_press: bool) -> Rung {
        let rung = locked(&self.rung);
        let still = |rung: &mut Rung| !(rung.stop || hears_press && rung.pressed);
        let waited = self.wake.wait_timeout_while(rung, time, still);
        let (mut rung, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let now = *rung;
        rung.pressed = false;
        now
    }
}

pub(crate) struct Flusher {
    common: Arc<Common>,
    intake: Arc<Intake>,
    collectors: Vec<Arc<Mutex<Collector>>>,
    kept: BTreeMap<i64, Interval>,
    /// What gauges were last, for those that only say how they change: value and time.
    gauges: HashMap<Box<[u8]>, (f64, i64)>,
    /// The intake had no room when it was tried last.
    is_full: bool,
}

impl Flusher {
    pub(crate) fn new(
        common: Arc<Common>,
        intake: Arc<Intake>,
        collectors: Vec<Arc<Mutex<Collector>>>,
    ) -> Flusher {
        let (kept, gauges) = (BTreeMap::new(), HashMap::new());
        Flusher { common, intake, collectors, kept, gauges, is_full: false }
    }

    /// Until it is stopped.
    pub(crate) fn run(mut self, bell: &Bell) {
        loop {
            let now = self.intake.now();
            let end = Interval::around(now, self.common.interval).end;
            let left = u64::try_from(end.saturating_sub(now)).unwrap_or(0);
            let has_room = self.has_room();
            self.common.is_stuck.store(!has_room, Ordering::Relaxed);
            let rung =
                bell.wait(Duration::from_nanos(left).min(self.common.limits.sleep_max), has_room);
            if has_room || rung.stop {
                self.collect(rung.stop || rung.pressed);
            }
            self.write();
            if rung.stop {
                return self.finish();
            }
            self.merge();
        }
    }

    /// Whether what collectors have may be taken, and be kept if the intake has no room for it.
    fn has_room(&self) -> bool {
        let max = self.common.limits.memory_bytes_max;
        self.kept.values().map(Interval::bytes).sum::<usize>() < max
    }

    fn finish(&mut self) {
        let until = Instant::now() + self.common.limits.stop_max;
        while !self.kept.is_empty() && Instant::now() < until {
            std::thread::sleep(STOP_RETRY);
            self.write();
        }
        let mut lost = Lost::default();
        for (_, held) in self.kept.values_mut().flat_map(Interval::take_rows) {
            lost.add_held(Reason::Full, &held);
        }
        self.common.counters.lost(&lost);
        if !self.kept.is_empty() {
            // Rows, or only what is known to be missing: nothing says so but the next start.
            self.intake.leave_open();
        }
    }

    fn collect(&mut self, all: bool) {
        let now = self.intake.now();
        let mut taken: BTreeMap<(i64, i64), Interval> = BTreeMap::new();
        for collector in &self.collectors {
            for interval in locked(collector).take(now, all) {
                match taken.get_mut(&(interval.start, interval.end)) {
                    Some(ours) => self.common.counters.lost(&ours.merge(interval)),
                    None => drop(taken.insert((interval.start, interval.end), interval)),
                }
            }
        }
        for mut interval in taken.into_values() {
            self.settle(&mut interval);
            match self.kept.get_mut(&interval.start) {
                Some(ours) => self.common.counters.lost(&ours.merge(interval)),
                None => drop(self.kept.insert(interval.start, interval)),
            }
        }
    }

    /// Works out what gauges are.
    fn settle(&mut self, interval: &mut Interval) {
        let mut rows = interval.take_rows();
        for (key, held) in &mut rows {
            if let What::Gauge { set, change, at } = held.what {
                let known = self.gauges.get(&**key).copied();
                let value = set.unwrap_or_else(|| known.map_or(0.0, |known| known.0) + change);
                if known.is_none_or(|known| known.1 <= at) {
                    self.gauges.insert(key.clone(), (value, at));
                }
                held.what = What::Points(vec![(at, value)]);
            }
        }
        self.common.counters.lost(&interval.add_rows(rows));
        let max = self.common.limits.series_max;
        if self.gauges.len() > max {
            // Those that did not come this time are forgotten, or else all.
            self.gauges.retain(|_, (_, at)| *at >= interval.start);
            if self.gauges.len() > max {
                self.gauges.clear();
            }
        }
    }

    /// Makes fewer of what stayed, because there is no room for it.
    fn merge(&mut self) {
        while self.kept.len() > KEPT_MAX {
            let (_, mut oldest) = self.kept.pop_first().expect("BUG: there are several");
            let (_, next) = self.kept.pop_first().expect("BUG: there are several");
            self.common.counters.lost(&oldest.merge(next));
            self.kept.insert(oldest.start, oldest);
        }
    }

    /// Hands on what is kept, the oldest first, as far as there is room.
    fn write(&mut self) {
        while let Some((start, mut interval)) = self.kept.pop_first() {
            let mut rows = parted(interval.take_rows());
            let taken = self.write_rows(&mut interval, &mut rows);
            let rest = rows.drain(taken..);
            let has_rest = rest.len() > 0;
            interval.add_rows(rest);
            if has_rest || !self.write_gaps(&mut interval) {
                self.kept.insert(start, interval);
                return;
            }
        }
    }

    /// How many rows are done with: taken, or lost.
    fn write_rows(&mut self, interval: &mut Interval, rows: &mut [Row]) -> usize {
        let mut ranges: VecDeque<Range<usize>> = std::iter::once(0..rows.len()).collect();
        let mut lost = Lost::default();
        let mut done = 0;
        while let Some(range) = ranges.pop_front().filter(|range| !range.is_empty()) {
            let times = (interval.start, interval.end);
            let (end, taken) = self.batch(times, &mut rows[range.clone()], &mut lost);
            let (end, whole) = (range.start + end, range.end);
            match taken {
                Err(error @ intake::Error::Full { .. }) => {
                    if !std::mem::replace(&mut self.is_full, true) {
                        let name = self.common.protocol.name();
                        let message = format!("{name}: {error}; until then it is kept in memory");
                        self.common.troubles.push(message);
                    }
                    break;
                }
                // One of them is to blame: each half is tried by itself.
                Err(intake::Error::Refused(_) | intake::Error::TooLarge { .. })
                    if end - range.start > 1 =>
                {
                    let middle = range.start + (end - range.start) / 2;
                    [end..whole, middle..end, range.start..middle]
                        .into_iter()
                        .filter(|range| !range.is_empty())
                        .for_each(|range| ranges.push_front(range));
                    continue;
                }
                Err(error) => self.give_up(&error, &rows[range.start..end], &mut lost),
                Ok(()) => self.is_full = false,
            }
            done = end;
            if end < whole {
                ranges.push_front(end..whole);
            }
        }
        self.common.counters.lost(&lost);
        interval.lost.merge(&lost);
        done
    }

    fn give_up(&self, error: &intake::Error, rows: &[Row], lost: &mut Lost) {
        let reason = match error {
            intake::Error::Broken(_) => Reason::Broken,
            _ => Reason::Refused,
        };
        self.common.troubles.push(format!("{}: {error}", self.common.protocol.name()));
        rows.iter().for_each(|(_, held)| lost.add_held(reason, held));
    }

    /// Hands on the first of the rows, as many as are a batch; how many that is, and what became of them. What
    /// the model refuses is left out and lost, if the others are taken.
    fn batch(
        &self,
        times: (i64, i64),
        rows: &mut [Row],
        lost: &mut Lost,
    ) -> (usize, intake::Result<()>) {
        let producer = self.common.counters.producer.id();
        let mut writer = self.intake.writer_of(producer, Way::Listened).with_own_gaps();
        let (mut count, mut received, mut booked, mut refused) = (0, 0, 0, Lost::default());
        for (key, held) in rows {
            count += 1;
            match write::row(times, key, held, &mut writer) {
                Ok(()) => {
                    received += held.received;
                    if let What::Times(histogram) = &held.what {
                        booked += histogram.count();
                    }
                }
                Err(error) => {
                    refused.add_held(Reason::Refused, held);
                    let name = String::from_utf8_lossy(&key[1..key.len().min(60)]).into_owned();
                    self.common.troubles.push(format!("series {name:?}: {error}"));
                }
            }
            if writer.bytes() >= BATCH_BYTES {
                break;
            }
        }
        let values = writer.values();
        if !writer.is_empty() {
            // Nobody waits to be told, so nothing waits for the disk.
            match self.intake.take(&self.common.counters.producer, writer) {
                Ok(receipt) => drop(receipt),
                Err(error) => return (count, Err(error)),
            }
        }
        self.common.counters.taken.add(received);
        self.common.counters.producer.received(values.saturating_sub(booked));
        lost.merge(&refused);
        (count, Ok(()))
    }

    /// Whether they are taken, or never will be.
    fn write_gaps(&self, interval: &mut Interval) -> bool {
        if interval.lost.is_empty() {
            return true;
        }
        let mut writer = self.intake.writer(Way::Listened);
        write::gaps(interval, &interval.lost, self.common.counters.producer.id(), &mut writer);
        match self.intake.take(&self.common.counters.producer, writer) {
            Ok(receipt) => drop(receipt),
            Err(error) if error.is_temporary() => return false,
            Err(error) => self.common.troubles.push(format!("a gap: {error}")),
        }
        true
    }
}

/// Rows of many points as several, so that a batch holds them.
fn parted(rows: Vec<Row>) -> Vec<Row> {
    let mut parted = Vec::with_capacity(rows.len());
    for (key, mut held) in rows {
        if let What::Points(points) = &mut held.what {
            while points.len() > POINTS_MAX {
                let first: Vec<(i64, f64)> = points.drain(..POINTS_MAX).collect();
                let received = held.received.min(POINTS_MAX as u64);
                held.received -= received;
                parted.push((key.clone(), Held { received, what: What::Points(first) }));
            }
        }
        parted.push((key, held));
    }
    parted
}
