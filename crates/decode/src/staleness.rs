//! Staleness markers: a series has ended.
//!
//! Prometheus' marker is a NaN with a fixed bit pattern:
//! <https://prometheus.io/docs/prometheus/latest/querying/basics/#staleness>. The marker of a
//! histogram series is a number with the same name and labels, as in remote write; queries join the
//! two series. Texts have no markers.

use std::ops::Range;

use codecs::prometheus::STALE_MARKER;
use hist::codec::header::Temporality;
use model::{Error, Result, Sample, SampleValue, Series, SeriesKind};

use crate::series_sink::SeriesSink;

/// A row that exceeds a limit of the store is dropped; the other rows of the scrape are stored.
pub fn ignore_limit_error(result: Result<()>) -> Result<()> {
    match result {
        Err(Error::SeriesLimit { .. }) => Ok(()),
        result => result,
    }
}

/// Writes the staleness marker of a series whose source stopped.
pub fn mark_series_stale(series: Series, at: i64, sink: &mut dyn SeriesSink) -> Result<()> {
    mark(series, at..at, sink)
}

/// Writes the staleness marker of a series that somebody ended. It begins a nanosecond before it
/// ends, by which rules tell it from one of a source that stopped.
pub fn mark_series_retired(series: Series, at: i64, sink: &mut dyn SeriesSink) -> Result<()> {
    mark(series, at.saturating_sub(1)..at, sink)
}

fn mark(series: Series, interval: Range<i64>, sink: &mut dyn SeriesSink) -> Result<()> {
    let Some(series) = marker_series(&series)? else { return Ok(()) };
    sink.series(&series.canonical_key(), &mut || Ok(series.clone()))?;
    let value = SampleValue::Number(f64::from_bits(STALE_MARKER));
    ignore_limit_error(sink.sample(&Sample { start: interval.start, end: interval.end, value }))
}

/// The series that has the staleness markers of a series: itself, or a number with the same name
/// and labels; `None` for texts.
pub fn marker_series(series: &Series) -> Result<Option<Series>> {
    let kind = match series.kind() {
        SeriesKind::Text => return Ok(None),
        SeriesKind::Counter(_) | SeriesKind::Gauge => return Ok(Some(series.clone())),
        SeriesKind::Histogram(Temporality::Cumulative) => {
            SeriesKind::Counter(Temporality::Cumulative)
        }
        SeriesKind::Histogram(Temporality::Delta) => SeriesKind::Gauge,
    };
    with_kind(series, kind).map(Some)
}

fn with_kind(series: &Series, kind: SeriesKind) -> Result<Series> {
    let like = Series::new(series.name(), kind).with_unit(series.unit());
    let labels = series.labels().iter();
    labels
        .fold(like, |like, (name, value)| like.with_label(name.as_str(), value.as_str()))
        .validate()
}
