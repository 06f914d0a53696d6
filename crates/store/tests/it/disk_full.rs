//! A failing disk: full, or with errors, at every operation of the lifecycle in turn. The error
//! names file and cause, nothing acknowledged is lost or duplicated, and the store continues when
//! the disk works again, unless it reported fail-stop.

use sim::{DiskOperation, Fault, FaultKind, NameOrder};
use store::Error;

use crate::lifecycle::{DIR, Interruption, LifecycleStep, StoreHarness, script};

const EIO: i32 = 5;

/// The error must name the file and the system's error.
#[track_caller]
fn check_error(life: &StoreHarness, error: &Error) {
    let text = error.to_string();
    match error {
        // The journal's tests cover its own errors.
        Error::Journal(_) => {}
        Error::Io { .. } | Error::FailStop { .. } => {
            let is_clear = text.contains(DIR) || text.contains("/data: ") || text.contains("/: ");
            if !is_clear || !(text.contains("os error") || text.contains("space")) {
                life.fail(&format!("says too little: {text}"));
            }
        }
        other => life.fail(&format!("{other:?}")),
    }
}

fn needs_reopen(error: &Error) -> bool {
    matches!(error, Error::FailStop { .. } | Error::Journal(journal::Error::FailStop))
}

/// Runs the step while the disk fails, and again after; returns whether it failed.
fn check_step(
    life: &mut StoreHarness,
    steps: &[LifecycleStep],
    with_rest: bool,
    heal: impl Fn(&StoreHarness),
) -> bool {
    let refused = match life.step(steps[0]) {
        Ok(()) => None,
        Err(Interruption::Error(error)) => Some(error),
        Err(Interruption::ProcessDied) => life.fail("nobody was killed"),
    };
    heal(life);
    if let Some(error) = &refused {
        check_error(life, error);
        let again = match life.is_open() {
            true => life.step(steps[0]),
            false => Ok(()),
        };
        match again {
            Ok(()) => {}
            Err(Interruption::Error(error)) if needs_reopen(&error) => {}
            Err(stop) => life.fail(&format!("it does not go on: {stop:?}")),
        }
        let needs = !life.is_open() || life.step(LifecycleStep::Flush).is_err();
        if needs {
            life.recover(false);
            life.finish(&steps[..1]);
        } else {
            life.check(false);
        }
    }
    if with_rest {
        life.finish(&steps[1..]);
    }
    life.power_cut();
    life.recover(true);
    refused.is_some()
}

/// Runs each step of the lifecycle on a fork, failing each such operation in turn.
fn each_step(act: impl Fn(&StoreHarness, &[LifecycleStep])) {
    let steps = script();
    let mut life = StoreHarness::new(5, NameOrder::Journal);
    life.create().unwrap();
    for at in 0..steps.len() {
        if !matches!(steps[at], LifecycleStep::Now(_)) {
            act(&life, &steps[at..]);
        }
        if !life.is_open() {
            life.open().unwrap();
        }
        life.finish(&steps[at..=at]);
    }
}

fn fails(operations: &[DiskOperation], times: u64, rest_every: u64) -> u32 {
    let struck = std::cell::Cell::new(0);
    each_step(|life, steps| {
        for &operation in operations {
            for skip in 0.. {
                let mut life = life.fork(skip);
                life.open().unwrap();
                let kind = FaultKind::Os(EIO);
                let path_contains = String::new();
                life.log.push(format!("{operation:?} fails after {skip}, {times} times"));
                life.disk.inject(Fault { operation, path_contains, skip, times, kind });
                let with_rest = (skip + struck.get()).is_multiple_of(rest_every);
                let heal = |life: &StoreHarness| life.disk.clear_faults();
                let refused = check_step(&mut life, steps, with_rest, heal);
                struck.set(struck.get() + u64::from(refused));
                // The step has fewer such operations. Some errors are not reported.
                if life.disk.fault_hits() == 0 {
                    break;
                }
            }
        }
    });
    struck.get() as u32
}

const MUTATING_OPERATIONS: [DiskOperation; 7] = [
    DiskOperation::Write,
    DiskOperation::Create,
    DiskOperation::SetLen,
    DiskOperation::Allocate,
    DiskOperation::Rename,
    DiskOperation::Remove,
    DiskOperation::CreateDir,
];

/// An error must not be taken for a missing store, or an empty one would replace it.
#[test]
fn unreadable_store_is_not_recreated() {
    let mut life = StoreHarness::new(6, NameOrder::Journal);
    life.create().unwrap();
    life.open().unwrap();
    life.finish(&script()[..8]);
    life.end_process();
    for skip in 0..12 {
        for operation in
            [DiskOperation::Open, DiskOperation::List, DiskOperation::Lock, DiskOperation::Read]
        {
            let mut life = life.fork(skip);
            for path in ["manifest", "/data/store/"] {
                let (path_contains, kind) = (path.to_owned(), FaultKind::Os(EIO));
                life.disk.inject(Fault { operation, path_contains, skip, times: 2, kind });
                assert!(
                    matches!(life.create(), Err(Interruption::Error(_))),
                    "{operation:?} {skip}"
                );
                life.disk.clear_faults();
                life.recover(false);
            }
        }
    }
    // Parts remain without a manifest.
    for name in ["manifest", "manifest.copy"] {
        let path = std::path::Path::new(DIR).join(name);
        disk::Disk::remove(&life.disk.process(), &path).unwrap();
    }
    assert!(matches!(life.create(), Err(Interruption::Error(Error::AlreadyExists { .. }))));
}

// slow: one lifecycle for each operation that can fail.
#[test]
fn error_of_any_mutating_operation_loses_nothing() {
    let struck =
        fails(&MUTATING_OPERATIONS, 1, 60) + fails(&MUTATING_OPERATIONS[..2], u64::MAX, 60);
    println!("{struck} faults");
    assert!(struck > 200, "only {struck}");
}

// slow: one lifecycle for each sync.
#[test]
fn a_sync_that_fails_acknowledges_nothing() {
    let struck = fails(&[DiskOperation::Sync, DiskOperation::SyncDir], 1, 60);
    println!("{struck} faults");
    assert!(struck > 100, "only {struck}");
}

// slow: one lifecycle for each read.
#[test]
fn transient_read_error_loses_nothing() {
    let reading =
        [DiskOperation::Read, DiskOperation::Open, DiskOperation::List, DiskOperation::Lock];
    let struck = fails(&reading, 1, 60);
    println!("{struck} faults");
    assert!(struck > 100, "only {struck}");
}

#[test]
fn full_disk_loses_nothing_and_resumes() {
    let refused = std::cell::Cell::new(0);
    each_step(|life, steps| {
        for pages in 0.. {
            let mut life = life.fork(pages);
            life.open().unwrap();
            life.log.push(format!("{pages} pages are free"));
            life.disk.set_capacity(life.disk.used_bytes() + pages * 4096);
            let with_rest = (refused.get() + pages).is_multiple_of(30);
            let heal = |life: &StoreHarness| {
                // Unfinished parts take no space.
                let is_part =
                    |path: &std::path::Path| path.extension().is_some_and(|e| e == "part");
                let files = life.disk.files().iter().filter(|(path, _)| is_part(path)).count();
                let parts = life.store().stat().map(|stat| stat.parts.len());
                if let Ok(parts) = parts
                    && files != parts
                {
                    life.fail(&format!("{files} files of {parts} parts"));
                }
                life.disk.set_capacity(u64::MAX);
            };
            if !check_step(&mut life, steps, with_rest, heal) {
                break;
            }
            refused.set(refused.get() + 1);
        }
    });
    println!("{} times full", refused.get());
    assert!(refused.get() > 50, "only {}", refused.get());
}
