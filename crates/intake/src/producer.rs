//! Producers inside this process, for batches without an identity.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum number of distinct drop reasons; further reasons are added up as one.
const REASONS_MAX: usize = 16;

/// Internal producer; its batches get ascending sequences.
#[derive(Clone, Debug)]
pub struct Producer(pub(crate) Arc<ProducerInner>);

#[derive(Debug)]
pub(crate) struct ProducerInner {
    name: String,
    id: u64,
    /// Sequence of the last batch; locked during an append, so that the journal has the batches in
    /// order.
    pub(crate) sequence: Mutex<u64>,
    received: AtomicU64,
    dropped: Mutex<BTreeMap<String, u64>>,
    is_unmonitored: AtomicBool,
}

impl Producer {
    pub(crate) fn new(name: &str, id: u64) -> Producer {
        Producer(Arc::new(ProducerInner {
            name: name.to_owned(),
            id,
            sequence: Mutex::new(0),
            received: AtomicU64::new(0),
            dropped: Mutex::default(),
            is_unmonitored: AtomicBool::new(false),
        }))
    }

    /// Its name in the ledger.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Its number in identities.
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// Declares that its batches follow no schedule, such as annotations of users: a pause is no
    /// absence.
    pub fn disable_absence_monitor(&self) {
        self.0.is_unmonitored.store(true, Ordering::Relaxed);
    }

    /// Whether its batches may follow a schedule.
    pub(crate) fn is_monitored(&self) -> bool {
        !self.0.is_unmonitored.load(Ordering::Relaxed)
    }

    /// Counts values received from outside, whether stored or dropped later.
    pub fn add_received(&self, values: u64) {
        self.0.received.fetch_add(values, Ordering::Relaxed);
    }

    /// Counts received values that are in no batch. If they were expected at a time, the source
    /// also writes a gap.
    pub fn add_dropped(&self, values: u64, reason: &str) {
        let mut dropped = self.0.dropped.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = !dropped.contains_key(reason);
        let reason =
            if is_new && dropped.len() >= REASONS_MAX - 1 { "other reasons" } else { reason };
        let sum = dropped.entry(reason.to_owned()).or_default();
        *sum = sum.saturating_add(values);
    }

    /// Values received since the start of the process, and dropped values by reason.
    pub(crate) fn counts(&self) -> (u64, Vec<(String, u64)>) {
        let dropped = self.0.dropped.lock().unwrap_or_else(PoisonError::into_inner);
        let dropped = dropped.iter().map(|(reason, &n)| (reason.clone(), n)).collect();
        (self.0.received.load(Ordering::Relaxed), dropped)
    }
}
