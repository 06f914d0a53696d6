//! Long runs of one cumulative histogram as senders of native histograms report it, without
//! extremes: samples are stored as increments wherever they can be.

use std::collections::BTreeMap;

use hist::{DoubleDouble, Histogram, HistogramParts, Scheme, TrackedValue};
use model::{Sample, SampleValue};
use proptest::prelude::*;
use store::{DAY, HOUR, MINUTE, TimeGrid};

use super::evaluator::ModelSample;
use super::program::{BEGIN, ModelRun, ModelStep, WITHOUT_EXTREMES, without_extremes};
use crate::fixture::StoreFixture;

/// What happens before a sample.
#[derive(Clone, Copy, Debug)]
pub(super) enum SampleEvent {
    Growth,
    /// The process starts anew: it says so, or only its counts do.
    Restart {
        has_start: bool,
    },
    /// The start moves without a restart.
    MovedStart,
    /// One bucket has lost a value.
    Decrease,
    /// Buckets become twice as wide, or half as wide with new counts.
    CoarserGrid,
    FinerGrid,
    /// Explicit bounds, which are others each time, with new counts.
    OtherBounds,
    UnknownSum,
    NegativeValue,
    Empty,
    Flush,
    Maintain,
    /// Kill and start: rows are read from the journal again.
    Reopen,
}

/// An event, what is added, and minutes since the sample before.
type DrawnRow = (SampleEvent, Vec<(i32, u64)>, i64);

fn drawn_row() -> impl Strategy<Value = DrawnRow> {
    let rare = prop::sample::select(vec![
        SampleEvent::Restart { has_start: true },
        SampleEvent::Restart { has_start: false },
        SampleEvent::MovedStart,
        SampleEvent::Decrease,
        SampleEvent::CoarserGrid,
        SampleEvent::FinerGrid,
        SampleEvent::OtherBounds,
        SampleEvent::UnknownSum,
        SampleEvent::NegativeValue,
        SampleEvent::Empty,
        SampleEvent::Flush,
        SampleEvent::Maintain,
        SampleEvent::Reopen,
    ]);
    (
        prop_oneof![40 => Just(SampleEvent::Growth), 1 => rare],
        prop::collection::vec((-20i32..20, 1u64..1 << 20), 0..5),
        prop_oneof![60 => 1i64..3, 1 => 1i64..700, 1 => Just(0i64), 1 => -90i64..0],
    )
}

/// A counting process.
struct Sender {
    scheme: Scheme,
    counts: BTreeMap<i32, u64>,
    negative: u64,
    sum: f64,
    start: Option<i64>,
    bounds: usize,
}

impl Sender {
    fn restart(&mut self, scheme: Scheme, start: Option<i64>) {
        (self.scheme, self.start) = (scheme, start);
        self.counts.clear();
        (self.negative, self.sum) = (0, 0.0);
    }

    fn coarsen(&mut self) {
        let Scheme::Exp2(exp2) = &self.scheme else { return };
        let Ok(scheme) = Scheme::exp2(i32::from(exp2.scale()) - 1) else { return };
        let value = self.value().unwrap();
        let mut coarse = Histogram::new(scheme.clone());
        coarse.merge(&value).unwrap();
        self.counts = coarse.positive().iter().collect();
        self.scheme = scheme;
    }

    fn value(&self) -> Option<Histogram> {
        let mut parts = HistogramParts::new(self.scheme.clone());
        parts.positive = self.counts.iter().map(|(&index, &count)| (index, count)).collect();
        if self.negative > 0 {
            parts.negative = vec![(3, self.negative)];
        }
        parts.sum = TrackedValue::Exact(DoubleDouble::new(self.sum));
        Histogram::from_recorded_parts(parts).ok()
    }

    /// Index of the bucket that a drawn one stands for.
    fn index(&self, drawn: i32) -> i32 {
        match self.scheme {
            Scheme::Explicit(_) => drawn.rem_euclid(3),
            _ => drawn,
        }
    }
}

/// Sends the samples and compares all answers.
pub(super) fn run(world: StoreFixture, rows: &[DrawnRow]) {
    let mut run = ModelRun::of(world);
    let mut sender = Sender {
        scheme: Scheme::exp2(3).unwrap(),
        counts: BTreeMap::new(),
        negative: 0,
        sum: 0.0,
        start: None,
        bounds: 0,
    };
    let mut end = BEGIN + 5 * HOUR;
    for (event, counts, minutes) in rows {
        let (mut is_sum_known, mut is_empty) = (true, false);
        match *event {
            SampleEvent::Growth => {}
            SampleEvent::Restart { has_start } => {
                sender.restart(sender.scheme.clone(), has_start.then_some(end));
            }
            SampleEvent::MovedStart => sender.start = Some(end - MINUTE),
            SampleEvent::Decrease => {
                if let Some(mut entry) = sender.counts.last_entry() {
                    *entry.get_mut() -= 1;
                }
                sender.counts.retain(|_, count| *count > 0);
            }
            SampleEvent::CoarserGrid => sender.coarsen(),
            SampleEvent::FinerGrid => sender.restart(Scheme::exp2(6).unwrap(), None),
            SampleEvent::OtherBounds => {
                sender.bounds += 1;
                let bounds = [1.0, 2.0 + sender.bounds as f64, 50.0];
                sender.restart(Scheme::explicit(&bounds).unwrap(), None);
            }
            SampleEvent::UnknownSum => is_sum_known = false,
            SampleEvent::NegativeValue => sender.negative += 1,
            SampleEvent::Empty => is_empty = true,
            SampleEvent::Flush => run.step(&ModelStep::Flush),
            SampleEvent::Maintain => run.step(&ModelStep::Maintain),
            SampleEvent::Reopen => run.reopen(),
        }
        if matches!(sender.scheme, Scheme::Explicit(_)) {
            sender.negative = 0;
        }
        for &(index, count) in counts {
            *sender.counts.entry(sender.index(index)).or_default() += count;
            sender.sum += count as f64 * 0.1;
        }
        let mut value = sender.value().unwrap();
        if !is_sum_known {
            let mut parts = value.into_parts();
            parts.sum = TrackedValue::Absent;
            value = without_extremes(Histogram::from_recorded_parts(parts).unwrap());
        }
        if is_empty {
            value = Histogram::new(sender.scheme.clone());
        }
        end += minutes * MINUTE;
        if end > run.now {
            run.advance(end - run.now);
        }
        let start = sender.start.filter(|&start| start < end).unwrap_or(end);
        let value = SampleValue::Histogram(Box::new(value));
        let sample = ModelSample { sample: Sample { start, end, value }, values: Vec::new() };
        run.send(0, vec![(WITHOUT_EXTREMES, sample)]);
    }
    let check = |run: &ModelRun| {
        let extent = run.extent().unwrap();
        let start = extent.start - extent.start.rem_euclid(DAY);
        for step in [extent.end - start, DAY, 6 * HOUR, 17 * MINUTE] {
            let columns = ((extent.end - start) as u64).div_ceil(step as u64);
            run.compare(TimeGrid { start, step, columns }, &[WITHOUT_EXTREMES]);
        }
    };
    check(&run);
    run.step(&ModelStep::Flush);
    check(&run);
    run.advance(3 * DAY);
    run.step(&ModelStep::Maintain);
    check(&run);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..Default::default() })]

    #[test]
    fn answers_of_long_cumulative_series_match_the_evaluator(
        rows in prop::collection::vec(drawn_row(), 1..400),
    ) {
        run(StoreFixture::new(), &rows);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..Default::default() })]

    #[test]
    #[ignore = "soak: twenty thousand long runs, some hours"]
    fn soak_answers_of_long_cumulative_series_match_the_evaluator(
        rows in prop::collection::vec(drawn_row(), 1..1_000),
    ) {
        run(StoreFixture::new(), &rows);
    }
}
