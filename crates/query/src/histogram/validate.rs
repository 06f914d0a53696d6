//! Validation of histograms.

use super::number::GoNumber;
use super::{BucketGrid, FloatHistogram};

/// What is wrong with a histogram: whoever made it is to blame.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidHistogram {
    /// Bounds out of order, not a number, or infinite.
    #[error("custom buckets: histogram custom bound {} is {}, wanted finite ones that rise", position + 1, GoNumber(*found))]
    Bound {
        /// Which bound.
        position: usize,
        /// What it is.
        found: f64,
    },
    /// A bucket that the grid does not have.
    #[error("histogram has bucket {index}, which {grid} do not reach")]
    Index {
        /// Which bucket.
        index: i32,
        /// The grid.
        grid: String,
    },
    /// Buckets out of order.
    #[error("histogram has bucket {index} after one that is not lower")]
    Order {
        /// Which bucket.
        index: i32,
    },
    /// What custom buckets do not have.
    #[error("custom buckets: must have no {field}")]
    NotWithCustom {
        /// What there is.
        field: &'static str,
    },
    /// A schema that there is not.
    #[error(
        "histogram has an invalid schema, which must be between -4 and 8 for exponential buckets, \
         or -53 for custom buckets, got schema {found}"
    )]
    Schema {
        /// Which one.
        found: i32,
    },
    /// A count below zero.
    #[error("histogram has {field} whose observation count is negative: {}", GoNumber(*found))]
    NegativeCount {
        /// Where.
        field: &'static str,
        /// How many.
        found: f64,
    },
}

impl FloatHistogram {
    /// Looks for what no recorded histogram has. That the count is the sum of the buckets is not
    /// looked at: rounding allows for less.
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
        let buckets = |counts: &[(i32, f64)], what| {
            counts.iter().map(|&(_, count)| (what, count)).collect::<Vec<_>>()
        };
        let mut all = buckets(&self.negative, "a negative bucket");
        all.extend([("a zero bucket", self.zero_count), ("a total", self.count)]);
        all.extend(buckets(&self.positive, "a positive bucket"));
        match all.into_iter().find(|&(_, count)| count < 0.0) {
            Some((what, found)) => Err(InvalidHistogram::NegativeCount { field: what, found }),
            None => Ok(()),
        }
    }

    fn check_bounds(&self, bounds: &[f64]) -> Result<(), InvalidHistogram> {
        for (position, &found) in bounds.iter().enumerate() {
            let rises = position == 0 || bounds[position - 1] < found;
            if !rises || found.is_nan() || found == f64::INFINITY {
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
            Some((what, _)) => Err(InvalidHistogram::NotWithCustom { field: what }),
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
            "histogram has bucket 2, which 1 custom bounds do not reach",
        );
        check(
            "{{schema:-53 custom_values:[1 1]}}",
            "custom buckets: histogram custom bound 2 is 1, wanted finite ones that rise",
        );
        check("{{schema:-53 z_bucket:1}}", "custom buckets: must have no zero count");
        check(
            "{{buckets:[-1]}}",
            "histogram has a positive bucket whose observation count is negative: -1",
        );
        check("{{count:-1}}", "histogram has a total whose observation count is negative: -1");
    }
}
