//! Test server: the routes over an in-memory store with sample data.

use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use decode::SeriesSink as _;
use hist::Histogram;
use hist::codec::header::Temporality;
use http::{Request, StatusCode};
use intake::{Intake, WriteTarget};
use model::{Gap, Sample, SampleValue, Series, SeriesKind};
use serde_json::Value as Read;
use tower::ServiceExt as _;

use crate::context::Context;
use crate::openapi;
use crate::query_service::QueryServiceSettings;
use crate::role_routes;
use crate::token::Scope;

/// Start of the first point: 2020-09-13T12:30:00Z.
pub(crate) const START: i64 = 1_600_000_200 * store::SECOND;
/// The current time: an hour later.
pub(crate) const NOW: i64 = START + store::HOUR;

/// A server without sockets.
pub(crate) struct TestServer {
    pub(crate) context: Context,
    router: Router,
}

/// An empty store.
pub(crate) fn empty_store() -> Arc<store::Store> {
    let disk: Arc<dyn disk::Disk> = Arc::new(sim::SimDisk::new(1).process());
    empty_store_in(disk, Path::new("/store"))
}

/// An empty store in a directory.
pub(crate) fn empty_store_in(disk: Arc<dyn disk::Disk>, path: &Path) -> Arc<store::Store> {
    let clock: journal::WallClock = Arc::new(|| NOW);
    let settings =
        journal::Settings { buffer_bytes: 1 << 20, segment_bytes: 4 << 20, ..Default::default() };
    let journal = journal::Options {
        is_exclusive: true,
        has_background_thread: false,
        clock: Arc::clone(&clock),
        ..Default::default()
    };
    let options =
        store::Options { has_background_thread: false, journal, clock, ..Default::default() };
    store::Store::create(&disk, path, &settings).unwrap();
    Arc::new(store::Store::open(disk, path, &options).unwrap())
}

impl TestServer {
    /// A server over a store.
    pub(crate) fn with_store(
        store: Arc<store::Store>,
        query_settings: QueryServiceSettings,
    ) -> TestServer {
        TestServer::with_target(WriteTarget::Store(store), query_settings)
    }

    pub(crate) fn with_target(
        target: WriteTarget,
        query_settings: QueryServiceSettings,
    ) -> TestServer {
        TestServer::with_routes(target, query_settings, Vec::new())
    }

    /// A server with routes of roles.
    pub(crate) fn with_routes(
        target: WriteTarget,
        query_settings: QueryServiceSettings,
        routes: Vec<role::Route>,
    ) -> TestServer {
        TestServer::with_clock(target, query_settings, routes, Arc::new(|| NOW))
    }

    /// A server whose time passes.
    pub(crate) fn with_clock(
        target: WriteTarget,
        query_settings: QueryServiceSettings,
        routes: Vec<role::Route>,
        clock: journal::WallClock,
    ) -> TestServer {
        let settings = intake::Settings { background: false, clock, ..Default::default() };
        let intake = Arc::new(Intake::new(target, settings).unwrap());
        let context = Context::new(intake, query_settings).with_routes(routes);
        let scopes =
            [Scope::Ingest, Scope::Read, Scope::Admin, Scope::Exemplars, Scope::Enroll].map(Some);
        let scopes = [None].into_iter().chain(scopes);
        let router = scopes.map(openapi::routes).fold(Router::new(), Router::merge);
        let router = router.merge(role_routes::read_routes(&context.offered));
        let router = router.merge(role_routes::picture_routes(&context.offered));
        TestServer { router: router.with_state(context.clone()), context }
    }

    /// A server over a store with an hour of latencies of two hosts, one point per minute, and a
    /// counter and a gauge: in minute `m` host `a` has 10 values of 1 to 10 ms, host `b` 10 of 100
    /// to 1000 ms.
    pub(crate) fn new() -> TestServer {
        TestServer::with_settings(QueryServiceSettings::default())
    }

    /// The same, with query settings.
    pub(crate) fn with_settings(query_settings: QueryServiceSettings) -> TestServer {
        let server = TestServer::with_store(empty_store(), query_settings);
        let latency = |host: &str| {
            Series::new("latency", SeriesKind::Histogram(Temporality::Delta))
                .with_unit("ms")
                .with_label("host", host)
                .validate()
                .unwrap()
        };
        let requests = Series::new("requests_total", SeriesKind::Counter(Temporality::Cumulative));
        let depth =
            Series::new("depth", SeriesKind::Gauge).with_label("host", "a").validate().unwrap();
        for minute in 0..60 {
            let start = START + minute * store::MINUTE;
            let end = start + store::MINUTE;
            for (host, least) in [("a", 1), ("b", 100)] {
                let mut histogram = Histogram::default();
                (1..=10).for_each(|n| histogram.record(f64::from(n * least)));
                let value = SampleValue::Histogram(Box::new(histogram));
                server.send(&latency(host), Sample { start, end, value });
            }
            let total = SampleValue::Number((minute * 10) as f64);
            server.send(&requests, Sample { start: START, end, value: total });
            let value = SampleValue::Number(minute as f64 + 0.5);
            server.send(&depth, Sample { start: end, end, value });
        }
        server
    }

    /// Appends one point.
    pub(crate) fn send(&self, series: &Series, sample: Sample) {
        let intake = &self.context.intake;
        let mut writer = intake.writer(intake::SeriesKeyEncoding::CANONICAL);
        writer.series(&series.canonical_key(), &mut || Ok(series.clone())).unwrap();
        writer.sample(&sample).unwrap();
        intake.append(&intake.producer("server"), writer).unwrap().wait_durable().unwrap();
    }

    /// Appends a gap.
    pub(crate) fn send_gap(&self, gap: Gap) {
        let intake = &self.context.intake;
        let mut writer = intake.writer(intake::SeriesKeyEncoding::CANONICAL);
        writer.gap(gap);
        intake.append(&intake.producer("server"), writer).unwrap().wait_durable().unwrap();
    }

    /// Sends any request.
    pub(crate) async fn respond(&self, request: Request<Body>) -> axum::response::Response {
        self.router.clone().oneshot(request).await.unwrap()
    }

    /// Sends a request, and reads the whole response.
    pub(crate) async fn send_request(&self, request: Request<Body>) -> (StatusCode, String) {
        let response = self.respond(request).await;
        let status = response.status();
        let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    /// Sends a GET request.
    pub(crate) async fn get(&self, uri: &str) -> (StatusCode, String) {
        self.send_request(Request::get(percent_encode(uri)).body(Body::empty()).unwrap()).await
    }

    /// Sends a GET request that has to succeed.
    pub(crate) async fn json(&self, uri: &str) -> Read {
        let (status, text) = self.get(uri).await;
        assert!(status.is_success(), "{uri}: {status} {text}");
        serde_json::from_str(&text).unwrap()
    }
}

/// Sends a GET request to a new test server, and compares the response; an error status is
/// prepended.
pub(crate) async fn check(uri: &str, expected: expect_test::Expect) {
    let (status, text) = TestServer::new().get(uri).await;
    let status = if status == StatusCode::OK { String::new() } else { format!("{status} ") };
    expected.assert_eq(&format!("{status}{text}"));
}

/// Escapes characters that a URL may not contain, as browsers do.
fn percent_encode(uri: &str) -> String {
    let mut out = String::new();
    for byte in uri.bytes() {
        match byte {
            b' ' | b'"' | b'{' | b'}' | b'<' | b'>' | b'^' | b'`' | b'|' | b'[' | b']' | b'\\' => {
                out.push_str(&format!("%{byte:02X}"));
            }
            byte if byte.is_ascii() => out.push(char::from(byte)),
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}
