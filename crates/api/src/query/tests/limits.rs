//! Limits of queries and responses.

use http::StatusCode;

use crate::query_service::QueryServiceSettings;
use crate::test_server::{NOW, START, TestServer};

#[tokio::test]
async fn response_size_is_limited() {
    let refused = async |bytes: usize, uri: &str| {
        let query_settings =
            QueryServiceSettings { max_response_bytes: bytes, ..Default::default() };
        let (status, text) = TestServer::with_settings(query_settings).get(uri).await;
        assert_eq!(status == StatusCode::UNPROCESSABLE_ENTITY, !status.is_success(), "{text}");
        (!status.is_success()).then_some(text)
    };
    let long = "/v1/query?query=1&from=-1h&step=1s";
    let whole = "size limit (100000 bytes) of the response with maxima exceeded";
    assert!(refused(100_000, long).await.unwrap().contains(whole));
    // The document in memory is larger than the response.
    assert!(refused(400_000, long).await.unwrap().contains("size limit (400000 bytes)"));
    assert_eq!(refused(1_000_000, long).await, None);
    // The size of the response itself.
    let prometheus = "/api/v1/query_range?query=1&start=1600000000&end=1600000100&step=1";
    let written = "response size limit (1000 bytes) exceeded";
    assert!(refused(1000, prometheus).await.unwrap().contains(written));
}

#[tokio::test]
async fn maxima_count_against_the_response_budget() {
    let asked = "/v1/query?query=histogram_quantile(0.9, latency)&from=-59m&step=1m";
    let bytes = async |uri: &str| {
        let fits = async |bytes: usize| {
            let query_settings =
                QueryServiceSettings { max_response_bytes: bytes, ..Default::default() };
            TestServer::with_settings(query_settings).get(uri).await.0.is_success()
        };
        // The minimum that suffices, to the KiB.
        let (mut less, mut enough) = (0, 1 << 10);
        while enough - less > 1 {
            let half = (less + enough) / 2;
            if fits(half << 10).await { enough = half } else { less = half }
        }
        enough
    };
    let (alone, both) = (bytes(&format!("{asked}&maxima=false")).await, bytes(asked).await);
    // Plain numbers take less memory than statistics with bounds.
    assert!(both > alone + alone / 4, "{alone} KiB, and with maxima {both} KiB");
}

#[tokio::test]
async fn thresholds_and_quantiles_are_limited() {
    let many = |name: &str, n: usize| {
        format!("/v1/histogram?selector=latency&{name}={}", vec!["0.5"; n].join(","))
    };
    for name in ["above", "q"] {
        assert!(TestServer::new().get(&many(name, 100)).await.0.is_success());
        let (status, text) = TestServer::new().get(&many(name, 101)).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        assert!(text.contains("limit of 100 values of parameter"), "{text}");
    }
}

#[tokio::test]
async fn heatmap_thresholds_and_gaps_count_against_the_budget() {
    let query_settings = QueryServiceSettings { max_response_bytes: 400_000, ..Default::default() };
    let server = TestServer::with_settings(query_settings);
    let plain = format!("/v1/heatmap?selector=latency&from={START}ns&to={NOW}ns&columns=60");
    assert!(server.get(&plain).await.0.is_success());
    let (status, text) = server.get(&format!("{plain}&above={}", vec!["1"; 100].join(","))).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(text.contains("response size limit (400000 bytes) exceeded"), "{text}");
}

#[tokio::test]
async fn regex_limit_is_shared_by_all_selectors() {
    for (path, most) in [
        ("/v1/series?", 32),
        ("/v1/metric_names?", 32),
        ("/v1/stream?", 32),
        ("/v1/histogram?", 32),
        ("/api/v1/series?", 128),
        ("/api/v1/labels?", 128),
    ] {
        let one = if most == 128 { "match[]={a=~\"b.c\"}&" } else { "selector={a=~\"b.c\"}&" };
        let (status, text) =
            TestServer::new().get(&format!("{path}{}", one.repeat(most + 1))).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{path}: {text}");
        assert!(text.contains(&format!("limit of {most} regexes exceeded")), "{text}");
        // The maximum number of selectors matches nothing, but is parsed.
        if path != "/v1/stream?" {
            let (status, _) = TestServer::new().get(&format!("{path}{}", one.repeat(most))).await;
            assert_ne!(status, StatusCode::BAD_REQUEST, "{path}");
        }
    }
}
