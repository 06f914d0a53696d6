//! What tells one series from another: name, labels, unit and kind.
//!
//! The canonical form is bytes:
//!
//! ```text
//! kind      u8     0 histogram, 1 counter, 2 gauge, 3 text; plus 16 if cumulative
//! name      text   as in `wire.rs`
//! unit      text   empty if none
//! labels    varint how many; then each, by ascending name: name, value as texts
//! ```
//! A series' id is the first 16 bytes of the BLAKE3 hash of that form (github.com/BLAKE3-team/BLAKE3-specs):
//! two series of one id cannot be made on purpose, and a store compares forms all the same.

use std::fmt;

use hist::codec::header::Temporality;

use crate::error::{Error, Result};
use crate::wire::{Reader, put_bytes, put_varint};

/// Bytes of a metric's or label's name at the most.
pub const NAME_BYTES_MAX: usize = 1024;
/// Bytes of a unit at the most.
pub const UNIT_BYTES_MAX: usize = 64;
/// Labels of a series at the most.
pub const LABELS_MAX: usize = 64;
/// Bytes of a canonical form at the most.
pub const FORM_BYTES_MAX: usize = 16 << 10;

const CUMULATIVE: u8 = 16;

/// What a series holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Distributions.
    Histogram(Temporality),
    /// Numbers that add up.
    Counter(Temporality),
    /// Numbers that do not.
    Gauge,
    /// Texts: versions, deploys, annotations.
    Text,
}

impl Kind {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Histogram(Temporality::Delta) => "histograms",
            Kind::Histogram(Temporality::Cumulative) => "cumulative histograms",
            Kind::Counter(Temporality::Delta) => "counts",
            Kind::Counter(Temporality::Cumulative) => "cumulative counts",
            Kind::Gauge => "gauges",
            Kind::Text => "texts",
        }
    }

    /// Whether each sample holds everything since a start.
    pub fn is_cumulative(self) -> bool {
        let cumulative = Temporality::Cumulative;
        self == Kind::Histogram(cumulative) || self == Kind::Counter(cumulative)
    }

    /// Of the series with this canonical form; `None` if it is none.
    pub fn of_form(form: &[u8]) -> Option<Kind> {
        Kind::from_byte(*form.first()?)
    }

    fn to_byte(self) -> u8 {
        let tag = match self {
            Kind::Histogram(_) => 0,
            Kind::Counter(_) => 1,
            Kind::Gauge => 2,
            Kind::Text => 3,
        };
        if self.is_cumulative() { tag | CUMULATIVE } else { tag }
    }

    fn from_byte(byte: u8) -> Option<Kind> {
        let temporality =
            if byte & CUMULATIVE != 0 { Temporality::Cumulative } else { Temporality::Delta };
        match (byte & !CUMULATIVE, temporality) {
            (0, temporality) => Some(Kind::Histogram(temporality)),
            (1, temporality) => Some(Kind::Counter(temporality)),
            (2, Temporality::Delta) => Some(Kind::Gauge),
            (3, Temporality::Delta) => Some(Kind::Text),
            _ => None,
        }
    }
}

/// The number of a series: the same everywhere.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeriesId(pub [u8; 16]);

impl SeriesId {
    /// Of a canonical form.
    pub fn of_form(form: &[u8]) -> SeriesId {
        let hash = blake3::hash(form);
        SeriesId(*hash.as_bytes().first_chunk().expect("BUG: a hash has 32 bytes"))
    }
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

/// Names and values, by ascending name.
pub type Labels = Vec<(String, String)>;

/// A series.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Series {
    name: String,
    unit: String,
    kind: Kind,
    labels: Labels,
}

impl Series {
    /// A series without unit and labels. [`Self::checked`] is the last call of what makes one.
    pub fn new(name: impl Into<String>, kind: Kind) -> Series {
        Series { name: name.into(), unit: String::new(), kind, labels: Vec::new() }
    }

    /// With the unit of its values, as it is written after a number.
    #[must_use]
    pub fn with_unit(mut self, unit: impl Into<String>) -> Series {
        self.unit = unit.into();
        self
    }

    /// With one more label. A label without value is as no label.
    #[must_use]
    pub fn with_label(mut self, name: impl Into<String>, value: impl Into<String>) -> Series {
        let value = value.into();
        if !value.is_empty() {
            self.labels.push((name.into(), value));
        }
        self
    }

    /// With more labels.
    #[must_use]
    pub fn with_labels<N: Into<String>, V: Into<String>>(
        self,
        labels: impl IntoIterator<Item = (N, V)>,
    ) -> Series {
        labels.into_iter().fold(self, |series, (name, value)| series.with_label(name, value))
    }

    /// Sorts the labels, and refuses what may not be: sizes above their limits, a label given twice.
    pub fn checked(mut self) -> Result<Series> {
        self.labels.sort();
        size("a metric's name", self.name.len(), 1, NAME_BYTES_MAX, "bytes")?;
        size("a unit", self.unit.len(), 0, UNIT_BYTES_MAX, "bytes")?;
        size("a series", self.labels.len(), 0, LABELS_MAX, "labels")?;
        for (name, _) in &self.labels {
            size("a label's name", name.len(), 1, NAME_BYTES_MAX, "bytes")?;
        }
        if let Some(pair) = self.labels.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(Error::LabelTwice { name: pair[0].0.clone() });
        }
        size("a series", self.form().len(), 1, FORM_BYTES_MAX, "bytes")?;
        Ok(self)
    }

    /// The metric's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What a value is followed by; empty for plain numbers.
    pub fn unit(&self) -> &str {
        &self.unit
    }

    /// What it holds.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// By ascending name.
    pub fn labels(&self) -> &[(String, String)] {
        &self.labels
    }

    /// The value of a label.
    pub fn label(&self, name: &str) -> Option<&str> {
        let at = self.labels.binary_search_by(|label| label.0.as_str().cmp(name)).ok()?;
        Some(&self.labels[at].1)
    }

    /// The canonical form.
    pub fn form(&self) -> Vec<u8> {
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

    /// Its number.
    pub fn id(&self) -> SeriesId {
        SeriesId::of_form(&self.form())
    }

    /// Reads a canonical form; what is not in canonical order is refused.
    pub fn from_form(form: &[u8]) -> Result<Series> {
        let kind = Series::check_form(form)?;
        let mut reader = Reader::new(&form[1..]);
        let name = reader.text("name")?;
        let mut series = Series::new(name, kind).with_unit(reader.text("unit")?);
        let count = reader.count(2, "label count")?;
        for _ in 0..count {
            let name = reader.text("label name")?.to_owned();
            series.labels.push((name, reader.text("label value")?.to_owned()));
        }
        Ok(series)
    }

    /// Looks at all of a canonical form without keeping any of it: what the series holds.
    pub fn check_form(form: &[u8]) -> Result<Kind> {
        size("a series", form.len(), 1, FORM_BYTES_MAX, "bytes")?;
        let mut reader = Reader::new(form);
        let byte = reader.u8("kind")?;
        let kind = Kind::from_byte(byte).ok_or_else(|| Error::Invalid {
            offset: 0,
            field: "kind",
            found: byte.to_string(),
            expected: "0 to 3, or 16 or 17",
        })?;
        let name = reader.text("name")?;
        size("a metric's name", name.len(), 1, NAME_BYTES_MAX, "bytes")?;
        let unit = reader.text("unit")?;
        size("a unit", unit.len(), 0, UNIT_BYTES_MAX, "bytes")?;
        let count = reader.count(2, "label count")?;
        size("a series", count, 0, LABELS_MAX, "labels")?;
        // How long the form is where each number takes as few bytes as it can.
        let mut shortest = 1 + text_bytes(name) + text_bytes(unit) + varint_bytes(count);
        let mut before = "";
        for _ in 0..count {
            let offset = reader.offset();
            let name = reader.text("label name")?;
            size("a label's name", name.len(), 1, NAME_BYTES_MAX, "bytes")?;
            if name == before {
                return Err(Error::LabelTwice { name: name.to_owned() });
            }
            let value = reader.text("label value")?;
            if name < before || value.is_empty() {
                return Err(not_canonical(offset));
            }
            shortest += text_bytes(name) + text_bytes(value);
            before = name;
        }
        reader.finish()?;
        // Labels in another order or without value, and numbers of more bytes than they need, would give one
        // series several ids.
        if shortest == form.len() { Ok(kind) } else { Err(not_canonical(0)) }
    }
}

fn size(
    what: &'static str,
    found: usize,
    min: usize,
    max: usize,
    unit: &'static str,
) -> Result<()> {
    if (min..=max).contains(&found) {
        return Ok(());
    }
    Err(Error::Size { what, found, min, max, unit })
}

fn not_canonical(offset: usize) -> Error {
    Error::Invalid {
        offset,
        field: "form",
        found: "the form of a series, written in another way".to_owned(),
        expected: "the canonical form",
    }
}

/// Bytes that a length takes.
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

    /// What a form is, in the plainest way: what is read, put together, and written is the same bytes.
    fn plainly(form: &[u8]) -> Option<Series> {
        let mut reader = Reader::new(form);
        let kind = Kind::from_byte(reader.u8("").ok()?)?;
        let mut series = Series::new(reader.text("").ok()?, kind);
        series = series.with_unit(reader.text("").ok()?);
        for _ in 0..reader.count(2, "").ok()? {
            let name = reader.text("").ok()?.to_owned();
            series = series.with_label(name, reader.text("").ok()?);
        }
        let series = series.checked().ok()?;
        (series.form() == form).then_some(series)
    }

    #[track_caller]
    fn check_form(form: &[u8]) {
        let plainly = plainly(form);
        assert_eq!(Series::check_form(form).ok(), plainly.as_ref().map(Series::kind));
        assert_eq!(Series::from_form(form).ok(), plainly);
    }

    proptest! {
        #[test]
        fn a_form_is_checked_as_it_is_read(
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
            let mut form = vec![kind];
            put_bytes(&mut form, name.as_bytes());
            put_bytes(&mut form, unit.as_bytes());
            put_varint(&mut form, labels.len() as u64);
            for (name, value) in &labels {
                put_bytes(&mut form, name.as_bytes());
                put_bytes(&mut form, value.as_bytes());
            }
            check_form(&form);
            let at = at.index(form.len());
            form[at] = byte;
            check_form(&form);
        }

        #[test]
        fn any_bytes_are_a_form_or_none(form in prop::collection::vec(any::<u8>(), 0..40)) {
            check_form(&form);
        }
    }

    #[test]
    fn sizes_at_the_limits_are_checked_as_they_are_read() {
        let series = |name: usize, value: usize, labels: usize| {
            let mut series = Series::new("n".repeat(name), Kind::Gauge);
            for at in 0..labels {
                series = series.with_label(format!("l{at:03}"), "v".repeat(value));
            }
            series.form()
        };
        let sizes = [(1, 127, 1), (1, 128, 1), (1024, 1, 64), (1025, 1, 0), (1, 1, 65)];
        sizes
            .into_iter()
            .for_each(|(name, value, labels)| check_form(&series(name, value, labels)));
        let rest = FORM_BYTES_MAX - series(1, 1, 1).len();
        (rest - 4..rest + 4).for_each(|value| check_form(&series(1, value, 1)));
        // A length of two bytes where one is enough.
        check_form(&[2, 0x81, 0, b'a', 0, 0]);
    }

    fn example() -> Series {
        Series::new("latency", Kind::Histogram(Temporality::Delta))
            .with_unit("ns")
            .with_label("host", "b")
            .with_label("endpoint", "/a \"b\"")
            .checked()
            .unwrap()
    }

    #[test]
    fn forms_come_back() {
        let series = example();
        assert_eq!(Series::from_form(&series.form()), Ok(series.clone()));
        assert_eq!(series.to_string(), r#"latency{endpoint="/a \"b\"",host="b"}"#);
        assert_eq!((series.label("host"), series.label("hos")), (Some("b"), None));
    }

    #[test]
    fn the_id_is_fixed_for_ever() {
        assert_eq!(example().id().to_string(), "98796741a25d0f182ccc77eb9b388a5d");
    }

    #[test]
    fn what_may_not_be_is_refused() {
        let gauge = |name: &str| Series::new(name, Kind::Gauge);
        assert!(gauge("").checked().is_err());
        assert!(gauge("a").with_label("b", "1").with_label("b", "2").checked().is_err());
        assert!(gauge("a").with_label("", "1").checked().is_err());
        assert!(gauge(&"a".repeat(2000)).checked().is_err());
        assert_eq!(gauge("a").with_label("b", ""), gauge("a"));
        let (mut form, more) = (gauge("a").form(), gauge("a").with_label("b", "c").form());
        assert!(Series::from_form(&more[..more.len() - 1]).is_err());
        form.push(0);
        assert!(Series::from_form(&form).is_err());
        form[0] = 18;
        assert!(Series::from_form(&form).is_err());
    }
}
