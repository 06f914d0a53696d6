//! MMV files of PCP, versions 1 to 3. `docs/formats/mmv.md` describes the use of each field.
//!
//! The bytes are untrusted. All offsets are checked, the work is at most proportional to the size
//! of the file and `TEXT_MAX`, and an invalid value affects no other value.
//!
//! The program writes during the read. A value is eight bytes and written at once; a text may be
//! read half updated. The structure changes only with the generation: compare it before
//! ([`MmvSnapshot::generation`]) and after the read ([`read_generation`]).

mod error;
mod labels;
mod layout;
mod reader;
#[cfg(test)]
mod tests;
mod units;

use crate::endian::{self, EndianBytes, field_offset};
use crate::metric_snapshot::ProcessSeries;
use layout::{HEADER, HEADER_BYTES, MAGIC};
use reader::MmvReader;

pub use error::Error;

/// Limit of entries per section. PCP's own reader stops at 10,000.
pub const COUNT_MAX: u64 = 1 << 16;
/// Limit of sections per file; PCP has six kinds.
pub const SECTIONS_MAX: u64 = 64;
/// Limit of labels of one file, metric, instance domain or instance.
pub const LABELS_MAX: usize = 32;
/// Limit of the total size of names, labels, help texts and text values in bytes. Many values may
/// share one string of the file, so the size of the file is no bound.
pub const TEXT_MAX: usize = 16 << 20;

/// How many bytes of the file's beginning [`generation`] needs.
pub const GENERATION_BYTES: usize = HEADER_BYTES as usize;

/// Metrics of an MMV file.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct MmvSnapshot {
    /// Version: 1, 2 or 3.
    pub version: u32,
    /// Generation of the structure. [`read_generation`] must return the same after the read.
    pub generation: u64,
    /// PID of the writer in its own namespace.
    pub pid: Option<u32>,
    /// PCP cluster number of the program; 0 if it has none.
    pub cluster: i32,
    /// The program asks readers to hide its values after it has exited; a post mortem may show
    /// them.
    pub only_while_running: bool,
    /// Names are complete: PCP would not prepend the name of the file.
    pub no_prefix: bool,
    /// Values in file order.
    pub metrics: Vec<ProcessSeries>,
    /// Number of rejected values and labels.
    pub rejected: u64,
    /// Error of the first rejected one.
    pub first_error: Option<Error>,
}

/// Generation of a file, from its first [`GENERATION_BYTES`] bytes.
pub fn read_generation(bytes: &[u8]) -> Result<u64, Error> {
    Ok(read_header(bytes)?.1.generation)
}

/// Parses a file. `wall_us` is the wall clock in microseconds since the Unix epoch: a timed section
/// in progress has its start time in the file, and the elapsed time counts.
pub fn parse(bytes: &[u8], wall_us: i64) -> Result<MmvSnapshot, Error> {
    let (file, header) = read_header(bytes)?;
    let reader = MmvReader {
        file,
        is_version_1: header.version == 1,
        sentinel: header.flags & SENTINEL != 0,
        wall_us,
    };
    let sections = reader.sections(header.sections)?;
    let mut shown = MmvSnapshot {
        version: header.version,
        generation: header.generation,
        pid: u32::try_from(header.process).ok().filter(|pid| *pid != 0),
        cluster: header.cluster,
        only_while_running: header.flags & PROCESS != 0,
        no_prefix: header.flags & NO_PREFIX != 0,
        metrics: Vec::new(),
        rejected: 0,
        first_error: None,
    };
    let labels = reader.labels(sections.labels, &mut shown);
    let mut text_left = TEXT_MAX;
    for index in 0..sections.values.count {
        match reader.metric(index, &sections, &labels, &mut text_left) {
            Ok(metric) => shown.metrics.push(metric),
            Err(error @ Error::Text { .. }) => {
                shown.reject(sections.values.count - index, error);
                break;
            }
            Err(error) => shown.reject(1, error),
        }
    }
    let count = endian::remove_duplicates(&mut shown.metrics);
    if count > 0 {
        shown.reject(count, Error::Duplicates { count });
    }
    Ok(shown)
}

impl MmvSnapshot {
    fn reject(&mut self, count: u64, error: Error) {
        self.rejected += count;
        self.first_error.get_or_insert(error);
    }
}

const NO_PREFIX: u32 = 1;
const PROCESS: u32 = 2;
const SENTINEL: u32 = 4;

struct MmvHeader {
    version: u32,
    generation: u64,
    sections: u32,
    flags: u32,
    process: i32,
    cluster: i32,
}

/// Parses the header; returns the bytes with the byte order implied by the version.
fn read_header(bytes: &[u8]) -> Result<(EndianBytes<'_>, MmvHeader), Error> {
    let magic = &bytes[..bytes.len().min(MAGIC.len())];
    // A new file is empty, then all zeros, before it has a magic number.
    if !magic.is_empty() && magic != MAGIC && magic != [0; 4] {
        return Err(Error::Magic { found: magic.to_vec() });
    }
    let have = bytes.len() as u64;
    let truncated = Error::Truncated { part: "header", have, need: HEADER_BYTES };
    if have < HEADER_BYTES {
        return Err(truncated);
    }
    let mut file = EndianBytes::little_endian(bytes);
    const VERSION: u64 = field_offset(&HEADER, "version");
    let version = file.u32(VERSION).unwrap_or(0);
    if version & 0xffff == 0 && version != 0 {
        file = EndianBytes::big_endian(bytes);
    }
    let read = || {
        Some(MmvHeader {
            version: file.u32(VERSION)?,
            generation: file.u64(const { field_offset(&HEADER, "generation 1") })?,
            sections: file.u32(const { field_offset(&HEADER, "sections") })?,
            flags: file.u32(const { field_offset(&HEADER, "flags") })?,
            process: file.i32(const { field_offset(&HEADER, "process") })?,
            cluster: file.i32(const { field_offset(&HEADER, "cluster") })?,
        })
    };
    let header = read().ok_or(truncated)?;
    let second = file.u64(const { field_offset(&HEADER, "generation 2") }).unwrap_or(0);
    if magic == MAGIC && header.version != 0 && !(1..=3).contains(&header.version) {
        return Err(Error::Version { found: header.version });
    }
    if header.generation == 0
        || header.generation != second
        || magic != MAGIC
        || header.version == 0
    {
        return Err(Error::BeingWritten { first: header.generation, second });
    }
    Ok((file, header))
}
