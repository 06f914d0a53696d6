//! Notices of crashes from the folder of the data directory: many, large and malformed ones.

use std::fs;
use std::time::Duration;

use crash::{CrashNotice, CrashOrigin, Spool};
use disk::OsDisk;
use intake::Supervisor;
use journal::{Journal, StartPosition};

use crate::{HostFixture, directory, only, wait};

/// Digits that do not compress to nothing.
fn digits(count: usize) -> String {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let digit = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(b'a' + (state % 26) as u8)
    };
    (0..count).map(digit).collect()
}

#[test]
fn neither_size_nor_damage_stops_other_notices() {
    let base = fs::canonicalize(directory()).unwrap();
    // Batches of up to 64 KiB.
    let settings = journal::Settings {
        segment_bytes: 256 << 10,
        buffer_bytes: 128 << 10,
        ..journal::Settings::default()
    };
    let dir = base.join("journal");
    fs::create_dir(&dir).unwrap();
    Journal::create(&OsDisk, &dir, journal::random_id(), 0, &settings).unwrap();
    let place = HostFixture::open_with(dir, Duration::from_millis(20), Supervisor::default());
    place.journal.add_subscriber("test", StartPosition::First, false).unwrap();
    let spool = Spool::new(&base);
    for index in 0..6 {
        let program = format!("shop{index}");
        let notice = CrashNotice {
            time_ns: place.intake.now(),
            origin: CrashOrigin { program, ..CrashOrigin::default() },
            reason: "SIGSEGV".to_owned(),
            remarks: vec![digits(20_000)],
            ..CrashNotice::default()
        };
        spool.finish(&format!("{index}-1"), &notice.to_bytes()).unwrap();
    }
    let folder = Spool::folder(&base);
    fs::write(folder.join("0-0.notice"), "{").unwrap();
    fs::write(folder.join("3-0.notice"), "\0".repeat(100_000)).unwrap();
    fs::create_dir(folder.join("0-2.notice")).unwrap();
    let host = place.start(only("crashes = true"));
    wait("no notice waits", || spool.waiting_count() == 0);
    host.stop().unwrap();
    let told = place.contents();
    for index in 0..6 {
        let program = format!("shop{index}");
        let count = told.series("crashes_total", &[("program", &program)]).count();
        assert_eq!(count, 1, "{program}");
    }
    assert!(told.series("host_collector_warning", &[("collector", "crashes")]).count() > 0);
    let names = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort_unstable();
    let rejected = ["0-0", "0-2", "3-0"].map(|name| format!("{name}.notice.rejected"));
    assert_eq!(names, rejected);
    drop(place);
    fs::remove_dir_all(base).unwrap();
}
