//! Six distributions in large numbers: quantiles, sums and counts stay inside their brackets.

use hist::{Histogram, LimitInclusion, LogLinear2, Scheme};

/// xorshift64*, S. Vigna, "An experimental exploration of Marsaglia's xorshift generators", 2016.
struct Xorshift64(u64);

impl Xorshift64 {
    /// Above 0, up to 1.
    fn unit_interval(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        let (radius, angle) = (self.unit_interval(), self.unit_interval());
        (-2.0 * radius.ln()).sqrt() * (angle * std::f64::consts::TAU).cos()
    }
}

/// Draws the value at an index of the sequence.
type DrawFn = fn(&mut Xorshift64, usize) -> f64;

/// Nanoseconds, whole numbers, so that the sum can be checked in integers.
const DISTRIBUTIONS: [(&str, DrawFn); 6] = [
    ("lognormal", |r, _| (13.0 + 0.85 * r.normal()).exp()),
    ("bimodal", |r, _| {
        let centre = if r.unit_interval() < 0.9 { 1e5 } else { 5e7 };
        centre * (1.0 + 0.1 * r.normal()).abs()
    }),
    ("Pareto, capped", |r, _| (1e4 / r.unit_interval()).min(6e10)),
    ("uniform", |r, _| r.unit_interval() * 1e6),
    ("exponential", |r, _| -2e6 * r.unit_interval().ln()),
    ("constant with an outlier", |_, i| if i == 77 { 3.6e12 } else { 1.25e6 }),
];

fn schemes() -> [Scheme; 8] {
    [
        Scheme::default(),
        Scheme::exp2(0).unwrap(),
        Scheme::exp2(8).unwrap(),
        Scheme::LogLinear10,
        Scheme::log(0.01).unwrap(),
        Scheme::LogLinear2(LogLinear2::integers(7).unwrap()),
        Scheme::log_linear2(10).unwrap(),
        Scheme::explicit(&[1e4, 1e5, 2.5e5, 1e6, 2.5e6, 1e7, 1e8, 1e9]).unwrap(),
    ]
}

fn soak(n: usize) {
    for (name, draw) in DISTRIBUTIONS {
        let mut random = Xorshift64(0x9e37_79b9_7f4a_7c15);
        let mut values: Vec<f64> = (0..n).map(|i| draw(&mut random, i).round()).collect();
        let mut histograms =
            schemes().map(|scheme| Histogram::new(scheme).with_thresholds(&[1.5e6]).unwrap());
        for &value in &values {
            histograms.iter_mut().for_each(|histogram| histogram.record(value));
        }
        let sum: u128 = values.iter().map(|&v| v as u128).sum();
        values.sort_by(f64::total_cmp);
        for histogram in &histograms {
            check(name, histogram, &values, sum);
            check(name, &crate::cases::strip_summary(histogram.clone()), &values, sum);
        }
    }
}

fn check(name: &str, histogram: &Histogram, sorted: &[f64], sum: u128) {
    let on = format!("{name} on {}", histogram.scheme());
    let n = sorted.len() as u64;
    assert_eq!(histogram.count(), n);
    assert!(histogram.sum().contains(sum as f64), "{on}: sum");
    assert!(histogram.mean().unwrap().contains(sum as f64 / n as f64), "{on}: mean");
    for (q, digits) in
        [(0.5, 5000), (0.9, 9000), (0.99, 9900), (0.999, 9990), (0.9999, 9999), (1.0, 10_000)]
    {
        let expected = sorted[(digits * n).div_ceil(10_000) as usize - 1];
        let found = histogram.quantile(q).unwrap();
        assert!(found.contains(expected), "{on}: quantile {q} is {expected}, not in {found:?}");
        if let Some(error) = histogram.scheme().relative_error() {
            let off = (found.estimate - expected).abs() / expected;
            // From one end of the bucket to the other.
            assert!(
                off <= 2.0 * error / (1.0 - error) + 1e-9,
                "{on}: quantile {q} is off by {off}"
            );
        }
    }
    for limit in [0.0, 1e5, 1e6, 1.5e6, 1e7, 1e9] {
        let expected = n - sorted.partition_point(|&v| v <= limit) as u64;
        let above = histogram.count_above(limit, LimitInclusion::Exclusive);
        assert!(above.contains(expected), "{on}: {expected} above {limit}, not in {above:?}");
    }
    assert!(histogram.count_above(1.5e6, LimitInclusion::Exclusive).is_exact());
}

#[test]
fn a_million_values_of_each_distribution() {
    soak(1_000_000);
}

#[test]
#[ignore = "soak: ten million values of six distributions, half a minute"]
fn soak_ten_million_values_of_each_distribution() {
    soak(10_000_000);
}
