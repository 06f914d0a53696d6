//! Resources of systemd units and containers, from the files of cgroup version 2.
//!
//! The tree is walked at each scrape, because units and containers come and go. A unit or container
//! includes everything below it. Of two cgroups with the same labels, the first one found is
//! reported for as long as it exists: their counters cannot be told apart.
//!
//! Source: kernel, Documentation/admin-guide/cgroup-v2.rst.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::cgroup_owner::{CgroupOwner, CgroupOwners, OwnerLabels};
use crate::error::Result;
use crate::metric::{MetricDefinition, MetricSink, RowReporter, counter, gauge};
use crate::source::{HostSource, Note, Opening, SourceSettings};

/// Maximum number of units and containers that are reported.
const REPORTED_MAX: usize = 256;
/// Limits of the walk.
const VISITED_MAX: usize = 4_096;
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
        let tree = Path::new("/sys/fs/cgroup");
        let is_there = self.cgroups && tree.join("cgroup.controllers").exists();
        Ok(is_there.then(|| -> Box<dyn HostSource> {
            Box::new(Cgroups::new(tree.to_owned(), CgroupOwners::default()))
        }))
    }
}

/// The tree of cgroups.
#[derive(Debug)]
struct Cgroups {
    tree: PathBuf,
    owners: CgroupOwners,
    /// The cgroup that is reported with some labels.
    reported: HashMap<OwnerLabels, PathBuf>,
    has_reached_limit: bool,
    /// Whether the limit was noted.
    is_noted: bool,
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
    fn new(tree: PathBuf, owners: CgroupOwners) -> Cgroups {
        let reported = HashMap::new();
        Cgroups { tree, owners, reported, has_reached_limit: false, is_noted: false }
    }

    fn read_all(&mut self, sink: &mut dyn MetricSink) {
        let found = self.find();
        let paths: HashSet<&PathBuf> = found.iter().map(|(path, _)| path).collect();
        self.reported.retain(|_, path| paths.contains(path));
        for (path, labels) in &found {
            let owner = match self.reported.get(labels) {
                Some(owner) => owner,
                None if self.reported.len() >= REPORTED_MAX => {
                    self.has_reached_limit = true;
                    continue;
                }
                None => self.reported.entry(labels.clone()).or_insert(path.clone()),
            };
            if owner == path {
                report(path, labels, sink);
            }
        }
    }

    /// Cgroups of units and containers; nothing below them.
    fn find(&mut self) -> Vec<(PathBuf, OwnerLabels)> {
        let mut found = Vec::new();
        let mut open = vec![(self.tree.clone(), 0)];
        let mut visited = 0;
        while let Some((dir, depth)) = open.pop() {
            for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
                if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    continue;
                }
                visited += 1;
                if visited > VISITED_MAX {
                    self.has_reached_limit = true;
                    return found;
                }
                let name = entry.file_name();
                let Some(name) = name.to_str() else { continue };
                match CgroupOwner::of_path(name) {
                    Some(owner) => found.push((entry.path(), self.owners.labels(&owner))),
                    None if depth < DEPTH_MAX => open.push((entry.path(), depth + 1)),
                    None => {}
                }
            }
        }
        found
    }
}

/// Reports a cgroup. A file that does not exist is left out: its controller is not enabled, or the
/// cgroup has just been removed.
fn report(dir: &Path, labels: &OwnerLabels, sink: &mut dyn MetricSink) {
    let labels: Vec<(&str, &str)> =
        labels.iter().map(|(name, value)| (&**name, &**value)).collect();
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
        for (operation, key) in [("read", "rbytes="), ("write", "wbytes=")] {
            let words = text.split_ascii_whitespace().filter_map(|word| word.strip_prefix(key));
            let bytes: f64 = words.filter_map(|number| number.parse::<f64>().ok()).sum();
            sink.record(&IO, &with("operation", operation), bytes);
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
        Cgroups::new(root.0.join("sys/fs/cgroup"), CgroupOwners::below(&root.0))
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
        let missing = Cgroups::new(root.0.join("none"), CgroupOwners::below(&root.0)).find();
        assert!(missing.is_empty());
    }
}
