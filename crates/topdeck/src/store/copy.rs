//! `topdeck store snapshot` and `restore`: copies by hard links.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use answers::store_dir::{open, with_dir};
use anyhow::Result;
use client::print_stdout;
use journal::{Compression, Settings};
use store::{SnapshotInfo, Store};

use crate::journal::parse;
use crate::store::{disk, sample_count_text};
use render::bytes::format_bytes;
use render::text::escape_control;
use render::text::plural;
use render::text::shell_quote;

/// Create a snapshot of a store in a new directory
///
/// On the same file system the snapshot takes no space until the store changes. It contains
/// everything acknowledged before.
#[derive(clap::Args)]
#[command(after_long_help = SNAPSHOT_AFTER)]
pub(crate) struct SnapshotOptions {
    /// Directory of the store
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// Directory of the snapshot, created if it is missing
    #[arg(value_name = "SNAPSHOT")]
    to: PathBuf,
}

const SNAPSHOT_AFTER: &str = "\
Examples:
  topdeck store snapshot s s-before-the-upgrade
  topdeck store restore s-before-the-upgrade t

Exit status:
  0  the snapshot is durable
  1  store not found or in use, or the new directory already has a store
  2  usage error";

/// Create a store from a snapshot, in a new directory
///
/// The snapshot is not changed. The new store has an empty journal.
#[derive(clap::Args)]
#[command(after_long_help = RESTORE_AFTER)]
pub(crate) struct RestoreOptions {
    /// Directory of the snapshot
    #[arg(value_name = "SNAPSHOT")]
    snapshot: PathBuf,

    /// Directory of the new store
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// Compression of the new journal
    #[arg(long, default_value = "lz4", value_parser = parse::compression_parser())]
    compression: Compression,
}

const RESTORE_AFTER: &str = "\
Examples:
  topdeck store restore s-before-the-upgrade t

Exit status:
  0  the store is durable
  1  snapshot not found, or the new directory already has a store
  2  usage error";

pub(crate) fn snapshot(options: &SnapshotOptions) -> Result<ExitCode> {
    let store = open(&options.dir)?;
    let info = store.snapshot(&disk(), &options.to).map_err(with_dir(&options.dir))?;
    let (dir, to) = (shell_quote(&options.dir), escape_control(&options.to.display().to_string()));
    print_stdout(
        format!("created a snapshot of {dir} in {to}: {}\n", content_summary(&info)).as_bytes(),
    )?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn restore(options: &RestoreOptions) -> Result<ExitCode> {
    restore_snapshot(&options.snapshot, &options.dir, options.compression)
}

/// Creates a store from a snapshot, and returns a summary.
pub(crate) fn restore_snapshot(
    snapshot: &Path,
    dir: &Path,
    compression: Compression,
) -> Result<ExitCode> {
    let settings = Settings { compression, ..Settings::default() };
    let info = Store::restore(&disk(), snapshot, dir, &settings).map_err(with_dir(dir))?;
    let dir = escape_control(&dir.display().to_string());
    print_stdout(format!("created a store in {dir}: {}\n", content_summary(&info)).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn content_summary(snapshot: &SnapshotInfo) -> String {
    format!(
        "{}, {} with {}, {}",
        plural(snapshot.series, "series", "series"),
        plural(snapshot.parts, "part", "parts"),
        sample_count_text(snapshot.rows),
        format_bytes(snapshot.bytes)
    )
}
