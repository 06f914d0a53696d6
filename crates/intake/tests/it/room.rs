//! What happens where there is no room.

use std::sync::Arc;

use disk::SimDisk;
use intake::{Error, Home, Intake, Settings};

use crate::world::*;

fn take(intake: &Intake, values: u64) -> intake::Result<intake::Receipt> {
    let mut writer = intake.writer(WAY);
    write(&mut writer, "a", values);
    intake.take(&intake.producer("p"), writer)
}

#[test]
fn senders_wait_while_too_much_is_on_its_way_to_the_disk() {
    let now = Arc::default();
    let disk: Arc<dyn disk::Disk> = Arc::new(SimDisk::new(1).process());
    create_journal(&disk).unwrap();
    let home = Home::Journal(open_journal(&disk, &now).unwrap());
    let intake =
        Intake::new(home, Settings { in_flight_bytes_max: 100, ..settings(&now) }).unwrap();
    // One batch always finds room, however large.
    let receipt = take(&intake, 1000).unwrap();
    assert!(intake.in_flight_bytes() > 100);
    let refused = take(&intake, 1);
    assert!(matches!(refused, Err(Error::Full { .. })), "{refused:?}");
    receipt.wait().unwrap();
    assert_eq!(intake.in_flight_bytes(), 0);
    take(&intake, 1).unwrap().wait().unwrap();
    let audit = intake.audit().unwrap();
    assert_eq!(audit.producers[0].lines[0].stored.values, 1001);
    assert!(audit.producers[0].is_explained());
}

#[test]
fn senders_wait_while_the_store_cannot_bring_its_rows_to_disk() {
    let now = Arc::default();
    let disk = SimDisk::new(1);
    let (intake, store) = into_store(&disk, &now, |options| options.head_bytes_max = 2_000);
    // The journal has a segment, with room for more.
    take(&intake, 10).unwrap().wait().unwrap();
    let mut taken = 1;
    disk.set_capacity(disk.used_bytes());
    let refused = loop {
        match take(&intake, 10) {
            Ok(receipt) => {
                receipt.wait().unwrap();
                taken += 1;
            }
            Err(error) => break error,
        }
        // On a full disk nothing can be sealed.
        let _refused = store.maintain();
    };
    assert!(matches!(refused, Error::Full { .. }), "{refused}");
    assert!(taken < 1000 && store.held_bytes() < 5 * 2_000, "{taken}");
    disk.set_capacity(u64::MAX);
    store.maintain().unwrap();
    take(&intake, 10).unwrap().wait().unwrap();
    let audit = intake.audit().unwrap();
    let lines = &audit.producers[0].lines;
    assert_eq!(lines[1].stored.values, (taken + 1) * 10);
    assert!(audit.producers[0].is_explained());
}
