//! Clearance of an alert: somebody ended it by hand, such as that of a series that will not return.

use crate::rule_file::LabelMap;

/// Annotations of an alert that was cleared, until it begins anew.
const BY: &str = "topdeck_cleared_by";
const NOTE: &str = "topdeck_cleared_note";

/// Who ended an alert by hand. The alert begins anew if its condition holds at the next evaluation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlertClearance {
    /// Time.
    pub at_ns: i64,
    /// Who.
    pub by: String,
    /// Note; may be empty.
    pub note: String,
}

impl AlertClearance {
    /// Adds the annotations that keep it.
    pub fn annotate(&self, annotations: &mut LabelMap) {
        annotations.insert(BY.to_owned(), self.by.clone());
        annotations.insert(NOTE.to_owned(), self.note.clone());
    }

    /// That of the annotations of an alert that ended at a time; `None` if it was not cleared.
    pub fn of(annotations: &LabelMap, at_ns: i64) -> Option<AlertClearance> {
        let (by, note) = (annotations.get(BY)?.clone(), annotations.get(NOTE).cloned());
        Some(AlertClearance { at_ns, by, note: note.unwrap_or_default() })
    }

    /// Removes the annotations, which are no text of the rule.
    pub fn remove(annotations: &mut LabelMap) {
        annotations.remove(BY);
        annotations.remove(NOTE);
    }
}
