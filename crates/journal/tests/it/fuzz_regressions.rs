//! Inputs that once failed, the seeds of fuzzing, and a short run of the fuzz targets' checks on
//! random bytes.

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
    let corpus = root().join("fuzz/corpus");
    let segment =
        fs::read(root().join("testdata/journal/v1-none/segments/0000000000000000.seg")).unwrap();
    // The first frame's body follows the headers of segment and frame.
    let body = &segment[64 + 56..];
    for (target, name, bytes) in [
        ("journal_parts", "body", [&[0], &body[..2000]].concat()),
        ("journal_parts", "gaps", [&[1][..], b"tdJgaps1", &[1, 0, 0, 0]].concat()),
        ("journal_files", "flips", (0..100).collect()),
    ] {
        let folder = corpus.join(target);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(name), bytes).unwrap();
    }
}
