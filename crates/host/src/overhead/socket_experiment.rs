//! Opens and closes a Unix socket while many others are open: the kernel has them in one hash
//! table, and a listing holds its locks.

use std::fs;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::experiment::PreparedExperiment;
use render::value_formatter::count;

/// Maximum number of sockets: about 110 MB of kernel memory.
pub const SOCKETS_MAX: u64 = 50_000;
/// Reserve of open files for this process and its observers.
const SPARE: u64 = 64;
/// Minimum number of sockets: with fewer the table is too small to matter.
const LEAST: u64 = 100;

pub(crate) fn prepare(sockets: u64) -> Result<PreparedExperiment, String> {
    let limit = raise_file_limit();
    let open = fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64);
    let system = fs::read_to_string("/proc/sys/fs/file-nr").ok();
    let system = system.and_then(|text| unused_files(&text)).unwrap_or(u64::MAX);
    let room = socket_count(sockets, limit.saturating_sub(open), system)
        .map_err(|room| too_few_message(room, limit, sockets))?;
    let mut open_sockets = Vec::new();
    for _ in 0..room {
        match socket() {
            Ok(socket) => open_sockets.push(socket),
            // Another limit applies, maybe that of a container: use the sockets that exist, and
            // keep a reserve.
            Err(_) => {
                open_sockets.truncate(open_sockets.len().saturating_sub(SPARE as usize));
                break;
            }
        }
    }
    let have = open_sockets.len() as u64;
    if have < LEAST.min(sockets) {
        return Err(too_few_message(have, limit, sockets));
    }
    let less = match have < sockets {
        true => format!(" (not {}: open files are limited to {})", count(sockets), count(limit)),
        false => String::new(),
    };
    let once = move || {
        // Keeps the sockets until the experiment is dropped.
        std::hint::black_box(&open_sockets);
        drop(socket()?);
        Ok(())
    };
    Ok(PreparedExperiment {
        title: format!("socket() and close() with {} others open{less}", count(have)),
        operation: "socket() and close()",
        operation_once: Box::new(once),
    })
}

fn socket() -> rustix::io::Result<OwnedFd> {
    socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
}

/// Limit of open files, raised as far as this process may.
fn raise_file_limit() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let limit = if raised.is_ok() { maximum } else { current };
    limit.unwrap_or(u64::MAX)
}

/// Unused open files of the whole system, from `/proc/sys/fs/file-nr`.
fn unused_files(text: &str) -> Option<u64> {
    let mut numbers = text.split_whitespace().map(|word| word.parse::<u64>().ok());
    let (open, most) = (numbers.next()??, numbers.nth(1)??);
    Some(most.saturating_sub(open))
}

/// Number of sockets to open: at most half of the system's unused files, because other processes
/// need some.
fn socket_count(count: u64, process_limit: u64, system: u64) -> Result<u64, u64> {
    let room = process_limit.saturating_sub(SPARE).min(system / 2).min(count);
    if room < LEAST.min(count) { Err(room) } else { Ok(room) }
}

fn too_few_message(room: u64, limit: u64, wanted: u64) -> String {
    format!(
        "open files limit ({}, RLIMIT_NOFILE) allows {} sockets, at least {} are required; raise \
         it with `ulimit -n`",
        count(limit),
        count(room),
        count(LEAST.min(wanted))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_count_respects_the_limits() {
        assert_eq!(socket_count(50_000, 20_000, u64::MAX), Ok(19_936));
        assert_eq!(socket_count(50_000, 1 << 20, u64::MAX), Ok(50_000));
        assert_eq!(socket_count(50_000, 1 << 20, 30_000), Ok(15_000));
        assert_eq!(socket_count(50_000, 100, u64::MAX), Err(36));
        assert_eq!(socket_count(50_000, 3, u64::MAX), Err(0));
        assert_eq!(socket_count(10, 1_000, u64::MAX), Ok(10));
    }

    #[test]
    fn system_file_limit_is_parsed() {
        assert_eq!(unused_files("1184\t0\t9223372036854775807\n"), Some(9_223_372_036_854_774_623));
        assert_eq!(unused_files("5\t0\t3\n"), Some(0));
        assert_eq!(unused_files("5 0"), None);
        assert_eq!(unused_files(""), None);
    }
}
