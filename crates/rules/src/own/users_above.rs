//! Criterion `users_above`: the number of users, or sessions, with a request above a threshold.
//!
//! A label tells users apart: the one of the rule, or one of sessions that the series have. Without
//! one, and of more users than are counted, the number is that of requests.

use std::ops::Range;

use decode::Quantity;
use query::Source;
use toml::Spanned;

use super::criterion::{ComparisonKind, CriterionOutcome, Measure, MeasuredValue};
use super::criterion::{ThresholdComparison, in_unit};
use super::rule_table::{ComparisonParts, TableResult, problem};
use super::stream_reader::SelectedStream;

/// The criterion.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct UsersCriterion {
    /// Users have a request above it.
    pub(crate) limit: Quantity,
    /// Label that tells users apart.
    label: Option<String>,
    pub(super) comparison: ThresholdComparison,
}

/// The measure of a criterion as written, and its text.
pub(super) fn users_measure<V>(
    written: &Spanned<V>,
    (limit, limit_text): (Quantity, String),
    label: Option<String>,
    comparison: Option<ComparisonParts>,
    has_selector: bool,
) -> TableResult<(Measure, String)> {
    if !has_selector {
        return problem(written, "this criterion needs select: a query has no rows");
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

impl UsersCriterion {
    /// Compares the users of a stream in a range; `unit` is that of its values.
    pub(super) fn compare(
        &self,
        stream: &SelectedStream,
        source: &dyn Source,
        range: Range<i64>,
        unit: &str,
    ) -> Result<CriterionOutcome, String> {
        let limit = in_unit(&self.limit, unit)?;
        let threshold = in_unit(&self.comparison.threshold, "")?;
        let label = self.label.as_deref();
        let users = stream.users_above(source, range, limit, label).map_err(|error| error.0)?;
        let Some(value) = users else { return Ok(CriterionOutcome::Unknown) };
        Ok(match self.comparison.kind.holds(&value, threshold) {
            true => {
                let (threshold, unit) = (Some(threshold), String::new());
                CriterionOutcome::Holds(MeasuredValue { value, threshold, unit })
            }
            false => CriterionOutcome::Clear,
        })
    }
}
