//! `forecasting:*`: what is to be expected some time after each slot.
//!
//! Lines are laid through the last numbers (least squares, or the outermost two); smoothing takes in one number after
//! the other. Smoothing depends on all that was before: numbers before the view are read until what lies before them
//! weighs less than a ten-thousandth, and three seasons of `holt_winters`.

mod line;
mod smooth;
#[cfg(test)]
mod tests;

use super::arguments::Arguments;
use super::kernel::Kernel;
use crate::stream::StepGrid;

pub(super) use smooth::{Smoothing, slots_per_season};

/// What works out a function of this package.
pub(crate) fn kernel(name: &str) -> Option<Kernel> {
    Some(match name.strip_prefix("forecasting:")? {
        "auto" => Kernel { reach: line::reach, run: line::regression },
        "regression" => Kernel { reach: line::reach, run: line::regression },
        "slope" => Kernel { reach: line::reach, run: line::slope },
        "ewma" | "dewma" | "holt_winters" => Kernel { reach: smooth::reach, run: smooth::work },
        _ => return None,
    })
}

/// So many slots a duration is, with parts of them.
fn slots(arguments: &Arguments, name: &str, steps: StepGrid) -> Option<f64> {
    arguments.duration(name).map(|duration| duration as f64 / steps.step as f64)
}
