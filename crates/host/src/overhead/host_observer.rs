//! Host collector of topdeck as an observer: as in `serve` and `agent`, but every 10 ms and into
//! memory.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use disk::Disk;
use intake::{Intake, SnapshotValue, WriteTarget};
use journal::{Journal, Level};

use crate::host::HostCollector;
use crate::settings::Settings;

use super::memory_disk::MemoryDisk;
use super::observer::ObserverRound;

/// 1/1000 of the default interval.
const INTERVAL: Duration = Duration::from_millis(10);
/// Metric of the duration of a scrape; its count is the number of scrapes.
const SCRAPE: &str = "topdeck_host_scrape_duration";

/// Starts the collector. Sources that it cannot read are added to the notes.
pub(crate) fn open_host_observer(notes: &mut Vec<String>) -> io::Result<ObserverRound> {
    let disk: Arc<dyn Disk> = Arc::new(MemoryDisk::default());
    let dir = Path::new("/overhead");
    let settings = journal::Settings::default();
    Journal::create(&*disk, dir, journal::random_id(), 0, &settings).map_err(io::Error::other)?;
    let options = journal::Options::default();
    let journal = Journal::open(disk, dir, &options).map_err(io::Error::other)?;
    let settings = intake::Settings {
        interval: INTERVAL,
        level: Level::Process,
        ..intake::Settings::default()
    };
    let intake = Intake::new(WriteTarget::Journal(Arc::new(journal)), settings);
    let intake = Arc::new(intake.map_err(io::Error::other)?);
    let host = HostCollector::start(Settings::for_host("overhead"), Arc::clone(&intake));
    let host = host.map_err(io::Error::other)?;
    notes.extend(host.warnings());
    let mut before = 0;
    Ok(Box::new(move || {
        // The collector runs until this is dropped.
        std::hint::black_box(&host);
        thread::sleep(INTERVAL);
        let now = scrape_count(&intake);
        let rounds = now - before;
        before = now;
        Ok(rounds)
    }))
}

fn scrape_count(intake: &Intake) -> u64 {
    let all = intake.meter().snapshot();
    let count = all.iter().find(|measured| measured.name == SCRAPE).map(|it| match &it.value {
        SnapshotValue::Histogram(times) => times.count(),
        _ => 0,
    });
    count.unwrap_or(0)
}
