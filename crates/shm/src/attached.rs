//! A process that shows something, of whichever format: one face for files of our own, of PCP and of the JVM.

use std::path::Path;

use crate::error::{Error, Result};
use crate::files::{self, Opened};
use crate::processes::{Format, Found};
use crate::reader::Reader;
use crate::shown::{Metric, Value};
use crate::{hsperf, mmv};

/// A process whose metrics are read.
#[derive(Debug)]
pub struct Attached {
    found: Found,
    program: String,
    command: String,
    how: How,
}

#[derive(Debug)]
enum How {
    Own(Box<Reader>),
    Foreign { opened: Opened, bytes: Vec<u8> },
}

/// How often a file is read anew that changes while it is read.
const ATTEMPTS: usize = 3;

impl Attached {
    /// Opens the file of a process that [`crate::processes`] found. One of our own in our own namespace is mapped: whoever may write to
    /// it, which is ourselves, could cut it off while it is read, and the system would end us (SIGBUS).
    pub fn new(found: Found) -> Result<Attached> {
        // Whoever has our number in a container may be somebody else.
        let is_copied = found.path.starts_with("/proc");
        Attached::open(found, is_copied)
    }

    /// The same, but nothing is mapped, whosever it is: for who must not end.
    pub fn copied(found: Found) -> Result<Attached> {
        Attached::open(found, true)
    }

    fn open(found: Found, is_copied: bool) -> Result<Attached> {
        let Some(listed) = &found.listed else { return Attached::own(found, is_copied) };
        let opened = listed.open().map_err(|error| unreadable(&found.path, error))?;
        let name = found.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let how = How::Foreign { opened, bytes: Vec::new() };
        let mut attached = Attached { found, program: name.clone(), command: name, how };
        if attached.found.format == Format::Jvm {
            let metrics = attached.metrics()?;
            let command = metrics.into_iter().find_map(|metric| match metric.value {
                Value::Text(text) if metric.name == "sun.rt.javaCommand" => Some(text),
                _ => None,
            });
            attached.command = format!("java {}", command.unwrap_or_default()).trim().to_owned();
            // A class or an archive; what java itself is called tells nobody which one it is, nor does the class that starts sources.
            let mut words = attached.command.split_ascii_whitespace().skip(1);
            let main = words.find(|word| !word.ends_with(".launcher.Main")).unwrap_or("java");
            attached.program = main.rsplit('/').next().unwrap_or(main).to_owned();
        }
        Ok(attached)
    }

    fn own(found: Found, is_copied: bool) -> Result<Attached> {
        let reader = match is_copied {
            true => Reader::attach_copied(&found.path)?,
            false => Reader::attach(&found.path)?,
        };
        let process = reader.process();
        let how = How::Own(Box::new(reader));
        Ok(Attached { found, program: process.program, command: process.command, how })
    }

    /// What was found.
    pub fn found(&self) -> &Found {
        &self.found
    }

    /// Its id as we see it, or as it saw itself where we do not.
    pub fn pid(&self) -> u32 {
        self.found.pid()
    }

    /// The name of its program; of a JVM the main class or archive, of PCP the name of the file.
    pub fn program(&self) -> &str {
        &self.program
    }

    /// Its command line, as far as the format has it.
    pub fn command(&self) -> &str {
        &self.command
    }

    /// What our own format says of the process; `None` of others.
    pub fn reader(&self) -> Option<&Reader> {
        match &self.how {
            How::Own(reader) => Some(reader),
            How::Foreign { .. } => None,
        }
    }

    /// The same, to read some of its series and not all.
    pub fn reader_mut(&mut self) -> Option<&mut Reader> {
        match &mut self.how {
            How::Own(reader) => Some(reader),
            How::Foreign { .. } => None,
        }
    }

    /// All that it shows, now. A series keeps its place as long as nothing before it disappears, which ours never do.
    pub fn metrics(&mut self) -> Result<Vec<Metric>> {
        match &mut self.how {
            How::Own(reader) => reader.metrics(),
            How::Foreign { opened, bytes } => {
                let path = &self.found.path;
                match self.found.format {
                    Format::Jvm => again(path, |is_last| jvm(opened, bytes, path, is_last)),
                    _ => again(path, |is_last| pcp(opened, bytes, path, is_last)),
                }
            }
        }
    }
}

fn unreadable(path: &Path, error: impl ToString) -> Error {
    Error::Damaged { path: path.to_owned(), problem: error.to_string() }
}

/// Reads until what is read is whole: `None` asks for another attempt.
fn again(
    path: &Path,
    mut read: impl FnMut(bool) -> Result<Option<Vec<Metric>>>,
) -> Result<Vec<Metric>> {
    for attempt in 1..=ATTEMPTS {
        if let Some(metrics) = read(attempt == ATTEMPTS)? {
            return Ok(metrics);
        }
    }
    Err(unreadable(path, "it changes faster than it can be read: try again"))
}

fn jvm(
    opened: &Opened,
    bytes: &mut Vec<u8>,
    path: &Path,
    is_last: bool,
) -> Result<Option<Vec<Metric>>> {
    opened.read(bytes).map_err(|error| unreadable(path, error))?;
    match hsperf::parse(bytes) {
        Ok(shown) => Ok(Some(shown.metrics)),
        Err(error) if error.try_again() && !is_last => Ok(None),
        Err(error) => Err(unreadable(path, error)),
    }
}

fn pcp(
    opened: &Opened,
    bytes: &mut Vec<u8>,
    path: &Path,
    is_last: bool,
) -> Result<Option<Vec<Metric>>> {
    opened.read(bytes).map_err(|error| unreadable(path, error))?;
    match mmv::parse(bytes, clock::wall().unix_ns / 1000) {
        Ok(shown) => {
            let count = mmv::GENERATION_BYTES as u64;
            opened.read_start(bytes, count).map_err(|error| unreadable(path, error))?;
            let is_same = mmv::generation(bytes).is_ok_and(|now| now == shown.generation);
            Ok(is_same.then_some(shown.metrics))
        }
        Err(error) if error.try_again() && !is_last => Ok(None),
        Err(error) => Err(unreadable(path, error)),
    }
}

/// The process that wrote a file of PCP, by its own number for itself.
pub(crate) fn pcp_pid(listed: &files::Listed) -> Option<u32> {
    let mut bytes = Vec::new();
    listed.open().ok()?.read(&mut bytes).ok()?;
    mmv::parse(&bytes, 0).ok()?.pid
}
