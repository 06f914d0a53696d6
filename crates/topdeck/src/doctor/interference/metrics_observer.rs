//! topdeck's readers of what a process shows in shared memory, as `topdeck top` and `serve` read
//! it, but without a pause.

use std::io;

use shm::{AttachedProcess, MetricsFile, ProcessState};

use super::observer::ObserverRound;

/// Opens what a process shows, and reads all of it each time.
pub(crate) fn read_observer(pid: u32) -> io::Result<ObserverRound> {
    let mut attached = AttachedProcess::new(find_metrics_file(pid)?).map_err(io::Error::other)?;
    Ok(Box::new(move || read_all(&mut attached)))
}

/// Looks for the process, opens what it shows and reads all of it, anew each time.
pub(crate) fn attach_observer(pid: u32) -> io::Result<ObserverRound> {
    Ok(Box::new(move || {
        read_all(&mut AttachedProcess::new(find_metrics_file(pid)?).map_err(io::Error::other)?)
    }))
}

fn read_all(attached: &mut AttachedProcess) -> io::Result<u64> {
    let metrics = attached.metrics().map_err(io::Error::other)?;
    if metrics.is_empty() {
        return Err(io::Error::other("there was nothing to read"));
    }
    Ok(1)
}

fn find_metrics_file(pid: u32) -> io::Result<MetricsFile> {
    let (all, problems) = shm::list_metrics_files();
    let found = all.into_iter().find(|found| found.state == ProcessState::Running { pid });
    found.ok_or_else(|| {
        let why = problems.iter().map(|problem| format!("; {problem}")).collect::<String>();
        io::Error::other(format!("process {pid} shows nothing in shared memory{why}"))
    })
}
