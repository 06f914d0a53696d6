//! Inputs that once broke something, the seeds that fuzzing begins with, and a short run of the fuzz targets' checks on
//! arbitrary bytes.

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use shm::table::{BUFFER_FIELDS, FIRST_BUFFER, HEADER_FIELDS, MAGIC, ROW_BYTES, Table, VERSION};

use crate::checks;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// `testdata/fuzz/<target>/<what went wrong>`.
#[test]
fn what_once_broke_something_no_longer_does() {
    for (target, check) in checks::CHECKS {
        let Ok(entries) = fs::read_dir(root().join("testdata/fuzz").join(target)) else { continue };
        for entry in entries {
            let path = entry.unwrap().path();
            println!("{}", path.display());
            check(&fs::read(path).unwrap());
        }
    }
}

#[test]
fn every_check_is_a_target() {
    let manifest = fs::read_to_string(root().join("fuzz/Cargo.toml")).unwrap();
    for (target, _) in checks::CHECKS {
        assert!(manifest.contains(&format!("[[bin]]\nname = \"{target}\"\n")), "{target}");
    }
}

/// A table of two rows, put together by the tables of the layout: not by the writer, which needs a tmpfs.
pub(crate) fn two_rows() -> Vec<u8> {
    const CAPACITY: usize = 512;
    let mut bytes = vec![0; FIRST_BUFFER as usize + 2 * CAPACITY];
    let base = FIRST_BUFFER as usize + CAPACITY;
    let mut put = |fields: &[shm::table::Field], base: usize, name: &str, value: u64| {
        let (_, offset, size) = fields.iter().find(|field| field.0 == name).unwrap();
        bytes[base + offset..][..*size].copy_from_slice(&value.to_le_bytes()[..*size]);
    };
    put(&HEADER_FIELDS, 0, "magic", u64::from_le_bytes(MAGIC));
    for (name, value) in [
        ("version", VERSION.into()),
        ("row_bytes", ROW_BYTES as u64),
        ("capacity", CAPACITY as u64),
        ("generation", 1),
        ("ticks_per_second", 100),
    ] {
        put(&HEADER_FIELDS, 0, name, value);
    }
    for (name, value) in [("before", 1), ("after", 1), ("how", 1), ("count", 2)] {
        put(&BUFFER_FIELDS, base, name, value);
    }
    bytes
}

/// Writes `fuzz/corpus/<target>/`. `cargo xtask ci fuzz` calls it before the targets run.
#[test]
#[ignore = "writes fuzz/corpus; called by xtask"]
fn write_seeds() {
    for (target, _) in checks::CHECKS {
        let folder = root().join("fuzz/corpus").join(target);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("two-rows"), two_rows()).unwrap();
    }
}

#[test]
fn the_seed_is_a_table() {
    assert_eq!(Table::parse(&two_rows()).unwrap().processes.len(), 2);
}

proptest! {
    #[test]
    fn changed_tables_pass_the_checks(changes in prop::collection::vec((0usize..5_120, any::<u8>()), 0..6)) {
        let mut bytes = two_rows();
        for (at, byte) in changes {
            bytes[at] = byte;
        }
        checks::CHECKS.iter().for_each(|(_, check)| check(&bytes));
    }
}
