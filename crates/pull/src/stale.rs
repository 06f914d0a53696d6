//! Series that a page had and has no more: marked as ended, so that a question does not go on with their last value.
//!
//! Prometheus' marker is a NaN of certain bits: <https://prometheus.io/docs/prometheus/latest/querying/basics/#staleness>.
//! Of a histogram it is a number of the same name and labels, as with remote write: queries take both for one series.

use std::collections::HashSet;

use collect::Rows;
use hist::codec::header::Temporality;
use hist::codec::prometheus::STALE_MARKER;
use model::{Error, Gap, Kind, Result, Sample, Series, Value};

/// Series that the last page had, as forms. What the page itself says a time of is not here: it says itself until
/// when it is.
#[derive(Debug, Default)]
pub(crate) struct Seen(HashSet<Vec<u8>>);

impl Seen {
    /// Series that are not in `before`.
    pub(crate) fn added(&self, before: &Seen) -> usize {
        self.0.difference(&before.0).count()
    }

    /// Marks those of `self` that are not in `now` as ended.
    pub(crate) fn end(&self, now: &Seen, at: i64, rows: &mut dyn Rows) -> Result<()> {
        for form in self.0.difference(&now.0) {
            end(Series::from_form(form)?, at, rows)?;
        }
        Ok(())
    }
}

/// A row that is beyond a limit of the store is left out: the others of its scrape are wanted all the same.
pub(crate) fn left_out_at_limit(written: Result<()>) -> Result<()> {
    match written {
        Err(Error::SeriesLimit { .. }) => Ok(()),
        written => written,
    }
}

/// Marks a series as ended.
pub(crate) fn end(series: Series, at: i64, rows: &mut dyn Rows) -> Result<()> {
    let series = match series.kind() {
        Kind::Text => return Ok(()),
        Kind::Counter(_) | Kind::Gauge => series,
        Kind::Histogram(Temporality::Cumulative) => {
            with_kind(&series, Kind::Counter(Temporality::Cumulative))?
        }
        Kind::Histogram(Temporality::Delta) => with_kind(&series, Kind::Gauge)?,
    };
    rows.series(&series.form(), &mut || Ok(series.clone()))?;
    let value = Value::Number(f64::from_bits(STALE_MARKER));
    left_out_at_limit(rows.sample(&Sample { start: at, end: at, value }))
}

fn with_kind(series: &Series, kind: Kind) -> Result<Series> {
    let like = Series::new(series.name(), kind).with_unit(series.unit());
    let labels = series.labels().iter();
    labels
        .fold(like, |like, (name, value)| like.with_label(name.as_str(), value.as_str()))
        .checked()
}

/// Rows that remember which series were read at a moment.
pub(crate) struct Watching<'a> {
    pub(crate) rows: &'a mut dyn Rows,
    pub(crate) seen: Seen,
    at: i64,
    /// The series' form, which is its key; empty without one.
    form: Vec<u8>,
}

impl<'a> Watching<'a> {
    pub(crate) fn new(rows: &'a mut dyn Rows, at: i64) -> Watching<'a> {
        Watching { rows, seen: Seen::default(), at, form: Vec::new() }
    }
}

impl Rows for Watching<'_> {
    fn series(&mut self, key: &[u8], series: &mut dyn FnMut() -> Result<Series>) -> Result<()> {
        self.form.clear();
        self.rows.series(key, series)?;
        self.form.extend_from_slice(key);
        Ok(())
    }

    fn sample(&mut self, sample: &Sample) -> Result<()> {
        self.rows.sample(sample)?;
        // What happened now is in the nanosecond that begins now.
        let is_now = sample.end == self.at || sample.start == self.at;
        if is_now && !self.form.is_empty() && !self.seen.0.contains(&self.form) {
            self.seen.0.insert(self.form.clone());
        }
        Ok(())
    }

    fn gap(&mut self, gap: Gap) {
        self.rows.gap(gap);
    }
}
