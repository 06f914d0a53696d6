//! Fields of a document.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use hist::codec::frame;
use hist::{Bracket, Mixture};
use model::{Gap, Series, SeriesKind, selector};
use query::LabelSet;
use serde_json::Value;

use crate::error::{Result, bail, unsuitable};

/// Value at a place of a document; absent fields are `null`.
#[derive(Clone, Copy)]
pub(crate) struct DocumentReader<'a> {
    name: &'a str,
    value: &'a Value,
}

impl<'a> DocumentReader<'a> {
    pub(crate) fn new(value: &'a Value) -> DocumentReader<'a> {
        DocumentReader { name: "document", value }
    }

    pub(crate) fn get(&self, name: &'a str) -> DocumentReader<'a> {
        DocumentReader { name, value: self.value.get(name).unwrap_or(&Value::Null) }
    }

    pub(crate) fn is_null(&self) -> bool {
        self.value.is_null()
    }

    fn expected<T>(&self, found: Option<T>, expected: &str) -> Result<T> {
        found.ok_or_else(|| {
            let found: String = self.value.to_string().chars().take(40).collect();
            unsuitable(format!(
                "cannot read the answer: field {}: found {found}, expected {expected}; is the \
                 server of another version?",
                self.name
            ))
        })
    }

    pub(crate) fn text(&self) -> Result<&'a str> {
        self.expected(self.value.as_str(), "a text")
    }

    pub(crate) fn optional_text(&self) -> Result<Option<&'a str>> {
        if self.is_null() { Ok(None) } else { self.text().map(Some) }
    }

    pub(crate) fn integer(&self) -> Result<i64> {
        self.expected(self.value.as_i64(), "an integer")
    }

    pub(crate) fn count(&self) -> Result<u64> {
        self.expected(self.value.as_u64(), "a count")
    }

    pub(crate) fn flag(&self) -> Result<bool> {
        self.expected(self.value.as_bool(), "true or false")
    }

    /// A number; NaN and infinities are texts.
    pub(crate) fn number(&self) -> Result<f64> {
        let number = match self.value.as_str() {
            Some("NaN") => Some(f64::NAN),
            Some("+Inf") => Some(f64::INFINITY),
            Some("-Inf") => Some(f64::NEG_INFINITY),
            _ => self.value.as_f64(),
        };
        self.expected(number, "a number")
    }

    /// A number, or this for `null`.
    pub(crate) fn number_or(&self, absent: f64) -> Result<f64> {
        if self.is_null() { Ok(absent) } else { self.number() }
    }

    pub(crate) fn list(&self) -> Result<impl Iterator<Item = DocumentReader<'a>> + use<'a>> {
        let name = self.name;
        let list = self.expected(self.value.as_array(), "a list")?;
        Ok(list.iter().map(move |value| DocumentReader { name, value }))
    }

    /// Statistic with its bounds; `null` is no bound.
    pub(crate) fn bracket(&self) -> Result<Bracket> {
        let (lower, upper) = (self.get("lower"), self.get("upper"));
        let unbounded = if lower.is_null() { f64::NEG_INFINITY } else { f64::INFINITY };
        Ok(Bracket {
            lower: lower.number_or(f64::NEG_INFINITY)?,
            estimate: self.get("estimate").number_or(unbounded)?,
            upper: upper.number_or(f64::INFINITY)?,
        })
    }

    pub(crate) fn count_bracket(&self) -> Result<Bracket<u64>> {
        Ok(Bracket {
            lower: self.get("lower").count()?,
            estimate: self.get("estimate").count()?,
            upper: self.get("upper").count()?,
        })
    }

    /// The distribution in the field `frames`.
    pub(crate) fn mixture(&self) -> Result<Mixture> {
        let mut mixture = Mixture::default();
        for frame in self.get("frames").list()? {
            let bytes = BASE64_STANDARD.decode(frame.text()?);
            let histogram = bytes.ok().and_then(|bytes| Some(frame::decode(&bytes).ok()?.0));
            mixture.add(&frame.expected(histogram, "a frame")?)?;
        }
        Ok(mixture)
    }

    pub(crate) fn labels(&self) -> Result<LabelSet> {
        let labels = self.expected(self.value.as_object(), "labels")?;
        let mut pairs = Vec::with_capacity(labels.len());
        for (name, value) in labels {
            let value = DocumentReader { name, value };
            pairs.push((name.as_str(), value.text()?));
        }
        Ok(LabelSet::new(pairs))
    }

    pub(crate) fn kind(&self) -> Result<SeriesKind> {
        let name = self.text()?;
        let known = selector::KINDS.iter().find(|(_, word)| *word == name);
        Ok(self.expected(known, "a kind of series")?.0)
    }

    /// The series with these fields: `super::series_fields`.
    pub(crate) fn series(&self) -> Result<Series> {
        let labels = self.get("labels").labels()?;
        let unit = self.get("unit").optional_text()?.unwrap_or("");
        let series = Series::new(self.get("name").text()?, self.get("kind").kind()?)
            .with_unit(unit)
            .with_labels(labels.iter());
        self.expected(series.validate().ok(), "a series")
    }

    pub(crate) fn gaps(&self) -> Result<Vec<Gap>> {
        self.list()?.map(|gap| gap.gap()).collect()
    }

    fn gap(&self) -> Result<Gap> {
        let producer = match self.get("producer").optional_text()? {
            None => None,
            Some(text) => match u64::from_str_radix(text, 16) {
                Ok(producer) => Some(producer),
                Err(_) => bail!("cannot read the answer: invalid producer {text:?}"),
            },
        };
        let lost = self.get("lost");
        Ok(Gap {
            start: self.get("start_ns").integer()?,
            end: self.get("end_ns").integer()?,
            producer,
            lost: if lost.is_null() { None } else { Some(lost.count()?) },
            reason: self.get("reason").text()?.to_owned(),
        })
    }
}
