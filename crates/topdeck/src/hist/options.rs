//! What a person can ask `topdeck hist` for.

use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser as _};
use collect::{InputFormat, Quantity, Unit};

use crate::hist::exit_with_usage_error;
use crate::hist::process_metrics::ProcessMetrics;

/// Show the distribution in files of numbers or histograms
///
/// Reads plain numbers (one per line), HdrHistogram logs (.hlog), circllhist, HTTPTrap JSON and
/// Prometheus text, and prints counts, quantiles, a table by powers of ten and two pictures: the
/// distribution, and the percentile spectrum, which gives the slowest 1 %, 0.1 %, … as much room as
/// the rest. Every number that is not exact comes with the bounds that the truth lies between.
///
/// Several files are one distribution, unless --by keeps them apart.
///
/// Instead of files: a process that shows metrics in shared memory (its id, its program's name, or
/// the path of its .tdk file), and the names of its histograms, in which * stands for anything.
#[derive(Clone, clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Files to read; - is standard input. Or a process, and then names of its histograms
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,

    /// What is read instead of files.
    #[arg(skip)]
    pub(crate) memory: Option<ProcessMetrics>,

    /// Unit of the values, where the format does not say: ns, us, ms, s, min, h, d or B
    ///
    /// Plain numbers have none of their own. Times are shown in the unit that fits; the values of
    /// an .hlog are nanoseconds, and a Prometheus metric says its unit.
    #[arg(long, value_parser = parse_unit)]
    pub(crate) unit: Option<Unit>,

    /// How the input is written, when its content does not tell
    #[arg(long, value_parser = format_parser())]
    pub(crate) format: Option<InputFormat>,

    /// Count and share of values above this, such as 1.5s. Repeatable
    ///
    /// Without a unit, in the unit of the values. For plain numbers the answer is exact; for
    /// histograms it is exact at the edge of a bucket and has bounds elsewhere.
    #[arg(long, value_name = "LIMIT", value_parser = parse_quantity, allow_hyphen_values = true)]
    pub(crate) above: Vec<Quantity>,

    /// Quantile to show instead of the default ones: 0.999, p99.9 or 99.9%. Repeatable
    #[arg(long, value_name = "Q", value_delimiter = ',', value_parser = parse_quantile)]
    pub(crate) quantile: Vec<f64>,

    /// One report for each tag, file, series, or value of the label named
    #[arg(long, value_name = "tag|file|series|LABEL")]
    pub(crate) by: Option<String>,

    /// Only the metric of this name
    #[arg(long, value_name = "NAME")]
    pub(crate) metric: Option<String>,

    /// A table over time, one row for each interval of this length, such as 10s
    ///
    /// The input must have time stamps. A histogram is counted whole in the row in which it begins.
    #[arg(long, value_name = "DURATION", value_parser = parse_quantity)]
    pub(crate) interval: Option<Quantity>,

    /// A picture over time: one column for each stretch of time, one row for each stretch of values
    ///
    /// The input must have time stamps. Empty and unknown look different: where no histogram covers
    /// a time, the column is hatched. With --svg, the picture goes into the file, too.
    #[arg(long, conflicts_with_all = ["interval", "compare", "json"])]
    pub(crate) heatmap: bool,

    /// Maximum columns of the heatmap [default: as many as fit]
    #[arg(
        long,
        value_name = "N",
        requires = "heatmap",
        value_parser = clap::value_parser!(u16).range(1..=COLUMNS_MAX)
    )]
    pub(crate) columns: Option<u16>,

    /// Compare two files: quantiles side by side, and how far the distributions lie apart
    #[arg(long, conflicts_with_all = ["interval", "svg"])]
    pub(crate) compare: bool,

    /// Write both pictures to this file as SVG, too
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,

    /// Print JSON: every statistic with its bounds
    #[arg(long)]
    pub(crate) json: bool,

    /// Report what can be read of a damaged input; the exit status is still 1
    #[arg(long)]
    pub(crate) keep_going: bool,

    /// Draw with plain ASCII
    #[arg(long)]
    pub(crate) ascii: bool,
}

const AFTER: &str = "\
Examples:
  topdeck hist --unit ms latencies.txt          plain numbers, in milliseconds
  topdeck hist --above 100ms --above 1s *.hlog  how many were worse
  grep -o 'took=[0-9.]*' app.log | cut -d= -f2 | topdeck hist --unit s -
  topdeck hist --compare before.hlog after.hlog
  topdeck hist --interval 10s --by tag log.hlog
  topdeck hist --heatmap --svg picture.svg log.hlog
  curl -s localhost:9090/metrics | topdeck hist --metric http_request_duration_seconds -
  topdeck hist sample answer_duration           out of the memory of a process: `topdeck ls` lists them

Reading the numbers:
  A value without bounds is exact. Bounds hold the truth:
    p99  1.234 ms  1.221 to 1.248 ms
  says that the 99 % quantile lies between 1.221 and 1.248 ms, likeliest at 1.234.
  ~ marks a count that is the likeliest of several possible.

Environment:
  COLUMNS   width to draw for, when the output is no terminal (80)
  NO_COLOR  draw without colour

Exit status:
  0  all was read and reported
  1  an input could not be read (with --keep-going the rest is reported), or held no values
  2  usage error";

/// More columns than a picture has pixels show nothing more.
const COLUMNS_MAX: i64 = 2000;

/// Shown unless others are asked for.
const DEFAULT_QUANTILES: [f64; 8] = [0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999, 0.99999];

impl Options {
    /// What clap cannot check by itself.
    pub(crate) fn check(&self) {
        if self.compare && self.files.len() != 2 {
            exit_with_usage_error(format!("--compare takes two files, found {}", self.files.len()));
        }
        if self.files.iter().filter(|file| file.as_os_str() == "-").count() > 1 {
            exit_with_usage_error("standard input (-) can be read once".to_owned());
        }
        if let Some(Err(error)) = self.interval.as_ref().map(interval_ns) {
            exit_with_usage_error(error.to_string());
        }
    }

    pub(crate) fn quantiles(&self) -> &[f64] {
        if self.quantile.is_empty() { &DEFAULT_QUANTILES } else { &self.quantile }
    }
}

pub(crate) fn format_parser() -> impl clap::builder::TypedValueParser<Value = InputFormat> {
    let values =
        InputFormat::ALL.map(|format| PossibleValue::new(format.name()).help(format.description()));
    PossibleValuesParser::new(values).map(|name| {
        let format = InputFormat::ALL.into_iter().find(|format| format.name() == name);
        format.expect("BUG: clap let a name pass")
    })
}

pub(crate) fn parse_unit(text: &str) -> Result<Unit, String> {
    let names = || Unit::names().collect::<Vec<_>>().join(", ");
    Unit::parse(text).ok_or_else(|| format!("the units are {}", names()))
}

pub(crate) fn parse_quantity(text: &str) -> Result<Quantity, String> {
    let names = || Unit::names().collect::<Vec<_>>().join(", ");
    Quantity::parse(text)
        .ok_or_else(|| format!("expected a number and a unit ({}), as in 1.5s", names()))
}

fn parse_quantile(text: &str) -> Result<f64, String> {
    let text = text.trim();
    let percent = text.strip_prefix('p').or_else(|| text.strip_suffix('%'));
    let number: Option<f64> = match percent {
        // Through the decimal, so that p99.9 is 0.999 and not its neighbour.
        Some(percent) => format!("{}e-2", percent.trim()).parse().ok(),
        None => text.parse().ok(),
    };
    let inside = number.filter(|q| (0.0..=1.0).contains(q));
    inside.ok_or_else(|| "expected a share from 0 to 1, as in 0.999, p99.9 or 99.9%".to_owned())
}

/// Length of a row of the table over time, in nanoseconds.
pub(crate) fn interval_ns(written: &Quantity) -> anyhow::Result<i64> {
    let ns = written.unit().and_then(|_| written.value_in(Some(&Unit::Nanoseconds)));
    match ns {
        Some(ns) if (1.0..1e18).contains(&ns) => Ok(ns as i64),
        _ => anyhow::bail!(
            "--interval {written}: expected a length of time with its unit, such as 10s"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_shares_or_percent() {
        assert_eq!(parse_quantile("0.999"), Ok(0.999));
        assert_eq!(parse_quantile("p99.9"), Ok(0.999));
        assert_eq!(parse_quantile("99.9 %"), Ok(0.999));
        assert_eq!(parse_quantile("1"), Ok(1.0));
        for text in ["99.9", "-0.1", "p", "", "p101", "NaN", "p1e2e"] {
            assert!(parse_quantile(text).is_err(), "{text}");
        }
    }
}
