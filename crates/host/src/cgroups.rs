//! Resources of systemd units and containers, from the files of cgroup version 2.
//!
//! The tree is walked at each scrape, because units and containers come and go. A unit or container
//! includes everything below it. Other cgroups are entered only if systemd or a container runtime
//! makes what is in them: a guest or a user gives any names to those below its own. Of two cgroups
//! with the same labels, the first one found is reported for as long as it exists: their counters
//! cannot be told apart.
//!
//! Source: kernel, Documentation/admin-guide/cgroup-v2.rst.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::DirEntryExt as _;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::cgroup_io::{CgroupIo, StackedDevices};
use crate::cgroup_owner::{
    CgroupOwner, CgroupOwners, NAMES_MAX, OwnerLabels, is_parent, is_sandbox, unit_labels,
};
use crate::error::Result;
use crate::metric::{MetricDefinition, MetricSink, RowReporter, counter, gauge};
use crate::source::{HostSource, Note, Opening, SourceSettings};

/// Maximum number of units and containers that are reported.
const REPORTED_MAX: usize = 256;
/// Limits of the walk: cgroups, cgroups of a parent, depth.
const VISITED_MAX: usize = NAMES_MAX;
const OF_PARENT_MAX: usize = 1_024;
const DEPTH_MAX: usize = 8;
/// Size limit of a file; `io.stat` has a line per disk.
const FILE_BYTES_MAX: u64 = 64 << 10;

const CPU: MetricDefinition = counter(
    "host_cgroup_cpu_seconds_total",
    "s",
    "CPU time of a unit or container by `mode`: user, system (`cpu.stat`)",
);
const THROTTLED: MetricDefinition = counter(
    "host_cgroup_cpu_throttled_seconds_total",
    "s",
    "time that a unit or container with a CPU quota was throttled (`cpu.stat`)",
);
const MEMORY: MetricDefinition = gauge(
    "host_cgroup_memory_bytes",
    "B",
    "memory of a unit or container, with its page cache (`memory.current`)",
);
const MEMORY_LIMIT: MetricDefinition = gauge(
    "host_cgroup_memory_limit_bytes",
    "B",
    "memory limit of a unit or container that has one (`memory.max`)",
);
const OOM_KILLS: MetricDefinition = counter(
    "host_cgroup_oom_kills_total",
    "",
    "processes of a unit or container killed for lack of memory (`memory.events`)",
);
const IO: MetricDefinition = counter(
    "host_cgroup_io_bytes_total",
    "B",
    "bytes of block I/O of a unit or container by `operation`: read, write (`io.stat`)",
);
const TASKS: MetricDefinition =
    gauge("host_cgroup_tasks", "", "processes and threads of a unit or container (`pids.current`)");
const PRESSURE: MetricDefinition = counter(
    "host_cgroup_pressure_seconds_total",
    "s",
    "PSI stall time of a unit or container by `resource` (cpu, io, memory), type some",
);

/// All metrics of this file, compared with docs/host.md.
#[cfg(test)]
pub(crate) const METRICS: &[MetricDefinition] =
    &[CPU, THROTTLED, MEMORY, MEMORY_LIMIT, OOM_KILLS, IO, TASKS, PRESSURE];

/// Settings of cgroups.
#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CgroupSettings {
    /// CPU, memory, I/O and stalls of systemd units and containers; cgroup version 2: true.
    cgroups: bool,
}

impl Default for CgroupSettings {
    fn default() -> CgroupSettings {
        CgroupSettings { cgroups: true }
    }
}

impl SourceSettings for CgroupSettings {
    const KEYS: &'static [&'static str] = &["cgroups"];

    fn is_enabled(&self) -> bool {
        self.cgroups
    }

    fn open(&self, _opening: &mut Opening<'_>) -> Result<Option<Box<dyn HostSource>>> {
        // Version 1 has no such file, or has it in another directory without controllers.
        let is_there = self.cgroups && Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
        Ok(is_there.then(|| -> Box<dyn HostSource> { Box::new(Cgroups::below(Path::new("/"))) }))
    }
}

/// The tree of cgroups.
#[derive(Debug)]
struct Cgroups {
    tree: PathBuf,
    owners: CgroupOwners,
    stacks: StackedDevices,
    reported: HashMap<PathBuf, ReportedCgroup>,
    has_reached_limit: bool,
    /// Whether the limit was noted.
    is_noted: bool,
}

/// A cgroup that is reported for as long as it exists.
#[derive(Debug)]
struct ReportedCgroup {
    labels: OwnerLabels,
    /// A unit that is started again has another cgroup.
    inode: u64,
    io: CgroupIo,
}

/// Cgroup of a unit or container.
#[derive(Debug)]
struct FoundCgroup {
    path: PathBuf,
    name: String,
    inode: u64,
    /// Number of those before it in its parent.
    rank: usize,
}

impl HostSource for Cgroups {
    fn read(&mut self, report: &mut RowReporter<'_>, _began: i64) -> u64 {
        self.read_all(report);
        0
    }

    fn degradation(&mut self) -> Option<Note> {
        let is_new = self.has_reached_limit && !std::mem::replace(&mut self.is_noted, true);
        is_new.then(|| Note {
            collector: "cgroups",
            text: format!("more than {REPORTED_MAX} units and containers: others are left out"),
        })
    }
}

impl Cgroups {
    /// Of the host whose files are below a root.
    fn below(root: &Path) -> Cgroups {
        Cgroups {
            tree: root.join("sys/fs/cgroup"),
            owners: CgroupOwners::below(root),
            stacks: StackedDevices::below(root),
            reported: HashMap::new(),
            has_reached_limit: false,
            is_noted: false,
        }
    }

    fn read_all(&mut self, sink: &mut dyn MetricSink) {
        let found = self.find();
        let paths: HashSet<&PathBuf> = found.iter().map(|one| &one.path).collect();
        self.reported.retain(|path, _| paths.contains(path));
        self.stacks.clear();
        let mut ids = HashSet::new();
        let mut taken: HashSet<OwnerLabels> =
            self.reported.values().map(|known| known.labels.clone()).collect();
        // Containers that are reported once they have a name.
        let mut unnamed = 0;
        for FoundCgroup { path, name, inode, .. } in &found {
            let owner = CgroupOwner::of_path(name);
            if let Some(CgroupOwner::Container(id)) = owner {
                ids.insert(id);
            }
            if !self.reported.contains_key(path) {
                if self.reported.len() + unnamed >= REPORTED_MAX {
                    self.has_reached_limit = true;
                    continue;
                }
                let labels = match owner {
                    Some(CgroupOwner::Unit(name)) => unit_labels(name),
                    Some(CgroupOwner::Container(id)) => match self.owners.settled(id) {
                        Some(labels) => labels,
                        None => {
                            unnamed += 1;
                            continue;
                        }
                    },
                    _ => continue,
                };
                if is_sandbox(&labels) || !taken.insert(labels.clone()) {
                    continue;
                }
                let new = ReportedCgroup { labels, inode: *inode, io: CgroupIo::default() };
                self.reported.insert(path.clone(), new);
            }
            if let Some(known) = self.reported.get_mut(path) {
                if std::mem::replace(&mut known.inode, *inode) != *inode {
                    known.io = CgroupIo::default();
                }
                report(path, known, &mut self.stacks, sink);
            }
        }
        self.owners.end_walk(&ids);
    }

    /// Cgroups of units and containers; nothing below them. The first ones of all parents are
    /// before the second ones, so that a parent with many does not displace those of others.
    fn find(&mut self) -> Vec<FoundCgroup> {
        let mut found = Vec::new();
        let mut open = VecDeque::from([(self.tree.clone(), 0)]);
        let mut visited = 0;
        while let Some((dir, depth)) = open.pop_front() {
            let mut children = children(&dir);
            let left = OF_PARENT_MAX.min(VISITED_MAX - visited);
            self.has_reached_limit |= children.len() > left;
            children.truncate(left);
            visited += children.len();
            let mut rank = 0;
            for (name, inode) in children {
                let path = dir.join(&name);
                if is_owner(&dir, &name) {
                    found.push(FoundCgroup { path, name, inode, rank });
                    rank += 1;
                } else if depth < DEPTH_MAX {
                    open.push_back((path, depth + 1));
                }
            }
        }
        found.sort_by_key(|one| one.rank);
        found
    }
}

/// Names and inodes of owners and of parents in a cgroup, sorted.
fn children(dir: &Path) -> Vec<(String, u64)> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let dirs = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let mut children: Vec<(String, u64)> = dirs
        .filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.ino())))
        .filter(|(name, _)| CgroupOwner::of_path(name).is_some() || is_parent(name))
        .collect();
    children.sort_unstable();
    children
}

/// Whether a child of a cgroup is that of a unit or container. A pod of Podman without systemd has
/// the name of a container: `libpod_parent/ID/libpod-ID`.
fn is_owner(dir: &Path, name: &str) -> bool {
    let is_pod = dir.ends_with("libpod_parent") && !name.starts_with("libpod-");
    !is_pod && CgroupOwner::of_path(name).is_some()
}

/// Reports a cgroup. A file that does not exist is left out: its controller is not enabled, or the
/// cgroup has just been removed.
fn report(
    dir: &Path,
    known: &mut ReportedCgroup,
    stacks: &mut StackedDevices,
    sink: &mut dyn MetricSink,
) {
    let labels: Vec<(&str, &str)> =
        known.labels.iter().map(|(name, value)| (&**name, &**value)).collect();
    let with = |name, value| [&labels[..], &[(name, value)]].concat();
    let mut text = String::new();
    if read(dir, "cpu.stat", &mut text) {
        let seconds = |key| field(&text, key).map(|microseconds| microseconds / 1e6);
        for (mode, key) in [("user", "user_usec"), ("system", "system_usec")] {
            if let Some(seconds) = seconds(key) {
                sink.record(&CPU, &with("mode", mode), seconds);
            }
        }
        // Without a quota there are no periods.
        if field(&text, "nr_periods").is_some_and(|periods| periods > 0.0)
            && let Some(seconds) = seconds("throttled_usec")
        {
            sink.record(&THROTTLED, &labels, seconds);
        }
    }
    for (metric, file) in
        [(MEMORY, "memory.current"), (MEMORY_LIMIT, "memory.max"), (TASKS, "pids.current")]
    {
        // Without a limit, the file has the word `max`.
        if read(dir, file, &mut text)
            && let Ok(number) = text.trim().parse::<u64>()
        {
            sink.record(&metric, &labels, number as f64);
        }
    }
    if read(dir, "memory.events", &mut text)
        && let Some(kills) = field(&text, "oom_kill")
    {
        sink.record(&OOM_KILLS, &labels, kills);
    }
    if read(dir, "io.stat", &mut text) {
        let [read, written] = known.io.add(&text, stacks);
        for (operation, bytes) in [("read", read), ("write", written)] {
            sink.record(&IO, &with("operation", operation), bytes as f64);
        }
    }
    for (resource, file) in
        [("cpu", "cpu.pressure"), ("io", "io.pressure"), ("memory", "memory.pressure")]
    {
        let total = read(dir, file, &mut text)
            .then(|| {
                text.lines().find_map(|line| line.strip_prefix("some ")?.rsplit_once("total="))
            })
            .flatten();
        if let Some(microseconds) = total.and_then(|(_, total)| total.parse::<f64>().ok()) {
            sink.record(&PRESSURE, &with("resource", resource), microseconds / 1e6);
        }
    }
}

/// Reads a file into a buffer; returns whether it could be read.
fn read(dir: &Path, file: &str, text: &mut String) -> bool {
    text.clear();
    let opened = File::open(dir.join(file));
    opened.is_ok_and(|opened| opened.take(FILE_BYTES_MAX).read_to_string(text).is_ok())
}

/// Number of a line `key number`.
fn field(text: &str, key: &str) -> Option<f64> {
    let number = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))?;
    number.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup_owner::tests::{CgroupFiles, id};
    use crate::metric::RecordedMetrics;

    fn cgroups(root: &CgroupFiles) -> Cgroups {
        Cgroups::below(&root.0)
    }

    /// Writes the files of a cgroup.
    fn write(root: &CgroupFiles, path: &str, user_usec: u64) {
        let dir = format!("sys/fs/cgroup/{path}");
        for (file, text) in [
            (
                "cpu.stat",
                &*format!(
                    "usage_usec 9\nuser_usec {user_usec}\nsystem_usec 250000\nnr_periods 4\n\
                     nr_throttled 2\nthrottled_usec 1500000\n"
                ),
            ),
            ("memory.current", "4096\n"),
            ("memory.max", "max\n"),
            ("memory.events", "low 0\noom 3\noom_kill 2\n"),
            ("io.stat", "8:0 rbytes=10 wbytes=20 rios=1\n8:16 rbytes=5 wbytes=1 rios=1\n"),
            ("pids.current", "7\n"),
            ("cpu.pressure", "some avg10=0.00 total=500000\nfull avg10=0.00 total=1\n"),
        ] {
            root.write(&format!("{dir}/{file}"), text);
        }
    }

    #[test]
    fn units_and_containers_are_reported_with_their_names() {
        let root = CgroupFiles::new();
        let container = id("ab");
        write(&root, "system.slice/nginx.service", 1_500_000);
        write(&root, "system.slice/nginx.service/inner.service", 9);
        write(&root, &format!("docker/{container}"), 2_000_000);
        root.write(
            &format!("var/lib/docker/containers/{container}/config.v2.json"),
            "{\"Name\":\"/web\"}",
        );
        root.write("sys/fs/cgroup/user.slice/user-7.slice/session-1.scope/pids.current", "3\n");
        root.write("sys/fs/cgroup/user.slice/user-7.slice/pids.current", "4\n");
        root.write("sys/fs/cgroup/system.slice/b.service/memory.max", "8192\n");
        let mut taken = RecordedMetrics::default();
        cgroups(&root).read_all(&mut taken);
        for (series, expected) in [
            ("host_cgroup_cpu_seconds_total{unit=nginx.service,mode=user}", 1.5),
            ("host_cgroup_cpu_seconds_total{unit=nginx.service,mode=system}", 0.25),
            ("host_cgroup_cpu_throttled_seconds_total{unit=nginx.service}", 1.5),
            ("host_cgroup_memory_bytes{unit=nginx.service}", 4096.0),
            ("host_cgroup_oom_kills_total{unit=nginx.service}", 2.0),
            ("host_cgroup_io_bytes_total{unit=nginx.service,operation=read}", 15.0),
            ("host_cgroup_io_bytes_total{unit=nginx.service,operation=write}", 21.0),
            ("host_cgroup_tasks{unit=nginx.service}", 7.0),
            ("host_cgroup_pressure_seconds_total{unit=nginx.service,resource=cpu}", 0.5),
            ("host_cgroup_cpu_seconds_total{container=web,mode=user}", 2.0),
            ("host_cgroup_tasks{unit=user-7.slice}", 4.0),
            ("host_cgroup_memory_limit_bytes{unit=b.service}", 8192.0),
        ] {
            assert_eq!(taken.value(series), Some(expected), "{series} {taken:?}");
        }
        // 9 of each of two, 1 of each of two.
        assert_eq!(taken.len(), 20, "{taken:?}");
    }

    #[test]
    fn equal_labels_stay_with_one_cgroup() {
        let root = CgroupFiles::new();
        let [old, new] = [id("0a"), id("0b")];
        for (id, user_usec) in [(&old, 1_000_000), (&new, 2_000_000)] {
            write(&root, &format!("docker/{id}"), user_usec);
            let file = format!("var/lib/docker/containers/{id}/config.v2.json");
            root.write(&file, "{\"Name\":\"/web\"}");
        }
        let series = "host_cgroup_cpu_seconds_total{container=web,mode=user}";
        let mut cgroups = cgroups(&root);
        let mut read = || {
            let mut taken = RecordedMetrics::default();
            cgroups.read_all(&mut taken);
            taken.value(series).unwrap()
        };
        let first = read();
        assert_eq!([read(), read()], [first; 2]);
        // The other one follows when it is gone.
        let gone = if first == 1.0 { &old } else { &new };
        fs::remove_dir_all(root.0.join(format!("sys/fs/cgroup/docker/{gone}"))).unwrap();
        assert_eq!(read(), 3.0 - first);
    }

    #[test]
    fn the_number_of_units_is_bounded_and_noted_once() {
        let root = CgroupFiles::new();
        for number in 0..REPORTED_MAX + 5 {
            root.write(&format!("sys/fs/cgroup/a.slice/{number}.service/pids.current"), "1\n");
        }
        let mut cgroups = cgroups(&root);
        let mut taken = RecordedMetrics::default();
        cgroups.read_all(&mut taken);
        assert_eq!(taken.len(), REPORTED_MAX);
        assert!(cgroups.degradation().unwrap().text.contains("more than 256 units"));
        assert_eq!(cgroups.degradation(), None);
        assert_eq!(cgroups.find().len(), REPORTED_MAX + 5);
        // Nothing of this is an error.
        let missing = Cgroups::below(&root.0.join("none")).find();
        assert!(missing.is_empty());
    }

    /// What is reported as tasks.
    fn tasks(cgroups: &mut Cgroups, labels: &str) -> Option<f64> {
        let mut taken = RecordedMetrics::default();
        cgroups.read_all(&mut taken);
        taken.value(&format!("host_cgroup_tasks{{{labels}}}"))
    }

    #[test]
    fn io_of_a_unit_does_not_fall_when_a_disk_goes_away() {
        let root = CgroupFiles::new();
        let file = "sys/fs/cgroup/a.slice/b.service/io.stat";
        root.write("sys/dev/block/253:0/slaves/sda2/size", "1\n");
        let mut cgroups = cgroups(&root);
        let mut read = |text: &str| {
            root.write(file, text);
            let mut taken = RecordedMetrics::default();
            cgroups.read_all(&mut taken);
            taken.value("host_cgroup_io_bytes_total{unit=b.service,operation=read}").unwrap()
        };
        let both = "8:0 rbytes=10 wbytes=1\n8:16 rbytes=500 wbytes=1\n253:0 rbytes=10 wbytes=1\n";
        assert_eq!(read(both), 510.0);
        assert_eq!(read("8:0 rbytes=11 wbytes=1\n253:0 rbytes=11 wbytes=1\n"), 511.0);
    }

    #[test]
    fn what_guests_and_users_make_is_not_reported() {
        let root = CgroupFiles::new();
        let [container, pod, inner] = ["ab", "cd", "ef"].map(id);
        for path in [
            "lxc.payload.guest/system.slice/nginx.service",
            "lxc.monitor.guest/nginx.service",
            "lxc/guest/system.slice/nginx.service",
            "system.slice/run-u7.service/x.slice/nginx.service",
            "user.slice/user-7.slice/user@7.service/app.slice/nginx.service",
            &format!("lxc.payload.guest/docker/{container}"),
            &format!("machine.slice/libpod-conmon-{container}.scope/nginx.service"),
            // Those of the host:
            "system.slice/nginx.service",
            &format!("kubepods/burstable/pod7/{container}"),
            &format!("libpod_parent/{pod}/libpod-{inner}"),
        ] {
            fs::create_dir_all(root.0.join("sys/fs/cgroup").join(path)).unwrap();
        }
        let found = cgroups(&root).find();
        let mut names: Vec<&str> = found.iter().map(|one| &*one.name).collect();
        names.sort_unstable();
        let libpod = format!("libpod-{inner}");
        assert_eq!(names, [&*container, &libpod, "nginx.service", "user-7.slice"]);
    }

    #[test]
    fn a_parent_with_many_does_not_displace_those_of_others() {
        let root = CgroupFiles::new();
        let tree = root.0.join("sys/fs/cgroup");
        for number in 0..OF_PARENT_MAX + 5 {
            fs::create_dir_all(tree.join(format!("a.slice/{number}.service"))).unwrap();
        }
        root.write("sys/fs/cgroup/z.slice/z.slice/z.service/pids.current", "1\n");
        let mut cgroups = cgroups(&root);
        assert_eq!(tasks(&mut cgroups, "unit=z.service"), Some(1.0));
        assert!(cgroups.degradation().is_some());
        assert_eq!(cgroups.find().len(), OF_PARENT_MAX + 1);
    }

    #[test]
    fn a_container_is_reported_when_it_has_its_name() {
        let root = CgroupFiles::new();
        let [late, none, sandbox] = ["ab", "cd", "ef"].map(id);
        for id in [&late, &none, &sandbox] {
            root.write(&format!("sys/fs/cgroup/docker/{id}/pids.current"), "1\n");
        }
        let name = |id: &str, name: &str| {
            let file = format!("var/lib/docker/containers/{id}/config.v2.json");
            root.write(&file, &format!("{{\"Name\":\"/{name}\"}}"));
        };
        name(&sandbox, "k8s_POD_web-1_shop_1f_0");
        let mut cgroups = cgroups(&root);
        let mut read = || {
            let mut taken = RecordedMetrics::default();
            cgroups.read_all(&mut taken);
            let series = ["late", "cdcdcdcdcdcd"].map(|name| {
                taken.value(&format!("host_cgroup_tasks{{container={name}}}")).is_some()
            });
            (series, taken.len())
        };
        assert_eq!(read(), ([false, false], 0));
        name(&late, "late");
        assert_eq!(read(), ([true, false], 1));
        assert_eq!([read(), read()], [([true, true], 2); 2]);
    }

    #[test]
    fn names_are_looked_up_only_of_containers_that_are_reported() {
        let root = CgroupFiles::new();
        let tree = root.0.join("sys/fs/cgroup/docker");
        for number in 0..REPORTED_MAX + 50 {
            fs::create_dir_all(tree.join(format!("{number:064x}"))).unwrap();
        }
        let mut cgroups = cgroups(&root);
        assert_eq!(tasks(&mut cgroups, "container=none"), None);
        assert_eq!(cgroups.owners.names_len(), REPORTED_MAX);
        fs::remove_dir_all(&tree).unwrap();
        assert_eq!(tasks(&mut cgroups, "container=none"), None);
        assert_eq!(cgroups.owners.names_len(), 0);
    }
}
