//! Panics in a remote's task: the task is restarted, and the remote has every batch once.

use forward::Forward;
use intake::Supervisor;

use crate::agent::{TestDir, create, put, settings, stop_all, supervised, wait_caught_up};
use crate::remote::{ResponseFault, TestRemote};

async fn check(point: &str, repeated: u64) {
    let dir = TestDir::new();
    create(&dir.0, &journal::Settings::default());
    let supervisor = Supervisor::with_injected_panics(&[(point, 2)]);
    let intake = supervised(&dir.0, journal::wall_clock(), supervisor.clone());
    let remote = TestRemote::start(|| ResponseFault::None).await;
    (0..3).for_each(|_| put(&intake, 10));
    let settings = settings(&dir.0, &[("a", &remote.url)]);
    let forward = Forward::start(settings, std::sync::Arc::clone(&intake)).unwrap();
    let status = wait_caught_up(&forward, 3).await;
    assert_eq!((status.records, status.missing), (3, 0));
    assert_eq!(supervisor.restarts("remote a"), 2);
    {
        let state = remote.state();
        assert_eq!((state.count, state.order.len(), state.duplicates), (30, 3, repeated));
    }
    let audit = intake.audit().unwrap();
    assert!(audit.producers.iter().all(|account| account.is_reconciled()), "{audit:?}");
    stop_all(forward, intake).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn panic_before_sending_duplicates_nothing() {
    check("remote a", 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn panic_after_the_response_resends_duplicates() {
    check("remote a answered", 6).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn record_that_panics_is_dead_lettered_alone() {
    let dir = TestDir::new();
    create(&dir.0, &journal::Settings::default());
    let supervisor = Supervisor::with_injected_panics(&[("remote a record 1", u32::MAX)]);
    let intake = supervised(&dir.0, journal::wall_clock(), supervisor.clone());
    let remote = TestRemote::start(|| ResponseFault::None).await;
    (0..3).for_each(|_| put(&intake, 10));
    let settings = settings(&dir.0, &[("a", &remote.url)]);
    let kept = settings.dead_letter_dir.join("a/00000000000000000002.batch");
    let forward = Forward::start(settings, std::sync::Arc::clone(&intake)).unwrap();
    let status = wait_caught_up(&forward, 3).await;
    assert_eq!((status.records, status.dead_lettered), (2, 1));
    assert!(kept.is_file());
    {
        let state = remote.state();
        assert_eq!((state.count, state.gaps.len()), (20, 1));
        let reason = &state.gaps[0].reason;
        assert!(reason.contains("packing panicked: thrown at remote a record 1"), "{reason}");
    }
    assert_eq!(supervisor.quarantined()[0].name, "record 1 for remote a");
    assert_eq!(supervisor.restarts("remote a"), 0, "the task goes on");
    stop_all(forward, intake).await;
}
