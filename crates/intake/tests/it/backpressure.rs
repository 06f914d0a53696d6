//! Backpressure: full journal, full disk, bytes in flight.

use std::sync::Arc;

use intake::{Error, Intake, Settings, WriteTarget};
use sim::SimDisk;

use crate::fixture::*;

fn append(intake: &Intake, values: u64) -> intake::Result<intake::Receipt> {
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
    let receipt = append(&intake, 1000).unwrap();
    assert!(intake.in_flight_bytes() > 100);
    let refused = append(&intake, 1);
    assert!(matches!(refused, Err(Error::Full { .. })), "{refused:?}");
    receipt.wait_durable().unwrap();
    assert_eq!(intake.in_flight_bytes(), 0);
    append(&intake, 1).unwrap().wait_durable().unwrap();
    let audit = intake.audit().unwrap();
    assert_eq!(audit.producers[0].stages[0].stored.values, 1001);
    assert!(audit.producers[0].is_reconciled());
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
            Ok(receipt) => {
                receipt.wait_durable().unwrap();
                taken += 1;
            }
            Err(error) => break error,
        }
        // On a full disk nothing can be sealed.
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
