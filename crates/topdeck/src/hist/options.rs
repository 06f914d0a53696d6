//! Command line options of `topdeck hist`.

use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser as _};
use decode::{InputFormat, Quantity, Unit};

use report::distribution::{DistributionOptions, interval_ns};

use crate::hist::exit_with_usage_error;
use crate::hist::process_metrics::ProcessMetrics;

/// Show the distribution of values in files of numbers or histograms
///
/// Reads plain numbers (one per line), HdrHistogram logs (.hlog), circllhist (OpenHistogram),
/// DDSketch, HTTPTrap (Circonus JSON), Prometheus text and topdeck frames. Prints counts,
/// quantiles, a table by powers of ten and two charts: the distribution, and the percentile
/// spectrum, which gives the slowest 1 %, 0.1 %, … as much space as the rest. Every number that is
/// not exact has bounds.
///
/// Several files are merged to one distribution, unless --by separates them.
///
/// Instead of files: a process that exports metrics in shared memory (process ID, program name, or
/// path of its .tdk file), followed by names of its histograms, in which * is a wildcard.
#[derive(Clone, clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Input files (-: standard input), or a process followed by names of its histograms
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,

    /// Input from a process instead of files.
    #[arg(skip)]
    pub(crate) process_metrics: Option<ProcessMetrics>,

    /// Unit of the values, if the format has none: ns, us, ms, s, min, h, d or B
    ///
    /// Plain numbers have no unit. Times are shown in a fitting unit; values of an .hlog are
    /// nanoseconds, and a Prometheus metric has its unit in its name.
    #[arg(long, value_parser = parse_unit)]
    pub(crate) unit: Option<Unit>,

    /// Input format [default: detected from the content]
    #[arg(long, value_parser = format_parser())]
    pub(crate) format: Option<InputFormat>,

    /// Count and share of values above this, such as 1.5s. Repeatable
    ///
    /// A number without a unit is in the unit of the values. The count is exact for plain numbers,
    /// and for histograms at a bucket edge; otherwise it has bounds.
    #[arg(long, value_name = "THRESHOLD", value_parser = parse_quantity, allow_hyphen_values = true)]
    pub(crate) above: Vec<Quantity>,

    /// Quantile to show instead of the default ones: 0.999, p99.9 or 99.9%. Repeatable
    #[arg(long, value_name = "Q", value_delimiter = ',', value_parser = parse_quantile)]
    pub(crate) quantile: Vec<f64>,

    /// One report per tag, file, series, or value of the given label
    #[arg(long, value_name = "tag|file|series|LABEL")]
    pub(crate) by: Option<String>,

    /// Only this metric
    #[arg(long, value_name = "NAME")]
    pub(crate) metric: Option<String>,

    /// Table over time, one row per interval of this length, such as 10s
    ///
    /// The input must have timestamps. A histogram is counted as a whole in the row in which it
    /// starts.
    #[arg(long, value_name = "DURATION", value_parser = parse_quantity)]
    pub(crate) interval: Option<Quantity>,

    /// Heatmap: a column per time interval, a row per value range
    ///
    /// The input must have timestamps. Times without a histogram are hatched, to distinguish
    /// unknown from empty. With --svg the heatmap is also written to the file.
    #[arg(long, conflicts_with_all = ["interval", "compare", "json"])]
    pub(crate) heatmap: bool,

    /// Maximum number of columns of the heatmap [default: as many as fit]
    #[arg(
        long,
        value_name = "N",
        requires = "heatmap",
        value_parser = clap::value_parser!(u16).range(1..=COLUMNS_MAX)
    )]
    pub(crate) columns: Option<u16>,

    /// Compare two files: quantiles side by side, and distances of the distributions
    #[arg(long, conflicts_with_all = ["interval", "svg"])]
    pub(crate) compare: bool,

    /// Also write the charts to this SVG file
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,

    /// Print JSON, with the bounds of every statistic
    #[arg(long)]
    pub(crate) json: bool,

    /// Report the readable part of a damaged input; the exit status is still 1
    #[arg(long)]
    pub(crate) keep_going: bool,

    /// Use ASCII characters only
    #[arg(long)]
    pub(crate) ascii: bool,
}

const AFTER: &str = "\
Examples:
  topdeck hist --unit ms latencies.txt          plain numbers, in milliseconds
  topdeck hist --above 100ms --above 1s *.hlog  count above thresholds
  grep -o 'took=[0-9.]*' app.log | cut -d= -f2 | topdeck hist --unit s -
  topdeck hist --compare before.hlog after.hlog
  topdeck hist --interval 10s --by tag log.hlog
  topdeck hist --heatmap --svg picture.svg log.hlog
  curl -s localhost:9090/metrics | topdeck hist --metric http_request_duration_seconds -
  topdeck hist sample sample_request_duration   shared memory of a process: see `topdeck ls`

Reading the numbers:
  A value without bounds is exact. Otherwise the true value is within the bounds:
    p99  1.234 ms  1.221 to 1.248 ms
  means that the 99 % quantile is between 1.221 and 1.248 ms, with the estimate 1.234.
  ~ marks an estimated count.

Environment:
  COLUMNS   width if the output is not a terminal [default: 80]
  NO_COLOR  no colours

Exit status:
  0  success
  1  an input could not be read (with --keep-going the rest is reported), or has no values
  2  usage error";

/// More columns than pixels add nothing.
const COLUMNS_MAX: i64 = 2000;

impl Options {
    /// Checks that clap cannot do.
    pub(crate) fn check(&self) {
        if self.compare && self.files.len() != 2 {
            exit_with_usage_error(format!(
                "--compare requires two files, got {}",
                self.files.len()
            ));
        }
        if self.files.iter().filter(|file| file.as_os_str() == "-").count() > 1 {
            exit_with_usage_error("standard input (-) can only be given once".to_owned());
        }
        if let Some(Err(error)) = self.interval.as_ref().map(interval_ns) {
            exit_with_usage_error(error.to_string());
        }
    }

    /// What to read and to report.
    pub(crate) fn report(&self) -> DistributionOptions {
        DistributionOptions {
            files: self.files.clone(),
            unit: self.unit.clone(),
            format: self.format,
            above: self.above.clone(),
            quantile: self.quantile.clone(),
            by: self.by.clone(),
            metric: self.metric.clone(),
            interval: self.interval.clone(),
            heatmap: self.heatmap,
            columns: self.columns,
            compare: self.compare,
            keep_going: self.keep_going,
        }
    }
}

fn format_parser() -> impl clap::builder::TypedValueParser<Value = InputFormat> {
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
        // Parsed as a decimal, so that p99.9 is exactly 0.999.
        Some(percent) => format!("{}e-2", percent.trim()).parse().ok(),
        None => text.parse().ok(),
    };
    let inside = number.filter(|q| (0.0..=1.0).contains(q));
    inside.ok_or_else(|| "expected a share from 0 to 1, as in 0.999, p99.9 or 99.9%".to_owned())
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
