//! Tests of the reservoir and of selections from it.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use hist::LimitInclusion;
use model::{ExemplarAttributes, ExemplarSource};
use proptest::prelude::*;

use super::super::selection::{self, SelectedExemplar};
use super::super::{ExemplarRequest, ExemplarSelection};
use super::*;
use crate::resolution::HOUR;

const NOW: i64 = 120 * MINUTE;

fn exemplar(time: i64, value: f64, trace: u64) -> Exemplar {
    let text = format!("u{trace}");
    Exemplar {
        time,
        value,
        trace_id: u128::from(trace).to_le_bytes(),
        span_id: [0; 8],
        attributes: ExemplarAttributes::new([("user", text.as_str())]).0,
        source: ExemplarSource::Otlp,
    }
}

fn series(number: u8) -> SeriesId {
    SeriesId([number; 16])
}

fn with_budget(bytes_max: usize, seed: u64) -> Reservoir {
    Reservoir::new(ExemplarOptions { bytes_max, retention: HOUR }, seed)
}

fn listed(reservoir: &Reservoir) -> BTreeSet<String> {
    let all = |_: &_| true;
    let found = reservoir.matches(&(i64::MIN..i64::MAX), &all);
    found.map(|found| format!("{found:?}")).collect()
}

/// Minute, series and cell.
type CellKey = (i64, SeriesId, LadderCell);

/// Number of exemplars of each cell, and the maximum of each minute and series.
fn summary(reservoir: &Reservoir) -> (BTreeMap<CellKey, usize>, BTreeMap<(i64, SeriesId), f64>) {
    let (mut cells, mut maxima) = (BTreeMap::new(), BTreeMap::new());
    let all = |_: &_| true;
    for found in reservoir.matches(&(i64::MIN..i64::MAX), &all) {
        let minute = found.kept.exemplar.time.div_euclid(MINUTE);
        *cells.entry((minute, found.series, found.kept.cell)).or_default() += 1;
        if found.is_maximum {
            let value = found.kept.exemplar.value;
            assert_eq!(maxima.insert((minute, found.series), value), None, "two maxima");
        }
    }
    (cells, maxima)
}

fn offers() -> impl Strategy<Value = Vec<(u8, i64, f64, u64)>> {
    let value = prop_oneof![0.001..1e6, -10.0..10.0, (1..5).prop_map(f64::from)];
    prop::collection::vec((0..3_u8, 0..3 * MINUTE, value, 1..60_u64), 1..200)
}

fn offer_all(reservoir: &mut Reservoir, offers: &[(u8, i64, f64, u64)]) {
    for &(number, time, value, trace) in offers {
        reservoir.offer(series(number), exemplar(NOW - 30 * MINUTE + time, value, trace), NOW);
    }
}

proptest! {
    #[test]
    fn every_cell_and_every_maximum_is_kept(offers in offers(), seed in any::<u64>()) {
        let mut reservoir = with_budget(1 << 20, seed);
        offer_all(&mut reservoir, &offers);
        let (mut cells, mut maxima) = (BTreeMap::new(), BTreeMap::new());
        for &(number, time, value, _) in &offers {
            let minute = (NOW - 30 * MINUTE + time).div_euclid(MINUTE);
            let maximum = maxima.entry((minute, series(number))).or_insert(value);
            *maximum = maximum.max(value);
            cells.insert((minute, series(number), LadderCell::of(value)), ());
        }
        let (found_cells, found_maxima) = summary(&reservoir);
        prop_assert_eq!(found_maxima, maxima);
        prop_assert!(found_cells.keys().eq(cells.keys()));
        prop_assert!(found_cells.values().all(|&kept| kept <= KEPT_PER_CELL + 1));
        let stat = reservoir.stat(NOW);
        prop_assert_eq!(stat.exemplars as usize, listed(&reservoir).len());
        let seen = stat.counts.kept + stat.counts.duplicate;
        prop_assert!(seen <= offers.len() as u64, "{:?}", stat.counts);
    }

    /// A merge is to offer what another reservoir kept.
    #[test]
    fn merge_in_any_order_gives_the_same(
        offers in offers(),
        cuts in (0..200_usize, 0..200_usize),
        seed in any::<u64>(),
    ) {
        let mut whole = with_budget(1 << 20, seed);
        offer_all(&mut whole, &offers);
        let (a, b) = (cuts.0.min(offers.len()), cuts.1.min(offers.len()));
        let parts = [&offers[..a.min(b)], &offers[a.min(b)..a.max(b)], &offers[a.max(b)..]];
        let part = |offers: &[_]| {
            let mut part = with_budget(1 << 20, seed);
            offer_all(&mut part, offers);
            part
        };
        let merge = |mut into: Reservoir, from: &Reservoir| {
            let all = |_: &_| true;
            for found in from.matches(&(i64::MIN..i64::MAX), &all) {
                into.offer(found.series, found.kept.exemplar.clone(), NOW);
            }
            into
        };
        let [a, b, c] = parts.map(part);
        let left = merge(merge(part(parts[0]), &b), &c);
        let right = merge(merge(part(parts[2]), &b), &a);
        prop_assert_eq!(listed(&left), listed(&right));
        prop_assert_eq!(listed(&left), listed(&whole));
        // A record that is read again changes nothing.
        let again = merge(left, &whole);
        prop_assert_eq!(listed(&again), listed(&whole));
        prop_assert_eq!(again.stat(NOW).bytes, right.stat(NOW).bytes);
    }

    #[test]
    fn the_budget_is_kept(offers in offers(), budget in 0..40_000_usize) {
        let mut reservoir = with_budget(budget, 3);
        let mut largest: BTreeMap<(i64, SeriesId), f64> = BTreeMap::new();
        for (at, offer) in offers.iter().enumerate() {
            offer_all(&mut reservoir, &[*offer]);
            prop_assert!(reservoir.stat(NOW).bytes <= budget as u64, "after {at}");
            let minute = (NOW - 30 * MINUTE + offer.1).div_euclid(MINUTE);
            let maximum = largest.entry((minute, series(offer.0))).or_insert(offer.2);
            *maximum = maximum.max(offer.2);
        }
        // What is covered has its maxima, unless the series came when the budget was spent.
        let stat = reservoir.stat(NOW);
        if stat.counts.evicted == 0 {
            prop_assert_eq!(summary(&reservoir).1, largest);
        }
        let of_bytes: usize = reservoir.minutes.values().map(|minute| minute.bytes).sum();
        prop_assert_eq!(stat.bytes, of_bytes as u64);
    }

    #[test]
    fn deleted_exemplars_are_gone(offers in offers(), from in 0..3 * MINUTE, seed in any::<u64>()) {
        let mut reservoir = with_budget(1 << 20, seed);
        offer_all(&mut reservoir, &offers);
        let begin = NOW - 30 * MINUTE + from;
        reservoir.delete(&|id| *id == series(1), &(begin..NOW));
        let mut others = with_budget(1 << 20, seed);
        let kept: Vec<_> =
            offers.iter().filter(|of| of.0 != 1 || of.1 < from).copied().collect();
        offer_all(&mut others, &kept);
        let is_deleted = |found: &ExemplarMatch<'_>| {
            found.series == series(1) && found.kept.exemplar.time >= begin
        };
        let all = |_: &_| true;
        prop_assert!(!reservoir.matches(&(i64::MIN..i64::MAX), &all).any(|of| is_deleted(&of)));
        let other = |id: &SeriesId| *id != series(1);
        let count = |of: &Reservoir| of.matches(&(i64::MIN..i64::MAX), &other).count();
        prop_assert_eq!(count(&reservoir), count(&others));
        let of_bytes: usize = reservoir.minutes.values().map(|minute| minute.bytes).sum();
        prop_assert_eq!(reservoir.stat(NOW).bytes, of_bytes as u64);
    }
}

#[test]
fn only_the_last_hour_is_kept() {
    let mut reservoir = with_budget(1 << 20, 1);
    for minutes in [-5, 0, 59, 60, 61, 119] {
        reservoir.offer(series(1), exemplar(NOW - minutes * MINUTE, 1.0, 1), NOW);
    }
    reservoir.offer(series(1), exemplar(NOW + 5 * MINUTE + 1, 1.0, 1), NOW);
    assert_eq!(reservoir.stat(NOW).exemplars, 4);
    assert_eq!(reservoir.stat(NOW).counts.outside_time, 3);
    assert_eq!(reservoir.covered_from(NOW), NOW - HOUR);
    reservoir.expire(NOW + MINUTE);
    assert_eq!(reservoir.stat(NOW).exemplars, 3);
    reservoir.expire(NOW + 3 * HOUR);
    assert_eq!((reservoir.stat(NOW).exemplars, reservoir.stat(NOW).bytes), (0, 0));
}

/// A scrape returns an exemplar until there is another one.
#[test]
fn repeated_exemplars_are_one() {
    let mut reservoir = with_budget(1 << 20, 1);
    for second in 0..20_u8 {
        let time = NOW - MINUTE + i64::from(second);
        reservoir.offer(series(1), exemplar(time, 1.0, 1), NOW);
        reservoir.offer(series(1), exemplar(time, 2.0, 2), NOW);
    }
    let stat = reservoir.stat(NOW);
    assert_eq!((stat.exemplars, stat.counts.kept, stat.counts.duplicate), (2, 2, 38));
}

/// The estimate of the memory is compared with the allocator's.
#[test]
fn memory_is_counted() {
    let mut most = 0;
    let mut counted = 0;
    let info = allocation_counter::measure(|| {
        let mut reservoir = with_budget(64 << 20, 1);
        for number in 0..100_000_u64 {
            let value = 1.3_f64.powi((number / 200 % 30) as i32) + (number as f64) * 1e-6;
            let id = series((number % 100) as u8);
            let time = NOW - (number as i64 % 20) * MINUTE;
            reservoir.offer(id, exemplar(time, value, number), NOW);
        }
        let stat = reservoir.stat(NOW);
        (most, counted) = (stat.bytes, stat.exemplars);
        std::mem::forget(reservoir);
    });
    let held = info.bytes_current as u64;
    println!("{counted} exemplars: {held} bytes, {most} counted");
    assert!(held <= most && most <= 2 * held, "{held} bytes are held, {most} counted");
}

fn select(
    reservoir: &Reservoir,
    request: &ExemplarRequest,
    count: &dyn Fn(f64, LimitInclusion) -> Option<f64>,
) -> ExemplarSelection {
    let candidates = selection::collect(reservoir, request);
    let matched = candidates.len() as u64;
    let chosen = selection::choose(candidates, request, count);
    let exemplars = selection::complete(reservoir, &chosen);
    ExemplarSelection { exemplars, matched, covered_from: reservoir.covered_from(NOW) }
}

fn request(limit: usize) -> ExemplarRequest {
    ExemplarRequest {
        series: HashSet::from([series(1)]),
        range: NOW - HOUR..NOW + 1,
        above: f64::NEG_INFINITY,
        up_to: f64::INFINITY,
        limit,
    }
}

const POPULATION: u64 = 1_000;

/// Values of a population, and a selection of its exemplars.
fn population(seed: u64, limit: usize) -> (Vec<f64>, ExemplarSelection) {
    let mut reservoir = with_budget(4 << 20, seed);
    let mut values = Vec::new();
    for number in 0..POPULATION {
        let uniform = splitmix64(number ^ 77) as f64 / u64::MAX as f64;
        let value = (-uniform.ln()).powi(3) + 1e-6 * (number % 10) as f64;
        values.push(value);
        reservoir.offer(series(1), exemplar(NOW - MINUTE, value, number), NOW);
    }
    values.sort_by(f64::total_cmp);
    let count = |limit: f64, inclusion: LimitInclusion| {
        let below = values.partition_point(|&value| match inclusion {
            LimitInclusion::Inclusive => value < limit,
            LimitInclusion::Exclusive => value <= limit,
        });
        Some((values.len() - below) as f64)
    };
    let selection = select(&reservoir, &request(limit), &count);
    (values, selection)
}

fn sum_of_weights<'a>(selected: impl Iterator<Item = &'a SelectedExemplar>) -> f64 {
    selected.map(|selected| selected.weight.unwrap()).sum()
}

#[test]
fn weights_add_up_to_the_count() {
    let (values, selection) = population(1, 1_000);
    assert_eq!(selection.matched, selection.exemplars.len() as u64);
    let sum = sum_of_weights(selection.exemplars.iter());
    assert!((sum - values.len() as f64).abs() < 1e-6, "{sum}");
    let maximum = values.iter().copied().fold(0.0, f64::max);
    let found = selection.exemplars.iter().find(|selected| selected.is_maximum).unwrap();
    assert_eq!((found.exemplar.value, found.weight), (maximum, Some(1.0)));
}

/// The largest is always returned, and the weights add up to the number of values on average.
#[test]
fn weights_of_a_limited_selection_add_up_on_average() {
    const ROUNDS: u32 = 20_000;
    let value = |number: u64| 1.5_f64.powi(number as i32 % 8) + number as f64 * 1e-6;
    let starts: Vec<f64> = (0..8).map(|at| LadderCell::of(value(at)).bounds().start).collect();
    // Each of the eight cells has a hundred values.
    let count = |limit: f64, _: LimitInclusion| {
        Some(100.0 * starts.iter().filter(|&&start| start >= limit).count() as f64)
    };
    let limits = [6, 12];
    let mut sums = [0.0; 2];
    for round in 0..ROUNDS {
        let mut reservoir = with_budget(4 << 20, splitmix64(round.into()));
        for number in 0..40 {
            reservoir.offer(series(1), exemplar(NOW - MINUTE, value(number), number), NOW);
        }
        for (limit, sum) in limits.into_iter().zip(&mut sums) {
            let selection = select(&reservoir, &request(limit), &count);
            assert_eq!(selection.exemplars.len(), limit);
            let maximum = selection.exemplars.iter().find(|selected| selected.is_maximum).unwrap();
            assert_eq!(maximum.weight, Some(1.0));
            *sum += sum_of_weights(selection.exemplars.iter());
        }
    }
    for (limit, sum) in limits.into_iter().zip(sums) {
        let ratio = sum / f64::from(ROUNDS) / 800.0;
        println!("limit {limit}: {ratio}");
        assert!((0.99..1.01).contains(&ratio), "limit {limit}: {ratio}");
    }
}

/// A step of the clock loses what expires by it, and nothing after it.
#[test]
fn step_of_the_clock_does_not_disable_exemplars() {
    let mut reservoir = with_budget(1 << 20, 1);
    let day = 24 * HOUR;
    reservoir.offer(series(1), exemplar(NOW - MINUTE, 1.0, 1), NOW);
    // The clock is a day ahead for a moment, and a sender is right.
    reservoir.offer(series(1), exemplar(NOW, 2.0, 2), NOW + day);
    let later = NOW + 2 * MINUTE;
    reservoir.offer(series(1), exemplar(later, 3.0, 3), later);
    assert_eq!(reservoir.stat(later).exemplars, 1);
    assert_eq!(reservoir.covered_from(later), NOW + MINUTE, "that minute is not complete");
    assert_eq!(reservoir.covered_from(NOW), NOW, "not in the future");
    assert_eq!(reservoir.covered_from(NOW + 2 * HOUR), NOW + HOUR);
}

/// What is read from a file has the keys of what was saved.
#[test]
fn key_is_that_of_the_kept_exemplar() {
    let mut reservoir = with_budget(KEPT_EXEMPLAR_BYTES_MAX, 1);
    let mut first = exemplar(NOW, 1.0, 1);
    first.attributes = ExemplarAttributes::default();
    // The budget is spent by the first one.
    reservoir.options.bytes_max = KEPT_EXEMPLAR_BYTES_MAX + 1;
    reservoir.offer(series(1), first, NOW);
    reservoir.offer(series(1), exemplar(NOW, 2.0, 2), NOW);
    reservoir.offer(series(1), exemplar(NOW, 2.0, 2), NOW);
    let all = |_: &_| true;
    let kept: Vec<_> = reservoir.matches(&(i64::MIN..i64::MAX), &all).collect();
    assert_eq!(kept.len(), 1);
    let kept = kept[0].kept;
    assert!((kept.exemplar.value, kept.exemplar.attributes.bytes()) == (2.0, &[][..]));
    assert_eq!(kept.key, key_of(1, &kept.exemplar));
}

/// Shares are estimated without bias, also if only some exemplars are returned.
#[test]
fn shares_are_estimated_without_bias() {
    let is_member = |trace: u128| splitmix64(trace as u64).is_multiple_of(3);
    for limit in [1_000, 20] {
        let (mut estimates, mut truth) = (0.0, 0.0);
        for seed in 0..400 {
            let (_, selection) = population(splitmix64(seed), limit);
            assert!(selection.exemplars.len() <= limit);
            assert!(selection.exemplars.iter().any(|selected| selected.is_maximum));
            let members = selection
                .exemplars
                .iter()
                .filter(|selected| is_member(u128::from_le_bytes(selected.exemplar.trace_id)));
            estimates += sum_of_weights(members);
            truth += (0..POPULATION.into()).filter(|&number| is_member(number)).count() as f64;
        }
        let ratio = estimates / truth;
        println!("limit {limit}: {ratio}");
        assert!((0.95..1.05).contains(&ratio), "limit {limit}: {ratio}");
    }
}

#[test]
fn selection_is_bounded_by_values_and_series() {
    let mut reservoir = with_budget(1 << 20, 1);
    for (number, value) in [(1, 0.5), (1, 1.0), (1, 1.2), (1, 2.5), (2, 1.1)] {
        reservoir.offer(series(number), exemplar(NOW, value, 1), NOW);
    }
    let unknown = |_: f64, _: LimitInclusion| None;
    let of = |above, up_to| {
        let request = ExemplarRequest { above, up_to, ..request(10) };
        let selection = select(&reservoir, &request, &unknown);
        assert!(selection.exemplars.iter().all(|selected| selected.weight.is_none()));
        let mut values: Vec<f64> =
            selection.exemplars.iter().map(|selected| selected.exemplar.value).collect();
        values.sort_by(f64::total_cmp);
        values
    };
    assert_eq!(of(f64::NEG_INFINITY, f64::INFINITY), [0.5, 1.0, 1.2, 2.5]);
    assert_eq!(of(0.5, 1.2), [1.0, 1.2]);
    assert_eq!(of(2.5, f64::INFINITY), [0.0; 0]);
}

/// Receivers offer the spans with the lowest keys of a request only.
#[test]
fn spans_are_kept_however_they_are_divided_among_requests() {
    let span = |trace: u64| {
        let source = ExemplarSource::Span;
        Exemplar { source, ..exemplar(NOW - MINUTE, 1.0 + trace as f64 * 1e-4, trace) }
    };
    let spans: Vec<Exemplar> = (1..1000).map(span).collect();
    let kept = |seed: u64, sizes: &[usize]| {
        let mut reservoir = with_budget(1 << 20, seed);
        let mut rest = &spans[..];
        for size in sizes.iter().cycle() {
            let (request, after) = rest.split_at(rest.len().min(*size));
            let mut of_request = with_budget(1 << 20, seed);
            request.iter().for_each(|span| of_request.offer(series(1), span.clone(), NOW));
            for found in of_request.matches(&(i64::MIN..i64::MAX), &|_| true) {
                reservoir.offer(series(1), found.kept.exemplar.clone(), NOW);
            }
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
        listed(&reservoir)
    };
    let expected = kept(1, &[1000]);
    assert_eq!(expected.len(), KEPT_PER_CELL + 1, "one cell and the maximum");
    assert_eq!(kept(1, &[1, 30]), expected);
    assert_eq!(kept(2, &[7]), expected, "a receiver has no seed of a store");
}

/// A server that had run for minutes said that it keeps exemplars since an hour ago.
#[test]
fn exemplars_are_not_kept_since_before_the_store_was_created() {
    let mut reservoir = Reservoir::new(ExemplarOptions::default(), 1);
    let created_at = NOW - 5 * MINUTE;
    assert_eq!(reservoir.covered_from(NOW), NOW - HOUR);
    assert_eq!(reservoir.kept_from(NOW, created_at), created_at);
    assert_eq!(reservoir.kept_from(NOW + 2 * HOUR, created_at), NOW + HOUR);
    // Exemplars of a time before it were imported.
    reservoir.offer(series(1), exemplar(NOW - 20 * MINUTE, 1.0, 1), NOW);
    assert!(reservoir.kept_from(NOW, created_at) <= NOW - 20 * MINUTE);
}
