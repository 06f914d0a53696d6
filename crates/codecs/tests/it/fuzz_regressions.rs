//! Past fuzz findings, and the seeds of the fuzz corpus.

use std::fs;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use codecs::circllhist;

use crate::checks;
use crate::fuzz_inputs::{self, files, root};

/// `testdata/fuzz/<target>/<what went wrong>`: the fuzz targets' checks on each.
#[test]
fn past_fuzz_failures_pass() {
    fuzz_inputs::check_past_findings(&checks::CHECKS);
}

/// Writes `fuzz/corpus/<target>/`: the golden files of each format, and past findings.
/// `cargo xtask ci fuzz` calls it before the targets run.
#[test]
#[ignore = "writes fuzz/corpus; called by xtask"]
fn write_seeds() {
    let mut seeds = Vec::new();
    let mut write_seed = |target, bytes: &[u8]| seeds.push((target, bytes.to_vec()));
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
    fuzz_inputs::write_seeds(&checks::CHECKS, &seeds);
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
