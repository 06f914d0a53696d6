//! `topdeck gen`: synthetic measurements with exact expected statistics.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use codecs::circllhist;
use decode::{Unit, frames};
use synthetic::{
    Dataset, DatasetKind, DatasetScale, ExpectedStats, SyntheticSample, SyntheticSeries,
    expected_csv,
};

/// Generate a synthetic data set with exact expected statistics
///
/// Draws the latencies of a disk or of a web service: a histogram per minute and series, with a
/// daily load curve and incidents. The same options give the same values on every
/// machine. --expected writes the exact statistics, as an oracle for any program that reads the
/// data.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Data set
    set: DatasetName,

    /// Output file; - is standard output
    #[arg(long, value_name = "FILE", default_value = "-")]
    out: PathBuf,

    /// Output format
    #[arg(long, value_enum, default_value = "frames")]
    format: OutputFormat,

    /// Number of series [default: 1 for disk, 1000 for http]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=SERIES_MAX))]
    series: Option<u32>,

    /// Number of minutes, from the beginning [default: 10080 for disk, 1440 for http]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MINUTES_MAX))]
    minutes: Option<u32>,

    /// Random seed; totals do not change
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Write the exact statistics of all series together to this CSV file, a line per four minutes
    #[arg(long, value_name = "FILE")]
    expected: Option<PathBuf>,
}

/// The table of each series takes 5 kB while it is drawn: half a gigabyte.
const SERIES_MAX: i64 = 100_000;
/// A year. The expected statistics take 6 kB per four minutes: 0.8 GB.
const MINUTES_MAX: i64 = 366 * 1_440;

const AFTER: &str = "\
Examples:
  topdeck gen disk --minutes 60 | topdeck hist --above 12.3ms -
  topdeck gen http --series 40 --minutes 120 --out web.frames --expected web.csv
  topdeck hist --by endpoint web.frames

Formats:
  frames    name, labels, start and end, unit, buckets, exact sum, minimum and maximum
  httptrap  name with labels, start, buckets; no sum, minimum, maximum or unit

Exit status:
  0  success
  1  a file could not be written
  2  usage error";

#[derive(Clone, Copy, ValueEnum)]
enum DatasetName {
    /// One disk, a week: 1,226,742,335 measurements with five modes
    Disk,
    /// 1,000 series of a web service, a day: 1,361,435,848 measurements
    Http,
}

#[derive(Clone, Copy, ValueEnum)]
enum OutputFormat {
    /// One JSON object per line with a base64 frame (lossless)
    Frames,
    /// HTTPTrap JSON, one document per line
    Httptrap,
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let which = match options.set {
        DatasetName::Disk => DatasetKind::Disk,
        DatasetName::Http => DatasetKind::Http,
    };
    let full = DatasetScale::full(which);
    let scale = DatasetScale {
        series: options.series.map_or(full.series, |n| n as usize),
        minutes: options.minutes.map_or(full.minutes, |n| n as usize),
        seed: options.seed.unwrap_or(full.seed),
    };
    let dataset = Dataset::new(which, scale);
    let truth = if options.out.as_os_str() == "-" {
        let out = BufWriter::new(io::stdout().lock());
        write_dataset(&dataset, options, out).context("cannot write to standard output")?
    } else {
        let path = &options.out;
        let out = File::create(path).map(BufWriter::new).with_context(|| cannot_write(path))?;
        write_dataset(&dataset, options, out).with_context(|| cannot_write(path))?
    };
    if let (Some(path), Some(truth)) = (&options.expected, truth) {
        std::fs::write(path, expected_csv(&truth)).with_context(|| cannot_write(path))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

/// Writes all histograms in order of time, and the expected statistics if requested.
fn write_dataset(
    dataset: &Dataset,
    options: &Options,
    mut out: impl Write,
) -> io::Result<Option<ExpectedStats>> {
    let mut truth = options.expected.is_some().then(|| ExpectedStats::new(dataset));
    let scale = dataset.scale();
    let series: Vec<SyntheticSeries> = (0..scale.series).map(|at| dataset.series(at)).collect();
    let (mut generator, mut line) = (dataset.generator(), String::new());
    let mut progress = GenerateProgress::new(scale.minutes);
    for minute in 0..scale.minutes {
        for (at, series) in series.iter().enumerate() {
            let sample = generator.draw(at, minute);
            if let Some(truth) = &mut truth {
                truth.add(sample);
            }
            line.clear();
            match options.format {
                OutputFormat::Frames => write_frame(&mut line, series, sample),
                OutputFormat::Httptrap => write_httptrap(&mut line, series, sample),
            }
            out.write_all(line.as_bytes())?;
        }
        progress.show(minute);
    }
    out.flush()?;
    Ok(truth)
}

fn write_frame(line: &mut String, series: &SyntheticSeries, sample: &SyntheticSample) {
    let labels = series.labels.iter().map(|(name, value)| (*name, value.as_str()));
    let times = (sample.start_ns, sample.end_ns);
    frames::write_histogram(
        line,
        series.metric,
        labels,
        times,
        Some(&Unit::Nanoseconds),
        &sample.histogram(),
    );
}

/// Circonus' canonical name, `metric|ST[label:value,...]`; no label here needs escaping.
fn write_httptrap(line: &mut String, series: &SyntheticSeries, sample: &SyntheticSample) {
    let tags: Vec<String> =
        series.labels.iter().map(|(name, value)| format!("{name}:{value}")).collect();
    let base64 = circllhist::encode_base64(&sample.histogram());
    let (metric, tags, start_ms) = (series.metric, tags.join(","), sample.start_ns / 1_000_000);
    let base64 = base64.expect("BUG: values beyond the format's grid were drawn");
    let written = writeln!(
        line,
        "{{\"{metric}|ST[{tags}]\":{{\"_type\":\"h\",\"_ts\":{start_ms},\"_value\":\"{base64}\"}}}}"
    );
    written.expect("a String takes all");
}

/// Progress on standard error if it is a terminal.
struct GenerateProgress {
    minutes: usize,
    last_shown: Option<Instant>,
    is_visible: bool,
}

impl GenerateProgress {
    const EVERY: Duration = Duration::from_millis(200);

    fn new(minutes: usize) -> GenerateProgress {
        let is_seen = io::stderr().is_terminal() && !io::stdout().is_terminal();
        GenerateProgress { minutes, last_shown: None, is_visible: is_seen }
    }

    fn show(&mut self, minute: usize) {
        if !self.is_visible
            || self.last_shown.is_some_and(|shown| shown.elapsed() < GenerateProgress::EVERY)
        {
            return;
        }
        self.last_shown = Some(Instant::now());
        // Progress output errors are ignored.
        let _ = write!(
            io::stderr(),
            "\r{} of {} minutes ({} %)\x1b[K",
            minute + 1,
            self.minutes,
            (minute + 1) * 100 / self.minutes
        );
    }
}

impl Drop for GenerateProgress {
    fn drop(&mut self) {
        if self.last_shown.is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
