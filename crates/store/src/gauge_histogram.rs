//! Gauge histograms: deduplication and conflicts.
//!
//! Interval histograms of different senders add up. Two histograms of one timestamp do not: the
//! second is either a retry of the first or contradicts it. So the existing one is looked up before
//! a row is added, in memory and in base parts. Once its rows are dropped, a histogram that is sent
//! again is stored as new.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::arithmetic_side_effects)
)]

use std::sync::{Arc, PoisonError, RwLock};

use hist::Histogram;
use hist::codec::frame;
use hist::codec::header::Temporality;
use model::{BatchEntry, SeriesId, SeriesKind};

use crate::chunk;
use crate::error::Result;
use crate::gather;
use crate::head::Head;
use crate::index::SeriesNumber;
use crate::inner::{StoreInner, StoreState};
use crate::manifest::Manifest;
use crate::row::Rows;

/// Result of comparing a gauge histogram with the stored one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GaugeHistogramComparison {
    /// No histogram is stored.
    New,
    /// The same histogram is stored.
    Same,
    /// A different histogram is stored.
    Conflict,
}

/// Whether a sample is a gauge histogram.
pub(crate) fn is_gauge_histogram(kind: SeriesKind, entry: &BatchEntry<'_>) -> bool {
    kind == SeriesKind::Histogram(Temporality::Delta) && entry.start == entry.end
}

/// Lookup of gauge histograms in the immutable head and the base.
pub(crate) struct GaugeHistogramLookup<'a> {
    inner: &'a StoreInner,
    immutable_head: Option<Arc<RwLock<Head>>>,
    manifest: Arc<Manifest>,
    /// Latest end of a base row, computed on first use.
    base_end: Option<i64>,
    /// The last chunk read: a retried request asks for its rows in order.
    last: Option<((u64, u64), Rows)>,
}

impl<'a> GaugeHistogramLookup<'a> {
    pub(crate) fn new_at(inner: &'a StoreInner, state: &StoreState) -> GaugeHistogramLookup<'a> {
        let immutable_head = state.immutable_head.as_ref().map(|it| Arc::clone(&it.head));
        let manifest = Arc::clone(&state.manifest);
        GaugeHistogramLookup { inner, immutable_head, manifest, base_end: None, last: None }
    }

    /// Compares a gauge histogram with the stored one of the same series and timestamp, in
    /// `head` and in the base.
    pub(crate) fn compare(
        &mut self,
        head: &Head,
        number: SeriesNumber,
        kind: SeriesKind,
        entry: &BatchEntry<'_>,
    ) -> GaugeHistogramComparison {
        let is_same = |stored: &[u8]| match stored == entry.value {
            true => GaugeHistogramComparison::Same,
            false => compare(frame::decode(stored).ok().map(|stored| stored.0).as_ref(), entry),
        };
        if let Some(stored) = head.gauge_histogram(number, kind, entry.end) {
            return is_same(stored);
        }
        if let Some(immutable_head) = &self.immutable_head {
            let immutable_head = immutable_head.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(stored) = immutable_head.gauge_histogram(number, kind, entry.end) {
                return is_same(stored);
            }
        }
        let ends = || self.manifest.base_parts().map(|part| part.end).max().unwrap_or(i64::MIN);
        if entry.end > *self.base_end.get_or_insert_with(ends) {
            return GaugeHistogramComparison::New;
        }
        let id = self.inner.index().id(number);
        match self.find_in_base(&id, entry.end) {
            Ok(None) => GaugeHistogramComparison::New,
            Ok(stored) => compare(stored.as_ref(), entry),
            // Reads report the damage as a gap; this sample is intact and stored.
            Err(_) => GaugeHistogramComparison::New,
        }
    }

    fn find_in_base(&mut self, id: &SeriesId, time: i64) -> Result<Option<Histogram>> {
        let mut bytes = Vec::new();
        let manifest = Arc::clone(&self.manifest);
        for info in manifest.base_parts() {
            if info.end < time || info.start > time {
                continue;
            }
            let part = self.inner.part(info.number)?;
            for location in part.find(id)? {
                if location.end < time || location.start > time {
                    continue;
                }
                let at = (info.number, location.offset);
                if self.last.as_ref().is_none_or(|last| last.0 != at) {
                    let Ok(header) = gather::read(&*part, &location, &mut bytes)? else { continue };
                    let Ok((rows, _)) = chunk::decode(&header, &bytes) else { continue };
                    self.last = Some((at, rows));
                }
                let Some((_, Rows::Histograms(rows))) = &self.last else { continue };
                let first = rows.partition_point(|row| row.end < time);
                let mut same = rows[first..].iter().take_while(|row| row.end == time);
                if let Some(stored) = same.find(|row| row.start == time) {
                    return Ok(Some(stored.value.clone()));
                }
            }
        }
        Ok(None)
    }
}

/// Compares by value, not by encoding.
fn compare(stored: Option<&Histogram>, entry: &BatchEntry<'_>) -> GaugeHistogramComparison {
    let written = |histogram: &Histogram| {
        let mut bytes = Vec::new();
        frame::encode(histogram, Default::default(), &mut bytes);
        bytes
    };
    let sent = frame::decode(entry.value).ok().map(|sent| written(&sent.0));
    match sent == stored.map(written) {
        true => GaugeHistogramComparison::Same,
        false => GaugeHistogramComparison::Conflict,
    }
}
