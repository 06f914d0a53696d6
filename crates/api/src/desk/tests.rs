//! How many questions are taken, and how they end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use query::{Source, Stored};
use store::View;

use crate::desk::DeskSettings;
use crate::refusal::Refusal;
use crate::trial::{self, Trial};

fn trial(queries_max: usize, waiting_max: usize) -> Trial {
    Trial::over(trial::store(), DeskSettings { queries_max, waiting_max, ..Default::default() })
}

#[tokio::test]
async fn so_many_are_worked_on_and_so_many_wait() {
    let trial = trial(1, 1);
    let desk = trial.context.desk.clone();
    let (go, gate) = mpsc::channel::<()>();
    let (began, begins) = tokio::sync::oneshot::channel();
    let own = desk.clone();
    let first = tokio::spawn(async move {
        own.blocking("test", None, move |_| {
            began.send(()).unwrap();
            gate.recv().unwrap();
            Ok(1)
        })
        .await
    });
    begins.await.unwrap();
    // The second waits in vain, as long as it may.
    let second = desk.blocking("test", Some(Duration::from_millis(50)), |_| Ok(2));
    let (second, third) = tokio::join!(second, desk.blocking("test", None, |_| Ok(3)));
    assert!(matches!(second, Err(Refusal::Time(why)) if why.contains("waited for its turn")));
    assert!(
        matches!(third, Err(Refusal::Busy { what, .. }) if what.contains("queries in [http.limits]"))
    );
    go.send(()).unwrap();
    assert_eq!(first.await.unwrap(), Ok(1));
    assert_eq!(desk.blocking("test", None, |_| Ok(4)).await, Ok(4));
}

#[tokio::test]
async fn a_question_whose_client_is_gone_ends() {
    let trial = trial(1, 1);
    let desk = trial.context.desk.clone();
    let is_over = Arc::new(AtomicBool::new(false));
    let (began, begins) = tokio::sync::oneshot::channel();
    let (own, told) = (desk.clone(), Arc::clone(&is_over));
    let asked = tokio::spawn(async move {
        own.blocking("test", None, move |asking| {
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
    assert_eq!(desk.blocking("test", None, |_| Ok(())).await, Ok(()));
    assert!(is_over.load(Ordering::SeqCst));
}

#[tokio::test]
async fn a_question_whose_time_is_up_ends() {
    let trial = trial(1, 1);
    let work = |asking: &crate::desk::Asking| {
        while !asking.is_over() {
            std::thread::yield_now();
        }
        asking.check()
    };
    let asked = trial.context.desk.blocking("test", Some(Duration::from_millis(20)), work).await;
    assert!(matches!(asked, Err(Refusal::Time(_))));
}

#[tokio::test]
async fn a_read_of_the_store_ends_when_time_is_up() {
    let trial = trial(1, 1);
    let timeout = Some(Duration::from_millis(20));
    let wait = |asking: &crate::desk::Asking| {
        while !asking.is_over() {
            std::thread::yield_now();
        }
    };
    let desk = &trial.context.desk;
    let read = move |view: &View, asking: &crate::desk::Asking| {
        wait(asking);
        view.extent(&view.select(&model::Selector::All))?;
        Ok(())
    };
    assert!(matches!(desk.take("test", timeout, read).await, Err(Refusal::Time(_))));
    let ask = move |view: &View, asking: &crate::desk::Asking| {
        wait(asking);
        let found = Stored::new(view).extent(&[], 0..2 * store::DAY);
        found.map(drop).map_err(|error| Refusal::of_question(error, ""))
    };
    assert!(matches!(desk.take("test", timeout, ask).await, Err(Refusal::Time(_))));
}
