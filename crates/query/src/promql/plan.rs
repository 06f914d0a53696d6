//! From an expression to what has to be done: durations are worked out, what is the same at each step is done
//! once, and sums of what happened are read out of rollups.

use std::cell::Cell;

use model::Selector;
use model::selector::Pattern;

use crate::ask::Question;
use crate::error::{Error, Place, Result};
use crate::eval::aggregate::{Aggregate, Grouping};
use crate::eval::binary::{Binary, Side};
use crate::eval::over::Over;
use crate::eval::{Settings, call, over};
use crate::plan::{Exact, Extension, Fetch, Node, Op, Ranged, RangedOf, Shift};
use crate::stream::seconds;

use super::ast::{At, BinaryOp, Expr, ExprKind, ValueType, VectorSelector};
use super::functions::AggregateOp;
use super::matcher::{MatchOp, Matcher};
use super::pattern;
use super::quantiles;

/// What an expression gives, and what has to be done for it.
pub(crate) fn plan(
    expression: &Expr,
    question: &Question<'_>,
    settings: &Settings,
) -> Result<(ValueType, Node)> {
    let kind = expression.value_type();
    if question.step != 0 && matches!(kind, ValueType::Matrix | ValueType::Text) {
        let message = format!(
            "invalid expression type \"{}\" for range query, must be Scalar or instant Vector",
            kind.documented()
        );
        return Err(Error::Parse { place: expression.place, message });
    }
    if !settings.averaged_quantiles {
        quantiles::refuse_averages(expression)?;
    }
    let planner = Planner {
        start: question.start,
        end: question.end,
        step: question.step,
        above: Cell::default(),
    };
    let planned = planner.node(expression)?;
    Ok((kind, planned.once()))
}

struct Planner {
    start: i64,
    end: i64,
    step: i64,
    above: Cell<Above>,
}

/// What stands above a place in the expression.
#[derive(Clone, Copy, Default)]
struct Above {
    /// A function that needs no more of a histogram than its count and sum.
    needs_no_buckets: bool,
    /// Something that needs the buckets, or readings as they were.
    needs_buckets: bool,
}

/// A node, and whether it gives the same at each step.
struct Planned {
    node: Node,
    is_same: bool,
}

impl Planned {
    /// Worked out once, where that is worth it.
    fn once(self) -> Node {
        let is_plain =
            matches!(self.node.op, Op::Number(_) | Op::Text(_) | Op::Ranged(_) | Op::Once(_));
        if !self.is_same || is_plain {
            return self.node;
        }
        let place = self.node.place;
        Node { op: Op::Once(Box::new(self.node)), place }
    }
}

impl Planner {
    /// Plans what stands below something.
    fn below<T>(&self, change: impl Fn(&mut Above), plan: impl FnOnce() -> T) -> T {
        let outside = self.above.get();
        let mut inside = outside;
        change(&mut inside);
        self.above.set(inside);
        let planned = plan();
        self.above.set(outside);
        planned
    }

    fn node(&self, expr: &Expr) -> Result<Planned> {
        let expr = expr.unwrapped();
        let place = expr.place;
        let of = |op: Op, is_same: bool| Ok(Planned { node: Node { op, place }, is_same });
        match &expr.kind {
            ExprKind::Number(number) => of(Op::Number(*number), true),
            ExprKind::Text(text) => of(Op::Text(text.clone()), true),
            ExprKind::Selector(selector) => {
                let fetch = self.fetch(selector)?;
                let is_same = fetch.shift.at.is_some();
                of(Op::Latest(fetch), is_same)
            }
            ExprKind::Matrix { .. } | ExprKind::Subquery { .. } => {
                let (ranged, is_same) = self.ranged(expr)?;
                of(Op::Ranged(Box::new(ranged)), is_same)
            }
            ExprKind::Unary { negative, expr } => {
                let inner = self.node(expr)?;
                match negative {
                    false => Ok(inner),
                    true => of(Op::Negate(Box::new(inner.node)), inner.is_same),
                }
            }
            ExprKind::Binary { op, left, right, matching, return_bool } => {
                let side = |expr: &Expr| match expr.value_type() {
                    ValueType::Scalar => Side::Scalar,
                    _ => Side::Vector,
                };
                let sides = (side(left), side(right));
                let trims = matches!(op, BinaryOp::TrimUpper | BinaryOp::TrimLower);
                let (left, right) = self.below(
                    |above| above.needs_buckets |= trims,
                    || Ok::<_, Error>((self.node(left)?, self.node(right)?)),
                )?;
                let is_same = left.is_same && right.is_same;
                let own = |planned: Planned| if is_same { planned.node } else { planned.once() };
                let binary = Binary {
                    operator: *op,
                    left: (sides.0, own(left)),
                    right: (sides.1, own(right)),
                    matching: matching.clone().unwrap_or_default(),
                    is_bool: *return_bool,
                };
                of(Op::Binary(Box::new(binary)), is_same)
            }
            ExprKind::Aggregate { op, expr: inner, param, grouping, without } => {
                let grouping = Grouping { is_without: *without, labels: grouping.clone() };
                let inner = self.node(inner)?;
                let param = param.as_ref().map(|param| self.node(param)).transpose()?;
                let is_same = inner.is_same && param.as_ref().is_none_or(|param| param.is_same);
                if let Some(exact) = summed_exactly(*op, &grouping, &inner.node, place) {
                    return of(Op::Exact(Box::new(exact)), is_same);
                }
                let own = |planned: Planned| if is_same { planned.node } else { planned.once() };
                let (of_node, param) = (own(inner), param.map(own));
                let aggregate = Aggregate { way: *op, grouping, of: of_node, param };
                of(Op::Aggregate(Box::new(aggregate)), is_same)
            }
            ExprKind::Call { function, args } => self.below(
                |above| match function.name {
                    "histogram_count" | "histogram_sum" | "histogram_avg" => {
                        above.needs_no_buckets = true;
                    }
                    "histogram_quantile"
                    | "histogram_quantiles"
                    | "histogram_fraction"
                    | "histogram_stddev"
                    | "histogram_stdvar" => above.needs_buckets = true,
                    _ => {}
                },
                || self.call(function.name, args, place),
            ),
            ExprKind::Paren(_) => panic!("BUG: parentheses were taken off"),
        }
    }

    fn call(&self, name: &str, args: &[Expr], place: Place) -> Result<Planned> {
        let of = |op: Op, is_same: bool| Ok(Planned { node: Node { op, place }, is_same });
        let is_instant = self.step == 0;
        match name {
            "start" => return of(Op::Number(seconds(self.start)), true),
            "end" => return of(Op::Number(seconds(self.end)), true),
            "range" => return of(Op::Number(seconds(self.end.saturating_sub(self.start))), true),
            "step" if is_instant => return of(Op::Number(0.0), true),
            "step" => return of(Op::Number(seconds(self.step)), true),
            _ => {}
        }
        let is_ranged = |arg: &Expr| arg.value_type() == ValueType::Matrix;
        let Some(at) = args.iter().position(is_ranged) else {
            let args: Vec<Planned> =
                args.iter().map(|arg| self.node(arg)).collect::<Result<_>>()?;
            let function = call::function(name).ok_or_else(|| not_known(name, place))?;
            let is_same = !DEPENDS_ON_STEP.contains(&name) && args.iter().all(|arg| arg.is_same);
            // The time of a reading does not depend on when it is asked for, if the reading does not.
            let is_same = is_same
                || name == "timestamp"
                    && args.iter().all(|arg| arg.is_same && matches!(arg.node.op, Op::Latest(_)));
            let selects = |at: usize| name == "info" && at == 1;
            let own = |(at, planned): (usize, Planned)| {
                if is_same || selects(at) { planned.node } else { planned.once() }
            };
            let args = args.into_iter().enumerate().map(own).collect();
            return of(Op::Call { function, args }, is_same);
        };
        let (mut ranged, is_fixed) = self.ranged(args[at].unwrapped())?;
        ranged.of_counters = OF_COUNTERS.contains(&name);
        let others = args.iter().enumerate().filter(|(other, _)| *other != at);
        let others: Vec<Planned> = others.map(|(_, arg)| self.node(arg)).collect::<Result<_>>()?;
        let is_same = is_fixed
            && !DEPENDS_ON_STEP.contains(&name)
            && others.iter().all(|other| other.is_same);
        let exact = |is_rate: bool, standard: Option<Node>| match &ranged.of {
            RangedOf::Series(fetch) if fetch.extension == Extension::None => {
                let (fetch, range) = (fetch.clone(), ranged.range);
                Some(Exact { fetch, range, is_rate, grouping: None, standard })
            }
            _ => None,
        };
        if let "exact_increase" | "exact_rate" = name {
            return match exact(name == "exact_rate", None) {
                Some(exact) => of(Op::Exact(Box::new(exact)), is_same),
                None => {
                    let message = format!(
                        "{name} reads what happened out of the store: give it a selector with a range, \
                         not a subquery, and neither anchored nor smoothed"
                    );
                    Err(Error::Parse { place: ranged.place, message })
                }
            };
        }
        let function = over::function(name).ok_or_else(|| not_known(name, place))?;
        let own = |planned: Planned| if is_same { planned.node } else { planned.once() };
        let args = others.into_iter().map(own).collect();
        let over = Over { function, of: ranged.clone(), args };
        let standard = Op::Over(Box::new(over));
        if name == "sum_over_time" {
            let standard = Node { op: standard.clone(), place };
            if let Some(exact) = exact(false, Some(standard)) {
                return of(Op::Exact(Box::new(exact)), is_same);
            }
        }
        of(standard, is_same)
    }

    /// Readings of stretches of time, and whether they are the same at each step.
    fn ranged(&self, expr: &Expr) -> Result<(Ranged, bool)> {
        let place = expr.place;
        let total = self.end.saturating_sub(self.start);
        match &expr.kind {
            ExprKind::Matrix { selector, range } => {
                let fetch = self.fetch(selector)?;
                let is_same = fetch.shift.at.is_some();
                let range = range.resolve(self.step, total)?;
                let of = RangedOf::Series(fetch);
                Ok((Ranged { of, range, of_counters: false, place }, is_same))
            }
            ExprKind::Subquery { expr: inner, range, step, offset, at } => {
                let inner = self.below(|above| above.needs_buckets = true, || self.node(inner))?;
                let inner = inner.once();
                let range = range.resolve(self.step, total)?;
                let step = step.as_ref().map(|step| step.resolve(self.step, total)).transpose()?;
                let offset = offset.resolve_offset(self.step, total)?;
                let shift = Shift { offset, at: self.at(*at) };
                let is_same = shift.at.is_some();
                let of = RangedOf::Subquery { inner, step, shift };
                Ok((Ranged { of, range, of_counters: false, place }, is_same))
            }
            _ => panic!("BUG: the types were checked"),
        }
    }

    fn fetch(&self, selector: &VectorSelector) -> Result<Fetch> {
        let total = self.end.saturating_sub(self.start);
        let offset = selector.offset.resolve_offset(self.step, total)?;
        let extension = match (selector.anchored, selector.smoothed) {
            (true, _) => Extension::Anchored,
            (_, true) => Extension::Smoothed,
            _ => Extension::None,
        };
        let Above { needs_no_buckets, needs_buckets } = self.above.get();
        Ok(Fetch {
            looks_for_resets: needs_no_buckets && !needs_buckets,
            selector: of_matchers(&selector.matchers, selector.place)?,
            matchers: selector.matchers.clone(),
            shift: Shift { offset, at: self.at(selector.at) },
            extension,
            place: selector.place,
        })
    }

    fn at(&self, at: Option<At>) -> Option<i64> {
        at.map(|at| match at {
            At::Time(time) => time,
            At::Start => self.start,
            At::End => self.end,
        })
    }
}

/// Functions of what only grows.
const OF_COUNTERS: [&str; 3] = ["increase", "irate", "rate"];

/// Functions whose value depends on the step itself, not only on what they are applied to.
const DEPENDS_ON_STEP: [&str; 14] = [
    "day_of_month",
    "day_of_week",
    "day_of_year",
    "days_in_month",
    "hour",
    "minute",
    "month",
    "predict_linear",
    "running_total",
    "start_timestamp",
    "time",
    "timestamp",
    "year",
    "info",
];

/// A sum of what happened, where series can be put together while they are read.
fn summed_exactly(
    op: AggregateOp,
    grouping: &Grouping,
    inner: &Node,
    place: Place,
) -> Option<Exact> {
    let Op::Exact(exact) = &inner.op else { return None };
    let says_name = grouping.labels.iter().any(|label| crate::labels::is_metadata(label));
    if op != AggregateOp::Sum || exact.grouping.is_some() || says_name {
        return None;
    }
    let mut exact = Exact::clone(exact);
    exact.grouping = Some(grouping.clone());
    exact.standard = exact.standard.map(|of| {
        let (grouping, param) = (grouping.clone(), None);
        let aggregate = Aggregate { way: op, grouping, of, param };
        Node { op: Op::Aggregate(Box::new(aggregate)), place }
    });
    Some(exact)
}

/// The series that a selector of an expression picks, as a store is asked for them. Where the expression shifts it in
/// time is not part of it.
pub fn selector_of(selector: &VectorSelector) -> Result<Selector> {
    of_matchers(&selector.matchers, selector.place)
}

/// The condition that matchers say together.
pub(crate) fn of_matchers(matchers: &[Matcher], place: Place) -> Result<Selector> {
    let of = |matcher: &Matcher| {
        let regex = || {
            let failed =
                |why: String| Error::Parse { place, message: format!("{}: {why}", matcher.name) };
            // A store's selectors have regexes of another dialect than PromQL.
            let regex = pattern::translate(&matcher.value).map_err(failed)?;
            Selector::matching(matcher.name.as_str(), &regex)
                .map_err(|error| failed(error.to_string()))
        };
        Ok(match matcher.op {
            MatchOp::Equal => {
                Selector::tag(matcher.name.as_str(), Pattern::Exact(matcher.value.clone()))
            }
            MatchOp::NotEqual => Selector::negated(Selector::tag(
                matcher.name.as_str(),
                Pattern::Exact(matcher.value.clone()),
            )),
            MatchOp::Regex => regex()?,
            MatchOp::NotRegex => Selector::negated(regex()?),
        })
    };
    Ok(Selector::and(matchers.iter().map(of).collect::<Result<_>>()?))
}

fn not_known(name: &str, place: Place) -> Error {
    let message = format!("unknown function with name {name:?}");
    Error::Parse { place, message }
}
