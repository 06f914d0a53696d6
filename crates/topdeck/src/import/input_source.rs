//! Input that can be read twice.

use std::fs::File;
use std::io::{self, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use collect::{InputError, InputFormat, SampleSink, Unit};

use report::distribution::{HEAD_BYTES, display_name};

/// Standard input is kept in memory until it is in the store, up to this size.
const STDIN_BYTES_MAX: u64 = 1 << 30;

/// Input source.
pub(crate) struct InputSource {
    name: String,
    bytes: SourceBytes,
}

enum SourceBytes {
    File(PathBuf),
    Memory(Vec<u8>),
}

impl InputSource {
    /// Opens an input. Standard input is read to its end.
    pub(crate) fn open(path: &Path) -> Result<InputSource> {
        let name = display_name(path);
        if path.as_os_str() != "-" {
            return Ok(InputSource { name, bytes: SourceBytes::File(path.to_owned()) });
        }
        let mut first_bytes = Vec::new();
        let mut input = io::stdin().lock().take(STDIN_BYTES_MAX + 1);
        input.read_to_end(&mut first_bytes).with_context(|| format!("cannot read {name}"))?;
        if first_bytes.len() as u64 > STDIN_BYTES_MAX {
            bail!(
                "{name}: standard input limit (1 GiB) reached; write it to a file and import \
                   that"
            );
        }
        Ok(InputSource { name, bytes: SourceBytes::Memory(first_bytes) })
    }

    /// Name for messages.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Reader from the start, and the size.
    pub(crate) fn read(&self) -> Result<(Box<dyn Read + '_>, u64)> {
        match &self.bytes {
            SourceBytes::Memory(bytes) => Ok((Box::new(Cursor::new(bytes)), bytes.len() as u64)),
            SourceBytes::File(path) => {
                let cannot = || format!("cannot read {}", self.name);
                let file = File::open(path).with_context(cannot)?;
                let length = file.metadata().with_context(cannot)?.len();
                Ok((Box::new(file), length))
            }
        }
    }
}

/// Start of an input, and its format or a description of the content.
pub(crate) fn detect(
    source: &mut dyn Read,
    format: Option<InputFormat>,
) -> io::Result<(Vec<u8>, Result<InputFormat, InputError>)> {
    let mut head = Vec::new();
    source.take(HEAD_BYTES).read_to_end(&mut head)?;
    let format = format.map_or_else(|| collect::detect(&head), Ok).map_err(|mut error| {
        error.actual = error.actual.replace("topdeck hist -", "topdeck import DIR -");
        error
    });
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
    collect::read(format, &mut input, unit, sink)
}
