//! Injected faults.

use std::io;
use std::path::Path;

/// Kind of disk operation, for fault injection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DiskOperation {
    /// `read_at`.
    Read,
    /// `write_at` of at least one byte.
    Write,
    /// `set_len`.
    SetLen,
    /// `allocate`.
    Allocate,
    /// `sync` of a file.
    Sync,
    /// `open` of a file that exists.
    Open,
    /// `open` that creates a file.
    Create,
    /// `create_dir` that creates at least one directory.
    CreateDir,
    /// `list`.
    List,
    /// `rename`.
    Rename,
    /// `link`.
    Link,
    /// `remove`.
    Remove,
    /// `sync_dir`.
    SyncDir,
    /// `lock`, `try_lock` and `try_lock_shared`.
    Lock,
    /// `map`.
    Map,
}

impl DiskOperation {
    /// Whether it changes data or durability: such operations are counted, and a power loss or kill
    /// may interrupt them.
    pub fn mutates(self) -> bool {
        use DiskOperation::*;
        !matches!(self, Read | Open | List | Lock | Map)
    }
}

/// Injected fault: fails matching operations on a path.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Operation.
    pub operation: DiskOperation,
    /// Part of the file's current path (empty if it has none), of the directory's, or of either
    /// path of a rename.
    pub path_contains: String,
    /// Number of matching operations that still succeed.
    pub skip: u64,
    /// Number of operations that fail after that.
    pub times: u64,
    /// Kind of failure.
    pub kind: FaultKind,
}

/// Kind of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// An error of this kind, without effect; but a failed `sync` leaves its pages clean and not
    /// durable, as Linux does: they can be read until power is lost, and a later `sync` does not
    /// write them.
    Error(io::ErrorKind),
    /// An error of the operating system, such as 5 for EIO or 28 for ENOSPC.
    Os(i32),
    /// A short write or read.
    ShortWrite,
    /// `ErrorKind::Interrupted`, without effect.
    Interrupted,
}

impl FaultKind {
    /// The error, if the kind is one.
    pub(super) fn error(self) -> Option<io::Error> {
        match self {
            FaultKind::Error(kind) => Some(io::Error::new(kind, "injected fault")),
            FaultKind::Os(code) => Some(io::Error::from_raw_os_error(code)),
            FaultKind::ShortWrite => None,
            FaultKind::Interrupted => Some(io::ErrorKind::Interrupted.into()),
        }
    }
}

/// The fault that applies to this operation, if any.
pub(super) fn matching_fault(
    faults: &mut [Fault],
    operation: DiskOperation,
    paths: &[&Path],
) -> Option<FaultKind> {
    for fault in faults {
        let on = |path: &&Path| path.to_string_lossy().contains(&fault.path_contains);
        if fault.operation != operation || !paths.iter().any(on) {
            continue;
        }
        if fault.skip > 0 {
            fault.skip -= 1;
        } else if fault.times > 0 {
            fault.times -= 1;
            return Some(fault.kind);
        }
    }
    None
}
