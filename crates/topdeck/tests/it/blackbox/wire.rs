//! Requests as foreign senders write them: Prometheus remote write 1, OTLP as JSON, Influx lines.

use serde_json::json;

use super::model::{BUCKETS, Kind, Row, sum};

/// A request: path, headers, body.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) path: &'static str,
    pub(super) headers: Vec<(&'static str, &'static str)>,
    pub(super) body: Vec<u8>,
}

/// Some rows of one series.
pub(super) fn request(kind: Kind, rows: &[Row]) -> Request {
    match kind {
        Kind::Lines => Request {
            path: "/write?precision=ms",
            headers: vec![],
            body: lines(kind, rows).into_bytes(),
        },
        Kind::Delta | Kind::Cumulative => Request {
            path: "/v1/metrics",
            headers: vec![("Content-Type", "application/json")],
            body: otlp(kind, rows),
        },
        Kind::Gauge | Kind::Counter | Kind::Native | Kind::Points => Request {
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

fn lines(kind: Kind, rows: &[Row]) -> String {
    let name = kind.name();
    let line =
        |row: &Row| format!("{name},host=a value={} {}\n", row.counts[0], row.end / 1_000_000);
    rows.iter().map(line).collect()
}

fn otlp(kind: Kind, rows: &[Row]) -> Vec<u8> {
    let bounds: Vec<u64> = (0..BUCKETS).map(|at| 1 << at).collect();
    let points: Vec<_> = rows
        .iter()
        .map(|row| {
            let mut counts: Vec<String> = row.counts.iter().map(u64::to_string).collect();
            counts.push("0".to_owned());
            json!({
                "startTimeUnixNano": row.start.to_string(),
                "timeUnixNano": row.end.to_string(),
                "count": sum(&row.counts).to_string(),
                "bucketCounts": counts,
                "explicitBounds": bounds,
                "attributes": [{"key": "host", "value": {"stringValue": "a"}}],
            })
        })
        .collect();
    let temporality = if kind == Kind::Delta { 1 } else { 2 };
    let histogram = json!({"aggregationTemporality": temporality, "dataPoints": points});
    let metric = json!({"name": kind.name(), "histogram": histogram});
    let scopes = json!([{"metrics": [metric]}]);
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

/// `prometheus.WriteRequest`, the fields as docs/formats/prometheus.md has them.
fn remote_write(kind: Kind, rows: &[Row]) -> Vec<u8> {
    let mut series = Vec::new();
    for (name, value) in [("__name__", kind.name()), ("host", "a")] {
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
            put_double(&mut sample, 1, row.counts[0] as f64);
            put_integer(&mut sample, 2, ms);
            put_bytes(&mut series, 2, &sample);
        }
    }
    let mut request = Vec::new();
    put_bytes(&mut request, 1, &series);
    request
}

fn put_histogram(out: &mut Vec<u8>, kind: Kind, row: &Row, ms: u64) {
    const SUM: u64 = 3;
    let (mut span, mut deltas, mut before) = (Vec::new(), Vec::new(), 0);
    // At schema 0 bucket 0 is (0.5, 1].
    put_integer(&mut span, 1, zigzag(0));
    put_integer(&mut span, 2, BUCKETS as u64);
    for &count in &row.counts {
        put_varint(&mut deltas, zigzag(count.cast_signed() - before));
        before = count.cast_signed();
    }
    let total: u64 = row.counts.iter().enumerate().map(|(at, count)| count << at).sum();
    put_integer(out, 1, sum(&row.counts));
    put_double(out, SUM, total as f64);
    put_integer(out, 4, zigzag(0));
    put_double(out, 5, 0.0);
    put_integer(out, 6, 0);
    put_bytes(out, 11, &span);
    put_bytes(out, 12, &deltas);
    put_integer(out, 14, if kind == Kind::Points { 3 } else { 0 });
    put_integer(out, 15, ms);
}

/// A block of snappy that compresses nothing (its `format_description.txt`: literals).
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
