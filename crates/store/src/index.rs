//! Which series there are, and which of them a selector picks. In memory, for one store.
//!
//! A series is known by a [`Number`]. Its canonical form stands in one place, and every text of the index (names,
//! values) is a place in the form that had it first. For each value of each label there are the numbers of the
//! series that have it, ascending. Nothing is ever taken out.
//!
//! Memory, with six labels and forms of some 150 bytes: 233 bytes a series where labels have up to 10,000 values, 321
//! where two of them are different for each series, at a million series; up to 387 just after tables have grown.
//! `soak_a_million_series_fit` measures it by the allocator, and prints what selections take.

mod cardinality;
mod forms;
mod label;
mod load;
mod select;
mod table;

#[cfg(test)]
mod tests;

use std::hash::{BuildHasher, RandomState};

use model::selector::KINDS;
use model::wire::Reader;
use model::{Kind, Selector, Series, SeriesId};

pub use self::cardinality::{Cardinality, LabelCardinality};
use self::forms::{Forms, Text};
use self::label::Label;
use self::table::Table;

/// The place of a series in this index: dense, from 0, never reused while the store is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Number(pub(crate) u32);

/// What an index holds at the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Series in all. More than 2^32 − 1 are never held.
    pub series_max: u64,
    /// Values of one label, and names of metrics.
    pub values_per_label_max: u64,
    /// Series of one metric.
    pub series_per_metric_max: u64,
}

impl Default for Limits {
    /// Ten million series take 2.3 to 4 GB. A label of a million values is a mistake nearly always.
    fn default() -> Limits {
        Limits {
            series_max: 10_000_000,
            values_per_label_max: 1_000_000,
            series_per_metric_max: 1_000_000,
        }
    }
}

/// Why a series was not taken. The index is then as it was.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// Not a canonical form. Who sent it is to blame.
    #[error(transparent)]
    Form(#[from] model::Error),
    /// Two forms of one hash, which nobody can make: what is stored was damaged, or the hash is broken.
    #[error("{new} has the id {id}, which is that of {known}; rename one of them")]
    SameId {
        /// Of both.
        id: SeriesId,
        /// The series that is known.
        known: String,
        /// The series that was refused.
        new: String,
    },
    /// [`Limits::series_max`].
    #[error(
        "{series} would be series {found} of at most {max} (series_max): \
         raise the limit, or see in the cardinality what could go"
    )]
    Series {
        /// The series that was refused.
        series: String,
        /// How many there would be.
        found: u64,
        /// How many there may be.
        max: u64,
    },
    /// [`Limits::series_per_metric_max`].
    #[error(
        "metric {metric} would have {found} series of at most {max} (series_per_metric_max): \
         leave out a label that says too much, or raise the limit"
    )]
    SeriesPerMetric {
        /// Its name.
        metric: String,
        /// How many there would be.
        found: u64,
        /// How many there may be.
        max: u64,
    },
    /// [`Limits::values_per_label_max`].
    #[error(
        "label {label} of metric {metric} would have {found} values of at most {max} (values_per_label_max): \
         leave the label out if each request, user or session has its own, or raise the limit"
    )]
    ValuesPerLabel {
        /// Of the series that was refused.
        metric: String,
        /// The label's name.
        label: String,
        /// How many there would be.
        found: u64,
        /// How many there may be.
        max: u64,
    },
}

/// The series of a store.
#[derive(Debug)]
pub(crate) struct Index {
    limits: Limits,
    /// Keyed at random, so that nobody can choose texts that all hash alike.
    hasher: RandomState,
    forms: Forms,
    by_id: Table,
    names: Label,
    units: Label,
    /// As in [`KINDS`].
    kinds: [Vec<u32>; KINDS.len()],
    labels: Vec<Label>,
    by_label_name: Table,
}

impl Index {
    /// Without series.
    pub(crate) fn new(limits: Limits) -> Index {
        Index {
            limits,
            hasher: RandomState::new(),
            forms: Forms::default(),
            by_id: Table::default(),
            names: Label::default(),
            units: Label::default(),
            kinds: Default::default(),
            labels: Vec::new(),
            by_label_name: Table::default(),
        }
    }

    /// Whether a series of that form is known, or may be taken in: it is canonical, and within the limits.
    /// `others` are new too and come before it. Whether it is new.
    pub(crate) fn admit(&self, form: &[u8], others: u64) -> Result<bool, Refused> {
        let id = SeriesId::of_form(form);
        if self.known_form(&id, form)?.is_some() {
            return Ok(false);
        }
        let series = Series::from_form(form)?;
        let found = self.forms.len() as u64 + others + 1;
        let max = self.limits.series_max.min(u64::from(u32::MAX));
        if found > max {
            return Err(Refused::Series { series: series.to_string(), found, max });
        }
        self.check(&series, &self.look_up(form)).map(|()| true)
    }

    /// The number of the series of that form, which is taken in if it was not known, beyond any limit: what
    /// the journal holds was admitted, and perhaps under other limits.
    pub(crate) fn insert(&mut self, form: &[u8]) -> Result<Number, Refused> {
        self.insert_as(SeriesId::of_form(form), form)
    }

    fn insert_as(&mut self, id: SeriesId, form: &[u8]) -> Result<Number, Refused> {
        if let Some(number) = self.known_form(&id, form)? {
            return Ok(number);
        }
        let series = Series::from_form(form)?;
        if self.forms.len() == u32::MAX {
            let max = u64::from(u32::MAX);
            return Err(Refused::Series { series: series.to_string(), found: max + 1, max });
        }
        let tags = self.look_up(form);
        Ok(self.take_in(id, series.kind(), form, &tags))
    }

    /// The number of a series whose form is known.
    fn known_form(&self, id: &SeriesId, form: &[u8]) -> Result<Option<Number>, Refused> {
        let Some(number) = self.number(id) else { return Ok(None) };
        if self.form(number) == form {
            return Ok(Some(number));
        }
        let new = Series::from_form(form)?.to_string();
        Err(Refused::SameId { id: *id, known: self.series(number).to_string(), new })
    }

    /// Name, unit, and labels of a form, with what is known of them.
    fn look_up(&self, form: &[u8]) -> Vec<Found> {
        let number = self.forms.len();
        let parts = Parts::of(form);
        let text = |part: &[u8]| Text::within(number, form, part);
        let mut tags = Vec::with_capacity(2 + parts.labels_count);
        for (tag, label, part) in
            [(Tag::Name, &self.names, parts.name), (Tag::Unit, &self.units, parts.unit)]
        {
            if !part.is_empty() {
                let hash = self.hash(part);
                let value = label.find(&self.forms, hash, part);
                tags.push(Found { tag, value, value_hash: hash, value_text: text(part) });
            }
        }
        for (name, part) in parts.labels() {
            let name_hash = self.hash(name);
            let known = self.label_at(name_hash, name);
            let hash = self.hash(part);
            let value = known.and_then(|at| self.labels[at].find(&self.forms, hash, part));
            let tag = match known {
                Some(at) => Tag::Label(at),
                None => Tag::NewLabel(name_hash, text(name)),
            };
            tags.push(Found { tag, value, value_hash: hash, value_text: text(part) });
        }
        tags
    }

    fn check(&self, series: &Series, tags: &[Found]) -> Result<(), Refused> {
        let max = self.limits.values_per_label_max;
        let names = ["__name", "__unit"]
            .into_iter()
            .filter(|name| *name == "__name" || !series.unit().is_empty());
        let names = names.chain(series.labels().iter().map(|(name, _)| name.as_str()));
        for (tag, name) in tags.iter().zip(names) {
            let values = self.known(tag).map_or(0, |label| label.values.len() as u64);
            if tag.value.is_none() && values >= max {
                let (metric, label) = (series.name().to_owned(), name.to_owned());
                return Err(Refused::ValuesPerLabel { metric, label, found: values + 1, max });
            }
        }
        let known = tags[0].value.map_or(0, |at| self.names.values[at as usize].numbers.len());
        let (found, max) = (known as u64 + 1, self.limits.series_per_metric_max);
        if found > max {
            let metric = series.name().to_owned();
            return Err(Refused::SeriesPerMetric { metric, found, max });
        }
        Ok(())
    }

    fn known(&self, found: &Found) -> Option<&Label> {
        match found.tag {
            Tag::Name => Some(&self.names),
            Tag::Unit => Some(&self.units),
            Tag::Label(at) => Some(&self.labels[at]),
            Tag::NewLabel(..) => None,
        }
    }

    fn take_in(&mut self, id: SeriesId, kind: Kind, form: &[u8], tags: &[Found]) -> Number {
        let number = self.forms.push(form, id);
        self.by_id.insert(hash_of_id(&id), number);
        self.kinds[kind_at(kind)].push(number);
        for found in tags {
            let label = match found.tag {
                Tag::Name => &mut self.names,
                Tag::Unit => &mut self.units,
                Tag::Label(at) => &mut self.labels[at],
                Tag::NewLabel(hash, name) => {
                    self.by_label_name.insert(hash, self.labels.len() as u32);
                    self.labels.push(Label::named(name));
                    self.labels.last_mut().expect("BUG: just pushed")
                }
            };
            label.add(found.value, found.value_hash, found.value_text, number);
        }
        Number(number)
    }

    fn hash(&self, text: &[u8]) -> u64 {
        self.hasher.hash_one(text)
    }

    fn label_at(&self, hash: u64, name: &[u8]) -> Option<usize> {
        let is_it = |at: u32| self.forms.text(self.labels[at as usize].name).as_bytes() == name;
        self.by_label_name.find(hash, is_it).map(|at| at as usize)
    }

    /// The label of that name.
    fn label(&self, name: &str) -> Option<&Label> {
        let at = self.label_at(self.hash(name.as_bytes()), name.as_bytes())?;
        Some(&self.labels[at])
    }

    /// The number of a series, if it is known.
    pub(crate) fn number(&self, id: &SeriesId) -> Option<Number> {
        self.by_id.find(hash_of_id(id), |number| self.forms.id(number) == *id).map(Number)
    }

    /// The id of a series.
    ///
    /// # Panics
    ///
    /// Here and below, if the number is not of this index.
    pub(crate) fn id(&self, number: Number) -> SeriesId {
        self.forms.id(number.0)
    }

    /// The canonical form of a series.
    pub(crate) fn form(&self, number: Number) -> &[u8] {
        self.forms.form(number.0)
    }

    /// The series itself, taken from its form.
    pub(crate) fn series(&self, number: Number) -> Series {
        Series::from_form(self.form(number)).expect("BUG: a form was checked when it was taken in")
    }

    /// What a series holds.
    pub(crate) fn kind(&self, number: Number) -> Kind {
        Kind::of_form(self.form(number)).expect("BUG: a form was checked when it was taken in")
    }

    /// How many series there are.
    pub(crate) fn len(&self) -> usize {
        self.forms.len() as usize
    }

    /// The series that a selector picks, ascending.
    pub(crate) fn select(&self, selector: &Selector) -> Vec<Number> {
        select::select(self, selector)
    }

    /// What there is how many of, the `top` most of each. Looks at every value of every label.
    pub(crate) fn cardinality(&self, top: usize) -> Cardinality {
        cardinality::cardinality(self, top)
    }

    /// Bytes of memory, without what the allocator adds. Looks at every value of every label.
    pub(crate) fn memory_bytes(&self) -> usize {
        let kinds: usize =
            self.kinds.iter().map(|numbers| numbers.capacity() * size_of::<u32>()).sum();
        let labels: usize = self.labels.iter().map(Label::memory_bytes).sum();
        let tables = self.by_id.memory_bytes() + self.by_label_name.memory_bytes();
        let special = self.names.memory_bytes() + self.units.memory_bytes();
        let labels = labels + self.labels.capacity() * size_of::<Label>();
        size_of::<Index>() + self.forms.memory_bytes() + kinds + labels + tables + special
    }
}

/// A tag of a form that is to be taken in.
struct Found {
    tag: Tag,
    /// Where among the tag's values it is, if it was there before.
    value: Option<u32>,
    value_hash: u64,
    value_text: Text,
}

enum Tag {
    Name,
    Unit,
    Label(usize),
    /// The name's hash and place.
    NewLabel(u64, Text),
}

/// An id is a hash already.
fn hash_of_id(id: &SeriesId) -> u64 {
    u64::from_le_bytes(*id.0.first_chunk().expect("BUG: an id has 16 bytes"))
}

/// Where in [`KINDS`] a kind is.
fn kind_at(kind: Kind) -> usize {
    KINDS.iter().position(|(known, _)| *known == kind).expect("BUG: a kind has a word")
}

/// A form that was checked, in its parts.
struct Parts<'a> {
    name: &'a [u8],
    unit: &'a [u8],
    labels_count: usize,
    rest: Reader<'a>,
}

const CHECKED: &str = "BUG: a form was checked when it was taken in";

impl<'a> Parts<'a> {
    fn of(form: &'a [u8]) -> Parts<'a> {
        let mut rest = Reader::new(form);
        rest.u8("kind").expect(CHECKED);
        let name = rest.bytes("name").expect(CHECKED);
        let unit = rest.bytes("unit").expect(CHECKED);
        let labels_count = rest.count(2, "label count").expect(CHECKED);
        Parts { name, unit, labels_count, rest }
    }

    /// Names and values, by ascending name.
    fn labels(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let mut rest = self.rest.clone();
        (0..self.labels_count).map(move |_| {
            let name = rest.bytes("label name").expect(CHECKED);
            (name, rest.bytes("label value").expect(CHECKED))
        })
    }
}
