//! Which process this is, so that nobody takes another one for it: a process id alone comes again.

use std::fs;

use rustix::process::getpid;

/// A process, among all that ever ran on any machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The boot of the machine: /proc/sys/kernel/random/boot_id.
    pub boot: u128,
    /// The process id as the process sees it.
    pub pid: u32,
    /// The namespace of process ids in which it is that: the inode of /proc/PID/ns/pid.
    pub pid_namespace: u64,
    /// When it started: ticks since boot, field 22 of /proc/PID/stat; the same in all namespaces.
    pub start_ticks: u64,
}

impl Identity {
    /// That of this process. What /proc does not say is 0.
    pub fn own() -> Identity {
        Identity {
            boot: boot(),
            pid: getpid().as_raw_nonzero().get().unsigned_abs(),
            pid_namespace: pid_namespace("self"),
            start_ticks: start_ticks("self").unwrap_or(0),
        }
    }
}

/// The boot of this machine; 0 where nobody says.
pub(crate) fn boot() -> u128 {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16).unwrap_or(0)
}

/// The inode of a process's namespace of process ids; 0 where it cannot be told.
pub(crate) fn pid_namespace(process: &str) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata(format!("/proc/{process}/ns/pid")).map_or(0, |found| found.ino())
}

/// When a process started, if there is one. One that has ended, and whose parent has not looked yet, is none.
pub(crate) fn start_ticks(process: &str) -> Option<u64> {
    let stat = fs::read(format!("/proc/{process}/stat")).ok()?;
    // The name is in parentheses and may have any bytes, parentheses too.
    let after_name = &stat[stat.iter().rposition(|&byte| byte == b')')? + 1..];
    let fields = std::str::from_utf8(after_name).ok()?.split_ascii_whitespace();
    // The first after the name is field 3, the state; how many threads there are is field 20, the start field 22.
    let fields: Vec<&str> = fields.take(22 - 3 + 1).collect();
    // The first thread may have ended before the others.
    if fields.first() == Some(&"Z") && fields.get(20 - 3) <= Some(&"1") {
        return None;
    }
    fields.get(22 - 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_known() {
        let own = Identity::own();
        assert_eq!(own.pid, std::process::id());
        assert!(own.boot != 0 && own.start_ticks > 0 && own.pid_namespace > 0, "{own:?}");
        assert_eq!(own, Identity::own());
        assert_eq!(start_ticks("0"), None);
    }

    #[test]
    fn a_process_that_nobody_waited_for_does_not_run() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
        let pid = child.id().to_string();
        assert!(start_ticks(&pid).is_some());
        child.kill().expect("it is ours");
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while start_ticks(&pid).is_some() {
            assert!(std::time::Instant::now() < deadline, "it was killed");
            std::thread::yield_now();
        }
        assert!(fs::metadata(format!("/proc/{pid}")).is_ok(), "nobody has waited for it");
        child.wait().expect("it ended");
    }
}
