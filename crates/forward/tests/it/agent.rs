//! Fixture: a journal with its intake, and test batches.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use decode::SeriesSink;
use disk::OsDisk;
use forward::{Forward, Remote, RemoteStatus, Settings};
use hist::Histogram;
use hist::codec::header::Temporality;
use intake::{Intake, Supervisor, WriteTarget};
use journal::{Journal, Options, WallClock};
use model::{Sample, SampleValue, Series, SeriesKind};

/// Temporary directory, removed on drop.
pub(crate) struct TestDir(pub(crate) PathBuf);

impl TestDir {
    pub(crate) fn new() -> TestDir {
        TestDir(std::env::temp_dir().join(format!("topdeck-forward-{:x}", journal::random_id())))
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Seeded random numbers.
#[derive(Clone)]
pub(crate) struct SeededRng(pub(crate) u64);

impl SeededRng {
    pub(crate) fn below(&mut self, sides: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

pub(crate) fn create(dir: &Path, settings: &journal::Settings) {
    Journal::create(&OsDisk, dir, journal::random_id(), 0, settings).unwrap();
}

/// Opens the intake of a directory's journal.
pub(crate) fn open(dir: &Path, clock: WallClock) -> Arc<Intake> {
    supervised(dir, clock, Supervisor::default())
}

/// As `open`, with a supervisor that restarts tasks.
pub(crate) fn supervised(dir: &Path, clock: WallClock, supervisor: Supervisor) -> Arc<Intake> {
    let options = Options { clock: Arc::clone(&clock), supervisor, ..Options::default() };
    let journal = Journal::open(Arc::new(OsDisk), dir, &options).unwrap();
    // Self-monitoring is written once per interval: never in a test.
    let interval = Duration::MAX;
    let settings = intake::Settings { clock, interval, ..intake::Settings::default() };
    Arc::new(Intake::new(WriteTarget::Journal(Arc::new(journal)), settings).unwrap())
}

pub(crate) fn latencies() -> Series {
    Series::new("latency", SeriesKind::Histogram(Temporality::Delta))
        .with_unit("ns")
        .validate()
        .unwrap()
}

/// Appends a batch with a histogram of the given count and waits until it is durable.
pub(crate) fn put(intake: &Intake, count: u64) {
    let mut histogram = Histogram::default();
    (0..count).for_each(|n| histogram.record(1000.0 + n as f64));
    let mut writer = intake.writer(intake::SeriesKeyEncoding::GENERIC);
    let series = latencies();
    writer.series(b"latency", &mut || Ok(series.clone())).unwrap();
    let value = SampleValue::Histogram(Box::new(histogram));
    writer.sample(&Sample { start: 10, end: 20, value }).unwrap();
    intake.append(&intake.producer("test"), writer).unwrap().wait_durable().unwrap();
}

/// Settings with short retry delays.
pub(crate) fn settings(dir: &Path, remotes: &[(&str, &str)]) -> Settings {
    let remote = |&(name, url): &(&str, &str)| Remote {
        name: name.to_owned(),
        url: url.to_owned(),
        token: Some("secret".to_owned()),
        ..Remote::default()
    };
    Settings {
        remotes: remotes.iter().map(remote).collect(),
        agent: "here".to_owned(),
        dead_letter_dir: dir.join("dead-letter"),
        response_timeout: Duration::from_secs(2),
        backoff: (Duration::from_millis(1), Duration::from_millis(20)),
        rejections_max: 3,
        stop_grace: Duration::ZERO,
    }
}

/// Waits until the first remote has everything below a position and the acknowledgement has
/// arrived.
pub(crate) async fn wait_caught_up(forward: &Forward, position: u64) -> RemoteStatus {
    let looking = async {
        loop {
            match forward.status().swap_remove(0) {
                status if status.position >= position => break status,
                _ => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), looking)
        .await
        .expect("the remote did not catch up")
}

/// Stops everything, so that the journal can be opened again.
pub(crate) async fn stop_all(forward: Forward, intake: Arc<Intake>) {
    forward.stop().await;
    intake.stop();
    assert_eq!(Arc::strong_count(&intake), 1, "the intake has another owner");
}
