//! Query admission, cancellation and memory limits.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use query::{QueryContext as _, Source, StoreSource};
use store::ReadView;

use crate::active_query::ActiveQuery;
use crate::api_error::ApiError;
use crate::context::Context;
use crate::query_admission::{ClientId, QueryClass};
use crate::query_service::QueryServiceSettings;
use crate::test_server::{self, NOW, TestServer};

fn test_server(queries_max: usize, waiting_max: usize) -> TestServer {
    TestServer::with_store(
        test_server::empty_store(),
        QueryServiceSettings {
            max_concurrent_queries: queries_max,
            max_queued_queries: waiting_max,
            ..Default::default()
        },
    )
}

#[tokio::test]
async fn running_and_queued_queries_are_limited() {
    let server = test_server(1, 1);
    let context = server.context.clone();
    let (go, gate) = mpsc::channel::<()>();
    let (began, begins) = tokio::sync::oneshot::channel();
    let own = context.clone();
    let first = tokio::spawn(async move {
        own.run_heavy("test", None, move |_| {
            began.send(()).unwrap();
            gate.recv().unwrap();
            Ok(1)
        })
        .await
    });
    begins.await.unwrap();
    // The second query waits until its timeout.
    let second = context.run_heavy("test", Some(Duration::from_millis(50)), |_| Ok(2));
    let (second, third) = tokio::join!(second, context.run_heavy("test", None, |_| Ok(3)));
    assert!(
        matches!(second, Err(ApiError::Timeout(reason)) if reason.contains("timed out in the queue"))
    );
    assert!(
        matches!(third, Err(ApiError::TooManyRequests { message, .. }) if message.contains("max_concurrent_queries in [http.limits]"))
    );
    go.send(()).unwrap();
    assert_eq!(first.await.unwrap(), Ok(1));
    assert_eq!(context.run_heavy("test", None, |_| Ok(4)).await, Ok(4));
}

#[tokio::test]
async fn query_ends_when_the_client_disconnects() {
    let server = test_server(1, 1);
    let context = server.context.clone();
    let is_over = Arc::new(AtomicBool::new(false));
    let (began, begins) = tokio::sync::oneshot::channel();
    let (own, told) = (context.clone(), Arc::clone(&is_over));
    let asked = tokio::spawn(async move {
        own.run_heavy("test", None, move |active| {
            began.send(()).unwrap();
            while !active.should_stop() {
                std::thread::yield_now();
            }
            told.store(true, Ordering::SeqCst);
            Ok(())
        })
        .await
    });
    begins.await.unwrap();
    asked.abort();
    // Its permit is free only when its work has ended.
    assert_eq!(context.run_heavy("test", None, |_| Ok(())).await, Ok(()));
    assert!(is_over.load(Ordering::SeqCst));
}

#[tokio::test]
async fn query_ends_at_its_timeout() {
    let server = test_server(1, 1);
    let work = |active: &ActiveQuery| {
        while !active.should_stop() {
            std::thread::yield_now();
        }
        active.check_cancelled()
    };
    let asked = server.context.run_heavy("test", Some(Duration::from_millis(20)), work).await;
    assert!(matches!(asked, Err(ApiError::Timeout(_))));
}

#[tokio::test]
async fn store_read_ends_at_the_timeout() {
    let server = test_server(1, 1);
    let timeout = Some(Duration::from_millis(20));
    let wait = |active: &ActiveQuery| {
        while !active.should_stop() {
            std::thread::yield_now();
        }
    };
    let queries = &server.context.queries;
    let read = move |view: &ReadView, active: &ActiveQuery| {
        wait(active);
        view.time_range(&view.select(&model::Selector::All))?;
        Ok(())
    };
    assert!(matches!(
        queries.run_light_with_view(&ClientId::Internal, "test", timeout, read).await,
        Err(ApiError::Timeout(_))
    ));
    let ask = move |view: &ReadView, active: &ActiveQuery| {
        wait(active);
        let found = StoreSource::new(view).time_range(&[], 0..2 * store::DAY);
        found.map(drop).map_err(|error| ApiError::from_query_error(error, ""))
    };
    assert!(matches!(
        queries.run_light_with_view(&ClientId::Internal, "test", timeout, ask).await,
        Err(ApiError::Timeout(_))
    ));
}

/// Work in a class that runs until the returned sender is used or dropped.
async fn occupy(
    context: &Context,
    class: QueryClass,
) -> (mpsc::Sender<()>, tokio::task::JoinHandle<Result<(), ApiError>>) {
    let (go, gate) = mpsc::channel::<()>();
    let (began, begins) = tokio::sync::oneshot::channel();
    let own = context.clone();
    let work = move |_: &ActiveQuery| {
        began.send(()).unwrap();
        // Returns on a message, or when the sender is dropped.
        let _ = gate.recv();
        Ok(())
    };
    let working = tokio::spawn(async move {
        own.queries.run(class, &ClientId::Internal, "test", None, work).await
    });
    begins.await.unwrap();
    (go, working)
}

/// Returns when this many queries are queued in the heavy class.
async fn await_queued(context: &Context, many: usize) {
    while context.queries.shared.admission.running_and_queued(QueryClass::Heavy).1 < many {
        tokio::task::yield_now().await;
    }
}

const QUERY: &str = "/v1/query?query=sum(increase(latency[1h]))";

#[tokio::test]
async fn light_queries_run_while_heavy_class_is_full() {
    let server = TestServer::with_settings(QueryServiceSettings {
        max_concurrent_queries: 1,
        ..Default::default()
    });
    let (go, working) = occupy(&server.context, QueryClass::Heavy).await;
    for asked in [
        "/v1/status",
        "/v1/metric_names",
        "/v1/series",
        "/v1/cardinality",
        "/api/v1/labels",
        "/api/v1/query?query=depth",
        "/v1/histogram?selector=latency",
        "/v1/heatmap?selector=latency",
        "/v1/compare?a=latency{host=\"a\"}&b=latency{host=\"b\"}",
        "/v1/breakdown?selector=latency&above=50ms",
        QUERY,
    ] {
        let (status, text) = server.get(asked).await;
        assert!(status.is_success(), "{asked}: {text}");
    }
    go.send(()).unwrap();
    working.await.unwrap().unwrap();
}

#[tokio::test]
async fn large_query_waits_in_the_heavy_class() {
    for asked in [
        QUERY,
        "/api/v1/query?query=sum(increase(latency[1h]))",
        "/v1/query?language=caql&from=-1h&query=find:histogram('latency')",
        "/v1/histogram?selector=latency",
        "/v1/heatmap?selector=latency",
        "/v1/compare?a=latency{host=\"a\"}&b=latency{host=\"b\"}",
        "/v1/breakdown?selector=latency&above=50ms",
    ] {
        let settings = QueryServiceSettings {
            max_concurrent_queries: 1,
            max_light_rows: 50,
            ..Default::default()
        };
        let server = TestServer::with_settings(settings);
        let (go, working) = occupy(&server.context, QueryClass::Heavy).await;
        let mut answer = std::pin::pin!(server.get(asked));
        tokio::select! {
            biased;
            (_, text) = answer.as_mut() => panic!("{asked} did not wait: {text}"),
            () = await_queued(&server.context, 1) => go.send(()).unwrap(),
        }
        let (status, text) = answer.await;
        assert!(status.is_success(), "{asked}: {text}");
        working.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn long_light_query_moves_to_the_heavy_class() {
    let settings = QueryServiceSettings {
        max_concurrent_queries: 1,
        light_query_time: Duration::ZERO,
        ..Default::default()
    };
    let server = TestServer::with_store(test_server::empty_store(), settings);
    let context = &server.context;
    let (go, working) = occupy(context, QueryClass::Heavy).await;
    let work = |active: &ActiveQuery| {
        assert_eq!(active.class(), Some(QueryClass::Light));
        active.check_cancelled()?;
        Ok(active.class())
    };
    let let_go = async {
        await_queued(context, 1).await;
        assert_eq!(context.queries.shared.admission.running_and_queued(QueryClass::Light), (0, 0));
        go.send(()).unwrap();
    };
    let (class, ()) = tokio::join!(context.run_light("test", None, work), let_go);
    assert_eq!(class, Ok(Some(QueryClass::Heavy)));
    working.await.unwrap().unwrap();
    // A query whose client has disconnected does not wait for a permit.
    let (go, working) = occupy(context, QueryClass::Heavy).await;
    let (ended, ends) = tokio::sync::oneshot::channel();
    let own = context.clone();
    let gone = tokio::spawn(async move {
        let work = move |active: &ActiveQuery| {
            ended.send(active.check_cancelled()).unwrap();
            Ok(())
        };
        own.run_light("test", None, work).await
    });
    await_queued(context, 1).await;
    gone.abort();
    assert!(matches!(ends.await.unwrap(), Err(ApiError::Timeout(_))));
    go.send(()).unwrap();
    working.await.unwrap().unwrap();
}

#[tokio::test]
async fn heavy_query_pauses_for_light_ones_and_continues() {
    // More threads than any machine has CPUs.
    let settings = QueryServiceSettings { threads: usize::MAX, ..Default::default() };
    let server = TestServer::with_store(test_server::empty_store(), settings);
    let context = &server.context;
    let pauses = || context.queries.shared.pauses.get();
    let once = |active: &ActiveQuery| active.check_cancelled();
    assert_eq!(context.run_heavy("test", None, once).await, Ok(()));
    assert_eq!(pauses(), 0);
    let (go, working) = occupy(context, QueryClass::Light).await;
    // It continues while the light query still runs, and does not pause again at once.
    let twice = |active: &ActiveQuery| {
        active.check_cancelled()?;
        assert_ne!(active.next_pause_ns.load(Ordering::Relaxed), 0);
        active.next_pause_ns.store(u64::MAX, Ordering::Relaxed);
        active.check_cancelled()
    };
    assert_eq!(context.run_heavy("test", None, twice).await, Ok(()));
    assert_eq!(pauses(), 1);
    // A light query does not pause for others.
    assert_eq!(context.run_light("test", None, once).await, Ok(()));
    assert_eq!(pauses(), 1);
    go.send(()).unwrap();
    working.await.unwrap().unwrap();
}

#[tokio::test]
async fn queries_share_one_memory_budget() {
    let settings = QueryServiceSettings {
        max_query_bytes: 64 << 20,
        memory_wait_timeout: Duration::ZERO,
        ..Default::default()
    };
    let server = TestServer::with_store(test_server::empty_store(), settings);
    let context = &server.context;
    let (go, gate) = mpsc::channel::<()>();
    let (began, begins) = tokio::sync::oneshot::channel();
    let own = context.clone();
    let first = tokio::spawn(async move {
        let work = move |active: &ActiveQuery| {
            active.reserve(40 << 20)?;
            began.send(()).unwrap();
            gate.recv().unwrap();
            Ok(())
        };
        own.run_heavy("test", None, work).await
    });
    begins.await.unwrap();
    assert_eq!(context.queries.shared.memory.used(), 40 << 20);
    let second =
        |bytes| context.run_heavy("test", None, move |active: &ActiveQuery| active.reserve(bytes));
    assert_eq!(second(10 << 20).await, Ok(()));
    let expected = "cannot reserve memory for the query: queries use 41943040 of 58720256 bytes \
                    (max_query_memory in [http.limits]";
    let busy = second(20 << 20).await.unwrap_err();
    assert!(
        matches!(&busy, ApiError::TooManyRequests { message, .. } if message.starts_with(expected)),
        "{busy:?}"
    );
    // Waiting would not help.
    let large = second(57 << 20).await.unwrap_err();
    assert!(
        matches!(&large, ApiError::Unprocessable(what) if what.contains("raise max_query_memory"))
    );
    // Light queries have reserved memory.
    let light =
        |bytes| context.run_light("test", None, move |active: &ActiveQuery| active.reserve(bytes));
    assert_eq!(light(1 << 20).await, Ok(()));
    assert!(matches!(light(20 << 20).await, Err(ApiError::TooManyRequests { .. })));
    // A read ahead is left out: the query was rejected because it could not become heavy for it.
    let work = |active: &ActiveQuery| {
        let ahead = [20 << 20, 500 << 10].map(|bytes| active.try_reserve_memory(bytes));
        assert_eq!(ahead, [false, true]);
        active.check_cancelled()?;
        Ok(active.class())
    };
    assert_eq!(context.run_light("test", None, work).await, Ok(Some(QueryClass::Light)));
    go.send(()).unwrap();
    first.await.unwrap().unwrap();
    assert_eq!(context.queries.shared.memory.used(), 0);
}

#[tokio::test]
async fn query_above_the_budget_is_rejected_with_the_setting() {
    let server = TestServer::with_settings(QueryServiceSettings {
        max_query_bytes: 32 << 20,
        ..Default::default()
    });
    // As distributions each of the 110,000 steps takes some hundred bytes.
    let from = NOW / store::SECOND;
    let asked =
        format!("/v1/query?query=latency&from={from}&to={}&step=1s&lookback=40h", from + 109_000);
    let (status, text) = server.get(&asked).await;
    assert_eq!(status, axum::http::StatusCode::UNPROCESSABLE_ENTITY, "{text}");
    assert!(text.contains("max_query_memory in [http.limits]"), "{text}");
    assert_eq!(server.context.queries.shared.memory.used(), 0);
    assert!(server.get(QUERY).await.0.is_success());
}
