//! PromQL planner: resolves durations, evaluates constant nodes once, and reads sums of deltas from
//! rollups.

use std::cell::Cell;

use model::Selector;
use model::selector::{KIND, Pattern, renamed_kind};

use crate::error::{Error, Result, SourceSpan};
use crate::plan::{
    Aggregation, BinaryOperation, ExactRange, Grouping, OperandKind, PlanNode, PlanOp,
    RangeExtension, RangeFunctionCall, RangeSelection, RangeSource, SeriesFetch, TimeShift,
};
use crate::request::QueryRequest;
use crate::settings::Settings;

use super::aggregate_op::AggregateOp;
use super::ast::{AtModifier, BinaryOp, Expr, ExprKind, ValueType, VectorSelector};
use super::matcher::{MatchOp, Matcher};
use super::pattern;
use super::quantiles;
use super::repeated_arguments::RepeatedArguments;
use super::signature::{BucketUse, CallPlan, PromqlFunction, QueryTimes, StepDependence};

/// Plans an expression; returns its type and its plan.
pub(crate) fn plan(
    expression: &Expr,
    question: &QueryRequest<'_>,
    settings: &Settings,
) -> Result<(ValueType, PlanNode)> {
    let kind = expression.value_type();
    if question.step != 0 && matches!(kind, ValueType::Matrix | ValueType::Text) {
        let message = format!(
            "invalid expression type \"{}\" for range query, must be Scalar or instant Vector",
            kind.documented()
        );
        return Err(Error::Parse { span: expression.span, message });
    }
    if !settings.averaged_quantiles {
        quantiles::reject_averages(expression)?;
    }
    let planner = Planner {
        start: question.start,
        end: question.end,
        step: question.step,
        parent: Cell::default(),
        repeated: RepeatedArguments::of(expression),
    };
    let planned = planner.node(expression)?;
    Ok((kind, planned.once()))
}

struct Planner {
    start: i64,
    end: i64,
    step: i64,
    parent: Cell<ParentContext>,
    repeated: RepeatedArguments,
}

/// Requirements of the enclosing expressions.
#[derive(Clone, Copy, Default)]
struct ParentContext {
    /// A function that needs only count and sum of a histogram.
    needs_no_buckets: bool,
    /// An operation that needs the buckets, or raw samples.
    needs_buckets: bool,
}

impl ParentContext {
    fn detects_resets(self) -> bool {
        self.needs_no_buckets && !self.needs_buckets
    }
}

/// Plan node and whether it is constant over steps.
struct PlannedNode {
    node: PlanNode,
    is_constant: bool,
}

impl PlannedNode {
    /// Evaluates the node once, if that saves work.
    fn once(self) -> PlanNode {
        let is_plain = matches!(
            self.node.op,
            PlanOp::Number(_)
                | PlanOp::Duration(_)
                | PlanOp::Text(_)
                | PlanOp::RangeSelection(_)
                | PlanOp::Once(_)
        );
        if !self.is_constant || is_plain {
            return self.node;
        }
        let span = self.node.span;
        PlanNode { op: PlanOp::Once(Box::new(self.node)), span }
    }
}

impl Planner {
    /// Plans a subexpression with changed requirements.
    fn plan_child<T>(&self, change: impl Fn(&mut ParentContext), plan: impl FnOnce() -> T) -> T {
        let outside = self.parent.get();
        let mut inside = outside;
        change(&mut inside);
        self.parent.set(inside);
        let planned = plan();
        self.parent.set(outside);
        planned
    }

    fn node(&self, expr: &Expr) -> Result<PlannedNode> {
        let expr = expr.unwrap_parens();
        let span = expr.span;
        let of = |op: PlanOp, is_same: bool| {
            Ok(PlannedNode { node: PlanNode { op, span }, is_constant: is_same })
        };
        match &expr.kind {
            ExprKind::Number(number) => of(PlanOp::Number(*number), true),
            ExprKind::Duration(seconds) => of(PlanOp::Duration(*seconds), true),
            ExprKind::Text(text) => of(PlanOp::Text(text.clone()), true),
            ExprKind::Selector(selector) => {
                let fetch = self.fetch(selector)?;
                let is_same = fetch.shift.at.is_some();
                of(PlanOp::Latest(fetch), is_same)
            }
            ExprKind::Matrix { .. } | ExprKind::Subquery { .. } => {
                let (ranged, is_same) = self.ranged(expr)?;
                of(PlanOp::RangeSelection(Box::new(ranged)), is_same)
            }
            ExprKind::Unary { negative, expr } => {
                let inner = self.node(expr)?;
                match negative {
                    false => Ok(inner),
                    true => of(PlanOp::Negate(Box::new(inner.node)), inner.is_constant),
                }
            }
            ExprKind::Binary { op, left, right, matching, return_bool } => {
                let side = |expr: &Expr| match expr.value_type() {
                    ValueType::Scalar => OperandKind::Scalar,
                    _ => OperandKind::Vector,
                };
                let sides = (side(left), side(right));
                let trims = matches!(op, BinaryOp::TrimUpper | BinaryOp::TrimLower);
                let (left, right) = self.plan_child(
                    |above| above.needs_buckets |= trims,
                    || Ok::<_, Error>((self.node(left)?, self.node(right)?)),
                )?;
                let is_same = left.is_constant && right.is_constant;
                let plan_operand =
                    |planned: PlannedNode| if is_same { planned.node } else { planned.once() };
                let binary = BinaryOperation {
                    operator: *op,
                    left: (sides.0, plan_operand(left)),
                    right: (sides.1, plan_operand(right)),
                    matching: matching.clone().unwrap_or_default(),
                    is_bool: *return_bool,
                };
                of(PlanOp::Binary(Box::new(binary)), is_same)
            }
            ExprKind::Aggregate { op, expr: inner, param, grouping, without } => {
                let grouping = Grouping { is_without: *without, labels: grouping.clone() };
                let inner = self.node(inner)?;
                let param = param.as_ref().map(|param| self.node(param)).transpose()?;
                let is_same =
                    inner.is_constant && param.as_ref().is_none_or(|param| param.is_constant);
                if let Some(exact) = exact_sum(*op, &grouping, &inner.node, span) {
                    return of(PlanOp::Exact(Box::new(exact)), is_same);
                }
                let plan_operand =
                    |planned: PlannedNode| if is_same { planned.node } else { planned.once() };
                let (of_node, param) = (plan_operand(inner), param.map(plan_operand));
                let aggregate = Aggregation { op: *op, grouping, input: of_node, param };
                of(PlanOp::Aggregate(Box::new(aggregate)), is_same)
            }
            ExprKind::Call { function, args } => self.plan_child(
                |above| match function.bucket_use {
                    BucketUse::CountAndSum => above.needs_no_buckets = true,
                    BucketUse::All => above.needs_buckets = true,
                    BucketUse::Unchanged => {}
                },
                || self.call(function, args, span),
            ),
            ExprKind::Paren(_) => panic!("BUG: parentheses were removed"),
        }
    }

    fn call(
        &self,
        function: &'static PromqlFunction,
        args: &[Expr],
        span: SourceSpan,
    ) -> Result<PlannedNode> {
        if let CallPlan::RequestNumber(number) = function.call_plan {
            let Planner { start, end, step, .. } = *self;
            let op = PlanOp::Number(number(QueryTimes { start, end, step }));
            return Ok(PlannedNode { node: PlanNode { op, span }, is_constant: true });
        }
        let is_ranged = |arg: &Expr| arg.value_type() == ValueType::Matrix;
        match args.iter().position(is_ranged) {
            Some(at) => self.call_over_time(function, args, at, span),
            None => self.call_of_streams(function, args, span),
        }
    }

    fn call_of_streams(
        &self,
        function: &'static PromqlFunction,
        args: &[Expr],
        span: SourceSpan,
    ) -> Result<PlannedNode> {
        let written = args;
        let args: Vec<PlannedNode> =
            args.iter().map(|arg| self.node(arg)).collect::<Result<_>>()?;
        let is_constant = args.iter().all(|arg| arg.is_constant)
            && match function.step_dependence {
                StepDependence::Arguments => true,
                StepDependence::Step => false,
                // The timestamp of a sample is constant over steps if the sample is.
                StepDependence::UnlessSelector => {
                    args.iter().all(|arg| matches!(arg.node.op, PlanOp::Latest(_)))
                }
            };
        let detects_resets = self.parent.get().detects_resets();
        let plan_argument = |(at, planned): (usize, PlannedNode)| {
            let selects = function.label_matchers_arg == Some(at);
            let node = if is_constant || selects { planned.node } else { planned.once() };
            self.repeated.share(&written[at], detects_resets, node)
        };
        let args = args.into_iter().enumerate().map(plan_argument).collect();
        let op = PlanOp::Call { function, args };
        Ok(PlannedNode { node: PlanNode { op, span }, is_constant })
    }

    /// Plans a range function; argument `at` is the range vector.
    fn call_over_time(
        &self,
        function: &'static PromqlFunction,
        args: &[Expr],
        at: usize,
        span: SourceSpan,
    ) -> Result<PlannedNode> {
        let (mut ranged, is_fixed) = self.ranged(args[at].unwrap_parens())?;
        ranged.is_for_counters = function.reads_totals;
        let others = args.iter().enumerate().filter(|(other, _)| *other != at);
        let others: Vec<PlannedNode> =
            others.map(|(_, arg)| self.node(arg)).collect::<Result<_>>()?;
        let is_constant = is_fixed
            && function.step_dependence == StepDependence::Arguments
            && others.iter().all(|other| other.is_constant);
        let node = |op: PlanOp| PlannedNode { node: PlanNode { op, span }, is_constant };
        if let CallPlan::Exact { is_rate } = function.call_plan {
            return match exact_range(&ranged, is_rate, None) {
                Some(exact) => Ok(node(PlanOp::Exact(Box::new(exact)))),
                None => {
                    let message = format!(
                        "{} reads exact deltas from the store; use a selector with a range, not a \
                         subquery, without anchored and smoothed",
                        function.name
                    );
                    Err(Error::Parse { span: ranged.span, message })
                }
            };
        }
        let plan_argument =
            |planned: PlannedNode| if is_constant { planned.node } else { planned.once() };
        let args = others.into_iter().map(plan_argument).collect();
        let over = RangeFunctionCall { function, input: ranged.clone(), args };
        let standard = PlanOp::RangeFunction(Box::new(over));
        if let CallPlan::EvaluateOrExact = function.call_plan {
            let standard = PlanNode { op: standard.clone(), span };
            if let Some(exact) = exact_range(&ranged, false, Some(standard)) {
                return Ok(node(PlanOp::Exact(Box::new(exact))));
            }
        }
        Ok(node(standard))
    }

    /// Plans a range vector; returns whether it is constant over steps.
    fn ranged(&self, expr: &Expr) -> Result<(RangeSelection, bool)> {
        let span = expr.span;
        let total = self.end.saturating_sub(self.start);
        match &expr.kind {
            ExprKind::Matrix { selector, range } => {
                let fetch = self.fetch(selector)?;
                let is_same = fetch.shift.at.is_some();
                let range = range.resolve(self.step, total)?;
                let of = RangeSource::Series(fetch);
                Ok((RangeSelection { source: of, range, is_for_counters: false, span }, is_same))
            }
            ExprKind::Subquery { expr: inner, range, step, offset, at } => {
                let inner =
                    self.plan_child(|above| above.needs_buckets = true, || self.node(inner))?;
                let inner = inner.once();
                let range = range.resolve(self.step, total)?;
                let step = step.as_ref().map(|step| step.resolve(self.step, total)).transpose()?;
                let offset = offset.resolve_offset(self.step, total)?;
                let shift = TimeShift { offset, at: self.at(*at) };
                let is_same = shift.at.is_some();
                let of = RangeSource::Subquery { inner, step, shift };
                Ok((RangeSelection { source: of, range, is_for_counters: false, span }, is_same))
            }
            _ => panic!("BUG: the types were checked"),
        }
    }

    fn fetch(&self, selector: &VectorSelector) -> Result<SeriesFetch> {
        let total = self.end.saturating_sub(self.start);
        let offset = selector.offset.resolve_offset(self.step, total)?;
        let extension = match (selector.anchored, selector.smoothed) {
            (true, _) => RangeExtension::Anchored,
            (_, true) => RangeExtension::Smoothed,
            _ => RangeExtension::None,
        };
        Ok(SeriesFetch {
            detects_resets: self.parent.get().detects_resets(),
            selector: selector_from_matchers(&selector.matchers, selector.span)?,
            matchers: selector.matchers.clone(),
            shift: TimeShift { offset, at: self.at(selector.at) },
            extension,
            span: selector.span,
        })
    }

    fn at(&self, at: Option<AtModifier>) -> Option<i64> {
        at.map(|at| match at {
            AtModifier::Time(time) => time,
            AtModifier::Start => self.start,
            AtModifier::End => self.end,
        })
    }
}

/// Plans an exact delta, if the store can compute it.
fn exact_range(
    ranged: &RangeSelection,
    is_rate: bool,
    standard_expr: Option<PlanNode>,
) -> Option<ExactRange> {
    match &ranged.source {
        RangeSource::Series(fetch) if fetch.extension == RangeExtension::None => {
            let (fetch, range) = (fetch.clone(), ranged.range);
            Some(ExactRange { fetch, range, is_rate, grouping: None, standard_expr })
        }
        _ => None,
    }
}

/// Plans a sum of deltas, if series can be merged while they are read.
fn exact_sum(
    op: AggregateOp,
    grouping: &Grouping,
    inner: &PlanNode,
    span: SourceSpan,
) -> Option<ExactRange> {
    let PlanOp::Exact(exact) = &inner.op else { return None };
    let says_name = grouping.labels.iter().any(|label| crate::labels::is_metadata(label));
    if op != AggregateOp::Sum || exact.grouping.is_some() || says_name {
        return None;
    }
    let mut exact = ExactRange::clone(exact);
    exact.grouping = Some(grouping.clone());
    exact.standard_expr = exact.standard_expr.map(|of| {
        let (grouping, param) = (grouping.clone(), None);
        let aggregate = Aggregation { op, grouping, input: of, param };
        PlanNode { op: PlanOp::Aggregate(Box::new(aggregate)), span }
    });
    Some(exact)
}

/// Store selector of a vector selector. Offset and `@` are not part of it.
pub fn selector_of(selector: &VectorSelector) -> Result<Selector> {
    selector_from_matchers(&selector.matchers, selector.span)
}

/// Selector of a conjunction of matchers.
pub(crate) fn selector_from_matchers(matchers: &[Matcher], span: SourceSpan) -> Result<Selector> {
    let of = |matcher: &Matcher| {
        let regex = || {
            let failed = |reason: String| Error::Parse {
                span,
                message: format!("{}: {reason}", matcher.name),
            };
            // Selectors of the store use a different regex dialect than PromQL.
            let regex = pattern::translate(&matcher.value).map_err(failed)?;
            Selector::label_matches(matcher.name.as_str(), &regex)
                .map_err(|error| failed(error.to_string()))
        };
        let condition = match matcher.op {
            MatchOp::Equal | MatchOp::NotEqual => {
                Selector::tag(matcher.name.as_str(), Pattern::Exact(matcher.value.clone()))
            }
            MatchOp::Regex | MatchOp::NotRegex => regex()?,
        };
        if let Selector::Tag { name, pattern } = &condition
            && name == KIND
            && let Some((old, new)) = renamed_kind(pattern)
        {
            let message = format!("kind {old:?} has a new name: use {KIND}={new:?}");
            return Err(Error::Parse { span, message });
        }
        Ok(match matcher.op {
            MatchOp::Equal | MatchOp::Regex => condition,
            MatchOp::NotEqual | MatchOp::NotRegex => Selector::negate(condition),
        })
    };
    Ok(Selector::and(matchers.iter().map(of).collect::<Result<_>>()?))
}
