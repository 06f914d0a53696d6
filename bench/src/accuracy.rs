//! Accuracy of the libraries, compared with exact statistics of sorted values.

use hdrhistogram::Histogram as Hdr;
use histogram::Histogram as H2;
use openhistogram::Histogram as OpenHistogram;
use sketches_ddsketch::DDSketch;

use crate::Effort;
use crate::data::ValueDistribution;
use crate::record;
use crate::report::{ReportSection, ReportTable, ReportTarget, Samples};
use crate::topdeck;

const VALUES: usize = 10_000_000;
const VALUES_QUICK: usize = 300_000;
/// The last one is the maximum.
const QUANTILES: [f64; 6] = [0.5, 0.9, 0.99, 0.999, 0.9999, 1.0];

const METHOD: &str = "Each library records the same values and returns p50, p90, p99, p99.9, \
                      p99.99 and the maximum; the exact value is the nearest rank among the \
                      sorted values. A cell is the largest relative error of the six. \
                      `histogram` returns a bucket, of which users take the end or the middle. \
                      “Bracket contains the exact value” counts the brackets of topdeck that \
                      contain the exact value: of 10 001 evenly spaced quantiles from 0 to 1, \
                      the six above, and count, sum, min, max and mean.";

pub(crate) fn run(effort: &Effort) -> ReportSection {
    let count = if effort.quick { VALUES_QUICK } else { VALUES };
    let mut errors = WorstErrors::default();
    let (mut held, mut asked) = (Vec::new(), 0);
    for distribution in ValueDistribution::ALL {
        let mut values = distribution.values(count, 7);
        let mut answers = vec![topdeck::quantile_answers(&values)];
        answers.extend(peers(&values));
        values.sort_unstable();
        let truths = QUANTILES.map(|q| nearest_rank(&values, q) as f64);
        for one in &answers {
            errors.add(distribution, one, &truths);
        }
        let brackets = topdeck::bracket_checks(&values);
        let contained = brackets.iter().filter(|one| one.contains_expected).count();
        brackets.iter().filter(|one| !one.contains_expected).for_each(|one| {
            eprintln!("{}: not in its bracket: {}", distribution.name(), one.question);
        });
        held.push(contained);
        asked = brackets.len();
    }
    let mut table = errors.table(count);
    let mut last = vec!["topdeck: bracket contains the exact value".to_owned()];
    last.extend(held.iter().map(|held| format!("{held} of {asked}")));
    table.rows.push(last);
    ReportSection {
        name: "accuracy",
        title: "Error",
        method: format!("{METHOD}\n\n{}", data_sets()),
        targets: vec![target(held.iter().sum(), asked * held.len())],
        tables: vec![table],
        samples: errors.samples,
    }
}

fn target(held: usize, asked: usize) -> ReportTarget {
    ReportTarget {
        description: "error: the bracket contains the exact value".to_owned(),
        promised: "always".to_owned(),
        measured: format!("{held} of {asked}"),
        is_met: Some(held == asked),
    }
}

fn data_sets() -> String {
    let about = |one: &ValueDistribution| format!("- {}: {}", one.name(), one.description());
    ValueDistribution::ALL.iter().map(about).collect::<Vec<_>>().join("\n")
}

/// The smallest value of rank at least q · n (nearest rank).
pub(crate) fn nearest_rank(sorted: &[u64], q: f64) -> u64 {
    let product = q * sorted.len() as f64;
    // 0.999 · 10^7 must not be rounded up to the next rank.
    let rank = (product - product * f64::EPSILON).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

/// Answers of a library for [`QUANTILES`].
pub(crate) struct QuantileAnswers {
    name: String,
    values: [f64; QUANTILES.len()],
}

impl QuantileAnswers {
    pub(crate) fn new(name: impl Into<String>, answer: impl Fn(f64) -> f64) -> QuantileAnswers {
        QuantileAnswers { name: name.into(), values: QUANTILES.map(answer) }
    }
}

/// A query of topdeck, and whether its bracket contains the exact value.
pub(crate) struct BracketCheck {
    pub(crate) question: String,
    pub(crate) contains_expected: bool,
}

/// Largest errors by contender and distribution.
#[derive(Default)]
struct WorstErrors {
    samples: Vec<(String, Vec<Samples>)>,
}

impl WorstErrors {
    fn add(&mut self, distribution: ValueDistribution, answers: &QuantileAnswers, truths: &[f64]) {
        let set = format!("{}, relative error p50 … max in %", distribution.name());
        if self.samples.last().is_none_or(|(last, _)| *last != set) {
            self.samples.push((set, Vec::new()));
        }
        let error = |(found, truth): (&f64, &f64)| 100.0 * (found - truth).abs() / truth;
        let mut samples = Samples::new(&answers.name, "");
        samples.values = answers.values.iter().zip(truths).map(error).collect();
        self.samples.last_mut().expect("one was pushed").1.push(samples);
    }

    fn table(&self, count: usize) -> ReportTable {
        let caption = format!(
            "Largest relative error in percent, p50 … p99.99 and maximum, of {count} values."
        );
        let mut header = vec![""];
        header.extend(ValueDistribution::ALL.map(ValueDistribution::name));
        let mut table = ReportTable::new(&caption, 1, &header);
        for (at, row) in self.samples[0].1.iter().enumerate() {
            let mut cells = vec![row.name.clone()];
            cells.extend(self.samples.iter().map(|(_, rows)| {
                format!("{:.3}", rows[at].values.iter().copied().fold(0.0, f64::max))
            }));
            table.rows.push(cells);
        }
        table
    }
}

fn peers(values: &[u64]) -> Vec<QuantileAnswers> {
    let mut all = Vec::new();
    for digits in [2, 3] {
        let mut peer: Hdr<u64> = record::hdr(digits);
        values.iter().for_each(|&value| peer.record(value).expect("within bounds"));
        let name = format!("hdrhistogram, {digits} digits");
        all.push(QuantileAnswers::new(name, |q| peer.value_at_quantile(q) as f64));
    }
    for power in [5, 7] {
        let mut peer = H2::new(power, 64).expect("valid powers");
        values.iter().for_each(|&value| peer.increment(value).expect("within bounds"));
        let bucket = |q| peer.quantile_bucket(q).expect("a share").expect("not empty");
        all.push(QuantileAnswers::new(format!("histogram, p = {power}, end"), |q| {
            bucket(q).end() as f64
        }));
        let middle = |q| {
            let bucket = bucket(q);
            (bucket.start() as f64 + bucket.end() as f64) / 2.0
        };
        all.push(QuantileAnswers::new(format!("histogram, p = {power}, middle"), middle));
    }
    let mut peer: DDSketch = record::ddsketch();
    values.iter().for_each(|&value| peer.add(value as f64));
    let quantile = |q| peer.quantile(q).expect("a share").expect("not empty");
    all.push(QuantileAnswers::new("sketches-ddsketch, 1 %", quantile));
    let mut peer = OpenHistogram::new();
    values.iter().for_each(|&value| peer.insert(record::open_bin(value), 1));
    let quantile = |q| peer.quantile1(&[q]).expect("a share")[0] * 1e9;
    all.push(QuantileAnswers::new("openhistogram", quantile));
    all
}
