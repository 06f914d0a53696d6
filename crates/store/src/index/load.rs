//! The index of a store that is opened: out of the forms beside the manifest, and out of parts where those are damaged.

use std::collections::HashSet;

use model::SeriesId;

use super::{Index, Limits, Number};
use crate::backend::{Backend, SeriesRecord};
use crate::error::Result;
use crate::manifest::Manifest;

/// Ids and forms of series that were deleted.
pub(crate) type DeletedForms = Vec<(SeriesId, Vec<u8>)>;

impl Index {
    /// The series of a store, and those that were deleted, by id. Forms that are damaged are in parts too, and made
    /// whole out of them; `notes` says so.
    pub(crate) fn load(
        backend: &dyn Backend,
        manifest: &Manifest,
        limits: Limits,
        notes: &mut Vec<String>,
    ) -> Result<(Index, DeletedForms)> {
        let mut index = Index::new(limits);
        let mut refused = Vec::new();
        let mut deleted = Deleted::default();
        let mut read = |record: SeriesRecord<'_>| match record {
            SeriesRecord::Added { form, producer } => {
                deleted.bring_back(&mut index, &SeriesId::of_form(form));
                if let Err(error) = index.insert(form, producer) {
                    refused.push(format!("a series' form: {error}"));
                }
            }
            SeriesRecord::Deleted(id) => deleted.add(&index, &id),
        };
        let damaged = backend.series(&mut read)?;
        let deleted = deleted.finish(&mut index);
        if damaged > 0 || (index.len() as u64) < manifest.series {
            notes.push(format!(
                "{} forms of series of {} are damaged; parts have them too",
                manifest.series.saturating_sub(index.len() as u64),
                manifest.series
            ));
            let known = index.len();
            for &number in manifest.parts.keys() {
                let mut forms = Vec::new();
                let read = backend
                    .open(number)
                    .and_then(|part| part.forms(&mut |form| forms.push(form.to_owned())));
                if let Err(error) = read {
                    notes.push(error.to_string());
                }
                for form in forms {
                    if let Err(error) = index.insert(&form, None) {
                        refused.push(format!("a series' form: {error}"));
                    }
                }
            }
            let found: Vec<(Option<u64>, Vec<u8>)> = (known..index.len())
                .map(|at| (None, index.form(Number(at as u32)).to_owned()))
                .collect();
            backend.add_series(&found, true)?;
        }
        notes.extend(refused);
        Ok((index, deleted))
    }
}

/// Series that were deleted, taken out of the index many at a time: each time it looks at all of it.
#[derive(Default)]
struct Deleted {
    waiting: HashSet<SeriesId>,
    forms: DeletedForms,
}

impl Deleted {
    fn add(&mut self, index: &Index, id: &SeriesId) {
        if index.number(id).is_some() {
            self.waiting.insert(*id);
        }
    }

    /// A series comes that was deleted before, perhaps.
    fn bring_back(&mut self, index: &mut Index, id: &SeriesId) {
        if self.waiting.contains(id) {
            self.take_out(index);
        }
    }

    fn take_out(&mut self, index: &mut Index) {
        let numbers: Vec<Number> =
            self.waiting.drain().filter_map(|id| index.number(&id)).collect();
        self.forms.extend(
            numbers.iter().map(|number| (index.id(*number), index.form(*number).to_owned())),
        );
        index.delete(&numbers);
    }

    fn finish(mut self, index: &mut Index) -> DeletedForms {
        self.take_out(index);
        self.forms
    }
}
