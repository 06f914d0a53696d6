//! Analysis: conclusion from the runs of an observer.

use hist::{Histogram, LimitInclusion};

use super::experiment_run::ExperimentRun;
use render::time::format_ns;
use render::value_formatter::{count, quantile_name};

/// Minimum number of values above a quantile.
const SAMPLES_ABOVE_MIN: u64 = 10;
/// Quantiles that are judged, and the factor over the baseline that is reported.
const QUANTILES: [(f64, f64); 5] =
    [(0.9999, 2.0), (0.999, 2.0), (0.99, 1.5), (0.9, 1.25), (0.5, 1.15)];
/// Factor of the odds of a slow operation that exceeds chance. A quantile of the far tail may
/// double with hardly more values above it. Counts alone do not suffice: other work of a machine
/// comes in bursts, and one burst can cause ten times as many slow operations in one run.
const ODDS: f64 = 3.0;

/// Quantile of the operation with an observer and at the baseline.
#[derive(Clone, Copy)]
struct ObservedQuantile {
    q: f64,
    with_ns: f64,
    /// Slower of the two baseline runs.
    baseline_ns: f64,
}

/// Conclusion on an observer. `baselines` are the runs without an observer.
pub(crate) fn conclusion(
    row: &ExperimentRun,
    baselines: &[&ExperimentRun],
    operation: &str,
    remedy: &str,
) -> String {
    let name = row.observer;
    if row.rounds == Some(0) {
        return format!("{name}: inconclusive, the observer completed no round");
    }
    let times = || baselines.iter().chain([&row]).map(|run| &run.times);
    let fewest = times().map(Histogram::count).min().unwrap_or(0);
    let has_enough = |q| times().all(|of| of.count_beyond_quantile(q) >= SAMPLES_ABOVE_MIN);
    let judged = || QUANTILES.into_iter().filter(|(q, _)| has_enough(*q));
    let observe = |q: f64| {
        let without = baselines.iter().map(|row| row.quantile_ns(q)).fold(f64::NAN, f64::max);
        ObservedQuantile { q, with_ns: row.quantile_ns(q), baseline_ns: without }
    };
    let Some((highest, _)) = judged().next() else {
        let n = count(fewest);
        return format!("{name}: inconclusive, only {n} operations");
    };
    let disturbed = judged()
        .map(|(q, least)| (observe(q), least))
        .filter(|(effect, least)| effect.factor() >= *least && effect.odds(row) >= ODDS)
        .map(|(effect, _)| effect)
        .max_by(|a, b| a.factor().total_cmp(&b.factor()));
    let reported = disturbed.unwrap_or(observe(highest));
    let quantile = quantile_name(reported.q);
    let (with, without) = (format_ns(reported.with_ns), format_ns(reported.baseline_ns));
    match disturbed {
        Some(effect) => format!(
            "{name}: {quantile} of {operation} is {with}, baseline {without} (x{}): {remedy}",
            factor_text(effect.factor())
        ),
        None => format!(
            "{name}: no measurable effect: {quantile} of {operation} is {with}, baseline up to \
             {without}"
        ),
    }
}

impl ObservedQuantile {
    fn factor(&self) -> f64 {
        self.with_ns / self.baseline_ns.max(1.0)
    }

    /// Odds ratio of operations slower than the baseline quantile: with the observer against the
    /// baseline.
    fn odds(&self, row: &ExperimentRun) -> f64 {
        let (n, q) = (row.times.count() as f64, self.q);
        let slower =
            row.times.count_above(self.baseline_ns, LimitInclusion::Exclusive).estimate as f64;
        (slower / (n - slower).max(0.5)) / ((1.0 - q) / q)
    }
}

fn factor_text(factor: f64) -> String {
    match factor < 10.0 {
        true => format!("{factor:.1}"),
        false => count(factor.round() as u64),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::super::experiment_run::tests::test_run;
    use super::*;

    #[track_caller]
    fn check(times: &[(u64, u64)], read: u64, expected: Expect) {
        let first = test_run("baseline", &[(24_000, 100_000), (60_000, 150)], None);
        let last = test_run("baseline", &[(24_000, 100_000), (76_000, 150)], None);
        let row = test_run("smaps_rollup", times, Some(read));
        let text = conclusion(&row, &[&first, &last], "map and unmap", "topdeck never reads it");
        expected.assert_eq(&text);
    }

    #[test]
    fn disturbing_observer_is_named_with_its_factor() {
        check(
            &[(24_000, 100_000), (21_600_000, 150)],
            40,
            expect![
                "smaps_rollup: p99.99 of map and unmap is 21.58 ms, baseline 75.90 us (x284): \
                 topdeck never reads it"
            ],
        );
    }

    #[test]
    fn effect_within_the_noise_is_not_measurable() {
        check(
            &[(24_000, 100_000), (140_000, 150)],
            40,
            expect![
                "smaps_rollup: no measurable effect: p99.99 of map and unmap is 140.0 us, \
                 baseline up to 75.90 us"
            ],
        );
        check(
            &[(24_000, 100_000), (21_600_000, 3)],
            40,
            expect![
                "smaps_rollup: no measurable effect: p99.99 of map and unmap is 24.20 us, \
                 baseline up to 75.90 us"
            ],
        );
    }

    #[test]
    fn few_operations_are_still_analysed() {
        check(
            &[(12_000_000, 112)],
            40,
            expect![
                "smaps_rollup: p50 of map and unmap is 12.00 ms, baseline 24.10 us (x498): \
                 topdeck never reads it"
            ],
        );
    }

    #[test]
    fn small_slowdown_of_all_quantiles_is_found() {
        check(
            &[(32_000, 100_000), (60_000, 150)],
            40,
            expect![
                "smaps_rollup: p50 of map and unmap is 32.03 us, baseline 24.10 us (x1.3): \
                 topdeck never reads it"
            ],
        );
        check(
            &[(26_000, 100_000), (60_000, 150)],
            40,
            expect![
                "smaps_rollup: no measurable effect: p99.99 of map and unmap is 59.91 us, \
                 baseline up to 75.90 us"
            ],
        );
    }

    #[test]
    fn slowdown_of_the_tail_is_found() {
        check(
            &[(24_000, 100_000), (21_600_000, 50)],
            40,
            expect![
                "smaps_rollup: p99.99 of map and unmap is 21.53 ms, baseline 75.90 us (x284): \
                 topdeck never reads it"
            ],
        );
    }

    #[test]
    fn unmeasured_run_has_no_conclusion() {
        check(
            &[(24_000, 100_000), (21_600_000, 150)],
            0,
            expect!["smaps_rollup: inconclusive, the observer completed no round"],
        );
        check(&[(24_000, 19)], 40, expect!["smaps_rollup: inconclusive, only 19 operations"]);
    }
}
