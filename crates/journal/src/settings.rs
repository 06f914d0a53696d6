//! Journal settings, fixed at creation (file `journal`).

use std::time::Duration;

use crate::error::{Error, Result};

/// How frames are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    None,
    /// LZ4: fast.
    #[default]
    Lz4,
    /// Zstandard at level 1: smaller.
    Zstd,
}

/// Policy when a limit is reached and the oldest segment is still needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LimitPolicy {
    /// Appends are refused; nothing that a holding subscriber needs is dropped, of any age.
    #[default]
    Reject,
    /// The oldest segment is dropped, and a gap record says to each reader that missed it what it
    /// was.
    DropOldest,
}

/// Retention limits. A limit counts whole segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes that segments may take on disk; `None` for as many as the disk has.
    pub bytes_max: Option<u64>,
    /// Segments whose newest record is older than this go; `None` for never.
    pub age_max: Option<Duration>,
    /// What happens to data that somebody still needs.
    pub on_full: LimitPolicy,
}

/// What a journal is created with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Compression of new frames.
    pub codec: Compression,
    /// The pre-commit buffer: a power of two of bytes, [`BUFFER_BYTES_MIN`] to
    /// [`BUFFER_BYTES_MAX`]. With 128 KiB or more, what is appended while a frame is being written
    /// finds room.
    pub buffer_bytes: u64,
    /// The size of a segment, reserved when it is begun: [`SEGMENT_BYTES_MIN`] to
    /// [`SEGMENT_BYTES_MAX`]. Space is freed by whole segments, and a batch may take a quarter of
    /// one.
    pub segment_bytes: u64,
    /// How many producers' last sequences are remembered, each 32 bytes in every segment, but no
    /// more than fit a quarter of one; about: those that share a place in the table push each other
    /// out. The one that was silent longest is forgotten first.
    pub producers_max: u32,
    /// How much is kept.
    pub limits: Limits,
}

/// The smallest pre-commit buffer: a few records.
pub const BUFFER_BYTES_MIN: u64 = 4096;
/// The largest pre-commit buffer; the length of an entry has 30 bits.
pub const BUFFER_BYTES_MAX: u64 = 1 << 30;
/// The smallest segment.
pub const SEGMENT_BYTES_MIN: u64 = 16 << 10;
/// The largest segment: frames address their bodies by 32 bits.
pub const SEGMENT_BYTES_MAX: u64 = 4 << 30;
/// The most producers that may be asked for: their table then takes 8 MiB of shared memory.
pub const PRODUCERS_MAX_MAX: u32 = 1 << 16;

impl Default for Settings {
    /// LZ4, a buffer of 1 MiB, segments of 16 MiB, 1 GiB in all and no age limit, refusing beyond
    /// it.
    fn default() -> Settings {
        Settings {
            codec: Compression::default(),
            buffer_bytes: 1 << 20,
            segment_bytes: 16 << 20,
            producers_max: 1024,
            limits: Limits {
                bytes_max: Some(1 << 30),
                age_max: None,
                on_full: LimitPolicy::Reject,
            },
        }
    }
}

impl Settings {
    /// Whether all are in range and fit each other.
    pub(crate) fn check(&self) -> Result<()> {
        let bytes = |name, found: u64, min: u64, max: u64, extra: &str| {
            let expected = format!("{min} to {max} bytes{extra}");
            let error = Error::InvalidSetting { name, found: format!("{found} bytes"), expected };
            if (min..=max).contains(&found) { Ok(()) } else { Err(error) }
        };
        let power = if self.buffer_bytes.is_power_of_two() { self.buffer_bytes } else { 0 };
        bytes("the buffer", power, BUFFER_BYTES_MIN, BUFFER_BYTES_MAX, ", a power of two")
            .map_err(|error| match error {
                Error::InvalidSetting { name, expected, .. } => Error::InvalidSetting {
                    name,
                    found: format!("{} bytes", self.buffer_bytes),
                    expected,
                },
                other => other,
            })?;
        bytes("a segment", self.segment_bytes, SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX, "")?;
        if !(1..=PRODUCERS_MAX_MAX).contains(&self.producers_max) {
            return Err(Error::InvalidSetting {
                name: "the number of producers remembered",
                found: self.producers_max.to_string(),
                expected: format!("1 to {PRODUCERS_MAX_MAX}"),
            });
        }
        self.limits.check(self.segment_bytes)
    }

    /// The largest batch, encoded.
    pub(crate) fn batch_bytes_max(&self) -> u64 {
        (self.segment_bytes / 4).min(BUFFER_BYTES_MAX - 1)
    }
}

impl Limits {
    pub(crate) fn check(&self, segment_bytes: u64) -> Result<()> {
        match self.bytes_max {
            // One segment is written while another is read.
            Some(found) if found < 2 * segment_bytes => Err(Error::InvalidSetting {
                name: "the limit in bytes",
                found: format!("{found} bytes"),
                expected: format!("at least two segments, {} bytes", 2 * segment_bytes),
            }),
            _ => Ok(()),
        }
    }
}
