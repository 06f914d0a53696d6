//! Onset: the minute since which a row has too many values above its threshold.
//!
//! Windows of the length of "now" that end with each minute are tested backwards from the last one,
//! while their excess is significant: an earlier incident of the same hour, after which the row was
//! usual, is another one. Counts are those of the mini heatmap, whose bins are wide: values in the
//! bin of the threshold are not counted, so that the onset is late rather than early, and unknown
//! if the values above the threshold are all close to it.

use super::excess::{ALPHA, ExpectedValues};
use super::row_threshold::RowThreshold;

/// Values of a minute.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct MinuteAbove {
    /// Start, in nanoseconds since the Unix epoch.
    pub(super) start: i64,
    /// Values above the threshold.
    pub(super) above: u64,
    /// All values.
    pub(super) count: u64,
}

/// Position of the first minute of the excess that lasts until the last of some minutes; `None` if
/// that has none. `window` is the number of minutes of a window.
pub(super) fn onset(
    minutes: &[MinuteAbove],
    window: usize,
    threshold: &RowThreshold,
) -> Option<usize> {
    let first_of = |last: usize| (last + 1).saturating_sub(window);
    let is_significant = |last: usize| {
        let all = &minutes[first_of(last)..=last];
        let sum = |of: fn(&MinuteAbove) -> u64| all.iter().map(of).fold(0, u64::saturating_add);
        let expected = ExpectedValues::of(sum(|minute| minute.count), Some(threshold));
        expected.is_exceeded_by(sum(|minute| minute.above), ALPHA)
    };
    let mut last = minutes.len().checked_sub(1).filter(|last| is_significant(*last))?;
    while last > 0 && is_significant(last - 1) {
        last -= 1;
    }
    (first_of(last)..=last).find(|at| {
        let MinuteAbove { above, count, .. } = minutes[*at];
        above as f64 > ExpectedValues::of(count, Some(threshold)).number()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Minutes of 100 values, of which some are above.
    #[track_caller]
    fn check(above: impl IntoIterator<Item = u64>, expected: Option<usize>) {
        let minute = |(at, above)| MinuteAbove { start: at, above, count: 100 };
        let minutes: Vec<MinuteAbove> = (0..).zip(above).map(minute).collect();
        assert_eq!(onset(&minutes, 5, &RowThreshold::of_user(250.0)), expected);
    }

    #[test]
    fn onset_is_the_first_minute_with_too_many() {
        check([1; 60], None);
        check([1; 40].into_iter().chain([30; 20]), Some(40));
        // A single minute suffices, and a usual one in between is no end.
        check([0; 59].into_iter().chain([30]), Some(59));
        check([1; 50].into_iter().chain([30, 0, 1, 30, 0, 30, 1, 0]), Some(50));
        check([30; 60], Some(0));
        check([], None);
    }

    #[test]
    fn earlier_incident_of_the_same_hour_is_another_one() {
        let pause = [30; 10].into_iter().chain([1; 20]);
        check(pause.clone().chain([30; 10]), Some(30));
        check(pause, None);
    }
}
