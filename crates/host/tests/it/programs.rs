//! Metrics that programs record into shared memory are complete and counted once, across kills and
//! restarts.
//!
//! Programs are this binary again, with its role in [`ROLE`].

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use host::Settings;
use model::SampleValue;

use crate::{HostFixture, JournalContents, memory, only, unlimited, wait};

/// Program name: other programs may run on this host.
const NAME: &str = "host_it_programs";
const ROLE: &str = "TOPDECK_HOST_IT_ROLE";
/// Printed by a program when it records, followed by the start time of its stuck operation.
const READY: &str = "ready ";

/// A program that records on request.
struct RecordingProgram {
    child: Child,
    commands: ChildStdin,
    responses: BufReader<std::process::ChildStdout>,
    /// Start time of its stuck operation.
    stuck_since_ns: u64,
}

impl RecordingProgram {
    fn start(memory: &MemoryFolder) -> RecordingProgram {
        RecordingProgram::start_as("program", memory)
    }

    fn start_as(role: &str, memory: &MemoryFolder) -> RecordingProgram {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "programs::program", "--ignored", "--nocapture"])
            .env(ROLE, role)
            .env(shm::ENV_VARIABLE, &memory.0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let orders = child.stdin.take().unwrap();
        let mut answers = BufReader::new(child.stdout.take().unwrap());
        let stuck_since_ns = loop {
            let mut line = String::new();
            assert!(answers.read_line(&mut line).unwrap() > 0, "the program did not start");
            if let Some(number) = line.strip_prefix(READY) {
                break number.trim().parse().unwrap();
            }
        };
        RecordingProgram { child, commands: orders, responses: answers, stuck_since_ns }
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }

    /// Records that many values before it returns.
    fn record(&mut self, count: u8) {
        self.commands.write_all(&[count]).unwrap();
        let mut done = [0];
        self.responses.read_exact(&mut done).unwrap();
    }

    /// Kills the program.
    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Lets the program exit regularly.
    fn end(self) {
        let RecordingProgram { mut child, commands: orders, .. } = self;
        drop(orders);
        child.wait().unwrap();
    }
}

/// The program.
#[test]
#[ignore = "a program that other tests start"]
fn program() {
    let Some(role) = std::env::var_os(ROLE) else { return };
    let own = || shm::MetricBuilder::new(format!("topdeck_{NAME}_total")).counter().unwrap();
    let _own = (role == "topdeck").then(own);
    let counter = || shm::MetricBuilder::new(format!("{NAME}_total"));
    let counted = counter().label("kind", "a").label("host", "theirs").counter().unwrap();
    let took = shm::MetricBuilder::new(format!("{NAME}_took")).unit("ns").histogram().unwrap();
    let text = shm::MetricBuilder::new(format!("{NAME}_text")).text().unwrap();
    let work = shm::MetricBuilder::new(format!("{NAME}_work")).in_flight(&["device"]).unwrap();
    let device = shm::Tag::new("sda").unwrap();
    text.set("first");
    // More than fits in one batch.
    for number in 0..300 {
        let many =
            shm::MetricBuilder::new(format!("{NAME}_many")).label("number", number.to_string());
        many.label("long", "x".repeat(1_000)).gauge().unwrap().set(number);
    }
    // An operation that never ends, with a start time long ago: at half of the machine's uptime.
    let stuck_since_ns = clock::now() / 2;
    let _stuck = work.begin_at(stuck_since_ns, 1, &[device]);
    println!("\n{READY}{stuck_since_ns}");
    let mut orders = std::io::stdin().lock().bytes();
    while let Some(Ok(count)) = orders.next() {
        for value in 0..u64::from(count) {
            counted.add(1);
            took.record(value);
            drop(work.begin(value, &[device]));
        }
        std::io::stdout().write_all(b".").unwrap();
        std::io::stdout().flush().unwrap();
    }
}

fn frequent_settings() -> Settings {
    only("shm_metrics = true\nshm_scrape_interval = '100ms'")
}

/// Sum of the readings of a counter, as the store computes it: a reading with a start time after
/// the previous reading counts whole.
fn counter_totals(
    told: &JournalContents,
    name: &str,
    of: impl Fn(&SampleValue) -> f64,
) -> BTreeMap<String, f64> {
    let mut sums: BTreeMap<String, f64> = BTreeMap::new();
    let mut before: BTreeMap<String, (i64, f64)> = BTreeMap::new();
    for (series, sample) in told.series(name, &[]) {
        let (key, now) = (series.to_string(), of(&sample.value));
        assert!(sample.start < sample.end, "{key}: it does not say since when");
        let last = before.insert(key.clone(), (sample.end, now));
        let grown = match last {
            Some((end, last)) if sample.start < end => {
                // The same reading by another collector is the same row.
                assert!(
                    (sample.end > end || now == last) && now >= last,
                    "{key}: {sample:?} after {end} {last}"
                );
                now - last
            }
            _ => now,
        };
        *sums.entry(series.label("pid").unwrap().to_owned()).or_default() += grown;
    }
    sums
}

fn number(value: &SampleValue) -> f64 {
    match value {
        SampleValue::Number(number) => *number,
        SampleValue::Histogram(histogram) => histogram.count() as f64,
        SampleValue::Text(_) => panic!("a text"),
    }
}

#[track_caller]
fn check(place: &HostFixture, truth: &[(String, f64)]) {
    let told = place.contents();
    for what in ["total", "took"] {
        let found = counter_totals(&told, &format!("{NAME}_{what}"), number);
        for (pid, truth) in truth {
            assert_eq!(found.get(pid).copied().unwrap_or(0.0), *truth, "{what} of {pid}");
        }
    }
}

/// Directory for the files of a test's programs. In the default directory, files of other programs
/// influence how long a file is kept.
struct MemoryFolder(PathBuf);

impl MemoryFolder {
    /// `None`, with a message, if there is no memory to record into.
    fn new() -> Option<MemoryFolder> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        if !memory::has_space() {
            return None;
        }
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let name = format!("/dev/shm/topdeck-host-it-{}-{number}", std::process::id());
            let path = PathBuf::from(name);
            // Independent of the umask: a directory writable by others is refused.
            match fs::DirBuilder::new().mode(0o755).create(&path) {
                Ok(()) => return Some(MemoryFolder(path)),
                // Left by another process with the same PID.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => {
                    println!("skipped: there is no tmpfs at /dev/shm: {error}");
                    return None;
                }
            }
        }
    }
}

impl Drop for MemoryFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn killed_program_loses_and_repeats_nothing() {
    let Some(memory) = MemoryFolder::new() else { return };
    let place = HostFixture::new(unlimited(), Duration::from_secs(1));
    let mut truth = Vec::new();
    // Started before the collector.
    let mut early = RecordingProgram::start(&memory);
    early.record(200);
    let host = place.start(frequent_settings());
    early.record(7);
    let mut killed = RecordingProgram::start(&memory);
    killed.record(150);
    wait("it is told of", || {
        place.contents().series(&format!("{NAME}_total"), &[("pid", &killed.pid())]).count() > 0
    });
    killed.record(31);
    truth.push((killed.pid(), 181.0));
    killed.kill();
    // Restarted, and exited before a reading.
    let mut short = RecordingProgram::start(&memory);
    short.record(3);
    truth.push((short.pid(), 3.0));
    short.end();
    host.stop().unwrap();
    // Records while no collector runs.
    early.record(11);
    let mut unseen = RecordingProgram::start(&memory);
    unseen.record(250);
    truth.push((unseen.pid(), 250.0));
    unseen.kill();
    let host = place.start(frequent_settings());
    early.record(1);
    truth.push((early.pid(), 219.0));
    host.stop().unwrap();
    check(&place, &truth);
    // Another collector reports the dead program again, which counts nothing.
    place.start(frequent_settings()).stop().unwrap();
    check(&place, &truth);
    early.end();
}

#[test]
fn names_labels_texts_and_in_flight_are_read() {
    let Some(memory) = MemoryFolder::new() else { return };
    let place = HostFixture::single_reading();
    let mut program = RecordingProgram::start(&memory);
    program.record(5);
    let (pid, mut other) = (program.pid(), RecordingProgram::start(&memory));
    let of = [("pid", pid.as_str()), ("host", "box")];
    let stuck_since_ns = program.stuck_since_ns;
    let age_s = || (clock::now() - stuck_since_ns) as f64 / 1e9;
    let least_s = age_s();
    place.start(frequent_settings()).stop().unwrap();
    // Tolerance between the clocks of two processes.
    let ages_s = least_s - 0.001..=age_s() + 0.001;
    let told = place.contents();
    let (series, sample) = told.series(&format!("{NAME}_total"), &of).next().unwrap();
    assert_eq!(series.label("exported_host"), Some("theirs"));
    assert_eq!(series.label("kind"), Some("a"));
    assert!(series.label("process").is_some_and(|name| name.starts_with("it-")), "{series}");
    assert_eq!(sample.value, SampleValue::Number(5.0));
    let (series, sample) = told.series(&format!("{NAME}_took"), &of).next().unwrap();
    assert_eq!((series.unit(), number(&sample.value)), ("ns", 5.0));
    assert_eq!(told.series(&format!("{NAME}_many"), &of).count(), 300);
    let texts: Vec<_> = told.series(&format!("{NAME}_text"), &of).map(|row| &row.1.value).collect();
    assert_eq!(texts, [&SampleValue::Text("first".to_owned())]);
    let work = [of[0], ("operation", &*format!("{NAME}_work")), ("device", "sda")];
    // In exactly one of the ages.
    let stuck = [("0s-1s", 0.0), ("1s-10s", 1.0), ("10s-60s", 10.0), ("60s+", 60.0)];
    let stuck = stuck.map(|(age, from_s)| {
        let found = told.number("process_in_flight", &[&work[..], &[("age", age)]].concat());
        (from_s, found.unwrap_or(0.0))
    });
    assert_eq!(stuck.iter().map(|(_, found)| found).sum::<f64>(), 1.0, "{stuck:?}");
    let from_s = stuck.iter().find(|(_, found)| *found == 1.0).unwrap().0;
    let to_s = stuck.iter().map(|one| one.0).find(|next| *next > from_s).unwrap_or(f64::MAX);
    assert!(*ages_s.end() >= from_s && *ages_s.start() < to_s, "{stuck:?} {ages_s:?}");
    assert_eq!(told.number("process_operations_started_total", &work[..2]), Some(6.0));
    assert_eq!(told.number("process_operations_finished_total", &work[..2]), Some(5.0));
    let oldest = told.number("process_in_flight_oldest_seconds", &work[..2]).unwrap();
    assert!(ages_s.contains(&oldest), "{oldest} {ages_s:?}");
    assert_eq!(told.number("process_up", &of), Some(1.0));
    // The exit is reported.
    program.kill();
    place.start(frequent_settings()).stop().unwrap();
    let told = place.contents();
    assert_eq!(told.number("process_up", &of), Some(0.0));
    let SampleValue::Text(end) = &told.series("process_exit_info", &of).next().unwrap().1.value
    else {
        panic!()
    };
    let said_s = end.strip_prefix("terminated with 1 operation in flight for ").expect(end);
    let said_s: f64 = said_s.strip_suffix(" s").expect(end).parse().unwrap();
    assert!((*ages_s.start()..=age_s() + 0.001).contains(&said_s), "{end} {ages_s:?}");
    // This process itself is not reported, nor are processes without metrics.
    let own = std::process::id().to_string();
    assert_eq!(told.series("process_up", &[("pid", &own)]).count(), 0);
    other.record(0);
    other.end();
}

/// A user saw the metrics of each topdeck on the host twice: its own rows, and those of the others.
#[test]
fn metrics_of_other_topdecks_are_collected_only_if_asked() {
    let Some(memory) = MemoryFolder::new() else { return };
    let mut topdeck = RecordingProgram::start_as("topdeck", &memory);
    let mut other = RecordingProgram::start(&memory);
    topdeck.record(1);
    other.record(1);
    let rows = |settings: &str, program: &RecordingProgram| {
        let place = HostFixture::single_reading();
        place.start(only(settings)).stop().unwrap();
        place.contents().series("process_up", &[("pid", &program.pid())]).count()
    };
    let by_default = "shm_metrics = true";
    assert_eq!(rows(by_default, &topdeck), 0);
    assert!(rows(by_default, &other) > 0);
    assert!(rows("shm_metrics = true\nshm_other_topdecks = true", &topdeck) > 0);
    topdeck.end();
    other.end();
}

#[test]
fn unchanged_series_are_refreshed() {
    let Some(memory) = MemoryFolder::new() else { return };
    let place = HostFixture::new(unlimited(), Duration::from_secs(365 * 86_400));
    let program = RecordingProgram::start(&memory);
    let host = place.start(frequent_settings());
    let readings = |told: &JournalContents| {
        told.series("process_in_flight_oldest_seconds", &[("pid", &program.pid())]).count()
    };
    wait("five readings", || readings(&place.contents()) >= 5);
    host.stop().unwrap();
    // The age of the stuck operation changes each time; a count of 0 does not.
    let told = place.contents();
    assert_eq!(told.series(&format!("{NAME}_total"), &[("pid", &program.pid())]).count(), 1);
    program.end();
}

#[test]
fn invalid_file_is_reported_and_skipped() {
    let Some(memory) = MemoryFolder::new() else { return };
    let path = memory.0.join(format!("1-{}.tdk", std::process::id()));
    fs::write(&path, vec![7; 10_000]).unwrap();
    let place = HostFixture::single_reading();
    let mut program = RecordingProgram::start(&memory);
    program.record(9);
    place.start(frequent_settings()).stop().unwrap();
    fs::remove_file(&path).unwrap();
    let told = place.contents();
    assert_eq!(told.number(&format!("{NAME}_total"), &[("pid", &program.pid())]), Some(9.0));
    let name = path.to_string_lossy().into_owned();
    let notes = told.series("host_collector_warning", &[("collector", "shm")]);
    let said =
        notes.filter(|row| matches!(&row.1.value, SampleValue::Text(text) if text.contains(&name)));
    assert_eq!(said.count(), 1);
    program.end();
}
