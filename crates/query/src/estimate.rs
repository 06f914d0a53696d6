//! Cost estimation before execution.
//!
//! The selectors of the plan are looked up in the index. The rows of their series in the plan's
//! time range are estimated from part metadata ([`Source::estimate_rows`]). The values of the steps
//! are added. Both are counted as rows or values; a histogram counts as one. Rows that CAQL
//! functions read around their slots are not counted.

use std::ops::Range;

use crate::context::QueryContext;
use crate::error::{Error, Result};
use crate::plan::{PlanNode, PlanOp, RangeSelection, RangeSource, SeriesFetch};
use crate::prometheus_source::PrometheusSource;
use crate::request::{Language, QueryRequest};
use crate::settings::Settings;
use crate::source::Source;
use crate::stream::StepGrid;
use crate::{caql, promql};

/// Estimates the rows that a query reads and the intermediate values that it computes; reads no
/// rows.
pub fn estimate(
    source: &dyn Source,
    question: &QueryRequest<'_>,
    settings: &Settings,
    context: &dyn QueryContext,
) -> Result<u64> {
    let Settings { lookback, subquery_step, .. } = *settings;
    let names = PrometheusSource::new(source, context);
    let source: &dyn Source = match question.language {
        Language::PromQl => &names,
        Language::Caql => source,
    };
    let mut estimate = CostEstimate { source, context, lookback, subquery_step, rows: 0 };
    match question.language {
        Language::PromQl => {
            let steps = match question.step {
                0 => StepGrid::at(question.start),
                step => StepGrid::covering(question.start, question.end, step),
            };
            let expression = promql::parse(question.text, &question.options)?;
            let (_, node) = promql::plan(&expression, question, settings)?;
            estimate.node(&node, steps)?;
        }
        Language::Caql => {
            let plan = caql::plan(question, settings)?;
            estimate.node(&plan.node, plan.steps)?;
        }
    }
    Ok(estimate.rows)
}

/// Cost estimate of a plan.
pub(crate) struct CostEstimate<'a> {
    source: &'a dyn Source,
    context: &'a dyn QueryContext,
    lookback: i64,
    subquery_step: i64,
    rows: u64,
}

impl CostEstimate<'_> {
    pub(crate) fn node(&mut self, node: &PlanNode, steps: StepGrid) -> Result<()> {
        match &node.op {
            PlanOp::Number(_) | PlanOp::Duration(_) => self.add(steps.count as u64),
            PlanOp::Text(_) => {}
            PlanOp::Latest(fetch) => {
                let range = self.read_range(fetch, steps, self.lookback);
                self.fetch(fetch, range, None, steps)?;
            }
            PlanOp::RangeSelection(ranged) => self.range_selection(ranged, steps)?,
            PlanOp::Exact(exact) => {
                let range = self.read_range(&exact.fetch, steps, exact.range);
                let column =
                    if steps.count > 1 { exact.range.min(steps.step) } else { exact.range };
                let buckets = match exact.finds_classic() {
                    true => self.source.bucket_count(&exact.fetch.selector),
                    false => 0,
                };
                self.fetch_at_least(buckets, &exact.fetch, (range, Some(column)), steps)?;
            }
            PlanOp::Once(inner) => self.node(inner, StepGrid::at(steps.start))?,
            PlanOp::Shared(shared) => self.node(&shared.node, steps)?,
            PlanOp::Negate(inner) => self.node(inner, steps)?,
            PlanOp::RangeFunction(over) => {
                self.range_selection(&over.input, steps)?;
                self.nodes(&over.args, steps)?;
            }
            PlanOp::Call { args, .. } => self.nodes(args, steps)?,
            PlanOp::Aggregate(aggregate) => {
                self.nodes([&aggregate.input].into_iter().chain(&aggregate.param), steps)?;
            }
            PlanOp::Binary(binary) => self.nodes([&binary.left.1, &binary.right.1], steps)?,
            PlanOp::Stage(stage) => stage.estimate(self, steps)?,
        }
        Ok(())
    }

    pub(crate) fn nodes<'n>(
        &mut self,
        nodes: impl IntoIterator<Item = &'n PlanNode>,
        steps: StepGrid,
    ) -> Result<()> {
        nodes.into_iter().try_for_each(|node| self.node(node, steps))
    }

    fn range_selection(&mut self, ranged: &RangeSelection, steps: StepGrid) -> Result<()> {
        match &ranged.source {
            RangeSource::Series(fetch) => {
                let range = self.read_range(fetch, steps, ranged.range);
                self.fetch(fetch, range, None, steps)
            }
            RangeSource::Subquery { inner, step, shift } => {
                let step = step.unwrap_or(self.subquery_step);
                let start = shift.apply(steps.start).saturating_sub(ranged.range);
                self.node(inner, StepGrid::covering(start, shift.apply(steps.end()), step))
            }
        }
    }

    /// Range read for the steps: from `before` ahead of the first step to the last step.
    fn read_range(&self, fetch: &SeriesFetch, steps: StepGrid, before: i64) -> Range<i64> {
        fetch.shift.apply(steps.start).saturating_sub(before)..fetch.shift.apply(steps.end())
    }

    /// Adds the rows read from series in a range, in columns of up to `longest` if given, and the
    /// values computed from them.
    pub(crate) fn fetch(
        &mut self,
        fetch: &SeriesFetch,
        range: Range<i64>,
        longest: Option<i64>,
        steps: StepGrid,
    ) -> Result<()> {
        self.fetch_at_least(0, fetch, (range, longest), steps)
    }

    /// The same, of at least so many series: the buckets of a classic histogram do not match its
    /// name.
    fn fetch_at_least(
        &mut self,
        buckets: u64,
        fetch: &SeriesFetch,
        (range, longest): (Range<i64>, Option<i64>),
        steps: StepGrid,
    ) -> Result<()> {
        // An expression may have thousands of selectors.
        if self.context.is_cancelled() {
            return Err(Error::Timeout);
        }
        let series = self.source.select_count(&fetch.selector)?.max(buckets);
        self.add(self.source.estimate_rows(series, &range, longest));
        self.add(series.saturating_mul(steps.count as u64));
        Ok(())
    }

    fn add(&mut self, rows: u64) {
        self.rows = self.rows.saturating_add(rows);
    }
}

#[cfg(test)]
mod tests {
    use hist::Mixture;
    use model::{Selector, SeriesKind};
    use store::{HOUR, MINUTE, NumberAggregate, SECOND, TimeGrid};

    use super::*;
    use crate::labels::LabelSet;
    use crate::source::{SeriesHandle, SourceRead};
    use crate::stream::SeriesPoint;

    /// Source of ten series for every selector, with one row per second and one-minute rollups.
    /// Reads nothing.
    struct TenSeries;

    impl Source for TenSeries {
        fn select(&self, _: &Selector) -> Result<Vec<SeriesHandle>> {
            let of = |key| SeriesHandle {
                labels: LabelSet::default(),
                kind: SeriesKind::Gauge,
                unit: String::new(),
                key,
            };
            Ok((0..10).map(of).collect())
        }

        fn estimate_rows(&self, series: u64, range: &Range<i64>, step: Option<i64>) -> u64 {
            let each = if step >= Some(MINUTE) { MINUTE } else { SECOND };
            series * ((range.end - range.start) / each) as u64
        }

        fn samples(&self, _: &SeriesHandle, _: Range<i64>) -> Result<SourceRead<SeriesPoint>> {
            panic!("nothing is read")
        }

        fn histograms(&self, _: &[&SeriesHandle], _: TimeGrid) -> Result<SourceRead<Mixture>> {
            panic!("nothing is read")
        }

        fn numbers(
            &self,
            _: &[&SeriesHandle],
            _: TimeGrid,
        ) -> Result<SourceRead<Option<NumberAggregate>>> {
            panic!("nothing is read")
        }
    }

    /// Estimate for an hour in one-minute steps, and for its end; the lookback is five minutes.
    #[track_caller]
    fn check(text: &str, language: Language, is_range: bool, expected: u64) {
        let (start, step) = if is_range { (0, MINUTE) } else { (HOUR, 0) };
        let options = promql::Options::default();
        let question = QueryRequest { text, language, start, end: HOUR, step, options };
        let found = estimate(&TenSeries, &question, &Settings::default(), &|| false);
        assert_eq!(found.unwrap(), expected, "{text}");
    }

    #[test]
    fn rows_and_values_are_added_up() {
        let promql = |text, is_range, expected| check(text, Language::PromQl, is_range, expected);
        promql("load", false, 10 * 300 + 10);
        promql("load", true, 10 * 3900 + 10 * 61);
        promql("sum(rate(load[10m]))", false, 10 * 600 + 10);
        promql("sum(rate(load[10m]))", true, 10 * 4200 + 10 * 61);
        promql("exact_increase(load[1h])", false, 10 * 60 + 10);
        promql("load offset 1h @ 7200", true, 10 * 300 + 10);
        promql("load + 1", false, 10 * 300 + 10 + 1);
        promql("max_over_time(load[1h:1m])", false, 10 * 3900 + 10 * 61);
        check("find('load')", Language::Caql, true, 10 * 60 + 10 * 60);
    }

    #[test]
    fn estimate_stops_on_cancellation() {
        let question = QueryRequest {
            text: "load",
            language: Language::PromQl,
            start: 0,
            end: 0,
            step: 0,
            options: promql::Options::default(),
        };
        let found = estimate(&TenSeries, &question, &Settings::default(), &|| true);
        assert!(matches!(found, Err(Error::Timeout)));
    }
}
