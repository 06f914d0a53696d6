//! Stored series with the names under which a selector finds them.

use model::{Selector, Series};

use super::{BucketSearch, PrometheusSource, SourceSeries};
use crate::context::QueryContext;
use crate::error::Result;
use crate::labels::LabelSet;
use crate::prometheus_name::labeled_series;
use crate::source::{SeriesHandle, Source};

/// A stored series under one of its names.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedSeries {
    /// Name and labels under which it was found.
    pub labels: LabelSet,
    /// The series as it is stored.
    pub stored: Series,
    /// Number by which stored values are divided.
    pub divisor: f64,
}

/// Stored series that a selector matches under their own names or under those of Prometheus. The
/// series of a classic histogram are those of the stored histogram.
pub fn select_named_series(
    source: &dyn Source,
    selector: &Selector,
    context: &dyn QueryContext,
) -> Result<Vec<NamedSeries>> {
    let names = PrometheusSource::new(source, context);
    let mut found = Vec::new();
    for handle in names.find(selector, &BucketSearch::WithoutBounds)? {
        let entry = names.entry(&handle);
        let (stored, divisor): (&[SeriesHandle], f64) = match entry.as_deref() {
            None => (std::slice::from_ref(&handle), 1.0),
            Some(SourceSeries::Renamed(series)) => {
                (std::slice::from_ref(&series.handle), series.divisor)
            }
            Some(SourceSeries::Classic(series)) => {
                (&series.histogram.handles, series.histogram.divisor)
            }
        };
        let series = |of: &SeriesHandle| labeled_series(&of.labels, &of.unit, of.kind);
        found.extend(stored.iter().filter_map(series).map(|stored| NamedSeries {
            labels: handle.labels.clone(),
            stored,
            divisor,
        }));
    }
    Ok(found)
}
