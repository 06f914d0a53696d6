//! Key `users_above` of a criterion, as written.

use decode::Quantity;
use toml::Spanned;

use super::criterion::{ComparisonKind, Measure};
use super::criterion_table::ComparisonParts;
use super::table_problem::{TableResult, problem};
use super::users_above::UsersCriterion;

/// The measure of the criterion, and its text.
pub(super) fn users_measure<V>(
    written: &Spanned<V>,
    (limit, limit_text): (Quantity, String),
    label: Option<String>,
    comparison: Option<ComparisonParts>,
    has_selector: bool,
) -> TableResult<(Measure, String)> {
    if !has_selector {
        return problem(written, "this criterion needs select: a query has no samples");
    }
    let kind = |parts: &ComparisonParts| parts.0.kind != ComparisonKind::Equals;
    let Some((comparison, _, words)) = comparison.filter(kind) else {
        return problem(
            written,
            "users_above needs a bound; set above, at_least, below or at_most",
        );
    };
    let words = format!("users with requests above {limit_text} {words}");
    Ok((Measure::UsersAbove(UsersCriterion { limit, label, comparison }), words))
}
