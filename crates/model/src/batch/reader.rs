//! Reader of a batch: its samples in order, and its gaps.
//!
//! Input is untrusted: allocations are proportional to the bytes, and an error has the offset of
//! the invalid field.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use crate::error::{Error, Result};
use crate::gap::Gap;
use crate::sample::SampleValue;
use crate::series::{Series, SeriesId, SeriesKind};
use crate::wire::WireReader;

use super::{BY_ID, BY_KEY, GAPS, MAGIC, VERSION, value_tag};

/// How a batch names a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchSeries<'a> {
    /// By its ID.
    Id(SeriesId),
    /// By its canonical key.
    Key(&'a [u8]),
}

impl BatchSeries<'_> {
    /// ID of the series.
    pub fn id(&self) -> SeriesId {
        match self {
            BatchSeries::Id(id) => *id,
            BatchSeries::Key(canonical_key) => SeriesId::from_canonical_key(canonical_key),
        }
    }
}

/// One sample of a batch, with its value as bytes.
#[derive(Clone, Copy, Debug)]
pub struct BatchEntry<'a> {
    /// Its series.
    pub series: BatchSeries<'a>,
    /// Whether it is the first sample of its group.
    pub starts_group: bool,
    /// Start of the interval.
    pub start: i64,
    /// End of the interval.
    pub end: i64,
    /// A frame, the eight bytes of a number, or UTF-8 text.
    pub value: &'a [u8],
    pub(super) tag: u8,
    offset: usize,
}

impl BatchEntry<'_> {
    /// Decodes the value.
    pub fn decode(&self) -> Result<SampleValue> {
        match self.tag {
            0 => hist::codec::frame::decode(self.value)
                .map(|(histogram, _)| SampleValue::Histogram(Box::new(histogram)))
                .map_err(|source| Error::Histogram { offset: self.offset, source }),
            1 => Ok(SampleValue::Number(WireReader::new(self.value).f64("number")?)),
            _ => Ok(SampleValue::Text(String::from_utf8_lossy(self.value).into_owned())),
        }
    }

    /// Number of measured values: a histogram's count; 1 for a number or a text.
    pub fn values(&self) -> Result<u64> {
        match self.tag {
            0 => hist::codec::frame::count(self.value)
                .map_err(|source| Error::Histogram { offset: self.offset, source }),
            _ => Ok(1),
        }
    }

    /// Whether a series of `kind` can have this value.
    pub fn fits(&self, kind: SeriesKind) -> bool {
        self.tag == value_tag(kind)
    }
}

/// Iterator over a batch. It ends after an error.
#[derive(Clone, Debug)]
pub struct BatchReader<'a> {
    pub(super) reader: WireReader<'a>,
    series: Option<(BatchSeries<'a>, u8)>,
    pub(super) samples_left: u64,
    starts_group: bool,
    start: i64,
    span: i64,
    gaps: Vec<Gap>,
    failed: bool,
}

impl<'a> BatchReader<'a> {
    /// Reads the header of a batch.
    pub fn new(bytes: &'a [u8]) -> Result<BatchReader<'a>> {
        let mut reader = WireReader::new(bytes);
        for (offset, field, expected, text) in [
            (0, "magic", MAGIC, "211 (0xd3), the magic of a batch"),
            (1, "version", VERSION, "1, the version this program reads"),
        ] {
            let found = reader.u8(field)?;
            if found != expected {
                let found = found.to_string();
                return Err(Error::Invalid { offset, field, found, expected: text });
            }
        }
        Ok(BatchReader {
            reader,
            series: None,
            samples_left: 0,
            starts_group: false,
            start: 0,
            span: 0,
            gaps: Vec::new(),
            failed: false,
        })
    }

    /// The gaps read so far; complete after the last sample.
    pub fn gaps(&self) -> &[Gap] {
        &self.gaps
    }

    /// The series of the next group and the type of its values; `None` for a group of gaps.
    pub(super) fn read_group_head(&mut self) -> Result<Option<(BatchSeries<'a>, u8)>> {
        let offset = self.reader.offset();
        match self.reader.u8("group")? {
            BY_ID => {
                let id = BatchSeries::Id(SeriesId(self.reader.array("series id")?));
                let offset = self.reader.offset();
                let tag = self.reader.u8("value tag")?;
                if tag > 2 {
                    let (field, found) = ("value tag", tag.to_string());
                    return Err(Error::Invalid { offset, field, found, expected: "0 to 2" });
                }
                Ok(Some((id, tag)))
            }
            BY_KEY => {
                let canonical_key = self.reader.bytes("canonical key")?;
                let kind = Series::check_canonical_key(canonical_key)?;
                Ok(Some((BatchSeries::Key(canonical_key), value_tag(kind))))
            }
            GAPS => Ok(None),
            found => {
                let found = found.to_string();
                Err(Error::Invalid { offset, field: "group", found, expected: "0 to 2" })
            }
        }
    }

    /// Skips the bytes between group head and samples, or the whole group if it has gaps.
    pub(super) fn skip_group_extra(&mut self, series: Option<(BatchSeries<'a>, u8)>) -> Result<()> {
        if series.is_some() {
            self.series = series;
            self.samples_left = self.reader.count(2, "sample count")? as u64;
            self.starts_group = true;
            return Ok(());
        }
        let count = self.reader.count(5, "gap count")?;
        for _ in 0..count {
            self.gaps.push(Gap::decode(&mut self.reader)?);
        }
        Ok(())
    }

    pub(super) fn read_entry(&mut self) -> Result<Option<BatchEntry<'a>>> {
        while self.samples_left == 0 {
            if self.reader.is_empty() {
                return Ok(None);
            }
            let series = self.read_group_head()?;
            self.skip_group_extra(series)?;
        }
        self.samples_left = self.samples_left.saturating_sub(1);
        let offset = self.reader.offset();
        let Some((series, tag)) = self.series else {
            return Err(Error::Truncated { offset, field: "series" });
        };
        let start = self.start.wrapping_add(self.reader.zigzag("start")?);
        let offset = self.reader.offset();
        let span = self.span.wrapping_add(self.reader.zigzag("span")?);
        let end = start.checked_add(span).filter(|_| span >= 0);
        let end = end.ok_or_else(|| Error::Invalid {
            offset,
            field: "span",
            found: span.to_string(),
            expected: "an end within 64 bits, not before the start",
        })?;
        (self.start, self.span) = (start, span);
        let offset = self.reader.offset();
        let value = match tag {
            0 => self.reader.bytes("frame")?,
            1 => self.reader.read_bytes(8, "number")?,
            _ => self.reader.text("text")?.as_bytes(),
        };
        let begins = std::mem::take(&mut self.starts_group);
        Ok(Some(BatchEntry { series, starts_group: begins, start, end, value, tag, offset }))
    }
}

impl<'a> Iterator for BatchReader<'a> {
    type Item = Result<BatchEntry<'a>>;

    fn next(&mut self) -> Option<Result<BatchEntry<'a>>> {
        if self.failed {
            return None;
        }
        let entry = self.read_entry();
        self.failed = entry.is_err();
        entry.transpose()
    }
}
