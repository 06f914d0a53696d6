//! `topdeck import`: imports files into a store or a server, each content once.
//!
//! A file is read twice. The first pass ([`scan`]) checks the whole file, so that no part of a
//! damaged file is imported by accident, and hashes its content to a producer id. The second
//! pass ([`import_batches`]) writes its samples to the store in batches with that number. The store
//! recognises its batches, so the same content is counted once, and an interrupted import continues
//! where it stopped.

mod batch_output;
mod batch_sender;
mod block_batches;
mod block_files;
mod import_batches;
mod import_progress;
mod import_record;
mod import_target;
mod input_source;
mod mapping;
mod scan;
mod tsdb_dir;
mod tsdb_import;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use decode::{InputFormat, Unit};

use crate::hist::options::parse_unit;
use crate::import::import_batches::ImportSummary;
use crate::import::import_progress::ImportProgress;
use crate::import::import_record::{ImportRecord, ImportStart};
use crate::import::import_target::ImportTarget;
use crate::import::input_source::InputSource;
use crate::import::scan::ScanSummary;
use crate::import::tsdb_import::TsdbOptions;
use crate::journal::progress_line::ProgressLine;
use crate::output::{print_message, print_stdout};
use crate::server_client::ServerClient;
use crate::time::{self, TimeExpr};
use crate::usage_error::exit_with_usage_error;
use api::json::Json::{self, Bool, List, Null, Object, Text};
use api::json::integer;
use render::text::escape_control;
use render::text::plural;
use render::time::precise_time_text;
use render::value_formatter;

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

/// Format of an input.
#[derive(Clone, Copy, Debug, PartialEq)]
enum SourceFormat {
    File(InputFormat),
    /// Data directory of Prometheus.
    PrometheusTsdb,
}

fn format_parser() -> impl TypedValueParser<Value = SourceFormat> {
    let file = |format: InputFormat| PossibleValue::new(format.name()).help(format.description());
    let directory = PossibleValue::new(tsdb_import::FORMAT).help("data directory of a Prometheus");
    let values = InputFormat::ALL.into_iter().map(file).chain([directory]);
    PossibleValuesParser::new(values).map(|name| {
        let format = InputFormat::ALL.into_iter().find(|format| format.name() == name);
        format.map_or(SourceFormat::PrometheusTsdb, SourceFormat::File)
    })
}

/// Result of one file, or of one block.
struct FileResult {
    name: String,
    /// Name of the format; `None` if it was not recognised.
    format: Option<&'static str>,
    scan: ScanSummary,
    summary: Option<ImportSummary>,
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
        Some(dir) => ImportTarget::directory(dir, options.create)?,
        None => {
            ImportTarget::Server { client: options.server.clone(), retry_for: options.retry_for }
        }
    };
    let start = options.start.map(|start| start.to_unix_ns(journal::wall_clock()()));
    let mut progress = ProgressLine::new();
    let (mut imported, mut failed, mut is_new) = (Vec::new(), false, false);
    for path in files {
        target.set_sender(path);
        let mut each = |one: Result<FileResult>| {
            match one {
                Ok(one) => {
                    failed |= one.summary.is_none() || one.scan.error_count > 0;
                    let filled = one.summary.as_ref();
                    is_new |= filled.is_some_and(|filled| filled.batches > filled.duplicates);
                    if !options.json && one.summary.is_some() {
                        print_stdout(file_text(&one).as_bytes())?;
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
        let done = import_path(&target, path, options, start, &mut progress, &mut each);
        progress.clear();
        if let Err(error) = done {
            each(Err(error))?;
        }
    }
    if is_new {
        target.finish(&mut progress)?;
    }
    if options.json {
        print_stdout(format!("{}\n", results_json(&imported)).as_bytes())?;
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

impl Options {
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

impl Options {
    /// Record of the last import of a file. Pipes have none.
    fn record(
        &self,
        target: &ImportTarget,
        path: &Path,
        source: &InputSource,
        start: Option<i64>,
    ) -> Option<ImportRecord> {
        source.version()?;
        let (dir, file) = (import_record::record_dir()?, path.canonicalize().ok()?);
        let unit = self.unit.as_ref().map(Unit::name);
        let options = format!("{:?}", (&self.metric, &self.label, unit));
        let is_relative = !matches!(self.start, Some(TimeExpr::At(_)));
        let start = start.map(|ns| ImportStart { ns, is_relative });
        Some(ImportRecord::open(&dir, (&target.identity(), &file, &options), start))
    }
}

/// Whether an argument is a file or standard input.
fn is_input(path: &Path) -> bool {
    path.as_os_str() == "-" || path.exists()
}

/// Imports a file, or the blocks of a data directory, and passes on each result.
fn import_path(
    target: &ImportTarget,
    path: &Path,
    options: &Options,
    start: Option<i64>,
    progress: &mut ProgressLine,
    each: &mut dyn FnMut(Result<FileResult>) -> Result<()>,
) -> Result<()> {
    let format = match options.format {
        Some(SourceFormat::PrometheusTsdb) => {
            let (labels, keep_going) = (&options.label[..], options.keep_going);
            let options = TsdbOptions { labels, keep_going };
            return tsdb_import::import_dir(target, path, &options, progress, each);
        }
        Some(SourceFormat::File(format)) => Some(format),
        None => None,
    };
    let source = InputSource::open(path)?;
    let record = options.record(target, path, &source, start);
    let one = import(target, (&source, record.as_ref()), (options, format), start, progress)?;
    progress.clear();
    one.scan.report_errors(&one.name, options.keep_going);
    each(Ok(one))
}

fn import(
    target: &ImportTarget,
    (source, record): (&InputSource, Option<&ImportRecord>),
    (options, format): (&Options, Option<InputFormat>),
    start: Option<i64>,
    progress: &mut ProgressLine,
) -> Result<FileResult> {
    let rules = mapping::ImportDefaults {
        metric: options.metric.as_deref(),
        labels: &options.label,
        unit: options.unit.as_ref(),
        start,
    };
    let (_, size) = source.read();
    let mut checking = ImportProgress::new(progress, "checking ", size);
    let earlier_size = record.and_then(ImportRecord::earlier_size);
    let scan = scan::scan_source(source, format, &rules, earlier_size, &mut checking)?;
    let name = source.name().to_owned();
    let format = scan.format.map(InputFormat::name);
    if scan.error_count > 0 && !options.keep_going {
        return Ok(FileResult { name, format, scan, summary: None });
    }
    if scan.samples == 0 && scan.error_count == 0 {
        bail!("{name}: nothing to import{}", scan.skipped_text(": found "));
    }
    let Some(known_format) = scan.format else {
        return Ok(FileResult { name, format, scan, summary: None });
    };
    let record = record.zip(source.version());
    if let Some((record, version)) = record {
        if !options.as_new {
            record.check(&name, version, &scan)?;
        }
        record.write(version, &scan, false);
    }
    let mut importing = ImportProgress::new(progress, "importing ", scan.bytes);
    let output = target.open_output(scan.number).with_context(|| source.incomplete_message())?;
    let filled =
        import_batches::import_source(output, source, known_format, &rules, &scan, &mut importing)?;
    if let Some((record, version)) = record {
        record.write(version, &scan, true);
    }
    Ok(FileResult { name, format, scan, summary: Some(filled) })
}

/// Less than the displayed precision.
const INSTANT_NS: i64 = 1_000_000;

fn file_text(one: &FileResult) -> String {
    let filled = one.summary.as_ref().expect("BUG: asked of files that were filled in");
    let mut parts = Vec::new();
    if filled.histograms > 0 {
        parts.push(format!(
            "{} with {}",
            plural(filled.histograms, "histogram", "histograms"),
            plural(filled.values, "value", "values")
        ));
    }
    if filled.numbers > 0 {
        parts.push(plural(filled.numbers, "number", "numbers"));
    }
    if filled.texts > 0 {
        parts.push(plural(filled.texts, "text", "texts"));
    }
    let mut text = format!("{}: ", escape_control(&one.name));
    if filled.duplicates == filled.batches {
        text.push_str("already in the store; nothing is counted twice");
    } else {
        text.push_str(&parts.join(", "));
        text.push_str(&format!(" in {}", plural(filled.series, "series", "series")));
        if let Some((start, end)) = filled.time_range {
            let (start, end, is_moment) =
                (precise_time_text(start), precise_time_text(end), end - start < INSTANT_NS);
            text.push_str(&match is_moment {
                true => format!(", at {start}"),
                false => format!(", {start} to {end}"),
            });
        }
        if filled.duplicates > 0 {
            text.push_str(&format!(
                "; {} of {} already in the store",
                value_formatter::count(filled.duplicates),
                plural(filled.batches, "batch", "batches")
            ));
        }
    }
    text.push('\n');
    let skipped = one.scan.skipped_text("  skipped: ");
    if !skipped.is_empty() {
        text.push_str(&format!("{skipped}\n"));
    }
    text
}

fn results_json(imported: &[FileResult]) -> Json {
    let time = |ns: Option<i64>| ns.map_or(Null, |ns| Json::Integer(ns.into()));
    let files = imported.iter().map(|one| {
        let scan = &one.scan;
        let skipped = scan.skipped.iter().map(|(what, n)| ((*what).to_owned(), integer(*n)));
        let mut fields = vec![
            ("file", Text(one.name.clone())),
            ("format", one.format.map_or(Null, |format| Text(format.to_owned()))),
            ("is_imported", Bool(one.summary.is_some())),
        ];
        if let Some(filled) = &one.summary {
            fields.extend([
                ("batches", integer(filled.batches)),
                ("duplicate_batches", integer(filled.duplicates)),
                ("series", integer(filled.series)),
                ("histograms", integer(filled.histograms)),
                ("values", integer(filled.values)),
                ("numbers", integer(filled.numbers)),
                ("texts", integer(filled.texts)),
                ("from_ns", time(filled.time_range.map(|extent| extent.0))),
                ("to_ns", time(filled.time_range.map(|extent| extent.1))),
            ]);
        }
        fields.extend([
            ("skipped", Json::Map(skipped.collect())),
            ("errors", List(scan.errors.iter().cloned().map(Text).collect())),
            ("error_count", integer(scan.error_count)),
        ]);
        Object(fields)
    });
    Object(vec![("schema", integer(2)), ("files", List(files.collect()))])
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
