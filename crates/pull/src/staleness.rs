//! Staleness markers for series that a scrape no longer returns.
//!
//! Prometheus' marker is a NaN with a fixed bit pattern:
//! <https://prometheus.io/docs/prometheus/latest/querying/basics/#staleness>. The marker of a
//! histogram series is a number with the same name and labels, as in remote write; queries join the
//! two series.

use std::collections::HashSet;

use codecs::prometheus::STALE_MARKER;
use collect::SeriesSink;
use hist::codec::header::Temporality;
use model::{Error, Gap, Result, Sample, SampleValue, Series, SeriesKind};

/// Canonical keys of the series in a scrape, except those with explicit timestamps.
#[derive(Debug, Default)]
pub(crate) struct ScrapedSeries(HashSet<Vec<u8>>);

impl ScrapedSeries {
    /// Number of series that are not in `before`.
    pub(crate) fn count_added(&self, before: &ScrapedSeries) -> usize {
        self.0.difference(&before.0).count()
    }

    /// Writes staleness markers for series of `self` that are not in `now`.
    pub(crate) fn mark_stale(
        &self,
        now: &ScrapedSeries,
        at: i64,
        rows: &mut dyn SeriesSink,
    ) -> Result<()> {
        for form in self.0.difference(&now.0) {
            mark_series_stale(Series::from_canonical_key(form)?, at, rows)?;
        }
        Ok(())
    }
}

/// A row that exceeds a limit of the store is dropped; the other rows of the scrape are stored.
pub(crate) fn ignore_limit_error(result: Result<()>) -> Result<()> {
    match result {
        Err(Error::SeriesLimit { .. }) => Ok(()),
        result => result,
    }
}

/// Writes the staleness marker of a series.
pub(crate) fn mark_series_stale(series: Series, at: i64, rows: &mut dyn SeriesSink) -> Result<()> {
    let series = match series.kind() {
        SeriesKind::Text => return Ok(()),
        SeriesKind::Counter(_) | SeriesKind::Gauge => series,
        SeriesKind::Histogram(Temporality::Cumulative) => {
            with_kind(&series, SeriesKind::Counter(Temporality::Cumulative))?
        }
        SeriesKind::Histogram(Temporality::Delta) => with_kind(&series, SeriesKind::Gauge)?,
    };
    rows.series(&series.canonical_key(), &mut || Ok(series.clone()))?;
    let value = SampleValue::Number(f64::from_bits(STALE_MARKER));
    ignore_limit_error(rows.sample(&Sample { start: at, end: at, value }))
}

fn with_kind(series: &Series, kind: SeriesKind) -> Result<Series> {
    let like = Series::new(series.name(), kind).with_unit(series.unit());
    let labels = series.labels().iter();
    labels
        .fold(like, |like, (name, value)| like.with_label(name.as_str(), value.as_str()))
        .validate()
}

/// Row sink that records which series were scraped.
pub(crate) struct SeriesTracker<'a> {
    pub(crate) rows: &'a mut dyn SeriesSink,
    pub(crate) scraped: ScrapedSeries,
    at: i64,
    /// Canonical key of the series; empty without a series.
    canonical_key: Vec<u8>,
}

impl<'a> SeriesTracker<'a> {
    pub(crate) fn new(rows: &'a mut dyn SeriesSink, at: i64) -> SeriesTracker<'a> {
        SeriesTracker { rows, scraped: ScrapedSeries::default(), at, canonical_key: Vec::new() }
    }
}

impl SeriesSink for SeriesTracker<'_> {
    fn series(&mut self, key: &[u8], series: &mut dyn FnMut() -> Result<Series>) -> Result<()> {
        self.canonical_key.clear();
        self.rows.series(key, series)?;
        self.canonical_key.extend_from_slice(key);
        Ok(())
    }

    fn sample(&mut self, sample: &Sample) -> Result<()> {
        self.rows.sample(sample)?;
        // A delta without a timestamp covers the nanosecond that starts now.
        let is_now = sample.end == self.at || sample.start == self.at;
        if is_now && !self.canonical_key.is_empty() && !self.scraped.0.contains(&self.canonical_key)
        {
            self.scraped.0.insert(self.canonical_key.clone());
        }
        Ok(())
    }

    fn gap(&mut self, gap: Gap) {
        self.rows.gap(gap);
    }

    fn description(&mut self, metric: &str, text: &str) {
        self.rows.description(metric, text);
    }
}
