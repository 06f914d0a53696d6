//! Starts a small program and waits for its exit, while observers list all processes.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use super::experiment::PreparedExperiment;
use render::value_formatter::count;

const PROGRAMS: [&str; 2] = ["/bin/true", "/usr/bin/true"];

pub(crate) fn prepare() -> Result<PreparedExperiment, String> {
    let program = PROGRAMS.into_iter().find(|path| Path::new(path).exists());
    let program = program.ok_or("/bin/true not found")?;
    let once = move || {
        let mut command = Command::new(program);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).env_clear();
        match command.status()?.success() {
            true => Ok(()),
            false => Err(io::Error::other(format!("{program} failed"))),
        }
    };
    let there = process_ids().map_err(|error| format!("cannot list /proc: {error}"))?.count();
    Ok(PreparedExperiment {
        title: format!("start and exit of {program} among {} processes", count(there as u64)),
        operation: "start and exit of a program",
        operation_once: Box::new(once),
    })
}

/// IDs of all processes.
pub(crate) fn process_ids() -> io::Result<impl Iterator<Item = u32>> {
    let entries = fs::read_dir("/proc")?;
    Ok(entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()))
}
