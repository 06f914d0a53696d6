//! `topdeck restore`: a folder for `topdeck serve`, made of a snapshot.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;

use crate::store::{private_dir, restore_snapshot};

/// Make a folder for `topdeck serve` of a snapshot
///
/// The snapshot stays as it is. Tokens and the journal are not in it: the new folder has an empty
/// journal and no tokens.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// The snapshot's folder
    #[arg(value_name = "SNAPSHOT")]
    snapshot: PathBuf,

    /// The new data folder, for --data-dir
    #[arg(value_name = "DIR")]
    data: PathBuf,
}

const AFTER: &str = "\
Example:
  topdeck restore /var/lib/topdeck/snapshots/before-the-upgrade /var/lib/topdeck-2
  topdeck serve --data-dir /var/lib/topdeck-2

Exit status:
  0  the folder is there, durably
  1  there is no snapshot, or the new folder has a store already
  2  usage error";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    private_dir(&options.data)?;
    restore_snapshot(&options.snapshot, &options.data.join("store"), journal::Compression::Lz4)
}
