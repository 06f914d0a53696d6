//! Histograms as SDKs of OpenTelemetry send them by default: cumulative, with 15 bounds that are
//! meant for milliseconds.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::fixture::ServerFixture;

/// Default bounds of the SDKs.
const DEFAULT_BOUNDS: [f64; 15] = [
    0.0, 5.0, 10.0, 25.0, 50.0, 75.0, 100.0, 250.0, 500.0, 750.0, 1000.0, 2500.0, 5000.0, 7500.0,
    10000.0,
];
const SECOND: u64 = 1_000_000_000;

/// An SDK that records into one histogram and exports it.
struct DefaultSdk {
    it: ServerFixture,
    start: u64,
    values: Vec<f64>,
    unit: &'static str,
}

impl DefaultSdk {
    /// A program that started ten minutes ago.
    fn new(unit: &'static str) -> DefaultSdk {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        DefaultSdk {
            it: ServerFixture::new(),
            start: (now - 600) * SECOND,
            values: Vec::new(),
            unit,
        }
    }

    /// Records values, and exports all since the start, `seconds` after it.
    fn export(&mut self, seconds: u64, values: &[f64]) {
        self.values.extend(values);
        let mut counts = [0u64; 16];
        for value in &self.values {
            counts[DEFAULT_BOUNDS.partition_point(|bound| bound < value)] += 1;
        }
        let extreme = |of: fn(f64, f64) -> f64| self.values.iter().copied().reduce(of);
        let point = json!({
            "startTimeUnixNano": self.start.to_string(),
            "timeUnixNano": (self.start + seconds * SECOND).to_string(),
            "count": self.values.len().to_string(),
            "sum": self.values.iter().sum::<f64>(),
            "min": extreme(f64::min),
            "max": extreme(f64::max),
            "bucketCounts": counts.map(|count| count.to_string()),
            "explicitBounds": DEFAULT_BOUNDS,
        });
        let metric = json!({
            "name": "http.server.request.duration",
            "unit": self.unit,
            "description": "Duration of HTTP server requests.",
            "histogram": { "aggregationTemporality": 2, "dataPoints": [point] },
        });
        let request = json!({ "resourceMetrics": [{ "scopeMetrics": [{ "metrics": [metric] }] }] });
        let kind = "Content-Type: application/json\r\n";
        self.it.post("/v1/metrics", kind, request.to_string()).check(200, "{}");
    }

    /// The result for the values between two times, in seconds from the start.
    fn get(&self, path: &str, (from, to): (u64, u64)) -> Value {
        self.it.store.catch_up().unwrap();
        let time = |seconds: u64| self.start + seconds * SECOND;
        let path = format!(
            "{path}&selector=http.server.request.duration&from={}ns&to={}ns",
            time(from),
            time(to)
        );
        let response = self.it.request("GET", &path, "", b"");
        assert_eq!(response.status, 200, "{}", response.text());
        serde_json::from_str(&response.text()).unwrap()
    }
}

fn bracket(value: &Value) -> [f64; 2] {
    ["lower", "upper"].map(|end| value[end].as_f64().unwrap())
}

#[test]
fn minimum_and_maximum_are_not_lost_from_the_second_export_on() {
    let mut sdk = DefaultSdk::new("s");
    sdk.export(60, &[0.04, 0.2]);
    sdk.export(120, &[0.05, 0.06, 0.07]);
    sdk.export(180, &[0.05, 0.8]);
    // Since the start of the program they are exact.
    let all = sdk.get("/v1/histogram?q=1", (0, 180));
    assert_eq!(all["count"], 7);
    assert_eq!(bracket(&all["min"]), [0.04, 0.04]);
    assert_eq!(bracket(&all["max"]), [0.8, 0.8]);
    let all = sdk.get("/v1/histogram?q=1", (0, 120));
    assert_eq!(bracket(&all["max"]), [0.2, 0.2]);
    // A window in which the maximum did not rise: it bounds the values, and quantiles.
    let middle = sdk.get("/v1/histogram?q=0.99", (60, 120));
    assert_eq!(middle["count"], 3);
    let [least, greatest] = bracket(&middle["max"]);
    assert!(least <= 0.07 && (0.07..=0.2).contains(&greatest), "{middle}");
    let [least, greatest] = bracket(&middle["min"]);
    assert!((0.04..=0.05).contains(&least) && 0.05 <= greatest, "{middle}");
    assert!(bracket(&middle["quantiles"][0]["value"])[1] <= 0.2, "{middle}");
    // A window in which it rose: it is the maximum of the window.
    let last = sdk.get("/v1/histogram?q=1", (120, 180));
    assert_eq!(bracket(&last["max"]), [0.8, 0.8]);
    assert_eq!(bracket(&last["quantiles"][0]["value"]), [0.8, 0.8]);
    let columns = sdk.get("/v1/heatmap?step=1m", (0, 180));
    let upper = |at: usize| bracket(&columns["columns"][at]["max"])[1];
    assert_eq!([upper(0), upper(2)], [0.2, 0.8]);
    assert!(upper(1) <= 0.2, "{columns}");
}

/// Requests of 20 to 80 ms, and 1.2 % of them slower, in the bucket of 0 to 5 s: the even spread
/// that the buckets suggest would put 95 % above 250 ms.
fn mostly_fast() -> DefaultSdk {
    let mut sdk = DefaultSdk::new("s");
    let values: Vec<f64> =
        (0..1000).map(|n| if n < 12 { 0.3 } else { 0.02 + 0.06 * f64::from(n) / 1000.0 }).collect();
    sdk.export(60, &values);
    sdk
}

#[test]
fn count_above_threshold_inside_a_wide_bucket_is_at_most_what_the_mean_allows() {
    let sdk = mostly_fast();
    let all = sdk.get("/v1/histogram?above=250ms", (0, 60));
    let [lower, upper] = bracket(&all["above"][0]["count"]);
    let mean = all["mean"]["estimate"].as_f64().unwrap();
    assert!(lower <= 12.0 && 12.0 <= upper, "{all}");
    // Markov's inequality, with the minimum of 20 ms as the lowest value.
    assert!(upper <= 1000.0 * (mean - 0.02) / 0.23 + 1.0, "{upper} with a mean of {mean} s");
    assert!(all["above"][0]["count"]["estimate"].as_f64().unwrap() <= upper, "{all}");
}

#[test]
fn promql_answer_from_wide_buckets_carries_a_warning() {
    let sdk = mostly_fast();
    sdk.it.store.catch_up().unwrap();
    let expression =
        "histogram_quantile(0.5,exact_increase({__name__=%22http.server.request.duration%22}[5m]))";
    let time = sdk.start / SECOND + 60;
    for (path, at) in [("/api/v1/query", "time"), ("/v1/query", "to")] {
        let path = format!("{path}?query={expression}&{at}={time}");
        let response = sdk.it.request("GET", &path, "", b"");
        assert_eq!(response.status, 200, "{}", response.text());
        let answer: Value = serde_json::from_str(&response.text()).unwrap();
        let warning = answer["warnings"][0].as_str().unwrap_or_default();
        assert!(warning.starts_with("wide buckets: 1 of 1 values are known only"), "{answer}");
        assert!(warning.contains("use exponential or native histograms"), "{answer}");
    }
}

/// p90 of requests of 20 to 300 ms was 4.5 s: the buckets end at 0 and 5 s.
#[test]
fn p90_is_at_most_the_recorded_maximum_in_every_answer() {
    let mut sdk = mostly_fast();
    sdk.export(120, &(0..100).map(|n| 0.02 + 0.002 * f64::from(n)).collect::<Vec<_>>());
    let histogram = sdk.get("/v1/histogram?q=0.9", (0, 120));
    let [lower, upper] = bracket(&histogram["quantiles"][0]["value"]);
    assert!(0.02 <= lower && upper <= 0.3, "{histogram}");
    let time = sdk.start / SECOND + 120;
    let ask = |path: &str, expression: &str| -> Value {
        let expression = expression.replace('"', "%22").replace('+', "%2B").replace(' ', "%20");
        let path = format!(
            "{path}?query={expression}&experimental=true&{}={time}",
            match path {
                "/v1/query" => "to",
                _ => "time",
            }
        );
        let response = sdk.it.request("GET", &path, "", b"");
        assert_eq!(response.status, 200, "{}", response.text());
        serde_json::from_str(&response.text()).unwrap()
    };
    let metric = "{\"http.server.request.duration\"}";
    let buckets = "http_server_request_duration_seconds_bucket";
    let inputs = [
        format!("exact_increase({metric}[5m])"),
        format!("rate({metric}[5m])"),
        format!("sum(increase({metric}[5m]))"),
        format!("sum by (le) (rate({buckets}[5m]))"),
    ];
    let expressions = inputs.iter().enumerate().flat_map(|(at, input)| {
        let one = format!("histogram_quantile(0.9, {input})");
        [(at, one), (at, format!("histogram_quantiles({input}, \"q\", 0.9)"))]
    });
    for (at, expression) in expressions {
        // topdeck's API clips the quantile.
        let answer = ask("/v1/query", &expression);
        let value = &answer["data"][0]["points"][0]["value"];
        let ends = ["lower", "estimate", "upper"].map(|end| value[end].as_f64().unwrap());
        assert!(ends.iter().all(|end| (0.02..=0.3).contains(end)), "{expression}: {answer}");
        // That of Prometheus has its value, unless it is of a function of topdeck, and says so.
        let answer = ask("/api/v1/query", &expression);
        let value = answer["data"]["result"][0]["value"][1].as_str().unwrap();
        let value: f64 = value.parse().unwrap();
        let warnings = answer["warnings"].to_string();
        let is_told = warnings.contains("is above the recorded maximum of 0.3");
        assert_eq!((value > 4.0, is_told), (at > 0, at > 0), "{expression}: {answer}");
    }
}

/// The same after the store has written rollups, which are read instead of the samples.
#[test]
fn extremes_of_cumulative_histograms_survive_rollups() {
    let mut sdk = DefaultSdk::new("s");
    // Yesterday at least.
    sdk.start -= 2 * 86_400 * SECOND;
    sdk.start -= sdk.start % (86_400 * SECOND);
    for (hour, values) in [&[0.04, 0.2][..], &[0.05, 0.06], &[0.05, 0.8], &[0.3]].iter().enumerate()
    {
        sdk.export((hour as u64 + 1) * 3600, values);
    }
    let before = sdk.get("/v1/histogram?q=0.99", (0, 4 * 3600));
    sdk.it.store.catch_up().unwrap();
    sdk.it.store.flush().unwrap();
    while sdk.it.store.maintain().unwrap() {}
    let parts = sdk.it.store.stat().unwrap().parts;
    assert!(parts.iter().any(|part| part.resolution == store::Resolution::Hour), "{parts:?}");
    for (from, to) in [(0, 4), (1, 2), (2, 3), (3, 4)] {
        let hours = sdk.get("/v1/histogram?q=0.99", (from * 3600, to * 3600));
        let max = bracket(&hours["max"]);
        match (from, to) {
            (0, 4) => {
                assert_eq!(hours["max"], before["max"]);
                assert_eq!(max, [0.8, 0.8]);
            }
            (2, 3) => assert_eq!(max, [0.8, 0.8]),
            (1, 2) => assert!(max[1] <= 0.2, "{hours}"),
            _ => assert!(max[0] <= 0.3 && 0.3 <= max[1] && max[1] <= 0.8, "{hours}"),
        }
    }
}

#[test]
fn description_of_a_metric_is_kept_and_shown() {
    let mut sdk = DefaultSdk::new("s");
    sdk.export(60, &[0.04]);
    sdk.it.store.catch_up().unwrap();
    let names = sdk.it.request("GET", "/v1/metric_names", "", b"");
    names.check(200, "\"help\":\"Duration of HTTP server requests.\"");
    let metadata = sdk.it.request("GET", "/api/v1/metadata", "", b"");
    metadata.check(200, "\"help\":\"Duration of HTTP server requests.\"");
    // Grafana asks by the name of Prometheus, whose help was empty.
    let path = "/api/v1/metadata?metric=http_server_request_duration_seconds";
    let metadata = sdk.it.request("GET", path, "", b"");
    metadata.check(200, "\"help\":\"Duration of HTTP server requests.\"");
}
