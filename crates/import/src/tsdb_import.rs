//! Imports the blocks of Prometheus' data directory.
//!
//! As with files, a block is read twice: the first pass decodes all of it, so that no part of a
//! damaged block is imported by accident, and hashes its content to a producer id. A block with
//! the same content is counted once.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result};
use client::{ProgressLine, print_message};
use decode::tsdb::{BlockChunk, BlockRowWriter, DeletedRanges, IndexSeries};
use decode::{InputError, SeriesSink};
use model::{Gap, Sample, Series};
use render::text::plural;
use render::value_formatter;

use crate::block_batches::BlockBatchSink;
use crate::block_files::{BlockFiles, BlockVisitor};
use crate::file_result::FileResult;
use crate::import_batches::BATCH_FORMAT;
use crate::import_progress::ImportProgress;
use crate::import_target::ImportTarget;
use crate::retention_check::{ExpiredSamples, RetentionCheck, TargetRetention};
use crate::scan::{ERRORS_SHOWN_MAX, ScanSummary};
use crate::tsdb_dir::{SNAPSHOT_REQUEST, TsdbBlock, TsdbDir};

/// Name of the format on the command line.
pub(crate) const FORMAT: &str = "prometheus-tsdb";
/// Skipped samples: those that remote write rejects too.
const REJECTED: &str = "rejected sample";
/// Maximum number of printed reasons why samples cannot be stored.
const REASONS_SHOWN_MAX: usize = 3;

/// Options of the import of blocks.
pub(crate) struct TsdbOptions<'a> {
    pub(crate) labels: &'a [(String, String)],
    /// Whether the intact chunks of a damaged block are imported.
    pub(crate) keep_going: bool,
    pub(crate) retention: &'a TargetRetention,
    /// Whether samples are imported of which the retention leaves nothing.
    pub(crate) accepts_retention: bool,
}

/// Imports all blocks of a directory and passes on each result. An error of a block does not affect
/// the others.
pub(crate) fn import_dir(
    target: &ImportTarget,
    dir: &Path,
    options: &TsdbOptions<'_>,
    line: &mut ProgressLine,
    each: &mut dyn FnMut(Result<FileResult>) -> Result<()>,
) -> Result<()> {
    let found = TsdbDir::open(dir)?;
    if found.has_wal {
        print_message(format_args!(
            "{}: the write-ahead log is not read, it contains about the last 3 h; to import them, \
             take a snapshot ({SNAPSHOT_REQUEST}) and import it",
            dir.display()
        ));
    }
    let chunk_bytes: u64 = found.blocks.iter().flatten().map(TsdbBlock::chunk_bytes).sum();
    // All blocks are read twice.
    let mut progress = ImportProgress::new(line, "", 2 * chunk_bytes);
    for block in found.blocks {
        let result = block.and_then(|block| {
            let end = progress.done() + 2 * block.chunk_bytes();
            let result = import_block(target, &block, options, &mut progress);
            progress.set_done(end);
            result
        });
        progress.clear();
        each(result)?;
    }
    Ok(())
}

fn import_block(
    target: &ImportTarget,
    block: &TsdbBlock,
    options: &TsdbOptions<'_>,
    progress: &mut ImportProgress<'_>,
) -> Result<FileResult> {
    let name = block.dir.display().to_string();
    let failed =
        |scan| Ok(FileResult { name: name.clone(), format: Some(FORMAT), scan, summary: None });
    let files = match BlockFiles::open(block) {
        Ok(files) => files,
        Err(error) => {
            let mut scan = ScanSummary::default();
            scan.add_error(format!("{error:#}"));
            let remedy = match block.dir.exists() {
                true => RESTORE,
                false => "the block is gone: if Prometheus compacted it, import again",
            };
            report_damage(&name, &scan, &format!("nothing of this block is imported; {remedy}"));
            return failed(scan);
        }
    };
    let start = progress.done();
    let mut check = BlockCheck::new(&files, options, progress);
    files.visit(&mut check);
    let (rejected, reasons) = (check.rejected, std::mem::take(&mut check.reasons));
    let expired = check.expired();
    let scan = check.finish();
    progress.clear();
    report_rejected(&name, rejected, &reasons);
    match (scan.error_count, options.keep_going) {
        (0, _) => {}
        (_, true) => report_damage(&name, &scan, "importing the intact chunks of the block"),
        (_, false) => {
            let advice = format!(
                "nothing of this block is imported; {RESTORE}, or import its intact chunks with \
                 --keep-going"
            );
            report_damage(&name, &scan, &advice);
            return failed(scan);
        }
    }
    let is_accepted = expired.is_none_or(|expired| {
        let found = (&name[..], scan.samples);
        expired.report(found, options.retention, options.accepts_retention)
    });
    if !is_accepted {
        return failed(scan);
    }
    progress.set_done(start + block.chunk_bytes());
    let incomplete = || format!("{name}: import incomplete; import it again to continue");
    let sink = BlockBatchSink::new(target.open_output(scan.number).with_context(incomplete)?);
    let mut import = BlockImport { labels: options.labels, sink, progress };
    files.visit(&mut import);
    let summary = import.sink.finish().with_context(incomplete)?;
    Ok(FileResult { name, format: Some(FORMAT), scan, summary: Some(summary) })
}

/// Remedy for a damaged block.
const RESTORE: &str = "restore it from a copy or a snapshot";

fn report_damage(name: &str, scan: &ScanSummary, advice: &str) {
    for error in scan.errors.iter().take(ERRORS_SHOWN_MAX) {
        print_message(format_args!("{error}"));
    }
    let more = scan.error_count.saturating_sub(ERRORS_SHOWN_MAX as u64);
    if more > 0 {
        print_message(format_args!("{name}: {} similar errors", value_formatter::count(more)));
    }
    print_message(format_args!("{name}: {advice}"));
}

fn report_rejected(name: &str, rejected: u64, reasons: &[String]) {
    if rejected == 0 {
        return;
    }
    for reason in reasons {
        print_message(format_args!("{name}: {reason}"));
    }
    let samples = plural(rejected, "sample", "samples");
    print_message(format_args!("{name}: {samples} cannot be stored; importing the others"));
}

/// First pass: decodes and hashes all chunks.
struct BlockCheck<'a, 'p> {
    labels: &'a [(String, String)],
    hasher: blake3::Hasher,
    summary: ScanSummary,
    rejected: u64,
    /// The first reasons of rejection, each once.
    reasons: Vec<String>,
    rows: CheckingSink<'a>,
    progress: &'a mut ImportProgress<'p>,
}

impl<'a, 'p> BlockCheck<'a, 'p> {
    fn new(
        files: &BlockFiles,
        options: &TsdbOptions<'a>,
        progress: &'a mut ImportProgress<'p>,
    ) -> BlockCheck<'a, 'p> {
        BlockCheck {
            labels: options.labels,
            hasher: files.hasher.clone(),
            summary: ScanSummary::default(),
            rejected: 0,
            reasons: Vec::new(),
            rows: CheckingSink { check: RetentionCheck::new(options.retention), series: None },
            progress,
        }
    }

    /// Samples that are older than the retention; `None` without any.
    fn expired(&mut self) -> Option<ExpiredSamples> {
        self.rows.check.take()
    }

    fn finish(mut self) -> ScanSummary {
        self.hasher.update(FORMAT.as_bytes()).update(&BATCH_FORMAT.to_le_bytes());
        self.hasher.update(&self.summary.error_count.to_le_bytes());
        for part in self.labels.iter().flat_map(|(name, value)| [name, value]) {
            self.hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
        }
        let hash = self.hasher.finalize();
        let number = hash.as_bytes().first_chunk().expect("BUG: a hash has 32 bytes");
        self.summary.number = u64::from_le_bytes(*number);
        if self.rejected > 0 {
            self.summary.skipped = BTreeMap::from([(REJECTED, self.rejected)]);
        }
        self.summary
    }
}

impl BlockVisitor for BlockCheck<'_, '_> {
    fn chunk(
        &mut self,
        series: &IndexSeries<'_>,
        chunk: &BlockChunk<'_>,
        deleted: &DeletedRanges,
        bytes: &[u8],
    ) -> Result<(), InputError> {
        self.hasher.update(bytes);
        self.progress.add(bytes.len() as u64);
        let mut writer = BlockRowWriter::new(&mut self.rows, self.labels);
        let written = writer.write_chunk(series, chunk, deleted);
        let counts = writer.summary();
        self.summary.samples += counts.samples + counts.histograms;
        self.rejected += counts.rejected;
        for reason in &counts.errors {
            if self.reasons.len() < REASONS_SHOWN_MAX && !self.reasons.contains(reason) {
                self.reasons.push(reason.clone());
            }
        }
        written
    }

    fn damage(&mut self, reason: String) {
        self.summary.add_error(reason);
    }
}

/// Sink of the first pass, which compares times with the retention.
struct CheckingSink<'a> {
    check: RetentionCheck<'a>,
    series: Option<Series>,
}

impl SeriesSink for CheckingSink<'_> {
    fn series(
        &mut self,
        _: &[u8],
        series: &mut dyn FnMut() -> model::Result<Series>,
    ) -> model::Result<()> {
        self.series = None;
        self.series = Some(series()?);
        Ok(())
    }

    fn sample(&mut self, sample: &Sample) -> model::Result<()> {
        if let Some(series) = &self.series {
            self.check.add(series, sample.end);
        }
        Ok(())
    }

    fn gap(&mut self, _: Gap) {}
}

/// Second pass: writes the samples. The first one has reported the damage.
struct BlockImport<'a, 'p> {
    labels: &'a [(String, String)],
    sink: BlockBatchSink<'a>,
    progress: &'a mut ImportProgress<'p>,
}

impl BlockVisitor for BlockImport<'_, '_> {
    fn chunk(
        &mut self,
        series: &IndexSeries<'_>,
        chunk: &BlockChunk<'_>,
        deleted: &DeletedRanges,
        bytes: &[u8],
    ) -> Result<(), InputError> {
        self.progress.add(bytes.len() as u64);
        BlockRowWriter::new(&mut self.sink, self.labels).write_chunk(series, chunk, deleted)
    }

    fn continues(&self) -> bool {
        !self.sink.has_failed()
    }
}
