//! Records to standard output, and a subscriber's place to where they have got.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::ops::{Deref, DerefMut};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use journal::{Item, Journal, Level, Reader, Start, Subscriber};
use rustix::event::{PollFd, PollFlags, poll};

use crate::command::say;
use crate::journal::{parse, show, told};

/// Some records were missing.
pub(crate) const GAPS: u8 = 3;

/// Written at once; a subscriber's place moves on after each.
const WRITE_BYTES: usize = 256 << 10;

/// How records are read and written, for `cat` and `tail` alike.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Options {
    /// The journal's folder
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,

    /// Read as this subscriber, from its place; what was written is not read again
    ///
    /// Its place moves on after records were written, so that none is missed; after a crash or a
    /// power cut some may come again.
    #[arg(long, value_name = "NAME")]
    pub(crate) subscriber: Option<String>,

    /// End after so many records
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,

    /// End records with a zero byte instead of a newline
    #[arg(long)]
    pub(crate) null: bool,

    /// Write each record's position and a tab before it
    #[arg(long)]
    pub(crate) positions: bool,

    /// Only what has reached a level: with disk, nothing that a power cut could take back
    #[arg(long, default_value = "memory", value_parser = parse::level())]
    pub(crate) level: Level,
}

/// Where records come from.
pub(crate) enum Source {
    Reader(Reader),
    Subscriber(Subscriber),
}

impl Source {
    pub(crate) fn new(options: &Options, journal: &Journal, start: Start) -> Result<Source> {
        let mut source = match &options.subscriber {
            Some(name) => journal.subscribe(name).map(Source::Subscriber),
            None => journal.reader(start).map(Source::Reader),
        }
        .map_err(told(&options.dir))?;
        source.set_level(options.level);
        Ok(source)
    }
}

impl Deref for Source {
    type Target = Reader;

    fn deref(&self) -> &Reader {
        match self {
            Source::Reader(reader) => reader,
            Source::Subscriber(subscriber) => subscriber,
        }
    }
}

impl DerefMut for Source {
    fn deref_mut(&mut self) -> &mut Reader {
        match self {
            Source::Reader(reader) => reader,
            Source::Subscriber(subscriber) => subscriber,
        }
    }
}

/// Why writing stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stopped {
    /// There is nothing more to read now.
    NoMore,
    /// All that was asked for is written.
    Done,
}

/// Standard output, and what went there.
pub(crate) struct Output<'a> {
    options: &'a Options,
    out: BufWriter<File>,
    /// Records that may still be written.
    left: u64,
    /// Everything below was written, or told to be missing.
    upto: u64,
    gaps: u64,
    /// Bytes written since the subscriber was moved.
    ahead_bytes: usize,
}

impl<'a> Output<'a> {
    pub(crate) fn new(options: &'a Options) -> Result<Output<'a>> {
        // Not `Stdout`: it would look for newlines, and hold back what comes after the last.
        let out =
            io::stdout().as_fd().try_clone_to_owned().context("cannot write to standard output")?;
        Ok(Output {
            options,
            out: BufWriter::with_capacity(WRITE_BYTES, File::from(out)),
            left: options.count.unwrap_or(u64::MAX),
            upto: 0,
            gaps: 0,
            ahead_bytes: 0,
        })
    }

    /// Writes what there is below a position, and moves the subscriber on.
    pub(crate) fn write(&mut self, source: &mut Source, to: u64) -> Result<Stopped> {
        self.upto = source.position();
        loop {
            if self.left == 0 || self.upto >= to {
                self.commit(source)?;
                return Ok(Stopped::Done);
            }
            match source.next().map_err(told(&self.options.dir))? {
                None => {
                    self.commit(source)?;
                    return Ok(Stopped::NoMore);
                }
                Some(Item::Gap(gap)) => {
                    if gap.positions.start < to {
                        // Where the records would be in the output.
                        self.flush()?;
                        say(format_args!("{}: {}", self.options.dir.display(), show::gap(&gap)));
                        self.gaps += 1;
                        self.upto = gap.positions.end;
                    } else {
                        self.upto = to;
                    }
                }
                Some(Item::Batch(batch)) => {
                    for record in batch.records() {
                        if self.left == 0 || record.position >= to {
                            break;
                        }
                        self.record(&record).context("cannot write to standard output")?;
                        self.ahead_bytes += record.bytes.len() + 1;
                        self.upto = record.position + 1;
                        self.left -= 1;
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

    /// Brings all to standard output, and only then moves the subscriber.
    fn commit(&mut self, source: &mut Source) -> Result<()> {
        self.flush()?;
        self.ahead_bytes = 0;
        match source {
            Source::Subscriber(subscriber) if subscriber.checkpoint().position != self.upto => {
                let level = Level::Process;
                subscriber.commit(self.upto, level).map_err(told(&self.options.dir))
            }
            _ => Ok(()),
        }
    }

    /// Sleeps until there is more to read; false when nobody reads what is written any more.
    pub(crate) fn wait(&self, source: &mut Source) -> Result<bool> {
        let ready = source.readiness().context("cannot wait for records")?;
        let mut fds = [
            PollFd::new(&ready, PollFlags::IN),
            // Errors and the end of the other side are always told.
            PollFd::from_borrowed_fd(self.out.get_ref().as_fd(), PollFlags::empty()),
        ];
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("cannot wait for records"),
        }
        let gone = fds[1].revents().intersects(PollFlags::ERR | PollFlags::HUP);
        if fds[0].revents().contains(PollFlags::IN) {
            // Cleared for the next wait; it may have been cleared already.
            let _ = rustix::io::read(ready, &mut [0; 8]);
        }
        Ok(!gone)
    }

    /// Makes the subscriber's place durable, and says how it went.
    pub(crate) fn end(self, source: Source) -> Result<ExitCode> {
        if let Source::Subscriber(mut subscriber) = source {
            let position = subscriber.checkpoint().position;
            subscriber.commit(position, Level::Disk).map_err(told(&self.options.dir))?;
        }
        Ok(if self.gaps > 0 { ExitCode::from(GAPS) } else { ExitCode::SUCCESS })
    }
}

/// The position behind the last record of a level.
pub(crate) fn end(journal: &Journal, level: Level) -> u64 {
    let marks = journal.marks();
    if level == Level::Disk { marks.durable } else { marks.end }
}

/// The first record kept.
pub(crate) fn first(journal: &Journal) -> u64 {
    journal.marks().first
}

/// Where the folder is, for messages.
pub(crate) fn name(dir: &Path) -> String {
    dir.display().to_string()
}
