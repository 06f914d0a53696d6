//! `aggregate:*`: how what is finer than a slot is folded into it.
//!
//! A period below the length of a slot is read as such, and slots are made of its values
//! (`resample.rs`); here each slot of either length stands for itself. A period above it is a
//! window of that length, shown in all its slots.

use super::function_table::FunctionTable;
use super::window::{WindowPackage, add_aggregates};

/// Adds the functions of this package.
pub(super) fn add_functions(table: &mut FunctionTable) {
    add_aggregates::<AggregatePackage>(table);
}

struct AggregatePackage;

impl WindowPackage for AggregatePackage {
    const IS_ROLLING: bool = false;
}
