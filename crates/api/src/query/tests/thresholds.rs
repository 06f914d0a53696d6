//! Units of thresholds, and warnings about them.

use crate::test_server::TestServer;

/// Latencies of 1 to 1000 ms, stored in ms; a duration used as a number is 0.05 in Prometheus.
#[tokio::test]
async fn duration_literal_is_in_the_unit_of_the_values() {
    let server = TestServer::new();
    let ask = async |expression: &str| server.json(&format!("/v1/query?query={expression}")).await;
    let above =
        |limit: &str| format!("sum(histogram_count_above({limit}, exact_increase(latency[10m])))");
    let duration = ask(&above("50ms")).await;
    assert_eq!(duration["data"][0]["points"][0]["value"], 100.0);
    assert_eq!(duration["data"], ask(&above("50")).await["data"]);
    let fraction = |limit: &str| format!("histogram_fraction(0, {limit}, rate(latency[10m]))");
    assert_eq!(ask(&fraction("5ms")).await["data"], ask(&fraction("5")).await["data"]);
    let slow = ask("histogram_max(exact_increase(latency[10m])) > 50ms").await;
    assert_eq!(slow["data"].as_array().unwrap().len(), 1, "{slow}");
    let seconds = ask("histogram_max(exact_increase(latency{host=\"b\"}[10m])) / 1s").await;
    assert_eq!(seconds["data"][0]["points"][0]["value"], 1.0, "{seconds}");
    // Without a series it is a number of seconds, as in Prometheus.
    assert_eq!(ask("50ms").await["data"][0]["value"], 0.05);
}

#[tokio::test]
async fn threshold_below_all_values_or_far_above_produces_a_warning() {
    let server = TestServer::new();
    let warning = async |limit: &str| {
        let expression =
            format!("sum(histogram_count_above({limit}, exact_increase(latency[10m])))");
        let answer = server.json(&format!("/v1/query?query={expression}")).await;
        answer["warnings"][0].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(warning("50").await, "");
    let below = warning("0.25").await;
    assert!(
        below.starts_with("threshold 0.25 (in ms) is below all values, which begin at 1 ms"),
        "{below}"
    );
    let above = warning("5000000").await;
    assert!(above.contains("far above all values, which end at"), "{above}");
    // The same of `histogram_fraction`, whose answer was 0 without a word.
    let fraction = async |limits: &str| {
        let expression = format!("histogram_fraction({limits}, sum(rate(latency[10m])))");
        let answer = server.json(&format!("/v1/query?query={expression}")).await;
        answer["warnings"].as_array().unwrap().len()
    };
    assert_eq!(fraction("0, 0.25").await, 1);
    assert_eq!(fraction("0, 250ms").await, 0);
    assert_eq!(fraction("50, Inf").await, 0);
}

/// `above=0.25` and `up_to=0.25` mean milliseconds here, and nothing said so; nor was a word said
/// of `above=1h`.
#[tokio::test]
async fn threshold_beyond_all_values_produces_a_warning() {
    let server = TestServer::new();
    let expected = "threshold 0.25 (in ms) is below all values, which begin at 1 ms; write the \
                    threshold with its unit, such as 250ms";
    for path in ["histogram", "heatmap", "breakdown"] {
        let ask = |above: &str| format!("/v1/{path}?selector=latency&above={above}");
        let answer = server.json(&ask("0.25")).await;
        assert_eq!(answer["warnings"], serde_json::json!([expected]), "{path}");
        let answer = server.json(&ask("1us")).await;
        let expected = "threshold 1us is below all values, which begin at 1 ms";
        assert_eq!(answer["warnings"], serde_json::json!([expected]), "{path}");
        assert_eq!(server.json(&ask("250us")).await["warnings"], serde_json::Value::Null, "{path}");
        assert_eq!(server.json(&ask("0")).await["warnings"], serde_json::Value::Null, "{path}");
        assert_eq!(server.json(&ask("250ms")).await["warnings"], serde_json::Value::Null, "{path}");
    }
}
