//! The same input makes the same bytes, and another input others.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::package_fixture::PackageFixture;

fn contents(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let file = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.unwrap();
        (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())
    };
    fs::read_dir(dir).unwrap().map(file).collect()
}

#[test]
fn two_runs_make_the_same_bytes() {
    let fixture = PackageFixture::new();
    let dir = fixture.dir.join("packages");
    fixture.make("umask 022; export TZ=UTC LANG=C", &[]);
    let first = contents(&dir);
    assert!(first.len() >= 3, "{:?}", first.keys());
    // Other times and modes of the inputs, another umask, time zone and language.
    let program = fixture.dir.join("x86_64-unknown-linux-musl/topdeck");
    fs::write(&program, fs::read(&program).unwrap()).unwrap();
    fixture.make("umask 077; export TZ=Pacific/Auckland LC_ALL=de_DE.UTF-8", &[]);
    let second = contents(&dir);
    assert!(first.keys().eq(second.keys()));
    for (name, bytes) in &first {
        assert!(second[name] == *bytes, "{name} differs");
    }
    fs::write(&program, "other").unwrap();
    fixture.make("umask 077", &[]);
    let third = contents(&dir);
    let differs = |name: &&String| first[*name] != third[*name];
    let changed: Vec<&String> = first.keys().filter(differs).collect();
    let is_expected = |name: &&String| !name.contains("aarch64") && !name.contains("arm64");
    assert!(changed.contains(&&"SHA256SUMS".to_owned()), "{changed:?}");
    assert!(changed.len() >= 2 && changed.iter().all(is_expected), "{changed:?}");
}

#[test]
fn a_directory_with_other_files_is_not_emptied() {
    let fixture = PackageFixture::new();
    let out = fixture.dir.join("man");
    let output = fixture.try_make("umask 022", &["--out", out.to_str().unwrap()]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && stderr.contains("has no SHA256SUMS"), "{stderr}");
    assert!(out.join("topdeck.1").exists());
}

#[test]
fn a_missing_binary_is_named() {
    let fixture = PackageFixture::new();
    for target in ["x86_64", "aarch64"] {
        fs::remove_dir_all(fixture.dir.join(format!("{target}-unknown-linux-musl"))).unwrap();
    }
    let output = fixture.try_make("umask 022", &[]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("has no binary of any target; run `cargo xtask dist`"), "{stderr}");
}
