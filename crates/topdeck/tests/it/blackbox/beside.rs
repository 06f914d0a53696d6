//! Prometheus beside topdeck: both receive the same remote write requests, byte for byte, and the
//! same queries over HTTP.
//!
//! Results are equal if they have the same series, the same timestamps, and values with a relative
//! difference of at most 1e-5 (the tolerance of docs/conformance.md). The series are those that
//! Prometheus supports: gauges, counters, growing classic and native histograms, with resets,
//! schema changes, late samples and staleness markers. topdeck is killed, restarted and flushed
//! meanwhile.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use super::model::{FINE, ModelCounts, ModelKind, ModelRow, NEGATIVE, POSITIVE, ZERO};
use super::run::{MINUTE, SECOND, SplitMixRng, command, percent_encode};
use super::wire::{Labels, series, write_request};
use crate::environment::{free_port, wait_until};
use crate::serve::client::request;
use crate::serve::server_process::{ServerProcess, TestDir};

/// Relative tolerance, of the smaller value.
const FRACTION: f64 = 1e-5;
/// Time range of samples and queries.
const LENGTH: i64 = 180 * MINUTE;
const HOSTS: [&str; 2] = ["a", "b"];

const EXPRESSIONS: [&str; 34] = [
    "depth",
    "requests_total",
    "rate(requests_total[5m])",
    "rate(requests_total[17m])",
    "increase(requests_total[31m])",
    "irate(requests_total[9m])",
    "delta(depth[13m])",
    "deriv(depth[13m])",
    "sum by (host) (rate(requests_total[11m]))",
    "sum(increase(requests_total[1h]))",
    "sum by (host) (increase(duration_bucket[23m]))",
    "resets(requests_total[1h])",
    "changes(depth[1h])",
    "count_over_time(requests_total[20m])",
    "count_over_time(depth[7m])",
    "count_over_time(latency[20m])",
    "sum_over_time(depth[20m])",
    "avg_over_time(depth[20m])",
    "max_over_time(depth[20m])",
    "last_over_time(requests_total[40m])",
    "count(requests_total)",
    "absent(depth)",
    "histogram_quantile(0.5, rate(latency[15m]))",
    "histogram_quantile(0.99, rate(latency[31m]))",
    "histogram_quantile(0.9, sum(rate(latency[15m])))",
    "histogram_count(increase(latency[31m]))",
    "histogram_sum(rate(latency[15m]))",
    "histogram_avg(rate(latency[15m]))",
    "histogram_fraction(0, 4, rate(latency[31m]))",
    "sum by (host) (histogram_count(rate(latency[10m])))",
    "resets(latency[1h])",
    "histogram_quantile(0.5, rate(duration_bucket[15m]))",
    "histogram_quantile(0.9, sum by (le) (rate(duration_bucket[31m])))",
    "rate(duration_sum[15m]) / rate(duration_count[15m])",
];

#[test]
#[ignore = "needs TOPDECK_PROMETHEUS, a program: make system PART=prometheus"]
fn prometheus_gives_equal_results_to_the_same_requests() {
    let program = std::env::var("TOPDECK_PROMETHEUS").expect("TOPDECK_PROMETHEUS names a program");
    let mut wrong = Vec::new();
    for seed in 1..=6 {
        wrong.extend(run(Path::new(&program), seed));
    }
    assert!(wrong.is_empty(), "{} answers differ\n{}", wrong.len(), wrong.join("\n"));
}

/// Prometheus with an empty data directory; stopped on drop.
struct Prometheus {
    child: Child,
    port: u16,
    dir: TestDir,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Prometheus {
    #[track_caller]
    fn start(program: &Path) -> Prometheus {
        let (dir, port) = (TestDir::new(), free_port());
        let config = dir.path("prometheus.yml");
        // Accepts late samples, as topdeck does.
        std::fs::write(&config, "storage:\n  tsdb:\n    out_of_order_time_window: 30d\n")
            .expect("settings are written");
        let log = std::fs::File::create(dir.path("log")).expect("a log can be written");
        let child = Command::new(program)
            .current_dir(&dir.0)
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", dir.path("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .args(["--web.enable-remote-write-receiver", "--log.level=error"])
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a descriptor is free"))
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| panic!("starting {}: {error}", program.display()));
        let mut started = Prometheus { child, port, dir };
        wait_until("Prometheus is ready", || {
            let ended = started.child.try_wait().expect("a child can be asked");
            let log = || std::fs::read_to_string(started.dir.path("log")).unwrap_or_default();
            assert!(ended.is_none(), "Prometheus ended: {}", log());
            request(port, "GET", "/-/ready", &[], b"").is_ok_and(|answer| answer.status == 200)
        });
        started
    }
}

/// Growing series.
struct GrowingSeries {
    kind: ModelKind,
    name: &'static str,
    host: &'static str,
    counts: ModelCounts,
    schema: u32,
    /// Timestamp of the next sample.
    next: i64,
    /// Samples that are sent after later ones.
    held_back: Vec<ModelRow>,
}

/// Runs one random program; returns the differences.
fn run(program: &Path, seed: u64) -> Vec<String> {
    let mut chance = SplitMixRng(seed);
    let prometheus = Prometheus::start(program);
    let mut deck = ServerProcess::new("serve", "");
    deck.start();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_nanos();
    let now = i64::try_from(now).expect("it is before 2262");
    // Whole minutes in the past.
    let end = now - now.rem_euclid(MINUTE) - MINUTE;
    let begin = end - LENGTH;
    let kinds = [
        (ModelKind::Gauge, "depth"),
        (ModelKind::Counter, "requests_total"),
        (ModelKind::Native, "latency"),
        (ModelKind::Cumulative, "duration"),
    ];
    let mut all: Vec<GrowingSeries> = Vec::new();
    for (kind, name) in kinds {
        for host in HOSTS {
            // A host may start later.
            let next = begin + chance.below(20).cast_signed() * MINUTE;
            let (counts, held_back) = (ModelCounts::default(), Vec::new());
            all.push(GrowingSeries { kind, name, host, counts, schema: 2, next, held_back });
        }
    }
    let mut until_now = begin;
    while until_now < end {
        until_now += (2 + chance.below(20).cast_signed()) * MINUTE;
        let until_now = until_now.min(end);
        for sent in &mut all {
            let body = write_request(&sent.series(&mut chance, until_now));
            for port in [prometheus.port, deck.port] {
                let headers = [
                    ("Content-Encoding", "snappy"),
                    ("Content-Type", "application/x-protobuf"),
                    ("X-Prometheus-Remote-Write-Version", "0.1.0"),
                ];
                let answer = request(port, "POST", "/api/v1/write", &headers, &body);
                let answer = answer.expect("it answers");
                assert_eq!(answer.status / 100, 2, "seed {seed}: {}", answer.text());
            }
        }
        match chance.below(6) {
            0 => {
                deck.kill();
                deck.start();
            }
            1 => {
                deck.stop();
                let store = deck.dir.path("data/store");
                command(&["store", "flush", store.to_str().expect("it is UTF-8")]);
                deck.start();
            }
            _ => {}
        }
    }
    let seconds = |time: i64| time as f64 / SECOND as f64;
    let (mut wrong, mut asked, mut empty) = (Vec::new(), 0, 0);
    for expression in EXPRESSIONS {
        let query = percent_encode(expression);
        // Timestamps with and without samples, before the first and after the last.
        let timestamps =
            [-MINUTE, 71 * MINUTE, 113 * MINUTE + 7 * SECOND / 10, LENGTH + 3 * MINUTE];
        let at =
            |timestamp: i64| format!("query?query={query}&time={}", seconds(begin + timestamp));
        let range = |from: i64, step: i64| {
            let (from, to, step) = (seconds(begin + from), seconds(end), seconds(step));
            format!("query_range?query={query}&start={from}&end={to}&step={step}")
        };
        let ranges = [range(0, 2 * MINUTE), range(11_213 * SECOND / 10, 97 * SECOND)];
        for path in timestamps.into_iter().map(at).chain(ranges) {
            let path = format!("/api/v1/{path}");
            let ask = |port| request(port, "GET", &path, &[], b"").expect("it answers").json();
            let expected = ask(prometheus.port);
            asked += 1;
            empty += usize::from(points(&expected).is_empty());
            if let Some(difference) = difference(&expected, &ask(deck.port)) {
                wrong.push(format!("seed {seed}, {expression}, {path}:{difference}"));
            }
        }
    }
    // One of six times is before the first sample and has an empty result.
    println!("seed {seed}: {asked} answers, of which {empty} are empty, {} wrong", wrong.len());
    assert!(empty * 2 < asked, "seed {seed}: {empty} of {asked} answers of Prometheus are empty");
    wrong
}

impl GrowingSeries {
    /// Samples up to a time, as the series that Prometheus stores for them.
    fn series(&mut self, chance: &mut SplitMixRng, end: i64) -> Vec<Vec<u8>> {
        let mut rows = std::mem::take(&mut self.held_back);
        while self.next < end {
            let row = self.row(chance);
            // Pause between samples: seconds, or longer than the lookback.
            let gap = if chance.below(40) == 0 { 7 * 60_000 } else { 0 };
            self.next += (5_000 + gap + chance.below(40_000).cast_signed()) * (SECOND / 1_000);
            match chance.below(25) {
                0 => self.held_back.push(row),
                _ => rows.push(row),
            }
        }
        let labels = |name: &str, le: Option<&str>| -> Labels {
            let mut labels = vec![("__name__", name.to_owned()), ("host", self.host.to_owned())];
            labels.extend(le.map(|le| ("le", le.to_owned())));
            labels
        };
        if self.kind != ModelKind::Cumulative {
            return vec![series(&labels(self.name, None), self.kind, &rows)];
        }
        // A classic histogram is several series.
        let number = |of: &dyn Fn(&ModelCounts) -> u64| -> Vec<ModelRow> {
            let row = |row: &ModelRow| {
                let mut counts = ModelCounts::default();
                counts[0] = of(&row.counts);
                ModelRow { counts, ..*row }
            };
            rows.iter().map(row).collect()
        };
        let mut all = Vec::new();
        let mut add = |end: &str, le: Option<&str>, of: &dyn Fn(&ModelCounts) -> u64| {
            let name = format!("{}_{end}", self.name);
            all.push(series(&labels(&name, le), ModelKind::Counter, &number(of)));
        };
        for at in 0..POSITIVE {
            let le = format!("{}.0", 1 << at);
            add("bucket", Some(&le), &|counts| counts[..=at].iter().sum());
        }
        add("bucket", Some("+Inf"), &|counts| counts[..POSITIVE].iter().sum());
        add("count", None, &|counts| counts[..POSITIVE].iter().sum());
        add("sum", None, &|counts| (0..POSITIVE).map(|at| counts[at] << at).sum());
        all
    }

    fn row(&mut self, chance: &mut SplitMixRng) -> ModelRow {
        let end = self.next - self.next.rem_euclid(SECOND / 1_000);
        let row =
            ModelRow { end, start: end, counts: self.counts, schema: FINE, is_stale_mark: false };
        if chance.below(50) == 0 {
            return ModelRow { is_stale_mark: true, counts: ModelCounts::default(), ..row };
        }
        if self.kind == ModelKind::Gauge {
            let mut counts = ModelCounts::default();
            counts[0] = chance.below(100);
            return ModelRow { counts, ..row };
        }
        match chance.below(60) {
            0 => self.counts = ModelCounts::default(),
            1 => self.schema = chance.below(3) as u32,
            _ => {}
        }
        let is_native = self.kind == ModelKind::Native;
        for (at, count) in self.counts.iter_mut().enumerate() {
            let is_used = is_native || at < POSITIVE;
            *count += if is_used { chance.below(5) } else { 0 };
        }
        // Negative values are rare.
        if chance.below(3) > 0 {
            self.counts[ZERO + 1..][..NEGATIVE].fill(0);
        }
        ModelRow { counts: self.counts, schema: if is_native { self.schema } else { FINE }, ..row }
    }
}

/// Difference of the second response from the first.
fn difference(expected: &Value, found: &Value) -> Option<String> {
    // Neither side may reject a query.
    if expected["status"] != "success" || found["status"] != "success" {
        return Some(format!("\n    {found}\n    not {expected}"));
    }
    let kind = |answer: &Value| answer["data"]["resultType"].clone();
    if kind(expected) != kind(found) {
        return Some(format!("\n    {}, not {}", kind(found), kind(expected)));
    }
    let (expected, found) = (points(expected), points(found));
    let mut told = String::new();
    for series in expected.keys().chain(found.keys().filter(|key| !expected.contains_key(*key))) {
        let empty = BTreeMap::new();
        let (one, other) =
            (expected.get(series).unwrap_or(&empty), found.get(series).unwrap_or(&empty));
        let times = || one.keys().chain(other.keys().filter(|time| !one.contains_key(*time)));
        let differs = |time: &&i64| match (one.get(time), other.get(time)) {
            (Some(one), Some(other)) => !is_near(*one, *other),
            _ => true,
        };
        let count = times().filter(differs).count();
        if let Some(first) = times().find(differs) {
            let (one, other) = (one.get(first), other.get(first));
            told += &format!(
                "\n    {series}: {count} of {} differ; at {first} ms {other:?}, not {one:?}",
                times().count()
            );
        }
    }
    (!told.is_empty()).then_some(told)
}

/// Values by labels and timestamp; for histograms their counts.
fn points(answer: &Value) -> BTreeMap<String, BTreeMap<i64, f64>> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let number = |value: &Value| -> f64 {
        let value = if value.is_object() { &value["count"] } else { value };
        value.as_str().and_then(|text| text.parse().ok()).unwrap_or(f64::NAN)
    };
    let mut all: BTreeMap<String, BTreeMap<i64, f64>> = BTreeMap::new();
    for series in list(&answer["data"]["result"]) {
        let labels: BTreeMap<String, Value> =
            series["metric"].as_object().cloned().unwrap_or_default().into_iter().collect();
        let points = all.entry(format!("{labels:?}")).or_default();
        let several = ["values", "histograms"].into_iter().flat_map(|name| list(&series[name]));
        let single = ["value", "histogram"].into_iter().map(|name| series[name].clone());
        for point in several.chain(single.filter(|point| !point.is_null())) {
            let time = (point[0].as_f64().unwrap_or(f64::NAN) * 1e3).round() as i64;
            points.insert(time, number(&point[1]));
        }
    }
    all
}

fn is_near(a: f64, b: f64) -> bool {
    let is_close = || (a - b).abs() <= FRACTION * a.abs().min(b.abs());
    a == b || a.is_nan() && b.is_nan() || a.is_finite() && b.is_finite() && is_close()
}
