//! Texts of bucket bounds, which the histograms of a response have in common: two thirds of its
//! numbers.

use std::fmt::{Result, Write as _};
use std::ops::Range;

use query::Bucket;

use crate::number::write_number_then;

/// Maximum number of buckets whose text is kept, with some 60 bytes each.
const BUCKETS_MAX: usize = 1 << 12;

/// Texts of the bounds of buckets, made when they are first asked for.
#[derive(Debug, Default)]
pub(crate) struct BucketTexts {
    /// Ascending.
    buckets: Vec<(WrittenBounds, Range<usize>)>,
    text: String,
    /// Text of a bucket beyond the maximum.
    unkept: String,
    /// Position after that of the last one: buckets are asked for in ascending order.
    next: usize,
}

/// Bounds of a bucket, and Prometheus' number of what they include.
#[derive(Clone, Copy, Debug)]
struct WrittenBounds {
    lower: f64,
    upper: f64,
    rule: u8,
}

impl WrittenBounds {
    fn of(bucket: &Bucket) -> WrittenBounds {
        let rule = match (bucket.lower_inclusive, bucket.upper_inclusive) {
            (false, true) => 0,
            (true, false) => 1,
            (false, false) => 2,
            (true, true) => 3,
        };
        WrittenBounds { lower: bucket.lower, upper: bucket.upper, rule }
    }

    fn order(&self, other: &WrittenBounds) -> std::cmp::Ordering {
        let bounds = self.lower.total_cmp(&other.lower).then(self.upper.total_cmp(&other.upper));
        bounds.then(self.rule.cmp(&other.rule))
    }

    /// Writes `[rule,"lower","upper",`.
    fn write(&self, out: &mut String) -> Result {
        write!(out, "[{},", self.rule)?;
        write_number_then(out, self.lower, ",")?;
        write_number_then(out, self.upper, ",")
    }
}

impl BucketTexts {
    /// Begin of a bucket: number of what the bounds include, lower and upper bound.
    pub(crate) fn bounds(&mut self, bucket: &Bucket) -> &str {
        let bounds = WrittenBounds::of(bucket);
        let is_same = |held: &(WrittenBounds, Range<usize>)| held.0.order(&bounds).is_eq();
        if !self.buckets.get(self.next).is_some_and(is_same) {
            self.next = match self.buckets.binary_search_by(|held| held.0.order(&bounds)) {
                Ok(at) => at,
                Err(at) if self.buckets.len() < BUCKETS_MAX => self.add(at, bounds),
                Err(_) => {
                    self.unkept.clear();
                    bounds.write(&mut self.unkept).expect("BUG: a string takes any text");
                    return &self.unkept;
                }
            };
        }
        let range = self.buckets[self.next].1.clone();
        self.next += 1;
        &self.text[range]
    }

    /// Adds a bucket at a position; returns the position at which it is.
    fn add(&mut self, at: usize, bounds: WrittenBounds) -> usize {
        let start = self.text.len();
        bounds.write(&mut self.text).expect("BUG: a string takes any text");
        self.buckets.insert(at, (bounds, start..self.text.len()));
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_those_of_their_buckets() {
        let mut texts = BucketTexts::default();
        let bucket = |lower: f64, upper: f64, lower_inclusive: bool| Bucket {
            lower,
            upper,
            lower_inclusive,
            upper_inclusive: true,
            count: 1.0,
        };
        let mut check = |bucket: &Bucket, expected: &str| {
            assert_eq!(texts.bounds(bucket), expected);
        };
        for _ in 0..2 {
            check(&bucket(-0.5, -0.25, false), r#"[0,"-0.5","-0.25","#);
            check(&bucket(-1e-9, 1e-9, true), r#"[3,"-1e-09","1e-09","#);
            check(&bucket(0.25, 0.5, false), r#"[0,"0.25","0.5","#);
            check(&bucket(0.25, f64::INFINITY, false), r#"[0,"0.25","+Inf","#);
        }
        // A histogram with other buckets in between, and one of more buckets than are kept.
        check(&bucket(-0.3, 0.0, true), r#"[3,"-0.3","0","#);
        for index in 0..2 * BUCKETS_MAX as i32 {
            let [lower, upper] = [index, index + 1].map(f64::from);
            check(&bucket(lower, upper, false), &format!(r#"[0,"{lower}","{upper}","#));
        }
        check(&bucket(0.0, 1.0, false), r#"[0,"0","1","#);
        check(&bucket(-0.5, -0.25, false), r#"[0,"-0.5","-0.25","#);
    }
}
