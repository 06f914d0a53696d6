//! HotSpot performance data (hsperfdata). Version 2.0, of either byte order.
//! `docs/formats/hsperfdata.md` says what becomes of each field.
//!
//! The bytes are a stranger's. An entry is read inside its own bounds only, so the work is
//! proportional to the file.
//!
//! The JVM writes while it is read. A number is eight aligned bytes and is written at once; a text
//! may be read half new. Most numbers change all the time; some are sampled by the JVM each 50 ms.

mod layout;
#[cfg(test)]
mod tests;

use crate::endian::{self, EndianBytes, field_offset};
use crate::metric_snapshot::{MetricRole, MetricValue, NumericValue, ProcessMetric};
use layout::*;

/// Entries above which a file is refused; a JVM has some hundreds.
pub const ENTRIES_MAX: u32 = 1 << 16;

/// How many ticks are a second: told by the file itself.
const FREQUENCY: &str = "sun.os.hrt.frequency";

/// What is wrong with a file, or with one of its entries.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another kind of file.
    #[error("not a JVM performance data file: starts with {found:02x?}, expected {MAGIC:02x?}")]
    Magic {
        /// The first bytes.
        found: Vec<u8>,
    },
    /// A byte order that there is not.
    #[error("invalid byte order {found}: expected 0 (big) or 1 (little)")]
    ByteOrder {
        /// As the file says.
        found: u8,
    },
    /// A version that is not read.
    #[error("unsupported performance data version {major}.{minor}: expected 2.0")]
    Version {
        /// Changes with the structure.
        major: u8,
        /// Changes with what the entries hold.
        minor: u8,
    },
    /// The JVM has only just started.
    #[error("the JVM is not ready; try again")]
    NotReady,
    /// Shorter than it says it is.
    #[error("the file has {have} bytes, its {part} would end at {need}: try again")]
    Truncated {
        /// What does not fit.
        part: &'static str,
        /// Bytes that there are.
        have: u64,
        /// Bytes that would be needed.
        need: u64,
    },
    /// More entries than are read, or a negative number.
    #[error("{found} entries, limit {ENTRIES_MAX}")]
    Entries {
        /// As the file says.
        found: u32,
    },
    /// An entry that is not filled in yet, or leads out of itself. What lies behind it is not
    /// known.
    #[error("entry {index} says it has {length} bytes of the {available} that are left: try again")]
    Entry {
        /// Number of the entry, from 0.
        index: u32,
        /// Length, as it says.
        length: u32,
        /// Bytes between its beginning and the end of what is used.
        available: u64,
    },
    /// An entry without a name that can be shown, or whose value lies outside of it.
    #[error("entry {index} has no {part} inside its bounds that can be shown")]
    Field {
        /// Number of the entry, from 0.
        index: u32,
        /// What is wrong with it.
        part: &'static str,
    },
    /// Entries with the name of one before them.
    #[error("{count} entries with duplicate names")]
    Duplicates {
        /// How many.
        count: u64,
    },
}

impl Error {
    /// Whether the same file may be read well a moment later.
    pub fn is_transient(&self) -> bool {
        matches!(self, Error::NotReady | Error::Truncated { .. } | Error::Entry { .. })
    }
}

/// Metrics of a JVM.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct HsperfSnapshot {
    /// When an entry was last added or its text changed: ticks since the JVM began.
    pub modified: i64,
    /// Bytes for which there was no room: so much is not shown. `-XX:PerfDataMemorySize` makes
    /// room.
    pub overflow: i32,
    /// The entries, in the order of the file.
    pub metrics: Vec<ProcessMetric>,
    /// Entries that could not be shown.
    pub rejected: u64,
    /// Why the first of them could not.
    pub first_error: Option<Error>,
}

impl HsperfSnapshot {
    fn reject(&mut self, count: u64, trouble: Error) {
        self.rejected += count;
        self.first_error.get_or_insert(trouble);
    }
}

/// Reads a file.
pub fn parse(bytes: &[u8]) -> Result<HsperfSnapshot, Error> {
    let file = read_prologue(bytes)?;
    let truncated = |need| Error::Truncated { part: "entries", have: file.len(), need };
    let field = |offset| file.u32(offset).ok_or(truncated(PROLOGUE_BYTES));
    let used = u64::from(field(const { field_offset(&PROLOGUE, "used") })?);
    let entries = field(const { field_offset(&PROLOGUE, "entries") })?;
    let mut start = u64::from(field(const { field_offset(&PROLOGUE, "first entry") })?);
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

/// The bytes in their order, if they are of a version that is read, and ready.
fn read_prologue(bytes: &[u8]) -> Result<EndianBytes<'_>, Error> {
    let magic = &bytes[..bytes.len().min(MAGIC.len())];
    // A file that has just been made is empty, then all zeros.
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
        // The order is written first, so the version may not be there yet.
        (2, 0, 0) | (0, 0, 0) => Err(Error::NotReady),
        (2, 0, _) => Ok(file),
        _ => Err(Error::Version { major, minor }),
    }
}

/// The entry at `start`, all of whose `length` bytes are in the file, and its unit's number; or
/// what is wrong with it.
fn read_metric(
    file: &EndianBytes<'_>,
    start: u64,
    length: u32,
) -> Result<(ProcessMetric, u8), &'static str> {
    let field = |offset| file.u32(start + offset).map(u64::from).unwrap_or(u64::MAX);
    let byte = |offset| file.slice(start + offset, 1).map_or(0, |byte| byte[0]);
    let length = u64::from(length);
    let inside = |offset: u64, size: u64| {
        let end = offset.checked_add(size);
        (offset >= ENTRY_BYTES && end.is_some_and(|end| end <= length)).then_some(start + offset)
    };
    let name = field(const { field_offset(&ENTRY, "name") });
    let name = inside(name, 0).and_then(|place| file.text(place, start + length - place));
    let name = name.and_then(endian::name).ok_or("name")?;
    let (data, vector) = (
        field(const { field_offset(&ENTRY, "data") }),
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
        // Events are counted, and a plain count has no unit.
        _ => "",
    };
    let (labels, help, role) = (Vec::new(), String::new(), MetricRole::Other);
    let (name, unit_name) = (name.to_owned(), name_of_unit.to_owned());
    Ok((
        ProcessMetric { name, labels, unit: unit_name, help, role, related_metric: None, value },
        unit,
    ))
}

/// Ticks as the nanoseconds that they are, rounded down. What does not fit stays in ticks.
fn ticks_to_nanoseconds(metric: &mut ProcessMetric, frequency: i64) {
    let (MetricValue::Counter(number) | MetricValue::Gauge(number)) = &mut metric.value else {
        return;
    };
    let NumericValue::Signed(ticks) = number else { return };
    let ns = i128::from(*ticks) * 1_000_000_000 / i128::from(frequency);
    let Ok(ns) = i64::try_from(ns) else { return };
    *ticks = ns;
    metric.unit = "ns".to_owned();
}
