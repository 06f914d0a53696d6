//! Prometheus histograms: messages written by Prometheus' own packages, quantiles as computed by
//! PromQL, round trips of random histograms through every message and to OTLP, damaged messages.

use codecs::otlp::ExponentialHistogramDataPoint;
use codecs::prometheus::{
    BucketSpan, ClassicHistogram, ClientBucket, ClientHistogram, FractionalHistogram,
    HistogramSample, RemoteCount, RemoteHistogram, RemoteZeroCount, ResetHint, STALE_MARKER,
};
use hist::{DecodeError, Histogram, QuantileMethod, Scheme};
use proptest::prelude::*;

use crate::otlp::{
    assert_same, changes, check_table, describe, histogram, mutate, rows, unhex, values,
};

const MESSAGES: &str = include_str!("../../../../testdata/hist/prometheus/messages.tsv");
const QUANTILES: &str = include_str!("../../../../testdata/hist/prometheus/quantiles.tsv");

fn describe_result(sample: &Result<Option<HistogramSample>, DecodeError>) -> String {
    match sample {
        Ok(Some(HistogramSample::Integer(histogram))) => describe(histogram),
        Ok(Some(HistogramSample::Float(float))) => format!("float {float:?}"),
        Ok(Some(HistogramSample::Stale)) => "stale".into(),
        Ok(None) => "none".into(),
        Err(error) => format!("error: {error}"),
    }
}

/// The content of a message. Re-encoding a remote-write message must restore the bytes.
#[track_caller]
fn describe_message(kind: &str, bytes: &[u8], what: &str) -> String {
    if kind != "client" {
        let message = RemoteHistogram::from_bytes(bytes).unwrap();
        assert_eq!(message.to_bytes(), bytes, "{what}");
        assert_eq!(message.timestamp, 1_700_000_000_000);
        let started = if kind == "remote2" { 1_699_999_999_000 } else { 0 };
        assert_eq!(message.start_timestamp, started);
        return describe_result(&message.to_sample().map(Some));
    }
    let message = ClientHistogram::from_bytes(bytes).unwrap();
    let again = ClientHistogram::from_bytes(&message.to_bytes()).unwrap();
    assert_eq!(again.to_bytes(), message.to_bytes(), "{what}");
    format!(
        "native {} | classic {}",
        describe_result(&message.to_native()),
        describe_result(&message.to_classic())
    )
}

#[test]
fn messages_of_prometheus_are_read_and_written_back() {
    let file = expect_test::expect_file!["../../../../testdata/hist/prometheus/messages.tsv"];
    check_table(file, MESSAGES, describe_message);
    assert_eq!(rows(MESSAGES).count(), 22);
}

#[test]
fn written_messages_match_prometheus() {
    for row in rows(MESSAGES).filter(|row| row[0] == "remote1" && !row[2].contains("stale")) {
        let theirs = RemoteHistogram::from_bytes(&unhex(row[1])).unwrap();
        let HistogramSample::Integer(histogram) = theirs.to_sample().unwrap() else { continue };
        let mut ours = RemoteHistogram::from_histogram(&histogram).unwrap();
        (ours.timestamp, ours.reset_hint) = (theirs.timestamp, theirs.reset_hint);
        if theirs.sum.is_nan() {
            // Go's NaN has another payload.
            ours.sum = theirs.sum;
        }
        assert_eq!(ours.to_bytes(), unhex(row[1]), "{}", row[2]);
    }
}

/// A histogram from a line of `quantiles.tsv`.
fn from_row(row: &[&str]) -> Histogram {
    let side = |text: &str| -> Vec<(i32, u64)> {
        let pair = |pair: &str| {
            let (index, count) = pair.split_once(':').unwrap();
            (index.parse().unwrap(), count.parse().unwrap())
        };
        text.split_whitespace().map(pair).collect()
    };
    let spans = |buckets: &[(i32, u64)]| -> Vec<BucketSpan> {
        let mut next = 0;
        let span = |&(index, _): &(i32, u64)| {
            let span = BucketSpan { offset: index - next, length: 1 };
            next = index + 1;
            span
        };
        buckets.iter().map(span).collect()
    };
    let deltas = |buckets: &[(i32, u64)]| -> Vec<i64> {
        let mut previous = 0;
        let delta = |&(_, count): &(i32, u64)| {
            let delta = count as i64 - previous;
            previous = count as i64;
            delta
        };
        buckets.iter().map(delta).collect()
    };
    let (positive, negative) = (side(row[6]), side(row[7]));
    let message = RemoteHistogram {
        schema: row[0].parse().unwrap(),
        zero_threshold: row[1].parse().unwrap(),
        zero_count: Some(RemoteZeroCount::Int(row[2].parse().unwrap())),
        count: Some(RemoteCount::Int(row[3].parse().unwrap())),
        sum: row[4].parse().unwrap(),
        custom_values: row[5].split_whitespace().map(|bound| bound.parse().unwrap()).collect(),
        positive_spans: spans(&positive),
        positive_deltas: deltas(&positive),
        negative_spans: spans(&negative),
        negative_deltas: deltas(&negative),
        ..Default::default()
    };
    match message.to_sample().unwrap() {
        HistogramSample::Integer(histogram) => histogram,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn check_quantile(row: &[&str]) {
    let histogram = from_row(row);
    let expected: f64 = row[9].parse().unwrap();
    let found =
        histogram.quantile_with(row[8].parse().unwrap(), QuantileMethod::PrometheusExponential);
    let Some(found) = found else {
        assert!(expected.is_nan(), "no quantile, expected {expected}: {row:?}");
        return;
    };
    let difference = (found.estimate - expected).abs();
    assert!(difference <= expected.abs() * 1e-12, "{found:?}, expected {expected}: {row:?}");
    assert!(found.lower <= found.estimate && found.estimate <= found.upper, "{found:?}: {row:?}");
}

#[test]
fn quantiles_are_those_of_promql() {
    let mut count = 0;
    for row in rows(QUANTILES) {
        check_quantile(&row);
        count += 1;
    }
    assert!(count >= 300, "{count} quantiles");
}

#[test]
fn border_rank_takes_upper_bucket_from_median_on() {
    let mut histogram = Histogram::new(Scheme::exp2(0).unwrap());
    for value in [-1.5, 1.5] {
        histogram.record(value);
    }
    let at = |q| histogram.quantile_with(q, QuantileMethod::PrometheusExponential).unwrap();
    assert_eq!((at(0.499).lower, at(0.5).upper), (-1.5, 1.5));
}

fn integer(sample: HistogramSample) -> Histogram {
    match sample {
        HistogramSample::Integer(histogram) => histogram,
        other => panic!("not whole: {other:?}"),
    }
}

#[test]
fn otlp_and_prometheus_indexes_differ_by_one() {
    for scale in -4..=8 {
        for value in [1e-9, 0.75, 1.0, 2.0, 1e6, f64::MAX] {
            let mut histogram = Histogram::new(Scheme::exp2(scale).unwrap());
            histogram.record(value);
            let otlp = ExponentialHistogramDataPoint::from_histogram(&histogram).unwrap();
            let remote = RemoteHistogram::from_histogram(&histogram).unwrap();
            let offset = otlp.positive.as_ref().unwrap().offset;
            assert_eq!(remote.positive_spans, [BucketSpan { offset: offset + 1, length: 1 }]);
            assert_eq!(remote.schema, otlp.scale);
            let back = integer(remote.to_sample().unwrap());
            let again = ExponentialHistogramDataPoint::from_histogram(&back).unwrap();
            assert_eq!((again.positive, again.sum), (otlp.positive, otlp.sum));
        }
    }
}

#[test]
fn reserved_schemas_are_downscaled_to_8() {
    let of = |schema, offset| RemoteHistogram {
        count: Some(RemoteCount::Int(3)),
        schema,
        positive_spans: vec![BucketSpan { offset, length: 2 }],
        positive_deltas: vec![1, 1],
        ..Default::default()
    };
    let downscaled = integer(of(9, 3).to_sample().unwrap());
    assert_eq!(downscaled.scheme(), &Scheme::exp2(8).unwrap());
    // Indexes 3 and 4 of schema 9 are 2 and 3 of OTLP: both bucket 1 at scale 8.
    assert_eq!(downscaled.positive().iter().collect::<Vec<_>>(), [(1, 3)]);
    assert!(of(52, 0).to_sample().is_ok());
    for schema in [-10, 53, -54, i32::MIN] {
        assert!(of(schema, 0).to_sample().is_err(), "schema {schema}");
    }

    let coarse = integer(of(-9, 0).to_sample().unwrap());
    assert_eq!(coarse.scheme(), &Scheme::exp2(-9).unwrap());
    assert!(RemoteHistogram::from_histogram(&coarse).is_err(), "schema -9 is reserved");
}

#[test]
fn infinities_and_nan_are_counted() {
    for scale in [-4, 0, 8] {
        let mut histogram = Histogram::new(Scheme::exp2(scale).unwrap());
        for value in [f64::INFINITY, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, f64::NAN] {
            histogram.record(value);
        }
        for read in [
            integer(RemoteHistogram::from_histogram(&histogram).unwrap().to_sample().unwrap()),
            integer(
                ClientHistogram::from_histogram(&histogram).unwrap().to_native().unwrap().unwrap(),
            ),
        ] {
            assert_eq!((read.overflow(), read.underflow(), read.nan_count()), (2, 1, 1));
            assert_eq!(read.positive(), histogram.positive());
        }
    }
}

#[test]
fn a_stale_marker_is_no_histogram() {
    let sum = f64::from_bits(STALE_MARKER);
    let message = RemoteHistogram { sum, schema: 77, ..Default::default() };
    let read = RemoteHistogram::from_bytes(&message.to_bytes()).unwrap();
    assert_eq!(read.to_sample(), Ok(HistogramSample::Stale));
    assert_eq!(read.sum.to_bits(), STALE_MARKER);
}

#[test]
fn reset_hints_are_kept() {
    for hint in [ResetHint::Unknown, ResetHint::Reset, ResetHint::NotReset, ResetHint::Gauge] {
        let message = RemoteHistogram { reset_hint: hint as i32, ..Default::default() };
        assert_eq!(RemoteHistogram::from_bytes(&message.to_bytes()).unwrap().reset_hint(), hint);
    }
    let message = RemoteHistogram { reset_hint: 9, ..Default::default() };
    let read = RemoteHistogram::from_bytes(&message.to_bytes()).unwrap();
    assert_eq!((read.reset_hint, read.reset_hint()), (9, ResetHint::Unknown));
}

#[track_caller]
fn check_error(message: RemoteHistogram, error: &str) {
    assert_eq!(message.to_sample().unwrap_err().to_string(), error);
}

#[test]
fn contradictions_name_both_values() {
    let of = |count, offset, length, deltas: &[i64]| RemoteHistogram {
        count: Some(RemoteCount::Int(count)),
        positive_spans: vec![BucketSpan { offset, length }],
        positive_deltas: deltas.to_vec(),
        ..Default::default()
    };
    check_error(of(4, 0, 2, &[1, 1]), "count is 4, expected 3, the sum of the bucket counts");
    check_error(
        RemoteHistogram { sum: f64::NAN, ..of(2, 0, 2, &[1, 1]) },
        "count is 2, expected at least 3, the sum of the bucket counts",
    );
    // It would be decoded as a sum of 0.
    let nothing = || RemoteHistogram { count: Some(RemoteCount::Int(0)), ..Default::default() };
    check_error(
        RemoteHistogram { sum: f64::NAN, ..nothing() },
        "sum is NaN, expected 0, as there are no values",
    );
    assert!(nothing().to_sample().is_ok());
    let client =
        ClientHistogram { positive_span: vec![BucketSpan::default()], ..Default::default() };
    assert!(client.to_native().unwrap().is_some());
    check_error(
        of(1, 0, u32::MAX, &[1]),
        "positive_spans is 4294967295 buckets long, expected 1, one for each count",
    );
    check_error(
        of(1, 0, 2, &[1, -2]),
        "positive_spans is -2 after a count of 1, in bucket 1, expected counts of 0..2^63",
    );
    check_error(of(1, 1027, 1, &[1]), "bucket index 1026 is outside the grid (exp2 scale 0)");
    check_error(
        of(1, i32::MIN, 1, &[1]),
        "positive_spans is bucket -2147483648, expected indexes of 32 bits",
    );
    check_error(
        RemoteHistogram { custom_values: vec![1.0], ..of(1, 0, 1, &[1]) },
        "custom_values is 1 bounds with schema 0, expected none but with schema -53",
    );
    let custom = |offset, bounds: &[f64]| RemoteHistogram {
        schema: -53,
        custom_values: bounds.to_vec(),
        ..of(1, offset, 1, &[1])
    };
    check_error(custom(2, &[1.0]), "bucket index 2 is outside the grid (1 explicit bounds)");
    check_error(custom(-1, &[1.0]), "bucket index -1 is outside the grid (1 explicit bounds)");
    check_error(
        custom(0, &[1.0, f64::INFINITY]),
        "invalid bound inf at position 1: not finite or not above the previous bound",
    );
    check_error(
        RemoteHistogram { zero_count: Some(RemoteZeroCount::Int(1)), ..custom(0, &[1.0]) },
        "zero bucket is 1 within 0, expected none beside custom buckets",
    );
    check_error(
        RemoteHistogram { zero_count: Some(RemoteZeroCount::Float(1.0)), ..of(1, 0, 1, &[1]) },
        "zero_count is Some(Float(1.0)) beside Some(Int(1)), expected both integers or both floats",
    );
    check_error(
        RemoteHistogram { count: Some(RemoteCount::Float(1.0)), ..of(1, 0, 1, &[1]) },
        "positive_spans is 1 deltas, expected float counts, because the count is a float",
    );
}

fn float(count: f64, positive: &[(i32, f64)]) -> FractionalHistogram {
    FractionalHistogram {
        scheme: Scheme::exp2(0).unwrap(),
        zero_threshold: 0.0,
        zero_count: 0.0,
        count,
        sum: 1.0,
        positive: positive.to_vec(),
        negative: Vec::new(),
    }
}

#[test]
fn float_counts_are_never_rounded() {
    let whole = float(5.0, &[(0, 2.0), (3, 3.0)]);
    assert_eq!(whole.to_histogram().unwrap().count(), 5);
    let error = |float: FractionalHistogram| float.to_histogram().unwrap_err().to_string();
    assert_eq!(
        error(float(4.5, &[(0, 1.5), (3, 3.0)])),
        "positive counts is 1.5, expected a whole number up to 2^53"
    );
    assert_eq!(
        error(float(4.0, &[(0, 1.0)])),
        "count is 4, expected 1, the sum of the bucket counts"
    );
    assert_eq!(error(float(f64::NAN, &[])), "count is NaN, expected a finite number from 0");
    assert_eq!(error(float(-1.0, &[])), "count is -1, expected a finite number from 0");

    let nan =
        FractionalHistogram { sum: f64::NAN, ..float(4.0, &[(0, 2.0)]) }.to_histogram().unwrap();
    assert_eq!((nan.count(), nan.nan_count()), (2, 2));
}

#[track_caller]
fn check_classic(buckets: &[(f64, u64)], count: u64, told: &str) {
    let classic = ClassicHistogram { buckets: buckets.to_vec(), sum: Some(0.0), count };
    match classic.to_histogram() {
        Ok(histogram) => {
            let line = describe(&histogram);
            assert_eq!(line.split("; sum").next(), Some(told));
            let again = ClassicHistogram::from_histogram(&histogram).unwrap();
            assert_eq!(again.to_histogram(), Ok(histogram));
            assert_eq!(again.buckets.last(), Some(&(f64::INFINITY, count)));
        }
        Err(error) => assert_eq!(error.to_string(), told),
    }
}

#[test]
fn classic_counts_are_differences() {
    const INF: f64 = f64::INFINITY;
    check_classic(
        &[(1.0, 2), (2.0, 2), (INF, 5)],
        5,
        "2 explicit bounds [1.0, 2.0]; buckets 0:2 2:3",
    );
    check_classic(&[(1.0, 2)], 5, "1 explicit bounds [1.0]; buckets 0:2 1:3");
    check_classic(&[], 5, "0 explicit bounds []; buckets 0:5");
    check_classic(&[(INF, 0)], 0, "0 explicit bounds []");
    check_classic(&[(1.0, 2), (INF, 4)], 5, "bucket le=\"+Inf\" is 4, expected 5, the count");
    check_classic(&[(1.0, 2), (2.0, 1)], 5, "cumulative count is 1 at le=2, expected at least 2");
    check_classic(&[(1.0, 6)], 5, "count is 5, expected at least 6, the count at le=1");
    check_classic(&[(-INF, 0)], 0, "le is -inf, expected a finite bound above -inf");
    check_classic(&[(f64::NAN, 0)], 0, "le is NaN, expected a finite bound above -inf");
    check_classic(&[(1.0, 0), (1.0, 0)], 0, "le is 1, expected a finite bound above 1");
    check_classic(&[(INF, 0), (INF, 0)], 0, "le is inf, expected a finite bound above -inf");
}

#[test]
fn a_client_message_may_hold_double_counts() {
    let bucket = |le, count| ClientBucket {
        cumulative_count_float: Some(count),
        upper_bound: Some(le),
        ..Default::default()
    };
    let message = ClientHistogram {
        sample_count_float: Some(2.5),
        bucket: vec![bucket(1.0, 0.5), bucket(2.0, 2.0)],
        ..Default::default()
    };
    let HistogramSample::Float(float) = message.to_classic().unwrap().unwrap() else {
        panic!("whole")
    };
    assert_eq!(float.positive, [(0, 0.5), (1, 1.5), (2, 0.5)]);
    assert_eq!(message.to_native(), Ok(None));
}

#[test]
fn unrepresentable_histograms_are_rejected() {
    let mut nan = Histogram::new(Scheme::explicit(&[1.0]).unwrap());
    nan.record(f64::NAN);
    let error = ClassicHistogram::from_histogram(&nan).unwrap_err().to_string();
    assert_eq!(
        error,
        "a Prometheus histogram cannot represent 1 NaN values in a classic histogram"
    );
    let custom = RemoteHistogram::from_histogram(&nan).unwrap().to_sample().unwrap();
    assert_eq!(integer(custom).nan_count(), 1);

    let mut huge = Histogram::default();
    huge.record_n(1.0, 1 << 63);
    let error = RemoteHistogram::from_histogram(&huge).unwrap_err().to_string();
    assert_eq!(
        error,
        "a Prometheus histogram cannot represent a bucket count of 9223372036854775808, above \
         2^63 - 1"
    );
    let error = RemoteHistogram::from_histogram(&Histogram::new(Scheme::LogLinear10)).unwrap_err();
    assert!(error.to_string().starts_with("a Prometheus histogram cannot represent log-linear"));
}

fn read_all(bytes: &[u8]) {
    let write = |sample: HistogramSample| match sample {
        HistogramSample::Integer(histogram) => drop(RemoteHistogram::from_histogram(&histogram)),
        HistogramSample::Float(float) => drop(float.to_histogram()),
        HistogramSample::Stale => {}
    };
    if let Ok(message) = RemoteHistogram::from_bytes(bytes)
        && let Ok(sample) = message.to_sample()
    {
        write(sample);
    }
    if let Ok(message) = ClientHistogram::from_bytes(bytes) {
        if let Ok(Some(sample)) = message.to_native() {
            write(sample);
        }
        if let Ok(Some(sample)) = message.to_classic() {
            write(sample);
        }
    }
}

proptest! {
    #[test]
    fn native_messages_keep_everything(
        values in values(),
        scale in -4..=8i32,
        zero in prop_oneof![Just(0.0), Just(1e-6)],
        nan in 0..3u64,
    ) {
        let mut histogram = histogram(Scheme::exp2(scale).unwrap(), &values, zero);
        histogram.record_n(f64::NAN, nan);
        let remote = RemoteHistogram::from_histogram(&histogram).unwrap().to_bytes();
        let remote = integer(RemoteHistogram::from_bytes(&remote).unwrap().to_sample().unwrap());
        let client = ClientHistogram::from_histogram(&histogram).unwrap().to_bytes();
        let client = ClientHistogram::from_bytes(&client).unwrap();
        prop_assert_eq!(client.to_classic(), Ok(None));
        let client = integer(client.to_native().unwrap().unwrap());
        prop_assert_eq!(&client, &remote);
        if nan == 0 {
            assert_same(&remote, &histogram, false);
            let otlp = ExponentialHistogramDataPoint::from_histogram(&remote).unwrap();
            prop_assert_eq!(otlp.to_histogram(), Ok(Some(remote)));
        } else {
            prop_assert_eq!(remote.positive(), histogram.positive());
            prop_assert_eq!(remote.negative(), histogram.negative());
            let rest = (remote.zero_count(), remote.nan_count());
            prop_assert_eq!(rest, (histogram.zero_count(), nan));
        }
    }

    #[test]
    fn custom_and_classic_messages_keep_everything(
        values in values(),
        bounds in proptest::collection::btree_set(-1000i32..1000, 0..20),
    ) {
        let bounds: Vec<f64> = bounds.into_iter().map(|bound| f64::from(bound) / 8.0).collect();
        let histogram = histogram(Scheme::explicit(&bounds).unwrap(), &values, 0.0);
        let remote = RemoteHistogram::from_histogram(&histogram).unwrap().to_bytes();
        let remote = RemoteHistogram::from_bytes(&remote).unwrap().to_sample().unwrap();
        assert_same(&integer(remote), &histogram, false);
        let client = ClientHistogram::from_histogram(&histogram).unwrap().to_bytes();
        let client = ClientHistogram::from_bytes(&client).unwrap().to_classic().unwrap().unwrap();
        assert_same(&integer(client), &histogram, false);
    }

    #[test]
    fn float_counts_are_read_bit_for_bit(
        counts in proptest::collection::vec(1e-9..1e15f64, 1..20),
        // With scale -1, the largest finite number is in bucket 512.
        offset in -500..=493i32,
        zero in 0..1000u32,
        scale in -1..=8i32,
    ) {
        let zero_count = f64::from(zero) / 7.0;
        let count = counts.iter().sum::<f64>() + zero_count;
        let span = BucketSpan { offset, length: counts.len() as u32 };
        let remote = RemoteHistogram {
            count: Some(RemoteCount::Float(count)),
            zero_count: Some(RemoteZeroCount::Float(zero_count)),
            zero_threshold: 1e-300,
            sum: 12.5,
            schema: scale,
            positive_spans: vec![span],
            positive_counts: counts.clone(),
            negative_spans: vec![span],
            negative_counts: counts.clone(),
            ..Default::default()
        };
        let client = ClientHistogram {
            sample_count_float: Some(count),
            zero_count_float: Some(zero_count),
            zero_threshold: Some(1e-300),
            sample_sum: Some(12.5),
            schema: Some(scale),
            positive_span: vec![span],
            positive_count: counts.clone(),
            negative_span: vec![span],
            negative_count: counts.clone(),
            ..Default::default()
        };
        let buckets: Vec<(i32, f64)> = (offset - 1..).zip(counts).collect();
        let float = FractionalHistogram {
            scheme: Scheme::exp2(scale).unwrap(),
            zero_threshold: 1e-300,
            zero_count,
            count,
            sum: 12.5,
            positive: buckets.clone(),
            negative: buckets,
        };
        let remote = RemoteHistogram::from_bytes(&remote.to_bytes()).unwrap();
        prop_assert_eq!(remote.to_sample(), Ok(HistogramSample::Float(float.clone())));
        let client = ClientHistogram::from_bytes(&client.to_bytes()).unwrap();
        prop_assert_eq!(client.to_native(), Ok(Some(HistogramSample::Float(float))));
    }

    #[test]
    fn random_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        read_all(&bytes);
    }

    #[test]
    fn damaged_messages_do_not_panic(row in 0..22usize, changes in changes()) {
        let row = rows(MESSAGES).nth(row).unwrap();
        read_all(&mutate(unhex(row[1]), &changes));
    }
}
