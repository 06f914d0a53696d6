//! Ranks of the spans that were accepted as exemplars: a later span that ranks after them would not
//! be kept by the store, and needs neither its attributes read nor space in the journal.
//!
//! The rules are those of the store: of each series, minute and cell the spans with the lowest
//! keys, and the largest span of the minute. Spans are recorded when their batch is in the journal.
//! After a restart, or if the table is full, more spans are offered than are kept.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Mutex, PoisonError};

use model::LadderCell;
use store::EXEMPLAR_AHEAD_MAX;

/// Spans of a cell besides the maximum, as in the store.
const KEPT_PER_CELL: usize = 2;
/// Series and minutes; beyond them all are forgotten. A usual one takes some 500 bytes.
const ENTRIES_MAX: usize = 20_000;
/// Nanoseconds of a minute.
const MINUTE: i64 = 60_000_000_000;

/// A span as it is ranked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RankedSpan {
    /// Hash of the key of its series.
    series: u64,
    minute: i64,
    value: f64,
    key: u64,
}

/// Accepted spans of a series and a minute.
#[derive(Debug)]
struct AcceptedSpans {
    /// Value and key.
    maximum: (f64, u64),
    /// The lowest keys of each cell, ascending.
    cells: Vec<(LadderCell, Vec<u64>)>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct SpanRanks(Mutex<HashMap<(u64, i64), AcceptedSpans>>);

impl RankedSpan {
    pub(crate) fn new(series_key: &[u8], time: i64, value: f64, key: u64) -> RankedSpan {
        let mut hasher = DefaultHasher::new();
        series_key.hash(&mut hasher);
        RankedSpan { series: hasher.finish(), minute: time.div_euclid(MINUTE), value, key }
    }
}

/// Whether a span is the maximum beside another one. Of equal values the one with the lower key.
fn exceeds(span: (f64, u64), other: (f64, u64)) -> bool {
    span.0 > other.0 || span.0 == other.0 && span.1 < other.1
}

impl AcceptedSpans {
    fn keys(&self, cell: LadderCell) -> &[u64] {
        let found = self.cells.iter().find(|(known, _)| *known == cell);
        found.map_or(&[], |(_, keys)| keys)
    }

    /// Whether the span would be kept. One that is kept already would: a request is sent again.
    fn wants(&self, span: &RankedSpan) -> bool {
        let keys = self.keys(LadderCell::of(span.value));
        !exceeds(self.maximum, (span.value, span.key))
            || keys.len() < KEPT_PER_CELL
            || keys.last().is_some_and(|last| span.key <= *last)
    }

    fn record(&mut self, span: &RankedSpan) {
        let mut span = (span.value, span.key);
        if span == self.maximum {
            return;
        }
        if exceeds(span, self.maximum) {
            std::mem::swap(&mut span, &mut self.maximum);
        }
        let cell = LadderCell::of(span.0);
        let keys = match self.cells.iter().position(|(known, _)| *known == cell) {
            Some(at) => &mut self.cells[at].1,
            None => &mut self.cells.push_mut((cell, Vec::with_capacity(KEPT_PER_CELL + 1))).1,
        };
        if let Err(at) = keys.binary_search(&span.1) {
            keys.insert(at, span.1);
            keys.truncate(KEPT_PER_CELL);
        }
    }
}

impl SpanRanks {
    /// Whether a span may be kept as an exemplar.
    pub(crate) fn wants(&self, span: &RankedSpan) -> bool {
        let accepted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        accepted.get(&(span.series, span.minute)).is_none_or(|accepted| accepted.wants(span))
    }

    /// Records spans of a batch that was accepted, except those that are too far ahead of now for
    /// the store.
    pub(crate) fn record(&self, spans: &[RankedSpan], now: i64) {
        let mut accepted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let minutes = now.saturating_add(EXEMPLAR_AHEAD_MAX).div_euclid(MINUTE);
        for span in spans.iter().filter(|span| span.minute < minutes) {
            if accepted.len() >= ENTRIES_MAX {
                accepted.clear();
            }
            let place = accepted.entry((span.series, span.minute));
            let maximum = (span.value, span.key);
            place.or_insert_with(|| AcceptedSpans { maximum, cells: Vec::new() }).record(span);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use model::splitmix64;

    use super::*;

    /// What the store keeps of spans of one series and minute.
    fn kept(spans: &[(f64, u64)]) -> BTreeSet<(u64, u64)> {
        let maximum = spans.iter().copied().reduce(|a, b| if exceeds(b, a) { b } else { a });
        let mut cells: BTreeMap<LadderCell, BTreeSet<(u64, u64)>> = BTreeMap::new();
        for &(value, key) in spans.iter().filter(|span| Some(**span) != maximum) {
            cells.entry(LadderCell::of(value)).or_default().insert((key, value.to_bits()));
        }
        let cells = cells.into_values().flat_map(|cell| cell.into_iter().take(KEPT_PER_CELL));
        cells.chain(maximum.map(|(value, key)| (key, value.to_bits()))).collect()
    }

    /// All spans and the wanted ones give the same exemplars, whatever the requests are.
    #[test]
    fn wanted_spans_are_all_that_are_kept() {
        for seed in 0..50 {
            let spans: Vec<(f64, u64)> = (0..500)
                .map(|at| {
                    let key = splitmix64(seed << 32 | at);
                    ((splitmix64(key) % 3000) as f64 / 7.0, key)
                })
                .collect();
            let ranks = SpanRanks::default();
            let mut offered = Vec::new();
            for request in spans.chunks(1 + seed as usize) {
                let ranked = |&(value, key): &(f64, u64)| RankedSpan::new(b"a", 7, value, key);
                let wanted = request.iter().filter(|span| ranks.wants(&ranked(span)));
                let wanted: Vec<(f64, u64)> = wanted.copied().collect();
                let recorded: Vec<RankedSpan> = wanted.iter().map(ranked).collect();
                ranks.record(&recorded, 0);
                assert!(recorded.iter().all(|span| {
                    let of_kept = kept(&offered.iter().chain(&wanted).copied().collect::<Vec<_>>());
                    !of_kept.contains(&(span.key, span.value.to_bits())) || ranks.wants(span)
                }));
                offered.extend(wanted);
            }
            assert_eq!(kept(&offered), kept(&spans));
            assert!(offered.len() < spans.len() * 2 / 3, "{}", offered.len());
        }
    }

    /// A sender whose clock is ahead had the spans of all others left out later.
    #[test]
    fn spans_that_the_store_does_not_keep_are_not_recorded() {
        let ranks = SpanRanks::default();
        let span = |key| RankedSpan::new(b"a", 5 * MINUTE + 1, 1.0, key);
        let spans = [span(1), span(2), span(3)];
        for (now, wants) in [(0, true), (MINUTE - 1, true), (MINUTE, false)] {
            ranks.record(&spans, now);
            assert_eq!(ranks.wants(&span(9)), wants, "{now}");
        }
    }

    #[test]
    fn table_is_bounded() {
        let ranks = SpanRanks::default();
        let span = |minute: i64| RankedSpan::new(b"a", minute * MINUTE, 1.0, 1);
        (0..2 * ENTRIES_MAX as i64 + 5).for_each(|minute| ranks.record(&[span(minute)], i64::MAX));
        assert!(ranks.0.lock().unwrap().len() <= ENTRIES_MAX);
    }
}
