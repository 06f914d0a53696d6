//! Panics in the threads: they are run again, whoever waits is answered, and the books are exact.

use disk::SimDisk;
use intake::{Intake, Supervisor};

use crate::world::{WAY, with_threads, write};

/// Takes batches until a thread was run again so often, and two more; what the books say.
#[track_caller]
fn check(point: &str, thread: &str) {
    let supervisor = Supervisor::throwing(&[(point, 2)]);
    let intake = with_threads(&SimDisk::new(1), &supervisor);
    let mut taken = 0;
    let take = |intake: &Intake| {
        let mut writer = intake.writer(WAY);
        write(&mut writer, "a", 10);
        intake.take(&intake.producer("p"), writer).unwrap().wait().unwrap();
    };
    while supervisor.restarts(thread) < 2 {
        match taken < 1_000 {
            true => {
                take(&intake);
                taken += 1;
            }
            // The books are led on each second.
            false => std::thread::yield_now(),
        }
    }
    take(&intake);
    take(&intake);
    taken += 2;
    let audit = intake.audit().unwrap();
    let account = audit.producers.iter().find(|account| account.name == "p").unwrap();
    assert!(account.is_explained(), "{account:?}");
    let stored = &account.lines[0].stored;
    assert_eq!((stored.batches, stored.values, stored.missing), (taken, 10 * taken, 0));
    intake.stop();
}

#[test]
fn whoever_waits_for_the_disk_is_answered_after_a_panic() {
    check("commit", "commit");
}

#[test]
fn the_books_are_exact_after_panics_of_their_thread() {
    check("books", "books");
    check("books record 0", "books");
}
