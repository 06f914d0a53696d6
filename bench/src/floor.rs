//! Lower bound of the bytes for bucket counts: their entropy.
//!
//! The count of a bucket is modelled as a Poisson variate with a known rate. A frame of exactly *n*
//! values contains slightly less information (its counts add up to *n*), about one byte; the bound
//! does not include *n* itself.

use std::collections::BTreeMap;
use std::f64::consts::{E, LN_2, LOG2_E, TAU};

use crate::data::LatencySeries;

/// Minimum bytes per frame of any encoder, by what it knows.
pub(crate) fn floors(series: &LatencySeries) -> [(&'static str, f64); 3] {
    let n = series.frames[0].len() as f64;
    let frames = LatencySeries::FRAMES as f64;
    let (mut own, mut pooled) = (0.0, BTreeMap::<i32, f64>::new());
    for &median in &series.medians {
        for (bucket, share) in bucket_shares(median) {
            own += poisson_entropy(n * share);
            *pooled.entry(bucket).or_default() += n * share / frames;
        }
    }
    let pooled: f64 = pooled.into_values().map(poisson_entropy).sum();
    let sides: f64 = series.frames.iter().map(|frame| summary_entropy(frame)).sum();
    [
        ("frame's own rate", own / frames / 8.0),
        ("pooled rate", pooled / 8.0),
        ("exact sum, min, max", sides / frames / 8.0),
    ]
}

/// Buckets per octave of topdeck's default grid.
const BUCKETS_PER_OCTAVE: f64 = 32.0;

/// The relevant buckets with their probability under the lognormal distribution of a frame.
fn bucket_shares(median: f64) -> impl Iterator<Item = (i32, f64)> {
    let bucket =
        |z: f64| (BUCKETS_PER_OCTAVE * (median.log2() + z * LatencySeries::SIGMA * LOG2_E)) as i32;
    let below = move |index: i32| {
        let edge = (f64::from(index) / BUCKETS_PER_OCTAVE - median.log2()) / LOG2_E;
        normal_cdf(edge / LatencySeries::SIGMA)
    };
    // 10^-15 of all values are beyond eight standard deviations.
    (bucket(-8.0)..=bucket(8.0)).map(move |index| (index, below(index + 1) - below(index)))
}

/// Entropy in bits of the exact statistics, given the buckets.
fn summary_entropy(frame: &[u64]) -> f64 {
    let width = |value: u64| {
        let octaves = (BUCKETS_PER_OCTAVE * (value as f64).log2()).floor() / BUCKETS_PER_OCTAVE;
        octaves.exp2() * ((1.0 / BUCKETS_PER_OCTAVE).exp2() - 1.0)
    };
    let variance: f64 = frame.iter().map(|&value| width(value).powi(2) / 12.0).sum();
    let least = frame.iter().min().map_or(0.0, |&value| width(value).log2());
    let greatest = frame.iter().max().map_or(0.0, |&value| width(value).log2());
    least + greatest + 0.5 * (TAU * E * variance).log2()
}

/// Entropy in bits of a Poisson variate with mean `rate`, summed until terms vanish.
fn poisson_entropy(rate: f64) -> f64 {
    if rate < 1e-15 {
        return 0.0;
    }
    let spread = 12.0 * rate.sqrt() + 20.0;
    let last = (rate + spread) as u64;
    let (mut entropy, mut log_p) = (0.0, -rate);
    for k in 0..=last {
        if k > 0 {
            log_p += rate.ln() - (k as f64).ln();
        }
        entropy -= log_p.exp() * log_p;
    }
    entropy / LN_2
}

/// Normal cumulative distribution function, from the error function by its series near zero and its
/// continued fraction further out, both to the last digit (Abramowitz and Stegun 7.1.6 and
/// 26.2.14).
fn normal_cdf(z: f64) -> f64 {
    let density = (-0.5 * z * z).exp() / TAU.sqrt();
    if z.abs() < 3.0 {
        let (mut term, mut sum) = (z, z);
        for k in 1..100 {
            term *= z * z / (2.0 * f64::from(k) + 1.0);
            sum += term;
        }
        return 0.5 + density * sum;
    }
    let fraction = (1..=60).rev().fold(z.abs(), |tail, k| z.abs() + f64::from(k) / tail);
    let above = density / fraction;
    if z > 0.0 { 1.0 - above } else { above }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-9 * expected.abs().max(1e-3), "{found} {expected}");
    }

    #[test]
    fn normal_cdf_matches_the_tables() {
        check(normal_cdf(0.0), 0.5);
        check(normal_cdf(1.0), 0.841_344_746_068_542_9);
        check(normal_cdf(-2.9), 1.865_813_300_384_04e-3);
        check(normal_cdf(-4.0), 3.167_124_183_311_992e-5);
    }

    #[test]
    fn shares_add_up_to_one() {
        check(bucket_shares(5e6).map(|(_, share)| share).sum(), 1.0);
    }

    #[test]
    fn entropy_of_large_counts_is_normal() {
        let normal = 0.5 * (TAU * E * 1000.0).log2();
        assert!((poisson_entropy(1000.0) - normal).abs() < 1e-3);
    }
}
