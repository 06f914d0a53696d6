//! `topdeck store`: creates, inspects, maintains and copies a time series store.
//!
//! One file per subcommand. [`retention_rules`] parses retention rules; sizes, times
//! and tables are formatted as for journals. `topdeck import` fills a store, `topdeck heatmap`
//! draws its contents.

mod copy;
mod create;
pub(crate) mod delete;
mod export;
pub(crate) mod flush;
mod retention;
pub(crate) mod retention_rules;
pub(crate) mod stat;
mod verify;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow};
use disk::{Disk, OsDisk};
use model::Selector;
use query::selection::{SelectionSummary, UnitlessSeries};
use store::{Error, ReadView, SeriesEntryRef, Store};

pub(crate) use crate::store::copy::restore_snapshot;
pub(crate) use crate::store::create::create;

use crate::data_dirs::STORE_DIR;
use crate::journal::format as journal_format;
use crate::output::print_message;
use crate::server_client::server_of;
use crate::subcommand_table::subcommands;
use render::text::{plural, shell_quote};

/// Time series store for histograms, counters, gauges and strings
///
/// A store is a directory of series. Histograms keep the buckets of their source and are merged
/// exactly over any range and any series. A store can be open in one process at a time.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    #[command(subcommand)]
    subcommand: Command,
}

const AFTER: &str = "\
Examples:
  topdeck store create /var/lib/topdeck                  create one
  topdeck import /var/lib/topdeck week.hlog              import files
  topdeck heatmap /var/lib/topdeck 'latency{host=\"a\"}'   draw a heatmap
  topdeck store stat /var/lib/topdeck                    show its state
  topdeck store retention /var/lib/topdeck 'base 30d'    drop base samples after 30 days, keep rollups

Exit status:
  0  success
  1  error, or verify found damage
  2  usage error
  3  export: data is missing; standard error has the reasons";

subcommands! {
    Command:
    Create(create::Options) => create::run,
    Stat(stat::Options) => stat::run,
    Retention(retention::Options) => retention::run,
    Export(export::Options) => export::run,
    Delete(delete::Options) => delete::run,
    Flush(flush::FlushOptions) => flush::flush,
    Maintain(flush::MaintainOptions) => flush::maintain,
    Verify(verify::StoreVerifyOptions) => verify::verify,
    Scrub(verify::ScrubOptions) => verify::scrub,
    Snapshot(copy::SnapshotOptions) => copy::snapshot,
    Restore(copy::RestoreOptions) => copy::restore,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    options.subcommand.run()
}

pub(crate) fn disk() -> Arc<dyn Disk> {
    Arc::new(OsDisk)
}

/// Creates a directory and its parents with access for the owner only, because it holds
/// measurements and tokens. An existing directory is not changed. Durable on return.
pub(crate) fn private_dir(dir: &Path) -> Result<()> {
    use std::fs::{DirBuilder, File};
    use std::os::unix::fs::DirBuilderExt as _;
    let missing: Vec<&Path> =
        dir.ancestors().take_while(|path| !path.as_os_str().is_empty() && !path.exists()).collect();
    let make = || -> std::io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        for above in missing.iter().filter_map(|made| made.parent()) {
            // The parent of a relative path of one component is the empty path.
            let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
            match File::open(above) {
                // A directory may allow the creation of directories without being readable.
                Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {}
                opened => opened?.sync_all()?,
            }
        }
        Ok(())
    };
    make().with_context(|| format!("cannot create directory {}", dir.display()))
}

/// Opens a store without background threads: a command does its work and exits.
pub(crate) fn open(dir: &Path) -> Result<Store> {
    let journal = journal::Options {
        is_exclusive: true,
        has_background_thread: false,
        ..journal::Options::default()
    };
    let options =
        store::Options { has_background_thread: false, journal, ..store::Options::default() };
    let store = Store::open(disk(), dir, &options).map_err(with_dir(dir))?;
    let opened = store.journal().recovery_report();
    for gap in &opened.gaps {
        print_message(format_args!(
            "{}: recovered on open: {}",
            dir.display(),
            journal_format::describe_gap(gap)
        ));
    }
    for file in &opened.damaged_files {
        print_message(format_args!("{}: recovered on open: {file}", dir.display()));
    }
    Ok(store)
}

/// Error of the store with its directory, mentioned once; adds a remedy where the library gives
/// none.
pub(crate) fn with_dir(dir: &Path) -> impl Fn(Error) -> anyhow::Error {
    let (name, quoted) = (dir.display().to_string(), shell_quote(dir));
    // Of the data directory of a server.
    let inner = Some(dir.join(STORE_DIR)).filter(|inner| inner.is_dir());
    let inner = inner.map(|inner| shell_quote(&inner));
    move |error| match &error {
        Error::NotFound { .. } => match &inner {
            Some(inner) => anyhow!("{error}; did you mean {inner}?"),
            None => anyhow!("{error}; create it with `topdeck store create {quoted}`"),
        },
        Error::InUse { dir } => match server_of(dir) {
            Some(url) => anyhow!(
                "{error} (a server uses this store at {url}; use --server {url} instead of the \
                 directory)"
            ),
            None => anyhow!("{error} (find it with `fuser {quoted}/lock`)"),
        },
        Error::Io { .. }
        | Error::AlreadyExists { .. }
        | Error::Version { .. }
        | Error::Manifest { .. }
        | Error::NotASnapshot { .. }
        | Error::WrongJournal { .. } => anyhow!("{error}"),
        Error::Journal(journal::Error::Full(full)) => {
            let full = journal_format::full_message(&format!("{quoted}/journal"), full);
            anyhow!("{name}: the store's journal is full: {full}")
        }
        Error::Journal(inner) => anyhow!("{name}: the store's journal: {inner}"),
        other => anyhow!("{name}: {other}"),
    }
}

/// Selector with its source text.
#[derive(Clone, Debug)]
pub(crate) struct ParsedSelector {
    pub(crate) text: String,
    pub(crate) selector: Selector,
}

impl ParsedSelector {
    pub(crate) fn parse(text: &str) -> Result<ParsedSelector, String> {
        Ok(ParsedSelector { text: text.to_owned(), selector: parse_selector(text)? })
    }
}

/// Parses a selector of the command line.
pub(crate) fn parse_selector(text: &str) -> Result<Selector, String> {
    Selector::parse(text).map_err(|error| format!("{error}; docs/selectors.md has the grammar"))
}

/// Series of a selector; if there are none, the error lists existing ones.
pub(crate) fn find_series(
    view: &ReadView,
    dir: &Path,
    selector: &Selector,
) -> Result<Vec<SeriesEntryRef>> {
    let found = view.select(selector);
    if !found.is_empty() {
        return Ok(found);
    }
    let summary = SelectionSummary::read(view, selector, &(i64::MIN..i64::MAX));
    let summary = summary.map_err(|error| match error {
        query::Error::Store(error) => with_dir(dir)(error),
        error => anyhow!("{}: {error}", dir.display()),
    })?;
    Err(no_match_error(&dir.display().to_string(), selector, &summary))
}

/// Error of a selector without series: why, and which metrics exist. `source` is the directory of
/// the store, or the URL of the server.
pub(crate) fn no_match_error(
    source: &str,
    selector: &Selector,
    summary: &SelectionSummary,
) -> anyhow::Error {
    let missing = if summary.has_gaps { "; it may be in a known gap" } else { "" };
    let others = match summary.metric_count {
        0 => "the store has no other series".to_owned(),
        n => {
            let names = summary.metrics.join(", ");
            match n.saturating_sub(summary.metrics.len() as u64) {
                0 => format!("available: {names}"),
                more => format!("available: {names}, and {more} more"),
            }
        }
    };
    if let Some((deleted, first)) = &summary.deleted {
        let example = if *deleted > 1 { "such as " } else { "" };
        return anyhow!(
            "{source}: {selector} matches no series with rows: all rows of {} ({example}{first}) \
             were deleted or have expired; {others}{missing}",
            plural(*deleted, "series", "series"),
        );
    }
    match summary.metric_count {
        0 => anyhow!("{source}: the store is empty; import data with `topdeck import`{missing}"),
        _ => {
            let others = summary.hint.as_ref().unwrap_or(&others);
            anyhow!("{source}: {selector} matches no series; {others}{missing}")
        }
    }
}

/// Histograms that are left out because they have no unit.
pub(crate) fn left_out_text(unitless: &UnitlessSeries) -> String {
    let n = plural(unitless.series, "series", "series");
    format!("{n} without a unit left out, such as {}", unitless.example)
}

/// `1 sample`, `2,000 samples`.
pub(crate) fn sample_count_text(n: u64) -> String {
    plural(n, "sample", "samples")
}
