//! A book as a file: text, a fact a line, replaced whole.
//!
//! ```text
//! topdeck book 1
//! journal ID FIRST POSITION         of which journal, and which of its records are counted
//! begun TIME
//! saved TIME
//! state open|closed lossy|whole
//! producer ID NAME BATCHES SAMPLES VALUES REPEATED UNREADABLE MISSING
//! boot BOOT SEQUENCE                of the producer before
//! loss GAPS LOST UNKNOWN START END REASON
//! checksum CRC                      CRC-32C of all lines before, 8 hexadecimal digits
//! ```
//! Numbers are decimal, ids and boots hexadecimal, times ns since the Unix epoch. `docs/formats/books.md` says the
//! same to a stranger.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use disk::{Disk, Mode};
use model::wire::{escaped, unescaped};

use crate::book::{BOOTS_MAX, Book, Entry, PRODUCERS_MAX};
use crate::counts::{Counts, Loss, REASONS_MAX};
use crate::error::{Error, Result};

const TITLE: &str = "topdeck book ";
/// The version that is written, and the only one that is read.
pub const VERSION: u32 = 1;
/// Bytes of a file at the most: what the most producers with the longest names and reasons take, about.
const BYTES_MAX: u64 = 64 << 20;

/// Where a book is kept.
#[derive(Clone, Debug)]
pub struct BookFile {
    disk: Arc<dyn Disk>,
    path: PathBuf,
}

/// What was found of a book.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// There is none yet.
    Nothing,
    /// It is whole.
    Book(Box<Book>),
    /// There is one, and it is not what was written: what is wrong with it.
    Damaged(String),
}

impl BookFile {
    /// The book of a name in a folder, which is made if it is missing.
    pub fn new(disk: Arc<dyn Disk>, dir: &Path, name: &str) -> Result<BookFile> {
        let at = |doing, path: &Path, error| broken(doing, path, &error);
        disk.create_dir(dir).map_err(|error| at("create", dir, error))?;
        if let Some(above) = dir.parent() {
            disk.sync_dir(above).map_err(|error| at("synchronise", above, error))?;
        }
        // A name may have characters that a file's may not.
        let name = escaped(name).replace('/', "%2F").replace('.', "%2E");
        Ok(BookFile { path: dir.join(name), disk })
    }

    /// Reads it. A book of a newer topdeck is an error.
    pub fn load(&self) -> Result<Found> {
        let at = |doing, error| broken(doing, &self.path, &error);
        let file = match self.disk.open(&self.path, Mode::Read) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Found::Nothing);
            }
            Err(error) => return Err(at("open", error)),
        };
        let len = file.len().map_err(|error| at("measure", error))?;
        if len > BYTES_MAX {
            return Ok(Found::Damaged(format!("it has {len} bytes, at most {BYTES_MAX} are read")));
        }
        let mut bytes = vec![0; usize::try_from(len).expect("BUG: it is below the most")];
        let have = file.read_full_at(&mut bytes, 0).map_err(|error| at("read", error))?;
        bytes.truncate(have);
        if let Some(found) = other_version(&bytes) {
            return Err(Error::Broken(format!(
                "{}: has format version {found}, this topdeck reads version {VERSION}",
                self.path.display()
            )));
        }
        Ok(match Book::read(&bytes) {
            Ok(book) => Found::Book(Box::new(book)),
            Err(why) => Found::Damaged(why),
        })
    }

    /// Sets the time of writing, and replaces it, durably and at once.
    pub fn save_at(&self, book: &mut Book, now: i64) -> Result<()> {
        book.saved = now;
        self.save(book)
    }

    /// Replaces it, durably and at once.
    pub fn save(&self, book: &Book) -> Result<()> {
        let mut new = self.path.clone().into_os_string();
        new.push(".new");
        let new = PathBuf::from(new);
        let at = |doing, error| broken(doing, &new, &error);
        let file = self.disk.open(&new, Mode::Create).map_err(|error| at("create", error))?;
        file.set_len(0).map_err(|error| at("empty", error))?;
        file.write_all_at(&book.write(), 0).map_err(|error| at("write", error))?;
        file.sync().map_err(|error| at("synchronise", error))?;
        drop(file);
        self.disk.rename(&new, &self.path).map_err(|error| at("rename", error))?;
        let dir = self.path.parent().unwrap_or(Path::new("."));
        self.disk.sync_dir(dir).map_err(|error| broken("synchronise", dir, &error))
    }
}

fn broken(doing: &str, path: &Path, error: &std::io::Error) -> Error {
    Error::Broken(format!("{}: cannot {doing}: {error}", path.display()))
}

fn checksum_line(body: &str) -> String {
    format!("checksum {:08x}\n", crc32c::crc32c(body.as_bytes()))
}

fn split_last_line(text: &str) -> (&str, &str) {
    text.split_at(text.trim_end_matches('\n').rfind('\n').map_or(0, |at| at + 1))
}

fn version(text: &str) -> Option<u32> {
    text.strip_prefix(TITLE)?.lines().next()?.parse().ok()
}

fn other_version(bytes: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(bytes).ok()?;
    let version = version(text).filter(|&version| version != VERSION)?;
    let (body, last) = split_last_line(text);
    (last == checksum_line(body)).then_some(version)
}

/// A text as one word that is never empty.
fn word(text: &str) -> String {
    match text {
        "" => "-".to_owned(),
        "-" => "%2D".to_owned(),
        text => escaped(text),
    }
}

fn unword(word: &str) -> Option<String> {
    if word == "-" { Some(String::new()) } else { unescaped(word) }
}

fn words<const N: usize>(rest: &str) -> Option<[&str; N]> {
    let words: Vec<&str> = rest.split(' ').collect();
    words.try_into().ok()
}

fn number<T: FromStr>(word: &str) -> Option<T> {
    word.parse().ok()
}

impl Book {
    /// The bytes of its file.
    pub fn write(&self) -> Vec<u8> {
        let mut out = format!("{TITLE}{VERSION}\n");
        let mut line = |text: std::fmt::Arguments<'_>| {
            out.write_fmt(text).expect("BUG: a string takes everything");
            out.push('\n');
        };
        line(format_args!("journal {:032x} {} {}", self.journal, self.first, self.position));
        line(format_args!("begun {}", self.begun));
        line(format_args!("saved {}", self.saved));
        let state = if self.is_closed { "closed" } else { "open" };
        line(format_args!("state {state} {}", if self.is_lossy { "lossy" } else { "whole" }));
        let entries = self.entries.iter().map(|(&id, entry)| (Some(id), entry));
        for (id, entry) in entries.chain([(None, &self.others)]) {
            let id = id.map_or("-".to_owned(), |id| format!("{id:x}"));
            let Counts { batches, samples, values, repeated, unreadable, missing } = entry.counts;
            let name = word(&entry.name);
            line(format_args!(
                "producer {id} {name} {batches} {samples} {values} {repeated} {unreadable} {missing}"
            ));
            for (boot, sequence) in &entry.boots {
                line(format_args!("boot {boot:x} {sequence}"));
            }
            for loss in &entry.losses {
                let Loss { gaps, lost, unknown, start, end, .. } = loss;
                let reason = word(&loss.reason);
                line(format_args!("loss {gaps} {lost} {unknown} {start} {end} {reason}"));
            }
        }
        let last = checksum_line(&out);
        out.push_str(&last);
        out.into_bytes()
    }

    /// Reads the bytes of a file; what is wrong with them otherwise.
    pub fn read(bytes: &[u8]) -> Result<Book, String> {
        let text = std::str::from_utf8(bytes).map_err(|_| "it is no text".to_owned())?;
        let (body, last) = split_last_line(text);
        if version(text) != Some(VERSION) {
            return Err("it does not begin as a book does".to_owned());
        }
        if last != checksum_line(body) {
            return Err("its checksum does not match".to_owned());
        }
        let mut book = Book::new(0, 0, 0);
        let mut producer = None;
        for (at, line) in body.lines().enumerate().skip(1) {
            book.take(line, &mut producer)
                .ok_or_else(|| format!("line {} is not understood: {line}", at + 1))?;
        }
        Ok(book)
    }

    /// Takes a line; `producer` is the one it is about.
    fn take(&mut self, line: &str, producer: &mut Option<Option<u64>>) -> Option<()> {
        let (what, rest) = line.split_once(' ')?;
        match what {
            "journal" => {
                let [id, first, position] = words(rest)?;
                self.journal = u128::from_str_radix(id, 16).ok()?;
                (self.first, self.position) = (number(first)?, number(position)?);
            }
            "begun" => self.begun = number(rest)?,
            "saved" => self.saved = number(rest)?,
            "state" => {
                let [state, lossy] = words(rest)?;
                self.is_closed = ["open", "closed"].iter().position(|&word| word == state)? == 1;
                self.is_lossy = ["whole", "lossy"].iter().position(|&word| word == lossy)? == 1;
            }
            "producer" => {
                let (id, entry) = entry_of(rest)?;
                *producer = Some(id);
                match id {
                    Some(id) if self.entries.len() < PRODUCERS_MAX => {
                        self.entries.insert(id, entry);
                    }
                    Some(_) => return None,
                    None => self.others = entry,
                }
            }
            "boot" => {
                let [boot, sequence] = words(rest)?;
                let boot = u64::from_str_radix(boot, 16).ok()?;
                let boots = &mut self.entry_of_line(*producer)?.boots;
                (boots.len() < BOOTS_MAX).then(|| boots.push((boot, 0)))?;
                boots.last_mut()?.1 = number(sequence)?;
            }
            "loss" => {
                let loss = loss_of(rest)?;
                let losses = &mut self.entry_of_line(*producer)?.losses;
                (losses.len() < REASONS_MAX).then(|| losses.push(loss))?;
            }
            _ => return None,
        }
        Some(())
    }

    fn entry_of_line(&mut self, producer: Option<Option<u64>>) -> Option<&mut Entry> {
        match producer? {
            Some(id) => self.entries.get_mut(&id),
            None => Some(&mut self.others),
        }
    }
}

fn entry_of(rest: &str) -> Option<(Option<u64>, Entry)> {
    let [id, name, batches, samples, values, repeated, unreadable, missing] = words(rest)?;
    let id = match id {
        "-" => None,
        id => Some(u64::from_str_radix(id, 16).ok()?),
    };
    let counts = Counts {
        batches: number(batches)?,
        samples: number(samples)?,
        values: number(values)?,
        repeated: number(repeated)?,
        unreadable: number(unreadable)?,
        missing: number(missing)?,
    };
    Some((id, Entry { name: unword(name)?, counts, ..Entry::default() }))
}

fn loss_of(rest: &str) -> Option<Loss> {
    let [gaps, lost, unknown, start, end, reason] = words(rest)?;
    Some(Loss {
        reason: unword(reason)?,
        gaps: number(gaps)?,
        lost: number(lost)?,
        unknown: number(unknown)?,
        start: number(start)?,
        end: number(end)?,
    })
}
