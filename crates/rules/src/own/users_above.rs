//! Criterion `users_above`: the number of users, or sessions, with a request above a threshold.
//!
//! A label tells users apart: the one of the rule, or one of sessions that the series have. Without
//! one, the number is that of requests. If only series without rows in the window have it, the
//! number is 0. More users than are counted are an error.

use std::ops::Range;

use decode::Quantity;
use query::Source;

use super::criterion::{CriterionOutcome, MeasuredValue, ThresholdComparison, in_unit};
use super::stream_reader::SelectedStream;

/// The criterion.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct UsersCriterion {
    /// Users have a request above it.
    pub(crate) limit: Quantity,
    /// Label that tells users apart.
    pub(super) label: Option<String>,
    pub(super) comparison: ThresholdComparison,
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
