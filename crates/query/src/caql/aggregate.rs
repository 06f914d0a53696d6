//! `aggregate:*`: folds values of a finer period into a slot.
//!
//! If the period is shorter than a slot, values are read at that period and folded into slots
//! (`resample.rs`); in this file, a slot of either length is one value. If the period is longer
//! than a slot, it is a window of that length, shown in each of its slots.

use super::function_table::FunctionTable;
use super::window::add_aggregates;

/// Adds the functions of this package.
pub(super) fn add_functions(table: &mut FunctionTable) {
    add_aggregates(table);
}
