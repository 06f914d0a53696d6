//! `topdeck import`: imports files into a store or a server, each content once (crate `import`).

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use answers::store_dir::{open, with_dir};
use anyhow::{Result, bail};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use client::{ProgressLine, ServerClient, print_message, print_stdout};
use decode::Unit;
use import::{FileResult, ImportOptions, ImportStart, ImportTarget, SourceFormat, TargetRetention};
use journal::Compression;
use store::Store;

use crate::hist::options::parse_unit;
use crate::store::flush::run_maintenance;
use crate::store::{create, disk};
use crate::time::{self, TimeExpr};
use crate::usage_error::exit_with_usage_error;

/// Import files into a store or a server
///
/// Reads all formats of `topdeck hist`, exports of `topdeck store export`, and with --format
/// prometheus-tsdb the data directory of a Prometheus. Histograms keep their buckets, numbers
/// become gauges, texts stay texts. The same content with the same options is counted once,
/// regardless of repetition and file name. A damaged file is not imported at all, unless
/// --keep-going is given.
#[derive(clap::Args)]
#[command(
    after_long_help = AFTER,
    override_usage = "topdeck import [OPTIONS] [DIR] <FILE>..."
)]
pub(crate) struct Options {
    /// Directory of the store [default: the local server], and input files; - is standard input
    #[arg(value_name = "DIR|FILE", required = true)]
    arguments: Vec<PathBuf>,

    /// Create the store if it is missing
    #[arg(long)]
    create: bool,

    /// Metric name, if the file has none
    #[arg(long, value_name = "NAME")]
    metric: Option<String>,

    /// Label for all series, such as host=web-1. Repeatable
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_label)]
    label: Vec<(String, String)>,

    /// Unit of the values, if the file has none: ns, us, ms, s, min, h, d or B
    #[arg(long, value_parser = parse_unit)]
    unit: Option<Unit>,

    /// Timestamp, if the file has none: 2026-11-09, 2026-11-09T12:30:00Z, -2h, now
    ///
    /// The time of samples without a timestamp, or the start of an .hlog with relative times.
    #[arg(long, value_name = "TIME", value_parser = time::parse_time, allow_hyphen_values = true)]
    start: Option<TimeExpr>,

    /// Input format [default: detected from the content]
    #[arg(long, value_parser = format_parser())]
    format: Option<SourceFormat>,

    /// Import the readable part of a damaged file; the exit status is still 1
    ///
    /// A file repaired later has other content, so all of it would be counted again.
    #[arg(long)]
    keep_going: bool,

    /// Import a file that was imported before, although what it had then is counted twice
    ///
    /// Without it, a file that has grown, or was changed before its import was complete, is
    /// rejected, and so is a complete one with a --start relative to now. The last import of each
    /// file is recorded in ~/.local/state/topdeck/imports.
    #[arg(long)]
    as_new: bool,

    /// Import also what the retention of the target leaves nothing of
    ///
    /// Without it, a file or block is not imported if it has samples that are older than the
    /// retention at every resolution: the target would drop them. Samples that remain in rollups
    /// are imported. Both are reported before the import.
    #[arg(long)]
    accept_retention: bool,

    /// How long to retry when the server is unreachable or rejects requests temporarily
    #[arg(long, value_name = "DURATION", value_parser = parse_retry_time, default_value = "10min")]
    retry_for: Duration,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    server: ServerClient,
}

const AFTER: &str = "\
Examples:
  topdeck import s --create --metric latency week.hlog
  topdeck import --metric latency week.hlog                        into the local server
  topdeck import s --label host=web-1 *.hlog --metric request_duration
  topdeck gen http --minutes 60 --series 40 | topdeck import s -
  topdeck import s --metric took --unit ms --start 2026-11-09T12:00:00Z numbers.txt
  curl -s localhost:9090/metrics | topdeck import s --start now -
  topdeck import --format prometheus-tsdb /var/lib/prometheus      into the local server
  topdeck import --server https://north.example:7717 year.frames   any size

An interrupted import continues where it stopped when it is repeated. Standard input (-) and pipes
cannot be read again; they continue if the same bytes are imported again.

Exit status:
  0  everything is durably in the store or the server
  1  a file could not be read or imported; files before it are in the store
  2  usage error";

fn parse_retry_time(text: &str) -> Result<Duration, String> {
    // 0 s: no retry.
    match text {
        "0" | "0s" => Ok(Duration::ZERO),
        text => time::parse_interval(text).map(Duration::from_nanos),
    }
}

pub(crate) fn parse_label(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once('=').filter(|(name, _)| !name.is_empty());
    let (name, value) = parts.ok_or("expected NAME=VALUE, as in host=web-1")?;
    let value = value.strip_prefix('"').and_then(|v| v.strip_suffix('"')).unwrap_or(value);
    Ok((name.to_owned(), value.to_owned()))
}

fn format_parser() -> impl TypedValueParser<Value = SourceFormat> {
    let value = |format: SourceFormat| PossibleValue::new(format.name()).help(format.description());
    PossibleValuesParser::new(SourceFormat::all().map(value)).map(|name| {
        let mut formats = SourceFormat::all();
        formats.find(|format| format.name() == name).expect("BUG: the names are those of formats")
    })
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let (dir, files) = options.split_arguments();
    let has_defaults =
        options.metric.is_some() || options.unit.is_some() || options.start.is_some();
    if has_defaults && options.format == Some(SourceFormat::PrometheusTsdb) {
        let what = "--metric, --unit and --start do not apply to prometheus-tsdb";
        exit_with_usage_error("import", what.to_owned());
    }
    if files.iter().filter(|file| file.as_os_str() == "-").count() > 1 {
        bail!("standard input (-) can only be given once");
    }
    let mut target = match dir {
        Some(dir) => open_directory(dir, options.create)?,
        None => {
            ImportTarget::Server { client: options.server.clone(), retry_for: options.retry_for }
        }
    };
    let now = journal::wall_clock()();
    let retention = TargetRetention::of(&target);
    let import_options = options.import_options(now, &retention);
    let mut progress = ProgressLine::new();
    let (mut imported, mut failed, mut is_new) = (Vec::new(), false, false);
    for path in files {
        target.set_sender(path);
        let mut each = |one: Result<FileResult>| {
            match one {
                Ok(one) => {
                    failed |= !one.is_complete();
                    is_new |= one.has_new_batches();
                    if let Some(text) = one.text().filter(|_| !options.json) {
                        print_stdout(text.as_bytes())?;
                    }
                    imported.push(one);
                }
                Err(error) => {
                    print_message(format_args!("{error:#}"));
                    failed = true;
                }
            }
            Ok(())
        };
        let done = import::import_path(&target, path, &import_options, &mut progress, &mut each);
        progress.clear();
        if let Err(error) = done {
            each(Err(error))?;
        }
    }
    if is_new {
        maintain(&target, &mut progress)?;
    }
    if options.json {
        print_stdout(format!("{}\n", import::results_json(&imported)).as_bytes())?;
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

impl Options {
    fn import_options<'a>(&'a self, now: i64, retention: &'a TargetRetention) -> ImportOptions<'a> {
        let is_relative = !matches!(self.start, Some(TimeExpr::At(_)));
        let start = |start: TimeExpr| ImportStart { ns: start.to_unix_ns(now), is_relative };
        ImportOptions {
            metric: self.metric.as_deref(),
            labels: &self.label,
            unit: self.unit.as_ref(),
            start: self.start.map(start),
            format: self.format,
            keep_going: self.keep_going,
            retention,
            accepts_retention: self.accept_retention,
            as_new: self.as_new,
        }
    }

    /// Directory and files. The first argument is a directory if no server is named, unless it is a
    /// file, or the only argument.
    fn split_arguments(&self) -> (Option<&Path>, &[PathBuf]) {
        match &self.arguments[..] {
            [dir, files @ ..]
                if !self.server.is_named()
                    && (self.create || dir.is_dir() || !files.is_empty() && !is_input(dir)) =>
            {
                if files.is_empty() && self.format == Some(SourceFormat::PrometheusTsdb) {
                    return (None, &self.arguments);
                }
                if files.is_empty() {
                    exit_with_usage_error(
                        "import",
                        "expected files after the directory".to_owned(),
                    );
                }
                (Some(dir), files)
            }
            files => (None, files),
        }
    }
}

/// Whether an argument is a file or standard input.
fn is_input(path: &Path) -> bool {
    path.as_os_str() == "-" || path.exists()
}

/// Opens the store in a directory; creates it first if requested and missing.
fn open_directory(dir: &Path, creates: bool) -> Result<ImportTarget> {
    if creates && !Store::exists(&disk(), dir)? {
        create(dir, Compression::Lz4)?;
    }
    Ok(ImportTarget::Dir { dir: dir.to_owned(), store: Box::new(open(dir)?) })
}

/// Flushes and maintains a store; a server does so itself.
fn maintain(target: &ImportTarget, progress: &mut ProgressLine) -> Result<()> {
    let ImportTarget::Dir { dir, store } = target else { return Ok(()) };
    let describe_error = with_dir(dir);
    progress.show(|_| "flushing".to_owned());
    store.flush().map_err(&describe_error)?;
    run_maintenance(store, progress).map_err(&describe_error)?;
    progress.clear();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_have_a_name() {
        let label = |name: &str, value: &str| Ok((name.to_owned(), value.to_owned()));
        assert_eq!(parse_label("host=a"), label("host", "a"));
        assert_eq!(parse_label("query=a=b"), label("query", "a=b"));
        assert_eq!(parse_label("host=\"a b\""), label("host", "a b"));
        assert!(parse_label("host").is_err());
        assert!(parse_label("=a").is_err());
    }
}
