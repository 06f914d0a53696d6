//! Discovery of processes with metrics files, including containers.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::files::{self, ForeignFile};
use crate::identity::{self, ProcessIdentity};
use crate::layout::header;
use crate::{attached_process, cleanup, metrics_dir, source};

/// Metrics file found on this host.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct MetricsFile {
    /// Path as seen from here.
    pub path: PathBuf,
    /// Format of the file.
    pub format: MetricsFormat,
    /// Process of the file.
    pub identity: ProcessIdentity,
    /// State of the process.
    pub state: ProcessState,
    /// Location of a file of another format.
    pub(crate) foreign_file: Option<ForeignFile>,
}

impl MetricsFile {
    /// PID as seen from here, or in the process' own namespace if it is not visible from here.
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
    /// topdeck's own format.
    Topdeck,
    /// MMV of Performance Co-Pilot (PCP).
    Pcp,
    /// hsperfdata of a Java virtual machine.
    Jvm,
}

impl MetricsFormat {
    /// Name of the format.
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
    /// The process runs.
    Running {
        /// PID as seen from here.
        pid: u32,
    },
    /// The process exited regularly.
    Exited,
    /// The process was killed or crashed.
    Terminated,
    /// The process called `exec`, or created a later file.
    Replaced,
    /// The process is in another PID or time namespace that is not visible from here, or access to
    /// it is denied.
    Unknown,
}

impl ProcessState {
    /// Name of the state.
    pub fn name(self) -> &'static str {
        match self {
            ProcessState::Running { .. } => "running",
            ProcessState::Exited => "exited",
            ProcessState::Terminated => "terminated",
            ProcessState::Replaced => "replaced",
            ProcessState::Unknown => "unknown",
        }
    }

    /// Whether the process is known to write no more to its file.
    pub fn has_ended(self) -> bool {
        !matches!(self, ProcessState::Running { .. } | ProcessState::Unknown)
    }
}

/// All readable metrics files of this host, latest first; and the errors of those that could not be
/// read.
pub fn list_metrics_files() -> (Vec<MetricsFile>, Vec<crate::Error>) {
    let mut namespaces = Namespaces::scan();
    let (mut found, mut problems) = (Vec::new(), Vec::new());
    let roots = namespaces.roots();
    let mut visited = HashSet::new();
    let dirs = roots.iter().flat_map(|(root, _)| metrics_dir::metric_dirs(root));
    for path in dirs.flat_map(|dir| cleanup::metrics_files(&dir).collect::<Vec<_>>()) {
        let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
        // Several namespaces may share a directory.
        if !visited.insert((metadata.dev(), metadata.ino())) {
            continue;
        }
        // Opening a device may have side effects.
        if !metadata.is_file() {
            continue;
        }
        match source::read_header_at(&path) {
            Ok(words) => {
                let identity = ProcessIdentity::from_header(&words);
                let state = namespaces.state_of_file(&path, &identity, &words);
                // The identity in a file can be forged: it is trusted if the file belongs to the
                // user of the process, or to root.
                if let ProcessState::Running { pid } = state
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
                        state,
                        foreign_file: None,
                    },
                ));
            }
            // The file was removed during the scan.
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
        found.extend(namespaces.foreign_files(root, *representative, &mut visited));
    }
    (found, problems)
}

/// The metrics file at any path: a copy, or the file of a process with another directory.
pub fn metrics_file_at(path: &Path) -> crate::Result<MetricsFile> {
    let words = source::read_header_at(path)?;
    let identity = ProcessIdentity::from_header(&words);
    let state = Namespaces::scan().state_of_file(path, &identity, &words);
    Ok(MetricsFile {
        path: path.to_owned(),
        format: MetricsFormat::Topdeck,
        identity,
        state,
        foreign_file: None,
    })
}

/// Namespaces of the processes of this host that are visible from here.
struct Namespaces {
    this_process: ProcessIdentity,
    /// One process in each other mount namespace.
    mounts: HashMap<u64, u32>,
    /// Processes in other PID namespaces by namespace and PID inside it; read at first use.
    others: Option<HashMap<(u64, u32), u32>>,
    pids: Vec<u32>,
}

impl Namespaces {
    fn scan() -> Namespaces {
        let this_process = ProcessIdentity::current();
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
        Namespaces { this_process, mounts, others: None, pids }
    }

    /// Roots of all mount namespaces, with one process in each of the other namespaces.
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
        visited: &mut HashSet<(u64, u64)>,
    ) -> Vec<MetricsFile> {
        let pid_namespace = representative.map_or(self.this_process.pid_namespace, |pid| {
            identity::pid_namespace(&pid.to_string())
        });
        let jvms = files::find_jvm_files(root).unwrap_or_default();
        // The environment variable concerns only this process' own root.
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
            let Some(inside) = pid.filter(|_| visited.insert((metadata.dev(), metadata.ino())))
            else {
                continue;
            };
            let mut identity = ProcessIdentity {
                boot: self.this_process.boot,
                pid: inside,
                pid_namespace,
                start_ticks: 0,
            };
            let pid = self.pid_of(&identity);
            let started = pid.and_then(|pid| identity::start_ticks(&pid.to_string()));
            identity.start_ticks = started.unwrap_or(0);
            let state = match (pid, started) {
                (Some(pid), Some(ticks)) if may_have_written(pid, ticks, &metadata) => {
                    ProcessState::Running { pid }
                }
                (None, _) if pid_namespace != self.this_process.pid_namespace => {
                    ProcessState::Unknown
                }
                _ => ProcessState::Terminated,
            };
            found.push(MetricsFile {
                path: listed.path.clone(),
                format,
                identity,
                state,
                foreign_file: Some(listed),
            });
        }
        found
    }

    /// PID, as seen from here, of a process in any namespace.
    fn pid_of(&mut self, of: &ProcessIdentity) -> Option<u32> {
        if of.pid_namespace == self.this_process.pid_namespace {
            return Some(of.pid);
        }
        let others = self.others.get_or_insert_with(|| pids_by_namespace(&self.pids));
        others.get(&(of.pid_namespace, of.pid)).copied()
    }

    /// State of the process of a file with that header. A process that exits regularly after its
    /// header was read, and before `/proc` is, looks as if it was killed: the header tells.
    fn state_of_file(
        &mut self,
        path: &Path,
        of: &ProcessIdentity,
        words: &[u64; header::WORDS],
    ) -> ProcessState {
        match self.process_state(of, words) {
            ProcessState::Terminated => match source::read_header_at(path) {
                Ok(later) => self.process_state(of, &later),
                Err(_) => ProcessState::Terminated,
            },
            state => state,
        }
    }

    fn process_state(
        &mut self,
        of: &ProcessIdentity,
        words: &[u64; header::WORDS],
    ) -> ProcessState {
        use crate::layout::state;
        match words[header::STATE] {
            state::EXITED => return ProcessState::Exited,
            state::REPLACED => return ProcessState::Replaced,
            _ => {}
        }
        if of.boot == 0 || self.this_process.boot == 0 {
            return ProcessState::Unknown;
        }
        if of.boot != self.this_process.boot {
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

/// Whether a process may have written a file: it has the file's user, and started before the file.
/// PIDs are reused.
fn may_have_written(pid: u32, start_ticks: u64, file: &fs::Metadata) -> bool {
    let is_theirs =
        fs::metadata(format!("/proc/{pid}")).is_ok_and(|process| process.uid() == file.uid());
    let ticks_per_second = rustix::param::clock_ticks_per_second().max(1);
    let boot = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let process_age = boot.tv_sec - (start_ticks / ticks_per_second) as i64;
    let file_age = file.modified().ok().and_then(|at| at.elapsed().ok()).unwrap_or_default();
    // Both times have a resolution of a second, and the wall clock may be set.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::writer::MetricsFileWriter;

    /// A user saw a program that had exited regularly as terminated.
    #[test]
    fn process_that_exits_between_two_looks_has_exited() {
        // Without tmpfs there is nothing to record into.
        let Ok(writer) = MetricsFileWriter::create(None) else { return };
        let path = writer.path();
        let before = source::read_header_at(path).unwrap();
        // The PID belongs to another process by now.
        let own = ProcessIdentity::from_header(&before);
        let gone = ProcessIdentity { start_ticks: own.start_ticks + 1, ..own };
        let mut namespaces = Namespaces::scan();
        let mut state = || namespaces.state_of_file(path, &gone, &before);
        assert_eq!(state(), ProcessState::Terminated);
        writer.mark_exited();
        assert_eq!(state(), ProcessState::Exited);
        fs::remove_file(path).unwrap();
    }
}
