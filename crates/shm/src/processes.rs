//! Finds the processes of this host that have files of metrics, in containers too.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::files::{self, Listed};
use crate::identity::{self, Identity};
use crate::layout::header;
use crate::{attached, folder, source, sweep};

/// A file of metrics.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Found {
    /// Where it is, as we see it.
    pub path: PathBuf,
    /// Who wrote it.
    pub format: Format,
    /// Which process's.
    pub identity: Identity,
    /// What became of the process.
    pub fate: Fate,
    /// Where to open it, if it is another's format.
    pub(crate) listed: Option<Listed>,
}

impl Found {
    /// Its process's id as we see it, or as it saw itself where we do not.
    pub fn pid(&self) -> u32 {
        match self.fate {
            Fate::Runs { pid } => pid,
            _ => self.identity.pid,
        }
    }
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
    /// It is in another namespace, of processes or of times, where we cannot see whether it runs; or may not be looked at.
    Unknown,
}

impl Fate {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Fate::Runs { .. } => "runs",
            Fate::Ended => "ended",
            Fate::Died => "died",
            Fate::Replaced => "replaced",
            Fate::Unknown => "unknown",
        }
    }

    /// Whether it is known to write nothing more to its file.
    pub fn is_gone(self) -> bool {
        !matches!(self, Fate::Runs { .. } | Fate::Unknown)
    }
}

/// All files of metrics of this host that may be read, the latest first; and what could not be looked at.
pub fn processes() -> (Vec<Found>, Vec<crate::Error>) {
    let mut namespaces = Namespaces::look();
    let (mut found, mut problems) = (Vec::new(), Vec::new());
    let roots = namespaces.roots();
    let mut seen = HashSet::new();
    let folders = roots.iter().flat_map(|(root, _)| folder::all(root));
    for path in folders.flat_map(|folder| sweep::files(&folder).collect::<Vec<_>>()) {
        let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
        // A folder may be the same in several namespaces.
        if !seen.insert((metadata.dev(), metadata.ino())) {
            continue;
        }
        // Opening a device may do something, and nobody knows what.
        if !metadata.is_file() {
            continue;
        }
        match source::header_of(&path) {
            Ok(words) => {
                let identity = Identity::of(&words);
                let fate = namespaces.fate(&identity, &words);
                // What a file says of its process anybody can write: it is believed of whoever owns the file, and of root.
                if let Fate::Runs { pid } = fate
                    && metadata.uid() != 0
                    && fs::metadata(format!("/proc/{pid}"))
                        .is_ok_and(|process| process.uid() != metadata.uid())
                {
                    let problem = format!(
                        "it belongs to user {}, and process {pid}, which it says it is of, to another",
                        metadata.uid()
                    );
                    problems.push(crate::Error::Damaged { path, problem });
                    continue;
                }
                found.push((
                    words[header::CREATED],
                    Found { path, format: Format::Topdeck, identity, fate, listed: None },
                ));
            }
            // It was removed meanwhile.
            Err(crate::Error::Io { cause, .. }) if cause.kind() == std::io::ErrorKind::NotFound => {
            }
            Err(error) => problems.push(error),
        }
    }
    found.sort_by_key(|(created, _)| std::cmp::Reverse(*created));
    let mut running = HashSet::new();
    let mut found: Vec<Found> = found.into_iter().map(|(_, found)| found).collect();
    for one in &mut found {
        if matches!(one.fate, Fate::Runs { .. }) && !running.insert(one.identity) {
            one.fate = Fate::Replaced;
        }
    }
    for (root, representative) in &roots {
        found.extend(namespaces.foreign(root, *representative, &mut seen));
    }
    (found, problems)
}

/// The file at a path, wherever that is: a copy, or that of a process with a folder of its own.
pub fn found_at(path: &Path) -> crate::Result<Found> {
    let words = source::header_of(path)?;
    let identity = Identity::of(&words);
    let fate = Namespaces::look().fate(&identity, &words);
    Ok(Found { path: path.to_owned(), format: Format::Topdeck, identity, fate, listed: None })
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
        let mount =
            |pid: &str| fs::metadata(format!("/proc/{pid}/ns/mnt")).map(|found| found.ino());
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

    /// The roots of all mount namespaces, with a process in each of those that are not ours.
    fn roots(&self) -> Vec<(PathBuf, Option<u32>)> {
        let root_of =
            |pid: &u32| (Path::new("/proc").join(pid.to_string()).join("root"), Some(*pid));
        std::iter::once((PathBuf::from("/"), None))
            .chain(self.mounts.values().map(root_of))
            .collect()
    }

    /// Files of other formats below a root.
    fn foreign(
        &mut self,
        root: &Path,
        representative: Option<u32>,
        seen: &mut HashSet<(u64, u64)>,
    ) -> Vec<Found> {
        let pid_namespace = representative
            .map_or(self.own.pid_namespace, |pid| identity::pid_namespace(&pid.to_string()));
        let jvms = files::jvms(root).unwrap_or_default();
        // The variable is about our own root.
        let variable = representative.is_none().then(|| std::env::var_os("PCP_TMP_DIR")).flatten();
        let mmvs = files::mmvs(root, variable.as_deref()).unwrap_or_default();
        let jvms = jvms.into_iter().map(|jvm| (Format::Jvm, Some(jvm.pid), jvm.file));
        let mmvs = mmvs.into_iter().filter_map(|listed| {
            let pid = attached::pcp_pid(&listed)?;
            Some((Format::Pcp, Some(pid), listed))
        });
        let mut found = Vec::new();
        for (format, pid, listed) in jvms.chain(mmvs.collect::<Vec<_>>()) {
            let Ok(metadata) = fs::symlink_metadata(&listed.path) else { continue };
            let Some(inside) = pid.filter(|_| seen.insert((metadata.dev(), metadata.ino()))) else {
                continue;
            };
            let mut identity =
                Identity { boot: self.own.boot, pid: inside, pid_namespace, start_ticks: 0 };
            let pid = self.pid_of(&identity);
            let started = pid.and_then(|pid| identity::start_ticks(&pid.to_string()));
            identity.start_ticks = started.unwrap_or(0);
            let fate = match (pid, started) {
                (Some(pid), Some(ticks)) if wrote(pid, ticks, &metadata) => Fate::Runs { pid },
                (None, _) if pid_namespace != self.own.pid_namespace => Fate::Unknown,
                _ => Fate::Died,
            };
            found.push(Found {
                path: listed.path.clone(),
                format,
                identity,
                fate,
                listed: Some(listed),
            });
        }
        found
    }

    /// The id that a process of any namespace has for us.
    fn pid_of(&mut self, of: &Identity) -> Option<u32> {
        if of.pid_namespace == self.own.pid_namespace {
            return Some(of.pid);
        }
        let others = self.others.get_or_insert_with(|| others(&self.pids));
        others.get(&(of.pid_namespace, of.pid)).copied()
    }

    fn fate(&mut self, of: &Identity, words: &[u64; header::WORDS]) -> Fate {
        use crate::layout::state;
        match words[header::STATE] {
            state::ENDED => return Fate::Ended,
            state::REPLACED => return Fate::Replaced,
            _ => {}
        }
        if of.boot == 0 || self.own.boot == 0 {
            return Fate::Unknown;
        }
        if of.boot != self.own.boot {
            return Fate::Died;
        }
        let pid = self.pid_of(of);
        match pid.and_then(|pid| Some((pid, identity::is_still(&pid.to_string(), of.start_ticks)?)))
        {
            Some((pid, true)) => Fate::Runs { pid },
            Some((_, false)) => Fate::Died,
            None => Fate::Unknown,
        }
    }
}

/// Whether a process can have written a file: it has the file's user, and began before the file did. Ids come again.
fn wrote(pid: u32, start_ticks: u64, file: &fs::Metadata) -> bool {
    let is_theirs =
        fs::metadata(format!("/proc/{pid}")).is_ok_and(|process| process.uid() == file.uid());
    let ticks_per_second = rustix::param::clock_ticks_per_second().max(1);
    let boot = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let process_age = boot.tv_sec - (start_ticks / ticks_per_second) as i64;
    let file_age = file.modified().ok().and_then(|at| at.elapsed().ok()).unwrap_or_default();
    // Both are told to the second, and clocks are set now and then.
    is_theirs && process_age + 2 >= file_age.as_secs() as i64
}

fn others(pids: &[u32]) -> HashMap<(u64, u32), u32> {
    let inside = |pid: u32| {
        let namespace = identity::pid_namespace(&pid.to_string());
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        Some(((namespace, files::pid_inside(&status)?), pid))
    };
    pids.iter().filter_map(|&pid| inside(pid)).collect()
}
