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
    /// `open` that makes a file.
    Create,
    /// `create_dir` that makes at least one folder.
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
    /// Whether it changes something, or what is durable: these are counted, and a power cut or a
    /// kill may come in the middle of one.
    pub fn mutates(self) -> bool {
        use DiskOperation::*;
        !matches!(self, Read | Open | List | Lock | Map)
    }
}

/// Injected fault: fails matching operations on a path.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Which operation.
    pub operation: DiskOperation,
    /// Part of the file's present path (empty when it has none), of the folder's, or of either path
    /// of a rename.
    pub path_contains: String,
    /// How many such operations still succeed.
    pub skip: u64,
    /// How many fail after that.
    pub times: u64,
    /// How they fail.
    pub kind: FaultKind,
}

/// How an operation fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// With an error of this kind, and nothing was done; but a `sync` that fails leaves what it
    /// should have written clean and not durable, as Linux does: it can be read until the power
    /// goes, and a later `sync` does not write it.
    Error(io::ErrorKind),
    /// The same with an error of the operating system, such as 5 for EIO or 28 for ENOSPC.
    Os(i32),
    /// A write, or a read, does a part of what was asked and says so.
    ShortWrite,
    /// With `ErrorKind::Interrupted`; nothing was done and nothing is lost.
    Interrupted,
}

impl FaultKind {
    /// The error, unless it is none.
    pub(super) fn error(self) -> Option<io::Error> {
        match self {
            FaultKind::Error(kind) => Some(io::Error::new(kind, "injected fault")),
            FaultKind::Os(code) => Some(io::Error::from_raw_os_error(code)),
            FaultKind::ShortWrite => None,
            FaultKind::Interrupted => Some(io::ErrorKind::Interrupted.into()),
        }
    }
}

/// The fault that strikes this operation, if any.
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
