//! What an answer should not be read without: warnings and remarks, Prometheus' annotations among them.

use std::collections::BTreeMap;

use crate::error::Place;

/// How much a note matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Note {
    /// The answer may not be what was meant.
    Warning,
    /// Something about the expression could be better.
    Info,
}

/// Notes of one evaluation, each text once; of several places the last is told, as Prometheus does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    notes: BTreeMap<(Note, String), Place>,
}

impl Notes {
    /// Adds a warning.
    pub fn warn(&mut self, place: Place, message: impl Into<String>) {
        self.notes.insert((Note::Warning, message.into()), place);
    }

    /// Adds a remark.
    pub fn info(&mut self, place: Place, message: impl Into<String>) {
        self.notes.insert((Note::Info, message.into()), place);
    }

    /// Adds those of another.
    pub fn append(&mut self, other: Notes) {
        self.notes.extend(other.notes);
    }

    /// The same, of a text that begins so many bytes later.
    pub(crate) fn moved(mut self, by: usize) -> Notes {
        for place in self.notes.values_mut() {
            *place = place.moved(by);
        }
        self
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.notes.is_empty()
    }

    /// All of a kind, each with its place.
    pub fn of(&self, kind: Note) -> impl Iterator<Item = (&str, Place)> {
        self.notes
            .iter()
            .filter(move |((found, _), _)| *found == kind)
            .map(|((_, message), place)| (message.as_str(), *place))
    }
}
