//! Errors of an evaluation of alerts.

/// Why an evaluation failed although the query succeeded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AlertTableError {
    /// The rule or its expression must keep more labels.
    #[error("cannot tell alerts apart: two elements have the labels {labels}")]
    DuplicateLabels {
        /// Labels.
        labels: String,
    },
    /// The group has a limit.
    #[error(
        "limit of {limit} alerts (limit) exceeded ({found}); raise it or narrow the expression"
    )]
    Limit {
        /// Limit.
        limit: usize,
        /// Number of pending and firing alerts.
        found: usize,
    },
}
