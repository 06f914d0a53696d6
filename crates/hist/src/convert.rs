//! A histogram moved to a grid that its own does not nest in, and what the move costs.

use crate::error::MergeError;
use crate::histogram::{Histogram, Parts};
use crate::scheme::{Place, Scheme};

/// A histogram on another grid than its source, and how far its values may now lie from the truth.
#[derive(Clone, Debug, PartialEq)]
pub struct Converted {
    /// Counts on the new grid, each bucket of the source moved whole. Its brackets speak of the values as
    /// moved to the middles of their buckets: the recorded ones lie as far from those as the source's
    /// grid left open.
    pub histogram: Histogram,
    /// Greatest relative distance between the middle of a source bucket and the far end of the bucket it
    /// was moved to.
    pub error_added: f64,
}

impl Histogram {
    /// The same counts on another grid: each bucket goes whole to the one that holds its middle. Minimum and
    /// maximum that contradict the new buckets become estimates, and so does the sum.
    pub fn convert(&self, scheme: &Scheme) -> Result<Converted, MergeError> {
        if self.scheme().common(scheme).as_ref() == Some(scheme) {
            let mut histogram = Histogram::new(scheme.clone());
            histogram.merge(self)?;
            return Ok(Converted { histogram, error_added: 0.0 });
        }
        let mut counts = Histogram::new(scheme.clone());
        let mut error_added: f64 = 0.0;
        // Whole buckets: two whose exact extremes touch would meet in one.
        for cell in self.whole_cells() {
            let middle = cell.middle();
            counts.record_n(middle, cell.count);
            let held = match scheme.place(middle, 0.0) {
                Place::Positive(index) => scheme.span(index),
                Place::Negative(index) => scheme.span(index).map(|(lower, upper)| (-upper, -lower)),
                _ => None,
            };
            if let Some((lower, upper)) = held.filter(|_| middle != 0.0) {
                let far = (middle - lower).abs().max((upper - middle).abs());
                error_added = error_added.max(far / middle.abs());
            }
        }
        let counts = counts.into_parts();
        let parts = Parts {
            // What counted as zero may have been as large as this.
            zero_threshold: if self.zero_count() > 0 { self.zero_end() } else { 0.0 },
            nan: self.nan_count(),
            sum: self.sum_side(),
            min: self.min_side(),
            max: self.max_side(),
            thresholds: self.thresholds().to_vec(),
            ..counts
        };
        let histogram = Histogram::from_parts(parts).expect("BUG: parts of a histogram make one");
        Ok(Converted { histogram, error_added })
    }
}
