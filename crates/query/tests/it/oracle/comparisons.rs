//! Comparisons and breakdowns checked against raw measurements, and the distribution of p-values.

use std::collections::BTreeMap;
use std::ops::Range;

use hist::codec::header::Temporality::Delta;
use hist::{Bracket, Histogram, Mixture};
use model::{Selector, SeriesKind};
use query::breakdown::{HeatmapSelection, break_down};
use query::compare::{Comparison, Selection, compare};
use query::{
    LabelSet, Limits, NAME, Result, SeriesHandle, SeriesPoint, Source, SourceRead, StoreSource,
};
use store::{MINUTE, NumberAggregate, SECOND, TimeGrid};

use super::random_queries::Splitmix64;
use super::raw::{BEGIN, LENGTH, RawData, build_store};

/// Values that ended within a range, by series index.
fn values(raw: &RawData, selector: &Selector, range: &Range<i64>) -> Vec<(usize, f64)> {
    let mut values = Vec::new();
    for (at, series) in raw.series.iter().enumerate() {
        if !selector.matches(&series.series) {
            continue;
        }
        let is_in = |end: i64| range.start < end && end <= range.end;
        for (number, taken) in series.samples.iter().enumerate() {
            // The first cumulative sample without a start timestamp has no increase.
            let is_known = !series.series.kind().is_cumulative()
                || number > 0
                || taken.start < taken.end
                || taken.is_restart;
            if is_in(taken.end) && is_known {
                values.extend(taken.values.iter().map(|&value| (at, value)));
            }
        }
    }
    values
}

fn sorted(values: &[(usize, f64)]) -> Vec<f64> {
    let mut sorted: Vec<f64> = values.iter().map(|(_, value)| *value).collect();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// Share of values at or below a limit.
fn share(sorted: &[f64], limit: f64) -> f64 {
    sorted.partition_point(|&value| value <= limit) as f64 / sorted.len() as f64
}

#[track_caller]
fn assert_contains(what: &str, bracket: Bracket, truth: f64) {
    let tolerance = 1e-9 * (truth.abs() + 1.0);
    let is_in = bracket.lower - tolerance <= truth && truth <= bracket.upper + tolerance;
    assert!(
        is_in && bracket.lower <= bracket.estimate && bracket.estimate <= bracket.upper,
        "{what}: {bracket:?}, not {truth}"
    );
}

fn check_comparison(what: &str, found: &Comparison, a: &[f64], b: &[f64]) {
    for (side, values) in found.sides.iter().zip([a, b]) {
        assert_eq!(side.mixture.count(), values.len() as u64, "{what}");
    }
    let mut all: Vec<f64> = a.iter().chain(b).copied().collect();
    all.sort_by(f64::total_cmp);
    let (mut distance, mut separation) = (0.0, 0.0f64);
    for pair in all.windows(2) {
        let apart = (share(a, pair[0]) - share(b, pair[0])).abs();
        distance += apart * (pair[1] - pair[0]);
        separation = separation.max(apart);
    }
    let mut above = 0.0;
    for x in a {
        let (less, more) = (b.partition_point(|y| y < x), b.partition_point(|y| y <= x));
        above += (b.len() - more) as f64 + (more - less) as f64 / 2.0;
    }
    assert_contains(&format!("{what}: distance"), found.distance, distance);
    assert_contains(&format!("{what}: separation"), found.ks_statistic, separation);
    let superiority = above / (a.len() * b.len()) as f64;
    assert_contains(&format!("{what}: superiority"), found.probability_of_superiority, superiority);
    for pair in &found.quantiles {
        for (bracket, values) in pair.values.iter().zip([a, b]) {
            let rank = ((pair.share * values.len() as f64 - 1e-9).ceil() as usize).max(1);
            assert_contains(&format!("{what}: share {}", pair.share), *bracket, values[rank - 1]);
        }
    }
}

fn range(random: &mut Splitmix64) -> Range<i64> {
    let unit = [MINUTE, SECOND, 1][random.below(3) as usize];
    let timestamp = |random: &mut Splitmix64| {
        let timestamp = BEGIN + random.below(LENGTH as u64) as i64;
        timestamp - timestamp.rem_euclid(unit)
    };
    let (a, b) = (timestamp(random), timestamp(random));
    a.min(b)..a.max(b) + unit
}

#[test]
fn comparisons_match_the_oracle() {
    let mut compared = 0;
    for seed in 0..10 {
        let mut random = Splitmix64(seed);
        let raw = RawData::new(&mut random);
        let store = build_store(&raw, &mut random);
        let view = store.view().unwrap();
        let source = StoreSource::new(&view);
        for _ in 0..20 {
            let picks = ["latency", "latency", "mixed", "and(__name:latency,host:a)", "waited"];
            let selector = Selector::parse(picks[random.below(5) as usize]).unwrap();
            let sides = [range(&mut random), range(&mut random)]
                .map(|range| Selection { selector: selector.clone(), range });
            let what = format!("seed {seed}: {sides:?}");
            let values = [0, 1].map(|at| sorted(&values(&raw, &selector, &sides[at].range)));
            let found = compare(&source, [&sides[0], &sides[1]], Limits::default(), &|| false);
            if values.iter().any(Vec::is_empty) {
                assert!(found.is_err(), "{what}");
                continue;
            }
            let found = found.unwrap_or_else(|error| panic!("{what}: {error}"));
            check_comparison(&what, &found, &values[0], &values[1]);
            compared += 1;
        }
    }
    assert!(compared > 100, "{compared}");
}

#[test]
fn breakdowns_match_the_oracle() {
    let mut explained = 0;
    for seed in 100..115 {
        let mut random = Splitmix64(seed);
        let raw = RawData::new(&mut random);
        let store = build_store(&raw, &mut random);
        let view = store.view().unwrap();
        let source = StoreSource::new(&view);
        for _ in 0..20 {
            let picks = ["latency", "mixed", "or(__name:latency,__name:mixed)", "waited"];
            let selector = Selector::parse(picks[random.below(4) as usize]).unwrap();
            let picture = range(&mut random);
            let inner = range(&mut random);
            let time = inner.start.max(picture.start)..inner.end.min(picture.end);
            let limits = [f64::NEG_INFINITY, -0.5, 0.0, 0.001, 0.1, 1.0, f64::INFINITY];
            let (a, b) = (random.below(6) as usize, random.below(6) as usize);
            let (above, up_to) = (limits[a.min(b)], limits[a.max(b) + 1]);
            let rectangle = HeatmapSelection {
                selector: selector.clone(),
                baseline: picture.clone(),
                time: time.clone(),
                above,
                up_to,
            };
            let what = format!("seed {seed}: {rectangle:?}");
            let found = break_down(&source, &rectangle, Limits::default(), &|| false);
            if time.is_empty() {
                assert!(found.is_err(), "{what}");
                continue;
            }
            let all = values(&raw, &selector, &picture);
            let mut inside = values(&raw, &selector, &time);
            inside.retain(|(_, value)| above < *value && *value <= up_to);
            let Ok(found) = found else {
                assert!(inside.is_empty(), "{what}");
                continue;
            };
            let count = |values: &[(usize, f64)], label: &str, wanted: &str| {
                let is_of = |at: usize| {
                    let series = &raw.series[at].series;
                    let held =
                        if label == "name" { Some(series.name()) } else { series.label(label) };
                    held.unwrap_or("") == wanted
                };
                values.iter().filter(|(at, _)| is_of(*at)).count() as u64
            };
            assert!(found.inside.contains(inside.len() as u64), "{what}");
            assert!(found.outside.contains((all.len() - inside.len()) as u64), "{what}");
            for split in &found.labels {
                assert!((0.0..=1.0).contains(&split.divergence), "{what}");
                let mut shares = BTreeMap::new();
                for of in &split.values {
                    let own = count(&inside, &split.label, &of.value);
                    let rest = count(&all, &split.label, &of.value) - own;
                    let what = format!("{what}: {}={}", split.label, of.value);
                    assert!(of.inside.contains(own), "{what}: {:?}, not {own}", of.inside);
                    assert!(of.outside.contains(rest), "{what}: {:?}, not {rest}", of.outside);
                    *shares.entry("inside").or_insert(0.0) += of.share_inside;
                    *shares.entry("outside").or_insert(0.0) += of.share_outside;
                }
                for sum in shares.values() {
                    assert!(*sum == 0.0 || (sum - 1.0).abs() < 1e-9, "{what}: {shares:?}");
                }
            }
            assert!(found.labels.is_sorted_by(|a, b| a.divergence >= b.divergence), "{what}");
            explained += 1;
        }
    }
    assert!(explained > 100, "{explained}");
}

/// Series with random minutes, some of which are slower as a whole, as in practice.
struct RandomSeries {
    seed: u64,
    /// Slowdown of the second half of the range.
    slower: f64,
}

impl Source for RandomSeries {
    fn select(&self, selector: &Selector) -> Result<Vec<SeriesHandle>> {
        let _ = selector;
        let labels = LabelSet::new([(NAME, "latency")]);
        Ok(vec![SeriesHandle {
            labels,
            kind: SeriesKind::Histogram(Delta),
            unit: "s".to_owned(),
            key: 0,
        }])
    }

    fn samples(&self, _: &SeriesHandle, _: Range<i64>) -> Result<SourceRead<SeriesPoint>> {
        Ok(SourceRead { values: Vec::new(), gaps: Vec::new() })
    }

    fn histograms(&self, _: &[&SeriesHandle], grid: TimeGrid) -> Result<SourceRead<Mixture>> {
        let column = |at: u64| {
            let start = grid.column(at).start;
            let mut random = Splitmix64(self.seed.wrapping_mul(1 << 32) + (start / MINUTE) as u64);
            random.next();
            let slower = if start >= 1000 * MINUTE { self.slower } else { 1.0 };
            let own = slower * (1.0 + random.below(100) as f64 / 50.0);
            let mut histogram = Histogram::new(hist::Scheme::exp2(3).unwrap());
            (0..30).for_each(|_| histogram.record(own * (1.0 + random.below(100) as f64 / 100.0)));
            Mixture::from(histogram)
        };
        Ok(SourceRead { values: (0..grid.columns).map(column).collect(), gaps: Vec::new() })
    }

    fn numbers(
        &self,
        _: &[&SeriesHandle],
        _: TimeGrid,
    ) -> Result<SourceRead<Option<NumberAggregate>>> {
        Ok(SourceRead { values: Vec::new(), gaps: Vec::new() })
    }
}

fn p_values(slower: f64, seeds: u64) -> Vec<f64> {
    let selection = |range: Range<i64>| Selection { selector: Selector::All, range };
    let (a, b) = (selection(0..64 * MINUTE), selection(1000 * MINUTE..1040 * MINUTE));
    let chance = |seed: u64| {
        let source = RandomSeries { seed, slower };
        let found = compare(&source, [&a, &b], Limits::default(), &|| false).unwrap();
        assert_eq!(found.sides.map(|side| side.intervals), [64, 64]);
        found.permutation_test.unwrap().value
    };
    let mut chances: Vec<f64> = (1..=seeds).map(chance).collect();
    chances.sort_by(f64::total_cmp);
    chances
}

#[test]
fn p_values_are_uniform() {
    let chances = p_values(1.0, 120);
    let n = chances.len() as f64;
    let apart =
        chances.iter().enumerate().map(|(at, chance)| (chance - (at as f64 + 0.5) / n).abs());
    let most = apart.fold(0.0, f64::max);
    // Kolmogorov's limit at 1 %, for this sample size.
    assert!(most < 1.63 / n.sqrt(), "{most}: {chances:?}");
}

#[test]
fn slower_series_is_significant() {
    let chances = p_values(2.0, 20);
    assert!(chances[18] < 0.05, "{chances:?}");
}

#[test]
fn incomparable_selections_are_rejected() {
    let mut random = Splitmix64(7);
    let raw = RawData::new(&mut random);
    let store = build_store(&raw, &mut random);
    let view = store.view().unwrap();
    let source = StoreSource::new(&view);
    let selection = |text: &str, range: Range<i64>| Selection {
        selector: Selector::parse(text).unwrap(),
        range,
    };
    let all = BEGIN - MINUTE..BEGIN + LENGTH + MINUTE;
    let whole = selection("latency", all.clone());
    let refused = |other: &Selection, expected: &str| {
        for sides in [[&whole, other], [other, &whole]] {
            let found = compare(&source, sides, Limits::default(), &|| false);
            let message = found.map(drop).unwrap_err().to_string();
            assert!(message.contains(expected), "{message:?}");
        }
    };
    refused(&selection("no_such", all.clone()), "matches no series");
    refused(&selection("load", all.clone()), "matches no histograms, but");
    refused(&selection("latency", 0..MINUTE), "has no values in the range");
    refused(&selection("latency", BEGIN..BEGIN), "has no values in the range");
    let backwards = Range { start: BEGIN + LENGTH, end: BEGIN };
    refused(&selection("latency", backwards), "has no values in the range");
    // The ends of the time range are valid timestamps.
    let ever = selection("latency", i64::MIN..i64::MAX);
    let found = compare(&source, [&ever, &ever], Limits::default(), &|| false).unwrap();
    assert_eq!(found.sides[0].mixture.count(), found.sides[1].mixture.count());
    refused(&selection("latency", i64::MIN..i64::MIN + 1), "has no values in the range");
    refused(&selection("latency", i64::MAX - 1..i64::MAX), "has no values in the range");
    let few = Limits { series: 0, ..Limits::default() };
    let error = compare(&source, [&whole, &whole], few, &|| false).unwrap_err();
    assert!(error.to_string().contains("max_series"));
    let error = compare(&source, [&whole, &whole], Limits::default(), &|| true).unwrap_err();
    assert!(matches!(error, query::Error::Timeout));
}

#[test]
fn invalid_selection_is_rejected() {
    let mut random = Splitmix64(8);
    let raw = RawData::new(&mut random);
    let store = build_store(&raw, &mut random);
    let view = store.view().unwrap();
    let source = StoreSource::new(&view);
    let refused = |text: &str, time: Range<i64>, above: f64, up_to: f64, expected: &str| {
        let selector = Selector::parse(text).unwrap();
        let picture = BEGIN..BEGIN + LENGTH;
        let rectangle = HeatmapSelection { selector, baseline: picture, time, above, up_to };
        let found = break_down(&source, &rectangle, Limits::default(), &|| false);
        let message = found.map(drop).unwrap_err().to_string();
        assert!(message.contains(expected), "{message:?}");
    };
    let (all, infinity) = (BEGIN..BEGIN + LENGTH, f64::INFINITY);
    refused("latency", BEGIN..BEGIN, 0.0, 1.0, "time range is empty");
    refused("latency", BEGIN - 1..BEGIN + 1, 0.0, 1.0, "exceeds that of the heatmap");
    refused("latency", BEGIN..BEGIN + LENGTH + 1, 0.0, 1.0, "exceeds that of the heatmap");
    refused("latency", all.clone(), 1.0, 1.0, "lower value is not below");
    refused("latency", all.clone(), f64::NAN, 1.0, "lower value is not below");
    refused("latency", all.clone(), 0.0, f64::NAN, "lower value is not below");
    refused("latency", all.clone(), 1e9, infinity, "contains no values");
    refused("no_such", all.clone(), 0.0, 1.0, "matches no series");
    refused("bytes_total", all, 0.0, 1.0, "matches no histograms");
    // The ends of the time range are valid timestamps.
    let ever = i64::MIN..i64::MAX;
    let rectangle = HeatmapSelection {
        selector: Selector::parse("latency").unwrap(),
        baseline: ever.clone(),
        time: ever,
        above: f64::NEG_INFINITY,
        up_to: infinity,
    };
    let found = break_down(&source, &rectangle, Limits::default(), &|| false).unwrap();
    assert_eq!((found.inside.lower, found.outside.upper), (found.inside.upper, 0));
}
