//! Sources that read stored metrics: `find`, `metric` and `graphite:find`.
//!
//! A *slot* is a step of the result, a *metric* of CAQL is a series. Which slot a value belongs to:
//!
//! * a value of an interval (an increase, a histogram): the slot in which the interval ends; slots
//!   are (start, end];
//! * a sample (a gauge, the total of a counter): the slot that contains its time; slots are
//!   [start, end).
//!
//! A numeric metric queried for histograms, and a histogram metric queried for numbers, is a stream
//! without values.

use std::collections::BTreeMap;
use std::sync::Arc;

use hist::Mixture;
use hist::codec::header::Temporality;
use model::selector::{NAME, Pattern};
use model::{Selector, SeriesKind};
use store::TimeGrid;

use super::arguments::{ArgumentValue, Arguments};
use super::function_table::{CaqlFunctionRow, CaqlKernel, FunctionTable};
use super::names::canonical;
use super::points::point;
use super::rates;
use super::signature::ArgumentType::{IntegerWithin, Name, Number, Search, Shift, Text, Uuid};
use super::signature::DefaultValue::{self, Absent};
use super::signature::{OutputKind, Signature};
use crate::error::{Error, Result, SourceSpan};
use crate::estimate::CostEstimate;
use crate::eval::Evaluation;
use crate::labels::LabelSet;
use crate::plan::{MetricQuery, MetricStatistic, RangeExtension, SeriesFetch, TimeShift};
use crate::selector_hint::selector_text;
use crate::source::SeriesHandle;
use crate::stream::{SeriesPoint, StepGrid, Stream, seconds};
use crate::value::StepValue;

/// Maximum number of streams of one find.
pub(crate) const FIND_LIMIT_MAX: f64 = 3000.0;

/// Statistics by the last part of a function name.
const STATISTICS: [(&str, MetricStatistic); 8] = [
    ("average", MetricStatistic::Average),
    ("count", MetricStatistic::Count),
    ("stddev", MetricStatistic::Stddev),
    ("counter", MetricStatistic::Counter),
    ("counter_stddev", MetricStatistic::CounterStddev),
    ("derivative", MetricStatistic::Derivative),
    ("derivative_stddev", MetricStatistic::DerivativeStddev),
    ("histogram", MetricStatistic::Histogram),
];

/// Adds the functions that read stored metrics.
pub(super) fn add_functions(table: &mut FunctionTable) {
    for (kind, statistic) in STATISTICS {
        add_source(table, format!("metric:{kind}"), statistic)
            .required("check_uuid", Uuid)
            .required("name", Text);
        table.add_removed(format!("search:metric:{kind}"), "find, with a tag search");
    }
    let more = [("sum", MetricStatistic::Sum), ("histogram_cum", MetricStatistic::Histogram)];
    for (package, name_type) in [("find", Name), ("graphite:find", Text)] {
        for (kind, statistic) in STATISTICS.into_iter().chain(more) {
            add_source(table, format!("{package}:{kind}"), statistic)
                .required("name", name_type)
                .optional("tag_query", Search, Absent)
                .option("limit", IntegerWithin(1.0, FIND_LIMIT_MAX), DefaultValue::Number(1000.0))
                .option("start_time_override", Number, Absent)
                .option("start_time_offset", Shift, Absent);
        }
    }
    table.add_alias("find", "find:average");
    table.add_alias("graphite:find", "graphite:find:average");
    table.add_alias("metric", "metric:average");
    table.add_alias("find:deriv", "find:derivative").deprecated("find:derivative");
    table.add_removed("search:metric", "find, with a tag search");
    table.add_removed("metriccluster", "find, with a tag search");
    table.add_removed("hf:find", "find, with #min_period before the expression");
}

fn add_source(
    table: &mut FunctionTable,
    name: String,
    statistic: MetricStatistic,
) -> &mut CaqlFunctionRow {
    let output_kind = match statistic {
        MetricStatistic::Histogram => OutputKind::Histograms,
        _ => OutputKind::Numbers,
    };
    table.add_source(name, output_kind, CaqlKernel::Find(statistic))
}

impl MetricQuery {
    /// Query of a call of `find` or `metric`; `start` is the start of the first slot.
    pub(super) fn new(
        statistic: MetricStatistic,
        function: &Signature,
        arguments: &Arguments,
        start: i64,
        span: SourceSpan,
    ) -> Result<MetricQuery> {
        let mut query = MetricQuery {
            statistic,
            selector: Selector::All,
            limit: 1,
            delay: 0,
            metric: None,
            span,
        };
        if let Some(check) = arguments.text("check_uuid") {
            let name = arguments.text("name").unwrap_or_default();
            query.selector = metric(check, name);
            query.metric = Some(sort_canonical_name(name));
            return Ok(query);
        }
        let name = match arguments.get("name") {
            Some(ArgumentValue::Selector(selector)) => selector.clone(),
            Some(ArgumentValue::Text(pattern)) => super::graphite::selector(pattern)
                .map_err(|message| Error::Parse { span, message })?,
            _ => panic!("BUG: {} has no name", function.name),
        };
        let search = arguments.selector("tag_query").cloned();
        query.selector = Selector::and([name].into_iter().chain(search).collect());
        query.limit = arguments.number("limit").map_or(usize::MAX, |limit| limit as usize);
        if let Some(start_override) = arguments.number("start_time_override") {
            // Rust's cast saturates at the bounds of an i64.
            query.delay = start.saturating_sub((start_override * 1e9) as i64);
        }
        let offset = arguments.duration("start_time_offset").unwrap_or(0);
        query.delay = query.delay.saturating_add(offset);
        Ok(query)
    }

    fn fetch(&self) -> SeriesFetch {
        SeriesFetch {
            selector: self.selector.clone(),
            matchers: Vec::new(),
            shift: TimeShift::default(),
            extension: RangeExtension::None,
            detects_resets: false,
            span: self.span,
        }
    }

    /// Adds the cost of reading.
    pub(super) fn estimate(&self, estimate: &mut CostEstimate<'_>, steps: StepGrid) -> Result<()> {
        let grid = self.grid(steps);
        estimate.fetch(&self.fetch(), grid.range(), Some(grid.step), steps)
    }

    /// Matching metrics, by canonical name.
    pub(super) fn metrics(
        &self,
        evaluation: &mut Evaluation<'_>,
    ) -> Result<Vec<(LabelSet, Vec<SeriesHandle>)>> {
        // CAQL finds series regardless of the range: pass an empty one.
        let found = evaluation.series(&self.fetch(), &(0..0))?;
        let mut found: Vec<(String, (LabelSet, Vec<SeriesHandle>))> = found
            .into_iter()
            .map(|(labels, handles)| (canonical(&labels), (labels, handles)))
            .collect();
        if let Some(only) = &self.metric {
            found.retain(|(_, (labels, _))| canonical(&labels.with(CHECK, "")) == *only);
        }
        model::sort::by(&mut found, |a, b| a.0.cmp(&b.0));
        if found.len() > self.limit && self.metric.is_none() {
            let (count, limit) = (found.len(), self.limit);
            let raise = match count as f64 <= FIND_LIMIT_MAX {
                true => format!(", or set limit={count}"),
                false => String::new(),
            };
            let message = format!(
                "find matches {count} series, only the first {limit} are returned; narrow the \
                 search{raise}"
            );
            evaluation.warnings.warn(self.span, message);
        }
        found.truncate(self.limit);
        Ok(found.into_iter().map(|(_, metric)| metric).collect())
    }

    /// Reports gaps in the slots of the metrics, or of one that is not found because it has no
    /// rows.
    fn report_gaps(
        &self,
        evaluation: &mut Evaluation<'_>,
        metrics: &[(LabelSet, Vec<SeriesHandle>)],
        steps: StepGrid,
    ) {
        let range = self.grid(steps).range();
        // A sample at the start of a slot belongs to it.
        let range = range.start.saturating_sub(1)..range.end;
        evaluation.report_gaps(&self.selector, metrics, &range);
    }

    /// Columns of the slots; a value at the end of a column belongs to the column.
    fn grid(&self, steps: StepGrid) -> TimeGrid {
        let start = steps.start.saturating_sub(self.delay);
        TimeGrid { start, step: steps.step, columns: steps.count as u64 }
    }

    /// Whether the statistic needs samples, each of which belongs to the slot that contains it,
    /// rather than increases since the previous sample.
    fn needs_samples(&self, kind: SeriesKind) -> bool {
        let is_total = kind == SeriesKind::Counter(Temporality::Cumulative);
        let are_values = matches!(
            self.statistic,
            MetricStatistic::Average
                | MetricStatistic::Count
                | MetricStatistic::Sum
                | MetricStatistic::Stddev
        );
        kind == SeriesKind::Gauge || is_total && are_values
    }

    /// Numbers of slots, aggregated by the store.
    fn summaries(
        &self,
        evaluation: &mut Evaluation<'_>,
        handle: &SeriesHandle,
        grid: TimeGrid,
    ) -> Result<Vec<Option<store::NumberAggregate>>> {
        let mut read = evaluation.source.numbers(&[handle], shift_grid(grid, handle, self))?;
        if self.needs_samples(handle.kind) && !read.gaps.is_empty() {
            // A rollup also contains the sample at the end of its slot; it is used only if no raw
            // samples are left.
            let rolled = evaluation.source.numbers(&[handle], grid)?;
            if rolled.gaps.len() < read.gaps.len() {
                let message = format!(
                    "{}: only rollups remain for part of the range; a sample at the start of a \
                     slot counts in the previous slot",
                    handle.labels
                );
                evaluation.warnings.info(self.span, message);
                read = rolled;
            }
        }
        evaluation.gaps.extend(read.gaps);
        Ok(read.values)
    }

    /// One stream for each metric.
    pub(super) fn streams(
        &self,
        evaluation: &mut Evaluation<'_>,
        steps: StepGrid,
    ) -> Result<Vec<Stream>> {
        let mut metrics = self.metrics(evaluation)?;
        self.warn_of_no_match(evaluation, metrics.is_empty());
        self.report_gaps(evaluation, &metrics, steps);
        if metrics.is_empty() && self.metric.is_some() {
            metrics.push((LabelSet::default(), Vec::new()));
        }
        evaluation.check_fits(metrics.len(), steps)?;
        let mut streams = Vec::with_capacity(metrics.len());
        for (labels, handles) in metrics {
            let has_kind = |handle: &SeriesHandle| {
                is_histogram(handle) == (self.statistic == MetricStatistic::Histogram)
            };
            let selected: Vec<SeriesHandle> = handles.into_iter().filter(has_kind).collect();
            let points = match selected.is_empty() {
                false => self.points(evaluation, &selected, steps)?,
                true => {
                    self.warn_of_other_kind(evaluation, &labels);
                    vec![None; steps.count]
                }
            };
            let stream = Stream::new(labels, points);
            evaluation.charge_streams(std::slice::from_ref(&stream))?;
            streams.push(stream);
        }
        Ok(streams)
    }

    /// The result of a search without a match looks like one of a metric without values. What was
    /// meant is not searched: rules are evaluated often.
    fn warn_of_no_match(&self, evaluation: &mut Evaluation<'_>, is_empty: bool) {
        if is_empty {
            let message = format!("{} matches no series", selector_text(&self.selector));
            evaluation.warnings.warn(self.span, message);
        }
    }

    fn warn_of_other_kind(&self, evaluation: &mut Evaluation<'_>, labels: &LabelSet) {
        let message = match self.statistic {
            MetricStatistic::Histogram => {
                format!("{labels} is not a histogram; read numbers with find(…)")
            }
            _ => format!("{labels} is a histogram; read it with find:histogram(…)"),
        };
        if !labels.is_empty() {
            evaluation.warnings.info(self.span, message);
        }
    }

    /// Points of a metric: one series, or one for each kind that its sender has used.
    fn points(
        &self,
        evaluation: &mut Evaluation<'_>,
        handles: &[SeriesHandle],
        steps: StepGrid,
    ) -> Result<Vec<Option<StepValue>>> {
        evaluation.budget.check_deadline()?;
        let grid = self.grid(steps);
        let handle = handles.last().expect("BUG: a metric has a series");
        let is_alone = handles.len() == 1;
        let is_total = handle.kind.is_cumulative() || !is_alone;
        let counts = matches!(handle.kind, model::SeriesKind::Counter(_));
        match self.statistic {
            MetricStatistic::Histogram => {
                let all: Vec<&SeriesHandle> = handles.iter().collect();
                let read = evaluation.source.histograms_by_start(&all, grid)?;
                evaluation.gaps.extend(read.gaps);
                Ok(read.values.into_iter().map(|mixture| Some(distribution(mixture))).collect())
            }
            MetricStatistic::Average | MetricStatistic::Count | MetricStatistic::Sum
                if !is_total =>
            {
                let summaries = self.summaries(evaluation, handle, grid)?;
                let of = |summary: store::NumberAggregate| match self.statistic {
                    MetricStatistic::Average => summary.mean(),
                    MetricStatistic::Count => {
                        Some(summary.count as f64).filter(|count| *count > 0.0)
                    }
                    _ => (summary.count > 0).then(|| summary.sum.value()),
                };
                let number = |summary: Option<store::NumberAggregate>| summary.and_then(of);
                Ok(summaries.into_iter().map(|value| point(number(value))).collect())
            }
            MetricStatistic::Counter if counts && is_alone => {
                let summaries = self.summaries(evaluation, handle, grid)?;
                let period = seconds(steps.step);
                let rate = |summary: store::NumberAggregate| {
                    (summary.count > 0).then(|| summary.sum.value() / period)
                };
                let number = |summary: Option<store::NumberAggregate>| summary.and_then(rate);
                Ok(summaries.into_iter().map(|value| point(number(value))).collect())
            }
            statistic => {
                // The first sample is compared with the one before the first slot.
                let grid = shift_grid(grid, handle, self);
                let before = evaluation.settings.lookback.max(grid.step);
                let range = grid.range();
                let from = range.start.saturating_sub(before);
                let samples: Vec<SeriesPoint> = evaluation.samples(handles, from..range.end)?;
                Ok(rates::slots(statistic, &samples, grid, counts && !is_total))
            }
        }
    }

    /// Merged histograms of all metrics, or of those with equal tags in some categories.
    pub(super) fn merged(
        &self,
        evaluation: &mut Evaluation<'_>,
        by: Option<&[String]>,
        steps: StepGrid,
    ) -> Result<Vec<Stream>> {
        let metrics = self.metrics(evaluation)?;
        self.warn_of_no_match(evaluation, metrics.is_empty());
        self.report_gaps(evaluation, &metrics, steps);
        let mut groups: BTreeMap<Vec<String>, (Vec<LabelSet>, Vec<&SeriesHandle>)> =
            BTreeMap::new();
        if by.is_none() {
            // The sum of no histograms is an empty histogram.
            groups.insert(Vec::new(), Default::default());
        }
        for (labels, handles) in &metrics {
            let group = by.unwrap_or(&[]).iter().map(|category| labels.get(category).to_owned());
            let (all, series) = groups.entry(group.collect()).or_default();
            all.push(labels.clone());
            match handles.iter().any(is_histogram) {
                true => series.extend(handles.iter().filter(|handle| is_histogram(handle))),
                false => self.warn_of_other_kind(evaluation, labels),
            }
        }
        evaluation.check_fits(groups.len(), steps)?;
        let mut streams = Vec::with_capacity(groups.len());
        for (all, series) in groups.into_values() {
            if series.is_empty() && by.is_some() {
                continue;
            }
            let values = match series.is_empty() {
                true => vec![Mixture::default(); steps.count],
                false => {
                    evaluation.budget.check_deadline()?;
                    let grid = self.grid(steps);
                    let read = evaluation.source.histograms_by_start(&series, grid)?;
                    evaluation.gaps.extend(read.gaps);
                    read.values
                }
            };
            let points = values.into_iter().map(|mixture| Some(distribution(mixture))).collect();
            let stream = Stream::new(super::names::common_labels(all.iter()), points);
            evaluation.charge_streams(std::slice::from_ref(&stream))?;
            streams.push(stream);
        }
        Ok(streams)
    }

    /// Unit of the values, if all metrics have the same.
    pub(super) fn unit(&self, evaluation: &mut Evaluation<'_>) -> Result<Option<String>> {
        let needs_histograms = self.statistic == MetricStatistic::Histogram;
        let metrics = self.metrics(evaluation)?;
        let mut units = metrics
            .iter()
            .flat_map(|(_, handles)| handles)
            .filter(|handle| is_histogram(handle) == needs_histograms)
            .map(|handle| &handle.unit);
        let Some(first) = units.next() else { return Ok(None) };
        Ok(units.all(|unit| unit == first).then(|| first.clone()))
    }
}

/// Columns with the contents of the slots of `grid`: the store counts a value at the end of a
/// column in that column.
fn shift_grid(grid: TimeGrid, handle: &SeriesHandle, query: &MetricQuery) -> TimeGrid {
    match query.needs_samples(handle.kind) {
        true => TimeGrid { start: grid.start.saturating_sub(1), ..grid },
        false => grid,
    }
}

fn is_histogram(handle: &SeriesHandle) -> bool {
    matches!(handle.kind, model::SeriesKind::Histogram(_))
}

fn distribution(mixture: Mixture) -> StepValue {
    StepValue::Distribution(Arc::new(mixture))
}

/// Tag that holds the check of a metric.
const CHECK: &str = "__check_uuid";

/// Selector of a metric by check and canonical name.
fn metric(check: &str, name: &str) -> Selector {
    let (name, tags) = split_canonical_name(name);
    let mut all = vec![
        Selector::tag(NAME, Pattern::Exact(name.to_owned())),
        Selector::label_equals(CHECK, check.to_ascii_lowercase()),
    ];
    all.extend(tags.into_iter().map(|(category, value)| Selector::label_equals(category, value)));
    Selector::and(all)
}

/// Splits a canonical name into name and tags.
fn split_canonical_name(name: &str) -> (&str, Vec<(&str, &str)>) {
    let Some((name, rest)) = name.split_once("|ST[") else { return (name, Vec::new()) };
    let list = rest.split_once(']').map_or(rest, |(list, _)| list);
    let tags = list.split(',').filter(|tag| !tag.is_empty());
    (name, tags.map(|tag| tag.split_once(':').unwrap_or((tag, ""))).collect())
}

/// Canonical name with sorted tags.
fn sort_canonical_name(name: &str) -> String {
    let (name, tags) = split_canonical_name(name);
    canonical(&LabelSet::new(tags.into_iter().chain([(crate::labels::NAME, name)])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_names_are_sorted() {
        assert_eq!(sort_canonical_name("req"), "req");
        assert_eq!(sort_canonical_name("req|ST[host:a,dc:us]"), "req|ST[dc:us,host:a]");
        assert_eq!(sort_canonical_name("req|ST[host:a,dc:us]|MT{x:y}"), "req|ST[dc:us,host:a]");
        assert_eq!(split_canonical_name("req|ST["), ("req", Vec::new()));
    }
}
