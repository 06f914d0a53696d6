//! Writes records to standard output and advances the subscriber.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::ops::{Deref, DerefMut};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use client::print_message;
use journal::{Journal, JournalReader, Level, ReadItem, StartPosition, Subscriber};
use report::journal_format;
use rustix::event::{PollFd, PollFlags, poll};

use crate::journal::{parse, with_dir};

/// Exit status: records were missing.
pub(crate) const EXIT_GAPS: u8 = 3;

/// Size of a write; the subscriber is advanced after each.
const WRITE_BYTES: usize = 256 << 10;

/// Options of `cat` and `tail`.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Options {
    /// Directory of the journal
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,

    /// Read as this subscriber, from its position, and advance it
    ///
    /// The position advances after records were written, so none is skipped; after a crash or a
    /// power loss some may be read again.
    #[arg(long, value_name = "NAME")]
    pub(crate) subscriber: Option<String>,

    /// Stop after this number of records
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,

    /// End records with a zero byte instead of a newline
    #[arg(long)]
    pub(crate) null: bool,

    /// Prefix each record with its position and a tab
    #[arg(long)]
    pub(crate) positions: bool,

    /// Only records that have reached a level; disk: none that a power loss could lose
    #[arg(long, value_name = "LEVEL", default_value = "any", value_parser = parse::read_level_parser())]
    pub(crate) durability: Level,
}

/// Source of records.
pub(crate) enum RecordSource {
    Reader(JournalReader),
    Subscriber(Subscriber),
}

impl RecordSource {
    pub(crate) fn new(
        options: &Options,
        journal: &Journal,
        start: StartPosition,
    ) -> Result<RecordSource> {
        let mut source = match &options.subscriber {
            Some(name) => journal.subscribe(name).map(RecordSource::Subscriber),
            None => journal.reader(start).map(RecordSource::Reader),
        }
        .map_err(with_dir(&options.dir))?;
        source.set_level(options.durability);
        Ok(source)
    }
}

impl Deref for RecordSource {
    type Target = JournalReader;

    fn deref(&self) -> &JournalReader {
        match self {
            RecordSource::Reader(reader) => reader,
            RecordSource::Subscriber(subscriber) => subscriber,
        }
    }
}

impl DerefMut for RecordSource {
    fn deref_mut(&mut self) -> &mut JournalReader {
        match self {
            RecordSource::Reader(reader) => reader,
            RecordSource::Subscriber(subscriber) => subscriber,
        }
    }
}

/// Reason to stop writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopReason {
    /// There is currently nothing more to read.
    EndOfData,
    /// The requested number of records was written, or the end of the requested positions was
    /// reached.
    LimitReached,
}

/// Record output with its counters.
pub(crate) struct RecordOutput<'a> {
    options: &'a Options,
    out: BufWriter<File>,
    /// Number of records that may still be written.
    remaining: u64,
    /// All records below were written, or reported as missing.
    written_to: u64,
    gaps: u64,
    /// Bytes written since the subscriber was advanced.
    ahead_bytes: usize,
}

impl<'a> RecordOutput<'a> {
    pub(crate) fn new(options: &'a Options) -> Result<RecordOutput<'a>> {
        // Not `Stdout`, which is line buffered and delays data after the last newline.
        let out =
            io::stdout().as_fd().try_clone_to_owned().context("cannot write to standard output")?;
        Ok(RecordOutput {
            options,
            out: BufWriter::with_capacity(WRITE_BYTES, File::from(out)),
            remaining: options.count.unwrap_or(u64::MAX),
            written_to: 0,
            gaps: 0,
            ahead_bytes: 0,
        })
    }

    /// Writes the records below a position, and advances the subscriber.
    pub(crate) fn write(&mut self, source: &mut RecordSource, to: u64) -> Result<StopReason> {
        self.written_to = source.position();
        loop {
            if self.remaining == 0 || self.written_to >= to {
                self.commit(source)?;
                return Ok(StopReason::LimitReached);
            }
            match source.next().map_err(with_dir(&self.options.dir))? {
                None => {
                    self.commit(source)?;
                    return Ok(StopReason::EndOfData);
                }
                Some(ReadItem::Gap(gap)) => {
                    if gap.positions.start < to {
                        // At the location of the missing records in the output.
                        self.flush()?;
                        print_message(format_args!(
                            "{}: {}",
                            self.options.dir.display(),
                            journal_format::describe_gap(&gap)
                        ));
                        self.gaps += 1;
                        self.written_to = gap.positions.end;
                    } else {
                        self.written_to = to;
                    }
                }
                Some(ReadItem::Batch(batch)) => {
                    for record in batch.records() {
                        if self.remaining == 0 || record.position >= to {
                            break;
                        }
                        self.record(&record).context("cannot write to standard output")?;
                        self.ahead_bytes += record.bytes.len() + 1;
                        self.written_to = record.position + 1;
                        self.remaining -= 1;
                    }
                    if self.ahead_bytes >= WRITE_BYTES {
                        self.commit(source)?;
                    }
                }
            }
        }
    }

    fn record(&mut self, record: &journal::Record<'_>) -> io::Result<()> {
        if self.options.positions {
            write!(self.out, "{}\t", record.position)?;
        }
        self.out.write_all(record.bytes)?;
        self.out.write_all(if self.options.null { b"\0" } else { b"\n" })
    }

    fn flush(&mut self) -> Result<()> {
        self.out.flush().context("cannot write to standard output")
    }

    /// Flushes standard output, then advances the subscriber.
    fn commit(&mut self, source: &mut RecordSource) -> Result<()> {
        self.flush()?;
        self.ahead_bytes = 0;
        match source {
            RecordSource::Subscriber(subscriber)
                if subscriber.checkpoint().position != self.written_to =>
            {
                let level = Level::Process;
                subscriber.commit(self.written_to, level).map_err(with_dir(&self.options.dir))
            }
            _ => Ok(()),
        }
    }

    /// Waits for more records; false if the reader of standard output has closed it.
    pub(crate) fn wait(&self, source: &mut RecordSource) -> Result<bool> {
        let ready = source.readiness().context("cannot wait for records")?;
        let mut fds = [
            PollFd::new(&ready, PollFlags::IN),
            // Errors and hang-up are always reported.
            PollFd::from_borrowed_fd(self.out.get_ref().as_fd(), PollFlags::empty()),
        ];
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("cannot wait for records"),
        }
        let is_closed = fds[1].revents().intersects(PollFlags::ERR | PollFlags::HUP);
        if fds[0].revents().contains(PollFlags::IN) {
            // Cleared for the next wait; it may have been cleared already.
            let _ = rustix::io::read(ready, &mut [0; 8]);
        }
        Ok(!is_closed)
    }

    /// Makes the subscriber's position durable, and returns the exit status.
    pub(crate) fn finish(self, source: RecordSource) -> Result<ExitCode> {
        if let RecordSource::Subscriber(mut subscriber) = source {
            let position = subscriber.checkpoint().position;
            subscriber.commit(position, Level::Disk).map_err(with_dir(&self.options.dir))?;
        }
        Ok(if self.gaps > 0 { ExitCode::from(EXIT_GAPS) } else { ExitCode::SUCCESS })
    }
}

/// Position after the last record of a level.
pub(crate) fn level_end(journal: &Journal, level: Level) -> u64 {
    let watermarks = journal.watermarks();
    if level == Level::Disk { watermarks.durable } else { watermarks.end }
}

/// Position of the first retained record.
pub(crate) fn first_position(journal: &Journal) -> u64 {
    journal.watermarks().first
}

/// Directory name for messages.
pub(crate) fn display_name(dir: &Path) -> String {
    dir.display().to_string()
}
