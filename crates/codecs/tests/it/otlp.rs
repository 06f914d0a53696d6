//! OTLP points: messages written by the Go library, round trips of random histograms through every
//! message, damaged messages.

use codecs::otlp::{ExponentialHistogramDataPoint, HistogramDataPoint, OtlpBuckets};
use hist::{DecodeError, Exp2, Histogram, Scheme, TrackedValue};
use proptest::prelude::*;

const POINTS: &str = include_str!("../../../../testdata/hist/otlp/points.tsv");
const PAGE: &str = include_str!("../../../../docs/formats/otlp.md");

/// The rows of a table in `testdata`, without its comments.
pub(crate) fn rows(table: &str) -> impl Iterator<Item = Vec<&str>> {
    table.lines().filter(|line| !line.starts_with('#')).map(|line| line.split('\t').collect())
}

pub(crate) fn unhex(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

/// All fields of a histogram on one line.
pub(crate) fn describe(histogram: &Histogram) -> String {
    let parts = histogram.clone().into_parts();
    let mut line = parts.scheme.to_string();
    if let Scheme::Explicit(grid) = &parts.scheme {
        line += &format!(" {:?}", grid.bounds());
    }
    let mut side = |name: &str, buckets: &[(i32, u64)]| {
        if !buckets.is_empty() {
            let pairs: Vec<String> = buckets.iter().map(|(i, n)| format!("{i}:{n}")).collect();
            line += &format!("; {name} {}", pairs.join(" "));
        }
    };
    side("buckets", &parts.positive);
    side("below zero", &parts.negative);
    if parts.zero > 0 || parts.zero_threshold > 0.0 {
        line += &format!("; zero {} within {:?}", parts.zero, parts.zero_threshold);
    }
    for (name, count) in [("+inf", parts.overflow), ("-inf", parts.underflow), ("nan", parts.nan)] {
        if count > 0 {
            line += &format!("; {name} {count}");
        }
    }
    let value = |side: TrackedValue<f64>| match side {
        TrackedValue::Exact(value) => format!("{value:?}"),
        TrackedValue::Estimated(value) => format!("~{value:?}"),
        TrackedValue::Bound(value) => format!("within {value:?}"),
        TrackedValue::Absent => "unknown".into(),
    };
    let sum = match parts.sum {
        TrackedValue::Exact(sum) => TrackedValue::Exact(sum.value()),
        TrackedValue::Estimated(sum) => TrackedValue::Estimated(sum.value()),
        TrackedValue::Bound(_) | TrackedValue::Absent => TrackedValue::Absent,
    };
    line + &format!("; sum {} min {} max {}", value(sum), value(parts.min), value(parts.max))
}

fn describe_result(read: Result<Option<Histogram>, DecodeError>) -> String {
    match read {
        Ok(Some(histogram)) => describe(&histogram),
        Ok(None) => "no recorded value".into(),
        Err(error) => format!("error: {error}"),
    }
}

/// A table whose last column is recomputed and must be unchanged.
pub(crate) fn check_table(
    file: expect_test::ExpectFile,
    table: &str,
    told: impl Fn(&str, &[u8], &str) -> String,
) {
    let mut found = String::new();
    for line in table.lines() {
        let row: Vec<&str> = line.split('\t').collect();
        match row[..] {
            [kind, hex, what, _] => {
                let told = told(kind, &unhex(hex), what);
                found += &format!("{kind}\t{hex}\t{what}\t{told}\n");
            }
            _ => found += &format!("{line}\n"),
        }
    }
    file.assert_eq(&found);
}

/// The content of a message; re-encoding must restore the bytes.
#[track_caller]
fn describe_message(kind: &str, bytes: &[u8], what: &str) -> String {
    if kind == "exponential" {
        let point = ExponentialHistogramDataPoint::from_bytes(bytes).unwrap();
        assert_eq!(point.to_bytes(), bytes, "{what}");
        if let Ok(Some(histogram)) = point.to_histogram() {
            let written = ExponentialHistogramDataPoint::from_histogram(&histogram).unwrap();
            assert_eq!(written.to_histogram(), Ok(Some(histogram)), "{what}");
        }
        return describe_result(point.to_histogram());
    }
    let point = HistogramDataPoint::from_bytes(bytes).unwrap();
    assert_eq!(point.to_bytes(), bytes, "{what}");
    if let Ok(Some(histogram)) = point.to_histogram() {
        let written = HistogramDataPoint::from_histogram(&histogram).unwrap();
        assert_eq!(written.to_histogram(), Ok(Some(histogram)), "{what}");
    }
    describe_result(point.to_histogram())
}

#[test]
fn messages_of_the_go_library_are_read_and_written_back() {
    let file = expect_test::expect_file!["../../../../testdata/hist/otlp/points.tsv"];
    check_table(file, POINTS, describe_message);
    assert_eq!(rows(POINTS).count(), 13);
}

#[test]
fn a_scale_above_8_is_folded_to_8() {
    let point = ExponentialHistogramDataPoint {
        count: 6,
        scale: 20,
        positive: Some(OtlpBuckets { offset: 10_449_964, bucket_counts: vec![1, 2, 3] }),
        ..Default::default()
    };
    let downscaled = point.to_histogram().unwrap().unwrap();
    assert_eq!(downscaled.scheme(), &Scheme::exp2(8).unwrap());
    assert_eq!(downscaled.positive().iter().collect::<Vec<_>>(), [(10_449_964 >> 12, 6)]);

    let kept = ExponentialHistogramDataPoint { scale: 8, ..point }.to_histogram();
    assert!(kept.is_err(), "no double has index 10449964 at scale 8");
    let extreme = ExponentialHistogramDataPoint {
        count: 3,
        scale: i32::MAX,
        positive: Some(OtlpBuckets { offset: -2, bucket_counts: vec![1, 0, 2] }),
        ..Default::default()
    };
    let downscaled = extreme.to_histogram().unwrap().unwrap();
    assert_eq!(downscaled.positive().iter().collect::<Vec<_>>(), [(-1, 1), (0, 2)]);
}

#[test]
fn recorded_value_has_the_data_model_index() {
    // (value, scale, index): powers of two close the bucket below.
    for (value, scale, index) in [
        (1.0, 0, -1),
        (2.0, 0, 0),
        (4.0, 0, 1),
        (4.0, 3, 15),
        (4f64.next_up(), 3, 16),
        (4.0, -1, 0),
        (0.25, -10, -1),
        (f64::MAX, -10, 0),
        (f64::MAX, 8, 262_143),
    ] {
        let mut histogram = Histogram::new(Scheme::exp2(scale).unwrap());
        histogram.record(value);
        histogram.record(-value);
        let point = ExponentialHistogramDataPoint::from_histogram(&histogram).unwrap();
        let bucket = Some(OtlpBuckets { offset: index, bucket_counts: vec![1] });
        assert_eq!((&point.positive, &point.negative), (&bucket, &bucket), "{value:e} at {scale}");
        assert_eq!((point.min, point.max, point.sum), (Some(-value), Some(value), Some(0.0)));
    }
}

#[track_caller]
fn check_error(point: ExponentialHistogramDataPoint, error: &str) {
    assert_eq!(point.to_histogram().unwrap_err().to_string(), error);
}

#[track_caller]
fn check_explicit_error(counts: &[u64], bounds: &[f64], count: u64, error: &str) {
    let point = HistogramDataPoint {
        count,
        bucket_counts: counts.to_vec(),
        explicit_bounds: bounds.to_vec(),
        ..Default::default()
    };
    assert_eq!(point.to_histogram().unwrap_err().to_string(), error);
}

#[test]
fn contradictions_name_both_values() {
    let of = |count, offset, counts: &[u64]| ExponentialHistogramDataPoint {
        count,
        positive: Some(OtlpBuckets { offset, bucket_counts: counts.to_vec() }),
        ..Default::default()
    };
    check_error(of(7, 0, &[1, 2]), "count is 7, expected 3, the sum of the bucket counts");
    check_error(
        of(7, 0, &[u64::MAX, u64::MAX]),
        "count is 7, expected 36893488147419103230, the sum of the bucket counts",
    );
    check_error(
        of(1, i32::MAX, &[0, 1]),
        "offset is 2147483647 with 2 counts, expected a last index below 2^31",
    );
    check_error(
        of(1, i32::MAX, &[1]),
        "bucket index 2147483647 is outside the grid (exp2 scale 0)",
    );
    check_error(of(1, 1024, &[1]), "bucket index 1024 is outside the grid (exp2 scale 0)");
    check_error(
        ExponentialHistogramDataPoint { scale: -11, ..Default::default() },
        "scale is -11, expected -10..=2147483647",
    );
    check_error(
        ExponentialHistogramDataPoint { zero_threshold: f64::NAN, ..Default::default() },
        "invalid zero threshold NaN: must be finite and not negative",
    );
    check_explicit_error(
        &[1, 1],
        &[],
        2,
        "number of bucket_counts is 2, expected 1, one more than the bounds",
    );
    check_explicit_error(
        &[],
        &[1.0],
        0,
        "number of bucket_counts is 0, expected 2, one more than the bounds",
    );
    check_explicit_error(
        &[1, 1],
        &[1.0],
        3,
        "count is 3, expected 2, the sum of the bucket counts",
    );
    check_explicit_error(
        &[0, 1, 0],
        &[2.0, 1.0],
        1,
        "invalid bound 1 at position 1: not finite or not above the previous bound",
    );
    check_explicit_error(
        &[1, 0],
        &[f64::NAN],
        1,
        "invalid bound NaN at position 0: not finite or not above the previous bound",
    );
}

#[test]
fn zeros_after_the_last_index_are_ignored() {
    let point = ExponentialHistogramDataPoint {
        positive: Some(OtlpBuckets { offset: i32::MAX, bucket_counts: vec![] }),
        ..Default::default()
    };
    assert_eq!(point.to_histogram(), Ok(Some(Histogram::new(Scheme::exp2(0).unwrap()))));
}

#[test]
fn unrepresentable_histograms_are_rejected() {
    let with = |value| {
        let mut histogram = Histogram::default();
        histogram.record(value);
        ExponentialHistogramDataPoint::from_histogram(&histogram).unwrap_err().to_string()
    };
    assert_eq!(with(f64::NAN), "OTLP cannot represent 1 NaN values");
    assert_eq!(with(f64::INFINITY), "OTLP cannot represent 1 values above the largest bucket");
    assert_eq!(with(f64::NEG_INFINITY), "OTLP cannot represent 1 values below the smallest bucket");
    let explicit = Histogram::new(Scheme::explicit(&[1.0]).unwrap());
    assert!(ExponentialHistogramDataPoint::from_histogram(&explicit).is_err());
    assert!(HistogramDataPoint::from_histogram(&Histogram::default()).is_err());
}

/// Magnitudes whose sums stay finite, with counts.
pub(crate) fn values() -> impl Strategy<Value = Vec<(f64, u64)>> {
    let value = prop_oneof![
        8 => -1e9..1e9f64,
        4 => (-290i32..290).prop_map(|exponent| 10f64.powi(exponent)),
        1 => Just(0.0),
        1 => Just(f64::from_bits(1)),
        1 => Just(-f64::MIN_POSITIVE),
    ];
    proptest::collection::vec((value, 1..1u64 << 40), 0..40)
}

pub(crate) fn histogram(scheme: Scheme, values: &[(f64, u64)], zero: f64) -> Histogram {
    let mut histogram = Histogram::new(scheme).with_zero_threshold(zero).unwrap();
    for &(value, count) in values {
        histogram.record_n(value, count);
    }
    histogram
}

/// Equal in all fields of the message: sums are rounded to a double.
#[track_caller]
pub(crate) fn assert_same(found: &Histogram, expected: &Histogram, extremes: bool) {
    let (mut a, mut b) = (found.clone().into_parts(), expected.clone().into_parts());
    let sums = |side: TrackedValue<hist::DoubleDouble>| side.value().map(hist::DoubleDouble::value);
    assert_eq!(sums(a.sum), sums(b.sum));
    (a.sum, b.sum) = (TrackedValue::Absent, TrackedValue::Absent);
    if !extremes {
        (b.min, b.max) = (a.min, a.max);
    }
    assert_eq!(a, b);
}

/// Bytes changed, removed and duplicated at random.
pub(crate) fn mutate(mut bytes: Vec<u8>, changes: &[(usize, u8, u8)]) -> Vec<u8> {
    for &(at, byte, kind) in changes {
        let at = at % (bytes.len() + 1);
        match kind % 4 {
            0 if at < bytes.len() => bytes[at] = byte,
            1 if at < bytes.len() => drop(bytes.remove(at)),
            2 => bytes.insert(at, byte),
            _ => bytes.truncate(at.max(bytes.len() / 2)),
        }
    }
    bytes
}

pub(crate) fn changes() -> impl Strategy<Value = Vec<(usize, u8, u8)>> {
    proptest::collection::vec(any::<(usize, u8, u8)>(), 1..6)
}

fn read_all(bytes: &[u8]) {
    if let Ok(point) = ExponentialHistogramDataPoint::from_bytes(bytes)
        && let Ok(Some(histogram)) = point.to_histogram()
    {
        ExponentialHistogramDataPoint::from_histogram(&histogram).unwrap();
    }
    if let Ok(point) = HistogramDataPoint::from_bytes(bytes)
        && let Ok(Some(histogram)) = point.to_histogram()
    {
        HistogramDataPoint::from_histogram(&histogram).unwrap();
    }
}

proptest! {
    #[test]
    fn exponential_points_keep_everything(
        values in values(),
        scale in i32::from(Exp2::SCALE_MIN)..=8,
        zero in prop_oneof![Just(0.0), Just(1e-6)],
    ) {
        let histogram = histogram(Scheme::exp2(scale).unwrap(), &values, zero);
        let bytes = ExponentialHistogramDataPoint::from_histogram(&histogram).unwrap().to_bytes();
        let point = ExponentialHistogramDataPoint::from_bytes(&bytes).unwrap();
        assert_same(&point.to_histogram().unwrap().unwrap(), &histogram, true);
    }

    #[test]
    fn explicit_points_keep_everything(
        values in values(),
        bounds in proptest::collection::btree_set(-1000i32..1000, 0..20),
    ) {
        let bounds: Vec<f64> = bounds.into_iter().map(|bound| f64::from(bound) / 8.0).collect();
        let histogram = histogram(Scheme::explicit(&bounds).unwrap(), &values, 0.0);
        let bytes = HistogramDataPoint::from_histogram(&histogram).unwrap().to_bytes();
        let point = HistogramDataPoint::from_bytes(&bytes).unwrap();
        assert_same(&point.to_histogram().unwrap().unwrap(), &histogram, true);
    }

    #[test]
    fn random_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        read_all(&bytes);
    }

    #[test]
    fn damaged_messages_do_not_panic(row in 0..13usize, changes in changes()) {
        let row = rows(POINTS).nth(row).unwrap();
        read_all(&mutate(unhex(row[1]), &changes));
    }
}

/// Number and name of each field in the table under a heading of a page.
pub(crate) fn fields_in_page(page: &str, heading: &str) -> Vec<(u64, String)> {
    let (_, section) =
        page.split_once(&format!("## {heading}\n")).expect("the page has the heading");
    section
        .lines()
        .take_while(|line| !line.starts_with("## "))
        .filter_map(|line| {
            let mut cells = line.strip_prefix("| ")?.split(" | ");
            let number = cells.next()?.trim().parse().ok()?;
            Some((number, cells.next()?.trim().trim_matches('`').to_string()))
        })
        .collect()
}

/// Number of the only field of a message, and its content.
fn only_field(bytes: &[u8]) -> (u64, codecs::protobuf::FieldValue<'_>) {
    let field = codecs::protobuf::MessageReader::new(bytes).field().expect("a message");
    let (number, field) = field.expect("a field is set");
    (number.into(), field)
}

pub(crate) fn field_number(bytes: &[u8]) -> u64 {
    only_field(bytes).0
}

/// The number of the one field of the one message that a message holds.
pub(crate) fn inner_field_number(bytes: &[u8]) -> u64 {
    field_number(only_field(bytes).1.bytes().expect("a message in it"))
}

#[test]
fn page_and_code_agree_on_field_numbers() {
    type Point = ExponentialHistogramDataPoint;
    let one = || vec![vec![0]];
    let buckets = || Some(OtlpBuckets::default());
    let fields: [(&str, Point); 14] = [
        ("attributes", Point { attributes: one(), ..Default::default() }),
        ("start_time_unix_nano", Point { start_time_unix_nano: 1, ..Default::default() }),
        ("time_unix_nano", Point { time_unix_nano: 1, ..Default::default() }),
        ("count", Point { count: 1, ..Default::default() }),
        ("sum", Point { sum: Some(1.0), ..Default::default() }),
        ("scale", Point { scale: 1, ..Default::default() }),
        ("zero_count", Point { zero_count: 1, ..Default::default() }),
        ("positive", Point { positive: buckets(), ..Default::default() }),
        ("negative", Point { negative: buckets(), ..Default::default() }),
        ("flags", Point { flags: 1, ..Default::default() }),
        ("exemplars", Point { exemplars: one(), ..Default::default() }),
        ("min", Point { min: Some(1.0), ..Default::default() }),
        ("max", Point { max: Some(1.0), ..Default::default() }),
        ("zero_threshold", Point { zero_threshold: 1.0, ..Default::default() }),
    ];
    let coded = fields.map(|(name, point)| (field_number(&point.to_bytes()), name.to_string()));
    assert_eq!(fields_in_page(PAGE, "ExponentialHistogramDataPoint"), coded);

    let fields = [
        ("offset", OtlpBuckets { offset: 1, ..Default::default() }),
        ("bucket_counts", OtlpBuckets { bucket_counts: vec![1], ..Default::default() }),
    ];
    let coded = fields.map(|(name, buckets)| {
        let point = Point { positive: Some(buckets), ..Default::default() };
        (inner_field_number(&point.to_bytes()), name.to_string())
    });
    assert_eq!(fields_in_page(PAGE, "Buckets"), coded);

    type Explicit = HistogramDataPoint;
    let fields: [(&str, Explicit); 11] = [
        ("start_time_unix_nano", Explicit { start_time_unix_nano: 1, ..Default::default() }),
        ("time_unix_nano", Explicit { time_unix_nano: 1, ..Default::default() }),
        ("count", Explicit { count: 1, ..Default::default() }),
        ("sum", Explicit { sum: Some(1.0), ..Default::default() }),
        ("bucket_counts", Explicit { bucket_counts: vec![1], ..Default::default() }),
        ("explicit_bounds", Explicit { explicit_bounds: vec![1.0], ..Default::default() }),
        ("exemplars", Explicit { exemplars: one(), ..Default::default() }),
        ("attributes", Explicit { attributes: one(), ..Default::default() }),
        ("flags", Explicit { flags: 1, ..Default::default() }),
        ("min", Explicit { min: Some(1.0), ..Default::default() }),
        ("max", Explicit { max: Some(1.0), ..Default::default() }),
    ];
    let coded = fields.map(|(name, point)| (field_number(&point.to_bytes()), name.to_string()));
    assert_eq!(fields_in_page(PAGE, "HistogramDataPoint"), coded);
}
