//! Generator of single histograms.

use hist::{DoubleDouble, Histogram, HistogramParts, Scheme, TrackedValue};

use super::cells::{CELLS, THRESHOLD_CELL, cell_bucket, cell_starts_ns};
use super::keyed_rng::KeyedRng;
use super::table::AliasTable;
use super::{Dataset, MINUTE_NS};

/// Generates the histograms of a data set.
#[derive(Clone, Debug)]
pub struct SampleGenerator<'a> {
    dataset: &'a Dataset,
    /// Alias table of each series, with the key of its shape.
    tables: Vec<Option<(u64, AliasTable)>>,
    starts: [u64; CELLS + 1],
    /// Deviation of the sum of n uniform values of a cell, in cell widths, by n.
    spreads: [f64; SPREADS],
    counts: [u32; CELLS],
    cells: Vec<(u16, u32)>,
    sample: SyntheticSample,
}

/// Number of precomputed deviations; larger counts compute the square root.
const SPREADS: usize = 64;

/// Values of one series in one minute, with expected statistics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SyntheticSample {
    /// Series number.
    pub series: usize,
    /// Minute number.
    pub minute: usize,
    /// Start of the minute, in nanoseconds since the Unix epoch.
    pub start_ns: i64,
    /// End of the minute, in nanoseconds since the Unix epoch.
    pub end_ns: i64,
    /// Buckets of `LogLinear10` with their counts, ascending.
    pub buckets: Vec<(i32, u64)>,
    /// Number of values.
    pub count: u64,
    /// Sum of the values, in nanoseconds.
    pub sum_ns: u64,
    /// Smallest value, in nanoseconds.
    pub min_ns: u64,
    /// Largest value, in nanoseconds.
    pub max_ns: u64,
    /// Number of values at or below [`super::THRESHOLD_NS`].
    pub at_or_below_threshold: u64,
}

impl SyntheticSample {
    /// The histogram, with exact sum, minimum and maximum.
    pub fn histogram(&self) -> Histogram {
        let parts = HistogramParts {
            positive: self.buckets.clone(),
            sum: TrackedValue::Exact(DoubleDouble::new(self.sum_ns as f64)),
            min: TrackedValue::Exact(self.min_ns as f64),
            max: TrackedValue::Exact(self.max_ns as f64),
            ..HistogramParts::new(Scheme::LogLinear10)
        };
        Histogram::from_recorded_parts(parts).expect("BUG: a sample is a histogram")
    }
}

impl<'a> SampleGenerator<'a> {
    pub(super) fn new(dataset: &'a Dataset) -> SampleGenerator<'a> {
        SampleGenerator {
            dataset,
            tables: vec![None; dataset.scale.series],
            starts: cell_starts_ns(),
            spreads: std::array::from_fn(sum_deviation),
            counts: [0; CELLS],
            cells: vec![(0, 0); CELLS],
            sample: SyntheticSample::default(),
        }
    }

    /// The data set of this generator.
    pub fn dataset(&self) -> &'a Dataset {
        self.dataset
    }

    /// Draws the values of a series in a minute. Both numbers must be within the scale. Repeated
    /// calls return the same values.
    pub fn draw(&mut self, series: usize, minute: usize) -> &SyntheticSample {
        let plan = &self.dataset.plan;
        let (key, count) = (plan.shape_key(series, minute), plan.count(series, minute));
        let table = match &mut self.tables[series] {
            Some((made_for, table)) if *made_for == key => table,
            outdated => {
                let table = AliasTable::new(&plan.shape(series, key), plan.expected(series));
                &mut outdated.insert((key, table)).1
            }
        };
        let mut random = plan.random(series, minute);
        table.draw(count, &mut random, &mut self.counts);
        // Each cell is stored whether it is used or not: a branch that is taken for half of the
        // cells would cost more.
        let mut used = 0;
        for (at, count) in self.counts[table.first..table.end].iter_mut().enumerate() {
            self.cells[used] = ((table.first + at) as u16, *count);
            used += usize::from(*count > 0);
            *count = 0;
        }
        self.sample.series = series;
        self.sample.minute = minute;
        self.sample.start_ns = self.dataset.start_ns(minute);
        self.sample.end_ns = self.sample.start_ns + MINUTE_NS;
        self.sample.count = count;
        self.fill(used, &mut random);
        &self.sample
    }

    /// Draws the sum, minimum and maximum inside the cells.
    fn fill(&mut self, used: usize, random: &mut KeyedRng) {
        let (sample, cells) = (&mut self.sample, &self.cells[..used]);
        sample.buckets.clear();
        let (Some(&(first, _)), Some(&(last, _))) = (cells.first(), cells.last()) else {
            // The full data sets have no empty samples; a custom scale may have them.
            (sample.sum_ns, sample.min_ns, sample.max_ns, sample.at_or_below_threshold) =
                (0, 0, 0, 0);
            return;
        };
        let limit_at = cells.partition_point(|cell| usize::from(cell.0) <= THRESHOLD_CELL);
        let (below, above) = cells.split_at(limit_at);
        let buckets = |cells: &[(u16, u32)], buckets: &mut Vec<(i32, u64)>| {
            buckets.extend(cells.iter().map(|&(cell, n)| (cell_bucket(cell.into()), u64::from(n))));
        };
        buckets(below, &mut sample.buckets);
        sample.at_or_below_threshold = sample.buckets.iter().map(|bucket| bucket.1).sum();
        buckets(above, &mut sample.buckets);
        if let [.., left, right] = &mut sample.buckets[..(limit_at + 1).min(used)]
            && left.0 == right.0
        {
            left.1 += right.1;
            sample.buckets.remove(limit_at);
        }

        let mut sum_ns = 0;
        for &(cell, n) in cells {
            if cell == first || cell == last {
                continue;
            }
            let start = self.starts[usize::from(cell)];
            let width = self.starts[usize::from(cell) + 1] - start;
            sum_ns += start * u64::from(n) + draw_sum(&self.spreads, n.into(), width, random);
        }
        let (first_n, last_n) = (u64::from(cells[0].1), u64::from(cells[used - 1].1));
        let start = |cell: u16| self.starts[usize::from(cell)];
        let width = |cell: u16| self.starts[usize::from(cell) + 1] - start(cell);
        if first == last {
            let (low, high) = draw_extremes(first_n, width(first), random);
            let between =
                draw_sum(&self.spreads, first_n.saturating_sub(2), high - low + 1, random);
            let ends = if first_n == 1 { low } else { low + high };
            sum_ns += start(first) * first_n + ends + first_n.saturating_sub(2) * low + between;
            (sample.min_ns, sample.max_ns) = (start(first) + low, start(first) + high);
        } else {
            let (low, _) = draw_extremes(first_n, width(first), random);
            let above = draw_sum(&self.spreads, first_n - 1, width(first) - low, random);
            sum_ns += (start(first) + low) * first_n + above;
            let (_, high) = draw_extremes(last_n, width(last), random);
            let below = draw_sum(&self.spreads, last_n - 1, high + 1, random);
            sum_ns += start(last) * last_n + high + below;
            (sample.min_ns, sample.max_ns) = (start(first) + low, start(last) + high);
        }
        sample.sum_ns = sum_ns;
    }
}

/// Standard deviation of the sum of n uniform values, in widths of their range.
fn sum_deviation(n: usize) -> f64 {
    (n as f64 / 12.0).sqrt()
}

/// Sum of n random whole numbers below `width`.
#[inline]
fn draw_sum(spreads: &[f64; SPREADS], n: u64, width: u64, random: &mut KeyedRng) -> u64 {
    let spread = spreads.get(n as usize).copied().unwrap_or_else(|| sum_deviation(n as usize));
    let most = (n * (width - 1)) as f64;
    let sum = most * 0.5 + random.normal() * spread * width as f64;
    sum.clamp(0.0, most) as u64
}

/// Number of values in a cell above which its extremes are approximated: more values hardly change
/// them.
const EXACT_DRAWS_MAX: u64 = 16;

/// Minimum and maximum of n values below `width`.
fn draw_extremes(n: u64, width: u64, random: &mut KeyedRng) -> (u64, u64) {
    let first = random.below(width);
    (1..n.min(EXACT_DRAWS_MAX)).fold((first, first), |(low, high), _| {
        let value = random.below(width);
        (low.min(value), high.max(value))
    })
}
