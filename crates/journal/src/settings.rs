//! Journal settings, fixed at creation (file `journal`).

use std::time::Duration;

use crate::error::{Error, Result};

/// Compression of frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// None.
    None,
    /// LZ4: fast.
    #[default]
    Lz4,
    /// Zstandard, level 1: smaller.
    Zstd,
}

/// Policy when a limit is reached and the oldest segment is still needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LimitPolicy {
    /// Appends are refused; records that a blocking subscriber needs are never dropped, at any age.
    #[default]
    Reject,
    /// The oldest segment is dropped; each reader that missed it gets a gap.
    DropOldest,
}

/// Retention limits. They apply to whole segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum bytes of segments on disk; `None`: unlimited.
    pub bytes_max: Option<u64>,
    /// Segments whose newest record is older are deleted; `None`: never.
    pub age_max: Option<Duration>,
    /// Policy for records that are still needed.
    pub on_full: LimitPolicy,
}

/// Settings of a new journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Compression of new frames.
    pub compression: Compression,
    /// Size of the pre-commit buffer: a power of two of bytes, [`BUFFER_BYTES_MIN`] to
    /// [`BUFFER_BYTES_MAX`]. With 128 KiB or more, there is space for appends while a frame is
    /// written.
    pub buffer_bytes: u64,
    /// Size of a segment, reserved when it is created: [`SEGMENT_BYTES_MIN`] to
    /// [`SEGMENT_BYTES_MAX`]. Space is freed by whole segments; a batch may take a quarter of one.
    pub segment_bytes: u64,
    /// Approximate capacity of the deduplication table, in producers, each 32 bytes in every
    /// segment, limited to a quarter of a segment. Approximate, because entries that share a set
    /// evict each other. The longest idle is evicted first.
    pub dedup_producers: u32,
    /// Retention limits.
    pub limits: Limits,
}

/// Minimum buffer size: a few records.
pub const BUFFER_BYTES_MIN: u64 = 4096;
/// Maximum buffer size; the length of an entry has 30 bits.
pub(crate) const BUFFER_BYTES_MAX: u64 = 1 << 30;
/// Minimum segment size.
pub const SEGMENT_BYTES_MIN: u64 = 16 << 10;
/// Maximum segment size: frames address their bodies by 32 bits.
pub(crate) const SEGMENT_BYTES_MAX: u64 = 4 << 30;
/// Maximum of `dedup_producers`: the table then takes 8 MiB of shared memory.
pub(crate) const DEDUP_PRODUCERS_MAX: u32 = 1 << 16;

impl Default for Settings {
    /// LZ4, a buffer of 1 MiB, segments of 16 MiB, a limit of 1 GiB, no age limit, rejecting
    /// appends at the limit.
    fn default() -> Settings {
        Settings {
            compression: Compression::default(),
            buffer_bytes: 1 << 20,
            segment_bytes: 16 << 20,
            dedup_producers: 1024,
            limits: Limits {
                bytes_max: Some(1 << 30),
                age_max: None,
                on_full: LimitPolicy::Reject,
            },
        }
    }
}

impl Settings {
    /// Checks ranges and consistency.
    pub(crate) fn check(&self) -> Result<()> {
        let bytes = |name, found: u64, min: u64, max: u64, extra: &str| {
            let expected = format!("{min} to {max} bytes{extra}");
            let error = Error::InvalidSetting { name, found: format!("{found} bytes"), expected };
            if (min..=max).contains(&found) { Ok(()) } else { Err(error) }
        };
        let power = if self.buffer_bytes.is_power_of_two() { self.buffer_bytes } else { 0 };
        bytes("buffer size", power, BUFFER_BYTES_MIN, BUFFER_BYTES_MAX, ", a power of two")
            .map_err(|error| match error {
                Error::InvalidSetting { name, expected, .. } => Error::InvalidSetting {
                    name,
                    found: format!("{} bytes", self.buffer_bytes),
                    expected,
                },
                other => other,
            })?;
        bytes("segment size", self.segment_bytes, SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX, "")?;
        if !(1..=DEDUP_PRODUCERS_MAX).contains(&self.dedup_producers) {
            return Err(Error::InvalidSetting {
                name: "number of producers",
                found: self.dedup_producers.to_string(),
                expected: format!("1 to {DEDUP_PRODUCERS_MAX}"),
            });
        }
        self.limits.check(self.segment_bytes)
    }

    /// Maximum encoded size of a batch.
    pub(crate) fn batch_bytes_max(&self) -> u64 {
        (self.segment_bytes / 4).min(BUFFER_BYTES_MAX - 1)
    }
}

impl Limits {
    pub(crate) fn check(&self, segment_bytes: u64) -> Result<()> {
        match self.bytes_max {
            // One segment is written while another is read.
            Some(found) if found < 2 * segment_bytes => Err(Error::InvalidSetting {
                name: "size limit",
                found: format!("{found} bytes"),
                expected: format!("at least two segments ({} bytes)", 2 * segment_bytes),
            }),
            _ => Ok(()),
        }
    }
}
