//! A journal, the way into it, and what was put there.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use collect::Rows;
use disk::OsDisk;
use forward::{Forward, Settings, Site, Status};
use hist::Histogram;
use hist::codec::header::Temporality;
use intake::{Home, Intake, Supervisor};
use journal::{Clock, Journal, Options};
use model::{Kind, Sample, Series, Value};

/// A folder that goes when it is dropped.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Folder {
        Folder(std::env::temp_dir().join(format!("topdeck-forward-{:x}", journal::random_id())))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Numbers that are the same for the same seed.
#[derive(Clone)]
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, sides: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

pub(crate) fn create(folder: &Path, settings: &journal::Settings) {
    Journal::create(&OsDisk, folder, journal::random_id(), 0, settings).unwrap();
}

/// Opens the way into the journal of a folder.
pub(crate) fn open(folder: &Path, clock: Clock) -> Arc<Intake> {
    supervised(folder, clock, Supervisor::default())
}

/// The same, with what runs tasks again.
pub(crate) fn supervised(folder: &Path, clock: Clock, supervisor: Supervisor) -> Arc<Intake> {
    let options = Options { clock: Arc::clone(&clock), supervisor, ..Options::default() };
    let journal = Journal::open(Arc::new(OsDisk), folder, &options).unwrap();
    // Own measurements are written each interval: never in a test.
    let interval = Duration::MAX;
    let settings = intake::Settings { clock, interval, ..intake::Settings::default() };
    Arc::new(Intake::new(Home::Journal(Arc::new(journal)), settings).unwrap())
}

pub(crate) fn latencies() -> Series {
    Series::new("latency", Kind::Histogram(Temporality::Delta)).with_unit("ns").checked().unwrap()
}

/// Puts a batch with a histogram of so many values, and waits until it is durable.
pub(crate) fn put(intake: &Intake, count: u64) {
    let mut histogram = Histogram::default();
    (0..count).for_each(|n| histogram.record(1000.0 + n as f64));
    let mut writer = intake.writer(intake::Way::Placed);
    let series = latencies();
    writer.series(b"latency", &mut || Ok(series.clone())).unwrap();
    let value = Value::Histogram(Box::new(histogram));
    writer.sample(&Sample { start: 10, end: 20, value }).unwrap();
    intake.take(&intake.producer("test"), writer).unwrap().wait().unwrap();
}

/// Quick to try again.
pub(crate) fn settings(folder: &Path, sites: &[(&str, &str)]) -> Settings {
    let site = |&(name, url): &(&str, &str)| Site {
        name: name.to_owned(),
        url: url.to_owned(),
        token: Some("secret".to_owned()),
        ..Site::default()
    };
    Settings {
        sites: sites.iter().map(site).collect(),
        agent: "here".to_owned(),
        aside: folder.join("refused"),
        answer_max: Duration::from_secs(2),
        retry: (Duration::from_millis(1), Duration::from_millis(20)),
        refusals_max: 3,
        grace: Duration::ZERO,
    }
}

/// Waits until the first site has everything below a position, and it is known here.
pub(crate) async fn caught_up(forward: &Forward, position: u64) -> Status {
    let looking = async {
        loop {
            match forward.status().swap_remove(0) {
                status if status.position >= position => break status,
                _ => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), looking).await.expect("it does not catch up")
}

/// Ends everything, so that the journal can be opened again.
pub(crate) async fn end(forward: Forward, intake: Arc<Intake>) {
    forward.stop().await;
    intake.stop();
    assert_eq!(Arc::strong_count(&intake), 1, "somebody still has the journal");
}
