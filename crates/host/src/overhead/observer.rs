//! Table of observers; a new observer is a new entry.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::process::{Command, Stdio};

use super::experiment::Experiment;
use super::{host_observer, metrics_observer, process_experiment};

/// Runs the observer at least once; returns the number of rounds.
pub(crate) type ObserverRound = Box<dyn FnMut() -> io::Result<u64>>;

/// Observer that runs in its own process.
pub(crate) struct ObserverSpec {
    /// Name in tables and on the command line of the observer.
    pub(crate) name: &'static str,
    /// Experiments that it observes.
    pub(crate) experiments: &'static [Experiment],
    /// Note that is printed if it interferes.
    pub(crate) remark: &'static str,
    /// Opens the sources of the observer; adds a note if they differ from its name.
    open: fn(pid: u32, notes: &mut Vec<String>) -> io::Result<ObserverRound>,
}

const OBSERVERS: &[ObserverSpec] = &[
    ObserverSpec {
        name: "/proc/net/unix",
        experiments: &[Experiment::Sockets],
        remark: "topdeck never reads it",
        open: |_, _| Ok(file_observer("/proc/net/unix".to_owned())),
    },
    ObserverSpec {
        name: "ps auxww",
        experiments: &[Experiment::Processes],
        remark: "topdeck does not run ps",
        open: |_, notes| Ok(ps_observer(notes)),
    },
    ObserverSpec {
        name: "smaps_rollup",
        experiments: &[Experiment::Memory],
        remark: "topdeck never reads it",
        open: |pid, _| Ok(file_observer(format!("/proc/{pid}/smaps_rollup"))),
    },
    ObserverSpec {
        name: "maps",
        experiments: &[Experiment::Memory],
        remark: "topdeck never reads it",
        open: |pid, _| Ok(file_observer(format!("/proc/{pid}/maps"))),
    },
    ObserverSpec {
        name: "status",
        experiments: &[Experiment::Memory],
        remark: "topdeck reads only its own",
        open: |pid, _| Ok(file_observer(format!("/proc/{pid}/status"))),
    },
    ObserverSpec {
        name: "topdeck host",
        experiments: Experiment::ALL,
        remark: "at a thousand times its usual rate",
        open: |_, notes| host_observer::open_host_observer(notes),
    },
    ObserverSpec {
        name: "topdeck metrics",
        experiments: Experiment::ALL,
        remark: "continuous reads; the default is one per second",
        open: |pid, _| metrics_observer::read_observer(pid),
    },
    ObserverSpec {
        name: "topdeck attach",
        experiments: Experiment::ALL,
        remark: "continuous attaches; the default is one attach",
        open: |pid, _| metrics_observer::attach_observer(pid),
    },
];

/// Observers of an experiment, in the order of the table.
pub(crate) fn observers_of(experiment: Experiment) -> impl Iterator<Item = &'static ObserverSpec> {
    OBSERVERS.iter().filter(move |reader| reader.experiments.contains(&experiment))
}

/// Opens the observer with a name.
pub(crate) fn open_observer(
    name: &str,
    pid: u32,
    notes: &mut Vec<String>,
) -> io::Result<ObserverRound> {
    let reader = OBSERVERS.iter().find(|reader| reader.name == name);
    let reader = reader.ok_or_else(|| io::Error::other("no such observer"))?;
    (reader.open)(pid, notes)
}

/// Reads a kernel file to its end, opened again each time as `cat` would.
fn file_observer(path: String) -> ObserverRound {
    let mut bytes = Vec::new();
    Box::new(move || {
        read(&path, &mut bytes)?;
        Ok(1)
    })
}

fn read(path: &str, bytes: &mut Vec<u8>) -> io::Result<()> {
    bytes.clear();
    File::open(path)?.read_to_end(bytes)?;
    Ok(())
}

fn ps_observer(notes: &mut Vec<String>) -> ObserverRound {
    let program = ["/bin/ps", "/usr/bin/ps"].into_iter().find(|path| Path::new(path).exists());
    let Some(program) = program else {
        notes.push("ps not found: reading its files instead".to_owned());
        return process_files_observer();
    };
    Box::new(move || {
        let mut command = Command::new(program);
        command.arg("auxww").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        match command.status()?.success() {
            true => Ok(1),
            false => Err(io::Error::other(format!("{program} auxww failed"))),
        }
    })
}

/// Reads the files that `ps auxww` reads, without formatting.
fn process_files_observer() -> ObserverRound {
    let mut bytes = Vec::new();
    Box::new(move || {
        for id in process_experiment::process_ids()? {
            for name in ["stat", "status", "cmdline"] {
                // A process that exited meanwhile is skipped.
                let _ = read(&format!("/proc/{id}/{name}"), &mut bytes);
            }
        }
        Ok(1)
    })
}

#[cfg(test)]
mod tests {
    use super::super::record_experiment::ExampleMetrics;
    use super::*;

    #[test]
    fn names_are_unique_and_every_experiment_has_observers() {
        for (at, reader) in OBSERVERS.iter().enumerate() {
            assert!(OBSERVERS[..at].iter().all(|other| other.name != reader.name));
        }
        for experiment in Experiment::ALL {
            assert!(observers_of(*experiment).count() >= 2, "{experiment:?}");
        }
    }

    #[test]
    fn file_observers_complete_rounds() {
        let mut notes = Vec::new();
        for name in ["/proc/net/unix", "smaps_rollup", "maps", "status"] {
            let mut round = open_observer(name, std::process::id(), &mut notes).unwrap();
            assert_eq!(round().unwrap(), 1, "{name}");
        }
        let shown = ExampleMetrics::create().unwrap();
        for name in ["topdeck metrics", "topdeck attach"] {
            let mut round = open_observer(name, std::process::id(), &mut notes).unwrap();
            assert_eq!(round().unwrap(), 1, "{name}");
            // No process has this id.
            let reason = open_observer(name, u32::MAX, &mut notes)
                .and_then(|mut round| round())
                .unwrap_err();
            assert!(
                reason.to_string().contains("exports no metrics in shared memory"),
                "{name}: {reason}"
            );
        }
        drop(shown);
        assert_eq!(process_files_observer()().unwrap(), 1);
        assert_eq!(notes, Vec::<String>::new());
        assert!(open_observer("nobody", 1, &mut notes).is_err());
    }
}
