//! Data of a run: requests encoded before the measurement, the same bytes for every server that
//! takes the format.
//!
//! A is sent over one connection with 120 minutes per request, B over two with 4 minutes of 500
//! series per request: about 2 MB, or 2,000 histograms, like the senders of Prometheus.

use synthetic::{Dataset, DatasetKind, DatasetScale, SyntheticSeries};

use super::encoding;
use super::expected::CountOracle;
use crate::store::remote_write::{BucketMap, SeriesCounts};

/// What users send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WireFormat {
    /// Remote write 1, cumulative native histograms of schema 5.
    Native,
    /// Remote write 1, a counter per bucket of VictoriaMetrics' own 18 per decade.
    Vmrange,
    /// Remote write 1, 12 counters with `le`.
    Classic,
    /// OTLP over HTTP, cumulative exponential histograms of scale 5.
    Otlp,
}

/// A data set and how it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathSet {
    A,
    B,
    BClassic,
    BOtlp,
}

pub(crate) const SETS: [PathSet; 4] = [PathSet::A, PathSet::B, PathSet::BClassic, PathSet::BOtlp];

/// Histograms of the classic set: 10,000 series with 12 buckets and the 140,000 counters that
/// they are.
const CLASSIC_SERIES: usize = 10_000;
const CLASSIC_MINUTES: usize = 60;
const MINUTES_ALONE: usize = 120;
const MINUTES_MANY: usize = 4;
/// Series per request; fewer of the classic set, whose series are larger.
const CHUNK: usize = 500;
const CHUNK_CLASSIC: usize = 250;

impl PathSet {
    pub(crate) fn name(self) -> &'static str {
        match self {
            PathSet::A => "A",
            PathSet::B => "B",
            PathSet::BClassic => "B-classic",
            PathSet::BOtlp => "B-OTLP",
        }
    }

    pub(crate) fn format(self) -> WireFormat {
        match self {
            PathSet::A | PathSet::B => WireFormat::Native,
            PathSet::BClassic => WireFormat::Classic,
            PathSet::BOtlp => WireFormat::Otlp,
        }
    }

    /// The data set at a part of its size: of A fewer minutes, of B fewer series.
    pub(crate) fn dataset(self, scale: f64) -> Dataset {
        let part = |whole: usize| ((whole as f64 * scale).round() as usize).max(1);
        let (a, b) = (DatasetScale::full(DatasetKind::Disk), DatasetScale::full(DatasetKind::Http));
        match self {
            PathSet::A => {
                // Whole windows of 90 minutes.
                let minutes = part(a.minutes).div_ceil(MINUTES_A) * MINUTES_A;
                Dataset::new(DatasetKind::Disk, DatasetScale { minutes, ..a })
            }
            PathSet::B | PathSet::BOtlp => {
                Dataset::new(DatasetKind::Http, DatasetScale { series: part(b.series), ..b })
            }
            PathSet::BClassic => {
                let series = part(CLASSIC_SERIES);
                let minutes = CLASSIC_MINUTES;
                Dataset::new(DatasetKind::Http, DatasetScale { series, minutes, ..b })
            }
        }
    }
}

/// Least common multiple of the windows of A: 4 and 90 minutes.
const MINUTES_A: usize = 180;

/// Requests of a data set by connection.
pub(crate) struct Workload {
    pub(crate) format: WireFormat,
    pub(crate) lanes: Vec<Vec<Vec<u8>>>,
    /// Histograms.
    pub(crate) points: u64,
}

impl Workload {
    pub(crate) fn bytes(&self) -> u64 {
        self.lanes.iter().flatten().map(|body| body.len() as u64).sum()
    }
}

/// Encodes a data set; adds its counts to `expected` if given.
pub(crate) fn encode(
    dataset: &Dataset,
    format: WireFormat,
    expected: Option<&mut CountOracle>,
) -> Workload {
    let scale = dataset.scale();
    let lanes = if scale.series == 1 { 1 } else { 2 };
    let collects = expected.is_some();
    let parts: Vec<(Vec<Vec<u8>>, Option<CountOracle>)> = std::thread::scope(|scope| {
        let lane = |lane: usize| {
            let series = scale.series * lane / lanes..scale.series * (lane + 1) / lanes;
            scope.spawn(move || {
                let mut expected = collects.then(|| CountOracle::new(dataset));
                let bodies = encode_lane(dataset, format, series, expected.as_mut());
                (bodies, expected)
            })
        };
        let running: Vec<_> = (0..lanes).map(lane).collect();
        running.into_iter().map(|one| one.join().expect("BUG: encoding does not panic")).collect()
    });
    let (mut all, mut expected) = (Vec::new(), expected);
    for (bodies, part) in parts {
        all.push(bodies);
        if let Some((expected, part)) = expected.as_deref_mut().zip(part) {
            expected.merge(&part);
        }
    }
    let points = (scale.series * scale.minutes) as u64;
    Workload { format, lanes: all, points }
}

fn encode_lane(
    dataset: &Dataset,
    format: WireFormat,
    series: std::ops::Range<usize>,
    mut expected: Option<&mut CountOracle>,
) -> Vec<Vec<u8>> {
    let (minutes, moved) = (dataset.scale().minutes, BucketMap::new());
    let named: Vec<SyntheticSeries> = series.clone().map(|at| dataset.series(at)).collect();
    let mut counted = vec![SeriesCounts::new(); named.len()];
    let mut generator = dataset.generator();
    let step = if dataset.scale().series == 1 { MINUTES_ALONE } else { MINUTES_MANY };
    let chunk = if format == WireFormat::Classic { CHUNK_CLASSIC } else { CHUNK };
    let mut encoder = encoding::encoder(format, dataset);
    let mut bodies = Vec::new();
    for first in (0..minutes).step_by(step) {
        for start in (0..named.len()).step_by(chunk) {
            for at in start..(start + chunk).min(named.len()) {
                encoder.begin(&named[at]);
                // Counters that were there before their first value: an increase is then complete.
                if first == 0 {
                    encoder.put(&counted[at], dataset.start_ns(0));
                }
                for minute in first..(first + step).min(minutes) {
                    let sample = generator.draw(series.start + at, minute);
                    counted[at].add(sample, &moved);
                    if let Some(expected) = expected.as_deref_mut() {
                        expected.add(sample, &moved);
                    }
                    encoder.put(&counted[at], dataset.start_ns(minute + 1));
                }
                encoder.end();
            }
            bodies.push(encoder.take());
        }
    }
    bodies
}
