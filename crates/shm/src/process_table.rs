//! Process table in shared memory: one writer, any number of readers.
//!
//! One [`Writer`] publishes, any number of viewers [`read`]: a viewer costs the system a copy of
//! the rows, takes no lock of any process and of no table of the kernel, and the writer does not
//! know of it. The file has two buffers, written in turn, so a viewer has the time between two
//! publications to read one; if that was too short for it, it sees so and reads the other. The
//! bytes: docs/formats/process-table.md and `layout`.

mod layout;
mod reader;
mod writer;

use std::borrow::Cow;
use std::io;
use std::path::PathBuf;

pub use layout::{
    BUFFER_FIELDS, BUFFER_HEAD_BYTES, FIRST_BUFFER, Field, HEADER_BYTES, HEADER_FIELDS, MAGIC,
    PROCESSES_MAX, ROW_BYTES, ROW_FIELDS, VERSION,
};
pub use reader::{read, read_newest_two};
pub use writer::{FILE_NAME, LOCK_NAME, TableWriter};

/// The result of publishing and reading.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// How the process table was collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CollectionMethod {
    /// By an iterator over tasks in the kernel.
    Bpf,
    /// Out of `/proc/PID/stat`.
    Procfs,
}

/// A process: a thread group, by its leader.
///
/// Numbers are of the whole group. Those that count may fall short of the reading before, for a
/// moment, by a thread that ended while they were read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessRow {
    /// Its number.
    pub pid: u32,
    /// The number of its parent; 0 if that is the kernel.
    pub ppid: u32,
    /// The effective user.
    pub uid: u32,
    /// Threads.
    pub threads: u32,
    /// When it began, in ticks since the system did, as in `/proc/PID/stat`. Together with `pid`,
    /// who it is.
    pub start: u64,
    /// What the kernel calls it, to the first zero; any bytes: see [`Process::name`].
    pub comm: [u8; 16],
    /// `R` runs or could, `S` sleeps, `D` sleeps and cannot be woken, `I` idle thread of the
    /// kernel, `T` stopped, `t` traced, `Z` ended and not yet asked about, `X` ended, `P` parked.
    /// Of the leader.
    pub state: u8,
    /// Time on processors outside the kernel, in nanoseconds.
    pub user_ns: u64,
    /// Time on processors inside the kernel, in nanoseconds.
    pub system_ns: u64,
    /// Faults of pages that needed no reading.
    pub minor_faults: u64,
    /// Faults of pages that did.
    pub major_faults: u64,
    /// Resident memory. By BPF, each processor may hold back some dozens of pages that are not in
    /// it yet.
    pub rss_bytes: u64,
    /// Switches away because it had to wait; `None` if not told.
    pub voluntary_switches: Option<u64>,
    /// Switches away because others had to run; `None` if not told.
    pub involuntary_switches: Option<u64>,
    /// How long threads that still live waited for a processor, in nanoseconds; `None` if not told.
    pub run_delay_ns: Option<u64>,
}

impl ProcessRow {
    /// What the kernel calls it. A program says that of itself: there may be control characters in
    /// it.
    pub fn name(&self) -> Cow<'_, str> {
        let end = self.comm.iter().position(|&byte| byte == 0).unwrap_or(self.comm.len());
        String::from_utf8_lossy(&self.comm[..end])
    }
}

/// When and how the process table was collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectionInfo {
    /// When it was begun to be read: nanoseconds of `CLOCK_MONOTONIC`. A table that grows old has
    /// nobody who writes it.
    pub started_ns: u64,
    /// The same as nanoseconds since the Unix epoch.
    pub unix_ns: i64,
    /// How.
    pub method: CollectionMethod,
    /// Ticks of [`Process::start`] in a second.
    pub ticks_per_second: u32,
}

/// The process table at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessTable {
    /// When and how it was read.
    pub collection: CollectionInfo,
    /// How many tables the writer has published, this one included.
    pub generation: u64,
    /// All processes, by ascending number.
    pub processes: Vec<ProcessRow>,
}

impl ProcessTable {
    /// Reads the newest table out of a whole file's bytes, whatever they are.
    pub fn parse(bytes: &[u8]) -> Result<ProcessTable> {
        reader::parse_bytes(bytes)
    }
}

/// Why there is no table.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refuses.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// With what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Memory files are not kept there.
    #[error("cannot publish in {}: not on tmpfs, writes could block on a disk", path.display())]
    NotTmpfs {
        /// The folder.
        path: PathBuf,
    },
    /// There is a writer already.
    #[error("cannot publish {}: another topdeck is publishing", path.display())]
    WriterExists {
        /// The table.
        path: PathBuf,
    },
    /// More processes than a table has.
    #[error("too many processes: {found}, limit {PROCESSES_MAX}")]
    TooMany {
        /// How many there are.
        found: usize,
    },
    /// The writer has not published yet. Try again.
    #[error("process table not yet published")]
    Empty,
    /// Each time that it was read, it was overwritten meanwhile: this process got too little
    /// processor. Try again.
    #[error("process table overwritten during {tries} reads")]
    Overwritten {
        /// How often it was tried.
        tries: u32,
    },
    /// These are not the bytes of a table.
    #[error("this is no process table: {field} is {found}")]
    Damaged {
        /// Which field.
        field: &'static str,
        /// What it has.
        found: u64,
    },
    /// Shorter than it says it is.
    #[error("file has {have} bytes, needs {need}")]
    Truncated {
        /// How many bytes there are.
        have: u64,
        /// How many are needed.
        need: u64,
    },
}
