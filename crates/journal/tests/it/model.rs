//! Random operations, with crashes between and during them, compared with the model in
//! `fixture.rs`.

use std::sync::atomic::Ordering::SeqCst;

use journal::*;
use proptest::prelude::*;
use sim::NameOrder;

use crate::fixture::{Interruption, JournalFixture, OperationResult, small};

#[derive(Clone, Debug)]
enum ModelOp {
    Append { handle: u8, lens: Vec<usize>, level: Level },
    Produce { handle: u8, producer: u8, skip: u8, lens: Vec<usize>, level: Level },
    Repeat { handle: u8, producer: u8, back: u8, level: Level },
    Flush { handle: u8, level: Level },
    Add { handle: u8, name: u8, start: u8, mark: bool, holds: bool },
    Remove { handle: u8, name: u8 },
    Rewind { handle: u8, name: u8, to: u8 },
    Read { handle: u8, name: u8, items: u8, commit: Option<Level> },
    Open,
    Close { handle: u8 },
    Kill { handle: u8 },
    KillIn { handle: u8, after: u8 },
    OpenKilled { after: u8 },
    PowerCut,
    PowerCutIn { after: u8 },
    Clock { hours: i8 },
}

fn level() -> impl Strategy<Value = Level> {
    prop_oneof![1 => Just(Level::Memory), 3 => Just(Level::Process), 1 => Just(Level::Disk)]
}

fn lens() -> impl Strategy<Value = Vec<usize>> {
    prop_oneof![
        4 => prop::collection::vec(8..200usize, 1..4),
        2 => prop::collection::vec(300..1200usize, 1..3),
        1 => prop::collection::vec(900..1300usize, 3),
    ]
}

fn op() -> impl Strategy<Value = ModelOp> {
    let who = 0..4u8;
    prop_oneof![
        10 => (who.clone(), lens(), level())
            .prop_map(|(who, lens, level)| ModelOp::Append { handle: who, lens, level }),
        10 => (who.clone(), 0..3u8, 0..3u8, lens(), level()).prop_map(
            |(who, producer, skip, lens, level)| ModelOp::Produce { handle: who, producer, skip, lens, level }
        ),
        4 => (who.clone(), 0..3u8, 0..4u8, level())
            .prop_map(|(who, producer, back, level)| ModelOp::Repeat { handle: who, producer, back, level }),
        4 => (who.clone(), level()).prop_map(|(who, level)| ModelOp::Flush { handle: who, level }),
        3 => (who.clone(), 0..3u8, 0..3u8, any::<bool>(), any::<bool>()).prop_map(
            |(who, name, start, mark, holds)| ModelOp::Add { handle: who, name, start, mark, holds }
        ),
        1 => (who.clone(), 0..3u8).prop_map(|(who, name)| ModelOp::Remove { handle: who, name }),
        1 => (who.clone(), 0..3u8, any::<u8>())
            .prop_map(|(who, name, to)| ModelOp::Rewind { handle: who, name, to }),
        8 => (who.clone(), 0..3u8, 0..20u8, prop::option::of(level()))
            .prop_map(|(who, name, items, commit)| ModelOp::Read { handle: who, name, items, commit }),
        3 => Just(ModelOp::Open),
        2 => who.clone().prop_map(|who| ModelOp::Close { handle: who }),
        2 => who.clone().prop_map(|who| ModelOp::Kill { handle: who }),
        2 => (who, 0..12u8).prop_map(|(who, after)| ModelOp::KillIn { handle: who, after }),
        1 => (0..8u8).prop_map(|after| ModelOp::OpenKilled { after }),
        1 => Just(ModelOp::PowerCut),
        3 => (0..25u8).prop_map(|after| ModelOp::PowerCutIn { after }),
        1 => any::<i8>().prop_map(|hours| ModelOp::Clock { hours }),
    ]
}

fn settings() -> impl Strategy<Value = Settings> {
    let compression =
        prop_oneof![Just(Compression::None), Just(Compression::Lz4), Just(Compression::Zstd)];
    let at_limit = prop_oneof![Just(LimitPolicy::Reject), Just(LimitPolicy::DropOldest)];
    let bytes = prop::option::of((2..5u64).prop_map(|n| n * SEGMENT_BYTES_MIN));
    let age = prop::option::of((1..48u64).prop_map(|h| std::time::Duration::from_secs(h * 3600)));
    let buffer = prop_oneof![3 => Just(4096u64), 1 => Just(65_536)];
    (compression, at_limit, bytes, age, buffer).prop_map(
        |(compression, at_limit, bytes, age, buffer)| {
            let mut settings = small(compression, at_limit, bytes);
            settings.limits.age_max = age;
            settings.buffer_bytes = buffer;
            settings
        },
    )
}

/// Sequences reached by producers.
#[derive(Default)]
struct ModelProducers([u64; 3]);

impl JournalFixture {
    fn handle_of(&mut self, who: u8) -> u32 {
        let handles = self.handles();
        match handles.get(usize::from(who) % handles.len().max(1)) {
            Some(&handle) => handle,
            None => self.reopen_if_closed(),
        }
    }

    /// Opens the journal if no process has it open, finally without faults.
    fn reopen_if_closed(&mut self) -> u32 {
        loop {
            match self.open() {
                Ok(handle) => return handle,
                Err(Interruption::ProcessDied) => self.clear_dead(),
                Err(Interruption::Error(error)) => {
                    panic!("opening failed: {error}\n{:#?}", self.log)
                }
            }
        }
    }

    /// Removes dead handles.
    fn clear_dead(&mut self) {
        if self.disk.is_without_power() {
            self.power_cut();
        } else {
            self.remove_dead();
        }
    }
}

fn identity(producer: u8, sequence: u64) -> Option<BatchIdentity> {
    Some(BatchIdentity { producer: u64::from(producer), epoch: 7, sequence })
}

fn step(
    world: &mut JournalFixture,
    producers: &mut ModelProducers,
    op: &ModelOp,
) -> OperationResult {
    let name = |name: u8| ["a", "b", "site/ü"][usize::from(name)];
    match op {
        ModelOp::Append { handle: who, lens, level } => {
            let who = world.handle_of(*who);
            world.append(who, None, lens, *level).map(drop)
        }
        ModelOp::Produce { handle: who, producer, skip, lens, level } => {
            let who = world.handle_of(*who);
            let sequence = &mut producers.0[usize::from(*producer)];
            *sequence += 1 + u64::from(*skip);
            let identity = identity(*producer, *sequence);
            world.append(who, identity, lens, *level).map(drop)
        }
        ModelOp::Repeat { handle: who, producer, back, level } => {
            let who = world.handle_of(*who);
            let sequence = producers.0[usize::from(*producer)].saturating_sub(u64::from(*back));
            world.append(who, identity(*producer, sequence), &[20, 20], *level).map(drop)
        }
        ModelOp::Flush { handle: who, level } => {
            let who = world.handle_of(*who);
            world.flush(who, *level)
        }
        ModelOp::Add { handle: who, name: n, start, mark, holds } => {
            let who = world.handle_of(*who);
            let marks = world.journal(who).watermarks();
            let start = [
                StartPosition::First,
                StartPosition::End,
                StartPosition::At(marks.first.midpoint(marks.end)),
            ][usize::from(*start)];
            let kind = if *mark { CheckpointKind::Plain } else { CheckpointKind::Subscriber };
            world.add(who, name(*n), start, kind, *holds)
        }
        ModelOp::Remove { handle: who, name: n } => {
            let who = world.handle_of(*who);
            world.remove(who, name(*n))
        }
        ModelOp::Rewind { handle: who, name: n, to } => {
            let who = world.handle_of(*who);
            let marks = world.journal(who).watermarks();
            let to = marks.first + (marks.end - marks.first) * u64::from(*to) / 255;
            world.set(who, name(*n), StartPosition::At(to))
        }
        ModelOp::Read { handle: who, name: n, items, commit } => {
            let who = world.handle_of(*who);
            world.read(who, name(*n), usize::from(*items), *commit)
        }
        ModelOp::Open => {
            if world.handles().len() < 4 {
                world.open()?;
            }
            Ok(())
        }
        ModelOp::Close { handle: who } => {
            let who = world.handle_of(*who);
            // No process may die during this: it is a destructor.
            if world.is_death_pending {
                world.kill(who);
            } else {
                world.close(who);
            }
            Ok(())
        }
        ModelOp::Kill { handle: who } => {
            let who = world.handle_of(*who);
            world.kill(who);
            Ok(())
        }
        ModelOp::KillIn { handle: who, after } => {
            let who = world.handle_of(*who);
            world.process(who).kill_after(u64::from(*after));
            world.is_death_pending = true;
            Ok(())
        }
        ModelOp::OpenKilled { after } => {
            if world.handles().len() < 4 {
                world.open_killed_after(Some(u64::from(*after)))?;
                world.is_death_pending = true;
            }
            Ok(())
        }
        ModelOp::PowerCut => {
            world.power_cut();
            Ok(())
        }
        ModelOp::PowerCutIn { after } => {
            world.disk.cut_after(u64::from(*after));
            world.is_death_pending = true;
            Ok(())
        }
        ModelOp::Clock { hours } => {
            world.now.fetch_add(i64::from(*hours) * 3_600_000_000_000, SeqCst);
            Ok(())
        }
    }
}

/// Runs operations; compares the state with the model after each.
fn run(seed: u64, arbitrary: bool, settings: Settings, ops: &[ModelOp]) -> u32 {
    let order = if arbitrary { NameOrder::Arbitrary } else { NameOrder::Journal };
    let mut world = JournalFixture::new(seed, order, settings);
    let mut producers = ModelProducers::default();
    for op in ops {
        world.log.push(format!("{op:?}"));
        match step(&mut world, &mut producers, op) {
            Ok(()) => {}
            Err(Interruption::ProcessDied) => world.clear_dead(),
            Err(Interruption::Error(
                Error::Full(_)
                | Error::AppendTimeout { .. }
                | Error::NotWriter { .. }
                | Error::PositionOutOfRange { .. }
                | Error::TooLarge { .. },
            )) => {}
            Err(Interruption::Error(error)) => panic!("{op:?}: {error}\n{:#?}", world.log),
        }
        let who = world.handle_of(0);
        if let Err(stop) = world.try_audit(who) {
            match stop {
                Interruption::ProcessDied => world.clear_dead(),
                Interruption::Error(error) => panic!("reading: {error}\n{:#?}", world.log),
            }
        }
    }
    // At the end everything is made durable and power is lost once more.
    world.power_cut();
    let who = world.reopen_if_closed();
    world.audit(who);
    let end = world.append(who, None, &[100], Level::Disk);
    match end {
        Ok(_) | Err(Interruption::Error(Error::Full(_))) => {}
        Err(stop) => panic!("{stop:?}\n{:#?}", world.log),
    }
    world.audit(who);
    world.power_cut();
    let who = world.reopen_if_closed();
    world.audit(who);
    world.repeats_of_lost
}

fn runs(cases: u32, ops: usize) {
    let config = ProptestConfig {
        cases,
        max_shrink_iters: 3000,
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(seed()),
        ..ProptestConfig::default()
    };
    let strategy = (any::<u64>(), any::<bool>(), settings(), prop::collection::vec(op(), 1..ops));
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let result = runner.run(&strategy, |(seed, arbitrary, settings, ops)| {
        run(seed, arbitrary, settings, &ops);
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

/// An environment variable selects another seed.
fn seed() -> u64 {
    std::env::var("JOURNAL_MODEL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1)
}

#[test]
fn random_operations_break_no_guarantee() {
    runs(300, 60);
}

#[test]
#[ignore = "soak: long histories, many of them; minutes"]
fn soak_random_operations_break_no_guarantee() {
    runs(20_000, 200);
}
