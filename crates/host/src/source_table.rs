//! The table of all sources of host metrics.

use role::settings::{Document, Problems};

use crate::error::Result;
use crate::source::{SourceHandle, SourceSettings, TABLE};

/// All sources, in the order in which they are opened and read. Hiccups come first: their first row
/// begins when the sources are opened, and loading BPF programs takes time. `procfs` follows block
/// I/O because it reports the sums of `/proc/diskstats` if block I/O has no distributions.
pub(crate) const SOURCES: &[SourceRow] = &[
    row::<crate::hiccup::HiccupSettings>(),
    row::<crate::block_io::BlockIoSettings>(),
    row::<crate::run_queue::RunQueueSettings>(),
    row::<crate::procfs::ProcfsSettings>(),
    row::<crate::cgroups::CgroupSettings>(),
    row::<crate::process_table::ProcessTableSettings>(),
    row::<crate::shm_metrics::ShmMetricsSettings>(),
    row::<crate::crashes::CrashSettings>(),
];

/// A source in the table.
pub(crate) struct SourceRow {
    pub(crate) keys: &'static [&'static str],
    /// Settings without keys.
    pub(crate) default: fn() -> SourceHandle,
    /// Settings with the keys of a settings file.
    pub(crate) read: fn(&Document<'_>) -> Result<SourceHandle, Problems>,
}

const fn row<S: SourceSettings>() -> SourceRow {
    SourceRow { keys: S::KEYS, default: default::<S>, read: read::<S> }
}

fn default<S: SourceSettings>() -> SourceHandle {
    SourceHandle::new(S::default())
}

fn read<S: SourceSettings>(document: &Document<'_>) -> Result<SourceHandle, Problems> {
    Ok(SourceHandle::new(document.read_table::<S>(TABLE, S::KEYS)?))
}
