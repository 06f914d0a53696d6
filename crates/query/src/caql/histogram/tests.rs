//! The specification's numbers, of histograms that have nothing but bins; and what exact side values make of them.

use super::super::trial::{A, B, C, always, bins, h, numbers, shown, view, works};
use crate::value::Value;

#[track_caller]
fn check(call: &str, expected: &str) {
    let made = always(h());
    assert_eq!(shown(&works(call, &[&made], view(1)).unwrap()), expected, "{call}");
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
    let made = always(bins(&[(1.0, 1), (2.0, 1), (3.0, 1)]));
    let shown = |call: &str| shown(&works(call, &[&made], view(1)).unwrap());
    assert_eq!(shown("histogram:count()"), "3");
    assert_eq!(shown("histogram:mean()"), "2.0485266");
    assert_eq!(shown("histogram:median()"), "2.05");
    assert_eq!(shown("histogram:count_above(2)"), "2");
    assert_eq!(shown("histogram:count_below(2)"), "2");
    assert_eq!(shown("histogram:count_bin(2)"), "1");
    assert_eq!(shown("histogram:min()"), "1.05");
    assert_eq!(shown("histogram:max()"), "3.05");
}
