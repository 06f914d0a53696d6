//! Tests against the official types: prost and serde encode the requests, and an independent model
//! computes the expected rows.

mod official;

use codecs::prometheus::STALE_MARKER;
use hist::codec::header::Temporality::{Cumulative, Delta};
use model::selector::kind_name;
use model::{Sample, SampleValue, Series, SeriesKind};
use opentelemetry_proto::tonic::metrics::v1::exemplar::Value as ExemplarValue;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value::{AsDouble, AsInt};
use opentelemetry_proto::tonic::metrics::v1::{
    Exemplar, ExponentialHistogram, ExponentialHistogramDataPoint, Gauge, Histogram,
    HistogramDataPoint, NumberDataPoint, Sum, Summary, SummaryDataPoint,
    exponential_histogram_data_point::Buckets, summary_data_point::ValueAtQuantile,
};
use prost::Message as _;

use super::*;
use crate::series_sink::VecSeriesSink;
use official::{attribute, request};

const NOW: i64 = 1_700_000_000_000_000_000;

fn number(value: f64) -> NumberDataPoint {
    NumberDataPoint { time_unix_nano: 20, value: Some(AsDouble(value)), ..Default::default() }
}

/// Rows of a metric, one per line, followed by the rejected points.
fn dump_rows(data: Data, unit: &str) -> String {
    let request = request("m", unit, data);
    let (mut rows, mut from_json) = (VecSeriesSink::default(), VecSeriesSink::default());
    let summary = read_protobuf(&request.encode_to_vec(), NOW, &mut rows).unwrap();
    let json = serde_json::to_vec(&request).unwrap();
    assert_eq!(read_json(&json, NOW, &mut from_json).as_ref(), Ok(&summary));
    assert_eq!(lines(&rows), lines(&from_json));
    lines(&rows) + &summary.errors.join("\n")
}

fn lines(rows: &VecSeriesSink) -> String {
    rows.rows.iter().map(|(series, sample)| line(series, sample) + "\n").collect()
}

fn line(series: &Series, Sample { start, end, value }: &Sample) -> String {
    let value = match value {
        SampleValue::Number(x) if x.to_bits() == STALE_MARKER => "no more".to_owned(),
        SampleValue::Number(x) => x.to_string(),
        SampleValue::Histogram(histogram) => {
            let cells = histogram.cells();
            let cells: Vec<String> =
                cells.map(|c| format!("{}..{}={}", c.lower, c.upper, c.count)).collect();
            let (sum, min) = (histogram.tracked_sum().value(), histogram.tracked_min());
            format!("{} sum {:?} min {min}", cells.join(" "), sum.map(hist::DoubleDouble::value))
        }
        SampleValue::Text(text) => text.clone(),
    };
    let unit = series.unit();
    format!("{} {series} [{unit}] {start}..{end}: {value}", kind_name(series.kind()))
}

#[track_caller]
fn check(data: Data, expected: &str) {
    assert_eq!(dump_rows(data, "1"), expected);
}

fn sum(temporality: i32, is_monotonic: bool, point: NumberDataPoint) -> Data {
    Data::Sum(Sum { data_points: vec![point], aggregation_temporality: temporality, is_monotonic })
}

#[test]
fn gauges_and_sums() {
    let gauge = |point| Data::Gauge(Gauge { data_points: vec![point] });
    let started = |x| NumberDataPoint { start_time_unix_nano: 10, ..number(x) };
    check(gauge(started(1.5)), "gauge m [] 20..20: 1.5\n");
    let whole = NumberDataPoint { value: Some(AsInt(-7)), time_unix_nano: 0, ..number(0.0) };
    check(gauge(whole), &format!("gauge m [] {NOW}..{NOW}: -7\n"));
    check(sum(1, true, started(2.0)), "delta-counter m [] 10..20: 2\n");
    check(sum(1, false, started(-2.0)), "delta-counter m [] 10..20: -2\n");
    check(sum(2, true, started(2.0)), "cumulative-counter m [] 10..20: 2\n");
    check(sum(2, true, number(2.0)), "cumulative-counter m [] 20..20: 2\n");
    check(sum(2, false, started(2.0)), "gauge m [] 20..20: 2\n");
}

#[test]
fn points_without_value() {
    let none = NumberDataPoint { flags: 1, value: None, ..number(0.0) };
    check(Data::Gauge(Gauge { data_points: vec![none.clone()] }), "gauge m [] 20..20: no more\n");
    let mut rows = VecSeriesSink::default();
    let body = request("m", "", sum(2, true, none.clone())).encode_to_vec();
    let summary = read_protobuf(&body, NOW, &mut rows).unwrap();
    assert_eq!((summary.points, summary.skipped, summary.rejected, rows.rows.len()), (0, 1, 0, 0));
    check(
        sum(2, true, NumberDataPoint { flags: 0, ..none }),
        "metric \"m\": point without a value",
    );
}

#[test]
fn invalid_points_are_reported_and_the_rest_accepted() {
    check(
        sum(0, true, number(1.0)),
        "metric \"m\": aggregation temporality is neither delta (1) nor cumulative (2)",
    );
    let late = NumberDataPoint { start_time_unix_nano: 30, ..number(1.0) };
    check(sum(1, true, late), "metric \"m\": start 30 ns is after end 20 ns");
    let far = NumberDataPoint { time_unix_nano: u64::MAX, ..number(1.0) };
    let twice = vec![attribute("a", "1"), attribute("a", "2")];
    let points = vec![far, number(1.0), NumberDataPoint { attributes: twice, ..number(2.0) }];
    check(
        Data::Gauge(Gauge { data_points: points }),
        "gauge m [] 20..20: 1\n\
         metric \"m\": time_unix_nano is 18446744073709551615 ns, expected less than 2^63\n\
         metric \"m\": duplicate label \"a\"",
    );
    let many = (0..65).map(|n| attribute(&format!("a{n}"), "x")).collect();
    check(
        Data::Gauge(Gauge {
            data_points: vec![NumberDataPoint { attributes: many, ..number(2.0) }],
        }),
        "metric \"m\": invalid point: 65 attributes, allowed 0 to 64",
    );
}

#[test]
fn histograms() {
    let explicit = HistogramDataPoint {
        start_time_unix_nano: 10,
        time_unix_nano: 20,
        count: 3,
        sum: Some(7.5),
        bucket_counts: vec![1, 2, 0],
        explicit_bounds: vec![1.0, 5.0],
        min: Some(0.5),
        ..Default::default()
    };
    let wrong = HistogramDataPoint { count: 4, ..explicit.clone() };
    let data = Histogram { data_points: vec![explicit, wrong], aggregation_temporality: 2 };
    assert_eq!(
        dump_rows(Data::Histogram(data), "ms"),
        "cumulative-histogram m [ms] 10..20: 0.5..1=1 1.0000000000000002..5=2 sum Some(7.5) min \
         0.5\nmetric \"m\": count is 4, expected 3, the sum of the bucket counts"
    );
    let exponential = ExponentialHistogramDataPoint {
        time_unix_nano: 20,
        count: 4,
        zero_count: 1,
        positive: Some(Buckets { offset: 1, bucket_counts: vec![1, 0, 1] }),
        negative: Some(Buckets { offset: -1, bucket_counts: vec![1] }),
        ..Default::default()
    };
    let fine = ExponentialHistogramDataPoint { scale: 20, ..exponential.clone() };
    let coarse = ExponentialHistogramDataPoint { scale: -11, ..exponential.clone() };
    let data_points = vec![exponential, fine, coarse];
    let data = ExponentialHistogram { data_points, aggregation_temporality: 1 };
    let shown = dump_rows(Data::ExponentialHistogram(data), "By");
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines.len(), 3, "{shown}");
    assert_eq!(
        lines[0],
        "delta-histogram m [B] 20..20: -1..-0.5000000000000001=1 -0..0=1 2.0000000000000004..4=1 \
         8.000000000000002..16=1 sum None min unknown"
    );
    assert_eq!(lines[2], "metric \"m\": scale is -11, expected -10..=2147483647");
}

#[test]
fn summaries() {
    let point = SummaryDataPoint {
        start_time_unix_nano: 10,
        time_unix_nano: 20,
        count: 3,
        sum: 1.5,
        quantile_values: vec![ValueAtQuantile { quantile: 0.99, value: 0.75 }],
        ..Default::default()
    };
    assert_eq!(
        dump_rows(Data::Summary(Summary { data_points: vec![point] }), "s"),
        "cumulative-counter m_count [] 10..20: 3\n\
         cumulative-counter m_sum [s] 10..20: 1.5\n\
         gauge m{quantile=\"0.99\"} [s] 20..20: 0.75\n"
    );
}

#[test]
fn known_series_are_reused_and_others_are_distinct() {
    let with =
        |value: &str| NumberDataPoint { attributes: vec![attribute("a", value)], ..number(1.0) };
    let mut rows = VecSeriesSink::default();
    let gauge = Data::Gauge(Gauge { data_points: vec![with("1"), with("2"), with("1")] });
    read_protobuf(&request("m", "s", gauge).encode_to_vec(), NOW, &mut rows).unwrap();
    read_protobuf(&request("m", "s", sum(1, true, with("1"))).encode_to_vec(), NOW, &mut rows)
        .unwrap();
    let kinds: Vec<(SeriesKind, &str)> =
        rows.rows.iter().map(|(series, _)| (series.kind(), series.label("a").unwrap())).collect();
    let gauge = SeriesKind::Gauge;
    assert_eq!(
        kinds,
        [(gauge, "1"), (gauge, "2"), (gauge, "1"), (SeriesKind::Counter(Delta), "1")]
    );
    assert_ne!(SeriesKind::Counter(Delta), SeriesKind::Counter(Cumulative));
}

#[test]
fn labels_of_all_levels() {
    let json = r#"{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"name":"http.server.duration","unit":"{call}",
        "gauge":{"dataPoints":[{"timeUnixNano":"7","asInt":3,"attributes":[
            {"key":"a","value":{"stringValue":"point"}},
            {"key":"list","value":{"arrayValue":{"values":[{"intValue":"-1"},{"doubleValue":0.5},{},{"boolValue":true}]}}},
            {"key":"map","value":{"kvlistValue":{"values":[{"key":"z","value":{"bytesValue":"AAE="}},{"key":"b","value":{"doubleValue":"NaN"}}]}}},
            {"key":"bytes","value":{"bytesValue":"AAE="}},
            {"key":"whole","value":{"doubleValue":2}},
            {"key":"none","value":{}},
            {"key":"gone","value":{"stringValue":""}}]}]}}],
        "scope":{"name":"lib","version":"1.2","attributes":[{"key":"x","value":{"boolValue":false}}]}}],
        "resource":{"attributes":[
            {"key":"a","value":{"stringValue":"resource"}},
            {"key":"gone","value":{"stringValue":"resource"}},
            {"key":"service.name","value":{"stringValue":"shop"}},
            {"key":"process.command_args","value":{"stringValue":"LONG"}}]}}]}"#;
    let json = json.replace("LONG", &"x".repeat(metric_context::RESOURCE_VALUE_BYTES_MAX + 1));
    let mut rows = VecSeriesSink::default();
    let summary = read_json(json.as_bytes(), NOW, &mut rows).unwrap();
    assert_eq!(summary.errors, [""; 0]);
    assert_eq!(
        lines(&rows),
        "gauge \
         http.server.duration{a=\"point\",bytes=\"AAE=\",list=\"[-1,0.5,null,true]\",map=\"{\\\"b\\\":\\\"NaN\\\",\\\"z\\\":\\\"AAE=\\\"}\",otel_scope_name=\"lib\",otel_scope_version=\"1.2\",otel_scope_x=\"false\",service.name=\"shop\",whole=\"2\"} \
         [{call}] 7..7: 3\n"
    );
}

#[test]
fn oversized_resource_is_rejected() {
    let attributes: Vec<_> = (0..65).map(|n| attribute(&format!("r{n}"), "x")).collect();
    let mut request = request("m", "", sum(1, true, number(1.0)));
    request.resource_metrics[0].resource.get_or_insert_default().attributes = attributes;
    let summary =
        read_protobuf(&request.encode_to_vec(), NOW, &mut VecSeriesSink::default()).unwrap();
    let reason = "metric \"m\": invalid resource or scope: 65 attributes, allowed 0 to 64";
    assert_eq!((summary.rejected, &summary.errors[..]), (1, &[reason.to_owned()][..]));
}

/// "metric nothing: invalid metric name" did not say which one.
#[test]
fn a_metric_without_a_name_is_named_by_its_position() {
    let mut all = request("m", "", sum(1, true, number(1.0)));
    let unnamed = request("", "", sum(1, true, number(1.0)));
    all.resource_metrics.extend(unnamed.resource_metrics);
    let summary = read_protobuf(&all.encode_to_vec(), NOW, &mut VecSeriesSink::default()).unwrap();
    let error = &summary.errors[0];
    assert!(error.starts_with("metric 2 of the request, which has no name: "), "{error}");
    assert_eq!((summary.points, summary.rejected), (1, 1));
}

/// A small request must not expand to gigabytes: one resource of 15 kB and very many series.
#[test]
fn new_series_memory_is_bounded() {
    let points = 8_000;
    let number =
        |n| NumberDataPoint { attributes: vec![attribute("a", &format!("{n}"))], ..number(1.0) };
    let data = Data::Gauge(Gauge { data_points: (0..points).map(number).collect() });
    let mut request = request("m", "", data);
    request.resource_metrics[0].resource.get_or_insert_default().attributes =
        (0..15).map(|n| attribute(&format!("r{n}"), &"x".repeat(1_000))).collect();
    struct CountingSink(u64);
    impl SeriesSink for CountingSink {
        fn series(
            &mut self,
            _: &[u8],
            series: &mut dyn FnMut() -> model::Result<Series>,
        ) -> model::Result<()> {
            series().map(|_| self.0 += 1)
        }
        fn sample(&mut self, _: &Sample) -> model::Result<()> {
            Ok(())
        }
        fn gap(&mut self, _: model::Gap) {}
    }
    let mut rows = CountingSink(0);
    let summary = read_protobuf(&request.encode_to_vec(), NOW, &mut rows).unwrap();
    assert_eq!((summary.points, summary.rejected), (rows.0, points - rows.0));
    assert!((4_000..6_000).contains(&rows.0), "{}", rows.0);
    assert!(summary.errors[0].contains("new series of one request"), "{:?}", summary.errors);
}

#[test]
fn truncated_request_is_rejected_whole() {
    let body = request("m", "", sum(1, true, number(1.0))).encode_to_vec();
    for end in 1..body.len() {
        assert!(read_protobuf(&body[..end], NOW, &mut VecSeriesSink::default()).is_err(), "{end}");
    }
    assert_eq!(read_protobuf(b"", NOW, &mut VecSeriesSink::default()), Ok(OtlpSummary::default()));
}

#[test]
fn non_otlp_json_error_has_its_position() {
    #[track_caller]
    fn check(json: &str, expected: &str) {
        let summary = read_json(json.as_bytes(), NOW, &mut VecSeriesSink::default());
        assert_eq!(summary.map_err(|error| error.to_string()), Err(expected.to_owned()), "{json}");
    }
    check("[]", "byte 0: expected an object, found a list");
    check("{} {}", "byte 3: expected the end of the request, found \"{}\"");
    check(
        r#"{"resourceMetrics":{}}"#,
        "byte 19: expected a list of resourceMetrics, found an object",
    );
    check(
        r#"{"resourceMetrics":[7]}"#,
        "byte 20: expected resourceMetrics as an object, found \"7\"",
    );
    let point = |point: &str| {
        format!(
            r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{{"gauge":{{"dataPoints":[{point}]}}}}]}}]}}]}}"#
        )
    };
    check(
        &point(r#"{"timeUnixNano":"-1"}"#),
        "byte 89: expected timeUnixNano as a whole number from 0 to 2^64 - 1, found \"-1\"",
    );
    check(
        &point(r#"{"asInt":0.5}"#),
        "byte 82: expected asInt as a whole number from -2^63 to 2^63 - 1, found \"0.5\"",
    );
    check(&point("{"), "byte 74: expected a key in quotes or }, found \"]}}]}]}]}\"");
    let fine = point(r#"{"asInt":1e3,"flags":null,"timeUnixNano":1.0,"new":[{}]}"#);
    let mut rows = VecSeriesSink::default();
    assert_eq!(
        read_json(fine.as_bytes(), NOW, &mut rows).unwrap().rejected,
        1,
        "missing metric name"
    );
    let named = fine.replace(r#""gauge""#, r#""name":"m","gauge""#);
    read_json(named.as_bytes(), NOW, &mut rows).unwrap();
    assert_eq!(lines(&rows), "gauge m [] 1..1: 1000\n");
}

fn otlp_exemplar(value: f64, trace: &[u8]) -> Exemplar {
    Exemplar {
        filtered_attributes: vec![attribute("user", "u1")],
        time_unix_nano: 30,
        span_id: vec![2; 8],
        trace_id: trace.to_vec(),
        value: Some(ExemplarValue::AsDouble(value)),
    }
}

/// Exemplars of a metric, one per line, followed by the problems.
fn dump_exemplars(data: Data) -> Vec<String> {
    let request = request("m", "ms", data);
    let (mut rows, mut from_json) = (VecSeriesSink::default(), VecSeriesSink::default());
    read_protobuf(&request.encode_to_vec(), NOW, &mut rows).unwrap();
    read_json(&serde_json::to_vec(&request).unwrap(), NOW, &mut from_json).unwrap();
    let lines = |rows: &VecSeriesSink| {
        let line = |(series, of): &(Series, model::Exemplar)| {
            // The series is that of the sample.
            assert_eq!(rows.rows[0].0, *series);
            let attributes: Vec<(&str, &str)> = of.attributes.iter().collect();
            let (trace, span) = (of.trace_id[0], of.span_id[0]);
            format!("{} @{} {trace} {span} {attributes:?} {}", of.value, of.time, of.source.name())
        };
        let problems = rows.exemplar_problems.iter().map(|problem| problem.name().to_owned());
        rows.exemplars.iter().map(line).chain(problems).collect::<Vec<String>>()
    };
    assert_eq!(lines(&rows), lines(&from_json));
    lines(&rows)
}

#[test]
fn exemplars_of_all_points_are_read() {
    let expected = ["1.5 @30 1 2 [(\"user\", \"u1\")] otlp"];
    let exemplars = || vec![otlp_exemplar(1.5, &[1; 16])];
    let delta = 1;
    let points = vec![NumberDataPoint { exemplars: exemplars(), ..number(7.0) }];
    let sum = Sum { data_points: points, aggregation_temporality: delta, is_monotonic: true };
    assert_eq!(dump_exemplars(Data::Sum(sum)), expected);
    let points = vec![HistogramDataPoint {
        time_unix_nano: 20,
        count: 1,
        bucket_counts: vec![1, 0],
        explicit_bounds: vec![2.0],
        exemplars: exemplars(),
        ..Default::default()
    }];
    let histogram = Histogram { data_points: points, aggregation_temporality: delta };
    assert_eq!(dump_exemplars(Data::Histogram(histogram)), expected);
    let points = vec![ExponentialHistogramDataPoint {
        time_unix_nano: 20,
        count: 1,
        positive: Some(Buckets { offset: 0, bucket_counts: vec![1] }),
        exemplars: exemplars(),
        ..Default::default()
    }];
    let histogram = ExponentialHistogram { data_points: points, aggregation_temporality: delta };
    assert_eq!(dump_exemplars(Data::ExponentialHistogram(histogram)), expected);
}

#[test]
fn malformed_exemplars_are_rejected_and_the_point_is_kept() {
    let exemplars = vec![
        otlp_exemplar(1.0, &[]),
        otlp_exemplar(2.0, &[1; 5]),
        otlp_exemplar(f64::NAN, &[1; 16]),
        Exemplar { value: None, ..otlp_exemplar(3.0, &[1; 16]) },
        Exemplar { time_unix_nano: u64::MAX, ..otlp_exemplar(4.0, &[1; 16]) },
        Exemplar {
            time_unix_nano: 0,
            value: Some(ExemplarValue::AsInt(-5)),
            filtered_attributes: vec![attribute("sql", &"x".repeat(100_000))],
            ..otlp_exemplar(5.0, &[1; 16])
        },
    ];
    let points = vec![NumberDataPoint { exemplars, ..number(7.0) }];
    let sum = Sum { data_points: points, aggregation_temporality: 1, is_monotonic: true };
    let cut = "x".repeat(256);
    assert_eq!(
        dump_exemplars(Data::Sum(sum)),
        [
            "1 @30 0 2 [(\"user\", \"u1\")] otlp",
            // Without a time it has that of its point.
            &format!("-5 @20 1 2 [(\"sql\", \"{cut}\")] otlp"),
            "malformed_id",
            "invalid_value",
            "invalid_value",
            "invalid_time",
            "truncated",
        ]
    );
}
