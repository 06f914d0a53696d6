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
            OperationOutcome::Error(class) => OperationOutcome::Error(self.add_errors(class, 1)),
        }
    }

    /// Adds the operations of another part of the same service.
    pub fn merge(&mut self, other: &OperationTotals) {
        self.rows = self.rows.saturating_add(other.rows);
        self.request_bytes = self.request_bytes.saturating_add(other.request_bytes);
        self.response_bytes = self.response_bytes.saturating_add(other.response_bytes);
        for (class, count) in &other.errors {
            self.add_errors(class, *count);
        }
    }

    /// The class as which an error of `class` was counted.
    pub(crate) fn counted_class(&self, class: &str) -> &str {
        let found = self.errors.iter().find(|(found, _)| **found == *class);
        found.map_or(OTHER_CLASS, |(found, _)| found)
    }

    fn add_errors(&mut self, class: &str, errors: u64) -> &str {
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
        *count += errors;
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
            totals.add_errors(&class.to_string(), 1);
            totals.add_errors("0", 1);
        }
        assert_eq!(totals.errors.len(), ERROR_CLASSES_MAX + 1);
        assert_eq!(totals.errors[0], ("0".into(), 75));
        assert_eq!(totals.errors[ERROR_CLASSES_MAX], (OTHER_CLASS.into(), 10));
        assert_eq!(totals.add_errors("new", 1), OTHER_CLASS);
        assert_eq!(totals.add_errors("7", 1), "7");
        assert_eq!((totals.counted_class("new"), totals.counted_class("7")), (OTHER_CLASS, "7"));
    }

    #[test]
    fn totals_of_parts_are_those_of_the_whole() {
        let (mut part, mut other) = (OperationTotals::default(), OperationTotals::default());
        (part.rows, other.rows) = (5, u64::MAX);
        for class in ["a", "b", "a"] {
            part.add_errors(class, 1);
            other.add_errors("b", 1);
        }
        part.merge(&other);
        assert_eq!(part.errors, [("a".into(), 2), ("b".into(), 4)]);
        assert_eq!(part.rows, u64::MAX);
    }

    #[test]
    fn classes_with_the_same_start_are_one_class() {
        let mut totals = OperationTotals::default();
        let start = "x".repeat(CLASS_BYTES_MAX - 1);
        for end in ["ya", "yb", "ä"] {
            totals.add_errors(&format!("{start}{end}"), 1);
        }
        assert_eq!(totals.errors, [(format!("{start}y").into(), 2), (start.into(), 1)]);
    }
}
