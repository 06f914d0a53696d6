//! `topdeck store export`: base samples as lines that `topdeck import` reads.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use answers::store_dir::{find_series, open, parse_selector, with_dir};
use anyhow::{Context as _, Result, bail};
use client::{ProgressLine, print_message};
use decode::{DecodedSample, DecodedValue, SampleTemporality, Unit, frames};
use hist::codec::header::Temporality;
use model::{Gap, Sample, Selector, Series, SeriesKind};
use store::{ReadView, SeriesEntryRef};

use crate::time::{self, TimeExpr};
use render::number_formatter::parse_unit;
use render::time::precise_time_text;
use render::value_formatter;

/// Export base samples as lines that `topdeck import` reads back without loss
///
/// One JSON object per sample (docs/formats/frames.md), by series and time. Rollups are not
/// exported: an import rebuilds them. Known gaps are reported on standard error.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Directory of the store
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// Selector; '*' matches all series
    #[arg(value_parser = parse_selector)]
    selector: Selector,

    /// Start: 2026-11-09, 2026-11-09T12:30:00Z, -2h, now [default: first sample]
    #[arg(long, value_name = "TIME", value_parser = time::parse_time, allow_hyphen_values = true)]
    from: Option<TimeExpr>,

    /// End [default: last sample]
    #[arg(long, value_name = "TIME", value_parser = time::parse_time, allow_hyphen_values = true)]
    to: Option<TimeExpr>,

    /// Output file; - is standard output
    #[arg(long, value_name = "FILE", default_value = "-")]
    out: PathBuf,
}

const AFTER: &str = "\
Examples:
  topdeck store export s '*' --out everything.frames
  topdeck store export s 'latency{host=\"a\"}' --from -1d | topdeck hist -
  topdeck store export s '*' | topdeck import t --create -

Exit status:
  0  success
  1  store or series not found, or the output could not be written
  2  usage error
  3  data is missing; the rest was written";

/// Maximum number of gaps printed.
const GAPS_SHOWN: usize = 10;

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let describe_error = with_dir(&options.dir);
    let store = open(&options.dir)?;
    let view = store.view().map_err(&describe_error)?;
    let found = find_series(&view, &options.dir, &options.selector)?;
    let now = journal::wall_clock()();
    let from = options.from.map_or(i64::MIN, |from| from.to_unix_ns(now));
    let to = options.to.map_or(i64::MAX, |to| to.to_unix_ns(now));
    if from >= to {
        bail!("--from {} is not before --to {}", precise_time_text(from), precise_time_text(to));
    }
    let (mut out, name): (Box<dyn Write>, _) = if options.out.as_os_str() == "-" {
        (Box::new(BufWriter::new(io::stdout().lock())), "standard output".to_owned())
    } else {
        let name = options.out.display().to_string();
        let file = File::create(&options.out).with_context(|| format!("cannot write {name}"))?;
        (Box::new(BufWriter::new(file)), name)
    };
    let cannot = || format!("cannot write {name}");
    let (mut rows, mut gaps, mut progress) = (0, Vec::new(), ProgressLine::new());
    for series in &found {
        let written = write_series(&view, series, from..to, &mut out, &mut rows, &mut progress);
        for gap in written.map_err(&describe_error)?.with_context(cannot)? {
            if !gaps.contains(&gap) {
                gaps.push(gap);
            }
        }
    }
    out.flush().with_context(cannot)?;
    progress.clear();
    report_gaps(&gaps);
    if rows == 0 && gaps.is_empty() {
        let dir = options.dir.display();
        let extent =
            view.time_range(&found).map_err(&describe_error)?.map_or(String::new(), |extent| {
                let (start, end) = (precise_time_text(extent.start), precise_time_text(extent.end));
                format!("; these series have samples or rollups from {start} to {end}")
            });
        bail!("{dir}: no base samples in the range{extent}");
    }
    Ok(if gaps.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(3) })
}

fn report_gaps(gaps: &[Gap]) {
    for gap in gaps.iter().take(GAPS_SHOWN) {
        print_message(format_args!("missing: {}", report::gap_text(gap)));
    }
    if gaps.len() > GAPS_SHOWN {
        print_message(format_args!("{} similar gaps", gaps.len() - GAPS_SHOWN));
    }
}

/// Writes the samples of one series; returns its gaps.
fn write_series(
    view: &ReadView,
    found: &SeriesEntryRef,
    range: std::ops::Range<i64>,
    out: &mut dyn Write,
    rows: &mut u64,
    progress: &mut ProgressLine,
) -> store::Result<io::Result<Vec<Gap>>> {
    let mut reading = to_sample(&found.series);
    let (mut line, mut written) = (String::new(), Ok(()));
    let gaps = view.samples(found, range, &mut |Sample { start, end, value }| {
        if written.is_err() {
            return;
        }
        (reading.start, reading.end) = (Some(start), Some(end));
        reading.value = match value {
            model::SampleValue::Histogram(histogram) => DecodedValue::Histogram(histogram),
            model::SampleValue::Number(number) => DecodedValue::Number(number),
            model::SampleValue::Text(text) => DecodedValue::Text(text),
        };
        line.clear();
        frames::write_sample(&mut line, &reading);
        written = out.write_all(line.as_bytes());
        *rows += 1;
        progress.show(|_| format!("{} samples", value_formatter::count(*rows)));
    })?;
    Ok(written.map(|()| gaps))
}

fn to_sample(series: &Series) -> DecodedSample {
    let over = match series.kind() {
        SeriesKind::Histogram(temporality) | SeriesKind::Counter(temporality) => {
            match temporality {
                Temporality::Delta => SampleTemporality::Delta,
                Temporality::Cumulative => SampleTemporality::Cumulative,
            }
        }
        SeriesKind::Gauge | SeriesKind::Text => SampleTemporality::Instant,
    };
    DecodedSample {
        metric: series.name().to_owned(),
        labels: series.labels().to_vec(),
        // Another spelling of the unit would be another series, so it is kept.
        unit: parse_unit(series.unit()).map(|unit| match unit.name() == series.unit() {
            true => unit,
            false => Unit::Other(series.unit().to_owned()),
        }),
        start: None,
        end: None,
        temporality: over,
        value: DecodedValue::Text(String::new()),
    }
}
