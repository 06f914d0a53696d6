//! What is found before a run, on the machine that tests run on.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use load::{Doubt, Schedule, Spacing};

/// A machine with others beside it may be slow, and stand still; but then it says so, and where it does not, the freeze test holds.
#[test]
fn a_machine_is_looked_at() {
    let found = load::calibrate(&Arc::new(AtomicBool::new(false))).unwrap();
    println!("{found}");
    assert_eq!(found.freeze.len(), 4);
    assert!(found.is_steady || found.attempts == 3);
    if found.is_steady {
        for one in &found.freeze {
            assert!(one.is_near(), "{one:?}");
        }
    }
    let much = Schedule::constant(1e9, 1_000_000_000, Spacing::Even);
    let doubts = found.doubts(&much, 1);
    assert!(doubts.iter().any(|one| matches!(one, Doubt::Rate { .. })), "{doubts:?}");
}
