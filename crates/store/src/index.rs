//! Series index and selection. In memory, for one store.
//!
//! A series is known by a [`Number`]. Its canonical form stands in one place, and every text of the
//! index (names, values) is a place in the form of a series that has it. For each value of each
//! label there are the numbers of the series that have it, ascending. A series that is deleted
//! leaves its number, which nobody gets again.
//!
//! Memory, with six labels and forms of some 150 bytes: 235 bytes a series where labels have up to
//! 10,000 values, 323 where two of them are different for each series, at a million series; up to
//! 387 just after tables have grown. `soak_a_million_series_fit` measures it by the allocator, and
//! prints what selections take.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

mod admission;
mod cardinality;
mod label;
mod load;
mod select;
mod series_keys;
mod series_owner;
mod table;

#[cfg(test)]
mod tests;

use std::hash::{BuildHasher, RandomState};

use model::selector::KINDS;
use model::wire::WireReader;
use model::{Selector, Series, SeriesId, SeriesKind};

pub use self::admission::NewSeries;
pub use self::cardinality::{Cardinality, LabelCardinality};
use self::label::LabelIndex;
use self::series_keys::{KeyText, SeriesKeys};
use self::series_owner::{OwnerCount, OwnerTable, SeriesOwner};
use self::table::HashIndex;

/// The place of a series in this index: dense, from 0, never reused while the store is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SeriesNumber(pub(crate) u32);

/// Cardinality limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CardinalityLimits {
    /// Series in all. More than 2^32 − 1 are never held.
    pub series_max: u64,
    /// Series of one producer.
    pub series_per_producer_max: u64,
    /// Series that one producer has of one metric.
    pub series_per_metric_max: u64,
    /// Values that one producer brings of one label, and names of metrics.
    pub values_per_label_max: u64,
}

impl Default for CardinalityLimits {
    /// Ten million series take 2.3 to 4 GB. A million of one producer are a mistake nearly always.
    fn default() -> CardinalityLimits {
        CardinalityLimits {
            series_max: 10_000_000,
            series_per_producer_max: 1_000_000,
            series_per_metric_max: 1_000_000,
            values_per_label_max: 1_000_000,
        }
    }
}

/// Why a series was rejected. The index is then as it was.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CardinalityError {
    /// Not a canonical form. Who sent it is to blame.
    #[error(transparent)]
    InvalidKey(#[from] model::Error),
    /// Two forms of one hash, which nobody can make: what is stored was damaged, or the hash is
    /// broken.
    #[error("{new} has the id {id}, which is that of {existing}; rename one of them")]
    SameId {
        /// Of both.
        id: SeriesId,
        /// The series that is known.
        existing: String,
        /// The series that was refused.
        new: String,
    },
    /// [`Limits::series_max`].
    #[error(
        "cannot store new series {series}: series limit ({max}) reached; \
         delete series, or raise [store] max_series"
    )]
    Series {
        /// The series that was refused.
        series: String,
        /// How many there would be.
        found: u64,
        /// How many there may be.
        max: u64,
    },
    /// [`Limits::series_per_producer_max`].
    #[error(
        "cannot store new series {series}: series limit of its producer ({max}) reached; \
         delete series of it, or raise [store] max_producer_series"
    )]
    SeriesPerProducer {
        /// The series that was refused.
        series: String,
        /// How many the producer would have.
        found: u64,
        /// How many it may have.
        max: u64,
    },
    /// [`Limits::series_per_metric_max`].
    #[error(
        "cannot store a new series of metric {metric}: series limit of a metric and a producer \
         ({max}) reached; leave out a label with many values, or raise [store] max_metric_series"
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
        "cannot store a new value of label {label} of metric {metric}: value limit of a label and \
         a producer ({max}) reached; leave the label out if each request, user or session has its \
         own value, or raise [store] max_label_values"
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

impl CardinalityError {
    /// The limit that was reached, as the settings name it; `None` if it is about the series alone.
    pub fn limit(&self) -> Option<&'static str> {
        match self {
            CardinalityError::InvalidKey(_) | CardinalityError::SameId { .. } => None,
            CardinalityError::Series { .. } => Some("max_series"),
            CardinalityError::SeriesPerProducer { .. } => Some("max_producer_series"),
            CardinalityError::SeriesPerMetric { .. } => Some("max_metric_series"),
            CardinalityError::ValuesPerLabel { .. } => Some("max_label_values"),
        }
    }
}

/// The series of a store.
#[derive(Debug)]
pub(crate) struct SeriesIndex {
    limits: CardinalityLimits,
    /// Keyed at random, so that nobody can choose texts that all hash alike.
    hasher: RandomState,
    keys: SeriesKeys,
    owners: OwnerTable,
    by_id: HashIndex,
    names: LabelIndex,
    units: LabelIndex,
    /// As in [`KINDS`].
    kinds: [Vec<u32>; KINDS.len()],
    labels: Vec<LabelIndex>,
    by_label_name: HashIndex,
}

impl SeriesIndex {
    /// Without series.
    pub(crate) fn new(limits: CardinalityLimits) -> SeriesIndex {
        SeriesIndex {
            limits,
            hasher: RandomState::new(),
            keys: SeriesKeys::default(),
            owners: OwnerTable::default(),
            by_id: HashIndex::default(),
            names: LabelIndex::default(),
            units: LabelIndex::default(),
            kinds: Default::default(),
            labels: Vec::new(),
            by_label_name: HashIndex::default(),
        }
    }

    /// The number of the series of that form, which is taken in as one of `producer` if it was not
    /// known, beyond any limit: what the journal holds was admitted, and perhaps under other
    /// limits.
    pub(crate) fn insert(
        &mut self,
        form: &[u8],
        producer: Option<u64>,
    ) -> Result<SeriesNumber, CardinalityError> {
        self.insert_as(SeriesId::from_canonical_key(form), form, producer)
    }

    fn insert_as(
        &mut self,
        id: SeriesId,
        form: &[u8],
        producer: Option<u64>,
    ) -> Result<SeriesNumber, CardinalityError> {
        if let Some(number) = self.find_by_key(&id, form)? {
            return Ok(number);
        }
        let series = Series::from_canonical_key(form)?;
        if self.keys.len() == u32::MAX {
            let max = u64::from(u32::MAX);
            return Err(CardinalityError::Series {
                series: series.to_string(),
                found: max + 1,
                max,
            });
        }
        let tags = self.parse_key(form);
        let owner = self.owners.find_or_add(producer);
        Ok(self.insert_new((id, series.kind(), owner), form, &tags))
    }

    /// The number of a series whose form is known.
    fn find_by_key(
        &self,
        id: &SeriesId,
        form: &[u8],
    ) -> Result<Option<SeriesNumber>, CardinalityError> {
        let Some(number) = self.number(id) else { return Ok(None) };
        if self.key(number) == form {
            return Ok(Some(number));
        }
        let new = Series::from_canonical_key(form)?.to_string();
        Err(CardinalityError::SameId { id: *id, existing: self.series(number).to_string(), new })
    }

    /// Name, unit, and labels of a form, with what is known of them.
    fn parse_key(&self, form: &[u8]) -> Vec<ParsedTag> {
        let number = self.keys.len();
        let parts = ParsedKey::parse(form);
        let text = |part: &[u8]| KeyText::locate(number, form, part);
        let mut tags = Vec::with_capacity(parts.labels_count.saturating_add(2));
        for (tag, label, part) in [
            (LabelState::Name, &self.names, parts.name),
            (LabelState::Unit, &self.units, parts.unit),
        ] {
            if !part.is_empty() {
                let hash = self.hash(part);
                let value = label.find(&self.keys, hash, part);
                tags.push(ParsedTag {
                    state: tag,
                    value,
                    value_hash: hash,
                    value_text: text(part),
                });
            }
        }
        for (name, part) in parts.labels() {
            let name_hash = self.hash(name);
            let known = self.label_at(name_hash, name);
            let hash = self.hash(part);
            let value = known.and_then(|at| self.labels[at].find(&self.keys, hash, part));
            let tag = match known {
                Some(at) => LabelState::Label(at),
                None => LabelState::NewLabel(name_hash, text(name)),
            };
            tags.push(ParsedTag { state: tag, value, value_hash: hash, value_text: text(part) });
        }
        tags
    }

    fn known_label(&self, found: &ParsedTag) -> Option<&LabelIndex> {
        match found.state {
            LabelState::Name => Some(&self.names),
            LabelState::Unit => Some(&self.units),
            LabelState::Label(at) => Some(&self.labels[at]),
            LabelState::NewLabel(..) => None,
        }
    }

    fn insert_new(
        &mut self,
        (id, kind, owner): (SeriesId, SeriesKind, SeriesOwner),
        form: &[u8],
        tags: &[ParsedTag],
    ) -> SeriesNumber {
        let number = self.keys.push(form, id, owner);
        self.owners.add_series(owner);
        self.by_id.insert(hash_of_id(&id), number);
        self.kinds[kind_at(kind)].push(number);
        for found in tags {
            let (label, counted) = match found.state {
                LabelState::Name => (&mut self.names, OwnerCount::Names),
                LabelState::Unit => (&mut self.units, OwnerCount::Units),
                LabelState::Label(at) => (&mut self.labels[at], OwnerCount::OfLabel(at)),
                LabelState::NewLabel(hash, name) => {
                    let at = self.labels.len();
                    self.by_label_name.insert(hash, at as u32);
                    self.labels.push(LabelIndex::new_named(name));
                    (&mut self.labels[at], OwnerCount::OfLabel(at))
                }
            };
            match (&found.state, found.value) {
                (_, None) => self.owners.add(counted, owner),
                (LabelState::Name, Some(at)) => self.owners.add(OwnerCount::OfMetric(at), owner),
                _ => {}
            }
            label.add(found.value, found.value_hash, found.value_text, number);
        }
        SeriesNumber(number)
    }

    fn hash(&self, text: &[u8]) -> u64 {
        self.hasher.hash_one(text)
    }

    fn label_at(&self, hash: u64, name: &[u8]) -> Option<usize> {
        let is_it = |at: u32| self.keys.text(self.labels[at as usize].name).as_bytes() == name;
        self.by_label_name.find(hash, is_it).map(|at| at as usize)
    }

    /// The label of that name.
    fn label(&self, name: &str) -> Option<&LabelIndex> {
        let at = self.label_at(self.hash(name.as_bytes()), name.as_bytes())?;
        Some(&self.labels[at])
    }

    /// The number of a series, if it is known.
    pub(crate) fn number(&self, id: &SeriesId) -> Option<SeriesNumber> {
        self.by_id.find(hash_of_id(id), |number| self.keys.id(number) == *id).map(SeriesNumber)
    }

    /// The id of a series.
    ///
    /// # Panics
    ///
    /// Here and below, if the number is not of this index.
    pub(crate) fn id(&self, number: SeriesNumber) -> SeriesId {
        self.keys.id(number.0)
    }

    /// The canonical form of a series.
    pub(crate) fn key(&self, number: SeriesNumber) -> &[u8] {
        self.keys.key(number.0)
    }

    /// The series itself, taken from its form.
    pub(crate) fn series(&self, number: SeriesNumber) -> Series {
        let Ok(series) = Series::from_canonical_key(self.key(number)) else {
            panic!("BUG: the key of series {} was not checked, or the series is deleted", number.0)
        };
        series
    }

    /// What a series holds.
    pub(crate) fn kind(&self, number: SeriesNumber) -> SeriesKind {
        let Some(kind) = SeriesKind::from_canonical_key(self.key(number)) else {
            panic!("BUG: the key of series {} was not checked, or the series is deleted", number.0)
        };
        kind
    }

    /// How many numbers there are, those of deleted series among them.
    pub(crate) fn len(&self) -> usize {
        self.keys.len() as usize
    }

    /// How many series there are.
    pub(crate) fn live(&self) -> usize {
        self.keys.len().saturating_sub(self.keys.deleted()) as usize
    }

    /// Whether the series of a number was not deleted since somebody asked for the number.
    pub(crate) fn is_live(&self, number: SeriesNumber) -> bool {
        self.keys.is_live(number.0)
    }

    /// The producer that a series counts for, if it is known.
    pub(crate) fn producer(&self, number: SeriesNumber) -> Option<u64> {
        self.owners.producer(self.keys.owner(number.0))
    }

    /// Takes series out. Their numbers stay theirs, and [`Self::id`] still answers for them; values
    /// of labels that only they had are free. Looks at every value of every label.
    pub(crate) fn delete(&mut self, numbers: &[SeriesNumber]) {
        let mut is_deleted = vec![false; self.len()];
        for number in numbers.iter().filter(|number| self.keys.is_live(number.0)) {
            is_deleted[number.0 as usize] = true;
        }
        let gone: Vec<u32> =
            (0..).zip(&is_deleted).filter_map(|(n, gone)| gone.then_some(n)).collect();
        if gone.is_empty() {
            return;
        }
        gone.iter().for_each(|number| self.owners.remove_series(self.keys.owner(*number)));
        self.owners.clear_counts();
        self.by_id.renumber(|number| (!is_deleted[number as usize]).then_some(number));
        for numbers in &mut self.kinds {
            numbers.retain(|number| !is_deleted[*number as usize]);
        }
        let forms = &self.keys;
        let text_in = |number: u32, part: for<'p> fn(&ParsedKey<'p>) -> &'p [u8]| {
            let form = forms.key(number);
            KeyText::locate(number, form, part(&ParsedKey::parse(form)))
        };
        self.names.delete(&is_deleted, &|number| text_in(number, |parts| parts.name));
        self.units.delete(&is_deleted, &|number| text_in(number, |parts| parts.unit));
        let mut places = vec![None; self.labels.len()];
        let labels = std::mem::take(&mut self.labels);
        for (mut label, place) in labels.into_iter().zip(&mut places) {
            let name = forms.text(label.name).as_bytes();
            let texts_in = |number: u32| {
                let form = forms.key(number);
                let found = ParsedKey::parse(form).labels().find(|(label, _)| *label == name);
                let Some((name, value)) = found else {
                    panic!("BUG: series {number} does not have the label of its values")
                };
                (KeyText::locate(number, form, name), KeyText::locate(number, form, value))
            };
            label.delete(&is_deleted, &|number| texts_in(number).1);
            let Some(first) = label.values.first() else { continue };
            label.name = texts_in(first.postings.first()).0;
            *place = Some(self.labels.len() as u32);
            self.labels.push(label);
        }
        self.by_label_name.renumber(|at| places[at as usize]);
        self.keys.delete(&gone);
    }

    /// The series that a selector picks, ascending.
    pub(crate) fn select(&self, selector: &Selector) -> Vec<SeriesNumber> {
        select::select(self, selector)
    }

    /// What there is how many of, the `top` most of each. Looks at every value of every label.
    pub(crate) fn cardinality(&self, top: usize) -> Cardinality {
        cardinality::cardinality(self, top)
    }

    /// Bytes of memory, without what the allocator adds. Looks at every value of every label.
    pub(crate) fn memory_bytes(&self) -> usize {
        let kinds = self.kinds.iter().map(table::capacity_bytes);
        let labels = self.labels.iter().map(LabelIndex::memory_bytes);
        let others = [
            size_of::<SeriesIndex>(),
            self.keys.memory_bytes(),
            table::capacity_bytes(&self.labels),
            self.by_id.memory_bytes(),
            self.by_label_name.memory_bytes(),
            self.names.memory_bytes(),
            self.units.memory_bytes(),
            self.owners.memory_bytes(),
        ];
        kinds.chain(labels).chain(others).sum()
    }
}

/// A series by its place in the index, for views.
#[derive(Clone, Debug)]
pub struct SeriesEntryRef {
    pub(crate) number: SeriesNumber,
    /// What it is.
    pub series: Series,
}

/// Tag of a key being inserted.
struct ParsedTag {
    state: LabelState,
    /// Where among the tag's values it is, if it was there before.
    value: Option<u32>,
    value_hash: u64,
    value_text: KeyText,
}

enum LabelState {
    Name,
    Unit,
    Label(usize),
    /// The name's hash and place.
    NewLabel(u64, KeyText),
}

/// An id is a hash already.
fn hash_of_id(id: &SeriesId) -> u64 {
    u64::from_le_bytes(id.0.first_chunk().copied().unwrap_or_default())
}

/// Where in [`KINDS`] a kind is.
fn kind_at(kind: SeriesKind) -> usize {
    let Some(at) = KINDS.iter().position(|(known, _)| *known == kind) else {
        panic!("BUG: kind {kind:?} is not in the table of kinds")
    };
    at
}

/// Parts of a validated canonical key.
struct ParsedKey<'a> {
    name: &'a [u8],
    unit: &'a [u8],
    labels_count: usize,
    labels: WireReader<'a>,
}

impl<'a> ParsedKey<'a> {
    fn parse(form: &'a [u8]) -> ParsedKey<'a> {
        let Ok(parsed) = ParsedKey::try_parse(form) else {
            panic!("BUG: a key of {} bytes was not checked when it was taken in", form.len())
        };
        parsed
    }

    fn try_parse(form: &'a [u8]) -> Result<ParsedKey<'a>, model::Error> {
        let mut rest = WireReader::new(form);
        rest.u8("kind")?;
        let (name, unit) = (rest.bytes("name")?, rest.bytes("unit")?);
        let labels_count = rest.count(2, "label count")?;
        Ok(ParsedKey { name, unit, labels_count, labels: rest })
    }

    /// Names and values, by ascending name.
    fn labels(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let mut rest = self.labels.clone();
        // All of them: the key was checked.
        (0..self.labels_count)
            .map_while(move |_| Some((rest.bytes("name").ok()?, rest.bytes("value").ok()?)))
    }
}
