//! The fuzz parts. `make test` runs `seed_fuzzer` of the test build, which changes seeds at random.
//! `make soak` and `cargo xtask fuzz` build and run `coverage_fuzzer`, which is libFuzzer with the
//! same checks. One target per CPU at a time.

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::ci_part::{ON_IDLE_CPU, PartOutcome};
use crate::command_line::{CommandLine, cores, root};
use crate::part_log::PartLog;
use crate::passed_tests::PassedTests;
use crate::suite;
use crate::test_report::{TestEnd, TestReport};
use crate::test_seed::test_seed;
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

/// Environment variable: seconds per target, of CPU time for `seed_fuzzer`.
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

/// Memory that a check may hold at once under `seed_fuzzer`, in MiB: two of the largest allocations
/// in `LIMITS`.
const MEMORY_MIB_MAX: u64 = 128;

/// The same of `store_chunk`, for `LIMITS_WITH_PCO`.
const MEMORY_MIB_MAX_WITH_PCO: u64 = 514;

/// Address space of `seed_fuzzer` in KiB. An allocation beyond it fails and aborts the process.
const ADDRESS_SPACE_KIB: u64 = 1 << 20;

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

/// What makes the inputs.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum FuzzEngine {
    /// `seed_fuzzer`.
    Seeds,
    /// `coverage_fuzzer`.
    Coverage,
}

/// `cargo xtask fuzz`.
pub(crate) fn run_target(options: &Options) -> Result<ExitCode> {
    let log = PartLog::console("fuzz");
    let fuzzer = Fuzzer::build(&log, FuzzEngine::Coverage)?;
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

/// Runs every target, even after a failure.
pub(crate) fn run(log: &PartLog, engine: FuzzEngine, seconds_default: u32) -> Result<PartOutcome> {
    let seconds = seconds(seconds_default)?;
    if engine == FuzzEngine::Coverage
        && let Err(reason) = prepare(log)
    {
        return Ok(PartOutcome::Skipped(format!("{reason:#}")));
    }
    let sources = sources_key()?;
    let fuzzer = Fuzzer::build(log, engine)?;
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

/// A program with the checks of all targets.
struct Fuzzer {
    path: PathBuf,
    engine: FuzzEngine,
}

impl Fuzzer {
    fn build(log: &PartLog, engine: FuzzEngine) -> Result<Fuzzer> {
        let path = match engine {
            FuzzEngine::Seeds => suite::program(log, "seed_fuzzer")?,
            FuzzEngine::Coverage => build_coverage_fuzzer(log)?,
        };
        Ok(Fuzzer { path, engine })
    }

    fn targets(&self) -> Result<Vec<FuzzTarget>> {
        let list = CommandLine::from_path(&self.path).env(TARGET_VARIABLE, "list").stdout()?;
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
        if self.engine == FuzzEngine::Coverage {
            key += " with coverage";
        }
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
        log.note(&format!("fuzzing {} for {seconds} s", target.name));
        let mut command = line.command();
        let output = command.stdin(Stdio::null()).output().context("cannot start the fuzzer")?;
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        log.write(&format!("{line}\n{text}"));
        let end = match output.status.success() {
            true => TestEnd::Passed,
            false => {
                let repeat = self.repeat_command(target, &text).unwrap_or_else(|error| {
                    log.note(&format!("cannot keep the input: {error:#}"));
                    "cargo xtask ci fuzz".to_owned()
                });
                TestEnd::Failed { repeat }
            }
        };
        let mut report = TestReport::default();
        let name = format!("fuzz {}", target.name);
        report.add_test(&name, end, start.elapsed().as_secs_f64(), &text);
        Ok(report)
    }

    /// `seconds` 0: unlimited, for `coverage_fuzzer` only.
    fn line(&self, target: &FuzzTarget, seconds: u32) -> Result<CommandLine> {
        // Findings are stored in the directory of the target.
        let name = &target.name;
        let [corpus, artifacts] = ["corpus", "artifacts"].map(|of| format!("fuzz/{of}/{name}"));
        for dir in [&corpus, &artifacts] {
            let made = fs::create_dir_all(root().join(dir));
            made.with_context(|| format!("cannot make {dir}"))?;
        }
        let line = self.bounded(target);
        Ok(match self.engine {
            FuzzEngine::Seeds => line
                .arg(&recorded_input(target))
                .arg(&corpus)
                .arg(&seconds.to_string())
                .arg(&test_seed()?.to_string()),
            FuzzEngine::Coverage => line
                .arg(&corpus)
                .arg(&format!("-max_total_time={seconds}"))
                .arg("-verbosity=0")
                .arg("-print_final_stats=1")
                .arg(&format!("-artifact_prefix={artifacts}/")),
        })
    }

    /// The command line of a target with its limits; the path of an input follows.
    fn bounded(&self, target: &FuzzTarget) -> CommandLine {
        let has_pco = target.name == "store_chunk";
        let line = match self.engine {
            FuzzEngine::Seeds => {
                let path = self.path.to_str().expect("BUG: the path is not UTF-8");
                let mib = if has_pco { MEMORY_MIB_MAX_WITH_PCO } else { MEMORY_MIB_MAX };
                CommandLine::new("sh -c")
                    .arg(&format!("ulimit -v {ADDRESS_SPACE_KIB} && exec {ON_IDLE_CPU} \"$@\""))
                    .arg("sh")
                    .arg(path)
                    .arg(&(mib << 20).to_string())
            }
            FuzzEngine::Coverage => {
                let limits = if has_pco { LIMITS_WITH_PCO } else { LIMITS };
                // The quarantine of freed memory (256 MiB by default) counts as used memory. Equal
                // symbols in several libraries are not an error of topdeck.
                let sanitizer = "quarantine_size_mb=64:detect_odr_violation=0";
                let line = CommandLine::from_path(&self.path).env("ASAN_OPTIONS", sanitizer);
                limits.split(' ').fold(line, CommandLine::arg)
            }
        };
        line.env(TARGET_VARIABLE, &target.name)
    }

    /// The command line that checks the failed input again.
    fn repeat_command(&self, target: &FuzzTarget, output: &str) -> Result<String> {
        Ok(match self.engine {
            FuzzEngine::Seeds => {
                let input = keep_failed_input(&root().join(recorded_input(target)))?;
                let input = input.to_str().context("the path is not UTF-8")?;
                self.bounded(target).arg(input).to_string()
            }
            FuzzEngine::Coverage => repeat_command(target, output),
        })
    }
}

/// The file, relative to the root, to which `seed_fuzzer` writes each input.
fn recorded_input(target: &FuzzTarget) -> String {
    format!("fuzz/artifacts/{}/input", target.name)
}

/// Extracts the last recorded input into a file beside it, named by its content, which a later run
/// does not overwrite.
fn keep_failed_input(recorded: &Path) -> Result<PathBuf> {
    let name = recorded.display();
    let bytes = fs::read(recorded).with_context(|| format!("cannot read {name}"))?;
    let input = bytes
        .split_first_chunk()
        .and_then(|(length, rest)| rest.get(..usize::try_from(u64::from_le_bytes(*length)).ok()?));
    let input = input.with_context(|| format!("{name} contains no input; did no check start?"))?;
    let mut hasher = DefaultHasher::new();
    input.hash(&mut hasher);
    let kept = recorded.with_file_name(format!("failed-{:016x}", hasher.finish()));
    fs::write(&kept, input).with_context(|| format!("cannot write {}", kept.display()))?;
    Ok(kept)
}

fn build_coverage_fuzzer(log: &PartLog) -> Result<PathBuf> {
    let host = host()?;
    // With --target, build scripts and macros are compiled without the sanitizer.
    let build = "cargo +nightly build --profile fuzz --locked -p topdeck-fuzz";
    let bin = "--features libfuzzer --bin coverage_fuzzer";
    let line = format!("{build} {bin} --target-dir fuzz/target --target {host}");
    let mut line = CommandLine::new(&line).env("RUSTFLAGS", &FLAGS.join(" "));
    if std::env::var_os("CI").is_none() {
        // The next build on this machine compiles only changed functions instead of their crate.
        line = line.env("CARGO_INCREMENTAL", "1");
    }
    line.run(log)?;
    Ok(root().join(format!("fuzz/target/{host}/fuzz/coverage_fuzzer")))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_input_is_kept_without_what_longer_ones_left_behind() {
        let dir = std::env::temp_dir().join(format!("topdeck-fuzz-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let recorded = dir.join("input");
        fs::write(&recorded, b"\x03\0\0\0\0\0\0\0abc, of a longer one").unwrap();
        let kept = keep_failed_input(&recorded).unwrap();
        assert_eq!(fs::read(&kept).unwrap(), b"abc");
        assert_ne!(kept, recorded);
        for damaged in [&b""[..], b"\x03\0\0\0\0\0\0\0ab", &[0xff; 8]] {
            fs::write(&recorded, damaged).unwrap();
            let error = keep_failed_input(&recorded).unwrap_err().to_string();
            assert!(error.ends_with("contains no input; did no check start?"), "{error}");
        }
        fs::remove_dir_all(&dir).unwrap();
    }
}
