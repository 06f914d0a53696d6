//! Random operations, crashes in between and in their middle, against the model in `world.rs`.

use std::sync::atomic::Ordering::SeqCst;

use disk::NameOrder;
use journal::*;
use proptest::prelude::*;

use crate::world::{Done, Stop, World, small};

#[derive(Clone, Debug)]
enum Op {
    Append { who: u8, lens: Vec<usize>, level: Level },
    Produce { who: u8, producer: u8, skip: u8, lens: Vec<usize>, level: Level },
    Repeat { who: u8, producer: u8, back: u8, level: Level },
    Flush { who: u8, level: Level },
    Add { who: u8, name: u8, start: u8, mark: bool, holds: bool },
    Remove { who: u8, name: u8 },
    Rewind { who: u8, name: u8, to: u8 },
    Read { who: u8, name: u8, items: u8, commit: Option<Level> },
    Open,
    Close { who: u8 },
    Kill { who: u8 },
    KillIn { who: u8, after: u8 },
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

fn op() -> impl Strategy<Value = Op> {
    let who = 0..4u8;
    prop_oneof![
        10 => (who.clone(), lens(), level())
            .prop_map(|(who, lens, level)| Op::Append { who, lens, level }),
        10 => (who.clone(), 0..3u8, 0..3u8, lens(), level()).prop_map(
            |(who, producer, skip, lens, level)| Op::Produce { who, producer, skip, lens, level }
        ),
        4 => (who.clone(), 0..3u8, 0..4u8, level())
            .prop_map(|(who, producer, back, level)| Op::Repeat { who, producer, back, level }),
        4 => (who.clone(), level()).prop_map(|(who, level)| Op::Flush { who, level }),
        3 => (who.clone(), 0..3u8, 0..3u8, any::<bool>(), any::<bool>()).prop_map(
            |(who, name, start, mark, holds)| Op::Add { who, name, start, mark, holds }
        ),
        1 => (who.clone(), 0..3u8).prop_map(|(who, name)| Op::Remove { who, name }),
        1 => (who.clone(), 0..3u8, any::<u8>())
            .prop_map(|(who, name, to)| Op::Rewind { who, name, to }),
        8 => (who.clone(), 0..3u8, 0..20u8, prop::option::of(level()))
            .prop_map(|(who, name, items, commit)| Op::Read { who, name, items, commit }),
        3 => Just(Op::Open),
        2 => who.clone().prop_map(|who| Op::Close { who }),
        2 => who.clone().prop_map(|who| Op::Kill { who }),
        2 => (who, 0..12u8).prop_map(|(who, after)| Op::KillIn { who, after }),
        1 => (0..8u8).prop_map(|after| Op::OpenKilled { after }),
        1 => Just(Op::PowerCut),
        3 => (0..25u8).prop_map(|after| Op::PowerCutIn { after }),
        1 => any::<i8>().prop_map(|hours| Op::Clock { hours }),
    ]
}

fn settings() -> impl Strategy<Value = Settings> {
    let codec = prop_oneof![Just(Codec::None), Just(Codec::Lz4), Just(Codec::Zstd)];
    let at_limit = prop_oneof![Just(AtLimit::Refuse), Just(AtLimit::DropOldest)];
    let bytes = prop::option::of((2..5u64).prop_map(|n| n * SEGMENT_BYTES_MIN));
    let age = prop::option::of((1..48u64).prop_map(|h| std::time::Duration::from_secs(h * 3600)));
    let buffer = prop_oneof![3 => Just(4096u64), 1 => Just(65_536)];
    (codec, at_limit, bytes, age, buffer).prop_map(|(codec, at_limit, bytes, age, buffer)| {
        let mut settings = small(codec, at_limit, bytes);
        settings.limits.age_max = age;
        settings.buffer_bytes = buffer;
        settings
    })
}

/// Sequences that producers have reached.
#[derive(Default)]
struct Producers([u64; 3]);

impl World {
    fn who(&mut self, who: u8) -> u32 {
        let handles = self.handles();
        match handles.get(usize::from(who) % handles.len().max(1)) {
            Some(&handle) => handle,
            None => self.again(),
        }
    }

    /// Nobody has it open: it is opened, at last without a hindrance.
    fn again(&mut self) -> u32 {
        loop {
            match self.open() {
                Ok(handle) => return handle,
                Err(Stop::Died) => self.settle(),
                Err(Stop::Error(error)) => panic!("opening failed: {error}\n{:#?}", self.log),
            }
        }
    }

    /// Clears away who died.
    fn settle(&mut self) {
        if self.disk.is_without_power() {
            self.power_cut();
        } else {
            self.bury();
        }
    }
}

fn identity(producer: u8, sequence: u64) -> Option<Identity> {
    Some(Identity { producer: u64::from(producer), boot: 7, sequence })
}

fn step(world: &mut World, producers: &mut Producers, op: &Op) -> Done {
    let name = |name: u8| ["a", "b", "site/ü"][usize::from(name)];
    match op {
        Op::Append { who, lens, level } => {
            let who = world.who(*who);
            world.append(who, None, lens, *level).map(drop)
        }
        Op::Produce { who, producer, skip, lens, level } => {
            let who = world.who(*who);
            let sequence = &mut producers.0[usize::from(*producer)];
            *sequence += 1 + u64::from(*skip);
            let identity = identity(*producer, *sequence);
            world.append(who, identity, lens, *level).map(drop)
        }
        Op::Repeat { who, producer, back, level } => {
            let who = world.who(*who);
            let sequence = producers.0[usize::from(*producer)].saturating_sub(u64::from(*back));
            world.append(who, identity(*producer, sequence), &[20, 20], *level).map(drop)
        }
        Op::Flush { who, level } => {
            let who = world.who(*who);
            world.flush(who, *level)
        }
        Op::Add { who, name: n, start, mark, holds } => {
            let who = world.who(*who);
            let marks = world.journal(who).marks();
            let start = [Start::Begin, Start::End, Start::At(marks.first.midpoint(marks.end))]
                [usize::from(*start)];
            let kind = if *mark { Kind::Mark } else { Kind::Subscriber };
            world.add(who, name(*n), start, kind, *holds)
        }
        Op::Remove { who, name: n } => {
            let who = world.who(*who);
            world.remove(who, name(*n))
        }
        Op::Rewind { who, name: n, to } => {
            let who = world.who(*who);
            let marks = world.journal(who).marks();
            let to = marks.first + (marks.end - marks.first) * u64::from(*to) / 255;
            world.set(who, name(*n), Start::At(to))
        }
        Op::Read { who, name: n, items, commit } => {
            let who = world.who(*who);
            world.read(who, name(*n), usize::from(*items), *commit)
        }
        Op::Open => {
            if world.handles().len() < 4 {
                world.open()?;
            }
            Ok(())
        }
        Op::Close { who } => {
            let who = world.who(*who);
            // In the middle of it nothing may die: it is a destructor.
            if world.armed {
                world.kill(who);
            } else {
                world.close(who);
            }
            Ok(())
        }
        Op::Kill { who } => {
            let who = world.who(*who);
            world.kill(who);
            Ok(())
        }
        Op::KillIn { who, after } => {
            let who = world.who(*who);
            world.process(who).kill_after(u64::from(*after));
            world.armed = true;
            Ok(())
        }
        Op::OpenKilled { after } => {
            if world.handles().len() < 4 {
                world.open_killed_after(Some(u64::from(*after)))?;
                world.armed = true;
            }
            Ok(())
        }
        Op::PowerCut => {
            world.power_cut();
            Ok(())
        }
        Op::PowerCutIn { after } => {
            world.disk.cut_after(u64::from(*after));
            world.armed = true;
            Ok(())
        }
        Op::Clock { hours } => {
            world.now.fetch_add(i64::from(*hours) * 3_600_000_000_000, SeqCst);
            Ok(())
        }
    }
}

/// Runs operations; after each, what there is is held to the model.
fn run(seed: u64, arbitrary: bool, settings: Settings, ops: &[Op]) -> u32 {
    let order = if arbitrary { NameOrder::Arbitrary } else { NameOrder::Journal };
    let mut world = World::new(seed, order, settings);
    let mut producers = Producers::default();
    for op in ops {
        world.log.push(format!("{op:?}"));
        match step(&mut world, &mut producers, op) {
            Ok(()) => {}
            Err(Stop::Died) => world.settle(),
            Err(Stop::Error(
                Error::Full(_)
                | Error::Stalled { .. }
                | Error::Elsewhere { .. }
                | Error::Position { .. }
                | Error::TooLarge { .. },
            )) => {}
            Err(Stop::Error(error)) => panic!("{op:?}: {error}\n{:#?}", world.log),
        }
        let who = world.who(0);
        if let Err(stop) = world.try_audit(who) {
            match stop {
                Stop::Died => world.settle(),
                Stop::Error(error) => panic!("reading: {error}\n{:#?}", world.log),
            }
        }
    }
    // In the end all is made durable and the power goes once more.
    world.power_cut();
    let who = world.again();
    world.audit(who);
    let end = world.append(who, None, &[100], Level::Disk);
    match end {
        Ok(_) | Err(Stop::Error(Error::Full(_))) => {}
        Err(stop) => panic!("{stop:?}\n{:#?}", world.log),
    }
    world.audit(who);
    world.power_cut();
    let who = world.again();
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

/// Another one may be asked for, to look further.
fn seed() -> u64 {
    std::env::var("JOURNAL_MODEL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1)
}

#[test]
fn whatever_happens_no_promise_is_broken() {
    runs(300, 60);
}

#[test]
#[ignore = "soak: long histories, many of them; minutes"]
fn soak_whatever_happens_no_promise_is_broken() {
    runs(20_000, 200);
}
