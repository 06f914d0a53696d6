//! Series of programs that write PCP's or the JVM's format: the numbers of the golden file,
//! unchanged.
//!
//! Files are in the directories that programs use, and belong to sleeping processes.

use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use hist::codec::header::Temporality;
use host::Settings;
use model::{SampleValue, Series, SeriesKind};

use crate::{HostFixture, JournalContents, only, unlimited};

/// Written by PCP's own library: `testdata/mmv/README.md`.
const MMV: &[u8] = include_bytes!("../../../../testdata/mmv/v1.mmv");
/// Offset of the PID.
const MMV_PROCESS: usize = 32;
const REQUESTS: u64 = 12_345_678_901;

/// A sleeping process and its file; both are removed on drop.
struct ForeignProcess {
    child: Child,
    path: PathBuf,
}

impl ForeignProcess {
    /// `file` builds the bytes from the PID. `None` if the file cannot be created.
    fn start(
        path: impl FnOnce(u32) -> PathBuf,
        file: impl FnOnce(u32) -> Vec<u8>,
    ) -> Option<ForeignProcess> {
        let child = Command::new("sleep").arg("600").spawn().unwrap();
        let path = path(child.id());
        let program = ForeignProcess { child, path };
        let _ = std::fs::remove_file(&program.path);
        std::fs::create_dir_all(program.path.parent()?).ok()?;
        match std::fs::write(&program.path, file(program.child.id())) {
            Ok(()) => Some(program),
            Err(error) => {
                println!("skipped: {}: {error}", program.path.display());
                None
            }
        }
    }

    /// Changes a number in place, as writers of such files do.
    fn set(&self, at: usize, number: u64) {
        let file = std::fs::File::options().write(true).open(&self.path).unwrap();
        file.write_all_at(&number.to_le_bytes(), at as u64).unwrap();
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for ForeignProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.path);
        // Removes the directory if it is empty.
        let _ = self.path.parent().map(std::fs::remove_dir);
    }
}

fn frequent_settings() -> Settings {
    only("shm_metrics = true\nshm_scrape_interval = '100ms'\nshm_short_lived = '1ns'")
}

#[track_caller]
fn wait(place: &HostFixture, is_so: impl Fn(&JournalContents) -> bool) {
    crate::wait("it is told", || is_so(&place.contents()));
}

/// Numbers of a series in the order of the reports, and the series.
#[track_caller]
fn numbers(told: &JournalContents, name: &str, labels: &[(&str, &str)]) -> (Series, Vec<f64>) {
    let rows: Vec<_> = told.series(name, labels).collect();
    let series = rows.first().unwrap_or_else(|| panic!("there is no {name}")).0.clone();
    let number = |value: &SampleValue| match value {
        SampleValue::Number(number) => *number,
        other => panic!("{name} is {other:?}"),
    };
    assert!(rows.iter().all(|row| row.0 == series), "{name} is one series");
    let numbers = rows.iter().map(|row| number(&row.1.value));
    // Without the markers of series that have ended.
    (series, numbers.filter(|number| !number.is_nan()).collect())
}

const COUNTER: SeriesKind = SeriesKind::Counter(Temporality::Cumulative);

#[test]
fn mmv_counters_restart_at_zero_after_process_restart() {
    let name = format!("topdeck-it-{}", std::process::id());
    let path = |_| Path::new("/var/tmp/mmv").join(&name);
    let at = MMV.windows(8).position(|word| word == REQUESTS.to_le_bytes()).unwrap();
    let file = |pid: u32| {
        let mut bytes = MMV.to_vec();
        bytes[MMV_PROCESS..][..4].copy_from_slice(&pid.to_le_bytes());
        bytes
    };
    let Some(mut first) = ForeignProcess::start(path, file) else { return };
    let place = HostFixture::new(unlimited(), Duration::from_secs(3_600));
    let host = place.start(frequent_settings());
    let of = [("process", name.as_str()), ("generation", "1"), ("format", "pcp"), ("host", "box")];
    let written: Vec<f64> = (0..5).map(|n| (REQUESTS + n * n) as f64).collect();
    for number in &written {
        first.set(at, *number as u64);
        wait(&place, |told| told.number("requests", &of) == Some(*number));
    }
    first.kill();
    wait(&place, |told| told.number("process_up", &of) == Some(0.0));
    // A restarted process counts from its own start, and has the generation that is free again.
    let _second = ForeignProcess::start(path, |pid| {
        let mut bytes = file(pid);
        bytes[at..][..8].copy_from_slice(&5u64.to_le_bytes());
        bytes
    })
    .unwrap();
    wait(&place, |told| told.number("requests", &of) == Some(5.0));
    host.stop().unwrap();

    let told = place.contents();
    let (series, mut numbers_told) = numbers(&told, "requests", &of);
    numbers_told.dedup();
    assert_eq!(numbers_told, [&written[..], &[5.0]].concat());
    assert_eq!(series.kind(), COUNTER);
    // The start says that it is a new count: no rate is negative, and all of it counts.
    let rows: Vec<_> = told.series("requests", &of).collect();
    let at = rows.iter().position(|row| row.1.value == SampleValue::Number(5.0)).unwrap();
    assert!(rows[at].1.start < rows[at].1.end, "it says since when it counts");
    assert!(rows[..at].iter().all(|row| row.1.end <= rows[at].1.start));
    let one = |name: &str, more: &[(&str, &str)]| {
        let (series, numbers) = numbers(&told, name, &[&of[..], more].concat());
        (series.kind(), series.unit().to_owned(), numbers.last().copied())
    };
    let none = String::new;
    assert_eq!(one("queue", &[]), (SeriesKind::Gauge, none(), Some(-3.0)));
    assert_eq!(one("limit", &[]), (SeriesKind::Gauge, "MiBy".to_owned(), Some(512.0)));
    assert_eq!(one("balance", &[]), (SeriesKind::Gauge, none(), Some(-5e9)));
    assert_eq!(one("load", &[]), (SeriesKind::Gauge, none(), Some(0.75)));
    assert_eq!(one("busy", &[]), (COUNTER, "us".to_owned(), Some(2_500.0)));
    for (instance, bytes) in [("sda", 4_096.0), ("sdb", 8_192.0)] {
        let found = one("io.bytes", &[("instance", instance)]);
        assert_eq!(found, (COUNTER, "B".to_owned(), Some(bytes)));
    }
    let texts = |name| told.series(name, &of).map(|row| row.1.value.clone()).collect::<Vec<_>>();
    let version = SampleValue::Text("1.2.3".to_owned());
    assert_eq!(texts("version"), [version.clone(), version], "one of each process");
    assert_eq!(texts("process_exit_info"), [SampleValue::Text("terminated".to_owned())]);
}

/// A JVM's file with numbers (units, variability) and a command line: `docs/formats/hsperfdata.md`.
fn hsperf(numbers: &[(&str, u8, u8, i64)], command: &str) -> (Vec<u8>, Vec<usize>) {
    let (mut file, mut places) = (vec![0; 32], Vec::new());
    let mut entry = |name: &str, kind: u8, unit: u8, variability: u8, vector: i32, data: &[u8]| {
        let at = (20 + name.len() + 1).next_multiple_of(8);
        let length = (at + data.len()).next_multiple_of(8);
        let begin = file.len();
        for number in [length as i32, 20, vector] {
            file.extend(number.to_le_bytes());
        }
        file.extend([kind, 1, unit, variability]);
        file.extend((at as i32).to_le_bytes());
        file.extend(name.as_bytes());
        file.resize(begin + at, 0);
        file.extend(data);
        file.resize(begin + length, 0);
        places.push(begin + at);
    };
    for (name, unit, variability, number) in numbers {
        entry(name, b'J', *unit, *variability, 0, &number.to_le_bytes());
    }
    entry("sun.rt.javaCommand", b'B', 5, 1, command.len() as i32, command.as_bytes());
    let head = [0xca, 0xfe, 0xc0, 0xc0, 1, 2, 0, 1];
    file[..8].copy_from_slice(&head);
    let used = file.len() as i32;
    file[8..12].copy_from_slice(&used.to_le_bytes());
    file[24..28].copy_from_slice(&32i32.to_le_bytes());
    file[28..32].copy_from_slice(&(numbers.len() as i32 + 1).to_le_bytes());
    (file, places)
}

#[test]
fn jvm_counters_have_their_units() {
    let dir = Path::new("/tmp").join(format!("hsperfdata_topdeck-it-{}", std::process::id()));
    // Ticks become nanoseconds by the file's frequency; events and bytes are unchanged.
    let numbers_of = [
        ("sun.os.hrt.frequency", 6, 1, 1_000_000),
        ("java.cls.loadedClasses", 4, 2, 450),
        ("sun.gc.collector.0.time", 3, 2, 1_500),
        ("sun.gc.generation.0.used", 2, 3, 4_096),
    ];
    // Another run of this test may be under way on this host.
    let program = format!("org.example.Shop{}", std::process::id());
    let (file, places) = hsperf(&numbers_of, &format!("{program} --port 1"));
    let started = ForeignProcess::start(|pid| dir.join(pid.to_string()), |_| file);
    let Some(mut jvm) = started else { return };
    let place = HostFixture::new(unlimited(), Duration::from_secs(3_600));
    let host = place.start(frequent_settings());
    let of = [("process", program.as_str()), ("generation", "1"), ("format", "jvm")];
    let classes = "java.cls.loadedClasses";
    for count in [450, 451, 1_000_000] {
        jvm.set(places[1], count);
        wait(&place, |told| told.number(classes, &of) == Some(count as f64));
    }
    jvm.kill();
    wait(&place, |told| told.number("process_up", &of) == Some(0.0));
    host.stop().unwrap();
    let told = place.contents();
    let (series, mut seen) = numbers(&told, classes, &of);
    seen.dedup();
    assert_eq!((series.kind(), seen), (COUNTER, vec![450.0, 451.0, 1e6]));
    let one = |name: &str| {
        let (series, numbers) = numbers(&told, name, &of);
        (series.kind(), series.unit().to_owned(), numbers.last().copied())
    };
    let time = (COUNTER, "ns".to_owned(), Some(1_500_000.0));
    assert_eq!(one("sun.gc.collector.0.time"), time);
    let used = (SeriesKind::Gauge, "B".to_owned(), Some(4_096.0));
    assert_eq!(one("sun.gc.generation.0.used"), used);
    let ends: Vec<_> = told.series("process_exit_info", &of).map(|row| &row.1.value).collect();
    assert_eq!(ends, [&SampleValue::Text("terminated".to_owned())]);
}
