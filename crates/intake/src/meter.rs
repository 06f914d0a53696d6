//! What topdeck measures of itself: counters and distributions, stored and shown like all others.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hist::codec::header::Temporality;
use hist::{Histogram, SharedRecorder};
use model::{Kind, Sample, Series, Value};

use collect::Rows;

/// Something that is counted. Adding is one atomic addition, and a plain one where it is published.
#[derive(Clone, Debug, Default)]
pub struct Counter {
    count: Arc<AtomicU64>,
    published: Option<shm::Counter>,
}

impl Counter {
    /// Adds.
    pub fn add(&self, n: u64) {
        self.count.fetch_add(n, Ordering::Relaxed);
        if let Some(published) = &self.published {
            published.add(n);
        }
    }

    /// What was added since the process began.
    pub fn get(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

/// How long something takes, with its whole distribution in nanoseconds.
#[derive(Clone)]
pub struct Timer {
    recorder: Arc<SharedRecorder>,
    published: Option<shm::Histogram>,
}

impl Timer {
    /// Records one duration.
    pub fn record(&self, duration: Duration) {
        let took_ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.recorder.record(took_ns);
        if let Some(published) = &self.published {
            published.record(took_ns);
        }
    }
}

/// All that is measured, by name and labels. Names begin with `topdeck_`, counters end with `_total`, times with
/// `_seconds` nowhere: their unit is ns, and the series says so.
#[derive(Default)]
pub struct Meter {
    entries: Mutex<Vec<Entry>>,
    probes: Mutex<Vec<Probe>>,
    /// Whether counters and timers are in shared memory too.
    publishes: bool,
}

/// Reads several things at once.
type Probe = Arc<dyn Fn(&mut Vec<Measured>) + Send + Sync>;

#[derive(Clone)]
struct Entry {
    name: &'static str,
    about: &'static str,
    labels: Vec<(String, String)>,
    what: What,
}

#[derive(Clone)]
enum What {
    Counter(Counter),
    Gauge(Arc<dyn Fn() -> f64 + Send + Sync>),
    Timer(Timer),
}

/// One thing that is measured, as it is now.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Its name.
    pub name: &'static str,
    /// What it is, in a sentence.
    pub about: &'static str,
    /// What tells it from others of the name.
    pub labels: Vec<(String, String)>,
    /// Its value.
    pub value: Now,
}

/// A value of topdeck's own.
#[derive(Clone, Debug)]
pub enum Now {
    /// Since the process began.
    Count(u64),
    /// As it is.
    Gauge(f64),
    /// All since the process began, in nanoseconds.
    Times(Box<Histogram>),
}

fn owned(labels: &[(&str, &str)]) -> Vec<(String, String)> {
    labels.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
}

impl Meter {
    /// One whose counters and timers are in shared memory as well, where anybody on this host sees them; in the process's one file,
    /// so this is for who has one meter. Where there is no such memory, they are not.
    pub fn published() -> Meter {
        Meter { publishes: true, ..Meter::default() }
    }

    fn description(
        &self,
        name: &'static str,
        about: &'static str,
        labels: &[(String, String)],
    ) -> Option<shm::Description> {
        let new = || shm::Description::new(name).help(about);
        let add =
            |made: shm::Description, (name, value): &(String, String)| made.label(name, value);
        self.publishes.then(|| labels.iter().fold(new(), add))
    }

    fn entries(&self) -> std::sync::MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The counter of a name and labels; the same for all who ask.
    pub fn counter(
        &self,
        name: &'static str,
        about: &'static str,
        labels: &[(&str, &str)],
    ) -> Counter {
        let mut entries = self.entries();
        let labels = owned(labels);
        for entry in entries.iter().filter(|entry| entry.name == name && entry.labels == labels) {
            if let What::Counter(counter) = &entry.what {
                return counter.clone();
            }
        }
        let described = self.description(name, about, &labels);
        let published = described.and_then(|described| described.counter().ok());
        let counter = Counter { published, ..Counter::default() };
        entries.push(Entry { name, about, labels, what: What::Counter(counter.clone()) });
        counter
    }

    /// The timer of a name and labels; the same for all who ask.
    pub fn timer(&self, name: &'static str, about: &'static str, labels: &[(&str, &str)]) -> Timer {
        let mut entries = self.entries();
        let labels = owned(labels);
        for entry in entries.iter().filter(|entry| entry.name == name && entry.labels == labels) {
            if let What::Timer(timer) = &entry.what {
                return timer.clone();
            }
        }
        let described = self.description(name, about, &labels);
        let described = described.map(|described| described.unit("ns").role(shm::Role::Timing));
        let published = described.and_then(|described| described.histogram().ok());
        let timer = Timer { recorder: Arc::new(SharedRecorder::new()), published };
        entries.push(Entry { name, about, labels, what: What::Timer(timer.clone()) });
        timer
    }

    /// Something that is read when it is asked for. A gauge of the same name and labels is replaced.
    pub fn gauge(
        &self,
        name: &'static str,
        about: &'static str,
        labels: &[(&str, &str)],
        read: impl Fn() -> f64 + Send + Sync + 'static,
    ) {
        let mut entries = self.entries();
        let labels = owned(labels);
        entries.retain(|entry| entry.name != name || entry.labels != labels);
        entries.push(Entry { name, about, labels, what: What::Gauge(Arc::new(read)) });
    }

    /// Several things that are read together when they are asked for.
    pub fn probe(&self, read: impl Fn(&mut Vec<Measured>) + Send + Sync + 'static) {
        self.probes.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::new(read));
    }

    /// All, as they are now.
    pub fn now(&self) -> Vec<Measured> {
        let now = |entry: &Entry| Measured {
            name: entry.name,
            about: entry.about,
            labels: entry.labels.clone(),
            value: match &entry.what {
                What::Counter(counter) => Now::Count(counter.get()),
                What::Gauge(read) => Now::Gauge(read()),
                What::Timer(timer) => Now::Times(Box::new(timer.recorder.snapshot())),
            },
        };
        // What is read may take its time, and ask the meter for something itself.
        let entries = self.entries().clone();
        let probes = self.probes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut all: Vec<Measured> = entries.iter().map(now).collect();
        probes.iter().for_each(|probe| probe(&mut all));
        all
    }

    /// Writes all as rows: what was read at `end`, and began at `start`, with the process.
    pub fn write(&self, start: i64, end: i64, rows: &mut dyn Rows) -> model::Result<()> {
        for Measured { name, labels, value, .. } in self.now() {
            let (kind, unit, value) = match value {
                Now::Count(n) => {
                    (Kind::Counter(Temporality::Cumulative), "", Value::Number(n as f64))
                }
                Now::Gauge(x) => (Kind::Gauge, "", Value::Number(x)),
                Now::Times(histogram) => {
                    (Kind::Histogram(Temporality::Cumulative), "ns", Value::Histogram(histogram))
                }
            };
            let mut series = Series::new(name, kind).with_unit(unit);
            for (name, value) in labels {
                series = series.with_label(name, value);
            }
            let series = series.checked()?;
            let start = if kind == Kind::Gauge { end } else { start };
            rows.series(&series.form(), &mut || Ok(series.clone()))?;
            rows.sample(&Sample { start, end, value })?;
        }
        Ok(())
    }
}

impl std::fmt::Debug for Meter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Meter").field("entries", &self.entries().len()).finish()
    }
}

impl std::fmt::Debug for Timer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Timer")
    }
}

#[cfg(test)]
mod tests {
    use shm::show::{Number, Value};

    use super::*;

    #[test]
    fn what_is_published_is_what_is_stored() {
        let meter = Meter::published();
        let Ok(path) = shm::status() else {
            println!("skipped: there is no memory for it here");
            return;
        };
        let labels = [("route", "home")];
        meter.counter("test_asked_total", "questions", &labels).add(3);
        meter.counter("test_asked_total", "questions", &labels).add(4);
        meter.timer("test_took", "how long", &[]).record(Duration::from_micros(5));
        // Of another meter nothing is seen.
        Meter::default().counter("test_quiet_total", "", &[]).add(1);
        let shown = shm::Reader::attach(&path).unwrap().metrics().unwrap();
        let of = |name: &str| shown.iter().find(|metric| metric.name == name);
        let asked = of("test_asked_total").unwrap();
        assert_eq!(asked.value, Value::Counter(Number::Unsigned(7)));
        assert_eq!(asked.labels, owned(&labels));
        let took = of("test_took").unwrap();
        let Now::Times(stored) =
            &meter.now().iter().find(|now| now.name == "test_took").unwrap().value.clone()
        else {
            panic!("no times")
        };
        assert_eq!((took.unit.as_str(), &took.value), ("ns", &Value::Histogram(stored.clone())));
        assert!(of("test_quiet_total").is_none());
    }
}
