//! topdeck's readers of what a process shows in shared memory, as `topdeck top` and `serve` read it, but without a pause.

use std::io;

use shm::{Attached, Fate, Found};

use super::reader::Round;

/// Opens what a process shows, and reads all of it each time.
pub(crate) fn read(pid: u32) -> io::Result<Round> {
    let mut attached = Attached::new(found(pid)?).map_err(io::Error::other)?;
    Ok(Box::new(move || all(&mut attached)))
}

/// Looks for the process, opens what it shows and reads all of it, anew each time.
pub(crate) fn attach(pid: u32) -> io::Result<Round> {
    Ok(Box::new(move || all(&mut Attached::new(found(pid)?).map_err(io::Error::other)?)))
}

fn all(attached: &mut Attached) -> io::Result<u64> {
    let metrics = attached.metrics().map_err(io::Error::other)?;
    if metrics.is_empty() {
        return Err(io::Error::other("there was nothing to read"));
    }
    Ok(1)
}

fn found(pid: u32) -> io::Result<Found> {
    let (all, problems) = shm::processes();
    let found = all.into_iter().find(|found| found.fate == Fate::Runs { pid });
    found.ok_or_else(|| {
        let why = problems.iter().map(|problem| format!("; {problem}")).collect::<String>();
        io::Error::other(format!("process {pid} shows nothing in shared memory{why}"))
    })
}
