//! `topdeck delete`, also `topdeck store delete`: deletes samples.

use std::ops::Range;
use std::path::Path;
use std::process::ExitCode;

use answers::store_dir::{find_series, open, with_dir};
use anyhow::{Result, bail};
use client::{RequestParameters, ServerClient, print_stdout};
use model::Selector;
use render::time::precise_time_text;
use report::{Deletion, DeletionOutcome, document};
use store::RowCount;

use crate::time::{self, TimeExpr};
use answers::StoreArguments;

/// Delete samples of series in a time range, at every resolution
///
/// Deletes samples that ended after --from and at or before --to. Without --yes it only prints how
/// many samples of which series. Series stay known; space is freed at once. If base samples (those
/// received) have expired, only whole samples of rollups can be deleted; those that extend beyond
/// the range are kept and counted.
#[derive(clap::Args)]
#[command(after_long_help = AFTER, override_usage = "topdeck delete [OPTIONS] --from <TIME> --to <TIME> [DIR] <SELECTOR>")]
pub(crate) struct Options {
    #[command(flatten)]
    arguments: StoreArguments<Selector>,

    /// Start: 2026-11-09, 2026-11-09T12:30:00Z, -2h, now
    #[arg(long, value_name = "TIME", value_parser = time::parse_time, allow_hyphen_values = true)]
    from: TimeExpr,

    /// End
    #[arg(long, value_name = "TIME", value_parser = time::parse_time, allow_hyphen_values = true)]
    to: TimeExpr,

    /// Confirm the deletion
    #[arg(long)]
    yes: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    server: ServerClient,
}

const AFTER: &str = "\
Examples:
  topdeck delete s 'latency{host=\"test\"}' --from 2026-11-09 --to 2026-11-10
  topdeck delete s 'latency{host=\"test\"}' --from 2026-11-09 --to 2026-11-10 --yes
  topdeck delete 'latency{host=\"test\"}' --from -1h --to now    asks the local server

A server requires a token with the scope admin, except on loopback.

Exit status:
  0  the samples are durably deleted; without --yes: there are series to delete from
  1  nothing was deleted: store, server or series not found
  2  usage error";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let now = journal::wall_clock()();
    let (from, to) = (options.from.to_unix_ns(now), options.to.to_unix_ns(now));
    if from >= to {
        bail!("--from {} is not before --to {}", precise_time_text(from), precise_time_text(to));
    }
    let deletion = match &options.arguments.dir {
        Some(dir) if options.server.is_named() => bail!(
            "cannot delete from both the store {} and a server; omit the directory or --server",
            dir.display()
        ),
        Some(dir) => delete_in_store(dir, &options.arguments.value, from..to, !options.yes)?,
        None => {
            let parameters = RequestParameters::default()
                .with("selector", &options.arguments.value)
                .with_ns("from", from)
                .with_ns("to", to)
                .with("dry_run", !options.yes);
            let answer = options.server.post_form("/v1/series/delete", parameters)?;
            document::deletion::from_response(&answer, from..to)?
        }
    };
    let text = match options.json {
        true => format!("{}\n", document::deletion::to_json(&deletion)),
        false => report::deletion_text(&deletion),
    };
    print_stdout(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn delete_in_store(
    dir: &Path,
    selector: &Selector,
    range: Range<i64>,
    is_dry: bool,
) -> Result<Deletion> {
    let describe_error = with_dir(dir);
    let store = open(dir)?;
    let view = store.view().map_err(&describe_error)?;
    let found = find_series(&view, dir, selector)?;
    let outcome = match is_dry {
        true => DeletionOutcome::DryRun(
            view.count_rows(&found, &range, RowCount::COUNTED_MAX).map_err(&describe_error)?,
        ),
        false => {
            drop(view);
            let deleted = store.delete(selector, range.clone()).map_err(&describe_error)?;
            DeletionOutcome::Deleted(deleted)
        }
    };
    let (series, example) = (found.len() as u64, found[0].series.to_string());
    Ok(Deletion { series, example, outcome, range })
}
