//! `topdeck store seal` and `maintain`: what a store does by itself while it is open, on request.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use store::{Stat, Store};

use crate::command::{print, say};
use crate::journal::progress::Progress;
use crate::journal::show;
use crate::store::{open, plural, rows, told};

/// Bring everything that is only in memory and journal into parts
///
/// Rows are safe in the journal before; parts are smaller and quicker to read.
#[derive(clap::Args)]
#[command(after_long_help = SEAL_AFTER)]
pub(crate) struct SealOptions {
    /// The store's folder
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

const SEAL_AFTER: &str = "\
Examples:
  topdeck store seal s

Exit status:
  0  all rows are in parts
  1  there is no store, or it is in use, or the disk refused
  2  the command line makes no sense";

/// Do what is due: seal, roll up days that are over, put small parts together, drop what is too old
///
/// `topdeck import` does this at its end.
#[derive(clap::Args)]
#[command(after_long_help = MAINTAIN_AFTER)]
pub(crate) struct MaintainOptions {
    /// The store's folder
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

const MAINTAIN_AFTER: &str = "\
Examples:
  topdeck store maintain s

Exit status:
  0  nothing is due any more
  1  there is no store, or it is in use, or the disk refused
  2  the command line makes no sense";

pub(crate) fn seal(options: &SealOptions) -> Result<ExitCode> {
    let told = told(&options.dir);
    let store = open(&options.dir)?;
    let before = store.stat().map_err(&told)?.head_rows;
    store.seal().map_err(&told)?;
    let stat = store.stat().map_err(&told)?;
    let text = match before {
        0 => format!("nothing to seal; {}\n", held(&stat)),
        n => format!("sealed {}; {}\n", rows(n), held(&stat)),
    };
    print(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn maintain(options: &MaintainOptions) -> Result<ExitCode> {
    let told = told(&options.dir);
    let store = open(&options.dir)?;
    let before = store.stat().map_err(&told)?;
    let changed = settle(&store, &mut Progress::new()).map_err(&told)?;
    let after = store.stat().map_err(&told)?;
    let text = match changed {
        false => format!("nothing is due; {}\n", held(&after)),
        true => format!("before: {}\nnow:    {}\n", held(&before), held(&after)),
    };
    print(text.as_bytes())?;
    for note in after.notes.iter().filter(|note| !before.notes.contains(note)) {
        say(note);
    }
    Ok(ExitCode::SUCCESS)
}

/// Times that maintenance is asked whether more is due; each finds what the one before made possible.
const ROUNDS_MAX: usize = 16;

/// Does what is due, until nothing is. Whether anything was.
pub(crate) fn settle(store: &Store, progress: &mut Progress) -> store::Result<bool> {
    let mut changed = false;
    for _ in 0..ROUNDS_MAX {
        progress.show(|_| "sealing and rolling up".to_owned());
        if !store.maintain()? {
            break;
        }
        changed = true;
    }
    Ok(changed)
}

/// What a store holds, in a line.
pub(crate) fn held(stat: &Stat) -> String {
    let bytes: u64 = stat.parts.iter().map(|part| part.bytes).sum();
    let count: u64 = stat.parts.iter().map(|part| part.rows).sum();
    let mut text = format!(
        "{} with {}, {}",
        plural(stat.parts.len() as u64, "part", "parts"),
        rows(count),
        show::bytes(bytes)
    );
    if stat.head_rows > 0 {
        text.push_str(&format!("; {} in memory and journal", rows(stat.head_rows)));
    }
    text
}
