//! Series: name, labels, unit, kind.
//!
//! The canonical key is bytes:
//!
//! ```text
//! kind      u8     0 histogram, 1 counter, 2 gauge, 3 text; plus 16 if cumulative
//! name      text   as in `wire.rs`
//! unit      text   empty if none
//! labels    varint number of labels; then each, by ascending name: name, value as texts
//! ```
//! The ID of a series is the first 16 bytes of the BLAKE3 hash of its key
//! (github.com/BLAKE3-team/BLAKE3-specs). Collisions cannot be constructed, and the store compares
//! keys anyway.

use std::fmt;

use hist::codec::header::Temporality;

use crate::error::{Error, Result};
use crate::wire::{WireReader, put_bytes, put_varint};

/// Maximum length of a metric name or label name, in bytes.
pub const NAME_BYTES_MAX: usize = 1024;
/// Maximum length of a unit, in bytes.
pub(crate) const UNIT_BYTES_MAX: usize = 64;
/// Maximum number of labels of a series.
pub const LABELS_MAX: usize = 64;
/// Maximum length of a canonical key, in bytes.
pub const CANONICAL_KEY_BYTES_MAX: usize = 16 << 10;

const CUMULATIVE: u8 = 16;

/// Type of a series' values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SeriesKind {
    /// Histograms.
    Histogram(Temporality),
    /// Monotonic counts.
    Counter(Temporality),
    /// Numbers that may fall.
    Gauge,
    /// Texts: versions, deployments, annotations.
    Text,
}

impl SeriesKind {
    /// Whether each sample counts from a start (cumulative temporality).
    pub fn is_cumulative(self) -> bool {
        let cumulative = Temporality::Cumulative;
        self == SeriesKind::Histogram(cumulative) || self == SeriesKind::Counter(cumulative)
    }

    /// Kind of the series with this canonical key; `None` if the key is invalid.
    pub fn from_canonical_key(canonical_key: &[u8]) -> Option<SeriesKind> {
        SeriesKind::from_byte(*canonical_key.first()?)
    }

    fn to_byte(self) -> u8 {
        let tag = match self {
            SeriesKind::Histogram(_) => 0,
            SeriesKind::Counter(_) => 1,
            SeriesKind::Gauge => 2,
            SeriesKind::Text => 3,
        };
        if self.is_cumulative() { tag | CUMULATIVE } else { tag }
    }

    fn from_byte(byte: u8) -> Option<SeriesKind> {
        let temporality =
            if byte & CUMULATIVE != 0 { Temporality::Cumulative } else { Temporality::Delta };
        match (byte & !CUMULATIVE, temporality) {
            (0, temporality) => Some(SeriesKind::Histogram(temporality)),
            (1, temporality) => Some(SeriesKind::Counter(temporality)),
            (2, Temporality::Delta) => Some(SeriesKind::Gauge),
            (3, Temporality::Delta) => Some(SeriesKind::Text),
            _ => None,
        }
    }
}

/// Unit as topdeck spells it: `B` for UCUM's `By`, none for UCUM's `1`. The result is a prefix of
/// the argument.
///
/// Up to version 0.1.0, metrics of shared memory were stored with the spelling of UCUM. Their
/// series keep their keys, and are read with topdeck's spelling.
pub fn spell_unit(unit: &str) -> &str {
    match unit {
        "By" => &unit[..1],
        "1" => &unit[..0],
        unit => unit,
    }
}

/// Series ID: the hash of the canonical key, the same on every host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeriesId(pub [u8; 16]);

impl SeriesId {
    /// ID of a canonical key.
    pub fn from_canonical_key(canonical_key: &[u8]) -> SeriesId {
        SeriesId(blake3_128(canonical_key))
    }

    /// The first eight bytes, in the order of ids.
    pub fn prefix(&self) -> u64 {
        u64::from_be_bytes(self.0.first_chunk().copied().unwrap_or_default())
    }
}

/// First 16 bytes of the BLAKE3 hash: collisions cannot be constructed.
pub fn blake3_128(bytes: &[u8]) -> [u8; 16] {
    *blake3::hash(bytes).as_bytes().first_chunk().expect("BUG: a hash has 32 bytes")
}

impl fmt::Display for SeriesId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for SeriesId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Label names and values, by ascending name.
pub type Labels = Vec<(String, String)>;

/// A series.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Series {
    name: String,
    unit: String,
    kind: SeriesKind,
    labels: Labels,
}

impl Series {
    /// A series without unit and labels. [`Self::validate`] is the last call of the builder.
    pub fn new(name: impl Into<String>, kind: SeriesKind) -> Series {
        Series { name: name.into(), unit: String::new(), kind, labels: Vec::new() }
    }

    /// Sets the unit of its values, as it is written after a number. Units of UCUM are spelled as
    /// in [`spell_unit`].
    #[must_use]
    pub fn with_unit(mut self, unit: impl Into<String>) -> Series {
        self.unit = unit.into();
        self.unit.truncate(spell_unit(&self.unit).len());
        self
    }

    /// Adds a label. A label without value is not added.
    #[must_use]
    pub fn with_label(mut self, name: impl Into<String>, value: impl Into<String>) -> Series {
        let value = value.into();
        if !value.is_empty() {
            self.labels.push((name.into(), value));
        }
        self
    }

    /// Adds labels.
    #[must_use]
    pub fn with_labels<N: Into<String>, V: Into<String>>(
        self,
        labels: impl IntoIterator<Item = (N, V)>,
    ) -> Series {
        labels.into_iter().fold(self, |series, (name, value)| series.with_label(name, value))
    }

    /// Sorts the labels, and rejects sizes above the limits and duplicate labels.
    pub fn validate(mut self) -> Result<Series> {
        self.labels.sort_unstable();
        check_size("metric name", self.name.len(), 1, NAME_BYTES_MAX, "bytes")?;
        check_size("unit", self.unit.len(), 0, UNIT_BYTES_MAX, "bytes")?;
        check_size("series", self.labels.len(), 0, LABELS_MAX, "labels")?;
        for (name, _) in &self.labels {
            check_size("label name", name.len(), 1, NAME_BYTES_MAX, "bytes")?;
        }
        if let Some(pair) = self.labels.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(Error::DuplicateLabel { name: pair[0].0.clone() });
        }
        check_size("series", self.canonical_key().len(), 1, CANONICAL_KEY_BYTES_MAX, "bytes")?;
        Ok(self)
    }

    /// Metric name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Unit of the values; empty for plain numbers.
    pub fn unit(&self) -> &str {
        // A stored key may have the spelling of an earlier version.
        spell_unit(&self.unit)
    }

    /// Type of the values.
    pub fn kind(&self) -> SeriesKind {
        self.kind
    }

    /// Labels by ascending name.
    pub fn labels(&self) -> &[(String, String)] {
        &self.labels
    }

    /// Value of a label.
    pub fn label(&self, name: &str) -> Option<&str> {
        let at = self.labels.binary_search_by(|label| label.0.as_str().cmp(name)).ok()?;
        Some(&self.labels[at].1)
    }

    /// The canonical key.
    pub fn canonical_key(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(128);
        out.push(self.kind.to_byte());
        put_bytes(&mut out, self.name.as_bytes());
        put_bytes(&mut out, self.unit.as_bytes());
        put_varint(&mut out, self.labels.len() as u64);
        for (name, value) in &self.labels {
            put_bytes(&mut out, name.as_bytes());
            put_bytes(&mut out, value.as_bytes());
        }
        out
    }

    /// The series ID.
    pub fn id(&self) -> SeriesId {
        SeriesId::from_canonical_key(&self.canonical_key())
    }

    /// Decodes a canonical key; a key that is not in canonical order is rejected.
    pub fn from_canonical_key(canonical_key: &[u8]) -> Result<Series> {
        let kind = Series::check_canonical_key(canonical_key)?;
        let mut reader = WireReader::new(&canonical_key[1..]);
        let name = reader.text("name")?;
        let mut series = Series::new(name, kind);
        // The key stays as it is, because its hash is the ID.
        reader.text("unit")?.clone_into(&mut series.unit);
        let count = reader.count(2, "label count")?;
        for _ in 0..count {
            let name = reader.text("label name")?.to_owned();
            series.labels.push((name, reader.text("label value")?.to_owned()));
        }
        Ok(series)
    }

    /// Validates a canonical key without allocating, and returns the kind of its series.
    pub fn check_canonical_key(canonical_key: &[u8]) -> Result<SeriesKind> {
        check_size("series", canonical_key.len(), 1, CANONICAL_KEY_BYTES_MAX, "bytes")?;
        let mut reader = WireReader::new(canonical_key);
        let byte = reader.u8("kind")?;
        let kind = SeriesKind::from_byte(byte).ok_or_else(|| Error::Invalid {
            offset: 0,
            field: "kind",
            found: byte.to_string(),
            expected: "0 to 3, or 16 or 17",
        })?;
        let name = reader.text("name")?;
        check_size("metric name", name.len(), 1, NAME_BYTES_MAX, "bytes")?;
        let unit = reader.text("unit")?;
        check_size("unit", unit.len(), 0, UNIT_BYTES_MAX, "bytes")?;
        let count = reader.count(2, "label count")?;
        check_size("series", count, 0, LABELS_MAX, "labels")?;
        // Length of the key with minimal varints.
        let mut shortest = 1 + text_bytes(name) + text_bytes(unit) + varint_bytes(count);
        let mut before = "";
        for _ in 0..count {
            let offset = reader.offset();
            let name = reader.text("label name")?;
            check_size("label name", name.len(), 1, NAME_BYTES_MAX, "bytes")?;
            if name == before {
                return Err(Error::DuplicateLabel { name: name.to_owned() });
            }
            let value = reader.text("label value")?;
            if name < before || value.is_empty() {
                return Err(not_canonical(offset));
            }
            shortest += text_bytes(name) + text_bytes(value);
            before = name;
        }
        reader.finish()?;
        // Unsorted labels, empty values and non-minimal varints would give one series several IDs.
        if shortest == canonical_key.len() { Ok(kind) } else { Err(not_canonical(0)) }
    }
}

/// Kind, metric name and unit of the series with this canonical key; `None` if the key is invalid.
pub(crate) fn read_key_head(canonical_key: &[u8]) -> Option<(SeriesKind, &str, &str)> {
    let mut reader = WireReader::new(canonical_key);
    let kind = SeriesKind::from_byte(reader.u8("kind").ok()?)?;
    let name = reader.text("name").ok()?;
    Some((kind, name, spell_unit(reader.text("unit").ok()?)))
}

fn check_size(
    what: &'static str,
    found: usize,
    min: usize,
    max: usize,
    unit: &'static str,
) -> Result<()> {
    if (min..=max).contains(&found) {
        return Ok(());
    }
    Err(Error::Size { part: what, found, min, max, unit })
}

fn not_canonical(offset: usize) -> Error {
    Error::Invalid {
        offset,
        field: "canonical key",
        found: "another encoding of the key".to_owned(),
        expected: "the canonical key",
    }
}

/// Length of a varint, in bytes.
fn varint_bytes(value: usize) -> usize {
    (usize::BITS - (value | 1).leading_zeros()).div_ceil(7) as usize
}

fn text_bytes(text: &str) -> usize {
    varint_bytes(text.len()) + text.len()
}

impl fmt::Display for Series {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        if self.labels.is_empty() {
            return Ok(());
        }
        for (at, (name, value)) in self.labels.iter().enumerate() {
            write!(f, "{}{name}={value:?}", if at == 0 { "{" } else { "," })?;
        }
        f.write_str("}")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reference decoder: decodes, builds the series, and compares its encoding with the input.
    fn decode_naively(canonical_key: &[u8]) -> Option<Series> {
        let mut reader = WireReader::new(canonical_key);
        let kind = SeriesKind::from_byte(reader.u8("").ok()?)?;
        let mut series = Series::new(reader.text("").ok()?, kind);
        // Keys of earlier versions may have units of UCUM, and stay as they are.
        reader.text("").ok()?.clone_into(&mut series.unit);
        for _ in 0..reader.count(2, "").ok()? {
            let name = reader.text("").ok()?.to_owned();
            series = series.with_label(name, reader.text("").ok()?);
        }
        let series = series.validate().ok()?;
        (series.canonical_key() == canonical_key).then_some(series)
    }

    #[test]
    fn bytes_of_every_source_have_one_unit() {
        let with_unit = |unit| Series::new("m", SeriesKind::Gauge).with_unit(unit).validate();
        let bytes = with_unit("By").unwrap();
        assert_eq!((bytes.unit(), bytes.id()), ("B", with_unit("B").unwrap().id()));
        assert_eq!(with_unit("1").unwrap(), with_unit("").unwrap());
        assert_eq!(with_unit("MiBy").unwrap().unit(), "MiBy");
    }

    #[test]
    fn series_stored_with_the_unit_by_are_found_as_b() {
        let stored = *b"\x02\x01m\x02By\x00";
        let series = Series::from_canonical_key(&stored).unwrap();
        assert_eq!((series.unit(), &*series.canonical_key()), ("B", &stored[..]));
        for selector in ["and(__unit:B)", "and(__unit:By)", "{__unit=\"By\"}"] {
            assert!(crate::Selector::parse(selector).unwrap().matches(&series), "{selector}");
        }
    }

    #[track_caller]
    fn check_canonical_key(canonical_key: &[u8]) {
        let plainly = decode_naively(canonical_key);
        assert_eq!(
            Series::check_canonical_key(canonical_key).ok(),
            plainly.as_ref().map(Series::kind)
        );
        assert_eq!(Series::from_canonical_key(canonical_key).ok(), plainly);
    }

    proptest! {
        #[test]
        fn canonical_key_check_equals_decode(
            kind in 0u8..20,
            name in "[a-c]{0,3}",
            unit in "[a-c]{0,2}",
            labels in prop::collection::vec(("[a-c]{0,2}", "[a-cé]{0,2}"), 0..5),
            sorted in any::<bool>(),
            (at, byte) in (any::<prop::sample::Index>(), any::<u8>()),
        ) {
            let mut labels = labels;
            if sorted {
                labels.sort();
                labels.dedup_by(|a, b| a.0 == b.0);
            }
            let mut canonical_key = vec![kind];
            put_bytes(&mut canonical_key, name.as_bytes());
            put_bytes(&mut canonical_key, unit.as_bytes());
            put_varint(&mut canonical_key, labels.len() as u64);
            for (name, value) in &labels {
                put_bytes(&mut canonical_key, name.as_bytes());
                put_bytes(&mut canonical_key, value.as_bytes());
            }
            check_canonical_key(&canonical_key);
            let at = at.index(canonical_key.len());
            canonical_key[at] = byte;
            check_canonical_key(&canonical_key);
        }

        #[test]
        fn random_bytes_as_keys_do_not_panic(
            canonical_key in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            check_canonical_key(&canonical_key);
        }
    }

    #[test]
    fn sizes_at_the_limits_are_checked_as_they_are_read() {
        let series = |name: usize, value: usize, labels: usize| {
            let mut series = Series::new("n".repeat(name), SeriesKind::Gauge);
            for at in 0..labels {
                series = series.with_label(format!("l{at:03}"), "v".repeat(value));
            }
            series.canonical_key()
        };
        let sizes = [(1, 127, 1), (1, 128, 1), (1024, 1, 64), (1025, 1, 0), (1, 1, 65)];
        sizes
            .into_iter()
            .for_each(|(name, value, labels)| check_canonical_key(&series(name, value, labels)));
        let rest = CANONICAL_KEY_BYTES_MAX - series(1, 1, 1).len();
        (rest - 4..rest + 4).for_each(|value| check_canonical_key(&series(1, value, 1)));
        // A two-byte varint where one byte is enough.
        check_canonical_key(&[2, 0x81, 0, b'a', 0, 0]);
    }

    fn example() -> Series {
        Series::new("latency", SeriesKind::Histogram(Temporality::Delta))
            .with_unit("ns")
            .with_label("host", "b")
            .with_label("endpoint", "/a \"b\"")
            .validate()
            .unwrap()
    }

    #[test]
    fn canonical_keys_round_trip() {
        let series = example();
        assert_eq!(Series::from_canonical_key(&series.canonical_key()), Ok(series.clone()));
        assert_eq!(series.to_string(), r#"latency{endpoint="/a \"b\"",host="b"}"#);
        assert_eq!((series.label("host"), series.label("hos")), (Some("b"), None));
    }

    #[test]
    fn id_is_stable() {
        assert_eq!(example().id().to_string(), "98796741a25d0f182ccc77eb9b388a5d");
    }

    #[test]
    fn invalid_series_are_rejected() {
        let gauge = |name: &str| Series::new(name, SeriesKind::Gauge);
        assert!(gauge("").validate().is_err());
        assert!(gauge("a").with_label("b", "1").with_label("b", "2").validate().is_err());
        assert!(gauge("a").with_label("", "1").validate().is_err());
        assert!(gauge(&"a".repeat(2000)).validate().is_err());
        assert_eq!(gauge("a").with_label("b", ""), gauge("a"));
        let (mut canonical_key, more) =
            (gauge("a").canonical_key(), gauge("a").with_label("b", "c").canonical_key());
        assert!(Series::from_canonical_key(&more[..more.len() - 1]).is_err());
        canonical_key.push(0);
        assert!(Series::from_canonical_key(&canonical_key).is_err());
        canonical_key[0] = 18;
        assert!(Series::from_canonical_key(&canonical_key).is_err());
    }
}
