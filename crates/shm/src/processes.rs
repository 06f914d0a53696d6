//! Discovery of processes with metrics files, including containers.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::files::{self, ForeignFile};
use crate::identity::{self, ProcessIdentity};
use crate::layout::header;
use crate::{attached_process, cleanup, folder, source};

/// Metrics file found on this host.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MetricsFile {
    /// Where it is, as we see it.
    pub path: PathBuf,
    /// Who wrote it.
    pub format: MetricsFormat,
    /// Which process's.
    pub identity: ProcessIdentity,
    /// What became of the process.
    pub state: ProcessState,
    /// Where to open it, if it is another's format.
    pub(crate) foreign_file: Option<ForeignFile>,
}

impl MetricsFile {
    /// Its process's id as we see it, or as it saw itself where we do not.
    pub fn pid(&self) -> u32 {
        match self.state {
            ProcessState::Running { pid } => pid,
            _ => self.identity.pid,
        }
    }
}

/// Format of a metrics file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MetricsFormat {
    /// This crate.
    Topdeck,
    /// Performance Co-Pilot's library (MMV).
    Pcp,
    /// A Java virtual machine (hsperfdata).
    Jvm,
}

impl MetricsFormat {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            MetricsFormat::Topdeck => "topdeck",
            MetricsFormat::Pcp => "pcp",
            MetricsFormat::Jvm => "jvm",
        }
    }
}

/// State of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessState {
    /// It runs, as our process of this id.
    Running {
        /// Its id as we see it.
        pid: u32,
    },
    /// It ended as it meant to.
    Exited,
    /// It was killed, or died.
    Terminated,
    /// It became another program, or made a later file.
    Replaced,
    /// It is in another namespace, of processes or of times, where we cannot see whether it runs;
    /// or may not be looked at.
    Unknown,
}

impl ProcessState {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            ProcessState::Running { .. } => "running",
            ProcessState::Exited => "exited",
            ProcessState::Terminated => "terminated",
            ProcessState::Replaced => "replaced",
            ProcessState::Unknown => "unknown",
        }
    }

    /// Whether it is known to write nothing more to its file.
    pub fn has_exited(self) -> bool {
        !matches!(self, ProcessState::Running { .. } | ProcessState::Unknown)
    }
}

/// All files of metrics of this host that may be read, the latest first; and what could not be
/// looked at.
pub fn list_metrics_files() -> (Vec<MetricsFile>, Vec<crate::Error>) {
    let mut namespaces = Namespaces::scan();
    let (mut found, mut problems) = (Vec::new(), Vec::new());
    let roots = namespaces.roots();
    let mut seen = HashSet::new();
    let folders = roots.iter().flat_map(|(root, _)| folder::metric_folders(root));
    for path in folders.flat_map(|folder| cleanup::metrics_files(&folder).collect::<Vec<_>>()) {
        let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
        // A folder may be the same in several namespaces.
        if !seen.insert((metadata.dev(), metadata.ino())) {
            continue;
        }
        // Opening a device may do something, and nobody knows what.
        if !metadata.is_file() {
            continue;
        }
        match source::read_header_at(&path) {
            Ok(words) => {
                let identity = ProcessIdentity::from_header(&words);
                let fate = namespaces.process_state(&identity, &words);
                // What a file says of its process anybody can write: it is believed of whoever owns
                // the file, and of root.
                if let ProcessState::Running { pid } = fate
                    && metadata.uid() != 0
                    && fs::metadata(format!("/proc/{pid}"))
                        .is_ok_and(|process| process.uid() != metadata.uid())
                {
                    let problem = format!(
                        "file owner {} differs from the owner of process {pid} named in it",
                        metadata.uid()
                    );
                    problems.push(crate::Error::Damaged { path, reason: problem });
                    continue;
                }
                found.push((
                    words[header::CREATED],
                    MetricsFile {
                        path,
                        format: MetricsFormat::Topdeck,
                        identity,
                        state: fate,
                        foreign_file: None,
                    },
                ));
            }
            // It was removed meanwhile.
            Err(crate::Error::Io { cause, .. }) if cause.kind() == std::io::ErrorKind::NotFound => {
            }
            Err(problem) => problems.push(problem),
        }
    }
    found.sort_by_key(|(created, _)| std::cmp::Reverse(*created));
    let mut running = HashSet::new();
    let mut found: Vec<MetricsFile> = found.into_iter().map(|(_, found)| found).collect();
    for one in &mut found {
        if matches!(one.state, ProcessState::Running { .. }) && !running.insert(one.identity) {
            one.state = ProcessState::Replaced;
        }
    }
    for (root, representative) in &roots {
        found.extend(namespaces.foreign_files(root, *representative, &mut seen));
    }
    (found, problems)
}

/// The file at a path, wherever that is: a copy, or that of a process with a folder of its own.
pub fn metrics_file_at(path: &Path) -> crate::Result<MetricsFile> {
    let words = source::read_header_at(path)?;
    let identity = ProcessIdentity::from_header(&words);
    let fate = Namespaces::scan().process_state(&identity, &words);
    Ok(MetricsFile {
        path: path.to_owned(),
        format: MetricsFormat::Topdeck,
        identity,
        state: fate,
        foreign_file: None,
    })
}

/// The namespaces of this host's processes, as far as we may see them.
struct Namespaces {
    own: ProcessIdentity,
    /// A process in each other mount namespace.
    mounts: HashMap<u64, u32>,
    /// Processes in other namespaces of process ids, and their ids as they see them; read when
    /// somebody asks.
    others: Option<HashMap<(u64, u32), u32>>,
    pids: Vec<u32>,
}

impl Namespaces {
    fn scan() -> Namespaces {
        let own = ProcessIdentity::current();
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
    fn foreign_files(
        &mut self,
        root: &Path,
        representative: Option<u32>,
        seen: &mut HashSet<(u64, u64)>,
    ) -> Vec<MetricsFile> {
        let pid_namespace = representative
            .map_or(self.own.pid_namespace, |pid| identity::pid_namespace(&pid.to_string()));
        let jvms = files::find_jvm_files(root).unwrap_or_default();
        // The variable is about our own root.
        let variable = representative.is_none().then(|| std::env::var_os("PCP_TMP_DIR")).flatten();
        let mmvs = files::find_mmv_files(root, variable.as_deref()).unwrap_or_default();
        let jvms = jvms.into_iter().map(|jvm| (MetricsFormat::Jvm, Some(jvm.pid), jvm.file));
        let mmvs = mmvs.into_iter().filter_map(|listed| {
            let pid = attached_process::pcp_pid(&listed)?;
            Some((MetricsFormat::Pcp, Some(pid), listed))
        });
        let mut found = Vec::new();
        for (format, pid, listed) in jvms.chain(mmvs.collect::<Vec<_>>()) {
            let Ok(metadata) = fs::symlink_metadata(&listed.path) else { continue };
            let Some(inside) = pid.filter(|_| seen.insert((metadata.dev(), metadata.ino()))) else {
                continue;
            };
            let mut identity =
                ProcessIdentity { boot: self.own.boot, pid: inside, pid_namespace, start_ticks: 0 };
            let pid = self.pid_of(&identity);
            let started = pid.and_then(|pid| identity::start_ticks(&pid.to_string()));
            identity.start_ticks = started.unwrap_or(0);
            let fate = match (pid, started) {
                (Some(pid), Some(ticks)) if may_have_written(pid, ticks, &metadata) => {
                    ProcessState::Running { pid }
                }
                (None, _) if pid_namespace != self.own.pid_namespace => ProcessState::Unknown,
                _ => ProcessState::Terminated,
            };
            found.push(MetricsFile {
                path: listed.path.clone(),
                format,
                identity,
                state: fate,
                foreign_file: Some(listed),
            });
        }
        found
    }

    /// The id that a process of any namespace has for us.
    fn pid_of(&mut self, of: &ProcessIdentity) -> Option<u32> {
        if of.pid_namespace == self.own.pid_namespace {
            return Some(of.pid);
        }
        let others = self.others.get_or_insert_with(|| pids_by_namespace(&self.pids));
        others.get(&(of.pid_namespace, of.pid)).copied()
    }

    fn process_state(
        &mut self,
        of: &ProcessIdentity,
        words: &[u64; header::WORDS],
    ) -> ProcessState {
        use crate::layout::state;
        match words[header::STATE] {
            state::ENDED => return ProcessState::Exited,
            state::REPLACED => return ProcessState::Replaced,
            _ => {}
        }
        if of.boot == 0 || self.own.boot == 0 {
            return ProcessState::Unknown;
        }
        if of.boot != self.own.boot {
            return ProcessState::Terminated;
        }
        let pid = self.pid_of(of);
        match pid.and_then(|pid| {
            Some((pid, identity::is_same_process(&pid.to_string(), of.start_ticks)?))
        }) {
            Some((pid, true)) => ProcessState::Running { pid },
            Some((_, false)) => ProcessState::Terminated,
            None => ProcessState::Unknown,
        }
    }
}

/// Whether a process can have written a file: it has the file's user, and began before the file
/// did. Ids come again.
fn may_have_written(pid: u32, start_ticks: u64, file: &fs::Metadata) -> bool {
    let is_theirs =
        fs::metadata(format!("/proc/{pid}")).is_ok_and(|process| process.uid() == file.uid());
    let ticks_per_second = rustix::param::clock_ticks_per_second().max(1);
    let boot = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let process_age = boot.tv_sec - (start_ticks / ticks_per_second) as i64;
    let file_age = file.modified().ok().and_then(|at| at.elapsed().ok()).unwrap_or_default();
    // Both are told to the second, and clocks are set now and then.
    is_theirs && process_age + 2 >= file_age.as_secs() as i64
}

fn pids_by_namespace(pids: &[u32]) -> HashMap<(u64, u32), u32> {
    let inside = |pid: u32| {
        let namespace = identity::pid_namespace(&pid.to_string());
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        Some(((namespace, files::namespace_pid(&status)?), pid))
    };
    pids.iter().filter_map(|&pid| inside(pid)).collect()
}
