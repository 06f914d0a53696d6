//! Processes that the OOM killer killed: they leave no core.
//!
//! The log of the kernel names the process. Without the right to read it, the counters of control
//! groups (`memory.events`) name the unit; they are read when `oom_kill` of `/proc/vmstat` has
//! grown.
//!
//! Of the processes of a host, such as a server and an agent, one reports them: the one that has
//! the abstract Unix socket [`CLAIM`]. Any user can take that name, so it counts only if its owner
//! is root or the user of this process.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};

use crash::CrashOrigin;
use rustix::fs::OFlags;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::{Uid, geteuid};

/// Reason in the notice.
pub(crate) const REASON: &str = "OOM kill";
/// Control groups that are read, and their depth.
const GROUPS_MAX: usize = 10_000;
const DEPTH_MAX: u32 = 12;
/// Largest record of the log.
const RECORD_BYTES_MAX: usize = 8 << 10;
/// Kills that are reported one by one at a time.
const KILLS_MAX: u64 = 100;

/// Connections to the socket that are taken at a time.
const CONNECTIONS_MAX: u32 = 1_000;
/// Name of the abstract socket of the process that reports kills.
const CLAIM: &str = "topdeck-oom-kills";

/// Kills on this host, if no other process reports them.
#[derive(Default)]
pub(crate) struct OomKills {
    /// The socket, or none if another user has taken its name.
    claimed: Option<(Option<UnixListener>, KillReader)>,
}

impl OomKills {
    /// Processes that were killed since the last call, or since the other process ended.
    pub(crate) fn read(&mut self) -> Vec<CrashOrigin> {
        if self.claimed.is_none() {
            self.claimed = claim(CLAIM).map(|socket| (socket, KillReader::open()));
        }
        let Some((socket, reader)) = &mut self.claimed else { return Vec::new() };
        // Others ask who has it: see `owner`.
        for _ in 0..CONNECTIONS_MAX {
            if socket.as_ref().is_none_or(|socket| socket.accept().is_err()) {
                break;
            }
        }
        reader.read()
    }
}

/// Claims a name on this host, until the drop; `None` if another process has it that may. The name
/// of another user is no reason to report nothing: there is no socket then.
fn claim(name: &str) -> Option<Option<UnixListener>> {
    let bound = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name).ok()?);
    let socket = bound.and_then(|socket| socket.set_nonblocking(true).map(|()| socket)).ok();
    let is_trusted = |owner: Uid| owner.is_root() || owner == geteuid();
    let is_claimed = socket.is_none() && owner(name).is_some_and(is_trusted);
    (!is_claimed).then_some(socket)
}

/// User of the process that listens to a name.
fn owner(name: &str) -> Option<Uid> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
    connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes()).ok()?).ok()?;
    Some(socket_peercred(&socket).ok()?.uid)
}

/// Where kills are found.
enum KillReader {
    /// The log of the kernel, read up to its end.
    Log(File),
    /// Counters of the system and of control groups.
    Counters(OomCounters),
}

impl KillReader {
    /// From now on, on this host.
    fn open() -> KillReader {
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        let log = OpenOptions::new().read(true).custom_flags(flags).open("/dev/kmsg");
        match log.and_then(|mut log| log.seek(SeekFrom::End(0)).map(|_| log)) {
            Ok(log) => KillReader::Log(log),
            Err(_) => KillReader::Counters(OomCounters::new(
                "/proc/vmstat".into(),
                "/sys/fs/cgroup".into(),
            )),
        }
    }

    /// Processes that were killed since the last call.
    fn read(&mut self) -> Vec<CrashOrigin> {
        match self {
            KillReader::Log(log) => {
                let mut killed = Vec::new();
                let mut record = [0; RECORD_BYTES_MAX];
                // A read returns a record; an error is its end, or a lost record (EPIPE).
                for _ in 0..10 * KILLS_MAX {
                    match log.read(&mut record) {
                        Ok(size) => killed.extend(of_record(&record[..size])),
                        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
                        Err(_) => break,
                    }
                }
                killed
            }
            KillReader::Counters(counters) => counters.read(),
        }
    }
}

/// `…;oom-kill:constraint=CONSTRAINT_MEMCG,…,task_memcg=/a.service,task=db,pid=7,uid=0`.
fn of_record(record: &[u8]) -> Option<CrashOrigin> {
    let record = String::from_utf8_lossy(record);
    let line = record.lines().next()?.split_once(";oom-kill:")?.1;
    // The name of the task may have commas.
    let (before, after) = line.split_once(",task=")?;
    let (task, after) = after.rsplit_once(",pid=")?;
    let (pid, uid) = after.split_once(",uid=")?;
    let is_forged = |group: &str| {
        // A user may name a group, or a task, like a part of this text.
        group.contains([',', '=']) || line.matches("task_memcg=").count() > 1
    };
    let group = before.split_once("task_memcg=").map_or("", |(_, group)| group);
    let group = if is_forged(group) { "" } else { group };
    let mut origin = CrashOrigin {
        program: task.to_owned(),
        pid: pid.parse().ok()?,
        uid: uid.parse().ok()?,
        ..CrashOrigin::default()
    };
    origin.set_control_group(group);
    Some(origin)
}

/// Counters of kills.
struct OomCounters {
    vmstat: PathBuf,
    root: PathBuf,
    total: u64,
    groups: HashMap<PathBuf, u64>,
}

impl OomCounters {
    fn new(vmstat: PathBuf, root: PathBuf) -> OomCounters {
        let mut counters = OomCounters { vmstat, root, total: 0, groups: HashMap::new() };
        (counters.total, counters.groups) = (counters.read_total(), counters.read_groups());
        counters
    }

    fn read_total(&self) -> u64 {
        let text = fs::read_to_string(&self.vmstat).unwrap_or_default();
        value(&text, "oom_kill").unwrap_or(self.total)
    }

    fn read_groups(&self) -> HashMap<PathBuf, u64> {
        let mut groups = HashMap::new();
        let mut dirs = vec![(self.root.clone(), 0)];
        while let Some((dir, depth)) = dirs.pop() {
            if groups.len() >= GROUPS_MAX {
                break;
            }
            // Without those of the groups below.
            if let Ok(text) = fs::read_to_string(dir.join("memory.events.local")) {
                groups.insert(dir.clone(), value(&text, "oom_kill").unwrap_or(0));
            }
            let entries = fs::read_dir(&dir).into_iter().flatten().flatten();
            let below = entries.filter(|_| depth < DEPTH_MAX);
            let below = below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            dirs.extend(below.map(|entry| (entry.path(), depth + 1)));
        }
        groups
    }

    fn read(&mut self) -> Vec<CrashOrigin> {
        let total = self.read_total();
        let killed = total.saturating_sub(self.total).min(KILLS_MAX);
        if killed == 0 {
            return Vec::new();
        }
        let groups = self.read_groups();
        let mut origins = Vec::new();
        for (dir, count) in &groups {
            let new = count.saturating_sub(self.groups.get(dir).copied().unwrap_or(0));
            let mut origin = CrashOrigin::default();
            let group = dir.strip_prefix(&self.root).unwrap_or(Path::new("")).to_string_lossy();
            origin.set_control_group(&group);
            origins.extend((0..new.min(KILLS_MAX)).map(|_| origin.clone()));
        }
        // The group of a process that was killed may be gone already.
        origins.resize(killed as usize, CrashOrigin::default());
        (self.total, self.groups) = (total, groups);
        origins
    }
}

/// The number of a line `name number`.
fn value(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn killed_process_of_the_log() {
        let line = b"6,1234,5678,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),\
                     cpuset=/,mems_allowed=0,oom_memcg=/system.slice,task_memcg=/system.slice/\
                     shop.service,task=shop, main,pid=4242,uid=33\n SUBSYSTEM=memory\n";
        let origin = of_record(line).expect("a kill");
        assert_eq!((origin.program.as_str(), origin.unit.as_str()), ("shop, main", "shop.service"));
        assert_eq!((origin.pid, origin.uid), (4242, 33));
        // A group of a user has the name of another one, or of a task.
        for (group, task) in [
            ("/user.slice/x,task_memcg=/system.slice/shop.service", "shop"),
            ("/system.slice/a,oom_memcg=b.service", "shop"),
            ("/system.slice/shop.service", "x,task_memcg=/y"),
        ] {
            let line = format!("6,1,2,-;oom-kill:task_memcg={group},task={task},pid=7,uid=8\n");
            let origin = of_record(line.as_bytes()).expect("a kill");
            assert_eq!((origin.unit.as_str(), origin.pid, origin.uid), ("", 7, 8), "{group}");
        }
        assert_eq!(of_record(b"6,1,2,-;usb 1-1: new device\n"), None);
        assert_eq!(of_record(b"6,1,2,-;oom-kill:task=,pid=x"), None);
    }

    #[test]
    fn one_process_of_a_host_reports_kills() {
        let name = format!("topdeck-oom-kills-{}", std::process::id());
        let first = claim(&name).expect("nobody has it").expect("a socket");
        assert!(claim(&name).is_none());
        drop(first);
        assert!(claim(&name).is_some_and(|socket| socket.is_some()));
    }

    #[test]
    fn a_name_that_another_user_has_taken_stops_nothing() {
        let name = format!("topdeck-oom-other-{}", std::process::id());
        // Nobody listens, so it is not known who it is.
        let flags = SocketFlags::CLOEXEC;
        let bound = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        let address = SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
        rustix::net::bind(&bound, &address).unwrap();
        assert!(claim(&name).is_some_and(|socket| socket.is_none()));
        drop(bound);
        if !geteuid().is_root() {
            println!("skipped: not root");
            return;
        }
        let of_other = name.clone();
        let listen = move || {
            let uid = Some(Uid::from_raw(4242));
            rustix::thread::set_thread_res_uid(None, uid, None).unwrap();
            claim(&of_other).flatten().expect("a socket")
        };
        let socket = std::thread::spawn(listen).join().unwrap();
        assert!(claim(&name).is_some_and(|socket| socket.is_none()));
        drop(socket);
    }

    #[test]
    fn kills_are_attributed_to_units_and_none_is_lost() {
        let dir = std::env::temp_dir().join(format!("topdeck-oom-{}", std::process::id()));
        let unit = dir.join("groups/system.slice/shop.service");
        fs::create_dir_all(&unit).unwrap();
        let set = |total: u64, of_unit: u64| {
            fs::write(dir.join("vmstat"), format!("oom_killer 9\noom_kill {total}\n")).unwrap();
            let events = format!("low 0\noom 7\noom_kill {of_unit}\noom_group_kill 0\n");
            fs::write(unit.join("memory.events.local"), events).unwrap();
        };
        set(5, 2);
        let mut counters = OomCounters::new(dir.join("vmstat"), dir.join("groups"));
        assert!(counters.read().is_empty());
        set(8, 4);
        let killed = counters.read();
        let mut units: Vec<&str> = killed.iter().map(|origin| origin.unit.as_str()).collect();
        units.sort_unstable();
        assert_eq!(units, ["", "shop.service", "shop.service"]);
        assert!(counters.read().is_empty());
        // Groups that have more than the system.
        set(9, 9);
        assert_eq!(counters.read().len(), 1);
        fs::remove_dir_all(dir).unwrap();
    }
}
