//! Programs at tracepoints and iterators of the kernel.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use crate::btf::Btf;
use crate::instruction::Instruction;
use crate::load_error::{load_error, program_error};
use crate::map::BpfMap;
use crate::syscall::{self, MapCells, ProgramKind};

/// File with the kernel's BTF.
const BTF: &str = "/sys/kernel/btf/vmlinux";
/// Largest accepted BTF; about ten times the usual size.
const BTF_BYTES_MAX: u64 = 64 << 20;

/// BPF program attached to a tracepoint. Drop detaches and unloads it and frees its map.
#[derive(Debug)]
pub struct BpfProgram {
    map: BpfMap,
    program: TracepointProgram,
}

/// BPF program at a tracepoint, which uses maps of its owner. Drop detaches and unloads it.
#[derive(Debug)]
pub struct TracepointProgram {
    program: OwnedFd,
    _link: OwnedFd,
}

/// BPF program statistics (`kernel.bpf_stats_enabled`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BpfStats {
    /// Number of runs.
    pub runs: u64,
    /// Total run time in nanoseconds.
    pub time_ns: u64,
    /// Runs skipped because the program was already running on the CPU. The kernel always counts
    /// them.
    pub recursion_misses: u64,
}

/// Reads the kernel's BTF. The error is the reason why it is unavailable.
pub fn kernel_types() -> Result<Btf, String> {
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
    pub fn start(
        name: &str,
        words: usize,
        tracepoint: u32,
        code: impl FnOnce(i32) -> Vec<Instruction>,
    ) -> Result<BpfProgram, String> {
        let map = BpfMap::array(name, words)?;
        let program = TracepointProgram::start(name, tracepoint, &code(map.descriptor()))?;
        Ok(BpfProgram { map, program })
    }

    /// Maps a range of the map's words. Only the mapped range takes memory of this process.
    pub fn cells(&self, range: Range<usize>) -> Result<MapCells, String> {
        self.map.cells(range)
    }

    /// Cumulative cost; zeros if the kernel does not count it.
    pub fn stats(&self) -> BpfStats {
        let path = format!("/proc/self/fdinfo/{}", self.program.program.as_raw_fd());
        std::fs::read_to_string(path).map_or(BpfStats::default(), |text| parse_stats(&text))
    }
}

impl TracepointProgram {
    /// Loads a program and attaches it to the tracepoint with that BTF id ([`Btf::tracepoint`]).
    pub fn start(
        name: &str,
        tracepoint: u32,
        code: &[Instruction],
    ) -> Result<TracepointProgram, String> {
        let program = syscall::load(name, code, ProgramKind::Tracepoint, tracepoint)
            .map_err(|(error, log)| program_error(&error, &log))?;
        let link = syscall::attach(&program)
            .map_err(|error| load_error("attach a BPF program", &error))?;
        Ok(TracepointProgram { program, _link: link })
    }
}

/// BPF iterator program. Drop unloads it.
#[derive(Debug)]
pub struct BpfIterator {
    link: OwnedFd,
}

impl BpfIterator {
    /// Loads a program and attaches it to the iterator with that BTF function id.
    pub fn start(name: &str, function: u32, code: &[Instruction]) -> Result<Self, String> {
        let program = syscall::load(name, code, ProgramKind::Iterator, function)
            .map_err(|(error, log)| program_error(&error, &log))?;
        // The link keeps the program loaded.
        let link =
            syscall::link(&program).map_err(|error| load_error("attach a BPF program", &error))?;
        Ok(BpfIterator { link })
    }

    /// Iterator whose reads fail, for tests. The file is not that of an iterator.
    pub fn failing(file: File) -> Self {
        BpfIterator { link: file.into() }
    }

    /// Starts an iteration over all objects.
    pub fn read(&self) -> io::Result<File> {
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
}
