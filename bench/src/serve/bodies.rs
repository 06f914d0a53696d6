//! Request bodies, encoded before the measurement: sending one costs a system call.
//!
//! A remote write request contains one sample of each of its series, like those of Prometheus. An
//! OTLP request contains one cumulative exponential histogram of each series, with about 160
//! buckets. Timestamps increase from request to request of a connection and end at the current
//! time. Fields are those of `prometheus/prompb/types.proto`,
//! `…/io/prometheus/write/v2/types.proto` and `opentelemetry/proto/metrics/v1/metrics.proto`.

use std::time::{SystemTime, UNIX_EPOCH};

/// Concurrent connections, each with its own series.
pub(crate) const LANES: usize = 8;
/// Interval between two samples of a series.
const STEP_MS: u64 = 5_000;
/// Buckets of an exponential histogram.
pub(crate) const BUCKETS: usize = 160;
/// Labels of a numeric series, including its name.
pub(crate) const LABELS: usize = 10;
/// Values of a histogram in its first request, and additional values per step.
const FIRST_VALUES: usize = 4_000;
const MORE_VALUES: usize = 50;
const SCALE: i64 = 4;
/// Offset of its buckets: about 5 ms, in seconds.
const OFFSET: i64 = -122;

/// Format of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestFormat {
    RemoteWrite1,
    RemoteWrite2,
    OtlpHttp,
    OtlpGrpc,
}

impl RequestFormat {
    pub(crate) fn name(self) -> &'static str {
        match self {
            RequestFormat::RemoteWrite1 => "remote write 1",
            RequestFormat::RemoteWrite2 => "remote write 2",
            RequestFormat::OtlpHttp => "OTLP over HTTP",
            RequestFormat::OtlpGrpc => "OTLP over gRPC",
        }
    }

    pub(crate) fn is_otlp(self) -> bool {
        matches!(self, RequestFormat::OtlpHttp | RequestFormat::OtlpGrpc)
    }

    /// Header lines of a request.
    pub(crate) fn headers(self) -> &'static str {
        match self {
            RequestFormat::RemoteWrite1 => {
                "Content-Type: application/x-protobuf\r\nContent-Encoding: snappy\r\n\
                 X-Prometheus-Remote-Write-Version: 0.1.0\r\n"
            }
            RequestFormat::RemoteWrite2 => {
                "Content-Type: application/x-protobuf;proto=io.prometheus.write.v2.Request\r\n\
                 Content-Encoding: snappy\r\nX-Prometheus-Remote-Write-Version: 2.0.0\r\n"
            }
            RequestFormat::OtlpHttp | RequestFormat::OtlpGrpc => {
                "Content-Type: application/x-protobuf\r\n"
            }
        }
    }
}

/// Requests by connection, all with the same number of points.
pub(crate) struct Bodies {
    pub(crate) format: RequestFormat,
    pub(crate) points: usize,
    /// The first request of each connection creates the series, before the measurement.
    pub(crate) lanes: Vec<Vec<Vec<u8>>>,
}

impl Bodies {
    /// Creates `requests` for all connections together, each with `points`, not counting the first
    /// ones.
    pub(crate) fn new(format: RequestFormat, points: usize, requests: usize) -> Bodies {
        let steps = requests.div_ceil(LANES) + 1;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_millis());
        let start_ms = now as u64 - STEP_MS * steps as u64;
        let lane = |lane: usize| match format.is_otlp() {
            true => otlp(lane, points, steps, start_ms),
            false => numbers(format, lane, points, steps, start_ms),
        };
        let threads: Vec<Vec<Vec<u8>>> = std::thread::scope(|scope| {
            let lanes: Vec<_> = (0..LANES).map(|at| scope.spawn(move || lane(at))).collect();
            lanes.into_iter().map(|one| one.join().expect("writing does not fail")).collect()
        });
        Bodies { format, points, lanes: threads }
    }

    /// Points sent during the measurement.
    pub(crate) fn timed_points(&self) -> u64 {
        self.lanes.iter().map(|lane| (lane.len() - 1) * self.points).sum::<usize>() as u64
    }

    /// Mean bytes per request.
    pub(crate) fn bytes(&self) -> f64 {
        let all = self.lanes.iter().flatten();
        let (count, sum) = all.fold((0, 0), |(count, sum), one| (count + 1, sum + one.len()));
        sum as f64 / f64::from(count.max(1))
    }
}

/// Labels of a numeric series. Every other series is a counter.
fn labels(lane: usize, series: usize) -> Vec<(&'static str, String)> {
    let name = match series % 2 {
        0 => format!("app_requests_{}_total", series / 2 % 50),
        _ => format!("app_queue_length_{}", series / 2 % 50),
    };
    vec![
        ("__name__", name),
        ("cluster", "eu-central-1-production".to_owned()),
        ("container", "server".to_owned()),
        ("endpoint", "metrics".to_owned()),
        ("instance", format!("10.{lane}.{}.{}:9100", series / 100 % 250, series % 100)),
        ("job", "shop-frontend".to_owned()),
        ("method", ["GET", "PUT", "POST", "DELETE"][series % 4].to_owned()),
        ("namespace", "shop".to_owned()),
        ("pod", format!("shop-frontend-{lane}-{:05}-{:05}", series / 50, series * 7919 % 99_991)),
        ("status", ["200", "404", "500"][series % 3].to_owned()),
    ]
}

/// A small pseudorandom number generator (Marsaglia, “Xorshift RNGs”, 2003).
struct XorShiftRng(u64);

impl XorShiftRng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

fn numbers(
    format: RequestFormat,
    lane: usize,
    points: usize,
    steps: usize,
    start_ms: u64,
) -> Vec<Vec<u8>> {
    let all: Vec<_> = (0..points).map(|series| labels(lane, series)).collect();
    let mut symbols = vec![String::new()];
    let mut known = std::collections::HashMap::new();
    let mut place = |text: &str| {
        *known.entry(text.to_owned()).or_insert_with(|| {
            symbols.push(text.to_owned());
            symbols.len() as u64 - 1
        })
    };
    let told: Vec<Vec<u8>> = match format {
        RequestFormat::RemoteWrite2 => {
            let refs = |labels: &Vec<(&str, String)>| {
                let mut refs = Vec::new();
                for (name, value) in labels {
                    put_number(&mut refs, place(name));
                    put_number(&mut refs, place(value));
                }
                let mut out = Vec::new();
                put_bytes(&mut out, 1, &refs);
                // Metric type in the metadata: 1 is a counter, 2 a gauge.
                let kind = if labels[0].1.ends_with("_total") { 1 } else { 2 };
                put_bytes(&mut out, 5, &[1 << 3, kind]);
                out
            };
            all.iter().map(refs).collect()
        }
        _ => all.iter().map(|labels| labels_text(labels)).collect(),
    };
    let (series_field, mut head) = match format {
        RequestFormat::RemoteWrite2 => (5, Vec::new()),
        _ => (1, Vec::new()),
    };
    if format == RequestFormat::RemoteWrite2 {
        symbols.iter().for_each(|text| put_bytes(&mut head, 4, text.as_bytes()));
    }
    let mut random = XorShiftRng(0x9e37_79b9_7f4a_7c15 ^ lane as u64);
    let mut values = vec![0.0; points];
    let (mut requests, mut series, mut sample) = (Vec::new(), Vec::new(), Vec::new());
    for step in 0..steps {
        let mut body = head.clone();
        for (at, told) in told.iter().enumerate() {
            values[at] = match at % 2 {
                0 => values[at] + (random.next() % 100) as f64,
                _ => (random.next() % 1_000) as f64 / 10.0,
            };
            sample.clear();
            put_double(&mut sample, 1, values[at]);
            put_varint(&mut sample, 2, start_ms + STEP_MS * step as u64);
            series.clear();
            series.extend_from_slice(told);
            put_bytes(&mut series, 2, &sample);
            put_bytes(&mut body, series_field, &series);
        }
        let packed = snap::raw::Encoder::new().compress_vec(&body);
        requests.push(packed.expect("a request is smaller than 4 GiB"));
    }
    requests
}

fn labels_text(labels: &[(&str, String)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in labels {
        let mut label = Vec::new();
        put_bytes(&mut label, 1, name.as_bytes());
        put_bytes(&mut label, 2, value.as_bytes());
        put_bytes(&mut out, 1, &label);
    }
    out
}

/// Cumulative counts of one histogram.
struct HistogramCounts {
    counts: [u64; BUCKETS],
    sum: f64,
    attributes: Vec<u8>,
}

impl HistogramCounts {
    /// A value in the middle of a bucket: some servers check impossible sums more closely.
    fn record(&mut self, bucket: usize) {
        self.counts[bucket] += 1;
        let of_bucket = OFFSET as f64 + bucket as f64 + 0.5;
        self.sum += (of_bucket / f64::from(1 << SCALE)).exp2();
    }

    /// The sum of four uniform numbers: a bell-shaped distribution over all buckets.
    fn add(&mut self, random: &mut XorShiftRng, values: usize) {
        for _ in 0..values {
            let bits = random.next();
            let sum: u64 = (0..4).map(|part| bits >> (16 * part) & 0xffff).sum();
            let bucket = (sum as usize * BUCKETS) >> 18;
            self.record(bucket);
        }
    }

    fn put(&self, start_ns: u64, time_ns: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.attributes);
        put_fixed(out, 2, start_ns);
        put_fixed(out, 3, time_ns);
        put_fixed(out, 4, self.counts.iter().sum());
        put_double(out, 5, self.sum);
        put_varint(out, 6, zigzag(SCALE));
        let mut counts = Vec::with_capacity(2 * BUCKETS);
        self.counts.iter().for_each(|&count| put_number(&mut counts, count));
        let mut buckets = Vec::with_capacity(2 * BUCKETS + 8);
        put_varint(&mut buckets, 1, zigzag(OFFSET));
        put_bytes(&mut buckets, 2, &counts);
        put_bytes(out, 8, &buckets);
    }
}

fn attribute(field: u64, key: &str, value: &str, out: &mut Vec<u8>) {
    let (mut any, mut pair) = (Vec::new(), Vec::new());
    put_bytes(&mut any, 1, value.as_bytes());
    put_bytes(&mut pair, 1, key.as_bytes());
    put_bytes(&mut pair, 2, &any);
    put_bytes(out, field, &pair);
}

fn otlp(lane: usize, points: usize, steps: usize, start_ms: u64) -> Vec<Vec<u8>> {
    let mut random = XorShiftRng(0xd1b5_4a32_d192_ed03 ^ lane as u64);
    let series = |at: usize| {
        let mut attributes = Vec::new();
        for (key, value) in [
            ("http.request.method", ["GET", "PUT", "POST", "DELETE"][at % 4].to_owned()),
            ("http.route", format!("/shop/{}/{}", at % 50, at / 50)),
            ("http.response.status_code", ["200", "404", "500"][at % 3].to_owned()),
            ("server.address", format!("shop-{}.example", at % 10)),
        ] {
            attribute(1, key, &value, &mut attributes);
        }
        attributes
    };
    // Attributes of an exponential data point are field 1.
    let mut all: Vec<HistogramCounts> = (0..points)
        .map(|at| HistogramCounts { counts: [0; BUCKETS], sum: 0.0, attributes: series(at) })
        .collect();
    for one in &mut all {
        (0..BUCKETS).for_each(|bucket| one.record(bucket));
        one.add(&mut random, FIRST_VALUES);
    }
    let mut resource = Vec::new();
    attribute(1, "service.name", "shop-frontend", &mut resource);
    attribute(1, "service.instance.id", &format!("shop-frontend-{lane}"), &mut resource);
    let mut requests = Vec::new();
    for step in 0..steps {
        let (mut data, mut point) = (Vec::new(), Vec::new());
        for one in &mut all {
            one.add(&mut random, MORE_VALUES);
            point.clear();
            let time_ms = start_ms + STEP_MS * (step as u64 + 1);
            one.put(start_ms * 1_000_000, time_ms * 1_000_000, &mut point);
            put_bytes(&mut data, 1, &point);
        }
        // 2: cumulative.
        put_varint(&mut data, 2, 2);
        let mut metric = Vec::new();
        put_bytes(&mut metric, 1, b"http.server.request.duration");
        put_bytes(&mut metric, 3, b"s");
        put_bytes(&mut metric, 10, &data);
        let mut scope = Vec::new();
        put_bytes(&mut scope, 2, &metric);
        let mut whole = Vec::new();
        put_bytes(&mut whole, 1, &resource);
        put_bytes(&mut whole, 2, &scope);
        let mut body = Vec::new();
        put_bytes(&mut body, 1, &whole);
        requests.push(body);
    }
    requests
}

fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn put_varint(out: &mut Vec<u8>, field: u64, number: u64) {
    put_number(out, field << 3);
    put_number(out, number);
}

fn put_fixed(out: &mut Vec<u8>, field: u64, number: u64) {
    put_number(out, field << 3 | 1);
    out.extend(number.to_le_bytes());
}

fn put_double(out: &mut Vec<u8>, field: u64, value: f64) {
    put_fixed(out, field, value.to_bits());
}

fn put_bytes(out: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    put_number(out, field << 3 | 2);
    put_number(out, bytes.len() as u64);
    out.extend(bytes);
}

fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}
