//! `topdeck query`: evaluates a PromQL or CAQL expression on a store or a server.

use std::io::Write as _;
use std::process::ExitCode;

use answers::store_dir::no_match_error;
use answers::{AnswerSource, BoundedQuery, StoreArguments, with_flags};
use anyhow::{Context as _, Result, bail};
use client::{ServerClient, print_message, print_stdout};
use model::{Gap, Selector};
use query::promql::{self, Expr, ExprKind};
use query::step::{STEPS_MAX, common_window, default_step};
use query::{Error, Language, Limits, QueryRequest, QueryResult, QueryWarningKind, ResultData};
use render::terminal::Terminal;
use render::text::plural;
use render::time::precise_time_text;
use report::document::{self, CellEncoding};
use report::{CsvTable, StepWindow, gap_text};

use crate::time::{self, TimeExpr};

/// Query a store or a server in PromQL or CAQL
///
/// Without --from, --step or --to it is an instant query at the end of the last sample of the
/// store. With --from it is a range query until --to, one result per --step. Every statistic of a
/// distribution has bounds, and every percentile is shown with the maximum.
/// `exact_increase(latency[5m])` is the exact increase in these five minutes, merged from rollups;
/// `rate` and `increase` are Prometheus', which extrapolate. Thresholds, as in
/// `histogram_count_above(100e6, …)`, are in the unit of the values: 100e6 of ns is 100 ms.
#[derive(clap::Args)]
#[command(after_long_help = AFTER, override_usage = "topdeck query [OPTIONS] [DIR] <EXPRESSION>")]
pub(crate) struct Options {
    #[command(flatten)]
    arguments: StoreArguments<String>,

    /// The expression is CAQL, not PromQL
    #[arg(long)]
    caql: bool,

    /// Start: 2026-11-09, 2026-11-09T12:30:00Z, -2h
    #[arg(long, value_name = "TIME", value_parser = time::parse_time, allow_hyphen_values = true)]
    from: Option<TimeExpr>,

    /// End, also: now [default: last row]
    #[arg(long, value_name = "TIME", value_parser = time::parse_time, allow_hyphen_values = true)]
    to: Option<TimeExpr>,

    /// Step, such as 5m [default: the window of the expression, or about a hundredth of the range]
    #[arg(long, value_name = "DURATION", value_parser = time::parse_duration)]
    step: Option<i64>,

    /// Enable Prometheus' experimental features: functions, duration expressions, anchored and
    /// smoothed ranges, fill
    #[arg(long)]
    experimental: bool,

    /// Plot the result over time
    #[arg(long, conflicts_with = "json")]
    plot: bool,

    /// Use ASCII characters only
    #[arg(long)]
    ascii: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Print CSV: a row per point
    #[arg(long, conflicts_with_all = ["json", "plot"])]
    csv: bool,

    /// Print distributions as sample JSON Lines, for baselines of own rules and topdeck hist
    #[arg(long, conflicts_with_all = ["json", "plot", "csv"])]
    frames: bool,

    /// Lookback delta: maximum age of the latest sample
    #[arg(long, value_name = "DURATION", value_parser = time::parse_duration, default_value = "5m")]
    lookback: i64,

    /// Maximum number of samples in memory; a histogram counts as its number of buckets plus 8
    #[arg(long, value_name = "N", default_value_t = Limits::default().samples)]
    max_samples: u64,

    /// Maximum number of series per selector
    #[arg(long, value_name = "N", default_value_t = Limits::default().series)]
    max_series: u64,

    /// Maximum bytes of samples in memory
    #[arg(long, value_name = "N", default_value_t = Limits::default().bytes)]
    max_bytes: u64,

    /// Maximum number of steps of a result
    #[arg(long, value_name = "N", default_value_t = Limits::default().steps)]
    max_steps: u64,

    /// Query timeout
    #[arg(long, value_name = "DURATION", value_parser = time::parse_duration, default_value = "2min")]
    timeout: i64,

    #[command(flatten)]
    server: ServerClient,
}

const AFTER: &str = "\
Examples:
  topdeck query s 'histogram_quantile(0.99, sum(exact_increase(latency[5m])))' --from -1d --step 5m
  topdeck query s 'sum by (host) (histogram_count_above(100e6, exact_increase(latency[1h])))' --json
  topdeck query s 'sum(exact_increase(latency[15m]))' --from 2026-11-09 --to 2026-11-10 --plot
  topdeck query s 'sum by (host) (exact_increase(requests_total[1h]))' --from -1d --csv > hours.csv
  topdeck query s 'sum by (zone) (exact_increase(latency[5m]))' --from -1d --frames > day.frames
  topdeck query s --caql 'find:histogram(\"latency\") | histogram:merge() | histogram:count_above(100000000) | integrate()' --from -1d

  topdeck query 'sum(exact_increase(latency[5m]))' --from -1h       asks the local server

docs/query.md describes both languages and topdeck's extensions.

Exit status:
  0  success, maybe with warnings
  1  store or server not found, invalid expression, or a limit was reached
  2  usage error";

/// Maximum number of steps of a plot, in which adjacent windows are merged.
const STEPS_PLOT: i64 = 5_000;

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let source = AnswerSource::open(options.arguments.dir.as_deref(), &options.server)?;
    let (start, end, step) = resolve_range(options, &source)?;
    let (text, language) = (&options.arguments.value[..], options.language());
    let promql = options.promql_options();
    let query = BoundedQuery {
        request: QueryRequest { text, language, start, end, step, options: promql },
        limits: Limits {
            samples: options.max_samples,
            series: options.max_series,
            bytes: options.max_bytes,
            steps: options.max_steps,
        },
        lookback: options.lookback,
        timeout: options.timeout,
    };
    // A server answers without the line of the expression.
    if language == Language::PromQl
        && let Err(error) = promql::parse(text, &promql)
    {
        report_error(&error, text);
        return Ok(ExitCode::FAILURE);
    }
    let (answer, maxima) = match source.query(&query)? {
        Ok(answer) => answer,
        Err(error) => {
            report_error(&error, text);
            return Ok(ExitCode::FAILURE);
        }
    };
    let document = || document::result::to_json(&answer, &maxima, CellEncoding::Objects);
    let output = match (options.json, options.plot) {
        _ if options.csv => report::document_csv(CsvTable::Query, &document()),
        _ if options.frames => report::frames_text(&answer, options.step_window())?,
        (true, _) => format!("{}\n", document()),
        (_, true) => {
            let subject = (text, options.step_window());
            report::plot_text(&answer, &maxima, subject, &Terminal::new(options.ascii))?
        }
        _ => report::query_text(&answer, &maxima, &Terminal::new(options.ascii)),
    };
    print_stdout(output.as_bytes())?;
    if !options.json {
        report_warnings(&answer);
    }
    if is_empty(&answer) {
        report_empty_result(options, &source)?;
    }
    Ok(ExitCode::SUCCESS)
}

impl Options {
    fn language(&self) -> Language {
        if self.caql { Language::Caql } else { Language::PromQl }
    }

    /// Window of the results.
    fn step_window(&self) -> StepWindow {
        match self.language() {
            Language::Caql => StepWindow::Step,
            Language::PromQl => {
                let (text, options) = (&self.arguments.value, self.promql_options());
                let window = common_window(text, Language::PromQl, &options);
                window.map_or(StepWindow::Unknown, StepWindow::Length)
            }
        }
    }

    fn promql_options(&self) -> promql::Options {
        match self.experimental {
            true => promql::Options::all(),
            false => promql::Options::default(),
        }
    }
}

/// Reports why a result is empty: selectors without series, or a range without rows.
fn report_empty_result(options: &Options, source: &AnswerSource) -> Result<()> {
    let mut selectors = Vec::new();
    if let Ok(expr) = promql::parse(&options.arguments.value, &options.promql_options())
        && !options.caql
    {
        collect_selectors(&expr, &options.arguments.value, &mut selectors);
    }
    for (selector, written) in &selectors {
        let summary = source.selection(selector, i64::MIN..i64::MAX)?;
        let cause = match summary.groups.is_empty() {
            true => Some(format!("{:#}", no_match_error(&source.name(), selector, &summary))),
            false => {
                let selector = query::selector_text(selector);
                summary.hint.map(|hint| format!("{}: {selector}: {hint}", source.name()))
            }
        };
        if let Some(cause) = cause {
            // With the spelling of the expression.
            print_message(cause.replace(&query::selector_text(selector), written));
            return Ok(());
        }
    }
    let is_plain_selector =
        matches!(&selectors[..], [(_, written)] if *written == options.arguments.value.trim());
    let all = match selectors.is_empty() {
        true => Selector::All,
        false => Selector::or(selectors.into_iter().map(|(selector, _)| selector).collect()),
    };
    if let Some(extent) = source.selection(&all, i64::MIN..i64::MAX)?.rows {
        let (first, last) = (precise_time_text(extent.start), precise_time_text(extent.end));
        let end = options.to.map(|to| to.to_unix_ns(journal::wall_clock()()));
        let hint = match is_plain_selector && end.is_none_or(|end| end >= extent.end) {
            true => {
                "; a series has no value at an instant once it is retired, or 5 min after its last \
                 row: query a range with --from, or last_over_time(…[1h])"
            }
            false => "",
        };
        print_message(format_args!("samples exist from {first} to {last}{hint}"));
    }
    Ok(())
}

/// Selectors of an expression, parsed as store selectors.
fn collect_selectors<'a>(expr: &Expr, text: &'a str, selectors: &mut Vec<(Selector, &'a str)>) {
    let selector = match &expr.kind {
        ExprKind::Selector(selector) | ExprKind::Matrix { selector, .. } => Some(selector),
        _ => None,
    };
    let written = selector.and_then(|of| text.get(of.span.start..of.span.end));
    let read = |written: &'a str| Some((Selector::parse(written).ok()?, written));
    selectors.extend(written.and_then(read));
    expr.children().into_iter().for_each(|child| collect_selectors(child, text, selectors));
}

fn is_empty(answer: &QueryResult) -> bool {
    match &answer.data {
        ResultData::Vector(streams) | ResultData::Matrix(streams) => streams.is_empty(),
        ResultData::RawSamples(series) => series.is_empty(),
        _ => false,
    }
}

/// Prints an error of the expression, with its position.
pub(crate) fn report_error(error: &Error, text: &str) {
    let message = error.format_with_source(text);
    let mut lines = message.lines();
    print_message(lines.next().map_or_else(String::new, with_flags));
    for line in lines {
        // Tabs in the text and in the line of the mark have the same width.
        let line: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let _ = writeln!(std::io::stderr(), "{line}");
    }
}

/// First time, last time and step; step 0 for an instant query.
fn resolve_range(options: &Options, source: &AnswerSource) -> Result<(i64, i64, i64)> {
    let now = journal::wall_clock()();
    let is_range = options.from.is_some() || options.step.is_some() || options.plot || options.caql;
    let extent = match (options.from, options.to) {
        (Some(_), Some(_)) => None,
        (None, Some(_)) if !is_range => None,
        _ => source.selection(&Selector::All, i64::MIN..i64::MAX)?.rows,
    };
    let missing = "the store is empty; import data with `topdeck import`";
    let end = match options.to {
        Some(to) => to.to_unix_ns(now),
        None => extent.as_ref().context(missing)?.end,
    };
    if !is_range {
        return Ok((end, end, 0));
    }
    let start = match options.from {
        Some(from) => from.to_unix_ns(now),
        None => extent.context(missing)?.start,
    };
    if start > end {
        bail!("--from is after --to (default: the last sample)");
    }
    let step = options.step.unwrap_or_else(|| {
        let most = if options.plot { STEPS_PLOT } else { STEPS_MAX };
        let (text, length) = (&options.arguments.value, end.saturating_sub(start));
        default_step(text, options.language(), &options.promql_options(), length, most)
    });
    Ok((start, end, step))
}

/// Prints the warnings of a result.
fn report_warnings(answer: &QueryResult) {
    for kind in [QueryWarningKind::Warning, QueryWarningKind::Info] {
        for (message, _) in answer.warnings.of_kind(kind) {
            print_message(message);
        }
    }
    report_gaps(&answer.gaps);
}

/// Prints the known gaps of the data that was read.
pub(crate) fn report_gaps(gaps: &[Gap]) {
    const GAPS_SHOWN_MAX: usize = 5;
    for gap in gaps.iter().take(GAPS_SHOWN_MAX) {
        print_message(format_args!("missing: {}", gap_text(gap)));
    }
    if let Some(more) = gaps.len().checked_sub(GAPS_SHOWN_MAX).filter(|more| *more > 0) {
        print_message(format_args!(
            "missing: {} more; --json has all",
            plural(more as u64, "gap", "gaps")
        ));
    }
}
