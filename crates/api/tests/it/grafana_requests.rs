//! Requests in the shapes that Grafana's Prometheus data source sends, over HTTP.
//!
//! Written by us after the client of Grafana 12 (`pkg/promlib/client`, `language_provider.ts`):
//! queries are forms sent by POST, times are seconds with a fraction, a step is a number of
//! seconds, `timeout` and `limit` are added, selectors are `match[]`.

use serde_json::Value;

use crate::prometheus_names::OtlpShop;

const FORM: &str = "Content-Type: application/x-www-form-urlencoded\r\nAccept: application/json\r\n\
    User-Agent: Grafana/12.1.0\r\n";
const METRIC: &str = "http_server_request_duration_seconds";

/// Percent-encoded in full, as a proxy may do.
fn encode(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

fn form(fields: &[(&str, &str)]) -> String {
    let pairs = fields.iter().map(|(name, value)| format!("{}={}", encode(name), encode(value)));
    pairs.collect::<Vec<_>>().join("&")
}

/// `data` of a response.
#[track_caller]
fn data(shop: &OtlpShop, method: &str, path: &str, fields: &[(&str, &str)]) -> Value {
    let fields = form(fields);
    let response = match method {
        "POST" => shop.it.post(path, FORM, &fields),
        _ => shop.it.request(method, &format!("{path}?{fields}"), "", b""),
    };
    let text = response.text();
    assert_eq!(response.status, 200, "{method} {path}?{fields}: {text}");
    let answer: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(answer["status"], "success", "{path}: {text}");
    answer["data"].clone()
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect()
}

#[test]
fn save_and_test_of_a_data_source_succeeds() {
    let shop = OtlpShop::new(2);
    let time = format!("{}.371", shop.end);
    let sum = data(&shop, "POST", "/api/v1/query", &[("query", "1+1"), ("time", &time)]);
    assert_eq!((&sum["resultType"], &sum["result"][1]), (&"scalar".into(), &"2".into()));
    let build = data(&shop, "GET", "/api/v1/status/buildinfo", &[]);
    assert!(build["version"].as_str().unwrap().starts_with("3."), "{build}");
}

#[test]
fn editor_of_a_query_lists_metrics_labels_and_values() {
    let shop = OtlpShop::new(2);
    let (start, end) = ((shop.end - 3_600).to_string(), shop.end.to_string());
    let range = [("start", start.as_str()), ("end", end.as_str())];
    let with = |more: &[(&'static str, &'static str)]| -> Vec<(&str, &str)> {
        range.iter().copied().chain(more.iter().copied()).collect()
    };
    let names = "/api/v1/label/__name__/values";
    for fields in [
        with(&[("limit", "40000")]),
        with(&[("match[]", "{__name__=~\".*request_duration.*\"}"), ("limit", "40000")]),
    ] {
        let found = data(&shop, "GET", names, &fields);
        assert!(texts(&found).contains(&METRIC), "{fields:?}: {found}");
    }
    for (method, fields) in [
        ("GET", with(&[])),
        ("GET", with(&[("match[]", "http_server_request_duration_seconds_bucket")])),
        ("POST", with(&[("match[]", "{__name__=\"http_server_request_duration_seconds\"}")])),
    ] {
        let found = data(&shop, method, "/api/v1/labels", &fields);
        assert!(texts(&found).contains(&"http_route"), "{fields:?}: {found}");
    }
    let of_buckets = [("match[]", "http_server_request_duration_seconds_bucket")];
    let routes = data(&shop, "GET", "/api/v1/label/http_route/values", &with(&of_buckets));
    assert_eq!(texts(&routes), ["/cart"]);
    let bounds = data(&shop, "GET", "/api/v1/label/le/values", &with(&of_buckets));
    assert_eq!(texts(&bounds), ["+Inf", "0.1", "1.0"]);
    // Variables and the metric browser.
    for method in ["GET", "POST"] {
        let fields = with(&[of_buckets[0], ("limit", "40000")]);
        let series = data(&shop, method, "/api/v1/series", &fields);
        let routes: Vec<&Value> =
            series.as_array().unwrap().iter().map(|one| &one["http_route"]).collect();
        assert_eq!(routes, ["/cart", "/cart", "/cart"], "{series}");
    }
    for fields in [&[][..], &[("limit", "20000")], &[("metric", METRIC)]] {
        let metadata = data(&shop, "GET", "/api/v1/metadata", fields);
        assert_eq!(metadata[METRIC][0]["type"], "histogram", "{fields:?}: {metadata}");
    }
}

#[test]
fn panels_answer_ranges_with_fractions_of_seconds_and_steps_without_units() {
    let shop = OtlpShop::new(2);
    let end = format!("{}.25", shop.end);
    let query = format!("sum(rate({METRIC}_count[2m]))");
    for (start, step, points) in [
        (format!("{}.25", shop.end - 60), "15", 5),
        (format!("{}.250", shop.end - 60), "15s", 5),
        (format!("{}.75", shop.end - 3), "0.5", 6),
        (format!("{}", shop.end - 60), "15.000", 5),
    ] {
        let fields = [
            ("query", query.as_str()),
            ("start", start.as_str()),
            ("end", end.as_str()),
            ("step", step),
            ("timeout", "60s"),
        ];
        for method in ["POST", "GET"] {
            let found = data(&shop, method, "/api/v1/query_range", &fields);
            assert_eq!(found["resultType"], "matrix");
            let values = found["result"][0]["values"].as_array().unwrap();
            assert_eq!(values.len(), points, "{start} {step}: {found}");
            assert!(values[0][0].is_number(), "{found}");
            let last: f64 = values[points - 1][1].as_str().unwrap().parse().unwrap();
            assert!((last - 10.0 / 15.0).abs() < 0.05, "{last}");
        }
    }
    // A table panel, and a native heatmap.
    let fields = [("query", query.as_str()), ("time", end.as_str()), ("timeout", "30")];
    let table = data(&shop, "POST", "/api/v1/query", &fields);
    assert_eq!(
        (&table["resultType"], table["result"].as_array().unwrap().len()),
        (&"vector".into(), 1)
    );
    let heatmap = format!("sum(rate({METRIC}[2m]))");
    let start = (shop.end - 60).to_string();
    let fields = [("query", heatmap.as_str()), ("start", &start), ("end", &end), ("step", "15")];
    let found = data(&shop, "POST", "/api/v1/query_range", &fields);
    assert!(found["result"][0]["histograms"].is_array(), "{found}");
    // Exemplars are asked for beside each query of a time series panel.
    for method in ["POST", "GET"] {
        let found = data(&shop, method, "/api/v1/query_exemplars", &fields[..3]);
        assert_eq!(found, Value::Array(Vec::new()));
    }
}

#[test]
fn an_error_in_a_panel_has_the_type_that_grafana_shows() {
    let shop = OtlpShop::new(2);
    let end = shop.end.to_string();
    let body = form(&[("query", "rate("), ("start", &end), ("end", &end), ("step", "15")]);
    let response = shop.it.post("/api/v1/query_range", FORM, &body);
    assert_eq!(response.status, 400, "{}", response.text());
    let answer: Value = serde_json::from_str(&response.text()).unwrap();
    assert_eq!((&answer["status"], &answer["errorType"]), (&"error".into(), &"bad_data".into()));
    assert!(answer["error"].as_str().is_some_and(|text| !text.is_empty()), "{answer}");
}
