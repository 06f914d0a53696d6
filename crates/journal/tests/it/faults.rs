//! A failing disk: full, or with errors, at every operation in turn. No acknowledged record is
//! lost, nothing hangs, and the journal continues when the disk works again.

use std::sync::atomic::Ordering::SeqCst;

use journal::*;
use sim::{DiskOperation, Fault, FaultKind, NameOrder};

use crate::fixture::{Interruption, JournalFixture, OperationResult, small};

const ENOSPC: i32 = 28;
const EIO: i32 = 5;

fn identity(sequence: u64) -> Option<BatchIdentity> {
    Some(BatchIdentity { producer: 5, epoch: 6, sequence })
}

fn settings() -> Settings {
    small(Compression::Lz4, LimitPolicy::DropOldest, Some(3 * SEGMENT_BYTES_MIN))
}

fn fault(operation: DiskOperation, skip: u64, times: u64, kind: FaultKind) -> Fault {
    Fault { operation, path_contains: "journal".to_owned(), skip, times, kind }
}

/// Checks that an error is one that a failing disk may cause.
#[track_caller]
fn check_error(world: &JournalFixture, error: &Error) {
    match error {
        Error::Io { .. } | Error::Full(_) | Error::FailStop | Error::AppendTimeout { .. } => {}
        Error::PositionOutOfRange { .. } => {}
        other => panic!("{other}\n{:#?}", world.log),
    }
}

/// Runs an operation that may fail only with such an error.
#[track_caller]
fn attempt_operation<T>(
    world: &mut JournalFixture,
    act: impl FnOnce(&mut JournalFixture) -> OperationResult<T>,
) -> Option<T> {
    match act(world) {
        Ok(value) => Some(value),
        Err(Interruption::Error(error)) => {
            check_error(world, &error);
            None
        }
        Err(Interruption::ProcessDied) => panic!("nobody was killed"),
    }
}

/// Opens, appends until segments are rolled and dropped, reads, commits, closes.
fn workload(world: &mut JournalFixture, from: u64) {
    let Some(journal) = attempt_operation(world, |world| world.open()) else { return };
    attempt_operation(world, |w| {
        w.add(journal, "a", StartPosition::First, CheckpointKind::Subscriber, true)
    });
    for i in from..from + 12 {
        let level = if i % 4 == 3 { Level::Disk } else { Level::Process };
        attempt_operation(world, |w| w.append(journal, identity(2 * i), &[900, 30, 800], level));
        attempt_operation(world, |w| {
            w.append(journal, identity(2 * i + 1), &[1300, 1000, 8], Level::Process)
        });
        let commit = [None, Some(Level::Process), Some(Level::Disk)][(i % 3) as usize];
        attempt_operation(world, |w| w.read(journal, "a", 3, commit));
    }
    attempt_operation(world, |w| w.flush(journal, Level::Disk));
    attempt_operation(world, |w| w.try_audit(journal));
    // Half of the handles are closed, the others killed.
    if from.is_multiple_of(2) { world.close(journal) } else { world.kill(journal) }
}

/// Injects one kind of fault after `skip` operations while the workload runs twice, then clears it.
/// Returns false if the fault was not hit.
fn try_fault(seed: u64, operation: DiskOperation, skip: u64, times: u64, kind: FaultKind) -> bool {
    let mut world = JournalFixture::new(seed, NameOrder::Journal, settings());
    world.log.push(format!("{operation:?} fails after {skip}, {times} times: {kind:?}"));
    workload(&mut world, seed % 2);
    world.disk.inject(fault(operation, skip, times, kind));
    world.faulty = true;
    workload(&mut world, 20);
    workload(&mut world, 41);
    world.disk.clear_faults();
    world.faulty = false;
    let journal = world.reopen();
    world.audit(journal);
    // Once `disk` is acknowledged now, it and everything before it is durable.
    let _ = world.append(journal, identity(1000), &[100, 8], Level::Disk).unwrap();
    world.power_cut();
    let journal = world.reopen();
    world.audit(journal);
    let _ = world.append(journal, identity(1001), &[100], Level::Disk).unwrap();
    world.audit(journal);
    world.disk.fault_hits() > 0
}

/// Fails each such operation in turn, once and permanently; returns the number of faults.
#[track_caller]
fn for_each_fault(operations: &[DiskOperation], kind: FaultKind, most: u64, step: usize) -> u32 {
    let mut tried = 0;
    for &operation in operations {
        for times in [1, u64::MAX] {
            for skip in (0..most).step_by(step) {
                if !try_fault(skip + times % 7, operation, skip, times, kind) {
                    break;
                }
                tried += 1;
            }
        }
    }
    tried
}

const SPACE_OPERATIONS: [DiskOperation; 4] =
    [DiskOperation::Write, DiskOperation::Allocate, DiskOperation::Create, DiskOperation::SetLen];

#[test]
fn a_full_disk_at_any_operation_loses_nothing() {
    let tried = for_each_fault(&SPACE_OPERATIONS, FaultKind::Os(ENOSPC), 300, 1);
    println!("{tried} faults");
    assert!(tried > 150, "only {tried}");
}

#[test]
fn failed_sync_acknowledges_nothing() {
    let tried =
        for_each_fault(&[DiskOperation::Sync, DiskOperation::SyncDir], FaultKind::Os(EIO), 200, 1);
    println!("{tried} faults");
    assert!(tried > 60, "only {tried}");
}

#[test]
fn io_error_at_any_operation_loses_nothing() {
    let writing =
        [DiskOperation::Write, DiskOperation::Rename, DiskOperation::Remove, DiskOperation::SetLen];
    let tried = for_each_fault(&writing, FaultKind::Os(EIO), 300, 1);
    let reading =
        [DiskOperation::Read, DiskOperation::Open, DiskOperation::List, DiskOperation::Lock];
    let tried = tried + for_each_fault(&reading, FaultKind::Os(EIO), 900, 4);
    println!("{tried} faults");
    assert!(tried > 300, "only {tried}");
}

/// The fault has no visible effect.
#[test]
fn short_and_interrupted_io_is_retried() {
    for operation in [DiskOperation::Read, DiskOperation::Write] {
        for kind in [FaultKind::ShortWrite, FaultKind::Interrupted] {
            for skip in 0..40 {
                let mut world = JournalFixture::new(skip, NameOrder::Journal, settings());
                // About every third operation from there on.
                for i in 0..60 {
                    world.disk.inject(fault(operation, skip + 2 * i, 1, kind));
                }
                let journal = world.reopen();
                world
                    .add(journal, "a", StartPosition::First, CheckpointKind::Subscriber, true)
                    .unwrap();
                for i in 0..20 {
                    let level = if i % 3 == 0 { Level::Disk } else { Level::Process };
                    let _ = world.append(journal, identity(i), &[900, 30, 800], level).unwrap();
                    world.read(journal, "a", 2, Some(Level::Disk)).unwrap();
                }
                world.audit(journal);
                world.power_cut();
                let journal = world.reopen();
                world.audit(journal);
            }
        }
    }
}

/// A full disk that later has space.
#[test]
fn full_disk_rejects_until_space_returns() {
    for pages in 8..28 {
        for settings in [settings(), small(Compression::None, LimitPolicy::Reject, None)] {
            let mut world = JournalFixture::new(pages, NameOrder::Journal, settings);
            let used = world.disk.used_bytes();
            world.disk.set_capacity(used + pages * 4096);
            world.faulty = true;
            let Some(journal) = attempt_operation(&mut world, |w| w.open()) else {
                world.disk.set_capacity(u64::MAX);
                world.faulty = false;
                let journal = world.reopen();
                world.audit(journal);
                continue;
            };
            attempt_operation(&mut world, |w| {
                w.add(journal, "a", StartPosition::First, CheckpointKind::Subscriber, true)
            });
            let mut refused = 0;
            for i in 0..60 {
                let level = if i % 4 == 3 { Level::Disk } else { Level::Process };
                let ack = attempt_operation(&mut world, |w| {
                    w.append(journal, identity(i), &[900, 30, 800], level)
                });
                refused += u32::from(ack.is_none());
                attempt_operation(&mut world, |w| w.read(journal, "a", 1, None));
            }
            attempt_operation(&mut world, |w| w.try_audit(journal));
            let unlimited = settings.limits.bytes_max.is_none();
            assert!(!unlimited || refused > 0, "{pages} pages were enough");
            let stat = world.journal(journal).stat().unwrap();
            assert!(
                !unlimited || stat.full_reason == Some(FullReason::NoSpace),
                "{:?}",
                stat.full_reason
            );
            assert!(!stat.is_failed);
            // The same disk after a crash.
            if pages.is_multiple_of(2) {
                world.power_cut();
            } else {
                world.kill(journal);
            }
            let reopened = world.reopen();
            world.audit(reopened);
            world.disk.set_capacity(u64::MAX);
            world.faulty = false;
            let _ = world.append(reopened, identity(1000), &[900, 30, 800], Level::Disk).unwrap();
            world.audit(reopened);
            world.power_cut();
            let reopened = world.reopen();
            world.audit(reopened);
        }
    }
}

/// The clock steps by days between operations; only the age limit is affected.
#[test]
fn clock_steps_break_no_guarantee() {
    const DAY: i64 = 86_400_000_000_000;
    for at_limit in [LimitPolicy::Reject, LimitPolicy::DropOldest] {
        for pattern in 0..81u32 {
            let mut settings = small(Compression::None, at_limit, None);
            settings.limits.age_max = Some(std::time::Duration::from_secs(3600));
            let mut world = JournalFixture::new(1, NameOrder::Journal, settings);
            let mut journal = world.reopen();
            world
                .add(journal, "a", StartPosition::First, CheckpointKind::Subscriber, true)
                .unwrap();
            for i in 0..16 {
                for k in 0..3 {
                    let _ = world
                        .append(journal, identity(3 * i + k), &[900, 30, 900], Level::Process)
                        .unwrap();
                }
                let step = [-DAY, 0, DAY][(pattern / 3u32.pow(i as u32 % 4) % 3) as usize];
                world.now.fetch_add(step, SeqCst);
                world.audit(journal);
                if i % 5 == 4 {
                    world.read(journal, "a", 6, Some(Level::Disk)).unwrap();
                    world.flush(journal, Level::Disk).unwrap();
                    if i % 2 == 0 {
                        world.power_cut()
                    } else {
                        world.kill(journal)
                    }
                    journal = world.reopen();
                    world.audit(journal);
                }
            }
            world.read(journal, "a", 1000, None).unwrap();
        }
    }
}
