//! /proc files, opened once and re-read with `pread`.
//!
//! A read costs 0.5 to 16 us per file and takes no lock of a process; the cost does not grow with
//! the number of processes. A missing file is left out, because kernels are configured differently.
//! A file that fails later is retried at each scrape.

mod cpu;
mod disk;
mod memory;
mod network;

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use serde::Deserialize;

use crate::block_io;
use crate::error::Result;
#[cfg(test)]
use crate::metric::MetricDefinition;
use crate::metric::{MetricSink, RowReporter};
use crate::source::{HostSource, Opening, SourceSettings};

/// Largest file: `/proc/stat` of a large machine has some hundred thousand bytes.
const FILE_BYTES_MAX: usize = 8 << 20;
/// Initial size of the buffer.
const BUFFER_BYTES: usize = 32 << 10;

/// File of /proc and its parser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProcFile {
    Stat,
    Loadavg,
    Schedstat,
    Pressure(&'static str),
    Meminfo,
    Vmstat,
    Diskstats,
    Dev,
    Pairs,
    Sockstat,
}

const FILES: [(&str, ProcFile); 13] = [
    ("/proc/stat", ProcFile::Stat),
    ("/proc/loadavg", ProcFile::Loadavg),
    ("/proc/schedstat", ProcFile::Schedstat),
    ("/proc/pressure/cpu", ProcFile::Pressure("cpu")),
    ("/proc/pressure/io", ProcFile::Pressure("io")),
    ("/proc/pressure/memory", ProcFile::Pressure("memory")),
    ("/proc/meminfo", ProcFile::Meminfo),
    ("/proc/vmstat", ProcFile::Vmstat),
    ("/proc/diskstats", ProcFile::Diskstats),
    ("/proc/net/dev", ProcFile::Dev),
    ("/proc/net/snmp", ProcFile::Pairs),
    ("/proc/net/netstat", ProcFile::Pairs),
    ("/proc/net/sockstat", ProcFile::Sockstat),
];

/// All metrics of /proc files, compared with docs/host.md.
#[cfg(test)]
pub(crate) fn metrics() -> impl Iterator<Item = MetricDefinition> {
    let [cpu, disk] = [cpu::METRICS, disk::METRICS].map(|metrics| metrics.iter().copied());
    cpu.chain(memory::metrics()).chain(disk).chain(network::metrics())
}

/// Open files of /proc.
#[derive(Debug)]
pub(crate) struct Procfs {
    files: Vec<(File, ProcFile)>,
    buffer: Vec<u8>,
    disks: HashSet<String>,
}

/// Settings of /proc files.
#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ProcfsSettings {
    /// CPU, memory, disk and network metrics from /proc; about 60 us a scrape: true.
    procfs: bool,
}

impl Default for ProcfsSettings {
    fn default() -> ProcfsSettings {
        ProcfsSettings { procfs: true }
    }
}

impl SourceSettings for ProcfsSettings {
    const KEYS: &'static [&'static str] = &["procfs"];

    fn is_enabled(&self) -> bool {
        self.procfs
    }

    fn open(&self, opening: &mut Opening<'_>) -> Result<Option<Box<dyn HostSource>>> {
        Ok(match self.procfs {
            true => Some(Box::new(Procfs::open())),
            false if opening.has_failed(block_io::PROGRAM) => Some(Box::new(Procfs::open_disks())),
            false => None,
        })
    }
}

impl HostSource for Procfs {
    fn read(&mut self, report: &mut RowReporter<'_>, _began: i64) -> u64 {
        self.read_all(report)
    }
}

impl Procfs {
    /// Opens all files that exist.
    fn open() -> Procfs {
        Procfs::open_some(|_| true)
    }

    /// Opens only `/proc/diskstats`: the fallback for block I/O distributions if `procfs` is off.
    fn open_disks() -> Procfs {
        Procfs::open_some(|what| what == ProcFile::Diskstats)
    }

    fn open_some(filter: impl Fn(ProcFile) -> bool) -> Procfs {
        let files = FILES.into_iter().filter(|file| filter(file.1));
        let files = files.filter_map(|(path, what)| Some((File::open(path).ok()?, what)));
        let buffer = vec![0; BUFFER_BYTES];
        Procfs { files: files.collect(), buffer, disks: HashSet::new() }
    }

    /// Reads all files. Returns how many could not be read.
    fn read_all(&mut self, sink: &mut dyn MetricSink) -> u64 {
        let mut failed = 0;
        for (file, what) in &self.files {
            let Ok(length) = read(file, &mut self.buffer) else {
                failed += 1;
                continue;
            };
            // Device and interface names may contain any bytes; the numbers do not.
            let text = String::from_utf8_lossy(&self.buffer[..length]);
            let disks = &mut self.disks;
            let mut is_disk = |name: &str| {
                // A device may become a disk later: a loop device that is attached to a file.
                disks.contains(name) || (disk::is_disk(name) && disks.insert(name.to_owned()))
            };
            match what {
                ProcFile::Stat => cpu::stat(&text, sink),
                ProcFile::Loadavg => cpu::loadavg(&text, sink),
                ProcFile::Schedstat => cpu::schedstat(&text, sink),
                ProcFile::Pressure(resource) => cpu::pressure(resource, &text, sink),
                ProcFile::Meminfo => memory::meminfo(&text, sink),
                ProcFile::Vmstat => memory::vmstat(&text, sink),
                ProcFile::Diskstats => disk::diskstats(&text, &mut is_disk, sink),
                ProcFile::Dev => network::dev(&text, sink),
                ProcFile::Pairs => network::pairs(&text, sink),
                ProcFile::Sockstat => network::sockstat(&text, sink),
            }
        }
        failed
    }
}

/// Reads a file from its start into a buffer that grows as needed, and returns its length.
fn read(file: &File, buffer: &mut Vec<u8>) -> io::Result<usize> {
    let mut length = 0;
    loop {
        if length == buffer.len() {
            if length >= FILE_BYTES_MAX {
                return Err(io::Error::other("file exceeds the size limit"));
            }
            buffer.resize(2 * length, 0);
        }
        match file.read_at(&mut buffer[length..], length as u64)? {
            0 => return Ok(length),
            more => length += more,
        }
    }
}

/// Numbers at the start of a line, with or without a decimal point.
fn numbers(text: &str) -> impl Iterator<Item = f64> {
    let is_number = |word: &&str| word.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    text.split_ascii_whitespace().take_while(is_number).map_while(|word| word.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::RecordedMetrics;

    #[test]
    fn this_host_is_read() {
        let mut procfs = Procfs::open();
        let mut taken = RecordedMetrics::default();
        procfs.read_all(&mut taken);
        assert!(taken.value("host_cpu_seconds_total{cpu=0,mode=user}").is_some(), "{taken:?}");
        assert!(taken.value("host_memory_total_bytes{}").is_some_and(|bytes| bytes > 0.0));
        // A second scrape returns values too: it starts at the beginning of each file.
        let before = taken.len();
        procfs.read_all(&mut taken);
        assert!(taken.len() >= before + 20);
    }

    #[test]
    fn files_longer_than_the_buffer_are_read_whole() {
        let file = File::open("/proc/self/maps").unwrap();
        let (mut short, mut long) = (vec![0; 16], vec![0; 1 << 20]);
        let length = read(&file, &mut short).unwrap();
        assert!(length > 16);
        assert!(read(&file, &mut long).unwrap() > 16);
        assert_eq!(short[..16], long[..16]);
    }

    #[test]
    fn numbers_end_where_words_begin() {
        let found: Vec<f64> = numbers(" 1 2.5 3/4 5").collect();
        assert_eq!(found, [1.0, 2.5]);
        assert_eq!(numbers("-1").count(), 0);
    }
}
