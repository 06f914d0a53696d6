//! `running_total`.

use hist::Bracket;

use crate::error::Result;
use crate::eval::Evaluation;
use crate::stream::Stream;
use crate::value::StepValue;

use super::FunctionCall;

/// Sum of a stream's numbers from the first step. NaN and steps without a value add nothing; the
/// latter stay without a value. Bounds are summed too.
pub(crate) fn running_total(
    evaluation: &mut Evaluation<'_>,
    call: &FunctionCall<'_>,
) -> Result<Vec<Stream>> {
    let mut streams = evaluation.streams(&call.args[0], call.steps)?;
    let sample_count = super::samples(&streams);
    for stream in &mut streams {
        let mut totals = [NeumaierSum::default(); 3];
        for point in &mut stream.points {
            *point = point.as_ref().and_then(StepValue::bracket).map(
                |Bracket { lower, estimate, upper }| {
                    if !estimate.is_nan() {
                        totals[0].add(lower);
                        totals[1].add(estimate);
                        totals[2].add(upper);
                    }
                    let [lower, estimate, upper] = totals.map(NeumaierSum::value);
                    StepValue::from_bounds(lower, estimate, upper)
                },
            );
        }
        evaluation.drop_name(stream);
    }
    evaluation.replace_streams(sample_count, &mut streams)?;
    evaluation.merge_equal_labels(streams, call.span)
}

/// Neumaier-compensated sum.
#[derive(Clone, Copy, Default)]
struct NeumaierSum {
    sum: f64,
    compensation: f64,
}

impl NeumaierSum {
    fn add(&mut self, more: f64) {
        let sum = self.sum + more;
        if sum.is_finite() {
            let (large, small) =
                if self.sum.abs() >= more.abs() { (self.sum, more) } else { (more, self.sum) };
            self.compensation += large - sum + small;
        }
        self.sum = sum;
    }

    fn value(self) -> f64 {
        self.sum + self.compensation
    }
}
