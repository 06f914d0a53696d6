//! Inputs that once broke something, and the seeds that fuzzing begins with.

use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hist::codec::frame::{self, SeriesMeta};
use hist::codec::{block, circllhist};
use hist::{Histogram, LogLinear2, Scheme};

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

/// Writes `fuzz/corpus/<target>/`: the golden files of each format, what our own encoders write, and what once
/// broke something. `cargo xtask ci fuzz` calls it before the targets run.
#[test]
#[ignore = "writes fuzz/corpus; called by xtask"]
fn write_seeds() {
    let golden = root().join("testdata/hist");
    for file in files(&golden.join("hdr")) {
        let log = fs::read(&file).unwrap();
        if file.extension().is_some_and(|end| end == "hlog") {
            // The first lines, for a fuzzer finds more in less.
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
    for histograms in topdeck_histograms() {
        let mut bytes = Vec::new();
        frame::encode(&histograms[0], SeriesMeta::default(), &mut bytes);
        write_seed("frame", &bytes);
        bytes.clear();
        block::encode(&histograms, SeriesMeta::default(), &mut bytes).unwrap();
        write_seed("block", &bytes);
    }
    for target in ["accumulator", "statistics"] {
        (1..=16).for_each(|seed| write_seed(target, &noise(seed, 64 * seed as usize)));
    }
    for (target, _) in checks::CHECKS {
        for path in files(&root().join("testdata/fuzz").join(target)) {
            write_seed(target, &fs::read(path).unwrap());
        }
    }
}

/// Named by its content, so that a second call changes nothing.
fn write_seed(target: &str, bytes: &[u8]) {
    let folder = root().join("fuzz/corpus").join(target);
    fs::create_dir_all(&folder).unwrap();
    let name = format!("seed-{:08x}-{}", crc32c::crc32c(bytes), bytes.len());
    fs::write(folder.join(name), bytes).unwrap();
}

/// The cells of a table but those of comments.
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

/// Bytes without a pattern: what `arbitrary` makes most of.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Three histograms of each family, with everything that a histogram can hold.
fn topdeck_histograms() -> Vec<[Histogram; 3]> {
    let grids = [
        Scheme::default(),
        Scheme::log_linear2(7).unwrap(),
        Scheme::LogLinear2(LogLinear2::integers(5).unwrap()),
        Scheme::LogLinear10,
        Scheme::log(0.01).unwrap(),
        Scheme::explicit(&[0.5, 1.0, 10.0, 1000.0]).unwrap(),
    ];
    let plain = grids.iter().map(|grid| Histogram::new(grid.clone()));
    let everything = grids.iter().map(|grid| {
        let empty = Histogram::new(grid.clone()).with_zero_threshold(1e-3).unwrap();
        let mut full = empty.with_thresholds(&[2.0, 500.0]).unwrap();
        for value in [-70.5, -1.0, 0.0, 1e-9, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            full.record(value);
        }
        full
    });
    let filled = |empty: Histogram| {
        [1.0, 7.3, 450.0].map(|scale: f64| {
            let mut histogram = empty.clone();
            (1..60).for_each(|i| histogram.record((scale * f64::from(i * i % 47 + 1)).floor()));
            histogram.record_n(scale, 1000);
            histogram
        })
    };
    plain.chain(everything).map(filled).collect()
}
