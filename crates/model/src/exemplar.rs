//! Exemplar: one measured request that stands for others of its size.
//!
//! An identifier of zeros means that there is none, as in OpenTelemetry. Attributes are bounded:
//! what exceeds the bounds is cut off or left out, never the exemplar.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use crate::error::{Error, Result};
use crate::series::SeriesId;
use crate::wire::{WireReader, put_bytes, put_zigzag};

/// Maximum number of attributes of an exemplar that is stored. Further ones are left out.
pub const EXEMPLAR_ATTRIBUTES_MAX: usize = 8;
/// Maximum number of attributes of a sender of which some are chosen.
const RECEIVED_ATTRIBUTES_MAX: usize = 64;
/// Maximum size of an attribute's name. Attributes with longer names are left out.
const EXEMPLAR_NAME_BYTES_MAX: usize = 64;
/// Maximum size of an attribute's value. Longer ones are cut off.
pub const EXEMPLAR_VALUE_BYTES_MAX: usize = 256;

/// Bits of the first byte of an encoded exemplar; the number of attributes is above them.
const HAS_TRACE: u8 = 1;
const HAS_SPAN: u8 = 2;
const HAS_SERIES: u8 = 4;
const COUNT_SHIFT: u32 = 3;
/// Size of the shortest encoded exemplar: first byte, source, time, value.
const ENCODED_BYTES_MIN: usize = 11;

/// One measured request.
#[derive(Clone, Debug, PartialEq)]
pub struct Exemplar {
    /// When it was measured, in nanoseconds since the Unix epoch.
    pub time: i64,
    /// Its value, in the unit of the series; finite.
    pub value: f64,
    /// Its trace; zeros if unknown.
    pub trace_id: [u8; 16],
    /// Its span; zeros if unknown.
    pub span_id: [u8; 8],
    /// What the series' labels do not say of it.
    pub attributes: ExemplarAttributes,
    /// How it was received.
    pub source: ExemplarSource,
}

/// How an exemplar was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExemplarSource {
    /// OpenTelemetry metrics.
    Otlp,
    /// Prometheus remote write.
    RemoteWrite,
    /// A scrape.
    Scrape,
    /// Captured packets.
    Wire,
    /// A span of a trace.
    Span,
    /// In a way that a later version knows, with its number.
    Other(u8),
}

impl ExemplarSource {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            ExemplarSource::Otlp => "otlp",
            ExemplarSource::RemoteWrite => "remote_write",
            ExemplarSource::Scrape => "scrape",
            ExemplarSource::Wire => "wire",
            ExemplarSource::Span => "span",
            ExemplarSource::Other(_) => "other",
        }
    }

    fn number(self) -> u8 {
        match self {
            ExemplarSource::Otlp => 0,
            ExemplarSource::RemoteWrite => 1,
            ExemplarSource::Scrape => 2,
            ExemplarSource::Wire => 3,
            ExemplarSource::Span => 4,
            ExemplarSource::Other(number) => number,
        }
    }

    fn of_number(number: u8) -> ExemplarSource {
        match number {
            0 => ExemplarSource::Otlp,
            1 => ExemplarSource::RemoteWrite,
            2 => ExemplarSource::Scrape,
            3 => ExemplarSource::Wire,
            4 => ExemplarSource::Span,
            number => ExemplarSource::Other(number),
        }
    }
}

/// Key of a span in samples of spans: those with the lowest keys are kept. It depends on the ids
/// only, so all receivers and stores choose the same spans of those that they see.
pub fn span_sampling_key(trace_id: &[u8; 16], span_id: &[u8; 8]) -> u64 {
    let trace = u128::from_le_bytes(*trace_id);
    let words = [trace as u64, trace.unbounded_shr(64) as u64, u64::from_le_bytes(*span_id)];
    words.into_iter().fold(0, |hash, word| splitmix64(hash ^ word))
}

/// A step of SplitMix64 (Steele, Lea, Flood, “Fast splittable pseudorandom number generators”).
pub fn splitmix64(state: u64) -> u64 {
    let mut z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z.unbounded_shr(30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z.unbounded_shr(27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z.unbounded_shr(31)
}

/// Attributes of an exemplar, sorted by name, within the bounds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExemplarAttributes {
    /// Names and values, each with its length: one allocation instead of one per text.
    bytes: Box<[u8]>,
}

impl ExemplarAttributes {
    /// Attributes from names and values, and whether something was cut off or left out. Empty
    /// values mean that there is no such attribute; of two with a name, the first counts.
    pub fn new<'a>(
        pairs: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> (ExemplarAttributes, bool) {
        ExemplarAttributes::first(pairs, EXEMPLAR_ATTRIBUTES_MAX)
    }

    /// The same of a sender: of more attributes than are stored, the receiver chooses some by their
    /// names, and makes new ones of these.
    pub fn received<'a>(
        pairs: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> (ExemplarAttributes, bool) {
        ExemplarAttributes::first(pairs, RECEIVED_ATTRIBUTES_MAX)
    }

    fn first<'a>(
        pairs: impl IntoIterator<Item = (&'a str, &'a str)>,
        max: usize,
    ) -> (ExemplarAttributes, bool) {
        let mut kept: Vec<(&str, &str)> = Vec::new();
        let mut is_cut = false;
        for (name, value) in pairs {
            if name.is_empty() || value.is_empty() || kept.iter().any(|known| known.0 == name) {
                continue;
            }
            if name.len() > EXEMPLAR_NAME_BYTES_MAX || kept.len() == max {
                is_cut = true;
                continue;
            }
            let end = value.floor_char_boundary(EXEMPLAR_VALUE_BYTES_MAX);
            is_cut |= end < value.len();
            kept.push((name, &value[..end]));
        }
        kept.sort_unstable();
        let mut bytes = Vec::new();
        for (name, value) in kept {
            put_bytes(&mut bytes, name.as_bytes());
            put_bytes(&mut bytes, value.as_bytes());
        }
        (ExemplarAttributes { bytes: bytes.into_boxed_slice() }, is_cut)
    }

    /// Names and values, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let mut reader = WireReader::new(&self.bytes);
        std::iter::from_fn(move || {
            let name = reader.text("name").ok()?;
            Some((name, reader.text("value").ok()?))
        })
    }

    /// The encoded names and values.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Number of attributes.
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn read(reader: &mut WireReader<'_>, count: usize) -> Result<ExemplarAttributes> {
        let mut pairs = [("", ""); EXEMPLAR_ATTRIBUTES_MAX];
        let offset = reader.offset();
        let invalid = |found: String, expected| {
            Err(Error::Invalid { offset, field: "exemplar attributes", found, expected })
        };
        let Some(pairs) = pairs.get_mut(..count) else {
            return invalid(count.to_string(), "at most 8");
        };
        for pair in pairs.iter_mut() {
            *pair = (reader.text("attribute name")?, reader.text("attribute value")?);
        }
        let is_bounded = |(name, value): &(&str, &str)| {
            (1..=EXEMPLAR_NAME_BYTES_MAX).contains(&name.len())
                && (1..=EXEMPLAR_VALUE_BYTES_MAX).contains(&value.len())
        };
        let are_sorted = pairs.windows(2).all(|pair| pair[0].0 < pair[1].0);
        if !are_sorted || !pairs.iter().all(is_bounded) {
            let found = "unsorted or too long ones".to_owned();
            return invalid(found, "names of 1 to 64 and values of 1 to 256 bytes, sorted");
        }
        Ok(ExemplarAttributes::new(pairs.iter().copied()).0)
    }
}

/// Writer of exemplars, as bytes of a batch or of a file. Exemplars of a series should follow each
/// other.
#[derive(Clone, Debug, Default)]
pub struct ExemplarWriter {
    bytes: Vec<u8>,
    series: Option<SeriesId>,
    time: i64,
    count: u64,
}

impl ExemplarWriter {
    /// Adds an exemplar of a series.
    pub fn push(&mut self, series: SeriesId, exemplar: &Exemplar) {
        let is_new_series = self.series != Some(series);
        let mut head = (exemplar.attributes.len() as u8).unbounded_shl(COUNT_SHIFT);
        head |= if exemplar.trace_id == [0; 16] { 0 } else { HAS_TRACE };
        head |= if exemplar.span_id == [0; 8] { 0 } else { HAS_SPAN };
        head |= if is_new_series { HAS_SERIES } else { 0 };
        self.bytes.extend_from_slice(&[head, exemplar.source.number()]);
        if is_new_series {
            self.bytes.extend_from_slice(&series.0);
            self.series = Some(series);
        }
        put_zigzag(&mut self.bytes, exemplar.time.wrapping_sub(self.time));
        self.time = exemplar.time;
        self.bytes.extend_from_slice(&exemplar.value.to_le_bytes());
        if head & HAS_TRACE != 0 {
            self.bytes.extend_from_slice(&exemplar.trace_id);
        }
        if head & HAS_SPAN != 0 {
            self.bytes.extend_from_slice(&exemplar.span_id);
        }
        self.bytes.extend_from_slice(&exemplar.attributes.bytes);
        self.count = self.count.saturating_add(1);
    }

    /// The encoded exemplars.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Number of exemplars.
    pub fn len(&self) -> u64 {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// Reader of what [`ExemplarWriter`] wrote; untrusted. It ends after an error.
#[derive(Clone, Debug)]
pub struct ExemplarReader<'a> {
    reader: WireReader<'a>,
    series: Option<SeriesId>,
    time: i64,
    failed: bool,
}

impl<'a> ExemplarReader<'a> {
    /// Reads from the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> ExemplarReader<'a> {
        ExemplarReader { reader: WireReader::new(bytes), series: None, time: 0, failed: false }
    }

    fn read(&mut self) -> Result<Option<(SeriesId, Exemplar)>> {
        if self.reader.is_empty() {
            return Ok(None);
        }
        let offset = self.reader.offset();
        if self.reader.remaining() < ENCODED_BYTES_MIN {
            return Err(Error::Truncated { offset, field: "exemplar" });
        }
        let head = self.reader.u8("exemplar")?;
        let source = ExemplarSource::of_number(self.reader.u8("exemplar source")?);
        if head & HAS_SERIES != 0 {
            self.series = Some(SeriesId(self.reader.array("series id")?));
        }
        let Some(series) = self.series else {
            let found = "an exemplar without series".to_owned();
            let expected = "a series id before the first exemplar";
            return Err(Error::Invalid { offset, field: "exemplar", found, expected });
        };
        self.time = self.time.wrapping_add(self.reader.zigzag("exemplar time")?);
        let offset = self.reader.offset();
        let value = self.reader.f64("exemplar value")?;
        if !value.is_finite() {
            let (field, found) = ("exemplar value", value.to_string());
            return Err(Error::Invalid { offset, field, found, expected: "a finite number" });
        }
        let trace_id = match head & HAS_TRACE {
            0 => [0; 16],
            _ => self.reader.array("trace id")?,
        };
        let span_id = match head & HAS_SPAN {
            0 => [0; 8],
            _ => self.reader.array("span id")?,
        };
        let count = usize::from(head.unbounded_shr(COUNT_SHIFT));
        let attributes = ExemplarAttributes::read(&mut self.reader, count)?;
        let exemplar = Exemplar { time: self.time, value, trace_id, span_id, attributes, source };
        Ok(Some((series, exemplar)))
    }
}

impl Iterator for ExemplarReader<'_> {
    type Item = Result<(SeriesId, Exemplar)>;

    fn next(&mut self) -> Option<Result<(SeriesId, Exemplar)>> {
        if self.failed {
            return None;
        }
        let read = self.read();
        self.failed = read.is_err();
        read.transpose()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check_attributes(pairs: &[(&str, &str)], expected: &[(&str, &str)], is_cut: bool) {
        let (attributes, found) = ExemplarAttributes::new(pairs.iter().copied());
        assert_eq!(attributes.iter().collect::<Vec<_>>(), expected);
        assert_eq!(found, is_cut);
    }

    #[test]
    fn attributes_are_bounded_and_sorted() {
        check_attributes(&[], &[], false);
        check_attributes(&[("b", "2"), ("a", "1"), ("b", "3")], &[("a", "1"), ("b", "2")], false);
        check_attributes(&[("", "1"), ("a", "")], &[], false);
        let long = "é".repeat(EXEMPLAR_VALUE_BYTES_MAX);
        let cut = &long[..EXEMPLAR_VALUE_BYTES_MAX];
        check_attributes(&[("a", &long)], &[("a", cut)], true);
        check_attributes(&[(&"n".repeat(EXEMPLAR_NAME_BYTES_MAX + 1), "1")], &[], true);
        let names: Vec<String> = (0..10).map(|n| format!("n{n}")).collect();
        let pairs: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "v")).collect();
        check_attributes(&pairs, &pairs[..EXEMPLAR_ATTRIBUTES_MAX], true);
    }

    #[track_caller]
    fn check_damage(bytes: &[u8], part: &str) {
        let error = ExemplarReader::new(bytes).find_map(Result::err).unwrap();
        assert!(error.to_string().contains(part), "{error}");
    }

    #[test]
    fn damaged_exemplars_are_rejected() {
        let exemplar = Exemplar {
            time: 5,
            value: 1.5,
            trace_id: [7; 16],
            span_id: [0; 8],
            attributes: ExemplarAttributes::new([("user", "u1")]).0,
            source: ExemplarSource::Otlp,
        };
        let mut writer = ExemplarWriter::default();
        writer.push(SeriesId([1; 16]), &exemplar);
        let bytes = writer.bytes().to_vec();
        let read: Vec<_> = ExemplarReader::new(&bytes).collect::<Result<_>>().unwrap();
        assert_eq!(read, [(SeriesId([1; 16]), exemplar)]);
        check_damage(&bytes[..bytes.len() - 1], "truncated");
        check_damage(&[0; 11], "exemplar without series");
        let mut other = bytes.clone();
        other[0] |= 15 << COUNT_SHIFT;
        check_damage(&other, "at most 8");
        let mut other = bytes;
        other[19..27].copy_from_slice(&f64::NAN.to_le_bytes());
        check_damage(&other, "a finite number");
    }

    fn exemplars() -> impl Strategy<Value = (SeriesId, Exemplar)> {
        let attributes = prop::collection::vec(("[a-z]{1,70}", "\\PC{0,100}"), 0..12);
        let parts = (
            0..3_u8,
            any::<i64>(),
            prop::num::f64::NORMAL,
            any::<[u8; 16]>(),
            any::<[u8; 8]>(),
            attributes,
            any::<u8>(),
        );
        parts.prop_map(|(series, time, value, trace_id, span_id, pairs, source)| {
            let pairs = pairs.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            let attributes = ExemplarAttributes::new(pairs).0;
            let source = ExemplarSource::of_number(source);
            let exemplar = Exemplar { time, value, trace_id, span_id, attributes, source };
            (SeriesId([series; 16]), exemplar)
        })
    }

    proptest! {
        #[test]
        fn written_exemplars_are_read(all in prop::collection::vec(exemplars(), 0..20)) {
            let mut writer = ExemplarWriter::default();
            all.iter().for_each(|(series, exemplar)| writer.push(*series, exemplar));
            prop_assert_eq!(writer.len(), all.len() as u64);
            let read: Vec<_> = ExemplarReader::new(writer.bytes()).collect::<Result<_>>().unwrap();
            prop_assert_eq!(read, all);
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = ExemplarReader::new(&bytes).count();
        }
    }
}
