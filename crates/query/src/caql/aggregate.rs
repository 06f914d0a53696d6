//! `aggregate:*`: how what is finer than a slot is folded into it.
//!
//! A period below the length of a slot is read as such, and slots are made of its values (`finer.rs`); here each slot
//! of either length stands for itself. A period above it is a window of that length, shown in all its slots.

use super::kernel::Kernel;
use super::window::{WindowPackage, aggregate_kernel};

/// What works out a function of this package.
pub(crate) fn kernel(name: &str) -> Option<Kernel> {
    aggregate_kernel::<AggregatePackage>(name.strip_prefix("aggregate:")?)
}

struct AggregatePackage;

impl WindowPackage for AggregatePackage {
    const IS_ROLLING: bool = false;
}
