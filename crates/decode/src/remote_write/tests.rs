//! Tests with handwritten requests and requests of Prometheus' own library
//! (`testdata/decode/prometheus/make/main.go`).

use codecs::prometheus::STALE_MARKER;
use model::SampleValue;
use model::selector::kind_name;

use super::*;
use crate::series_sink::VecSeriesSink;

const V1: &[u8] = include_bytes!("../../../../testdata/decode/prometheus/write_v1.snappy");
const V2: &[u8] = include_bytes!("../../../../testdata/decode/prometheus/write_v2.snappy");

/// A length-delimited field.
fn bytes(number: u8, content: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    assert!(content.len() < 1 << 14, "a two-byte length");
    field.extend([content.len() as u8 & 0x7f | 0x80, (content.len() >> 7) as u8]);
    field.extend(content);
    field
}

fn varint(number: u8, mut value: u64) -> Vec<u8> {
    let mut field = vec![number << 3];
    while value >= 0x80 {
        field.push(value as u8 | 0x80);
        value >>= 7;
    }
    field.push(value as u8);
    field
}

fn double(number: u8, value: f64) -> Vec<u8> {
    [&[number << 3 | 1][..], &value.to_le_bytes()].concat()
}

fn sample(value: f64, time: i64) -> Vec<u8> {
    bytes(2, &[double(1, value), varint(2, time as u64)].concat())
}

fn series_v1(labels: &[(&str, &str)], rest: &[Vec<u8>]) -> Vec<u8> {
    let label = |(name, value): &(&str, &str)| {
        bytes(1, &[bytes(1, name.as_bytes()), bytes(2, value.as_bytes())].concat())
    };
    let labels: Vec<u8> = labels.iter().flat_map(label).collect();
    bytes(1, &[labels, rest.concat()].concat())
}

fn series_v2(refs: &[u8], rest: &[Vec<u8>]) -> Vec<u8> {
    bytes(5, &[bytes(1, refs), rest.concat()].concat())
}

fn symbols(symbols: &[&str]) -> Vec<u8> {
    symbols.iter().flat_map(|symbol| bytes(4, symbol.as_bytes())).collect()
}

/// One row per line, times in milliseconds: `kind series [unit] start..end value`.
fn dump_rows(rows: &VecSeriesSink) -> Vec<String> {
    let line = |(series, sample): &(model::Series, model::Sample)| {
        let value = match &sample.value {
            SampleValue::Number(number) if number.to_bits() == STALE_MARKER => "stale".to_owned(),
            SampleValue::Number(number) => number.to_string(),
            SampleValue::Histogram(histogram) => {
                let cell = |cell: hist::Cell| {
                    format!("{:.3}..{:.3}={}", cell.lower, cell.upper, cell.count)
                };
                let cells: Vec<String> = histogram.cells().map(cell).collect();
                format!("{} in {}: {}", histogram.count(), histogram.scheme(), cells.join(" "))
            }
            SampleValue::Text(text) => text.clone(),
        };
        let unit = series.unit();
        let (start, end) = (sample.start / 1_000_000, sample.end / 1_000_000);
        format!("{} {series} [{unit}] {start}..{end} {value}", kind_name(series.kind()))
    };
    rows.rows.iter().map(line).collect()
}

#[track_caller]
fn check(
    version: RemoteWriteVersion,
    body: &[u8],
    expected: &[&str],
    errors: &[&str],
) -> WriteSummary {
    let mut rows = VecSeriesSink::default();
    let written = read_request(version, body, &mut rows).unwrap();
    assert_eq!(dump_rows(&rows), expected);
    assert_eq!(written.errors, errors);
    assert_eq!(written.samples + written.histograms, expected.len() as u64);
    assert_eq!(written.exemplars, rows.exemplars.len() as u64);
    written
}

#[track_caller]
fn check_error(version: RemoteWriteVersion, body: &[u8], expected: &str) {
    let error = read_request(version, body, &mut VecSeriesSink::default()).unwrap_err();
    assert_eq!(error.to_string(), expected);
}

#[test]
fn prometheus_requests_are_read() {
    let half = "\"half_seconds\": positive counts is 0.5, expected a whole number up to 2^53";
    for (version, body, expected) in [
        (
            RemoteWriteVersion::V1,
            V1,
            include_str!("../../../../testdata/decode/prometheus/write_v1.txt"),
        ),
        (
            RemoteWriteVersion::V2,
            V2,
            include_str!("../../../../testdata/decode/prometheus/write_v2.txt"),
        ),
    ] {
        let expected: Vec<&str> = expected.lines().collect();
        let body = decompress(body, 1 << 20).unwrap();
        let written = check(version, &body, &expected, &[half]);
        assert_eq!((written.samples, written.histograms, written.rejected), (12, 5, 1));
    }
}

/// The help texts of Prometheus were lost.
#[test]
fn help_texts_are_passed_on() {
    let labels = [("__name__", "a_total")];
    let family = |name: &[u8], help: &[u8]| {
        bytes(3, &[varint(1, 1), bytes(2, name), bytes(4, help)].concat())
    };
    let v1 = [
        series_v1(&labels, &[sample(1.0, 7)]),
        family(b"a_total", b"Requests."),
        family(b"without_help", b""),
    ];
    let texts = ["", "__name__", "a_total", "Requests.", "without_help"];
    let metadata = |help: u64| bytes(5, &[varint(1, 1), varint(3, help)].concat());
    let v2 = [
        symbols(&texts),
        series_v2(&[1, 2], &[sample(1.0, 7), metadata(3)]),
        series_v2(&[1, 4], &[sample(1.0, 7), metadata(0)]),
    ];
    for (version, body) in
        [(RemoteWriteVersion::V1, v1.concat()), (RemoteWriteVersion::V2, v2.concat())]
    {
        let mut rows = VecSeriesSink::default();
        read_request(version, &body, &mut rows).unwrap();
        let expected = [("a_total".to_owned(), "Requests.".to_owned())];
        assert_eq!(rows.descriptions, expected, "{version:?}");
    }
}

#[test]
fn kinds_follow_names_in_version_1() {
    let name = |name| [("__name__", name), ("z", "1"), ("a", "")];
    for (metric, kind) in [
        ("a_total", "cumulative-counter"),
        ("a_bucket", "cumulative-counter"),
        ("a_sum", "cumulative-counter"),
        ("a_count", "cumulative-counter"),
        ("a", "gauge"),
        ("a_total_now", "gauge"),
    ] {
        let body = series_v1(&name(metric), &[sample(1.5, 7)]);
        check(
            RemoteWriteVersion::V1,
            &body,
            &[&format!("{kind} {metric}{{z=\"1\"}} [] 7..7 1.5")],
            &[],
        );
    }
}

#[test]
fn labels_may_be_in_any_order() {
    let before = series_v1(&[("__name__", "a")], &[sample(1.0, 1)]);
    let label = bytes(1, &[bytes(1, b"b"), bytes(2, b"c")].concat());
    let mut body = bytes(1, &[sample(1.0, 1), label].concat());
    check(
        RemoteWriteVersion::V1,
        &[before.clone(), body.clone()].concat(),
        &["gauge a [] 1..1 1"],
        &["a series without name: missing metric name"],
    );
    body = bytes(1, &[sample(1.0, 1), before[3..].to_vec()].concat());
    check(RemoteWriteVersion::V1, &body, &["gauge a [] 1..1 1", "gauge a [] 1..1 1"], &[]);
}

#[test]
fn invalid_series_are_rejected_and_the_rest_accepted() {
    let good = series_v1(&[("__name__", "good")], &[sample(1.0, 1)]);
    for (labels, error) in [
        (&[("a", "b")][..], "a series without name: missing metric name"),
        (&[("__name__", "")], "nothing: missing metric name"),
        (&[("__name__", "x"), ("a", "1"), ("a", "2")], "\"x\": duplicate label \"a\""),
        (&[("__name__", "x"), ("__name__", "y")], "\"y\": duplicate label \"__name__\""),
        (&[("__name__", "x"), ("", "1")], "\"x\": invalid label name: 0 bytes, allowed 1 to 1024"),
    ] {
        let bad = series_v1(labels, &[sample(1.0, 1), sample(2.0, 2)]);
        let body = [bad, good.clone()].concat();
        let written = check(RemoteWriteVersion::V1, &body, &["gauge good [] 1..1 1"], &[error]);
        assert_eq!((written.samples, written.rejected), (1, 2), "{error}");
    }
    let body = series_v1(&[("__name__", "x")], &[sample(1.0, i64::MAX), sample(1.0, 1)]);
    let far = "\"x\": timestamp 9223372036854775807 ms is out of range";
    check(RemoteWriteVersion::V1, &body, &["gauge x [] 1..1 1"], &[far]);
}

#[test]
fn invalid_utf8_is_rejected() {
    let label = bytes(1, &[bytes(1, b"__name__"), bytes(2, b"\xff\n")].concat());
    let body = bytes(1, &[label, sample(1.0, 1)].concat());
    let error = "a series without name: \"\u{fffd}\\n\" is not UTF-8";
    assert_eq!(check(RemoteWriteVersion::V1, &body, &[], &[error]).rejected, 1);
}

#[test]
fn created_timestamp_of_both_drafts_is_read() {
    let symbols = symbols(&["", "__name__", "a_total", "a", "s"]);
    let started = bytes(2, &[double(1, 5.0), varint(2, 90), varint(3, 30)].concat());
    let with = |refs, rest: &[Vec<u8>]| [symbols.clone(), series_v2(refs, rest)].concat();
    let later = "cumulative-counter a_total [] 30..90 5";
    check(RemoteWriteVersion::V2, &with(&[1, 2], std::slice::from_ref(&started)), &[later], &[]);
    let rc3 = [varint(6, 40), sample(5.0, 90), started.clone()];
    let both = ["cumulative-counter a_total [] 40..90 5", later];
    check(RemoteWriteVersion::V2, &with(&[1, 2], &rc3), &both, &[]);
    // Not for gauges, and not if the start is after the sample.
    check(RemoteWriteVersion::V2, &with(&[1, 3], &[started]), &["gauge a [] 90..90 5"], &[]);
    let late = [varint(6, 91), sample(5.0, 90)];
    check(
        RemoteWriteVersion::V2,
        &with(&[1, 2], &late),
        &["cumulative-counter a_total [] 90..90 5"],
        &[],
    );
}

#[test]
fn metadata_sets_kind_and_unit() {
    let symbols = symbols(&["", "__name__", "a", "seconds", "a_count", "widgets"]);
    let metadata = |kind, unit| bytes(5, &[varint(1, kind), varint(4, unit)].concat());
    let one = |refs: &[u8], kind, unit, expected: &str| {
        let rest = [sample(1.0, 1), metadata(kind, unit)];
        check(
            RemoteWriteVersion::V2,
            &[symbols.clone(), series_v2(refs, &rest)].concat(),
            &[expected],
            &[],
        );
    };
    one(&[1, 2], 1, 3, "cumulative-counter a [s] 1..1 1");
    one(&[1, 2], 2, 5, "gauge a [widgets] 1..1 1");
    one(&[1, 4], 2, 0, "gauge a_count [] 1..1 1");
    one(&[1, 4], 3, 3, "cumulative-counter a_count [] 1..1 1");
    one(&[1, 4], 4, 3, "gauge a_count [] 1..1 1");
    one(&[1, 2], 99, 3, "gauge a [s] 1..1 1");
}

#[test]
fn dangling_symbol_references_are_rejected() {
    let symbols = symbols(&["", "__name__", "a"]);
    let with = |rest: Vec<u8>| [symbols.clone(), rest].concat();
    let nowhere = "a series needs at most 65 label references and a unit, all within 3 symbols";
    for refs in [&[1, 9][..], &[1, 2, 1], &[1; 132]] {
        let body = with(series_v2(refs, &[sample(1.0, 1), sample(1.0, 2)]));
        assert_eq!(check(RemoteWriteVersion::V2, &body, &[], &[nowhere]).rejected, 2);
    }
    let neither = "\"a\": neither samples nor histograms";
    assert_eq!(
        check(RemoteWriteVersion::V2, &with(series_v2(&[1, 2], &[])), &[], &[neither]).rejected,
        1
    );
    // Symbols may follow their references.
    let body = [series_v2(&[1, 2], &[sample(1.0, 1)]), symbols.clone()].concat();
    check(RemoteWriteVersion::V2, &body, &["gauge a [] 1..1 1"], &[]);
}

#[test]
fn small_request_cannot_expand_without_bound() {
    let long = "x".repeat(15_000);
    let one = series_v2(&[1, 2, 2, 2], &[sample(1.0, 1)]);
    let body = [symbols(&["", "__name__", &long]), one.repeat(3_000)].concat();
    check_error(
        RemoteWriteVersion::V2,
        &body,
        "byte 0: expected labels of at most 67108864 bytes in all, found more; send fewer series \
         per request",
    );
}

#[test]
fn request_of_the_other_version_is_rejected() {
    let (v1, v2) = (decompress(V1, 1 << 20).unwrap(), decompress(V2, 1 << 20).unwrap());
    check_error(
        RemoteWriteVersion::V1,
        &v2,
        "byte 0: expected a request of version 1, found a request of version 2",
    );
    check_error(
        RemoteWriteVersion::V2,
        &v1,
        "byte 0: expected a request of version 2, found a request of version 1",
    );
    let cut = "expected the rest of a field, found the end of the message";
    check_error(
        RemoteWriteVersion::V1,
        &v1[..v1.len() - 1],
        &format!("byte {}: {cut}", v1.len() - 30),
    );
    check_error(
        RemoteWriteVersion::V2,
        &symbols(&["a"]),
        "byte 0: expected an empty first symbol, found another",
    );
}

#[test]
fn snappy_length_is_checked_before_decompression() {
    let error = |body: &[u8], max| decompress(body, max).unwrap_err().to_string();
    let length = decompress(V1, 1 << 20).unwrap().len();
    assert!(decompress(V1, length).is_ok());
    assert_eq!(
        error(V1, length - 1),
        format!("byte 0: expected at most {} bytes when decompressed, found {length}", length - 1)
    );
    // 2^31 bytes from a six-byte body.
    assert_eq!(
        error(&[0x80, 0x80, 0x80, 0x80, 0x08, 0], usize::MAX),
        "byte 0: expected a whole block of snappy; compress the body in snappy's block format, \
         found 6 bytes that would become 2147483648"
    );
    assert!(decompress(&V1[..V1.len() - 1], 1 << 20).is_err());
    assert!(decompress(b"", 1).is_err());
    let zeros = snap::raw::Encoder::new().compress_vec(&vec![0; 1 << 20]).unwrap();
    assert_eq!(decompress(&zeros, 1 << 20), Ok(vec![0; 1 << 20]));
}

/// One line per exemplar: kind, series, value, time in milliseconds, trace, attributes; problems.
fn dump_exemplars(version: RemoteWriteVersion, body: &[u8]) -> Vec<String> {
    let mut rows = VecSeriesSink::default();
    let written = read_request(version, body, &mut rows).unwrap();
    assert_eq!(written.errors, [""; 0]);
    assert_eq!(written.exemplars, rows.exemplars.len() as u64);
    let line = |(series, of): &(model::Series, model::Exemplar)| {
        let (kind, trace) = (kind_name(series.kind()), u128::from_be_bytes(of.trace_id));
        let attributes: Vec<(&str, &str)> = of.attributes.iter().collect();
        format!("{kind} {series} {} @{} {trace:x} {attributes:?}", of.value, of.time / 1_000_000)
    };
    let problems = rows.exemplar_problems.iter().map(|problem| problem.name().to_owned());
    rows.exemplars.iter().map(line).chain(problems).collect()
}

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

fn exemplar_v1(number: u8, labels: &[(&str, &str)], value: f64, time: u64) -> Vec<u8> {
    let label = |(name, value): &(&str, &str)| {
        bytes(1, &[bytes(1, name.as_bytes()), bytes(2, value.as_bytes())].concat())
    };
    let labels: Vec<u8> = labels.iter().flat_map(label).collect();
    bytes(number, &[labels, double(2, value), varint(3, time)].concat())
}

/// Prometheus sends exemplars as series without samples.
#[test]
fn exemplars_of_version_1_belong_to_their_series() {
    let traced = |value| exemplar_v1(3, &[("trace_id", TRACE), ("user", "u1")], value, 7);
    let bucket = &[("__name__", "took_bucket"), ("le", "0.5")];
    let body = [
        series_v1(bucket, &[sample(1.0, 5)]),
        series_v1(bucket, &[traced(0.25)]),
        series_v1(&[("__name__", "native")], &[traced(2.0), traced(3.0)]),
        series_v1(&[("__name__", "depth")], &[sample(1.0, 5), traced(4.0)]),
        series_v1(&[("__name__", "x_total")], &[traced(f64::INFINITY)]),
        series_v1(&[("__name__", "x_total")], &[exemplar_v1(3, &[], 1.0, u64::MAX / 2)]),
        series_v1(&[("__name__", "x_total")], &[bytes(3, &bytes(1, &[0xff]))]),
        // Without a time it has that of its sample.
        series_v1(&[("__name__", "depth")], &[sample(1.0, 5), exemplar_v1(3, &[], 4.5, 0)]),
        series_v1(&[("__name__", "depth")], &[exemplar_v1(3, &[], 4.5, 0)]),
    ];
    let ids = "af7651916cd43dd8448eb211c80319c [(\"user\", \"u1\")]";
    assert_eq!(
        dump_exemplars(RemoteWriteVersion::V1, &body.concat()),
        [
            &format!("cumulative-counter took_bucket{{le=\"0.5\"}} 0.25 @7 {ids}"),
            &format!("cumulative-histogram native 2 @7 {ids}"),
            &format!("cumulative-histogram native 3 @7 {ids}"),
            &format!("gauge depth 4 @7 {ids}"),
            "gauge depth 4.5 @5 0 []",
            "invalid_value",
            "invalid_time",
            "malformed",
            "invalid_time",
        ]
    );
}

#[test]
fn exemplars_of_version_2_refer_to_symbols() {
    let long = "x".repeat(1000);
    let texts = symbols(&["", "__name__", "took", "trace_id", TRACE, "user", "u1", &long]);
    let exemplar = |refs: &[u8]| bytes(4, &[bytes(1, refs), double(2, 0.5), varint(3, 9)].concat());
    let histogram = bytes(5, &varint(1, 3));
    let series = |refs: &[u8]| series_v2(&[1, 2], &[exemplar(refs), histogram.clone()]);
    let body = [texts, series(&[3, 4, 5, 6]), series(&[5, 7]), series(&[5]), series(&[5, 9])];
    let cut = &long[..256];
    assert_eq!(
        dump_exemplars(RemoteWriteVersion::V2, &body.concat()),
        [
            "cumulative-histogram took 0.5 @9 af7651916cd43dd8448eb211c80319c [(\"user\", \"u1\")]",
            &format!("cumulative-histogram took 0.5 @9 0 [(\"user\", \"{cut}\")]"),
            "truncated",
            "malformed",
            "malformed",
        ]
    );
}
