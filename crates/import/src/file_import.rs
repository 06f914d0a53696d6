//! Import of a file, or of a data directory of Prometheus.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use client::ProgressLine;
use decode::{InputFormat, Unit};

use crate::file_result::FileResult;
use crate::import_batches;
use crate::import_progress::ImportProgress;
use crate::import_record::{self, ImportRecord, ImportStart};
use crate::import_target::ImportTarget;
use crate::input_source::InputSource;
use crate::mapping::ImportDefaults;
use crate::retention_check::{RetentionCheck, TargetRetention};
use crate::scan;
use crate::tsdb_import::{self, TsdbOptions};

/// Format of an input.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SourceFormat {
    /// Format of a file.
    File(InputFormat),
    /// Data directory of Prometheus.
    PrometheusTsdb,
}

impl SourceFormat {
    /// All formats.
    pub fn all() -> impl Iterator<Item = SourceFormat> {
        InputFormat::ALL.into_iter().map(SourceFormat::File).chain([SourceFormat::PrometheusTsdb])
    }

    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            SourceFormat::File(format) => format.name(),
            SourceFormat::PrometheusTsdb => tsdb_import::FORMAT,
        }
    }

    /// What it is.
    pub fn description(self) -> &'static str {
        match self {
            SourceFormat::File(format) => format.description(),
            SourceFormat::PrometheusTsdb => "data directory of a Prometheus",
        }
    }
}

/// What to import, beside the inputs: values of fields that they lack, and what to do about damage.
#[derive(Clone, Copy, Debug)]
pub struct ImportOptions<'a> {
    /// Metric name.
    pub metric: Option<&'a str>,
    /// Labels for all series.
    pub labels: &'a [(String, String)],
    /// Unit of the values.
    pub unit: Option<&'a Unit>,
    /// Time of samples without one.
    pub start: Option<ImportStart>,
    /// Format; detected from the content if absent.
    pub format: Option<SourceFormat>,
    /// Whether the readable part of a damaged input is imported.
    pub keep_going: bool,
    /// Retention of the target.
    pub retention: &'a TargetRetention,
    /// Whether samples are imported of which the retention leaves nothing.
    pub accepts_retention: bool,
    /// Whether a file that was imported before may be imported with other content.
    pub as_new: bool,
}

impl ImportOptions<'_> {
    /// Record of the last import of a file. Pipes have none.
    fn record(
        &self,
        target: &ImportTarget,
        path: &Path,
        source: &InputSource,
    ) -> Option<ImportRecord> {
        source.version()?;
        let (dir, file) = (import_record::record_dir()?, path.canonicalize().ok()?);
        let unit = self.unit.map(Unit::name);
        let options = format!("{:?}", (self.metric, self.labels, unit));
        Some(ImportRecord::open(&dir, (&target.identity(), &file, &options), self.start))
    }
}

/// Imports a file, or the blocks of a data directory, and passes on each result.
pub fn import_path(
    target: &ImportTarget,
    path: &Path,
    options: &ImportOptions<'_>,
    progress: &mut ProgressLine,
    each: &mut dyn FnMut(Result<FileResult>) -> Result<()>,
) -> Result<()> {
    let format = match options.format {
        Some(SourceFormat::PrometheusTsdb) => {
            let options = TsdbOptions {
                labels: options.labels,
                keep_going: options.keep_going,
                retention: options.retention,
                accepts_retention: options.accepts_retention,
            };
            return tsdb_import::import_dir(target, path, &options, progress, each);
        }
        Some(SourceFormat::File(format)) => Some(format),
        None => None,
    };
    let source = InputSource::open(path)?;
    let record = options.record(target, path, &source);
    let one = import_file(target, (&source, record.as_ref()), (options, format), progress)?;
    progress.clear();
    one.scan.report_errors(&one.name, options.keep_going);
    each(Ok(one))
}

fn import_file(
    target: &ImportTarget,
    (source, record): (&InputSource, Option<&ImportRecord>),
    (options, format): (&ImportOptions<'_>, Option<InputFormat>),
    progress: &mut ProgressLine,
) -> Result<FileResult> {
    let rules = ImportDefaults {
        metric: options.metric,
        labels: options.labels,
        unit: options.unit,
        start: options.start.map(|start| start.ns),
    };
    let (_, size) = source.read();
    let mut checking = ImportProgress::new(progress, "checking ", size);
    let mut retention = RetentionCheck::new(options.retention);
    let scan = {
        let prefix_size = record.and_then(ImportRecord::earlier_size);
        scan::scan_source(source, format, &rules, prefix_size, (&mut checking, &mut retention))?
    };
    let name = source.name().to_owned();
    let format = scan.format.map(InputFormat::name);
    if scan.error_count > 0 && !options.keep_going {
        return Ok(FileResult { name, format, scan, summary: None });
    }
    if scan.samples == 0 && scan.error_count == 0 {
        bail!("{name}: nothing to import{}", scan.skipped_text(": found "));
    }
    if let Some(expired) = retention.take() {
        checking.clear();
        let found = (&name[..], scan.samples);
        if !expired.report(found, options.retention, options.accepts_retention) {
            return Ok(FileResult { name, format, scan, summary: None });
        }
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
