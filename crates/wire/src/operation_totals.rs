//! Counts of a service's measured operations since the start, which are never reset.

use protocol::observer::{Operation, OperationOutcome};

/// Error classes of one service that are counted apart; further ones are counted as `other`.
const ERROR_CLASSES_MAX: usize = 64;
/// Bytes of a class, which the server chooses.
const CLASS_BYTES_MAX: usize = 256;
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
    /// Adds an operation. Returns its outcome with the class as which an error was counted, so that
    /// other statistics of the service have the same classes.
    pub(crate) fn add(&mut self, operation: &Operation<'_>) -> OperationOutcome<'_> {
        // A server may state any number of rows.
        self.rows = self.rows.saturating_add(operation.rows.unwrap_or(0));
        self.request_bytes = self.request_bytes.saturating_add(operation.request_bytes);
        self.response_bytes = self.response_bytes.saturating_add(operation.response_bytes);
        match operation.outcome {
            OperationOutcome::Ok => OperationOutcome::Ok,
            OperationOutcome::Error(class) => OperationOutcome::Error(self.add_error(class)),
        }
    }

    fn add_error(&mut self, class: &str) -> &str {
        let find = |errors: &[(Box<str>, u64)], class: &str| {
            errors.iter().position(|(found, _)| **found == *class)
        };
        let class = &class[..class.floor_char_boundary(CLASS_BYTES_MAX)];
        let is_full = self.errors.len() >= ERROR_CLASSES_MAX;
        let found = find(&self.errors, class);
        let class = if found.is_none() && is_full { OTHER_CLASS } else { class };
        let at = found.or_else(|| find(&self.errors, class)).unwrap_or_else(|| {
            self.errors.push((class.into(), 0));
            self.errors.len() - 1
        });
        let (class, count) = &mut self.errors[at];
        *count += 1;
        class
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
        assert_eq!(totals.add_error("new"), OTHER_CLASS);
        assert_eq!(totals.add_error("7"), "7");
    }

    #[test]
    fn classes_with_the_same_start_are_one_class() {
        let mut totals = OperationTotals::default();
        let start = "x".repeat(CLASS_BYTES_MAX - 1);
        for end in ["ya", "yb", "ä"] {
            totals.add_error(&format!("{start}{end}"));
        }
        assert_eq!(totals.errors, [(format!("{start}y").into(), 2), (start.into(), 1)]);
    }
}
