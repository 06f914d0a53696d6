//! Panics in threads: the threads are restarted, waiters get answers, and the ledger is exact.

use intake::{Intake, Supervisor};
use sim::SimDisk;

use crate::fixture::{KEY_ENCODING, new_threaded_intake, write};

/// Appends batches until a thread has been restarted this often, and two more; returns the ledger's
/// counts.
#[track_caller]
fn check(point: &str, thread: &str) {
    let supervisor = Supervisor::with_injected_panics(&[(point, 2)]);
    let intake = new_threaded_intake(&SimDisk::new(1), &supervisor);
    let mut taken = 0;
    let take = |intake: &Intake| {
        let mut writer = intake.writer(KEY_ENCODING);
        write(&mut writer, "a", 10);
        intake.append(&intake.producer("p"), writer).unwrap().wait_durable().unwrap();
    };
    while supervisor.restarts(thread) < 2 {
        match taken < 1_000 {
            true => {
                take(&intake);
                taken += 1;
            }
            // The ledger is updated every second.
            false => std::thread::yield_now(),
        }
    }
    take(&intake);
    take(&intake);
    taken += 2;
    let audit = intake.audit().unwrap();
    let account = audit.producers.iter().find(|account| account.name == "p").unwrap();
    assert!(account.is_reconciled(), "{account:?}");
    let stored = &account.stages[0].stored;
    assert_eq!((stored.batches, stored.values, stored.missing), (taken, 10 * taken, 0));
    intake.stop();
}

#[test]
fn waiters_get_a_result_after_a_committer_panic() {
    check("commit", "commit");
}

#[test]
fn ledger_is_exact_after_housekeeping_panics() {
    check("ledger", "ledger");
    check("ledger record 0", "ledger");
}
