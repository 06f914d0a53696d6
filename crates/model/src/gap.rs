//! Gaps: known missing data.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::fmt;

use crate::error::Result;
use crate::selector::{KIND, Selector, UNIT};
use crate::series::{Series, SeriesKind};
use crate::wire::{WireReader, put_bytes, put_varint, put_zigzag};

const LATE_SAMPLES_OF: &str = "samples of series ";
/// Suffixes of the counters of a classic histogram.
const SUFFIXES: [&str; 3] = ["_bucket", "_count", "_sum"];
const ARE_LATE: &str = " arrived after those of their day were dropped and are in no rollup";

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

    /// Reason of the gap of samples that no rollup has.
    pub fn late_samples_reason(series: &dyn fmt::Display) -> String {
        format!("{LATE_SAMPLES_OF}{series}{ARE_LATE}")
    }

    /// Text of the only series that the gap concerns; `None` if it may concern any.
    pub fn affected_series(&self) -> Option<&str> {
        self.reason.strip_prefix(LATE_SAMPLES_OF)?.strip_suffix(ARE_LATE)
    }

    /// Whether the gap may hide all data of series that a selector matches: then a selector that
    /// matches nothing is answered with the gap. A kill loses seconds of the series that a listener
    /// receives: it does not explain a name that is not there.
    pub fn may_hide_series_of(&self, selector: &Selector) -> bool {
        let named = self.affected_series().and_then(parse_series);
        let is_meant = |series: Series| {
            // A selector of a classic histogram does not have the names of its counters.
            let base = SUFFIXES.iter().find_map(|suffix| series.name().strip_suffix(suffix));
            let labels = series.labels().iter().filter(|(name, _)| name != "le").cloned();
            let base = base.map(|base| Series::new(base, series.kind()).with_labels(labels));
            let mut named = [Some(&series), base.as_ref()].into_iter().flatten();
            named.any(|series| match_text(selector, series) != Some(false))
        };
        self.reason != Gap::UNCLEAN_SHUTDOWN && named.is_none_or(is_meant)
    }

    /// Whether the gap may concern what a selector selects although it matches no series.
    pub fn may_concern(&self, selector: &Selector) -> bool {
        self.affected_series().is_none() || self.may_hide_series_of(selector)
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

/// Whether a selector matches a series of whose unit and kind nothing is known; `None` if these
/// decide.
fn match_text(selector: &Selector, series: &Series) -> Option<bool> {
    let decide = |parts: &[Selector], decisive: bool| {
        let results = || parts.iter().map(|part| match_text(part, series));
        match results().any(|result| result == Some(decisive)) {
            true => Some(decisive),
            false => results().all(|result| result.is_some()).then_some(!decisive),
        }
    };
    match selector {
        Selector::And(parts) => decide(parts, false),
        Selector::Or(parts) => decide(parts, true),
        Selector::Not(part) => match_text(part, series).map(|matches| !matches),
        Selector::Tag { name, .. } if [UNIT, KIND].contains(&name.as_str()) => None,
        Selector::All | Selector::Tag { .. } => Some(selector.matches(series)),
    }
}

/// Name and labels of the text of a series; `None` if its labels have rarer escapes, or if it is
/// none.
fn parse_series(text: &str) -> Option<Series> {
    let (name, mut rest) = text.split_once('{').unwrap_or((text, "}"));
    let mut series = Series::new(name, SeriesKind::Gauge);
    while let Some((label, value)) = rest.split_once("=\"") {
        let (mut text, mut chars) = (String::new(), value.chars());
        loop {
            match chars.next()? {
                '"' => break,
                '\\' => text.push(chars.next().filter(|next| matches!(next, '"' | '\\'))?),
                other => text.push(other),
            }
        }
        series = series.with_label(label.trim_start_matches(','), text);
        rest = chars.as_str();
    }
    (rest == "}").then_some(series)
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
