//! Tests with handwritten expositions.

mod openmetrics_2;

use super::*;
use crate::decoded_sample::RecordingSink;

#[track_caller]
fn check(text: &str, expected: &[&str], errors: &[&str], skipped: usize) {
    let mut sink = RecordingSink::default();
    read(&mut text.as_bytes(), &mut sink).unwrap();
    assert_eq!(sink.dump_samples().lines().collect::<Vec<_>>(), expected, "{text}");
    assert_eq!(sink.error_texts(), errors, "{text}");
    assert_eq!(sink.skipped.len(), skipped, "{text}");
}

const BUCKETS: &str = "a_bucket{le=\"1\"} 2\na_bucket{le=\"+Inf\"} 3\n";

#[test]
fn a_histogram_with_and_without_type() {
    let cells = "a histogram of 3: -inf..1.0000=2 1.0000..inf=1 sum Some(7.5)";
    check(&format!("# TYPE a histogram\n{BUCKETS}a_sum 7.5\na_count 3\n"), &[cells], &[], 0);
    check(&format!("{BUCKETS}a_sum 7.5\na_count 3\n"), &[cells], &[], 0);
    check(&format!("# TYPE a histogram\na_sum 7.5\na_count 3\n{BUCKETS}# EOF\n"), &[cells], &[], 0);
    check(
        "a_bucket{le=\"1\"} 2\na_count 3",
        &["a histogram of 3: -inf..1.0000=2 1.0000..inf=1 sum None"],
        &[],
        0,
    );
}

#[test]
fn series_units_times_and_spellings() {
    check(
        "# UNIT rpc_seconds seconds\n\
         rpc_seconds_bucket{code=\"200\",le=\"1e-1\"} 1.0 1500\n\
         rpc_seconds_bucket{code=\"500\",le=\"0.10\"} 4 1500000000000\n\
         rpc_seconds_bucket{le=\"+inf\",code=\"200\"} 1 1500\n\
         rpc_seconds_bucket{le=\"Inf\",code=\"500\"} 4 1500000000000 # {id=\"7\"} 0.05\n",
        &[
            "rpc_seconds{code=\"200\"} histogram of 1: -inf..0.1000=1 sum None [s] \
             @Some(1500000000000)..Some(1500000000000)",
            "rpc_seconds{code=\"500\"} histogram of 4: -inf..0.1000=4 sum None [s] \
             @Some(1500000000000000000)..Some(1500000000000000000)",
        ],
        &[],
        0,
    );
    check(
        "{\"my.a_bucket\",le=\"1\",p=\"x\\\\\\\"\\ny\"} \
         1\n{\"my.a_bucket\",p=\"x\\\\\\\"\\ny\",le=\"+Inf\"} 1\n",
        &["my.a{p=\"x\\\\\\\"\\ny\"} histogram of 1: -inf..1.0000=1 sum None"],
        &[],
        0,
    );
}

#[test]
fn other_lines_are_numbers() {
    check(
        "# TYPE cpu_seconds counter\ncpu_seconds_total{mode=\"user\"} 5.5\n# TYPE g gauge\ng 7 \
         1500\n# TYPE s summary\n# UNIT s ms\ns{quantile=\"0.9\"} 1\ns{quantile=\"1\"} 4\ns_sum \
         2\ns_count 3\nup 1\nodd_total 2\n# TYPE build info\nbuild_info{v=\"1\"} 1\n# TYPE on \
         stateset\non{on=\"a\"} 1\n",
        &[
            "cpu_seconds_total{mode=\"user\"} number 5.5 [s]",
            "g number 7 @Some(1500000000000)..Some(1500000000000)",
            "s{quantile=\"0.9\"} number 1 [ms]",
            "s{quantile=\"1.0\"} number 4 [ms]",
            "s_sum number 2 [ms]",
            "s_count number 3",
            "up number 1",
            "odd_total number 2",
            "build_info{v=\"1\"} number 1",
            "on{on=\"a\"} number 1",
        ],
        &[],
        0,
    );
}

#[test]
fn types_set_the_temporality() {
    let mut sink = RecordingSink::default();
    let page = "# TYPE c counter\nc_total 1\n# TYPE s summary\ns{quantile=\"0.9\"} 1\ns_sum \
                2\ns_count 3\nx_total 1\nx 1\n# TYPE y_total gauge\ny_total 1\n";
    read(&mut page.as_bytes(), &mut sink).unwrap();
    let temporality: Vec<SampleTemporality> =
        sink.samples.iter().map(|sample| sample.temporality).collect();
    use SampleTemporality::{Cumulative, Instant};
    assert_eq!(
        temporality,
        [Cumulative, Instant, Cumulative, Cumulative, Cumulative, Instant, Instant]
    );
}

#[test]
fn created_lines_set_the_start() {
    check(
        "# TYPE c counter\nc_total{a=\"1\"} 5 20\nc_created{a=\"1\"} 10.5 20\nc_total{a=\"2\"} 6\n\
         c_total{a=\"3\"} 7\nc_created{a=\"3\"} 9\n\
         # TYPE s summary\ns{quantile=\"0.5\"} 1\ns_count 3\ns_sum 2\ns_created 8\n\
         # TYPE h histogram\nh_bucket{le=\"+Inf\"} 1\nh_created 7\n\
         # TYPE gh gaugehistogram\ngh_bucket{le=\"+Inf\"} 1\ngh_gcount 1\ngh_gsum 4\n\
         # TYPE other gauge\nother_created 6\n# EOF\n",
        &[
            "c_total{a=\"1\"} number 5 @Some(10500000000)..Some(20000000000)",
            "c_total{a=\"2\"} number 6",
            "c_total{a=\"3\"} number 7 @Some(9000000000)..None",
            "s{quantile=\"0.5\"} number 1",
            "s_count number 3 @Some(8000000000)..None",
            "s_sum number 2 @Some(8000000000)..None",
            "other_created number 6",
            "h histogram of 1: -inf..inf=1 sum None @Some(7000000000)..None",
            "gh histogram of 1: -inf..inf=1 sum Some(4.0)",
        ],
        &[],
        0,
    );
    check(
        "# TYPE c counter\nc_total 5\nc_created x\n",
        &["c_total number 5"],
        &["line 3: expected a time in seconds, found \"x\""],
        0,
    );
}

#[test]
fn damaged_lines_are_named_and_the_rest_is_read() {
    let whole = "b_bucket{le=\"+Inf\"} 1\n";
    let read = "b histogram of 1: -inf..inf=1 sum None";
    for (damage, error) in [
        ("a_bucket{le=\"x\"} 1\n", "line 1: expected a number as le, found \"x\""),
        ("a_bucket{le=\"1\"} 1.5\n", "line 1: expected a count, found \"1.5\""),
        ("a_bucket{le=\"1\" 1\n", "line 1: expected a comma or }, found \"1\""),
        ("a_bucket{le=\"1} 1\n", "line 1: expected a closing quote, found \"\"1} 1\""),
        ("a_bucket{le=1} 1\n", "line 1: expected a label value in quotes, found \"1} 1\""),
        ("a_bucket\n", "line 1: expected a number after the name, found \"a_bucket\""),
        ("a 1 x\n", "line 1: expected a timestamp, found \"x\""),
        ("a b\n", "line 1: expected a number, found \"b\""),
        ("!\n", "line 1: expected a metric name, labels and a number, found \"!\""),
        (
            "a_bucket{le=\"1\"} 2\na_bucket{le=\"+Inf\"} 1\n",
            "line 1: expected non-decreasing cumulative counts, found 1 at le=\"inf\" after 2 in \
             a",
        ),
        ("a_bucket{le=\"1\"} 2\n", "line 1: expected a bucket le=\"+Inf\", found none in a"),
        (
            "a_bucket{le=\"1\"} 1\na_bucket{le=\"1.0\"} 1\n",
            "line 1: expected each le once, found le=\"1\" twice in a",
        ),
    ] {
        check(&format!("{damage}{whole}"), &[read], &[error], 0);
    }
    check(
        "a 1\n# EOF\nb 1\n",
        &["a number 1"],
        &["line 3: expected nothing after # EOF, found \"b 1\""],
        0,
    );
    check(
        &format!("{BUCKETS}a_count 4\n"),
        &[],
        &["line 1: expected _count equal to the bucket le=\"+Inf\", found _count 4 and \
             le=\"+Inf\" 3 in a"],
        0,
    );
}

#[test]
fn help_of_a_metric_is_kept() {
    let text = b"# HELP http_requests_total Requests served.\\nBy status.\n\
                 # TYPE http_requests_total counter\nhttp_requests_total 3\n\
                 # HELP empty\n# HELPER x y\n";
    let mut rows = crate::series_sink::VecSeriesSink::default();
    let defaults = crate::mapper::MappingDefaults { time: Some(7), ..Default::default() };
    let mut mapper = crate::mapper::RowMapper::new(defaults, &mut rows);
    read(&mut &text[..], &mut mapper).unwrap();
    let expected = ("http_requests_total".to_owned(), "Requests served.\nBy status.".to_owned());
    assert_eq!(rows.descriptions, [expected]);
}

/// One line per exemplar: metric, value, time, trace, attributes.
fn dump_exemplars(page: &str) -> Vec<String> {
    let mut sink = RecordingSink::default();
    read(&mut page.as_bytes(), &mut sink).unwrap();
    assert_eq!(sink.error_texts(), [""; 0]);
    let line = |(metric, exemplar): &(String, DecodedExemplar)| match exemplar {
        Ok(of) => {
            let trace = u128::from_be_bytes(of.trace_id);
            let attributes: Vec<(&str, &str)> = of.attributes.iter().collect();
            format!("{metric} {} @{} {trace:x} {attributes:?}", of.value, of.time)
        }
        Err(problem) => format!("{metric} {}", problem.name()),
    };
    sink.exemplars.iter().map(line).collect()
}

/// A short text is a large exemplar: memory is bounded.
#[test]
fn exemplars_of_a_line_and_of_a_page_are_bounded() {
    let line = |metric: &str, exemplars: usize| {
        format!("{metric} 1 #{}\n", vec![" {}1"; exemplars].join("#"))
    };
    let check = |page: &str, expected: usize| {
        let found = dump_exemplars(page);
        let problems = found.iter().filter(|text| text.ends_with(" too_many")).count();
        assert_eq!((found.len(), problems), (expected, 1));
    };
    check(&line("depth", 10_000), 65);
    check(&line("hits_total", 10_000), 65);
    let buckets = |le: u32| line(&format!("took_bucket{{le=\"{le}\"}}"), 64);
    let page: String = (0..5_000).map(buckets).collect();
    check(&(page + "took_bucket{le=\"+Inf\"} 1\n"), 100_001);
    // What is passed on is not held.
    let page: String = (0..5_000).map(|at| line(&format!("hits{at}_total"), 64)).collect();
    let found = dump_exemplars(&page);
    assert_eq!(found.len(), 320_000);
}

#[test]
fn exemplars_belong_to_the_series_of_their_line() {
    let page = r#"# TYPE foo histogram
foo_bucket{le="0.01"} 0
foo_bucket{le="0.1"} 8 # {} 0.054
foo_bucket{le="1"} 11 # {trace_id="0af7651916cd43dd8448eb211c80319c",user="u 1 # x"} 0.67 1520879607.789
foo_bucket{le="+Inf"} 17 1520879607.8 # {trace_id="oHg5SJYRHA0"} 9.8 1520879607 # {a="b"} 10 1520879608
foo_count 17
foo_sum 324789.3
# TYPE hits counter
hits_total{path="/"} 17 # {trace_id="b7ad6b7169203331"} 1
depth 3 # {a="b"} 2 3
bad_total 1 # trace
bad_total{a="1"} 1 # {x="y"}
bad_total{a="2"} 1 # {x="y"} NaN
bad_total{a="3"} 1 # {x="y"} 1 soon
# EOF
"#;
    let expected = [
        "depth 2 @3000000000 0 [(\"a\", \"b\")]",
        "hits_total 1 @0 b7ad6b7169203331 []",
        "bad_total malformed",
        "bad_total invalid_value",
        "bad_total invalid_value",
        "bad_total invalid_time",
        "foo 0.054 @0 0 []",
        // A double of nanoseconds.
        "foo 0.67 @1520879607788999936 af7651916cd43dd8448eb211c80319c [(\"user\", \"u 1 # x\")]",
        "foo 9.8 @1520879607000000000 0 [(\"trace_id\", \"oHg5SJYRHA0\")]",
        "foo 10 @1520879608000000000 0 [(\"a\", \"b\")]",
    ];
    let mut found = dump_exemplars(page);
    found.sort();
    let mut expected = expected.map(str::to_owned);
    expected.sort();
    assert_eq!(found, expected);
}
