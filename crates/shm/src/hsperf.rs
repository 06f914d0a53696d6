//! HotSpot performance data (hsperfdata). Version 2.0, either byte order.
//! `docs/formats/hsperfdata.md` describes the use of each field.
//!
//! The bytes are untrusted. An entry is read only inside its own bounds, so the work is
//! proportional to the size of the file.
//!
//! The JVM writes during the read. A number is eight aligned bytes and written at once; a text may
//! be read half updated. Most numbers change continuously; some are sampled by the JVM every 50 ms.

mod layout;
#[cfg(test)]
mod tests;

use crate::endian::{self, EndianBytes, field_offset};
use crate::metric_snapshot::{MetricRole, MetricValue, NumericValue, ProcessSeries};
use layout::*;

/// Limit of entries per file; a JVM has some hundred.
pub const ENTRIES_MAX: u32 = 1 << 16;

/// Entry with the number of ticks per second.
const FREQUENCY: &str = "sun.os.hrt.frequency";

/// Error of a file, or of one of its entries.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another file format.
    #[error("not a JVM performance file: starts with {found:02x?}, expected {MAGIC:02x?}")]
    Magic {
        /// First bytes.
        found: Vec<u8>,
    },
    /// Invalid byte order.
    #[error("invalid byte order {found}: expected 0 (big) or 1 (little)")]
    ByteOrder {
        /// Value in the file.
        found: u8,
    },
    /// Unsupported version.
    #[error("unsupported performance data version {major}.{minor}: expected 2.0")]
    Version {
        /// Version of the structure.
        major: u8,
        /// Version of the entries' contents.
        minor: u8,
    },
    /// The JVM is starting.
    #[error("the JVM is not ready; try again")]
    NotReady,
    /// The file is shorter than its header says.
    #[error("file has {have} bytes, {part} would end at {need}; try again")]
    Truncated {
        /// Part that does not fit.
        part: &'static str,
        /// Size of the file in bytes.
        have: u64,
        /// Required size in bytes.
        need: u64,
    },
    /// The number of entries exceeds the limit or is negative.
    #[error("{found} entries, limit {ENTRIES_MAX}")]
    Entries {
        /// Value in the file.
        found: u32,
    },
    /// The entry is not filled in yet, or exceeds its bounds. Entries after it cannot be located.
    #[error("entry {index} has length {length}, {available} bytes are left; try again")]
    Entry {
        /// Index of the entry, from 0.
        index: u32,
        /// Its length field.
        length: u32,
        /// Bytes between its start and the end of the used part.
        available: u64,
    },
    /// The entry has no printable name, or its value lies outside of it.
    #[error("entry {index} has no valid {part}")]
    Field {
        /// Index of the entry, from 0.
        index: u32,
        /// Invalid part.
        part: &'static str,
    },
    /// Entries with the name of an earlier one.
    #[error("{count} entries with duplicate names")]
    Duplicates {
        /// Their number.
        count: u64,
    },
}

impl Error {
    /// Whether a retry a moment later may succeed.
    pub fn is_transient(&self) -> bool {
        matches!(self, Error::NotReady | Error::Truncated { .. } | Error::Entry { .. })
    }
}

/// Metrics of a JVM.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct HsperfSnapshot {
    /// Time of the last added entry or changed text: ticks since the start of the JVM.
    pub modified: i64,
    /// Bytes of entries that did not fit and are missing. `-XX:PerfDataMemorySize` raises the
    /// limit.
    pub overflow: i32,
    /// Entries in file order.
    pub metrics: Vec<ProcessSeries>,
    /// Number of rejected entries.
    pub rejected: u64,
    /// Error of the first rejected entry.
    pub first_error: Option<Error>,
}

impl HsperfSnapshot {
    fn reject(&mut self, count: u64, error: Error) {
        self.rejected += count;
        self.first_error.get_or_insert(error);
    }
}

/// Parses a file.
pub fn parse(bytes: &[u8]) -> Result<HsperfSnapshot, Error> {
    let file = read_prologue(bytes)?;
    let truncated = |need| Error::Truncated { part: "entries", have: file.len(), need };
    let field = |offset| file.u32(offset).ok_or(truncated(PROLOGUE_BYTES));
    let used = u64::from(field(const { field_offset(&PROLOGUE, "used") })?);
    let entries = field(const { field_offset(&PROLOGUE, "entries") })?;
    let mut start = u64::from(field(const { field_offset(&PROLOGUE, "entry offset") })?);
    if used > file.len() || start > file.len() {
        return Err(truncated(used.max(start)));
    }
    if entries > ENTRIES_MAX {
        return Err(Error::Entries { found: entries });
    }
    let mut shown = HsperfSnapshot {
        modified: file.i64(const { field_offset(&PROLOGUE, "modified") }).unwrap_or(0),
        overflow: file.i32(const { field_offset(&PROLOGUE, "overflow") }).unwrap_or(0),
        metrics: Vec::new(),
        rejected: 0,
        first_error: None,
    };
    let mut ticks = Vec::new();
    for index in 0..entries {
        let left = used.saturating_sub(start);
        let length = file.u32(start).unwrap_or(0);
        if u64::from(length) < ENTRY_BYTES || u64::from(length) > left {
            shown.reject(
                u64::from(entries - index),
                Error::Entry { index, length, available: left },
            );
            break;
        }
        match read_metric(&file, start, length) {
            Ok((metric, unit)) => {
                if unit == TICKS {
                    ticks.push(shown.metrics.len());
                }
                shown.metrics.push(metric);
            }
            Err(what) => shown.reject(1, Error::Field { index, part: what }),
        }
        start += u64::from(length);
    }
    let frequency = shown.metrics.iter().find(|metric| metric.name == FREQUENCY);
    if let Some(MetricValue::Gauge(NumericValue::Signed(frequency @ 1..))) =
        frequency.map(|it| &it.value)
    {
        let frequency = *frequency;
        ticks
            .into_iter()
            .for_each(|place| ticks_to_nanoseconds(&mut shown.metrics[place], frequency));
    }
    let count = endian::remove_duplicates(&mut shown.metrics);
    if count > 0 {
        shown.reject(count, Error::Duplicates { count });
    }
    Ok(shown)
}

const BYTES: u8 = 2;
const TICKS: u8 = 3;
const STRING: u8 = 5;
const HERTZ: u8 = 6;

const MONOTONIC: u8 = 2;

/// Checks the prologue and returns the bytes with their byte order, if the version is supported and
/// the file is ready.
fn read_prologue(bytes: &[u8]) -> Result<EndianBytes<'_>, Error> {
    let magic = &bytes[..bytes.len().min(MAGIC.len())];
    // A new file is empty, then all zeros.
    if !magic.is_empty() && magic != MAGIC && magic != [0; 4] {
        return Err(Error::Magic { found: magic.to_vec() });
    }
    let byte = |offset: u64| bytes.get(offset as usize).copied().unwrap_or(0);
    if (bytes.len() as u64) < PROLOGUE_BYTES {
        let have = bytes.len() as u64;
        return Err(Error::Truncated { part: "prologue", have, need: PROLOGUE_BYTES });
    }
    if magic != MAGIC {
        return Err(Error::NotReady);
    }
    let file = match byte(const { field_offset(&PROLOGUE, "byte order") }) {
        0 => EndianBytes::big_endian(bytes),
        1 => EndianBytes::little_endian(bytes),
        found => return Err(Error::ByteOrder { found }),
    };
    let major = byte(const { field_offset(&PROLOGUE, "major version") });
    let minor = byte(const { field_offset(&PROLOGUE, "minor version") });
    match (major, minor, byte(const { field_offset(&PROLOGUE, "accessible") })) {
        // The byte order is written first, so the version may be missing.
        (2, 0, 0) | (0, 0, 0) => Err(Error::NotReady),
        (2, 0, _) => Ok(file),
        _ => Err(Error::Version { major, minor }),
    }
}

/// Decodes the entry at `start`, whose `length` bytes are all in the file; returns the metric and
/// the number of its unit.
fn read_metric(
    file: &EndianBytes<'_>,
    start: u64,
    length: u32,
) -> Result<(ProcessSeries, u8), &'static str> {
    let field = |offset| file.u32(start + offset).map(u64::from).unwrap_or(u64::MAX);
    let byte = |offset| file.slice(start + offset, 1).map_or(0, |byte| byte[0]);
    let length = u64::from(length);
    let inside = |offset: u64, size: u64| {
        let end = offset.checked_add(size);
        (offset >= ENTRY_BYTES && end.is_some_and(|end| end <= length)).then_some(start + offset)
    };
    let name = field(const { field_offset(&ENTRY, "name offset") });
    let name = inside(name, 0).and_then(|place| file.text(place, start + length - place));
    let name = name.and_then(endian::name).ok_or("name")?;
    let (data, vector) = (
        field(const { field_offset(&ENTRY, "data offset") }),
        field(const { field_offset(&ENTRY, "vector length") }),
    );
    let unit = byte(const { field_offset(&ENTRY, "unit") });
    let value = match (byte(const { field_offset(&ENTRY, "type") }), vector) {
        (b'J', 0) => {
            let number = inside(data, 8).and_then(|place| file.i64(place)).ok_or("number")?;
            match byte(const { field_offset(&ENTRY, "variability") }) {
                MONOTONIC => MetricValue::Counter(NumericValue::Signed(number)),
                _ => MetricValue::Gauge(NumericValue::Signed(number)),
            }
        }
        (b'B', 1..) if unit == STRING => {
            let text =
                inside(data, vector).and_then(|place| file.text(place, vector)).ok_or("text")?;
            MetricValue::Text(String::from_utf8_lossy(text).into_owned())
        }
        _ => MetricValue::Unknown("of a type that HotSpot does not write"),
    };
    let name_of_unit = match unit {
        BYTES => "By",
        TICKS => "{tick}",
        HERTZ => "Hz",
        // Events and plain counts have no unit.
        _ => "",
    };
    let (labels, help, role) = (Vec::new(), String::new(), MetricRole::Other);
    let (name, unit_name) = (name.to_owned(), name_of_unit.to_owned());
    Ok((
        ProcessSeries { name, labels, unit: unit_name, help, role, related_metric: None, value },
        unit,
    ))
}

/// Converts ticks to nanoseconds, rounded down. A value that overflows stays in ticks.
fn ticks_to_nanoseconds(metric: &mut ProcessSeries, frequency: i64) {
    let (MetricValue::Counter(number) | MetricValue::Gauge(number)) = &mut metric.value else {
        return;
    };
    let NumericValue::Signed(ticks) = number else { return };
    let ns = i128::from(*ticks) * 1_000_000_000 / i128::from(frequency);
    let Ok(ns) = i64::try_from(ns) else { return };
    *ticks = ns;
    metric.unit = "ns".to_owned();
}
