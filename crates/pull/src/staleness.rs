//! Staleness markers for series that a scrape no longer returns.

use std::collections::HashSet;

use decode::staleness::mark_series_stale;
use decode::{ExemplarProblem, SeriesSink};
use model::{Exemplar, Gap, Result, Sample, Series};

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
        sink: &mut dyn SeriesSink,
    ) -> Result<()> {
        for key in self.0.difference(&now.0) {
            mark_series_stale(Series::from_canonical_key(key)?, at, sink)?;
        }
        Ok(())
    }
}

/// Sink that records which series were scraped.
pub(crate) struct SeriesTracker<'a> {
    pub(crate) sink: &'a mut dyn SeriesSink,
    pub(crate) scraped: ScrapedSeries,
    at: i64,
    /// Canonical key of the series; empty without a series.
    canonical_key: Vec<u8>,
}

impl<'a> SeriesTracker<'a> {
    pub(crate) fn new(sink: &'a mut dyn SeriesSink, at: i64) -> SeriesTracker<'a> {
        SeriesTracker { sink, scraped: ScrapedSeries::default(), at, canonical_key: Vec::new() }
    }
}

impl SeriesSink for SeriesTracker<'_> {
    fn series(&mut self, key: &[u8], series: &mut dyn FnMut() -> Result<Series>) -> Result<()> {
        self.canonical_key.clear();
        self.sink.series(key, series)?;
        self.canonical_key.extend_from_slice(key);
        Ok(())
    }

    fn sample(&mut self, sample: &Sample) -> Result<()> {
        self.sink.sample(sample)?;
        // A delta without a timestamp covers the nanosecond that starts now.
        let is_now = sample.end == self.at || sample.start == self.at;
        if is_now && !self.canonical_key.is_empty() && !self.scraped.0.contains(&self.canonical_key)
        {
            self.scraped.0.insert(self.canonical_key.clone());
        }
        Ok(())
    }

    fn gap(&mut self, gap: Gap) {
        self.sink.gap(gap);
    }

    fn description(&mut self, metric: &str, text: &str) {
        self.sink.description(metric, text);
    }

    fn exemplar(
        &mut self,
        key: &[u8],
        series: &mut dyn FnMut() -> Result<Series>,
        exemplar: &Exemplar,
    ) -> bool {
        self.sink.exemplar(key, series, exemplar)
    }

    fn exemplar_problem(&mut self, problem: ExemplarProblem) {
        self.sink.exemplar_problem(problem);
    }
}
