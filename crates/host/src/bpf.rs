//! BPF programs assembled at run time with offsets from BTF.
//!
//! Requires Linux 5.12 or later with BTF (`/sys/kernel/btf/vmlinux`) and the right to load
//! programs: root, or CAP_BPF and CAP_PERFMON. A tracepoint program counts in the single value of
//! an array map; this process maps parts of the value and reads them without a system call. An
//! iterator program writes a record of each task to the reader of the iterator.

pub(crate) mod btf;
pub(crate) mod grid;
pub(crate) mod instruction;
#[cfg(test)]
pub(crate) mod interpreter;
mod syscall;

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use self::btf::Btf;
use self::instruction::Instruction;
pub(crate) use self::syscall::MapCells;
use self::syscall::ProgramKind;

/// File with the kernel's BTF.
const BTF: &str = "/sys/kernel/btf/vmlinux";
/// Largest accepted BTF; about ten times the usual size.
const BTF_BYTES_MAX: u64 = 64 << 20;
/// Bytes of the verifier log that are reported: its end has the error.
const LOG_TAIL_BYTES: usize = 1_500;

/// BPF program attached to a tracepoint. Drop detaches and unloads it and frees its map.
#[derive(Debug)]
pub(crate) struct BpfProgram {
    map: OwnedFd,
    program: OwnedFd,
    _link: OwnedFd,
}

/// BPF program statistics (`kernel.bpf_stats_enabled`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BpfStats {
    /// Number of runs.
    pub(crate) runs: u64,
    /// Total run time in nanoseconds.
    pub(crate) time_ns: u64,
    /// Runs skipped because the program was already running on the CPU. The kernel always counts
    /// them.
    pub(crate) recursion_misses: u64,
}

/// Reads the kernel's BTF. The error is the reason why it is unavailable.
pub(crate) fn kernel_types() -> Result<Btf, String> {
    let read = || {
        let size = std::fs::metadata(BTF)?.len();
        if size > BTF_BYTES_MAX {
            return Err(io::Error::other(format!("BTF of {size} bytes exceeds the limit")));
        }
        std::fs::read(Path::new(BTF))
    };
    let bytes = read().map_err(|error| {
        format!("cannot read {BTF}: {error}; a kernel with CONFIG_DEBUG_INFO_BTF is needed")
    })?;
    Btf::parse(bytes)
}

impl BpfProgram {
    /// Creates a map of `words` words, loads the program that `code` returns for the map's
    /// descriptor, and attaches it to the tracepoint.
    pub(crate) fn start(
        name: &str,
        words: usize,
        tracepoint: u32,
        code: impl FnOnce(i32) -> Vec<Instruction>,
    ) -> Result<BpfProgram, String> {
        let bytes = u32::try_from(8 * words)
            .map_err(|_| format!("BPF map of {words} words exceeds the limit"))?;
        let map = syscall::create_map(name, bytes)
            .map_err(|error| load_error("make a BPF map", &error))?;
        let program =
            syscall::load(name, &code(map.as_raw_fd()), ProgramKind::Tracepoint, tracepoint)
                .map_err(|(error, log)| {
                    load_error("load a BPF program", &error) + &log_tail(&log)
                })?;
        let link = syscall::attach(&program)
            .map_err(|error| load_error("attach a BPF program", &error))?;
        Ok(BpfProgram { map, program, _link: link })
    }

    /// Maps a range of the map's words. Only the mapped range takes memory of this process.
    pub(crate) fn cells(&self, range: Range<usize>) -> Result<MapCells, String> {
        MapCells::map(&self.map, range).map_err(|error| load_error("map a BPF map", &error))
    }

    /// Cumulative cost; zeros if the kernel does not count it.
    pub(crate) fn stats(&self) -> BpfStats {
        let path = format!("/proc/self/fdinfo/{}", self.program.as_raw_fd());
        std::fs::read_to_string(path).map_or(BpfStats::default(), |text| parse_stats(&text))
    }
}

/// BPF iterator program. Drop unloads it.
#[derive(Debug)]
pub(crate) struct BpfIterator {
    link: OwnedFd,
}

impl BpfIterator {
    /// Loads a program and attaches it to the iterator with that BTF function id.
    pub(crate) fn start(name: &str, function: u32, code: &[Instruction]) -> Result<Self, String> {
        let program = syscall::load(name, code, ProgramKind::Iterator, function)
            .map_err(|(error, log)| load_error("load a BPF program", &error) + &log_tail(&log))?;
        // The link keeps the program loaded.
        let link =
            syscall::link(&program).map_err(|error| load_error("attach a BPF program", &error))?;
        Ok(BpfIterator { link })
    }

    /// Iterator whose reads fail.
    #[cfg(test)]
    pub(crate) fn empty() -> Self {
        BpfIterator { link: File::open("/dev/null").expect("there is one").into() }
    }

    /// Starts an iteration over all objects.
    pub(crate) fn read(&self) -> io::Result<File> {
        syscall::iterate(&self.link).map(File::from)
    }
}

fn parse_stats(text: &str) -> BpfStats {
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
    };
    BpfStats {
        runs: field("run_cnt"),
        time_ns: field("run_time_ns"),
        recursion_misses: field("recursion_misses"),
    }
}

/// Error text: the refused operation, the cause and the remedy.
fn load_error(doing: &str, error: &io::Error) -> String {
    let remedy = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            "; run as root or grant CAP_BPF and CAP_PERFMON, and check kernel lockdown"
        }
        Some(libc::ENOMEM | libc::E2BIG) => "; raise RLIMIT_MEMLOCK",
        Some(libc::ENOSYS) => "; the kernel was built without BPF",
        _ => "",
    };
    format!("cannot {doing}: {error}{remedy}")
}

fn log_tail(log: &str) -> String {
    let log = log.trim();
    if log.is_empty() {
        return String::new();
    }
    let mut from = log.len().saturating_sub(LOG_TAIL_BYTES);
    while !log.is_char_boundary(from) {
        from += 1;
    }
    format!("; verifier: {}", &log[from..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_read_where_they_are_counted() {
        let text =
            "pos:\t0\nprog_type:\t26\nrun_time_ns:\t1190\nrun_cnt:\t10\nrecursion_misses:\t3\n";
        assert_eq!(parse_stats(text), BpfStats { runs: 10, time_ns: 1_190, recursion_misses: 3 });
        assert_eq!(parse_stats("prog_type:\t26\n"), BpfStats::default());
    }

    #[test]
    fn load_error_names_the_remedy() {
        let text = load_error("load a BPF program", &io::Error::from_raw_os_error(libc::EPERM));
        assert!(text.contains("CAP_BPF"), "{text}");
        assert_eq!(log_tail(" \n"), "");
        let long = "é".repeat(LOG_TAIL_BYTES);
        assert!(log_tail(&long).len() <= LOG_TAIL_BYTES + 30);
    }
}
