//! Flapping: how often an alert began or stopped to fire in its last evaluations.

/// Evaluations that are remembered.
const FLAP_WINDOW_EVALUATIONS: u32 = 20;
/// Changes in the window from which an alert is flapping.
const FLAP_CHANGES_MIN: u32 = 4;

const WINDOW_MASK: u32 = (1 << FLAP_WINDOW_EVALUATIONS) - 1;

/// Changes of an alert between firing and not firing, one bit for each evaluation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlapCounter {
    /// Whether the state changed; the latest evaluation is the lowest bit.
    pub(crate) changes: u32,
    pub(crate) is_firing: bool,
}

impl FlapCounter {
    /// Counts an evaluation.
    pub(crate) fn record(&mut self, is_firing: bool) {
        let has_changed = is_firing != self.is_firing;
        self.changes = ((self.changes << 1) | u32::from(has_changed)) & WINDOW_MASK;
        self.is_firing = is_firing;
    }

    /// Number of changes in the window.
    pub fn change_count(self) -> u32 {
        self.changes.count_ones()
    }

    /// Whether the alert is flapping.
    pub fn is_flapping(self) -> bool {
        self.change_count() >= FLAP_CHANGES_MIN
    }

    /// Whether the counter equals one that has seen no evaluation.
    pub(crate) fn is_empty(self) -> bool {
        self == FlapCounter::default()
    }

    /// Counter of stored values, if they are valid.
    pub(crate) fn from_stored(changes: u32, is_firing: bool) -> Option<FlapCounter> {
        (changes & !WINDOW_MASK == 0).then_some(FlapCounter { changes, is_firing })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the alert is flapping after each evaluation; `1` is firing.
    #[track_caller]
    fn check(firing: &str, expected: &str) {
        let mut counter = FlapCounter::default();
        let mut found = String::new();
        for state in firing.chars() {
            counter.record(state == '1');
            found.push(if counter.is_flapping() { 'f' } else { '.' });
        }
        assert_eq!(found, expected, "{firing}");
    }

    #[test]
    fn four_changes_in_twenty_evaluations_are_flapping() {
        check("10100", "...ff");
        check("1000000001", "..........");
        check("1111111111", "..........");
        let steady = "0".repeat(20);
        // The first of the four changes leaves the window after 20 evaluations.
        let expected = format!("...{}....", "f".repeat(17));
        check(&format!("1010{steady}"), &expected);
    }
}
