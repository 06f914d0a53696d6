//! Series that were seen: the bytes that a source names one by, and what it is.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use model::{Series, SeriesId};

/// About how many bytes what is remembered takes. At half of it those that were asked for since stay, and the
/// others are forgotten and learnt anew: some 200 thousand series of the usual size.
const BYTES_MAX: usize = 128 << 20;
/// What a series takes beside its texts, counted on the safe side.
const ENTRY_BYTES: usize = 256;

/// A series that was seen.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) series: Series,
    pub(crate) id: SeriesId,
    /// A batch with its form is in the journal: from there on the number is enough, for the store.
    is_told: AtomicBool,
    bytes: usize,
}

impl Known {
    fn new(series: Series, key: &[u8]) -> Known {
        let form = series.form();
        let bytes = ENTRY_BYTES + 2 * form.len() + key.len();
        Known { id: SeriesId::of_form(&form), series, is_told: AtomicBool::new(false), bytes }
    }

    // Relaxed: a batch that names the number only is appended after the one that has the form, whoever appends
    // it; nothing else is read by this flag.
    pub(crate) fn is_told(&self) -> bool {
        self.is_told.load(Ordering::Relaxed)
    }

    pub(crate) fn set_told(&self) {
        self.is_told.store(true, Ordering::Relaxed);
    }
}

/// All that were seen, by key. A key begins with its [`Way`](crate::way::Way).
#[derive(Debug)]
pub(crate) struct Cache {
    ages: RwLock<Ages>,
    /// Bytes of one age at the most.
    bytes_max: usize,
}

/// Those that were asked for since the last change of ages, and the others.
#[derive(Debug, Default)]
struct Ages {
    young: HashMap<Box<[u8]>, Arc<Known>>,
    old: HashMap<Box<[u8]>, Arc<Known>>,
    young_bytes: usize,
}

impl Default for Cache {
    fn default() -> Cache {
        Cache { ages: RwLock::default(), bytes_max: BYTES_MAX / 2 }
    }
}

impl Cache {
    pub(crate) fn get(&self, key: &[u8]) -> Option<Arc<Known>> {
        {
            let ages = self.ages.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(known) = ages.young.get(key) {
                return Some(Arc::clone(known));
            }
            ages.old.get(key)?;
        }
        let mut ages = self.ages.write().unwrap_or_else(PoisonError::into_inner);
        match ages.old.remove(key) {
            Some(known) => Some(self.remember(&mut ages, key, known)),
            // Somebody else was here in between.
            None => ages.young.get(key).map(Arc::clone),
        }
    }

    pub(crate) fn insert(&self, key: &[u8], series: Series) -> Arc<Known> {
        let known = Arc::new(Known::new(series, key));
        let mut ages = self.ages.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = ages.young.get(key) {
            return Arc::clone(known);
        }
        let known = ages.old.remove(key).unwrap_or(known);
        self.remember(&mut ages, key, known)
    }

    fn remember(&self, ages: &mut Ages, key: &[u8], known: Arc<Known>) -> Arc<Known> {
        if ages.young_bytes + known.bytes > self.bytes_max {
            ages.old = std::mem::take(&mut ages.young);
            ages.young_bytes = 0;
        }
        ages.young_bytes += known.bytes;
        ages.young.insert(key.into(), Arc::clone(&known));
        known
    }

    pub(crate) fn clear(&self) {
        *self.ages.write().unwrap_or_else(PoisonError::into_inner) = Ages::default();
    }
}

#[cfg(test)]
mod tests {
    use model::Kind;

    use super::*;

    fn series(number: u32) -> (Vec<u8>, Series) {
        let series = Series::new(format!("m{number}"), Kind::Gauge).checked().unwrap();
        (number.to_le_bytes().to_vec(), series)
    }

    #[test]
    fn what_is_asked_for_stays_whatever_comes_and_the_rest_has_a_bound() {
        let cache = Cache { bytes_max: 100 * (ENTRY_BYTES + 20), ..Cache::default() };
        let (hot, known) = series(u32::MAX);
        cache.insert(&hot, known).set_told();
        for number in 0..10_000 {
            let (key, series) = series(number);
            let _known = cache.insert(&key, series);
            assert!(cache.get(&hot).is_some_and(|known| known.is_told()), "{number}");
            let ages = cache.ages.read().unwrap();
            assert!(ages.young.len() + ages.old.len() <= 200);
        }
        assert!(cache.get(&series(0).0).is_none());
        cache.clear();
        assert!(cache.get(&hot).is_none());
    }

    #[test]
    fn who_comes_second_gets_what_the_first_has_put_in() {
        let cache = Cache::default();
        let (key, series) = series(1);
        let first = cache.insert(&key, series.clone());
        assert!(Arc::ptr_eq(&first, &cache.insert(&key, series)));
    }
}
