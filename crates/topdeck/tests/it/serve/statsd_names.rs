//! Names and units under which StatsD metrics are found.

use std::net::UdpSocket;

use serde_json::Value;

use super::server_process::{ServerProcess, wait_until};

/// Result of an instant query, 0 without one.
fn query(deck: &ServerProcess, query: &str) -> f64 {
    let encoded: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let answer = deck.get(&format!("/api/v1/query?query={encoded}")).text();
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    assert_eq!(answer["status"], "success", "{query}: {answer}");
    let value = answer["data"]["result"][0]["value"][1].as_str();
    value.map_or(0.0, |value| value.parse().expect("a number"))
}

/// A user of statsd_exporter did not know how a counter and a timer are called here.
#[test]
fn statsd_metrics_have_the_names_that_were_sent_and_those_of_prometheus() {
    let mut deck = ServerProcess::new("serve", "[statsd]\nudp = [\"127.0.0.1:0\"]\n");
    deck.start();
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    let lines = b"hits:3|c\nshop-api.took:250|ms\nshop-api.took:250|ms";
    socket.send_to(lines, ("127.0.0.1", deck.udp_port("StatsD"))).expect("loopback takes it");
    wait_until("the counter is there", || query(&deck, "sum(exact_increase(hits[10m]))") > 0.0);
    for name in ["hits", "hits_total"] {
        assert_eq!(query(&deck, &format!("sum(exact_increase({name}[10m]))")), 3.0, "{name}");
    }
    for (name, expected) in [
        ("{\"shop-api.took\"", 250e6),
        ("{__name__=\"shop_api_took_nanoseconds\"", 250e6),
        ("{__name__=\"shop_api_took_seconds\"", 0.25),
    ] {
        let p99 = query(&deck, &format!("histogram_quantile(0.99, exact_increase({name}}}[10m]))"));
        assert!((p99 / expected - 1.0).abs() < 0.02, "{name}: {p99}");
    }
    assert_eq!(query(&deck, "sum(exact_increase(shop_api_took_seconds_count[10m]))"), 2.0);
    // By a word of it: the message names it.
    let answer = deck.get("/v1/selection?selector=took").text();
    assert!(answer.contains(r#"did you mean the metric \"shop-api.took\"?"#), "{answer}");
}
