//! Draining a backlog needs memory independent of its size.

use std::process::Command;
use std::sync::Arc;

use decode::SeriesSink;
use forward::Forward;
use intake::Intake;
use model::{Sample, SampleValue, Series, SeriesKind};

use crate::agent::{SeededRng, TestDir, create, open, settings, stop_all};
use crate::remote::{ResponseFault, TestRemote};

const BATCH_BYTES: usize = 256 << 10;
const BATCHES: u64 = 600;

/// Anonymous resident memory of this process in bytes; mapped files do not count.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: Vec<u64> = text.split_whitespace().map(|word| word.parse().unwrap()).collect();
    (pages[1] - pages[2]) * 4096
}

fn put_text(intake: &Intake, dice: &mut SeededRng) {
    // Incompressible text.
    let text: String = (0..BATCH_BYTES).map(|_| char::from(b'!' + dice.below(90) as u8)).collect();
    let series = Series::new("text", SeriesKind::Text).validate().unwrap();
    let mut writer = intake.writer(intake::SeriesKeyEncoding::GENERIC);
    writer.series(b"text", &mut || Ok(series.clone())).unwrap();
    writer.sample(&Sample { start: 1, end: 2, value: SampleValue::Text(text) }).unwrap();
    drop(intake.append(&intake.producer("test"), writer).unwrap());
}

/// Set in the environment of the measured process.
const SUBPROCESS_VARIABLE: &str = "TOPDECK_TEST_DRAIN_ALONE";

/// Runs in a process of its own, because memory of other tests would count.
#[test]
fn backlog_is_drained_in_constant_memory() {
    if std::env::var_os(SUBPROCESS_VARIABLE).is_some() {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        return runtime.worker_threads(2).enable_all().build().unwrap().block_on(drain());
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "drain::backlog_is_drained_in_constant_memory", "--nocapture"])
        .env(SUBPROCESS_VARIABLE, "1")
        .output()
        .unwrap();
    let lines =
        [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    assert!(output.status.success() && lines[0].contains("1 passed"), "{}", lines.concat());
}

async fn drain() {
    let dir = TestDir::new();
    create(&dir.0, &journal::Settings::default());
    let remote = TestRemote::start(|| ResponseFault::None).await;
    let intake = open(&dir.0, journal::wall_clock());
    let settings = settings(&dir.0, &[("a", &remote.url)]);
    // The subscriber is created first: the journal retains nothing for unknown remotes.
    Forward::start(settings.clone(), Arc::clone(&intake)).unwrap().stop().await;
    let writing = Arc::clone(&intake);
    let fill = move || {
        let mut dice = SeededRng(5);
        (0..BATCHES).for_each(|_| put_text(&writing, &mut dice));
    };
    tokio::task::spawn_blocking(fill).await.unwrap();
    let _ = intake.write_target().journal().flush(journal::Level::Disk).unwrap();
    let before = resident();
    let forward = Forward::start(settings, Arc::clone(&intake)).unwrap();
    let mut most = 0;
    for position in 1..=BATCHES {
        remote.wait_for_position(position).await;
        most = most.max(resident());
    }
    stop_all(forward, intake).await;
    let state = remote.state();
    assert_eq!((&state.gaps[..], state.duplicates), (&[][..], 0));
    // Self-monitoring batches may follow.
    assert_eq!(state.order[..BATCHES as usize], (1..=BATCHES).collect::<Vec<_>>());
    // Includes the memory of the remote: a request body, decompressed, and its batches.
    let grown = most.saturating_sub(before);
    assert!(grown < 60 << 20, "{grown} bytes for a backlog of {}", BATCHES * BATCH_BYTES as u64);
}
