//! Merge of a stored histogram into an accumulator, which a query does thousands of times.

use std::hint::black_box;

use hdrhistogram::Histogram as Hdr;
use hdrhistogram::serialization::{Deserializer, Serializer, V2Serializer};
use histogram::{Histogram as H2, SparseHistogram};
use openhistogram::Histogram as OpenHistogram;
use sketches_ddsketch::DDSketch;

use crate::Effort;
use crate::data::BenchRng;
use crate::record::{self, MIN_MAX, NO_STATISTICS, SUM_MIN_MAX, named_median};
use crate::report::{ReportSection, ReportTable, ReportTarget, Samples, number};
use crate::rounds::{BenchContender, Passes, measure};
use crate::topdeck;

/// Different frames, so that branch predictors do not learn one of them; they still fit into the
/// cache.
const FRAMES: u64 = 64;
const VALUES_PER_FRAME: usize = 300;
/// Name, median in nanoseconds, σ: a single host, and a wider mixture.
const SETS: [(&str, f64, f64); 2] =
    [("lognormal 5 ms, σ = 0.85", 5e6, 0.85), ("lognormal 10 ms, σ = 1.5", 10e6, 1.5)];
const DDSKETCH: &str = "sketches-ddsketch";
const DDSKETCH_STORED: &str = "sketches-ddsketch, from bytes";
const OPENHISTOGRAM: &str = "openhistogram";
const OPENHISTOGRAM_STORED: &str = "openhistogram, from bytes";

const METHOD: &str = "CPU time to add one histogram to an existing accumulator that already \
                      contains all buckets. 64 different histograms of 300 values each take \
                      turns; every contender gets the same values. “From bytes” starts with the \
                      stored form, the other rows with a histogram in memory, which is less \
                      work. `histogram` has no byte format.";

pub(crate) fn run(effort: &Effort) -> ReportSection {
    let passes = Passes::Milliseconds(if effort.quick { 2 } else { 20 });
    let sets = SETS.map(|(name, median, sigma)| {
        let frames: Vec<Vec<u64>> = (0..FRAMES).map(|seed| frame(seed, median, sigma)).collect();
        let mut contenders = topdeck::merge_contenders(&frames);
        contenders.extend(peers(&frames));
        let bins = frames.iter().map(|frame| bin_count(frame)).sum::<usize>() / frames.len();
        (name, bins, measure(&mut contenders, effort.rounds, passes))
    });
    let mut section = ReportSection {
        name: "merge",
        title: "Merge of a stored histogram",
        method: METHOD.to_owned(),
        targets: targets(&sets.each_ref().map(|(_, _, rows)| &rows[..])),
        tables: Vec::new(),
        samples: Vec::new(),
    };
    for (name, bins, rows) in sets {
        section.tables.push(table(name, bins, &rows));
        section.samples.push((format!("{name}, ns"), rows));
    }
    section
}

fn frame(seed: u64, median: f64, sigma: f64) -> Vec<u64> {
    let mut random = BenchRng::new(100 + seed);
    (0..VALUES_PER_FRAME).map(|_| random.lognormal(median, sigma).round() as u64).collect()
}

fn table(set: &str, bins: usize, rows: &[Samples]) -> ReportTable {
    let caption = format!(
        "Nanoseconds per histogram, {set} ({bins} bins of circllhist on average): median \
         (min–max); the ratio is to topdeck from bytes."
    );
    let mut table = ReportTable::new(&caption, 2, &["", "keeps", "ns", "ratio"]);
    let ours = named_median(rows, topdeck::MERGE_STORED);
    for row in rows {
        let ratio = ours.map_or("–".to_owned(), |ours| number(row.median() / ours));
        table.rows.push(vec![row.name.clone(), row.remark.to_owned(), row.cell(), ratio]);
    }
    table
}

/// A stored histogram must be decoded before it can be merged, by all contenders in a fair
/// comparison. The harder comparison is with peers whose histogram is already in memory.
fn targets(sets: &[&[Samples]]) -> Vec<ReportTarget> {
    let ratio = |rows: &&[Samples], peer| {
        Some(named_median(rows, peer)? / named_median(rows, topdeck::MERGE_STORED)?)
    };
    let target = |(peer, how, times)| {
        let ratios: Option<Vec<f64>> = sets.iter().map(|rows| ratio(rows, peer)).collect();
        let worst = ratios.map(|all| all.into_iter().fold(f64::INFINITY, f64::min));
        let what = format!("merge of a stored frame, against {peer}{how}, worst data set");
        ReportTarget::at_least(&what, times, "× as fast", worst)
    };
    [
        (DDSKETCH, " in memory", 1.8),
        (DDSKETCH_STORED, "", 1.8),
        (OPENHISTOGRAM, " in memory", 10.0),
        (OPENHISTOGRAM_STORED, "", 10.0),
    ]
    .map(target)
    .into()
}

/// Adds each element of `stored` to `accumulator`, with the same compiler barrier for all
/// contenders.
pub(crate) fn merge_all<A, S>(accumulator: &mut A, stored: &[S], add: impl Fn(&mut A, &S)) -> u64 {
    let accumulator = black_box(accumulator);
    for one in stored {
        add(accumulator, black_box(one));
    }
    stored.len() as u64
}

fn peers(frames: &[Vec<u64>]) -> Vec<BenchContender<'static>> {
    let mut all = Vec::new();
    let dd: Vec<DDSketch> = frames.iter().map(|frame| ddsketch(frame)).collect();
    let dd_bytes: Vec<Vec<u8>> = dd.iter().map(DDSketch::to_java_bytes).collect();
    let mut sum = record::ddsketch();
    all.push(BenchContender::new(DDSKETCH, SUM_MIN_MAX, move || {
        merge_all(&mut sum, &dd, |sum, one| sum.merge(one).expect("equal configurations"))
    }));
    // Decoding rounds the configuration, and only equal configurations merge: the accumulator is
    // decoded too.
    let mut sum = DDSketch::from_java_bytes(&dd_bytes[0]).expect("own bytes");
    all.push(BenchContender::new(DDSKETCH_STORED, SUM_MIN_MAX, move || {
        merge_all(&mut sum, &dd_bytes, |sum, bytes| {
            let one = DDSketch::from_java_bytes(bytes).expect("own bytes");
            sum.merge(&one).expect("equal configurations");
        })
    }));

    let open: Vec<OpenHistogram> = frames.iter().map(|frame| openhistogram(frame)).collect();
    let open_bytes: Vec<Vec<u8>> = open.iter().map(open_bytes).collect();
    let mut sum = OpenHistogram::new();
    all.push(BenchContender::new(OPENHISTOGRAM, NO_STATISTICS, move || {
        merge_all(&mut sum, &open, |sum, one| sum.accumulate(one))
    }));
    let mut sum = OpenHistogram::new();
    all.push(BenchContender::new(OPENHISTOGRAM_STORED, NO_STATISTICS, move || {
        merge_all(&mut sum, &open_bytes, |sum, bytes| {
            sum.accumulate(&OpenHistogram::oh_deserialize(&mut &bytes[..]).expect("own bytes"));
        })
    }));

    let hdrs: Vec<Hdr<u64>> = frames.iter().map(|frame| hdr(frame)).collect();
    let hdr_bytes: Vec<Vec<u8>> = hdrs.iter().map(hdr_bytes).collect();
    let mut sum = record::hdr(2);
    all.push(BenchContender::new("hdrhistogram, 2 digits", MIN_MAX, move || {
        merge_all(&mut sum, &hdrs, |sum, one| sum.add(one).expect("equal bounds"))
    }));
    let (mut sum, mut deserializer) = (record::hdr(2), Deserializer::new());
    all.push(BenchContender::new("hdrhistogram, 2 digits, from V2 bytes", MIN_MAX, move || {
        let sum = black_box(&mut sum);
        for bytes in &hdr_bytes {
            let mut bytes: &[u8] = black_box(bytes);
            let one: Hdr<u64> = deserializer.deserialize(&mut bytes).expect("own bytes");
            sum.add(&one).expect("equal bounds");
        }
        hdr_bytes.len() as u64
    }));

    for power in [5, 7] {
        let dense: Vec<H2> = frames.iter().map(|frame| h2(frame, power)).collect();
        let sparse: Vec<SparseHistogram> = dense.iter().map(SparseHistogram::from).collect();
        let mut sum = H2::new(power, 64).expect("valid powers");
        all.push(BenchContender::new(
            format!("histogram, p = {power}, dense"),
            NO_STATISTICS,
            move || {
                merge_all(&mut sum, &dense, |sum, one| {
                    sum.checked_add_assign(one).expect("equal powers")
                })
            },
        ));
        let mut sum = SparseHistogram::new(power, 64).expect("valid powers");
        all.push(BenchContender::new(
            format!("histogram, p = {power}, sparse"),
            NO_STATISTICS,
            move || {
                merge_all(&mut sum, &sparse, |sum, one| {
                    *sum = sum.checked_add(one).expect("equal powers")
                })
            },
        ));
    }
    all
}

pub(crate) fn ddsketch(values: &[u64]) -> DDSketch {
    let mut sketch = record::ddsketch();
    values.iter().for_each(|&value| sketch.add(value as f64));
    sketch
}

pub(crate) fn hdr(values: &[u64]) -> Hdr<u64> {
    let mut histogram = record::hdr(2);
    values.iter().for_each(|&value| histogram.record(value).expect("within bounds"));
    histogram
}

pub(crate) fn hdr_bytes(histogram: &Hdr<u64>) -> Vec<u8> {
    let mut bytes = Vec::new();
    V2Serializer::new().serialize(histogram, &mut bytes).expect("memory takes all bytes");
    bytes
}

pub(crate) fn h2(values: &[u64], power: u8) -> H2 {
    let mut histogram = H2::new(power, 64).expect("valid powers");
    values.iter().for_each(|&value| histogram.increment(value).expect("within bounds"));
    histogram
}

fn openhistogram(values: &[u64]) -> OpenHistogram {
    let mut histogram = OpenHistogram::new();
    values.iter().for_each(|&value| histogram.insert(record::open_bin(value), 1));
    histogram
}

/// One-byte counts only: the crate omits bytes of larger ones.
fn open_bytes(histogram: &OpenHistogram) -> Vec<u8> {
    let mut bytes = Vec::new();
    histogram.oh_serialize(&mut bytes).expect("memory takes all bytes");
    bytes
}

/// Number of circllhist bins of a frame: its format starts with it.
fn bin_count(frame: &[u64]) -> usize {
    let bytes = open_bytes(&openhistogram(frame));
    usize::from(u16::from_be_bytes([bytes[0], bytes[1]]))
}
