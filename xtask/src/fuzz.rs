//! The fuzz part: builds the fuzzer of fuzz/, which contains the checks of all targets, and runs it
//! on each target for some seconds, one target per CPU at a time.

use std::fs;
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::ci_part::PartOutcome;
use crate::command_line::{CommandLine, cores, root};
use crate::part_log::PartLog;
use crate::passed_tests::PassedTests;
use crate::suite;
use crate::test_report::{TestEnd, TestReport};
use crate::workspace::Workspace;

/// Fuzz one target until it fails, or for a number of seconds
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Name of the target; without it, the names of all targets are printed
    target: Option<String>,
    /// Duration in seconds; default: unlimited
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    seconds: Option<u32>,
    /// Run the target once on this file instead, such as one of fuzz/artifacts/
    #[arg(long, conflicts_with = "seconds")]
    input: Option<PathBuf>,
}

/// Environment variable: seconds per target.
const SECONDS_VARIABLE: &str = "TOPDECK_FUZZ_SECONDS";

/// Environment variable: target of the fuzzer; `list` prints all targets.
const TARGET_VARIABLE: &str = "TOPDECK_FUZZ_TARGET";

/// Compiler flags for libFuzzer and AddressSanitizer, as cargo-fuzz sets them; they make cargo-fuzz
/// unnecessary. The LLVM page on SanitizerCoverage describes them.
const FLAGS: [&str; 10] = [
    "--cfg fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Cllvm-args=-sanitizer-coverage-stack-depth",
    "-Cllvm-args=-simplifycfg-branch-fold-threshold=0",
    "-Zsanitizer=address",
    "-Cdebug-assertions",
];

/// Limits of each decoder for any input. Decoders promise at most 64 MiB per allocation; 512 MiB in
/// total includes the memory of the sanitizer; ten seconds for one input count as a hang.
const LIMITS: &str = "-malloc_limit_mb=64 -rss_limit_mb=512 -timeout=10";

/// Limits of `store_chunk`: pco reserves a dictionary of at most 2^25 numbers of 8 bytes before it
/// checks whether the input contains one. In a store, only data with a matching checksum reaches
/// pco.
const LIMITS_WITH_PCO: &str = "-malloc_limit_mb=257 -rss_limit_mb=1024 -timeout=10";

/// A target, and the crate of its decoder.
struct FuzzTarget {
    name: String,
    crate_name: String,
}

/// `cargo xtask fuzz`.
pub(crate) fn run_target(options: &Options) -> Result<ExitCode> {
    let log = PartLog::console("fuzz");
    let fuzzer = Fuzzer::build(&log, FuzzScope::All)?;
    let targets = fuzzer.targets()?;
    let Some(name) = &options.target else {
        targets.iter().for_each(|target| println!("{}", target.name));
        return Ok(ExitCode::SUCCESS);
    };
    let target = targets.iter().find(|target| target.name == *name);
    let target = target.with_context(|| {
        format!("unknown target {name:?}; `cargo xtask fuzz` lists all targets")
    })?;
    let line = match &options.input {
        Some(input) => fuzzer.bounded(target).arg(input.to_str().context("the path is not UTF-8")?),
        // libFuzzer interprets 0 as unlimited.
        None => fuzzer.line(target, options.seconds.unwrap_or(0))?,
    };
    line.run(&log)?;
    Ok(ExitCode::SUCCESS)
}

/// Targets to build.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum FuzzScope {
    /// Targets whose decoders compile quickly, for `make test`.
    Decoders,
    /// All targets.
    All,
}

/// Compiles the fuzzer of a run that follows. It takes long and needs nothing of the workspace's
/// build, so both can run at once.
pub(crate) fn compile(log: &PartLog, scope: FuzzScope) -> Result<PartOutcome> {
    if let Err(reason) = prepare(log) {
        return Ok(PartOutcome::Skipped(format!("{reason:#}")));
    }
    Fuzzer::build(log, scope)?;
    Ok(PartOutcome::Passed)
}

/// Runs every target, even after a failure.
pub(crate) fn run(log: &PartLog, scope: FuzzScope, seconds_default: u32) -> Result<PartOutcome> {
    let seconds = seconds(seconds_default)?;
    if let Err(reason) = prepare(log) {
        return Ok(PartOutcome::Skipped(format!("{reason:#}")));
    }
    let sources = sources_key()?;
    let fuzzer = Fuzzer::build(log, scope)?;
    // Writes fuzz/corpus/ from the golden files: without seeds a fuzzer spends its seconds on magic
    // numbers.
    let seeds = suite::run_ignored(log, "write_seeds", &[])?;
    let targets = fuzzer.targets()?;
    let workspace = Workspace::read()?;
    let queue = Mutex::new(targets.iter());
    let sum = Mutex::new(TestReport { failed: seeds.failed, ..TestReport::default() });
    std::thread::scope(|scope| {
        let worker = || {
            loop {
                let next = queue.lock().expect("BUG: a worker panicked").next();
                let Some(target) = next else { return };
                let report =
                    fuzzer.fuzz_unless_unchanged(log, target, seconds, &workspace, &sources);
                let report = report.unwrap_or_else(|error| {
                    let repeat = format!("cargo xtask fuzz {}", target.name);
                    TestReport::from_failure(&target.name, &repeat, format!("{error:#}"))
                });
                sum.lock().expect("BUG: a worker panicked").add(report);
            }
        };
        (0..cores()).for_each(|_| drop(scope.spawn(worker)));
    });
    Ok(PartOutcome::Tests(sum.into_inner().expect("BUG: a worker panicked")))
}

/// Hash of all sources. A pass is stored only if it is unchanged after the run: sources may be
/// edited during the run.
fn sources_key() -> Result<String> {
    PassedTests::key_of_sources(&[String::new()], &[])
}

/// Path of the program with the checks of all targets.
struct Fuzzer(PathBuf);

impl Fuzzer {
    fn build(log: &PartLog, scope: FuzzScope) -> Result<Fuzzer> {
        let host = host()?;
        // With --target, build scripts and macros are compiled without the sanitizer.
        let build = "cargo +nightly build --release --locked --manifest-path fuzz/Cargo.toml";
        let line = format!("{build} --target-dir fuzz/target --target {host} --bin check");
        let mut line = CommandLine::new(&line).env("RUSTFLAGS", &FLAGS.join(" "));
        line = match scope {
            FuzzScope::All => line.arg("--all-features"),
            // Source lines are in the output of the command that repeats a failure, which has all
            // targets.
            FuzzScope::Decoders => {
                let line = line.env("CARGO_PROFILE_RELEASE_DEBUG", "false");
                // These take 40 % of the compilation with optimisation.
                let packages = ["topdeck-query", "topdeck-rules", "topdeck-store"];
                packages.into_iter().fold(line, |line, package| {
                    let setting = format!("profile.release.package.{package}.opt-level=0");
                    line.arg("--config").arg(&setting)
                })
            }
        };
        if std::env::var_os("CI").is_none() {
            // The next build on this machine compiles only changed functions instead of their
            // crate.
            line = line.env("CARGO_INCREMENTAL", "1");
        }
        line.run(log)?;
        Ok(Fuzzer(root().join(format!("fuzz/target/{host}/release/check"))))
    }

    fn targets(&self) -> Result<Vec<FuzzTarget>> {
        let list = self.program().env(TARGET_VARIABLE, "list").stdout()?;
        let list = String::from_utf8(list).context("cannot list the targets of the fuzzer")?;
        let target = |line: &str| {
            let (of, name) = line.split_once(' ').context("a target is a crate and a name")?;
            Ok(FuzzTarget { name: name.to_owned(), crate_name: of.to_owned() })
        };
        let targets: Vec<FuzzTarget> = list.lines().map(target).collect::<Result<_>>()?;
        ensure!(!targets.is_empty(), "the fuzzer lists no targets");
        Ok(targets)
    }

    fn fuzz_unless_unchanged(
        &self,
        log: &PartLog,
        target: &FuzzTarget,
        seconds: u32,
        workspace: &Workspace,
        sources: &str,
    ) -> Result<TestReport> {
        let mut prefixes = workspace.closure(&target.crate_name)?;
        prefixes.push("fuzz/".to_owned());
        let mut key = PassedTests::key_of_sources(&prefixes, &[])?;
        key += &format!(" {seconds} s");
        let name = format!("fuzz {}", target.name);
        if let Some(report) = PassedTests::open()?.find(&name, &key) {
            return Ok(report);
        }
        let report = self.fuzz(log, target, seconds)?;
        if sources_key()? == sources {
            PassedTests::update(log, |passed| passed.insert(&name, key, &report));
        }
        Ok(report)
    }

    fn fuzz(&self, log: &PartLog, target: &FuzzTarget, seconds: u32) -> Result<TestReport> {
        let start = Instant::now();
        let line = self.line(target, seconds)?;
        log.note(&format!("$ cargo xtask fuzz {} {seconds}", target.name));
        let mut command = line.command();
        let output = command.stdin(Stdio::null()).output().context("cannot start the fuzzer")?;
        let text = String::from_utf8_lossy(&output.stderr);
        log.write(&format!("{line}\n{text}"));
        let end = match output.status.success() {
            true => TestEnd::Passed,
            false => TestEnd::Failed { repeat: repeat_command(target, &text) },
        };
        let mut report = TestReport::default();
        let name = format!("fuzz {}", target.name);
        report.add_test(&name, end, start.elapsed().as_secs_f64(), &text);
        Ok(report)
    }

    /// `seconds` 0: unlimited.
    fn line(&self, target: &FuzzTarget, seconds: u32) -> Result<CommandLine> {
        // Findings are stored in the directory of the target.
        let name = &target.name;
        let [corpus, artifacts] = ["corpus", "artifacts"].map(|of| format!("fuzz/{of}/{name}"));
        for dir in [&corpus, &artifacts] {
            let made = fs::create_dir_all(root().join(dir));
            made.with_context(|| format!("cannot make {dir}"))?;
        }
        let line = self.bounded(target).arg(&corpus);
        Ok(line
            .arg(&format!("-max_total_time={seconds}"))
            .arg("-verbosity=0")
            .arg("-print_final_stats=1")
            .arg(&format!("-artifact_prefix={artifacts}/")))
    }

    /// The command line of a target with its limits.
    fn bounded(&self, target: &FuzzTarget) -> CommandLine {
        let limits = if target.name == "store_chunk" { LIMITS_WITH_PCO } else { LIMITS };
        let line = limits.split(' ').fold(self.program(), CommandLine::arg);
        // The quarantine of freed memory (256 MiB by default) counts as used memory. Equal symbols
        // in several libraries are not an error of topdeck.
        let sanitizer = "quarantine_size_mb=64:detect_odr_violation=0";
        line.env(TARGET_VARIABLE, &target.name).env("ASAN_OPTIONS", sanitizer)
    }

    fn program(&self) -> CommandLine {
        CommandLine::from_path(&self.0)
    }
}

/// Command that runs the failing input again; libFuzzer prints its path in `output`.
fn repeat_command(target: &FuzzTarget, output: &str) -> String {
    let written = output.lines().find_map(|line| line.split_once("Test unit written to "));
    match written {
        Some((_, input)) => format!("cargo xtask fuzz {} --input {input}", target.name),
        None => format!("cargo xtask fuzz {}", target.name),
    }
}

/// Installs what fuzzing needs beyond stable Rust: nightly, and a C++ compiler for libFuzzer.
fn prepare(log: &PartLog) -> Result<()> {
    let compiler = CommandLine::new("c++ --version").succeeds();
    ensure!(compiler, "libFuzzer needs a C++ compiler (Debian: apt-get install g++)");
    if !CommandLine::new("rustup which --toolchain nightly cargo").succeeds() {
        CommandLine::new("rustup toolchain install nightly --profile minimal").run(log)?;
    }
    Ok(())
}

/// Target triple of this machine.
fn host() -> Result<String> {
    let text = String::from_utf8(CommandLine::new("rustc -vV").stdout()?)?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc -vV prints no host")
}

fn seconds(default: u32) -> Result<u32> {
    let Ok(text) = std::env::var(SECONDS_VARIABLE) else { return Ok(default) };
    // libFuzzer interprets 0 as unlimited, so a run with 0 seconds would hang.
    let seconds = text.parse().ok().filter(|seconds| *seconds > 0);
    seconds.with_context(|| {
        format!(
            "{SECONDS_VARIABLE}={text:?} is not a positive number of \
                                  seconds"
        )
    })
}
