//! Counter reset hints and their combination.

/// Hint whether a counter was reset before this histogram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResetHint {
    /// Unknown: must be detected.
    #[default]
    Unknown,
    /// Reset.
    Reset,
    /// No reset.
    NotReset,
    /// Not a counter.
    Gauge,
}

impl ResetHint {
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
