//! Events of the live stream.

use http_body_util::BodyExt as _;

use axum::body::Body;
use hist::Histogram;
use hist::codec::header::Temporality;
use http::{Request, StatusCode, header};
use model::{Gap, Sample, SampleValue, Series, SeriesKind};

use super::hub::EVENTS_MAX;
use crate::query_service::QueryServiceSettings;
use crate::test_server::{START, TestServer, empty_store};

/// Test client of the live stream.
struct SseClient(Body);

impl SseClient {
    async fn new(server: &TestServer, uri: &str) -> SseClient {
        let response = server.respond(Request::get(uri).body(Body::empty()).unwrap()).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let mut listener = SseClient(response.into_body());
        assert_eq!(listener.next().await.as_deref(), Some(": topdeck\n\n"));
        listener
    }

    async fn next(&mut self) -> Option<String> {
        let frame = self.0.frame().await?.unwrap();
        Some(String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap())
    }

    /// The next event, without comments.
    async fn event(&mut self) -> String {
        loop {
            let event = self.next().await.expect("the stream goes on");
            if !event.starts_with(':') {
                return event;
            }
        }
    }
}

fn gauge(name: &str) -> Series {
    Series::new(name, SeriesKind::Gauge).with_label("host", "a").validate().unwrap()
}

fn number(value: f64) -> Sample {
    Sample { start: START, end: START, value: SampleValue::Number(value) }
}

#[tokio::test]
async fn rows_and_gaps_are_filtered_by_selector() {
    let server = TestServer::with_store(empty_store(), QueryServiceSettings::default());
    // Earlier points are not sent, but later ones reference their series by id.
    server.send(&gauge("depth"), number(1.0));
    let mut all = SseClient::new(&server, "/v1/stream").await;
    let mut some = SseClient::new(&server, "/v1/stream?selector=latency").await;
    server.send(&gauge("depth"), number(f64::INFINITY));
    let latency = Series::new("latency", SeriesKind::Histogram(Temporality::Delta))
        .with_unit("ms")
        .validate()
        .unwrap();
    let mut histogram = Histogram::default();
    histogram.record_n(3.0, 2);
    let value = SampleValue::Histogram(Box::new(histogram));
    server.send(&latency, Sample { start: START, end: START + 10, value });
    server.send_gap(Gap {
        start: 1,
        end: 2,
        producer: None,
        lost: Some(3),
        reason: "why".to_owned(),
    });
    let row = "event: sample\ndata: \
               {\"name\":\"latency\",\"labels\":{},\"kind\":\"delta-histogram\",\"unit\":\"ms\",\"start_ns\":1600000200000000000,\"end_ns\":1600000200000000010,\"value\":{\"count\":2,\"sum\":{\"lower\":6.0,\"estimate\":6.0,\"upper\":6.0},\"min\":{\"lower\":3.0,\"estimate\":3.0,\"upper\":3.0},\"max\":{\"lower\":3.0,\"estimate\":3.0,\"upper\":3.0},\"cells\":[{\"lower\":3.0,\"upper\":3.0,\"count\":2}]}}\n\n";
    let gap = "event: gap\ndata: \
               {\"start_ns\":1,\"end_ns\":2,\"producer\":null,\"lost\":3,\"reason\":\"why\"}\n\n";
    assert_eq!(some.event().await, row);
    assert_eq!(some.event().await, gap);
    assert_eq!(
        all.event().await,
        "event: sample\ndata: \
         {\"name\":\"depth\",\"labels\":{\"host\":\"a\"},\"kind\":\"gauge\",\"unit\":null,\"start_ns\":1600000200000000000,\"end_ns\":1600000200000000000,\"value\":\"+Inf\"}\n\n"
    );
    assert_eq!(all.event().await, row);
    assert_eq!(all.event().await, gap);
}

#[tokio::test]
async fn slow_clients_get_the_number_of_missed_events() {
    let server = TestServer::with_store(empty_store(), QueryServiceSettings::default());
    let mut slow = SseClient::new(&server, "/v1/stream?selector=depth").await;
    let mut quick = SseClient::new(&server, "/v1/stream?selector=mark").await;
    let more = 10;
    let intake = &server.context.intake;
    let mut writer = intake.writer(intake::SeriesKeyEncoding::GENERIC);
    use decode::SeriesSink as _;
    writer.series(b"depth", &mut || Ok(gauge("depth"))).unwrap();
    for at in 0..EVENTS_MAX + more {
        writer.sample(&number(at as f64)).unwrap();
    }
    intake.append(&intake.producer("server"), writer).unwrap().wait_durable().unwrap();
    server.send(&gauge("mark"), number(1.0));
    assert!(quick.event().await.contains("\"mark\""));
    for at in 0..EVENTS_MAX {
        assert!(slow.event().await.contains(&format!("\"value\":{at}.0")), "{at}");
    }
    server.send(&gauge("depth"), number(-1.0));
    assert_eq!(slow.event().await, format!("event: lagged\ndata: {{\"dropped\":{more}}}\n\n"));
    assert!(slow.event().await.contains("\"value\":-1.0"));
}

#[tokio::test]
async fn stream_clients_are_limited_and_end_with_the_server() {
    let query_settings = QueryServiceSettings { max_stream_clients: 1, ..Default::default() };
    let server = TestServer::with_store(empty_store(), query_settings);
    let mut one = SseClient::new(&server, "/v1/stream").await;
    let (status, text) = server.get("/v1/stream").await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
    assert!(text.contains("stream clients limit (1) reached"), "{text}");
    drop(std::mem::replace(&mut one, SseClient(Body::empty())));
    let mut other = SseClient::new(&server, "/v1/stream").await;
    let context = server.context.clone();
    tokio::task::spawn_blocking(move || context.queries.stop()).await.unwrap();
    assert_eq!(other.next().await, None);
    let request = Request::get("/v1/stream").body(Body::empty()).unwrap();
    let response = server.respond(request).await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(response.headers()[header::RETRY_AFTER], "5");
}
