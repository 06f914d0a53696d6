//! Journal reader of the live stream.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use journal::{JournalReader, ReadItem};
use model::{BatchReader, BatchSeries, Series, SeriesId};

use super::event;
use super::hub::StreamHub;

/// Interval of checks for remaining clients.
const PAUSE: Duration = Duration::from_millis(200);
/// Maximum number of cached series; then the cache is cleared.
const SERIES_MAX: usize = 1 << 16;

/// Series by id; `None` for unknown ids until their canonical key arrives.
type StreamSeriesCache = HashMap<SeriesId, Option<Arc<Series>>>;

/// Runs until there are no clients.
pub(super) fn run_feed(hub: &StreamHub, mut reader: JournalReader) {
    let mut known = StreamSeriesCache::new();
    while hub.update_running() {
        if let Err(error) = forward_available(hub, &mut reader, &mut known) {
            return hub.on_thread_exit(&error.to_string());
        }
    }
}

/// Waits for records and sends them.
fn forward_available(
    hub: &StreamHub,
    reader: &mut JournalReader,
    known: &mut StreamSeriesCache,
) -> journal::Result<()> {
    if !reader.wait(Some(PAUSE))? {
        return Ok(());
    }
    match reader.next()? {
        None => {}
        Some(ReadItem::Gap(gap)) => hub.broadcast(None, || event::journal_gap(&gap)),
        Some(ReadItem::Batch(batch)) => {
            hub.intake.supervisor().failpoint("stream");
            batch.records().for_each(|record| broadcast_batch(hub, record.bytes, known));
        }
    }
    Ok(())
}

/// Sends the points and gaps of a batch. It was checked on append; the store reports batches that
/// are undecodable nevertheless.
fn broadcast_batch(hub: &StreamHub, bytes: &[u8], known: &mut StreamSeriesCache) {
    let Ok(mut entries) = BatchReader::new(bytes) else { return };
    let mut series = None;
    for entry in entries.by_ref() {
        let Ok(entry) = entry else { return };
        if entry.starts_group {
            series = find_series(hub, entry.series, known);
        }
        if let Some(series) = &series {
            hub.broadcast(Some(series), || event::sample(series, &entry));
        }
    }
    entries.gaps().iter().for_each(|gap| hub.broadcast(None, || event::gap(gap)));
}

fn find_series(
    hub: &StreamHub,
    named: BatchSeries<'_>,
    known: &mut StreamSeriesCache,
) -> Option<Arc<Series>> {
    let id = named.id();
    match known.get(&id) {
        Some(Some(series)) => return Some(Arc::clone(series)),
        Some(None) if matches!(named, BatchSeries::Id(_)) => return None,
        _ => {}
    }
    let series = match named {
        BatchSeries::Key(canonical_key) => Series::from_canonical_key(canonical_key).ok(),
        // Its canonical key precedes the first client: the store has it.
        BatchSeries::Id(id) => match hub.intake.write_target().store() {
            // After a read error it is looked up again with the next point.
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
    use model::SeriesKind;

    use super::*;
    use crate::query_service::QueryServiceSettings;
    use crate::test_server::{TestServer, empty_store};

    #[test]
    fn canonical_key_registers_an_unknown_id() {
        let server = TestServer::with_store(empty_store(), QueryServiceSettings::default());
        let hub = &server.context.queries.hub;
        let series = Series::new("depth", SeriesKind::Gauge).validate().unwrap();
        let (id, canonical_key) = (series.id(), series.canonical_key());
        let mut known = StreamSeriesCache::new();
        assert_eq!(find_series(hub, BatchSeries::Id(id), &mut known), None);
        assert_eq!(
            find_series(hub, BatchSeries::Key(&canonical_key), &mut known).as_deref(),
            Some(&series)
        );
        assert_eq!(find_series(hub, BatchSeries::Id(id), &mut known).as_deref(), Some(&series));
    }
}
