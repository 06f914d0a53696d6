//! Recorded minimum and maximum beside quantiles of `rate` and `increase`.
//!
//! These functions have the buckets of a histogram only, as in Prometheus. With the default bounds
//! of OpenTelemetry, a quantile of requests in seconds lies anywhere between 0 and 5 s, although
//! the sender has recorded a maximum of 0.3 s. The store has it in the increase over the same
//! window. It is read only of histograms of which a quantile is wide, and only if the limits of the
//! query allow it: without it, the quantiles are those of Prometheus.

use std::collections::{HashMap, HashSet};

use hist::Bracket;
use model::selector::{NAME as NAME_TAG, Pattern};
use model::{Selector, SeriesKind};

use crate::error::{Error, Result, SourceSpan};
use crate::eval::Evaluation;
use crate::histogram::GoNumber;
use crate::labels::{LabelSet, NAME};
use crate::plan::{
    ExactRange, Grouping, PlanNode, PlanOp, RangeExtension, RangeSource, SeriesFetch,
};
use crate::prometheus_source::{BOUND, conditions, has_bound};
use crate::promql::AggregateOp;
use crate::stream::{StepGrid, Stream};
use crate::threshold_range::ThresholdRange;
use crate::value::StepValue;

/// Suffix of the series of buckets.
const BUCKET: &str = "_bucket";
/// Relative rounding error of values that were converted to another unit.
const ROUNDING: f64 = 1e-9;

/// A quantile outside of the recorded values.
struct OutsideQuantile {
    estimate: f64,
    /// The recorded minimum or maximum.
    end: f64,
}

impl Evaluation<'_> {
    /// Warns of quantiles outside of the recorded values, and clips them to these if the settings
    /// say so.
    pub(super) fn check_recorded_range(
        &mut self,
        of: &PlanNode,
        streams: &mut [Stream],
        (steps, span): (StepGrid, SourceSpan),
    ) -> Result<()> {
        let is_wide = |value: &StepValue| value.bracket().is_some_and(|of| of.is_wide());
        let is_affected = |stream: &&Stream| stream.points.iter().flatten().any(is_wide);
        let wide: HashSet<LabelSet> =
            streams.iter().filter(is_affected).map(|stream| stream.labels.with(NAME, "")).collect();
        if wide.is_empty() {
            return Ok(());
        }
        let Some(exact) = exact_counterpart(of) else { return Ok(()) };
        let charged = self.budget.charged_samples();
        let recorded = self.recorded_distributions(&exact, &wide, steps);
        let result = match recorded {
            Ok(recorded) => self.compare_recorded(of, streams, recorded, span),
            Err(Error::Limit { .. } | Error::Memory { .. }) => Ok(()),
            Err(error) => Err(error),
        };
        self.budget.release_samples(self.budget.charged_samples().saturating_sub(charged));
        result
    }

    fn compare_recorded(
        &mut self,
        of: &PlanNode,
        streams: &mut [Stream],
        recorded: Vec<Stream>,
        span: SourceSpan,
    ) -> Result<()> {
        let is_wide = |value: &StepValue| value.bracket().is_some_and(|of| of.is_wide());
        let recorded: HashMap<LabelSet, Stream> =
            recorded.into_iter().map(|stream| (stream.labels.with(NAME, ""), stream)).collect();
        let is_clipped = self.settings.clips_quantiles;
        let mut worst: Option<OutsideQuantile> = None;
        for stream in streams {
            self.budget.check_deadline()?;
            let Some(same) = recorded.get(&stream.labels.with(NAME, "")) else { continue };
            for (point, recorded) in stream.points.iter_mut().zip(&same.points) {
                let (Some(value), Some(StepValue::Distribution(mixture))) = (&*point, recorded)
                else {
                    continue;
                };
                let (Some(bounds), Some(range)) =
                    (value.bracket(), ThresholdRange::values_of(mixture))
                else {
                    continue;
                };
                let outside = outside(bounds.estimate, range);
                if is_clipped && is_wide(value) {
                    *point = Some(clipped(bounds, range));
                }
                let distance = |of: &OutsideQuantile| (of.estimate - of.end).abs();
                worst = worst
                    .into_iter()
                    .chain(outside)
                    .max_by(|a, b| distance(a).total_cmp(&distance(b)));
            }
        }
        if let Some(worst) = worst {
            let unit = self.unit(of)?.text().map_or_else(String::new, |unit| format!(" {unit}"));
            self.warnings.warn(span, warning(&worst, &unit, is_clipped));
        }
        Ok(())
    }

    /// Increases of the stored histograms with these labels; without those of which only counters
    /// are stored, which have no minimum and maximum.
    fn recorded_distributions(
        &mut self,
        exact: &ExactRange,
        wide: &HashSet<LabelSet>,
        steps: StepGrid,
    ) -> Result<Vec<Stream>> {
        let shift = exact.fetch.shift;
        let range = shift.apply(steps.start).saturating_sub(exact.range)..shift.apply(steps.end());
        let mut handles = self.source.select_in_range(&exact.fetch.selector, &range)?;
        handles.retain(|handle| {
            let labels = || match &exact.grouping {
                Some(grouping) => grouping.group_labels(&handle.labels),
                None => handle.labels.clone(),
            };
            matches!(handle.kind, SeriesKind::Histogram(_))
                && wide.contains(&labels().with(NAME, ""))
        });
        // What is missing is missing in the quantile, too, and reported there.
        let gaps = std::mem::take(&mut self.gaps);
        let streams = self.exact_streams(exact, handles, steps);
        self.gaps = gaps;
        streams
    }
}

fn outside(estimate: f64, (min, max): (f64, f64)) -> Option<OutsideQuantile> {
    let slack = ROUNDING * estimate.abs();
    match estimate {
        _ if estimate > max + slack => Some(OutsideQuantile { estimate, end: max }),
        _ if estimate < min - slack => Some(OutsideQuantile { estimate, end: min }),
        _ => None,
    }
}

fn clipped(of: Bracket, (min, max): (f64, f64)) -> StepValue {
    let clip = |value: f64| value.max(min).min(max);
    StepValue::from_bounds(clip(of.lower), clip(of.estimate), clip(of.upper))
}

fn warning(OutsideQuantile { estimate, end }: &OutsideQuantile, unit: &str, clips: bool) -> String {
    let (place, which) = match estimate > end {
        true => ("above", "maximum"),
        false => ("below", "minimum"),
    };
    let [estimate, end] = [GoNumber(*estimate), GoNumber(*end)];
    let remedy = match clips {
        true => "it is clipped to that".to_owned(),
        false => "histogram_quantile(…, exact_increase(…)) is clipped to that".to_owned(),
    };
    format!(
        "quantile of the buckets alone, as in Prometheus: {estimate}{unit} is {place} the recorded \
         {which} of {end}{unit}; {remedy}"
    )
}

/// Exact increase of the histograms of which a node is a rate or an increase; of their buckets,
/// too.
fn exact_counterpart(node: &PlanNode) -> Option<ExactRange> {
    match &node.op {
        PlanOp::Once(inner) => exact_counterpart(inner),
        PlanOp::Shared(shared) => exact_counterpart(&shared.node),
        PlanOp::RangeFunction(call) if matches!(call.function.name, "rate" | "increase") => {
            let RangeSource::Series(fetch) = &call.input.source else { return None };
            let is_plain = fetch.extension == RangeExtension::None;
            is_plain.then(|| ExactRange {
                fetch: SeriesFetch {
                    selector: histogram_selector(&fetch.selector),
                    ..fetch.clone()
                },
                range: call.input.range,
                is_rate: false,
                grouping: None,
                standard_expr: None,
            })
        }
        PlanOp::Aggregate(sum) if sum.op == AggregateOp::Sum => {
            let exact = exact_counterpart(&sum.input).filter(|of| of.grouping.is_none())?;
            let Grouping { is_without, labels } = &sum.grouping;
            let labels = labels.iter().filter(|label| *label != BOUND).cloned().collect();
            let grouping = Some(Grouping { is_without: *is_without, labels });
            Some(ExactRange { grouping, ..exact })
        }
        _ => None,
    }
}

/// Selector of the histograms whose buckets a selector matches.
fn histogram_selector(selector: &Selector) -> Selector {
    let histogram = |part: &Selector| match part {
        Selector::Tag { name, pattern: Pattern::Exact(text) } if name == NAME_TAG => {
            let text = text.strip_suffix(BUCKET).unwrap_or(text);
            Selector::label_equals(NAME_TAG, text)
        }
        other => other.clone(),
    };
    let parts = conditions(selector).iter().filter(|part| !has_bound(part));
    Selector::and(parts.map(histogram).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_those_of_their_histogram() {
        let check = |selector: &str, expected: &str| {
            let of = |text: &str| Selector::parse(text).unwrap();
            assert_eq!(histogram_selector(&of(selector)), of(expected));
        };
        check("latency{host=\"a\"}", "latency{host=\"a\"}");
        check("latency_bucket{host=\"a\",le=\"0.5\"}", "latency{host=\"a\"}");
    }

    #[test]
    fn quantiles_are_clipped_to_what_was_recorded() {
        let bounds = Bracket { lower: 0.0, estimate: 4.5, upper: 5.0 };
        assert_eq!(clipped(bounds, (0.02, 0.3)).bracket().unwrap().estimate, 0.3);
        assert!(outside(0.3, (0.02, 0.3)).is_none());
        let found = outside(4.5, (0.02, 0.3)).unwrap();
        let expected = "quantile of the buckets alone, as in Prometheus: 4.5 s is above the \
                        recorded maximum of 0.3 s; it is clipped to that";
        assert_eq!(warning(&found, " s", true), expected);
    }
}
