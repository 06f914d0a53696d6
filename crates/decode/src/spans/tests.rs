//! Tests with messages that prost encodes, and with a request that an SDK sent.

use std::collections::{BTreeMap, BTreeSet};

use model::{Gap, LadderCell, SampleValue, Series};
use proptest::prelude::*;
use prost::Message as _;

use super::*;
use crate::exemplar::ExemplarProblem;
use crate::series_sink::VecSeriesSink;

const SECOND: u64 = 1_000_000_000;
/// A whole second.
const START: u64 = 1_794_906_565 * SECOND;

#[derive(Clone, PartialEq, prost::Message)]
struct Request {
    #[prost(message, repeated, tag = "1")]
    resources: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scopes: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<Attribute>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ScopeSpans {
    #[prost(message, repeated, tag = "2")]
    spans: Vec<Span>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Span {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(string, tag = "3")]
    trace_state: String,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(int32, tag = "6")]
    kind: i32,
    #[prost(fixed64, tag = "7")]
    start: u64,
    #[prost(fixed64, tag = "8")]
    end: u64,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<Attribute>,
    #[prost(message, optional, tag = "15")]
    status: Option<Status>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Status {
    #[prost(int32, tag = "3")]
    code: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Attribute {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AttributeValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct AttributeValue {
    #[prost(string, optional, tag = "1")]
    text: Option<String>,
}

fn attribute(key: &str, value: &str) -> Attribute {
    Attribute { key: key.to_owned(), value: Some(AttributeValue { text: Some(value.to_owned()) }) }
}

/// A span of a millisecond.
fn span(number: u64) -> Span {
    Span {
        trace_id: u128::from(number + 1).to_be_bytes().to_vec(),
        span_id: (number + 1).to_be_bytes().to_vec(),
        name: "GET /".to_owned(),
        kind: 2,
        start: START,
        end: START + 1_000_000,
        ..Span::default()
    }
}

fn request(service: &str, spans: Vec<Span>) -> Request {
    let resource = Some(Resource { attributes: vec![attribute("service.name", service)] });
    Request { resources: vec![ResourceSpans { resource, scopes: vec![ScopeSpans { spans }] }] }
}

fn read(spans: Vec<Span>) -> (SpanSummary, VecSeriesSink) {
    let mut sink = VecSeriesSink::default();
    let body = request("shop", spans).encode_to_vec();
    let summary = read_otlp_protobuf(&body, &mut sink).unwrap();
    (summary, sink)
}

/// Rows and exemplars, one per line.
fn lines(sink: &VecSeriesSink) -> String {
    let mut lines = String::new();
    for (series, sample) in &sink.rows {
        let value = match &sample.value {
            SampleValue::Histogram(durations) => {
                let sum = durations.tracked_sum().value().map(hist::DoubleDouble::value);
                format!("{} of {sum:?} [{}]", durations.count(), series.unit())
            }
            SampleValue::Number(count) => count.to_string(),
            SampleValue::Text(_) => unreachable!("BUG: a text"),
        };
        let second = sample.end as u64 / SECOND - START / SECOND;
        lines += &format!("{second} {series} {value}\n");
    }
    for (series, exemplar) in &sink.exemplars {
        let name = series.label("span.name").unwrap_or_default();
        let attributes: Vec<_> = exemplar.attributes.iter().collect();
        lines += &format!("{name} {} {attributes:?}\n", exemplar.value);
    }
    lines
}

/// Recorded from the SDK of OpenTelemetry for Python 1.45.2.
#[test]
fn spans_of_an_sdk_are_measured() {
    let body = include_bytes!("../../../../testdata/decode/traces/python.pb");
    let mut sink = VecSeriesSink::default();
    let summary = read_otlp_protobuf(body, &mut sink).unwrap();
    assert_eq!((summary.measured, summary.rejected(), sink.exemplar_problems.len()), (9, 0, 0));
    expect_test::expect_file!["../../../../testdata/decode/traces/python.txt"]
        .assert_eq(&lines(&sink));
}

#[test]
fn json_is_read_as_protobuf() {
    let spans = |trace_state: &str, name: &str, end: u64| {
        let body = serde_json::json!({ "resourceSpans": [{
            "resource": { "attributes": [
                { "key": "service.name", "value": { "stringValue": "shop" } }] },
            "scopeSpans": [{ "scope": { "name": "s" }, "spans": [{
                "traceId": "00000000000000000000000000000001", "spanId": "0000000000000001",
                "parentSpanId": "", "traceState": trace_state, "name": name, "kind": 2,
                "startTimeUnixNano": START.to_string(), "endTimeUnixNano": end,
                "attributes": [{ "key": "a", "value": { "stringValue": "b" } }],
                "events": [{ "name": "e" }], "links": [], "status": { "code": 2 } }] }] }] });
        let mut sink = VecSeriesSink::default();
        let summary = read_otlp_json(body.to_string().as_bytes(), &mut sink).unwrap();
        (summary, lines(&sink))
    };
    let same = Span {
        trace_state: "ot=th:8".to_owned(),
        name: "GET /1".to_owned(),
        end: START + 5,
        attributes: vec![attribute("a", "b")],
        status: Some(Status { code: 2 }),
        ..span(0)
    };
    let (summary, sink) = read(vec![same]);
    assert_eq!(spans("ot=th:8", "GET /1", START + 5), (summary, lines(&sink)));
    assert!(lines(&sink).contains("2 of Some(1e-5) [ms]"), "{}", lines(&sink));
}

#[track_caller]
fn check_problem(bad: Span, problem: SpanProblem) {
    let (summary, sink) = read(vec![span(0), bad, span(1)]);
    let mut expected = [0; SpanProblem::ALL.len()];
    expected[problem as usize] = 1;
    assert_eq!((summary.problems, summary.measured), (expected, 2));
    assert_eq!((summary.rejected(), summary.rejected_inputs()), (1, 1));
    assert!(summary.errors[0].contains(problem.text()), "{:?}", summary.errors);
    assert_eq!(sink.exemplars.len(), 2);
}

#[test]
fn invalid_spans_are_rejected_alone() {
    for id in [vec![], vec![0; 16], vec![1; 15], vec![1; 17]] {
        check_problem(Span { trace_id: id, ..span(7) }, SpanProblem::MalformedId);
    }
    for id in [vec![], vec![0; 8], vec![1; 9]] {
        check_problem(Span { span_id: id, ..span(7) }, SpanProblem::MalformedId);
    }
    check_problem(span(0), SpanProblem::Duplicate);
    check_problem(Span { end: 0, ..span(7) }, SpanProblem::NoEnd);
    check_problem(Span { start: 0, ..span(7) }, SpanProblem::NoStart);
    check_problem(Span { end: START - 1, ..span(7) }, SpanProblem::EndsBeforeStart);
    check_problem(Span { end: 1 << 63, ..span(7) }, SpanProblem::InvalidTime);
    check_problem(Span { end: i64::MAX as u64, ..span(7) }, SpanProblem::InvalidTime);
}

#[test]
fn client_and_server_may_share_an_id() {
    let (summary, _) = read(vec![span(0), Span { kind: 3, ..span(0) }]);
    assert_eq!((summary.measured, summary.rejected()), (2, 0));
}

#[test]
fn malformed_request_is_an_error() {
    let body = request("shop", vec![span(0)]).encode_to_vec();
    let mut sink = VecSeriesSink::default();
    for end in 1..body.len() {
        assert!(read_otlp_protobuf(&body[..end], &mut sink).is_err(), "{end}");
    }
    let error = read_otlp_json(b"{\"resourceSpans\":[{\"scopeSpans\":7}]}", &mut sink);
    assert!(error.unwrap_err().to_string().contains("a list of scopeSpans"));
}

#[test]
fn attributes_of_any_size_are_cut() {
    let mut attributes: Vec<Attribute> =
        (0..1000).map(|n| attribute(&format!("k{n}"), "v")).collect();
    attributes.insert(0, attribute("long", &"x".repeat(100_000)));
    let (summary, sink) = read(vec![Span { attributes, ..span(0) }]);
    assert_eq!(summary.measured, 1);
    let found: BTreeMap<&str, &str> = sink.exemplars[0].1.attributes.iter().collect();
    assert_eq!((found.len(), found["long"].len()), (64, model::EXEMPLAR_VALUE_BYTES_MAX));
    assert_eq!(sink.exemplar_problems, [ExemplarProblem::Truncated]);
}

#[test]
fn sampled_spans_stand_for_those_left_out() {
    let sampled = |threshold: &str| {
        let trace_state = format!("ot=th:{threshold}");
        let spans = (0..1000).map(|n| Span { trace_state: trace_state.clone(), ..span(n) });
        let (summary, sink) = read(spans.collect());
        assert_eq!(summary.measured, 1000);
        let [durations, calls] = &sink.rows[..] else { panic!("{:?}", sink.rows) };
        let SampleValue::Histogram(durations) = &durations.1.value else { panic!("{durations:?}") };
        assert_eq!(calls.1.value, SampleValue::Number(durations.count() as f64));
        (durations.count(), summary.ignored_thresholds)
    };
    assert_eq!(sampled("0"), (1000, 0));
    assert_eq!(sampled("c"), (4000, 0));
    // Of three spans one was left out.
    let (count, ignored) = sampled("55555555555555");
    assert!((1500..=1501).contains(&count) && ignored == 0, "{count}");
    assert_eq!(sampled("x"), (1000, 1000));
    assert_eq!(sampled("ffffffffffffff"), (1000, 1000));
}

/// Refuses series, or names.
#[derive(Default)]
struct LimitedSink {
    rows: VecSeriesSink,
    names_max: usize,
    names: BTreeSet<(String, String)>,
    is_refused: bool,
    counted: Option<SpanSummary>,
}

impl SeriesSink for LimitedSink {
    fn series(
        &mut self,
        key: &[u8],
        series: &mut dyn FnMut() -> model::Result<Series>,
    ) -> model::Result<()> {
        self.rows.series(key, series)
    }

    fn sample(&mut self, sample: &model::Sample) -> model::Result<()> {
        match self.is_refused {
            true => Err(model::Error::SeriesLimit { reason: "too many".to_owned() }),
            false => self.rows.sample(sample),
        }
    }

    fn gap(&mut self, _: Gap) {}

    fn exemplar(
        &mut self,
        key: &[u8],
        series: &mut dyn FnMut() -> model::Result<Series>,
        exemplar: &model::Exemplar,
    ) -> bool {
        self.rows.exemplar(key, series, exemplar)
    }

    fn admits_span_name(&mut self, service: &str, _namespace: &str, name: &str) -> bool {
        let pair = (service.to_owned(), name.to_owned());
        if name == OTHER_NAME {
            return self.names.iter().any(|known| known.0 == service);
        }
        if self.names.len() < self.names_max {
            self.names.insert(pair.clone());
        }
        self.names.contains(&pair)
    }

    fn count_spans(&mut self, summary: &SpanSummary) {
        self.counted = Some(summary.clone());
    }
}

#[test]
fn names_beyond_the_limit_are_other() {
    let spans = (0..30).map(|n| {
        let name = format!("work {}", ["a", "b", "c"][n as usize % 3]);
        Span { name, ..span(n) }
    });
    let mut sink = LimitedSink { names_max: 2, ..LimitedSink::default() };
    let body = request("shop", spans.collect()).encode_to_vec();
    let summary = read_otlp_protobuf(&body, &mut sink).unwrap();
    assert_eq!((summary.measured, summary.other_names), (30, 10));
    assert_eq!(sink.counted.as_ref(), Some(&summary));
    let label = |name| move |row: &(Series, model::Sample)| row.0.label(name).map(str::to_owned);
    let names: BTreeSet<_> = sink.rows.rows.iter().filter_map(label("span.name")).collect();
    assert!(names.iter().eq(["other", "work a", "work b"]), "{names:?}");
    let mut sink = LimitedSink::default();
    read_otlp_protobuf(&request("shop", vec![span(0)]).encode_to_vec(), &mut sink).unwrap();
    assert_eq!(label("service.name")(&sink.rows.rows[0]).as_deref(), Some(OTHER_NAME));
}

#[test]
fn refused_series_is_counted_by_span() {
    let mut sink = LimitedSink { names_max: 9, is_refused: true, ..LimitedSink::default() };
    let spans = (0..6).map(|n| Span { end: START + 1 + n % 2 * SECOND, ..span(n) });
    let body = request("shop", spans.collect()).encode_to_vec();
    let summary = read_otlp_protobuf(&body, &mut sink).unwrap();
    assert_eq!((summary.measured, summary.problems[SpanProblem::RefusedSeries as usize]), (0, 6));
    assert_eq!((summary.refused_rows, summary.rejected_inputs()), (2, 2));
    assert_eq!(summary.errors.len(), 1);
    assert!(sink.rows.exemplars.is_empty());
}

fn spans() -> impl Strategy<Value = Vec<Span>> {
    let name = prop_oneof![Just("GET /a"), Just("GET /b/1"), Just("select 1")];
    // Some ids occur twice, and some spans end at a whole second.
    let one = (0..400_u64, name, 0..3_i32, 0..5_u64, 0..200_u64, 0..3_i32);
    let one = one.prop_map(|(id, name, kind, start, halves, code)| {
        let start = START + start * 20 * SECOND;
        let (end, status) = (start + halves * SECOND / 2, Some(Status { code }));
        Span { name: name.to_owned(), kind, start, end, status, ..span(id) }
    });
    prop::collection::vec(one, 0..200)
}

proptest! {
    /// Each span counts once, in the second in which it ended, and each cell has an exemplar.
    #[test]
    fn every_span_counts_once(spans in spans()) {
        let (summary, sink) = read(spans.clone());
        let mut seen = BTreeSet::new();
        let (mut calls, mut cells, mut maxima) =
            (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        for span in &spans {
            if !seen.insert((&span.trace_id, span.kind)) {
                continue;
            }
            let name = match span.name.as_str() {
                "GET /b/1" => "GET /b/{n}",
                "select 1" => "select $1",
                name => name,
            };
            let code = span.status.as_ref().map_or(0, |status| status.code);
            let group = (name.to_owned(), span.kind, code);
            let value = (span.end - span.start) as f64 / 1e6;
            let (count, sum) =
                calls.entry((group.clone(), span.end.div_ceil(SECOND))).or_insert((0_u64, 0.0));
            (*count, *sum) = (*count + 1, *sum + value);
            let minute = (group, span.end / (60 * SECOND));
            cells.insert((minute.clone(), LadderCell::of(value)));
            let maximum: &mut f64 = maxima.entry(minute).or_insert(value);
            *maximum = maximum.max(value);
        }
        prop_assert_eq!(summary.measured, seen.len() as u64);
        prop_assert_eq!(summary.rejected(), (spans.len() - seen.len()) as u64);
        let group = |series: &Series| {
            let label = |name: &str| series.label(name).unwrap().to_owned();
            let kinds = ["SPAN_KIND_UNSPECIFIED", "SPAN_KIND_INTERNAL", "SPAN_KIND_SERVER"];
            let codes = ["STATUS_CODE_UNSET", "STATUS_CODE_OK", "STATUS_CODE_ERROR"];
            let at = |names: [&str; 3], name: String| {
                names.iter().position(|known| *known == name).unwrap()
            };
            let (kind, code) = (at(kinds, label("span.kind")), at(codes, label("status.code")));
            (label("span.name"), kind as i32, code as i32)
        };
        let mut counters = 0;
        for (series, sample) in &sink.rows {
            prop_assert_eq!(sample.end - sample.start, SECOND as i64);
            let (count, sum) = calls[&(group(series), sample.end as u64 / SECOND)];
            match &sample.value {
                SampleValue::Histogram(durations) => {
                    let found = durations.tracked_sum().value().map(hist::DoubleDouble::value);
                    prop_assert_eq!((durations.count(), found), (count, Some(sum)));
                }
                value => {
                    counters += 1;
                    prop_assert_eq!(value, &SampleValue::Number(count as f64));
                }
            }
        }
        prop_assert_eq!((counters, sink.rows.len()), (calls.len(), 2 * calls.len()));
        for (series, exemplar) in &sink.exemplars {
            let minute = (group(series), exemplar.time as u64 / (60 * SECOND));
            prop_assert!(exemplar.value <= maxima[&minute]);
            cells.remove(&(minute, LadderCell::of(exemplar.value)));
        }
        prop_assert!(cells.is_empty(), "without an exemplar: {:?}", cells);
    }
}

/// Rows are written before the end of a request that has very many.
#[test]
fn memory_of_a_request_is_bounded() {
    let spans: Vec<Span> =
        (0..20_000).map(|n| Span { end: START + n % 10_000 * SECOND, ..span(n) }).collect();
    let (summary, sink) = read(spans);
    assert_eq!(summary.measured, 20_000);
    // The two spans of a second are in different parts of the request.
    let count = |row: &(Series, model::Sample)| match &row.1.value {
        SampleValue::Histogram(durations) => durations.count(),
        _ => 0,
    };
    assert_eq!(sink.rows.iter().map(count).sum::<u64>(), 20_000);
    assert!(sink.rows.len() > 2 * 10_000, "{}", sink.rows.len());
}

/// Zipkin's example with a server, a client that shares its id, and what else is optional.
#[test]
fn spans_of_zipkin_are_measured() {
    let body = serde_json::json!([
        { "traceId": "5982fe77008310cc80f1da5e10147517", "id": "90394f6bcffb5d13",
          "parentId": "5982fe77008310cc", "name": "get /users/17", "kind": "SERVER",
          "timestamp": START / 1000, "duration": 1500, "shared": true,
          "localEndpoint": { "serviceName": "shop", "ipv4": "127.0.0.1" },
          "annotations": [{ "timestamp": 1, "value": "foo" }],
          "tags": { "http.path": "/users/17", "error": "503", "list": [1] } },
        { "traceId": "5982fe77008310cc80f1da5e10147517", "id": "90394f6bcffb5d13",
          "name": "get", "kind": "CLIENT", "timestamp": START / 1000, "duration": 2000.0,
          "localEndpoint": null, "tags": { "error": "false" } },
        { "traceId": "80f1da5e10147517", "id": "90394f6bcffb5d14",
          "timestamp": START / 1000, "duration": 1, "tags": { "span.kind": "internal" },
          "localEndpoint": { "serviceName": "shop" } },
        { "traceId": "80f1da5e10147517", "id": "90394f6bcffb5d15", "name": "no duration" },
        { "traceId": "x", "id": "90394f6bcffb5d16", "timestamp": 1, "duration": 1 },
        { "traceId": "80f1da5e10147517", "id": "90394f6bcffb5d17", "timestamp": 1,
          "duration": 1e300 },
        { "unknown": { "a": [1, { "b": null }] } },
    ]);
    let mut sink = VecSeriesSink::default();
    let summary = read_zipkin(body.to_string().as_bytes(), &mut sink).unwrap();
    let problem = |problem: SpanProblem| summary.problems[problem as usize];
    assert_eq!((summary.measured, summary.rejected()), (3, 4), "{summary:?}");
    assert_eq!((problem(SpanProblem::MalformedId), problem(SpanProblem::NoEnd)), (2, 1));
    assert_eq!(problem(SpanProblem::InvalidTime), 1);
    expect_test::expect_file!["../../../../testdata/decode/traces/zipkin.txt"]
        .assert_eq(&lines(&sink));
}

/// They were skipped before traces were stored, and senders differ in what they write.
#[test]
fn mistyped_field_that_only_stored_traces_have_is_left_out() {
    let body = serde_json::json!({ "resourceSpans": [{ "scopeSpans": [{
        "scope": { "name": 7, "version": "1", "attributes": { "a": "b" } },
        "spans": [{
            "traceId": "0af7651916cd43dd8448eb211c80319c", "spanId": "00f067aa0ba902b7",
            "name": "pay", "startTimeUnixNano": START.to_string(),
            "endTimeUnixNano": (START + 5).to_string(), "flags": "x", "droppedLinksCount": [1],
            "events": [
                { "timeUnixNano": "2026-01-01T00:00:00Z", "name": "retry",
                  "attributes": { "a": { "b": [1] } } },
                [{ "name": "in a list" }],
                { "name": "end", "attributes": [{ "key": "n", "value": { "intValue": [] } }] },
            ],
            "links": { "traceId": "0af7651916cd43dd8448eb211c80319c" },
            "status": { "message": 3, "code": 2 },
        }],
    }] }] });
    let mut sink = VecSeriesSink::default();
    let summary = read_otlp_json(body.to_string().as_bytes(), &mut sink).unwrap();
    assert_eq!((summary.measured, summary.rejected()), (1, 0));
    let protobuf = json::traces_to_protobuf(body.to_string().as_bytes()).unwrap();
    let found: serde_json::Value =
        serde_json::from_str(&trace::Trace::read(&protobuf).to_json()).unwrap();
    let scope = &found["resourceSpans"][0]["scopeSpans"][0];
    assert_eq!(scope["scope"], serde_json::json!({ "version": "1" }));
    let events = serde_json::json!([{ "name": "retry" }, { "name": "end",
        "attributes": [{ "key": "n" }] }]);
    assert_eq!(scope["spans"][0]["events"], events);
    assert_eq!(scope["spans"][0]["status"], serde_json::json!({ "code": 2 }));
    // What is measured is as strict as before.
    let wrong = body.to_string().replace("\"code\":2", "\"code\":[]");
    assert!(read_otlp_json(wrong.as_bytes(), &mut sink).is_err());
}

/// A span `{}` took 58 bytes.
#[test]
fn conversion_of_zipkin_takes_a_few_bytes_per_byte() {
    for span in ["{},", "{\"tags\":{\"\":0}},", "{\"id\":\"90394f6bcffb5d13\"},"] {
        let spans = span.repeat(1000);
        let body = format!("[{}]", spans.trim_end_matches(','));
        let converted = zipkin::to_protobuf(body.as_bytes()).unwrap();
        assert!(converted.len() <= 2 * body.len(), "{span}: {}", converted.len());
        let summary = read_otlp_protobuf(&converted, &mut VecSeriesSink::default()).unwrap();
        assert_eq!(summary.rejected(), 1000);
    }
}

/// One of them rejected the whole request.
#[test]
fn negative_time_of_zipkin_rejects_its_span_alone() {
    let span = |id: &str, times: &str| {
        format!(r#"{{"traceId":"80f1da5e10147517","id":"90394f6bcffb5d1{id}",{times}}}"#)
    };
    let spans = [
        span("1", r#""timestamp":1,"duration":-3"#),
        span("2", r#""timestamp":-1,"duration":3"#),
        span("3", r#""timestamp":1,"duration":3"#),
    ];
    let body = format!("[{}]", spans.join(","));
    let summary = read_zipkin(body.as_bytes(), &mut VecSeriesSink::default()).unwrap();
    let invalid = summary.problems[SpanProblem::InvalidTime as usize];
    assert_eq!((summary.measured, summary.rejected(), invalid), (1, 2, 2));
}

#[test]
fn invalid_request_of_zipkin_is_an_error() {
    let check = |body: &str, expected: &str| {
        let error = read_zipkin(body.as_bytes(), &mut VecSeriesSink::default()).unwrap_err();
        assert_eq!(error.to_string(), expected);
    };
    check("{}", "byte 0: expected a list of spans, found \"{}\"");
    check("[1]", "byte 1: expected a span, found \"1]\"");
    check("[{}", "byte 3: expected a comma or ], found the end of the input");
    check("[] 1", "byte 3: expected the end of the request, found \"1\"");
    let text = r#"[{"duration":"long"}]"#;
    check(text, "byte 13: expected microseconds, found \"long\"");
    let empty = read_zipkin(b"[]", &mut VecSeriesSink::default());
    assert_eq!(empty, Ok(SpanSummary::default()));
}
