//! A fixed workload with a power loss during every mutating operation, and another during every one
//! of the following opening.

use std::cell::Cell;

use journal::*;
use sim::NameOrder;

use crate::fixture::{Interruption, JournalFixture, OperationResult, small};

fn identity(sequence: u64) -> Option<BatchIdentity> {
    Some(BatchIdentity { producer: 5, epoch: 6, sequence })
}

/// Appends of all kinds, rolled segments, and subscribers that read, commit and are removed.
fn workload(world: &mut JournalFixture) -> OperationResult {
    let journal = world.open()?;
    world.add(journal, "a", StartPosition::First, CheckpointKind::Subscriber, true)?;
    world.add(journal, "m", StartPosition::End, CheckpointKind::Plain, false)?;
    for i in 0..9 {
        let level = if i % 4 == 3 { Level::Disk } else { Level::Process };
        ignore_errors(world.append(journal, identity(i), &[700, 30, 600], level))?;
        ignore_errors(world.append(journal, None, &[900 + i as usize], Level::Process))?;
        // Larger than half the buffer.
        ignore_errors(world.append(journal, identity(100 + i), &[1300, 1000, 8], Level::Process))?;
        let commit = [None, Some(Level::Process), Some(Level::Disk)][(i % 3) as usize];
        world.read(journal, "a", 4, commit)?;
        ignore_errors(world.append(journal, identity(100 + i), &[50], Level::Process))?;
    }
    ignore_errors(world.flush(journal, Level::Disk))?;
    let end = world.journal(journal).watermarks().end;
    world.set(journal, "m", StartPosition::At(end))?;
    world.remove(journal, "m")?;
    world.read(journal, "a", 100, Some(Level::Disk))?;
    ignore_errors(world.append(journal, None, &[20], Level::Disk))?;
    world.try_audit(journal)
}

fn ignore_errors<T>(done: OperationResult<T>) -> OperationResult<()> {
    match done {
        Ok(_) | Err(Interruption::Error(Error::Full(_))) => Ok(()),
        Err(stop) => Err(stop),
    }
}

thread_local! {
    static CUTS: Cell<u32> = const { Cell::new(0) };
}

/// Power is lost after `first` operations, and after `second` of the following opening if it has
/// that many. Returns false if the workload ended before.
fn cut(settings: Settings, seed: u64, order: NameOrder, first: u64, second: u64) -> bool {
    let mut world = JournalFixture::new(seed, order, settings);
    world.log.push(format!("seed {seed}, {order:?}, cut after {first} and {second}"));
    world.disk.cut_after(first);
    match workload(&mut world) {
        Ok(()) => return false,
        Err(Interruption::ProcessDied) => {}
        Err(Interruption::Error(error)) => panic!("{error}\n{:#?}", world.log),
    }
    CUTS.set(CUTS.get() + 1);
    world.power_cut();
    world.disk.cut_after(second);
    if let Err(stop) = world.open() {
        assert!(matches!(stop, Interruption::ProcessDied), "{stop:?}\n{:#?}", world.log);
        CUTS.set(CUTS.get() + 1);
        world.power_cut();
        world.reopen();
    } else {
        world.disk.cut_after(u64::MAX / 2);
    }
    let journal = world.handles()[0];
    world.audit(journal);
    world.read(journal, "a", 1000, Some(Level::Disk)).unwrap_or(());
    // It continues: records acknowledged now survive the next power loss.
    for i in 200..204 {
        ignore_errors(world.append(journal, identity(i), &[700, 30], Level::Process)).unwrap();
    }
    ignore_errors(world.append(journal, None, &[99], Level::Disk)).unwrap();
    ignore_errors(world.append(journal, None, &[500], Level::Process)).unwrap();
    world.power_cut();
    CUTS.set(CUTS.get() + 1);
    let journal = world.reopen();
    world.audit(journal);
    world.read(journal, "a", 1000, Some(Level::Disk)).unwrap_or(());
    world.audit(journal);
    true
}

fn settings_variants() -> Vec<Settings> {
    vec![
        small(Compression::None, LimitPolicy::Reject, None),
        small(Compression::Lz4, LimitPolicy::Reject, Some(3 * SEGMENT_BYTES_MIN)),
        small(Compression::Zstd, LimitPolicy::DropOldest, Some(2 * SEGMENT_BYTES_MIN)),
    ]
}

/// Every power loss of the workload; returns their number.
fn cut_everywhere(seeds: std::ops::Range<u64>, step: u64) -> u32 {
    CUTS.set(0);
    for settings in settings_variants() {
        for order in [NameOrder::Journal, NameOrder::Arbitrary] {
            for seed in seeds.clone() {
                let mut first = seed % step;
                // The opening is interrupted at a different operation each time, or not at all if
                // it has fewer.
                while cut(settings, seed, order, first, (first * 7 + seed) % 29) {
                    first += step;
                }
            }
        }
    }
    CUTS.get()
}

#[test]
fn power_cut_anywhere_breaks_no_guarantee() {
    let cuts = cut_everywhere(1..13, 1);
    println!("{cuts} power cuts");
    assert!(cuts > 5000, "only {cuts}");
}

/// A crash at every operation of the opening after one crash.
#[test]
fn second_power_cut_during_recovery_breaks_no_guarantee() {
    let settings = small(Compression::Lz4, LimitPolicy::DropOldest, Some(2 * SEGMENT_BYTES_MIN));
    for order in [NameOrder::Journal, NameOrder::Arbitrary] {
        for first in [12, 31, 47, 58] {
            for second in 0..30 {
                assert!(cut(settings, first + second, order, first, second), "too short");
            }
        }
    }
}

#[test]
#[ignore = "soak: every cut for sixty seeds, minutes"]
fn soak_power_cut_anywhere_breaks_no_guarantee() {
    cut_everywhere(0..60, 1);
}
