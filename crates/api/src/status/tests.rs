//! The status document.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use http::StatusCode;

use crate::test_server::{NOW, TestServer};

#[tokio::test]
async fn status_document() {
    let server = TestServer::new();
    let status = server.json("/v1/status").await;
    assert_eq!(status["now_ns"].as_i64(), Some(NOW));
    assert_eq!(status["store"]["series"], 4);
    assert_eq!(status["journal"]["end"], 240);
    let subscribers = status["journal"]["subscribers"].as_array().unwrap();
    assert!(subscribers.iter().any(|subscriber| subscriber["name"] == "store"));
    assert_eq!(status["journal"]["failed"], false);
    assert_eq!(status["store"]["warnings"].as_array().unwrap().len(), 0);
}

#[tokio::test]
async fn audit_has_no_discrepancy() {
    let server = TestServer::new();
    let audit = server.json("/v1/audit").await;
    assert_eq!(audit["reconciled"], true);
    let producer = &audit["producers"][0];
    assert_eq!(producer["name"], "server");
    for (at, stage) in ["journal", "store"].into_iter().enumerate() {
        let line = &producer["stages"][at];
        assert_eq!((&line["stage"], &line["discrepancy"]), (&stage.into(), &0.into()));
        assert_eq!(
            line["stored"]["values"], 1320,
            "60 minutes of 2 × 10 values, 1 count and 1 gauge"
        );
    }
}

/// A sender stopped, and only a page that was open all the time noticed.
#[tokio::test]
async fn absent_source_is_in_the_status_the_targets_and_the_health() {
    let now = Arc::new(AtomicI64::new(NOW));
    let clock = Arc::clone(&now);
    let clock: journal::WallClock = Arc::new(move || clock.load(Ordering::Relaxed));
    let target = intake::WriteTarget::Store(crate::test_server::empty_store());
    let server = TestServer::with_clock(target, Default::default(), Vec::new(), clock);
    let intake = &server.context.intake;
    let series = model::Series::new("a", model::SeriesKind::Gauge).validate().unwrap();
    for _ in 0..21 {
        let end = now.fetch_add(10 * store::SECOND, Ordering::Relaxed);
        let value = model::SampleValue::Number(1.0);
        server.send(&series, model::Sample { start: end - 1, end, value });
    }
    let source = server.json("/v1/status").await["sources"][0].clone();
    assert_eq!((&source["name"], &source["state"]), (&"server".into(), &"sending".into()));
    assert_eq!(source["interval_ns"], 10 * store::SECOND);
    now.fetch_add(60 * store::SECOND, Ordering::Relaxed);
    let source = server.json("/v1/status").await["sources"][0].clone();
    assert_eq!(
        (&source["state"], &source["absent_after_ns"]),
        (&"absent".into(), &(50 * store::SECOND).into())
    );
    let targets = server.json("/api/v1/targets").await;
    let source = &targets["data"]["sources"][0];
    assert_eq!((&source["health"], &source["absentAfter"]), (&"absent".into(), &"50s".into()));
    let (status, text) = server.get("/health").await;
    let expected = "topdeck is healthy\n1 source is absent; see sources in /v1/status\n";
    assert_eq!((status, &text[..]), (StatusCode::OK, expected));
    intake.retire_source(&intake.producer("server"));
    assert_eq!(server.json("/v1/status").await["sources"], serde_json::json!([]));
}

#[tokio::test]
async fn health_and_metrics() {
    let server = TestServer::new();
    for path in ["/health", "/-/healthy", "/-/ready"] {
        assert_eq!(server.get(path).await, (StatusCode::OK, "topdeck is healthy\n".to_owned()));
    }
    server.json("/v1/query?query=1").await;
    let (status, text) = server.get("/metrics").await;
    assert_eq!(status, StatusCode::OK);
    assert!(text.contains("topdeck_batches_total{outcome=\"accepted\"} 240\n"), "{text}");
    assert!(text.contains("topdeck_query_duration_seconds_count{kind=\"query\"} 1\n"), "{text}");
}

/// A user saw "topdeck is healthy" while every write got 429.
#[tokio::test]
async fn health_and_readiness_are_503_with_the_reason_while_the_disk_is_full() {
    let sim = sim::SimDisk::new(1);
    let disk: std::sync::Arc<dyn disk::Disk> = std::sync::Arc::new(sim.process());
    let store = crate::test_server::empty_store_in(disk, std::path::Path::new("/store"));
    let server =
        TestServer::with_store(store, crate::query_service::QueryServiceSettings::default());
    let intake = &server.context.intake;
    let append = || {
        use decode::SeriesSink as _;
        let mut writer = intake.writer(intake::SeriesKeyEncoding::GENERIC);
        let series = || model::Series::new("a", model::SeriesKind::Gauge).validate();
        writer.series(b"a", &mut { series }).unwrap();
        for end in 1..=1_000 {
            let value = model::SampleValue::Number(end as f64);
            writer.sample(&model::Sample { start: 0, end, value }).unwrap();
        }
        intake.append(&intake.producer("p"), writer)
    };
    sim.set_capacity(sim.used_bytes());
    let refused = (0..10_000).find_map(|_| append().err()).expect("the disk is full");
    assert!(refused.is_retryable(), "{refused}");
    for path in ["/health", "/-/ready"] {
        let (status, text) = server.get(path).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{text}");
        assert!(text.contains("cannot store new data: no space left on the disk"), "{text}");
    }
    assert_eq!(server.get("/-/healthy").await.0, StatusCode::OK, "a restart frees no space");
    sim.set_capacity(u64::MAX);
    append().unwrap().until_durable().await.unwrap();
    assert_eq!(intake.space_problem(), None);
}

#[tokio::test]
async fn agent_has_no_store_to_query() {
    let disk: std::sync::Arc<dyn disk::Disk> = std::sync::Arc::new(sim::SimDisk::new(1).process());
    let path = std::path::Path::new("/journal");
    let settings = journal::Settings {
        buffer_bytes: 64 << 10,
        segment_bytes: 256 << 10,
        ..Default::default()
    };
    journal::Journal::create(&*disk, path, 7, 0, &settings).unwrap();
    let options = journal::Options { has_background_thread: false, ..Default::default() };
    let journal = journal::Journal::open(disk, path, &options).unwrap();
    let target = intake::WriteTarget::Journal(std::sync::Arc::new(journal));
    let server =
        TestServer::with_target(target, crate::query_service::QueryServiceSettings::default());
    let (status, text) = server.get("/v1/query?query=1").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert!(text.contains("an agent stores no data"), "{text}");
    let status = server.json("/v1/status").await;
    assert!(status["store"].is_null() && status["journal"]["end"] == 0);
    assert_eq!(server.get("/health").await.0, StatusCode::OK);
}

#[tokio::test]
async fn health_is_503_while_a_thread_is_down() {
    let server = TestServer::with_store(
        crate::test_server::empty_store(),
        crate::query_service::QueryServiceSettings::default(),
    );
    let thread = server.context.intake.supervisor().thread("store");
    thread.record_panic(&"a count overflows");
    let (status, text) = server.get("/health").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    let expected = "thread store is down (panics: 1); see threads in /v1/status";
    assert_eq!(text, format!("{{\"error\":\"{expected}\"}}\n"), "and not what it said");
    thread.record_restart();
    let status = server.json("/v1/status").await;
    let store = status["threads"].as_array().unwrap().iter().find(|it| it["name"] == "store");
    let store = store.unwrap();
    assert_eq!(
        (&store["down"], &store["restarts"], &store["panics"]),
        (&0.into(), &1.into(), &1.into())
    );
    assert_eq!(store["last_panic"], "a count overflows");
    let (_, text) = server.get("/metrics").await;
    assert!(text.contains("topdeck_thread_restarts_total{thread=\"store\"} 1\n"), "{text}");
    assert!(text.contains("topdeck_thread_panics_total{thread=\"store\"} 1\n"), "{text}");
}

#[tokio::test]
async fn health_says_for_a_day_that_the_journal_is_damaged_and_status_what_to_do() {
    let server = TestServer::with_store(
        crate::test_server::empty_store(),
        crate::query_service::QueryServiceSettings::default(),
    );
    let supervisor = server.context.intake.supervisor();
    let place = "records 3..4 of the journal".to_owned();
    supervisor.report_damage(place, 1, "run `topdeck journal repair /data`".to_owned());
    let told = "topdeck is degraded\n\
                cannot read records 3..4 of the journal: damaged (1 lost); \
                see damage in /v1/status\n";
    assert_eq!(server.get("/health").await, (StatusCode::OK, told.to_owned()));
    let status = server.json("/v1/status").await;
    let damage = &status["damage"][0];
    assert_eq!(
        (&damage["location"], &damage["records"]),
        (&"records 3..4 of the journal".into(), &1.into())
    );
    assert_eq!(damage["remedy"], "run `topdeck journal repair /data`");
    let (_, text) = server.get("/metrics").await;
    assert!(text.contains("topdeck_journal_damaged_records_total 1\n"), "{text}");
}

#[tokio::test]
async fn health_lists_quarantined_inputs() {
    let server = TestServer::with_store(
        crate::test_server::empty_store(),
        crate::query_service::QueryServiceSettings::default(),
    );
    server.context.intake.supervisor().quarantine("rolling up day 7", "a count overflows");
    let told = "topdeck is healthy\nrolling up day 7 is quarantined; see /v1/status\n";
    assert_eq!(server.get("/health").await, (StatusCode::OK, told.to_owned()));
    let status = server.json("/v1/status").await;
    assert_eq!(status["quarantined"][0]["input"], "rolling up day 7");
    assert_eq!(status["quarantined"][0]["reason"], "a count overflows");
    let (_, text) = server.get("/metrics").await;
    assert!(text.contains("topdeck_quarantined_inputs_total 1\n"), "{text}");
}
