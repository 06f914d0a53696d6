//! Checks that no update is lost, also if a process is killed.

use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::child;
use crate::Effort;
use crate::report::{ReportSection, ReportTarget};

/// Counts on several threads and in processes that are killed, and compares the totals.
pub(super) fn run(effort: &Effort, section: &mut ReportSection) {
    let each_thread = if effort.quick { 500_000 } else { 25_000_000 };
    let threads = 4;
    let counted = shm::MetricBuilder::new("bench_loss_total").counter().expect("room");
    let took = shm::MetricBuilder::new("bench_loss").histogram().expect("room");
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                for value in 0..each_thread {
                    counted.add(1);
                    took.record(value % 100_000);
                }
            });
        }
    });
    let path = shm::status().expect("a file");
    let seen = child::read_counts(&path, "bench_loss_total", "bench_loss").expect("our own file");
    let expected = threads * each_thread;
    let lost = expected.abs_diff(seen.0) + expected.abs_diff(seen.1);
    section.targets.push(ReportTarget::at_most(
        &format!("updates lost of {expected} counted and {expected} recorded by {threads} threads"),
        0.0,
        "updates",
        Some(lost as f64),
    ));
    let kills = if effort.quick { 2 } else { 20 };
    let outcomes: Vec<_> =
        (0..kills).filter_map(|_| run_killed(Duration::from_millis(300)).ok()).collect();
    let lost: Option<u64> =
        (outcomes.len() == kills).then(|| outcomes.iter().map(|one| one.1).sum());
    let records: u64 = outcomes.iter().map(|one| one.0).sum();
    section.targets.push(ReportTarget::at_most(
        &format!(
            "updates lost by {kills} processes of two threads, killed after {records} records"
        ),
        0.0,
        "updates",
        lost.map(|lost| lost as f64),
    ));
}

/// Starts a process that records until it is killed. Returns its number of records, and how many of
/// them are missing.
fn run_killed(after: Duration) -> anyhow::Result<(u64, u64)> {
    let mut process = self_command(&["--record-shm", "0"]).spawn()?;
    std::thread::sleep(after);
    kill_process(Pid::from_child(&process), Signal::KILL)?;
    process.wait()?;
    let (found, _) = shm::list_metrics_files();
    let found = found.into_iter().find(|one| one.identity.pid == process.id());
    let path = found.map(|one| one.path).ok_or_else(|| anyhow::anyhow!("it left no file"))?;
    let begun = child::read_counts(&path, "bench_begun_total", "bench_child")?;
    let done = child::read_counts(&path, "bench_done_total", "bench_child")?;
    // Each thread may have been killed between its record and the counts before and after it.
    let (begun, done, recorded) = (begun.0, done.0, done.1);
    let lost = done.saturating_sub(recorded) + recorded.saturating_sub(begun);
    Ok((done, lost))
}

fn self_command(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap_or_default());
    command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
    command
}
