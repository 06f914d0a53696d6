//! Inputs that once failed, and a short run of the fuzz targets' checks on arbitrary bytes.

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;

use crate::checks;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// `testdata/fuzz/<target>/<failure>`.
#[test]
fn past_fuzz_failures_pass() {
    for (target, check) in checks::CHECKS {
        let Ok(entries) = fs::read_dir(root().join("testdata/fuzz").join(target)) else { continue };
        for entry in entries {
            let path = entry.unwrap().path();
            println!("{}", path.display());
            check(&fs::read(path).unwrap());
        }
    }
}

proptest! {
    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        for (_, check) in checks::CHECKS {
            check(&bytes);
        }
    }
}
