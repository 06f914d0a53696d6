//! Producers inside this process, for batches without an identity.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Reasons of what a source drops that are told apart; the others are added up as one.
const REASONS_MAX: usize = 16;

/// Internal producer; its batches get ascending sequences.
#[derive(Clone, Debug)]
pub struct Producer(pub(crate) Arc<ProducerInner>);

#[derive(Debug)]
pub(crate) struct ProducerInner {
    name: String,
    id: u64,
    /// The last batch's sequence; held while a batch is appended, so that the journal has them in
    /// order.
    pub(crate) sequence: Mutex<u64>,
    received: AtomicU64,
    dropped: Mutex<BTreeMap<String, u64>>,
}

impl Producer {
    pub(crate) fn new(name: &str, id: u64) -> Producer {
        Producer(Arc::new(ProducerInner {
            name: name.to_owned(),
            id,
            sequence: Mutex::new(0),
            received: AtomicU64::new(0),
            dropped: Mutex::default(),
        }))
    }

    /// Its name, as the books have it.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The number that identities have.
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// Counts values that have come from outside, whatever becomes of them.
    pub fn add_received(&self, values: u64) {
        self.0.received.fetch_add(values, Ordering::Relaxed);
    }

    /// Counts values that had come and are in no batch. Where somebody relied on them a gap says so
    /// too.
    pub fn add_dropped(&self, values: u64, reason: &str) {
        let mut dropped = self.0.dropped.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = !dropped.contains_key(reason);
        let reason =
            if is_new && dropped.len() >= REASONS_MAX - 1 { "other reasons" } else { reason };
        let sum = dropped.entry(reason.to_owned()).or_default();
        *sum = sum.saturating_add(values);
    }

    /// Values that came since the process began, and those that were dropped, by reason.
    pub(crate) fn counts(&self) -> (u64, Vec<(String, u64)>) {
        let dropped = self.0.dropped.lock().unwrap_or_else(PoisonError::into_inner);
        let dropped = dropped.iter().map(|(reason, &n)| (reason.clone(), n)).collect();
        (self.0.received.load(Ordering::Relaxed), dropped)
    }
}
