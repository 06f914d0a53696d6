//! Parts of a long run: at most two busy ones run at once, and one at low priority beside them.
//! Each is timed and has its own log. A failed part does not stop the others. The summary at the
//! end reports all of them.

use std::fs::{self, File, TryLockError};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};

use crate::command_line::target;
use crate::part_log::PartLog;
use crate::run_summary::RunSummary;
use crate::test_report::{SkippedTest, TestFailure, TestReport};

/// A named part of a run.
pub(crate) struct CiPart {
    pub(crate) name: &'static str,
    /// Description in `--help`; one line.
    pub(crate) description: &'static str,
    /// Parts of the same run that must end before this one starts. A failed dependency does not
    /// prevent the start.
    pub(crate) dependencies: &'static [&'static str],
    pub(crate) cpu_use: CpuUse,
    pub(crate) run: fn(&PartLog) -> Result<PartOutcome>,
}

/// How a part uses the CPUs, which decides beside which others it may run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum CpuUse {
    /// Computes: at most as many at once as there are lanes.
    Busy,
    /// Computes what nothing waits for: one at a time beside any others, mostly by [`ON_IDLE_CPU`].
    Background,
    /// Mostly waits: beside any others.
    Idle,
    /// Measures time: beside no other but those in the background.
    Exclusive,
}

/// Starts a command with the policy `SCHED_IDLE` of the kernel: any other thread that wakes up
/// takes its CPU at once.
pub(crate) const ON_IDLE_CPU: &str = "chrt --idle 0";

impl CiPart {
    /// Defaults of most parts; a part has another name and another `run`.
    pub(crate) const DEFAULT: CiPart = CiPart {
        name: "",
        description: "",
        dependencies: &[],
        cpu_use: CpuUse::Busy,
        run: |_| Ok(PartOutcome::Passed),
    };
}

/// Outcome of a part.
#[derive(Debug)]
pub(crate) enum PartOutcome {
    Passed,
    /// Test results; the part failed if a test failed.
    Tests(TestReport),
    /// The part could not run on this machine. The reason is shown in the table.
    Skipped(String),
    /// The inputs have not changed since the part last passed.
    Unchanged(TestReport),
}

/// A finished part.
pub(crate) struct PartResult {
    pub(crate) name: &'static str,
    pub(crate) outcome: PartVerdict,
    pub(crate) tests: TestReport,
    pub(crate) time: Duration,
}

#[derive(Debug, PartialEq)]
pub(crate) enum PartVerdict {
    Passed,
    Unchanged,
    Failed,
    Skipped(String),
}

/// How the output of parts is shown.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum OutputMode {
    /// Progress on the console, output in one file per part; two busy parts at once.
    Progress,
    /// All output on the console; one part at a time.
    Everything,
}

/// Locks the build directory, so that a second run waits: logs and cached results are in shared
/// files. The lock ends with the process.
pub(crate) fn lock_runs() -> Result<File> {
    let path = target().join("ci/lock");
    fs::create_dir_all(path.parent().expect("BUG: it is in a directory"))?;
    let file = File::create(&path).with_context(|| format!("cannot make {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => bail!(
            "cannot lock {}: another `make test`, `make system` or `make soak` runs; wait for \
             its end",
            path.display()
        ),
        Err(TryLockError::Error(error)) => Err(error).context("cannot lock the build directory"),
    }
}

/// Runs the parts and shows the summary. `command` is the command line that runs one part by name.
/// Returns failure if any part failed.
pub(crate) fn run_all<'a>(
    command: &str,
    parts: impl IntoIterator<Item = &'a CiPart>,
    show: OutputMode,
) -> ExitCode {
    let start = Instant::now();
    let parts: Vec<&CiPart> = parts.into_iter().collect();
    let lanes = if show == OutputMode::Progress { PARALLEL_PARTS } else { 1 };
    let results = schedule(&parts, lanes, |part| run_one(command, part, show));
    let summary = RunSummary { results: &results, time: start.elapsed() };
    print!("\n{summary}");
    match results.iter().any(|result| result.outcome == PartVerdict::Failed) {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    }
}

/// Number of busy parts that run at once, beside one in the background and those that wait. A part
/// often has one busy thread (linking, npm, tests that wait), so two parts keep two CPUs busy. More
/// parts exceed the memory of a small machine.
const PARALLEL_PARTS: usize = 2;

/// Runs each part once, in list order as far as `dependencies` and `cpu_use` allow, with `lanes`
/// busy parts at once.
fn schedule(
    parts: &[&CiPart],
    lanes: usize,
    run: impl Fn(&CiPart) -> PartResult + Sync,
) -> Vec<PartResult> {
    let schedule = Mutex::new(PartSchedule::new(parts, lanes));
    let changed = Condvar::new();
    let worker = || {
        loop {
            let mut state = schedule.lock().expect("BUG: a worker panicked");
            let index = loop {
                if state.waiting.is_empty() {
                    return;
                }
                match state.start_next() {
                    Some(index) => break index,
                    None => state = changed.wait(state).expect("BUG: a worker panicked"),
                }
            };
            drop(state);
            let result = run(parts[index]);
            schedule.lock().expect("BUG: a worker panicked").end(index, result);
            changed.notify_all();
        }
    };
    // One for the part in the background.
    let workers = lanes + 1 + parts.iter().filter(|part| part.cpu_use == CpuUse::Idle).count();
    std::thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(worker))));
    let mut ended = schedule.into_inner().expect("BUG: a worker panicked").ended;
    ended.sort_by_key(|(index, _)| *index);
    ended.into_iter().map(|(_, result)| result).collect()
}

/// Waiting, running and finished parts, as indices into `parts`.
struct PartSchedule<'a> {
    parts: &'a [&'a CiPart],
    lanes: usize,
    waiting: Vec<usize>,
    running: Vec<usize>,
    ended: Vec<(usize, PartResult)>,
}

impl<'a> PartSchedule<'a> {
    fn new(parts: &'a [&'a CiPart], lanes: usize) -> PartSchedule<'a> {
        let waiting = (0..parts.len()).collect();
        PartSchedule { parts, lanes, waiting, running: Vec::new(), ended: Vec::new() }
    }

    /// Removes and returns the first part that may start now.
    fn start_next(&mut self) -> Option<usize> {
        let running = |cpu_use: CpuUse| {
            self.running.iter().filter(|index| self.parts[**index].cpu_use == cpu_use).count()
        };
        let is_exclusive = running(CpuUse::Exclusive) > 0;
        let in_background = running(CpuUse::Background);
        let may_start = |index: &&usize| {
            let part = self.parts[**index];
            let has_lane = match part.cpu_use {
                CpuUse::Background => in_background == 0,
                CpuUse::Busy => !is_exclusive && running(CpuUse::Busy) < self.lanes,
                CpuUse::Idle => !is_exclusive,
                CpuUse::Exclusive => self.running.len() == in_background,
            };
            has_lane && part.dependencies.iter().all(|name| !self.is_pending(name))
        };
        let index = self.waiting.iter().find(may_start).copied();
        assert!(
            index.is_some() || !self.running.is_empty(),
            "BUG: cyclic dependencies of parts: {:?}",
            self.waiting.iter().map(|index| self.parts[*index].name).collect::<Vec<_>>()
        );
        self.waiting.retain(|other| Some(*other) != index);
        self.running.extend(index);
        index
    }

    /// Whether the named part waits or runs.
    fn is_pending(&self, name: &str) -> bool {
        let mut indexes = self.waiting.iter().chain(&self.running);
        indexes.any(|index| self.parts[*index].name == name)
    }

    fn end(&mut self, index: usize, result: PartResult) {
        self.running.retain(|other| *other != index);
        self.ended.push((index, result));
    }
}

fn run_one(command: &str, part: &CiPart, show: OutputMode) -> PartResult {
    let start = Instant::now();
    let log = match show {
        OutputMode::Progress => PartLog::file(part.name),
        OutputMode::Everything => Ok(PartLog::console(part.name)),
    };
    // Without a log file the output goes to the console.
    let log = log.unwrap_or_else(|error| {
        println!("{}: {error:#}; its output is shown here", part.name);
        PartLog::console(part.name)
    });
    let repeat = format!("{command} {}", part.name);
    // A panic fails this part only; the other thread waits for its end.
    let ended = catch_unwind(AssertUnwindSafe(|| (part.run)(&log)));
    let ended = ended.unwrap_or_else(|_| Err(anyhow!("the part panicked; its message is above")));
    let (verdict, mut tests) = match ended {
        Ok(PartOutcome::Passed) => (PartVerdict::Passed, TestReport::default()),
        Ok(PartOutcome::Unchanged(tests)) => (PartVerdict::Unchanged, tests),
        Ok(PartOutcome::Tests(tests)) if tests.failed.is_empty() => (PartVerdict::Passed, tests),
        Ok(PartOutcome::Tests(tests)) => (PartVerdict::Failed, tests),
        Ok(PartOutcome::Skipped(reason)) => (PartVerdict::Skipped(reason), TestReport::default()),
        Err(error) => {
            let name = "(the whole part)".to_owned();
            let output = format!("{}\n{error:#}", log.tail());
            let failed = vec![TestFailure { name, repeat, output }];
            (PartVerdict::Failed, TestReport { failed, ..TestReport::default() })
        }
    };
    // A skipped part is a check that did not run.
    if let PartVerdict::Skipped(reason) = &verdict {
        let name = "(the whole part)".to_owned();
        tests.skipped.push(SkippedTest { name, reason: reason.clone() });
    }
    let time = start.elapsed();
    let path = log.path().map(|path| format!("; log: {}", path.display())).unwrap_or_default();
    let end = match &verdict {
        PartVerdict::Failed => format!("FAILED{path}"),
        PartVerdict::Skipped(reason) => format!("skipped: {reason}"),
        PartVerdict::Passed => "ok".to_owned(),
        PartVerdict::Unchanged => "unchanged since it passed".to_owned(),
    };
    log.note(&format!("{end} ({:.1} s)", time.as_secs_f64()));
    // Reported at once as well as at the end.
    for failure in &tests.failed {
        let text =
            format!("---- {}: {}\n{}\n----", part.name, failure.name, failure.output.trim_end());
        println!("{text}");
        if log.path().is_some() {
            log.write(&text);
        }
    }
    PartResult { name: part.name, outcome: verdict, tests, time }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_run_in_a_build_directory_reports_the_first() {
        // If `make test` runs this test, it holds the lock.
        if let Ok(_lock) = lock_runs() {
            let error = lock_runs().unwrap_err();
            assert!(error.to_string().starts_with("cannot lock "), "{error}");
        }
    }

    const NONE: CiPart = CiPart::DEFAULT;

    fn result(part: &CiPart) -> PartResult {
        let tests = TestReport::default();
        PartResult { name: part.name, outcome: PartVerdict::Passed, tests, time: Duration::ZERO }
    }

    #[test]
    fn part_starts_after_its_dependencies_and_exclusive_parts_alone() {
        let running = Mutex::new(Vec::new());
        let seen = Mutex::new(Vec::new());
        let parts = [
            CiPart { name: "b", dependencies: &["a", "elsewhere"], ..NONE },
            CiPart { name: "alone", cpu_use: CpuUse::Exclusive, ..NONE },
            CiPart { name: "a", ..NONE },
            CiPart { name: "c", ..NONE },
        ];
        let parts: Vec<&CiPart> = parts.iter().collect();
        let results = schedule(&parts, 2, |part| {
            running.lock().unwrap().push(part.name);
            std::thread::yield_now();
            let beside = running.lock().unwrap().clone();
            assert!(part.name != "alone" || beside == ["alone"], "{beside:?}");
            seen.lock().unwrap().push(part.name);
            running.lock().unwrap().retain(|name| *name != part.name);
            result(part)
        });
        let names: Vec<&str> = results.iter().map(|result| result.name).collect();
        assert_eq!(names, ["b", "alone", "a", "c"], "as in the list");
        let seen = seen.into_inner().unwrap();
        let place = |name| seen.iter().position(|other| *other == name);
        assert!(place("a") < place("b"), "{seen:?}");
    }

    #[test]
    fn idle_and_background_parts_run_beside_the_busy_ones() {
        let part = |cpu_use| CiPart { cpu_use, ..NONE };
        let (busy, idle) = (part(CpuUse::Busy), part(CpuUse::Idle));
        let (background, alone) = (part(CpuUse::Background), part(CpuUse::Exclusive));
        let parts = [&busy, &background, &busy, &busy, &background, &idle, &alone];
        let mut schedule = PartSchedule::new(&parts, 2);
        let mut start = || schedule.start_next();
        assert_eq!([start(), start(), start(), start()], [Some(0), Some(1), Some(2), Some(5)]);
        assert_eq!(start(), None, "both lanes are taken, and one part runs in the background");
        schedule.end(5, result(&idle));
        assert_eq!(schedule.start_next(), None, "it had no lane");
        schedule.end(1, result(&background));
        assert_eq!([schedule.start_next(), schedule.start_next()], [Some(4), None]);
        schedule.end(0, result(&busy));
        assert_eq!([schedule.start_next(), schedule.start_next()], [Some(3), None]);
        for index in [2, 3] {
            assert_eq!(schedule.start_next(), None, "the last part measures time");
            schedule.end(index, result(parts[index]));
        }
        assert_eq!(schedule.start_next(), Some(6), "beside the part in the background");
    }

    #[test]
    fn background_parts_start_beside_an_exclusive_one_and_others_do_not() {
        let part = |cpu_use| CiPart { cpu_use, ..NONE };
        let (busy, idle) = (part(CpuUse::Busy), part(CpuUse::Idle));
        let (background, alone) = (part(CpuUse::Background), part(CpuUse::Exclusive));
        let parts = [&alone, &busy, &background, &idle, &alone, &background];
        let mut schedule = PartSchedule::new(&parts, 2);
        assert_eq!([0; 2].map(|_| schedule.start_next()), [Some(0), Some(2)]);
        assert_eq!(schedule.start_next(), None);
        schedule.end(2, result(&background));
        assert_eq!([0; 2].map(|_| schedule.start_next()), [Some(5), None]);
        schedule.end(0, result(&alone));
        assert_eq!([0; 3].map(|_| schedule.start_next()), [Some(1), Some(3), None]);
    }

    #[test]
    #[should_panic(expected = "a scoped thread panicked")]
    fn cyclic_parts_are_a_bug() {
        let parts = [
            CiPart { name: "a", dependencies: &["b"], ..NONE },
            CiPart { name: "b", dependencies: &["a"], ..NONE },
        ];
        schedule(&parts.iter().collect::<Vec<_>>(), 1, result);
    }

    #[test]
    fn a_failure_stops_no_other_part_and_names_its_command() {
        let bad = CiPart { name: "bad", run: |_| bail!("no luck"), ..NONE };
        let good = CiPart { name: "good", ..NONE };
        let run = |part: &CiPart| run_one("cargo xtask ci", part, OutputMode::Everything);
        let results = schedule(&[&bad, &good], 1, run);
        assert_eq!(results[0].outcome, PartVerdict::Failed);
        assert_eq!(results[0].tests.failed[0].repeat, "cargo xtask ci bad");
        assert!(results[0].tests.failed[0].output.contains("no luck"));
        assert_eq!(results[1].outcome, PartVerdict::Passed);
    }

    #[test]
    fn the_run_fails_only_if_a_part_does() {
        let bad = CiPart { name: "bad", run: |_| bail!("no luck"), ..NONE };
        let run =
            |parts: &[&CiPart]| run_all("cargo xtask ci", parts.to_vec(), OutputMode::Everything);
        assert_eq!(run(&[&NONE]), ExitCode::SUCCESS);
        assert_eq!(run(&[&bad, &NONE]), ExitCode::FAILURE);
    }

    #[test]
    fn skipped_part_counts_as_not_run() {
        let run = |_: &PartLog| Ok(PartOutcome::Skipped("no tool".to_owned()));
        let result = run_one("x", &CiPart { name: "absent", run, ..NONE }, OutputMode::Everything);
        assert_eq!(result.outcome, PartVerdict::Skipped("no tool".to_owned()));
        assert_eq!(result.tests.skipped[0].reason, "no tool");
    }
}
