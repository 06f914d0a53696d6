//! Joins the scope of a process or a cgroup: what stalls its processes stalls this one, too.
//! Reports properties that could not be inherited.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, getpriority_process, setpriority_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Scope of the measurement and what was inherited from it.
pub struct JoinedScope {
    /// Description of the scope.
    pub(super) scope: String,
    /// Inherited properties.
    pub(super) inherited: Vec<String>,
    /// Properties that could not be inherited, with reasons.
    pub(super) not_inherited: Vec<String>,
}

impl JoinedScope {
    /// This host.
    pub fn empty() -> JoinedScope {
        let (joined, not_joined) = (Vec::new(), Vec::new());
        JoinedScope { scope: "this host".to_owned(), inherited: joined, not_inherited: not_joined }
    }

    fn record(&mut self, what: String, done: Result<(), impl std::fmt::Display>) {
        match done {
            Ok(()) => self.inherited.push(what),
            Err(error) => self.not_inherited.push(format!("{what}: {error}")),
        }
    }

    /// Inherits CPUs, nice value and cgroup. A real-time scheduling policy is not inherited; it is
    /// reported.
    pub fn process(pid: Pid) -> io::Result<JoinedScope> {
        let of = |file: &str| format!("/proc/{pid}/{file}");
        let stat = fs::read_to_string(of("stat"))
            .map_err(|error| with_subject(error, &format!("process {pid}")))?;
        let (name, policy) = name_and_policy(&stat);
        let mut all =
            JoinedScope { scope: format!("process {pid} ({name})"), ..JoinedScope::empty() };
        // Cgroup first: it may change the allowed CPUs.
        match fs::read_to_string(of("cgroup")) {
            Ok(text) => {
                let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
                let self_cgroups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
                for (path, dir) in cgroup_dirs(&text, &mounts) {
                    if !self_cgroups.lines().any(|line| line.ends_with(&format!(":{path}"))) {
                        all.record(format!("cgroup {path}"), enter_cgroup(&dir));
                    }
                }
            }
            Err(error) => all.not_inherited.push(format!("cgroup: {error}")),
        }
        match sched_getaffinity(Some(pid)) {
            Ok(set) => {
                all.record(format!("processors {}", cpu_list(&set)), sched_setaffinity(None, &set))
            }
            Err(error) => all.not_inherited.push(format!("processors: {error}")),
        }
        match getpriority_process(Some(pid)) {
            Ok(nice) => all.record(format!("nice {nice}"), setpriority_process(None, nice)),
            Err(error) => all.not_inherited.push(format!("nice: {error}")),
        }
        if let Some(policy) = policy {
            all.not_inherited.push(format!(
                "scheduling policy {policy} is not inherited; start this command \
                               with chrt"
            ));
        }
        Ok(all)
    }

    /// Joins a cgroup: a directory, or a path below the cgroup mount points.
    pub fn cgroup(path: &str) -> io::Result<JoinedScope> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let is_cgroup = |dir: &PathBuf| dir.join("cgroup.procs").exists();
        let mut dirs: Vec<PathBuf> = vec![PathBuf::from(path)];
        dirs.retain(is_cgroup);
        if dirs.is_empty() {
            // As a path of /proc/PID/cgroup: the same path in each hierarchy with a CPU controller.
            let of_processors = cgroup_mounts(&mounts)
                .into_iter()
                .filter(|(options, _)| is_freezer(options.split(',')));
            dirs = of_processors
                .map(|(_, mount)| mount.join(path.trim_start_matches('/')))
                .filter(is_cgroup)
                .collect();
        }
        if dirs.is_empty() {
            return Err(io::Error::other(format!(
                "{path} is not a cgroup: it has no cgroup.procs; use a directory below \
                 /sys/fs/cgroup"
            )));
        }
        let mut all = JoinedScope { scope: format!("cgroup {path}"), ..JoinedScope::empty() };
        for dir in dirs {
            // Fails: otherwise nothing of this cgroup would be measured.
            enter_cgroup(&dir).map_err(|error| {
                with_subject(error, &format!("cannot join cgroup {}", dir.display()))
            })?;
            all.inherited.push(format!("cgroup {}", dir.display()));
        }
        Ok(all)
    }
}

fn with_subject(error: io::Error, subject: &str) -> io::Error {
    io::Error::new(error.kind(), format!("{subject}: {error}"))
}

/// Whether a hierarchy with these controllers can stop processes: version 2, and some of version 1.
fn is_freezer<'a>(mut controllers: impl Iterator<Item = &'a str>) -> bool {
    controllers.any(|one| ["", "cpu", "cpuset", "freezer"].contains(&one))
}

fn enter_cgroup(dir: &Path) -> Result<(), io::Error> {
    fs::write(dir.join("cgroup.procs"), std::process::id().to_string())
}

/// Program name, and scheduling policy if it is real-time or idle (proc_pid_stat(5), fields 2 and
/// 41).
fn name_and_policy(stat: &str) -> (&str, Option<&'static str>) {
    let (before, after) = stat.rsplit_once(')').unwrap_or((stat, ""));
    let name = before.split_once('(').map_or(before, |(_, name)| name);
    let policy = after.split_whitespace().nth(38).and_then(|field| field.parse::<u32>().ok());
    let policy = match policy {
        Some(1) => Some("SCHED_FIFO"),
        Some(2) => Some("SCHED_RR"),
        Some(3) => Some("SCHED_BATCH"),
        Some(5) => Some("SCHED_IDLE"),
        Some(6) => Some("SCHED_DEADLINE"),
        _ => None,
    };
    (name, policy)
}

/// Cgroup mount points: controllers (empty for version 2) and directory.
fn cgroup_mounts(mountinfo: &str) -> Vec<(String, PathBuf)> {
    let mount = |line: &str| {
        let (before, after) = line.split_once(" - ")?;
        let (dir, mut after) = (before.split(' ').nth(4)?, after.split(' '));
        let (kind, options) = (after.next()?, after.nth(1)?);
        match kind {
            "cgroup2" => Some((String::new(), PathBuf::from(dir))),
            "cgroup" => Some((options.to_owned(), PathBuf::from(dir))),
            _ => None,
        }
    };
    mountinfo.lines().filter_map(mount).collect()
}

/// Directories of `/proc/PID/cgroup`, each with its path there. Only hierarchies that can stop
/// processes.
fn cgroup_dirs(cgroup: &str, mountinfo: &str) -> Vec<(String, PathBuf)> {
    let mounts = cgroup_mounts(mountinfo);
    let dir = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        if !is_freezer(controllers.split(',')) {
            return None;
        }
        let is_meant = |options: &str| match controllers {
            "" => options.is_empty(),
            _ => controllers.split(',').all(|one| options.split(',').any(|other| other == one)),
        };
        let (_, mount) = mounts.iter().find(|(options, _)| is_meant(options))?;
        Some((path.to_owned(), mount.join(path.trim_start_matches('/'))))
    };
    cgroup.lines().filter_map(dir).collect()
}

/// `0-3,8`.
fn cpu_list(set: &CpuSet) -> String {
    let mut pieces: Vec<(usize, usize)> = Vec::new();
    for cpu in (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)) {
        match pieces.last_mut() {
            Some(last) if last.1 + 1 == cpu => last.1 = cpu,
            _ => pieces.push((cpu, cpu)),
        }
    }
    let piece = |(from, to): &(usize, usize)| match from == to {
        true => from.to_string(),
        false => format!("{from}-{to}"),
    };
    pieces.iter().map(piece).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_listed_as_ranges() {
        let mut set = CpuSet::new();
        [0, 1, 2, 5, 7, 8].into_iter().for_each(|cpu| set.set(cpu));
        assert_eq!(cpu_list(&set), "0-2,5,7-8");
    }

    #[test]
    fn process_name_may_contain_anything() {
        let rest = " S 1".to_owned() + &" 0".repeat(36) + " 2 0";
        assert_eq!(name_and_policy(&format!("12 (a) (b){rest}")), ("a) (b", Some("SCHED_RR")));
        assert_eq!(name_and_policy("12 (a) S"), ("a", None));
    }

    #[test]
    fn cgroup_v1_and_v2_are_found() {
        let mounts = "30 23 0:26 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid - cgroup cgroup \
                      rw,cpu,cpuacct\n31 23 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup \
                      rw,memory\n32 23 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 \
                      rw,nsdelegate\n33 23 0:29 / /proc rw - proc proc rw\n";
        let of = "5:memory:/m\n4:cpu,cpuacct:/a/b\n0::/x.slice\n";
        let dir = |path: &str| PathBuf::from("/sys/fs/cgroup").join(path);
        let expected = [
            ("/a/b".to_owned(), dir("cpu,cpuacct/a/b")),
            ("/x.slice".to_owned(), dir("unified/x.slice")),
        ];
        assert_eq!(cgroup_dirs(of, mounts), expected);
        assert_eq!(cgroup_dirs("0::/\nodd", mounts), [("/".to_owned(), dir("unified/"))]);
        assert_eq!(cgroup_dirs(of, ""), []);
    }
}
