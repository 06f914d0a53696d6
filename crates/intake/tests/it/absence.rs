//! Absence of sources, as the housekeeping thread logs it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use intake::{Intake, LogLevel, Settings, SourceState, WriteTarget};
use sim::SimDisk;

use crate::fixture::*;

const SECOND: i64 = 1_000_000_000;

#[test]
fn the_log_says_that_a_source_is_absent_and_that_it_sends_again() {
    let now = Arc::default();
    let disk: Arc<dyn disk::Disk> = Arc::new(SimDisk::new(1).process());
    create_journal(&disk).unwrap();
    let home = WriteTarget::Journal(open_journal(&disk, &now).unwrap());
    let lines: Arc<Mutex<Vec<(LogLevel, String)>>> = Arc::default();
    let log = {
        let lines = Arc::clone(&lines);
        Arc::new(move |level, line: &str| lines.lock().unwrap().push((level, line.to_owned())))
    };
    let settings = Settings { background: true, interval: Duration::MAX, log, ..settings(&now) };
    let intake = Intake::new(home, settings).unwrap();
    let append = || {
        let mut writer = intake.writer(KEY_ENCODING);
        write(&mut writer, "a", 1);
        let _receipt = intake.append(&intake.producer("p"), writer).unwrap();
    };
    // The clock advances between checks, and by a second with each reading; the runner ends the
    // test if a line never appears.
    let wait_for = |part: &str, is_sending: bool| loop {
        now.fetch_add(2 * SECOND, Ordering::Relaxed);
        if is_sending {
            append();
        }
        let found = lines.lock().unwrap().iter().find(|(_, line)| line.contains(part)).cloned();
        match found {
            Some(line) => return line,
            None => std::thread::sleep(Duration::from_millis(200)),
        }
    };
    for _ in 0..21 {
        now.fetch_add(2 * SECOND, Ordering::Relaxed);
        append();
    }
    let (level, line) = wait_for("source \"p\" is absent", false);
    assert_eq!(level, LogLevel::Warn);
    assert!(line.contains("usually one every "), "{line}");
    assert_eq!(intake.sources()[0].state, SourceState::Absent);
    let (level, _) = wait_for("source \"p\" sends again after", true);
    assert_eq!(level, LogLevel::Info);
    intake.stop();
}
