//! `topdeck store create`: creates a store.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use answers::store_dir::{open, with_dir};
use anyhow::Result;
use client::print_stdout;
use journal::{Compression, Settings};
use report::journal_format;
use store::{RetentionRule, Store};

use crate::journal::parse;
use crate::store::{disk, retention_rules};
use render::text::escape_control;

/// Create a store
///
/// Data is first written to a journal in the directory, which makes it durable; --compression sets
/// the compression of the journal. Parts, which finally hold all rows, have their own encoding.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Directory of the store, created if it is missing; on a local file system
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// Compression of the journal
    #[arg(long, default_value = "lz4", value_parser = parse::compression_parser())]
    compression: Compression,

    /// Retention rule, such as 'base 30d' or '5m 1y {host="x"}'. Repeatable
    ///
    /// As in `topdeck store retention`. Without a rule samples are kept forever.
    #[arg(long, value_name = "RULE", value_parser = retention_rules::parse_rule)]
    retention: Vec<RetentionRule>,
}

const AFTER: &str = "\
Examples:
  topdeck store create /var/lib/topdeck
  topdeck store create s --retention 'base 30d' --retention '1m 30d' --retention '5m 1y'

Exit status:
  0  the store is durable
  1  the store could not be created, or it already exists
  2  usage error";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    create(&options.dir, options.compression)?;
    if !options.retention.is_empty() {
        let store = open(&options.dir)?;
        store.set_retention(options.retention.clone()).map_err(with_dir(&options.dir))?;
    }
    let dir = escape_control(&options.dir.display().to_string());
    let compressed = match options.compression {
        Compression::None => "not compressed".to_owned(),
        compression => format!("compressed with {}", journal_format::compression_name(compression)),
    };
    let rules = report::retention_text(&options.retention);
    print_stdout(
        format!("created a store in {dir}; its journal is {compressed}.\n{rules}").as_bytes(),
    )?;
    Ok(ExitCode::SUCCESS)
}

/// Creates a store.
pub(crate) fn create(dir: &Path, compression: Compression) -> Result<()> {
    let settings = Settings { compression, ..Settings::default() };
    Store::create(&disk(), dir, &settings).map_err(with_dir(dir))
}
