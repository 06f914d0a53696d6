//! Random histograms: every scheme, and every kind of value that has caused a defect.

use hist::{Histogram, Interpolation, LogLinear2, Logarithmic, Scheme, TrackedValue};
use proptest::prelude::*;

/// Values and an empty histogram for them.
#[derive(Clone, Debug)]
pub(crate) struct HistogramCase {
    pub(crate) scheme: Scheme,
    pub(crate) zero_threshold: f64,
    pub(crate) declared: Vec<f64>,
    pub(crate) values: Vec<f64>,
    /// Drops summary statistics, like a source that has none.
    pub(crate) without_summary: bool,
}

impl HistogramCase {
    pub(crate) fn histogram(&self) -> Histogram {
        let histogram = self.record(&self.values);
        if !self.without_summary {
            return histogram;
        }
        strip_summary(histogram)
    }

    pub(crate) fn empty(&self) -> Histogram {
        Histogram::new(self.scheme.clone())
            .with_zero_threshold(self.zero_threshold)
            .and_then(|histogram| histogram.with_thresholds(&self.declared))
            .unwrap()
    }

    pub(crate) fn record(&self, values: &[f64]) -> Histogram {
        let mut histogram = self.empty();
        values.iter().for_each(|&value| histogram.record(value));
        histogram
    }
}

pub(crate) fn strip_summary(histogram: Histogram) -> Histogram {
    let mut parts = histogram.into_parts();
    (parts.sum, parts.min, parts.max) =
        (TrackedValue::Absent, TrackedValue::Absent, TrackedValue::Absent);
    Histogram::from_parts(parts).unwrap()
}

pub(crate) fn schemes() -> impl Strategy<Value = Scheme> {
    let interpolations = vec![
        Interpolation::None,
        Interpolation::Linear,
        Interpolation::Quadratic,
        Interpolation::Cubic,
    ];
    let log = (
        prop::sample::select(interpolations),
        prop::sample::select(vec![1.00001, 1.001, 1.02 / 0.98, 1.1, 2.0, 1000.0]),
        prop::sample::select(vec![0.0, 0.5, -1000.25, 1e9]),
    )
        .prop_map(|(by, gamma, offset)| {
            Scheme::Logarithmic(Logarithmic::new(gamma, offset, by).unwrap())
        });
    let floors = prop_oneof![
        Just(-1022),
        -40..40i32,
        prop::sample::select(vec![-1021, -1000, 0, 7, 17, 1000, 1023])
    ];
    let explicit = prop_oneof![
        prop::collection::vec(finite(), 0..12),
        Just(vec![0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0]),
    ]
    .prop_map(|mut bounds| {
        bounds.iter_mut().for_each(|bound| *bound += 0.0);
        bounds.sort_by(f64::total_cmp);
        bounds.dedup();
        Scheme::explicit(&bounds).unwrap()
    });
    prop_oneof![
        (-10..=8i32).prop_map(|scale| Scheme::exp2(scale).unwrap()),
        (1..=18u32, floors).prop_map(|(bits, floor)| Scheme::LogLinear2(
            LogLinear2::with_floor(bits, floor).unwrap()
        )),
        (1..=18u32).prop_map(|bits| Scheme::LogLinear2(LogLinear2::integers(bits).unwrap())),
        Just(Scheme::LogLinear10),
        log,
        explicit,
    ]
}

fn magnitudes() -> impl Strategy<Value = f64> {
    prop_oneof![
        (0..2000u32).prop_map(f64::from),
        (0.0..1000.0f64),
        (-12.0..12.0f64).prop_map(f64::exp),
        (10..100u32, -9..9i32)
            .prop_map(|(digits, power)| format!("{digits}e{power}").parse().unwrap()),
        (-1074..1024i32)
            .prop_map(|power| 2f64.powi(power.max(-1022)) * if power < -1022 { 0.5 } else { 1.0 }),
        (-20..20i32).prop_map(|power| 2f64.powi(power)),
        (-300..300i32).prop_map(|power| format!("1e{power}").parse().unwrap()),
        (1..1u64 << 53).prop_map(f64::from_bits),
        (1..9u64).prop_map(f64::from_bits),
        any::<u64>()
            .prop_map(|bits| f64::from_bits(bits >> 1))
            .prop_filter("finite", |v| v.is_finite()),
        prop::sample::select(vec![0.0, 1e-128, 1e128, f64::MAX, f64::MIN_POSITIVE, 3.7e8, 9.0]),
    ]
}

pub(crate) fn finite() -> impl Strategy<Value = f64> {
    (magnitudes(), prop::bool::weighted(0.3))
        .prop_map(|(v, negative)| if negative { -v } else { v })
}

/// Latencies, as in typical histograms.
fn latencies() -> impl Strategy<Value = f64> {
    prop_oneof![
        (1..2_000_000u32).prop_map(f64::from),
        (-9.0..3.0f64).prop_map(f64::exp),
        (10..100u32, -6..2i32)
            .prop_map(|(digits, power)| format!("{digits}e{power}").parse().unwrap()),
    ]
}

/// A value on an edge of the scheme, or one double beside it.
fn edges(scheme: Scheme) -> impl Strategy<Value = f64> {
    (latencies(), 0..3u8, any::<bool>()).prop_map(move |(near, step, upper)| {
        let mut histogram = Histogram::new(scheme.clone());
        histogram.record(near);
        let edge = histogram
            .positive()
            .indexes()
            .first()
            .and_then(|&index| scheme.edges(index))
            .map_or(near, |(low, high)| if upper { high } else { low });
        match (edge.is_finite(), step) {
            (false, _) => near,
            (_, 0) => edge.next_down(),
            (_, 1) => edge,
            _ => edge.next_up(),
        }
    })
}

pub(crate) fn values(scheme: Scheme) -> impl Strategy<Value = Vec<f64>> {
    let wild = prop_oneof![
        12 => finite(),
        1 => prop::sample::select(vec![f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 0.0]),
    ];
    prop_oneof![
        prop::collection::vec(latencies(), 0..40),
        prop::collection::vec(finite(), 0..40),
        prop::collection::vec(wild, 0..40),
        prop::collection::vec(edges(scheme), 1..40),
        (finite(), 1..20usize).prop_map(|(value, n)| vec![value; n]),
        (latencies(), finite(), 1..20usize).prop_map(|(value, outlier, n)| {
            let mut values = vec![value; n];
            values.push(outlier);
            values
        }),
    ]
}

pub(crate) fn thresholds() -> impl Strategy<Value = f64> {
    prop_oneof![
        3 => Just(0.0),
        1 => prop::sample::select(vec![2f64.powi(-128), 1e-9, 0.3, 0.5, 1.0, 10.0]),
        1 => magnitudes(),
    ]
}

pub(crate) fn declared() -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec(finite(), 0..3).prop_map(|mut limits| {
        limits.iter_mut().for_each(|limit| *limit += 0.0);
        limits.sort_by(f64::total_cmp);
        limits.dedup();
        limits
    })
}

pub(crate) fn cases() -> impl Strategy<Value = HistogramCase> {
    (schemes(), thresholds(), declared(), any::<bool>()).prop_flat_map(
        |(scheme, zero_threshold, declared, without_sides)| {
            values(scheme.clone()).prop_map(move |values| HistogramCase {
                scheme: scheme.clone(),
                zero_threshold,
                declared: declared.clone(),
                values,
                without_summary: without_sides,
            })
        },
    )
}
