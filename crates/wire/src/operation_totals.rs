//! Counts of a service's measured operations since the start, which are never reset.

use protocol::observer::{Operation, OperationOutcome};

/// Error classes of one service that are counted apart; further ones are counted as `other`.
const ERROR_CLASSES_MAX: usize = 64;
const OTHER_CLASS: &str = "other";

/// Sums of the measured operations of a service, with waits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperationTotals {
    /// Sizes of the requests.
    pub request_bytes: u64,
    /// Sizes of the responses.
    pub response_bytes: u64,
    /// Rows of the responses, of those operations that tell it.
    pub rows: u64,
    /// Failed operations by class of error, in the order in which the classes were seen.
    pub errors: Vec<(Box<str>, u64)>,
}

impl OperationTotals {
    pub(crate) fn add(&mut self, operation: &Operation<'_>) {
        // A server may state any number of rows.
        self.rows = self.rows.saturating_add(operation.rows.unwrap_or(0));
        self.request_bytes = self.request_bytes.saturating_add(operation.request_bytes);
        self.response_bytes = self.response_bytes.saturating_add(operation.response_bytes);
        if let OperationOutcome::Error(class) = operation.outcome {
            self.add_error(class);
        }
    }

    fn add_error(&mut self, class: &str) {
        let is_full = self.errors.len() >= ERROR_CLASSES_MAX;
        let is_known = self.errors.iter().any(|(found, _)| **found == *class);
        let class = if is_full && !is_known { OTHER_CLASS } else { class };
        match self.errors.iter_mut().find(|(found, _)| **found == *class) {
            Some((_, count)) => *count += 1,
            None => self.errors.push((class.into(), 1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_classes_are_bounded() {
        let mut totals = OperationTotals::default();
        for class in 0..ERROR_CLASSES_MAX + 10 {
            totals.add_error(&class.to_string());
            totals.add_error("0");
        }
        assert_eq!(totals.errors.len(), ERROR_CLASSES_MAX + 1);
        assert_eq!(totals.errors[0], ("0".into(), 75));
        assert_eq!(totals.errors[ERROR_CLASSES_MAX], (OTHER_CLASS.into(), 10));
    }
}
