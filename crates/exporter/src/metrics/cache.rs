//! Cache of the series of one kind.
//!
//! It has the limits of shared memory: 1,000 series per name, further ones are combined into one
//! with `overflow="true"`; 16,384 of all names, records of further ones are counted as rejected.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, PoisonError, RwLock};

use metrics::{Key, KeyName, Label};

use super::series::MetricSeries;

const SERIES_MAX: usize = shm::layout::ENTRIES_MAX;
static OVERFLOW: [Label; 1] = [Label::from_static_parts("overflow", "true")];

pub(super) struct MetricCache<T> {
    map: RwLock<MetricMap<T>>,
}

struct MetricMap<T> {
    series: HashMap<Key, Arc<MetricSeries<T>>, BuildHasherDefault<PrehashedHasher>>,
    count_by_name: BTreeMap<KeyName, usize>,
}

impl<T> MetricCache<T> {
    pub(super) const fn new() -> MetricCache<T> {
        let series = HashMap::with_hasher(BuildHasherDefault::new());
        MetricCache { map: RwLock::new(MetricMap { series, count_by_name: BTreeMap::new() }) }
    }

    /// Series of a key.
    pub(super) fn find(&self, key: &Key) -> Arc<MetricSeries<T>> {
        let found = self.map.read().unwrap_or_else(PoisonError::into_inner).find(key);
        found.unwrap_or_else(|| self.add(key))
    }

    #[cold]
    fn add(&self, key: &Key) -> Arc<MetricSeries<T>> {
        let mut known = self.map.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.find(key) {
            return found;
        }
        let key = known.effective_key(key).to_retained();
        if known.series.len() >= SERIES_MAX {
            return Arc::new(MetricSeries::over_limit(key));
        }
        let series = Arc::new(MetricSeries::new(key.clone(), key.labels().eq(&OVERFLOW)));
        *known.count_by_name.entry(key.name_shared()).or_default() += 1;
        known.series.insert(key, Arc::clone(&series));
        series
    }
}

impl<T> MetricMap<T> {
    fn find(&self, key: &Key) -> Option<Arc<MetricSeries<T>>> {
        let found = self.series.get(key).or_else(|| self.series.get(&self.effective_key(key)));
        found.map(Arc::clone)
    }

    /// Key under which a new series is counted.
    fn effective_key(&self, key: &Key) -> Key {
        match self.count_by_name.get(key.name()) {
            Some(&count) if count >= shm::SERIES_PER_NAME_MAX => {
                Key::from_static_labels(key.name_shared(), &OVERFLOW)
            }
            _ => key.clone(),
        }
    }
}

/// Hasher for keys that carry their hash.
#[derive(Default)]
struct PrehashedHasher(u64);

impl Hasher for PrehashedHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn write(&mut self, bytes: &[u8]) {
        // Not used by keys, but a valid hash.
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}
