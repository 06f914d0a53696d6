//! `avg`: the sum divided by the count, as long as the sum does not leave the doubles; from there on, a mean that
//! each value moves a little. Prometheus found the sum to be the more accurate.

use std::sync::Arc;

use crate::histogram::{
    Combined, Compensation, FloatHistogram, Incompatible, Kahan, add_compensated,
};
use crate::value::Value;

use super::fold::{Findings, Fold};
use super::sum::Resets;

#[derive(Clone, Default)]
pub(super) struct Mean {
    count: u64,
    numbers: Option<Running<Kahan>>,
    histograms: Option<Box<Running<Total>>>,
    has_histogram: bool,
    is_broken: bool,
    resets: Resets,
}

/// Either way of getting at a mean.
#[derive(Clone)]
enum Running<T> {
    /// The sum so far.
    Sum(T),
    /// The mean so far.
    Mean(T),
}

#[derive(Clone)]
struct Total {
    histogram: FloatHistogram,
    compensation: Compensation,
}

impl Fold for Mean {
    fn push(&mut self, value: Value, metric: &str, findings: &mut Findings) {
        if self.is_broken {
            return;
        }
        self.count += 1;
        let count = self.count as f64;
        if let Some(number) = value.number() {
            self.numbers = Some(match self.numbers.take() {
                None => Running::Sum(Kahan { sum: number, lost: 0.0 }),
                Some(running) => add_number(running, number, count),
            });
            return;
        }
        self.has_histogram = true;
        let Some(histogram) = value.histogram() else { return };
        match self.histograms.take() {
            None if self.count == 1 => {
                self.resets.see(histogram.hint);
                self.histograms = Some(Box::new(Running::Sum(Total {
                    histogram: Arc::unwrap_or_clone(histogram),
                    compensation: Compensation::default(),
                })));
            }
            None => {}
            Some(running) => {
                self.resets.see(histogram.hint);
                match add_histogram(*running, &histogram, count) {
                    Ok((running, combined)) => {
                        findings.reconciled |= combined.bounds_reconciled;
                        self.histograms = Some(Box::new(running));
                    }
                    Err(_) => {
                        self.is_broken = true;
                        findings.unfitting.insert(metric.to_owned());
                    }
                }
            }
        }
    }

    fn finish(self, findings: &mut Findings) -> Option<Value> {
        if self.numbers.is_some() && self.has_histogram {
            findings.mixed = true;
            return None;
        }
        if self.is_broken {
            return None;
        }
        findings.collided |= self.resets.collide();
        let count = self.count as f64;
        match (self.numbers, self.histograms) {
            (Some(Running::Sum(sum)), _) => Some(Value::Number(sum.sum / count + sum.lost / count)),
            (Some(Running::Mean(mean)), _) => Some(Value::Number(mean.sum + mean.lost)),
            (None, Some(running)) => {
                let (mut histogram, compensation) = match *running {
                    Running::Mean(mean) => (mean.histogram, mean.compensation),
                    Running::Sum(mut sum) => {
                        sum.histogram.div(count);
                        sum.compensation.div(count);
                        (sum.histogram, sum.compensation)
                    }
                };
                histogram.settle(&compensation);
                Some(Value::Histogram(Arc::new(histogram)))
            }
            (None, None) => None,
        }
    }
}

/// With one number more; `count` counts it already.
fn add_number(running: Running<Kahan>, number: f64, count: f64) -> Running<Kahan> {
    let mean = match running {
        Running::Sum(sum) => {
            let longer = add_compensated(number, sum);
            if !longer.sum.is_infinite() {
                return Running::Sum(longer);
            }
            Kahan { sum: sum.sum / (count - 1.0), lost: sum.lost / (count - 1.0) }
        }
        Running::Mean(mean) => mean,
    };
    let share = (count - 1.0) / count;
    let shrunk = Kahan { sum: share * mean.sum, lost: share * mean.lost };
    Running::Mean(add_compensated(number / count, shrunk))
}

fn add_histogram(
    running: Running<Total>,
    histogram: &FloatHistogram,
    count: f64,
) -> Result<(Running<Total>, Combined), Incompatible> {
    let mut mean = match running {
        Running::Sum(mut sum) => {
            let mut longer = sum.clone();
            let combined = longer.histogram.kahan_add(histogram, &mut longer.compensation)?;
            if !longer.histogram.has_overflow() {
                return Ok((Running::Sum(longer), combined));
            }
            sum.histogram.div(count - 1.0);
            sum.compensation.div(count - 1.0);
            sum
        }
        Running::Mean(mean) => mean,
    };
    let share = (count - 1.0) / count;
    mean.histogram.mul(share);
    mean.compensation.mul(share);
    let mut part = histogram.clone();
    part.div(count);
    let combined = mean.histogram.kahan_add(&part, &mut mean.compensation)?;
    Ok((Running::Mean(mean), combined))
}
