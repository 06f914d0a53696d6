//! Reads the journal for all who listen.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use journal::{Item, Reader};
use model::{BatchReader, Series, SeriesId, SeriesRef};

use super::event;
use super::hub::Hub;

/// How long it waits before it looks whether anybody listens.
const PAUSE: Duration = Duration::from_millis(200);
/// Series that are remembered; beyond, all are forgotten and looked up anew.
const SERIES_MAX: usize = 1 << 16;

/// Series that were seen; `None` of those that nobody knows, as long as their form does not come.
type Known = HashMap<SeriesId, Option<Arc<Series>>>;

/// Runs until nobody listens.
pub(super) fn run(hub: &Hub, mut reader: Reader) {
    let mut known = Known::new();
    while hub.goes_on() {
        if let Err(error) = some(hub, &mut reader, &mut known) {
            return hub.ended(&error.to_string());
        }
    }
}

/// Gives what there is, after it has waited for it.
fn some(hub: &Hub, reader: &mut Reader, known: &mut Known) -> journal::Result<()> {
    if !reader.wait(Some(PAUSE))? {
        return Ok(());
    }
    match reader.next()? {
        None => {}
        Some(Item::Gap(gap)) => hub.give(None, || event::journal_gap(&gap)),
        Some(Item::Batch(batch)) => {
            hub.intake.supervisor().fault_point("stream");
            batch.records().for_each(|record| give(hub, record.bytes, known));
        }
    }
    Ok(())
}

/// Gives the rows and gaps of a batch. It was checked when it was taken; what cannot be read all the same the store
/// tells.
fn give(hub: &Hub, bytes: &[u8], known: &mut Known) {
    let Ok(mut entries) = BatchReader::new(bytes) else { return };
    let mut series = None;
    for entry in entries.by_ref() {
        let Ok(entry) = entry else { return };
        if entry.begins {
            series = find(hub, entry.series, known);
        }
        if let Some(series) = &series {
            hub.give(Some(series), || event::row(series, &entry));
        }
    }
    entries.gaps().iter().for_each(|gap| hub.give(None, || event::gap(gap)));
}

fn find(hub: &Hub, named: SeriesRef<'_>, known: &mut Known) -> Option<Arc<Series>> {
    let id = named.id();
    match known.get(&id) {
        Some(Some(series)) => return Some(Arc::clone(series)),
        Some(None) if matches!(named, SeriesRef::Id(_)) => return None,
        _ => {}
    }
    let series = match named {
        SeriesRef::Form(form) => Series::from_form(form).ok(),
        // Its form came before anybody listened: the store has it.
        SeriesRef::Id(id) => match hub.intake.home().store() {
            // What cannot be read now is looked up again with the next row.
            Some(store) => store.view().ok()?.series(&id),
            None => None,
        },
    };
    let series = series.map(Arc::new);
    if known.len() >= SERIES_MAX {
        known.clear();
    }
    known.insert(id, series.clone());
    series
}

#[cfg(test)]
mod tests {
    use model::Kind;

    use super::*;
    use crate::desk::DeskSettings;
    use crate::trial::{Trial, store};

    #[test]
    fn a_form_makes_known_what_nobody_knew() {
        let trial = Trial::over(store(), DeskSettings::default());
        let hub = &trial.context.desk.hub;
        let series = Series::new("depth", Kind::Gauge).checked().unwrap();
        let (id, form) = (series.id(), series.form());
        let mut known = Known::new();
        assert_eq!(find(hub, SeriesRef::Id(id), &mut known), None);
        assert_eq!(find(hub, SeriesRef::Form(&form), &mut known).as_deref(), Some(&series));
        assert_eq!(find(hub, SeriesRef::Id(id), &mut known).as_deref(), Some(&series));
    }
}
