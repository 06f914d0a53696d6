//! Past fuzz findings, and the seeds of the fuzz corpus.

use hist::codec::block;
use hist::codec::frame::{self, SeriesMeta};
use hist::{Histogram, LogLinear2, Scheme};

use crate::checks;
use crate::fuzz_inputs;

/// `testdata/fuzz/<target>/<what went wrong>`: the fuzz targets' checks on each.
#[test]
fn past_fuzz_failures_pass() {
    fuzz_inputs::check_past_findings(&checks::CHECKS);
}

/// Writes `fuzz/corpus/<target>/`: output of the encoders, and past findings. `cargo xtask ci fuzz`
/// calls it before the targets run.
#[test]
#[ignore = "writes fuzz/corpus; called by xtask"]
fn write_seeds() {
    let mut seeds = Vec::new();
    let mut write_seed = |target, bytes: &[u8]| seeds.push((target, bytes.to_vec()));
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
    fuzz_inputs::write_seeds(&checks::CHECKS, &seeds);
}

/// Random bytes, the usual input of `arbitrary`.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Three histograms of each family, with all possible fields.
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
