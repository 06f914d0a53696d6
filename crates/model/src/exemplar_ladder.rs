//! Coarse ladder of the values of exemplars: six cells per decade, with bounds that people use as
//! thresholds.
//!
//! The bounds are 1, 1.5, 2, 3, 5 and 7, times powers of ten from 1e-15 to 1e21; a cell includes
//! its lower bound. Values nearer to zero share a cell, and so do larger ones; negative values have
//! the same cells mirrored. Each bound is the double nearest to its decimal spelling from 1e-22 to
//! 1e22, so that a threshold such as 1.5 is exactly a bound.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::ops::Range;

const STEPS: [f64; 6] = [1.0, 1.5, 2.0, 3.0, 5.0, 7.0];
const STEPS_PER_DECADE: i16 = STEPS.len() as i16;
const DECADE_MIN: i16 = -15;
const DECADE_MAX: i16 = 20;
/// Number of the last cell above zero.
const CELL_MAX: i16 = (DECADE_MAX - DECADE_MIN + 1) * STEPS_PER_DECADE;

/// A cell: 0 around zero, from 1 to 216 above it, negative below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LadderCell(i16);

impl LadderCell {
    /// The cell of a finite value.
    #[expect(clippy::arithmetic_side_effects, reason = "cells are within ±216")]
    pub fn of(value: f64) -> LadderCell {
        let magnitude = value.abs();
        // The first guess may be off by one, because a logarithm is rounded.
        let decade = magnitude.log10().floor().clamp(-400.0, 400.0) as i16;
        let first = decade.saturating_sub(DECADE_MIN).saturating_mul(STEPS_PER_DECADE);
        let first = first.saturating_sub(1).clamp(0, CELL_MAX);
        let above = (first..CELL_MAX).take_while(|&cell| lower_bound(cell + 1) <= magnitude);
        let cell = above.last().map_or(first, |cell| cell + 1);
        LadderCell(if value < 0.0 { -cell } else { cell })
    }

    /// Its values, from the lower bound to the upper one. Above zero the lower one belongs to the
    /// cell, below zero the upper one.
    #[expect(clippy::arithmetic_side_effects, reason = "cells are within ±216")]
    pub fn bounds(self) -> Range<f64> {
        let (near, far) = match self.0.abs() {
            0 => (-lower_bound(1), lower_bound(1)),
            CELL_MAX => (lower_bound(CELL_MAX), f64::INFINITY),
            cell => (lower_bound(cell), lower_bound(cell + 1)),
        };
        if self.0 < 0 { -far..-near } else { near..far }
    }

    /// Whether its bounds are those of values above zero, of which the lower one is included.
    pub fn includes_lower(self) -> bool {
        self.0 > 0
    }
}

/// Lower bound of a cell from 1 on; 0 for others.
#[expect(clippy::arithmetic_side_effects, reason = "cells are within ±216")]
fn lower_bound(cell: i16) -> f64 {
    if cell < 1 {
        return 0.0;
    }
    let decade = (cell - 1) / STEPS_PER_DECADE + DECADE_MIN;
    let step = STEPS[usize::from(((cell - 1) % STEPS_PER_DECADE).unsigned_abs())];
    // A power of ten up to 1e22 is a double, and one operation is rounded once.
    let power = 10f64.powi(i32::from(decade.abs()));
    if decade < 0 { step / power } else { step * power }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(value: f64, expected: Range<f64>) {
        assert_eq!(LadderCell::of(value).bounds(), expected);
        if value != 0.0 {
            assert_eq!(LadderCell::of(-value).bounds(), -expected.end..-expected.start);
        }
    }

    #[test]
    fn thresholds_are_bounds() {
        check(1.0, 1.0..1.5);
        check(1.499, 1.0..1.5);
        check(0.25, 0.2..0.3);
        check(0.3, 0.3..0.5);
        check(1e9, 1e9..1.5e9);
        check(999_999_999.0, 7e8..1e9);
        check(7e-3, 7e-3..1e-2);
        check(0.0, -1e-15..1e-15);
        check(1e-15, 1e-15..1.5e-15);
        check(6e20, 5e20..7e20);
        check(f64::MAX, 7e20..f64::INFINITY);
    }

    #[test]
    fn every_bound_is_in_the_cell_above_it() {
        for cell in 1..=CELL_MAX {
            let bound = lower_bound(cell);
            assert_eq!(LadderCell::of(bound), LadderCell(cell), "{bound:e}");
            if cell > 1 {
                assert_eq!(LadderCell::of(bound.next_down()), LadderCell(cell - 1), "{bound:e}");
            }
        }
    }

    proptest! {
        #[test]
        fn a_value_is_within_its_cell(value in prop::num::f64::ANY) {
            prop_assume!(value.is_finite());
            let bounds = LadderCell::of(value).bounds();
            let (near, far) = match value < 0.0 {
                true => (-bounds.end, -bounds.start),
                false => (bounds.start, bounds.end),
            };
            prop_assert!(near <= value.abs() && value.abs() < far, "{value:e} in {bounds:?}");
            prop_assert!(near < 1e-14 || far > 1e20 || (1.3..1.7).contains(&(far / near)));
        }
    }
}
