//! Statistics of distributions: Prometheus' estimate with bounds of the true value.
//!
//! Distributions are native histograms or classic ones, which have one series per bucket with the
//! label `le`. `histogram_count`, `_sum`, `_avg`, `_stddev` and `_stdvar` accept only the former.

mod histogram_series;
mod recorded_range;
mod statistic;

use crate::error::{Result, SourceSpan};
use crate::eval::Evaluation;
use crate::eval::node::multiple_of_duration;
use crate::histogram::GoNumber;
use crate::labels::NAME;
use crate::plan::PlanNode;
use crate::promql::quantile::{ForcedMonotonic, NanEffect};
use crate::query_warnings::QueryWarnings;
use crate::stream::Stream;
use crate::threshold_range::ThresholdRange;
use crate::value::StepValue;

use super::{FunctionCall, text_argument};
use histogram_series::{HistogramSeries, HistogramSeriesList, StepHistogram};

pub(crate) fn count(
    evaluation: &mut Evaluation<'_>,
    call: &FunctionCall<'_>,
) -> Result<Vec<Stream>> {
    native_statistic(evaluation, call, statistic::count)
}

pub(crate) fn sum(evaluation: &mut Evaluation<'_>, call: &FunctionCall<'_>) -> Result<Vec<Stream>> {
    native_statistic(evaluation, call, statistic::sum)
}

pub(crate) fn avg(evaluation: &mut Evaluation<'_>, call: &FunctionCall<'_>) -> Result<Vec<Stream>> {
    native_statistic(evaluation, call, statistic::avg)
}

pub(crate) fn stddev(
    evaluation: &mut Evaluation<'_>,
    call: &FunctionCall<'_>,
) -> Result<Vec<Stream>> {
    native_statistic(evaluation, call, statistic::stddev)
}

pub(crate) fn stdvar(
    evaluation: &mut Evaluation<'_>,
    call: &FunctionCall<'_>,
) -> Result<Vec<Stream>> {
    native_statistic(evaluation, call, statistic::stdvar)
}

/// Skips floats.
fn native_statistic(
    evaluation: &mut Evaluation<'_>,
    call: &FunctionCall<'_>,
    statistic: fn(&StepValue) -> Option<StepValue>,
) -> Result<Vec<Stream>> {
    let mut streams = evaluation.streams(&call.args[0], call.steps)?;
    let sample_count = super::samples(&streams);
    let is_delayed = evaluation.settings.delayed_name_removal;
    for stream in &mut streams {
        for point in &mut stream.points {
            *point = point.as_ref().and_then(statistic);
        }
        // Unlike other functions, these keep type and unit in Prometheus.
        match is_delayed {
            true => stream.drops_name = true,
            false => stream.labels = stream.labels.filter(|label| label != NAME),
        }
    }
    evaluation.replace_streams(sample_count, &mut streams)?;
    evaluation.merge_equal_labels(streams, call.span)
}

pub(crate) fn quantile(
    evaluation: &mut Evaluation<'_>,
    call: &FunctionCall<'_>,
) -> Result<Vec<Stream>> {
    let [q, of] = call.args else { panic!("BUG: histogram_quantile has two arguments") };
    let qs = quantiles_of(evaluation, q, call)?;
    let mut warnings = DistributionWarnings::new(of.span);
    let map = &mut |name: &str, step: usize, shape: &mut StepHistogram| {
        warnings.quantile(qs[step], shape, name, call.steps.time(step))
    };
    let (mut streams, held) = evaluation.map_histograms(of, call.steps, map)?;
    warnings.emit(&mut evaluation.warnings);
    evaluation.check_recorded_range(of, &mut streams, (call.steps, of.span))?;
    finish_streams(evaluation, streams, held, call)
}

/// Several quantiles, distinguished by a label.
pub(crate) fn quantiles(
    evaluation: &mut Evaluation<'_>,
    call: &FunctionCall<'_>,
) -> Result<Vec<Stream>> {
    let [of, label, qs @ ..] = call.args else {
        panic!("BUG: histogram_quantiles has three arguments and more");
    };
    let label = text_argument(label);
    let qs: Vec<Vec<f64>> =
        qs.iter().map(|q| quantiles_of(evaluation, q, call)).collect::<Result<_>>()?;
    let HistogramSeriesList { list, charged_samples: held } =
        evaluation.histogram_series(of, call.steps)?;
    let mut warnings = DistributionWarnings::new(of.span);
    let mut all = Vec::new();
    for subject in list {
        all.extend(qs.iter().map(|qs| quantile_stream(subject.clone(), qs, call, &mut warnings)));
        evaluation.budget.check_deadline()?;
    }
    warnings.emit(&mut evaluation.warnings);
    evaluation.check_recorded_range(of, &mut all, (call.steps, of.span))?;
    let streams = all.into_iter().zip(qs.iter().cycle());
    let streams = streams.flat_map(|(stream, qs)| by_quantile(stream, label, qs)).collect();
    finish_streams(evaluation, streams, held, call)
}

/// One stream for each quantile; nearly always, the quantile is the same at each step.
fn by_quantile(stream: Stream, label: &str, qs: &[f64]) -> Vec<Stream> {
    let mut kinds: Vec<u64> = qs.iter().map(|q| q.to_bits()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let of = |kind: u64| {
        let mut result = stream.clone();
        result.labels = result.labels.with(label, &quantile_text(f64::from_bits(kind)));
        for (point, q) in result.points.iter_mut().zip(qs) {
            point.take_if(|_| q.to_bits() != kind);
        }
        result
    };
    kinds.into_iter().map(of).collect()
}

/// OpenMetrics format: with a decimal point, so `1` becomes `1.0`.
fn quantile_text(q: f64) -> String {
    let text = GoNumber(if q == 0.0 { 0.0 } else { q }).to_string();
    match text.contains(['e', '.', 'N', 'I']) {
        true => text,
        false => text + ".0",
    }
}

/// Quantile argument at each step.
fn quantiles_of(
    evaluation: &mut Evaluation<'_>,
    q: &PlanNode,
    call: &FunctionCall<'_>,
) -> Result<Vec<f64>> {
    let qs = evaluation.scalar(q, call.steps)?;
    for bad in qs.iter().filter(|q| !(0.0..=1.0).contains(*q)) {
        let number = GoNumber(*bad);
        let message =
            format!("PromQL warning: quantile value should be between 0 and 1, got {number}");
        evaluation.warnings.warn(q.span, message);
    }
    Ok(qs)
}

fn quantile_stream(
    subject: HistogramSeries,
    qs: &[f64],
    call: &FunctionCall<'_>,
    warnings: &mut DistributionWarnings,
) -> Stream {
    let name = subject.name.clone();
    subject.map(|step, shape| warnings.quantile(qs[step], shape, &name, call.steps.time(step)))
}

pub(crate) fn fraction(
    evaluation: &mut Evaluation<'_>,
    call: &FunctionCall<'_>,
) -> Result<Vec<Stream>> {
    let [lower, upper, of] = call.args else {
        panic!("BUG: histogram_fraction has three arguments");
    };
    let mut beyond = [threshold_range(lower), threshold_range(upper)];
    let lower = evaluation.scalar_in_unit(lower, of, call.steps)?;
    let upper = evaluation.scalar_in_unit(upper, of, call.steps)?;
    let mut warnings = DistributionWarnings::new(of.span);
    let map = &mut |name: &str, step: usize, shape: &mut StepHistogram| {
        add_thresholds(&mut beyond, &[lower[step], upper[step]], shape);
        let (value, nan) = statistic::fraction(lower[step], upper[step], shape);
        warnings.nan(nan, name);
        value
    };
    let (streams, held) = evaluation.map_histograms(of, call.steps, map)?;
    warnings.emit(&mut evaluation.warnings);
    warn_of_thresholds(evaluation, &beyond, call.span, of)?;
    finish_streams(evaluation, streams, held, call)
}

/// Number of values above a limit.
pub(crate) fn count_above(
    evaluation: &mut Evaluation<'_>,
    call: &FunctionCall<'_>,
) -> Result<Vec<Stream>> {
    distribution_statistic(evaluation, call, |limits, shape| {
        statistic::count_within(limits[0], f64::INFINITY, shape)
    })
}

/// Number of values at or below a limit.
pub(crate) fn count_below(
    evaluation: &mut Evaluation<'_>,
    call: &FunctionCall<'_>,
) -> Result<Vec<Stream>> {
    distribution_statistic(evaluation, call, |limits, shape| {
        statistic::count_within(f64::NEG_INFINITY, limits[0], shape)
    })
}

/// Number of values above one limit and at or below another.
pub(crate) fn count_between(
    evaluation: &mut Evaluation<'_>,
    call: &FunctionCall<'_>,
) -> Result<Vec<Stream>> {
    distribution_statistic(evaluation, call, |limits, shape| {
        statistic::count_within(limits[0], limits[1], shape)
    })
}

/// Share of values at or below a limit.
pub(crate) fn inverse_quantile(
    evaluation: &mut Evaluation<'_>,
    call: &FunctionCall<'_>,
) -> Result<Vec<Stream>> {
    distribution_statistic(evaluation, call, |limits, shape| {
        statistic::fraction(f64::NEG_INFINITY, limits[0], shape).0
    })
}

/// Of `users` users, the number with a value above a limit.
pub(crate) fn users_affected(
    evaluation: &mut Evaluation<'_>,
    call: &FunctionCall<'_>,
) -> Result<Vec<Stream>> {
    distribution_statistic(evaluation, call, |limits, shape| {
        let share = statistic::fraction(limits[0], f64::INFINITY, shape).0;
        statistic::scale(share, limits[1])
    })
}

pub(crate) fn max(evaluation: &mut Evaluation<'_>, call: &FunctionCall<'_>) -> Result<Vec<Stream>> {
    distribution_statistic(evaluation, call, |_, shape| statistic::extreme(shape, true))
}

pub(crate) fn min(evaluation: &mut Evaluation<'_>, call: &FunctionCall<'_>) -> Result<Vec<Stream>> {
    distribution_statistic(evaluation, call, |_, shape| statistic::extreme(shape, false))
}

/// Function that Prometheus does not have: numbers first, distributions last.
fn distribution_statistic(
    evaluation: &mut Evaluation<'_>,
    call: &FunctionCall<'_>,
    statistic: impl Fn(&[f64], &mut StepHistogram) -> StepValue,
) -> Result<Vec<Stream>> {
    let Some((of, limits)) = call.args.split_last() else {
        panic!("BUG: a function of distributions has an argument");
    };
    let mut beyond = [limits.first().map_or_else(ThresholdRange::default, threshold_range)];
    let limits: Vec<Vec<f64>> = limits
        .iter()
        .map(|limit| evaluation.scalar_in_unit(limit, of, call.steps))
        .collect::<Result<_>>()?;
    let map = &mut |_: &str, step: usize, shape: &mut StepHistogram| {
        let limits: Vec<f64> = limits.iter().map(|limit| limit[step]).collect();
        add_thresholds(&mut beyond, &limits, shape);
        statistic(&limits, shape)
    };
    let (streams, held) = evaluation.map_histograms(of, call.steps, map)?;
    warn_of_thresholds(evaluation, &beyond, call.span, of)?;
    finish_streams(evaluation, streams, held, call)
}

/// Compares thresholds with the values of a step. Buckets of a classic histogram have no unit.
fn add_thresholds(beyond: &mut [ThresholdRange], thresholds: &[f64], shape: &StepHistogram) {
    let StepHistogram::Native(value) = shape else { return };
    let values = match value {
        StepValue::Distribution(mixture) => ThresholdRange::values_of(mixture),
        StepValue::Histogram(histogram) => {
            let mut filled = histogram.buckets().filter(|bucket| bucket.count != 0.0);
            let first = filled.next();
            first.map(|first| (first.lower, filled.next_back().unwrap_or(first).upper))
        }
        _ => None,
    };
    let Some(values) = values else { return };
    beyond.iter_mut().zip(thresholds).for_each(|(beyond, &at)| beyond.add(at, values));
}

fn warn_of_thresholds(
    evaluation: &mut Evaluation<'_>,
    beyond: &[ThresholdRange],
    span: SourceSpan,
    of: &PlanNode,
) -> Result<()> {
    if beyond.iter().all(|of| of.warning(None).is_none()) {
        return Ok(());
    }
    let unit = evaluation.unit(of)?.text();
    for text in beyond.iter().filter_map(|of| of.warning(unit.as_deref())) {
        evaluation.warnings.warn(span, text);
    }
    Ok(())
}

fn threshold_range(threshold: &PlanNode) -> ThresholdRange {
    ThresholdRange::new(multiple_of_duration(threshold).is_some())
}

fn finish_streams(
    evaluation: &mut Evaluation<'_>,
    mut streams: Vec<Stream>,
    sample_count: u64,
    call: &FunctionCall<'_>,
) -> Result<Vec<Stream>> {
    for stream in &mut streams {
        evaluation.drop_name(stream);
    }
    evaluation.replace_streams(sample_count, &mut streams)?;
    evaluation.merge_equal_labels(streams, call.span)
}

/// Warnings about distributions, merged over steps and series.
struct DistributionWarnings {
    span: SourceSpan,
    warnings: QueryWarnings,
    /// Forced monotonicity, by metric name.
    forced: Vec<(String, MonotonicFixes)>,
}

/// Count, time range and size of monotonicity fixes.
struct MonotonicFixes {
    forced: ForcedMonotonic,
    count: u64,
    first: i64,
    last: i64,
}

impl DistributionWarnings {
    fn new(span: SourceSpan) -> DistributionWarnings {
        DistributionWarnings { span, warnings: QueryWarnings::default(), forced: Vec::new() }
    }

    /// Quantile of a histogram at a time.
    fn quantile(&mut self, q: f64, shape: &mut StepHistogram, name: &str, time: i64) -> StepValue {
        let (value, nan, forced) = statistic::quantile(q, shape);
        self.nan(nan, name);
        self.forced(forced, name, time);
        value
    }

    fn nan(&mut self, nan: Option<NanEffect>, name: &str) {
        let Some(nan) = nan else { return };
        let message = match nan {
            NanEffect::Result => {
                "PromQL info: input to histogram_quantile has NaN observations, result is NaN"
            }
            NanEffect::Skew => {
                "PromQL info: input to histogram_quantile has NaN observations, result is skewed \
                 higher"
            }
            NanEffect::Excluded => {
                "PromQL info: input to histogram_fraction has NaN observations, which are \
                 excluded from all fractions"
            }
        };
        self.warnings.info(self.span, histogram_series::with_metric_name(message, name));
    }

    fn forced(&mut self, forced: Option<ForcedMonotonic>, name: &str, time: i64) {
        let Some(forced) = forced else { return };
        match self.forced.iter_mut().find(|(held, _)| held == name) {
            Some((_, repairs)) => repairs.add(forced, time),
            None => {
                let repairs = MonotonicFixes { forced, count: 1, first: time, last: time };
                self.forced.push((name.to_owned(), repairs));
            }
        }
    }

    fn emit(self, notes: &mut QueryWarnings) {
        notes.append(self.warnings);
        for (name, repairs) in self.forced {
            let message = "PromQL info: input to histogram_quantile needed to be fixed for \
                           monotonicity (see \
                           https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile)";
            let message = histogram_series::with_metric_name(message, &name) + &repairs.text();
            notes.info(self.span, message);
        }
    }
}

impl MonotonicFixes {
    fn add(&mut self, forced: ForcedMonotonic, time: i64) {
        self.count += 1;
        self.first = self.first.min(time);
        self.last = self.last.max(time);
        self.forced.min_bound = self.forced.min_bound.min(forced.min_bound);
        self.forced.max_bound = self.forced.max_bound.max(forced.max_bound);
        self.forced.max_difference = self.forced.max_difference.max(forced.max_difference);
    }

    fn text(&self) -> String {
        let ForcedMonotonic { min_bound, max_bound, max_difference } = self.forced;
        // Two digits, formatted as any other number.
        let rounded = format!("{max_difference:.1e}").parse().unwrap_or(max_difference);
        format!(
            ", from buckets {} to {}, with a max diff of {}, over {} samples from {} to {}",
            GoNumber(min_bound),
            GoNumber(max_bound),
            GoNumber(rounded),
            self.count,
            super::time::text(self.first),
            super::time::text(self.last),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(q: f64, expected: &str) {
        assert_eq!(quantile_text(q), expected);
    }

    #[test]
    fn quantiles_as_labels() {
        check(0.5, "0.5");
        check(1.0, "1.0");
        check(0.0, "0.0");
        check(-1.0, "-1.0");
        check(0.00001, "1e-05");
        check(f64::NAN, "NaN");
        check(f64::INFINITY, "+Inf");
    }
}
