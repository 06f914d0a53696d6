//! Finds the processes of this host that have files of metrics, in containers too.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::identity::{self, Identity};
use crate::layout::header;
use crate::{folder, source, sweep};

/// A file of metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Where it is, as we see it.
    pub path: PathBuf,
    /// Who wrote it.
    pub format: Format,
    /// Which process's.
    pub identity: Identity,
    /// What became of the process.
    pub fate: Fate,
}

/// Who wrote a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// This crate.
    Topdeck,
    /// Performance Co-Pilot's library (MMV).
    Pcp,
    /// A Java virtual machine (hsperfdata).
    Jvm,
}

impl Format {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Format::Topdeck => "topdeck",
            Format::Pcp => "pcp",
            Format::Jvm => "jvm",
        }
    }
}

/// What became of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It runs, as our process of this id.
    Runs {
        /// Its id as we see it.
        pid: u32,
    },
    /// It ended as it meant to.
    Ended,
    /// It was killed, or died.
    Died,
    /// It became another program, or made a later file.
    Replaced,
    /// It is in another namespace, where we cannot see whether it runs.
    Unknown,
}

/// All files of metrics of this host that may be read, the latest first; and what could not be looked at.
pub fn processes() -> (Vec<Found>, Vec<crate::Error>) {
    let mut namespaces = Namespaces::look();
    let (mut found, mut problems) = (Vec::new(), Vec::new());
    let roots = std::iter::once(PathBuf::from("/")).chain(namespaces.roots());
    let mut seen = std::collections::HashSet::new();
    for path in roots.flat_map(|root| folder::all(&root)).flat_map(|folder| sweep::files(&folder).collect::<Vec<_>>()) {
        let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
        // A folder may be the same in several namespaces.
        if !seen.insert((metadata.dev(), metadata.ino())) {
            continue;
        }
        match source::header_of(&path) {
            Ok(words) => {
                let identity = identity_of(&words);
                let fate = namespaces.fate(&identity, &words);
                found.push((words[header::CREATED], Found { path, format: Format::Topdeck, identity, fate }));
            }
            // It was removed meanwhile.
            Err(crate::Error::Io { cause, .. }) if cause.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => problems.push(error),
        }
    }
    found.sort_by_key(|(created, _)| std::cmp::Reverse(*created));
    let mut running = std::collections::HashSet::new();
    let mut found: Vec<Found> = found.into_iter().map(|(_, found)| found).collect();
    for one in &mut found {
        if matches!(one.fate, Fate::Runs { .. }) && !running.insert(one.identity) {
            one.fate = Fate::Replaced;
        }
    }
    (found, problems)
}

/// The file at a path, wherever that is: a copy, or that of a process with a folder of its own.
pub fn found_at(path: &Path) -> crate::Result<Found> {
    let words = source::header_of(path)?;
    let identity = identity_of(&words);
    let fate = Namespaces::look().fate(&identity, &words);
    Ok(Found { path: path.to_owned(), format: Format::Topdeck, identity, fate })
}

pub(crate) fn identity_of(words: &[u64; header::WORDS]) -> Identity {
    Identity {
        boot: u128::from(words[header::BOOT]) | u128::from(words[header::BOOT + 1]) << 64,
        pid: words[header::PID] as u32,
        pid_namespace: words[header::PID_NAMESPACE],
        start_ticks: words[header::START_TICKS],
    }
}

/// The namespaces of this host's processes, as far as we may see them.
struct Namespaces {
    own: Identity,
    /// A process in each other mount namespace.
    mounts: HashMap<u64, u32>,
    /// Processes in other namespaces of process ids, and their ids as they see them; read when somebody asks.
    others: Option<HashMap<(u64, u32), u32>>,
    pids: Vec<u32>,
}

impl Namespaces {
    fn look() -> Namespaces {
        let own = Identity::own();
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids: Vec<u32> =
            entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        let mount = |pid: &str| fs::metadata(format!("/proc/{pid}/ns/mnt")).map(|found| found.ino());
        let here = mount("self").ok();
        let mut mounts = HashMap::new();
        for &pid in &pids {
            if let Ok(namespace) = mount(&pid.to_string())
                && Some(namespace) != here
            {
                mounts.entry(namespace).or_insert(pid);
            }
        }
        Namespaces { own, mounts, others: None, pids }
    }

    fn roots(&self) -> Vec<PathBuf> {
        self.mounts.values().map(|pid| Path::new("/proc").join(pid.to_string()).join("root")).collect()
    }

    fn fate(&mut self, of: &Identity, words: &[u64; header::WORDS]) -> Fate {
        use crate::layout::state;
        match words[header::STATE] {
            state::ENDED => return Fate::Ended,
            state::REPLACED => return Fate::Replaced,
            _ => {}
        }
        if of.boot != self.own.boot {
            return Fate::Died;
        }
        let pid = if of.pid_namespace == self.own.pid_namespace {
            Some(of.pid)
        } else {
            let others = self.others.get_or_insert_with(|| others(&self.pids));
            others.get(&(of.pid_namespace, of.pid)).copied()
        };
        match pid {
            Some(pid) if identity::start_ticks(&pid.to_string()) == Some(of.start_ticks) => {
                Fate::Runs { pid }
            }
            Some(_) => Fate::Died,
            None => Fate::Unknown,
        }
    }
}

fn others(pids: &[u32]) -> HashMap<(u64, u32), u32> {
    let inside = |pid: u32| {
        let namespace = identity::pid_namespace(&pid.to_string());
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
        let own: u32 = line.split_ascii_whitespace().next_back()?.parse().ok()?;
        Some(((namespace, own), pid))
    };
    pids.iter().filter_map(|&pid| inside(pid)).collect()
}
