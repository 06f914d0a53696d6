//! Under all faults, each batch is at each remote exactly once.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use forward::Forward;
use intake::{Intake, WriteTarget};

use crate::agent::{
    SeededRng, TestDir, create, latencies, open, put, settings, stop_all, wait_caught_up,
};
use crate::remote::{ResponseFault, TestRemote, fault_sequence, random_faults};

fn check_complete(remote: &TestRemote, batches: u64, count: u64) {
    let state = remote.state();
    assert_eq!(state.count, count, "values at the site");
    assert_eq!(state.order, (1..=batches).collect::<Vec<_>>(), "each once, in order");
    assert!(state.accepted.values().all(|&times| times == 1));
    assert!(state.gaps.is_empty(), "{:?}", state.gaps);
}

/// Faults of all kinds, a sender restarted in between, a clock that steps.
async fn run_with_faults(seed: u64) {
    let mut dice = SeededRng(seed);
    let dir = TestDir::new();
    create(&dir.0, &journal::Settings::default());
    let remote = TestRemote::start(random_faults(SeededRng(seed ^ 77), 25)).await;
    let settings = settings(&dir.0, &[("a", &remote.url)]);
    let time = Arc::new(AtomicI64::new(1_000_000_000_000));
    let mut count = 0;
    let mut batches = 0;
    for _ in 0..3 {
        let clock = Arc::clone(&time);
        let intake = open(&dir.0, Arc::new(move || clock.load(Ordering::Relaxed)));
        let forward = Forward::start(settings.clone(), Arc::clone(&intake)).unwrap();
        for _ in 0..10 + dice.below(10) {
            let values = 1 + dice.below(50);
            let intake = Arc::clone(&intake);
            tokio::task::spawn_blocking(move || put(&intake, values)).await.unwrap();
            (count, batches) = (count + values, batches + 1);
            // Steps back and forth.
            time.fetch_add(dice.below(2_000_000_000) as i64 - 1_000_000_000, Ordering::Relaxed);
        }
        // Stops at an arbitrary point.
        stop_all(forward, intake).await;
    }
    let intake = open(&dir.0, journal::wall_clock());
    let forward = Forward::start(settings, Arc::clone(&intake)).unwrap();
    remote.wait_for_position(batches).await;
    wait_caught_up(&forward, batches).await;
    let audit = intake.audit().unwrap();
    let line = audit.producers[0].stages.last().unwrap();
    assert_eq!(
        (&*line.stage, line.stored.values, line.discrepancy),
        ("remote a", count, 0),
        "{line:?}"
    );
    assert_eq!(line.reason, "the remote has all records of the journal");
    stop_all(forward, intake).await;
    check_complete(&remote, batches, count);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_batch_arrives_once_despite_faults() {
    let runs: Vec<_> = (0..8).map(|seed| tokio::spawn(run_with_faults(seed))).collect();
    for (seed, run) in runs.into_iter().enumerate() {
        assert!(run.await.is_ok(), "seed {seed}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hanging_remote_does_not_delay_others() {
    let dir = TestDir::new();
    create(&dir.0, &journal::Settings::default());
    let hung = TestRemote::start(|| ResponseFault::Hang).await;
    let fine = TestRemote::start(|| ResponseFault::None).await;
    let mut settings = settings(&dir.0, &[("hung", &hung.url), ("fine", &fine.url)]);
    settings.response_timeout = Duration::from_secs(3600);
    let intake = open(&dir.0, journal::wall_clock());
    let forward = Forward::start(settings, Arc::clone(&intake)).unwrap();
    for batch in 1..=20 {
        put(&intake, 3);
        fine.wait_for_position(batch).await;
    }
    check_complete(&fine, 20, 60);
    hung.wait_for_requests(1).await;
    let status = forward.status();
    assert_eq!((status[0].name.as_str(), status[0].position), ("hung", 0));
    assert_eq!(status[0].lag, 20);
    assert!(status[0].connected.is_some() && status[0].oldest.is_some());
    // The remote hangs.
    stop_all(forward, intake).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unauthorized_agent_reports_it_and_loses_nothing() {
    let dir = TestDir::new();
    create(&dir.0, &journal::Settings::default());
    let remote = TestRemote::start(fault_sequence(&[ResponseFault::Unauthorized; 3])).await;
    let mut settings = settings(&dir.0, &[("a", &remote.url)]);
    let intake = open(&dir.0, journal::wall_clock());
    put(&intake, 5);
    // Long backoff, so that the error is visible in the status.
    settings.backoff = (Duration::from_secs(3600), Duration::from_secs(3600));
    let forward = Forward::start(settings.clone(), Arc::clone(&intake)).unwrap();
    remote.wait_for_requests(1).await;
    let error = loop {
        match forward.status().remove(0).last_error {
            Some((_, why)) => break why,
            None => tokio::task::yield_now().await,
        }
    };
    assert_eq!(error, "401: so!");
    // A backoff of an hour does not delay a stop.
    stop_all(forward, intake).await;
    settings.backoff = (Duration::from_millis(1), Duration::from_millis(2));
    let intake = open(&dir.0, journal::wall_clock());
    let forward = Forward::start(settings, Arc::clone(&intake)).unwrap();
    remote.wait_for_position(1).await;
    stop_all(forward, intake).await;
    check_complete(&remote, 1, 5);
    let heads = remote.state().heads.clone();
    for expected in [
        "post /v1/batches http/1.1",
        "authorization: bearer secret",
        "topdeck-agent: here",
        "content-encoding: zstd",
        "content-type: application/vnd.topdeck.parcel",
    ] {
        assert!(heads[0].contains(expected), "{expected} in {}", heads[0]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stop_within_grace_sends_the_rest() {
    let dir = TestDir::new();
    create(&dir.0, &journal::Settings::default());
    let remote = TestRemote::start(|| ResponseFault::None).await;
    let mut settings = settings(&dir.0, &[("a", &remote.url)]);
    settings.stop_grace = Duration::from_secs(60);
    let intake = open(&dir.0, journal::wall_clock());
    let forward = Forward::start(settings, Arc::clone(&intake)).unwrap();
    (0..30).for_each(|_| put(&intake, 2));
    stop_all(forward, intake).await;
    check_complete(&remote, 30, 60);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removed_remote_is_listed_until_its_subscriber_is_removed() {
    let dir = TestDir::new();
    create(&dir.0, &journal::Settings::default());
    let remote = TestRemote::start(|| ResponseFault::None).await;
    let both = settings(&dir.0, &[("a", &remote.url), ("b", "http://127.0.0.1:1")]);
    let one = settings(&dir.0, &[("a", &remote.url)]);
    let intake = open(&dir.0, journal::wall_clock());
    Forward::start(both, Arc::clone(&intake)).unwrap().stop().await;
    put(&intake, 1);
    let forward = Forward::start(one, Arc::clone(&intake)).unwrap();
    let orphans = forward.orphaned_subscribers().unwrap();
    let found: Vec<_> = orphans.iter().map(|it| (it.name.as_str(), it.position, it.lag)).collect();
    assert_eq!(found, [("b", 0, 1)]);
    intake.write_target().journal().remove_checkpoint("site b").unwrap();
    assert!(forward.orphaned_subscribers().unwrap().is_empty());
    stop_all(forward, intake).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_ids_are_sent_as_canonical_keys() {
    let dir = TestDir::new();
    let disk: Arc<dyn disk::Disk> = Arc::new(disk::OsDisk);
    let place = dir.0.join("store");
    store::Store::create(&disk, &place, &journal::Settings::default()).unwrap();
    let opened = store::Store::open(disk, &place, &store::Options::default()).unwrap();
    let home = WriteTarget::Store(Arc::new(opened));
    // Self-monitoring is off, so that only test batches count.
    let own = intake::Settings { interval: Duration::MAX, ..Default::default() };
    let intake = Arc::new(Intake::new(home, own).unwrap());
    // The first batch has the canonical key, the others the series id; the remote's `take` checks
    // this.
    (0..5).for_each(|_| put(&intake, 4));
    assert_ne!(intake.write_target().store().unwrap().key(&latencies().id()), None);
    let remote = TestRemote::start(|| ResponseFault::None).await;
    let settings = settings(&dir.0, &[("a", &remote.url)]);
    let forward = Forward::start(settings, Arc::clone(&intake)).unwrap();
    remote.wait_for_position(5).await;
    stop_all(forward, intake).await;
    check_complete(&remote, 5, 20);
}
