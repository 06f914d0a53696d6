//! Child processes of `shm`: this program, recording or reading.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Result, bail};
use shm::snapshot::{MetricValue, NumericValue};

/// Records this many values on each of two threads, or until killed.
pub(crate) fn record_values(count: u64) -> Result<()> {
    let begun = shm::MetricBuilder::new("bench_begun_total").counter()?;
    let done = shm::MetricBuilder::new("bench_done_total").counter()?;
    let took = shm::MetricBuilder::new("bench_child").histogram()?;
    let nowhere = File::create("/dev/null")?;
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                // The first record in a bucket allocates: all buckets are touched in advance.
                (0..64).for_each(|shift| {
                    begun.add(1);
                    took.record(1 << shift);
                    done.add(1);
                });
                write_mark(&nowhere, BEGIN_MARK);
                for value in 0..if count == 0 { u64::MAX } else { count } {
                    begun.add(1);
                    took.record(value % 1_000_000);
                    done.add(1);
                }
                write_mark(&nowhere, END_MARK);
            });
        }
    });
    Ok(())
}

/// Reads a thousand counters of this process this many times.
pub(crate) fn read_counters(count: u64) -> Result<()> {
    for n in 0..1_000 {
        shm::MetricBuilder::new(format!("bench_read_{n}")).counter()?.add(1);
    }
    let mut reader = shm::MetricsFileReader::attach(&shm::status()?)?;
    let mut counts = vec![0; reader.len()];
    let nowhere = File::create("/dev/null")?;
    reader.refresh()?;
    write_mark(&nowhere, BEGIN_MARK);
    for _ in 0..count {
        reader.refresh()?;
        reader.counts(&mut counts)?;
    }
    write_mark(&nowhere, END_MARK);
    Ok(())
}

/// Counts of a counter and of a histogram in a file.
pub(crate) fn read_counts(path: &Path, counter: &str, histogram: &str) -> Result<(u64, u64)> {
    let metrics = shm::MetricsFileReader::attach(path)?.metrics()?;
    let value = |name: &str| metrics.iter().find(|one| one.name == name).map(|one| &one.value);
    match (value(counter), value(histogram)) {
        (
            Some(MetricValue::Counter(NumericValue::Unsigned(count))),
            Some(MetricValue::Histogram(seen)),
        ) => Ok((*count, seen.count())),
        _ => bail!("no {counter} or {histogram} in {}", path.display()),
    }
}

/// Marks that a thread writes before and after the measurement, as a system call that strace shows.
const BEGIN_MARK: &str = "measurement begins";
const END_MARK: &str = "measurement ends";

fn write_mark(mut nowhere: &File, what: &str) {
    // One system call without a buffer or lock.
    let _ = nowhere.write_all(what.as_bytes());
}

/// Number of system calls of this program's threads between their marks, with these arguments;
/// `None` without a working strace.
pub(crate) fn count_calls(arguments: &[&str]) -> Option<u64> {
    let file = tempfile::NamedTempFile::new().ok()?;
    // Strings are printed in full, so that marks are recognized.
    let status = Command::new("strace")
        .args(["-f", "-s", "64", "-o"])
        .arg(file.path())
        .arg(std::env::current_exe().ok()?)
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if !status.is_ok_and(|status| status.success()) {
        return None;
    }
    calls_between_marks(&std::fs::read_to_string(file.path()).ok()?)
}

/// Counts lines `1234 write(1, "…", 24) = 24` of each thread between its marks. `None` if no thread
/// wrote both.
fn calls_between_marks(trace: &str) -> Option<u64> {
    let mut at_work = std::collections::HashSet::new();
    let (mut calls, mut ended) = (0, 0);
    for line in trace.lines() {
        let (thread, call) = line.split_once(' ')?;
        if call.contains(BEGIN_MARK) {
            at_work.insert(thread);
        } else if call.contains(END_MARK) {
            ended += u64::from(at_work.remove(thread));
        // A call interrupted by another thread has a second line when it returns; signals and exits
        // are not calls.
        } else if at_work.contains(thread) && call.trim_start().starts_with(char::is_alphabetic) {
            calls += 1;
        }
    }
    (ended > 0 && at_work.is_empty()).then_some(calls)
}

/// A process with one thread that holds counters and waits.
pub(crate) struct CounterProcess {
    process: Child,
    pub(crate) path: PathBuf,
}

impl CounterProcess {
    pub(crate) fn start(counters: usize) -> Option<CounterProcess> {
        let program = std::env::current_exe().ok()?;
        let mut process = Command::new(program)
            .args(["--hold-shm", &counters.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .ok()?;
        for _ in 0..200 {
            std::thread::sleep(Duration::from_millis(20));
            let (found, _) = shm::list_metrics_files();
            let found = found.into_iter().find(|one| one.identity.pid == process.id());
            let ready = found.filter(|one| {
                shm::MetricsFileReader::attach(&one.path)
                    .is_ok_and(|reader| reader.len() == counters)
            });
            if let Some(found) = ready {
                return Some(CounterProcess { process, path: found.path });
            }
        }
        let _ = process.kill();
        let _ = process.wait();
        None
    }
}

/// Holds this many counters until end of input.
pub(crate) fn hold_counters(counters: usize) -> Result<()> {
    for n in 0..counters {
        shm::MetricBuilder::new(format!("bench_read_{n}")).counter()?.add(1);
    }
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    Ok(())
}

impl Drop for CounterProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
