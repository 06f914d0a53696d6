//! CAQL function table: signature and kernel of each function, in the row of its package.
//!
//! Sources: circonus/product-docs, caql/reference.md, and the functions that its change log and its
//! pages on PromQL and Graphite name. The binder, planner, evaluator, units, `/v1/functions` and
//! the test of `docs/query.md` read this table. A new function is a kernel and a row in the file of
//! its package; a new package is a file and a line here.

use std::sync::LazyLock;

use super::function_table::{CaqlFunctionRow, CaqlKernel, FunctionTable};
use super::signature::{Signature, Stability, nearest_name};

/// Packages. A package with aliases comes after the package of their functions.
const PACKAGES: &[fn(&mut FunctionTable)] = &[
    super::sources::add_functions,
    super::random_walk::add_functions,
    super::time::add_functions,
    super::global::add_functions,
    super::change::add_functions,
    super::rank::add_functions,
    super::anomaly::add_functions,
    super::integrate::add_functions,
    super::fill::add_functions,
    super::legends::add_functions,
    super::stats::add_functions,
    super::operators::add_functions,
    super::elementwise::add_functions,
    super::window::add_functions,
    super::rolling::add_functions,
    super::aggregate::add_functions,
    super::group::add_functions,
    super::filter::add_functions,
    super::exclude::add_functions,
    super::histogram::add_functions,
    super::math::add_functions,
    super::forecasting::add_functions,
    super::outlier::add_functions,
    super::vector::add_functions,
    super::graphite::add_functions,
    #[cfg(test)]
    super::example::add_functions,
];

/// All functions, by name.
static TABLE: LazyLock<Vec<CaqlFunctionRow>> = LazyLock::new(|| {
    let mut table = FunctionTable(Vec::with_capacity(500));
    PACKAGES.iter().for_each(|add_functions| add_functions(&mut table));
    let mut rows = table.0;
    model::sort::by(&mut rows, |a, b| a.signature.name.cmp(&b.signature.name));
    rows
});

/// Implementation of a function. Looked up once per plan node, not per slot.
pub(super) fn kernel(function: &Signature) -> CaqlKernel {
    find_row(&function.name).expect("BUG: every signature has a row").kernel
}

fn find_row(name: &str) -> Option<&'static CaqlFunctionRow> {
    let at = TABLE.binary_search_by(|row| row.signature.name.as_str().cmp(name)).ok()?;
    Some(&TABLE[at])
}

impl Signature {
    /// All functions, by name.
    pub fn all() -> impl Iterator<Item = &'static Signature> {
        TABLE.iter().map(|row| &row.signature)
    }

    /// Signature of a function.
    pub fn find(name: &str) -> Option<&'static Signature> {
        find_row(name).map(|row| &row.signature)
    }

    /// Suggestions for an unknown name: likely misspellings, otherwise functions of the same name
    /// in other packages.
    pub fn nearest(name: &str) -> Vec<&'static str> {
        let known = || Signature::all().filter(|known| known.stability == Stability::Current);
        if let Some(near) = nearest_name(name, known().map(|known| known.name.as_str())) {
            return vec![near];
        }
        let word = name.rsplit(':').next();
        let same = known().filter(|known| known.name.rsplit(':').next() == word);
        same.map(|known| known.name.as_str()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_one_row() {
        assert!(TABLE.is_sorted_by(|a, b| a.signature.name < b.signature.name));
    }

    #[test]
    fn only_removed_functions_have_no_kernel() {
        for CaqlFunctionRow { signature, kernel } in TABLE.iter() {
            let is_removed = matches!(signature.stability, Stability::Removed(_));
            let has_no_kernel = matches!(kernel, CaqlKernel::Removed);
            assert_eq!(has_no_kernel, is_removed, "{}", signature.name);
        }
    }
}
