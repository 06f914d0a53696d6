//! `topdeck breakdown`: breakdown of a heatmap selection by label.

use std::process::ExitCode;

use answers::store_dir::{ParsedSelector, left_out_text};
use answers::{AnswerSource, BreakdownThresholds, StoreArguments};
use anyhow::{Result, anyhow, bail};
use client::{RequestParameters, ServerClient, print_stdout};
use decode::{Quantity, Unit};
use model::Selector;
use query::breakdown::HeatmapSelection;
use query::selection::SelectionSummary;
use query::{Limits, ThresholdRange};
use render::number_formatter::parse_unit;
use render::terminal::Terminal;
use report::CsvTable;

use crate::compare::resolve_range;
use crate::hist::options::parse_quantity;
use crate::query::report_gaps;
use crate::time::{self, TimeExpr};

/// Break a heatmap selection down by label: share inside against outside
///
/// The selection is the values above --above (and up to --up-to) from --from to --to. All other
/// values of the heatmap are outside. Labels are sorted by divergence: 1 bit if the label
/// determines whether a value is inside, 0 if the shares inside and outside are equal.
#[derive(clap::Args)]
#[command(after_long_help = AFTER, override_usage = "topdeck breakdown [OPTIONS] --above <THRESHOLD> [DIR] <SELECTOR>")]
pub(crate) struct Options {
    #[command(flatten)]
    arguments: StoreArguments<ParsedSelector>,

    /// What to compare: labels (exact), or the self times of operations in the traces of a server's
    /// exemplars (estimated)
    #[arg(long, value_enum, default_value_t = BreakdownSource::Labels)]
    source: BreakdownSource,

    /// Lower bound of the selection (exclusive), such as 100ms
    #[arg(long, value_name = "THRESHOLD", value_parser = parse_quantity, allow_hyphen_values = true)]
    above: Quantity,

    /// Upper bound of the selection [default: none]
    #[arg(long, value_name = "THRESHOLD", value_parser = parse_quantity, allow_hyphen_values = true)]
    up_to: Option<Quantity>,

    /// Start of the selection: 2026-11-09, 2026-11-09T12:30:00Z, -2h [default: start of the
    /// baseline]
    #[arg(long, value_name = "TIME", value_parser = time::parse_time, allow_hyphen_values = true)]
    from: Option<TimeExpr>,

    /// End of the selection, also: now [default: end of the baseline]
    #[arg(long, value_name = "TIME", value_parser = time::parse_time, allow_hyphen_values = true)]
    to: Option<TimeExpr>,

    /// Start of the baseline [default: first row]
    #[arg(long, value_name = "TIME", value_parser = time::parse_time, allow_hyphen_values = true)]
    baseline_from: Option<TimeExpr>,

    /// End of the baseline [default: last row]
    #[arg(long, value_name = "TIME", value_parser = time::parse_time, allow_hyphen_values = true)]
    baseline_to: Option<TimeExpr>,

    /// Number of values shown per label, or of operations
    #[arg(long, value_name = "N", default_value_t = 5)]
    top: usize,

    /// Print JSON, with all values of all labels
    #[arg(long)]
    json: bool,

    /// Print CSV: a row per value of a label
    #[arg(long, conflicts_with = "json")]
    csv: bool,

    /// Maximum number of series of the selector
    #[arg(long, value_name = "N", default_value_t = Limits::default().series)]
    max_series: u64,

    #[command(flatten)]
    server: ServerClient,
}

/// What a breakdown compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum BreakdownSource {
    Labels,
    TraceShape,
}

const AFTER: &str = "\
Examples:
  topdeck breakdown s latency --above 100ms
  topdeck breakdown latency --above 100ms --from -1h      asks the local server
  topdeck breakdown s latency --above 1s --up-to 3s --from 2026-11-15T09:30:00Z --to 2026-11-15T10:15:00Z
  topdeck breakdown s latency --above 1s --from -1h --baseline-from -1d --json | jq '.labels[0]'
  topdeck breakdown latency --above 1s --from -1h --source trace-shape

Exit status:
  0  success
  1  store, server or series not found, no values in the selection, or units differ
  2  usage error";

/// Asks a server for the trace shape.
fn run_trace_shape(options: &Options) -> Result<ExitCode> {
    if let Some(dir) = &options.arguments.dir {
        bail!(
            "cannot read traces of the store {}: only servers compare them; omit the directory, \
             and name the server with --server",
            dir.display()
        );
    }
    if options.csv {
        bail!("cannot print a trace shape as CSV; use --json");
    }
    let now = journal::wall_clock()();
    let mut parameters = RequestParameters::default()
        .with("selector", &options.arguments.value.text)
        .with("above", &options.above)
        .with_option("up_to", options.up_to.as_ref());
    for (name, time) in [
        ("from", options.from),
        ("to", options.to),
        ("baseline_from", options.baseline_from),
        ("baseline_to", options.baseline_to),
    ] {
        if let Some(time) = time {
            parameters = parameters.with_ns(name, time.to_unix_ns(now));
        }
    }
    let answer = options.server.get("/v1/breakdown/trace-shape", parameters)?;
    let text = match options.json {
        true => format!("{answer}\n"),
        false => report::trace_shape_text(&answer, options.top, &Terminal::new(false))?,
    };
    print_stdout(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    if options.source == BreakdownSource::TraceShape {
        return run_trace_shape(options);
    }
    let source = AnswerSource::open(options.arguments.dir.as_deref(), &options.server)?;
    let mut selector = options.arguments.value.selector.clone();
    let mut summary = source.required_histograms(&selector)?;
    if let Some(unitless) = summary.unitless() {
        eprintln!("topdeck: {}", left_out_text(&unitless));
        selector = unitless.narrow(&selector);
        summary = source.required_histograms(&selector)?;
    }
    let selector = &selector;
    let unit = common_unit(selector, &summary)?;
    let above = parse_threshold("--above", &options.above, unit.as_ref())?;
    let up_to =
        options.up_to.as_ref().map(|up_to| parse_threshold("--up-to", up_to, unit.as_ref()));
    let ends = [options.baseline_from, options.baseline_to];
    let picture = resolve_range(&source.name(), selector, &summary, ends)?;
    let now = journal::wall_clock()();
    let from = options.from.map_or(picture.start, |from| from.to_unix_ns(now));
    let to = options.to.map_or(picture.end, |to| to.to_unix_ns(now));
    let rectangle = HeatmapSelection {
        selector: selector.clone(),
        // The baseline includes the selection.
        baseline: match (options.baseline_from, options.baseline_to) {
            (None, None) => picture.start.min(from)..picture.end.max(to),
            (None, Some(_)) => picture.start.min(from)..picture.end,
            (Some(_), None) => picture.start..picture.end.max(to),
            (Some(_), Some(_)) => picture,
        },
        time: from..to,
        above,
        up_to: up_to.transpose()?.unwrap_or(f64::INFINITY),
    };
    let limits = Limits { series: options.max_series, ..Limits::default() };
    let thresholds = BreakdownThresholds {
        above: options.above.to_string(),
        up_to: options.up_to.as_ref().map(ToString::to_string),
    };
    let unit = unit.as_ref().map(ToString::to_string);
    let (rectangle, unit, explanation) = source.break_down(rectangle, unit, &thresholds, limits)?;
    let limits =
        [(Some(&options.above), rectangle.above), (options.up_to.as_ref(), rectangle.up_to)];
    for (written, limit) in limits {
        let (Some(values), Some(written)) = (explanation.values, written) else { continue };
        let (text, is_bare) = (written.to_string(), written.unit().is_none());
        let unit = unit.as_deref();
        if let Some(text) =
            ThresholdRange::threshold_warning((text.as_str(), limit), values, unit, is_bare)
        {
            eprintln!("topdeck: {text}");
        }
    }
    let document = || report::document::breakdown::to_json(&rectangle, unit.clone(), &explanation);
    let text = match options.json {
        _ if options.csv => report::document_csv(CsvTable::Breakdown, &document()),
        true => format!("{}\n", document()),
        false => {
            let selector = &options.arguments.value.text;
            report::breakdown_text(
                selector,
                &rectangle,
                unit.clone(),
                &explanation,
                options.top,
                &Terminal::new(false),
            )
        }
    };
    print_stdout(text.as_bytes())?;
    if !options.json {
        report_gaps(&explanation.gaps);
    }
    Ok(ExitCode::SUCCESS)
}

/// Common unit of the histograms.
fn common_unit(selector: &Selector, summary: &SelectionSummary) -> Result<Option<Unit>> {
    let units: Vec<&str> = summary.units().map(|(unit, ..)| unit).collect();
    match &units[..] {
        [] => Ok(None),
        [name] => Ok(parse_unit(name)),
        [a, b, ..] => {
            let named = |unit: &str| if unit.is_empty() { "none" } else { unit }.to_owned();
            let narrow = query::unit_selector_text(selector, a);
            let (selector, a, b) = (query::selector_text(selector), named(a), named(b));
            bail!(
                "{selector}: the series have different units ({a}, {b}); select one, as in \
                 '{narrow}'"
            )
        }
    }
}

fn parse_threshold(name: &str, quantity: &Quantity, unit: Option<&Unit>) -> Result<f64> {
    quantity.value_in(unit).ok_or_else(|| match unit {
        Some(unit) => anyhow!("{name} {quantity}: the values are in {unit}"),
        None => anyhow!("{name} {quantity}: the values have no unit; use a plain number"),
    })
}
