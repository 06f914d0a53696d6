//! Admission of new series against cardinality limits.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::collections::{HashMap, HashSet};

use model::{Series, SeriesId};

use super::producer_table::{ProducerCount, ProducerNumber};
use super::{CardinalityError, KeyField, ParsedField, SeriesIndex};

/// New series of a batch that were admitted. They count before the store reads the batch.
#[derive(Debug, Default)]
pub struct NewSeries {
    /// The store has read everything appended before.
    pub(crate) is_current: bool,
    ids: HashSet<SeriesId>,
    series_of_metric: HashMap<String, u64>,
    /// New label values, by label name.
    values_of_label: HashMap<String, HashSet<String>>,
}

impl SeriesIndex {
    /// Checks whether a series with this key is known or may be inserted for `producer`: its key is
    /// canonical and the limits permit it. `batch` holds the new series before it in the same
    /// batch, and afterwards this one. Returns whether the series is new.
    pub(crate) fn check_insert(
        &self,
        key: &[u8],
        producer: Option<u64>,
        batch: &mut NewSeries,
    ) -> Result<bool, CardinalityError> {
        let id = SeriesId::from_canonical_key(key);
        if self.find_by_key(&id, key)?.is_some() {
            return Ok(false);
        }
        if batch.ids.contains(&id) {
            return Ok(true);
        }
        let series = Series::from_canonical_key(key)?;
        let new = (batch.ids.len() as u64).saturating_add(1);
        let found = (self.live() as u64).saturating_add(new);
        let max =
            self.limits.max_series.min(u64::from(u32::MAX.saturating_sub(self.keys.deleted())));
        if found > max {
            return Err(CardinalityError::Series { series: series.to_string(), found, max });
        }
        let tags = self.parse_key(key);
        let producer_number = self.producers.find(producer);
        let found =
            producer_number.map_or(0, |producer_number| self.producers.series(producer_number));
        let (found, max) = (found.saturating_add(new), self.limits.max_producer_series);
        if found > max {
            return Err(CardinalityError::SeriesPerProducer {
                series: series.to_string(),
                found,
                max,
            });
        }
        self.check_metric(&series, &tags[0], producer_number, batch)?;
        let mut new = Vec::new();
        let texts = [("__name", series.name()), ("__unit", series.unit())].into_iter();
        let texts = texts.filter(|(name, text)| *name == "__name" || !text.is_empty());
        let labels = series.labels().iter().map(|(name, text)| (name.as_str(), text.as_str()));
        for (tag, (name, text)) in tags.iter().zip(texts.chain(labels)) {
            if tag.value.is_some() {
                continue;
            }
            let in_batch = batch.values_of_label.get(name);
            if in_batch.is_some_and(|texts| texts.contains(text)) {
                continue;
            }
            let in_batch = in_batch.map_or(0, |texts| texts.len() as u64);
            let max = self.limits.max_label_values;
            let of_producer = self.values_of(tag, producer_number, max.saturating_sub(in_batch));
            let found = of_producer.saturating_add(in_batch).saturating_add(1);
            if found > max {
                let (metric, label) = (series.name().to_owned(), name.to_owned());
                return Err(CardinalityError::ValuesPerLabel { metric, label, found, max });
            }
            new.push((name, text));
        }
        batch.ids.insert(id);
        let of_metric = batch.series_of_metric.entry(series.name().to_owned()).or_default();
        *of_metric = of_metric.saturating_add(1);
        for (name, text) in new {
            batch.values_of_label.entry(name.to_owned()).or_default().insert(text.to_owned());
        }
        Ok(true)
    }

    fn check_metric(
        &self,
        series: &Series,
        name: &ParsedField,
        producer_number: Option<ProducerNumber>,
        batch: &NewSeries,
    ) -> Result<(), CardinalityError> {
        let max = self.limits.max_metric_series;
        let in_batch = batch.series_of_metric.get(series.name()).copied().unwrap_or(0);
        let of_producer = match (name.value, producer_number) {
            (Some(at), Some(producer_number)) => {
                let numbers = &self.names.values[at as usize].postings;
                let is_of = |number: &u32| self.keys.producer_number(*number) == producer_number;
                let count = || numbers.as_slice().iter().copied().filter(is_of).count();
                let all = numbers.len() as u64;
                self.count_for_producer(
                    ProducerCount::OfMetric(at),
                    producer_number,
                    all,
                    max.saturating_sub(in_batch),
                    count,
                )
            }
            _ => 0,
        };
        let found = of_producer.saturating_add(in_batch).saturating_add(1);
        if found > max {
            let metric = series.name().to_owned();
            return Err(CardinalityError::SeriesPerMetric { metric, found, max });
        }
        Ok(())
    }

    /// Number of values of a field that a producer introduced; an upper bound where all producers
    /// together have fewer than `max`.
    fn values_of(
        &self,
        tag: &ParsedField,
        producer_number: Option<ProducerNumber>,
        max: u64,
    ) -> u64 {
        let (Some(label), Some(producer_number)) = (self.known_label(tag), producer_number) else {
            return 0;
        };
        let what = match tag.field {
            KeyField::Name => ProducerCount::Names,
            KeyField::Unit => ProducerCount::Units,
            KeyField::Label(at) => ProducerCount::OfLabel(at),
            KeyField::NewLabel(..) => return 0,
        };
        let is_of = |number: u32| self.keys.producer_number(number) == producer_number;
        let count = || label.values.iter().filter(|value| is_of(value.postings.first())).count();
        self.count_for_producer(what, producer_number, label.values.len() as u64, max, count)
    }

    /// A producer's share of `all`, counted only where it may reach the limit.
    fn count_for_producer(
        &self,
        what: ProducerCount,
        producer_number: ProducerNumber,
        all: u64,
        max: u64,
        count: impl FnOnce() -> usize,
    ) -> u64 {
        if all < max { all } else { self.producers.count(what, producer_number, count) }
    }
}
