//! Mapping of decoded samples to series and rows.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::ops::ControlFlow;

use hist::codec::header::Temporality;
use model::{Sample, Series, SeriesKind};

use crate::decoded_sample::{DecodedSample, DecodedValue, SampleSink, SampleTemporality};
use crate::exemplar::DecodedExemplar;
use crate::input_error::InputError;
use crate::series_sink::{SeriesSink, pass_exemplar};
use crate::unit::Unit;

/// Defaults for fields a sample lacks.
#[derive(Clone, Copy, Debug, Default)]
pub struct MappingDefaults<'a> {
    /// Metric name of samples without one.
    pub metric: Option<&'a str>,
    /// Labels added to every series.
    pub labels: &'a [(String, String)],
    /// Unit of samples without one.
    pub unit: Option<&'a Unit>,
    /// Time of samples without one, in nanoseconds since the Unix epoch. A delta gets the
    /// one-nanosecond interval that ends at this time; an instant or cumulative value gets it as
    /// its read time.
    pub time: Option<i64>,
}

/// Reason why a sample cannot be mapped.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum UnmappedReason {
    /// The sample has no name and there is no default.
    #[error("missing metric name")]
    NoName,
    /// The sample has no time and there is no default.
    #[error("missing timestamp")]
    NoTime,
    /// The sample ends before it begins.
    #[error("start {start} ns is after end {end} ns")]
    EndBeforeStart {
        /// Start, in nanoseconds since the Unix epoch.
        start: i64,
        /// End, in nanoseconds since the Unix epoch.
        end: i64,
    },
    /// The data model rejects the sample.
    #[error(transparent)]
    Invalid(#[from] model::Error),
}

impl MappingDefaults<'_> {
    /// Maps a sample to its series and model sample.
    pub fn map(&self, decoded: DecodedSample) -> Result<(Series, Sample), UnmappedReason> {
        let (start, end) = self.resolve_times(&decoded)?;
        let temporality = match decoded.temporality {
            SampleTemporality::Cumulative => Temporality::Cumulative,
            SampleTemporality::Delta | SampleTemporality::Instant => Temporality::Delta,
        };
        let number = |number: f64| {
            let kind = match decoded.temporality {
                SampleTemporality::Instant => SeriesKind::Gauge,
                SampleTemporality::Delta | SampleTemporality::Cumulative => {
                    SeriesKind::Counter(temporality)
                }
            };
            (kind, model::SampleValue::Number(number))
        };
        let (kind, value) = match decoded.value {
            DecodedValue::Histogram(histogram) => {
                (SeriesKind::Histogram(temporality), model::SampleValue::Histogram(histogram))
            }
            DecodedValue::Text(text) => (SeriesKind::Text, model::SampleValue::Text(text)),
            DecodedValue::Integer(n) => number(n as f64),
            DecodedValue::Number(x) => number(x),
        };
        let name = match decoded.metric.as_str() {
            "" => self.metric.ok_or(UnmappedReason::NoName)?,
            name => name,
        };
        let mut series = Series::new(name, kind);
        if let Some(unit) = decoded.unit.as_ref().or(self.unit).filter(|_| kind != SeriesKind::Text)
        {
            series = series.with_unit(unit.name());
        }
        let labels = decoded.labels.iter().chain(self.labels);
        let series = series.with_labels(labels.map(|(name, value)| (name, value))).validate()?;
        if end < start {
            return Err(UnmappedReason::EndBeforeStart { start, end });
        }
        Ok((series, Sample { start, end, value }))
    }

    fn resolve_times(&self, decoded: &DecodedSample) -> Result<(i64, i64), UnmappedReason> {
        if let (SampleTemporality::Cumulative, Some(created), None) =
            (decoded.temporality, decoded.start, decoded.end)
        {
            // Read now. If the source's clock reports a later start, the start is unknown.
            let end = self.time.ok_or(UnmappedReason::NoTime)?;
            return Ok((created.min(end), end));
        }
        let known = decoded.start.or(decoded.end).zip(decoded.end.or(decoded.start));
        if let Some(times) = known {
            return Ok(times);
        }
        let start = self.time.ok_or(UnmappedReason::NoTime)?;
        let length = i64::from(decoded.temporality == SampleTemporality::Delta);
        Ok((start, start.saturating_add(length)))
    }
}

/// Sink that maps samples to rows and counts them.
pub struct RowMapper<'a, R: ?Sized> {
    defaults: MappingDefaults<'a>,
    sink: &'a mut R,
    /// Recorded values of the plain numbers format.
    numbers: Option<hist::Histogram>,
    mapped: u64,
    skipped: u64,
    rejected: u64,
    errors: Vec<String>,
    key: Vec<u8>,
}

/// Counts of mapped, skipped and rejected samples.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MapSummary {
    /// Samples that became rows.
    pub samples: u64,
    /// Inputs that were parsed and are not samples.
    pub skipped: u64,
    /// Inputs that could not be parsed or mapped.
    pub rejected: u64,
    /// First errors, with position and reason; at most [`MAX_REPORTED_ERRORS`].
    pub errors: Vec<String>,
}

/// Number of error messages retained per input.
pub(crate) const MAX_REPORTED_ERRORS: usize = 10;

impl<'a, R: SeriesSink + ?Sized> RowMapper<'a, R> {
    /// Creates a mapper that writes to `sink`.
    pub fn new(rules: MappingDefaults<'a>, sink: &'a mut R) -> RowMapper<'a, R> {
        RowMapper {
            defaults: rules,
            sink,
            numbers: None,
            mapped: 0,
            skipped: 0,
            rejected: 0,
            errors: Vec::new(),
            key: Vec::new(),
        }
    }

    fn reject(&mut self, reason: String) {
        self.rejected = self.rejected.saturating_add(1);
        if self.errors.len() < MAX_REPORTED_ERRORS {
            self.errors.push(reason);
        }
    }

    fn emit(
        &mut self,
        decoded: DecodedSample,
        exemplars: Vec<DecodedExemplar>,
    ) -> Result<(), (String, UnmappedReason)> {
        let name = decoded.metric.clone();
        let (series, sample) = self.defaults.map(decoded).map_err(|reason| (name, reason))?;
        self.key.clear();
        self.key.extend_from_slice(&series.canonical_key());
        let mut build_series = || Ok(series.clone());
        self.sink
            .series(&self.key, &mut build_series)
            .and_then(|()| self.sink.sample(&sample))
            .map_err(|error| (series.to_string(), error.into()))?;
        for mut exemplar in exemplars {
            if let Ok(exemplar) = &mut exemplar
                && exemplar.time == 0
            {
                exemplar.time = sample.end;
            }
            pass_exemplar(self.sink, &self.key, &mut build_series, &exemplar);
        }
        Ok(())
    }

    fn map_one(&mut self, decoded: DecodedSample, exemplars: Vec<DecodedExemplar>) {
        match self.emit(decoded, exemplars) {
            Ok(()) => self.mapped = self.mapped.saturating_add(1),
            Err((name, reason)) => self.reject(format!("{name}: {reason}")),
        }
    }

    /// Emits the recorded plain numbers and returns the counts.
    pub fn finish(mut self) -> MapSummary {
        if let Some(histogram) = self.numbers.take() {
            let mut decoded = DecodedSample::new(DecodedValue::Histogram(Box::new(histogram)));
            decoded.unit = self.defaults.unit.cloned();
            self.sample(decoded);
        }
        MapSummary {
            samples: self.mapped,
            skipped: self.skipped,
            rejected: self.rejected,
            errors: self.errors,
        }
    }
}

impl<R: SeriesSink + ?Sized> SampleSink for RowMapper<'_, R> {
    fn number(&mut self, value: f64) {
        self.numbers.get_or_insert_default().record(value);
    }

    fn sample(&mut self, decoded: DecodedSample) {
        self.map_one(decoded, Vec::new());
    }

    fn sample_with_exemplars(&mut self, decoded: DecodedSample, exemplars: Vec<DecodedExemplar>) {
        self.map_one(decoded, exemplars);
    }

    fn skipped(&mut self, _: &'static str) {
        self.skipped = self.skipped.saturating_add(1);
    }

    fn error(&mut self, error: InputError) -> ControlFlow<()> {
        self.reject(error.to_string());
        ControlFlow::Continue(())
    }

    fn description(&mut self, metric: &str, text: &str) {
        self.sink.description(metric, text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series_sink::VecSeriesSink;

    /// Checks the start and end of a cumulative value.
    #[track_caller]
    fn check(said: (Option<i64>, Option<i64>), time: Option<i64>, expected: Option<(i64, i64)>) {
        let mut decoded = DecodedSample::new(DecodedValue::Number(1.0));
        (decoded.metric, decoded.temporality) = ("a".to_owned(), SampleTemporality::Cumulative);
        (decoded.start, decoded.end) = said;
        let mut sink = VecSeriesSink::default();
        let mut placing =
            RowMapper::new(MappingDefaults { time, ..MappingDefaults::default() }, &mut sink);
        placing.sample(decoded);
        let placed = placing.finish();
        let found = sink.rows.first().map(|(_, sample)| (sample.start, sample.end));
        assert_eq!((found, placed.rejected), (expected, u64::from(expected.is_none())));
    }

    #[test]
    fn cumulative_value_with_a_start_ends_now() {
        check((Some(5), None), Some(9), Some((5, 9)));
        check((Some(12), None), Some(9), Some((9, 9)));
        check((Some(5), Some(7)), Some(9), Some((5, 7)));
        check((None, None), Some(9), Some((9, 9)));
        check((Some(5), None), None, None);
    }
}
