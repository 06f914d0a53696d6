//! What an hour of one series takes in storage: 360 frames, one every ten seconds.
//!
//! Beside the formats stands the floor: no coder that knows only how often each bucket is hit can take fewer
//! bytes on average than the entropy of the counts.

use std::f64::consts::{E, TAU};

use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};

use crate::Effort;
use crate::data::Series;
use crate::merge;
use crate::record::{NOTHING, SUM_MIN_MAX};
use crate::report::{Samples, Section, Table, Target, number};
use crate::rounds::{Passes, measure};
use crate::topdeck;

/// Values per frame, and how many hosts make the mean: the larger the frames, the less hosts differ.
const SIZES: [(usize, u64); 4] = [(50, 8), (200, 8), (1000, 8), (10_000, 2)];
/// The size that has a target, on whose frames coding is timed.
const SIZE: usize = 1000;
const LIMIT_BYTES: f64 = 110.0;
const ZSTD_LEVEL: i32 = 3;

const METHOD: &str = "\
Bytes per frame, the mean over all frames of several hosts. A host's hour is 360 frames; the logarithm of the \
median of frame *t* is that of the host, N(ln 5 ms, 0.5), plus a random walk of steps N(0, 0.01) plus \
0.1 · sin(2π*t*/360); values are lognormal around it with σ = 0.85, in whole nanoseconds. “Block” rows code \
all 360 frames of a host together. Only rows that keep sum, min and max exactly store the same facts; the \
error is the worst of a value read back from its bucket.

The floor is the sum over the buckets of topdeck's default grid of the entropy of a Poisson count, at the rate \
*n* times the probability of the bucket. “Frame's own rate” takes the true distribution of each frame, which \
no coder knows; “pooled rate” takes the mean of the rates over the 360 frames of a block, which a coder could \
store once. Neither holds sum, min and max: “exact sum, min, max” is what these add, given the buckets (min \
and max evenly spread in their buckets, the sum normal).";

pub(crate) fn run(effort: &Effort) -> Section {
    let sizes = if effort.quick { &SIZES[..3] } else { &SIZES[..] };
    let columns: Vec<Vec<Row>> = sizes
        .iter()
        .map(|&(size, hosts)| mean_over_hosts(size, if effort.quick { 1 } else { hosts }))
        .collect();
    let mut header = vec!["".to_owned(), "keeps".to_owned(), "error".to_owned()];
    header.extend(sizes.iter().map(|(size, _)| format!("n = {size}")));
    let caption = "Bytes per frame by values per frame.".to_owned();
    let mut table = Table { caption, header, text_columns: 3, rows: Vec::new() };
    for (at, row) in columns[0].iter().enumerate() {
        let mut cells = vec![row.name.clone(), row.keeps.to_owned(), row.error.to_owned()];
        cells.extend(columns.iter().map(|column| number(column[at].bytes)));
        table.rows.push(cells);
    }
    let at_size = sizes.iter().position(|&(size, _)| size == SIZE).expect("SIZE is one of SIZES");
    let speed = coding_speed(effort);
    let sizes_as_samples = |(column, &(size, _)): (&Vec<Row>, &(usize, u64))| {
        (format!("n = {size}, bytes"), column.iter().map(Row::as_samples).collect())
    };
    let mut samples: Vec<_> = columns.iter().zip(sizes).map(sizes_as_samples).collect();
    samples.push((format!("n = {SIZE}, ns per frame"), speed.clone()));
    Section {
        name: "bytes",
        title: "Stored bytes",
        method: METHOD.to_owned(),
        targets: targets(&columns[at_size]),
        tables: vec![table, speed_table(&speed)],
        samples,
    }
}

/// One format's mean size.
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) keeps: &'static str,
    pub(crate) error: &'static str,
    /// Per frame.
    pub(crate) bytes: f64,
}

impl Row {
    /// A row from the bytes of all frames of a series.
    pub(crate) fn new(
        name: &str,
        keeps: &'static str,
        error: &'static str,
        total_bytes: usize,
    ) -> Row {
        let bytes = total_bytes as f64 / Series::FRAMES as f64;
        Row { name: name.to_owned(), keeps, error, bytes }
    }

    fn as_samples(&self) -> Samples {
        Samples { name: self.name.clone(), about: self.keeps, values: vec![self.bytes] }
    }
}

fn targets(rows: &[Row]) -> Vec<Target> {
    let block = rows.iter().find(|row| row.name == topdeck::BLOCK).map(|row| row.bytes);
    let what = "stored bytes per frame, block of 360, n = 1000, at ≤ 1.08 % error";
    let mut targets = vec![Target::at_most(what, LIMIT_BYTES, "B", block)];
    let error = 100.0 * topdeck::relative_error();
    targets.push(Target::at_most(
        "error of a stored value, worst",
        1.08,
        "%",
        Some((error * 100.0).round() / 100.0),
    ));
    targets
}

fn speed_table(rows: &[Samples]) -> Table {
    let caption = format!(
        "Processor time of coding, nanoseconds per frame of n = {SIZE}: median (least–greatest)."
    );
    Table::of_samples(&caption, "unit of work", &[("ns per frame", rows)])
}

fn coding_speed(effort: &Effort) -> Vec<Samples> {
    let series = Series::new(1, SIZE);
    let passes = Passes::Milliseconds(if effort.quick { 5 } else { 30 });
    measure(&mut topdeck::coding(&series.frames), effort.rounds, passes)
}

fn mean_over_hosts(size: usize, hosts: u64) -> Vec<Row> {
    let mut sum: Vec<Row> = Vec::new();
    for host in 1..=hosts {
        let rows = of_series(&Series::new(host, size));
        match sum.is_empty() {
            true => sum = rows,
            false => sum.iter_mut().zip(rows).for_each(|(sum, row)| sum.bytes += row.bytes),
        }
    }
    sum.iter_mut().for_each(|row| row.bytes /= hosts as f64);
    sum
}

fn of_series(series: &Series) -> Vec<Row> {
    let mut rows = topdeck::bytes(&series.frames);
    rows.extend(floors(series));
    rows.extend(hdr(&series.frames));
    let circllhist: Vec<Vec<u8>> =
        series.frames.iter().map(|frame| circllhist_bytes(frame)).collect();
    rows.extend(raw_and_zstd("circllhist", NOTHING, "4.76 %", &circllhist));
    let ddsketch: Vec<Vec<u8>> =
        series.frames.iter().map(|frame| merge::ddsketch(frame).to_java_bytes()).collect();
    rows.extend(raw_and_zstd("DDSketch, Java format", SUM_MIN_MAX, "1 %", &ddsketch));
    rows
}

/// Each frame alone, and all frames one after another through zstd.
pub(crate) fn raw_and_zstd(
    name: &str,
    keeps: &'static str,
    error: &'static str,
    frames: &[Vec<u8>],
) -> [Row; 2] {
    let block = frames.concat();
    let zstd = zstd::bulk::compress(&block, ZSTD_LEVEL).expect("memory takes all bytes");
    [
        Row::new(&format!("{name}, frame alone"), keeps, error, block.len()),
        Row::new(&format!("{name}, block through zstd 3"), keeps, error, zstd.len()),
    ]
}

fn hdr(frames: &[Vec<u64>]) -> Vec<Row> {
    const ERROR: &str = "0.39 %";
    let histograms: Vec<_> = frames.iter().map(|frame| merge::hdr(frame)).collect();
    let plain: Vec<Vec<u8>> = histograms.iter().map(merge::hdr_bytes).collect();
    let mut serializer = V2DeflateSerializer::new();
    let mut deflated = Vec::new();
    for histogram in &histograms {
        serializer.serialize(histogram, &mut deflated).expect("memory takes all bytes");
    }
    let mut rows =
        vec![Row::new("HDR V2 + deflate, 2 digits, frame alone", NOTHING, ERROR, deflated.len())];
    rows.extend(raw_and_zstd("HDR V2, 2 digits", NOTHING, ERROR, &plain));
    rows
}

/// circllhist's binary format, written here: openhistogram 0.1.1 leaves out bytes of counts above 255.
fn circllhist_bytes(frame: &[u64]) -> Vec<u8> {
    let mut bins = std::collections::BTreeMap::<(i8, i8), u64>::new();
    for &nanoseconds in frame {
        // Two leading digits d and the power of ten p of the first: value = d/10 · 10^p seconds.
        let power = nanoseconds.ilog10() as i8;
        let digits = match power {
            0 => nanoseconds * 10,
            _ => nanoseconds / 10u64.pow(power as u32 - 1),
        };
        *bins.entry((power - 9, digits as i8)).or_default() += 1;
    }
    let mut bytes = (bins.len() as u16).to_be_bytes().to_vec();
    for ((power, digits), count) in bins {
        let significant = count.to_be_bytes();
        let significant = &significant[count.leading_zeros() as usize / 8..];
        bytes.extend([digits as u8, power as u8, significant.len() as u8 - 1]);
        bytes.extend(significant);
    }
    bytes
}

/// The least that any coder needs, by what it knows.
fn floors(series: &Series) -> [Row; 3] {
    let n = series.frames[0].len() as f64;
    let frames = Series::FRAMES as f64;
    let (mut own, mut pooled) = (0.0, std::collections::BTreeMap::<i32, f64>::new());
    for &median in &series.medians {
        for (bucket, share) in bucket_shares(median) {
            own += poisson_entropy(n * share);
            *pooled.entry(bucket).or_default() += n * share / frames;
        }
    }
    let pooled: f64 = pooled.into_values().map(poisson_entropy).sum();
    let sides: f64 = series.frames.iter().map(|frame| sides_entropy(frame)).sum();
    let row = |name: &str, bits: f64| Row {
        name: format!("floor, exponential scale 5: {name}"),
        keeps: NOTHING,
        error: "1.08 %",
        bytes: bits / 8.0,
    };
    [
        row("frame's own rate", own / frames),
        row("pooled rate", pooled),
        row("exact sum, min, max", sides / frames),
    ]
}

/// Buckets per octave of topdeck's default grid.
const BUCKETS_PER_OCTAVE: f64 = 32.0;

/// Each bucket that matters with its probability under the lognormal distribution of a frame.
fn bucket_shares(median: f64) -> impl Iterator<Item = (i32, f64)> {
    let bucket = |z: f64| {
        (BUCKETS_PER_OCTAVE * (median.log2() + z * Series::SIGMA * std::f64::consts::LOG2_E)) as i32
    };
    let below = move |index: i32| {
        let edge =
            (f64::from(index) / BUCKETS_PER_OCTAVE - median.log2()) / std::f64::consts::LOG2_E;
        normal_cdf(edge / Series::SIGMA)
    };
    // Beyond eight standard deviations lies 10^-15 of all values.
    (bucket(-8.0)..=bucket(8.0)).map(move |index| (index, below(index + 1) - below(index)))
}

/// Bits that the exact values beside the buckets add, for a reader who knows the buckets.
fn sides_entropy(frame: &[u64]) -> f64 {
    let width = |value: u64| {
        let octaves = (BUCKETS_PER_OCTAVE * (value as f64).log2()).floor() / BUCKETS_PER_OCTAVE;
        octaves.exp2() * ((1.0 / BUCKETS_PER_OCTAVE).exp2() - 1.0)
    };
    let variance: f64 = frame.iter().map(|&value| width(value).powi(2) / 12.0).sum();
    let least = frame.iter().min().map_or(0.0, |&value| width(value).log2());
    let greatest = frame.iter().max().map_or(0.0, |&value| width(value).log2());
    least + greatest + 0.5 * (TAU * E * variance).log2()
}

/// Entropy in bits of a Poisson count of mean `rate`, summed to where terms vanish.
fn poisson_entropy(rate: f64) -> f64 {
    if rate < 1e-15 {
        return 0.0;
    }
    let spread = 12.0 * rate.sqrt() + 20.0;
    let last = (rate + spread) as u64;
    let (mut entropy, mut log_p) = (0.0, -rate);
    for k in 0..=last {
        if k > 0 {
            log_p += rate.ln() - (k as f64).ln();
        }
        entropy -= log_p.exp() * log_p;
    }
    entropy / std::f64::consts::LN_2
}

/// Share of a normal distribution below `z` standard deviations: the error function by its series near
/// zero and its continued fraction further out, both to the last digits (Abramowitz and Stegun 7.1.6 and
/// 26.2.14).
fn normal_cdf(z: f64) -> f64 {
    let density = (-0.5 * z * z).exp() / TAU.sqrt();
    if z.abs() < 3.0 {
        let (mut term, mut sum) = (z, z);
        for k in 1..100 {
            term *= z * z / (2.0 * f64::from(k) + 1.0);
            sum += term;
        }
        return 0.5 + density * sum;
    }
    let fraction = (1..=60).rev().fold(z.abs(), |tail, k| z.abs() + f64::from(k) / tail);
    let above = density / fraction;
    if z > 0.0 { 1.0 - above } else { above }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-9 * expected.abs().max(1e-3), "{found} {expected}");
    }

    #[test]
    fn normal_shares_are_those_of_the_tables() {
        check(normal_cdf(0.0), 0.5);
        check(normal_cdf(1.0), 0.841_344_746_068_542_9);
        check(normal_cdf(-2.9), 1.865_813_300_384_04e-3);
        check(normal_cdf(-4.0), 3.167_124_183_311_992e-5);
    }

    #[test]
    fn shares_add_up_to_one() {
        check(bucket_shares(5e6).map(|(_, share)| share).sum(), 1.0);
    }

    #[test]
    fn entropy_of_large_counts_is_that_of_a_normal_distribution() {
        let normal = 0.5 * (TAU * E * 1000.0).log2();
        assert!((poisson_entropy(1000.0) - normal).abs() < 1e-3);
    }
}
