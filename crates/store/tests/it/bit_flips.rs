//! Damage: every byte of every file of a small store with a flipped bit, every file truncated, and
//! every file missing. The store opens, and its answers are correct or report a gap.

use std::path::{Path, PathBuf};

use journal::Level;
use sim::NameOrder;
use store::{DAY, HOUR};

use crate::lifecycle::{ExpectedRow, LifecycleStep, StoreHarness, answers_with_gaps, grids};

/// Two days: one rolled up, one not.
fn intact_store() -> (StoreHarness, Vec<ExpectedRow>) {
    use LifecycleStep::*;
    let mut life = StoreHarness::new(9, NameOrder::Journal);
    life.create().unwrap();
    life.open().unwrap();
    let disk = |number| Ingest(number, Level::Disk);
    let day = [disk(0), disk(1), disk(2), disk(3), Now(DAY + HOUR), SetRetention, Maintain];
    life.finish(&day);
    life.finish(&[disk(4), disk(5), Flush, disk(6)]);
    let truth =
        grids()[..2].iter().map(|&grid| answers_with_gaps(life.store(), grid).unwrap()).collect();
    life.end_process();
    (life, truth)
}

/// Files of the store without the journal, which has its own tests of this kind.
fn files(life: &StoreHarness) -> Vec<(PathBuf, u64)> {
    let is_ours =
        |(path, len): &(PathBuf, u64)| !path.to_string_lossy().contains("/journal/") && *len > 0;
    life.disk.files().into_iter().filter(is_ours).collect()
}

/// Compares an answer with the expected one. Returns the number of differing columns by series.
#[track_caller]
fn compare(life: &StoreHarness, truth: &[ExpectedRow], what: &str) -> (usize, usize) {
    let (mut differ, mut series) = (0, 0);
    for (grid, truth) in grids().into_iter().zip(truth) {
        let found =
            answers_with_gaps(life.store(), grid).unwrap_or_else(|error| panic!("{what}: {error}"));
        let mut here = 0;
        for (name, (found, truth)) in ["a", "b", "requests"].iter().zip(found.iter().zip(truth)) {
            let before = differ;
            // An increase missing in one column appears in the next column with a sample.
            let mut is_told_before = false;
            for (at, ((value, gaps), (expected, _))) in found.iter().zip(truth).enumerate() {
                let is_told = !gaps.is_empty() || (is_told_before && *name == "requests");
                if value != expected {
                    assert!(is_told, "{what}: {name}, column {at}: {value:?}, not {expected:?}");
                    differ += 1;
                }
                is_told_before = !gaps.is_empty() || (is_told_before && value.0 == 0);
            }
            here += usize::from(differ > before);
        }
        series = series.max(here);
    }
    (differ, series)
}

/// Opens a damaged store and compares it with the expected answers; `goes_on`: also after further
/// ingest and maintenance.
#[track_caller]
fn check(
    life: &mut StoreHarness,
    truth: &[ExpectedRow],
    what: &str,
    goes_on: bool,
) -> (usize, usize) {
    life.open().unwrap_or_else(|stop| panic!("{what}: {stop:?}"));
    let found = compare(life, truth, what);
    if goes_on {
        let maintained = |life: &mut StoreHarness| {
            life.now.store(3 * DAY, std::sync::atomic::Ordering::Relaxed);
            life.store().maintain()
        };
        life.step(LifecycleStep::Flush).unwrap_or_else(|stop| panic!("{what}: {stop:?}"));
        match maintained(life) {
            Ok(_) => {}
            // The error names the file.
            Err(error) => assert!(
                what.contains("missing") && error.to_string().contains(".part"),
                "{what}: {error}"
            ),
        }
        compare(life, truth, &format!("{what}, maintained"));
        life.open().unwrap_or_else(|stop| panic!("{what}, again: {stop:?}"));
        compare(life, truth, &format!("{what}, again"));
    }
    found
}

/// Verification names the file; for the small files, it reports an error.
#[track_caller]
fn check_verify(life: &StoreHarness, path: &Path, what: &str) {
    let damage = life.store().verify(None, &mut |_| ()).unwrap().damage;
    let is_part = path.extension().is_some_and(|extension| extension == "part");
    let names = damage.iter().any(|damage| !is_part || path.ends_with(&damage.file));
    assert!(names, "{what}: {damage:?}");
}

fn flips(step: u64) {
    let (life, truth) = intact_store();
    let (mut flips, mut told, mut bytes) = (0, 0, 0);
    let files = files(&life);
    for (path, len) in &files {
        bytes += len;
        for at in (0..*len).step_by(step as usize) {
            let mut life = life.fork(1);
            life.disk.flip_bit(path, at, (at % 8) as u32);
            let what = format!("{} byte {at}", path.display());
            let (differ, series) = check(&mut life, &truth, &what, at % 16 == 5);
            assert!(series <= 1, "{what}: {series} series differ");
            if at % 8 == 1 {
                check_verify(&life, path, &what);
            }
            flips += 1;
            told += u32::from(differ > 0);
        }
    }
    println!("{flips} flips of {bytes} bytes in {} files, {told} showed", files.len());
    assert!(told > 100);
}

// slow: opens and reads a store for each byte of its files.
#[test]
fn a_flipped_bit_of_any_byte_is_found_or_harmless() {
    flips(1);
}

#[test]
fn truncated_or_missing_file_is_reported() {
    let (life, truth) = intact_store();
    let (mut cuts, mut told) = (0, 0);
    for (path, len) in files(&life) {
        for at in (0..len).step_by(64) {
            let mut life = life.fork(1);
            life.disk.truncate(&path, at);
            let what = format!("{} cut to {at}", path.display());
            told += u32::from(check(&mut life, &truth, &what, true).0 > 0);
            cuts += 1;
        }
        let mut life = life.fork(1);
        disk::Disk::remove(&life.disk.process(), &path).unwrap();
        let what = format!("{} missing", path.display());
        let differ = check(&mut life, &truth, &what, true).0;
        let is_part = path.extension().is_some_and(|extension| extension == "part");
        // Files with two copies lose nothing; a base part that rollups cover is not read either.
        assert!(differ == 0 || is_part, "{what}");
    }
    println!("{cuts} cuts, {told} showed");
    assert!(told > 20);
}

/// A crash leaves one copy of the manifest older than the other; after the next start the newer one
/// is damaged.
#[test]
fn older_manifest_copy_is_rewritten_first() {
    let (life, truth) = intact_store();
    let copy = Path::new(crate::lifecycle::DIR).join("manifest.copy");
    let manifest = copy.with_file_name("manifest");
    let old = life.disk.contents(&copy).unwrap();
    let mut life = life.fork(2);
    life.open().unwrap();
    life.now.store(3 * DAY, std::sync::atomic::Ordering::Relaxed);
    assert!(life.store().maintain().unwrap());
    life.end_process();
    life.disk.overwrite(&copy, 0, &old);
    life.disk.truncate(&copy, old.len() as u64);
    life.open().unwrap();
    compare(&life, &truth, "an older copy");
    assert!(!life.store().stat().unwrap().warnings.is_empty());
    life.end_process();
    life.disk.flip_bit(&manifest, 3, 3);
    life.open().unwrap();
    assert_eq!(compare(&life, &truth, "and the newer one damaged"), (0, 0));
    assert_eq!(life.store().stat().unwrap().gaps, []);
}
