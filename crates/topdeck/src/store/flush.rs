//! `topdeck store flush` and `maintain`: maintenance on request; an open store does it in the
//! background.

use std::path::PathBuf;
use std::process::ExitCode;

use answers::store_dir::{open, with_dir};
use anyhow::Result;
use client::{ProgressLine, print_message, print_stdout};
use store::{Store, StoreStat};

use crate::store::sample_count_text;
use render::bytes::format_bytes;
use render::text::plural;

/// Flush samples in memory (the head) to parts, the files of the store
///
/// The samples are already durable in the journal; parts are smaller and faster to read.
#[derive(clap::Args)]
#[command(after_long_help = FLUSH_AFTER)]
pub(crate) struct FlushOptions {
    /// Directory of the store
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

const FLUSH_AFTER: &str = "\
Examples:
  topdeck store flush s

Exit status:
  0  all samples are in parts
  1  store not found or in use, or a write failed
  2  usage error";

/// Run due maintenance: flush, roll up, compact, apply retention
///
/// `topdeck import` does this at its end.
#[derive(clap::Args)]
#[command(after_long_help = MAINTAIN_AFTER)]
pub(crate) struct MaintainOptions {
    /// Directory of the store
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

const MAINTAIN_AFTER: &str = "\
Examples:
  topdeck store maintain s

Exit status:
  0  no maintenance is due
  1  store not found or in use, or a write failed
  2  usage error";

pub(crate) fn flush(options: &FlushOptions) -> Result<ExitCode> {
    let describe_error = with_dir(&options.dir);
    let store = open(&options.dir)?;
    let before = store.stat().map_err(&describe_error)?.head_rows;
    store.flush().map_err(&describe_error)?;
    let stat = store.stat().map_err(&describe_error)?;
    let text = match before {
        0 => format!("nothing to flush; {}\n", content_summary(&stat)),
        n => format!("flushed {}; {}\n", sample_count_text(n), content_summary(&stat)),
    };
    print_stdout(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn maintain(options: &MaintainOptions) -> Result<ExitCode> {
    let describe_error = with_dir(&options.dir);
    let store = open(&options.dir)?;
    let before = store.stat().map_err(&describe_error)?;
    let changed = run_maintenance(&store, &mut ProgressLine::new()).map_err(&describe_error)?;
    let after = store.stat().map_err(&describe_error)?;
    let text = match changed {
        false => format!("nothing is due; {}\n", content_summary(&after)),
        true => {
            format!("before: {}\nnow:    {}\n", content_summary(&before), content_summary(&after))
        }
    };
    print_stdout(text.as_bytes())?;
    for note in after.warnings.iter().filter(|note| !before.warnings.contains(note)) {
        print_message(note);
    }
    Ok(ExitCode::SUCCESS)
}

/// Maximum number of maintenance rounds; each may make more work possible.
const ROUNDS_MAX: usize = 16;

/// Runs maintenance until none is due. Returns whether anything was done.
pub(crate) fn run_maintenance(store: &Store, progress: &mut ProgressLine) -> store::Result<bool> {
    let mut changed = false;
    for _ in 0..ROUNDS_MAX {
        progress.show(|_| "flushing and rolling up".to_owned());
        if !store.maintain()? {
            break;
        }
        changed = true;
    }
    Ok(changed)
}

/// Contents of a store, in one line.
pub(crate) fn content_summary(stat: &StoreStat) -> String {
    let bytes: u64 = stat.parts.iter().map(|part| part.bytes).sum();
    let count: u64 = stat.parts.iter().map(|part| part.rows).sum();
    let mut text = format!(
        "{} with {}, {}",
        plural(stat.parts.len() as u64, "part", "parts"),
        sample_count_text(count),
        format_bytes(bytes)
    );
    if stat.head_rows > 0 {
        text.push_str(&format!("; {} in memory and journal", sample_count_text(stat.head_rows)));
    }
    text
}
