//! Series cache: source key to series.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use model::SeriesId;

use crate::key_encoding::SeriesKeyEncoding;
use crate::meter::Meter;
use crate::metric_descriptions::MetricDescriptions;
use crate::span_intake::SpanIntake;
use crate::trace_buffer::TracePolicy;

/// Approximate maximum size. At half of it, entries used since the last rotation stay, and the
/// others are evicted and learnt again: about 200,000 series of the usual size.
const BYTES_MAX: usize = 128 << 20;
/// Upper estimate of a series' size apart from its two keys: 72 bytes, three allocations, and an
/// entry of a hash table that has just grown.
const ENTRY_BYTES: usize = 192;

/// A cached series.
#[derive(Debug)]
pub(crate) struct CachedSeries {
    /// Takes a fraction of the memory of a series with its texts.
    pub(crate) canonical_key: Box<[u8]>,
    pub(crate) id: SeriesId,
    /// Whether a batch with its canonical key is in the journal: later batches may use the id.
    is_registered: AtomicBool,
    bytes: usize,
}

impl CachedSeries {
    fn new(canonical_key: Vec<u8>, key: &[u8]) -> CachedSeries {
        let canonical_key = canonical_key.into_boxed_slice();
        let bytes = ENTRY_BYTES + canonical_key.len() + key.len();
        CachedSeries {
            id: SeriesId::from_canonical_key(&canonical_key),
            canonical_key,
            is_registered: AtomicBool::new(false),
            bytes,
        }
    }

    // Relaxed: a batch with the id only is appended after the batch with the canonical key, in
    // every thread; the flag publishes no other data.
    pub(crate) fn is_registered(&self) -> bool {
        self.is_registered.load(Ordering::Relaxed)
    }

    pub(crate) fn set_registered(&self) {
        self.is_registered.store(true, Ordering::Relaxed);
    }
}

/// Series by key. A key begins with the number of its [`SeriesKeyEncoding`].
#[derive(Debug)]
pub(crate) struct SeriesCache {
    /// What senders say of their metrics.
    pub(crate) descriptions: MetricDescriptions,
    /// Names of spans that are labels.
    pub(crate) spans: SpanIntake,
    /// Known encodings; the index is the encoding's number.
    encodings: RwLock<Vec<SeriesKeyEncoding>>,
    generations: RwLock<TwoGenerations>,
    /// Maximum bytes of one generation.
    bytes_max: usize,
}

/// Two-generation cache: entries used since the last rotation, and older ones.
#[derive(Debug, Default)]
struct TwoGenerations {
    young: HashMap<Box<[u8]>, Arc<CachedSeries>>,
    old: HashMap<Box<[u8]>, Arc<CachedSeries>>,
    young_bytes: usize,
}

impl Default for SeriesCache {
    fn default() -> SeriesCache {
        SeriesCache {
            encodings: RwLock::default(),
            generations: RwLock::default(),
            bytes_max: BYTES_MAX / 2,
            descriptions: MetricDescriptions::default(),
            spans: SpanIntake::default(),
        }
    }
}

impl SeriesCache {
    /// An empty cache, with the counters of spans and the buffer of traces.
    pub(crate) fn new(traces: TracePolicy, meter: &Meter) -> SeriesCache {
        SeriesCache { spans: SpanIntake::new(traces, meter), ..SeriesCache::default() }
    }

    /// The first byte of the encoding's keys. There are as many encodings as decoders, about ten.
    pub(crate) fn encoding_id(&self, encoding: SeriesKeyEncoding) -> u8 {
        let find = |known: &[SeriesKeyEncoding]| known.iter().position(|one| *one == encoding);
        let known = find(&self.encodings.read().unwrap_or_else(PoisonError::into_inner));
        let index = known.unwrap_or_else(|| {
            let mut known = self.encodings.write().unwrap_or_else(PoisonError::into_inner);
            find(&known).unwrap_or_else(|| {
                known.push(encoding);
                known.len() - 1
            })
        });
        u8::try_from(index).expect("BUG: more than 256 encodings of series keys")
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<Arc<CachedSeries>> {
        {
            let ages = self.generations.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(known) = ages.young.get(key) {
                return Some(Arc::clone(known));
            }
            ages.old.get(key)?;
        }
        let mut ages = self.generations.write().unwrap_or_else(PoisonError::into_inner);
        match ages.old.remove(key) {
            Some(known) => Some(self.insert_young(&mut ages, key, known)),
            // Another thread rotated in the meantime.
            None => ages.young.get(key).map(Arc::clone),
        }
    }

    pub(crate) fn insert(&self, key: &[u8], canonical_key: Vec<u8>) -> Arc<CachedSeries> {
        let known = Arc::new(CachedSeries::new(canonical_key, key));
        let mut ages = self.generations.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = ages.young.get(key) {
            return Arc::clone(known);
        }
        let known = ages.old.remove(key).unwrap_or(known);
        self.insert_young(&mut ages, key, known)
    }

    fn insert_young(
        &self,
        ages: &mut TwoGenerations,
        key: &[u8],
        known: Arc<CachedSeries>,
    ) -> Arc<CachedSeries> {
        if ages.young_bytes + known.bytes > self.bytes_max {
            ages.old = std::mem::take(&mut ages.young);
            ages.young_bytes = 0;
        }
        ages.young_bytes += known.bytes;
        ages.young.insert(key.into(), Arc::clone(&known));
        known
    }

    pub(crate) fn clear(&self) {
        *self.generations.write().unwrap_or_else(PoisonError::into_inner) =
            TwoGenerations::default();
    }
}

#[cfg(test)]
mod tests {
    use model::{Series, SeriesKind};

    use super::*;

    /// Key of a source, and canonical key.
    fn series(number: u32) -> (Vec<u8>, Vec<u8>) {
        let series = Series::new(format!("m{number}"), SeriesKind::Gauge).validate().unwrap();
        (number.to_le_bytes().to_vec(), series.canonical_key())
    }

    #[test]
    fn cache_keeps_used_series_and_bounds_the_rest() {
        let cache = SeriesCache { bytes_max: 100 * (ENTRY_BYTES + 10), ..SeriesCache::default() };
        let (hot, known) = series(u32::MAX);
        cache.insert(&hot, known).set_registered();
        for number in 0..10_000 {
            let (key, series) = series(number);
            let _known = cache.insert(&key, series);
            assert!(cache.get(&hot).is_some_and(|known| known.is_registered()), "{number}");
            let ages = cache.generations.read().unwrap();
            assert!(ages.young.len() + ages.old.len() <= 200);
        }
        assert!(cache.get(&series(0).0).is_none());
        cache.clear();
        assert!(cache.get(&hot).is_none());
    }

    #[test]
    fn each_encoding_has_a_number() {
        let cache = SeriesCache::default();
        let id = |name| cache.encoding_id(SeriesKeyEncoding::new(name));
        assert_eq!(["a", "b", "a", "c", "b"].map(id), [0, 1, 0, 2, 1]);
    }

    #[test]
    fn second_insert_returns_the_first_entry() {
        let cache = SeriesCache::default();
        let (key, series) = series(1);
        let first = cache.insert(&key, series.clone());
        assert!(Arc::ptr_eq(&first, &cache.insert(&key, series)));
    }
}
