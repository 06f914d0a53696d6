//! `rolling:*`: a window that ends with each slot.

use super::function_table::FunctionTable;
use super::window::add_package;

/// Adds the functions of this package.
pub(super) fn add_functions(table: &mut FunctionTable) {
    add_package::<true>(table, "rolling");
}
