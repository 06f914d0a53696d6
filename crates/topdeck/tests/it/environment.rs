//! Resources of tests: directories, ports, memory, waiting. Names are random, so neither leftovers
//! of an earlier run nor a concurrent run interfere.

use std::hash::{BuildHasher as _, RandomState};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with, sockopt,
};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

/// Deadline of every wait. Only a system that hangs takes longer.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);
/// Pause between two polls; it doubles from the first to the last.
const POLL_PAUSES: std::ops::Range<Duration> = Duration::from_millis(1)..Duration::from_millis(20);
/// Upper bound for the shared memory of one test's programs.
const MEMORY_BYTES: u64 = 64 << 20;

/// Waits until a condition holds.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let (began, mut pause) = (Instant::now(), POLL_PAUSES.start);
    while !is_so() {
        assert!(began.elapsed() < TIMEOUT, "not within {TIMEOUT:?}: {what}");
        std::thread::sleep(pause);
        pause = (pause * 2).min(POLL_PAUSES.end);
    }
}

/// Stops a child of this process (SIGSTOP). On return none of its threads runs: a sent signal may
/// not have been delivered yet.
pub(crate) fn stop(pid: u32) {
    let pid = Pid::from_raw(pid.cast_signed()).expect("a process has a number");
    kill_process(pid, Signal::STOP).expect("it is a child");
    let (_, status) =
        waitpid(Some(pid), WaitOptions::UNTRACED).expect("it is a child").expect("it is");
    assert!(status.stopped(), "{status:?}");
}

/// Names of the threads of a process, and the capabilities that each of them has or could get back
/// (proc_pid_status(5)), as a mask.
pub(crate) fn thread_capabilities(pid: u32) -> Vec<(String, u64)> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the process runs");
    let of_thread = |thread: PathBuf| {
        let status = std::fs::read_to_string(thread.join("status")).ok()?;
        let name = status.lines().find_map(|line| line.strip_prefix("Name:\t"))?.to_owned();
        let sets = ["CapInh:\t", "CapPrm:\t", "CapEff:\t", "CapAmb:\t"];
        let masks = sets.map(|set| {
            let mask = status.lines().find_map(|line| line.strip_prefix(set));
            mask.and_then(|mask| u64::from_str_radix(mask, 16).ok()).expect("a mask")
        });
        Some((name, masks.into_iter().fold(0, |all, mask| all | mask)))
    };
    // Threads may end meanwhile.
    threads.flatten().filter_map(|thread| of_thread(thread.path())).collect()
}

/// A unique name. A process id is not: ids repeat, and a killed run leaves its directories.
pub(crate) fn fresh_name() -> String {
    format!("topdeck-it-{:016x}", RandomState::new().hash_one(0))
}

/// Creates a directory with mode 0700, independent of the umask.
pub(crate) fn fresh_dir(parent: &Path) -> PathBuf {
    let path = parent.join(fresh_name());
    std::fs::DirBuilder::new().mode(0o700).create(&path).expect("a directory can be made");
    path
}

/// A TCP port of loopback that stays free for a process and its restarts. A socket that does not
/// listen is bound to it until the test binary exits, so the kernel assigns it to nobody else. With
/// SO_REUSEADDR, which all TCP listeners of topdeck set, the process can listen on it. Before that,
/// connections are refused.
pub(crate) fn free_port() -> u16 {
    static RESERVED: Mutex<Vec<OwnedFd>> = Mutex::new(Vec::new());
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    let socket = socket.expect("a descriptor is free");
    sockopt::set_socket_reuseaddr(&socket, true).expect("it is a socket");
    bind(&socket, &std::net::SocketAddrV4::new(std::net::Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = getsockname(&socket).expect("it has an address");
    let address = std::net::SocketAddr::try_from(address).expect("an address of IP");
    RESERVED.lock().expect("no thread panics with it").push(socket);
    address.port()
}

/// A directory on a tmpfs, for metrics in shared memory. It is removed on drop.
pub(crate) struct TmpfsDir {
    pub(crate) path: PathBuf,
    is_mounted: bool,
}

impl TmpfsDir {
    /// None, with a line that says so, if no tmpfs has enough space and none can be mounted.
    pub(crate) fn new() -> Option<TmpfsDir> {
        let temporary = std::env::temp_dir();
        let of_user = format!("/run/user/{}", rustix::process::geteuid().as_raw());
        for parent in [Path::new("/dev/shm"), &temporary, Path::new(&of_user)] {
            if has_memory(parent) {
                return Some(TmpfsDir { path: fresh_dir(parent), is_mounted: false });
            }
        }
        let path = fresh_dir(&temporary);
        let size = format!("size={MEMORY_BYTES},mode=0700");
        let mut mount = Command::new("mount");
        if succeeds(mount.args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(&path)) {
            return Some(TmpfsDir { path, is_mounted: true });
        }
        let _ = std::fs::remove_dir(path);
        let mib = MEMORY_BYTES >> 20;
        println!("skipped: no tmpfs with {mib} MiB free that this user may write to");
        None
    }
}

impl Drop for TmpfsDir {
    fn drop(&mut self) {
        if self.is_mounted {
            succeeds(Command::new("umount").arg("-l").arg(&self.path));
        }
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

/// Whether it is a tmpfs (linux/magic.h: TMPFS_MAGIC) with enough space where this user may write.
fn has_memory(path: &Path) -> bool {
    let Ok(found) = rustix::fs::statfs(path) else { return false };
    let room = found.f_bavail.saturating_mul(found.f_bsize as u64);
    let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
    found.f_type == 0x0102_1994 && room >= MEMORY_BYTES && rustix::fs::access(path, access).is_ok()
}

/// Voluntary context switches of a process's first thread.
pub(crate) fn voluntary_switches(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
}
