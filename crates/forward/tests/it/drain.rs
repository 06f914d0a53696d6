//! A backlog is drained with memory that does not depend on its size.

use std::process::Command;
use std::sync::Arc;

use collect::Rows;
use forward::Forward;
use intake::Intake;
use model::{Kind, Sample, Series, Value};

use crate::agent::{Dice, Folder, create, end, open, settings};
use crate::site::{Fault, Site};

const BATCH_BYTES: usize = 256 << 10;
const BATCHES: u64 = 600;

/// Bytes of this process in memory that are nobody else's: files that are read do not count.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: Vec<u64> = text.split_whitespace().map(|word| word.parse().unwrap()).collect();
    (pages[1] - pages[2]) * 4096
}

fn put_text(intake: &Intake, dice: &mut Dice) {
    // Not to be compressed.
    let text: String = (0..BATCH_BYTES).map(|_| char::from(b'!' + dice.roll(90) as u8)).collect();
    let series = Series::new("text", Kind::Text).checked().unwrap();
    let mut writer = intake.writer(intake::Way::Placed);
    writer.series(b"text", &mut || Ok(series.clone())).unwrap();
    writer.sample(&Sample { start: 1, end: 2, value: Value::Text(text) }).unwrap();
    drop(intake.take(&intake.producer("test"), writer).unwrap());
}

/// Says that this process is the one that is measured.
const ALONE: &str = "TOPDECK_TEST_DRAIN_ALONE";

/// In a process of its own: what other tests hold would count, too.
#[test]
fn a_backlog_needs_no_memory_of_its_size() {
    if std::env::var_os(ALONE).is_some() {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        return runtime.worker_threads(2).enable_all().build().unwrap().block_on(drain());
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "drain::a_backlog_needs_no_memory_of_its_size", "--nocapture"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let told =
        [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    assert!(output.status.success() && told[0].contains("1 passed"), "{}", told.concat());
}

async fn drain() {
    let folder = Folder::new();
    create(&folder.0, &journal::Settings::default());
    let site = Site::start(|| Fault::None).await;
    let intake = open(&folder.0, journal::wall_clock());
    let settings = settings(&folder.0, &[("a", &site.url)]);
    // Its place is made before anything comes: the journal keeps nothing for a site that it does not know.
    Forward::start(settings.clone(), Arc::clone(&intake)).unwrap().stop().await;
    let writing = Arc::clone(&intake);
    let fill = move || {
        let mut dice = Dice(5);
        (0..BATCHES).for_each(|_| put_text(&writing, &mut dice));
    };
    tokio::task::spawn_blocking(fill).await.unwrap();
    let _ = intake.home().journal().flush(journal::Level::Disk).unwrap();
    let before = resident();
    let forward = Forward::start(settings, Arc::clone(&intake)).unwrap();
    let mut most = 0;
    for position in 1..=BATCHES {
        site.reaches(position).await;
        most = most.max(resident());
    }
    end(forward, intake).await;
    let state = site.state();
    assert_eq!((&state.gaps[..], state.repeated), (&[][..], 0));
    // What is measured of topdeck itself may come behind.
    assert_eq!(state.order[..BATCHES as usize], (1..=BATCHES).collect::<Vec<_>>());
    // The site's side is in it too: a body, unpacked, and batches out of it.
    let grown = most.saturating_sub(before);
    assert!(grown < 60 << 20, "{grown} bytes for a backlog of {}", BATCHES * BATCH_BYTES as u64);
}
