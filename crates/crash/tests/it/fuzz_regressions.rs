//! Past fuzz findings, seeds of the fuzz corpus, and a short run of the checks on changed seeds.

use crate::checks::{self, FuzzCheck};
use crate::crash_texts::{GO, JVM};
use crate::{fuzz_inputs, sample_core};

/// `testdata/fuzz/<target>/<finding>`.
#[test]
fn regressions_pass() {
    fuzz_inputs::check_past_findings(&checks::CHECKS);
}

/// Each seed, cut at some places, and with some bytes changed.
#[test]
fn changed_seeds_pass() {
    for (target, seed) in seeds() {
        let check = check_of(target);
        check(&seed);
        for step in 1..40 {
            check(&seed[..seed.len() * step / 40]);
            let mut changed = seed.clone();
            // A fixed sequence of places and values, most of them in the headers.
            let at = (step * step * 131) % seed.len().min(1_400);
            changed[at] = [0xff, 0x7f, 0x80, 0][step % 4];
            check(&changed);
        }
    }
}

/// Run by the fuzz part of the tests.
#[test]
#[ignore = "writes fuzz/corpus/, for the fuzz part alone"]
fn write_seeds() {
    fuzz_inputs::write_seeds(&checks::CHECKS, &seeds());
}

fn check_of(target: &str) -> FuzzCheck {
    checks::CHECKS.iter().find(|check| check.0 == target).expect("a target").1
}

fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    // An address in its only mapping, which starts at 0x1000.
    let address = 0x1000_u64 + 4096 + 0x10;
    let image = [&address.to_le_bytes()[..], &sample_core::executable_with_frames()].concat();
    let rust = JVM.replace("Java_Shop_pay", "_RINvMNtCs1_4shop5orderNtB2_5Order3payTlB2_EE");
    vec![
        ("core_dump", sample_core::core("token")),
        ("crash_image", image),
        ("crash_notice", crash::parse_crash_text(GO.as_bytes()).expect("a panic").to_bytes()),
        ("crash_text", JVM.as_bytes().to_vec()),
        ("crash_text", rust.into_bytes()),
        ("crash_text", GO.as_bytes().to_vec()),
    ]
}
