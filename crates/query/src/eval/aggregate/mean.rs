//! `avg`: sum divided by count while the sum is finite; after an overflow, an incrementally updated
//! mean. Prometheus found the sum to be more accurate.

use std::sync::Arc;

use crate::histogram::{
    AddOutcome, Compensation, FloatHistogram, IncompatibleHistograms, KahanSum, add_compensated,
};
use crate::value::{StepValue, samples_of_histogram};

use super::fold::{FoldAnnotations, GroupFold};
use super::sum::ResetHints;

#[derive(Clone, Default)]
pub(super) struct MeanFold {
    count: u64,
    numbers: Option<MeanAccumulator<KahanSum>>,
    histograms: Option<Box<MeanAccumulator<CompensatedHistogram>>>,
    has_histogram: bool,
    is_incompatible: bool,
    resets: ResetHints,
}

/// Accumulator of a mean: sum or running mean.
#[derive(Clone)]
enum MeanAccumulator<T> {
    /// Running sum.
    Sum(T),
    /// Running mean.
    Mean(T),
}

#[derive(Clone)]
struct CompensatedHistogram {
    histogram: FloatHistogram,
    compensation: Compensation,
}

impl GroupFold for MeanFold {
    fn push(&mut self, value: StepValue, metric: &str, findings: &mut FoldAnnotations) {
        if self.is_incompatible {
            return;
        }
        self.count += 1;
        let count = self.count as f64;
        if let Some(number) = value.number() {
            self.numbers = Some(match self.numbers.take() {
                None => MeanAccumulator::Sum(KahanSum { sum: number, compensation: 0.0 }),
                Some(running) => add_number(running, number, count),
            });
            return;
        }
        self.has_histogram = true;
        let Some(histogram) = value.histogram() else { return };
        match self.histograms.take() {
            None if self.count == 1 => {
                self.resets.record(histogram.hint);
                self.histograms = Some(Box::new(MeanAccumulator::Sum(CompensatedHistogram {
                    histogram: Arc::unwrap_or_clone(histogram),
                    compensation: Compensation::default(),
                })));
            }
            None => {}
            Some(running) => {
                self.resets.record(histogram.hint);
                match add_histogram(*running, &histogram, count) {
                    Ok((running, combined)) => {
                        findings.bounds_reconciled |= combined.bounds_reconciled;
                        self.histograms = Some(Box::new(running));
                    }
                    Err(reason) => {
                        self.is_incompatible = true;
                        findings.add_incompatible(metric, reason);
                    }
                }
            }
        }
    }

    fn samples(&self) -> u64 {
        match self.histograms.as_deref() {
            None => 1,
            // A compensation for each bucket.
            Some(MeanAccumulator::Sum(mean) | MeanAccumulator::Mean(mean)) => {
                2 * samples_of_histogram(&mean.histogram)
            }
        }
    }

    fn finish(self, findings: &mut FoldAnnotations) -> Option<StepValue> {
        if self.numbers.is_some() && self.has_histogram {
            findings.mixed_kinds = true;
            return None;
        }
        if self.is_incompatible {
            return None;
        }
        findings.resets_collide |= self.resets.collide();
        let count = self.count as f64;
        match (self.numbers, self.histograms) {
            (Some(MeanAccumulator::Sum(sum)), _) => {
                Some(StepValue::Number(sum.sum / count + sum.compensation / count))
            }
            (Some(MeanAccumulator::Mean(mean)), _) => {
                Some(StepValue::Number(mean.sum + mean.compensation))
            }
            (None, Some(running)) => {
                let (mut histogram, compensation) = match *running {
                    MeanAccumulator::Mean(mean) => (mean.histogram, mean.compensation),
                    MeanAccumulator::Sum(mut sum) => {
                        sum.histogram.div(count);
                        sum.compensation.div(count);
                        (sum.histogram, sum.compensation)
                    }
                };
                histogram.apply_compensation(&compensation);
                Some(StepValue::Histogram(Arc::new(histogram)))
            }
            (None, None) => None,
        }
    }
}

/// Adds a number; `count` includes it.
fn add_number(
    running: MeanAccumulator<KahanSum>,
    number: f64,
    count: f64,
) -> MeanAccumulator<KahanSum> {
    let mean = match running {
        MeanAccumulator::Sum(sum) => {
            let longer = add_compensated(number, sum);
            if !longer.sum.is_infinite() {
                return MeanAccumulator::Sum(longer);
            }
            KahanSum {
                sum: sum.sum / (count - 1.0),
                compensation: sum.compensation / (count - 1.0),
            }
        }
        MeanAccumulator::Mean(mean) => mean,
    };
    let share = (count - 1.0) / count;
    let shrunk = KahanSum { sum: share * mean.sum, compensation: share * mean.compensation };
    MeanAccumulator::Mean(add_compensated(number / count, shrunk))
}

fn add_histogram(
    running: MeanAccumulator<CompensatedHistogram>,
    histogram: &FloatHistogram,
    count: f64,
) -> Result<(MeanAccumulator<CompensatedHistogram>, AddOutcome), IncompatibleHistograms> {
    let mut mean = match running {
        MeanAccumulator::Sum(mut sum) => {
            let mut longer = sum.clone();
            let combined = longer.histogram.kahan_add(histogram, &mut longer.compensation)?;
            if !longer.histogram.has_overflow() {
                return Ok((MeanAccumulator::Sum(longer), combined));
            }
            sum.histogram.div(count - 1.0);
            sum.compensation.div(count - 1.0);
            sum
        }
        MeanAccumulator::Mean(mean) => mean,
    };
    let share = (count - 1.0) / count;
    mean.histogram.mul(share);
    mean.compensation.mul(share);
    let mut part = histogram.clone();
    part.div(count);
    let combined = mean.histogram.kahan_add(&part, &mut mean.compensation)?;
    Ok((MeanAccumulator::Mean(mean), combined))
}
