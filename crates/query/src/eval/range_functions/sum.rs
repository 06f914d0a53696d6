//! `sum_over_time` and `avg_over_time`, of floats or of histograms, with compensated summation.

use std::sync::Arc;

use crate::error::Result;
use crate::histogram::{
    Compensation, FloatHistogram, IncompatibleHistograms, KahanSum, ResetHint, add_compensated,
};
use crate::value::StepValue;

use super::series_warnings::{HistogramOperation, SeriesWarning, SeriesWarnings};
use super::window::{FloatPoint, HistogramPoint, RangeWindow};

pub(crate) fn sum(
    window: &RangeWindow<'_>,
    warnings: &mut SeriesWarnings,
) -> Result<Option<StepValue>> {
    Ok(combine_window(window, warnings, sum_of_floats, sum_of_histograms))
}

pub(crate) fn avg(
    window: &RangeWindow<'_>,
    warnings: &mut SeriesWarnings,
) -> Result<Option<StepValue>> {
    Ok(combine_window(window, warnings, mean_of_floats, mean_of_histograms))
}

/// Sum of histograms and whether custom bounds were reconciled, or the reason why there is none.
type HistogramSumResult = Result<(FloatHistogram, bool), IncompatibleHistograms>;

fn combine_window(
    window: &RangeWindow<'_>,
    warnings: &mut SeriesWarnings,
    of_floats: fn(&[FloatPoint]) -> f64,
    of_histograms: fn(&[HistogramPoint]) -> HistogramSumResult,
) -> Option<StepValue> {
    if window.is_mixed() {
        warnings.add(SeriesWarning::MixedFloatsHistograms);
        return None;
    }
    if !window.floats.is_empty() {
        return Some(StepValue::Number(of_floats(window.floats)));
    }
    if window.histograms.is_empty() {
        return None;
    }
    let total = of_histograms(window.histograms);
    let (total, is_reconciled) = total.map_err(|error| warnings.add(error.into())).ok()?;
    let has_hint = |hint| window.histograms.iter().any(|point| point.value.hint == hint);
    if has_hint(ResetHint::Reset) && has_hint(ResetHint::NotReset) {
        warnings.add(SeriesWarning::ResetsCollide);
    }
    if is_reconciled {
        warnings.add(SeriesWarning::BoundsReconciled(HistogramOperation::Aggregation));
    }
    Some(StepValue::Histogram(Arc::new(total)))
}

fn sum_of_floats(floats: &[FloatPoint]) -> f64 {
    let mut sum = KahanSum::default();
    for float in floats {
        sum = add_compensated(float.value, sum);
    }
    match sum.sum.is_infinite() {
        true => sum.sum,
        false => sum.sum + sum.compensation,
    }
}

/// Mean: sum divided by count, or an incremental mean after an overflow.
fn mean_of_floats(floats: &[FloatPoint]) -> f64 {
    let mut sum = KahanSum { sum: floats[0].value, compensation: 0.0 };
    let mut is_sum = true;
    let mut count = 1.0;
    for float in &floats[1..] {
        if is_sum {
            let more = add_compensated(float.value, sum);
            if !more.sum.is_infinite() {
                (sum, count) = (more, count + 1.0);
                continue;
            }
            is_sum = false;
            sum = KahanSum { sum: sum.sum / count, compensation: sum.compensation / count };
        }
        count += 1.0;
        let factor = (count - 1.0) / count;
        let before = KahanSum { sum: factor * sum.sum, compensation: factor * sum.compensation };
        sum = add_compensated(float.value / count, before);
    }
    match is_sum {
        true => sum.sum / count + sum.compensation / count,
        false => sum.sum + sum.compensation,
    }
}

fn sum_of_histograms(histograms: &[HistogramPoint]) -> HistogramSumResult {
    let (mut sum, compensation, is_reconciled) = plain_sum(histograms)?;
    sum.apply_compensation(&compensation);
    Ok((sum, is_reconciled))
}

/// Sum and compensation.
fn plain_sum(
    histograms: &[HistogramPoint],
) -> Result<(FloatHistogram, Compensation, bool), IncompatibleHistograms> {
    let mut sum = FloatHistogram::clone(&histograms[0].value);
    let mut compensation = Compensation::default();
    let mut is_reconciled = false;
    for histogram in &histograms[1..] {
        is_reconciled |= sum.kahan_add(&histogram.value, &mut compensation)?.bounds_reconciled;
    }
    Ok((sum, compensation, is_reconciled))
}

fn mean_of_histograms(histograms: &[HistogramPoint]) -> HistogramSumResult {
    let mut sum = FloatHistogram::clone(&histograms[0].value);
    let mut compensation = Compensation::default();
    let mut is_reconciled = false;
    let mut count = 1.0;
    for (at, histogram) in histograms.iter().enumerate().skip(1) {
        is_reconciled |= sum.kahan_add(&histogram.value, &mut compensation)?.bounds_reconciled;
        if sum.has_overflow() {
            return moving_mean(histograms, at, is_reconciled);
        }
        count += 1.0;
    }
    sum.div(count);
    compensation.div(count);
    sum.apply_compensation(&compensation);
    Ok((sum, is_reconciled))
}

/// Incremental mean from index `from`, at which the sum overflows.
fn moving_mean(
    histograms: &[HistogramPoint],
    from: usize,
    mut is_reconciled: bool,
) -> HistogramSumResult {
    let (mut mean, mut compensation, _) = plain_sum(&histograms[..from])?;
    mean.div(from as f64);
    compensation.div(from as f64);
    let mut count = from as f64;
    for histogram in &histograms[from..] {
        count += 1.0;
        let factor = (count - 1.0) / count;
        compensation.mul(factor);
        mean.mul(factor);
        let mut term = FloatHistogram::clone(&histogram.value);
        term.div(count);
        is_reconciled |= mean.kahan_add(&term, &mut compensation)?.bounds_reconciled;
    }
    mean.apply_compensation(&compensation);
    Ok((mean, is_reconciled))
}
