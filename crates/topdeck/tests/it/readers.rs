//! `topdeck doctor readers`: it ends, reports its results, and leaves nothing behind.

use std::process::Command;

#[test]
fn both_methods_are_reported() {
    let output = Command::new(env!("CARGO_BIN_EXE_topdeck"))
        .args(["doctor", "readers", "--readers", "2", "--samples", "2"])
        .output()
        .expect("the program");
    let told = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    if told.is_empty() && error.contains("os error 28") {
        println!("skipped: no space in shared memory: {error}");
        return;
    }
    assert!(told.contains("2 readers, 2 samples each"), "{told}{error}");
    assert!(told.contains("topdeck, one reads, 2 copy"), "{told}");
    // Without ps, the message and the exit status say so.
    let is_measured = told.contains("times less");
    assert_eq!(output.status.success(), is_measured, "{told}");
    assert!(is_measured || told.contains("not measured"), "{told}");
}

#[test]
fn zero_readers_are_rejected() {
    let output = Command::new(env!("CARGO_BIN_EXE_topdeck"))
        .args(["doctor", "readers", "--readers", "0"])
        .output()
        .expect("the program");
    assert_eq!(output.status.code(), Some(2));
}
