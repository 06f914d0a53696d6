//! Inputs that once failed, and a short run of the fuzz targets' checks on arbitrary bytes.

use proptest::prelude::*;

use crate::checks;
use crate::fuzz_inputs;

/// `testdata/fuzz/<target>/<failure>`.
#[test]
fn past_fuzz_failures_pass() {
    fuzz_inputs::check_past_findings(&checks::CHECKS);
}

proptest! {
    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        for (_, check) in checks::CHECKS {
            check(&bytes);
        }
    }
}
