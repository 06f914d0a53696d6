//! Histogram series from streams: native, and classic from `le` buckets.

use std::collections::{HashMap, HashSet};

use crate::error::Result;
use crate::eval::Evaluation;
use crate::eval::range_functions::GrowthMapper;
use crate::labels::LabelSet;
use crate::plan::PlanNode;
use crate::promql::quantile::CumulativeBucket;
use crate::stream::{StepGrid, Stream};
use crate::threshold_range::differing_bounds_warning;
use crate::value::StepValue;

/// Label of the upper bound of a classic histogram bucket.
const BUCKET_LABEL: &str = "le";

/// Histogram at a step, native or classic.
#[derive(Clone, Debug)]
pub(super) enum StepHistogram {
    /// Native histogram or distribution.
    Native(StepValue),
    /// Buckets of a classic histogram, in any order.
    Classic(Vec<CumulativeBucket>),
}

/// Histograms of one series at all steps.
#[derive(Clone, Debug)]
pub(super) struct HistogramSeries {
    labels: LabelSet,
    /// Metric name for annotations; empty if the name is dropped at once.
    pub(super) name: String,
    points: Vec<Option<StepHistogram>>,
}

/// All distributions and their sample count.
pub(super) struct HistogramSeriesList {
    pub(super) list: Vec<HistogramSeries>,
    pub(super) charged_samples: u64,
}

impl HistogramSeries {
    fn new(
        evaluation: &Evaluation<'_>,
        labels: LabelSet,
        points: Vec<Option<StepHistogram>>,
    ) -> HistogramSeries {
        let name = metric_name(evaluation, &labels);
        HistogramSeries { labels, name, points }
    }

    /// Maps each distribution to a number.
    pub(super) fn map(self, mut f: impl FnMut(usize, &mut StepHistogram) -> StepValue) -> Stream {
        let points = self.points.into_iter().enumerate();
        let points = points.map(|(step, point)| point.map(|mut shape| f(step, &mut shape)));
        Stream::new(self.labels, points.collect())
    }
}

/// Maps the distribution of a series, which has a name for annotations, at a step to a number.
pub(super) type HistogramMap<'m> = dyn FnMut(&str, usize, &mut StepHistogram) -> StepValue + 'm;

impl Evaluation<'_> {
    /// Maps each distribution of a node to a number. Returns the streams, and the number of samples
    /// that are charged for what they were made of.
    pub(super) fn map_histograms(
        &mut self,
        node: &PlanNode,
        steps: StepGrid,
        map: &mut HistogramMap<'_>,
    ) -> Result<(Vec<Stream>, u64)> {
        let is_delayed = self.settings.delayed_name_removal;
        let map_growth = &mut |labels: &LabelSet, step: usize, growth: StepValue| {
            let name = if is_delayed { labels.name() } else { "" };
            map(name, step, &mut StepHistogram::Native(growth))
        };
        let mut mapper = GrowthMapper::new(map_growth);
        let streams = self.mapped_streams(node, steps, &mut mapper)?;
        if mapper.is_used {
            let charged_samples = super::super::samples(&streams);
            return Ok((streams, charged_samples));
        }
        let HistogramSeriesList { list, charged_samples } =
            self.histograms_of(node, streams, steps)?;
        let of_subject = |mut subject: HistogramSeries| {
            let name = std::mem::take(&mut subject.name);
            subject.map(|step, shape| map(&name, step, shape))
        };
        Ok((list.into_iter().map(of_subject).collect(), charged_samples))
    }

    /// Distributions of a node.
    pub(super) fn histogram_series(
        &mut self,
        node: &PlanNode,
        steps: StepGrid,
    ) -> Result<HistogramSeriesList> {
        let streams = self.streams(node, steps)?;
        self.histograms_of(node, streams, steps)
    }

    /// Distributions of the streams of a node. If a classic and a native histogram have the same
    /// name and labels, both are left out.
    fn histograms_of(
        &mut self,
        node: &PlanNode,
        streams: Vec<Stream>,
        steps: StepGrid,
    ) -> Result<HistogramSeriesList> {
        let sample_count = super::super::samples(&streams);
        let mut natives = Vec::new();
        let mut classics: Vec<ClassicSeries> = Vec::new();
        let mut indexes: HashMap<LabelSet, usize> = HashMap::new();
        for stream in streams {
            let has = |is_native: bool| {
                stream.points.iter().flatten().any(|value| value.is_distribution() == is_native)
            };
            if has(false) {
                let written = stream.labels.get(BUCKET_LABEL);
                match parse_bound(written) {
                    Some(bound) => {
                        let labels = stream.labels.with(BUCKET_LABEL, "");
                        let at = *indexes.entry(labels.clone()).or_insert(classics.len());
                        if at == classics.len() {
                            classics.push(ClassicSeries {
                                labels,
                                levels: vec![Vec::new(); steps.count],
                            });
                        }
                        classics[at].add(&stream, bound);
                    }
                    None => {
                        let message = format!(
                            "PromQL warning: bucket label \"le\" is missing or has a malformed \
                             value of {written:?}"
                        );
                        let name = metric_name(self, &stream.labels);
                        self.warnings.warn(node.span, with_metric_name(&message, &name));
                    }
                }
            }
            if has(true) {
                natives.push(stream);
            }
        }
        self.warn_of_bounds(node, &natives)?;
        let mut list = Vec::with_capacity(natives.len() + classics.len());
        for native in natives {
            let shape = |point: Option<StepValue>| {
                point.filter(StepValue::is_distribution).map(StepHistogram::Native)
            };
            let mut points: Vec<Option<StepHistogram>> =
                native.points.into_iter().map(shape).collect();
            let same = indexes.get(&native.labels).map(|at| &mut classics[*at].levels);
            if same.is_some_and(|levels| clear_both(&mut points, levels)) {
                let name = metric_name(self, &native.labels);
                let message =
                    "PromQL warning: vector contains a mix of classic and native histograms";
                self.warnings.warn(node.span, with_metric_name(message, &name));
            }
            list.push(HistogramSeries::new(self, native.labels, points));
        }
        for classic in classics {
            let shape = |levels: Vec<CumulativeBucket>| {
                (!levels.is_empty()).then_some(StepHistogram::Classic(levels))
            };
            let points = classic.levels.into_iter().map(shape).collect();
            list.push(HistogramSeries::new(self, classic.labels, points));
        }
        Ok(HistogramSeriesList { list, charged_samples: sample_count })
    }

    /// Warns of explicit bounds that differ within a distribution.
    fn warn_of_bounds(&mut self, node: &PlanNode, natives: &[Stream]) -> Result<()> {
        let points = natives.iter().flat_map(|stream| stream.points.iter().flatten());
        let differing = points.flat_map(|point| match point {
            StepValue::Distribution(mixture) => mixture.differing_bounds(),
            _ => Vec::new(),
        });
        // A set: most points have the same ones. Equal bounds have equal bits.
        let bits: HashSet<u64> = differing.map(f64::to_bits).collect();
        if bits.is_empty() {
            return Ok(());
        }
        let mut bounds: Vec<f64> = bits.into_iter().map(f64::from_bits).collect();
        bounds.sort_unstable_by(f64::total_cmp);
        let unit = self.unit(node)?.text();
        if let Some(text) = differing_bounds_warning(&bounds, unit.as_deref()) {
            self.warnings.warn(node.span, text);
        }
        Ok(())
    }
}

/// Classic histogram: the buckets present at each step.
struct ClassicSeries {
    labels: LabelSet,
    levels: Vec<Vec<CumulativeBucket>>,
}

impl ClassicSeries {
    fn add(&mut self, bucket: &Stream, upper_bound: f64) {
        for (levels, point) in self.levels.iter_mut().zip(&bucket.points) {
            if let Some(count) = point.as_ref().and_then(StepValue::number) {
                levels.push(CumulativeBucket { upper_bound, count });
            }
        }
    }
}

/// Removes both histograms at steps that have both; returns whether there is such a step.
fn clear_both(points: &mut [Option<StepHistogram>], levels: &mut [Vec<CumulativeBucket>]) -> bool {
    let mut were_both = false;
    for (point, levels) in points.iter_mut().zip(levels) {
        if point.is_some() && !levels.is_empty() {
            *point = None;
            levels.clear();
            were_both = true;
        }
    }
    were_both
}

/// Parsed upper bound of a bucket; `None` if it is out of the range of doubles.
fn parse_bound(text: &str) -> Option<f64> {
    let bound: f64 = text.parse().ok()?;
    let is_written_out = text.contains(['n', 'N']);
    (bound.is_finite() || is_written_out).then_some(bound)
}

/// Metric name for annotations; empty if names are dropped at once, as in Prometheus.
fn metric_name(evaluation: &Evaluation<'_>, labels: &LabelSet) -> String {
    match evaluation.settings.delayed_name_removal {
        true => labels.name().to_owned(),
        false => String::new(),
    }
}

/// Message with the metric name if it is known.
pub(super) fn with_metric_name(message: &str, name: &str) -> String {
    match name {
        "" => message.to_owned(),
        name => format!("{message} for metric name {name:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds() {
        assert_eq!(parse_bound("0.5"), Some(0.5));
        assert_eq!(parse_bound("+Inf"), Some(f64::INFINITY));
        assert_eq!(parse_bound("-inf"), Some(f64::NEG_INFINITY));
        assert_eq!(parse_bound("1e3"), Some(1000.0));
        assert_eq!(parse_bound("1e999"), None);
        assert_eq!(parse_bound(""), None);
        assert_eq!(parse_bound("Hello World"), None);
    }
}
