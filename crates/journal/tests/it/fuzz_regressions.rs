//! Inputs that once failed, the seeds of fuzzing, and a short run of the fuzz targets' checks on
//! random bytes.

use std::fs;

use proptest::prelude::*;

use crate::checks;
use crate::fuzz_inputs::{self, root};

/// `testdata/fuzz/<target>/<failure>`.
#[test]
fn past_fuzz_failures_pass() {
    fuzz_inputs::check_past_findings(&checks::CHECKS);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_edits_of_the_files(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        (checks::CHECKS[1].1)(&bytes);
    }

    #[test]
    fn any_bytes_for_the_parsers(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        (checks::CHECKS[0].1)(&bytes);
    }
}

/// Run by the fuzz part: without seeds a fuzzer spends its minute on magic numbers.
#[test]
#[ignore = "writes fuzz/corpus/, for the fuzz part alone"]
fn write_seeds() {
    let segment =
        fs::read(root().join("testdata/journal/v1-none/segments/0000000000000000.seg")).unwrap();
    // The first frame's body follows the headers of segment and frame.
    let body = &segment[64 + 56..];
    let seeds = [
        ("journal_parts", [&[0], &body[..2000]].concat()),
        ("journal_parts", [&[1][..], b"tdJgaps1", &[1, 0, 0, 0]].concat()),
        ("journal_files", (0..100).collect()),
    ];
    fuzz_inputs::write_seeds(&checks::CHECKS, &seeds);
}
