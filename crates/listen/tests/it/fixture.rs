//! Fixture: an intake with an in-memory journal and a simulated clock.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use disk::Disk;
use intake::{Intake, Supervisor, WriteTarget};
use journal::{Journal, ReadItem, StartPosition};
use listen::{AnyLineFormat, Collectd, Graphite, ListenAddress, Settings, SocketAddresses, Statsd};
use model::{Batch, BatchSeries, Gap, Sample, SampleValue, Series};
use sim::SimDisk;

/// Start of an interval.
pub(crate) const NOW: i64 = 1_700_000_000_000_000_000;
/// Longer than any test takes on the slowest machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct ListenFixture {
    pub(crate) journal: Arc<Journal>,
    pub(crate) intake: Arc<Intake>,
    now: Arc<AtomicI64>,
}

impl ListenFixture {
    pub(crate) fn new() -> ListenFixture {
        ListenFixture::with(journal::Settings::default())
    }

    pub(crate) fn with(settings: journal::Settings) -> ListenFixture {
        ListenFixture::supervised(settings, Supervisor::default())
    }

    /// With a supervisor that restarts threads.
    pub(crate) fn supervised(settings: journal::Settings, supervisor: Supervisor) -> ListenFixture {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(1).process());
        let dir = Path::new("/journal");
        Journal::create(&*disk, dir, 7, NOW, &settings).unwrap();
        // A full journal returns at once.
        let wait_max = Duration::from_millis(20);
        let options = journal::Options {
            append_timeout: wait_max,
            supervisor,
            ..journal::Options::default()
        };
        let journal = Arc::new(Journal::open(disk, dir, &options).unwrap());
        let now = Arc::new(AtomicI64::new(NOW + 3_000_000_000));
        let clock = Arc::clone(&now);
        let settings = intake::Settings {
            clock: Arc::new(move || clock.load(Ordering::SeqCst)),
            // No self-monitoring.
            background: false,
            ..intake::Settings::default()
        };
        let intake =
            Arc::new(Intake::new(WriteTarget::Journal(Arc::clone(&journal)), settings).unwrap());
        ListenFixture { journal, intake, now }
    }

    /// Some seconds after the start of the first interval.
    pub(crate) fn set_now(&self, seconds: i64) {
        self.now.store(NOW + seconds * 1_000_000_000, Ordering::SeqCst);
    }

    /// Value of a listener counter.
    pub(crate) fn count(&self, name: &'static str, outcome: &str) -> u64 {
        // Reading an unknown counter creates it with value zero.
        let count = |labels: &[(&str, &str)]| self.intake.meter().counter(name, "", labels).get();
        let outcome = ("outcome", outcome);
        count(&[("source", "statsd"), outcome])
            + count(&[("source", "graphite"), outcome])
            + count(&[("source", "collectd"), outcome])
            + count(&[outcome])
    }

    pub(crate) fn values(&self, outcome: &str) -> u64 {
        self.count("topdeck_listen_values_total", outcome)
    }

    /// Waits for a counter value.
    #[track_caller]
    pub(crate) fn wait(&self, name: &'static str, outcome: &str, count: u64) {
        let began = Instant::now();
        while self.count(name, outcome) < count {
            assert!(began.elapsed() < TIMEOUT, "{name} {outcome}: {}", self.count(name, outcome));
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Content of the journal.
    pub(crate) fn stored(&self) -> (Vec<(Series, Sample)>, Vec<Gap>) {
        let mut reader = self.journal.reader(StartPosition::First).unwrap();
        let (mut rows, mut gaps) = (Vec::new(), Vec::new());
        while let Some(item) = reader.next().unwrap() {
            let ReadItem::Batch(batch) = item else { panic!("nothing is missing") };
            for record in batch.records() {
                let batch = Batch::decode(record.bytes.to_vec()).unwrap();
                let mut entries = batch.read();
                for entry in entries.by_ref() {
                    let entry = entry.unwrap();
                    let BatchSeries::Key(canonical_key) = entry.series else {
                        panic!("keys are sent")
                    };
                    let (start, end, value) = (entry.start, entry.end, entry.decode().unwrap());
                    rows.push((
                        Series::from_canonical_key(canonical_key).unwrap(),
                        Sample { start, end, value },
                    ));
                }
                gaps.extend_from_slice(entries.gaps());
            }
        }
        (rows, gaps)
    }

    /// The audit's counts for the source are accepted or dropped, and accepted samples are in the
    /// journal.
    #[track_caller]
    pub(crate) fn check_ledger(&self) {
        let (rows, _) = self.stored();
        let values = rows.iter().map(|(_, sample)| match &sample.value {
            SampleValue::Histogram(histogram) => histogram.count(),
            _ => 1,
        });
        let (stored, audit) = (values.sum::<u64>(), self.intake.audit().unwrap());
        for source in audit.producers.iter().filter_map(|account| account.source.as_ref()) {
            assert_eq!((source.buffered(), source.accepted), (0, stored), "{source:?}");
            let dropped: u64 = source.dropped.iter().map(|(_, n)| n).sum();
            assert_eq!(source.received, stored + dropped, "{source:?}");
        }
    }

    /// One row per line, sorted by series; times in seconds since the start.
    pub(crate) fn dump_rows(&self) -> String {
        let (rows, gaps) = self.stored();
        let seconds = |time: i64| (time - NOW) as f64 / 1e9;
        let mut lines: Vec<String> = rows
            .iter()
            .map(|(series, sample)| {
                let mut line =
                    format!("{series} {}..{}", seconds(sample.start), seconds(sample.end));
                match &sample.value {
                    SampleValue::Histogram(histogram) => {
                        let sum = histogram.tracked_sum().value().unwrap().value();
                        write!(line, " {} of {sum}{}", histogram.count(), series.unit())
                    }
                    SampleValue::Number(number) => write!(line, " {number}"),
                    SampleValue::Text(text) => write!(line, " {text:?}"),
                }
                .unwrap();
                line
            })
            .collect();
        lines.sort();
        lines.extend(gaps.iter().map(|gap| format!("lost {}: {}", gap.lost.unwrap(), gap.reason)));
        lines.join("\n")
    }
}

/// StatsD on the given addresses.
pub(crate) fn statsd(sockets: SocketAddresses) -> Settings {
    Settings { sockets, ..Settings::new(AnyLineFormat::new(Statsd::default())) }
}

/// Graphite on the given addresses.
pub(crate) fn graphite(sockets: SocketAddresses) -> Settings {
    Settings { sockets, ..Settings::new(AnyLineFormat::new(Graphite::default())) }
}

/// collectd on the given addresses.
pub(crate) fn collectd(sockets: SocketAddresses) -> Settings {
    Settings { sockets, ..Settings::new(AnyLineFormat::new(Collectd::default())) }
}

/// UDP on any port of this host.
pub(crate) fn udp_sockets() -> SocketAddresses {
    SocketAddresses { udp: vec![loopback()], ..SocketAddresses::default() }
}

/// TCP on any port of this host.
pub(crate) fn tcp_sockets() -> SocketAddresses {
    SocketAddresses { tcp: vec![loopback()], ..SocketAddresses::default() }
}

pub(crate) fn loopback() -> std::net::SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// Internet socket address.
pub(crate) fn ip(address: &ListenAddress) -> std::net::SocketAddr {
    match address {
        ListenAddress::Udp(address) | ListenAddress::Tcp(address) => *address,
        other => panic!("{other}"),
    }
}

/// Temporary test directory, removed on drop.
pub(crate) struct TestDir(pub(crate) PathBuf);

impl TestDir {
    pub(crate) fn new() -> TestDir {
        let path = std::env::temp_dir().join(format!("topdeck-listen-{:x}", journal::random_id()));
        std::fs::create_dir_all(&path).unwrap();
        TestDir(path)
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
