//! `sum`: numbers with what is known of their bounds, histograms, and distributions, which stay what they are.

use std::sync::Arc;

use hist::Mixture;

use crate::eval::binary::bounds;
use crate::histogram::{
    Compensation, FloatHistogram, Incompatible, Kahan, ResetHint, add_compensated,
};
use crate::value::Value;

use super::fold::{Findings, Fold};

#[derive(Clone, Default)]
pub(super) struct Sum {
    numbers: Option<Kahan>,
    /// How far below and above the sum of numbers the truth may lie.
    doubt: (f64, f64),
    histograms: Total,
    has_histogram: bool,
    is_broken: bool,
    resets: Resets,
}

/// What histograms add up to.
#[derive(Clone, Default)]
enum Total {
    #[default]
    Nothing,
    /// Distributions only.
    Whole(Arc<Mixture>),
    Compensated(Box<(FloatHistogram, Compensation)>),
}

/// Which hints were seen.
#[derive(Clone, Copy, Default)]
pub(super) struct Resets {
    reset: bool,
    not_reset: bool,
}

impl Resets {
    pub(super) fn see(&mut self, hint: ResetHint) {
        self.reset |= hint == ResetHint::Reset;
        self.not_reset |= hint == ResetHint::NotReset;
    }

    pub(super) fn collide(self) -> bool {
        self.reset && self.not_reset
    }
}

impl Fold for Sum {
    fn push(&mut self, value: Value, metric: &str, findings: &mut Findings) {
        if self.is_broken {
            return;
        }
        let is_first = self.numbers.is_none() && !self.has_histogram;
        if let Some(number) = value.number() {
            self.numbers = Some(match self.numbers {
                None => Kahan { sum: number, lost: 0.0 },
                Some(sum) => add_compensated(number, sum),
            });
            if let Value::Bracket(bracket) = &value {
                let (lower, upper) = (number - bracket.lower, bracket.upper - number);
                self.doubt.0 = bounds::above(self.doubt.0 + bounds::above(lower));
                self.doubt.1 = bounds::above(self.doubt.1 + bounds::above(upper));
            }
            return;
        }
        self.has_histogram = true;
        if is_first || !matches!(self.histograms, Total::Nothing) {
            self.is_broken = self.add(value, findings).is_err();
            if self.is_broken {
                findings.unfitting.insert(metric.to_owned());
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
        match self.histograms {
            Total::Nothing => {
                let numbers = self.numbers?;
                let sum = numbers.sum + numbers.lost;
                if self.doubt == (0.0, 0.0) {
                    return Some(Value::Number(sum));
                }
                let (lower, upper) = (sum - self.doubt.0, sum + self.doubt.1);
                let bracket = bounds::around(bounds::below(lower), sum, bounds::above(upper));
                Some(bracket.map_or(Value::Number(sum), Value::of_bracket))
            }
            Total::Whole(mixture) => Some(Value::Distribution(mixture)),
            Total::Compensated(total) => {
                let (mut histogram, compensation) = *total;
                histogram.settle(&compensation);
                Some(Value::Histogram(Arc::new(histogram)))
            }
        }
    }
}

impl Sum {
    fn add(&mut self, value: Value, findings: &mut Findings) -> Result<(), Incompatible> {
        match (&mut self.histograms, value) {
            (Total::Nothing, Value::Distribution(mixture)) => {
                self.histograms = Total::Whole(mixture);
                Ok(())
            }
            (Total::Nothing, value) => {
                if let Some(histogram) = value.histogram() {
                    self.resets.see(histogram.hint);
                    self.histograms = compensated(Arc::unwrap_or_clone(histogram));
                }
                Ok(())
            }
            (Total::Whole(whole), Value::Distribution(mixture)) => {
                let whole = Arc::make_mut(whole);
                let failed = mixture.parts().iter().position(|part| whole.add(part).is_err());
                let Some(failed) = failed else { return Ok(()) };
                // Counts have left 64 bits: from here on they are floats.
                self.turn();
                for part in &mixture.parts()[failed..] {
                    self.add_histogram(&FloatHistogram::from(part), findings)?;
                }
                Ok(())
            }
            (_, value) => {
                self.turn();
                match value.histogram() {
                    Some(histogram) => self.add_histogram(&histogram, findings),
                    None => Ok(()),
                }
            }
        }
    }

    /// From distributions to a histogram that histograms of any kind can be added to.
    fn turn(&mut self) {
        if let Total::Whole(whole) = &self.histograms
            && let Some(histogram) = Value::Distribution(Arc::clone(whole)).histogram()
        {
            self.resets.see(histogram.hint);
            self.histograms = compensated(Arc::unwrap_or_clone(histogram));
        }
    }

    fn add_histogram(
        &mut self,
        histogram: &FloatHistogram,
        findings: &mut Findings,
    ) -> Result<(), Incompatible> {
        self.resets.see(histogram.hint);
        let Total::Compensated(total) = &mut self.histograms else { return Ok(()) };
        let (sum, compensation) = &mut **total;
        let combined = sum.kahan_add(histogram, compensation)?;
        findings.reconciled |= combined.bounds_reconciled;
        Ok(())
    }
}

fn compensated(histogram: FloatHistogram) -> Total {
    Total::Compensated(Box::new((histogram, Compensation::default())))
}
