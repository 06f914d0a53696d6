//! Process identity across PID reuse, namespaces and boots.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;

use rustix::process::getpid;

use crate::layout::header;

/// Unique identity of a process across machines and boots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ProcessIdentity {
    /// Boot id of the machine: /proc/sys/kernel/random/boot_id.
    pub boot: u128,
    /// PID in the process' own namespace.
    pub pid: u32,
    /// PID namespace: the inode of /proc/PID/ns/pid.
    pub pid_namespace: u64,
    /// Start time: ticks since boot, field 22 of /proc/PID/stat; the same in all PID namespaces.
    pub start_ticks: u64,
}

impl ProcessIdentity {
    /// Identity of this process. Fields that /proc does not provide are 0.
    pub fn current() -> ProcessIdentity {
        ProcessIdentity {
            boot: boot(),
            pid: getpid().as_raw_nonzero().get().unsigned_abs(),
            pid_namespace: pid_namespace("self"),
            start_ticks: start_ticks("self").unwrap_or(0),
        }
    }

    /// Identity in the header of a metrics file.
    pub(crate) fn from_header(words: &[u64; header::WORDS]) -> ProcessIdentity {
        ProcessIdentity {
            boot: u128::from(words[header::BOOT]) | u128::from(words[header::BOOT + 1]) << 64,
            pid: words[header::PID] as u32,
            pid_namespace: words[header::PID_NAMESPACE],
            start_ticks: words[header::START_TICKS],
        }
    }
}

/// Boot id of this machine; 0 if unknown.
pub(crate) fn boot() -> u128 {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16).unwrap_or(0)
}

/// Inode of a process' PID namespace; 0 if unknown.
pub(crate) fn pid_namespace(process: &str) -> u64 {
    namespace(process, "pid").unwrap_or(0)
}

fn namespace(process: &str, kind: &str) -> Option<u64> {
    fs::metadata(format!("/proc/{process}/ns/{kind}")).ok().map(|found| found.ino())
}

/// Start time of a process that runs. A zombie counts as exited.
pub(crate) fn start_ticks(process: &str) -> Option<u64> {
    read_start_ticks(process).ok()?
}

/// Whether the process with this PID, as seen from here, started at that time; `None` if unknown.
pub(crate) fn is_same_process(process: &str, start_ticks: u64) -> Option<bool> {
    match read_start_ticks(process) {
        Ok(Some(found)) if found == start_ticks => Some(true),
        // Start times are relative to the boot time of the time namespace.
        Ok(Some(_)) => match namespace(process, "time") {
            Some(other) if Some(other) != namespace("self", "time") => None,
            _ => Some(false),
        },
        Ok(None) => Some(false),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Some(false),
        // The process exited after the file was opened.
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Some(false),
        // The process exists, but access is denied.
        Err(_) => None,
    }
}

fn read_start_ticks(process: &str) -> io::Result<Option<u64>> {
    let stat = fs::read(format!("/proc/{process}/stat"))?;
    let start = || {
        // The name is in parentheses and may contain any bytes, including parentheses.
        let after_name = &stat[stat.iter().rposition(|&byte| byte == b')')? + 1..];
        let fields = std::str::from_utf8(after_name).ok()?.split_ascii_whitespace();
        // The first field after the name is 3, the state; field 20 is the number of threads, field
        // 22 the start time.
        let fields: Vec<&str> = fields.take(22 - 3 + 1).collect();
        // The main thread may have exited before the others.
        if fields.first() == Some(&"Z") && fields.get(20 - 3) <= Some(&"1") {
            return None;
        }
        fields.get(22 - 3)?.parse().ok()
    };
    Ok(start())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_known() {
        let own = ProcessIdentity::current();
        assert_eq!(own.pid, std::process::id());
        assert!(own.boot != 0 && own.start_ticks > 0 && own.pid_namespace > 0, "{own:?}");
        assert_eq!(own, ProcessIdentity::current());
        assert_eq!(start_ticks("0"), None);
        let still = |ticks| is_same_process(&own.pid.to_string(), ticks);
        assert_eq!(
            [still(own.start_ticks), still(1), is_same_process("0", 1)].map(Option::unwrap),
            [true, false, false]
        );
    }

    #[test]
    fn zombie_process_is_not_running() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
        let pid = child.id().to_string();
        assert!(start_ticks(&pid).is_some());
        child.kill().expect("it is ours");
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while start_ticks(&pid).is_some() {
            assert!(std::time::Instant::now() < deadline, "it was killed");
            std::thread::yield_now();
        }
        assert!(fs::metadata(format!("/proc/{pid}")).is_ok(), "nobody has waited for it");
        assert_eq!(is_same_process(&pid, 1), Some(false));
        child.wait().expect("it ended");
    }
}
