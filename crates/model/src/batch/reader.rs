//! Reader of a batch: its samples in order, its gaps, exemplars and spans.
//!
//! Input is untrusted: allocations are proportional to the bytes, and an error has the offset of
//! the invalid field.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use crate::error::{Error, Result};
use crate::exemplar::{Exemplar, ExemplarReader};
use crate::gap::Gap;
use crate::sample::SampleValue;
use crate::series::{Series, SeriesId, SeriesKind};
use crate::trace::{TraceReader, TraceSpans};
use crate::wire::WireReader;

use super::{
    BY_ID, BY_KEY, EXEMPLARS, GAPS, MAGIC, TRACES, VERSION, VERSION_WITH_SECTIONS, value_tag,
};

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

/// What a group is, by its first bytes.
#[derive(Clone, Copy, Debug)]
pub(super) enum GroupHead<'a> {
    /// Samples of a series, and the type of their values.
    Samples(BatchSeries<'a>, u8),
    Gaps,
    /// A section, by its first byte.
    Section(u8),
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
    /// Sections with exemplars.
    exemplars: Vec<&'a [u8]>,
    /// Sections with spans of traces.
    traces: Vec<&'a [u8]>,
    has_sections: bool,
    failed: bool,
}

impl<'a> BatchReader<'a> {
    /// Reads the header of a batch.
    pub fn new(bytes: &'a [u8]) -> Result<BatchReader<'a>> {
        let mut reader = WireReader::new(bytes);
        let mut read = |offset, field, allowed: &[u8], expected| {
            let found = reader.u8(field)?;
            match allowed.contains(&found) {
                true => Ok(found),
                false => Err(Error::Invalid { offset, field, found: found.to_string(), expected }),
            }
        };
        read(0, "magic", &[MAGIC], "211 (0xd3), the magic of a batch")?;
        let versions = "1 or 2, the versions this program reads";
        let version = read(1, "version", &[VERSION, VERSION_WITH_SECTIONS], versions)?;
        Ok(BatchReader {
            reader,
            series: None,
            samples_left: 0,
            starts_group: false,
            start: 0,
            span: 0,
            gaps: Vec::new(),
            exemplars: Vec::new(),
            traces: Vec::new(),
            has_sections: version == VERSION_WITH_SECTIONS,
            failed: false,
        })
    }

    /// The gaps read so far; complete after the last sample.
    pub fn gaps(&self) -> &[Gap] {
        &self.gaps
    }

    /// Exemplars with their series, of the sections read so far; all after the last sample.
    pub fn exemplars(&self) -> impl Iterator<Item = Result<(SeriesId, Exemplar)>> {
        self.exemplars.iter().flat_map(|section| ExemplarReader::new(section))
    }

    /// Spans of traces, of the sections read so far; all after the last sample.
    pub fn traces(&self) -> impl Iterator<Item = Result<TraceSpans<'a>>> {
        self.traces.iter().flat_map(|section| TraceReader::new(section))
    }

    /// The first bytes of the next group.
    pub(super) fn read_group_head(&mut self) -> Result<GroupHead<'a>> {
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
                Ok(GroupHead::Samples(id, tag))
            }
            BY_KEY => {
                let canonical_key = self.reader.bytes("canonical key")?;
                let kind = Series::check_canonical_key(canonical_key)?;
                Ok(GroupHead::Samples(BatchSeries::Key(canonical_key), value_tag(kind)))
            }
            GAPS => Ok(GroupHead::Gaps),
            section if self.has_sections => Ok(GroupHead::Section(section)),
            found => {
                let found = found.to_string();
                Err(Error::Invalid { offset, field: "group", found, expected: "0 to 2" })
            }
        }
    }

    /// Skips the bytes between group head and samples, or the whole group if it has none.
    pub(super) fn skip_group_extra(&mut self, head: GroupHead<'a>) -> Result<()> {
        match head {
            GroupHead::Samples(series, tag) => {
                self.series = Some((series, tag));
                self.samples_left = self.reader.count(2, "sample count")? as u64;
                self.starts_group = true;
            }
            GroupHead::Gaps => {
                let count = self.reader.count(5, "gap count")?;
                for _ in 0..count {
                    self.gaps.push(Gap::decode(&mut self.reader)?);
                }
            }
            GroupHead::Section(EXEMPLARS) => {
                self.exemplars.push(self.reader.bytes("exemplars")?);
            }
            GroupHead::Section(TRACES) => self.traces.push(self.reader.bytes("traces")?),
            GroupHead::Section(_) => drop(self.reader.bytes("section")?),
        }
        Ok(())
    }

    pub(super) fn read_entry(&mut self) -> Result<Option<BatchEntry<'a>>> {
        while self.samples_left == 0 {
            if self.reader.is_empty() {
                return Ok(None);
            }
            let head = self.read_group_head()?;
            self.skip_group_extra(head)?;
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
