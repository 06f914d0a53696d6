//! Counter reset detection from buckets: a count has decreased.

use super::{FloatHistogram, ResetHint};

impl FloatHistogram {
    /// Whether a counter was reset after `previous`: by the hint if there is one, otherwise because
    /// a count decreased or the buckets became finer, which only a restart allows. A gauge is
    /// treated as a counter.
    pub(crate) fn detect_reset(&self, previous: &FloatHistogram) -> bool {
        match self.hint {
            ResetHint::Reset => return true,
            ResetHint::NotReset => return false,
            ResetHint::Unknown | ResetHint::Gauge => {}
        }
        if self.count < previous.count {
            return true;
        }
        let Ok(common) = self.grid.common(&previous.grid) else { return true };
        if self.grid.is_custom() && self.grid != previous.grid {
            let (now, before) = (self.downscale(&common), previous.downscale(&common));
            // Bounds were added or removed; a decrease shows between the bounds that stayed.
            return before.positive.iter().any(|&(index, count)| {
                let at = now.positive.binary_search_by_key(&index, |now| now.0);
                at.map_or(0.0, |at| now.positive[at].1) < count
            });
        }
        if common != self.grid || self.zero_threshold < previous.zero_threshold {
            return true;
        }
        let (zero, threshold) = previous.zero_count_within(self.zero_threshold, None);
        if threshold > self.zero_threshold || self.zero_count < zero.sum {
            return true;
        }
        let before = previous.downscale(&common);
        [true, false].into_iter().any(|positive| {
            has_decrease(
                self.buckets_outside_zero(positive, self.zero_threshold),
                before.buckets_outside_zero(positive, self.zero_threshold),
            )
        })
    }
}

/// Whether any bucket has decreased or disappeared.
fn has_decrease(now: &[(i32, f64)], before: &[(i32, f64)]) -> bool {
    let mut now = now.iter().copied().peekable();
    before.iter().any(|&(index, count)| {
        while now.next_if(|now| now.0 < index).is_some() {}
        now.next_if(|now| now.0 == index).is_none_or(|(_, now)| now < count)
    })
}

#[cfg(test)]
mod tests {
    use super::super::parse_description;

    #[track_caller]
    fn check(previous: &str, now: &str, expected: bool) {
        let read = |text| parse_description(text).unwrap().histogram;
        assert_eq!(read(now).detect_reset(&read(previous)), expected);
    }

    #[test]
    fn decrease_or_missing_bucket_is_a_reset() {
        check("{{count:3 buckets:[1 2]}}", "{{count:4 buckets:[2 2]}}", false);
        check("{{count:3 buckets:[1 2]}}", "{{count:4 buckets:[3 1]}}", true);
        check("{{count:3 buckets:[1 2]}}", "{{count:4 buckets:[4]}}", true);
        check("{{count:3 buckets:[1 2]}}", "{{count:2 buckets:[1 2]}}", true);
        check("{{count:3 n_buckets:[1 2]}}", "{{count:4 n_buckets:[3 1]}}", true);
        check("{{count:3 z_bucket:3}}", "{{count:3 z_bucket:2 buckets:[1]}}", true);
    }

    #[test]
    fn hints_are_believed() {
        check("{{}}", "{{counter_reset_hint:reset}}", true);
        check("{{count:9}}", "{{counter_reset_hint:not_reset}}", false);
        check("{{count:9}}", "{{count:8 counter_reset_hint:gauge}}", true);
    }

    #[test]
    fn coarser_is_no_reset_and_finer_is() {
        check("{{schema:1 count:3 buckets:[1 1 1]}}", "{{count:3 buckets:[1 2]}}", false);
        check("{{schema:1 count:3 buckets:[1 1 1]}}", "{{count:3 buckets:[2 1]}}", true);
        check("{{count:3 buckets:[1 2]}}", "{{schema:1 count:3 buckets:[1 1 1]}}", true);
    }

    #[test]
    fn zero_buckets_may_grow_up_to_a_bound() {
        let before = "{{count:3 z_bucket:1 z_bucket_w:0.5 buckets:[1 1]}}";
        check(before, "{{count:3 z_bucket:2 z_bucket_w:1 offset:1 buckets:[1]}}", false);
        check(before, "{{count:3 z_bucket:1 z_bucket_w:1 offset:1 buckets:[2]}}", true);
        check(before, "{{count:4 z_bucket:3 z_bucket_w:0.75 offset:1 buckets:[1]}}", true);
        check(before, "{{count:4 z_bucket:3 z_bucket_w:0.25 buckets:[1 1]}}", true);
    }

    #[test]
    fn custom_bounds_are_compared_where_both_have_them() {
        let before = "{{schema:-53 count:3 custom_values:[1 2 3] buckets:[1 1 1]}}";
        check(before, "{{schema:-53 count:3 custom_values:[2 3] buckets:[2 1]}}", false);
        check(before, "{{schema:-53 count:3 custom_values:[2 3] buckets:[1 2]}}", true);
        check(before, "{{count:3 buckets:[1 2]}}", true);
        check("{{count:3 buckets:[1 2]}}", before, true);
    }
}
