//! A disk that refuses: full, or with errors, at every operation of a life in turn. It is said which file and why,
//! nothing acknowledged is lost or doubled, and when the disk is sound again the same store goes on, unless it
//! said that it must be opened again.

use disk::{Fault, FaultKind, NameOrder, Operation};
use store::Error;

use crate::life::{DIR, Life, Step, Stop, script};

const EIO: i32 = 5;

/// What is said must name the file and what the system answered.
#[track_caller]
fn check_error(life: &Life, error: &Error) {
    let text = error.to_string();
    match error {
        // The journal's own words are its own tests' business.
        Error::Journal(_) => {}
        Error::Io { .. } | Error::Stopped { .. } => {
            let is_clear = text.contains(DIR) || text.contains("/data: ") || text.contains("/: ");
            if !is_clear || !(text.contains("os error") || text.contains("space")) {
                life.fail(&format!("says too little: {text}"));
            }
        }
        other => life.fail(&format!("{other:?}")),
    }
}

fn must_be_opened_again(error: &Error) -> bool {
    matches!(error, Error::Stopped { .. } | Error::Journal(journal::Error::Poisoned))
}

/// Does the step while the disk refuses, and again when it does not; whether it was refused.
fn check_step(life: &mut Life, steps: &[Step], with_rest: bool, heal: impl Fn(&Life)) -> bool {
    let refused = match life.step(steps[0]) {
        Ok(()) => None,
        Err(Stop::Error(error)) => Some(error),
        Err(Stop::Died) => life.fail("nobody was killed"),
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
            Err(Stop::Error(error)) if must_be_opened_again(&error) => {}
            Err(stop) => life.fail(&format!("it does not go on: {stop:?}")),
        }
        let needs = !life.is_open() || life.step(Step::Seal).is_err();
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

/// Each step of the life, begun on a fork, with each such operation in turn refused.
fn each_step(act: impl Fn(&Life, &[Step])) {
    let steps = script();
    let mut life = Life::new(5, NameOrder::Journal);
    life.create().unwrap();
    for at in 0..steps.len() {
        if !matches!(steps[at], Step::Now(_)) {
            act(&life, &steps[at..]);
        }
        if !life.is_open() {
            life.open().unwrap();
        }
        life.finish(&steps[at..=at]);
    }
}

fn fails(operations: &[Operation], times: u64, rest_every: u64) -> u32 {
    let struck = std::cell::Cell::new(0);
    each_step(|life, steps| {
        for &operation in operations {
            let mut missed = 0;
            for skip in 0.. {
                let mut life = life.fork(skip);
                life.open().unwrap();
                let kind = FaultKind::Os(EIO);
                let path_contains = String::new();
                life.log.push(format!("{operation:?} fails after {skip}, {times} times"));
                life.disk.inject(Fault { operation, path_contains, skip, times, kind });
                let with_rest = (skip + struck.get()).is_multiple_of(rest_every);
                let heal = |life: &Life| life.disk.clear_faults();
                let refused = check_step(&mut life, steps, with_rest, heal);
                // Some errors are nobody's business; a row of them is the end.
                missed = if refused { 0 } else { missed + 1 };
                struck.set(struck.get() + u64::from(refused));
                if missed > 3 {
                    break;
                }
            }
        }
    });
    struck.get() as u32
}

const CHANGING: [Operation; 7] = [
    Operation::Write,
    Operation::Create,
    Operation::SetLen,
    Operation::Allocate,
    Operation::Rename,
    Operation::Remove,
    Operation::CreateDir,
];

/// Whoever takes an error for the absence of a store makes an empty one in its place.
#[test]
fn a_store_that_cannot_be_seen_now_is_not_made_anew() {
    let mut life = Life::new(6, NameOrder::Journal);
    life.create().unwrap();
    life.open().unwrap();
    life.finish(&script()[..8]);
    life.end_process();
    for skip in 0..12 {
        for operation in [Operation::Open, Operation::List, Operation::Lock, Operation::Read] {
            let mut life = life.fork(skip);
            for path in ["manifest", "/data/store/"] {
                let (path_contains, kind) = (path.to_owned(), FaultKind::Os(EIO));
                life.disk.inject(Fault { operation, path_contains, skip, times: 2, kind });
                assert!(matches!(life.create(), Err(Stop::Error(_))), "{operation:?} {skip}");
                life.disk.clear_faults();
                life.recover(false);
            }
        }
    }
    // Parts are left, and no manifest.
    for name in ["manifest", "manifest.copy"] {
        let path = std::path::Path::new(DIR).join(name);
        disk::Disk::remove(&life.disk.process(), &path).unwrap();
    }
    assert!(matches!(life.create(), Err(Stop::Error(Error::Exists { .. }))));
}

// slow: one life of a store for each operation that can fail.
#[test]
fn an_error_of_any_operation_that_changes_something_loses_nothing() {
    let struck = fails(&CHANGING, 1, 60) + fails(&CHANGING[..2], u64::MAX, 60);
    println!("{struck} faults");
    assert!(struck > 200, "only {struck}");
}

// slow: one life of a store for each sync.
#[test]
fn a_sync_that_fails_acknowledges_nothing() {
    let struck = fails(&[Operation::Sync, Operation::SyncDir], 1, 60);
    println!("{struck} faults");
    assert!(struck > 100, "only {struck}");
}

// slow: one life of a store for each read.
#[test]
fn what_cannot_be_read_now_is_there_the_next_time() {
    let reading = [Operation::Read, Operation::Open, Operation::List, Operation::Lock];
    let struck = fails(&reading, 1, 60);
    println!("{struck} faults");
    assert!(struck > 100, "only {struck}");
}

#[test]
fn a_full_disk_loses_nothing_and_goes_on_when_there_is_room() {
    let refused = std::cell::Cell::new(0);
    each_step(|life, steps| {
        for pages in 0.. {
            let mut life = life.fork(pages);
            life.open().unwrap();
            life.log.push(format!("{pages} pages are free"));
            life.disk.set_capacity(life.disk.used_bytes() + pages * 4096);
            let with_rest = (refused.get() + pages).is_multiple_of(30);
            let heal = |life: &Life| {
                // What could not be finished takes no room.
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
