//! `topdeck import --format prometheus-tsdb` with the data directory of `testdata/tsdb`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::environment::wait_until;
use crate::root;
use crate::serve::server_process::ServerProcess;
use crate::store::{json, run, run_ok};
use crate::test_dir::TestDir;

const BLOCK: &str = "01M8B3BM01WYEZXXDB776C5B25";
/// Name of a second block, before the first.
const OTHER: &str = "01M8B3BM01WYEZXXDB776C5B24";

/// Directory with the data directory `p`.
fn directory() -> TestDir {
    let directory = TestDir::new();
    copy(&root().join("testdata/tsdb/data"), &directory.path().join("p"));
    directory
}

fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-r").args([from, to]).status().unwrap().success());
}

/// Copies the block under another name, and returns its directory.
fn add_block(directory: &TestDir) -> PathBuf {
    let (from, to) =
        (directory.path().join("p").join(BLOCK), directory.path().join("p").join(OTHER));
    copy(&from, &to);
    let meta = fs::read_to_string(to.join("meta.json")).unwrap();
    fs::write(to.join("meta.json"), meta.replace(BLOCK, OTHER)).unwrap();
    to
}

const IMPORT: &str = "import s --create --format prometheus-tsdb p";

#[test]
fn blocks_of_prometheus_are_imported_once() {
    let directory = directory();
    let first = run_ok(&directory, IMPORT);
    assert!(first.starts_with(&format!("p/{BLOCK}: 150 histograms with ")), "{first}");
    assert!(
        first
            .contains("values, 449 samples of cumulative histograms, 1,225 numbers in 15 series, "),
        "{first}"
    );
    assert!(first.ends_with("to 2024-01-01 00:37:15.001Z\n"), "{first}");
    let again = run_ok(&directory, IMPORT);
    assert_eq!(again, format!("p/{BLOCK}: already in the store; nothing is counted twice\n"));
    let other = run_ok(&directory, &format!("{IMPORT} --label site=north --json"));
    let document = json(&other);
    assert_eq!(document["files"][0]["format"], "prometheus-tsdb");
    assert_eq!(document["files"][0]["duplicate_batches"], 0);
}

/// The expected values are those of the Prometheus that wrote the block.
#[test]
fn queries_of_an_imported_block_answer_as_prometheus_did() {
    let directory = directory();
    let mut server = ServerProcess::new("serve", "");
    server.start();
    let import = format!("import --server http://{} --format prometheus-tsdb p", server.address());
    assert!(run_ok(&directory, &import).contains("150 histograms"));
    assert!(run_ok(&directory, &import).contains("already in the store"));
    check_answers(&server, "answers.json", 1_704_069_445, &[]);
}

/// Compares the samples of 6 h with the answers of Prometheus in a file of `testdata/tsdb`.
#[track_caller]
fn check_answers(server: &ServerProcess, answers: &str, time: u64, missing: &[&str]) {
    let ask = |expression: &str| {
        let query: String = expression.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let answer = server.get(&format!("/api/v1/query?query={query}&time={time}")).json();
        answer["data"]["result"].clone()
    };
    let answers = fs::read_to_string(root().join("testdata/tsdb").join(answers)).unwrap();
    let answers: Value = serde_json::from_str(&answers).unwrap();
    for answer in answers.as_array().unwrap() {
        let labels = answer["metric"].as_object().unwrap();
        if missing.contains(&labels["__name__"].as_str().unwrap()) {
            continue;
        }
        let conditions: Vec<String> =
            labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let expression = format!("{{{}}}[6h]", conditions.join(","));
        wait_until("the import can be queried", || {
            ask(&expression).as_array().is_some_and(|found| !found.is_empty())
        });
        let found = ask(&expression);
        assert_eq!(found.as_array().unwrap().len(), 1, "{expression}: {found}");
        assert_eq!(found[0]["metric"], answer["metric"]);
        assert_eq!(numbers(&found[0]["values"]), numbers(&answer["values"]), "{expression}");
        let histograms = found[0]["histograms"].as_array().map_or(&[][..], Vec::as_slice);
        let count = answer["histogram_count"].as_u64().unwrap_or(0);
        assert_eq!(histograms.len() as u64, count, "{expression}");
        for expected in answer["histograms"].as_array().into_iter().flatten() {
            let found = histograms.iter().find(|found| found[0] == expected[0]);
            let found = found.unwrap_or_else(|| panic!("{expression}: no sample {expected}"));
            assert_eq!(found[1]["count"], expected[1]["count"], "{expression}: {expected}");
            assert_eq!(found[1]["sum"], expected[1]["sum"], "{expression}: {expected}");
            assert_eq!(counts(found), counts(expected), "{expression}: {found}, not {expected}");
        }
    }
}

/// Counts of the buckets of a histogram, in order.
fn counts(histogram: &Value) -> Vec<&Value> {
    histogram[1]["buckets"].as_array().unwrap().iter().map(|bucket| &bucket[3]).collect()
}

/// Timestamps in milliseconds and the bits of the values; NaN is one value.
fn numbers(pairs: &Value) -> Vec<(i64, u64)> {
    let parse = |pair: &Value| {
        let value: f64 = pair[1].as_str().unwrap().parse().unwrap();
        let value = if value.is_nan() { f64::NAN } else { value };
        ((pair[0].as_f64().unwrap() * 1e3).round() as i64, value.to_bits())
    };
    pairs.as_array().map_or(&[][..], Vec::as_slice).iter().map(parse).collect()
}

/// Blocks of samples that arrived late, and of the same samples again. The expected values are
/// those of a Prometheus with these blocks.
#[test]
fn overlapping_blocks_of_late_samples_are_counted_once() {
    let directory = TestDir::new();
    copy(&root().join("testdata/tsdb/overlap"), &directory.path().join("p"));
    let mut server = ServerProcess::new("serve", "");
    server.start();
    let import = format!("import --server http://{} --format prometheus-tsdb p", server.address());
    let first = run(&directory, &import);
    assert_eq!(first.status, 0, "{}", first.stderr);
    let blocks = first.stdout.lines().filter(|line| line.starts_with("p/")).count();
    assert_eq!(blocks, 4, "{}", first.stdout);
    assert!(first.stdout.contains("  skipped: 9 rejected samples\n"), "{}", first.stdout);
    // What is left out is said.
    assert!(first.stderr.contains("\"fractional_seconds\": "), "{}", first.stderr);
    assert!(first.stderr.contains("samples cannot be stored; importing the others"));
    check_answers(&server, "overlap.json", 1_704_085_260, &["fractional_seconds"]);
    // Prometheus compacted the blocks to others with the same samples.
    for (at, name) in fs::read_dir(directory.path().join("p")).unwrap().enumerate() {
        let dir = name.unwrap().path();
        let id = dir.file_name().unwrap().to_str().unwrap();
        let meta = fs::read_to_string(dir.join("meta.json")).unwrap();
        fs::write(dir.join("meta.json"), meta.replace(id, &format!("{}{}", at + 1, &id[1..])))
            .unwrap();
    }
    let again = run(&directory, &import);
    assert!(!again.stdout.contains("already in the store"), "{}", again.stdout);
    check_answers(&server, "overlap.json", 1_704_085_260, &["fractional_seconds"]);
}

#[test]
fn damaged_block_names_file_and_offset_and_others_are_imported() {
    let directory = directory();
    let block = add_block(&directory);
    let mut chunks = fs::read(block.join("chunks/000001")).unwrap();
    chunks[5000] ^= 1;
    fs::write(block.join("chunks/000001"), &chunks).unwrap();
    let damaged = run(&directory, IMPORT);
    assert_eq!(damaged.status, 1);
    let place = format!("p/{OTHER}/chunks/000001: byte ");
    assert!(damaged.stderr.contains(&place), "{}", damaged.stderr);
    assert!(damaged.stderr.contains("expected bytes that match their checksum"));
    assert!(damaged.stderr.contains("nothing of this block is imported"), "{}", damaged.stderr);
    assert!(damaged.stdout.starts_with(&format!("p/{BLOCK}: 150 histograms")));
    // Its intact chunks, on request.
    let partly = run(&directory, &format!("{IMPORT} --keep-going"));
    assert_eq!(partly.status, 1);
    assert!(partly.stdout.contains(&format!("p/{OTHER}: ")), "{}", partly.stdout);
    assert!(partly.stdout.contains("in 15 series") || partly.stdout.contains("in 14 series"));
}

/// A series whose checksum does not match is left out; what follows is imported on request.
#[test]
fn damaged_series_of_an_index_is_named_and_the_others_are_imported() {
    let directory = directory();
    let path = add_block(&directory).join("index");
    let mut index = fs::read(&path).unwrap();
    let series = u64::from_be_bytes(index[index.len() - 44..][..8].try_into().unwrap());
    let start = (series as usize).next_multiple_of(16);
    // Length (a byte), content, checksum.
    let end = start + 1 + usize::from(index[start]) + 4;
    assert!(index[start] < 0x80, "a length of one byte");
    index[start + 5] ^= 1;
    fs::write(&path, &index).unwrap();
    let damaged = run(&directory, &format!("{IMPORT} --keep-going"));
    assert_eq!(damaged.status, 1);
    let index = format!("p/{OTHER}/index");
    assert!(damaged.stderr.contains(&format!("{index}: byte ")), "{}", damaged.stderr);
    let counts = format!("{index}: found 13 series, expected 14 (meta.json)");
    assert!(damaged.stderr.contains(&counts), "{}", damaged.stderr);
    assert!(damaged.stdout.contains(&format!("p/{OTHER}: ")), "{}", damaged.stdout);
    // Zeros look like padding between series.
    let mut zeros = fs::read(&path).unwrap();
    zeros[start..end].fill(0);
    fs::write(&path, &zeros).unwrap();
    let emptied = run(&directory, IMPORT);
    assert_eq!(emptied.status, 1, "{}", emptied.stdout);
    assert!(emptied.stderr.contains(&counts), "{}", emptied.stderr);
    assert!(emptied.stderr.contains("nothing of this block is imported"), "{}", emptied.stderr);
}

#[test]
fn truncated_files_of_a_block_are_errors_that_name_them() {
    for (file, length) in [("index", 700), ("chunks/000001", 3000), ("chunks/000001", 5)] {
        let directory = directory();
        let path = add_block(&directory).join(file);
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..length]).unwrap();
        let run = run(&directory, IMPORT);
        assert_eq!(run.status, 1, "{file}");
        assert!(run.stderr.contains(&format!("p/{OTHER}/{file}: byte ")), "{}", run.stderr);
        assert!(run.stdout.contains(&format!("p/{BLOCK}: 150 histograms")), "{}", run.stdout);
    }
    let directory = directory();
    fs::remove_file(add_block(&directory).join("chunks/000001")).unwrap();
    let run = run(&directory, IMPORT);
    assert!(run.stderr.contains("chunks/000001: the file is missing"), "{}", run.stderr);
}

#[test]
fn write_ahead_log_is_said_to_be_left_out() {
    let directory = directory();
    fs::create_dir(directory.path().join("p/wal")).unwrap();
    fs::write(directory.path().join("p/wal/00000000"), "").unwrap();
    let run = run(&directory, IMPORT);
    assert_eq!(run.status, 0, "{}", run.stderr);
    assert!(run.stderr.contains("p: the write-ahead log is not read"), "{}", run.stderr);
}

#[test]
fn directory_without_blocks_is_an_error() {
    let directory = TestDir::new();
    fs::create_dir(directory.path().join("p")).unwrap();
    let empty = run(&directory, IMPORT);
    assert_eq!(empty.status, 1);
    assert!(empty.stderr.contains("cannot import p: it has no blocks"), "{}", empty.stderr);
    let default = run(&directory, &format!("{IMPORT} --metric latency"));
    assert_eq!(default.status, 2, "{}", default.stderr);
}
