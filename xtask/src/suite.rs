//! Tests of the workspace: one build with clippy lints, then all test programs.
//!
//! The build uses `clippy-driver` as the compiler, so that one compilation lints and tests. xtask
//! runs the programs without cargo, several at a time, each with the number of threads that its
//! crate requests, and runs all of them even after a failure. A program that passed on the same
//! files is not run again on this machine (`passed_tests.rs`).

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::ci_part::PartOutcome;
use crate::command_line::{CommandLine, cores, root, target};
use crate::libtest::{JSON_ARGUMENTS, ProgramEnd, TestEvents, run_cargo_test};
use crate::page;
use crate::part_log::PartLog;
use crate::passed_tests::PassedTests;
use crate::test_report::{TestReport, Timing};
use crate::test_seed::{self, test_seed};
use crate::workspace::Workspace;

/// Package selection of all test builds. Another selection changes features of shared dependencies,
/// and cargo would rebuild most of them.
const SELECTION: &str = "--workspace --locked";

/// A program without output for this long hangs. The slowest test takes a tenth of it.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(300);

/// Threads of a program whose tests measure time: each test waits far longer than it computes.
const THREADS_ALONE: usize = 2;

/// Stack of the threads of unit tests: without optimisation, the deepest expressions of `query`
/// take more than the default of 2 MiB. Its integration tests check that they fit in that.
const UNOPTIMIZED_STACK_BYTES: &str = "16777216";

/// Interval of progress reports on the console.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(15);

/// The build of this process.
static BUILD: Mutex<Option<Arc<Build>>> = Mutex::new(None);

/// Result of a build of the workspace.
struct Build {
    /// Test programs.
    tests: Vec<TestProgram>,
    /// Programs that compiled, by name.
    programs: BTreeMap<String, PathBuf>,
}

/// A test program built by cargo.
#[derive(Debug)]
struct TestProgram {
    /// Such as `topdeck-hist it`.
    name: String,
    path: PathBuf,
    /// Directory of its package, which is the working directory under cargo.
    dir: PathBuf,
    /// Such as `cargo test -p topdeck-hist --test it`.
    command: String,
    threads: usize,
    /// Whether it runs for a minute or more.
    is_long: bool,
    /// Whether `clippy.sh` compiles it without optimisation.
    is_unoptimized: bool,
    /// Substrings of the names of tests that measure time.
    alone: Vec<String>,
    /// Programs of the same package that its tests start.
    started: Vec<PathBuf>,
}

/// Tests of a part.
#[derive(Clone, Copy, PartialEq)]
enum TestSelection {
    /// Tests that may run concurrently.
    Shared,
    /// Tests that measure time.
    Alone,
}

/// Compiles and lints all libraries, programs, tests and examples.
pub(crate) fn build(log: &PartLog) -> Result<PartOutcome> {
    let (_, status) = compile(log)?;
    status?;
    Ok(PartOutcome::Passed)
}

/// Runs the tests that may run concurrently.
pub(crate) fn run_shared(log: &PartLog) -> Result<PartOutcome> {
    run(log, TestSelection::Shared)
}

/// Runs the tests that measure time, one program after the other.
pub(crate) fn run_alone(log: &PartLog) -> Result<PartOutcome> {
    run(log, TestSelection::Alone)
}

/// Runs the doc tests.
pub(crate) fn run_doc_tests(log: &PartLog) -> Result<PartOutcome> {
    let line = CommandLine::new(&format!("cargo test {SELECTION} --no-fail-fast --doc"));
    let report = run_cargo_test(log, &with_clippy(line), "cargo test --workspace --doc")?;
    ensure!(report.count() > 0, "no doc test ran");
    Ok(PartOutcome::Tests(report))
}

/// Runs the ignored tests named `name` of all crates, with `env`; fails if there is none.
pub(crate) fn run_ignored(
    log: &PartLog,
    name: &str,
    env: &[(&'static str, &str)],
) -> Result<TestReport> {
    let mut report = TestReport::default();
    let variables: String = env.iter().map(|(name, value)| format!("{name}='{value}' ")).collect();
    for program in build_once(log)?.tests.iter().filter(|program| program.name.ends_with(" it")) {
        let mut command = program.command(program.threads)?;
        command.args(["--ignored", name]).envs(env.iter().copied());
        let repeat = format!("{variables}{} -- --ignored --exact", program.command);
        report.add(run_program(log, program, command, &repeat, |_| ())?);
    }
    report.programs.clear();
    ensure!(report.count() > 0, "no ignored test {name}");
    Ok(report)
}

/// Runs all tests with `UPDATE_EXPECT`, which rewrites their expected output.
pub(crate) fn write_golden(log: &PartLog) -> Result<()> {
    let line = with_clippy(CommandLine::new(&format!("cargo test {SELECTION} --no-fail-fast")));
    line.env("UPDATE_EXPECT", "1").env("RUST_MIN_STACK", UNOPTIMIZED_STACK_BYTES).run(log)
}

fn run(log: &PartLog, choice: TestSelection) -> Result<PartOutcome> {
    let build = build_once(log)?;
    let is_chosen =
        |program: &&TestProgram| choice == TestSelection::Shared || !program.alone.is_empty();
    let mut chosen: Vec<&TestProgram> = build.tests.iter().filter(is_chosen).collect();
    if chosen.is_empty() {
        return Ok(PartOutcome::Skipped("no crate has tests of this kind".to_owned()));
    }
    let passed = PassedTests::open()?;
    // Long programs first, so that the last one to end is short.
    let seconds = |program: &TestProgram| {
        passed.seconds(&program.name).unwrap_or(if program.is_long { f64::INFINITY } else { 0.0 })
    };
    chosen.sort_by(|a, b| seconds(b).total_cmp(&seconds(a)));
    let at_once = if choice == TestSelection::Alone { 1 } else { cores().max(2) };
    Ok(PartOutcome::Tests(run_all(log, &chosen, choice, at_once, &passed)))
}

fn run_all(
    log: &PartLog,
    programs: &[&TestProgram],
    choice: TestSelection,
    at_once: usize,
    passed: &PassedTests,
) -> TestReport {
    let queue = Mutex::new(programs.iter());
    let sum = Mutex::new(TestReport::default());
    let progress = TestProgress::new(programs.len());
    std::thread::scope(|scope| {
        let worker = || {
            loop {
                let next = queue.lock().expect("BUG: a worker panicked").next();
                let Some(program) = next else { return };
                let report = run_unless_unchanged(log, program, choice, passed, &progress);
                // A program that cannot start must not hide failures of others.
                let report = report.unwrap_or_else(|error| {
                    TestReport::from_failure(&program.name, &program.command, format!("{error:#}"))
                });
                progress.end_program();
                sum.lock().expect("BUG: a worker panicked").add(report);
            }
        };
        (0..at_once).for_each(|_| drop(scope.spawn(worker)));
    });
    sum.into_inner().expect("BUG: a worker panicked")
}

fn run_unless_unchanged(
    log: &PartLog,
    program: &TestProgram,
    choice: TestSelection,
    passed: &PassedTests,
    progress: &TestProgress,
) -> Result<TestReport> {
    let files: Vec<&Path> =
        std::iter::once(&program.path).chain(&program.started).map(PathBuf::as_path).collect();
    // The tidy test reads the sources of all crates. Other tests read only sources that are
    // compiled into them.
    let key = match program.name.starts_with("xtask ") {
        true => PassedTests::key_of_sources(&[String::new()], &files)?,
        false => PassedTests::key(&files)?,
    };
    let threads = if choice == TestSelection::Alone { THREADS_ALONE } else { program.threads };
    let mut command = program.command(threads)?;
    let name = match choice {
        TestSelection::Shared => {
            for name in &program.alone {
                command.args(["--skip", name]);
            }
            program.name.clone()
        }
        TestSelection::Alone => {
            command.args(&program.alone);
            format!("{} (alone)", program.name)
        }
    };
    if let Some(report) = passed.find(&name, &key) {
        return Ok(report);
    }
    let mut known = 0;
    let seed = format!("{}={}", test_seed::PROPERTY_TESTS_VARIABLE, test_seed()?);
    let repeat = format!("{seed} {} -- --exact", program.command);
    let report = run_program(log, program, command, &repeat, |count| {
        progress.add(log, count - known);
        known = count;
    })?;
    PassedTests::update(log, |passed| passed.insert(&name, key, &report));
    Ok(report)
}

/// Runs one program. `repeat` followed by the name of a test is the command line that repeats it;
/// `progress` receives the number of finished tests.
fn run_program(
    log: &PartLog,
    program: &TestProgram,
    mut command: Command,
    repeat: &str,
    mut progress: impl FnMut(u64),
) -> Result<TestReport> {
    let start = Instant::now();
    let (_, stderr) = log.outputs()?;
    command.stdout(Stdio::piped()).stderr(stderr);
    let child = command.spawn();
    let mut child = child.with_context(|| format!("cannot start {}", program.path.display()))?;
    let stdout = child.stdout.take().expect("BUG: stdout is a pipe");
    let (sender, lines) = mpsc::channel();
    // Not joined: a process left by a test may keep the pipe open.
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let mut events = TestEvents::new(&program.name, repeat);
    let mut last_line = Instant::now();
    let ended = loop {
        match lines.recv_timeout(Duration::from_millis(200)) {
            Ok(line) => {
                last_line = Instant::now();
                let line = String::from_utf8_lossy(&line);
                if !events.read(&line) {
                    log.write(&line);
                }
                progress(events.count());
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => {
                break ProgramEnd::Exited(child.wait()?);
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Some(status) = child.try_wait()? {
            // The last output may still be in the pipe.
            while let Ok(line) = lines.recv_timeout(Duration::from_millis(500)) {
                events.read(&String::from_utf8_lossy(&line));
            }
            break ProgramEnd::Exited(status);
        }
        if last_line.elapsed() > SILENCE_TIMEOUT {
            child.kill()?;
            child.wait()?;
            break ProgramEnd::Killed { silence: SILENCE_TIMEOUT };
        }
    };
    let mut report = events.finish(ended);
    let seconds = start.elapsed().as_secs_f64();
    report.programs.push(Timing { name: program.name.clone(), seconds });
    Ok(report)
}

/// Returns the build of this process, and builds if there is none. If something did not compile,
/// the part `build` reports it, and other parts use what compiled.
fn build_once(log: &PartLog) -> Result<Arc<Build>> {
    let built = BUILD.lock().expect("BUG: a part panicked").clone();
    if let Some(build) = built {
        return Ok(build);
    }
    let (build, status) = compile(log)?;
    status?;
    Ok(build)
}

/// Builds everything. The second value is an error if something did not compile.
fn compile(log: &PartLog) -> Result<(Arc<Build>, Result<()>)> {
    let mut messages: Vec<Value> = Vec::new();
    let line = build_line();
    let status = line.run_reading(log, |text| {
        messages.extend(serde_json::from_str(text).ok());
        false
    })?;
    let workspace = Workspace::read()?;
    let executables = || messages.iter().filter(|message| message["executable"].is_string());
    let tests: Result<Vec<TestProgram>> = executables()
        .filter(|message| message["profile"]["test"] == true)
        .map(|message| TestProgram::read(message, &messages, &workspace))
        .collect();
    let is_program = |message: &&Value| {
        message["profile"]["test"] == false && message["target"]["kind"][0] == "bin"
    };
    let programs = executables().filter(is_program).filter_map(|message| {
        let (name, path) = (message["target"]["name"].as_str()?, message["executable"].as_str()?);
        Some((name.to_owned(), PathBuf::from(path)))
    });
    let build = Arc::new(Build { tests: tests?, programs: programs.collect() });
    *BUILD.lock().expect("BUG: a part panicked") = Some(Arc::clone(&build));
    Ok((build, line.check(status)))
}

impl TestProgram {
    /// `message`: the message of cargo about the program, one of `messages`.
    fn read(message: &Value, messages: &[Value], workspace: &Workspace) -> Result<TestProgram> {
        let text = |value: &Value| {
            value.as_str().map(str::to_owned).context("a message of cargo has no text")
        };
        let manifest = text(&message["manifest_path"])?;
        let package = workspace.package(Path::new(&manifest))?;
        let (target, kind) =
            (text(&message["target"]["name"])?, text(&message["target"]["kind"][0])?);
        let name = if kind == "test" { &target } else { &kind };
        let option = target_option(&kind, &target)?;
        Ok(TestProgram {
            name: format!("{} {name}", package.name),
            path: text(&message["executable"])?.into(),
            dir: Path::new(&manifest).parent().expect("BUG: it is in a directory").to_owned(),
            command: format!("cargo test -p {} {option}", package.name),
            threads: package.tests.threads,
            is_long: kind == "test" && package.tests.is_long,
            is_unoptimized: kind == "lib",
            alone: if kind == "test" { package.tests.alone.clone() } else { Vec::new() },
            started: started_programs(messages, &manifest),
        })
    }

    /// The program with the environment that cargo sets, with output as events.
    fn command(&self, threads: usize) -> Result<Command> {
        // The browser tests take longest, mostly by waiting: a CPU that they need is theirs.
        let mut command = Command::new("nice");
        command
            .args(["-n", "5"])
            .arg(&self.path)
            .args(JSON_ARGUMENTS.split(' '))
            .arg(format!("--test-threads={threads}"))
            .current_dir(&self.dir)
            .stdin(Stdio::null())
            .env("CARGO_MANIFEST_DIR", &self.dir)
            .env("RUSTC_BOOTSTRAP", "1")
            .env(test_seed::PROPERTY_TESTS_VARIABLE, test_seed()?.to_string());
        if self.is_unoptimized {
            command.env("RUST_MIN_STACK", UNOPTIMIZED_STACK_BYTES);
        }
        Ok(command)
    }
}

/// Programs and examples of a package, which its tests may start.
fn started_programs(messages: &[Value], manifest: &str) -> Vec<PathBuf> {
    let of_package = messages.iter().filter(|message| message["manifest_path"] == manifest);
    let programs = of_package.filter(|message| message["profile"]["test"] == false);
    programs.filter_map(|message| message["executable"].as_str()).map(PathBuf::from).collect()
}

fn target_option(kind: &str, target: &str) -> Result<String> {
    Ok(match kind {
        "test" => format!("--test {target}"),
        "bin" => format!("--bin {target}"),
        "example" => format!("--example {target}"),
        kind if kind.ends_with("lib") || kind == "proc-macro" => "--lib".to_owned(),
        other => bail!("cargo built a test of the unknown kind {other:?}"),
    })
}

/// Builds all targets of all packages, with clippy lints.
fn build_line() -> CommandLine {
    // Not `cargo test --no-run`, which stops after the first compile error.
    let build = format!("cargo build {SELECTION} --keep-going --all-targets");
    with_clippy(CommandLine::new(&build)).arg("--message-format=json-render-diagnostics")
}

/// Uses clippy as the compiler of workspace packages; dependencies use rustc.
fn with_clippy(line: CommandLine) -> CommandLine {
    // As `cargo clippy -- -D warnings` passes it to its driver.
    let arguments = "-Dwarnings__CLIPPY_HACKERY__";
    let driver = root().join("xtask/clippy.sh");
    let driver = driver.to_str().expect("BUG: the path of the repository is not UTF-8");
    line.env("RUSTC_WORKSPACE_WRAPPER", driver).env("CLIPPY_ARGS", arguments)
}

/// The program `topdeck` of the test build, with overflow checks. A build with the release profile
/// would take half as long as all tests.
pub(crate) fn topdeck(log: &PartLog) -> Result<PathBuf> {
    program(log, "topdeck")
}

/// A program of the test build.
pub(crate) fn program(log: &PartLog, name: &str) -> Result<PathBuf> {
    let build = build_once(log)?;
    let path = build.programs.get(name).cloned();
    path.with_context(|| format!("the program `{name}` does not compile"))
}

/// Builds the program `topdeck` as `make run` does.
pub(crate) fn build_topdeck(log: &PartLog) -> Result<PathBuf> {
    let line = CommandLine::new("cargo build --profile quick --locked -p topdeck");
    page::permit_missing(line).run(log)?;
    Ok(target().join("quick/topdeck"))
}

/// Progress of the tests, reported on the console.
struct TestProgress {
    programs: usize,
    state: Mutex<ProgressState>,
}

struct ProgressState {
    tests: u64,
    programs: usize,
    last_shown: Instant,
}

impl TestProgress {
    fn new(programs: usize) -> TestProgress {
        let state = ProgressState { tests: 0, programs: 0, last_shown: Instant::now() };
        TestProgress { programs, state: Mutex::new(state) }
    }

    fn add(&self, log: &PartLog, tests: u64) {
        let mut state = self.state.lock().expect("BUG: a worker panicked");
        state.tests += tests;
        if state.last_shown.elapsed() >= PROGRESS_INTERVAL {
            state.last_shown = Instant::now();
            let (tests, ended, all) = (state.tests, state.programs, self.programs);
            log.note(&format!("{tests} tests finished, {ended} of {all} programs exited"));
        }
    }

    fn end_program(&self) {
        self.state.lock().expect("BUG: a worker panicked").programs += 1;
    }
}
