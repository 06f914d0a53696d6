//! Dashboards written for Prometheus, whose data came by OTLP: translated names and labels, and the
//! series of classic histograms.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::fixture::ServerFixture;

const SECOND: u64 = 1_000_000_000;

/// A shop that has exported a histogram, a counter and a gauge every 15 s for five minutes.
pub(crate) struct OtlpShop {
    pub(crate) it: ServerFixture,
    /// Time of the last export, in seconds since the Unix epoch.
    pub(crate) end: u64,
}

impl OtlpShop {
    pub(crate) fn new(temporality: u8) -> OtlpShop {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let (it, start, end) = (ServerFixture::new(), now - 600, now - 300);
        let attributes = |pairs: &[(&str, &str)]| {
            let pairs = pairs
                .iter()
                .map(|(key, value)| json!({ "key": key, "value": { "stringValue": value } }));
            pairs.collect::<Value>()
        };
        for at in (start + 15..=end).step_by(15) {
            // Each export has 3 requests of 0.05 s, 6 of 0.5 s and 1 of 3 s.
            let is_cumulative = temporality == 2;
            let exports = if is_cumulative { (at - start) / 15 } else { 1 };
            let from = if is_cumulative { start } else { at - 15 };
            let times = |mut point: Value| {
                point["startTimeUnixNano"] = json!((from * SECOND).to_string());
                point["timeUnixNano"] = json!((at * SECOND).to_string());
                point["attributes"] = attributes(&[("http.route", "/cart")]);
                point
            };
            let counts = [3, 6, 1].map(|count| (count * exports).to_string());
            let histogram = times(json!({
                "count": (10 * exports).to_string(),
                "sum": 6.15 * exports as f64,
                "bucketCounts": counts,
                "explicitBounds": [0.1, 1.0],
            }));
            let milliseconds = times(json!({
                "count": (10 * exports).to_string(),
                "sum": 6150.0 * exports as f64,
                "bucketCounts": counts,
                "explicitBounds": [100.0, 1000.0],
                "min": 2.0, "max": 3000.0,
            }));
            // 4 values between 2^18 and 2^19 ns, 6 between 2^28 and 2^29 ns.
            let mut buckets = vec![0; 11];
            (buckets[0], buckets[10]) = (4 * exports, 6 * exports);
            let nanoseconds = times(json!({
                "count": (10 * exports).to_string(),
                "sum": 2.4e9 * exports as f64,
                "scale": 0, "zeroCount": "0",
                "positive": { "offset": 18, "bucketCounts": buckets },
            }));
            let counter = times(json!({ "asInt": (1500 * exports).to_string() }));
            let gauge = times(json!({ "asDouble": 0.25 }));
            let minutes = times(json!({ "asDouble": 2.5 }));
            let metrics = json!([
                { "name": "http.server.request.duration", "unit": "s",
                  "description": "Duration of HTTP server requests.",
                  "histogram": { "aggregationTemporality": temporality,
                                 "dataPoints": [histogram] } },
                { "name": "http.server.io", "unit": "By",
                  "sum": { "aggregationTemporality": temporality, "isMonotonic": true,
                           "dataPoints": [counter] } },
                { "name": "rpc.duration", "unit": "ms",
                  "histogram": { "aggregationTemporality": temporality,
                                 "dataPoints": [milliseconds] } },
                { "name": "queue_wait", "unit": "ns",
                  "exponentialHistogram": { "aggregationTemporality": temporality,
                                            "dataPoints": [nanoseconds] } },
                { "name": "cpu.busy", "unit": "ms",
                  "sum": { "aggregationTemporality": temporality, "isMonotonic": true,
                           "dataPoints": [counter] } },
                { "name": "gc_ms", "unit": "ms",
                  "sum": { "aggregationTemporality": temporality, "isMonotonic": true,
                           "dataPoints": [counter] } },
                { "name": "backup_age", "unit": "min", "gauge": { "dataPoints": [minutes] } },
                { "name": "system.cpu.utilization", "unit": "1",
                  "gauge": { "dataPoints": [gauge] } },
            ]);
            let service = [("service.name", "cart"), ("service.namespace", "shop")];
            let request = json!({ "resourceMetrics": [{
                "resource": { "attributes": attributes(&service) },
                "scopeMetrics": [{ "metrics": metrics }],
            }] });
            let kind = "Content-Type: application/json\r\n";
            it.post("/v1/metrics", kind, request.to_string()).check(200, "{}");
        }
        it.store.catch_up().unwrap();
        OtlpShop { it, end }
    }

    fn get(&self, path: &str) -> Value {
        let path = &path.replace('{', "%7B").replace('}', "%7D").replace('"', "%22");
        let response = self.it.request("GET", path, "", b"");
        assert_eq!(response.status, 200, "{path}: {}", response.text());
        serde_json::from_str(&response.text()).unwrap()
    }

    /// Labels and values of an instant query at the last export.
    fn query(&self, expression: &str) -> Vec<(Value, f64)> {
        let escaped: String = expression.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let answer = self.get(&format!("/api/v1/query?query={escaped}&time={}", self.end));
        let streams = answer["data"]["result"].as_array().unwrap();
        let parse = |stream: &Value| {
            let value = stream["value"][1].as_str().unwrap().parse().unwrap();
            (stream["metric"].clone(), value)
        };
        streams.iter().map(parse).collect()
    }

    #[track_caller]
    fn check(&self, expression: &str, expected: &[(Value, f64)]) {
        let found = self.query(expression);
        assert_eq!(found.len(), expected.len(), "{expression}: {found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert_eq!(found.0, expected.0, "{expression}");
            let difference = (found.1 - expected.1).abs();
            assert!(difference <= 1e-9 * expected.1.abs(), "{expression}: {found:?}");
        }
    }
}

#[test]
fn red_dashboard_for_prometheus_answers_from_otlp_histogram() {
    for temporality in [1, 2] {
        let shop = OtlpShop::new(temporality);
        let name = "http_server_request_duration_seconds";
        let all = json!({});
        shop.check(&format!("sum(rate({name}_count[2m]))"), &[(all.clone(), 10.0 / 15.0)]);
        shop.check(
            &format!("sum by (job, http_route) (rate({name}_sum[2m]))"),
            &[(json!({ "job": "shop/cart", "http_route": "/cart" }), 6.15 / 15.0)],
        );
        let bucket = |bound: &str, count: f64| (json!({ "le": bound }), count / 15.0);
        shop.check(
            &format!("sum by (le) (rate({name}_bucket{{job=\"shop/cart\"}}[2m]))"),
            &[bucket("+Inf", 10.0), bucket("0.1", 3.0), bucket("1.0", 9.0)],
        );
        // Rank 5 of 10 is 2 of 6 into (0.1, 1].
        shop.check(
            &format!("histogram_quantile(0.5, sum by (le) (rate({name}_bucket[2m])))"),
            &[(all.clone(), 0.1 + 0.9 * 2.0 / 6.0)],
        );
        // Apdex, with the bound as written by a client library of an integer.
        let apdex =
            format!("sum(rate({name}_bucket{{le=\"1\"}}[2m])) / sum(rate({name}_count[2m]))");
        shop.check(&apdex, &[(all.clone(), 0.9)]);
        shop.check(
            &format!("{name}_bucket{{le!=\"1.0\",le!=\"+Inf\"}} * 0"),
            &[(
                json!({ "job": "shop/cart", "http_route": "/cart", "le": "0.1",
                    "service_name": "cart", "service_namespace": "shop" }),
                0.0,
            )],
        );
        shop.check(&format!("sum(exact_increase({name}_count[1m]))"), &[(all, 40.0)]);
    }
}

#[test]
fn otlp_metric_is_found_by_prometheus_name_and_by_its_own() {
    let shop = OtlpShop::new(2);
    let all = json!({});
    let rate = [(all.clone(), 100.0)];
    shop.check("sum(rate(http_server_io_bytes_total[2m]))", &rate);
    shop.check("sum(rate({\"http.server.io\"}[2m]))", &rate);
    shop.check("sum(rate({\"http.server.io\",\"http.route\"=\"/cart\"}[2m]))", &rate);
    shop.check("sum(rate({\"http.server.io\",http_route=\"/cart\"}[2m]))", &rate);
    shop.check("sum(rate({\"http.server.io\",http_route=\"/\"}[2m]))", &[]);
    shop.check("sum(system_cpu_utilization_ratio)", &[(all.clone(), 0.25)]);
    shop.check("sum(system_cpu_utilization)", &[(all.clone(), 0.25)]);
    let native = "histogram_count(sum(rate(http_server_request_duration_seconds[2m])))";
    shop.check(native, &[(all.clone(), 10.0 / 15.0)]);
    shop.check("sum(rate({\"http.server.request.duration_count\"}[2m]))", &[(all, 10.0 / 15.0)]);
    shop.check("http_server_request_duration_count", &[]);
}

#[test]
fn regex_of_names_finds_classic_series_and_translated_names() {
    let shop = OtlpShop::new(2);
    let name = "http_server_request_duration_seconds";
    let all = json!({});
    let count = format!("sum(rate({{__name__=~\"{name}_(count|nothing)\"}}[2m]))");
    shop.check(&count, &[(all.clone(), 10.0 / 15.0)]);
    let bucket = format!("sum(rate({{__name__=~\"{name}_bucket|x\",le=\"1.0\"}}[2m]))");
    shop.check(&bucket, &[(all.clone(), 9.0 / 15.0)]);
    let counter = "sum(rate({__name__=~\"http_server_io_.*_total\"}[2m]))";
    shop.check(counter, &[(all.clone(), 100.0)]);
    // A histogram that matches by its own name is not found by its suffixes, too.
    shop.check(&format!("count({{__name__=~\"{name}.*\"}})"), &[(all, 1.0)]);
    shop.check("count({__name__=~\"nothing.*\"})", &[]);
}

/// `label_values(x_bucket, le)` of Grafana.
#[test]
fn variable_of_bucket_bounds_lists_them() {
    let shop = OtlpShop::new(2);
    let bucket = "match[]=http_server_request_duration_seconds_bucket";
    let bounds = json!(["+Inf", "0.1", "1.0"]);
    assert_eq!(shop.get(&format!("/api/v1/label/le/values?{bucket}"))["data"], bounds);
    let labels = shop.get(&format!("/api/v1/labels?{bucket}"));
    assert!(labels["data"].as_array().unwrap().contains(&json!("le")), "{labels}");
    let series = shop.get(&format!("/api/v1/series?{bucket}{{le=\"0.1\"}}"));
    assert_eq!(series["data"].as_array().unwrap().len(), 1, "{series}");
    let (start, end) = (shop.end - 60, shop.end);
    let range = format!("start={start}&end={end}");
    assert_eq!(shop.get(&format!("/api/v1/label/le/values?{bucket}&{range}"))["data"], bounds);
}

/// A sender of classic histograms by remote write, whose native histogram is stored too.
#[test]
fn stored_series_with_the_name_of_a_bucket_wins() {
    let shop = OtlpShop::new(2);
    let now = shop.end * SECOND;
    let point = json!({ "timeUnixNano": now.to_string(), "asDouble": 7.0, "attributes": [] });
    let request = json!({ "resourceMetrics": [{ "scopeMetrics": [{ "metrics": [
        { "name": "latency_count", "gauge": { "dataPoints": [point] } },
        { "name": "latency", "histogram": { "aggregationTemporality": 2, "dataPoints": [{
            "startTimeUnixNano": (now - SECOND).to_string(), "timeUnixNano": now.to_string(),
            "count": "3", "sum": 4.5, "bucketCounts": ["3", "0"], "explicitBounds": [2.0],
        }] } },
    ] }] }] });
    let kind = "Content-Type: application/json\r\n";
    shop.it.post("/v1/metrics", kind, request.to_string()).check(200, "{}");
    shop.it.store.catch_up().unwrap();
    shop.check("latency_count", &[(json!({ "__name__": "latency_count" }), 7.0)]);
    shop.check("latency_sum", &[(json!({ "__name__": "latency_sum" }), 4.5)]);
}

#[test]
fn variables_of_a_dashboard_for_prometheus_list_otlp_metrics() {
    let shop = OtlpShop::new(2);
    let names = shop.get("/api/v1/label/__name__/values");
    let names: Vec<&str> =
        names["data"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    for name in ["http.server.io", "http_server_io_bytes_total"] {
        assert!(names.contains(&name), "{names:?}");
    }
    let bucket = "match[]=http_server_request_duration_seconds_bucket";
    let routes = shop.get(&format!("/api/v1/label/http_route/values?{bucket}"));
    assert_eq!(routes["data"], json!(["/cart"]));
    let jobs = shop.get(&format!("/api/v1/label/job/values?{bucket}"));
    assert_eq!(jobs["data"], json!(["shop/cart"]));
    // Without a selector, under stored and translated names of labels.
    for (label, value) in [
        ("http.route", "/cart"),
        ("http_route", "/cart"),
        ("service.name", "cart"),
        ("service_name", "cart"),
        ("job", "shop/cart"),
    ] {
        let values = shop.get(&format!("/api/v1/label/{label}/values"));
        assert!(values["data"].as_array().unwrap().contains(&json!(value)), "{label}: {values}");
    }
    let series = shop.get("/api/v1/series?match[]=http_server_io_bytes_total{job=\"shop/cart\"}");
    assert_eq!(series["data"].as_array().unwrap().len(), 1, "{series}");
    assert_eq!(series["data"][0]["http_route"], "/cart");
    let labels = shop.get("/api/v1/labels?match[]=http_server_io_bytes_total");
    assert!(labels["data"].as_array().unwrap().contains(&json!("service_name")), "{labels}");
    let metadata = shop.get("/api/v1/metadata?metric=http_server_io_bytes_total");
    assert_eq!(metadata["data"]["http_server_io_bytes_total"][0]["type"], "counter");
}

/// Expressions in pairs: by the name in seconds, and by the stored name, whose values are larger by
/// a factor.
#[test]
fn dashboard_in_seconds_shows_services_that_measure_in_milliseconds_and_nanoseconds() {
    for temporality in [1, 2] {
        let shop = OtlpShop::new(temporality);
        let all = json!({});
        let name = "rpc_duration_seconds";
        shop.check(&format!("sum(rate({name}_count[2m]))"), &[(all.clone(), 10.0 / 15.0)]);
        shop.check(&format!("sum(rate({name}_sum[2m]))"), &[(all.clone(), 6.15 / 15.0)]);
        let bucket = |bound: &str, count: f64| (json!({ "le": bound }), count / 15.0);
        shop.check(
            &format!("sum by (le) (rate({name}_bucket[2m]))"),
            &[bucket("+Inf", 10.0), bucket("0.1", 3.0), bucket("1.0", 9.0)],
        );
        for (seconds, stored, factor) in [
            (name, "{\"rpc.duration\"", 1e3),
            (name, "rpc_duration_milliseconds{", 1e3),
            ("queue_wait_seconds", "queue_wait{", 1e9),
        ] {
            let stored = |suffix: &str| match stored.strip_suffix("\"") {
                Some(quoted) => format!("{quoted}{suffix}\"}}"),
                None => format!("{}{suffix}", stored.strip_suffix('{').unwrap()),
            };
            for (template, is_time) in [
                ("histogram_quantile(0.5, sum(rate(X[2m])))", true),
                ("histogram_quantile(0.5, sum by (le) (rate(X_bucket[2m])))", true),
                ("histogram_quantile(0.9, sum(exact_increase(X[2m])))", true),
                ("histogram_avg(sum(increase(X[2m])))", true),
                ("histogram_max(sum(exact_increase(X[2m])))", true),
                ("histogram_sum(sum(exact_increase(X[2m])))", true),
                ("sum(exact_increase(X_sum[2m]))", true),
                ("histogram_count_above(100ms, sum(exact_increase(X[2m])))", false),
                ("histogram_fraction(0, 100ms, sum(rate(X[2m])))", false),
                ("histogram_count(sum(exact_increase(X[2m])))", false),
            ] {
                let of = |name: &dyn Fn(&str) -> String| {
                    let with_suffix = ["_bucket", "_sum", ""].iter();
                    with_suffix.fold(template.to_owned(), |text, suffix| {
                        text.replace(&format!("X{suffix}["), &format!("{}[", name(suffix)))
                    })
                };
                let expected = shop.query(&of(&stored));
                assert!(expected.len() == 1 && expected[0].1.is_finite(), "{expected:?}");
                let divisor = if is_time { factor } else { 1.0 };
                let expected = (all.clone(), expected[0].1 / divisor);
                shop.check(&of(&|suffix| format!("{seconds}{suffix}")), &[expected]);
            }
        }
        shop.check("sum(rate(cpu_busy_seconds_total[2m]))", &[(all.clone(), 0.1)]);
        shop.check("sum(rate(cpu_busy_milliseconds_total[2m]))", &[(all.clone(), 100.0)]);
        shop.check("sum(exact_increase(cpu_busy_seconds_total[1m]))", &[(all.clone(), 6.0)]);
        // All services on one panel.
        let both = "count({__name__=~\"rpc_duration_seconds|queue_wait_seconds\"})";
        shop.check(both, &[(all, 2.0)]);
    }
}

#[test]
fn age_in_minutes_is_compared_with_a_duration_in_its_unit() {
    let shop = OtlpShop::new(2);
    shop.check("sum(backup_age > bool 90s)", &[(json!({}), 1.0)]);
    shop.check("sum(backup_age > bool 3m)", &[(json!({}), 0.0)]);
    shop.check("sum(backup_age / 1h)", &[(json!({}), 2.5 / 60.0)]);
}

#[test]
fn metric_that_prometheus_names_by_its_unit_keeps_that_name_only() {
    let shop = OtlpShop::new(2);
    shop.check("sum(rate(gc_ms[2m]))", &[(json!({}), 100.0)]);
    for other in ["gc_seconds_total", "gc_ms_seconds_total", "gc_seconds"] {
        shop.check(other, &[]);
    }
}

#[test]
fn variables_of_a_dashboard_list_the_names_in_seconds() {
    let shop = OtlpShop::new(2);
    let names = shop.get("/api/v1/label/__name__/values");
    let names: Vec<&str> =
        names["data"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    for name in [
        "queue_wait",
        "queue_wait_seconds",
        "queue_wait_seconds_bucket",
        "queue_wait_sum",
        "rpc_duration_milliseconds",
        "rpc_duration_seconds_count",
        "cpu_busy_seconds_total",
    ] {
        assert!(names.contains(&name), "{name} is not in {names:?}");
    }
    assert!(!names.iter().any(|name| name.starts_with("gc_ms_")), "{names:?}");
    let metadata = shop.get("/api/v1/metadata?metric=queue_wait_seconds");
    assert_eq!(metadata["data"]["queue_wait_seconds"][0]["unit"], "s");
    let bounds = shop.get("/api/v1/label/le/values?match[]=rpc_duration_seconds_bucket");
    assert_eq!(bounds["data"], json!(["+Inf", "0.1", "1.0"]));
}
