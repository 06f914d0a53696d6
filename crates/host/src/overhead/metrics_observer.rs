//! Readers of metrics in shared memory as observers: as in `topdeck top` and `serve`, but
//! continuous.

use std::io;

use shm::{AttachedProcess, MetricsFile, ProcessState};

use super::observer::ObserverRound;

/// Attaches once, then reads all metrics in each round.
pub(crate) fn read_observer(pid: u32) -> io::Result<ObserverRound> {
    let mut attached = AttachedProcess::new(find_metrics_file(pid)?).map_err(io::Error::other)?;
    Ok(Box::new(move || read_all(&mut attached)))
}

/// Finds the process, attaches and reads all metrics in each round.
pub(crate) fn attach_observer(pid: u32) -> io::Result<ObserverRound> {
    Ok(Box::new(move || {
        read_all(&mut AttachedProcess::new(find_metrics_file(pid)?).map_err(io::Error::other)?)
    }))
}

fn read_all(attached: &mut AttachedProcess) -> io::Result<u64> {
    let metrics = attached.metrics().map_err(io::Error::other)?;
    if metrics.is_empty() {
        return Err(io::Error::other("the process exports no metrics"));
    }
    Ok(1)
}

fn find_metrics_file(pid: u32) -> io::Result<MetricsFile> {
    let (all, problems) = shm::list_metrics_files();
    let found = all.into_iter().find(|found| found.state == ProcessState::Running { pid });
    found.ok_or_else(|| {
        let reason = problems.iter().map(|problem| format!("; {problem}")).collect::<String>();
        io::Error::other(format!("process {pid} exports no metrics in shared memory{reason}"))
    })
}
