//! `aggregate:*`: how what is finer than a slot is folded into it.
//!
//! A period below the length of a slot is read as such, and slots are made of its values (`finer.rs`); here each slot
//! of either length stands for itself. A period above it is a window of that length, shown in all its slots.

use super::window::{Package, aggregate_of};
use super::work::Kernel;

/// What works out a function of this package.
pub(crate) fn kernel(name: &str) -> Option<Kernel> {
    aggregate_of::<Aggregate>(name.strip_prefix("aggregate:")?)
}

struct Aggregate;

impl Package for Aggregate {
    const IS_ROLLING: bool = false;
}
