//! Clearance of an alert: somebody ended it by hand, such as that of a series that will not return.

use crate::rule_file::LabelMap;

/// Annotations of an alert that was cleared, until it begins anew.
const BY: &str = "topdeck_cleared_by";
const NOTE: &str = "topdeck_cleared_note";
const ORIGIN: &str = "topdeck_cleared_origin";

/// Who ended an alert by hand. The alert begins anew if its condition holds at the next evaluation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlertClearance {
    /// Time.
    pub at_ns: i64,
    /// Who.
    pub by: String,
    /// Note; may be empty.
    pub note: String,
    /// URL of the primary site, if it was cleared there; `None` if it was cleared here.
    pub origin: Option<String>,
}

impl AlertClearance {
    /// Who cleared the alert, and where, if that was not here: `ann at https://north:7717`.
    pub fn author(&self) -> String {
        match &self.origin {
            Some(url) => format!("{} at {url}", self.by),
            None => self.by.clone(),
        }
    }

    /// Adds the annotations that keep it.
    pub fn annotate(&self, annotations: &mut LabelMap) {
        AlertClearance::remove(annotations);
        annotations.insert(BY.to_owned(), self.by.clone());
        annotations.insert(NOTE.to_owned(), self.note.clone());
        if let Some(origin) = &self.origin {
            annotations.insert(ORIGIN.to_owned(), origin.clone());
        }
    }

    /// That of the annotations of an alert that ended at a time; `None` if it was not cleared.
    pub fn of(annotations: &LabelMap, at_ns: i64) -> Option<AlertClearance> {
        let (by, note) = (annotations.get(BY)?.clone(), annotations.get(NOTE).cloned());
        let origin = annotations.get(ORIGIN).cloned();
        Some(AlertClearance { at_ns, by, note: note.unwrap_or_default(), origin })
    }

    /// Removes the annotations, which are no text of the rule.
    pub fn remove(annotations: &mut LabelMap) {
        annotations.remove(BY);
        annotations.remove(NOTE);
        annotations.remove(ORIGIN);
    }
}
