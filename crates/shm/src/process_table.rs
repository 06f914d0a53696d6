//! Process table in shared memory: one writer, any number of readers.
//!
//! One [`TableWriter`] publishes, any number of viewers [`read`]: a viewer costs a copy of the
//! rows, takes no lock of a process or of a kernel table, and is invisible to the writer. The file
//! has two buffers, written in turn, so a viewer has the time between two publications to read one.
//! If the buffer was overwritten during the read, the viewer detects it and reads the other one.
//! Format: docs/formats/process-table.md and `layout`.

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

/// Result of publishing and reading.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// How the process table was collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CollectionMethod {
    /// BPF task iterator.
    Bpf,
    /// `/proc/PID/stat`.
    Procfs,
}

/// Process: a thread group, identified by its leader.
///
/// Numbers are of the whole group. Counters may briefly decrease, by a thread that exited during
/// the scrape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessRow {
    /// PID.
    pub pid: u32,
    /// PID of the parent; 0 if the parent is the kernel.
    pub ppid: u32,
    /// Effective user id.
    pub uid: u32,
    /// Number of threads.
    pub threads: u32,
    /// Start time in ticks since boot, as in `/proc/PID/stat`. Together with `pid` it identifies
    /// the process.
    pub start: u64,
    /// Kernel name (`comm`) up to the first zero; any bytes: see [`ProcessRow::name`].
    pub comm: [u8; 16],
    /// State of the leader: `R` running or runnable, `S` sleeping, `D` uninterruptible sleep, `I`
    /// idle kernel thread, `T` stopped, `t` traced, `Z` zombie, `X` dead, `P` parked.
    pub state: u8,
    /// CPU time in user mode, in nanoseconds.
    pub user_ns: u64,
    /// CPU time in kernel mode, in nanoseconds.
    pub system_ns: u64,
    /// Minor page faults.
    pub minor_faults: u64,
    /// Major page faults.
    pub major_faults: u64,
    /// Resident memory. By BPF it may lack some dozens of pages per CPU.
    pub rss_bytes: u64,
    /// Voluntary context switches; `None` if unknown.
    pub voluntary_switches: Option<u64>,
    /// Involuntary context switches; `None` if unknown.
    pub involuntary_switches: Option<u64>,
    /// Run queue wait of the living threads, in nanoseconds; `None` if unknown.
    pub run_delay_ns: Option<u64>,
}

impl ProcessRow {
    /// Kernel name. The program can set it: it may contain control characters.
    pub fn name(&self) -> Cow<'_, str> {
        let end = self.comm.iter().position(|&byte| byte == 0).unwrap_or(self.comm.len());
        String::from_utf8_lossy(&self.comm[..end])
    }
}

/// When and how the process table was collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectionInfo {
    /// Start of the scrape: nanoseconds of `CLOCK_MONOTONIC`. An old table has no writer any more.
    pub started_ns: u64,
    /// Start of the scrape: nanoseconds since the Unix epoch.
    pub unix_ns: i64,
    /// Collection method.
    pub method: CollectionMethod,
    /// Ticks per second of [`ProcessRow::start`].
    pub ticks_per_second: u32,
}

/// The process table at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessTable {
    /// When and how the table was collected.
    pub collection: CollectionInfo,
    /// Number of tables that the writer has published, including this one.
    pub generation: u64,
    /// All processes, sorted by PID.
    pub processes: Vec<ProcessRow>,
}

impl ProcessTable {
    /// Parses the newest table in the untrusted bytes of a file.
    pub fn parse(bytes: &[u8]) -> Result<ProcessTable> {
        reader::parse_bytes(bytes)
    }
}

/// Error publishing or reading a process table.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// Failed operation.
        action: &'static str,
        /// File or directory.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// The directory is not on tmpfs.
    #[error("cannot publish in {}: not on tmpfs, writes could block on a disk", path.display())]
    NotTmpfs {
        /// The directory.
        path: PathBuf,
    },
    /// Another writer holds the lock.
    #[error("cannot publish {}: another topdeck is publishing", path.display())]
    WriterExists {
        /// The table.
        path: PathBuf,
    },
    /// The number of processes exceeds the limit.
    #[error("too many processes: {found}, limit {PROCESSES_MAX}")]
    TooMany {
        /// Their number.
        found: usize,
    },
    /// The writer has not published a table yet; retry.
    #[error("process table not yet published")]
    Empty,
    /// The table was overwritten during each attempt: this process got too little CPU time; retry.
    #[error("process table overwritten during {tries} reads")]
    Overwritten {
        /// Number of attempts.
        tries: u32,
    },
    /// The file is not a process table.
    #[error("not a process table: {field} is {found}")]
    Damaged {
        /// Invalid field.
        field: &'static str,
        /// Its value.
        found: u64,
    },
    /// The file is shorter than its header says.
    #[error("file has {have} bytes, needs {need}")]
    Truncated {
        /// Size of the file in bytes.
        have: u64,
        /// Required size in bytes.
        need: u64,
    },
}
