//! Series index and selection, in memory, for one store.
//!
//! Identities of a series: `SeriesId` is the hash of its canonical key, equal on all machines;
//! [`SeriesNumber`] is its dense number in this index (Prometheus: series reference), valid while
//! the store is open. `BatchSeries` names a series in a batch, by ID or key;
//! [`SelectedSeries`] a selected series with its number; `SeriesHandle` of crate `query` a series
//! of a query's source.
//!
//! The canonical key of a series is stored once. Names and values are not copied: the index stores
//! their location in the key of one series that has them. Each value of each label has the
//! ascending numbers of the series that have it. The number of a deleted series is never reused.
//!
//! Memory, with six labels and keys of about 150 bytes, at a million series: 237 bytes per series
//! if labels have up to 10,000 values, 325 if two labels have a unique value per series; up to 391
//! right after tables have grown. `soak_a_million_series_fit` measures this with the allocator's
//! statistics, and prints the cost of selections.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

mod admission;
mod cardinality;
mod label;
mod load;
mod producer_sets;
mod producer_table;
mod producers;
mod select;
mod selected_series;
mod series_keys;
mod table;

#[cfg(test)]
mod tests;

use std::hash::{BuildHasher, RandomState};

use model::selector::KINDS;
use model::wire::WireReader;
use model::{Selector, Series, SeriesId, SeriesKind, spell_unit};

pub use self::admission::NewSeries;
pub use self::cardinality::{Cardinality, LabelCardinality};
use self::label::LabelIndex;
use self::producer_sets::ProducerSets;
use self::producer_table::{ProducerCount, ProducerNumber, ProducerTable};
pub(crate) use self::selected_series::metric_of_key;
pub use self::selected_series::{SelectedSeries, SeriesEntryRef, SeriesKeyRef};
use self::series_keys::{KeyText, SeriesKeys};
use self::table::HashIndex;

/// Position of a series in this index: dense, from 0, never reused while the store is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SeriesNumber(pub(crate) u32);

/// Cardinality limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CardinalityLimits {
    /// Maximum number of series. The hard limit is 2^32 − 1.
    pub max_series: u64,
    /// Maximum series per producer.
    pub max_producer_series: u64,
    /// Maximum series per metric and producer.
    pub max_metric_series: u64,
    /// Maximum values per label and producer; also limits metric names.
    pub max_label_values: u64,
}

impl Default for CardinalityLimits {
    /// Ten million series take 2.3 to 4 GB. A million series of one producer are almost always a
    /// mistake.
    fn default() -> CardinalityLimits {
        CardinalityLimits {
            max_series: 10_000_000,
            max_producer_series: 1_000_000,
            max_metric_series: 1_000_000,
            max_label_values: 1_000_000,
        }
    }
}

/// Why a series was rejected. The index is unchanged.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CardinalityError {
    /// The key is not canonical: sender error.
    #[error(transparent)]
    InvalidKey(#[from] model::Error),
    /// Hash collision of two keys, which cannot be produced on purpose: stored data was damaged, or
    /// the hash is broken.
    #[error("id collision: {new} and {existing} have id {id}; rename one of them")]
    SameId {
        /// Id of both.
        id: SeriesId,
        /// The known series.
        existing: String,
        /// The rejected series.
        new: String,
    },
    /// [`CardinalityLimits::max_series`].
    #[error(
        "cannot store new series {series}: series limit ({max}) reached; \
         delete series or raise [store] max_series"
    )]
    Series {
        /// The rejected series.
        series: String,
        /// The count including the new series.
        found: u64,
        /// The limit.
        max: u64,
    },
    /// [`CardinalityLimits::max_producer_series`].
    #[error(
        "cannot store new series {series}: series limit per producer ({max}) reached; \
         delete some of its series or raise [store] max_producer_series"
    )]
    SeriesPerProducer {
        /// The rejected series.
        series: String,
        /// The producer's count including the new series.
        found: u64,
        /// The limit.
        max: u64,
    },
    /// [`CardinalityLimits::max_metric_series`].
    #[error(
        "cannot store new series of metric {metric}: series limit per metric and producer ({max}) \
         reached; drop a high-cardinality label or raise [store] max_metric_series"
    )]
    SeriesPerMetric {
        /// Metric name.
        metric: String,
        /// The count including the new series.
        found: u64,
        /// The limit.
        max: u64,
    },
    /// [`CardinalityLimits::max_label_values`].
    #[error(
        "cannot store new value of label {label} of metric {metric}: value limit per label and \
         producer ({max}) reached; drop the label if its values are unique per request, user or \
         session, or raise [store] max_label_values"
    )]
    ValuesPerLabel {
        /// Metric of the rejected series.
        metric: String,
        /// Label name.
        label: String,
        /// The count including the new value.
        found: u64,
        /// The limit.
        max: u64,
    },
}

impl CardinalityError {
    /// The exceeded limit by its setting name; `None` if the error concerns only the series.
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

/// Index of the series of a store.
#[derive(Debug)]
pub(crate) struct SeriesIndex {
    limits: CardinalityLimits,
    /// Randomly keyed, so that an attacker cannot choose colliding texts.
    hasher: RandomState,
    keys: SeriesKeys,
    producers: ProducerTable,
    producer_sets: ProducerSets,
    /// Further producers of series that are not in the series file yet.
    unstored_producers: Vec<(SeriesNumber, u64)>,
    /// Records of further producers may be damaged: any producer may have sent any series.
    are_producers_unknown: bool,
    by_id: HashIndex,
    names: LabelIndex,
    units: LabelIndex,
    /// Indexed as [`KINDS`].
    kinds: [Vec<u32>; KINDS.len()],
    labels: Vec<LabelIndex>,
    by_label_name: HashIndex,
}

impl SeriesIndex {
    /// Empty index.
    pub(crate) fn new(limits: CardinalityLimits) -> SeriesIndex {
        SeriesIndex {
            limits,
            hasher: RandomState::new(),
            keys: SeriesKeys::default(),
            producers: ProducerTable::default(),
            producer_sets: ProducerSets::default(),
            unstored_producers: Vec::new(),
            are_producers_unknown: false,
            by_id: HashIndex::default(),
            names: LabelIndex::default(),
            units: LabelIndex::default(),
            kinds: Default::default(),
            labels: Vec::new(),
            by_label_name: HashIndex::default(),
        }
    }

    /// Returns the number of the series with this key. An unknown series is inserted for `producer`
    /// without checking limits: the journal's records were admitted before, possibly under other
    /// limits.
    pub(crate) fn insert(
        &mut self,
        canonical_key: &[u8],
        producer: Option<u64>,
    ) -> Result<SeriesNumber, CardinalityError> {
        self.insert_as(SeriesId::from_canonical_key(canonical_key), canonical_key, producer)
    }

    /// The same; `id` is that of the key.
    pub(crate) fn insert_as(
        &mut self,
        id: SeriesId,
        canonical_key: &[u8],
        producer: Option<u64>,
    ) -> Result<SeriesNumber, CardinalityError> {
        if let Some(number) = self.find_by_key(&id, canonical_key)? {
            return Ok(number);
        }
        let kind = Series::check_canonical_key(canonical_key)?;
        if self.keys.len() == u32::MAX {
            let max = u64::from(u32::MAX);
            return Err(CardinalityError::Series {
                series: Series::from_canonical_key(canonical_key)?.to_string(),
                found: max + 1,
                max,
            });
        }
        let tags = self.parse_key(canonical_key);
        let producer_number = self.producers.find_or_add(producer);
        Ok(self.insert_new((id, kind, producer_number), canonical_key, &tags))
    }

    /// Number of a known series, by key.
    fn find_by_key(
        &self,
        id: &SeriesId,
        canonical_key: &[u8],
    ) -> Result<Option<SeriesNumber>, CardinalityError> {
        let Some(number) = self.number(id) else { return Ok(None) };
        if self.key(number) == canonical_key {
            return Ok(Some(number));
        }
        let new = Series::from_canonical_key(canonical_key)?.to_string();
        Err(CardinalityError::SameId { id: *id, existing: self.series(number).to_string(), new })
    }

    /// Name, unit and labels of a key, with their known entries.
    fn parse_key(&self, canonical_key: &[u8]) -> Vec<ParsedField> {
        let number = self.keys.len();
        let parts = ParsedKey::parse(canonical_key);
        let text = |part: &[u8]| KeyText::locate(number, canonical_key, part);
        let mut tags = Vec::with_capacity(parts.labels_count.saturating_add(2));
        for (tag, label, part) in
            [(KeyField::Name, &self.names, parts.name), (KeyField::Unit, &self.units, parts.unit)]
        {
            if !part.is_empty() {
                let hash = self.hash(part);
                let value = label.find(&self.keys, hash, part);
                tags.push(ParsedField {
                    field: tag,
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
                Some(at) => KeyField::Label(at),
                None => KeyField::NewLabel(name_hash, text(name)),
            };
            tags.push(ParsedField { field: tag, value, value_hash: hash, value_text: text(part) });
        }
        tags
    }

    fn known_label(&self, found: &ParsedField) -> Option<&LabelIndex> {
        match found.field {
            KeyField::Name => Some(&self.names),
            KeyField::Unit => Some(&self.units),
            KeyField::Label(at) => Some(&self.labels[at]),
            KeyField::NewLabel(..) => None,
        }
    }

    fn insert_new(
        &mut self,
        (id, kind, producer_number): (SeriesId, SeriesKind, ProducerNumber),
        canonical_key: &[u8],
        tags: &[ParsedField],
    ) -> SeriesNumber {
        let number = self.keys.push(canonical_key, id, producer_number);
        self.producers.add_series(producer_number);
        self.by_id.insert(hash_of_id(&id), number);
        self.kinds[kind_at(kind)].push(number);
        for found in tags {
            let (label, counted) = match found.field {
                KeyField::Name => (&mut self.names, ProducerCount::Names),
                KeyField::Unit => (&mut self.units, ProducerCount::Units),
                KeyField::Label(at) => (&mut self.labels[at], ProducerCount::OfLabel(at)),
                KeyField::NewLabel(hash, name) => {
                    let at = self.labels.len();
                    self.by_label_name.insert(hash, at as u32);
                    self.labels.push(LabelIndex::new_named(name));
                    (&mut self.labels[at], ProducerCount::OfLabel(at))
                }
            };
            match (&found.field, found.value) {
                (_, None) => self.producers.add(counted, producer_number),
                (KeyField::Name, Some(at)) => {
                    self.producers.add(ProducerCount::OfMetric(at), producer_number)
                }
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

    /// Label index by name.
    fn label(&self, name: &str) -> Option<&LabelIndex> {
        let at = self.label_at(self.hash(name.as_bytes()), name.as_bytes())?;
        Some(&self.labels[at])
    }

    /// Whether any series has a label with this name.
    pub(crate) fn has_label(&self, name: &str) -> bool {
        self.label(name).is_some()
    }

    /// Number of a known series, by id.
    pub(crate) fn number(&self, id: &SeriesId) -> Option<SeriesNumber> {
        self.by_id.find(hash_of_id(id), |number| self.keys.id(number) == *id).map(SeriesNumber)
    }

    /// Id of a series.
    ///
    /// # Panics
    ///
    /// Here and below, if the number does not belong to this index.
    pub(crate) fn id(&self, number: SeriesNumber) -> SeriesId {
        self.keys.id(number.0)
    }

    /// Canonical key of a series.
    pub(crate) fn key(&self, number: SeriesNumber) -> &[u8] {
        self.keys.key(number.0)
    }

    /// The series, decoded from its key.
    pub(crate) fn series(&self, number: SeriesNumber) -> Series {
        let Ok(series) = Series::from_canonical_key(self.key(number)) else {
            panic!("BUG: the key of series {} was not checked, or the series is deleted", number.0)
        };
        series
    }

    /// Kind of a series.
    pub(crate) fn kind(&self, number: SeriesNumber) -> SeriesKind {
        let Some(kind) = SeriesKind::from_canonical_key(self.key(number)) else {
            panic!("BUG: the key of series {} was not checked, or the series is deleted", number.0)
        };
        kind
    }

    /// Number of assigned numbers, including deleted series.
    pub(crate) fn len(&self) -> usize {
        self.keys.len() as usize
    }

    /// Number of live series.
    pub(crate) fn live(&self) -> usize {
        self.keys.len().saturating_sub(self.keys.deleted()) as usize
    }

    /// Whether the series of a number has not been deleted.
    pub(crate) fn is_live(&self, number: SeriesNumber) -> bool {
        self.keys.is_live(number.0)
    }

    /// Producer of a series, if known: the first one that sent it.
    pub(crate) fn producer(&self, number: SeriesNumber) -> Option<u64> {
        self.producers.producer(self.keys.producer_number(number.0))
    }

    /// Deletes series. [`Self::id`] still resolves their numbers; label values that only they had
    /// are released. Visits every value of every label.
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
        gone.iter()
            .for_each(|number| self.producers.remove_series(self.keys.producer_number(*number)));
        self.producers.clear_counts();
        self.by_id.renumber(|number| (!is_deleted[number as usize]).then_some(number));
        for numbers in &mut self.kinds {
            numbers.retain(|number| !is_deleted[*number as usize]);
        }
        let canonical_keys = &self.keys;
        let text_in = |number: u32, part: for<'p> fn(&ParsedKey<'p>) -> &'p [u8]| {
            let canonical_key = canonical_keys.key(number);
            KeyText::locate(number, canonical_key, part(&ParsedKey::parse(canonical_key)))
        };
        self.names.delete(&is_deleted, &|number| text_in(number, |parts| parts.name));
        self.units.delete(&is_deleted, &|number| text_in(number, |parts| parts.unit));
        let mut locations = vec![None; self.labels.len()];
        let labels = std::mem::take(&mut self.labels);
        for (mut label, location) in labels.into_iter().zip(&mut locations) {
            let name = canonical_keys.text(label.name).as_bytes();
            let texts_in = |number: u32| {
                let canonical_key = canonical_keys.key(number);
                let found =
                    ParsedKey::parse(canonical_key).labels().find(|(label, _)| *label == name);
                let Some((name, value)) = found else {
                    panic!("BUG: series {number} does not have the label of its values")
                };
                (
                    KeyText::locate(number, canonical_key, name),
                    KeyText::locate(number, canonical_key, value),
                )
            };
            label.delete(&is_deleted, &|number| texts_in(number).1);
            let Some(first) = label.values.first() else { continue };
            label.name = texts_in(first.postings.first()).0;
            *location = Some(self.labels.len() as u32);
            self.labels.push(label);
        }
        self.by_label_name.renumber(|at| locations[at as usize]);
        self.keys.delete(&gone);
    }

    /// Series that match a selector, ascending.
    pub(crate) fn select(&self, selector: &Selector) -> Vec<SeriesNumber> {
        select::select(self, selector)
    }

    /// Cardinality statistics with the `top` largest entries of each list. Visits every value of
    /// every label.
    pub(crate) fn cardinality(&self, top: usize) -> Cardinality {
        cardinality::cardinality(self, top)
    }

    /// Memory in bytes, without allocator overhead. Visits every value of every label.
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
            self.producers.memory_bytes(),
            self.producer_sets.memory_bytes(),
            table::capacity_bytes(&self.unstored_producers),
        ];
        kinds.chain(labels).chain(others).sum()
    }
}

/// Name, unit or label of a key that is being inserted.
struct ParsedField {
    field: KeyField,
    /// Index of the value among the tag's values, if it existed.
    value: Option<u32>,
    value_hash: u64,
    value_text: KeyText,
}

/// Which field of a key, and where the index has it.
enum KeyField {
    Name,
    Unit,
    Label(usize),
    /// Hash and location of the name.
    NewLabel(u64, KeyText),
}

/// An id is already a hash.
fn hash_of_id(id: &SeriesId) -> u64 {
    u64::from_le_bytes(id.0.first_chunk().copied().unwrap_or_default())
}

/// Index of a kind in [`KINDS`].
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
    fn parse(canonical_key: &'a [u8]) -> ParsedKey<'a> {
        let Ok(parsed) = ParsedKey::try_parse(canonical_key) else {
            panic!("BUG: a key of {} bytes was not validated at insertion", canonical_key.len())
        };
        parsed
    }

    fn try_parse(canonical_key: &'a [u8]) -> Result<ParsedKey<'a>, model::Error> {
        let mut rest = WireReader::new(canonical_key);
        rest.u8("kind")?;
        let (name, unit) = (rest.bytes("name")?, spell_unit(rest.text("unit")?).as_bytes());
        let labels_count = rest.count(2, "label count")?;
        Ok(ParsedKey { name, unit, labels_count, labels: rest })
    }

    /// Names and values, by ascending name.
    fn labels(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let mut rest = self.labels.clone();
        // The key was validated, so all of them parse.
        (0..self.labels_count)
            .map_while(move |_| Some((rest.bytes("name").ok()?, rest.bytes("value").ok()?)))
    }
}
