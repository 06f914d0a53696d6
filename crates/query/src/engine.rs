//! Query engine entry point.

use model::Gap;

use crate::context::QueryContext;
use crate::error::{Error, Result, SourceSpan};
use crate::eval::{Evaluation, merge_equal_labels};
use crate::limits::SAMPLE_BYTES;
use crate::plan::{PlanNode, PlanOp};
use crate::prometheus_source::PrometheusSource;
use crate::query_warnings::QueryWarnings;
use crate::request::{Language, QueryRequest};
use crate::settings::Settings;
use crate::source::Source;
use crate::stream::{SeriesPoints, StepGrid, Stream};
use crate::{caql, promql};

/// Query result.
#[derive(Clone, Debug)]
pub struct QueryResult {
    /// Result data.
    pub data: ResultData,
    /// Steps of the result.
    pub steps: StepGrid,
    /// Warnings and infos.
    pub warnings: QueryWarnings,
    /// Known gaps in the data that was read.
    pub gaps: Vec<Gap>,
    /// Unit of the numbers, or of the values of the distributions, if known.
    pub unit: Option<String>,
}

/// Result data by type.
#[derive(Clone, Debug, PartialEq)]
pub enum ResultData {
    /// One number for each step.
    Scalar(Vec<f64>),
    /// String.
    Text(String),
    /// Streams at one timestamp with one point each, in the order of the query's result.
    Vector(Vec<Stream>),
    /// Streams over a range.
    Matrix(Vec<Stream>),
    /// Raw samples.
    RawSamples(Vec<SeriesPoints>),
}

impl ResultData {
    /// Memory that stays reserved in the context of the query.
    pub fn reserved_bytes(&self) -> u64 {
        self.samples().saturating_mul(SAMPLE_BYTES)
    }

    /// Sample count towards `max_samples`.
    fn samples(&self) -> u64 {
        match self {
            // Scalars and strings are free: there is at most one for each step.
            ResultData::Scalar(_) | ResultData::Text(_) => 0,
            ResultData::Vector(streams) | ResultData::Matrix(streams) => {
                streams.iter().map(Stream::samples).sum()
            }
            ResultData::RawSamples(all) => {
                let samples = all.iter().flat_map(|series| &series.points);
                samples.map(|sample| sample.value.samples()).sum()
            }
        }
    }
}

/// Executes a query. A function that returns whether the query is cancelled can be used as
/// `context`.
pub fn execute(
    source: &dyn Source,
    question: &QueryRequest<'_>,
    settings: &Settings,
    context: &dyn QueryContext,
) -> Result<QueryResult> {
    execute_with_stats(source, question, settings, context).map(|(answer, _)| answer)
}

/// Executes a query and returns the samples still charged beyond those of the result: 0, unless a
/// release was forgotten.
pub fn execute_with_stats(
    source: &dyn Source,
    question: &QueryRequest<'_>,
    settings: &Settings,
    context: &dyn QueryContext,
) -> Result<(QueryResult, i128)> {
    match question.language {
        Language::PromQl => {
            let steps = steps_for(question, settings)?;
            let expression = promql::parse(question.text, &question.options)?;
            let (kind, mut node) = promql::plan(&expression, question, settings)?;
            if let PlanOp::RangeSelection(ranged) = &mut node.op {
                ranged.is_for_counters |= settings.sums_deltas;
            }
            let source = PrometheusSource::new(source, context);
            let mut evaluation = Evaluation::new(&source, settings, context);
            evaluation.is_range_of_one_step =
                question.step > 0 && steps.is_instant() && question.end != question.start;
            evaluation.keeps_units_apart =
                matches!(node.op, PlanOp::Latest(_) | PlanOp::RangeSelection(_));
            let data = execute_promql(&mut evaluation, kind, &node, steps)?;
            evaluation.release_shared();
            let unit = evaluation.unit(&node)?.text();
            let beside =
                i128::from(evaluation.budget.charged_samples()) - i128::from(data.samples());
            Ok((finish(evaluation, data, steps, unit), beside))
        }
        Language::Caql => {
            execute_caql(source, question, settings, context).map(|answer| (answer, 0))
        }
    }
}

fn execute_caql(
    source: &dyn Source,
    question: &QueryRequest<'_>,
    settings: &Settings,
    context: &dyn QueryContext,
) -> Result<QueryResult> {
    let plan = caql::plan(question, settings)?;
    let lookback = plan.lookback.unwrap_or(settings.lookback);
    let settings = Settings { lookback, ..settings.clone() };
    let mut evaluation = Evaluation::new(source, &settings, context);
    evaluation.warnings = plan.warnings;
    let offset = plan.promql_at.unwrap_or(0);
    let moved = |error: Error| error.shift(offset);
    let mut streams = evaluation.streams(&plan.node, plan.steps).map_err(moved)?;
    let samples = |streams: &[Stream]| streams.iter().map(Stream::samples).sum::<u64>();
    let shared: u64 = evaluation.shared.values().map(|streams| samples(streams)).sum();
    debug_assert_eq!(
        evaluation.budget.charged_samples(),
        samples(&streams) + shared,
        "BUG: released more samples than charged"
    );
    let unit = evaluation.unit(&plan.node).map_err(moved)?.text();
    if plan.promql_at.is_some() {
        streams = without_names(streams, plan.node.span).map_err(moved)?;
        streams.retain(|stream| !stream.is_empty());
        model::sort::by(&mut streams, |a, b| a.labels.cmp(&b.labels));
        evaluation.warnings = evaluation.warnings.shift(offset);
    } else {
        let span = plan.node.span;
        caql::set_names(&mut streams, question.text.get(span.start..span.end).unwrap_or(""));
    }
    Ok(finish(evaluation, ResultData::Matrix(streams), plan.steps, unit))
}

/// Removes metric names that no longer describe their streams.
fn without_names(mut streams: Vec<Stream>, span: SourceSpan) -> Result<Vec<Stream>> {
    if !streams.iter().any(|stream| stream.drops_name) {
        return Ok(streams);
    }
    for stream in streams.iter_mut().filter(|stream| stream.drops_name) {
        stream.labels = stream.labels.without_metadata();
    }
    merge_equal_labels(streams, span)
}

fn finish(
    evaluation: Evaluation<'_>,
    data: ResultData,
    steps: StepGrid,
    unit: Option<String>,
) -> QueryResult {
    let mut gaps = evaluation.gaps;
    gaps.sort_unstable();
    gaps.dedup();
    QueryResult { data, steps, warnings: evaluation.warnings, gaps, unit }
}

fn steps_for(question: &QueryRequest<'_>, settings: &Settings) -> Result<StepGrid> {
    if question.step == 0 {
        return Ok(StepGrid::at(question.start));
    }
    let invalid = |message: &str| {
        let span = SourceSpan::new(0, question.text.len());
        Err(Error::Parse { span, message: message.to_owned() })
    };
    if question.step < 0 {
        return invalid("invalid step: negative; use a step above 0");
    }
    if question.end < question.start {
        return invalid("invalid range: the end is before the start");
    }
    let steps = StepGrid::covering(question.start, question.end, question.step);
    let max = settings.limits.steps;
    if steps.count as u64 > max {
        let remedy = "increase the step, reduce the range, or raise max_steps".to_owned();
        let (limit, found) = ("steps (max_steps)", steps.count as u64);
        return Err(Error::Limit { limit, found, max, remedy });
    }
    Ok(steps)
}

fn execute_promql(
    evaluation: &mut Evaluation<'_>,
    kind: promql::ValueType,
    node: &PlanNode,
    steps: StepGrid,
) -> Result<ResultData> {
    match (&node.op, kind) {
        (PlanOp::Text(text), _) => Ok(ResultData::Text(text.clone())),
        (PlanOp::RangeSelection(ranged), _) => {
            let mut samples = evaluation.ranged(ranged, steps.start)?;
            for series in samples.iter_mut().filter(|series| series.drops_name) {
                series.labels = series.labels.without_metadata();
            }
            model::sort::by(&mut samples, |a, b| a.labels.cmp(&b.labels));
            Ok(ResultData::RawSamples(samples))
        }
        (_, promql::ValueType::Scalar) => Ok(ResultData::Scalar(evaluation.scalar(node, steps)?)),
        _ => {
            let mut streams = evaluation.streams(node, steps)?;
            streams = without_names(streams, node.span)?;
            streams.retain(|stream| !stream.is_empty());
            Ok(match steps.is_instant() {
                true => ResultData::Vector(streams),
                false => {
                    model::sort::by(&mut streams, |a, b| a.labels.cmp(&b.labels));
                    ResultData::Matrix(streams)
                }
            })
        }
    }
}
