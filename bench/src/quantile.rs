//! Quantiles of a histogram, and of a form prepared for many queries.

use std::hint::black_box;

use hdrhistogram::Histogram as Hdr;
use histogram::{CumulativeROHistogram, Histogram as H2, SparseHistogram};
use openhistogram::Histogram as OpenHistogram;

use crate::Effort;
use crate::data::ValueDistribution;
use crate::merge;
use crate::record::{self, VALUES, data_sets, named_median};
use crate::report::{ReportSection, ReportTable, ReportTarget, Samples};
use crate::rounds::{BenchContender, Passes, measure};
use crate::topdeck;

const QUANTILES: [f64; 3] = [0.5, 0.99, 0.999];

const METHOD: &str = "CPU time per quantile, the mean of p50, p99 and p99.9, of a histogram of \
                      131 072 values. “Cached” rows query a prepared form; the preparation is \
                      not counted. topdeck returns a bracket, the others a value or a bucket.";

pub(crate) fn run(effort: &Effort) -> ReportSection {
    let passes = Passes::Milliseconds(if effort.quick { 1 } else { 10 });
    let sets = ValueDistribution::TIMED.map(|distribution| {
        let values = distribution.values(VALUES, 1);
        let mut contenders = topdeck::quantile_contenders(&values);
        contenders.extend(peers(&values));
        (distribution, measure(&mut contenders, effort.rounds, passes))
    });
    let columns: Vec<(&str, &[Samples])> =
        sets.iter().map(|(distribution, rows)| (distribution.name(), &rows[..])).collect();
    let caption = "Nanoseconds per quantile: median (min–max).";
    ReportSection {
        name: "quantile",
        title: "Quantile",
        method: format!("{METHOD}\n\n{}", data_sets()),
        tables: vec![ReportTable::of_samples(caption, "answer", &columns)],
        targets: targets(&columns),
        samples: columns.iter().map(|(set, rows)| (format!("{set}, ns"), rows.to_vec())).collect(),
    }
}

fn targets(columns: &[(&str, &[Samples])]) -> Vec<ReportTarget> {
    let target = |(name, limit)| {
        let medians: Option<Vec<f64>> =
            columns.iter().map(|(_, rows)| named_median(rows, name)).collect();
        let worst = medians.map(|all| all.into_iter().fold(0.0, f64::max));
        ReportTarget::at_most(&format!("quantile, {name}, worst data set"), limit, "ns", worst)
    };
    [(topdeck::QUANTILE, 300.0), (topdeck::QUANTILE_CACHED, 25.0)].map(target).into()
}

/// Queries each quantile of `subject`.
pub(crate) fn query_quantiles<H, T>(subject: &mut H, answer: impl Fn(&mut H, f64) -> T) -> u64 {
    let subject = black_box(subject);
    for q in QUANTILES {
        black_box(answer(subject, black_box(q)));
    }
    QUANTILES.len() as u64
}

fn peers(values: &[u64]) -> Vec<BenchContender<'static>> {
    let mut all = Vec::new();
    for digits in [2, 3] {
        let mut peer: Hdr<u64> = record::hdr(digits);
        values.iter().for_each(|&value| peer.record(value).expect("within bounds"));
        all.push(BenchContender::new(
            format!("hdrhistogram, {digits} digits"),
            "upper edge",
            move || query_quantiles(&mut peer, |h, q| h.value_at_quantile(q)),
        ));
    }
    for power in [5, 7] {
        let mut dense: H2 = merge::h2(values, power);
        let mut sparse = SparseHistogram::from(&dense);
        let mut cumulative = CumulativeROHistogram::from(&dense);
        all.push(BenchContender::new(
            format!("histogram, p = {power}, dense"),
            "bucket",
            move || query_quantiles(&mut dense, |h, q| h.quantile_bucket(q)),
        ));
        all.push(BenchContender::new(
            format!("histogram, p = {power}, sparse"),
            "bucket",
            move || query_quantiles(&mut sparse, |h, q| h.quantile(q)),
        ));
        let name = format!("histogram, p = {power}, CumulativeROHistogram (cached)");
        all.push(BenchContender::new(name, "bucket", move || {
            query_quantiles(&mut cumulative, |h, q| h.quantile_bucket(q))
        }));
    }
    let mut peer = merge::ddsketch(values);
    all.push(BenchContender::new("sketches-ddsketch", "value", move || {
        query_quantiles(&mut peer, |h, q| h.quantile(q).expect("a share"))
    }));
    let mut peer = OpenHistogram::new();
    values.iter().for_each(|&value| peer.insert(record::open_bin(value), 1));
    all.push(BenchContender::new("openhistogram", "value", move || {
        query_quantiles(&mut peer, |h, q| h.quantile1(&[q]).expect("a share"))
    }));
    all
}
