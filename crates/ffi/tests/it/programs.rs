//! Programs in C and C++ record, linked to the library in all its forms; this test reads the
//! results.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use hist::Integers;
use shm::snapshot::{MetricRole, MetricValue, NumericValue, ProcessSeries};
use shm::{MetricsFileReader, ProcessInfo};

use crate::test_dir::TestDir;

/// Link mode of a program.
#[derive(Clone, Copy, Debug, PartialEq)]
enum BuildMode {
    C,
    Cpp,
    /// Statically linked.
    Static,
}

/// `bindings/c`.
fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bindings/c")
}

/// The library that cargo built for this test, in the directory of the test.
fn library() -> PathBuf {
    let own = std::env::current_exe().expect("this test has a file");
    own.parent().expect("in a directory").to_owned()
}

/// Directory for programs: cargo's, or one of this user if cargo's is not writable.
fn scratch() -> PathBuf {
    let own = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    if rustix::fs::access(&own, rustix::fs::Access::WRITE_OK).is_ok() {
        return own;
    }
    let uid = rustix::process::geteuid().as_raw();
    let own = std::env::temp_dir().join(format!("topdeck-ffi-{uid}"));
    fs::create_dir_all(&own).expect("a directory");
    own
}

/// A program of `bindings/c`, compiled without warnings; `None` if there is no compiler.
fn compile(source: &str, how: BuildMode) -> Option<PathBuf> {
    let compiler = if how == BuildMode::Cpp { "c++" } else { "cc" };
    if Command::new(compiler).arg("--version").output().is_err() {
        println!("skipped: there is no {compiler} (Debian packages gcc, g++)");
        return None;
    }
    let library = library();
    let program = scratch().join(format!("{source}-{how:?}"));
    // Tests of another run may use the existing program, or build it at the same time.
    let made = program.with_extension(std::process::id().to_string());
    let mut command = Command::new(compiler);
    match how {
        BuildMode::Cpp => command.args(["-x", "c++", "-std=c++11"]),
        BuildMode::C | BuildMode::Static => command.arg("-std=gnu11"),
    };
    command.args(["-O2", "-pthread", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I"]);
    command.arg(sources()).arg(sources().join(format!("{source}.c"))).args(["-x", "none"]);
    command.arg("-o").arg(&made);
    match how {
        BuildMode::Static => {
            command.arg(library.join("libtopdeck.a")).args(["-lgcc_s", "-lm", "-ldl", "-lrt"])
        }
        BuildMode::C | BuildMode::Cpp => command
            .arg(format!("-Wl,-rpath,{}", library.display()))
            .arg("-L")
            .arg(&library)
            .arg("-ltopdeck"),
    };
    let done = command.output().expect("the compiler runs");
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
    fs::rename(&made, &program).expect("a directory of ours");
    Some(program)
}

/// The test program, built once per link mode.
fn test_program(how: BuildMode) -> Option<&'static Path> {
    static BUILT: [OnceLock<Option<PathBuf>>; 3] = [const { OnceLock::new() }; 3];
    BUILT[how as usize].get_or_init(|| compile("test", how)).as_deref()
}

/// Metrics files in a directory, earliest first.
fn readers(dir: &TestDir) -> Vec<MetricsFileReader> {
    let files = dir.files().into_iter();
    let mut readers: Vec<MetricsFileReader> =
        files.map(|path| MetricsFileReader::attach(&path).expect("it can be read")).collect();
    readers.sort_by_key(|reader| reader.process().created_ns);
    readers
}

/// Output of a process.
struct ProcessOutput {
    process: ProcessInfo,
    metrics: Vec<ProcessSeries>,
}

impl ProcessOutput {
    #[track_caller]
    fn value(&self, name: &str) -> &MetricValue {
        &self.metric(name).value
    }

    #[track_caller]
    fn metric(&self, name: &str) -> &ProcessSeries {
        let found = self.metrics.iter().find(|metric| metric.name == name);
        found.unwrap_or_else(|| panic!("no series {name}"))
    }

    #[track_caller]
    fn histogram(&self, name: &str) -> &hist::Histogram {
        match self.value(name) {
            MetricValue::Histogram(histogram) => histogram,
            other => panic!("{name} is {other:?}"),
        }
    }
}

/// Runs a part of the test program; returns its output and the metrics of its processes. `None` if
/// there is no compiler, or no tmpfs directory.
#[track_caller]
fn run(part: &str, how: BuildMode, input: &[u8]) -> Option<(Vec<u8>, Vec<ProcessOutput>)> {
    let program = test_program(how)?;
    let dir = TestDir::new()?;
    let mut child = Command::new(program)
        .arg(part)
        .env("TOPDECK_SHM", &dir.0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let mut stdin = child.stdin.take().expect("it is piped");
    let input = input.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let done = child.wait_with_output().expect("it ends");
    // The program need not read its input.
    let _ = writer.join();
    assert!(
        done.status.success(),
        "{part}: {:?} {}",
        done.status,
        String::from_utf8_lossy(&done.stderr)
    );
    let left = readers(&dir).into_iter().map(|mut reader| {
        let metrics = reader.metrics().expect("metrics");
        ProcessOutput { process: reader.process(), metrics }
    });
    Some((done.stdout, left.collect()))
}

#[track_caller]
fn check_threads(how: BuildMode) {
    let Some((_, left)) = run("threads", how, &[]) else { return };
    let [left] = &left[..] else { panic!("{} files", left.len()) };
    assert!(left.process.has_exited && left.process.lost_values == 0, "{:?}", left.process);
    let (threads, each) = (4 * 6, 20_000u64);
    assert_eq!(
        left.value("inline_total"),
        &MetricValue::Counter(NumericValue::Unsigned(threads * (each + 1)))
    );
    assert_eq!(
        left.value("library_total"),
        &MetricValue::Counter(NumericValue::Unsigned(threads * each * 2))
    );
    assert_eq!(
        left.value("balance"),
        &MetricValue::Gauge(NumericValue::Signed(-(threads as i64) * 10_000))
    );
    let sum_of_each = each * (each - 1) / 2;
    for (name, more) in [("inline_took", 1), ("library_took", 0)] {
        let seen = left.histogram(name);
        assert_eq!(seen.count(), threads * (each + more), "{name}");
        let sum = seen.tracked_sum().exact().map(|sum| sum.value());
        assert_eq!(sum, Some((threads * (sum_of_each + 7 * more)) as f64), "{name}");
        assert_eq!(seen.tracked_min().exact(), Some(0.0), "{name}");
        assert_eq!(seen.tracked_max().exact(), Some((each - 1) as f64), "{name}");
    }
    assert_eq!(left.metric("inline_took").role, MetricRole::Timing);
    let MetricValue::InFlight(work) = left.value("work") else { panic!("no table") };
    assert_eq!((work.started, work.ended, work.untracked), (threads + 3, threads, 0));
    let shown: Vec<(u64, Vec<&str>)> = work
        .operations
        .iter()
        .map(|one| (one.number, one.tags.iter().map(|(_, tag)| tag.as_str()).collect()))
        .collect();
    assert_eq!(shown, [(0, vec!["sdb", "read"]), (1, vec!["sda"]), (2, vec!["sdb", "read"])]);
}

#[test]
fn threads_of_c_lose_nothing() {
    check_threads(BuildMode::C);
}

#[test]
fn threads_of_cpp_lose_nothing() {
    check_threads(BuildMode::Cpp);
}

#[test]
fn threads_of_a_program_with_the_library_inside_lose_nothing() {
    check_threads(BuildMode::Static);
}

#[test]
fn a_forked_process_counts_by_itself() {
    for how in [BuildMode::C, BuildMode::Static] {
        let Some((_, left)) = run("forks", how, &[]) else { return };
        let [parent, child] = &left[..] else { panic!("{} files", left.len()) };
        assert!(parent.process.has_exited && child.process.has_exited);
        assert_ne!(parent.process.identity.pid, child.process.identity.pid);
        assert_eq!(
            parent.value("inline_total"),
            &MetricValue::Counter(NumericValue::Unsigned(40_000))
        );
        assert_eq!(parent.histogram("inline_took").count(), 40_000);
        assert_eq!(child.value("inline_total"), &MetricValue::Counter(NumericValue::Unsigned(5)));
        assert_eq!(child.value("library_total"), &MetricValue::Counter(NumericValue::Unsigned(0)));
        let seen = child.histogram("inline_took");
        assert_eq!(seen.tracked_sum().exact().map(|sum| sum.value()), Some(5_010.0));
        // Only the parent can end the operations of the parent.
        let MetricValue::InFlight(work) = parent.value("work") else { panic!("no table") };
        assert_eq!((work.started, work.ended, work.operations.len()), (1, 1, 0));
        let MetricValue::InFlight(work) = child.value("work") else { panic!("no table") };
        assert_eq!((work.started, work.ended, work.operations.len()), (0, 0, 0));
    }
}

/// Edges of all buckets and their neighbours, extreme values, and random values.
fn values() -> Vec<u64> {
    let mut values = vec![0, 1, 2, 3, u64::MAX, u64::MAX - 1, 1 << 63, (1 << 63) - 1];
    let grid = Integers::<{ shm::layout::SCALE }>::POSITIONS;
    // Lower edge of each bucket, by bisection.
    for place in 0..grid {
        let (mut low, mut high) = (1u64, u64::MAX);
        while low < high {
            let middle = low + (high - low) / 2;
            match Integers::<{ shm::layout::SCALE }>::position(middle) < place {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        values.extend([low.saturating_sub(1), low, low.saturating_add(1)]);
    }
    let mut state = 42u64;
    for shift in (0..64).cycle().take(100_000) {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        values.push((state ^ state >> 29) >> shift);
    }
    values
}

#[test]
fn a_value_has_the_same_bucket_in_c_and_in_rust() {
    let values = values();
    let input: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
    let Some((places, left)) = run("places", BuildMode::C, &input) else { return };
    let places = places.as_chunks::<8>().0.iter().map(|place| u64::from_ne_bytes(*place));
    let mut seen = 0;
    for (value, place) in values.iter().zip(places) {
        let expected = match *value as i64 > 0 {
            true => Integers::<{ shm::layout::SCALE }>::position(*value) as u64,
            // The library computes these.
            false => u64::MAX,
        };
        assert_eq!(place, expected, "value {value}");
        seen += 1;
    }
    assert_eq!(seen, values.len());
    let mut expected = hist::Histogram::default();
    let mut sum = 0u128;
    for value in values {
        expected.record(value as f64);
        sum += u128::from(value);
    }
    for name in ["inline_took", "library_took"] {
        let seen = left[0].histogram(name);
        assert_eq!(seen.positive(), expected.positive(), "{name}");
        assert_eq!(seen.zero_count(), expected.zero_count(), "{name}");
        assert_eq!(seen.tracked_sum().exact().map(|sum| sum.value()), Some(sum as f64), "{name}");
        assert_eq!(seen.tracked_max().exact(), Some(u64::MAX as f64), "{name}");
    }
}

#[test]
fn all_kinds_are_read_as_described() {
    let Some((_, left)) = run("kinds", BuildMode::Cpp, &[]) else { return };
    let left = &left[0];
    let used = left.metric("connections_used");
    assert_eq!(used.value, MetricValue::Gauge(NumericValue::Signed(-7)));
    assert_eq!((used.unit.as_str(), used.help.as_str()), ("1", "How many there are."));
    let labels = [("peer", "größer"), ("zone", "a")];
    assert_eq!(used.labels, labels.map(|(name, value)| (name.to_owned(), value.to_owned())));
    assert_eq!(used.role, MetricRole::Usage);
    let link = used.related_metric.map(|at| left.metrics[at].name.as_str());
    assert_eq!(link, Some("connections"));
    assert_eq!(left.value("connections"), &MetricValue::Gauge(NumericValue::Signed(100)));
    assert_eq!(left.value("ratio"), &MetricValue::Gauge(NumericValue::Float(0.25)));
    assert_eq!(left.value("state"), &MetricValue::Text("leader".to_owned()));
    let MetricValue::Heartbeat(alive) = left.value("alive") else { panic!("no heartbeat") };
    assert_eq!((alive.beats, alive.every_ns), (2, 1_000_000_000));
    for (number, role) in MetricRole::ALL.into_iter().enumerate() {
        assert_eq!(left.metric(&format!("role_{number}")).role, role);
    }
    assert_eq!(left.histogram("inline_took").count(), 1);
}

#[test]
fn killed_process_leaves_its_counts() {
    let Some((_, left)) = run("dies", BuildMode::C, &[]) else { return };
    assert!(!left[0].process.has_exited);
    assert_eq!(
        left[0].value("inline_total"),
        &MetricValue::Counter(NumericValue::Unsigned(20_000))
    );
    assert_eq!(left[0].histogram("inline_took").count(), 20_000);
}

#[test]
fn invalid_calls_are_reported() {
    for how in [BuildMode::C, BuildMode::Cpp] {
        let Some((_, left)) = run("errors", how, &[]) else { return };
        assert_eq!(left[0].value("errors_total"), &MetricValue::Counter(NumericValue::Unsigned(3)));
        assert_eq!(left[0].value("text"), &MetricValue::Text("x".repeat(240)));
        assert_eq!(left[0].metrics.len(), 2);
    }
}

#[test]
fn without_a_file_calls_do_nothing() {
    let Some(program) = test_program(BuildMode::C) else { return };
    let done = Command::new(program).arg("off").env("TOPDECK_SHM", "off").output();
    let done = done.expect("the program runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert!(String::from_utf8_lossy(&done.stdout).contains("TOPDECK_SHM=off"));
}

/// The example of the page.
#[test]
fn the_example_compiles() {
    let page = fs::read_to_string(sources().join("README.md")).expect("the page");
    let example = page.split("```c\n").nth(1).and_then(|rest| rest.split("```").next());
    let program = scratch().join(format!("readme-{}.c", std::process::id()));
    fs::write(&program, example.expect("an example")).expect("room");
    let mut command = Command::new("cc");
    command.args(["-fsyntax-only", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-I"]);
    let Ok(done) = command.arg(sources()).arg(&program).output() else {
        return println!("skipped: there is no cc (Debian package gcc)");
    };
    let _ = fs::remove_file(&program);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn the_samples_run() {
    for (source, arguments, name) in
        [("sample", &["5"][..], "answered_total"), ("bench", &["3", "2"], "bench_total")]
    {
        let Some(program) = compile(source, BuildMode::C) else { return };
        let Some(dir) = TestDir::new() else { return };
        let done = Command::new(program).args(arguments).env("TOPDECK_SHM", &dir.0).output();
        let done = done.expect("it runs");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let mut readers = readers(&dir);
        let metrics = readers[0].metrics().expect("metrics");
        let counted = metrics.iter().find(|metric| metric.name == name).map(|metric| &metric.value);
        let expected = if source == "sample" { 20 } else { 2 * 2 * 4 * 20_000 };
        assert_eq!(
            counted,
            Some(&MetricValue::Counter(NumericValue::Unsigned(expected))),
            "{source}"
        );
    }
}
