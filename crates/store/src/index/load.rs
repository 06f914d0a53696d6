//! The index of a store that is opened: out of the forms beside the manifest, and out of parts where those are damaged.

use super::{Index, Limits, Number};
use crate::backend::Backend;
use crate::error::Result;
use crate::manifest::Manifest;

impl Index {
    /// The series of a store. Forms that are damaged are in parts too, and made whole out of them; `notes` says so.
    pub(crate) fn load(
        backend: &dyn Backend,
        manifest: &Manifest,
        limits: Limits,
        notes: &mut Vec<String>,
    ) -> Result<Index> {
        let mut index = Index::new(limits);
        let mut refused = Vec::new();
        let mut add = |form: &[u8]| {
            if let Err(error) = index.insert(form) {
                refused.push(format!("a series' form: {error}"));
            }
        };
        let damaged = backend.series(&mut add)?;
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
                    if let Err(error) = index.insert(&form) {
                        refused.push(format!("a series' form: {error}"));
                    }
                }
            }
            let found: Vec<Vec<u8>> =
                (known..index.len()).map(|at| index.form(Number(at as u32)).to_owned()).collect();
            backend.add_series(&found, true)?;
        }
        notes.extend(refused);
        Ok(index)
    }
}
