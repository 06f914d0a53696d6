//! Who looks on: the one list of readers. A reader more is an entry more.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::process::{Command, Stdio};

use super::experiment::Experiment;
use super::{host, metrics, processes};

/// Goes round once or more, and says how often it did.
pub(crate) type Round = Box<dyn FnMut() -> io::Result<u64>>;

/// Somebody who looks on, in a process of its own.
pub(crate) struct Reader {
    /// The name, in tables and on the reader's command line.
    pub(crate) name: &'static str,
    /// Where it looks on.
    pub(crate) experiments: &'static [Experiment],
    /// What is to be said where it disturbs.
    pub(crate) aside: &'static str,
    /// Opens what it reads of a process, and tells what is not as the name says.
    open: fn(pid: u32, notes: &mut Vec<String>) -> io::Result<Round>,
}

const READERS: &[Reader] = &[
    Reader {
        name: "/proc/net/unix",
        experiments: &[Experiment::Sockets],
        aside: "topdeck never reads it",
        open: |_, _| Ok(file("/proc/net/unix".to_owned())),
    },
    Reader {
        name: "ps auxww",
        experiments: &[Experiment::Processes],
        aside: "topdeck starts no ps",
        open: |_, notes| Ok(ps(notes)),
    },
    Reader {
        name: "smaps_rollup",
        experiments: &[Experiment::Memory],
        aside: "topdeck never reads it",
        open: |pid, _| Ok(file(format!("/proc/{pid}/smaps_rollup"))),
    },
    Reader {
        name: "maps",
        experiments: &[Experiment::Memory],
        aside: "topdeck never reads it",
        open: |pid, _| Ok(file(format!("/proc/{pid}/maps"))),
    },
    Reader {
        name: "status",
        experiments: &[Experiment::Memory],
        aside: "topdeck reads no other process's",
        open: |pid, _| Ok(file(format!("/proc/{pid}/status"))),
    },
    Reader {
        name: "topdeck host",
        experiments: Experiment::ALL,
        aside: "at a thousand times its usual rate",
        open: |_, notes| host::open(notes),
    },
    Reader {
        name: "topdeck metrics",
        experiments: Experiment::ALL,
        aside: "it reads without a pause, and usually once a second",
        open: |pid, _| metrics::read(pid),
    },
    Reader {
        name: "topdeck attach",
        experiments: Experiment::ALL,
        aside: "it attaches without a pause, and usually once",
        open: |pid, _| metrics::attach(pid),
    },
];

/// The readers of an experiment, in the order of its table.
pub(crate) fn of(experiment: Experiment) -> impl Iterator<Item = &'static Reader> {
    READERS.iter().filter(move |reader| reader.experiments.contains(&experiment))
}

/// Opens the reader of a name.
pub(crate) fn open(name: &str, pid: u32, notes: &mut Vec<String>) -> io::Result<Round> {
    let reader = READERS.iter().find(|reader| reader.name == name);
    let reader = reader.ok_or_else(|| io::Error::other("there is no such reader"))?;
    (reader.open)(pid, notes)
}

/// Reads a file of the kernel to its end, opened anew each time as `cat` would.
fn file(path: String) -> Round {
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

fn ps(notes: &mut Vec<String>) -> Round {
    let program = ["/bin/ps", "/usr/bin/ps"].into_iter().find(|path| Path::new(path).exists());
    let Some(program) = program else {
        notes.push("there is no ps here: the files that it reads are read instead".to_owned());
        return processes_files();
    };
    Box::new(move || {
        let mut command = Command::new(program);
        command.arg("auxww").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        match command.status()?.success() {
            true => Ok(1),
            false => Err(io::Error::other(format!("{program} auxww has failed"))),
        }
    })
}

/// What `ps auxww` reads, without its arithmetic.
fn processes_files() -> Round {
    let mut bytes = Vec::new();
    Box::new(move || {
        for id in processes::ids()? {
            for name in ["stat", "status", "cmdline"] {
                // A process that has ended meanwhile is none.
                let _ = read(&format!("/proc/{id}/{name}"), &mut bytes);
            }
        }
        Ok(1)
    })
}

#[cfg(test)]
mod tests {
    use super::super::records::Shown;
    use super::*;

    #[test]
    fn names_are_unique_and_every_experiment_has_its_readers() {
        for (at, reader) in READERS.iter().enumerate() {
            assert!(READERS[..at].iter().all(|other| other.name != reader.name));
        }
        for experiment in Experiment::ALL {
            assert!(of(*experiment).count() >= 2, "{experiment:?}");
        }
    }

    #[test]
    fn readers_of_files_go_round() {
        let mut notes = Vec::new();
        for name in ["/proc/net/unix", "smaps_rollup", "maps", "status"] {
            let mut round = open(name, std::process::id(), &mut notes).unwrap();
            assert_eq!(round().unwrap(), 1, "{name}");
        }
        let shown = Shown::new().unwrap();
        for name in ["topdeck metrics", "topdeck attach"] {
            let mut round = open(name, std::process::id(), &mut notes).unwrap();
            assert_eq!(round().unwrap(), 1, "{name}");
            // Nobody has this number.
            let why = open(name, u32::MAX, &mut notes).and_then(|mut round| round()).unwrap_err();
            assert!(why.to_string().contains("shows nothing in shared memory"), "{name}: {why}");
        }
        drop(shown);
        assert_eq!(processes_files()().unwrap(), 1);
        assert_eq!(notes, Vec::<String>::new());
        assert!(open("nobody", 1, &mut notes).is_err());
    }
}
