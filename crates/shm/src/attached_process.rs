//! Process with metrics in any format: topdeck, PCP (MMV) or JVM (hsperfdata).

use std::path::Path;

use crate::error::{Error, Result};
use crate::files::{self, OpenForeignFile};
use crate::metric_snapshot::{MetricValue, ProcessMetric};
use crate::processes::{MetricsFile, MetricsFormat};
use crate::reader::MetricsFileReader;
use crate::{hsperf, mmv};

/// Process whose metrics file is open.
#[derive(Debug)]
pub struct AttachedProcess {
    file: MetricsFile,
    program: String,
    command: String,
    format: AttachedFormat,
}

#[derive(Debug)]
enum AttachedFormat {
    Topdeck(Box<MetricsFileReader>),
    Foreign { opened: OpenForeignFile, bytes: Vec<u8> },
}

/// How often a file is read anew that changes while it is read.
const ATTEMPTS: usize = 3;

impl AttachedProcess {
    /// Opens the file of a process that [`crate::processes`] found. One of our own in our own
    /// namespace is mapped: whoever may write to it, which is ourselves, could cut it off while it
    /// is read, and the system would end us (SIGBUS).
    pub fn new(found: MetricsFile) -> Result<AttachedProcess> {
        // Whoever has our number in a container may be somebody else.
        let is_copied = found.path.starts_with("/proc");
        AttachedProcess::open(found, is_copied)
    }

    /// The same, but nothing is mapped, whosever it is: for who must not end.
    pub fn open_copied(found: MetricsFile) -> Result<AttachedProcess> {
        AttachedProcess::open(found, true)
    }

    fn open(found: MetricsFile, is_copied: bool) -> Result<AttachedProcess> {
        let Some(listed) = &found.foreign_file else {
            return AttachedProcess::open_topdeck(found, is_copied);
        };
        let opened = listed.open().map_err(|error| read_error(&found.path, error))?;
        let name = found.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let how = AttachedFormat::Foreign { opened, bytes: Vec::new() };
        let mut attached =
            AttachedProcess { file: found, program: name.clone(), command: name, format: how };
        if attached.file.format == MetricsFormat::Jvm {
            let metrics = attached.metrics()?;
            let command = metrics.into_iter().find_map(|metric| match metric.value {
                MetricValue::Text(text) if metric.name == "sun.rt.javaCommand" => Some(text),
                _ => None,
            });
            attached.command = format!("java {}", command.unwrap_or_default()).trim().to_owned();
            // A class or an archive; what java itself is called tells nobody which one it is, nor
            // does the class that starts sources.
            let mut words = attached.command.split_ascii_whitespace().skip(1);
            let main = words.find(|word| !word.ends_with(".launcher.Main")).unwrap_or("java");
            attached.program = main.rsplit('/').next().unwrap_or(main).to_owned();
        }
        Ok(attached)
    }

    fn open_topdeck(found: MetricsFile, is_copied: bool) -> Result<AttachedProcess> {
        let reader = match is_copied {
            true => MetricsFileReader::attach_copy(&found.path)?,
            false => MetricsFileReader::attach(&found.path)?,
        };
        let process = reader.process();
        let how = AttachedFormat::Topdeck(Box::new(reader));
        Ok(AttachedProcess {
            file: found,
            program: process.program,
            command: process.command,
            format: how,
        })
    }

    /// What was found.
    pub fn metrics_file(&self) -> &MetricsFile {
        &self.file
    }

    /// Its id as we see it, or as it saw itself where we do not.
    pub fn pid(&self) -> u32 {
        self.file.pid()
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
    pub fn reader(&self) -> Option<&MetricsFileReader> {
        match &self.format {
            AttachedFormat::Topdeck(reader) => Some(reader),
            AttachedFormat::Foreign { .. } => None,
        }
    }

    /// The same, to read some of its series and not all.
    pub fn reader_mut(&mut self) -> Option<&mut MetricsFileReader> {
        match &mut self.format {
            AttachedFormat::Topdeck(reader) => Some(reader),
            AttachedFormat::Foreign { .. } => None,
        }
    }

    /// All that it shows, now. A series keeps its place as long as nothing before it disappears,
    /// which ours never do.
    pub fn metrics(&mut self) -> Result<Vec<ProcessMetric>> {
        match &mut self.format {
            AttachedFormat::Topdeck(reader) => reader.metrics(),
            AttachedFormat::Foreign { opened, bytes } => {
                let path = &self.file.path;
                match self.file.format {
                    MetricsFormat::Jvm => {
                        retry_read(path, |is_last| read_jvm(opened, bytes, path, is_last))
                    }
                    _ => retry_read(path, |is_last| read_pcp(opened, bytes, path, is_last)),
                }
            }
        }
    }
}

fn read_error(path: &Path, error: impl ToString) -> Error {
    Error::Damaged { path: path.to_owned(), reason: error.to_string() }
}

/// Reads until what is read is whole: `None` asks for another attempt.
fn retry_read(
    path: &Path,
    mut read: impl FnMut(bool) -> Result<Option<Vec<ProcessMetric>>>,
) -> Result<Vec<ProcessMetric>> {
    for attempt in 1..=ATTEMPTS {
        if let Some(metrics) = read(attempt == ATTEMPTS)? {
            return Ok(metrics);
        }
    }
    Err(read_error(path, "file changes faster than it can be read; try again"))
}

fn read_jvm(
    opened: &OpenForeignFile,
    bytes: &mut Vec<u8>,
    path: &Path,
    is_last: bool,
) -> Result<Option<Vec<ProcessMetric>>> {
    opened.read(bytes).map_err(|error| read_error(path, error))?;
    match hsperf::parse(bytes) {
        Ok(shown) => Ok(Some(shown.metrics)),
        Err(error) if error.is_transient() && !is_last => Ok(None),
        Err(error) => Err(read_error(path, error)),
    }
}

fn read_pcp(
    opened: &OpenForeignFile,
    bytes: &mut Vec<u8>,
    path: &Path,
    is_last: bool,
) -> Result<Option<Vec<ProcessMetric>>> {
    opened.read(bytes).map_err(|error| read_error(path, error))?;
    match mmv::parse(bytes, clock::wall().unix_ns / 1000) {
        Ok(shown) => {
            let count = mmv::GENERATION_BYTES as u64;
            opened.read_start(bytes, count).map_err(|error| read_error(path, error))?;
            let is_same = mmv::read_generation(bytes).is_ok_and(|now| now == shown.generation);
            Ok(is_same.then_some(shown.metrics))
        }
        Err(error) if error.is_transient() && !is_last => Ok(None),
        Err(error) => Err(read_error(path, error)),
    }
}

/// The process that wrote a file of PCP, by its own number for itself.
pub(crate) fn pcp_pid(listed: &files::ForeignFile) -> Option<u32> {
    let mut bytes = Vec::new();
    listed.open().ok()?.read(&mut bytes).ok()?;
    mmv::parse(&bytes, 0).ok()?.pid
}
