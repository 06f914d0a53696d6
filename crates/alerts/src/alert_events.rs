//! Server-sent events of `/v1/alerts`: `transition` with each change of state, `light` with the
//! status light after the last change that is due, `lagged` with the number of changes that are no
//! longer in memory (`/v1/alerts/history` has them).
//!
//! The id of an event is the number of the newest change. A client that reconnects with it gets the
//! changes since then, of those in memory.

use role::json::Json::{Object, Text};
use role::json::integer;
use role::{EventBatch, RouteError, RouteEvent, RouteQuery};

use crate::alert_filter::AlertFilter;
use crate::history_api::{accepts, entry_json};
use crate::published_alerts::{PublishedAlerts, StatusLight};

/// Changes that are read at once: a client that does not read holds no more.
const CHANGES_MAX: usize = 16;

/// Events after the change with a number; without one, the light.
pub(crate) fn events(
    published: &PublishedAlerts,
    query: &RouteQuery,
    after: Option<u64>,
) -> Result<EventBatch, RouteError> {
    let filter = AlertFilter::read(query)?;
    // Before the state: a change in between makes the next wait end at once.
    let revision = published.revision();
    let mut events = Vec::new();
    let mut has_more = false;
    let last_id = match after {
        None => published.history().newest(),
        Some(number) => {
            let mut tail = published.history().after(number);
            if let Some(last) = tail.entries.get(CHANGES_MAX - 1)
                && tail.entries.len() > CHANGES_MAX
            {
                tail.newest = last.number;
                tail.entries.truncate(CHANGES_MAX);
                has_more = true;
            }
            if tail.missed > 0 {
                let data = Object(vec![("dropped", integer(tail.missed))]);
                events.push(RouteEvent { name: "lagged", id: number, data });
            }
            let selected = tail.entries.iter().filter(|entry| accepts(&filter, entry));
            events.extend(selected.map(|entry| RouteEvent {
                name: "transition",
                id: entry.number,
                data: entry_json(entry),
            }));
            tail.newest
        }
    };
    if has_more {
        // Of another state, so that the next wait ends at once.
        return Ok(EventBatch { events, last_id, revision: revision.wrapping_sub(1) });
    }
    let (color, count) = light_parts(published.read().light());
    let data = Object(vec![
        ("revision", integer(revision)),
        ("light", Text(color.to_owned())),
        ("light_count", integer(count as u64)),
    ]);
    events.push(RouteEvent { name: "light", id: last_id, data });
    Ok(EventBatch { events, last_id, revision })
}

/// Color and number of a light.
pub(crate) fn light_parts(light: StatusLight) -> (&'static str, usize) {
    match light {
        StatusLight::Green => ("green", 0),
        StatusLight::Amber(count) => ("amber", count),
        StatusLight::Red(count) => ("red", count),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use disk::Disk as _;
    use sim::SimDisk;
    use tokio::sync::watch;

    use super::*;
    use crate::alert_history::AlertHistory;
    use crate::history_entry::HistoryEvent;
    use crate::history_entry::tests::entry;
    use crate::received_alerts::ReceivedAlerts;
    use crate::silence_store::SilenceStore;

    /// Published state with a history of some changes.
    fn published(changes: usize) -> PublishedAlerts {
        let disk = SimDisk::new(1);
        let (process, data) = (Arc::new(disk.process()), Path::new("/data"));
        disk.process().create_dir(data).expect("a directory");
        let (history, _) = AlertHistory::open(process.clone(), data);
        history.append(vec![entry(HistoryEvent::Firing); changes]).expect("stored");
        let (silences, _) = SilenceStore::open(process.clone(), data, |_| {});
        let (received, _) = ReceivedAlerts::open(process, data, 0);
        let revision = watch::Sender::new(7);
        let (silences, received) = (Arc::new(silences), Arc::new(received));
        PublishedAlerts::new(revision, silences, received, Arc::new(history), Arc::new(|| 0))
    }

    /// Names and ids of a batch, its last id, and whether the next one is due at once.
    fn batch(
        published: &PublishedAlerts,
        after: Option<u64>,
    ) -> (Vec<(&'static str, u64)>, u64, bool) {
        let query = RouteQuery::new(Vec::new());
        let Ok(EventBatch { events, last_id, revision }) = events(published, &query, after) else {
            panic!("the query is valid")
        };
        let names = events.iter().map(|event| (event.name, event.id)).collect();
        (names, last_id, revision != published.revision())
    }

    #[test]
    fn a_client_that_missed_many_changes_gets_them_in_batches() {
        let published = published(40);
        let (mut after, mut ids, mut sizes) = (3, Vec::new(), Vec::new());
        loop {
            let (events, last_id, is_due) = batch(&published, Some(after));
            let changes = events.iter().filter(|(name, _)| *name == "transition");
            sizes.push(changes.clone().count());
            ids.extend(changes.map(|(_, id)| *id));
            // The light follows the last change.
            assert_eq!(events.last() == Some(&("light", 40)), !is_due, "{events:?}");
            after = last_id;
            if !is_due {
                break;
            }
        }
        assert_eq!(sizes, [16, 16, 5]);
        assert_eq!(ids, (4..=40).collect::<Vec<_>>());
        assert_eq!(batch(&published, Some(40)), (vec![("light", 40)], 40, false));
        assert_eq!(batch(&published, None), (vec![("light", 40)], 40, false));
    }

    #[test]
    fn a_full_batch_without_more_changes_has_the_light() {
        let (events, last_id, is_due) = batch(&published(16), Some(0));
        assert_eq!((events.len(), last_id, is_due), (17, 16, false));
        let (events, last_id, is_due) = batch(&published(17), Some(0));
        assert_eq!((events.len(), last_id, is_due), (16, 16, true));
    }

    #[test]
    fn changes_that_are_not_kept_are_counted_before_the_first_batch() {
        let (events, last_id, is_due) = batch(&published(1010), Some(2));
        assert_eq!((events[0], events[1], events.len()), (("lagged", 2), ("transition", 11), 17));
        assert_eq!((last_id, is_due), (26, true));
    }
}
