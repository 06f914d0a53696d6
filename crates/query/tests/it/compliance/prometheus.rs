//! Prometheus as a process: started in its own directory, fed by remote write, queried over HTTP.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use codecs::prometheus::RemoteHistogram;
use query::NAME;

use super::data::{DataPoint, DataSeries};

const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Prometheus rejects samples that are an hour older than the newest one.
const SLICE_MS: i64 = 20 * 60_000;
/// Series per request.
const SERIES_MANY: usize = 40;
/// Feature flags of Prometheus that enable the whole language.
const FEATURES: &str = "promql-experimental-functions,promql-duration-expr,\
     promql-extended-range-selectors,promql-binop-fill-modifiers";

/// Running Prometheus; stopped on drop.
pub(crate) struct PrometheusProcess {
    child: Child,
    port: u16,
    dir: PathBuf,
}

impl PrometheusProcess {
    /// Starts the program and waits until it accepts requests.
    pub(crate) fn start(program: &Path) -> PrometheusProcess {
        let name = format!("compliance-{}", std::process::id());
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&dir).expect("a directory can be made");
        let (config, log) = (dir.join("prometheus.yml"), dir.join("log"));
        fs::write(&config, "global: {}\n").expect("a file can be written");
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("there is a free port");
        let port = listener.local_addr().expect("it has an address").port();
        drop(listener);
        let log = File::create(log).expect("a file can be made");
        let child = Command::new(program)
            .current_dir(&dir)
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", dir.join("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .arg(format!("--enable-feature={FEATURES}"))
            .args(["--web.enable-remote-write-receiver", "--storage.tsdb.retention.time=100y"])
            .args(["--log.level=error", "--query.max-samples=50000000"])
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a file can be opened twice"))
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| panic!("starting {}: {error}", program.display()));
        let mut started = PrometheusProcess { child, port, dir };
        let begun = Instant::now();
        while started.request("GET", "/-/ready", "", b"").is_none_or(|(status, _)| status != 200) {
            let ended = started.child.try_wait().expect("a child can be asked");
            let log = || fs::read_to_string(started.dir.join("log")).unwrap_or_default();
            assert!(ended.is_none(), "Prometheus ended: {}", log());
            assert!(begun.elapsed() < START_TIMEOUT, "Prometheus is not ready: {}", log());
            std::thread::sleep(Duration::from_millis(50));
        }
        started
    }

    /// Sends all series, one time slice after the other.
    pub(crate) fn load(&self, lines: &[DataSeries]) {
        let times = || lines.iter().flat_map(|line| line.points.iter().map(|point| point.0));
        let (Some(first), Some(last)) = (times().min(), times().max()) else { return };
        let headers = "Content-Type: application/x-protobuf\r\nContent-Encoding: snappy\r\n\
             X-Prometheus-Remote-Write-Version: 0.1.0\r\n";
        for start in (first..=last).step_by(SLICE_MS as usize) {
            for part in lines.chunks(SERIES_MANY) {
                let mut request = Vec::new();
                for line in part {
                    let from = line.points.partition_point(|point| point.0 < start);
                    let to = line.points.partition_point(|point| point.0 < start + SLICE_MS);
                    if from < to {
                        put_bytes(&mut request, 1, &time_series(line, &line.points[from..to]));
                    }
                }
                let answer =
                    self.request("POST", "/api/v1/write", headers, &snappy_frame(&request));
                let (status, body) = answer.expect("Prometheus answers");
                let body = String::from_utf8_lossy(&body).into_owned();
                assert!((200..300).contains(&status), "remote write: status {status}: {body}");
            }
        }
    }

    /// Response to a range query, in milliseconds: JSON.
    pub(crate) fn query_range(&self, query: &str, range: (i64, i64, i64)) -> Vec<u8> {
        let seconds = |millis: i64| millis as f64 / 1e3;
        let (start, end, step) = (seconds(range.0), seconds(range.1), seconds(range.2));
        let form = format!("query={}&start={start}&end={end}&step={step}", url_escape(query));
        let headers = "Content-Type: application/x-www-form-urlencoded\r\n";
        let answer = self.request("POST", "/api/v1/query_range", headers, form.as_bytes());
        answer.expect("Prometheus answers").1
    }

    /// Status and body; `None` if the connection fails. In HTTP/1.0, the response ends with the
    /// connection.
    fn request(
        &self,
        method: &str,
        path: &str,
        headers: &str,
        body: &[u8],
    ) -> Option<(u16, Vec<u8>)> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        let length = body.len();
        let head = format!("{method} {path} HTTP/1.0\r\n{headers}Content-Length: {length}\r\n\r\n");
        stream.write_all(&[head.as_bytes(), body].concat()).ok()?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).ok()?;
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
        let head = String::from_utf8_lossy(&answer[..end]);
        let status = head.split(' ').nth(1)?.parse().ok()?;
        Some((status, answer.split_off(end + 4)))
    }
}

impl Drop for PrometheusProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn url_escape(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    let escape = |byte: u8| match plain(byte) {
        true => (byte as char).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(escape).collect()
}

/// `prometheus.TimeSeries` of `prometheus/prompb/types.proto`.
fn time_series(line: &DataSeries, points: &[(i64, DataPoint)]) -> Vec<u8> {
    let mut series = Vec::new();
    let own = line.series.labels().iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let mut labels: Vec<(&str, &str)> = own.chain([(NAME, line.series.name())]).collect();
    labels.sort_unstable();
    for (name, value) in labels {
        let mut label = Vec::new();
        put_bytes(&mut label, 1, name.as_bytes());
        put_bytes(&mut label, 2, value.as_bytes());
        put_bytes(&mut series, 1, &label);
    }
    for (time_ms, point) in points {
        match point {
            DataPoint::Number(number) => {
                let mut sample = vec![1 << 3 | 1];
                sample.extend(number.to_le_bytes());
                sample.push(2 << 3);
                put_number(&mut sample, *time_ms as u64);
                put_bytes(&mut series, 2, &sample);
            }
            DataPoint::Histogram(histogram) => {
                let mut sent = RemoteHistogram::from_histogram(histogram)
                    .expect("a histogram that Prometheus has a form for");
                sent.timestamp = *time_ms;
                put_bytes(&mut series, 4, &sent.to_bytes());
            }
        }
    }
    series
}

fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn put_bytes(out: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    put_number(out, field << 3 | 2);
    put_number(out, bytes.len() as u64);
    out.extend(bytes);
}

/// Snappy block of literals only: test data need not be compressed.
fn snappy_frame(bytes: &[u8]) -> Vec<u8> {
    /// Tag followed by a length of two bytes.
    const LITERAL: u8 = 61 << 2;
    let mut out = Vec::new();
    put_number(&mut out, bytes.len() as u64);
    for part in bytes.chunks(1 << 16) {
        out.push(LITERAL);
        out.extend(((part.len() - 1) as u16).to_le_bytes());
        out.extend(part);
    }
    out
}
