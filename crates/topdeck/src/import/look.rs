//! The first reading of a file: whether all of it can be imported, and the number of its contents.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::ops::ControlFlow;

use anyhow::{Context as _, Result, bail};
use collect::{Format, Reading, Sink, Trouble};

use crate::command::say;
use crate::import::place::{Rules, Unplaced};
use crate::import::source::{self, Source};
use crate::journal::progress::Progress;
use crate::journal::show;

/// As many troubles as a person reads; the rest is counted.
const TROUBLES_SHOWN: usize = 10;
const TROUBLES_KEPT: usize = 1000;

/// What was seen.
#[derive(Debug, Default)]
pub(crate) struct Looked {
    /// `None` if no format was recognised.
    pub(crate) format: Option<Format>,
    /// Of the contents and of what the command line says of them.
    pub(crate) number: u64,
    /// Bytes that were looked at; what is written to the file later is another import's.
    pub(crate) bytes: u64,
    pub(crate) readings: u64,
    pub(crate) skipped: BTreeMap<&'static str, u64>,
    pub(crate) troubles: Vec<String>,
    pub(crate) trouble_count: u64,
    unplaced: Option<Unplaced>,
    numbers: u64,
}

/// Looks at all of it.
pub(crate) fn look(
    source: &Source,
    format: Option<Format>,
    rules: &Rules<'_>,
    progress: &mut Progress,
) -> Result<Looked> {
    let name = source.name();
    let cannot = || format!("cannot read {name}");
    let (input, length) = source.read()?;
    let mut hashed = Hashed { input, hasher: blake3::Hasher::new(), bytes: 0, length, progress };
    let (head, detected) = source::detect(&mut hashed, format).with_context(cannot)?;
    let mut looked = Looked::default();
    match detected {
        Err(trouble) => looked.trouble(trouble.to_string()),
        Ok(format) => {
            let mut taker = Taker { rules, format, looked };
            source::read(&head, &mut hashed, format, rules.unit, &mut taker)
                .with_context(cannot)?;
            looked = taker.looked;
            looked.format = Some(format);
        }
    }
    // A source may stop before the end of its input.
    io::copy(&mut hashed, &mut io::sink()).with_context(cannot)?;
    let Hashed { mut hasher, bytes, .. } = hashed;
    looked.bytes = bytes;
    if let Some(format) = looked.format {
        if looked.numbers > 0 {
            // Plain numbers become one histogram, which has neither name nor time.
            looked.readings += 1;
            let missing = match (rules.metric, rules.start) {
                (None, _) => Some(Unplaced::NoName),
                (_, None) => Some(Unplaced::NoTime),
                _ => None,
            };
            looked.unplaced = looked.unplaced.or(missing);
        }
        hasher.update(&rules.bytes(format));
    }
    let hash = hasher.finalize();
    looked.number =
        u64::from_le_bytes(*hash.as_bytes().first_chunk().expect("BUG: a hash has 32 bytes"));
    match looked.unplaced {
        Some(Unplaced::NoName) => bail!(
            "{name}: does not say what was measured; name it with --metric, such as --metric latency"
        ),
        Some(Unplaced::NoTime) => bail!(
            "{name}: has no times; say when it was with --start, such as --start 2026-11-09T12:00:00Z \
             or --start now"
        ),
        Some(Unplaced::SinceStart) => bail!(
            "{name}: its times count from the log's own beginning; say when that was with --start, such as \
             --start 2026-11-09T12:00:00Z"
        ),
        Some(Unplaced::Refused(_)) | None => Ok(looked),
    }
}

impl Looked {
    /// Says what is wrong, and what becomes of it.
    pub(crate) fn complain(&self, name: &str, keep_going: bool) {
        for trouble in self.troubles.iter().take(TROUBLES_SHOWN) {
            say(format_args!("{name}: {trouble}"));
        }
        let more = self.trouble_count.saturating_sub(TROUBLES_SHOWN as u64);
        if more > 0 {
            say(format_args!("{name}: {} more like these", show::count(more)));
        }
        if self.trouble_count == 0 {
            return;
        }
        let advice = match (self.format, keep_going) {
            (None, _) => "nothing of it is imported; name the format with --format",
            (_, true) => "what could be read is imported",
            (_, false) => {
                "nothing of it is imported; mend it, or import what can be read with --keep-going"
            }
        };
        say(format_args!("{name}: {advice}"));
    }

    /// What was left out, in words behind some others; empty if nothing was.
    pub(crate) fn skipped_text(&self, before: &str) -> String {
        if self.skipped.is_empty() {
            return String::new();
        }
        let parts = self.skipped.iter().map(|(what, n)| format!("{} × {what}", show::count(*n)));
        format!("{before}{}", parts.collect::<Vec<_>>().join(", "))
    }

    fn trouble(&mut self, trouble: String) {
        self.trouble_count += 1;
        if self.troubles.len() < TROUBLES_KEPT {
            self.troubles.push(trouble);
        }
    }
}

struct Taker<'a> {
    rules: &'a Rules<'a>,
    format: Format,
    looked: Looked,
}

impl Sink for Taker<'_> {
    fn number(&mut self, _: f64) {
        self.looked.numbers += 1;
    }

    fn reading(&mut self, reading: Reading) {
        self.looked.readings += 1;
        match self.rules.place(reading, self.format) {
            Ok(_) => {}
            Err(Unplaced::Refused(why)) => {
                self.looked.trouble(format!("reading {}: {why}", self.looked.readings));
            }
            Err(unplaced) => {
                self.looked.unplaced.get_or_insert(unplaced);
            }
        }
    }

    fn skipped(&mut self, what: &'static str) {
        *self.looked.skipped.entry(what).or_default() += 1;
    }

    fn trouble(&mut self, trouble: Trouble) -> ControlFlow<()> {
        self.looked.trouble(trouble.to_string());
        ControlFlow::Continue(())
    }
}

/// An input whose bytes are added to a hash as they are read.
struct Hashed<'a> {
    input: Box<dyn Read + 'a>,
    hasher: blake3::Hasher,
    bytes: u64,
    length: u64,
    progress: &'a mut Progress,
}

impl Read for Hashed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        self.hasher.update(&buffer[..read]);
        self.bytes += read as u64;
        // The first of two readings.
        self.progress.bar(self.bytes, 2 * self.length.max(self.bytes));
        Ok(read)
    }
}
