//! Ledger file: text, one fact per line, replaced atomically.
//!
//! ```text
//! topdeck book 1
//! journal ID FIRST POSITION         journal, and its counted records FIRST..POSITION
//! begun TIME
//! saved TIME
//! state open|closed lossy|whole
//! producer ID NAME BATCHES SAMPLES VALUES REPEATED UNREADABLE MISSING
//! boot BOOT SEQUENCE                of the preceding producer
//! loss GAPS LOST UNKNOWN START END REASON
//! checksum CRC                      CRC-32C of all preceding lines, 8 hexadecimal digits
//! ```
//! Numbers are decimal, ids and epochs hexadecimal, times ns since the Unix epoch.
//! `docs/formats/ledgers.md` specifies the format.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use disk::{Disk, FileError, IoContext};
use model::text_file::{checksum_line, escape_word, split_last_line, split_words, unescape_word};

use crate::counts::{Loss, ProducerCounts, REASONS_MAX};
use crate::error::{Error, Result};
use crate::ledger::{EPOCHS_MAX, Ledger, LedgerEntry, PRODUCERS_MAX};

const TITLE: &str = "topdeck book ";
/// Format version that is written.
pub const VERSION: u32 = 2;
/// The oldest version that is read: it has no `volatile` lines.
const VERSION_OLDEST: u32 = 1;
/// Maximum number of `volatile` lines: listeners and sources of the host are far fewer.
pub(crate) const VOLATILE_PRODUCERS_MAX: usize = 4096;
/// Maximum file size in bytes: about the size with the maximum number of producers and the longest
/// names and reasons.
const BYTES_MAX: u64 = 64 << 20;

/// File of a ledger.
#[derive(Clone, Debug)]
pub struct LedgerFile {
    disk: Arc<dyn Disk>,
    path: PathBuf,
}

/// Result of loading a ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LedgerLoad {
    /// No file exists.
    Missing,
    /// The file is intact.
    Ledger(Box<Ledger>),
    /// The file is damaged; the text is the reason.
    Damaged(String),
}

impl LedgerFile {
    /// The ledger file `name` in a directory, which is created if it is missing.
    pub fn new(disk: Arc<dyn Disk>, dir: &Path, name: &str) -> Result<LedgerFile> {
        disk.create_dir(dir).io_context("create", dir)?;
        if let Some(above) = dir.parent() {
            disk.sync_dir(above).io_context("fsync directory", above)?;
        }
        // Escapes characters that a file name may not contain.
        let name = escape_word(name).replace('/', "%2F").replace('.', "%2E");
        Ok(LedgerFile { path: dir.join(name), disk })
    }

    /// Loads the file. A newer format version is an error.
    pub fn load(&self) -> Result<LedgerLoad> {
        let Some(bytes) = disk::read_file(&*self.disk, &self.path, BYTES_MAX + 1)? else {
            return Ok(LedgerLoad::Missing);
        };
        if bytes.len() as u64 > BYTES_MAX {
            return Ok(LedgerLoad::Damaged(format!("size limit ({BYTES_MAX} bytes) exceeded")));
        }
        if let Some(found) = unsupported_version(&bytes) {
            return Err(Error::JournalFailed(format!(
                "{}: format version {found} is not supported; this topdeck reads \
                 versions up to {VERSION}",
                self.path.display()
            )));
        }
        Ok(match Ledger::decode(&bytes) {
            Ok(ledger) => LedgerLoad::Ledger(Box::new(ledger)),
            Err(reason) => LedgerLoad::Damaged(reason),
        })
    }

    /// Renames the file durably, if it exists.
    pub(crate) fn rename(&self, new: &LedgerFile) -> Result<()> {
        match self.disk.rename(&self.path, &new.path) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(FileError::new("rename", &self.path, error).into()),
        }
        let dir = self.path.parent().unwrap_or(Path::new("."));
        Ok(self.disk.sync_dir(dir).io_context("fsync directory", dir)?)
    }

    /// Sets the checkpoint time and replaces the file durably and atomically.
    pub fn save_at(&self, ledger: &mut Ledger, now: i64) -> Result<()> {
        ledger.saved_at = now;
        self.save(ledger)
    }

    /// Replaces the file durably and atomically.
    pub fn save(&self, ledger: &Ledger) -> Result<()> {
        Ok(disk::replace_file(&*self.disk, &self.path, &ledger.encode())?)
    }
}

fn version(text: &str) -> Option<u32> {
    text.strip_prefix(TITLE)?.lines().next()?.parse().ok()
}

fn unsupported_version(bytes: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(bytes).ok()?;
    let version = version(text).filter(|&version| !is_read(version))?;
    let (body, last) = split_last_line(text);
    (last == checksum_line(body)).then_some(version)
}

fn is_read(version: u32) -> bool {
    (VERSION_OLDEST..=VERSION).contains(&version)
}

/// Escapes a text as one non-empty word.
fn encode_word(text: &str) -> String {
    match text {
        "" => "-".to_owned(),
        "-" => "%2D".to_owned(),
        text => escape_word(text),
    }
}

fn decode_word(word: &str) -> Option<String> {
    if word == "-" { Some(String::new()) } else { unescape_word(word) }
}

fn parse_number<T: FromStr>(word: &str) -> Option<T> {
    word.parse().ok()
}

impl Ledger {
    /// Encodes the file's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = format!("{TITLE}{VERSION}\n");
        let mut line = |text: std::fmt::Arguments<'_>| {
            out.write_fmt(text).expect("BUG: a string takes everything");
            out.push('\n');
        };
        line(format_args!("journal {:032x} {} {}", self.journal, self.first, self.position));
        line(format_args!("begun {}", self.started_at));
        line(format_args!("saved {}", self.saved_at));
        let state = if self.is_closed { "closed" } else { "open" };
        line(format_args!("state {state} {}", if self.is_volatile { "lossy" } else { "whole" }));
        for producer in &self.volatile_producers {
            line(format_args!("volatile {producer:x}"));
        }
        let entries = self.entries.iter().map(|(&id, entry)| (Some(id), entry));
        for (id, entry) in entries.chain([(None, &self.unattributed)]) {
            let id = id.map_or("-".to_owned(), |id| format!("{id:x}"));
            let ProducerCounts {
                batches,
                samples,
                values,
                duplicates: repeated,
                undecodable: unreadable,
                missing,
            } = entry.counts;
            let name = encode_word(&entry.name);
            line(format_args!(
                "producer {id} {name} {batches} {samples} {values} {repeated} {unreadable} \
                 {missing}"
            ));
            for (epoch, sequence) in &entry.epochs {
                line(format_args!("boot {epoch:x} {sequence}"));
            }
            for loss in &entry.losses {
                let Loss {
                    gaps,
                    samples_lost: lost,
                    gaps_of_unknown_size: unknown,
                    start,
                    end,
                    ..
                } = loss;
                let reason = encode_word(&loss.reason);
                line(format_args!("loss {gaps} {lost} {unknown} {start} {end} {reason}"));
            }
        }
        let last = checksum_line(&out);
        out.push_str(&last);
        out.into_bytes()
    }

    /// Decodes the file's bytes.
    ///
    /// # Errors
    ///
    /// The reason why the bytes are not a ledger.
    pub fn decode(bytes: &[u8]) -> Result<Ledger, String> {
        let text = std::str::from_utf8(bytes).map_err(|_| "not UTF-8".to_owned())?;
        let (body, last) = split_last_line(text);
        if !version(text).is_some_and(is_read) {
            return Err("the first line is not that of a ledger".to_owned());
        }
        if last != checksum_line(body) {
            return Err("checksum mismatch".to_owned());
        }
        let mut ledger = Ledger::new(0, 0, 0);
        let mut producer = None;
        for (at, line) in body.lines().enumerate().skip(1) {
            ledger
                .parse_line(line, &mut producer)
                .ok_or_else(|| format!("cannot parse line {}: {line}", at + 1))?;
        }
        Ok(ledger)
    }

    /// Parses a line; `producer` is the producer of the previous lines.
    fn parse_line(&mut self, line: &str, producer: &mut Option<Option<u64>>) -> Option<()> {
        let (what, rest) = line.split_once(' ')?;
        match what {
            "journal" => {
                let [id, first, position] = split_words(rest)?;
                self.journal = u128::from_str_radix(id, 16).ok()?;
                (self.first, self.position) = (parse_number(first)?, parse_number(position)?);
            }
            "begun" => self.started_at = parse_number(rest)?,
            "saved" => self.saved_at = parse_number(rest)?,
            "state" => {
                let [state, lossy] = split_words(rest)?;
                self.is_closed = ["open", "closed"].iter().position(|&word| word == state)? == 1;
                self.is_volatile = ["whole", "lossy"].iter().position(|&word| word == lossy)? == 1;
            }
            "volatile" => {
                let producers = &mut self.volatile_producers;
                let producer = u64::from_str_radix(rest, 16).ok()?;
                (producers.len() < VOLATILE_PRODUCERS_MAX && producers.insert(producer))
                    .then_some(())?;
            }
            "producer" => {
                let (id, entry) = parse_entry(rest)?;
                *producer = Some(id);
                match id {
                    Some(id) if self.entries.len() < PRODUCERS_MAX => {
                        self.entries.insert(id, entry);
                    }
                    Some(_) => return None,
                    None => self.unattributed = entry,
                }
            }
            "boot" => {
                let [epoch, sequence] = split_words(rest)?;
                let epoch = u64::from_str_radix(epoch, 16).ok()?;
                let epochs = &mut self.entry_for_line(*producer)?.epochs;
                (epochs.len() < EPOCHS_MAX).then(|| epochs.push((epoch, 0)))?;
                epochs.last_mut()?.1 = parse_number(sequence)?;
            }
            "loss" => {
                let loss = parse_loss(rest)?;
                let losses = &mut self.entry_for_line(*producer)?.losses;
                (losses.len() < REASONS_MAX).then(|| losses.push(loss))?;
            }
            _ => return None,
        }
        Some(())
    }

    fn entry_for_line(&mut self, producer: Option<Option<u64>>) -> Option<&mut LedgerEntry> {
        match producer? {
            Some(id) => self.entries.get_mut(&id),
            None => Some(&mut self.unattributed),
        }
    }
}

fn parse_entry(rest: &str) -> Option<(Option<u64>, LedgerEntry)> {
    let [id, name, batches, samples, values, repeated, unreadable, missing] = split_words(rest)?;
    let id = match id {
        "-" => None,
        id => Some(u64::from_str_radix(id, 16).ok()?),
    };
    let counts = ProducerCounts {
        batches: parse_number(batches)?,
        samples: parse_number(samples)?,
        values: parse_number(values)?,
        duplicates: parse_number(repeated)?,
        undecodable: parse_number(unreadable)?,
        missing: parse_number(missing)?,
    };
    Some((id, LedgerEntry { name: decode_word(name)?, counts, ..LedgerEntry::default() }))
}

fn parse_loss(rest: &str) -> Option<Loss> {
    let [gaps, lost, unknown, start, end, reason] = split_words(rest)?;
    Some(Loss {
        reason: decode_word(reason)?,
        gaps: parse_number(gaps)?,
        samples_lost: parse_number(lost)?,
        gaps_of_unknown_size: parse_number(unknown)?,
        start: parse_number(start)?,
        end: parse_number(end)?,
    })
}
