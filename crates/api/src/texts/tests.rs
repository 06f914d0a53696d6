//! The latest text of each series is returned.

use http::StatusCode;
use model::{Sample, SampleValue, Series, SeriesKind};

use crate::test_server::{NOW, START, TestServer};

fn send_text(server: &TestServer, pid: &str, at: i64, text: &str) {
    let series = Series::new("process_exit_info", SeriesKind::Text).with_label("pid", pid);
    let value = SampleValue::Text(text.to_owned());
    server.send(&series.validate().unwrap(), Sample { start: at, end: at, value });
}

#[tokio::test]
async fn latest_value_of_each_series() {
    let server = TestServer::new();
    send_text(&server, "7", START, "ended");
    send_text(&server, "8", START + 1, "ended");
    send_text(&server, "8", START + 2, "died");
    let texts = async |uri: &str| -> Vec<(String, i64, String)> {
        let answer = server.json(uri).await;
        let all = answer["texts"].as_array().unwrap().iter().map(|one| {
            let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
            let pid = text(&one["labels"]["pid"]);
            (pid, one["time_ns"].as_i64().unwrap(), text(&one["text"]))
        });
        let mut all: Vec<_> = all.collect();
        all.sort();
        all
    };
    let of = |pid: &str, at: i64, text: &str| (pid.to_owned(), at, text.to_owned());
    assert_eq!(
        texts("/v1/texts?selector=process_exit_info").await,
        [of("7", START, "ended"), of("8", START + 2, "died")]
    );
    assert_eq!(
        texts(&format!("/v1/texts?selector=process_exit_info&to={}ns", START + 1)).await,
        [of("7", START, "ended"), of("8", START + 1, "ended")]
    );
    assert_eq!(
        texts(&format!("/v1/texts?selector=process_exit_info&from={}ns&to={NOW}ns", START + 1))
            .await,
        [of("8", START + 2, "died")]
    );
    assert_eq!(texts("/v1/texts?selector=process_exit_info{pid=\"7\"}").await.len(), 1);
    // Series without texts are skipped.
    assert_eq!(texts("/v1/texts?selector=latency").await, []);
    let one = server.json("/v1/texts?selector=process_exit_info&limit=1").await;
    assert_eq!((&one["total"], &one["truncated"]), (&2.into(), &true.into()));
    let (status, text) = server.get("/v1/texts").await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(text.contains("such as process_exit_info"), "{text}");
}
