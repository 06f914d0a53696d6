//! Series that are computed from a stored histogram: their samples and increases.

use std::ops::Range;
use std::sync::Arc;

use hist::Mixture;
use store::{NumberAggregate, TimeGrid};

use super::PrometheusSource;
use super::bucket_tables::BucketTables;
use super::classic_source::ClassicSource;
use super::found_buckets::BoundsRead;
use crate::classic_part::{BucketBounds, ClassicPart};
use crate::error::{Error, Result};
use crate::histogram::FloatHistogram;
use crate::source::SourceRead;
use crate::stream::SeriesPoint;
use crate::value::{StepValue, is_stale};

/// Samples of a longer range are read once for each group of buckets, not kept.
const KEPT_RANGE_MAX: i64 = store::DAY;

/// Series computed from a histogram.
pub(super) struct ClassicSeries {
    pub(super) histogram: Arc<ClassicSource>,
    /// Counts of the selected buckets.
    pub(super) tables: Option<Arc<BucketTables>>,
    pub(super) part: ClassicPart,
}

impl PrometheusSource<'_> {
    /// Bounds of the buckets in a range.
    pub(super) fn read_bounds(
        &self,
        histogram: &ClassicSource,
        range: &Range<i64>,
    ) -> Result<(BucketBounds, BoundsRead)> {
        let (mut bounds, mut read) = (BucketBounds::default(), BoundsRead::default());
        if let Some(all) = self.stored.time_range(&histogram.handles, range.clone())? {
            let is_kept = all.end.saturating_sub(all.start) <= KEPT_RANGE_MAX;
            let mut kept = Ok(None);
            self.read_slices(histogram, &all, &mut |found| {
                for histogram in found.values.iter().filter_map(|point| point.value.histogram()) {
                    bounds.add(&histogram);
                }
                read.count += found.values.len();
                if is_kept {
                    let samples = found.values.iter().map(|point| point.value.samples()).sum();
                    kept = self.reserve(samples).map(|()| Some(found));
                }
            })?;
            (read.kept, read.range) = (kept?, all);
        }
        Ok((bounds, read))
    }

    /// Samples of a histogram in a range, day by day.
    fn read_slices(
        &self,
        histogram: &ClassicSource,
        range: &Range<i64>,
        each: &mut dyn FnMut(SourceRead<SeriesPoint>),
    ) -> Result<()> {
        let mut start = range.start;
        while start < range.end {
            if self.context.is_cancelled() {
                return Err(Error::Timeout);
            }
            let end = start.saturating_add(KEPT_RANGE_MAX).min(range.end);
            each(histogram.read_samples(self.stored, start..end)?);
            start = end;
        }
        Ok(())
    }

    pub(super) fn classic_samples(
        &self,
        series: &ClassicSeries,
        range: Range<i64>,
    ) -> Result<SourceRead<SeriesPoint>> {
        let ClassicSeries { histogram, tables, part } = series;
        if let (Some(tables), ClassicPart::Bucket(bound)) = (tables, part) {
            let all = tables.range().clone();
            let mut read = |each: &mut dyn FnMut(SourceRead<SeriesPoint>)| {
                self.read_slices(histogram, &all, each)
            };
            let reserve = |samples| self.reserve(samples);
            if let Some(found) = tables.samples(*bound, &range, &mut read, &reserve)? {
                return Ok(found);
            }
        }
        let value = |point: &SeriesPoint| {
            let value = match &point.value {
                StepValue::Histogram(histogram) if is_stale(histogram.sum) => histogram.sum,
                StepValue::Histogram(histogram) => part.value(histogram)?,
                other => other.number()?,
            };
            Some(SeriesPoint { value: StepValue::Number(value), ..*point })
        };
        let read = histogram.read_samples(self.stored, range)?;
        Ok(SourceRead { values: read.values.iter().filter_map(value).collect(), gaps: read.gaps })
    }

    /// Increases of a computed series.
    pub(super) fn classic_numbers(
        &self,
        series: &ClassicSeries,
        grid: TimeGrid,
    ) -> Result<SourceRead<Option<NumberAggregate>>> {
        let read = || {
            let read = series.histogram.read_increases(self.stored, grid)?;
            let histogram = |mixture: &Mixture| {
                (!mixture.components().is_empty()).then(|| FloatHistogram::from(mixture))
            };
            let values = read.values.iter().map(histogram).collect();
            Ok(SourceRead { values, gaps: read.gaps })
        };
        let number = |count: Option<f64>| count.map(NumberAggregate::of_number);
        if let (Some(tables), ClassicPart::Bucket(bound)) = (&series.tables, series.part) {
            let reserve = |samples| self.reserve(samples);
            if let Some(found) = tables.increases(bound, grid, &read, &reserve)? {
                let values = found.values.into_iter().map(number).collect();
                return Ok(SourceRead { values, gaps: found.gaps });
            }
        }
        let SourceRead { values, gaps } = read()?;
        let part = |histogram: Option<FloatHistogram>| number(series.part.value(&histogram?));
        Ok(SourceRead { values: values.into_iter().map(part).collect(), gaps })
    }
}
