//! `sum` of numbers with bounds, of histograms, and of distributions, which stay distributions.

use std::sync::Arc;

use hist::Mixture;

use crate::eval::binary::bounds;
use crate::histogram::{
    Compensation, DenseSum, FloatHistogram, IncompatibleHistograms, KahanSum, ResetHint,
    SchemeConversion, add_compensated,
};
use crate::value::{StepValue, samples_of, samples_of_histogram};

use super::fold::{FoldAnnotations, GroupFold};

#[derive(Clone, Default)]
pub(super) struct SumFold {
    numbers: Option<KahanSum>,
    /// Distance of the lower and upper bound from the sum.
    error_bounds: (f64, f64),
    histograms: HistogramTotal,
    has_histogram: bool,
    is_incompatible: bool,
    resets: ResetHints,
}

/// Sum of histograms.
#[derive(Clone, Default)]
enum HistogramTotal {
    #[default]
    Nothing,
    /// Distributions only.
    Mixture(Arc<Mixture>),
    /// Histograms of one scheme.
    Dense(Arc<SchemeConversion>, Box<DenseSum>),
    Compensated(Box<(FloatHistogram, Compensation)>),
}

/// Hints seen so far.
#[derive(Clone, Copy, Default)]
pub(super) struct ResetHints {
    reset: bool,
    not_reset: bool,
}

impl ResetHints {
    pub(super) fn record(&mut self, hint: ResetHint) {
        self.reset |= hint == ResetHint::Reset;
        self.not_reset |= hint == ResetHint::NotReset;
    }

    pub(super) fn collide(self) -> bool {
        self.reset && self.not_reset
    }
}

impl GroupFold for SumFold {
    fn push(&mut self, value: StepValue, metric: &str, findings: &mut FoldAnnotations) {
        if self.is_incompatible {
            return;
        }
        let is_first = self.numbers.is_none() && !self.has_histogram;
        if let Some(number) = value.number() {
            self.numbers = Some(match self.numbers {
                None => KahanSum { sum: number, compensation: 0.0 },
                Some(sum) => add_compensated(number, sum),
            });
            if let StepValue::Bracket(bracket) = &value {
                let (lower, upper) = (number - bracket.lower, bracket.upper - number);
                self.error_bounds.0 =
                    bounds::next_above(self.error_bounds.0 + bounds::next_above(lower));
                self.error_bounds.1 =
                    bounds::next_above(self.error_bounds.1 + bounds::next_above(upper));
            }
            return;
        }
        self.has_histogram = true;
        if (is_first || !matches!(self.histograms, HistogramTotal::Nothing))
            && let Err(reason) = self.add(value, findings)
        {
            self.is_incompatible = true;
            findings.add_incompatible(metric, reason);
        }
    }

    fn push_sum(
        &mut self,
        conversion: &Arc<SchemeConversion>,
        sum: DenseSum,
        metric: &str,
        findings: &mut FoldAnnotations,
    ) {
        if let HistogramTotal::Dense(held, total) = &mut self.histograms
            && held == conversion
            && total.add(&sum)
        {
            return;
        }
        if self.numbers.is_none() && !self.has_histogram {
            self.has_histogram = true;
            self.histograms = HistogramTotal::Dense(Arc::clone(conversion), Box::new(sum));
            return;
        }
        let histogram = sum.to_histogram(conversion);
        self.push(StepValue::Histogram(Arc::new(histogram)), metric, findings);
    }

    fn samples(&self) -> u64 {
        match &self.histograms {
            HistogramTotal::Nothing => 1,
            HistogramTotal::Dense(_, total) => total.samples(),
            HistogramTotal::Mixture(mixture) => samples_of(mixture),
            // A compensation for each bucket.
            HistogramTotal::Compensated(total) => 2 * samples_of_histogram(&total.0),
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
        match self.histograms {
            HistogramTotal::Nothing => {
                let numbers = self.numbers?;
                let sum = numbers.sum + numbers.compensation;
                if self.error_bounds == (0.0, 0.0) {
                    return Some(StepValue::Number(sum));
                }
                let (lower, upper) = (sum - self.error_bounds.0, sum + self.error_bounds.1);
                let bracket = bounds::bracket_around(
                    bounds::next_below(lower),
                    sum,
                    bounds::next_above(upper),
                );
                Some(bracket.map_or(StepValue::Number(sum), StepValue::from_bracket))
            }
            HistogramTotal::Mixture(mixture) => Some(StepValue::Distribution(mixture)),
            HistogramTotal::Dense(conversion, total) => {
                Some(StepValue::Histogram(Arc::new(total.to_histogram(&conversion))))
            }
            HistogramTotal::Compensated(total) => {
                let (mut histogram, compensation) = *total;
                histogram.apply_compensation(&compensation);
                Some(StepValue::Histogram(Arc::new(histogram)))
            }
        }
    }
}

impl SumFold {
    fn add(
        &mut self,
        value: StepValue,
        findings: &mut FoldAnnotations,
    ) -> Result<(), IncompatibleHistograms> {
        match (&mut self.histograms, value) {
            (HistogramTotal::Nothing, StepValue::Distribution(mixture)) => {
                self.histograms = HistogramTotal::Mixture(mixture);
                Ok(())
            }
            (HistogramTotal::Nothing, value) => {
                if let Some(histogram) = value.histogram() {
                    self.resets.record(histogram.hint);
                    self.histograms = compensated_total(Arc::unwrap_or_clone(histogram));
                }
                Ok(())
            }
            (HistogramTotal::Mixture(total), StepValue::Distribution(mixture)) => {
                let total = Arc::make_mut(total);
                let failed = mixture.components().iter().position(|part| total.add(part).is_err());
                let Some(failed) = failed else { return Ok(()) };
                // Counts overflow 64 bits: continue with float counts.
                self.convert_to_float_histogram();
                for part in &mixture.components()[failed..] {
                    self.add_histogram(&FloatHistogram::from(part), findings)?;
                }
                Ok(())
            }
            (_, value) => {
                self.convert_to_float_histogram();
                match value.histogram() {
                    Some(histogram) => self.add_histogram(&histogram, findings),
                    None => Ok(()),
                }
            }
        }
    }

    /// Converts the total to a float histogram, to which all kinds of histograms can be added.
    fn convert_to_float_histogram(&mut self) {
        if let HistogramTotal::Dense(conversion, total) = &self.histograms {
            self.histograms = compensated_total(total.to_histogram(conversion));
        }
        if let HistogramTotal::Mixture(total) = &self.histograms
            && let Some(histogram) = StepValue::Distribution(Arc::clone(total)).histogram()
        {
            self.resets.record(histogram.hint);
            self.histograms = compensated_total(Arc::unwrap_or_clone(histogram));
        }
    }

    fn add_histogram(
        &mut self,
        histogram: &FloatHistogram,
        findings: &mut FoldAnnotations,
    ) -> Result<(), IncompatibleHistograms> {
        self.resets.record(histogram.hint);
        let HistogramTotal::Compensated(total) = &mut self.histograms else { return Ok(()) };
        let (sum, compensation) = &mut **total;
        let combined = sum.kahan_add(histogram, compensation)?;
        findings.bounds_reconciled |= combined.bounds_reconciled;
        Ok(())
    }
}

fn compensated_total(histogram: FloatHistogram) -> HistogramTotal {
    HistogramTotal::Compensated(Box::new((histogram, Compensation::default())))
}
