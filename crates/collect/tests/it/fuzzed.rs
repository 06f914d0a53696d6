//! Inputs that once broke something, and the seeds that fuzzing begins with.

use std::fs;
use std::path::{Path, PathBuf};

use crate::checks;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// `testdata/fuzz/<target>/<what went wrong>`: the fuzz targets' checks on each.
#[test]
fn what_once_broke_something_no_longer_does() {
    for (target, check) in checks::CHECKS {
        for path in files(&root().join("testdata/fuzz").join(target)) {
            println!("{}", path.display());
            check(&fs::read(path).unwrap());
        }
    }
}

/// Each source reads each other's golden files without a panic.
#[test]
fn golden_files_pass_every_source() {
    for seed in seeds() {
        checks::CHECKS.iter().for_each(|(_, check)| check(&seed));
    }
}

#[test]
fn every_check_is_a_target() {
    let manifest = fs::read_to_string(root().join("fuzz/Cargo.toml")).unwrap();
    for (target, _) in checks::CHECKS {
        assert!(manifest.contains(&format!("[[bin]]\nname = \"{target}\"\n")), "{target}");
    }
}

/// Writes `fuzz/corpus/<target>/`: the beginnings of golden files, their first lines, and what once broke
/// something. `cargo xtask ci fuzz` calls it before the targets run.
#[test]
#[ignore = "writes fuzz/corpus; called by xtask"]
fn write_seeds() {
    for (target, _) in checks::CHECKS {
        let folder = root().join("fuzz/corpus").join(target);
        fs::create_dir_all(&folder).unwrap();
        for (number, seed) in seeds().iter().enumerate() {
            fs::write(folder.join(format!("seed-{number:03}")), seed).unwrap();
        }
        for path in files(&root().join("testdata/fuzz").join(target)) {
            fs::copy(&path, folder.join(path.file_name().unwrap())).unwrap();
        }
    }
}

/// What a fuzzer does not find by itself: the first lines of every format.
fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for folder in ["cli", "hist/hdr", "hist/circllhist"] {
        for path in files(&root().join("testdata").join(folder)) {
            let ends = ["txt", "prom", "json", "hlog", "tsv"];
            if path.extension().is_some_and(|end| ends.iter().any(|known| end == *known)) {
                let bytes = fs::read(path).unwrap();
                let lines: Vec<&[u8]> = bytes.split_inclusive(|&byte| byte == b'\n').collect();
                seeds.extend([1, 12].map(|count| lines[..lines.len().min(count)].concat()));
            }
        }
    }
    for path in files(&root().join("testdata/collect/prometheus")) {
        if path.extension().is_some_and(|end| end == "snappy" || end == "pb") {
            seeds.push(fs::read(path).unwrap());
        }
    }
    seeds.retain(|seed| seed.len() <= 1 << 14);
    seeds.sort();
    seeds.dedup();
    seeds
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}
