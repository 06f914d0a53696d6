//! What runs on this host, from /proc: programs with a source for them, and what is left alone.
//!
//! A program is known by the name of its process (comm), a server by a listening TCP socket of it.
//! No daemon is asked, and no command is run. Other users' sockets are visible to root only.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use wire::{ListeningSocket, listening_sockets, process_ids, socket_inodes};

/// How the agent pulls from a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PullKind {
    /// Connections are opened and closed: `[[check]]` with `tcp`.
    Check,
    /// Its metrics page is read: `[[scrape]]`.
    Scrape,
}

/// A program for which a source is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DiscoveredSource {
    pub(crate) program: String,
    pub(crate) pid: u32,
    pub(crate) address: SocketAddr,
    pub(crate) kind: PullKind,
}

impl DiscoveredSource {
    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DiscoveryReport {
    pub(crate) sources: Vec<DiscoveredSource>,
    /// What no source is configured for, and why.
    pub(crate) left_alone: Vec<(String, &'static str)>,
}

/// A known program.
struct ProgramRow {
    name: &'static str,
    comms: &'static [&'static str],
    treatment: Treatment,
}

enum Treatment {
    Use(PullKind),
    LeaveAlone(&'static str),
}

static PROGRAMS: [ProgramRow; 5] = [
    ProgramRow {
        name: "postgres",
        comms: &["postgres", "postmaster"],
        treatment: Treatment::Use(PullKind::Check),
    },
    ProgramRow { name: "nginx", comms: &["nginx"], treatment: Treatment::Use(PullKind::Check) },
    ProgramRow {
        name: "redis",
        comms: &["redis-server", "valkey-server"],
        treatment: Treatment::Use(PullKind::Check),
    },
    ProgramRow {
        name: "mysql",
        comms: &["mysqld", "mariadbd"],
        treatment: Treatment::LeaveAlone(
            "a check by TCP counts there as an aborted connection; [wire] measures its statements \
             (docs/wire.md)",
        ),
    },
    ProgramRow {
        name: "JVM",
        comms: &["java"],
        treatment: Treatment::LeaveAlone(
            "its metrics are readable for its own user only; the drop-in programs.conf permits it \
             (docs/install.md)",
        ),
    },
];

const NO_SOCKET: &str = "it listens on no TCP port";
const CONTAINERS: &str = "the host source measures the resources of each; their programs are \
                          measured as those of the host";
const UNITS: &str = "the host source measures the resources of each; their programs are measured \
                     as those of the host";

/// Reads `proc`, which is /proc.
pub(crate) fn discover(proc: &Path) -> DiscoveryReport {
    let listening = listening_addresses(proc);
    let mut report = DiscoveryReport::default();
    let (mut containers, mut units) = (BTreeSet::new(), BTreeSet::new());
    // By program and port: a server has many processes with the same socket.
    let mut found: BTreeMap<(String, u16), DiscoveredSource> = BTreeMap::new();
    let mut others: BTreeMap<&'static str, (u32, &'static str)> = BTreeMap::new();
    let mut silent: BTreeMap<&'static str, u32> = BTreeMap::new();
    for pid in process_ids(proc) {
        let dir = proc.join(pid.to_string());
        let Ok(comm) = fs::read_to_string(dir.join("comm")) else { continue };
        let comm = comm.trim();
        let cgroup = fs::read_to_string(dir.join("cgroup")).unwrap_or_default();
        containers.extend(cgroup.lines().filter_map(container_id));
        units.extend(cgroup.lines().filter_map(unit_name));
        let (name, kind) = match PROGRAMS.iter().find(|row| row.comms.contains(&comm)) {
            Some(ProgramRow { name, treatment: Treatment::LeaveAlone(reason), .. }) => {
                others.entry(*name).or_insert((pid, *reason));
                continue;
            }
            Some(ProgramRow { name, treatment: Treatment::Use(kind), .. }) => (*name, *kind),
            None if is_exporter(comm) => (comm, PullKind::Scrape),
            None => continue,
        };
        let mut has_socket = false;
        for inode in socket_inodes(&dir) {
            let Some(&address) = listening.get(&inode) else { continue };
            has_socket = true;
            let key = (name.to_owned(), address.port());
            let source = DiscoveredSource { program: name.to_owned(), pid, address, kind };
            found.entry(key).or_insert(source);
        }
        if let Some(row) = PROGRAMS.iter().find(|row| !has_socket && row.name == name) {
            silent.entry(row.name).or_insert(pid);
        }
    }
    let process = |name: &str, pid: u32| format!("{name}, process {pid}");
    for (name, pid) in silent {
        if !found.keys().any(|key| key.0 == name) {
            report.left_alone.push((process(name, pid), NO_SOCKET));
        }
    }
    let others = others.into_iter().map(|(name, (pid, reason))| (process(name, pid), reason));
    report.left_alone.extend(others);
    if !containers.is_empty() {
        report.left_alone.push((format!("{} containers", containers.len()), CONTAINERS));
    }
    if !units.is_empty() {
        report.left_alone.push((format!("{} systemd services", units.len()), UNITS));
    }
    report.sources = found.into_values().collect();
    report
}

/// A name of at most 15 characters, as `node_exporter` and `postgres_export`. A process chooses its
/// name, which is printed and written to settings: others could have control characters.
fn is_exporter(comm: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    comm.contains("_export") && comm.bytes().all(is_plain)
}

/// Listening TCP sockets by inode, with the address at which this host reaches them.
fn listening_addresses(proc: &Path) -> HashMap<u64, SocketAddr> {
    let address = |socket: ListeningSocket| {
        let mut address = socket.address;
        if address.ip().is_unspecified() {
            address.set_ip(match address.ip() {
                IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            });
        }
        (socket.inode, address)
    };
    listening_sockets(proc).into_iter().map(address).collect()
}

/// Id of the container of a cgroup: the 64 hexadecimal digits that Docker, containerd, CRI-O and
/// Podman put into its path.
fn container_id(cgroup: &str) -> Option<String> {
    let mut parts = cgroup.split(|c: char| !c.is_ascii_hexdigit());
    parts.rfind(|part| part.len() == 64).map(str::to_owned)
}

/// Name of the service of a cgroup: `/system.slice/nginx.service`.
fn unit_name(cgroup: &str) -> Option<String> {
    let path = cgroup.rsplit_once(':')?.1;
    let service = path.split('/').find(|part| part.ends_with(".service"))?;
    path.starts_with("/system.slice/").then(|| service.to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use super::*;

    /// A directory as /proc.
    struct ProcDir(PathBuf);

    impl ProcDir {
        fn new(name: &str) -> ProcDir {
            let number = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), name);
            let dir = std::env::temp_dir().join(format!("topdeck-install-{name}-{number:x}"));
            fs::create_dir_all(dir.join("net")).unwrap();
            ProcDir(dir)
        }

        fn add_process(&self, pid: u32, comm: &str, cgroup: &str, sockets: &[u64]) {
            let dir = self.0.join(pid.to_string());
            fs::create_dir_all(dir.join("fd")).unwrap();
            fs::write(dir.join("comm"), format!("{comm}\n")).unwrap();
            fs::write(dir.join("cgroup"), format!("0::{cgroup}\n")).unwrap();
            for (at, inode) in sockets.iter().enumerate() {
                symlink(format!("socket:[{inode}]"), dir.join("fd").join(at.to_string())).unwrap();
            }
        }
    }

    impl Drop for ProcDir {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// Lines as a kernel on a little-endian machine writes them.
    const TCP: &str = include_str!("../../../testdata/proc-net/tcp");
    const TCP6: &str = include_str!("../../../testdata/proc-net/tcp6");

    fn listed(report: &DiscoveryReport) -> Vec<String> {
        let sources = report.sources.iter();
        let used = sources.map(|it| format!("{} {} {:?}", it.program, it.address, it.kind));
        let left = report.left_alone.iter().map(|(what, why)| format!("{what}: {why}"));
        used.chain(left).collect()
    }

    #[test]
    fn known_programs_get_a_source_or_a_reason() {
        let proc = ProcDir::new("known");
        fs::write(proc.0.join("net/tcp"), TCP).unwrap();
        fs::write(proc.0.join("net/tcp6"), TCP6).unwrap();
        proc.add_process(10, "postgres", "/system.slice/postgresql@15-main.service", &[501]);
        // A backend has inherited the socket, and a connection of its own.
        proc.add_process(11, "postgres", "/system.slice/postgresql@15-main.service", &[501, 504]);
        proc.add_process(12, "nginx", "/system.slice/nginx.service", &[502]);
        proc.add_process(13, "mysqld", "/", &[503]);
        proc.add_process(14, "redis-server", "/", &[]);
        proc.add_process(15, "java", &format!("/docker/{}", "ab".repeat(32)), &[]);
        proc.add_process(16, "node_exporter", "/", &[601]);
        proc.add_process(17, "bash", "/user.slice", &[]);
        // A process chooses its name: this one would clear a terminal.
        proc.add_process(18, "\u{1b}[2J_export", "/user.slice", &[601]);
        if cfg!(target_endian = "big") {
            println!("skipped: the lines are of a little-endian machine");
            return;
        }
        let report = discover(&proc.0);
        assert_eq!(
            listed(&report),
            [
                "nginx 127.0.0.1:80 Check".to_owned(),
                "node_exporter [::1]:9100 Scrape".to_owned(),
                "postgres 127.0.0.1:5432 Check".to_owned(),
                format!("redis, process 14: {NO_SOCKET}"),
                "JVM, process 15: its metrics are readable for its own user only; the drop-in \
                 programs.conf permits it (docs/install.md)"
                    .to_owned(),
                "mysql, process 13: a check by TCP counts there as an aborted connection; [wire] \
                 measures its statements (docs/wire.md)"
                    .to_owned(),
                format!("1 containers: {CONTAINERS}"),
                format!("2 systemd services: {UNITS}"),
            ]
        );
    }

    #[test]
    fn an_unreadable_proc_has_nothing() {
        assert_eq!(discover(Path::new("/nonexistent")), DiscoveryReport::default());
    }

    #[test]
    fn cgroups_have_containers_and_services() {
        let id = "0f".repeat(32);
        for path in [
            format!("0::/docker/{id}"),
            format!("0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-{id}.scope"),
            format!("12:memory:/machine.slice/libpod-{id}.scope/container"),
        ] {
            assert_eq!(container_id(&path), Some(id.clone()), "{path}");
        }
        assert_eq!(container_id("0::/user.slice/user-1000.slice"), None);
        assert_eq!(unit_name("0::/system.slice/a.service/b"), Some("a.service".to_owned()));
        assert_eq!(unit_name("0::/user.slice/user@0.service"), None);
    }
}
