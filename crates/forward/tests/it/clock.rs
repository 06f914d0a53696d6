//! A clock that steps by an hour back and forth while everything runs: nothing is lost, or sent as
//! new.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use forward::Forward;
use journal::WallClock;

use crate::agent::{TestDir, create, open, put, settings, stop_all, wait_caught_up};
use crate::remote::{ResponseFault, TestRemote};

const HOUR: i64 = 3_600_000_000_000;
const BATCHES: u64 = 40;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clock_step_loses_nothing() {
    let dir = TestDir::new();
    create(&dir.0, &journal::Settings::default());
    let remote = TestRemote::start(|| ResponseFault::None).await;
    let offset = Arc::new(AtomicI64::new(0));
    let clock: WallClock = {
        let (wall, offset) = (journal::wall_clock(), Arc::clone(&offset));
        Arc::new(move || wall() + offset.load(Ordering::SeqCst))
    };
    let settings = settings(&dir.0, &[("a", &remote.url)]);
    let mut sent = 0;
    // The second process starts an hour before the end of the first one.
    for process in 0..2 {
        let intake = open(&dir.0, Arc::clone(&clock));
        let forward = Forward::start(settings.clone(), Arc::clone(&intake)).unwrap();
        for at in 0..BATCHES {
            offset.fetch_add(if at % 3 == 0 { -HOUR } else { HOUR / 2 }, Ordering::SeqCst);
            let writing = Arc::clone(&intake);
            tokio::task::spawn_blocking(move || put(&writing, 1 + at)).await.unwrap();
            sent += 1 + at;
            if at % 10 == 0 {
                intake.checkpoint_ledger().unwrap();
            }
        }
        let position = intake.write_target().journal().watermarks().end;
        wait_caught_up(&forward, position).await;
        let audit = intake.audit().unwrap();
        for account in &audit.producers {
            assert!(
                account.is_reconciled() && account.losses.is_empty(),
                "{process}: {account:#?}"
            );
        }
        stop_all(forward, intake).await;
        offset.fetch_sub(HOUR, Ordering::SeqCst);
    }
    let state = remote.state();
    assert_eq!((state.count, &state.gaps[..], state.duplicates), (sent, &[][..], 0));
    assert!(
        state.order.is_sorted() && state.order.len() as u64 >= 2 * BATCHES,
        "{:?}",
        state.order
    );
}
