//! Values from the specification for histograms with only bins, and the effect of exact side
//! values.

use std::sync::Arc;

use super::super::kernel::LEGEND;
use super::super::test_kernel::{
    MINUTE_NS, StreamFn, T0, bins, constant, format_streams, h, numbers, run_kernel, view,
};
use super::from_value;
use crate::value::StepValue;

#[track_caller]
fn check(call: &str, expected: &str) {
    let made = constant(h());
    assert_eq!(format_streams(&run_kernel(call, &[&made], view(1)).unwrap()), expected, "{call}");
}

#[test]
fn golden() {
    check("histogram:percentile(99, 50, 90)", "206.66667; 10.980392; 50.625");
    check("histogram:count()", "100");
    check("histogram:rate()", "1.6666667");
    check("histogram:rate(period=60s)", "100");
    check("histogram:mean()", "29.202597");
    check("histogram:sum()", "2920.2597");
    check("histogram:sum(period=30s)", "1460.1298");
    check("histogram:stddev()", "42.53495");
    check("histogram:IQR()", "10.316256");
    check("histogram:count_above(20)", "50");
    check("histogram:count_below(20)", "80");
    check("histogram:count_bin(20)", "30");
    check("histogram:count_between(10, 50)", "45");
    check("histogram:ratio_above(20)", "0.5");
    check("histogram:ratio_below(20)", "0.8");
    check("histogram:ratio_between(10, 50)", "0.45");
    check("histogram:rate_above(20, period=1m)", "50");
    check("histogram:rate_below(20, 10)", "1.3333333; 0.83333333");
    check("histogram:rate_bin(20)", "0.5");
    check("histogram:inverse_percentile(20, 25, 100)", "50; 80; 95");
}

#[test]
fn golden_of_three_values() {
    let made = constant(bins(&[(1.0, 1), (2.0, 1), (3.0, 1)]));
    let shown = |call: &str| format_streams(&run_kernel(call, &[&made], view(1)).unwrap());
    assert_eq!(shown("histogram:count()"), "3");
    assert_eq!(shown("histogram:mean()"), "2.0485266");
    assert_eq!(shown("histogram:median()"), "2.05");
    assert_eq!(shown("histogram:count_above(2)"), "2");
    assert_eq!(shown("histogram:count_below(2)"), "2");
    assert_eq!(shown("histogram:count_bin(2)"), "1");
    assert_eq!(shown("histogram:min()"), "1.05");
    assert_eq!(shown("histogram:max()"), "3.05");
}

#[test]
fn distributions_of_numbers_know_more_than_their_bins() {
    let made = [numbers("1 5 ."), numbers("2 5 ."), numbers("3 5 .")];
    let made: Vec<StreamFn<'_>> = made.iter().map(|made| made as StreamFn<'_>).collect();
    let streams = run_kernel("histogram()", &made, view(3)).unwrap();
    assert_eq!(format_streams(&streams), "n=3 n=3 n=0");
    let statistic = |call: &str| {
        let points = &streams[0].points;
        let held = |time: i64| points[((time - T0) / MINUTE_NS) as usize].clone();
        format_streams(&run_kernel(call, &[&held], view(3)).unwrap())
    };
    assert_eq!(statistic("histogram:mean()"), "2 5 .");
    assert_eq!(statistic("histogram:sum()"), "6 15 0");
    assert_eq!(statistic("histogram:median()"), "2.05 5 .");
    assert_eq!(statistic("histogram:percentile(0, 100)"), "1 5 .; 3 5 .");
    assert_eq!(statistic("histogram:stddev()"), "0.81713399 0 .");
    assert_eq!(statistic("histogram:count_above(2)"), "2 3 0");
    assert_eq!(statistic("histogram:ratio_above(2)"), "0.66666667 1 .");
    assert_eq!(statistic("histogram:inverse_percentile(2)"), "33.333333 0 .");
    assert_eq!(statistic("histogram:IQR()"), "2 0 .");
}

/// Values of section 50 of the specification: bins of `find("req")` in the first slot.
#[test]
fn golden_percentiles_of_three() {
    let made = constant(bins(&[(1.0, 1), (5.0, 1), (10.0, 1)]));
    let found = run_kernel("histogram:percentile(0, 50, 100)", &[&made], view(1)).unwrap();
    assert_eq!(format_streams(&found), "1.05; 5.05; 10.5");
    assert_eq!(found[0].labels.get(LEGEND), "|ST[host:0] p0");
}

#[test]
fn merged_and_subtracted() {
    let (h, k) = (constant(h()), constant(bins(&[(10.0, 100)])));
    let merged = run_kernel("histogram:merge()", &[&h, &k], view(1)).unwrap();
    assert_eq!(format_streams(&merged), "n=200");
    let held = |_: i64| merged[0].points[0].clone();
    let statistic = |call: &str| format_streams(&run_kernel(call, &[&held], view(1)).unwrap());
    assert_eq!(statistic("histogram:median()"), "10.662252");
    assert_eq!(statistic("histogram:inverse_percentile(10.5)"), "37.5");
    let left = |from: StreamFn<'_>, taken: StreamFn<'_>| {
        format_streams(&run_kernel("histogram:subtract()", &[from, taken], view(1)).unwrap())
    };
    assert_eq!(left(&held, &k), "n=100");
    assert_eq!(left(&held, &held), "n=0");
    assert_eq!(left(&k, &held), "n=0");
    // The values of the finer bounds were taken from the coarser ones.
    let explicit = |bounds: &[f64], value: f64, n: u64| {
        let mut histogram = hist::Histogram::new(hist::Scheme::explicit(bounds).unwrap());
        histogram.record_n(value, n);
        histogram
    };
    let finer = explicit(&[0.1, 1.0, 10.0], 20.0, 50);
    let mut both = hist::Mixture::from(explicit(&[0.1, 1.0], 5.0, 60));
    both.add(&finer).unwrap();
    let distribution = |mixture: hist::Mixture| Some(StepValue::Distribution(Arc::new(mixture)));
    let both = |_: i64| distribution(both.clone());
    let finer = |_: i64| distribution(finer.clone().into());
    let rest = run_kernel("histogram:subtract()", &[&both, &finer], view(1)).unwrap();
    let rest = rest[0].points[0].as_ref().and_then(from_value).unwrap();
    assert_eq!(rest.components(), [explicit(&[0.1, 1.0], 5.0, 60)]);
}

#[test]
fn brackets_contain_the_true_value() {
    let made = constant(h());
    let bracket = |call: &str| {
        let streams = run_kernel(call, &[&made], view(1)).unwrap();
        let found = streams[0].points[0].as_ref().and_then(StepValue::bracket).unwrap();
        format!("{:.3} {:.3}", found.lower, found.upper)
    };
    assert_eq!(bracket("histogram:count_above(20)"), "50.000 50.000");
    assert_eq!(bracket("histogram:count_below(20)"), "50.000 80.000");
    assert_eq!(bracket("histogram:count_above(20.5)"), "20.000 50.000");
    assert_eq!(bracket("histogram:count_between(10, 50)"), "30.000 95.000");
    assert_eq!(bracket("histogram:percentile(99)"), "200.000 210.000");
    assert_eq!(bracket("histogram:mean()"), "28.500 29.950");
    assert_eq!(bracket("histogram:IQR()"), "9.000 11.000");
    assert_eq!(bracket("histogram:inverse_percentile(20.5)"), "50.000 80.000");
}

#[test]
fn other_grids_and_several_at_once() {
    let mut histogram = hist::Histogram::default();
    histogram.record_n(10.0, 50);
    histogram.record_n(20.0, 50);
    let mut mixture = hist::Mixture::from(histogram);
    let exp2 = constant(mixture.clone());
    let statistic = |made: StreamFn<'_>, call: &str| {
        format_streams(&run_kernel(call, &[made], view(1)).unwrap())
    };
    assert_eq!(statistic(&exp2, "histogram:mean()"), "15");
    assert_eq!(statistic(&exp2, "histogram:count_below(15)"), "50");
    assert_eq!(statistic(&exp2, "histogram:max()"), "20");
    h().components().iter().for_each(|part| mixture.add(part).unwrap());
    let both = constant(mixture);
    assert_eq!(statistic(&both, "histogram:count()"), "200");
    assert_eq!(statistic(&both, "histogram:count_above(40)"), "20");
    assert_eq!(statistic(&both, "histogram:count_bin(200)"), "5");
}

#[test]
fn random_distributions() {
    let counts = numbers("100 0 . -3 7");
    let random = |call: &str| run_kernel(call, &[&counts], view(5)).unwrap();
    assert_eq!(format_streams(&random("histogram:random()")), "n=100 n=0 n=0 n=0 n=7");
    assert_eq!(format_streams(&random("histogram:random(samples=2)")), "n=200 n=0 n=0 n=0 n=14");
    assert_eq!(random("histogram:random(seed=7)"), random("histogram:random(seed=7)"));
    assert_ne!(random("histogram:random(seed=7)"), random("histogram:random(seed=8)"));
    for method in ["uniform", "exponential", "beta", "gamma", "binomial", "negative_binomial"] {
        random(&format!("histogram:random:{method}()"));
    }
    for method in ["poisson", "chisq", "f", "t", "normal"] {
        random(&format!("histogram:random(method={method:?})"));
    }
    let refused = run_kernel("histogram:random:gamma(alpha=0)", &[&counts], view(5)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "invalid alpha of gamma: expected a number above 0 and at most 1e15, found 0"
    );
    let many = |_: i64| Some(StepValue::Number(1e9));
    assert!(run_kernel("histogram:random()", &[&many], view(1)).is_err());
}
