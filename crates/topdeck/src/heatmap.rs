//! `topdeck heatmap`: distribution of series over time, from a store.

use std::fs;
use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, anyhow, bail};
use collect::{Quantity, Unit};
use model::{Selector, SeriesKind, selector};
use store::{PartInfo, ReadView, SeriesEntryRef};

use crate::command::print_stdout;
use crate::compare::{ParsedSelector, parse_selector};
use crate::hist::options::parse_quantity;
use crate::journal::progress_line::ProgressLine;
use crate::query::error_text;
use crate::store::{find_series, open, units, with_dir};
use crate::time::{self, TimeExpr};
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

/// Draw a heatmap of series over time: a column per time interval
///
/// All histograms of the selector are merged exactly. Darker cells have more values. Columns with
/// known gaps are marked, and the reasons are listed. Columns start at round times, so the heatmap
/// may start a little before --from and end a little after --to.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Folder of the store
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// Selector, such as latency, 'latency{host="a"}' or 'and(host:web-*)'
    #[arg(value_parser = parse_selector)]
    selector: ParsedSelector,

    /// Start: 2026-11-09, 2026-11-09T12:30:00Z, -2h [default: first row]
    #[arg(long, value_name = "TIME", value_parser = time::parse_time, allow_hyphen_values = true)]
    from: Option<TimeExpr>,

    /// End, also: now [default: last row]
    #[arg(long, value_name = "TIME", value_parser = time::parse_time, allow_hyphen_values = true)]
    to: Option<TimeExpr>,

    /// Maximum number of columns [default: as many as fit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=COLUMNS_MAX))]
    columns: Option<u16>,

    /// Count and share of values above this, such as 100ms. Repeatable
    #[arg(long, value_name = "LIMIT", value_parser = parse_quantity, allow_hyphen_values = true)]
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
}

const AFTER: &str = "\
Examples:
  topdeck heatmap s latency
  topdeck heatmap s 'http_request_duration{region=\"eu\"}' --from -1d --above 100ms
  topdeck heatmap s 'and(__name:http_*,host:web-0?)' --svg picture.svg
  topdeck heatmap s latency --from 2026-11-09 --to 2026-11-10 --json | jq '.columns[].count'

Environment:
  COLUMNS   width if the output is not a terminal [default: 80]
  NO_COLOR  no colours

Exit status:
  0  success
  1  store or series not found, no rows in the range, or units differ
  2  usage error";

/// More columns than pixels add nothing.
const COLUMNS_MAX: i64 = 2000;
/// Default number of columns of a file: four pixels each.
const COLUMNS_SVG: usize = 212;

/// Heatmap to draw.
struct HeatmapOutput<'a> {
    options: &'a Options,
    view: ReadView,
    series: Vec<SeriesEntryRef>,
    unit: Option<Unit>,
    range: Range<i64>,
    parts: Vec<PartInfo>,
    /// Thresholds, in the unit of the values.
    thresholds: Vec<f64>,
    warnings: Vec<String>,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let store = open(&options.dir)?;
    let parts = store.stat().map_err(with_dir(&options.dir))?.parts;
    let drawn = HeatmapOutput::new(options, store.view().map_err(with_dir(&options.dir))?, parts)?;
    let asked = options.columns.map(usize::from);
    if let Some(path) = &options.svg {
        let map = drawn.map(asked.unwrap_or(COLUMNS_SVG))?;
        fs::write(path, svg_heatmap::document(&[map])?)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    let text = if options.json {
        format!("{}\n", heatmap_json(&drawn, asked.unwrap_or(COLUMNS_SVG))?)
    } else {
        let terminal = Terminal::new(options.ascii);
        terminal_heatmap::heatmap_text(
            &drawn.map(asked.unwrap_or(terminal_heatmap::column_capacity(&terminal)))?,
            &terminal,
        )?
    };
    print_stdout(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

impl HeatmapOutput<'_> {
    fn new<'a>(
        options: &'a Options,
        view: ReadView,
        parts: Vec<PartInfo>,
    ) -> Result<HeatmapOutput<'a>> {
        let asked = asked(options);
        // A series all of whose rows are missing is not in the index: only the gaps mention it.
        let missing = range_of_gaps(&view, &asked);
        let picked = match find_series(&view, &options.dir, &options.selector.selector) {
            Err(_) if missing.is_some() => Vec::new(),
            picked => picked?,
        };
        let of = picked.len();
        let is_histograms =
            |found: &SeriesEntryRef| matches!(found.series.kind(), SeriesKind::Histogram(_));
        let (found, others): (Vec<SeriesEntryRef>, Vec<SeriesEntryRef>) =
            picked.into_iter().partition(is_histograms);
        if found.is_empty() && !others.is_empty() {
            let (series, kind) = (&others[0].series, others[0].series.kind().name());
            let of = plural(of as u64, "series", "series");
            bail!("{of}, but none of histograms: {series} has {kind}");
        }
        let mut notes = Vec::new();
        if !others.is_empty() {
            let n = plural(others.len() as u64, "series", "series");
            notes.push(format!("{n} of other kinds skipped, such as {}.", others[0].series));
        }
        let unit = common_unit(options, &found)?;
        let limits = options.above.iter().map(|written| match found.is_empty() {
            true => Ok(written.value_in(written.unit()).unwrap_or(f64::NAN)),
            false => parse_threshold(written, unit.as_ref()),
        });
        let limits = limits.collect::<Result<_>>()?;
        let range = resolve_range(options, &view, &found, missing)?;
        Ok(HeatmapOutput {
            options,
            view,
            series: found,
            unit,
            range,
            parts,
            thresholds: limits,
            warnings: notes,
        })
    }

    fn title(&self) -> String {
        match &self.series[..] {
            [one] => one.series.to_string(),
            many => {
                let text = &self.options.selector.text;
                format!("{text}  ({})", plural(many.len() as u64, "series", "series"))
            }
        }
    }

    /// Columns with their gaps.
    fn columns(&self, most: usize) -> Result<Vec<store::TimeColumn<hist::Mixture>>> {
        let told = with_dir(&self.options.dir);
        let mut progress = ProgressLine::new();
        query::heatmap::columns(
            &self.view,
            &self.parts,
            &self.series,
            &self.range,
            most,
            &mut |n, of| {
                progress.show(|_| format!("column {n} of {of}"));
                Ok(())
            },
        )
        .map_err(|error| match error {
            query::Error::Store(error) => told(error),
            error => anyhow!("{}", error_text(&error)),
        })
    }

    fn map(&self, most: usize) -> Result<Heatmap> {
        let columns = self.columns(most)?.into_iter().map(|column| {
            let mut gaps: Vec<String> = column.gaps.iter().map(ToString::to_string).collect();
            gaps.sort();
            gaps.dedup();
            let (start, end) = (column.start, column.end);
            HeatmapColumn { start, end, values: MergedDistribution::from(column.value), gaps }
        });
        let columns: Vec<HeatmapColumn> = columns.collect();
        let is_cumulative = |found: &SeriesEntryRef| found.series.kind().is_cumulative();
        let mut notes = self.warnings.clone();
        if self.series.iter().any(is_cumulative) && columns.iter().all(|c| c.values.count() == 0) {
            notes.push(
                "These histograms are cumulative: the first sample of each is only a start value."
                    .to_owned(),
            );
        }
        Ok(Heatmap {
            title: self.title(),
            unit: self.unit.clone(),
            columns,
            thresholds: self.thresholds.clone(),
            warnings: notes,
        })
    }
}

/// Common unit of the series.
fn common_unit(options: &Options, found: &[SeriesEntryRef]) -> Result<Option<Unit>> {
    if found.is_empty() {
        return Ok(None);
    }
    let units = units(found);
    if let [(name, _, _)] = units[..] {
        return Ok(parse_unit(name));
    }
    let named = units.iter().map(|(name, n, example)| {
        let name = if name.is_empty() { "none" } else { name };
        format!("{name} ({}, such as {example})", plural(*n as u64, "series", "series"))
    });
    let named: Vec<String> = named.collect();
    let first = Selector::label_equals(selector::UNIT, units[0].0);
    let narrow = Selector::and(vec![options.selector.selector.clone(), first]);
    bail!(
        "{}: the series have different units: {}; select one, as in '{narrow}'",
        options.selector.text,
        named.join(", ")
    )
}

fn parse_threshold(written: &Quantity, unit: Option<&Unit>) -> Result<f64> {
    written.value_in(unit).ok_or_else(|| match unit {
        Some(unit) => anyhow!("--above {written}: the values are in {unit}"),
        None => anyhow!("--above {written}: the values have no unit; use a plain number"),
    })
}

/// Requested time range.
fn asked(options: &Options) -> Range<i64> {
    let now = journal::wall_clock()();
    let from = options.from.map_or(i64::MIN, |from| from.to_unix_ns(now));
    let to = options.to.map_or(i64::MAX, |to| to.to_unix_ns(now));
    from..to
}

/// Time range of the known gaps within a range.
fn range_of_gaps(view: &ReadView, asked: &Range<i64>) -> Option<Range<i64>> {
    let gaps = view.gaps(asked);
    let start = gaps.iter().map(|gap| gap.start).min()?.max(asked.start);
    let end = gaps.iter().map(|gap| gap.end).max()?.min(asked.end);
    Some(start..end.max(start.saturating_add(1)))
}

/// Time range to draw: the requested one, limited by default to existing rows and gaps.
fn resolve_range(
    options: &Options,
    view: &ReadView,
    found: &[SeriesEntryRef],
    missing: Option<Range<i64>>,
) -> Result<Range<i64>> {
    let extent = view.time_range(found).map_err(with_dir(&options.dir))?;
    let Some(extent) = extent.or_else(|| missing.clone()) else {
        bail!("{}: no rows of {}", options.dir.display(), options.selector.text);
    };
    let now = journal::wall_clock()();
    let from = options.from.map_or(extent.start, |from| from.to_unix_ns(now));
    let to = options.to.map_or(extent.end, |to| to.to_unix_ns(now));
    let there =
        || format!("{} to {}", precise_time_text(extent.start), precise_time_text(extent.end));
    if options.from.is_some() && options.to.is_some() && from >= to {
        bail!("--from {} is not before --to {}", precise_time_text(from), precise_time_text(to));
    }
    // A row belongs to the nanosecond before its end.
    if options.from.is_some() && extent.end <= from && missing.is_none() {
        bail!("no rows after {}; rows exist from {}", precise_time_text(from), there());
    }
    if options.to.is_some() && to <= extent.start && missing.is_none() {
        bail!("no rows before {}; rows exist from {}", precise_time_text(to), there());
    }
    Ok(from..to.max(from.saturating_add(1)))
}

fn heatmap_json(drawn: &HeatmapOutput<'_>, most: usize) -> Result<Json> {
    let columns = drawn.columns(most)?;
    let step = columns.first().map_or(0, |column| column.end - column.start);
    let column = |column: store::TimeColumn<hist::Mixture>| {
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
        ("selector", Text(drawn.options.selector.text.clone())),
        ("series", integer(drawn.series.len() as u64)),
        ("unit", drawn.unit.as_ref().map_or(Null, |unit| Text(unit.to_string()))),
        ("step_ns", Json::Integer(step.into())),
        ("columns", List(columns.into_iter().map(column).collect())),
    ]))
}
