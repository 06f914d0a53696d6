//! `POST /api/v1/read`: Prometheus' remote read, with samples as response type.
//!
//! A query is evaluated as the range selector with its matchers, so series are found under the
//! names of Prometheus, the series of a classic histogram among them. A histogram that is selected
//! by its own name is a native one: exponential, or with custom buckets. All samples of a series in
//! other schemes have the same custom buckets: the edges of all of their buckets.
//!
//! Series of deltas are running totals from the start of the range, because Prometheus has no
//! others.
//!
//! Source: <https://prometheus.io/docs/prometheus/latest/querying/remote_read_api/>; prometheus
//! v0.315.0, `prompb/types.proto`, `storage/remote/codec.go`.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use decode::remote_read::{self, ReadMatcher, ReadQuery};
use decode::remote_write;
use hist::codec::bytes::put_varint;
use http::{HeaderMap, HeaderValue, header};
use query::{
    BucketGrid, FloatHistogram, Language, QueryContext as _, QueryRequest, ResultData,
    SeriesPoints, Settings, StoreSource, promql,
};
use store::ReadView;

use super::PrometheusError;
use super::expression::OPTIONS;
use crate::active_query::ActiveQuery;
use crate::api_error::ApiError;
use crate::context::Context;
use crate::protobuf_writer::ProtobufWriter;

/// Maximum size of a request in bytes, compressed and decompressed.
pub(super) const REQUEST_BYTES_MAX: usize = 1 << 20;
/// Schema of custom buckets.
const CUSTOM_SCHEMA: i64 = -53;
const MS: i64 = 1_000_000;
/// Samples between two checks whether the query is cancelled.
const CHECKED_SAMPLES: usize = 64;
/// Memory of an edge in a set, and in a list.
const EDGE_BYTES: usize = 32;
/// Initial capacity of a response.
const CAPACITY_MIN: usize = 4 << 10;

pub(super) async fn read(context: Context, request: Request) -> Result<Response, PrometheusError> {
    check_encoding(request.headers())?;
    let body = axum::body::to_bytes(request.into_body(), REQUEST_BYTES_MAX).await;
    let invalid = |error: &dyn std::fmt::Display| {
        ApiError::BadRequest(format!("invalid remote read request: {error}"))
    };
    let body = body.map_err(|error| {
        invalid(&format_args!("{error}; the size limit is {REQUEST_BYTES_MAX} bytes"))
    })?;
    let body = remote_write::decompress(&body, REQUEST_BYTES_MAX).map_err(|e| invalid(&e))?;
    let queries = remote_read::read_request(&body).map_err(|error| invalid(&error))?;
    let selectors =
        queries.iter().map(range_selector).collect::<Result<Vec<String>, ApiError>>()?;
    let ends: Vec<i64> = queries.iter().map(|query| query.end_ms.saturating_mul(MS)).collect();
    let evaluated: Vec<(String, i64)> = selectors.into_iter().zip(ends).collect();
    let service = context.queries.clone();
    let settings = Settings {
        limits: service.settings.limits,
        threads: service.settings.threads,
        sums_deltas: true,
        ..Settings::default()
    };
    let max = service.settings.max_response_bytes;
    let (captures, own_settings) = (evaluated.clone(), settings.clone());
    let estimate = move |view: &ReadView, active: &ActiveQuery| {
        let source = StoreSource::new(view).with_context(active);
        let rows = captures.iter().map(|(text, end)| {
            query::estimate(&source, &query_request(text, *end), &own_settings, active).unwrap_or(0)
        });
        rows.fold(0, u64::saturating_add)
    };
    let work = move |view: &ReadView, active: &ActiveQuery| {
        let mut response = ReadResponse { bytes: Vec::new(), max, active };
        for (text, end) in &evaluated {
            let source = StoreSource::new(view).with_context(active);
            let request = query_request(text, *end);
            let answer = query::execute(&source, &request, &settings, active)
                .map_err(|error| ApiError::from_query_error(error, text))?;
            let held = answer.data.reserved_bytes();
            let ResultData::RawSamples(series) = answer.data else {
                panic!("BUG: a range selector has raw samples")
            };
            response.add_result(&series)?;
            drop(series);
            active.release_memory(held);
        }
        response.compress()
    };
    let body = context.run_query("prometheus_read", None, estimate, work).await?;
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf")),
        (header::CONTENT_ENCODING, HeaderValue::from_static("snappy")),
    ];
    Ok((headers, body).into_response())
}

fn check_encoding(headers: &HeaderMap) -> Result<(), ApiError> {
    let encoding = headers.get(header::CONTENT_ENCODING);
    match encoding.map(|found| found.to_str().unwrap_or("?")) {
        Some("snappy") => Ok(()),
        found => Err(ApiError::BadRequest(format!(
            "invalid remote read request: content encoding: found {:?}, expected snappy",
            found.unwrap_or("none")
        ))),
    }
}

fn query_request(text: &str, time: i64) -> QueryRequest<'_> {
    let (start, end, step) = (time, time, 0);
    QueryRequest { text, language: Language::PromQl, start, end, step, options: OPTIONS }
}

/// The query as a range selector, whose range excludes its start.
fn range_selector(query: &ReadQuery) -> Result<String, ApiError> {
    let length = query.end_ms.checked_sub(query.start_ms).filter(|length| *length >= 0);
    let length = length.and_then(|length| length.checked_add(1)).ok_or_else(|| {
        let (start, end) = (query.start_ms, query.end_ms);
        let what =
            format!("invalid range: found {start} to {end}, expected a start before the end");
        ApiError::BadRequest(what)
    })?;
    let matchers = query.matchers.iter().map(|ReadMatcher { operator, name, value }| {
        format!("{}{operator}{}", quoted(name), quoted(value))
    });
    let text = format!("{{{}}}[{length}ms]", matchers.collect::<Vec<_>>().join(","));
    // In its own words: the sender has not written it.
    promql::parse(&text, &OPTIONS).map_err(|error| {
        ApiError::BadRequest(format!("invalid remote read request: {text}: {error}"))
    })?;
    Ok(text)
}

/// A string of PromQL.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// `prometheus.ReadResponse` under construction, whose memory is reserved before it is used.
struct ReadResponse<'a> {
    bytes: Vec<u8>,
    max: usize,
    active: &'a ActiveQuery,
}

impl ReadResponse<'_> {
    /// Adds a `QueryResult`; that of a query without series is empty.
    fn add_result(&mut self, all: &[SeriesPoints]) -> Result<(), ApiError> {
        let start = self.bytes.len();
        all.iter().try_for_each(|series| self.add_series(series))?;
        self.end_message(start)
    }

    /// Adds a `TimeSeries`.
    fn add_series(&mut self, series: &SeriesPoints) -> Result<(), ApiError> {
        let start = self.bytes.len();
        for (name, value) in series.labels.iter() {
            let label = ProtobufWriter::default().bytes(1, name.as_bytes());
            let label = label.bytes(2, value.as_bytes());
            self.write(&ProtobufWriter::default().bytes(1, &label.0).0)?;
        }
        let mut memory = ScratchMemory { active: self.active, bytes: 0 };
        let edges = edges_of(series, &mut memory)?;
        let bytes_of_edges = memory.bytes;
        let mut before = None;
        for (at, point) in series.points.iter().enumerate() {
            if at % CHECKED_SAMPLES == 0 {
                self.active.check_cancelled()?;
            }
            // Several samples of a millisecond are one.
            let ms = point.time.div_euclid(MS);
            if before.replace(ms) == Some(ms) {
                continue;
            }
            let sample = match (point.value.histogram(), point.value.number()) {
                (Some(histogram), _) => {
                    let bytes = doubles_of(&histogram, &edges).saturating_mul(size_of::<f64>());
                    self.check(bytes)?;
                    // As packed numbers, as a message, and as a field.
                    memory.hold(bytes_of_edges.saturating_add(bytes.saturating_mul(3)))?;
                    let message = histogram_message(&histogram, &edges, ms);
                    ProtobufWriter::default().bytes(4, &message.0)
                }
                (None, number) => {
                    let sample = ProtobufWriter::default().double(1, number.unwrap_or(f64::NAN));
                    let sample = sample.number(2, ms.cast_unsigned());
                    ProtobufWriter::default().bytes(2, &sample.0)
                }
            };
            self.write(&sample.0)?;
        }
        self.end_message(start)
    }

    /// Makes field 1 of what was written since `start`.
    fn end_message(&mut self, start: usize) -> Result<(), ApiError> {
        let mut header = Vec::new();
        put_varint(&mut header, 1 << 3 | 2);
        put_varint(&mut header, (self.bytes.len() - start) as u64);
        self.write(&header)?;
        self.bytes[start..].rotate_right(header.len());
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), ApiError> {
        self.check(bytes.len())?;
        let (size, capacity) = (self.bytes.len() + bytes.len(), self.bytes.capacity());
        if size > capacity {
            // Doubles like a `Vec`, but reserves the memory first.
            let next = (2 * capacity).min(self.max).max(CAPACITY_MIN).max(size);
            self.active.reserve(next - capacity)?;
            self.bytes.reserve_exact(next - self.bytes.len());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn check(&self, more: usize) -> Result<(), ApiError> {
        if self.bytes.len().saturating_add(more) <= self.max {
            return Ok(());
        }
        Err(ApiError::Unprocessable(format!(
            "response size limit ({} bytes) exceeded (max_buffered_response_bytes in \
             [http.limits] of the settings); use a shorter range or fewer series",
            self.max
        )))
    }

    fn compress(self) -> Result<Vec<u8>, ApiError> {
        self.active.reserve(snap::raw::max_compress_len(self.bytes.len()))?;
        let compressed = snap::raw::Encoder::new().compress_vec(&self.bytes);
        compressed.map_err(|error| ApiError::Internal(error.to_string()))
    }
}

/// Memory of a series while it is written.
struct ScratchMemory<'a> {
    active: &'a ActiveQuery,
    bytes: usize,
}

impl ScratchMemory<'_> {
    /// Reserves what is missing to `bytes`.
    fn hold(&mut self, bytes: usize) -> Result<(), ApiError> {
        let Some(more) = bytes.checked_sub(self.bytes) else { return Ok(()) };
        self.bytes = bytes;
        self.active.reserve(more)
    }
}

impl Drop for ScratchMemory<'_> {
    fn drop(&mut self) {
        self.active.release_memory(self.bytes as u64);
    }
}

/// Finite edges, ascending, of the buckets of histograms in schemes that Prometheus does not have.
fn edges_of(series: &SeriesPoints, memory: &mut ScratchMemory<'_>) -> Result<Vec<f64>, ApiError> {
    let mut edges: BTreeSet<OrderedEdge> = BTreeSet::new();
    for (at, point) in series.points.iter().enumerate() {
        if at % CHECKED_SAMPLES == 0 {
            memory.active.check_cancelled()?;
        }
        let Some(histogram) = point.value.histogram() else { continue };
        if matches!(histogram.grid, BucketGrid::Scheme(_)) {
            let bounds = histogram.buckets().flat_map(|bucket| [bucket.lower, bucket.upper]);
            edges.extend(bounds.filter(|bound| bound.is_finite()).map(OrderedEdge::of));
            memory.hold(edges.len().saturating_mul(EDGE_BYTES))?;
        }
    }
    Ok(edges.into_iter().map(|edge| edge.0).collect())
}

/// Number of counts and bounds in the message of a histogram.
fn doubles_of(histogram: &FloatHistogram, edges: &[f64]) -> usize {
    let bounds = match &histogram.grid {
        BucketGrid::Exponential(_) => 0,
        BucketGrid::Custom(bounds) => bounds.len(),
        BucketGrid::Scheme(_) => edges.len(),
    };
    histogram.positive.len() + histogram.negative.len() + bounds
}

/// An edge that is in the order of its value.
#[derive(PartialEq)]
struct OrderedEdge(f64);

impl OrderedEdge {
    /// Zero has one sign.
    fn of(edge: f64) -> OrderedEdge {
        OrderedEdge(edge + 0.0)
    }
}

impl Eq for OrderedEdge {}

impl PartialOrd for OrderedEdge {
    fn partial_cmp(&self, other: &OrderedEdge) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for OrderedEdge {
    fn cmp(&self, other: &OrderedEdge) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// `prometheus.Histogram` with float counts.
fn histogram_message(histogram: &FloatHistogram, edges: &[f64], ms: i64) -> ProtobufWriter {
    let message =
        ProtobufWriter::default().double_always(2, histogram.count).double(3, histogram.sum);
    let message = match &histogram.grid {
        BucketGrid::Exponential(schema) => {
            let message = message
                .zigzag(4, i64::from(*schema))
                .double(5, histogram.zero_threshold)
                .double_always(7, histogram.zero_count);
            let message = spans(message, 8, &histogram.negative);
            let message = message.doubles(10, histogram.negative.iter().map(|bucket| bucket.1));
            let message = spans(message, 11, &histogram.positive);
            message.doubles(13, histogram.positive.iter().map(|bucket| bucket.1))
        }
        BucketGrid::Custom(bounds) => custom(message, &histogram.positive, bounds),
        BucketGrid::Scheme(_) => {
            let mut counts: Vec<(i32, f64)> = Vec::new();
            for bucket in histogram.buckets() {
                // The number of edges below is that of the bucket that ends at the next one.
                let index = edges.partition_point(|edge| *edge < bucket.upper);
                let index = i32::try_from(index).unwrap_or(i32::MAX);
                match counts.last_mut().filter(|last| last.0 == index) {
                    Some(last) => last.1 += bucket.count,
                    None => counts.push((index, bucket.count)),
                }
            }
            custom(message, &counts, edges)
        }
    };
    message.number(15, ms.cast_unsigned())
}

/// Custom buckets: each ends at a bound, the last one at infinity.
fn custom(message: ProtobufWriter, counts: &[(i32, f64)], bounds: &[f64]) -> ProtobufWriter {
    let message = message.zigzag(4, CUSTOM_SCHEMA).double_always(7, 0.0);
    let message = spans(message, 11, counts).doubles(13, counts.iter().map(|bucket| bucket.1));
    message.doubles(16, bounds.iter().copied().filter(|bound| bound.is_finite()))
}

/// Spans of buckets whose indices follow one another: distance to the one before, and length.
fn spans(mut message: ProtobufWriter, field: u32, buckets: &[(i32, f64)]) -> ProtobufWriter {
    let mut next = 0;
    for run in buckets.chunk_by(|a, b| i64::from(a.0) + 1 == i64::from(b.0)) {
        let start = run.first().map_or(0, |bucket| i64::from(bucket.0));
        let span = ProtobufWriter::default().zigzag(1, start - next).number(2, run.len() as u64);
        message = message.bytes(field, &span.0);
        next = start + run.len() as i64;
    }
    message
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use decode::VecSeriesSink;
    use decode::remote_write::RemoteWriteVersion;
    use hist::Histogram;
    use hist::codec::header::Temporality;
    use http::StatusCode;
    use model::{Sample, SampleValue, Series, SeriesKind};

    use super::*;
    use crate::query_service::QueryServiceSettings;
    use crate::test_server::{NOW, START, TestServer, empty_store};

    /// A request for the series with these labels, from `start` to `end` in milliseconds.
    fn request_body(matchers: &[(u64, &str, &str)], start: i64, end: i64) -> Vec<u8> {
        let mut query = ProtobufWriter::default()
            .number(1, start.cast_unsigned())
            .number(2, end.cast_unsigned());
        for (kind, name, value) in matchers {
            let matcher = ProtobufWriter::default().number(1, *kind);
            query = query.bytes(3, &matcher.bytes(2, name.as_bytes()).bytes(3, value.as_bytes()).0);
        }
        let request = ProtobufWriter::default().bytes(1, &query.0).number(2, 1);
        let accepted = [&request.0[..], &[2 << 3, 0]].concat();
        snap::raw::Encoder::new().compress_vec(&accepted).unwrap()
    }

    async fn post(server: &TestServer, body: Vec<u8>) -> (StatusCode, Vec<u8>) {
        let request = http::Request::post("/api/v1/read").header("content-encoding", "snappy");
        let response = server.respond(request.body(Body::from(body)).unwrap()).await;
        let status = response.status();
        (status, to_bytes(response.into_body(), usize::MAX).await.unwrap().to_vec())
    }

    /// Rows of the only result: it has the fields of a write request.
    async fn rows(server: &TestServer, matchers: &[(u64, &str, &str)]) -> Vec<(Series, Sample)> {
        let (start, end) = (START / MS, NOW / MS);
        let (status, body) = post(server, request_body(matchers, start, end)).await;
        assert_eq!(status, StatusCode::OK, "{}", String::from_utf8_lossy(&body));
        let body = remote_write::decompress(&body, 1 << 20).unwrap();
        assert_eq!(body[0], 1 << 3 | 2);
        let (mut length, mut at) = (0, 1);
        while body[at - 1] >= 0x80 || at == 1 {
            length |= usize::from(body[at] & 0x7f) << (7 * (at - 1));
            at += 1;
        }
        let result = &body[at..];
        assert_eq!(result.len(), length);
        let mut sink = VecSeriesSink::default();
        let written = remote_write::read_request(RemoteWriteVersion::V1, result, &mut sink);
        assert_eq!(written.unwrap().rejected, 0);
        sink.rows
    }

    /// Tools that read by the protocol of Prometheus got 404.
    #[tokio::test]
    async fn samples_of_a_range_are_read_as_prometheus_sends_them() {
        let server = TestServer::new();
        let found = rows(&server, &[(0, "__name__", "depth"), (2, "host", "a|b")]).await;
        assert!(!found.is_empty());
        for (series, sample) in &found {
            assert_eq!((series.name(), series.label("host")), ("depth", Some("a")));
            assert!(matches!(sample.value, SampleValue::Number(_)), "{sample:?}");
        }
        let ends: Vec<i64> = found.iter().map(|(_, sample)| sample.end / store::SECOND).collect();
        let answer = server.json("/api/v1/query?query=depth[2h]").await;
        let values = answer["data"]["result"][0]["values"].as_array().unwrap().clone();
        let expected: Vec<i64> = values.iter().map(|value| value[0].as_i64().unwrap()).collect();
        assert_eq!(ends, expected);
        assert_eq!(rows(&server, &[(0, "__name__", "nothing")]).await, []);
    }

    #[tokio::test]
    async fn histograms_of_a_remote_read_keep_their_counts() {
        let server = TestServer::new();
        let kind = SeriesKind::Histogram(Temporality::Cumulative);
        let default = Histogram::default();
        let exponential = Histogram::new(hist::Scheme::exp2(3).unwrap());
        for (name, mut histogram) in [("other", default), ("exponential", exponential)] {
            let series = Series::new(name, kind).with_unit("s").validate().unwrap();
            for minute in 1..=3 {
                histogram.record_n(0.25, 30);
                histogram.record_n(f64::from(minute), 2);
                let end = START + i64::from(minute) * store::MINUTE;
                let value = SampleValue::Histogram(Box::new(histogram.clone()));
                server.send(&series, Sample { start: START, end, value });
            }
            let found = rows(&server, &[(0, "__name__", name)]).await;
            let counts: Vec<(u64, f64)> = found
                .iter()
                .map(|(_, sample)| match &sample.value {
                    SampleValue::Histogram(found) => (found.count(), found.sum().estimate),
                    other => panic!("{other:?}"),
                })
                .collect();
            assert_eq!(counts, [(32, 9.5), (64, 21.0), (96, 34.5)], "{name}");
            // Its buckets by the names of a classic one.
            let bucket = format!("{name}_count");
            let found = rows(&server, &[(0, "__name__", &bucket)]).await;
            let last = found.last().map(|(_, sample)| sample.value.clone());
            assert_eq!(last, Some(SampleValue::Number(96.0)), "{name}");
        }
    }

    /// Each sample repeats the bounds of its series, which count once for the query. The response
    /// was built before its size was compared with a limit, and took twice its size of the budget.
    #[tokio::test]
    async fn memory_of_a_remote_read_is_reserved_before_it_is_used() {
        let bounds: Vec<f64> = (1..=5_000).map(f64::from).collect();
        let read = async |samples: i64, max_response_bytes| {
            let settings = QueryServiceSettings {
                max_query_bytes: QueryServiceSettings::QUERY_BYTES_MIN,
                max_response_bytes,
                ..QueryServiceSettings::default()
            };
            let server = TestServer::with_store(empty_store(), settings);
            let kind = SeriesKind::Histogram(Temporality::Cumulative);
            let series = Series::new("took", kind).validate().unwrap();
            let mut histogram = Histogram::new(hist::Scheme::explicit(&bounds).unwrap());
            for sample in 1..=samples {
                histogram.record(7.0);
                let end = START + sample * store::SECOND;
                let value = SampleValue::Histogram(Box::new(histogram.clone()));
                server.send(&series, Sample { start: START, end, value });
            }
            let matchers = [(0, "__name__", "took")];
            post(&server, request_body(&matchers, START / MS, NOW / MS)).await
        };
        let (status, body) = read(100, 128 << 20).await;
        let size = snap::raw::decompress_len(&body);
        assert_eq!(status, StatusCode::OK, "{}", String::from_utf8_lossy(&body));
        assert!(size.clone().is_ok_and(|size| size > 100 * 5_000 * 8), "{size:?}");
        for (samples, max, expected) in [
            (800, 128 << 20, "memory limit"),
            (100, 1 << 20, "response size limit (1048576 bytes) exceeded"),
        ] {
            let (status, body) = read(samples, max).await;
            let text = String::from_utf8_lossy(&body);
            assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{text}");
            assert!(text.contains(expected), "{text}");
        }
    }

    /// Prometheus would take each delta for a total.
    #[tokio::test]
    async fn deltas_of_a_remote_read_are_running_totals() {
        let server = TestServer::new();
        let kind = SeriesKind::Counter(Temporality::Delta);
        let hits = Series::new("hits", kind).validate().unwrap();
        for minute in 1..=3 {
            let end = START + minute * store::MINUTE;
            let value = SampleValue::Number(minute as f64);
            server.send(&hits, Sample { start: end - store::MINUTE, end, value });
        }
        let found = rows(&server, &[(0, "__name__", "hits")]).await;
        let totals: Vec<SampleValue> = found.into_iter().map(|(_, sample)| sample.value).collect();
        assert_eq!(totals, [1.0, 3.0, 6.0].map(SampleValue::Number));
    }

    #[tokio::test]
    async fn remote_reads_that_cannot_be_answered_say_why() {
        let server = TestServer::new();
        let check = async |body: Vec<u8>, expected: &str| {
            let (status, text) = post(&server, body).await;
            let text = String::from_utf8_lossy(&text).into_owned();
            assert_eq!(status, StatusCode::BAD_REQUEST, "{text}");
            assert!(text.contains(expected), "{text}");
        };
        let name = [(0, "__name__", "depth")];
        check(request_body(&name, 2, 1), "expected a start before the end").await;
        check(request_body(&name, i64::MIN, i64::MAX), "expected a start before the end").await;
        check(request_body(&[(2, "host", "(")], 1, 2), "invalid remote read request").await;
        check(request_body(&[], 1, 2), "invalid remote read request").await;
        check(b"\xff\xff\xff\xff\x0f".to_vec(), "at most 1048576 bytes").await;
        check(vec![0; REQUEST_BYTES_MAX + 1], "the size limit is 1048576 bytes").await;
        let plain = http::Request::post("/api/v1/read").body(Body::empty()).unwrap();
        let (status, text) = server.send_request(plain).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        assert!(text.contains(r#"found \"none\", expected snappy"#), "{text}");
    }

    #[test]
    fn matchers_are_quoted() {
        let matcher = |name: &str, value: &str| ReadMatcher {
            operator: "=",
            name: name.to_owned(),
            value: value.to_owned(),
        };
        let matchers = vec![matcher("http.route", "a\"\\\n\u{7}é")];
        let text = range_selector(&ReadQuery { start_ms: 1, end_ms: 1, matchers }).unwrap();
        assert_eq!(text, r#"{"http.route"="a\"\\\n\u0007é"}[1ms]"#);
    }
}
