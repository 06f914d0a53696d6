//! A fixed workload whose power is cut in the middle of every operation that changes anything, and again in the
//! middle of every one of the opening that follows.

use std::cell::Cell;

use disk::NameOrder;
use journal::*;

use crate::world::{Done, Stop, World, small};

fn identity(sequence: u64) -> Option<Identity> {
    Some(Identity { producer: 5, boot: 6, sequence })
}

/// Appends of all kinds, segments that roll, subscribers that read, commit and go.
fn workload(world: &mut World) -> Done {
    let journal = world.open()?;
    world.add(journal, "a", Start::Begin, Kind::Subscriber, true)?;
    world.add(journal, "m", Start::End, Kind::Mark, false)?;
    for i in 0..9 {
        let level = if i % 4 == 3 { Level::Disk } else { Level::Process };
        tolerant(world.append(journal, identity(i), &[700, 30, 600], level))?;
        tolerant(world.append(journal, None, &[900 + i as usize], Level::Process))?;
        // Larger than half the buffer.
        tolerant(world.append(journal, identity(100 + i), &[1300, 1000, 8], Level::Process))?;
        let commit = [None, Some(Level::Process), Some(Level::Disk)][(i % 3) as usize];
        world.read(journal, "a", 4, commit)?;
        tolerant(world.append(journal, identity(100 + i), &[50], Level::Process))?;
    }
    tolerant(world.flush(journal, Level::Disk))?;
    let end = world.journal(journal).marks().end;
    world.set(journal, "m", Start::At(end))?;
    world.remove(journal, "m")?;
    world.read(journal, "a", 100, Some(Level::Disk))?;
    tolerant(world.append(journal, None, &[20], Level::Disk))?;
    world.try_audit(journal)
}

fn tolerant<T>(done: Done<T>) -> Done<()> {
    match done {
        Ok(_) | Err(Stop::Error(Error::Full(_))) => Ok(()),
        Err(stop) => Err(stop),
    }
}

thread_local! {
    static CUTS: Cell<u32> = const { Cell::new(0) };
}

/// The power goes after `first` operations, and after `second` of the opening that follows, if that has so
/// many. False: the workload had come to its end before.
fn cut(settings: Settings, seed: u64, order: NameOrder, first: u64, second: u64) -> bool {
    let mut world = World::new(seed, order, settings);
    world.log.push(format!("seed {seed}, {order:?}, cut after {first} and {second}"));
    world.disk.cut_after(first);
    match workload(&mut world) {
        Ok(()) => return false,
        Err(Stop::Died) => {}
        Err(Stop::Error(error)) => panic!("{error}\n{:#?}", world.log),
    }
    CUTS.set(CUTS.get() + 1);
    world.power_cut();
    world.disk.cut_after(second);
    if let Err(stop) = world.open() {
        assert!(matches!(stop, Stop::Died), "{stop:?}\n{:#?}", world.log);
        CUTS.set(CUTS.get() + 1);
        world.power_cut();
        world.reopen();
    } else {
        world.disk.cut_after(u64::MAX / 2);
    }
    let journal = world.handles()[0];
    world.audit(journal);
    world.read(journal, "a", 1000, Some(Level::Disk)).unwrap_or(());
    // It goes on: what is acknowledged now survives the next cut.
    for i in 200..204 {
        tolerant(world.append(journal, identity(i), &[700, 30], Level::Process)).unwrap();
    }
    tolerant(world.append(journal, None, &[99], Level::Disk)).unwrap();
    tolerant(world.append(journal, None, &[500], Level::Process)).unwrap();
    world.power_cut();
    CUTS.set(CUTS.get() + 1);
    let journal = world.reopen();
    world.audit(journal);
    world.read(journal, "a", 1000, Some(Level::Disk)).unwrap_or(());
    world.audit(journal);
    true
}

fn kinds() -> Vec<Settings> {
    vec![
        small(Codec::None, AtLimit::Refuse, None),
        small(Codec::Lz4, AtLimit::Refuse, Some(3 * SEGMENT_BYTES_MIN)),
        small(Codec::Zstd, AtLimit::DropOldest, Some(2 * SEGMENT_BYTES_MIN)),
    ]
}

/// Every cut of the workload; how many.
fn every(seeds: std::ops::Range<u64>, step: u64) -> u32 {
    CUTS.set(0);
    for settings in kinds() {
        for order in [NameOrder::Journal, NameOrder::Arbitrary] {
            for seed in seeds.clone() {
                let mut first = seed % step;
                // The opening is cut at another place each time; where it has fewer operations, not at all.
                while cut(settings, seed, order, first, (first * 7 + seed) % 29) {
                    first += step;
                }
            }
        }
    }
    CUTS.get()
}

#[test]
fn a_power_cut_anywhere_breaks_no_promise() {
    let cuts = every(1..13, 1);
    println!("{cuts} power cuts");
    assert!(cuts > 5000, "only {cuts}");
}

/// A crash at every operation of the opening after one crash.
#[test]
fn a_second_power_cut_anywhere_in_the_opening_breaks_no_promise() {
    let settings = small(Codec::Lz4, AtLimit::DropOldest, Some(2 * SEGMENT_BYTES_MIN));
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
fn soak_a_power_cut_anywhere_breaks_no_promise() {
    every(0..60, 1);
}
