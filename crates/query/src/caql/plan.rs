//! Planner of CAQL queries.

use std::collections::HashMap;

use super::arguments::{Arguments, CaqlContext};
use super::ast::{Body, Directives, Operator};
use super::bind::{BoundExpr, BoundKind, bind};
use super::function_table::{CaqlKernel, MergeRule};
use super::signature::Signature;
use super::{functions, parse, quantiles};
use crate::error::{Error, Result, SourceSpan};
use crate::plan::{
    CallStage, MetricQuery, MetricStatistic, PlanNode, PlanOp, PlanStage, StageKind,
};
use crate::promql;
use crate::query_warnings::QueryWarnings;
use crate::request::QueryRequest;
use crate::settings::Settings;
use crate::stream::StepGrid;

/// Default slot length; durations are rounded down to multiples of it.
const PERIOD: i64 = store::MINUTE;

/// Plan of a CAQL query.
pub(crate) struct CaqlPlan {
    pub(crate) node: PlanNode,
    /// Requested slots.
    pub(crate) steps: StepGrid,
    pub(crate) warnings: QueryWarnings,
    /// Byte offset of the expression if it is PromQL.
    pub(crate) promql_at: Option<usize>,
    /// PromQL lookback, if the query sets it.
    pub(crate) lookback: Option<i64>,
}

/// Plans a query.
pub(crate) fn plan(question: &QueryRequest<'_>, settings: &Settings) -> Result<CaqlPlan> {
    let query = parse(question.text)?;
    let steps = slots(question, &query.directives, settings)?;
    let mut plan = CaqlPlan {
        node: PlanNode { op: PlanOp::Number(0.0), span: SourceSpan::default() },
        steps,
        warnings: QueryWarnings::default(),
        promql_at: None,
        lookback: query.directives.lookback_ns,
    };
    let expr = match query.body {
        Body::Caql(expr) => expr,
        Body::Promql { text, offset } => {
            plan.promql_at = Some(offset);
            let planned = plan_promql(&text, question, settings, steps);
            plan.node = planned.map_err(|error| error.shift(offset))?;
            return Ok(plan);
        }
    };
    let context = CaqlContext {
        view_range_ns: steps.step.saturating_mul(steps.count as i64),
        view_period_ns: steps.step,
        is_serial: query.directives.serial,
    };
    let bound = bind(&expr, &context, &mut plan.warnings)?;
    if !settings.averaged_quantiles {
        quantiles::reject_averages(&bound, question.text)?;
    }
    let mut planner = CaqlPlanner {
        context,
        start: steps.start,
        least: query.directives.min_period_ns.unwrap_or(PERIOD),
        known_nodes: HashMap::new(),
        uses: Vec::new(),
    };
    let counted = planner.count(&bound);
    plan.node = planner.node(&bound, &counted, 0)?;
    Ok(plan)
}

/// Slots of a query; its end is exclusive.
fn slots(
    question: &QueryRequest<'_>,
    directives: &Directives,
    settings: &Settings,
) -> Result<StepGrid> {
    let least = directives.min_period_ns.unwrap_or(PERIOD);
    let period = if question.step == 0 { PERIOD } else { question.step }.max(least);
    let invalid = |message: &str| {
        let span = SourceSpan::new(0, question.text.len());
        Err(Error::Parse { span, message: message.to_owned() })
    };
    if question.step < 0 {
        return invalid("invalid period: negative; use a period above 0");
    }
    if question.end < question.start {
        return invalid("invalid range: the start is after the end");
    }
    // An instant query is evaluated in its slot.
    let length = question.end.saturating_sub(question.start).max(1);
    let count = (length as u64).div_ceil(period as u64);
    let max = settings.limits.steps;
    if count > max {
        let remedy = "increase the period, reduce the range, or raise max_steps".to_owned();
        return Err(Error::Limit { limit: "steps (max_steps)", found: count, max, remedy });
    }
    Ok(StepGrid { start: question.start, step: period, count: count as usize })
}

fn plan_promql(
    text: &str,
    question: &QueryRequest<'_>,
    settings: &Settings,
    steps: StepGrid,
) -> Result<PlanNode> {
    let expression = promql::parse(text, &question.options)?;
    let question = QueryRequest { text, end: steps.end(), step: steps.step, ..question.clone() };
    let (_, node) = promql::plan(&expression, &question, settings)?;
    Ok(node)
}

struct CaqlPlanner {
    context: CaqlContext,
    /// Start of the first requested slot.
    start: i64,
    /// Durations are rounded down to multiples of this.
    least: i64,
    /// Index of each distinct node, by its text.
    known_nodes: HashMap<String, usize>,
    /// Number of distinct nodes that use each node.
    uses: Vec<usize>,
}

/// Deduplication key of a node.
struct DedupKey {
    index: usize,
    inputs: Vec<DedupKey>,
}

/// Maximum nesting of nodes: evaluation is recursive.
const DEPTH_MAX: usize = 256;

/// Whether an operator combines two operands at a time.
fn is_pairwise(operator: Operator) -> bool {
    matches!(operator, Operator::Divide | Operator::Remainder | Operator::Power)
}

impl CaqlPlanner {
    /// Recursive; the parser limits the depth.
    fn count(&mut self, bound: &BoundExpr) -> DedupKey {
        let below: &[BoundExpr] = match &bound.bound_kind {
            BoundKind::Constant(_) => &[],
            BoundKind::Call { inputs, .. } => inputs,
            BoundKind::Operation { operands, .. } => operands,
        };
        let inputs: Vec<DedupKey> = below.iter().map(|input| self.count(input)).collect();
        let own_cost = match &bound.bound_kind {
            BoundKind::Constant(number) => format!("{number:?}"),
            // Two calls of a random function are distinct nodes.
            BoundKind::Call { function, .. } if function.traits.is_random => {
                format!("{}", bound.span)
            }
            BoundKind::Call { function, arguments, .. } => {
                format!("{} {arguments:?}", function.canonical_name)
            }
            BoundKind::Operation { operator, .. } => format!("{operator:?}"),
        };
        let indexes: Vec<String> = inputs.iter().map(|input| input.index.to_string()).collect();
        let key = format!("{own_cost} {{{}}}", indexes.join(","));
        let next = self.uses.len();
        let which = *self.known_nodes.entry(key).or_insert(next);
        if which == next {
            self.uses.push(1);
        } else {
            self.uses[which] += 1;
            // An equal node was counted before; its inputs gain no further user.
            for input in &inputs {
                self.uses[input.index] -= 1;
            }
        }
        DedupKey { index: which, inputs }
    }

    fn node(&self, bound: &BoundExpr, counted: &DedupKey, depth: usize) -> Result<PlanNode> {
        let span = bound.span;
        if depth > DEPTH_MAX {
            let message = format!(
                "expression nests more than {DEPTH_MAX} operations; each / % or ^ in a chain counts"
            );
            return Err(Error::Parse { span, message });
        }
        let shared = (self.uses[counted.index] > 1).then_some(counted.index);
        let stage = |form: StageKind| {
            let stage = PlanStage { kind: form, shared, context: self.context };
            Ok(PlanNode { op: PlanOp::Stage(Box::new(stage)), span })
        };
        match &bound.bound_kind {
            BoundKind::Constant(Some(number)) => Ok(PlanNode { op: PlanOp::Number(*number), span }),
            BoundKind::Constant(None) => stage(StageKind::Null),
            BoundKind::Operation { operator, operands } => {
                // In pairwise evaluation, the first operands are the deepest.
                let depth = depth + if is_pairwise(*operator) { operands.len() } else { 1 };
                let inputs = self.nodes(operands, &counted.inputs, depth)?;
                stage(self.operation(*operator, inputs, span))
            }
            BoundKind::Call { function, arguments, inputs, name_span: name_place } => {
                let kernel = functions::kernel(function);
                if let CaqlKernel::Find(statistic) = kernel {
                    return stage(StageKind::Find(self.find(
                        statistic,
                        function,
                        arguments,
                        *name_place,
                    )?));
                }
                if let Some(merge) = self.merge(function, arguments, inputs)? {
                    return stage(merge);
                }
                let inputs = self.nodes(inputs, &counted.inputs, depth + 1)?;
                if let CaqlKernel::Delay = kernel {
                    let delays = arguments.variadic().iter().filter_map(|given| given.duration());
                    let delays = delays.map(|delay| delay - delay % self.least).collect();
                    return stage(StageKind::Delay { delays, inputs });
                }
                let (arguments, span) = (arguments.clone(), *name_place);
                stage(StageKind::Call(Box::new(CallStage { function, arguments, inputs, span })))
            }
        }
    }

    fn nodes(
        &self,
        bound: &[BoundExpr],
        counted: &[DedupKey],
        depth: usize,
    ) -> Result<Vec<PlanNode>> {
        bound.iter().zip(counted).map(|(bound, counted)| self.node(bound, counted, depth)).collect()
    }

    /// Plans an operation. Operators with more than two operands take all at once, the others two
    /// at a time.
    fn operation(&self, operator: Operator, inputs: Vec<PlanNode>, span: SourceSpan) -> StageKind {
        let function = Signature::find(operator.function()).expect("BUG: operators are functions");
        let call = |inputs: Vec<PlanNode>| {
            let arguments = Arguments::none();
            StageKind::Call(Box::new(CallStage { function, arguments, inputs, span }))
        };
        if !is_pairwise(operator) || inputs.len() < 3 {
            return call(inputs);
        }
        let mut inputs = inputs.into_iter();
        let mut left: Vec<PlanNode> = inputs.by_ref().take(2).collect();
        for right in inputs {
            let stage = PlanStage { kind: call(left), shared: None, context: self.context };
            left = vec![PlanNode { op: PlanOp::Stage(Box::new(stage)), span }, right];
        }
        call(left)
    }

    fn find(
        &self,
        statistic: MetricStatistic,
        function: &Signature,
        arguments: &Arguments,
        span: SourceSpan,
    ) -> Result<Box<MetricQuery>> {
        MetricQuery::new(statistic, function, arguments, self.start, span).map(Box::new)
    }

    /// Histograms of a selector that are only merged are read merged: the store merges them faster.
    fn merge(
        &self,
        function: &Signature,
        arguments: &Arguments,
        inputs: &[BoundExpr],
    ) -> Result<Option<StageKind>> {
        let by = match function.traits.merges {
            MergeRule::All => None,
            MergeRule::ByTags => {
                let texts = arguments.variadic().iter().filter_map(|given| given.text());
                Some(texts.map(str::to_owned).collect())
            }
            MergeRule::Nothing => return Ok(None),
        };
        let [
            BoundExpr {
                bound_kind: BoundKind::Call { function, arguments, name_span: name_place, .. },
                ..
            },
        ] = inputs
        else {
            return Ok(None);
        };
        match functions::kernel(function) {
            CaqlKernel::Find(statistic @ MetricStatistic::Histogram) => {
                let find = self.find(statistic, function, arguments, *name_place)?;
                Ok(Some(StageKind::Merge { find, by }))
            }
            _ => Ok(None),
        }
    }
}
