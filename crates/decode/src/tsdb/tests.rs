//! Blocks that Prometheus wrote have the samples that Prometheus answers; damage is reported with
//! its offset.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use model::{Sample, SampleValue, Series};
use serde_json::Value;

use super::*;
use crate::series_sink::VecSeriesSink;

const PAGE: &str = include_str!("../../../../docs/formats/prometheus-tsdb.md");

fn testdata() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/tsdb")
}

/// Files of a block.
#[derive(Clone)]
struct TestBlock {
    index: Vec<u8>,
    chunks: Vec<u8>,
    tombstones: Vec<u8>,
}

/// Rows of blocks, and reasons why others are none.
#[derive(Default)]
struct TestRows {
    rows: Vec<(Series, Sample)>,
    errors: Vec<String>,
}

/// Blocks of a data directory.
fn blocks(dir: &str) -> Vec<TestBlock> {
    let dirs = fs::read_dir(testdata().join(dir)).unwrap();
    let block = |dir: PathBuf| {
        let read = |name: &str| fs::read(dir.join(name)).unwrap();
        let (index, chunks) = (read("index"), read("chunks/000001"));
        TestBlock { index, chunks, tombstones: read("tombstones") }
    };
    dirs.map(|entry| block(entry.unwrap().path())).collect()
}

fn block() -> TestBlock {
    blocks("data").pop().unwrap()
}

impl TestBlock {
    /// Rows of the block; the first error ends it.
    fn read(&self) -> Result<TestRows, InputError> {
        let tombstones = Tombstones::parse(&self.tombstones)?;
        check_segment_header(&self.chunks)?;
        let (mut rows, index) = (VecSeriesSink::default(), &self.index);
        let mut writer = BlockRowWriter::new(&mut rows, &[]);
        let contents = index.len().saturating_sub(INDEX_CONTENTS_BYTES);
        let sections = IndexSections::parse(index, &index[contents..], index.len() as u64)?;
        let (start, end) = sections.symbols;
        let symbols = SymbolTable::parse(index[start as usize..end as usize].to_vec(), start)?;
        let (mut next, end) = sections.series;
        while next < end {
            let bytes = &index[next as usize..end as usize];
            let size = series_size(bytes, next)?;
            if size > 0 {
                let series = IndexSeries::parse(bytes, next, &symbols)?;
                let deleted = tombstones.of_series(series.reference);
                for chunk in &series.chunks {
                    assert_eq!(chunk.segment, 0);
                    let (offset, bytes) = (chunk.offset.into(), chunk.offset as usize..);
                    let bytes = &self.chunks[bytes];
                    let size = chunk_size(bytes, offset)?;
                    let bytes = bytes.get(..size).unwrap_or(bytes);
                    let chunk = BlockChunk::parse(bytes, offset)?;
                    writer.write_chunk(&series, &chunk, &deleted)?;
                }
            }
            next = (next + size.max(1) as u64).next_multiple_of(SERIES_ALIGNMENT);
        }
        let errors = writer.summary().errors.clone();
        Ok(TestRows { rows: rows.rows, errors })
    }
}

/// Rows by name and labels and by time; staleness markers are no samples to a query.
fn rows_by_labels(rows: Vec<(Series, Sample)>) -> BTreeMap<String, Vec<Sample>> {
    let mut all: BTreeMap<String, Vec<Sample>> = BTreeMap::new();
    for (series, sample) in rows {
        let labels = series.labels().iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let labels: BTreeMap<&str, &str> = labels.chain([("__name__", series.name())]).collect();
        let is_stale = matches!(sample.value, SampleValue::Number(number)
            if number.to_bits() == codecs::prometheus::STALE_MARKER);
        if !is_stale {
            all.entry(serde_json::to_string(&labels).unwrap()).or_default().push(sample);
        }
    }
    all.values_mut().for_each(|samples| samples.sort_by_key(|sample| sample.end));
    all
}

fn millis(seconds: &Value) -> i64 {
    (seconds.as_f64().unwrap() * 1e3).round() as i64
}

fn number(text: &Value) -> f64 {
    text.as_str().unwrap().parse().unwrap()
}

/// Checks rows against the answers of Prometheus in a file of `testdata/tsdb`.
#[track_caller]
fn check_answers(mut found: BTreeMap<String, Vec<Sample>>, answers: &str, missing: &[&str]) {
    let answers = fs::read(testdata().join(answers)).unwrap();
    let answers: Value = serde_json::from_slice(&answers).unwrap();
    for answer in answers.as_array().unwrap() {
        let labels: BTreeMap<String, String> =
            serde_json::from_value(answer["metric"].clone()).unwrap();
        if missing.contains(&&labels["__name__"][..]) {
            continue;
        }
        let labels = serde_json::to_string(&labels).unwrap();
        let samples = found.remove(&labels).unwrap_or_else(|| panic!("no series {labels}"));
        match answer["values"].as_array() {
            Some(values) => check_numbers(&labels, &samples, values),
            None => {
                assert_eq!(Some(samples.len() as u64), answer["histogram_count"].as_u64());
                let values = answer["histograms"].as_array().unwrap();
                values.iter().for_each(|value| check_histogram(&labels, &samples, value));
            }
        }
    }
    assert!(found.is_empty(), "{:?}", found.keys());
}

#[test]
fn samples_of_a_block_are_those_that_prometheus_answers() {
    let TestRows { rows, errors } = block().read().unwrap();
    assert_eq!(errors, Vec::<String>::new());
    check_answers(rows_by_labels(rows), "answers.json", &[]);
}

/// Blocks of samples that arrived late, and of the same samples again.
#[test]
fn samples_of_overlapping_blocks_are_those_that_prometheus_answers() {
    let mut all = TestRows::default();
    for block in blocks("overlap") {
        let TestRows { rows, errors } = block.read().unwrap();
        all.rows.extend(rows);
        all.errors.extend(errors);
    }
    // Float histograms that cannot be stored are named.
    assert!(!all.errors.is_empty());
    for error in all.errors {
        assert!(error.starts_with("\"fractional_seconds\": "), "{error}");
    }
    let mut found = rows_by_labels(all.rows);
    for samples in found.values_mut() {
        samples.dedup_by(|next, last| {
            // The store keeps one of equal samples.
            let is_same = next.end == last.end;
            assert!(!is_same || format!("{next:?}") == format!("{last:?}"), "{next:?}, {last:?}");
            is_same
        });
    }
    check_answers(found, "overlap.json", &["fractional_seconds"]);
}

fn check_numbers(labels: &str, samples: &[Sample], expected: &[Value]) {
    let pairs = |sample: &Sample| match sample.value {
        SampleValue::Number(number) => (sample.end / 1_000_000, number.to_bits()),
        _ => panic!("{labels}: {sample:?}"),
    };
    let found: Vec<(i64, u64)> = samples.iter().map(pairs).collect();
    let expected = expected.iter().map(|pair| (millis(&pair[0]), number(&pair[1])));
    for (found, expected) in found.iter().zip(expected.clone()) {
        let value = f64::from_bits(found.1);
        let is_equal = found.1 == expected.1.to_bits() || value.is_nan() && expected.1.is_nan();
        assert!(is_equal && found.0 == expected.0, "{labels}: {value} is not {expected:?}");
    }
    assert_eq!(found.len(), expected.count(), "{labels}");
}

/// Count, sum, and the upper bounds and counts of the buckets.
fn check_histogram(labels: &str, samples: &[Sample], expected: &Value) {
    let (time, expected) = (millis(&expected[0]), &expected[1]);
    let sample = samples.iter().find(|sample| sample.end == time * 1_000_000);
    let Some(SampleValue::Histogram(histogram)) = sample.map(|sample| &sample.value) else {
        panic!("{labels}: no histogram at {time}");
    };
    assert_eq!(histogram.count() as f64, number(&expected["count"]), "{labels} at {time}");
    let sum = histogram.tracked_sum().value().map(|sum| sum.value());
    assert_eq!(sum, Some(number(&expected["sum"])), "{labels} at {time}");
    let mut buckets: Vec<(f64, f64)> = expected["buckets"]
        .as_array()
        .unwrap()
        .iter()
        .map(|bucket| (number(&bucket[2]), number(&bucket[3])))
        .collect();
    let mut cells: Vec<(f64, f64)> = histogram
        .cells()
        .filter(|cell| cell.count > 0)
        .map(|cell| (cell.upper, cell.count as f64))
        .collect();
    buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
    cells.sort_by(|a, b| a.0.total_cmp(&b.0));
    assert_eq!(cells.len(), buckets.len(), "{labels} at {time}: {cells:?}, not {buckets:?}");
    for (cell, bucket) in cells.iter().zip(&buckets) {
        let is_near = cell.0 == bucket.0 || (cell.0 - bucket.0).abs() <= 1e-9 * bucket.0.abs();
        assert!(is_near && cell.1 == bucket.1, "{labels} at {time}: {cells:?}, not {buckets:?}");
    }
}

#[test]
fn truncated_files_are_errors_with_an_offset() {
    let intact = block();
    for length in (0..intact.index.len()).step_by(7) {
        let index = intact.index[..length].to_vec();
        let error = TestBlock { index, ..intact.clone() }.read().err().unwrap().to_string();
        assert!(error.starts_with("byte "), "{length}: {error}");
    }
    for length in (8..intact.chunks.len()).step_by(97) {
        // Chunks beyond the end are read as empty, as by a reader of the file.
        let mut chunks = intact.chunks[..length].to_vec();
        chunks.resize(intact.chunks.len(), 0);
        let error = TestBlock { chunks, ..intact.clone() }.read().err().unwrap().to_string();
        assert!(error.starts_with("byte "), "{length}: {error}");
    }
}

#[test]
fn changed_byte_is_found_by_a_checksum() {
    let intact = block();
    let error = |at: usize| {
        let mut block = intact.clone();
        block.chunks[at] ^= 1;
        block.read().err().unwrap().to_string()
    };
    assert!(error(0).starts_with("byte 0: expected 85bd40dd"), "{}", error(0));
    assert_eq!(error(4), "byte 4: expected version 1 of a chunk file, found 0");
    for at in (8..intact.chunks.len()).step_by(53) {
        assert!(error(at).starts_with("byte "), "{at}: {}", error(at));
    }
    let count = intact.read().unwrap().rows.len();
    for at in (5..intact.index.len()).step_by(11) {
        let mut block = intact.clone();
        block.index[at] ^= 0x10;
        // Sections that are not read, such as postings, may be damaged.
        if let Ok(found) = block.read() {
            assert_eq!(found.rows.len(), count, "{at}");
        }
    }
    let mut block = intact;
    block.tombstones[6] ^= 1;
    let error = block.read().err().unwrap().to_string();
    assert!(error.starts_with("byte 5: expected bytes that match their checksum"), "{error}");
}

#[test]
fn encodings_with_start_timestamps_are_rejected_by_name() {
    for (encoding, name) in [(4, "XOR2"), (5, "histogramST"), (6, "floathistogramST")] {
        let mut chunk = vec![0, encoding];
        chunk.extend_from_slice(&crc32c::crc32c(&[encoding]).to_be_bytes());
        let error = BlockChunk::parse(&chunk, 8).err().unwrap().to_string();
        assert!(error.ends_with(&format!("found encoding {encoding} ({name})")), "{error}");
        assert!(PAGE.contains(&format!("| {encoding} | {name} |")), "{name}");
    }
}

/// Head of each file, as in the page.
#[test]
fn page_has_the_magic_numbers_and_versions() {
    let spelled = |bytes: &[u8]| -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
    };
    let TestBlock { index, chunks, tombstones } = block();
    for (file, bytes) in [("index", index), ("chunks/NNNNNN", chunks), ("tombstones", tombstones)] {
        let row = format!("| `{file}` | `{}` | {} |", spelled(&bytes[..4]), bytes[4]);
        assert!(PAGE.contains(&row), "{row}");
    }
    for row in ["| 1 | XOR |", "| 2 | histogram |", "| 3 | floathistogram |"] {
        assert!(PAGE.contains(row), "{row}");
    }
}
