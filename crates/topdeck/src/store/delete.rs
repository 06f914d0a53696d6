//! `topdeck store delete`: deletes rows.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use model::Selector;

use crate::command::print_stdout;
use crate::store::{find_series, open, parse_selector, row_count_text, with_dir};
use crate::time::{self, TimeExpr};
use api::json::Json::{self, Object};
use api::json::integer;
use render::text::plural;
use render::time::precise_time_text;

/// Delete rows of series in a time range, at every resolution
///
/// Deletes rows that ended after --from and at or before --to. Without --yes it only prints the
/// affected series. Series stay known; space is freed at once. If base rows have expired, only
/// whole rollup rows can be deleted; rollup rows that extend beyond the range are kept and counted.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Folder of the store
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// Selector; '*' matches all series
    #[arg(value_parser = parse_selector)]
    selector: Selector,

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
}

const AFTER: &str = "\
Examples:
  topdeck store delete s 'latency{host=\"test\"}' --from 2026-11-09 --to 2026-11-10
  topdeck store delete s 'latency{host=\"test\"}' --from 2026-11-09 --to 2026-11-10 --yes

Exit status:
  0  the rows are durably deleted
  1  nothing was deleted: store or series not found, or --yes was not given
  2  usage error";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let describe_error = with_dir(&options.dir);
    let now = journal::wall_clock()();
    let (from, to) = (options.from.to_unix_ns(now), options.to.to_unix_ns(now));
    if from >= to {
        bail!("--from {} is not before --to {}", precise_time_text(from), precise_time_text(to));
    }
    let store = open(&options.dir)?;
    let found =
        find_series(&store.view().map_err(&describe_error)?, &options.dir, &options.selector)?;
    let about = format!(
        "{} between {} and {}",
        plural(found.len() as u64, "series", "series"),
        precise_time_text(from),
        precise_time_text(to)
    );
    if !options.yes {
        let first = &found[0].series;
        let example =
            if found.len() > 1 { format!(", such as {first}") } else { format!(": {first}") };
        bail!("nothing deleted; --yes deletes the rows of {about}{example}");
    }
    let deleted = store.delete(&options.selector, from..to).map_err(&describe_error)?;
    let text = if options.json {
        let document: Json = Object(vec![
            ("schema", integer(1)),
            ("series", integer(found.len() as u64)),
            ("from_ns", Json::Integer(from.into())),
            ("to_ns", Json::Integer(to.into())),
            ("rows", integer(deleted.rows)),
            ("rollup_rows", integer(deleted.rollup_rows)),
            ("kept_rollup_rows", integer(deleted.retained_rows)),
        ]);
        format!("{document}\n")
    } else {
        let mut text = format!("deleted {} of {about}\n", row_count_text(deleted.rows));
        if deleted.rollup_rows > 0 {
            text.push_str(&format!(
                "deleted {} of rollups whose base rows had expired\n",
                row_count_text(deleted.rollup_rows)
            ));
        }
        if deleted.retained_rows > 0 {
            text.push_str(&format!(
                "{} of rollups kept: they extend beyond the range, and their base rows have \
                 expired\n",
                row_count_text(deleted.retained_rows)
            ));
        }
        text
    };
    print_stdout(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
