//! `topdeck restore`: creates a data directory for `topdeck serve` from a snapshot.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use client::private_dir;

use crate::store::restore_snapshot;

/// Create a data directory for `topdeck serve` from a snapshot
///
/// The snapshot is not changed. It contains neither tokens nor the journal: the new directory has
/// an empty journal and no tokens.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Directory of the snapshot
    #[arg(value_name = "SNAPSHOT")]
    snapshot: PathBuf,

    /// New data directory, for --data-dir
    #[arg(value_name = "DIR")]
    data: PathBuf,
}

const AFTER: &str = "\
Example:
  topdeck restore /var/lib/topdeck/snapshots/before-the-upgrade /var/lib/topdeck-2
  topdeck serve --data-dir /var/lib/topdeck-2

Exit status:
  0  the directory is durable
  1  snapshot not found, or the new directory already has a store
  2  usage error";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    private_dir(&options.data)?;
    restore_snapshot(&options.snapshot, &options.data.join("store"), journal::Compression::Lz4)
}
