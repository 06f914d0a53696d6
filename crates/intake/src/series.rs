//! Series that were seen: the bytes that a source names one by, and what it is.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use model::{Series, SeriesId};

/// Keys that are remembered; beyond, all are forgotten and learnt anew. Each takes some 300 bytes and its key.
pub(crate) const KEYS_MAX: usize = 1 << 18;

/// A series that was seen.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) series: Series,
    pub(crate) id: SeriesId,
    /// A batch with its form is in the journal: from there on the number is enough, for the store.
    is_told: AtomicBool,
}

impl Known {
    pub(crate) fn new(series: Series) -> Known {
        Known { id: series.id(), series, is_told: AtomicBool::new(false) }
    }

    // Relaxed: a batch that names the number only is appended after the one that has the form, whoever appends
    // it; nothing else is read by this flag.
    pub(crate) fn is_told(&self) -> bool {
        self.is_told.load(Ordering::Relaxed)
    }

    pub(crate) fn set_told(&self, is_told: bool) {
        self.is_told.store(is_told, Ordering::Relaxed);
    }
}

/// All that were seen, by key. A key begins with the number of the source's way to make keys.
#[derive(Debug, Default)]
pub(crate) struct Cache(RwLock<HashMap<Box<[u8]>, Arc<Known>>>);

impl Cache {
    pub(crate) fn get(&self, key: &[u8]) -> Option<Arc<Known>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(key).map(Arc::clone)
    }

    pub(crate) fn insert(&self, key: &[u8], series: Series) -> Arc<Known> {
        let known = Arc::new(Known::new(series));
        let mut cache = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if cache.len() >= KEYS_MAX {
            cache.clear();
        }
        Arc::clone(cache.entry(key.into()).or_insert(known))
    }

    pub(crate) fn clear(&self) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
