//! Random requests of the official types and their expected rows.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{
    AnyValue, ArrayValue, InstrumentationScope, KeyValue, KeyValueList,
};
use opentelemetry_proto::tonic::metrics::v1::exponential_histogram_data_point::Buckets;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value::{AsDouble, AsInt};
use opentelemetry_proto::tonic::metrics::v1::summary_data_point::ValueAtQuantile;
use opentelemetry_proto::tonic::metrics::v1::{
    ExponentialHistogram, ExponentialHistogramDataPoint, Gauge, Histogram, HistogramDataPoint,
    Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum, Summary, SummaryDataPoint,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use proptest::prelude::*;
use prost::Message as _;

use super::*;

pub(super) fn attribute(key: &str, value: &str) -> KeyValue {
    any_value_attribute(key, Any::StringValue(value.to_owned()))
}

fn any_value_attribute(key: &str, value: Any) -> KeyValue {
    let value = Some(AnyValue { value: Some(value) });
    KeyValue { key: key.to_owned(), value, ..Default::default() }
}

/// A request with one metric, without resource and scope.
pub(super) fn request(name: &str, unit: &str, data: Data) -> ExportMetricsServiceRequest {
    let (name, unit) = (name.to_owned(), unit.to_owned());
    let metrics = vec![Metric { name, unit, data: Some(data), ..Default::default() }];
    let scope_metrics = vec![ScopeMetrics { metrics, ..Default::default() }];
    let resource_metrics = vec![ResourceMetrics { scope_metrics, ..Default::default() }];
    ExportMetricsServiceRequest { resource_metrics }
}

fn value() -> impl Strategy<Value = Any> {
    let scalar = prop_oneof![
        "[a-zé\"\\\\\n]{0,6}".prop_map(Any::StringValue),
        proptest::bool::ANY.prop_map(Any::BoolValue),
        proptest::num::i64::ANY.prop_map(Any::IntValue),
        proptest::num::f64::NORMAL.prop_map(Any::DoubleValue),
        prop::collection::vec(proptest::num::u8::ANY, 0..5).prop_map(Any::BytesValue),
    ];
    scalar.prop_recursive(2, 8, 3, |inner| {
        let any_value = inner.clone().prop_map(|value| AnyValue { value: Some(value) });
        let list = prop::collection::vec(any_value, 0..3);
        let map = prop::collection::btree_map("[a-c]", inner, 0..3);
        prop_oneof![
            list.prop_map(|values| Any::ArrayValue(ArrayValue { values })),
            map.prop_map(|map| Any::KvlistValue(KeyValueList {
                values: map
                    .iter()
                    .rev()
                    .map(|(key, value)| any_value_attribute(key, value.clone()))
                    .collect()
            })),
        ]
    })
}

fn attributes() -> impl Strategy<Value = Vec<KeyValue>> {
    let map = prop::collection::hash_map("[a-f]", value(), 0..4);
    map.prop_map(|map| {
        map.into_iter().map(|(key, value)| any_value_attribute(&key, value)).collect()
    })
}

/// Start, end, attributes.
fn head() -> impl Strategy<Value = (u64, u64, Vec<KeyValue>)> {
    (0u64..100, prop_oneof![Just(0), 100u64..1 << 62], attributes())
}

fn numbers() -> impl Strategy<Value = Vec<NumberDataPoint>> {
    let value = prop_oneof![
        proptest::num::i64::ANY.prop_map(AsInt),
        proptest::num::f64::NORMAL.prop_map(AsDouble),
    ];
    let point = (head(), value).prop_map(|((start, time, attributes), value)| NumberDataPoint {
        attributes,
        start_time_unix_nano: start,
        time_unix_nano: time,
        value: Some(value),
        ..Default::default()
    });
    prop::collection::vec(point, 0..4)
}

fn explicit() -> impl Strategy<Value = Vec<HistogramDataPoint>> {
    let buckets = prop::collection::vec((0u64..1000, 0.1f64..10.0), 0..6);
    let sides = (prop::option::of(-1e3f64..1e3), prop::option::of(0.0f64..5.0));
    let point = (head(), buckets, 0u64..50, sides).prop_map(
        |((start, time, attributes), buckets, last, (sum, min))| {
            let mut bound = -3.0;
            let bounds = buckets.iter().map(|(_, step)| {
                bound += step;
                bound
            });
            let mut counts: Vec<u64> = buckets.iter().map(|(count, _)| *count).collect();
            let explicit_bounds: Vec<f64> = bounds.collect();
            counts.push(last);
            HistogramDataPoint {
                attributes,
                start_time_unix_nano: start,
                time_unix_nano: time,
                count: counts.iter().sum(),
                sum,
                bucket_counts: counts,
                explicit_bounds,
                min,
                max: min.map(|min| min + 1.0),
                ..Default::default()
            }
        },
    );
    prop::collection::vec(point, 0..3)
}

fn exponential() -> impl Strategy<Value = Vec<ExponentialHistogramDataPoint>> {
    let counts = || prop::collection::vec(prop_oneof![Just(0), 0u64..300], 0..20);
    let buckets = || {
        let buckets = (-40i32..40, counts());
        prop::option::of(
            buckets.prop_map(|(offset, bucket_counts)| Buckets { offset, bucket_counts }),
        )
    };
    let sides = (prop::option::of(0.0f64..1e9), 0u64..9, 0.0f64..1e-9);
    let point = (head(), -10i32..21, buckets(), buckets(), sides).prop_map(
        |((start, time, attributes), scale, mut positive, mut negative, (sum, zero, threshold))| {
            // Coarse scales have few buckets.
            for buckets in [&mut positive, &mut negative].into_iter().flatten() {
                buckets.offset = if scale < 0 { 0 } else { buckets.offset };
                buckets.bucket_counts.truncate(if scale < 0 { 1 } else { 20 });
            }
            let total = [&positive, &negative].into_iter().flatten();
            let total = total.flat_map(|buckets| &buckets.bucket_counts).sum::<u64>();
            ExponentialHistogramDataPoint {
                attributes,
                start_time_unix_nano: start,
                time_unix_nano: time,
                count: total + zero,
                sum,
                scale,
                zero_count: zero,
                positive,
                negative,
                zero_threshold: threshold,
                ..Default::default()
            }
        },
    );
    prop::collection::vec(point, 0..3)
}

fn summaries() -> impl Strategy<Value = Vec<SummaryDataPoint>> {
    let quantiles = prop::collection::vec((0.0f64..1.0, 0.0f64..1e3), 0..3);
    let point = (head(), 0u64..1 << 50, 0.0f64..1e9, quantiles).prop_map(
        |((start, time, attributes), count, sum, quantiles)| SummaryDataPoint {
            attributes,
            start_time_unix_nano: start,
            time_unix_nano: time,
            count,
            sum,
            quantile_values: quantiles
                .into_iter()
                .map(|(quantile, value)| ValueAtQuantile { quantile, value })
                .collect(),
            ..Default::default()
        },
    );
    prop::collection::vec(point, 0..3)
}

fn data() -> impl Strategy<Value = Data> {
    let sum = (numbers(), 0i32..3, proptest::bool::ANY);
    let histogram = |aggregation_temporality| {
        explicit().prop_map(move |data_points| {
            Data::Histogram(Histogram { data_points, aggregation_temporality })
        })
    };
    prop_oneof![
        numbers().prop_map(|data_points| Data::Gauge(Gauge { data_points })),
        sum.prop_map(|(data_points, aggregation_temporality, is_monotonic)| {
            Data::Sum(Sum { data_points, aggregation_temporality, is_monotonic })
        }),
        (0i32..3).prop_flat_map(histogram),
        (exponential(), 0i32..3).prop_map(|(data_points, aggregation_temporality)| {
            let histogram = ExponentialHistogram { data_points, aggregation_temporality };
            Data::ExponentialHistogram(histogram)
        }),
        summaries().prop_map(|data_points| Data::Summary(Summary { data_points })),
    ]
}

fn requests() -> impl Strategy<Value = ExportMetricsServiceRequest> {
    let unit = prop::sample::select(vec!["", "1", "ms", "By", "{x}"]);
    let metric = ("[a-c.é]{0,3}", unit, prop::option::of(data())).prop_map(|(name, unit, data)| {
        Metric { name, unit: unit.to_owned(), data, ..Default::default() }
    });
    let scope = ("[a-c]{0,2}", "[0-9]{0,2}", attributes());
    let scope = scope.prop_map(|(name, version, attributes)| InstrumentationScope {
        name,
        version,
        attributes,
        ..Default::default()
    });
    let scope = (prop::option::of(scope), prop::collection::vec(metric, 0..4));
    let scope =
        scope.prop_map(|(scope, metrics)| ScopeMetrics { scope, metrics, ..Default::default() });
    let resource =
        attributes().prop_map(|attributes| Resource { attributes, ..Default::default() });
    let resource = (prop::option::of(resource), prop::collection::vec(scope, 0..3));
    let resource = resource.prop_map(|(resource, scope_metrics)| ResourceMetrics {
        resource,
        scope_metrics,
        ..Default::default()
    });
    prop::collection::vec(resource, 0..3)
        .prop_map(|resource_metrics| ExportMetricsServiceRequest { resource_metrics })
}

fn json(value: &Any) -> serde_json::Value {
    let inner = |value: &Option<AnyValue>| match value {
        Some(AnyValue { value: Some(value) }) => json(value),
        _ => serde_json::Value::Null,
    };
    match value {
        Any::StringValue(text) => text.as_str().into(),
        Any::BoolValue(value) => (*value).into(),
        Any::IntValue(value) => (*value).into(),
        Any::DoubleValue(value) => serde_json::Value::Number(text(*value).parse().unwrap()),
        Any::ArrayValue(list) => {
            list.values.iter().map(|value| inner(&Some(value.clone()))).collect()
        }
        Any::KvlistValue(map) => {
            map.values.iter().map(|pair| (pair.key.clone(), inner(&pair.value))).collect()
        }
        Any::BytesValue(bytes) => {
            use base64::Engine as _;
            base64::engine::general_purpose::STANDARD.encode(bytes).into()
        }
        Any::StringValueStrindex(_) => unreachable!("not made here"),
    }
}

fn text(value: f64) -> String {
    let short = value.to_string();
    if value != 0.0 && !(1e-6..1e21).contains(&value.abs()) { format!("{value:e}") } else { short }
}

fn labels(attributes: &[KeyValue], prefix: &str, labels: &mut BTreeMap<String, String>) {
    for pair in attributes {
        let value = pair.value.as_ref().and_then(|value| value.value.as_ref()).unwrap();
        let value = match value {
            Any::StringValue(text) => text.clone(),
            Any::BytesValue(_) => json(value).as_str().unwrap().to_owned(),
            value => json(value).to_string(),
        };
        labels.insert(format!("{prefix}{}", pair.key), value);
    }
}

/// Expected rows of a request and number of rejected points: a simple model.
fn expected(request: &ExportMetricsServiceRequest) -> (Vec<(Series, Sample)>, u64) {
    let mut expected = (Vec::new(), 0);
    for resource in &request.resource_metrics {
        for scope in &resource.scope_metrics {
            let mut shared = BTreeMap::new();
            if let Some(scope) = &scope.scope {
                shared.insert("otel_scope_name".to_owned(), scope.name.clone());
                shared.insert("otel_scope_version".to_owned(), scope.version.clone());
                labels(&scope.attributes, "otel_scope_", &mut shared);
            }
            if let Some(resource) = &resource.resource {
                labels(&resource.attributes, "", &mut shared);
            }
            for metric in &scope.metrics {
                expect_metric(metric, &shared, &mut expected);
            }
        }
    }
    expected
}

type ExpectedRows = (Vec<(Series, Sample)>, u64);

/// Expected rows of a metric's points.
struct RowExpectation<'a> {
    metric: &'a Metric,
    shared: &'a BTreeMap<String, String>,
    rows: &'a mut Vec<(Series, Sample)>,
}

impl RowExpectation<'_> {
    /// Expects a row; returns whether there is one.
    fn expect(
        &mut self,
        suffix: &str,
        unit: &str,
        kind: Option<SeriesKind>,
        head: ExpectedHead<'_>,
        value: SampleValue,
    ) -> bool {
        let Some(kind) = kind.filter(|_| !(self.metric.name.is_empty() && suffix.is_empty()))
        else {
            return false;
        };
        let mut all = self.shared.clone();
        labels(head.2, "", &mut all);
        let end = if head.1 == 0 { NOW } else { head.1 as i64 };
        let start = if head.0 == 0 || kind == SeriesKind::Gauge { end } else { head.0 as i64 };
        let unit = match unit {
            "1" => "",
            "By" => "B",
            unit => unit,
        };
        let series = Series::new(format!("{}{suffix}", self.metric.name), kind).with_unit(unit);
        let series = series.with_labels(all).validate().unwrap();
        self.rows.push((series, Sample { start, end, value }));
        true
    }

    /// Expects the count, sum and quantiles of a summary; returns whether all quantiles have rows.
    fn expect_summary(&mut self, unit: &str, point: &SummaryDataPoint) -> bool {
        let counter = Some(SeriesKind::Counter(Cumulative));
        let head = (point.start_time_unix_nano, point.time_unix_nano, &point.attributes[..]);
        self.expect("_count", "", counter, head, SampleValue::Number(point.count as f64));
        self.expect("_sum", unit, counter, head, SampleValue::Number(point.sum));
        let mut has_row = true;
        for quantile in &point.quantile_values {
            let mut with = point.attributes.clone();
            with.push(attribute("quantile", &text(quantile.quantile)));
            let head = (0, point.time_unix_nano, &with[..]);
            let value = SampleValue::Number(quantile.value);
            has_row &= has_row && self.expect("", unit, Some(SeriesKind::Gauge), head, value);
        }
        has_row
    }
}

fn expect_metric(metric: &Metric, shared: &BTreeMap<String, String>, expected: &mut ExpectedRows) {
    let temporality = |temporality| match temporality {
        1 => Some(Delta),
        2 => Some(Cumulative),
        _ => None,
    };
    let mut rows = RowExpectation { metric, shared, rows: &mut expected.0 };
    let mut rejected = 0;
    let unit = metric.unit.as_str();
    match &metric.data {
        None => {}
        Some(Data::Gauge(gauge)) => {
            for point in &gauge.data_points {
                let has_row = rows.expect(
                    "",
                    unit,
                    Some(SeriesKind::Gauge),
                    point_head(point),
                    point_value(point),
                );
                rejected += u64::from(!has_row);
            }
        }
        Some(Data::Sum(sum)) => {
            let kind = temporality(sum.aggregation_temporality).map(SeriesKind::Counter);
            let is_gauge = !sum.is_monotonic && kind == Some(SeriesKind::Counter(Cumulative));
            let kind = if is_gauge { Some(SeriesKind::Gauge) } else { kind };
            for point in &sum.data_points {
                rejected +=
                    u64::from(!rows.expect("", unit, kind, point_head(point), point_value(point)));
            }
        }
        Some(Data::Histogram(histogram)) => {
            let kind = temporality(histogram.aggregation_temporality).map(SeriesKind::Histogram);
            for point in &histogram.data_points {
                let head =
                    (point.start_time_unix_nano, point.time_unix_nano, &point.attributes[..]);
                let bytes = point.encode_to_vec();
                let read = codecs::otlp::HistogramDataPoint::from_bytes(&bytes).unwrap();
                let value = SampleValue::Histogram(Box::new(read.to_histogram().unwrap().unwrap()));
                rejected += u64::from(!rows.expect("", unit, kind, head, value));
            }
        }
        Some(Data::ExponentialHistogram(histogram)) => {
            let kind = temporality(histogram.aggregation_temporality).map(SeriesKind::Histogram);
            for point in &histogram.data_points {
                let head =
                    (point.start_time_unix_nano, point.time_unix_nano, &point.attributes[..]);
                let bytes = point.encode_to_vec();
                let read = codecs::otlp::ExponentialHistogramDataPoint::from_bytes(&bytes);
                let read = read.unwrap().to_histogram().unwrap().unwrap();
                let value = SampleValue::Histogram(Box::new(read));
                rejected += u64::from(!rows.expect("", unit, kind, head, value));
            }
        }
        Some(Data::Summary(summary)) => {
            for point in &summary.data_points {
                rejected += u64::from(!rows.expect_summary(unit, point));
            }
        }
    }
    expected.1 += rejected;
}

type ExpectedHead<'a> = (u64, u64, &'a [KeyValue]);

fn point_head(point: &NumberDataPoint) -> ExpectedHead<'_> {
    (point.start_time_unix_nano, point.time_unix_nano, &point.attributes)
}

fn point_value(point: &NumberDataPoint) -> SampleValue {
    SampleValue::Number(match point.value {
        Some(AsInt(n)) => n as f64,
        Some(AsDouble(x)) => x,
        None => unreachable!("not made here"),
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn requests_decode_to_expected_rows(request in requests()) {
        let (rows, rejected) = expected(&request);
        let body = request.encode_to_vec();
        let (mut kept, mut from_json) = (VecSeriesSink::default(), VecSeriesSink::default());
        let has_row = read_protobuf(&body, NOW, &mut kept).unwrap();
        prop_assert_eq!(&kept.rows, &rows);
        prop_assert_eq!(has_row.rejected, rejected);
        let json = serde_json::to_vec(&request).unwrap();
        prop_assert_eq!(read_json(&json, NOW, &mut from_json).unwrap(), has_row);
        prop_assert_eq!(&from_json.rows, &rows);
        let again = ExportMetricsServiceRequest::decode(&json::metrics_to_protobuf(&json).unwrap()[..]);
        prop_assert_eq!(again.unwrap(), request);
    }

    #[test]
    fn arbitrary_bytes_are_read_or_rejected(bytes in prop::collection::vec(proptest::num::u8::ANY, 0..200)) {
        let _ = read_protobuf(&bytes, NOW, &mut VecSeriesSink::default());
        let _ = read_json(&bytes, NOW, &mut VecSeriesSink::default());
    }

    /// One-byte corruption, as a fuzzer would start.
    #[test]
    fn mutated_requests_are_read_or_rejected(request in requests(), at: prop::sample::Index, to: u8) {
        let mut body = request.encode_to_vec();
        if !body.is_empty() {
            let at = at.index(body.len());
            body[at] = to;
        }
        let _ = read_protobuf(&body, NOW, &mut VecSeriesSink::default());
    }
}
