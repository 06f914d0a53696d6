//! Power loss or kill during every mutating operation, and again during the following opening.

use std::cell::Cell;
use std::ops::Range;

use sim::NameOrder;

use crate::lifecycle::{Interruption, LifecycleStep, StoreHarness, script};

thread_local! {
    static CRASHES: Cell<u32> = const { Cell::new(0) };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CrashKind {
    Power,
    Kill,
}

/// Arms a crash after this many operations.
fn arm(life: &mut StoreHarness, how: CrashKind, after: u64) {
    match how {
        CrashKind::Power => life.disk.cut_after(after),
        CrashKind::Kill => life.kill_after = Some(after),
    }
}

fn crash(life: &mut StoreHarness, how: CrashKind) {
    CRASHES.set(CRASHES.get() + 1);
    match how {
        CrashKind::Power => life.power_cut(),
        CrashKind::Kill => life.log.push("it was killed".to_owned()),
    }
}

/// Opens the store, with another crash after `second` operations if it has that many.
fn recover(life: &mut StoreHarness, how: CrashKind, second: u64) {
    arm(life, how, second);
    match life.open() {
        Ok(()) => life.disk.cut_after(u64::MAX / 2),
        Err(Interruption::ProcessDied) => crash(life, how),
        Err(Interruption::Error(error)) => life.fail(&format!("opening does not succeed: {error}")),
    }
    life.recover(how == CrashKind::Power);
}

/// Crashes in each operation of one step, on a fork of `life`, or in a sample of them; then repeats
/// the step, and sometimes runs the rest of the lifecycle too.
fn crash_in(
    life: &StoreHarness,
    steps: &[LifecycleStep],
    how: CrashKind,
    seeds: Range<u64>,
    every: usize,
) {
    for seed in seeds {
        for first in (seed % every as u64..).step_by(every) {
            let mut life = life.fork(seed * 1000 + first);
            life.log.push(format!("{how:?} after {first} operations"));
            arm(&mut life, how, first);
            match life.open().and_then(|()| life.step(steps[0])) {
                Ok(()) => break,
                Err(Interruption::ProcessDied) => crash(&mut life, how),
                Err(Interruption::Error(error)) => life.fail(&error.to_string()),
            }
            recover(&mut life, how, (first * 7 + seed) % 31);
            let rest = if (first + seed).is_multiple_of(40) { steps } else { &steps[..1] };
            life.finish(rest);
        }
    }
}

fn crash_in_all(how: CrashKind, order: NameOrder, seeds: Range<u64>, every: usize) -> u32 {
    CRASHES.set(0);
    let steps = script();
    let mut life = StoreHarness::new(seeds.start, order);
    life.create().unwrap();
    for at in 0..steps.len() {
        if !matches!(steps[at], LifecycleStep::Now(_)) {
            crash_in(&life, &steps[at..], how, seeds.clone(), every);
        }
        if !life.is_open() {
            life.open().unwrap();
        }
        life.finish(&steps[at..=at]);
    }
    CRASHES.get()
}

// slow: three lifecycles for each operation.
#[test]
fn a_power_cut_anywhere_loses_nothing_acknowledged() {
    let crashes = crash_in_all(CrashKind::Power, NameOrder::Journal, 1..2, 1);
    println!("{crashes} power cuts");
    assert!(crashes > 1500, "only {crashes}");
}

#[test]
fn power_cut_with_any_name_order_loses_nothing() {
    let crashes = crash_in_all(CrashKind::Power, NameOrder::Arbitrary, 2..3, 3);
    println!("{crashes} power cuts");
    assert!(crashes > 400, "only {crashes}");
}

// slow: one lifecycle for each operation.
#[test]
fn a_kill_anywhere_loses_nothing_acknowledged() {
    let crashes = crash_in_all(CrashKind::Kill, NameOrder::Journal, 1..2, 1);
    println!("{crashes} kills");
    assert!(crashes > 500, "only {crashes}");
}

#[test]
#[ignore = "soak: every crash for ten seeds, minutes"]
fn soak_a_crash_anywhere_loses_nothing_acknowledged() {
    let cuts = [NameOrder::Journal, NameOrder::Arbitrary]
        .map(|order| crash_in_all(CrashKind::Power, order, 10..20, 1));
    let kills = crash_in_all(CrashKind::Kill, NameOrder::Journal, 10..20, 1);
    println!("{cuts:?} power cuts, {kills} kills");
}

/// A crash during creation: the store exists, or can be created again.
#[test]
fn crash_during_creation_can_be_retried() {
    CRASHES.set(0);
    for (how, order) in [
        (CrashKind::Power, NameOrder::Journal),
        (CrashKind::Power, NameOrder::Arbitrary),
        (CrashKind::Kill, NameOrder::Journal),
    ] {
        for seed in 0..2 {
            for first in 0.. {
                let mut life = StoreHarness::new(seed * 1000 + first, order);
                arm(&mut life, how, first);
                match life.create() {
                    Ok(()) => break,
                    Err(Interruption::ProcessDied) => crash(&mut life, how),
                    Err(Interruption::Error(error)) => life.fail(&error.to_string()),
                }
                arm(&mut life, how, first * 5 % 23);
                match life.create() {
                    Ok(()) | Err(Interruption::Error(store::Error::AlreadyExists { .. })) => {}
                    Err(Interruption::ProcessDied) => crash(&mut life, how),
                    Err(Interruption::Error(error)) => life.fail(&error.to_string()),
                }
                life.disk.cut_after(u64::MAX / 2);
                match life.create() {
                    Ok(()) | Err(Interruption::Error(store::Error::AlreadyExists { .. })) => {}
                    Err(stop) => life.fail(&format!("{stop:?}")),
                }
                life.recover(how == CrashKind::Power);
                life.finish(&script()[..5]);
                life.power_cut();
                CRASHES.set(CRASHES.get() + 1);
                life.recover(true);
            }
        }
    }
    println!("{} crashes", CRASHES.get());
    assert!(CRASHES.get() > 300, "only {}", CRASHES.get());
}
