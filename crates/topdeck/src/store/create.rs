//! `topdeck store create`: a new store, and what it will keep.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use journal::{Codec, Settings};
use store::{Keep, Store};

use crate::command::{plain, print};
use crate::journal::{parse, show};
use crate::store::{disk, open, rules, told};

/// Make a store in a folder
///
/// What is written goes to a journal in the folder first, and is safe there; --codec is how the journal
/// compresses. Parts, which all rows end in, have a form of their own.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Its folder, made if it is missing; on a local disk, not on a network
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// How the journal compresses
    #[arg(long, default_value = "lz4", value_parser = parse::codec())]
    codec: Codec,

    /// How long rows are kept, such as 'base 30d' or '5m 1y {host="x"}'; may be given again
    ///
    /// As in `topdeck store keep`. Without a rule, for ever.
    #[arg(long, value_name = "RULE", value_parser = rules::parse)]
    keep: Vec<Keep>,
}

const AFTER: &str = "\
Examples:
  topdeck store create /var/lib/topdeck
  topdeck store create s --keep 'base 30d' --keep '1m 30d' --keep '5m 1y'

Exit status:
  0  it is there, durably
  1  it could not be made, or there was one already
  2  the command line makes no sense";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    create(&options.dir, options.codec)?;
    if !options.keep.is_empty() {
        let store = open(&options.dir)?;
        store.set_keep(options.keep.clone()).map_err(told(&options.dir))?;
    }
    let dir = plain(&options.dir.display().to_string());
    let compressed = match options.codec {
        Codec::None => "not compressed".to_owned(),
        codec => format!("compressed with {}", show::codec(codec)),
    };
    let kept = rules::text(&options.keep);
    print(format!("made a store in {dir}; its journal is {compressed}.\n{kept}").as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// Makes one.
pub(crate) fn create(dir: &Path, codec: Codec) -> Result<()> {
    let settings = Settings { codec, ..Settings::default() };
    Store::create(&disk(), dir, &settings).map_err(told(dir))
}
