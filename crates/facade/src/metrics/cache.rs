//! The series of one kind that were asked for, so that each is made once.
//!
//! Two bounds, those of shared memory: a name has 1,000 series, and what comes after is one, `overflow="true"`; all names together
//! have 16,384, and what comes after is counted as refused.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Arc, PoisonError, RwLock};

use metrics::{Key, KeyName, Label};

use super::series::Series;

const SERIES_MAX: usize = shm::layout::ENTRIES_MAX;
static OVERFLOW: [Label; 1] = [Label::from_static_parts("overflow", "true")];

pub(super) struct Cache<T> {
    known: RwLock<Known<T>>,
}

struct Known<T> {
    series: HashMap<Key, Arc<Series<T>>, BuildHasherDefault<Hashed>>,
    of_name: BTreeMap<KeyName, usize>,
}

impl<T> Cache<T> {
    pub(super) const fn new() -> Cache<T> {
        let series = HashMap::with_hasher(BuildHasherDefault::new());
        Cache { known: RwLock::new(Known { series, of_name: BTreeMap::new() }) }
    }

    /// The series of a key.
    pub(super) fn find(&self, key: &Key) -> Arc<Series<T>> {
        let found = self.known.read().unwrap_or_else(PoisonError::into_inner).find(key);
        found.unwrap_or_else(|| self.add(key))
    }

    #[cold]
    fn add(&self, key: &Key) -> Arc<Series<T>> {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.find(key) {
            return found;
        }
        let key = known.of(key).to_retained();
        if known.series.len() >= SERIES_MAX {
            return Arc::new(Series::without_room(key));
        }
        let made = Arc::new(Series::new(key.clone(), key.labels().eq(&OVERFLOW)));
        *known.of_name.entry(key.name_shared()).or_default() += 1;
        known.series.insert(key, Arc::clone(&made));
        made
    }
}

impl<T> Known<T> {
    fn find(&self, key: &Key) -> Option<Arc<Series<T>>> {
        let found = self.series.get(key).or_else(|| self.series.get(&self.of(key)));
        found.map(Arc::clone)
    }

    /// The key that a new one is counted under.
    fn of(&self, key: &Key) -> Key {
        match self.of_name.get(key.name()) {
            Some(&held) if held >= shm::SERIES_OF_A_NAME_MAX => {
                Key::from_static_labels(key.name_shared(), &OVERFLOW)
            }
            _ => key.clone(),
        }
    }
}

/// Keys come with their hash.
#[derive(Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn write(&mut self, bytes: &[u8]) {
        // Not the way of a key, but as good as one.
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}
