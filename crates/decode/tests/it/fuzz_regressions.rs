//! Inputs of past failures and seed inputs for fuzzing.

use std::fs;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{
    AnyValue, ArrayValue, InstrumentationScope, KeyValue, any_value,
};
use opentelemetry_proto::tonic::metrics::v1::exponential_histogram_data_point::Buckets;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::summary_data_point::ValueAtQuantile;
use opentelemetry_proto::tonic::metrics::v1::{
    ExponentialHistogram, ExponentialHistogramDataPoint, Gauge, Histogram, HistogramDataPoint,
    Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum, Summary, SummaryDataPoint,
    number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message as _;

use crate::checks;
use crate::fuzz_inputs::{self, files, root};

/// Runs the fuzz targets' checks on each `testdata/fuzz/<target>/<failure>`.
#[test]
fn regression_inputs_pass() {
    fuzz_inputs::check_past_findings(&checks::CHECKS);
}

/// Every decoder reads every other decoder's golden files without a panic.
#[test]
fn golden_files_never_panic_any_decoder() {
    for seed in seeds() {
        checks::CHECKS.iter().for_each(|(_, check)| check(&seed));
    }
}

/// Writes `fuzz/corpus/<target>/`: the beginnings of golden files, their first lines, and inputs of
/// past failures. `cargo xtask ci fuzz` calls it before the targets run.
#[test]
#[ignore = "writes fuzz/corpus; called by xtask"]
fn write_seeds() {
    let targets = checks::CHECKS.iter().map(|(target, _)| *target);
    let seeds: Vec<_> =
        targets.flat_map(|target| seeds().into_iter().map(move |seed| (target, seed))).collect();
    fuzz_inputs::write_seeds(&checks::CHECKS, &seeds);
}

/// Inputs a fuzzer does not find by itself: first lines of every format.
fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = otlp_seeds();
    seeds.extend(ddsketch_seeds());
    for dir in ["cli", "hist/hdr", "hist/circllhist"] {
        for path in files(&root().join("testdata").join(dir)) {
            let ends = ["txt", "prom", "json", "hlog", "tsv"];
            if path.extension().is_some_and(|end| ends.iter().any(|known| end == *known)) {
                let bytes = fs::read(path).unwrap();
                let lines: Vec<&[u8]> = bytes.split_inclusive(|&byte| byte == b'\n').collect();
                seeds.extend([1, 12].map(|count| lines[..lines.len().min(count)].concat()));
            }
        }
    }
    for path in files(&root().join("testdata/decode/prometheus")) {
        if path.extension().is_some_and(|end| end == "snappy" || end == "pb") {
            seeds.push(fs::read(path).unwrap());
        }
    }
    seeds.push(fs::read(root().join("testdata/decode/traces/python.pb")).unwrap());
    seeds.push(fs::read(root().join("testdata/decode/prometheus/openmetrics_2.txt")).unwrap());
    seeds.extend(collectd_seeds());
    seeds.retain(|seed| seed.len() <= 1 << 14);
    seeds.sort();
    seeds.dedup();
    seeds
}

/// Sketches of two libraries, and their base64.
fn ddsketch_seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for file in ["go.tsv", "java.tsv"] {
        let table = fs::read_to_string(root().join("testdata/hist/ddsketch").join(file)).unwrap();
        for row in table.lines().filter(|line| !line.starts_with('#')) {
            let hex = row.rsplit('\t').next().unwrap().as_bytes();
            let digit = |byte: u8| char::from(byte).to_digit(16).expect("a digit") as u8;
            let bytes: Vec<u8> =
                hex.chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect();
            seeds.push(STANDARD.encode(&bytes).into_bytes());
            seeds.push(bytes);
        }
    }
    seeds
}

/// A packet with a value of each kind and a notification, and the same with a signature.
fn collectd_seeds() -> [Vec<u8>; 2] {
    let part = |kind: u16, body: &[u8]| {
        let length = (body.len() + 4) as u16;
        [&kind.to_be_bytes()[..], &length.to_be_bytes(), body].concat()
    };
    let values = [&[0, 4, 0, 1, 2, 3][..], &[0; 7], &[1], &1.5_f64.to_le_bytes(), &[7; 16]];
    let packet = [
        part(0, b"web-1\0"),
        part(8, &(1_700_000_000_u64 << 30).to_be_bytes()),
        part(2, b"interface\0"),
        part(3, b"eth0\0"),
        part(4, b"arc_counts\0"),
        part(5, b"a\0"),
        part(6, &values.concat()),
        part(0x0100, b"full\0"),
    ];
    let packet = packet.concat();
    let signed = [part(0x0200, &[&[9; 32][..], b"user"].concat()), packet.clone()].concat();
    [packet, signed]
}

/// A request with a point of each kind, in both encodings.
fn otlp_seeds() -> Vec<Vec<u8>> {
    let value = |value| Some(AnyValue { value: Some(value) });
    let list = ArrayValue { values: value(any_value::Value::IntValue(1)).into_iter().collect() };
    let value = value(any_value::Value::ArrayValue(list));
    let attributes = vec![KeyValue { key: "a".to_owned(), value, ..Default::default() }];
    let value = Some(number_data_point::Value::AsDouble(7.5));
    let number = NumberDataPoint { value, attributes: attributes.clone(), ..Default::default() };
    let explicit = HistogramDataPoint {
        start_time_unix_nano: 1,
        time_unix_nano: 2,
        count: 3,
        sum: Some(4.0),
        bucket_counts: vec![1, 2],
        explicit_bounds: vec![1.0],
        ..Default::default()
    };
    let exponential = ExponentialHistogramDataPoint {
        time_unix_nano: 2,
        count: 3,
        scale: 9,
        zero_count: 1,
        positive: Some(Buckets { offset: -1, bucket_counts: vec![2] }),
        ..Default::default()
    };
    let quantile_values = vec![ValueAtQuantile { quantile: 0.5, value: 1.0 }];
    let summary = SummaryDataPoint { quantile_values, ..Default::default() };
    let data = [
        Data::Gauge(Gauge { data_points: vec![number.clone()] }),
        Data::Sum(Sum {
            data_points: vec![number],
            aggregation_temporality: 1,
            is_monotonic: true,
        }),
        Data::Histogram(Histogram { data_points: vec![explicit], aggregation_temporality: 2 }),
        Data::ExponentialHistogram(ExponentialHistogram {
            data_points: vec![exponential],
            aggregation_temporality: 1,
        }),
        Data::Summary(Summary { data_points: vec![summary] }),
    ];
    let (name, unit) = ("m", "By");
    let metric = |data| Metric {
        name: name.to_owned(),
        unit: unit.to_owned(),
        data: Some(data),
        ..Default::default()
    };
    let metrics = data.map(metric).to_vec();
    let scope = Some(InstrumentationScope { name: "s".to_owned(), ..Default::default() });
    let scope_metrics = vec![ScopeMetrics { scope, metrics, ..Default::default() }];
    let resource = Some(Resource { attributes, ..Default::default() });
    let resource_metrics = vec![ResourceMetrics { resource, scope_metrics, ..Default::default() }];
    let request = ExportMetricsServiceRequest { resource_metrics };
    vec![request.encode_to_vec(), serde_json::to_vec(&request).expect("JSON")]
}

#[test]
fn all_seed_points_are_decoded() {
    let seeds = otlp_seeds();
    let mut rows = [decode::VecSeriesSink::default(), decode::VecSeriesSink::default()];
    let protobuf = decode::otlp::read_protobuf(&seeds[0], 1, &mut rows[0]).unwrap();
    let json = decode::otlp::read_json(&seeds[1], 1, &mut rows[1]).unwrap();
    assert_eq!((protobuf.points, protobuf.rejected), (5, 0), "{protobuf:?}");
    assert_eq!((&protobuf, &rows[0].rows), (&json, &rows[1].rows));
}
