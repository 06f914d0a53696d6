//! Inputs that once failed, and the seeds of fuzzing.

use std::fs;

use crate::checks;
use crate::fuzz_inputs::{self, files, root};

/// `testdata/fuzz/<target>/<failure>`: runs the check of the fuzz target on each.
#[test]
fn past_fuzz_failures_pass() {
    fuzz_inputs::check_past_findings(&checks::CHECKS);
}

/// Seeds of fuzzing: PCP's own files, performance data with an entry of each kind, a process table.
fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let mmv = files(&root().join("testdata/mmv"))
        .into_iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "mmv"));
    let mut seeds: Vec<_> = mmv.map(|path| ("mmv", fs::read(path).unwrap())).collect();
    seeds.extend([("hsperf", performance_data(false)), ("hsperf", performance_data(true))]);
    let own = fs::read(root().join("testdata/shm/version-1.words"));
    seeds.push(("shm", own.expect("the golden file")));
    seeds.push(("process_table", crate::table::two_rows()));
    seeds
}

/// A number, ticks with their frequency, and a text.
fn performance_data(big: bool) -> Vec<u8> {
    let number = |number: i32| if big { number.to_be_bytes() } else { number.to_le_bytes() };
    let mut file =
        [&[0xca, 0xfe, 0xc0, 0xc0, u8::from(!big), 2, 0, 1][..], &number(32 + 3 * 56)].concat();
    file.extend([[0; 4], [0; 4], [0; 4], number(32), number(3)].concat());
    for (name, vector, kind, unit, variability, data) in [
        ("sun.os.hrt.frequency", 0, b'J', 6, 1, [1; 8]),
        ("sun.gc.time", 0, b'J', 3, 2, [2; 8]),
        ("sun.gc.cause", 8, b'B', 5, 3, *b"none\0\0\0\0"),
    ] {
        file.extend([number(56), number(20), number(vector)].concat());
        file.extend([kind, 1, unit, variability]);
        file.extend(number(48));
        file.extend(name.bytes().chain([0; 28]).take(28));
        file.extend(data);
    }
    file
}

#[test]
fn seeds_are_read() {
    for (target, seed) in seeds() {
        let read = match target {
            "mmv" => {
                shm::mmv::parse(&seed, 0).map(|shown| (shown.metrics.len(), shown.rejected)).ok()
            }
            // `golden` reads it.
            "shm" => Some((3, 0)),
            "process_table" => {
                let rows = shm::process_table::ProcessTable::parse(&seed)
                    .map(|table| table.processes.len());
                assert_eq!(rows.ok(), Some(2));
                continue;
            }
            _ => shm::hsperf::parse(&seed).map(|shown| (shown.metrics.len(), shown.rejected)).ok(),
        };
        assert!(matches!(read, Some((3.., 0))), "{target}: {read:?}");
        checks::CHECKS.iter().for_each(|(_, check)| check(&seed));
    }
}

/// Writes `fuzz/corpus/<target>/`. `cargo xtask ci fuzz` calls it before the targets run.
#[test]
#[ignore = "writes fuzz/corpus; called by xtask"]
fn write_seeds() {
    fuzz_inputs::write_seeds(&checks::CHECKS, &seeds());
}
