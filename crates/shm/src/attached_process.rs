//! Process with metrics in any format: topdeck, PCP (MMV) or JVM (hsperfdata).

use std::path::Path;

use crate::error::{Error, Result};
use crate::files::{self, OpenForeignFile};
use crate::metric_snapshot::{MetricValue, ProcessSeries};
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

/// Read attempts for a file that changes during the read.
const ATTEMPTS: usize = 3;

impl AttachedProcess {
    /// Opens a metrics file found by [`crate::processes`]. A file in topdeck's format, of this user
    /// and namespace, is mapped: only this user can truncate it, which would raise SIGBUS here. All
    /// others are copied.
    pub fn new(found: MetricsFile) -> Result<AttachedProcess> {
        // The same UID in a container may be another user.
        let is_copied = found.path.starts_with("/proc");
        AttachedProcess::open(found, is_copied)
    }

    /// Opens a metrics file and always copies it: for processes that must not receive SIGBUS.
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
            // The main class or archive: neither `java` nor the class of the source launcher
            // identifies the program.
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

    /// The file that was opened.
    pub fn metrics_file(&self) -> &MetricsFile {
        &self.file
    }

    /// PID as seen from here, or in the process' own namespace if it is not visible from here.
    pub fn pid(&self) -> u32 {
        self.file.pid()
    }

    /// Program name; for a JVM the main class or archive, for PCP the name of the file.
    pub fn program(&self) -> &str {
        &self.program
    }

    /// Command line, if the format contains it.
    pub fn command(&self) -> &str {
        &self.command
    }

    /// Reader of a file in topdeck's format; `None` for other formats.
    pub fn reader(&self) -> Option<&MetricsFileReader> {
        match &self.format {
            AttachedFormat::Topdeck(reader) => Some(reader),
            AttachedFormat::Foreign { .. } => None,
        }
    }

    /// Mutable reader, to read some of the series.
    pub fn reader_mut(&mut self) -> Option<&mut MetricsFileReader> {
        match &mut self.format {
            AttachedFormat::Topdeck(reader) => Some(reader),
            AttachedFormat::Foreign { .. } => None,
        }
    }

    /// Current values of all metrics. A series keeps its index while no series before it
    /// disappears, which never happens in topdeck's format.
    pub fn metrics(&mut self) -> Result<Vec<ProcessSeries>> {
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

/// Retries a read while it returns `None`.
fn retry_read(
    path: &Path,
    mut read: impl FnMut(bool) -> Result<Option<Vec<ProcessSeries>>>,
) -> Result<Vec<ProcessSeries>> {
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
) -> Result<Option<Vec<ProcessSeries>>> {
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
) -> Result<Option<Vec<ProcessSeries>>> {
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

/// PID of the writer of an MMV file, in its own namespace.
pub(crate) fn pcp_pid(listed: &files::ForeignFile) -> Option<u32> {
    let mut bytes = Vec::new();
    listed.open().ok()?.read(&mut bytes).ok()?;
    mmv::parse(&bytes, 0).ok()?.pid
}
