//! Past fuzz findings, and the seeds of the fuzz corpus.

use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use codecs::circllhist;

use crate::checks;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// `testdata/fuzz/<target>/<what went wrong>`: the fuzz targets' checks on each.
#[test]
fn past_fuzz_failures_pass() {
    for (target, check) in checks::CHECKS {
        for path in files(&root().join("testdata/fuzz").join(target)) {
            println!("{}", path.display());
            check(&fs::read(path).unwrap());
        }
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// Writes `fuzz/corpus/<target>/`: the golden files of each format, and past findings.
/// `cargo xtask ci fuzz` calls it before the targets run.
#[test]
#[ignore = "writes fuzz/corpus; called by xtask"]
fn write_seeds() {
    let golden = root().join("testdata/hist");
    for file in files(&golden.join("hdr")) {
        let log = fs::read(&file).unwrap();
        if file.extension().is_some_and(|end| end == "hlog") {
            // Only the first lines: a fuzzer is faster with small inputs.
            let lines: Vec<&[u8]> = log.split_inclusive(|&byte| byte == b'\n').take(9).collect();
            write_seed("hlog", &lines.concat());
            lines.iter().for_each(|line| write_seed("hlog", line));
        }
    }
    for cell in cells(&golden.join("hdr/java.tsv")) {
        if let Ok(bytes) = STANDARD.decode(&cell)
            && bytes.len() > 20
        {
            write_seed("hdr", &bytes);
            write_seed("hdr", cell.as_bytes());
        }
    }
    for cell in cells(&golden.join("circllhist/golden.tsv")) {
        if let Ok(histogram) = circllhist::decode_base64(&cell) {
            write_seed("circllhist", &circllhist::encode(&histogram).unwrap());
            write_seed("circllhist", cell.as_bytes());
            let text = circllhist::encode_text(&histogram).unwrap();
            write_seed("circllhist", text[..text.len().min(8)].join("\n").as_bytes());
        }
    }
    for (target, file) in [
        ("otlp", "otlp/points.tsv"),
        ("prometheus", "prometheus/messages.tsv"),
        ("ddsketch", "ddsketch/go.tsv"),
        ("ddsketch", "ddsketch/java.tsv"),
    ] {
        let messages = cells(&golden.join(file));
        messages.iter().filter_map(|cell| from_hex(cell)).for_each(|m| write_seed(target, &m));
    }
    for (target, _) in checks::CHECKS {
        for path in files(&root().join("testdata/fuzz").join(target)) {
            write_seed(target, &fs::read(path).unwrap());
        }
    }
}

/// Named by its content, so that repeated calls change nothing.
fn write_seed(target: &str, bytes: &[u8]) {
    let folder = root().join("fuzz/corpus").join(target);
    fs::create_dir_all(&folder).unwrap();
    let name = format!("seed-{:08x}-{}", crc32c::crc32c(bytes), bytes.len());
    fs::write(folder.join(name), bytes).unwrap();
}

/// The cells of a table, without comments.
fn cells(table: &Path) -> Vec<String> {
    let table = fs::read_to_string(table).unwrap();
    let rows = table.lines().filter(|line| !line.starts_with('#'));
    rows.flat_map(|row| row.split('\t')).map(str::to_owned).collect()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks_exact(2);
    let whole = text.len() >= 6 && pairs.remainder().is_empty();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    pairs.map(byte).collect::<Option<Vec<u8>>>().filter(|_| whole)
}
