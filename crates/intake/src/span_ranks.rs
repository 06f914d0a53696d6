//! Ranks of the spans that were accepted as exemplars: a later span that ranks after them would not
//! be kept by the store, and needs neither its attributes read nor space in the journal.
//!
//! The rules are those of the store: of each series, minute and cell the spans with the lowest
//! keys, and the largest span of the minute. Spans are recorded when their batch is in the journal.
//! After a restart, or if the table is full, more spans are offered than are kept.
//!
//! Of `n` spans that come one after the other, `k` of them kept, some `k (1 + ln(n / k))` rank
//! before the others when they come. Their traces are kept only if they are likely to do so at the
//! end of the minute: by the number of spans of the cell that the minute before had.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Mutex, PoisonError};

use model::{LadderCell, TraceId};
use store::EXEMPLAR_AHEAD_MAX;

/// Spans of a cell besides the maximum, as in the store.
const KEPT_PER_CELL: usize = 2;
/// Series and minutes; beyond them all are forgotten. A usual one takes some 500 bytes.
const ENTRIES_MAX: usize = 20_000;
/// Expected number of spans of a cell, in a minute, whose keys are low enough for their trace to be
/// kept: the span with the lowest key has a higher one in 3 of 10,000 cells with as many spans as
/// expected, the second one in 3 of 1,000 (Poisson distribution). Cells with fewer spans have all.
const KEPT_EXPECTED: f64 = 8.0;
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

/// Hash of the key of a series, and a minute.
type SpanPlace = (u64, i64);
/// Numbers of spans by cell.
type SpanCounts = Vec<(LadderCell, u64)>;

/// Exemplars of a batch that are spans, and numbers of all of its spans.
#[derive(Debug, Default)]
pub(crate) struct RankedSpans {
    /// With their traces.
    pub(crate) spans: Vec<(RankedSpan, TraceId)>,
    /// By series and minute.
    counts: Vec<(SpanPlace, SpanCounts)>,
}

impl RankedSpans {
    /// Counts spans of a series with a key that ended in the minute of a time.
    pub(crate) fn count(&mut self, key: &[u8], time: i64, counts: &[(LadderCell, u64)]) {
        let span = RankedSpan::new(key, time, 0.0, 0);
        self.counts.push((span.place(), counts.to_owned()));
    }
}

/// Accepted spans of a series and a minute.
#[derive(Debug, Default)]
struct AcceptedSpans {
    /// Value and key.
    maximum: Option<(f64, u64)>,
    /// The lowest keys of each cell, ascending.
    cells: Vec<(LadderCell, Vec<u64>)>,
    /// Numbers of all spans.
    counts: SpanCounts,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct SpanRanks(Mutex<HashMap<SpanPlace, AcceptedSpans>>);

impl RankedSpan {
    pub(crate) fn new(series_key: &[u8], time: i64, value: f64, key: u64) -> RankedSpan {
        let mut hasher = DefaultHasher::new();
        series_key.hash(&mut hasher);
        RankedSpan { series: hasher.finish(), minute: time.div_euclid(MINUTE), value, key }
    }

    fn place(&self) -> SpanPlace {
        (self.series, self.minute)
    }
}

fn count_of(counts: &[(LadderCell, u64)], cell: LadderCell) -> u64 {
    counts.iter().find(|(known, _)| *known == cell).map_or(0, |(_, count)| *count)
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

    /// Whether no accepted span exceeds it.
    fn is_maximum(&self, span: &RankedSpan) -> bool {
        self.maximum.is_none_or(|maximum| !exceeds(maximum, (span.value, span.key)))
    }

    /// Whether the span would be kept. One that is kept already would: a request is sent again.
    fn wants(&self, span: &RankedSpan) -> bool {
        let keys = self.keys(LadderCell::of(span.value));
        self.is_maximum(span)
            || keys.len() < KEPT_PER_CELL
            || keys.last().is_some_and(|last| span.key <= *last)
    }

    fn record(&mut self, span: &RankedSpan) {
        let mut span = (span.value, span.key);
        let Some(maximum) = &mut self.maximum else {
            self.maximum = Some(span);
            return;
        };
        if span == *maximum {
            return;
        }
        if exceeds(span, *maximum) {
            std::mem::swap(&mut span, maximum);
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
        accepted.get(&span.place()).is_none_or(|accepted| accepted.wants(span))
    }

    /// The traces of a batch's exemplars that are kept: of the maximum, and of spans whose keys are
    /// low enough.
    pub(crate) fn kept_traces(&self, batch: &mut RankedSpans) -> Vec<TraceId> {
        let place = |(span, _): &(RankedSpan, TraceId)| span.place();
        batch.spans.sort_unstable_by_key(place);
        batch.counts.sort_unstable_by_key(|(place, _)| *place);
        let mut kept = Vec::new();
        let accepted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for spans in batch.spans.chunk_by(|a, b| place(a) == place(b)) {
            let Some((first, _)) = spans.first() else { continue };
            let (series, minute) = first.place();
            let known = accepted.get(&(series, minute));
            let before = accepted.get(&(series, minute.saturating_sub(1)));
            let own = batch.counts.binary_search_by_key(&(series, minute), |(place, _)| *place);
            let own = own.ok().and_then(|at| batch.counts.get(at));
            let values = spans.iter().map(|(span, _)| (span.value, span.key));
            let largest = values.reduce(|a, b| if exceeds(b, a) { b } else { a });
            let is_maximum = |span: &RankedSpan| {
                largest == Some((span.value, span.key))
                    && known.is_none_or(|known| known.is_maximum(span))
            };
            for (span, trace_id) in spans {
                let cell = LadderCell::of(span.value);
                let count =
                    |of: Option<&AcceptedSpans>| of.map_or(0, |of| count_of(&of.counts, cell));
                let now = count(known) + own.map_or(0, |(_, counts)| count_of(counts, cell));
                let expected = count(before).max(now) as f64;
                let rank = span.key as f64 / 2f64.powi(64) * expected;
                if rank <= KEPT_EXPECTED || is_maximum(span) {
                    kept.push(*trace_id);
                }
            }
        }
        kept
    }

    /// Records spans of a batch that was accepted, except those that are too far ahead of now for
    /// the store.
    pub(crate) fn record(&self, batch: &RankedSpans, now: i64) {
        let mut accepted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let minutes = now.saturating_add(EXEMPLAR_AHEAD_MAX).div_euclid(MINUTE);
        let mut with = |place: (u64, i64), change: &dyn Fn(&mut AcceptedSpans)| {
            if place.1 >= minutes {
                return;
            }
            if accepted.len() >= ENTRIES_MAX {
                // The minute before is needed for the numbers of spans to expect.
                accepted.retain(|known, _| known.1 >= place.1.saturating_sub(1));
                if accepted.len() >= ENTRIES_MAX / 2 {
                    accepted.clear();
                }
            }
            change(accepted.entry(place).or_default());
        };
        for (span, _) in &batch.spans {
            with(span.place(), &|accepted| accepted.record(span));
        }
        for (place, counts) in &batch.counts {
            with(*place, &|accepted| {
                for (cell, count) in counts {
                    match accepted.counts.iter_mut().find(|(known, _)| known == cell) {
                        Some((_, all)) => *all = all.saturating_add(*count),
                        None => accepted.counts.push((*cell, *count)),
                    }
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use model::splitmix64;

    use super::*;

    fn batch(spans: impl IntoIterator<Item = RankedSpan>) -> RankedSpans {
        let spans = spans.into_iter().map(|span| (span, [0; 16])).collect();
        RankedSpans { spans, counts: Vec::new() }
    }

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
                let recorded = batch(wanted.iter().map(ranked));
                ranks.record(&recorded, 0);
                assert!(recorded.spans.iter().all(|(span, _)| {
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
        let spans = batch([span(1), span(2), span(3)]);
        for (now, wants) in [(0, true), (MINUTE - 1, true), (MINUTE, false)] {
            ranks.record(&spans, now);
            assert_eq!(ranks.wants(&span(9)), wants, "{now}");
        }
    }

    #[test]
    fn table_is_bounded() {
        let ranks = SpanRanks::default();
        let span = |minute: i64| RankedSpan::new(b"a", minute * MINUTE, 1.0, 1);
        let record = |spans: RankedSpans| ranks.record(&spans, i64::MAX);
        (0..2 * ENTRIES_MAX as i64 + 5).for_each(|minute| record(batch([span(minute)])));
        assert!(ranks.0.lock().unwrap().len() <= ENTRIES_MAX);
        // Of one minute.
        let series = |of: u64| RankedSpan::new(&of.to_le_bytes(), 0, 1.0, 1);
        (0..2 * ENTRIES_MAX as u64 + 5).for_each(|of| record(batch([series(of)])));
        assert!(ranks.0.lock().unwrap().len() <= ENTRIES_MAX);
    }

    /// Requests of 20 spans of 10 to 15 ms; returns how many traces were kept, and whether those of
    /// the exemplars of the minute are among them.
    fn run_minute(ranks: &SpanRanks, minute: i64, spans: u64) -> (usize, bool) {
        let all: Vec<(f64, u64)> = (0..spans)
            .map(|at| {
                let key = splitmix64((minute as u64) << 32 | at);
                (10.0 + (splitmix64(key) % 5000) as f64 / 1000.0, key)
            })
            .collect();
        let mut traces = BTreeSet::new();
        for request in all.chunks(20) {
            let ranked = |(value, key): (f64, u64)| {
                let mut trace_id = [0; 16];
                trace_id[..8].copy_from_slice(&key.to_le_bytes());
                (RankedSpan::new(b"a", minute * MINUTE, value, key), trace_id)
            };
            // As a decoder does.
            let offered: BTreeSet<u64> = kept(request).into_iter().map(|(key, _)| key).collect();
            let offered = request.iter().filter(|(_, key)| offered.contains(key));
            let spans = offered.map(|span| ranked(*span)).filter(|(span, _)| ranks.wants(span));
            let mut batch = RankedSpans { spans: spans.collect(), counts: Vec::new() };
            batch.count(b"a", minute * MINUTE, &[(LadderCell::of(10.0), request.len() as u64)]);
            traces.extend(ranks.kept_traces(&mut batch));
            ranks.record(&batch, i64::MAX);
        }
        let has_all = kept(&all)
            .into_iter()
            .all(|(key, _)| traces.iter().any(|trace| trace[..8] == key.to_le_bytes()));
        (traces.len(), has_all)
    }

    /// The first requests of each minute had all of their exemplars' traces kept, and more later.
    #[test]
    fn traces_of_the_bulk_are_kept_by_their_expected_number() {
        let ranks = SpanRanks::default();
        let (first, _) = run_minute(&ranks, 0, 2000);
        let later: Vec<(usize, bool)> =
            (1..101).map(|minute| run_minute(&ranks, minute, 2000)).collect();
        let mean = later.iter().map(|(traces, _)| *traces).sum::<usize>() as f64 / 100.0;
        assert!(first > 15 && (8.0..13.0).contains(&mean), "{first}, then {mean} a minute");
        let complete = later.iter().filter(|(_, has_all)| *has_all).count();
        assert!(complete >= 98, "{complete} of 100 minutes");
        // Rarely used: all of them.
        (200..220).for_each(|minute| assert!(run_minute(&ranks, minute, 7).1));
    }
}
