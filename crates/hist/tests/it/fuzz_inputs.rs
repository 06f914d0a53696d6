//! Inputs of the fuzz targets: past findings in `testdata/fuzz/`, seeds in `fuzz/corpus/`. Included
//! by the tests of other crates.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

/// A fuzz target and its check.
type TargetCheck = (&'static str, fn(&[u8]));

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Paths in a directory, sorted; none if it does not exist.
pub(crate) fn files(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

fn past_findings(target: &str) -> Vec<PathBuf> {
    files(&root().join("testdata/fuzz").join(target))
}

/// Runs the check of each target on its past findings, `testdata/fuzz/<target>/<failure>`.
pub(crate) fn check_past_findings(targets: &[TargetCheck]) {
    for (target, check) in targets {
        for path in past_findings(target) {
            println!("{}", path.display());
            check(&fs::read(path).unwrap());
        }
    }
}

/// Writes seeds and past findings to `fuzz/corpus/<target>/`: without seeds a fuzzer spends its
/// minute on magic numbers. A file is named by its content, so that repeated calls change nothing.
pub(crate) fn write_seeds(targets: &[TargetCheck], seeds: &[(&str, Vec<u8>)]) {
    let findings = targets.iter().flat_map(|(target, _)| {
        past_findings(target).into_iter().map(|path| (*target, fs::read(path).unwrap()))
    });
    for (target, seed) in findings.chain(seeds.iter().cloned()) {
        let directory = root().join("fuzz/corpus").join(target);
        fs::create_dir_all(&directory).unwrap();
        let mut hasher = DefaultHasher::new();
        seed.hash(&mut hasher);
        fs::write(directory.join(format!("seed-{:016x}", hasher.finish())), seed).unwrap();
    }
}
