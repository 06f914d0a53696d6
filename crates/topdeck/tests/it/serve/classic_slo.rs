//! A classic histogram by remote write 1, judged by an SLO and by an own rule: budget, burn rate,
//! alert and replay have the numbers of the values.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

use super::client::request_at;
use super::server_process::{ServerProcess, wait_until};
use crate::topdeck;

const SETTINGS: &str = r#"
[alerts]
evaluation_interval = "200ms"
rule_files = ["*.rules.toml"]
[[slo]]
name = "checkout"
selector = 'http_request_duration_seconds{job="shop"}'
threshold = "250ms"
objective = "99%"
user_label = "pod"
"#;

/// The window has all slow requests and begins among fast ones, so that time does not matter.
const RULES: &str = r#"
[[rule]]
name = "Slow"
select = 'http_request_duration_seconds{job="shop"}'
by = ["job"]
window = "90min"
[[rule.criteria]]
severity = 2
count_above = "250ms"
at_least = 100
"#;

const BOUNDS: [f64; 5] = [0.05, 0.1, 0.25, 0.5, 1.0];
const PODS: [&str; 2] = ["a", "b"];
/// Two hours.
const SCRAPES: u64 = 480;
const INTERVAL_MS: u64 = 15_000;
/// The last hour is bad.
const BAD_FROM: u64 = 240;
/// Scrape before which pod `b` restarts.
const RESTART: u64 = 300;

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value > 0x7f {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn put_bytes(out: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    out.push(field << 3 | 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// `prometheus.TimeSeries`.
fn time_series(labels: &[(&str, &str)], samples: &[(u64, f64)]) -> Vec<u8> {
    let mut series = Vec::new();
    for (name, value) in labels {
        let mut label = Vec::new();
        put_bytes(&mut label, 1, name.as_bytes());
        put_bytes(&mut label, 2, value.as_bytes());
        put_bytes(&mut series, 1, &label);
    }
    for (ms, value) in samples {
        let mut sample = vec![0x09];
        sample.extend_from_slice(&value.to_le_bytes());
        sample.push(0x10);
        put_varint(&mut sample, *ms);
        put_bytes(&mut series, 2, &sample);
    }
    series
}

/// Snappy block of literals, without compression.
fn snappy(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, bytes.len() as u64);
    for piece in bytes.chunks(1 << 16) {
        out.push(61 << 2);
        out.extend_from_slice(&((piece.len() - 1) as u16).to_le_bytes());
        out.extend_from_slice(piece);
    }
    out
}

/// Requests of a pod up to each scrape, without those before a restart, and those that are known:
/// nobody knows what was before the first scrape.
struct Scrapes {
    pod: &'static str,
    scrapes: Vec<(u64, Vec<f64>)>,
    known: Vec<f64>,
}

impl Scrapes {
    fn new(pod: &'static str, first_ms: u64) -> Scrapes {
        let (mut scrapes, mut known, mut since_start) = (Vec::new(), Vec::new(), Vec::new());
        for scrape in 0..SCRAPES {
            if pod == "b" && scrape == RESTART {
                since_start.clear();
            } else {
                for request in 0..10 {
                    let is_slow = pod == "b" && scrape > BAD_FROM && request < 3;
                    let spread = ((scrape * 7 + request * 3) % 20) as f64 / 100.0;
                    let seconds = if is_slow { 0.3 + spread } else { 0.01 + spread };
                    since_start.push(seconds);
                    if scrape > 0 {
                        known.push(seconds);
                    }
                }
            }
            scrapes.push((first_ms + scrape * INTERVAL_MS, since_start.clone()));
        }
        Scrapes { pod, scrapes, known }
    }

    /// The series of Prometheus.
    fn series(&self) -> Vec<Vec<u8>> {
        let labels =
            |name: &'static str| vec![("__name__", name), ("job", "shop"), ("pod", self.pod)];
        let samples = |value: &dyn Fn(&[f64]) -> f64| {
            let sample = |(ms, values): &(u64, Vec<f64>)| (*ms, value(values));
            self.scrapes.iter().map(sample).collect::<Vec<_>>()
        };
        let count = samples(&|values| values.len() as f64);
        let mut all = Vec::new();
        for bound in BOUNDS {
            let text = bound.to_string();
            let mut labels = labels("http_request_duration_seconds_bucket");
            labels.insert(2, ("le", &text));
            let up_to = |values: &[f64]| values.iter().filter(|it| **it <= bound).count() as f64;
            all.push(time_series(&labels, &samples(&up_to)));
        }
        let mut of_all = labels("http_request_duration_seconds_bucket");
        of_all.insert(2, ("le", "+Inf"));
        all.push(time_series(&of_all, &count));
        all.push(time_series(&labels("http_request_duration_seconds_count"), &count));
        let sum = samples(&|values| values.iter().sum());
        all.push(time_series(&labels("http_request_duration_seconds_sum"), &sum));
        all
    }
}

#[track_caller]
fn send(server: &ServerProcess, scrapes: &Scrapes) {
    let mut request = Vec::new();
    scrapes.series().iter().for_each(|series| put_bytes(&mut request, 1, series));
    let headers = [("Content-Encoding", "snappy"), ("Content-Type", "application/x-protobuf")];
    let body = snappy(&request);
    let sent = request_at(server.address(), "POST", "/api/v1/write", &headers, &body);
    let sent = sent.expect("it answers");
    assert_eq!(sent.status, 204, "{}", sent.text());
}

/// A user of Prometheus who sent classic histograms saw "matches nothing" for SLOs and own rules.
#[test]
fn slo_and_own_rule_judge_the_buckets_of_remote_write() {
    let mut server = ServerProcess::new("serve", SETTINGS);
    std::fs::write(server.dir.path("own.rules.toml"), RULES).expect("rules are written");
    server.start();
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis();
    let first_ms = u64::try_from(now_ms).expect("a time of today") - SCRAPES * INTERVAL_MS;
    let pods = PODS.map(|pod| Scrapes::new(pod, first_ms));
    pods.iter().for_each(|scrapes| send(&server, scrapes));
    let known: Vec<f64> = pods.iter().flat_map(|pod| pod.known.iter().copied()).collect();
    let above = |limit: f64| known.iter().filter(|value| **value > limit).count() as f64;
    let (total, bad) = (known.len() as f64, above(0.25));
    assert_eq!((total, bad), (9570.0, 714.0));

    let slo = |parameters: &str| server.get(&format!("/v1/slo?name=checkout{parameters}")).json();
    wait_until("all are stored", || slo("")["budget"]["events"]["total"] == total);
    let report = slo("");
    let events = &report["budget"]["events"]["bad"];
    let exact = |events: &Value, expected: f64| {
        ["lower", "estimate", "upper"].iter().all(|bound| events[bound] == expected)
    };
    assert!(exact(events, bad), "{report:#}");
    assert_eq!((&report["state"], &report["budget"]["unit"]), (&"spent".into(), &"s".into()));
    let near = |found: &Value, expected: f64| {
        found.as_f64().is_some_and(|found| (found - expected).abs() < 1e-9 * expected.abs())
    };
    let burn_rate = bad / total / 0.01;
    assert!(near(&report["budget"]["remaining"]["estimate"], 1.0 - burn_rate), "{report:#}");
    let people = (&report["people"]["affected"]["estimate"], &report["people"]["total"]);
    assert_eq!(people, (&1.0.into(), &2.0.into()));
    let windows = report["burn"].as_array().expect("a list");
    let of_six_hours = windows.iter().find(|it| it["long_ns"] == 6 * 3600 * 1_000_000_000_i64);
    let of_six_hours = of_six_hours.expect("a window of 6 h");
    assert!(near(&of_six_hours["long"]["estimate"], burn_rate), "{of_six_hours:#}");
    assert_eq!(of_six_hours["is_burning"], true, "{of_six_hours:#}");

    // Another threshold recomputes the past: at an edge exactly, inside a bucket as a range.
    assert!(exact(&slo("&threshold=100ms")["budget"]["events"]["bad"], above(0.1)));
    let inside = slo("&threshold=150ms")["budget"]["events"]["bad"].clone();
    let bounds = ["lower", "upper"].map(|bound| inside[bound].as_f64().expect("a number"));
    assert_eq!(bounds, [above(0.25), above(0.1)], "{inside:#}");
    assert!(bounds[0] < above(0.15) && above(0.15) < bounds[1]);

    let alert = |name: &str, window: &str| {
        let alerts = server.get("/v1/alerts").json();
        let all = alerts["alerts"].as_array().expect("a list").clone();
        let is_it = |alert: &Value| {
            let labels = &alert["labels"];
            labels["alertname"] == name && (window.is_empty() || labels["window"] == window)
        };
        all.into_iter().find(|alert| is_it(alert) && alert["state"] == "firing")
    };
    wait_until("the burn rate fires", || alert("SloBudgetBurn", "6h").is_some());
    let burning = alert("SloBudgetBurn", "6h").expect("it fires");
    assert!(
        near(
            &burning["value"],
            burn_rate.min(of_six_hours["short"]["estimate"].as_f64().expect("a number"))
        ),
        "{burning:#}"
    );
    let text = burning["annotations"]["description"].as_str().expect("a text");
    let expected = format!("{bad} of {total} events of the last 6 h are bad. ");
    assert!(text.starts_with(&expected), "{text}");

    // The rule was evaluated as the samples arrived, or after them.
    wait_until("the rule fires", || alert("Slow", "").is_some_and(|alert| alert["value"] == bad));
    let slow = alert("Slow", "").expect("it fires");
    assert_eq!((&slow["severity"], &slow["labels"]["job"]), (&2.into(), &"shop".into()));
    let criterion = &slow["criterion"];
    assert_eq!((&criterion["lower"], &criterion["upper"]), (&bad.into(), &bad.into()), "{slow:#}");

    // What the page does for "make a rule of this threshold".
    let replay = |text: &str| {
        let headers = [("Content-Type", "application/toml")];
        let path = "/v1/rules/replay?from=-3h";
        let replayed = request_at(server.address(), "POST", path, &headers, text.as_bytes());
        replayed.expect("it answers").json()
    };
    let replayed = replay(&format!("interval = \"5min\"\n{RULES}"));
    let rule = &replayed["rules"][0];
    assert_eq!((&rule["fired"], &rule["without_data"]), (&1.into(), &Value::Array(Vec::new())));
    assert!(rule["above"]["requests"].as_f64().is_some_and(|it| it > 0.0 && it <= bad), "{rule:#}");
    assert_eq!(rule["above"]["lower"], rule["above"]["upper"], "{rule:#}");
    let url = format!("http://127.0.0.1:{}", server.port);
    let run = topdeck(&["slo", "show", "checkout", "--server", &url], b"");
    let expected = format!("bad: {bad} of {total} events").replace("9570", "9,570");
    assert!(run.stdout.contains(&expected), "{}", run.stdout);
    // The search at the start found no data; it is repeated.
    let list = || topdeck(&["rules", "list", "--server", &url], b"").stdout;
    wait_until("the rules match something", || !list().contains("matches nothing"));
    server.stop();
}
