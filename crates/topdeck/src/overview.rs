//! `topdeck overview`: metrics and services by requests above their threshold.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use answers::store_dir::{open, with_dir};
use anyhow::{Result, bail};
use client::{RequestParameters, ServerClient, print_message, print_stdout};
use decode::{Quantity, Unit};
use query::overview::row_threshold::RowThreshold;
use query::overview::{MEMORY_BYTES_MAX, Overview, OverviewTimes, PageRange, RowGroup, RowKey};
use report::{CsvTable, OverviewAlarms, document};
use serde_json::Value;

use crate::hist::options::parse_quantity;
use crate::time::{self, TimeExpr};
use answers::error_text;
use render::terminal::Terminal;

/// Show which metrics and services have requests above their threshold
///
/// Above the table are the firing alerts and the spent error budgets of the server, and below a
/// row its own, with which it is affected. Then follows the worst row in relation to its objective,
/// now or today, since when, and the command that tells which labels its slow requests have.
///
/// Rows are sorted by the requests above the threshold in the last five minutes, beyond those that
/// are expected there, then by those of the worst hour of today; rows that are unknown now are the
/// last, unless they were affected today. Above the threshold of an SLO as many are expected as its
/// objective allows, above any other 1 %. The
/// threshold is yours (--threshold), else that of an SLO of the server, else the one that the
/// program declared, else the 99th percentile of the last seven days, which about 1 % of the
/// requests exceed. Unusual is the Wasserstein distance of the last hour to the
/// same hour of the last seven days, as a ratio to the distances of those days among themselves:
/// about 1 is usual. If the series have a label of sessions or users (session, session_id,
/// sessionId, user_id; on a server also the user_label of the SLO), the number of those with a
/// request above the threshold is below the row.
///
/// Without a directory, a running server is asked.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Directory of a store that no server uses
    #[arg(value_name = "DIR", conflicts_with_all = ["server", "token_file", "ca"])]
    dir: Option<PathBuf>,

    #[command(flatten)]
    server: ServerClient,

    /// Threshold of a metric, such as latency=250ms; may be repeated
    #[arg(long, value_name = "METRIC=THRESHOLD", value_parser = parse_threshold)]
    threshold: Vec<(String, Quantity)>,

    /// Time of the overview of a directory [default: the end of its data]
    #[arg(long, value_name = "TIME", value_parser = time::parse_time, allow_hyphen_values = true,
          requires = "dir")]
    at: Option<TimeExpr>,

    /// Group of rows: services, host, or topdeck for its metrics of itself
    #[arg(long, value_name = "GROUP", default_value = "services", value_parser = parse_group)]
    group: RowGroup,

    /// Number of rows
    #[arg(long, value_name = "N", default_value_t = 30)]
    limit: usize,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Print CSV: a row per service or metric
    #[arg(long, conflicts_with = "json")]
    csv: bool,

    /// Draw with ASCII characters
    #[arg(long)]
    ascii: bool,
}

const AFTER: &str = "\
Examples:
  topdeck overview
  topdeck overview --server https://metrics.example:7717 --token-file token
  topdeck overview s --threshold http_request_duration=250ms
  topdeck overview --csv > overview.csv
  topdeck overview s --json | jq '.rows[] | select(.state == \"affected\")'

Exit status:
  0  success
  1  store not found or in use, or the server did not answer
  2  usage error";

/// Time that a server may spend on reads: a terminal shows an answer once, so it should be
/// complete.
const SERVER_BUDGET: &str = "30s";

fn parse_threshold(text: &str) -> Result<(String, Quantity), String> {
    let (name, limit) =
        text.rsplit_once('=').ok_or("expected a metric and a limit, such as latency=250ms")?;
    Ok((name.to_owned(), parse_quantity(limit)?))
}

fn parse_group(text: &str) -> Result<RowGroup, String> {
    RowGroup::parse(text).ok_or_else(|| "expected services, host or topdeck".to_owned())
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let document = match &options.dir {
        Some(dir) => of_store(options, dir)?,
        None => of_server(options)?,
    };
    threshold_warnings(&options.threshold, &document).iter().for_each(|line| {
        print_message(format_args!("{line}"));
    });
    let text = match options.json {
        _ if options.csv => report::csv_text(CsvTable::Overview, &document),
        true => format!("{}\n", serde_json::to_string_pretty(&document)?),
        false => {
            let alarms = match &options.dir {
                Some(_) => OverviewAlarms::default(),
                None => alarms_of_server(&options.server),
            };
            report::overview_text(&document, &alarms, &Terminal::new(options.ascii))
        }
    };
    print_stdout(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// Thresholds that are probably not meant as they are taken.
fn threshold_warnings(thresholds: &[(String, Quantity)], document: &Value) -> Vec<String> {
    let rows = document["rows"].as_array().map_or(&[][..], Vec::as_slice);
    let are_all_shown = document["total"].as_u64() == Some(rows.len() as u64);
    let warning = |(name, limit): &(String, Quantity)| match rows
        .iter()
        .find(|row| row["name"] == name.as_str())
    {
        Some(row) if limit.unit().is_none() && row["counts"] == "requests" => {
            let unit = row["unit"].as_str()?;
            Some(format!(
                "threshold {limit} of {name} is in {unit}; write it with its unit, such as 250ms"
            ))
        }
        None if are_all_shown => Some(format!("no row is of the metric {name}")),
        _ => None,
    };
    thresholds.iter().filter_map(warning).collect()
}

/// Overview of a store, read whole.
fn of_store(options: &Options, dir: &Path) -> Result<Value> {
    let store = open(dir)?;
    let view = store.view().map_err(with_dir(dir))?;
    let clock = journal::wall_clock()();
    let newest = view.part_range().map_or(clock, |range| range.end.min(clock));
    let now = options.at.map_or(newest, |at| at.to_unix_ns(clock));
    let times = OverviewTimes::of_utc_day(now);
    let mut overview = Overview::new(options.group, MEMORY_BYTES_MAX);
    let page = PageRange { offset: 0, limit: options.limit };
    let unlimited = (Duration::MAX, &(|| Duration::ZERO) as &dyn Fn() -> Duration);
    let threshold = |key: &RowKey| {
        let (_, limit) = options.threshold.iter().find(|(name, _)| *name == key.name)?;
        let value = limit.value_in(Unit::parse(&key.unit).as_ref())?;
        Some(RowThreshold::of_user(value))
    };
    let found = overview.refresh(&view, times, unlimited);
    let found = found.and_then(|()| {
        let mut found = overview.page(page, &threshold);
        overview.count_users(&view, &mut found, &|_| None, unlimited)?;
        Ok(found)
    });
    match found {
        Ok(found) => {
            let document = document::overview::to_json(&found, page);
            Ok(serde_json::from_str(&format!("{document:#}"))?)
        }
        Err(query::Error::Store(error)) => Err(with_dir(dir)(error)),
        Err(error) => bail!("{}", error_text(&error)),
    }
}

fn of_server(options: &Options) -> Result<Value> {
    let group =
        RowGroup::ALL.iter().find(|(group, _)| *group == options.group).map_or("", |of| of.1);
    let mut parameters = RequestParameters::default()
        .with("budget", SERVER_BUDGET)
        .with("limit", options.limit)
        .with("group", group);
    for (name, limit) in &options.threshold {
        parameters = parameters.with("threshold", format_args!("{name}={limit}"));
    }
    options.server.get("/v1/overview", parameters)
}

/// Firing alerts and SLOs; none of a server that has none, such as an agent.
pub(crate) fn alarms_of_server(server: &ServerClient) -> OverviewAlarms {
    let get = |path: &str| server.get(path, RequestParameters::default()).unwrap_or_default();
    OverviewAlarms::new(&get("/v1/alerts"), &get("/v1/slos"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// `--threshold took=0.25` said that all requests were above 0.25 ns, in red, and a misspelt
    /// metric nothing.
    #[test]
    fn threshold_without_a_unit_or_a_row_is_told() {
        let row = |name: &str, unit: &str, counts: &str| json!({"name": name, "unit": unit, "counts": counts});
        let rows = [row("took", "ns", "requests"), row("size", "B", "values")];
        let warnings = |text: &str, total: u64| {
            let document = json!({"total": total, "rows": rows});
            threshold_warnings(&[parse_threshold(text).unwrap()], &document)
        };
        let bare = "threshold 0.25 of took is in ns; write it with its unit, such as 250ms";
        assert_eq!(warnings("took=0.25", 2), [bare]);
        assert_eq!(warnings("took=250ms", 2), [""; 0]);
        assert_eq!(warnings("size=4096", 2), [""; 0]);
        assert_eq!(warnings("tok=250ms", 2), ["no row is of the metric tok"]);
        // It may be on another page.
        assert_eq!(warnings("tok=250ms", 3), [""; 0]);
    }
}
