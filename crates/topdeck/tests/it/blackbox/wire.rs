//! Requests of other senders: Prometheus remote write 1, OTLP JSON, Influx lines, HTTPTrap, StatsD.

use serde_json::json;

use super::model::{COARSE, COUNTER, EXPONENTIAL, ModelKind, ModelRow, POSITIVE, ZERO, sum};

/// Request: path, headers, body.
#[derive(Clone, Debug)]
pub(super) struct WireRequest {
    pub(super) path: &'static str,
    pub(super) headers: Vec<(&'static str, &'static str)>,
    pub(super) body: Vec<u8>,
}

/// Request with rows of one series.
pub(super) fn request(kind: ModelKind, rows: &[ModelRow]) -> WireRequest {
    match kind {
        ModelKind::Statsd => {
            WireRequest { path: STATSD, headers: vec![], body: statsd(kind, rows) }
        }
        ModelKind::Httptrap => {
            WireRequest { path: "/v1/httptrap", headers: vec![], body: httptrap_body(kind, rows) }
        }
        ModelKind::Lines => WireRequest {
            path: "/write?precision=ms",
            headers: vec![],
            body: influx_lines(kind, rows).into_bytes(),
        },
        ModelKind::Delta | ModelKind::Cumulative => WireRequest {
            path: "/v1/metrics",
            headers: vec![("Content-Type", "application/json")],
            body: otlp(kind, rows),
        },
        ModelKind::Retyped if rows.iter().all(|row| row.schema == COUNTER) => WireRequest {
            path: "/api/v1/write",
            headers: vec![
                ("Content-Encoding", "snappy"),
                ("Content-Type", "application/x-protobuf;proto=io.prometheus.write.v2.Request"),
                ("X-Prometheus-Remote-Write-Version", "2.0.0"),
            ],
            body: snappy(&remote_write_2(kind, rows)),
        },
        ModelKind::Gauge
        | ModelKind::Counter
        | ModelKind::Native
        | ModelKind::Points
        | ModelKind::Retyped => WireRequest {
            path: "/api/v1/write",
            headers: vec![
                ("Content-Encoding", "snappy"),
                ("Content-Type", "application/x-protobuf"),
                ("X-Prometheus-Remote-Write-Version", "0.1.0"),
            ],
            body: snappy(&remote_write(kind, rows)),
        },
    }
}

fn influx_lines(kind: ModelKind, rows: &[ModelRow]) -> String {
    let name = kind.name();
    let line =
        |row: &ModelRow| format!("{name},host=a value={} {}\n", row.counts[0], row.end / 1_000_000);
    rows.iter().map(line).collect()
}

/// Path of StatsD lines, which go to another port.
pub(super) const STATSD: &str = "statsd";

/// Counts with the second in which they start.
fn statsd(kind: ModelKind, rows: &[ModelRow]) -> Vec<u8> {
    let line = |row: &ModelRow| {
        format!("{}:{}|c|#host:a|T{}\n", kind.name(), row.counts[0], row.start / 1_000_000_000)
    };
    rows.iter().map(line).collect::<String>().into_bytes()
}

/// A key may be repeated: each value is a sample.
fn httptrap_body(kind: ModelKind, rows: &[ModelRow]) -> Vec<u8> {
    let reading = |row: &ModelRow| {
        let (value, ms) = (row.counts[0], row.end / 1_000_000);
        format!("\"{}\":{{\"_type\":\"n\",\"_value\":{value},\"_ts\":{ms}}}", kind.name())
    };
    let readings: Vec<String> = rows.iter().map(reading).collect();
    format!("{{{}}}", readings.join(",")).into_bytes()
}

fn otlp(kind: ModelKind, rows: &[ModelRow]) -> Vec<u8> {
    let point = |row: &ModelRow| {
        let mut point = json!({
            "startTimeUnixNano": row.start.to_string(),
            "timeUnixNano": row.end.to_string(),
            "count": sum(&row.counts).to_string(),
            "attributes": [{"key": "host", "value": {"stringValue": "a"}}],
        });
        // A coarse histogram has counts in every second fine bucket.
        let (first, every) = if row.schema == COARSE { (1, 2) } else { (0, 1) };
        let edges = || (0..POSITIVE).skip(first).step_by(every);
        let mut counts: Vec<String> = edges().map(|at| row.counts[at].to_string()).collect();
        if row.schema == EXPONENTIAL {
            // Bucket -1 of scale 0 ends at 1.
            point["scale"] = json!(0);
            point["zeroCount"] = json!("0");
            point["positive"] = json!({"offset": -1, "bucketCounts": counts});
        } else {
            counts.push("0".to_owned());
            point["bucketCounts"] = json!(counts);
            point["explicitBounds"] = edges().map(|at| json!(1 << at)).collect();
        }
        point
    };
    let temporality = if kind == ModelKind::Delta { 1 } else { 2 };
    let metric = |what: &str, is_exponential: bool| {
        let of_kind = rows.iter().filter(|row| (row.schema == EXPONENTIAL) == is_exponential);
        let points: Vec<_> = of_kind.map(point).collect();
        let data = json!({"aggregationTemporality": temporality, "dataPoints": points});
        json!({"name": kind.name(), what: data})
    };
    let metrics = [metric("histogram", false), metric("exponentialHistogram", true)];
    let scopes = json!([{"metrics": metrics}]);
    json!({"resourceMetrics": [{"scopeMetrics": scopes}]}).to_string().into_bytes()
}

// Protocol buffers: <https://protobuf.dev/programming-guides/encoding/>.

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

fn put_integer(out: &mut Vec<u8>, field: u64, value: u64) {
    put_varint(out, field << 3);
    put_varint(out, value);
}

fn put_double(out: &mut Vec<u8>, field: u64, value: f64) {
    put_varint(out, field << 3 | 1);
    out.extend_from_slice(&value.to_le_bytes());
}

fn put_bytes(out: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    put_varint(out, field << 3 | 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn remote_write(kind: ModelKind, rows: &[ModelRow]) -> Vec<u8> {
    let labels = vec![("__name__", kind.name().to_owned()), ("host", "a".to_owned())];
    let mut request = Vec::new();
    put_bytes(&mut request, 1, &series(&labels, kind, rows));
    request
}

/// Labels of a series, sorted by name.
pub(super) type Labels = Vec<(&'static str, String)>;

/// Remote write 1 request of several series.
pub(super) fn write_request(all: &[Vec<u8>]) -> Vec<u8> {
    let mut request = Vec::new();
    all.iter().for_each(|series| put_bytes(&mut request, 1, series));
    snappy(&request)
}

/// `prometheus.TimeSeries`, with the fields of docs/formats/prometheus.md.
pub(super) fn series(labels: &Labels, kind: ModelKind, rows: &[ModelRow]) -> Vec<u8> {
    let mut series = Vec::new();
    for (name, value) in labels {
        let mut label = Vec::new();
        put_bytes(&mut label, 1, name.as_bytes());
        put_bytes(&mut label, 2, value.as_bytes());
        put_bytes(&mut series, 1, &label);
    }
    for row in rows {
        let ms = (row.end / 1_000_000).cast_unsigned();
        let mut sample = Vec::new();
        if kind.is_histogram() {
            put_histogram(&mut sample, kind, row, ms);
            put_bytes(&mut series, 4, &sample);
        } else {
            let value = if row.is_stale_mark { STALE } else { row.counts[0] as f64 };
            put_double(&mut sample, 1, value);
            put_integer(&mut sample, 2, ms);
            put_bytes(&mut series, 2, &sample);
        }
    }
    series
}

/// `io.prometheus.write.v2.Request` with metadata that declare a counter.
fn remote_write_2(kind: ModelKind, rows: &[ModelRow]) -> Vec<u8> {
    const COUNTER_TYPE: u64 = 1;
    let mut series = Vec::new();
    // Labels refer to strings by index; index 0 is the empty string.
    put_bytes(&mut series, 1, &[1, 2, 3, 4]);
    for row in rows {
        let mut sample = Vec::new();
        put_double(&mut sample, 1, row.counts[0] as f64);
        put_integer(&mut sample, 2, (row.end / 1_000_000).cast_unsigned());
        put_bytes(&mut series, 2, &sample);
    }
    let mut metadata = Vec::new();
    put_integer(&mut metadata, 1, COUNTER_TYPE);
    put_bytes(&mut series, 5, &metadata);
    let mut request = Vec::new();
    for text in ["", "__name__", kind.name(), "host", "a"] {
        put_bytes(&mut request, 4, text.as_bytes());
    }
    put_bytes(&mut request, 5, &series);
    request
}

/// Prometheus' staleness marker, `value.StaleNaN`.
const STALE: f64 = f64::from_bits(0x7ff0_0000_0000_0002);

fn put_histogram(out: &mut Vec<u8>, kind: ModelKind, row: &ModelRow, ms: u64) {
    const SUM: u64 = 3;
    let (negative, positive) = (&row.counts[ZERO + 1..], &row.counts[..POSITIVE]);
    let edges = |counts: &[u64]| counts.iter().zip(0..).map(|(count, at)| count << at).sum::<u64>();
    let total = edges(positive) as f64 - edges(negative) as f64;
    put_integer(out, 1, sum(&row.counts));
    put_double(out, SUM, if row.is_stale_mark { STALE } else { total });
    put_integer(out, 4, zigzag(i64::from(row.schema)));
    put_double(out, 5, 0.0);
    put_integer(out, 6, row.counts[ZERO]);
    put_buckets(out, 8, row.schema, negative);
    put_buckets(out, 11, row.schema, positive);
    put_integer(out, 14, if kind == ModelKind::Points { 3 } else { 0 });
    put_integer(out, 15, ms);
}

/// Spans and their counts. At schema 0 bucket 0 is (0.5, 1]; at another schema its counts are in
/// the last of its sub-buckets, which has the same upper bound.
fn put_buckets(out: &mut Vec<u8>, field: u64, schema: u32, counts: &[u64]) {
    let (mut deltas, mut before) = (Vec::new(), 0);
    for (at, &count) in counts.iter().enumerate() {
        let mut span = Vec::new();
        let between = if at == 0 { 0 } else { (1 << schema) - 1 };
        put_integer(&mut span, 1, zigzag(between));
        put_integer(&mut span, 2, 1);
        put_bytes(out, field, &span);
        put_varint(&mut deltas, zigzag(count.cast_signed() - before));
        before = count.cast_signed();
    }
    put_bytes(out, field + 1, &deltas);
}

/// Snappy block of literals, without compression (`format_description.txt`).
fn snappy(bytes: &[u8]) -> Vec<u8> {
    const LITERAL_OF_TWO_BYTES: u8 = 61 << 2;
    let mut out = Vec::new();
    put_varint(&mut out, bytes.len() as u64);
    for piece in bytes.chunks(1 << 16) {
        out.push(LITERAL_OF_TWO_BYTES);
        out.extend_from_slice(&((piece.len() - 1) as u16).to_le_bytes());
        out.extend_from_slice(piece);
    }
    out
}
