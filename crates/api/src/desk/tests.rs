//! How many questions are taken, and how they end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use query::{Source, Stored};
use store::View;

use crate::admission::{ClientId, Lane};
use crate::context::Context;
use crate::desk::{Asking, DeskSettings};
use crate::refusal::Refusal;
use crate::trial::{self, NOW, Trial};

fn trial(queries_max: usize, waiting_max: usize) -> Trial {
    Trial::over(trial::store(), DeskSettings { queries_max, waiting_max, ..Default::default() })
}

#[tokio::test]
async fn so_many_are_worked_on_and_so_many_wait() {
    let trial = trial(1, 1);
    let context = trial.context.clone();
    let (go, gate) = mpsc::channel::<()>();
    let (began, begins) = tokio::sync::oneshot::channel();
    let own = context.clone();
    let first = tokio::spawn(async move {
        own.heavy("test", None, move |_| {
            began.send(()).unwrap();
            gate.recv().unwrap();
            Ok(1)
        })
        .await
    });
    begins.await.unwrap();
    // The second waits in vain, as long as it may.
    let second = context.heavy("test", Some(Duration::from_millis(50)), |_| Ok(2));
    let (second, third) = tokio::join!(second, context.heavy("test", None, |_| Ok(3)));
    assert!(matches!(second, Err(Refusal::Time(why)) if why.contains("waited for its turn")));
    assert!(
        matches!(third, Err(Refusal::Busy { what, .. }) if what.contains("queries in [http.limits]"))
    );
    go.send(()).unwrap();
    assert_eq!(first.await.unwrap(), Ok(1));
    assert_eq!(context.heavy("test", None, |_| Ok(4)).await, Ok(4));
}

#[tokio::test]
async fn a_question_whose_client_is_gone_ends() {
    let trial = trial(1, 1);
    let context = trial.context.clone();
    let is_over = Arc::new(AtomicBool::new(false));
    let (began, begins) = tokio::sync::oneshot::channel();
    let (own, told) = (context.clone(), Arc::clone(&is_over));
    let asked = tokio::spawn(async move {
        own.heavy("test", None, move |asking| {
            began.send(()).unwrap();
            while !asking.is_over() {
                std::thread::yield_now();
            }
            told.store(true, Ordering::SeqCst);
            Ok(())
        })
        .await
    });
    begins.await.unwrap();
    asked.abort();
    // Its turn is free only when its work has ended.
    assert_eq!(context.heavy("test", None, |_| Ok(())).await, Ok(()));
    assert!(is_over.load(Ordering::SeqCst));
}

#[tokio::test]
async fn a_question_whose_time_is_up_ends() {
    let trial = trial(1, 1);
    let work = |asking: &Asking| {
        while !asking.is_over() {
            std::thread::yield_now();
        }
        asking.check()
    };
    let asked = trial.context.heavy("test", Some(Duration::from_millis(20)), work).await;
    assert!(matches!(asked, Err(Refusal::Time(_))));
}

#[tokio::test]
async fn a_read_of_the_store_ends_when_time_is_up() {
    let trial = trial(1, 1);
    let timeout = Some(Duration::from_millis(20));
    let wait = |asking: &Asking| {
        while !asking.is_over() {
            std::thread::yield_now();
        }
    };
    let desk = &trial.context.desk;
    let read = move |view: &View, asking: &Asking| {
        wait(asking);
        view.extent(&view.select(&model::Selector::All))?;
        Ok(())
    };
    assert!(matches!(
        desk.light_view(&ClientId::Internal, "test", timeout, read).await,
        Err(Refusal::Time(_))
    ));
    let ask = move |view: &View, asking: &Asking| {
        wait(asking);
        let found = Stored::new(view).extent(&[], 0..2 * store::DAY);
        found.map(drop).map_err(|error| Refusal::of_question(error, ""))
    };
    assert!(matches!(
        desk.light_view(&ClientId::Internal, "test", timeout, ask).await,
        Err(Refusal::Time(_))
    ));
}

/// Work in a lane that goes on until it is let go, by the way it is returned.
async fn occupied(
    context: &Context,
    lane: Lane,
) -> (mpsc::Sender<()>, tokio::task::JoinHandle<Result<(), Refusal>>) {
    let (go, gate) = mpsc::channel::<()>();
    let (began, begins) = tokio::sync::oneshot::channel();
    let own = context.clone();
    let work = move |_: &Asking| {
        began.send(()).unwrap();
        // It ends when it is let go, or nobody can do so any more.
        let _ = gate.recv();
        Ok(())
    };
    let working =
        tokio::spawn(
            async move { own.desk.run(lane, &ClientId::Internal, "test", None, work).await },
        );
    begins.await.unwrap();
    (go, working)
}

/// Returns when so many wait in the heavy lane.
async fn await_waiting(context: &Context, many: usize) {
    while context.desk.shared.admission.counts(Lane::Heavy).1 < many {
        tokio::task::yield_now().await;
    }
}

const QUERY: &str = "/v1/query?query=sum(increase(latency[1h]))";

#[tokio::test]
async fn status_and_cheap_queries_are_answered_while_heavy_ones_have_all_places() {
    let trial = Trial::filled(DeskSettings { queries_max: 1, ..Default::default() });
    let (go, working) = occupied(&trial.context, Lane::Heavy).await;
    for asked in [
        "/v1/status",
        "/v1/names",
        "/v1/series",
        "/v1/cardinality",
        "/api/v1/labels",
        "/api/v1/query?query=depth",
        "/v1/histogram?selector=latency",
        "/v1/heatmap?selector=latency",
        "/v1/compare?a=latency{host=\"a\"}&b=latency{host=\"b\"}",
        "/v1/explain?selector=latency&above=50ms",
        QUERY,
    ] {
        let (status, text) = trial.get(asked).await;
        assert!(status.is_success(), "{asked}: {text}");
    }
    go.send(()).unwrap();
    working.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_query_that_reads_much_waits_for_its_turn_among_heavy_ones() {
    for asked in [
        QUERY,
        "/api/v1/query?query=sum(increase(latency[1h]))",
        "/v1/query?language=caql&from=-1h&query=find:histogram('latency')",
        "/v1/histogram?selector=latency",
        "/v1/heatmap?selector=latency",
        "/v1/compare?a=latency{host=\"a\"}&b=latency{host=\"b\"}",
        "/v1/explain?selector=latency&above=50ms",
    ] {
        let settings = DeskSettings { queries_max: 1, light_rows_max: 50, ..Default::default() };
        let trial = Trial::filled(settings);
        let (go, working) = occupied(&trial.context, Lane::Heavy).await;
        let mut answer = std::pin::pin!(trial.get(asked));
        tokio::select! {
            biased;
            (_, text) = answer.as_mut() => panic!("{asked} did not wait: {text}"),
            () = await_waiting(&trial.context, 1) => go.send(()).unwrap(),
        }
        let (status, text) = answer.await;
        assert!(status.is_success(), "{asked}: {text}");
        working.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn what_works_too_long_among_light_queries_goes_on_among_heavy_ones() {
    let settings =
        DeskSettings { queries_max: 1, light_time: Duration::ZERO, ..Default::default() };
    let trial = Trial::over(trial::store(), settings);
    let context = &trial.context;
    let (go, working) = occupied(context, Lane::Heavy).await;
    let work = |asking: &Asking| {
        assert_eq!(asking.lane(), Some(Lane::Light));
        asking.check()?;
        Ok(asking.lane())
    };
    let let_go = async {
        await_waiting(context, 1).await;
        assert_eq!(context.desk.shared.admission.counts(Lane::Light), (0, 0));
        go.send(()).unwrap();
    };
    let (lane, ()) = tokio::join!(context.light("test", None, work), let_go);
    assert_eq!(lane, Ok(Some(Lane::Heavy)));
    working.await.unwrap().unwrap();
    // One that nobody waits for any more does not wait for its turn.
    let (go, working) = occupied(context, Lane::Heavy).await;
    let (ended, ends) = tokio::sync::oneshot::channel();
    let own = context.clone();
    let gone = tokio::spawn(async move {
        let work = move |asking: &Asking| {
            ended.send(asking.check()).unwrap();
            Ok(())
        };
        own.light("test", None, work).await
    });
    await_waiting(context, 1).await;
    gone.abort();
    assert!(matches!(ends.await.unwrap(), Err(Refusal::Time(_))));
    go.send(()).unwrap();
    working.await.unwrap().unwrap();
}

#[tokio::test]
async fn queries_share_one_budget_of_memory() {
    let settings =
        DeskSettings { query_bytes: 64 << 20, memory_wait: Duration::ZERO, ..Default::default() };
    let trial = Trial::over(trial::store(), settings);
    let context = &trial.context;
    let (go, gate) = mpsc::channel::<()>();
    let (began, begins) = tokio::sync::oneshot::channel();
    let own = context.clone();
    let first = tokio::spawn(async move {
        let work = move |asking: &Asking| {
            asking.hold(40 << 20)?;
            began.send(()).unwrap();
            gate.recv().unwrap();
            Ok(())
        };
        own.heavy("test", None, work).await
    });
    begins.await.unwrap();
    assert_eq!(context.desk.shared.memory.used(), 40 << 20);
    let second = |bytes| context.heavy("test", None, move |asking: &Asking| asking.hold(bytes));
    assert_eq!(second(10 << 20).await, Ok(()));
    let expected = "cannot get more memory for the query: queries hold 41943040 of 58720256 bytes \
                    (query_bytes in [http.limits]";
    let busy = second(20 << 20).await.unwrap_err();
    assert!(matches!(&busy, Refusal::Busy { what, .. } if what.starts_with(expected)), "{busy:?}");
    // Waiting would not help.
    let large = second(57 << 20).await.unwrap_err();
    assert!(matches!(&large, Refusal::Execution(what) if what.contains("raise query_bytes")));
    // What reads little has memory of its own.
    let light = |bytes| context.light("test", None, move |asking: &Asking| asking.hold(bytes));
    assert_eq!(light(1 << 20).await, Ok(()));
    assert!(matches!(light(20 << 20).await, Err(Refusal::Busy { .. })));
    go.send(()).unwrap();
    first.await.unwrap().unwrap();
    assert_eq!(context.desk.shared.memory.used(), 0);
}

#[tokio::test]
async fn a_query_that_needs_more_than_the_budget_is_refused_with_the_setting() {
    let trial = Trial::filled(DeskSettings { query_bytes: 32 << 20, ..Default::default() });
    // As distributions each of the 110,000 steps takes some hundred bytes.
    let from = NOW / store::SECOND;
    let asked =
        format!("/v1/query?query=latency&from={from}&to={}&step=1s&lookback=40h", from + 109_000);
    let (status, text) = trial.get(&asked).await;
    assert_eq!(status, axum::http::StatusCode::UNPROCESSABLE_ENTITY, "{text}");
    assert!(text.contains("query_bytes in [http.limits]"), "{text}");
    assert_eq!(trial.context.desk.shared.memory.used(), 0);
    assert!(trial.get(QUERY).await.0.is_success());
}
