//! Calibration on the machine that runs the tests.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use load::{ArrivalProcess, InvalidReason, Schedule};

/// A busy machine may be slow and may stall; but then the calibration says so, and otherwise the
/// coordinated-omission test passes.
#[test]
fn calibration_measures_this_machine() {
    let found = load::calibrate(&Arc::new(AtomicBool::new(false))).unwrap();
    println!("{found}");
    assert_eq!(found.checks.len(), 4);
    assert!(found.is_stable || found.attempts == 3);
    if found.is_stable {
        for one in &found.checks {
            assert!(one.is_within_tolerance(), "{one:?}");
        }
    }
    let much = Schedule::constant(1e9, 1_000_000_000, ArrivalProcess::Constant);
    let reasons = found.invalid_reasons(&much, 1);
    assert!(
        reasons.iter().any(|one| matches!(one, InvalidReason::RateAboveCalibrated { .. })),
        "{reasons:?}"
    );
}
