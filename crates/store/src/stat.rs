//! Statistics of a store.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use model::Gap;

use crate::error::Result;
use crate::inner::StoreInner;
use crate::manifest::{PartInfo, RetentionRule};

/// State of a store at one time.
#[derive(Clone, Debug)]
pub struct StoreStat {
    /// Number of series.
    pub series: u64,
    /// Memory of the index, in bytes.
    pub index_bytes: u64,
    /// Rows that are only in memory and in the journal.
    pub head_rows: u64,
    /// Memory of those rows, in bytes.
    pub head_bytes: u64,
    /// Parts.
    pub parts: Vec<PartInfo>,
    /// Known gaps.
    pub gaps: Vec<Gap>,
    /// Retention rules.
    pub retention: Vec<RetentionRule>,
    /// Damage found at opening and by the last maintenance.
    pub warnings: Vec<String>,
    /// Last sequences of producers that were evicted since opening because the table was full. A
    /// retry of an evicted sequence is counted again.
    pub evicted_sequences: u64,
    /// State of the journal.
    pub journal: journal::JournalStat,
}

impl StoreInner {
    pub(crate) fn stat(&self) -> Result<StoreStat> {
        self.catch_up()?;
        let (series, index_bytes) = {
            let index = self.index();
            (index.live() as u64, index.memory_bytes() as u64)
        };
        let journal = self.journal.stat()?;
        let state = self.state();
        let (mut head_rows, mut head_bytes) = (0_u64, 0_u64);
        let mut gaps = state.manifest.gaps.clone();
        for head in state.heads() {
            let head = head.read().unwrap_or_else(PoisonError::into_inner);
            head_rows = head_rows.saturating_add(head.rows());
            head_bytes = head_bytes.saturating_add(head.bytes() as u64);
            gaps.extend(head.gaps.iter().cloned());
        }
        Ok(StoreStat {
            series,
            index_bytes,
            head_rows,
            head_bytes,
            parts: state.manifest.parts.values().cloned().collect(),
            gaps,
            retention: state.manifest.retention.clone(),
            warnings: state.warnings.clone(),
            evicted_sequences: self.evicted_sequences.load(Ordering::Relaxed),
            journal,
        })
    }
}
