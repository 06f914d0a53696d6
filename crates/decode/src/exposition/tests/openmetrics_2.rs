//! Tests of OpenMetrics 2.0: composite values, start times, names in quotes.

use codecs::prometheus::{BucketSpan, ClientBucket, ClientHistogram};

use super::*;
use crate::prometheus_protobuf;

const PAGE: &str = include_str!("../../../../../testdata/decode/prometheus/openmetrics_2.txt");
const SAMPLES: &str =
    include_str!("../../../../../testdata/decode/prometheus/openmetrics_2.samples");

#[test]
fn a_page_of_all_types_is_read() {
    let mut sink = RecordingSink::default();
    read(&mut PAGE.as_bytes(), &mut sink).unwrap();
    assert_eq!(sink.error_texts(), [""; 0]);
    assert_eq!(sink.dump_samples(), SAMPLES);
    let found: Vec<String> = sink
        .exemplars
        .iter()
        .map(|(metric, exemplar)| {
            let of = exemplar.as_ref().unwrap();
            format!("{metric} {} @{}", of.value, of.time)
        })
        .collect();
    let expected =
        ["took_seconds 0.75 @1700000000500000000", "took_seconds 1.5 @1700000001000000000"];
    assert_eq!(found, expected);
}

/// Length-delimited field.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut length = bytes.len();
    while length > 127 {
        out.push(length as u8 | 128);
        length >>= 7;
    }
    out.push(length as u8);
    [out, bytes.to_vec()].concat()
}

/// The histogram as a scrape in protobuf.
fn protobuf(histogram: &ClientHistogram, is_gauge: bool) -> Vec<u8> {
    let metric = field(4, &field(7, &histogram.to_bytes()));
    let family = [field(1, b"h_seconds"), vec![0x18, 4 + u8::from(is_gauge)], metric].concat();
    // The length prefix, without the tag.
    field(0, &family)[1..].to_vec()
}

/// The histogram as a line of text.
fn text(histogram: &ClientHistogram, is_gauge: bool) -> String {
    let join = |items: Vec<String>| format!("[{}]", items.join(","));
    let spans = |spans: &[BucketSpan]| {
        join(spans.iter().map(|span| format!("{}:{}", span.offset, span.length)).collect())
    };
    let counts = |deltas: &[i64]| {
        let counts = deltas.iter().scan(0, |count, delta| {
            *count += delta;
            Some(count.to_string())
        });
        join(counts.collect())
    };
    let of = histogram;
    let (g, kind) = if is_gauge { ("g", "gaugehistogram") } else { ("", "histogram") };
    let (count, sum) = (of.sample_count.unwrap(), of.sample_sum.unwrap());
    let mut value = format!("{g}count:{count},{g}sum:{sum:?}");
    if let Some(schema) = of.schema {
        let (width, zeros) = (of.zero_threshold.unwrap(), of.zero_count.unwrap());
        value += &format!(",schema:{schema},zero_threshold:{width:?},zero_count:{zeros}");
        for (sign, ranges, deltas) in [
            ("negative", &of.negative_span, &of.negative_delta),
            ("positive", &of.positive_span, &of.positive_delta),
        ] {
            value += &format!(",{sign}_spans:{},{sign}_buckets:{}", spans(ranges), counts(deltas));
        }
    }
    if !of.bucket.is_empty() {
        let bucket = |bucket: &ClientBucket| {
            let bound = convention::number_label(bucket.upper_bound.unwrap());
            format!("{bound}:{}", bucket.cumulative_count.unwrap())
        };
        value += &format!(",bucket:{}", join(of.bucket.iter().map(bucket).collect()));
    }
    format!("# TYPE h_seconds {kind}\nh_seconds {{{value}}}\n# EOF\n")
}

/// Samples and errors without their places.
fn dump(sink: &RecordingSink) -> (String, Vec<String>) {
    let errors = sink.error_texts().into_iter().map(|text| {
        let (_, error) = text.split_once(": ").unwrap();
        error.trim_end_matches(" in \"h_seconds\"").to_owned()
    });
    (sink.dump_samples(), errors.collect())
}

#[track_caller]
fn check_both(histogram: &ClientHistogram) {
    for is_gauge in [false, true] {
        let (mut binary, mut textual) = (RecordingSink::default(), RecordingSink::default());
        prometheus_protobuf::read_scrape(&protobuf(histogram, is_gauge), &mut binary);
        let page = text(histogram, is_gauge);
        read(&mut page.as_bytes(), &mut textual).unwrap();
        assert_eq!(dump(&textual), dump(&binary), "{page}");
        assert_eq!(textual.samples, binary.samples, "{page}");
        assert_eq!(textual.samples.len() + textual.errors.len(), 1);
        assert!(textual.errors.iter().all(|error| error.is_invalid_value));
    }
}

fn native(schema: i32, spans: &[(i32, u32)], deltas: &[i64]) -> ClientHistogram {
    let span = |&(offset, length): &(i32, u32)| BucketSpan { offset, length };
    let counts = deltas.iter().scan(0, |count, delta| {
        *count += delta;
        Some(*count)
    });
    let total: i64 = counts.sum();
    ClientHistogram {
        sample_count: Some(total.unsigned_abs() + 2),
        sample_sum: Some(17.25),
        schema: Some(schema),
        zero_threshold: Some(1e-4),
        zero_count: Some(2),
        positive_span: spans.iter().map(span).collect(),
        positive_delta: deltas.to_vec(),
        ..ClientHistogram::default()
    }
}

#[test]
fn text_and_protobuf_give_the_same_histograms() {
    check_both(&native(3, &[], &[]));
    check_both(&native(0, &[(0, 2)], &[5, 7]));
    check_both(&native(8, &[(-300, 2), (3, 1), (0, 1)], &[1, 4, -3, 0]));
    // Above 8: merged.
    check_both(&native(11, &[(5, 3)], &[1, 1, 1]));
    check_both(&native(-4, &[(0, 1)], &[9]));
    let mut both_signs = native(2, &[(1, 1)], &[3]);
    both_signs.negative_span = vec![BucketSpan { offset: -2, length: 2 }];
    both_signs.negative_delta = vec![1, 1];
    both_signs.sample_count = Some(8);
    check_both(&both_signs);
    // Values that are not a number are in no bucket.
    let mut with_nan = native(2, &[(1, 1)], &[3]);
    with_nan.sample_count = Some(6);
    with_nan.sample_sum = Some(f64::NAN);
    check_both(&with_nan);
    let bucket = |upper_bound, cumulative_count| ClientBucket {
        cumulative_count: Some(cumulative_count),
        upper_bound: Some(upper_bound),
        ..ClientBucket::default()
    };
    let buckets = vec![bucket(-0.5, 1), bucket(0.1, 1), bucket(1e23, 4), bucket(f64::INFINITY, 5)];
    let classic = ClientHistogram {
        sample_count: Some(5),
        sample_sum: Some(0.5),
        bucket: buckets.clone(),
        ..ClientHistogram::default()
    };
    check_both(&classic);
    // Both forms: the native one.
    check_both(&ClientHistogram { bucket: buckets, ..native(3, &[(0, 1)], &[3]) });
    // Invalid: a total that is not the sum, a length that is not the number of counts, a schema.
    check_both(&ClientHistogram { sample_count: Some(9), ..native(3, &[(0, 1)], &[3]) });
    check_both(&native(3, &[(0, 4_000_000_000)], &[3]));
    check_both(&native(3, &[(0, 1), (-1, 1)], &[3, 1]));
    check_both(&native(-53, &[(0, 1)], &[3]));
    check_both(&native(i32::MAX, &[(i32::MAX, 1), (i32::MAX, 1)], &[3, 0]));
}

#[test]
fn start_times_are_inline() {
    check(
        "# TYPE c counter\nc 5 20 st@10.5\n# TYPE d_total counter\nd_total 6 st@7 # {} 1 8\n\
         # TYPE e counter\ne 7 20 st@30\n# TYPE g gauge\ng 8 20 st@10\n# EOF\n",
        &[
            "c number 5 @Some(10500000000)..Some(20000000000)",
            "d_total number 6 @Some(7000000000)..None",
            // Not after its sample.
            "e number 7 @Some(20000000000)..Some(20000000000)",
            "g number 8 @Some(20000000000)..Some(20000000000)",
        ],
        &[],
        0,
    );
    check("a 1 st@x\n", &[], &["line 1: expected a time after st@, found \"x\""], 0);
}

#[test]
fn names_in_quotes_have_their_types() {
    check(
        "# TYPE \"api calls\" counter\n# UNIT \"api calls\" seconds\n\
         {\"api calls\",a=\"b\"} 3\n{\"my.h\"} {count:1,sum:2,bucket:[+Inf:1]}\n",
        &["my.h histogram of 1: -inf..inf=1 sum Some(2.0)", "api calls{a=\"b\"} number 3 [s]"],
        &[],
        0,
    );
}

#[test]
fn damaged_composite_values_are_named() {
    let good = "ok 1\n";
    let check_damage = |value: &str, error: &str, is_invalid_value: bool| {
        let mut sink = RecordingSink::default();
        let page = format!("# TYPE a histogram\na {value}\n{good}");
        read(&mut page.as_bytes(), &mut sink).unwrap();
        assert_eq!(sink.dump_samples(), "ok number 1\n", "{value}");
        assert_eq!(sink.error_texts(), [format!("line 2: {error}")], "{value}");
        assert_eq!(sink.errors[0].is_invalid_value, is_invalid_value, "{value}");
    };
    for (value, error) in [
        ("{count:1", "expected a value in braces, found \"{count:1\""),
        ("{count:1,}", "expected a field, as in count:3, found nothing"),
        ("{count:1,x:2}", "expected a field of a histogram or summary, found \"x\""),
        ("{count:1,bucket:1}", "expected a list in brackets, found \"1\""),
        ("{count:1,bucket:[1:1}", "expected a list in brackets, found \"[1:1\""),
        ("{count:1,count:1}", "expected each field once, found \"count\""),
        ("{count:1,bucket:[]x}", "expected a comma or }, found \"x\""),
    ] {
        check_damage(value, error, false);
    }
    for (value, error) in [
        ("{count:1,sum:1}", "expected all fields of the value, found no bucket"),
        ("{count:1,bucket:[+Inf:1]}", "expected all fields of the value, found no sum"),
        ("{count:1.5,sum:1,bucket:[+Inf:1.5]}", "expected a count, found \"1.5\""),
        ("{count:x,sum:1,bucket:[+Inf:1]}", "expected a count, found \"x\""),
        ("{count:1,sum:1,bucket:[1]}", "expected a pair, as in 1:2, found \"1\""),
        ("{count:1,sum:1,bucket:[NaN:1]}", "expected a number as bound, found NaN"),
        ("{count:1,sum:1,quantile:[0.5:x]}", "expected a number, found \"x\""),
        (
            "{count:1,sum:1,bucket:[1:2,+Inf:1]}",
            "expected non-decreasing cumulative counts, found 1 at le=\"inf\" after 2",
        ),
        (
            "{count:1,sum:1,schema:3,zero_threshold:0}",
            "expected all fields of the value, found no zero_count",
        ),
        (
            "{count:1,sum:1,schema:3.5,zero_threshold:0,zero_count:1}",
            "expected an integer of 32 bits, found \"3.5\"",
        ),
        (
            "{count:1,sum:1,schema:3,zero_threshold:0,zero_count:0,positive_spans:[0:-1],\
             positive_buckets:[1]}",
            "expected a length of 32 bits, found \"-1\"",
        ),
    ] {
        check_damage(value, error, true);
    }
}

#[test]
fn a_line_with_thousands_of_labels_and_quantiles_is_rejected_at_once() {
    let labels = |count| (0..count).map(|n| format!("a{n}=\"\",")).collect::<String>();
    let quantiles = |count| vec!["0.5:1"; count].join(",");
    let line = |labels_count, quantiles_count| {
        let (labels, quantiles) = (labels(labels_count), quantiles(quantiles_count));
        format!("# TYPE s summary\ns{{{labels}}} {{count:1,sum:1,quantile:[{quantiles}]}}\n# EOF\n")
    };
    let errors = |text: String| {
        let mut sink = RecordingSink::default();
        read(&mut text.as_bytes(), &mut sink).unwrap();
        sink.error_texts().len()
    };
    assert_eq!(errors(line(3, 3)), 0);
    assert_eq!(errors(line(70_000, 3)), 1);
    assert_eq!(errors(line(3, 150_000)), 1);
}
