//! What is known of counter resets, and what remains of it when histograms are put together.

/// What is known of a counter's reset before this histogram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResetHint {
    /// Nothing: it has to be looked for.
    #[default]
    Unknown,
    /// There was one.
    Reset,
    /// There was none.
    NotReset,
    /// It is no counter.
    Gauge,
}

impl ResetHint {
    /// The hint of a sum or difference, and whether one said reset and the other none: that is
    /// worth a warning.
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
