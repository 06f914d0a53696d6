//! `topdeck journal append`: appends lines or files as records, acknowledged at a level.
//!
//! The data of one read is appended before the next read, so records of a slow pipe are not
//! delayed, and records of a fast pipe share a sync. With an identity each record is a batch of its
//! own: its sequence is its number in the input, independent of how the input is split into reads.
//! Duplicates are recognised by it.

use std::fs::{self, File};
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use client::{ProgressLine, print_message};
use journal::{Ack, BatchIdentity, Error, Journal, Level, Settings};
use report::journal_format;

use crate::journal::create::{create, creation_summary};
use crate::journal::record_splitter::{ReadStatus, RecordDelimiter, RecordSplitter};
use crate::journal::{open, parse, try_open, with_dir};
use render::bytes::format_bytes;
use render::bytes::format_rate;
use render::text::shell_quote;
use render::time::format_duration;
use render::value_formatter;

/// Append records: lines of files or of standard input
///
/// Each line is a record, without its newline; a last line without newline counts. Data is appended
/// as soon as it is read, so records of a slow pipe are not delayed. At the end standard error
/// shows the number of appended records, their positions, and the durability level reached.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Directory of the journal
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// Input files; - or none is standard input
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Records end with a zero byte instead of a newline, as from find -print0
    #[arg(long, conflicts_with = "record_per_file")]
    null: bool,

    /// Append each file as one record
    #[arg(long)]
    record_per_file: bool,

    /// Durability required before an append is acknowledged
    #[arg(long, value_name = "LEVEL", default_value = "process", value_parser = parse::level_parser())]
    durability: Level,

    /// Producer id: gives records an identity, so that duplicates are recognised
    ///
    /// Appending the same input again with the same producer, epoch and first sequence adds only
    /// records that are not in the journal yet.
    #[arg(long, value_name = "NUMBER", requires = "epoch")]
    producer: Option<u64>,

    /// Epoch of the producer: a new number for each new input
    #[arg(long, value_name = "NUMBER", requires = "producer")]
    epoch: Option<u64>,

    /// Sequence of the first record
    #[arg(long, value_name = "NUMBER", default_value_t = 1, requires = "producer")]
    sequence: u64,

    /// Create the journal with default settings if it is missing
    #[arg(long)]
    create: bool,
}

const AFTER: &str = "\
Examples:
  app 2>&1 | topdeck journal append j
  topdeck journal append j --durability disk orders.csv
  topdeck journal append j --producer 7 --epoch 1 orders.csv   can be repeated after a crash
  find . -name '*.json' -print0 | topdeck journal append j --null

Records that were appended before a signal, kill -9 included, are not lost; with the durability disk
they survive a power loss, too. To continue without duplicates, repeat the command with --producer
and --epoch.

Exit status:
  0  all records are appended and have reached the level
  1  the journal is full or stopped, a record is too large, an input cannot be read, or the level
     was not reached in time; standard error has the number of safe records, and where to continue
  2  usage error";

/// Batch size of records without identity: larger batches are not faster.
const BATCH_BYTES: u64 = 64 << 10;

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    for file in options.files.iter().filter(|file| !is_stdin(file)) {
        // Checked before anything is appended.
        fs::metadata(file).with_context(|| format!("cannot read {}", file.display()))?;
    }
    let journal = if options.create { open_or_create(&options.dir)? } else { open(&options.dir)? };
    let settings = journal.stat().map_err(with_dir(&options.dir))?.settings;
    let mut appender = RecordAppender::new(options, &journal, &settings);
    let result = appender.append_all();
    appender.progress.clear();
    let short = appender.summary.level.is_some_and(|level| level < options.durability);
    match result {
        Ok(()) => print_message(appender.summary.text(appender.progress.elapsed())),
        Err(failed) => {
            print_message(format_args!("{:#}", failed.error));
            print_message(appender.failure_summary(&failed));
            return Ok(ExitCode::FAILURE);
        }
    }
    if short {
        print_message(format_args!(
            "{}: level {} was not reached in time; the records are retained and may reach it later",
            options.dir.display(),
            options.durability
        ));
        match journal.stat().map_err(with_dir(&options.dir))?.full_reason {
            Some(full) => print_message(with_dir(&options.dir)(full.into())),
            None => print_message(journal_format::stalled_message(&shell_quote(&options.dir))),
        }
    }
    Ok(if short { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

fn open_or_create(dir: &Path) -> Result<Journal> {
    match try_open(dir, &journal::Options::default()) {
        Err(Error::NotFound { .. }) => {
            let settings = Settings::default();
            create(dir, &settings)?;
            print_message(creation_summary(dir, &settings).trim_end().replace('\n', " "));
            open(dir)
        }
        other => other.map_err(with_dir(dir)),
    }
}

/// Counts of appended records.
#[derive(Debug, Default, PartialEq, Eq)]
struct AppendSummary {
    /// Acknowledged records, without duplicates.
    records: u64,
    bytes: u64,
    duplicates: u64,
    /// From the first position to after the last; records of other processes may be in between.
    positions: Option<Range<u64>>,
    /// Lowest level reached by any record.
    level: Option<Level>,
}

/// Append failure and its context.
struct AppendFailure {
    error: anyhow::Error,
    file: String,
    /// Appended records of the file, duplicates included.
    file_records: u64,
    /// Appended records that are not known to have reached the level.
    unconfirmed: u64,
}

struct RecordAppender<'a> {
    options: &'a Options,
    journal: &'a Journal,
    batch_bytes: u64,
    record_bytes_max: u64,
    next: Option<BatchIdentity>,
    summary: AppendSummary,
    progress: ProgressLine,
}

impl<'a> RecordAppender<'a> {
    fn new(options: &'a Options, journal: &'a Journal, settings: &Settings) -> RecordAppender<'a> {
        let next = options.producer.zip(options.epoch);
        RecordAppender {
            options,
            journal,
            // A batch larger than half the buffer bypasses it, which requires exclusive access.
            batch_bytes: BATCH_BYTES.min(settings.buffer_bytes / 4).min(settings.segment_bytes / 8),
            record_bytes_max: settings.segment_bytes / 4,
            next: next.map(|(producer, epoch)| BatchIdentity {
                producer,
                epoch,
                sequence: options.sequence,
            }),
            summary: AppendSummary::default(),
            progress: ProgressLine::new(),
        }
    }

    fn append_all(&mut self) -> Result<(), AppendFailure> {
        if self.options.files.is_empty() {
            return self.append_file(Path::new("-"));
        }
        self.options.files.iter().try_for_each(|file| self.append_file(file))
    }

    fn append_file(&mut self, path: &Path) -> Result<(), AppendFailure> {
        let mut of_file = 0;
        let (mut unsure, stdin) = (0, is_stdin(path));
        let name = if stdin { "standard input".to_owned() } else { path.display().to_string() };
        let result = match stdin {
            true => self.append_stream(io::stdin().lock(), &name, &mut of_file, &mut unsure),
            false => File::open(path)
                .with_context(|| format!("cannot read {name}"))
                .and_then(|file| self.append_stream(file, &name, &mut of_file, &mut unsure)),
        };
        result.map_err(|error| AppendFailure {
            error,
            file: name,
            file_records: of_file,
            unconfirmed: unsure,
        })
    }

    fn append_stream(
        &mut self,
        source: impl Read,
        name: &str,
        of_file: &mut u64,
        unsure: &mut u64,
    ) -> Result<()> {
        let end = match (self.options.record_per_file, self.options.null) {
            (true, _) => RecordDelimiter::Stream,
            (_, true) => RecordDelimiter::Byte(0),
            (_, false) => RecordDelimiter::Byte(b'\n'),
        };
        let mut input = RecordSplitter::new(source, end, self.record_bytes_max);
        let mut records = Vec::new();
        loop {
            match input.read().with_context(|| format!("cannot read {name}"))? {
                ReadStatus::More => {}
                ReadStatus::End => return Ok(()),
                ReadStatus::TooLarge => return Err(self.too_large(name, *of_file)),
            }
            let bytes = input.complete_records(&mut records);
            if let Some(large) = records.iter().position(|r| r.len() as u64 > self.record_bytes_max)
            {
                self.append_batches(bytes, &records[..large], of_file, unsure)?;
                return Err(self.too_large(name, *of_file));
            }
            self.append_batches(bytes, &records, of_file, unsure)?;
            input.discard(&records);
            let done = &self.summary;
            self.progress.show(|elapsed| {
                let rate = format_rate(done.bytes, elapsed);
                format!(
                    "{}, {}, {rate}",
                    journal_format::format_records(done.records),
                    format_bytes(done.bytes)
                )
            });
        }
    }

    fn too_large(&self, name: &str, of_file: u64) -> anyhow::Error {
        let record = match self.options.record_per_file {
            true => name.to_owned(),
            false => format!("{name}: record {}", value_formatter::count(of_file + 1)),
        };
        anyhow!(
            "{record} exceeds the record size limit ({}) of {}, a quarter of its segment size; \
             create a journal with a larger --segment",
            format_bytes(self.record_bytes_max),
            self.options.dir.display()
        )
    }

    /// Appends the records of one read; only the last batch waits for the level, on behalf of all.
    fn append_batches(
        &mut self,
        bytes: &[u8],
        records: &[Range<usize>],
        of_file: &mut u64,
        unsure: &mut u64,
    ) -> Result<()> {
        let mut rest = records;
        let mut group = AppendSummary::default();
        while !rest.is_empty() {
            let count = self.batch_len(rest);
            let (batch, after) = rest.split_at(count);
            rest = after;
            let level = if rest.is_empty() { self.options.durability } else { Level::Memory };
            let batch: Vec<&[u8]> = batch.iter().map(|record| &bytes[record.clone()]).collect();
            let ack = match self.journal.append_batch(self.next, &batch, level) {
                Ok(ack) => ack,
                Err(error) => {
                    *of_file += group.records + group.duplicates;
                    if group.level.is_some_and(|level| level >= self.options.durability) {
                        self.summary.merge(group);
                    } else {
                        *unsure = group.records;
                    }
                    return Err(with_dir(&self.options.dir)(error));
                }
            };
            if let Some(identity) = &mut self.next {
                identity.sequence += 1;
            }
            group.add(&ack, &batch);
        }
        *of_file += group.records + group.duplicates;
        self.summary.merge(group);
        Ok(())
    }

    /// Number of records of the next batch.
    fn batch_len(&self, records: &[Range<usize>]) -> usize {
        if self.next.is_some() {
            return 1;
        }
        let mut bytes = 0;
        let fits = |record: &&Range<usize>| {
            bytes += record.len() as u64 + 10;
            bytes <= self.batch_bytes
        };
        records.iter().take_while(fits).count().max(1)
    }

    /// Summary after a failure.
    fn failure_summary(&self, failed: &AppendFailure) -> String {
        let mut text = match (self.summary.records + self.summary.duplicates, failed.unconfirmed) {
            (0, 0) => "no record was appended".to_owned(),
            (0, _) => format!("no record has reached {}", self.options.durability),
            _ => self.summary.text(self.progress.elapsed()),
        };
        if failed.unconfirmed > 0 {
            text = format!(
                "{text}; {} more appended, not confirmed to have reached {}",
                journal_format::format_records(failed.unconfirmed),
                self.options.durability
            );
        }
        if failed.file_records > 0 && !self.options.record_per_file {
            text = format!(
                "{text}; continue at record {} of {}",
                failed.file_records + 1,
                failed.file
            );
        } else if self.options.files.len() > 1 {
            text = format!("{text}; continue at {}", failed.file);
        }
        text
    }
}

impl AppendSummary {
    fn add(&mut self, ack: &Ack, batch: &[&[u8]]) {
        if ack.is_duplicate {
            self.duplicates += batch.len() as u64;
        } else {
            self.records += batch.len() as u64;
            self.bytes += batch.iter().map(|record| record.len() as u64).sum::<u64>();
            self.positions = Some(match self.positions.take() {
                Some(before) => before.start..ack.positions.end,
                None => ack.positions.clone(),
            });
        }
        // The durable watermark passes records in order, so the last ack covers the previous ones.
        self.level = Some(ack.level);
    }

    fn merge(&mut self, group: AppendSummary) {
        self.records += group.records;
        self.bytes += group.bytes;
        self.duplicates += group.duplicates;
        self.positions = match (self.positions.take(), group.positions) {
            (Some(a), Some(b)) => Some(a.start..b.end),
            (a, b) => a.or(b),
        };
        self.level = match (self.level, group.level) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }

    fn text(&self, elapsed: Duration) -> String {
        let mut text = format!("{} appended", journal_format::format_records(self.records));
        if let Some(positions) = &self.positions {
            text.push_str(&format!(", {}", journal_format::format_positions(positions)));
            let others = (positions.end - positions.start).saturating_sub(self.records);
            if others > 0 {
                text.push_str(&format!(
                    " (including {} of others)",
                    value_formatter::count(others)
                ));
            }
        }
        if let Some(level) = self.level {
            text.push_str(&format!(", durability {level}"));
        }
        text.push_str(&format!(", {}", format_duration(elapsed)));
        if self.duplicates > 0 {
            let were = if self.duplicates == 1 { "was" } else { "were" };
            let repeats = journal_format::format_records(self.duplicates);
            text.push_str(&format!("; {repeats} {were} duplicates, not appended again"));
        }
        text
    }
}
