//! `topdeck compare`: compares two selections of a store, or one selection at two times.

use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use model::Selector;
use query::compare::{Comparison, Selection};
use query::{Error, Limits, StoreSource};
use store::ReadView;

use crate::command::print_stdout;
use crate::query::{error_text, report_gaps};
use crate::store::{find_series, open, with_dir};
use crate::time::{self, TimeExpr};
use render::terminal::Terminal;
use render::time::precise_time_text;

/// Compare two selections, or one selection at two times: distance and significance
///
/// All histograms of a selector are merged exactly. The report shows the quantiles of both sides
/// with their bounds and marks those whose bounds do not overlap. The p-value is the share of
/// random splits of all intervals of both sides that have at least the same distance.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Folder of the store
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// Selector of side A, such as latency or 'latency{host="a"}'
    #[arg(value_name = "SELECTOR_A", value_parser = parse_selector)]
    a: ParsedSelector,

    /// Selector of side B [default: SELECTOR_A, at another time]
    #[arg(value_name = "SELECTOR_B", value_parser = parse_selector)]
    b: Option<ParsedSelector>,

    /// Start: 2026-11-09, 2026-11-09T12:30:00Z, -2h [default: first row]
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

    /// Maximum number of series per selector
    #[arg(long, value_name = "N", default_value_t = Limits::default().series)]
    max_series: u64,
}

const AFTER: &str = "\
Examples:
  topdeck compare s 'latency{host=\"a\"}' 'latency{host=\"b\"}'
  topdeck compare s 'latency{version=\"1\"}' 'latency{version=\"2\"}' --from -1d --json
  topdeck compare s latency --from 2026-11-09 --to 2026-11-10 --from-b 2026-11-16 --to-b 2026-11-17

Exit status:
  0  success, whatever the result
  1  store or series not found, no rows in the range, or units differ
  2  usage error";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    if options.b.is_none() && options.from_b.is_none() && options.to_b.is_none() {
        bail!("side B is missing; add a second selector, or another time with --from-b and --to-b");
    }
    let store = open(&options.dir)?;
    let view = store.view().map_err(with_dir(&options.dir))?;
    let b = options.b.as_ref().unwrap_or(&options.a);
    let sides = [
        read_selection(options, &view, &options.a.selector, [options.from, options.to])?,
        read_selection(
            options,
            &view,
            &b.selector,
            [options.from_b.or(options.from), options.to_b.or(options.to)],
        )?,
    ];
    let limits = Limits { series: options.max_series, ..Limits::default() };
    let source = StoreSource::new(&view);
    let compared = query::compare::compare(&source, [&sides[0], &sides[1]], limits, &|| false);
    let comparison: Comparison = match compared {
        Ok(comparison) => comparison,
        Err(Error::Store(error)) => return Err(with_dir(&options.dir)(error)),
        Err(error) => bail!("{}", error_text(&error)),
    };
    let text = match options.json {
        true => format!("{}\n", report::document::compare::to_json(&sides, &comparison)),
        false => report::comparison_text(
            [&options.a.text, &b.text],
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

fn read_selection(
    options: &Options,
    view: &ReadView,
    selector: &Selector,
    [from, to]: [Option<TimeExpr>; 2],
) -> Result<Selection> {
    let range = resolve_range(&options.dir, view, selector, [from, to])?;
    Ok(Selection { selector: selector.clone(), range })
}

/// Selector with its source text.
#[derive(Clone, Debug)]
pub(crate) struct ParsedSelector {
    pub(crate) text: String,
    pub(crate) selector: Selector,
}

pub(crate) fn parse_selector(text: &str) -> Result<ParsedSelector, String> {
    let selector = crate::store::parse_selector(text)?;
    Ok(ParsedSelector { text: text.to_owned(), selector })
}

/// Time range: defaults to the range of the existing rows.
pub(crate) fn resolve_range(
    dir: &std::path::Path,
    view: &ReadView,
    selector: &Selector,
    [from, to]: [Option<TimeExpr>; 2],
) -> Result<Range<i64>> {
    let found = find_series(view, dir, selector)?;
    let now = journal::wall_clock()();
    let Some(extent) = view.time_range(&found).map_err(with_dir(dir))? else {
        bail!("{}: no rows of {selector}", dir.display());
    };
    let start = from.map_or(extent.start, |from| from.to_unix_ns(now));
    let end = to.map_or(extent.end, |to| to.to_unix_ns(now));
    let (first, last) = (precise_time_text(extent.start), precise_time_text(extent.end));
    if start >= end {
        let (start, end) = (precise_time_text(start), precise_time_text(end));
        bail!(
            "invalid range: {start} is not before {end}; {selector} has rows from {first} to \
               {last}"
        );
    }
    if end <= extent.start || extent.end <= start {
        let (start, end) = (precise_time_text(start), precise_time_text(end));
        bail!(
            "{selector} has no rows between {start} and {end}; it has rows from {first} to \
               {last}"
        );
    }
    Ok(start..end)
}
