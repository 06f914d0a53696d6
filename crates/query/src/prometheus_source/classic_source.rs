//! The stored histogram of `x_bucket`, `x_count` and `x_sum`.

use std::ops::Range;

use hist::Mixture;
use model::SeriesKind;
use store::TimeGrid;

use crate::classic_part::BucketBounds;
use crate::error::Result;
use crate::histogram::FloatHistogram;
use crate::source::{SeriesHandle, Source, SourceRead};
use crate::stream::SeriesPoint;
use crate::value::{StepValue, is_stale};

use super::converted_unit;

/// End of a range in which a list of buckets reads all samples: some scrapes.
const LAST_SAMPLES: i64 = 5 * store::MINUTE;

/// Stored histogram of which series are computed.
pub(super) struct ClassicSource {
    /// The histogram, and the series of its staleness markers.
    pub(super) handles: Vec<SeriesHandle>,
    pub(super) unit: String,
    /// Number by which stored values are divided.
    pub(super) divisor: f64,
}

impl ClassicSource {
    /// Samples and staleness markers, by time.
    pub(super) fn read_samples(
        &self,
        stored: &dyn Source,
        range: Range<i64>,
    ) -> Result<SourceRead<SeriesPoint>> {
        let mut all = SourceRead { values: Vec::new(), gaps: Vec::new() };
        for handle in &self.handles {
            let mut read = stored.samples(handle, range.clone())?;
            if !matches!(handle.kind, SeriesKind::Histogram(_)) {
                read.values.retain(|point| point.value.number().is_some_and(is_stale));
            }
            all.gaps.extend(read.gaps);
            for point in read.values {
                let value = match point.value.histogram() {
                    Some(histogram) => StepValue::Histogram(histogram),
                    None => point.value,
                };
                all.values.push(SeriesPoint { value, ..point });
            }
        }
        if self.handles.len() > 1 {
            model::sort::by_key(&mut all.values, |point| {
                (point.time, !point.value.is_distribution())
            });
            all.values.dedup_by_key(|point| point.time);
        }
        converted_unit::divide_samples(&mut all, self.divisor);
        Ok(all)
    }

    /// Increases in columns.
    pub(super) fn read_increases(
        &self,
        stored: &dyn Source,
        grid: TimeGrid,
    ) -> Result<SourceRead<Mixture>> {
        let is_histogram = |of: &&SeriesHandle| matches!(of.kind, SeriesKind::Histogram(_));
        let histograms: Vec<&SeriesHandle> = self.handles.iter().filter(is_histogram).collect();
        let mut read = stored.histograms(&histograms, grid)?;
        converted_unit::divide_mixtures(&mut read, self.divisor);
        Ok(read)
    }

    /// Bounds of the buckets of the increase in a range, whose length costs little since it is read
    /// from rollups, and of the last samples, which exist without an increase too.
    pub(super) fn list_bounds(
        &self,
        stored: &dyn Source,
        range: &Range<i64>,
    ) -> Result<BucketBounds> {
        let mut bounds = BucketBounds::default();
        if let Some(all) = stored.time_range(&self.handles, range.clone())? {
            let step = all.end.saturating_sub(all.start);
            let read =
                self.read_increases(stored, TimeGrid { start: all.start, step, columns: 1 })?;
            for part in read.values.iter().flat_map(Mixture::components) {
                bounds.add(&FloatHistogram::from(part));
            }
            let last = all.end.saturating_sub(LAST_SAMPLES).max(all.start)..all.end;
            let last = self.read_samples(stored, last)?;
            for histogram in last.values.iter().filter_map(|point| point.value.histogram()) {
                bounds.add(&histogram);
            }
        }
        Ok(bounds)
    }
}
