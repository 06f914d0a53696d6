//! Gaps: known missing data.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::fmt;

use crate::error::Result;
use crate::wire::{WireReader, put_bytes, put_varint, put_zigzag};

/// Gap: known missing data.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gap {
    /// Start, in nanoseconds since the Unix epoch.
    pub start: i64,
    /// End, in nanoseconds since the Unix epoch.
    pub end: i64,
    /// The producer whose data is missing, if known.
    pub producer: Option<u64>,
    /// Number of missing samples or records, if known.
    pub lost: Option<u64>,
    /// Cause.
    pub reason: String,
}

impl Gap {
    /// Reason of the gap that a killed topdeck leaves: what its listeners and its host role had not
    /// written yet.
    pub const UNCLEAN_SHUTDOWN: &str =
        "topdeck was killed; unacknowledged data (StatsD, UDP) of this interval is lost";

    /// The producer whose series the gap concerns; `None` if it may concern any series. Buffers of
    /// a killed process have only samples of their own producer. Other gaps, such as damage, may
    /// hide the first sample that another producer sent of a series.
    pub fn affected_producer(&self) -> Option<u64> {
        self.producer.filter(|_| self.reason == Gap::UNCLEAN_SHUTDOWN)
    }

    /// Whether the gap may hide all data of a series: then a selector that matches nothing is
    /// answered with the gap. A kill loses seconds of the series that a listener receives: it does
    /// not explain a name that is not there.
    pub fn may_hide_series(&self) -> bool {
        self.reason != Gap::UNCLEAN_SHUTDOWN
    }

    /// Appends the encoded gap.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_zigzag(out, self.start);
        put_zigzag(out, self.end);
        for number in [self.producer, self.lost] {
            out.push(u8::from(number.is_some()));
            if let Some(number) = number {
                put_varint(out, number);
            }
        }
        put_bytes(out, self.reason.as_bytes());
    }

    /// Decodes a gap.
    pub fn decode(reader: &mut WireReader<'_>) -> Result<Gap> {
        let (start, end) = (reader.zigzag("gap start")?, reader.zigzag("gap end")?);
        let mut number = || match reader.u8("flag of a number")? {
            0 => Ok(None),
            _ => reader.varint("number").map(Some),
        };
        let (producer, lost) = (number()?, number()?);
        Ok(Gap { start, end, producer, lost, reason: reader.text("reason")?.to_owned() })
    }
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.lost {
            Some(lost) => write!(f, "{lost} lost")?,
            None => f.write_str("an unknown number lost")?,
        }
        if let Some(producer) = self.producer {
            write!(f, " of producer {producer:016x}")?;
        }
        write!(f, ": {}", self.reason)
    }
}
