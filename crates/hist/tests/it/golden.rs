//! Golden files of topdeck's formats: histograms built here and bytes stored in `testdata/`,
//! compared in both directions.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use hist::codec::frame::{SeriesMeta, Temporality};
use hist::{DoubleDouble, Histogram, TrackedValue};

pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

pub(crate) fn page(name: &str) -> String {
    let path = root().join("docs/formats").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A line of a golden file.
pub(crate) struct Golden {
    pub(crate) name: String,
    pub(crate) contents: String,
    pub(crate) bytes: Vec<u8>,
}

/// The lines of a file in `testdata/hist`; with `UPDATE_EXPECT=1` rewritten from `lines` before.
pub(crate) fn golden(file: &str, legend: &str, lines: &[Golden]) -> Vec<Golden> {
    // Several tests use one file, each on its own thread.
    static WRITING: Mutex<()> = Mutex::new(());
    let _writing = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    let path = root().join("testdata/hist").join(file);
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        let mut text = String::new();
        legend.lines().for_each(|line| text.push_str(&format!("# {line}\n")));
        for Golden { name, contents, bytes } in lines {
            text.push_str(&format!("{name}\t{contents}\t{}\n", hex(bytes)));
        }
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
    }
    read_golden(file)
}

/// The lines of a file in `testdata/hist`.
pub(crate) fn read_golden(file: &str) -> Vec<Golden> {
    let path = root().join("testdata/hist").join(file);
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let line = |line: &str| {
        let [name, contents, bytes] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        Golden { name: name.into(), contents: contents.into(), bytes: unhex(bytes) }
    };
    text.lines().filter(|line| !line.starts_with('#')).map(line).collect()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn unhex(hex: &str) -> Vec<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).expect("a digit") as u8;
    hex.as_bytes().chunks(2).map(|two| digit(two[0]) << 4 | digit(two[1])).collect()
}

/// All fields of a histogram on one line.
pub(crate) fn text(histogram: &Histogram) -> String {
    let mut text = format!("{}; {} values", histogram.scheme(), histogram.count());
    let mut add = |name: &str, n: u64| {
        if n > 0 {
            text.push_str(&format!(", {name} {n}"));
        }
    };
    add("zero", histogram.zero_count());
    add("overflow", histogram.overflow());
    add("underflow", histogram.underflow());
    add("nan", histogram.nan_count());
    if histogram.zero_threshold() > 0.0 {
        text.push_str(&format!(", zero to {:?}", histogram.zero_threshold()));
    }
    for threshold in histogram.thresholds() {
        text.push_str(&format!(", above {:?} {}", threshold.value, threshold.above));
    }
    if !histogram.is_empty() {
        let side = |side: TrackedValue<f64>| match side {
            TrackedValue::Exact(value) => format!("{value:?}"),
            TrackedValue::Estimated(value) => format!("~{value:?}"),
            TrackedValue::Bound(value) => format!("within {value:?}"),
            TrackedValue::Absent => "unknown".into(),
        };
        let sum = match histogram.tracked_sum() {
            TrackedValue::Exact(sum) => TrackedValue::Exact(DoubleDouble::value(sum)),
            TrackedValue::Estimated(sum) => TrackedValue::Estimated(DoubleDouble::value(sum)),
            TrackedValue::Bound(_) | TrackedValue::Absent => TrackedValue::Absent,
        };
        let (min, max) = (side(histogram.tracked_min()), side(histogram.tracked_max()));
        text.push_str(&format!("; {min} to {max}, sum {}", side(sum)));
    }
    for (name, buckets) in [("positive", histogram.positive()), ("negative", histogram.negative())]
    {
        if !buckets.is_empty() {
            text.push_str(&format!("; {name}"));
            buckets.iter().for_each(|(index, n)| text.push_str(&format!(" {index}:{n}")));
        }
    }
    text
}

pub(crate) fn meta_text(meta: SeriesMeta) -> String {
    let cumulative = if meta.temporality == Temporality::Cumulative { " cumulative" } else { "" };
    format!("{:?}{cumulative}", meta.unit).to_lowercase()
}

/// The bytes of the first listing under a heading of a page: the part of each line before two
/// spaces.
pub(crate) fn listing(page: &str, heading: &str) -> Vec<u8> {
    let (_, rest) = page.split_once(&format!("\n### {heading}\n")).expect(heading);
    let listing = rest.split("```").nth(1).unwrap();
    let hex = |line: &str| line.split("  ").next().unwrap().replace(' ', "");
    listing.lines().skip(1).flat_map(|line| unhex(&hex(line))).collect()
}
