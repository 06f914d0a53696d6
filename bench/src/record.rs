//! Recording of one value on one thread.

use std::hint::black_box;

use hdrhistogram::Histogram as Hdr;
use histogram::Histogram as H2;
use openhistogram::{Bin, Histogram as OpenHistogram};
use opentelemetry::metrics::{Histogram as OtelHistogram, MeterProvider as _};
use opentelemetry_sdk::metrics::{Aggregation, Instrument, ManualReader, SdkMeterProvider, Stream};
use prometheus_client::metrics::histogram::{
    Histogram as Prometheus, NativeHistogramConfig, exponential_buckets,
};
use sketches_ddsketch::{Config, DDSketch};

use crate::Effort;
use crate::data::{ValueDistribution, Values};
use crate::report::{ReportSection, ReportTable, ReportTarget, Samples};
use crate::rounds::{BenchContender, Passes, for_each_value, measure};
use crate::topdeck;

/// Second column of a row.
pub(crate) const SUM_MIN_MAX: &str = "sum, min, max";
pub(crate) const MIN_MAX: &str = "min, max";
pub(crate) const SUM: &str = "sum";
pub(crate) const NO_STATISTICS: &str = "–";

/// Values per pass: 1 MiB, which fits into the L2 cache and exceeds what branch predictors learn.
pub(crate) const VALUES: usize = 131_072;
const PASSES: u32 = 24;
/// One hour: the maximum of histograms with fixed bounds.
pub(crate) const GREATEST_NS: u64 = 3_600_000_000_000;
const LIMIT_NS: f64 = 3.0;

const METHOD: &str = "CPU time per recorded value. Each contender records the same 131 072 \
                      values 24 times per round into one histogram, which is kept; every value \
                      and the histogram pass through the same compiler barriers. Each library \
                      gets the values in its own input type (integer nanoseconds, doubles, or \
                      seconds), converted beforehand. “Keeps” lists the exact statistics stored \
                      besides the buckets: only rows that keep all three do the same work. The \
                      floor is the loop, the read and the barriers without recording; it is part \
                      of every row.";

pub(crate) fn run(effort: &Effort) -> ReportSection {
    let sets = ValueDistribution::TIMED.map(|distribution| {
        let values = Values::new(distribution.values(VALUES, 1));
        let mut contenders = contenders(&values);
        let passes = if effort.quick { 2 } else { PASSES };
        (distribution, measure(&mut contenders, effort.rounds, Passes::Exactly(passes)))
    });
    let columns: Vec<(&str, &[Samples])> =
        sets.iter().map(|(distribution, rows)| (distribution.name(), &rows[..])).collect();
    let table =
        ReportTable::of_samples("Nanoseconds per value: median (min–max).", "keeps", &columns);
    ReportSection {
        name: "record",
        title: "Record, one thread",
        method: format!("{METHOD}\n\n{}", data_sets()),
        targets: targets(&columns),
        tables: vec![table],
        samples: columns.iter().map(|(set, rows)| (format!("{set}, ns"), rows.to_vec())).collect(),
    }
}

/// Description of the columns of the timed tables.
pub(crate) fn data_sets() -> String {
    let about = |one: &ValueDistribution| format!("- {}: {}", one.name(), one.description());
    ValueDistribution::TIMED.iter().map(about).collect::<Vec<_>>().join("\n")
}

fn targets(columns: &[(&str, &[Samples])]) -> Vec<ReportTarget> {
    let mut targets = Vec::new();
    for name in topdeck::RECORDERS {
        let medians: Option<Vec<f64>> =
            columns.iter().map(|(_, rows)| named_median(rows, name)).collect();
        let worst = medians.as_ref().map(|all| all.iter().copied().fold(0.0, f64::max));
        let what = format!("record, 1 thread, {name}, worst data set");
        targets.push(ReportTarget::at_most(&what, LIMIT_NS, "ns", worst));
        let ratio = medians.map(|all| {
            let ratios = columns.iter().zip(all).map(|((_, rows), ours)| ours / best_peer(rows));
            ratios.fold(0.0, f64::max)
        });
        let what = format!(
            "record, 1 thread, {name}, against the best peer that keeps sum, min and max, worst \
             data set"
        );
        targets.push(ReportTarget::at_most(&what, 1.0, "× its cost", ratio));
    }
    targets
}

/// `None` without such a row, or without a valid sample.
pub(crate) fn named_median(rows: &[Samples], name: &str) -> Option<f64> {
    let row = rows.iter().find(|row| row.name == name)?;
    (!row.values.is_empty()).then(|| row.median())
}

/// Lowest cost of the peers that keep the same statistics.
fn best_peer(rows: &[Samples]) -> f64 {
    let peers = rows.iter().filter(|row| row.remark == SUM_MIN_MAX);
    peers
        .filter(|row| !row.name.starts_with("topdeck"))
        .map(Samples::median)
        .fold(f64::MAX, f64::min)
}

fn contenders(values: &Values) -> Vec<BenchContender<'_>> {
    let whole = &values.nanoseconds;
    let mut all = vec![BenchContender::new("floor: loop and read", "nothing", || {
        for_each_value(&mut (), whole, |_, value| {
            black_box(value);
        })
    })];
    all.extend(topdeck::record_contenders(values));
    for digits in [2, 3] {
        let mut peer = hdr(digits);
        all.push(BenchContender::new(
            format!("hdrhistogram, {digits} digits"),
            MIN_MAX,
            move || {
                for_each_value(&mut peer, whole, |h, value| h.record(value).expect("within bounds"))
            },
        ));
    }
    for power in [5, 7] {
        let mut peer = H2::new(power, 64).expect("valid powers");
        all.push(BenchContender::new(
            format!("histogram, p = {power}"),
            NO_STATISTICS,
            move || {
                for_each_value(&mut peer, whole, |h, value| {
                    h.increment(value).expect("within bounds")
                })
            },
        ));
    }
    let mut peer = ddsketch();
    all.push(BenchContender::new("sketches-ddsketch, 1 %", SUM_MIN_MAX, move || {
        for_each_value(&mut peer, &values.reals, |h, value| h.add(value))
    }));
    let mut peer = OpenHistogram::new();
    all.push(BenchContender::new("openhistogram, from integer", NO_STATISTICS, move || {
        for_each_value(&mut peer, whole, |h, value| h.insert(open_bin(value), 1))
    }));
    let mut peer = OpenHistogram::new();
    all.push(BenchContender::new("openhistogram, from double", NO_STATISTICS, move || {
        for_each_value(&mut peer, &values.seconds, |h, value| h.insert(value.into(), 1))
    }));
    let mut peer = prometheus_classic();
    all.push(BenchContender::new("prometheus-client, classic, 20 bounds", SUM, move || {
        for_each_value(&mut peer, &values.seconds, |h, value| h.observe(value))
    }));
    let mut peer = prometheus_native();
    all.push(BenchContender::new("prometheus-client, native, schema 5", SUM, move || {
        for_each_value(&mut peer, &values.seconds, |h, value| h.observe(value))
    }));
    let (_provider, mut peer) = opentelemetry();
    all.push(BenchContender::new(
        "opentelemetry_sdk, exponential, no attributes",
        SUM_MIN_MAX,
        move || {
            let _ = &_provider;
            for_each_value(&mut peer, whole, |h, value| h.record(value, &[]))
        },
    ));
    all
}

pub(crate) fn hdr(digits: u8) -> Hdr<u64> {
    Hdr::new_with_bounds(1, GREATEST_NS, digits).expect("valid bounds")
}

/// The defaults of the crate are 1 %, 2048 bins, minimum value 1e-9.
pub(crate) fn ddsketch() -> DDSketch {
    DDSketch::new(Config::defaults())
}

/// Bin of a latency in seconds, from nanoseconds, by the exact path of the crate.
#[inline]
pub(crate) fn open_bin(nanoseconds: u64) -> Bin {
    Bin::from_uint_scale(true, nanoseconds.into(), -9)
}

/// 10 µs to 5.2 s, doubling.
pub(crate) fn prometheus_classic() -> Prometheus {
    Prometheus::new(exponential_buckets(10e-6, 2.0, 20))
}

/// Exponential histogram of the SDK with the specification's defaults: at most 160 buckets, sum,
/// min and max. Dropping the provider would end the recording.
pub(crate) fn opentelemetry() -> (SdkMeterProvider, OtelHistogram<u64>) {
    let exponential = |_: &Instrument| {
        let aggregation = Aggregation::Base2ExponentialHistogram {
            max_size: 160,
            max_scale: 20,
            record_min_max: true,
        };
        Stream::builder().with_aggregation(aggregation).build().ok()
    };
    let provider = SdkMeterProvider::builder()
        .with_reader(ManualReader::builder().build())
        .with_view(exponential)
        .build();
    let histogram = provider.meter("bench").u64_histogram("latency").build();
    (provider, histogram)
}

/// The resolution of topdeck's default scheme.
pub(crate) fn prometheus_native() -> Prometheus {
    Prometheus::new_native(NativeHistogramConfig::with_schema(5))
}
