//! Series of which no row is left are taken out of the index, so that they count for no limit any more.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError};

use model::SeriesId;

use crate::error::Result;
use crate::index::Number;
use crate::store::{Inner, SUBSCRIBER, locked};

/// Where a part has so many chunks for each series that is looked for, each is looked for by its id.
const CHUNKS_PER_LOOK: usize = 32;

/// Forms of series that were deleted: what others have not read of the journal yet may name them by number.
#[derive(Debug, Default)]
pub(crate) struct Forgotten {
    forms: HashMap<SeriesId, Vec<u8>>,
    /// Where the journal ended when the last was deleted: nothing behind it names one.
    end: u64,
}

impl Forgotten {
    pub(crate) fn form(&self, id: &SeriesId) -> Option<Vec<u8>> {
        self.forms.get(id).cloned()
    }
}

impl Inner {
    /// Takes those of some series out of the index that have no rows, in no part and in no head. How many.
    /// The caller has `work`.
    pub(crate) fn forget(&self, series: Vec<Number>) -> Result<u64> {
        // Forms that are not written yet are new, and have rows in the head.
        let manifest = Arc::clone(&self.state().manifest);
        let ids: Vec<SeriesId> = {
            let index = self.index();
            let written = series.into_iter().filter(|number| u64::from(number.0) < manifest.series);
            written.map(|number| index.id(number)).collect()
        };
        let mut empty: HashSet<SeriesId> = ids.into_iter().collect();
        // Parts change under `work` only: until here nobody has to wait. The newest have most of what is live.
        for &number in manifest.parts.keys().rev() {
            if empty.is_empty() {
                return Ok(0);
            }
            let part = self.part(number)?;
            if empty.len() < part.chunks()? / CHUNKS_PER_LOOK {
                let mut found = Vec::new();
                for id in &empty {
                    found.extend(part.find(id)?.first().map(|place| place.series));
                }
                found.iter().for_each(|id| _ = empty.remove(id));
            } else {
                part.each_series(&mut |id| _ = empty.remove(id))?;
            }
        }
        // Nobody appends until they are out: what was appended is in a head.
        let _admission = self.admission.write().unwrap_or_else(PoisonError::into_inner);
        self.catch_up()?;
        let heads = self.state().heads();
        let mut held: Vec<Number> = Vec::new();
        for head in heads {
            held.extend(head.read().unwrap_or_else(PoisonError::into_inner).series());
        }
        let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
        held.iter().for_each(|number| _ = empty.remove(&index.id(*number)));
        if empty.is_empty() {
            return Ok(0);
        }
        let mut ids: Vec<SeriesId> = empty.into_iter().collect();
        ids.sort_unstable();
        self.backend.delete_series(&ids)?;
        let numbers: Vec<Number> = ids.iter().filter_map(|id| index.number(id)).collect();
        let forms =
            numbers.iter().map(|number| (index.id(*number), index.form(*number).to_owned()));
        let forms: Vec<_> = forms.collect();
        index.delete(&numbers);
        drop(index);
        self.remember(forms)?;
        Ok(numbers.len() as u64)
    }

    /// Keeps forms of deleted series as long as somebody may ask for them.
    pub(crate) fn remember(&self, forms: Vec<(SeriesId, Vec<u8>)>) -> Result<()> {
        if forms.is_empty() {
            return Ok(());
        }
        {
            let mut forgotten = locked(&self.forgotten);
            forgotten.forms.extend(forms);
            forgotten.end = self.journal.marks().end;
        }
        self.release_forgotten()
    }

    /// Gives up forms of deleted series that nobody asks for any more.
    pub(crate) fn release_forgotten(&self) -> Result<()> {
        if locked(&self.forgotten).forms.is_empty() {
            return Ok(());
        }
        let stat = self.journal.stat()?;
        let mut others = stat.checkpoints.iter().filter(|other| other.name != SUBSCRIBER);
        let mut forgotten = locked(&self.forgotten);
        if others.all(|other| other.position >= forgotten.end) {
            *forgotten = Forgotten::default();
        }
        Ok(())
    }
}
