//! `topdeck heatmap`: distribution of series over time, from a store or a server.

use std::fs;
use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;

use answers::store_dir::{ParsedSelector, left_out_text, no_match_error};
use answers::{AnswerSource, StoreArguments};
use anyhow::{Context as _, Result, anyhow, bail};
use client::{ServerClient, print_stdout};
use decode::{Quantity, Unit};
use hist::Mixture;
use model::{Selector, selector};
use query::ThresholdRange;
use query::selection::SelectionSummary;
use render::chart::heatmap::{Heatmap, HeatmapColumn};
use render::json::Json::{self, List, Null, Object, Text};
use render::json::{heatmap as json_heatmap, integer};
use render::merged_distribution::MergedDistribution;
use render::number_formatter::parse_unit;
use render::svg::heatmap as svg_heatmap;
use render::terminal::Terminal;
use render::terminal::heatmap as terminal_heatmap;
use render::text::plural;
use render::time::precise_time_text;
use report::CsvTable;
use store::TimeColumn;

use crate::hist::options::parse_quantity;
use crate::time::{self, TimeExpr};

/// Draw a heatmap of series over time: a column per time interval
///
/// All histograms of the selector are merged exactly. Darker cells have more values. Columns with
/// known gaps are marked, and the reasons are listed. Columns start at round times, so the heatmap
/// may start a little before --from and end a little after --to.
#[derive(clap::Args)]
#[command(after_long_help = AFTER, override_usage = "topdeck heatmap [OPTIONS] [DIR] <SELECTOR>")]
pub(crate) struct Options {
    #[command(flatten)]
    arguments: StoreArguments<ParsedSelector>,

    /// Start: 2026-11-09, 2026-11-09T12:30:00Z, -2h [default: first sample]
    #[arg(long, value_name = "TIME", value_parser = time::parse_time, allow_hyphen_values = true)]
    from: Option<TimeExpr>,

    /// End, also: now [default: last row]
    #[arg(long, value_name = "TIME", value_parser = time::parse_time, allow_hyphen_values = true)]
    to: Option<TimeExpr>,

    /// Maximum number of columns [default: as many as fit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=COLUMNS_MAX))]
    columns: Option<u16>,

    /// Count and share of values above this, such as 100ms. Repeatable
    #[arg(long, value_name = "THRESHOLD", value_parser = parse_quantity, allow_hyphen_values = true)]
    above: Vec<Quantity>,

    /// Also write the heatmap to this SVG file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Use ASCII characters only
    #[arg(long)]
    ascii: bool,

    /// Print JSON, with the cells and quantiles of each column
    #[arg(long)]
    json: bool,

    /// Print CSV: a row per cell
    #[arg(long, conflicts_with = "json")]
    csv: bool,

    #[command(flatten)]
    server: ServerClient,
}

const AFTER: &str = "\
Examples:
  topdeck heatmap s latency
  topdeck heatmap latency --from -1h                      asks the local server
  topdeck heatmap s 'http_request_duration{region=\"eu\"}' --from -1d --above 100ms
  topdeck heatmap s 'and(__name:http_*,host:web-0?)' --svg picture.svg
  topdeck heatmap s latency --from 2026-11-09 --to 2026-11-10 --json | jq '.columns[].count'

Environment:
  COLUMNS   width if the output is not a terminal [default: 80]
  NO_COLOR  no colours

Exit status:
  0  success
  1  store, server or series not found, no rows in the range, or units differ
  2  usage error";

/// More columns than pixels add nothing.
const COLUMNS_MAX: i64 = 2000;
/// Default number of columns of a file: four pixels each.
const COLUMNS_SVG: usize = 212;

/// Heatmap to draw.
struct HeatmapOutput<'a> {
    options: &'a Options,
    source: AnswerSource,
    /// Selector of the histograms to draw.
    selector: Selector,
    summary: SelectionSummary,
    unit: Option<Unit>,
    range: Range<i64>,
    /// Thresholds, in the unit of the values.
    thresholds: Vec<f64>,
    warnings: Vec<String>,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let drawn = HeatmapOutput::new(options)?;
    let column_count = options.columns.map(usize::from);
    if let Some(path) = &options.svg {
        let map = drawn.map(column_count.unwrap_or(COLUMNS_SVG))?;
        fs::write(path, svg_heatmap::document(&[map])?)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    let document = || heatmap_json(&drawn, column_count.unwrap_or(COLUMNS_SVG));
    let text = if options.csv {
        report::document_csv(CsvTable::Heatmap, &document()?)
    } else if options.json {
        format!("{}\n", document()?)
    } else {
        let terminal = Terminal::new(options.ascii);
        terminal_heatmap::heatmap_text(
            &drawn.map(column_count.unwrap_or(terminal_heatmap::column_capacity(&terminal)))?,
            &terminal,
        )?
    };
    print_stdout(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

impl HeatmapOutput<'_> {
    fn new(options: &Options) -> Result<HeatmapOutput<'_>> {
        let source = AnswerSource::open(options.arguments.dir.as_deref(), &options.server)?;
        let selector = &options.arguments.value.selector;
        let mut summary = source.selection(selector, requested_range(options))?;
        // A series all of whose rows are missing is not in the index: only the gaps mention it.
        if summary.groups.is_empty() && summary.gaps.is_none() {
            return Err(no_match_error(&source.name(), selector, &summary));
        }
        let mut warnings = Vec::new();
        let others: u64 = summary.series() - summary.histograms().map(|it| it.series).sum::<u64>();
        if let Some(other) = summary.groups.iter().find(|group| !group.is_histogram()) {
            if summary.histograms().next().is_none() {
                let (example, kind) = (&other.example, selector::kind_name(other.kind));
                let of = plural(others, "series", "series");
                let hint = summary.hint.as_ref().map_or_else(String::new, |it| format!("; {it}"));
                bail!("{of}, but none of histograms: the kind of {example} is {kind}{hint}");
            }
            let n = plural(others, "series", "series");
            warnings.push(format!("{n} of other kinds skipped, such as {}.", other.example));
        }
        let mut selector = options.arguments.value.selector.clone();
        if let Some(unitless) = summary.unitless() {
            warnings.push(format!("{}.", left_out_text(&unitless)));
            selector = unitless.narrow(&selector);
            summary = source.selection(&selector, requested_range(options))?;
        }
        let unit = common_unit(options, &summary)?;
        let thresholds = options.above.iter().map(|written| match summary.groups.is_empty() {
            true => Ok(written.value_in(written.unit()).unwrap_or(f64::NAN)),
            false => parse_threshold(written, unit.as_ref()),
        });
        let thresholds = thresholds.collect::<Result<_>>()?;
        let range = resolve_range(options, &source.name(), &summary)?;
        Ok(HeatmapOutput { options, source, selector, summary, unit, range, thresholds, warnings })
    }

    fn series_count(&self) -> u64 {
        self.summary.histograms().map(|group| group.series).sum()
    }

    fn title(&self) -> String {
        let mut groups = self.summary.histograms();
        match (self.series_count(), groups.next()) {
            (1, Some(group)) => group.example.clone(),
            (n, _) => {
                let text = &self.options.arguments.value.text;
                format!("{text}  ({})", plural(n, "series", "series"))
            }
        }
    }

    /// Columns with their gaps.
    fn columns(&self, most: usize) -> Result<Vec<TimeColumn<Mixture>>> {
        self.source.heatmap(&self.selector, &self.range, most)
    }

    fn map(&self, most: usize) -> Result<Heatmap> {
        let columns = self.columns(most)?.into_iter().map(|column| {
            let mut gaps: Vec<String> = column.gaps.iter().map(ToString::to_string).collect();
            gaps.sort_unstable();
            gaps.dedup();
            let (start, end) = (column.start, column.end);
            HeatmapColumn { start, end, values: MergedDistribution::from(column.value), gaps }
        });
        let columns: Vec<HeatmapColumn> = columns.collect();
        let is_cumulative = self.summary.histograms().any(|group| group.kind.is_cumulative());
        let mut notes = self.warnings.clone();
        if is_cumulative && columns.iter().all(|c| c.values.count() == 0) {
            notes.push(
                "These histograms are cumulative: the first sample of each is only a start value."
                    .to_owned(),
            );
        }
        notes.extend(self.limit_warnings(&columns));
        Ok(Heatmap {
            title: self.title(),
            unit: self.unit.clone(),
            columns,
            thresholds: self.thresholds.clone(),
            warnings: notes,
        })
    }
}

impl HeatmapOutput<'_> {
    /// Warnings about limits below or above all values.
    fn limit_warnings(&self, columns: &[HeatmapColumn]) -> Vec<String> {
        let ranges = columns.iter().filter_map(|column| {
            let values = &column.values;
            Some((values.min()?.lower, values.max()?.upper))
        });
        let widest = |a: (f64, f64), b: (f64, f64)| (a.0.min(b.0), a.1.max(b.1));
        let Some(values) = ranges.reduce(widest) else { return Vec::new() };
        let unit = self.unit.as_ref().map(ToString::to_string);
        let written = self.options.above.iter().zip(&self.thresholds);
        let warnings = written.filter_map(|(written, &limit)| {
            let (text, is_bare) = (written.to_string(), written.unit().is_none());
            ThresholdRange::threshold_warning(
                (text.as_str(), limit),
                values,
                unit.as_deref(),
                is_bare,
            )
        });
        warnings.map(|text| format!("{text}.")).collect()
    }
}

/// Common unit of the series.
fn common_unit(options: &Options, summary: &SelectionSummary) -> Result<Option<Unit>> {
    let units: Vec<(&str, u64, &str)> = summary.units().collect();
    match units[..] {
        [] => return Ok(None),
        [(name, _, _)] => return Ok(parse_unit(name)),
        _ => {}
    }
    let named = units.iter().map(|(name, n, example)| {
        let name = if name.is_empty() { "none" } else { name };
        format!("{name} ({}, such as {example})", plural(*n, "series", "series"))
    });
    let named: Vec<String> = named.collect();
    let narrow = query::unit_selector_text(&options.arguments.value.selector, units[0].0);
    bail!(
        "{}: the series have different units: {}; select one, as in '{narrow}'",
        options.arguments.value.text,
        named.join(", ")
    )
}

fn parse_threshold(quantity: &Quantity, unit: Option<&Unit>) -> Result<f64> {
    quantity.value_in(unit).ok_or_else(|| match unit {
        Some(unit) => anyhow!("--above {quantity}: the values are in {unit}"),
        None => anyhow!("--above {quantity}: the values have no unit; use a plain number"),
    })
}

/// Requested time range.
fn requested_range(options: &Options) -> Range<i64> {
    let now = journal::wall_clock()();
    let from = options.from.map_or(i64::MIN, |from| from.to_unix_ns(now));
    let to = options.to.map_or(i64::MAX, |to| to.to_unix_ns(now));
    from..to
}

/// Time range to draw: the requested one, limited by default to existing rows and gaps.
fn resolve_range(
    options: &Options,
    source: &str,
    summary: &SelectionSummary,
) -> Result<Range<i64>> {
    let missing = summary.gaps.as_ref();
    let Some(extent) = summary.histogram_rows.as_ref().or(missing) else {
        bail!("{source}: no samples of {}", options.arguments.value.text);
    };
    let complete = summary.histogram_range.as_ref().unwrap_or(extent);
    let now = journal::wall_clock()();
    let from = options.from.map_or(complete.start, |from| from.to_unix_ns(now));
    let to = options.to.map_or(complete.end, |to| to.to_unix_ns(now));
    let there =
        || format!("{} to {}", precise_time_text(extent.start), precise_time_text(extent.end));
    if options.from.is_some() && options.to.is_some() && from >= to {
        bail!("--from {} is not before --to {}", precise_time_text(from), precise_time_text(to));
    }
    // A row belongs to the nanosecond before its end.
    if options.from.is_some() && extent.end <= from && missing.is_none() {
        bail!("no samples after {}; samples exist from {}", precise_time_text(from), there());
    }
    if options.to.is_some() && to <= extent.start && missing.is_none() {
        bail!("no samples before {}; samples exist from {}", precise_time_text(to), there());
    }
    Ok(from..to.max(from.saturating_add(1)))
}

fn heatmap_json(drawn: &HeatmapOutput<'_>, most: usize) -> Result<Json> {
    let columns = drawn.columns(most)?;
    let step = columns.first().map_or(0, |column| column.end - column.start);
    let column = |column: TimeColumn<Mixture>| {
        let values = MergedDistribution::from(column.value);
        let written = drawn.options.above.iter().map(ToString::to_string);
        json_heatmap::column(
            [column.start, column.end],
            &values,
            written.zip(drawn.thresholds.iter().copied()),
            column.gaps.iter().map(report::document::gap).collect(),
        )
    };
    Ok(Object(vec![
        ("schema", integer(2)),
        ("selector", Text(drawn.options.arguments.value.text.clone())),
        ("series", integer(drawn.series_count())),
        ("unit", drawn.unit.as_ref().map_or(Null, |unit| Text(unit.to_string()))),
        ("step_ns", Json::Integer(step.into())),
        ("columns", List(columns.into_iter().map(column).collect())),
    ]))
}
