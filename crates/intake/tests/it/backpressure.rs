//! Backpressure: full journal, full disk, bytes in flight.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use intake::{Error, Intake, Settings, WriteTarget};
use sim::SimDisk;

use crate::fixture::*;

fn append(intake: &Intake, values: u64) -> intake::Result<intake::PendingAck> {
    let mut writer = intake.writer(KEY_ENCODING);
    write(&mut writer, "a", values);
    intake.append(&intake.producer("p"), writer)
}

#[test]
fn senders_wait_while_the_write_backlog_is_full() {
    let now = Arc::default();
    let disk: Arc<dyn disk::Disk> = Arc::new(SimDisk::new(1).process());
    create_journal(&disk).unwrap();
    let home = WriteTarget::Journal(open_journal(&disk, &now).unwrap());
    let intake =
        Intake::new(home, Settings { in_flight_bytes_max: 100, ..settings(&now) }).unwrap();
    // A single batch is always admitted, regardless of its size.
    let pending_ack = append(&intake, 1000).unwrap();
    assert!(intake.in_flight_bytes() > 100);
    let refused = append(&intake, 1);
    assert!(matches!(refused, Err(Error::Full { .. })), "{refused:?}");
    pending_ack.wait_durable().unwrap();
    assert_eq!(intake.in_flight_bytes(), 0);
    append(&intake, 1).unwrap().wait_durable().unwrap();
    let audit = intake.audit().unwrap();
    assert_eq!(audit.producers[0].stages[0].stored.values, 1001);
    assert!(audit.producers[0].is_reconciled());
}

/// Waits for a log line; the runner ends the test if it never appears.
fn wait_for_line(lines: &Mutex<Vec<String>>, part: &str) -> String {
    loop {
        let found = lines.lock().unwrap().iter().find(|line| line.contains(part)).cloned();
        match found {
            Some(line) => return line,
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// A user saw a server on a full disk that SIGTERM did not end, with a silent log: sources waited
/// for a batch that was in memory and never became durable.
#[test]
fn a_stop_with_a_full_disk_ends_and_says_what_it_gave_up() {
    let disk = SimDisk::new(1);
    let lines: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = {
        let lines = Arc::clone(&lines);
        Arc::new(move |_, line: &str| lines.lock().unwrap().push(line.to_owned()))
    };
    let process: Arc<dyn disk::Disk> = Arc::new(disk.process());
    create_journal(&process).unwrap();
    let journal = journal::Journal::open(process, DIR.as_ref(), &Default::default()).unwrap();
    let settings = Settings { interval: Duration::MAX, log, ..Settings::default() };
    let intake = Intake::new(WriteTarget::Journal(Arc::new(journal)), settings).unwrap();
    disk.set_capacity(disk.used_bytes());
    let pending_ack = append(&intake, 10).unwrap();
    let said = wait_for_line(&lines, "cannot store new data");
    assert!(said.contains("no space left on the disk"), "{said}");
    // As the host collector does.
    let waiter = std::thread::spawn(move || pending_ack.wait_durable());
    intake.begin_stop(Duration::ZERO);
    let outcome = waiter.join().unwrap();
    assert!(matches!(outcome, Err(Error::JournalFailed(_))), "{outcome:?}");
    let refused = append(&intake, 10).and_then(|pending_ack| pending_ack.wait_durable());
    assert!(refused.is_err_and(|error| !error.is_retryable()));
    intake.stop();
    let said = wait_for_line(&lines, "the stop gave up");
    assert!(said.starts_with("the stop gave up 1 batches ("), "{said}");
    assert!(said.contains("no space left on the disk"), "{said}");
    // Nothing is lost: the next start stores the batch.
    drop(intake);
    disk.set_capacity(u64::MAX);
    let process: Arc<dyn disk::Disk> = Arc::new(disk.process());
    let home = WriteTarget::Journal(open_journal(&process, &Arc::default()).unwrap());
    let intake = Intake::new(home, Settings { background: false, ..Settings::default() }).unwrap();
    append(&intake, 5).unwrap().wait_durable().unwrap();
    let audit = intake.audit().unwrap();
    let values: u64 = audit.producers.iter().map(|it| it.stages[0].stored.values).sum();
    assert_eq!(values, 15);
}

/// A user's request that filled the disk had no answer for two minutes.
#[test]
fn a_sender_whose_batch_fills_the_disk_is_asked_to_retry_and_the_batch_is_stored_later() {
    let disk = SimDisk::new(1);
    let process: Arc<dyn disk::Disk> = Arc::new(disk.process());
    create_journal(&process).unwrap();
    let journal = journal::Journal::open(process, DIR.as_ref(), &Default::default()).unwrap();
    let settings = Settings { interval: Duration::MAX, ..Settings::default() };
    let intake = Intake::new(WriteTarget::Journal(Arc::new(journal)), settings).unwrap();
    disk.set_capacity(disk.used_bytes());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let pending_ack = append(&intake, 10).unwrap();
    let outcome = runtime.block_on(pending_ack.until_durable());
    let Err(error @ Error::WaitsForSpace { retry_after, .. }) = outcome else {
        panic!("{outcome:?}")
    };
    assert!(error.to_string().starts_with("journal full: no space left on the disk"), "{error}");
    assert_eq!(retry_after, Duration::from_secs(5));
    assert!(!error.is_retryable(), "a source of this server would count it twice");
    disk.set_capacity(u64::MAX);
    // It lost its acknowledgement, not its place.
    let pending_ack = append(&intake, 5).unwrap();
    runtime.block_on(pending_ack.until_durable()).unwrap();
    let audit = intake.audit().unwrap();
    assert_eq!(audit.producers[0].stages[0].stored.values, 15);
}

#[test]
fn the_log_says_when_the_disk_fills_and_when_it_frees() {
    let disk = SimDisk::new(1);
    let lines: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = {
        let lines = Arc::clone(&lines);
        Arc::new(move |_, line: &str| lines.lock().unwrap().push(line.to_owned()))
    };
    let process: Arc<dyn disk::Disk> = Arc::new(disk.process());
    create_journal(&process).unwrap();
    let journal = journal::Journal::open(process, DIR.as_ref(), &Default::default()).unwrap();
    let settings = Settings { interval: Duration::MAX, log, ..Settings::default() };
    let intake = Intake::new(WriteTarget::Journal(Arc::new(journal)), settings).unwrap();
    disk.set_capacity(disk.used_bytes());
    // A start without space for the first segment.
    let refused = intake.write_target().journal().reserve_first_segment();
    assert!(matches!(refused, Err(journal::Error::Full(_))), "{refused:?}");
    wait_for_line(&lines, "cannot store new data: no space left on the disk");
    disk.set_capacity(u64::MAX);
    append(&intake, 10).unwrap().wait_durable().unwrap();
    wait_for_line(&lines, "new data is stored again");
    assert_eq!(intake.space_problem(), None);
}

#[test]
fn senders_wait_while_the_store_head_is_full() {
    let now = Arc::default();
    let disk = SimDisk::new(1);
    let (intake, store) = new_store_intake(&disk, &now, |options| options.head_bytes_max = 2_000);
    // The journal has a segment with free space.
    append(&intake, 10).unwrap().wait_durable().unwrap();
    let mut taken = 1;
    disk.set_capacity(disk.used_bytes());
    let refused = loop {
        match append(&intake, 10) {
            Ok(pending_ack) => {
                pending_ack.wait_durable().unwrap();
                taken += 1;
            }
            Err(error) => break error,
        }
        // On a full disk nothing can be flushed.
        let _refused = store.maintain();
    };
    assert!(matches!(refused, Error::Full { .. }), "{refused}");
    assert!(taken < 1000 && store.head_and_pending_bytes() < 5 * 2_000, "{taken}");
    disk.set_capacity(u64::MAX);
    store.maintain().unwrap();
    append(&intake, 10).unwrap().wait_durable().unwrap();
    let audit = intake.audit().unwrap();
    let lines = &audit.producers[0].stages;
    assert_eq!(lines[1].stored.values, (taken + 1) * 10);
    assert!(audit.producers[0].is_reconciled());
}
