//! Results of expressions. Statistics of histograms are those of libcircllhist.

use query::StepValue;
use store::{MINUTE, SECOND};

use super::fixture::START;
use super::{answer_of, check, check_legends, question, rows, rows_of};

#[test]
fn constants_and_operators() {
    check("1 + 2", "3*");
    check("pass{1, 2, 3}", "1*\n2*\n3*");
    check("2 + 3 * 4 ^ 2 / 8", "8*");
    check("7 % 4 * 2", "7*");
    check("not 0 or 1", "0*");
    check("!0 or 1", "1*");
    check("10 - 2 - 3", "5*");
    check("100 / 5 / 2", "10*");
    check("A > 5", "0 0 0 0 0 1 1 1 1 1");
    check("B + 1", "11 11 · 11 11 11 · · 11 11");
    check("op:sum{NULL, 3}", "·*");
    check("stats:sum{NULL, 3}", "3*");
    check("-A", "-1 -2 -3 -4 -5 -6 -7 -8 -9 -10");
}

#[test]
fn across_streams() {
    check(r#"find("req") | stats:sum()"#, "16 16 6 16 16 16 8 10 22 24");
    check(r#"find("req") | stats:mean()"#, "16/3 16/3 3 16/3 16/3 16/3 4 5 22/3 8");
    check(r#"find("req") | stats:max()"#, "10 10 3 10 10 10 7 8 10 10");
    check("A | stats:min(4)", "1 2 3 4 4 4 4 4 4 4");
    check(r#"find("req") | count()"#, "3 3 2 3 3 3 2 2 3 3");
    check(r#"find("nothing") | stats:sum()"#, "0*");
    check("coalesce{B, A}", "10 10 3 10 10 10 7 8 10 10");
    check("if{A > 5, A, 0}", "0 0 0 0 0 6 7 8 9 10");
    let shares = rows(r#"find("req") | stats:ratio()"#);
    let slot = |at: usize| -> Vec<Option<f64>> {
        shares.iter().map(|(_, points)| points[at].as_ref().and_then(StepValue::number)).collect()
    };
    assert_eq!(slot(0), [Some(0.3125), Some(0.0625), Some(0.625)]);
    assert_eq!(slot(2), [Some(0.5), Some(0.5), None]);
    check("pass{ A, A | op:prod(2) } | stats:sum()", "3 6 9 12 15 18 21 24 27 30");
}

#[test]
fn missing_values() {
    check("B | is_missing()", "0 0 1 0 0 0 1 1 0 0");
    check("B | fill(0)", "10 10 0 10 10 10 0 0 10 10");
    check("B | fill:forward()", "10*");
    check("B | fill:forward(limit=1m)", "10 10 10 10 10 10 10 · 10 10");
}

#[test]
fn changes() {
    check("C | diff()", "· -1 -1 -1 -1 -1 1 1 1 1");
    check("A | derivative()", "· 1/60 1/60 1/60 1/60 1/60 1/60 1/60 1/60 1/60");
    check("D | counter()", "· 1 2 3 4 5 · 1 2 3");
    check("D | derivative()", "· 1 2 3 4 5 -14.5 1 2 3");
    check("A | delay(2m)", "· · 1 2 3 4 5 6 7 8");
    check("A | delay(1m, 2m)", "· 1 2 3 4 5 6 7 8 9\n· · 1 2 3 4 5 6 7 8");
    check("A | delay(90s)", "· 1 2 3 4 5 6 7 8 9");
    check("A > 5 | wait(3m)", "0 0 0 0 0 0 0 1 1 1");
    check("A | normalize()", "0 1/9 2/9 3/9 4/9 5/9 6/9 7/9 8/9 1");
}

#[test]
fn over_time() {
    check("A | window:sum(5m)", "15 15 15 15 15 40 40 40 40 40");
    check(r#"A | window:sum(5m, align="end")"#, "· · · · · 15 15 15 15 15");
    check("#serial\nA | window:sum(5m)", "· · · · · 15 15 15 15 15");
    check("A | rolling:mean(3m)", "1 1.5 2 3 4 5 6 7 8 9");
    check("B | rolling:count(3m)", "1 2 2 2 2 3 2 1 1 2");
    check("A | window:delta(5m)", "4*");
    check("C | window:changes(5m)", "4*");
    check("A | window:stddev(5m)", "1.4142135623730951*");
    check("D | window:resets(10m)", "1*");
    check("D | window:increase(10m)", "1290*");
    check("D | window:delta(10m)", "390*");
    check("A | forecasting:slope(3m, 1m)", "· 5 6 7 8 9 10 11 12 13");
    check(
        "A | forecasting:ewma(0.5)",
        "1 1.5 2.25 3.125 4.0625 5.03125 6.015625 7.0078125 8.00390625 9.001953125",
    );
}

fn numbers(text: &str) -> Vec<f64> {
    let number = |point: &Option<StepValue>| point.as_ref().and_then(StepValue::number).unwrap();
    rows(text)[0].1.iter().map(number).collect()
}

#[test]
fn sums_run() {
    let differences = |numbers: Vec<f64>| -> Vec<f64> {
        numbers.windows(2).map(|pair| pair[1] - pair[0]).collect()
    };
    let integrated = differences(numbers("A | integrate()"));
    assert_eq!(integrated, [2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0]);
    let affected =
        r#"find:histogram("lat") | histogram:merge() | histogram:count_above(100) | integrate()"#;
    assert_eq!(differences(numbers(affected)), [5.0; 9]);
    // The number of affected users does not depend on the slot length.
    let mut coarse = question(affected);
    (coarse.start, coarse.end, coarse.step) = (START, START + 10 * MINUTE, 5 * MINUTE);
    let found = rows_of(answer_of(&coarse).unwrap());
    let so_far: Vec<f64> =
        found[0].1.iter().map(|point| point.as_ref().unwrap().number().unwrap()).collect();
    assert_eq!(so_far, [25.0, 50.0]);
    let text = r#"integrate:while{ time:tz("UTC","hour"), pass{1} }"#;
    let mut late = question(text);
    (late.start, late.end) = (START + 55 * MINUTE, START + 65 * MINUTE);
    let found = rows_of(answer_of(&late).unwrap());
    let numbers: Vec<f64> =
        found[0].1.iter().map(|point| point.as_ref().unwrap().number().unwrap()).collect();
    let steps: Vec<f64> = numbers.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(steps[..4], [1.0; 4], "{numbers:?}");
    assert_eq!(steps[5..], [1.0; 4], "{numbers:?}");
    assert!(numbers[5] <= 1.0, "{numbers:?}");
}

#[test]
fn groups_and_choices() {
    check(r#"find("req") | group_by:sum("dc")"#, "5 4 3 2 1 0 1 2 3 4\n11 12 3 14 15 16 7 8 19 20");
    check_legends(r#"find("req") | top(1)"#, &["req|ST[dc:us,host:b]"]);
    check_legends(r#"find("req") | bottom(1)"#, &["req|ST[dc:eu,host:c]"]);
    check_legends(r#"find("req") | top(2) | label("%tv{host}")"#, &["b", "a"]);
    let hosts = |text: &str, expected: &[&str]| {
        check_legends(&format!(r#"{text} | label("%tv{{host}}")"#), expected);
    };
    hosts(r#"find("req")"#, &["c", "a", "b"]);
    hosts(r#"find("req") | filter:any:gt(9)"#, &["a", "b"]);
    hosts(r#"find("req") | filter:all:gt(9)"#, &["b"]);
    hosts(r#"find("req") | filter:any:missing()"#, &["b"]);
    hosts(r#"find("req") | filter:any:not:missing()"#, &["c", "a", "b"]);
    hosts(r#"find("req") | filter:not:any:missing()"#, &["c", "a"]);
    hosts(r#"find("req") | filter:mean:lt(6)"#, &["c", "a"]);
    hosts(r#"find("req") | filter:latest:geq(10)"#, &["a", "b"]);
    hosts(r#"find("req") | exclude("and(dc:us)")"#, &["c"]);
    hosts(r#"find("req") | exclude:label("host:[ab]")"#, &["c"]);
    hosts(r#"find("/^re/","and(or(host:a,host:/^c$/),not(dc:eu))")"#, &["a"]);
    hosts(r#"find("r?q","and(dc:u*)")"#, &["a", "b"]);
    hosts("find('and(__name:req,host)')", &["c", "a", "b"]);
    check("A | filter:values:gt(5)", "· · · · · 6 7 8 9 10");
    check("A | filter:values:percentile:gt(50)", "· · · · · 6 7 8 9 10");
    hosts(r#"find("req") | sort:mean()"#, &["b", "a", "c"]);
    hosts(r#"find("req") | filter:limit(1)"#, &["c"]);
}

#[test]
fn vectors() {
    let pair =
        r#"op:div{ find("req") | vector("%tv{host}"), find("total") | vector("%tv{host}") }"#;
    let text = format!("{pair} | vector:unpack()");
    check(&text, "· 2/60 3/180 4/360 5/600 6/900 7/30 8/90 9/210 10/390");
    check_legends(&text, &["a"]);
    check(
        r#"op:prod{ find("req") | vector("%tv{host}"), 2 } | vector:drop("b", "c")"#,
        "2 4 6 8 10 12 14 16 18 20",
    );
    assert_eq!(rows(r#"find("req") | vector("%tv{dc}", sloppy=1)"#).len(), 2);
}

#[test]
fn legends() {
    let found = rows(r#"find("req") | label("%n %tv-{*}")"#);
    let legends: Vec<String> = found.iter().map(|(labels, _)| super::legend(labels)).collect();
    assert_eq!(legends, ["req eu,c", "req us,a", "req us,b"]);
    check_legends(r#"A | label("%cn")"#, &["req|ST[dc:us,host:a]"]);
    check_legends(r#"A | tag("svc:x") | label("%t{svc}")"#, &["svc:x"]);
    check_legends(
        r#"find("prod.n1.cpu") | tag:synth("%n","^prod\.([^\.]+)\.","host","$1") | label("%tv{host}")"#,
        &["n1"],
    );
    check_legends("1 + 2", &["1 + 2"]);
    check_legends(r#"A | label:replace("%n", "r(.)q", "$1")"#, &["e"]);
    check_legends(r#"find("prod.n1.cpu") | graphite:aliasbynode(1, -1)"#, &["n1.cpu"]);
    check_legends(
        r#"graphite:find("prod.*.cpu") | graphite:removenode(0) | label("%n")"#,
        &["n1.cpu"],
    );
}

#[test]
fn histograms_of_numbers() {
    check("histogram{1, 2, 3} | histogram:count()", "3*");
    // libcircllhist keeps only bins and returns 2.0485266; here the sum, minimum and maximum are
    // exact.
    check("histogram{1, 2, 3} | histogram:mean()", "2*");
    check("histogram{1, 2, 3} | histogram:median()", "2.05*");
    check("histogram{1, 2, 3} | histogram:count_above(2)", "2*");
    check("histogram{1, 2, 3} | histogram:count_below(2)", "2*");
    check("histogram{1, 2, 3} | histogram:count_bin(2)", "1*");
    let found = rows(r#"find("req") | histogram() | histogram:percentile(0,50,100)"#);
    let first: Vec<f64> =
        found.iter().map(|(_, points)| points[0].as_ref().unwrap().number().unwrap()).collect();
    // With bins alone, the bounds would be 1.05 and 10.5.
    assert_eq!(first, [1.0, 5.05, 10.0]);
}

#[test]
fn one_histogram() {
    check("H | histogram:percentile(99, 50, 90)", "206.66666667*\n10.98039216*\n50.625*");
    check("H | histogram:count()", "100*");
    check("H | histogram:rate()", "1.66666667*");
    check("H | histogram:rate(period=60s)", "100*");
    check("H | histogram:mean()", "29.202597*");
    check("H | histogram:sum()", "2920.2597*");
    check("H | histogram:stddev()", "42.53495*");
    check("H | histogram:IQR()", "10.316256*");
    check("H | histogram:count_above(20)", "50*");
    check("H | histogram:count_below(20)", "80*");
    check("H | histogram:count_bin(20)", "30*");
    check("H | histogram:count_between(10,50)", "45*");
    check("H | histogram:ratio_above(20)", "0.5*");
    check("H | histogram:ratio_below(20)", "0.8*");
    check("H | histogram:ratio_between(10,50)", "0.45*");
    check("H | histogram:inverse_percentile(20, 25, 100)", "50*\n80*\n95*");
}

#[test]
fn several_histograms() {
    let merged = r#"find:histogram("lat") | histogram:merge()"#;
    check(&format!("{merged} | histogram:count()"), "200*");
    check(&format!("{merged} | histogram:median()"), "10.662252*");
    check(&format!("{merged} | histogram:inverse_percentile(10.5)"), "37.5*");
    check("pass{H, K} | histogram:merge() | histogram:count()", "200*");
    check(r#"find:histogram("lat") | group_by:merge("host") | histogram:count()"#, "100*\n100*");
    check(r#"pass{H, K} | group_by:merge("host") | histogram:count()"#, "100*\n100*");
    check("H | window:merge(5m) | histogram:count()", "500*");
    check("H | window:merge(5m) | histogram:median()", "10.996016*");
    check(&format!("histogram:subtract{{ {merged}, K }} | histogram:count()"), "100*");
}

#[test]
fn times() {
    let epoch: Vec<f64> =
        (0..10).map(|at| (START / SECOND) as f64 + 60.0 * f64::from(at)).collect();
    assert_eq!(numbers("time:epoch()"), epoch);
    let field =
        |field: &str, expected: &str| check(&format!("time:tz(\"UTC\", \"{field}\")"), expected);
    field("second", "0*");
    field("minute", "0 1 2 3 4 5 6 7 8 9");
    field("hour", "13*");
    field("monthday", "13*");
    field("month", "9*");
    field("weekday", "0*");
    field("yearday", "257*");
    field("year", "2020*");
    check(r#"time:tz("US/Eastern","hour")"#, "9*");
}

#[test]
fn duplicate_expressions_are_equal() {
    let text = r#"pass{ find:histogram("lat") | histogram:merge() | histogram:count(),
        find:histogram("lat") | histogram:merge() | histogram:percentile(50) }"#;
    check(text, "200*\n10.662252*");
    check("A - A", "0*");
}

#[test]
fn promql_within() {
    // A slot without samples shows the latest earlier one.
    check("#lang=\"promql\"\nsum(req)", "16 16 16 16 16 16 18 20 22 24");
}

#[test]
fn bounds_go_through_arithmetic() {
    let found = rows("(H | histogram:percentile(99)) / 10 - 1");
    let Some(StepValue::Bracket(bracket)) = &found[0].1[0] else { panic!("no bounds: {found:?}") };
    assert!(bracket.contains(19.0) && bracket.contains(20.0), "{bracket:?}");
    assert!(18.99 < bracket.lower && bracket.upper < 20.01, "{bracket:?}");
}
