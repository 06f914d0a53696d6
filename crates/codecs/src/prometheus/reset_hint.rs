//! Counter reset hints and their combination.

/// The sender's knowledge of a counter reset before this histogram; the numbers are those of
/// remote write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(i32)]
pub enum ResetHint {
    /// Unknown: compare with the previous sample.
    #[default]
    Unknown = 0,
    /// This is the first sample after a reset.
    Reset = 1,
    /// There was no reset.
    NotReset = 2,
    /// The histogram is a gauge and has no resets.
    Gauge = 3,
}

impl ResetHint {
    /// The hint with this number; unknown numbers mean unknown.
    pub(super) fn from_number(number: i32) -> ResetHint {
        use ResetHint::{Gauge, NotReset, Reset, Unknown};
        let hints = [Unknown, Reset, NotReset, Gauge];
        hints.into_iter().find(|&hint| hint as i32 == number).unwrap_or(Unknown)
    }

    /// Hint of a sum or difference, and whether the two hints conflict, which causes a warning.
    pub fn combine(self, other: ResetHint) -> (ResetHint, bool) {
        match (self, other) {
            (a, b) if a == b => (a, false),
            (ResetHint::Gauge, _) | (_, ResetHint::Gauge) => (ResetHint::Gauge, false),
            (ResetHint::Unknown, _) | (_, ResetHint::Unknown) => (ResetHint::Unknown, false),
            _ => (ResetHint::Unknown, true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ResetHint::{self, *};

    #[track_caller]
    fn check(a: ResetHint, b: ResetHint, expected: ResetHint, collide: bool) {
        assert_eq!(a.combine(b), (expected, collide));
        assert_eq!(b.combine(a), (expected, collide));
    }

    #[test]
    fn only_reset_and_not_reset_collide() {
        check(Reset, NotReset, Unknown, true);
        check(Reset, Reset, Reset, false);
        check(Reset, Gauge, Gauge, false);
        check(Unknown, Gauge, Gauge, false);
        check(NotReset, Unknown, Unknown, false);
    }
}
