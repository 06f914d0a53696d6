//! Input that can be read twice.
//!
//! A file stays open between the passes, so another file of the same name is not read by mistake.
//! Standard input and pipes are copied first: to memory, and beyond a size to an unnamed file.

use std::fs::File;
use std::io::{self, BufReader, Cursor, Read, Write as _};
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use decode::{InputError, InputFormat, SampleSink, Unit};

use report::distribution::{HEAD_BYTES, display_name};

/// Maximum size of a pipe that is copied to memory.
const MEMORY_BYTES_MAX: u64 = 32 << 20;

/// Input source.
pub(crate) struct InputSource {
    name: String,
    bytes: SourceBytes,
    /// Size and time of the last change of a file that can be read again by another import.
    version: Option<FileFingerprint>,
}

enum SourceBytes {
    File(File, u64),
    Memory(Vec<u8>),
}

/// What a file system says about the content of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileFingerprint {
    pub(crate) size: u64,
    /// Time of the last change, in nanoseconds since the Unix epoch.
    pub(crate) modified_ns: i64,
}

impl InputSource {
    /// Opens an input. Standard input and pipes are read to their end.
    pub(crate) fn open(path: &Path) -> Result<InputSource> {
        let name = display_name(path);
        let cannot = || format!("cannot read {name}");
        if path.as_os_str() == "-" {
            let bytes = copy_pipe(&mut io::stdin().lock(), &name, MEMORY_BYTES_MAX)?;
            return Ok(InputSource { name, bytes, version: None });
        }
        let mut file = File::open(path).with_context(cannot)?;
        let metadata = file.metadata().with_context(cannot)?;
        if metadata.is_dir() {
            bail!(
                "cannot import {name}: it is a directory; name the files in it, or use --format \
                 prometheus-tsdb for the data directory of a Prometheus"
            );
        }
        if metadata.file_type().is_fifo() {
            let bytes = copy_pipe(&mut file, &name, MEMORY_BYTES_MAX)?;
            return Ok(InputSource { name, bytes, version: None });
        }
        let modified_ns = metadata.mtime().saturating_mul(1_000_000_000) + metadata.mtime_nsec();
        let version = FileFingerprint { size: metadata.len(), modified_ns };
        let bytes = SourceBytes::File(file, metadata.len());
        Ok(InputSource { name, bytes, version: Some(version) })
    }

    /// Name for messages.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Size and time of the last change; `None` for a pipe.
    pub(crate) fn version(&self) -> Option<FileFingerprint> {
        self.version
    }

    /// Message of an interrupted import: how it is continued.
    pub(crate) fn incomplete_message(&self) -> String {
        let advice = match self.version {
            Some(_) => "import it again to continue",
            None => "a pipe cannot be read again: to continue, import the same bytes again",
        };
        format!("{}: import incomplete; {advice}", self.name)
    }

    /// Reader from the start, and the size.
    pub(crate) fn read(&self) -> (Box<dyn Read + '_>, u64) {
        match &self.bytes {
            SourceBytes::Memory(bytes) => (Box::new(Cursor::new(bytes)), bytes.len() as u64),
            SourceBytes::File(file, size) => (Box::new(FileReader { file, offset: 0 }), *size),
        }
    }
}

/// Reader of a file that others read too.
struct FileReader<'a> {
    file: &'a File,
    offset: u64,
}

impl Read for FileReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.offset)?;
        self.offset += read as u64;
        Ok(read)
    }
}

/// Copies a pipe, of which `memory_max` bytes stay in memory.
fn copy_pipe(input: &mut dyn Read, name: &str, memory_max: u64) -> Result<SourceBytes> {
    let mut bytes = Vec::new();
    let read = input.take(memory_max + 1).read_to_end(&mut bytes);
    read.with_context(|| format!("cannot read {name}"))?;
    if bytes.len() as u64 <= memory_max {
        return Ok(SourceBytes::Memory(bytes));
    }
    let dir = std::env::temp_dir();
    let path = dir.join(format!("topdeck-import-{:032x}", journal::random_id()));
    let cannot = || {
        format!(
            "cannot copy {name} to {}: set TMPDIR to a directory with space, or write it to a file \
             and import that",
            dir.display()
        )
    };
    let mut file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)
        .with_context(cannot)?;
    // Without a name it disappears with the process.
    std::fs::remove_file(&path).with_context(cannot)?;
    file.write_all(&bytes).with_context(cannot)?;
    let copied = io::copy(input, &mut file).with_context(cannot)?;
    Ok(SourceBytes::File(file, bytes.len() as u64 + copied))
}

/// Start of an input, and its format or a description of the content.
pub(crate) fn detect(
    source: &mut dyn Read,
    format: Option<InputFormat>,
) -> io::Result<(Vec<u8>, Result<InputFormat, InputError>)> {
    let mut head = Vec::new();
    source.take(HEAD_BYTES).read_to_end(&mut head)?;
    let format = format.map_or_else(|| decode::detect(&head), Ok);
    Ok((head, format))
}

/// Passes all samples to `sink`.
pub(crate) fn read_samples(
    head: &[u8],
    source: &mut dyn Read,
    format: InputFormat,
    unit: Option<&Unit>,
    sink: &mut dyn SampleSink,
) -> io::Result<()> {
    let mut input = head.chain(BufReader::with_capacity(HEAD_BYTES as usize, source));
    decode::read(format, &mut input, unit, sink)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_of_any_size_is_read_twice() {
        for size in [0, 99, 100, 101, 300_000] {
            let expected: Vec<u8> = (0..size).map(|n: u32| n as u8).collect();
            let bytes = copy_pipe(&mut &expected[..], "pipe", 100).unwrap();
            assert_eq!(matches!(bytes, SourceBytes::Memory(_)), size <= 100);
            let source = InputSource { name: "pipe".to_owned(), bytes, version: None };
            for _ in 0..2 {
                let (mut input, length) = source.read();
                let mut found = Vec::new();
                input.read_to_end(&mut found).unwrap();
                assert_eq!((found.len() as u64, &found), (length, &expected));
            }
        }
    }
}
