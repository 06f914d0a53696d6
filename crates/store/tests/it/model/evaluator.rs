//! Reference evaluator: keeps every accepted sample in a list and computes every answer from all of
//! them.

use std::collections::BTreeMap;
use std::ops::Range;

use hist::codec::frame;
use hist::codec::header::Temporality;
use hist::{Histogram, Mixture};
use journal::BatchIdentity;
use model::{Sample, SampleValue, Selector, Series, SeriesKind};
use store::NumberAggregate;

/// A sample and, for delta histograms, the recorded values themselves.
#[derive(Clone, Debug)]
pub(crate) struct ModelSample {
    pub(crate) sample: Sample,
    pub(crate) values: Vec<f64>,
}

/// Accepted samples, by series.
#[derive(Debug)]
pub(crate) struct Evaluator {
    pub(crate) series: Vec<Series>,
    pub(crate) samples: Vec<Vec<ModelSample>>,
    sequences: BTreeMap<(u64, u64), u64>,
}

/// Content of the nanoseconds before its end.
#[derive(Clone, Debug)]
pub(crate) struct ModelDelta<T> {
    pub(crate) end: i64,
    pub(crate) value: T,
}

/// The nanosecond by which a sample is assigned.
pub(crate) fn counted_at(end: i64) -> i64 {
    end.saturating_sub(1)
}

impl Evaluator {
    pub(crate) fn new(series: Vec<Series>) -> Evaluator {
        let taken = series.iter().map(|_| Vec::new()).collect();
        Evaluator { series, samples: taken, sequences: BTreeMap::new() }
    }

    /// Ingests a batch of samples by series number, unless it is a duplicate.
    pub(crate) fn ingest(&mut self, identity: BatchIdentity, samples: &[(usize, ModelSample)]) {
        let heard = self.sequences.entry((identity.producer, identity.epoch)).or_insert(0);
        if identity.sequence <= *heard {
            return;
        }
        *heard = identity.sequence;
        for (series, taken) in samples {
            let is_delta = self.series[*series].kind() == SeriesKind::Histogram(Temporality::Delta);
            let time = (taken.sample.start, taken.sample.end);
            let is_known = |held: &ModelSample| (held.sample.start, held.sample.end) == time;
            // A gauge histogram is one sample, however often it is sent.
            if is_delta && time.0 == time.1 && self.samples[*series].iter().any(is_known) {
                continue;
            }
            self.samples[*series].push(taken.clone());
        }
    }

    pub(crate) fn delete(&mut self, selector: &Selector, range: &Range<i64>) {
        for (series, taken) in self.series.iter().zip(&mut self.samples) {
            if selector.matches(series) {
                taken.retain(|taken| !range.contains(&counted_at(taken.sample.end)));
            }
        }
    }

    /// Samples by time, one per window: counts add up, of two cumulative samples the greater stays.
    pub(crate) fn settled_samples(&self, series: usize) -> Vec<SettledWindow> {
        let mut windows: BTreeMap<(i64, i64), Vec<&SampleValue>> = BTreeMap::new();
        for ModelSample { sample, .. } in &self.samples[series] {
            windows.entry((sample.end, sample.start)).or_default().push(&sample.value);
        }
        let kind = self.series[series].kind();
        let settle = |((end, start), values): ((i64, i64), Vec<&SampleValue>)| SettledWindow {
            start,
            end,
            values: settle(kind, &values),
        };
        windows.into_iter().map(settle).collect()
    }

    fn numbers(&self, series: usize) -> Vec<ModelDelta<f64>> {
        let rows = self.settled_samples(series);
        let number = |row: &SettledWindow| match row.values[..] {
            [SampleValue::Number(number)] => number,
            _ => panic!("{row:?} is no number"),
        };
        if !self.series[series].kind().is_cumulative() {
            return rows
                .iter()
                .map(|row| ModelDelta { end: row.end, value: number(row) })
                .collect();
        }
        steps(&rows, number, |after, before| (after >= before).then(|| after - before))
    }

    fn histograms(&self, series: usize) -> Vec<ModelDelta<Histogram>> {
        let rows = self.settled_samples(series);
        let histogram = |value: &SampleValue| match value {
            SampleValue::Histogram(histogram) => Histogram::clone(histogram),
            other => panic!("{other:?} is no histogram"),
        };
        if !self.series[series].kind().is_cumulative() {
            let all = rows.iter().flat_map(|row| {
                let one = |value| ModelDelta { end: row.end, value: histogram(value) };
                row.values.iter().map(one)
            });
            return all.collect();
        }
        steps(
            &rows,
            |row| histogram(&row.values[0]),
            |after, before| {
                let mut added = after.clone();
                added.subtract(before).ok().map(|()| added)
            },
        )
    }

    /// Expected result of `ReadView::histograms` for these columns.
    pub(crate) fn mixtures(&self, series: &[usize], columns: &[Range<i64>]) -> Vec<Mixture> {
        let mut mixtures = vec![Mixture::default(); columns.len()];
        for &series in series {
            for ModelDelta { end, value } in self.histograms(series) {
                if let Some(at) = column_of(columns, end)
                    && (!value.is_empty() || value.nan_count() > 0)
                {
                    mixtures[at].add(&value).unwrap();
                }
            }
        }
        mixtures
    }

    /// The values from which delta histograms of these columns were recorded, ascending.
    pub(crate) fn values(&self, series: &[usize], columns: &[Range<i64>]) -> Vec<Vec<f64>> {
        let mut values = vec![Vec::new(); columns.len()];
        for &series in series {
            for taken in &self.samples[series] {
                if let Some(at) = column_of(columns, taken.sample.end) {
                    values[at].extend(taken.values.iter().filter(|value| !value.is_nan()));
                }
            }
        }
        values.iter_mut().for_each(|values| values.sort_by(f64::total_cmp));
        values
    }

    /// Expected result of `ReadView::numbers` for these columns; first and last are defined only
    /// for one series.
    pub(crate) fn summaries(
        &self,
        series: &[usize],
        columns: &[Range<i64>],
    ) -> Vec<Option<NumberAggregate>> {
        let mut summaries: Vec<Option<NumberAggregate>> = vec![None; columns.len()];
        for &series in series {
            for ModelDelta { end, value } in self.numbers(series) {
                if let Some(at) = column_of(columns, end) {
                    summaries[at] = Some(add_number(summaries[at].as_ref(), value));
                }
            }
        }
        summaries
    }
}

/// Combined samples of one window: one value, except for texts and histograms with different
/// schemes.
#[derive(Clone, Debug)]
pub(crate) struct SettledWindow {
    pub(crate) start: i64,
    pub(crate) end: i64,
    pub(crate) values: Vec<SampleValue>,
}

fn settle(kind: SeriesKind, values: &[&SampleValue]) -> Vec<SampleValue> {
    let number = |value: &SampleValue| match value {
        SampleValue::Number(number) => *number,
        other => panic!("{other:?} is no number"),
    };
    let numbers = values.iter().map(|value| number(value));
    match kind {
        SeriesKind::Histogram(Temporality::Delta) => values.iter().copied().cloned().collect(),
        SeriesKind::Histogram(Temporality::Cumulative) => {
            let rank = |value: &SampleValue| match value {
                SampleValue::Histogram(histogram) => {
                    let mut bytes = Vec::new();
                    frame::encode(histogram, Default::default(), &mut bytes);
                    (histogram.count(), bytes)
                }
                other => panic!("{other:?} is no histogram"),
            };
            values.iter().copied().max_by_key(|value| rank(value)).cloned().into_iter().collect()
        }
        SeriesKind::Counter(Temporality::Delta) => vec![SampleValue::Number(numbers.sum())],
        SeriesKind::Counter(Temporality::Cumulative) | SeriesKind::Gauge => {
            numbers.max_by(f64::total_cmp).map(SampleValue::Number).into_iter().collect()
        }
        SeriesKind::Text => {
            let mut texts: Vec<SampleValue> = Vec::new();
            for &value in values {
                if !texts.contains(value) {
                    texts.push(value.clone());
                }
            }
            texts
        }
    }
}

/// Increase up to each sample. A sample with a start time at or after the previous sample counts
/// whole, as does a smaller one. The first counts only with a start time.
fn steps<T>(
    rows: &[SettledWindow],
    of: impl Fn(&SettledWindow) -> T,
    added: impl Fn(&T, &T) -> Option<T>,
) -> Vec<ModelDelta<T>> {
    let mut steps = Vec::new();
    for (at, row) in rows.iter().enumerate() {
        let says_since = row.start < row.end;
        let value = match at.checked_sub(1).map(|before| &rows[before]) {
            None if says_since => of(row),
            None => continue,
            Some(before) if says_since && row.start >= before.end => of(row),
            Some(before) => added(&of(row), &of(before)).unwrap_or_else(|| of(row)),
        };
        steps.push(ModelDelta { end: row.end, value });
    }
    steps
}

fn column_of(columns: &[Range<i64>], end: i64) -> Option<usize> {
    // Columns are ordered and contiguous.
    let at = columns.partition_point(|column| column.end <= counted_at(end));
    columns.get(at).filter(|column| column.contains(&counted_at(end))).map(|_| at)
}

/// A summary with one number added. Computed independently of the store's own addition.
fn add_number(summary: Option<&NumberAggregate>, value: f64) -> NumberAggregate {
    let Some(before) = summary else { return NumberAggregate::of_number(value) };
    if value.is_nan() {
        return NumberAggregate { nan: before.nan + 1, ..*before };
    }
    if before.count == 0 {
        return NumberAggregate { nan: before.nan, ..NumberAggregate::of_number(value) };
    }
    NumberAggregate {
        count: before.count + 1,
        nan: before.nan,
        sum: before.sum.plus(hist::DoubleDouble::new(value)),
        min: before.min.min(value),
        max: before.max.max(value),
        first: before.first,
        last: value,
    }
}
