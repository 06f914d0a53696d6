//! Validation of histograms.

use super::number::GoNumber;
use super::{BucketGrid, FloatHistogram};

/// Defect of a histogram, caused by its producer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidHistogram {
    /// Bounds out of order, NaN, or infinite.
    #[error(
        "custom buckets: histogram custom bound {} is {}, expected finite rising bounds",
        position + 1,
        GoNumber(*found)
    )]
    Bound {
        /// Position of the bound.
        position: usize,
        /// Value of the bound.
        found: f64,
    },
    /// Bucket index outside the grid.
    #[error("histogram has bucket {index}, outside the range of {grid}")]
    Index {
        /// Bucket index.
        index: i32,
        /// Bucket grid.
        grid: String,
    },
    /// Buckets out of order.
    #[error("histogram has bucket {index} out of order")]
    Order {
        /// Bucket index.
        index: i32,
    },
    /// Field that custom buckets do not have.
    #[error("custom buckets: must have no {field}")]
    NotWithCustom {
        /// Name of the field.
        field: &'static str,
    },
    /// Unknown schema.
    #[error(
        "histogram has an invalid schema, which must be between -4 and 8 for exponential buckets, \
         or -53 for custom buckets, got schema {found}"
    )]
    Schema {
        /// Schema number.
        found: i32,
    },
    /// Negative count.
    #[error("histogram has {field} whose observation count is negative: {}", GoNumber(*found))]
    NegativeCount {
        /// Name of the field.
        field: &'static str,
        /// Count.
        found: f64,
    },
}

impl FloatHistogram {
    /// Checks properties that every recorded histogram has. The count is not compared with the sum
    /// of the buckets, because rounding may change either.
    pub fn validate(&self) -> Result<(), InvalidHistogram> {
        match &self.grid {
            BucketGrid::Custom(bounds) => {
                self.check_bounds(bounds)?;
                self.check_custom_fields()?;
            }
            BucketGrid::Exponential(schema) if !(-4..=8).contains(schema) => {
                return Err(InvalidHistogram::Schema { found: *schema });
            }
            _ => {}
        }
        for counts in [&self.positive, &self.negative] {
            if let Some(pair) = counts.windows(2).find(|pair| pair[0].0 >= pair[1].0) {
                return Err(InvalidHistogram::Order { index: pair[1].0 });
            }
        }
        let buckets = |counts: &[(i32, f64)], field| {
            counts.iter().map(|&(_, count)| (field, count)).collect::<Vec<_>>()
        };
        let mut all = buckets(&self.negative, "a negative bucket");
        all.extend([("a zero bucket", self.zero_count), ("a total", self.count)]);
        all.extend(buckets(&self.positive, "a positive bucket"));
        match all.into_iter().find(|&(_, count)| count < 0.0) {
            Some((field, found)) => Err(InvalidHistogram::NegativeCount { field, found }),
            None => Ok(()),
        }
    }

    fn check_bounds(&self, bounds: &[f64]) -> Result<(), InvalidHistogram> {
        for (position, &found) in bounds.iter().enumerate() {
            let rises = position == 0 || bounds[position - 1] < found;
            if !rises || !found.is_finite() {
                return Err(InvalidHistogram::Bound { position, found });
            }
        }
        let has = |index: i32| usize::try_from(index).is_ok_and(|index| index <= bounds.len());
        match self.positive.iter().find(|&&(index, _)| !has(index)) {
            Some(&(index, _)) => {
                Err(InvalidHistogram::Index { index, grid: self.grid.to_string() })
            }
            None => Ok(()),
        }
    }

    fn check_custom_fields(&self) -> Result<(), InvalidHistogram> {
        let found = [
            ("zero count", self.zero_count != 0.0),
            ("zero threshold", self.zero_threshold != 0.0),
            ("negative buckets", !self.negative.is_empty()),
        ];
        match found.into_iter().find(|&(_, is_there)| is_there) {
            Some((field, _)) => Err(InvalidHistogram::NotWithCustom { field }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::histogram::parse_description;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let found = parse_description(text).unwrap().histogram.validate();
        assert_eq!(found.err().map(|error| error.to_string()).unwrap_or_default(), expected);
    }

    #[test]
    fn errors_name_the_problem() {
        check("{{count:1 buckets:[1]}}", "");
        check("{{schema:-53 custom_values:[1 2] buckets:[1 1 1]}}", "");
        check(
            "{{schema:-53 custom_values:[1] buckets:[1 1 1]}}",
            "histogram has bucket 2, outside the range of 1 custom bound",
        );
        check(
            "{{schema:-53 custom_values:[1 1]}}",
            "custom buckets: histogram custom bound 2 is 1, expected finite rising bounds",
        );
        check(
            "{{schema:-53 custom_values:[-Inf 1]}}",
            "custom buckets: histogram custom bound 1 is -Inf, expected finite rising bounds",
        );
        check("{{schema:-53 z_bucket:1}}", "custom buckets: must have no zero count");
        check(
            "{{buckets:[-1]}}",
            "histogram has a positive bucket whose observation count is negative: -1",
        );
        check("{{count:-1}}", "histogram has a total whose observation count is negative: -1");
    }
}
