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

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use disk::{Disk, OsDisk};
use render::text::plural;

pub(crate) use crate::store::copy::restore_snapshot;
pub(crate) use crate::store::create::create;

use crate::subcommand_table::subcommands;

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
  topdeck store retention /var/lib/topdeck 'base 30d'    drop base samples after 30 days

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

/// `1 sample`, `2,000 samples`.
pub(crate) fn sample_count_text(n: u64) -> String {
    plural(n, "sample", "samples")
}
