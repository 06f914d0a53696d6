//! Listening TCP sockets of a network namespace and the processes that have them, from /proc.
//!
//! Sockets of processes of other users are visible with `CAP_DAC_READ_SEARCH` and `CAP_SYS_PTRACE`
//! only. Source: proc(5), net/ipv4/tcp_ipv4.c of Linux.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

/// State LISTEN (`TCP_LISTEN` in include/net/tcp_states.h).
const LISTEN: &str = "0A";

/// A socket that waits for connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListeningSocket {
    /// Its address; unspecified for all addresses of the host.
    pub address: SocketAddr,
    /// Its inode, by which a process has it.
    pub inode: u64,
}

/// Listening sockets of the network namespace of this process. `proc` is the directory /proc.
pub fn listening_sockets(proc: &Path) -> Vec<ListeningSocket> {
    let mut sockets = Vec::new();
    for name in ["tcp", "tcp6"] {
        let Ok(file) = File::open(proc.join("net").join(name)) else { continue };
        // The kernel lists them first: those of a million connections are not read.
        let lines = BufReader::new(file).lines().skip(1).map_while(Result::ok);
        sockets.extend(lines.map_while(|line| parse_socket(&line)));
    }
    sockets
}

/// Identifiers of all processes, ascending.
pub fn process_ids(proc: &Path) -> Vec<u32> {
    let entries = fs::read_dir(proc).into_iter().flatten().filter_map(Result::ok);
    let mut ids: Vec<u32> =
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    ids.sort_unstable();
    ids
}

/// Inodes of the sockets of a process, whose directory in /proc this is; none if they are not
/// visible.
pub fn socket_inodes(process: &Path) -> Vec<u64> {
    let entries = fs::read_dir(process.join("fd")).into_iter().flatten().filter_map(Result::ok);
    let inode = |target: std::path::PathBuf| {
        target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    };
    entries.filter_map(|entry| inode(fs::read_link(entry.path()).ok()?)).collect()
}

/// A line of /proc/net/tcp or tcp6; `None` if the socket does not listen.
fn parse_socket(line: &str) -> Option<ListeningSocket> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    if fields.get(3) != Some(&LISTEN) {
        return None;
    }
    let (address, port) = fields.get(1)?.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    // Each group of 8 digits is a number of 32 bits in the order of this machine.
    let word = |at: usize| u32::from_str_radix(address.get(at..at + 8)?, 16).ok();
    let address = match address.len() {
        8 => IpAddr::from(Ipv4Addr::from(word(0)?.to_ne_bytes())),
        32 => {
            let mut bytes = [0; 16];
            for at in 0..4 {
                bytes[4 * at..4 * at + 4].copy_from_slice(&word(8 * at)?.to_ne_bytes());
            }
            IpAddr::from(Ipv6Addr::from(bytes)).to_canonical()
        }
        _ => return None,
    };
    Some(ListeningSocket {
        address: SocketAddr::new(address, port),
        inode: fields.get(9)?.parse().ok()?,
    })
}
