//! BPF programs assembled at run time with offsets from BTF.
//!
//! Needs Linux 5.12 or later with BTF (`/sys/kernel/btf/vmlinux`) and the right to load programs:
//! root, or CAP_BPF and CAP_PERFMON. A program counts in the single value of an array map, of which
//! parts are mapped here and read without a system call; or it writes of each task to who reads the
//! iterator.

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

/// Where the kernel describes its types.
const BTF: &str = "/sys/kernel/btf/vmlinux";
/// Its size at the most: some ten times what kernels have.
const BTF_BYTES_MAX: u64 = 64 << 20;
/// Of the verifier's log the last bytes are told: what it did not like stands there.
const LOG_TAIL_BYTES: usize = 1_500;

/// BPF program attached to a tracepoint. Dropped, it is detached and unloaded, and its map freed.
#[derive(Debug)]
pub(crate) struct BpfProgram {
    map: OwnedFd,
    program: OwnedFd,
    _link: OwnedFd,
}

/// BPF program statistics (`kernel.bpf_stats_enabled`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BpfStats {
    /// How often it ran.
    pub(crate) runs: u64,
    /// For how long, in nanoseconds.
    pub(crate) time_ns: u64,
    /// How often it should have run and did not, because it was running on that processor. Always
    /// counted.
    pub(crate) recursion_misses: u64,
}

/// The kernel's types, or why they are not to be had.
pub(crate) fn kernel_types() -> Result<Btf, String> {
    let read = || {
        let size = std::fs::metadata(BTF)?.len();
        if size > BTF_BYTES_MAX {
            return Err(io::Error::other(format!("{size} bytes are too many")));
        }
        std::fs::read(Path::new(BTF))
    };
    let bytes = read().map_err(|error| {
        format!("cannot read {BTF}: {error}; a kernel with CONFIG_DEBUG_INFO_BTF is needed")
    })?;
    Btf::parse(bytes)
}

impl BpfProgram {
    /// Makes a map of `words` words, loads what `code` makes of its descriptor, and attaches that
    /// to a tracepoint.
    pub(crate) fn start(
        name: &str,
        words: usize,
        tracepoint: u32,
        code: impl FnOnce(i32) -> Vec<Instruction>,
    ) -> Result<BpfProgram, String> {
        let bytes = u32::try_from(8 * words).map_err(|_| format!("{words} words are too many"))?;
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

    /// Some words of what it counts. Only what is asked for takes memory of this process.
    pub(crate) fn cells(&self, range: Range<usize>) -> Result<MapCells, String> {
        MapCells::map(&self.map, range).map_err(|error| load_error("map a BPF map", &error))
    }

    /// What it cost so far; nothing where the kernel does not count.
    pub(crate) fn stats(&self) -> BpfStats {
        let path = format!("/proc/self/fdinfo/{}", self.program.as_raw_fd());
        std::fs::read_to_string(path).map_or(BpfStats::default(), |text| parse_stats(&text))
    }
}

/// BPF iterator program. Dropped, it is unloaded.
#[derive(Debug)]
pub(crate) struct BpfIterator {
    link: OwnedFd,
}

impl BpfIterator {
    /// Loads a program and attaches it to the iterator of that function's number.
    pub(crate) fn start(name: &str, function: u32, code: &[Instruction]) -> Result<Self, String> {
        let program = syscall::load(name, code, ProgramKind::Iterator, function)
            .map_err(|(error, log)| load_error("load a BPF program", &error) + &log_tail(&log))?;
        // The link holds the program.
        let link =
            syscall::link(&program).map_err(|error| load_error("attach a BPF program", &error))?;
        Ok(BpfIterator { link })
    }

    /// One that nothing can be read of.
    #[cfg(test)]
    pub(crate) fn empty() -> Self {
        BpfIterator { link: File::open("/dev/null").expect("there is one").into() }
    }

    /// All objects, as they are while this is read to its end.
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

/// What was refused and what to do about it.
fn load_error(doing: &str, error: &io::Error) -> String {
    let remedy = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            "; run as root or give CAP_BPF and CAP_PERFMON, and see that the kernel is not locked \
             down"
        }
        Some(libc::ENOMEM | libc::E2BIG) => "; raise the limit of locked memory",
        Some(libc::ENOSYS) => "; the kernel has no BPF",
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
    format!("; the verifier says: {}", &log[from..])
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
