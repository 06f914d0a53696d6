//! Writes a sample of a series.

use std::ops::Range;

use anyhow::{Error, Result};
use decode::SeriesSink;
use model::{Sample, SampleValue, Series};

/// Writes a sample to a batch.
pub(crate) fn write_sample(
    batch: &mut dyn SeriesSink,
    series: Series,
    interval: &Range<i64>,
    value: SampleValue,
) -> Result<()> {
    let series = series.validate()?;
    let key = series.canonical_key();
    batch.series(&key, &mut || Ok(series.clone()))?;
    let sample = Sample { start: interval.start, end: interval.end, value };
    batch.sample(&sample).map_err(Error::from)
}
