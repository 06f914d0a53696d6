//! `topdeck compare`: compares two selections of a store, or one selection at two times.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use answers::store_dir::ParsedSelector;
use anyhow::{Result, bail};
use client::{ServerClient, print_stdout};
use model::Selector;
use query::Limits;
use query::compare::Selection;
use query::selection::SelectionSummary;
use render::terminal::Terminal;
use render::time::precise_time_text;
use report::CsvTable;
use report::document::{self, CellEncoding};

use crate::query::report_gaps;
use crate::time::{self, TimeExpr};
use crate::usage_error::exit_with_usage_error;
use answers::AnswerSource;

/// Compare two selections, or one selection at two times: distance and significance
///
/// All histograms of a selector are merged exactly. The report shows the quantiles of both sides
/// with their bounds and marks those whose bounds do not overlap. The p-value is the share of
/// random splits of all intervals of both sides that have at least the same distance.
#[derive(clap::Args)]
#[command(
    after_long_help = AFTER,
    override_usage = "topdeck compare [OPTIONS] [DIR] <SELECTOR_A> [SELECTOR_B]"
)]
pub(crate) struct Options {
    /// Directory of the store [default: the local server], selector of side A, such as latency or
    /// 'latency{host="a"}', and selector of side B [default: that of side A, at another time]
    #[arg(value_name = "DIR|SELECTOR", num_args = 1..=3, required = true)]
    arguments: Vec<String>,

    /// Start: 2026-11-09, 2026-11-09T12:30:00Z, -2h [default: first sample]
    #[arg(long, value_name = "TIME", value_parser = time::parse_time, allow_hyphen_values = true)]
    from: Option<TimeExpr>,

    /// End, also: now [default: last row]
    #[arg(long, value_name = "TIME", value_parser = time::parse_time, allow_hyphen_values = true)]
    to: Option<TimeExpr>,

    /// Start of side B [default: --from]
    #[arg(long, value_name = "TIME", value_parser = time::parse_time, allow_hyphen_values = true)]
    from_b: Option<TimeExpr>,

    /// End of side B [default: --to]
    #[arg(long, value_name = "TIME", value_parser = time::parse_time, allow_hyphen_values = true)]
    to_b: Option<TimeExpr>,

    /// Use ASCII characters only
    #[arg(long)]
    ascii: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Print CSV: a row per statistic
    #[arg(long, conflicts_with = "json")]
    csv: bool,

    /// Maximum number of series per selector
    #[arg(long, value_name = "N", default_value_t = Limits::default().series)]
    max_series: u64,

    #[command(flatten)]
    server: ServerClient,
}

const AFTER: &str = "\
Examples:
  topdeck compare s 'latency{host=\"a\"}' 'latency{host=\"b\"}'
  topdeck compare s 'latency{version=\"1\"}' 'latency{version=\"2\"}' --from -1d --json
  topdeck compare latency --from -1h --from-b -25h --to-b -24h     asks the local server
  topdeck compare s latency --from 2026-11-09 --to 2026-11-10 --from-b 2026-11-16 --to-b 2026-11-17

Exit status:
  0  success, whatever the result
  1  store, server or series not found, no rows in the range, or units differ
  2  usage error";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let (dir, a, b) = options.split_arguments();
    if b.is_none() && options.from_b.is_none() && options.to_b.is_none() {
        bail!("side B is missing; add a second selector, or another time with --from-b and --to-b");
    }
    let b = b.unwrap_or_else(|| a.clone());
    let source = AnswerSource::open(dir.as_deref(), &options.server)?;
    let (from_b, to_b) = (options.from_b.or(options.from), options.to_b.or(options.to));
    let sides = [
        read_selection(&source, &a.selector, [options.from, options.to])?,
        read_selection(&source, &b.selector, [from_b, to_b])?,
    ];
    let limits = Limits { series: options.max_series, ..Limits::default() };
    let (sides, comparison) = source.compare(sides, limits)?;
    let document = || document::compare::to_json(&sides, &comparison, CellEncoding::Objects);
    let text = match options.json {
        _ if options.csv => report::document_csv(CsvTable::Compare, &document()),
        true => format!("{}\n", document()),
        false => report::comparison_text(
            [&a.text, &b.text],
            &sides,
            &comparison,
            &Terminal::new(options.ascii),
        ),
    };
    print_stdout(text.as_bytes())?;
    if !options.json {
        report_gaps(&comparison.gaps);
    }
    Ok(ExitCode::SUCCESS)
}

impl Options {
    /// Directory and selectors. The first argument is a directory if no server is named and there
    /// are three, or the directory exists.
    fn split_arguments(&self) -> (Option<PathBuf>, ParsedSelector, Option<ParsedSelector>) {
        let (dir, selectors) = match &self.arguments[..] {
            [first, rest @ ..]
                if !self.server.is_named()
                    && !rest.is_empty()
                    && (rest.len() == 2 || Path::new(first).is_dir()) =>
            {
                (Some(PathBuf::from(first)), rest)
            }
            all => (None, all),
        };
        let parse = |text: &String| {
            ParsedSelector::parse(text).unwrap_or_else(|error| {
                exit_with_usage_error("compare", format!("{text}: {error}"))
            })
        };
        match selectors {
            [a] => (dir, parse(a), None),
            [a, b] => (dir, parse(a), Some(parse(b))),
            _ => exit_with_usage_error("compare", "expected one or two selectors".to_owned()),
        }
    }
}

fn read_selection(
    source: &AnswerSource,
    selector: &Selector,
    ends: [Option<TimeExpr>; 2],
) -> Result<Selection> {
    let summary = source.required_selection(selector)?;
    let range = resolve_range(&source.name(), selector, &summary, ends)?;
    Ok(Selection { selector: selector.clone(), range })
}

/// Time range: defaults to the range of the existing rows of histograms.
pub(crate) fn resolve_range(
    source: &str,
    selector: &Selector,
    summary: &SelectionSummary,
    [from, to]: [Option<TimeExpr>; 2],
) -> Result<Range<i64>> {
    let now = journal::wall_clock()();
    let Some(extent) = summary.rows.clone() else {
        bail!("{source}: no samples of {}", query::selector_text(selector));
    };
    let complete = summary.histogram_range.as_ref().unwrap_or(&extent);
    let start = from.map_or(complete.start, |from| from.to_unix_ns(now));
    let end = to.map_or(complete.end, |to| to.to_unix_ns(now));
    let (first, last) = (precise_time_text(extent.start), precise_time_text(extent.end));
    if start >= end {
        let (start, end) = (precise_time_text(start), precise_time_text(end));
        bail!(
            "invalid range: {start} is not before {end}; {selector} has rows from {first} to \
               {last}"
        );
    }
    // A single cumulative row begins and ends at one time, and belongs to the nanosecond before.
    if end <= extent.start.min(complete.start) || extent.end <= start {
        let (start, end) = (precise_time_text(start), precise_time_text(end));
        bail!(
            "{selector} has no rows between {start} and {end}; it has rows from {first} to \
               {last}"
        );
    }
    Ok(start..end)
}
