//! In what an answer's numbers are: worked out from what is read and what is done to it, as far as that can be
//! known. A number that was multiplied by another is in nothing that we could name.

use crate::error::Result;
use crate::eval::Evaluation;
use crate::plan::{Fetch, Node, Op, Ranged, RangedOf};
use crate::promql::{AggregateOp, BinaryOp};

/// What the values of a node are in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// It cannot be known.
    Unknown,
    /// A number that is written in the expression: of whatever it meets.
    Plain,
    /// Numbers of this.
    Numbers(String),
    /// Distributions of values that are in this.
    Distributions(String),
}

impl Unit {
    /// What a reader is told; `None` where it is not known.
    pub(crate) fn text(self) -> Option<String> {
        match self {
            Unit::Unknown | Unit::Plain => None,
            Unit::Numbers(unit) | Unit::Distributions(unit) => {
                Some(unit).filter(|unit| !unit.is_empty())
            }
        }
    }

    fn named(unit: &str) -> Unit {
        Unit::Numbers(unit.to_owned())
    }

    /// Of distributions of values, the numbers that have their unit.
    fn of_values(self, with: impl Fn(&str) -> String) -> Unit {
        match self {
            Unit::Distributions(unit) if !unit.is_empty() => Unit::Numbers(with(&unit)),
            _ => Unit::Unknown,
        }
    }

    /// Of numbers, what follows from their unit; distributions stay what they are.
    fn of_numbers(self, with: impl Fn(&str) -> String) -> Unit {
        match self {
            Unit::Numbers(unit) if !unit.is_empty() => Unit::Numbers(with(&unit)),
            Unit::Distributions(unit) => Unit::Distributions(unit),
            _ => Unit::Unknown,
        }
    }
}

impl Evaluation<'_> {
    /// The unit of a node's values.
    pub(crate) fn unit(&mut self, node: &Node) -> Result<Unit> {
        Ok(match &node.op {
            Op::Number(_) => Unit::Plain,
            Op::Text(_) => Unit::Unknown,
            Op::Stage(stage) => stage.unit(self)?,
            Op::Latest(fetch) => self.unit_of_fetch(fetch)?,
            Op::Ranged(ranged) => self.unit_of_ranged(ranged)?,
            Op::Exact(exact) => {
                let unit = self.unit_of_fetch(&exact.fetch)?;
                if exact.is_rate { unit.of_numbers(|unit| format!("{unit}/s")) } else { unit }
            }
            Op::Once(inner) | Op::Negate(inner) => self.unit(inner)?,
            Op::Over(over) => {
                let unit = self.unit_of_ranged(&over.of)?;
                match over.function.name {
                    "rate" | "irate" | "deriv" => unit.of_numbers(|unit| format!("{unit}/s")),
                    "stdvar_over_time" => unit.of_numbers(|unit| format!("{unit}²")),
                    "count_over_time" | "changes" | "resets" | "present_over_time"
                    | "absent_over_time" => Unit::Unknown,
                    name if name.starts_with("ts_of_") => Unit::named("s"),
                    _ => unit,
                }
            }
            Op::Call { function, args } => self.unit_of_call(function.name, args)?,
            Op::Aggregate(aggregate) => {
                let unit = self.unit(&aggregate.of)?;
                match aggregate.way {
                    AggregateOp::Count | AggregateOp::CountValues => Unit::named("series"),
                    AggregateOp::Group => Unit::Unknown,
                    AggregateOp::Stdvar => unit.of_numbers(|unit| format!("{unit}²")),
                    _ => unit,
                }
            }
            Op::Binary(binary) => {
                let (left, right) = (self.unit(&binary.left.1)?, self.unit(&binary.right.1)?);
                let keeps = match binary.operator {
                    BinaryOp::Add | BinaryOp::Subtract | BinaryOp::Or => true,
                    BinaryOp::And | BinaryOp::Unless => return Ok(left),
                    BinaryOp::TrimUpper | BinaryOp::TrimLower => return Ok(left),
                    operator => operator.is_comparison() && !binary.is_bool,
                };
                match (left, right) {
                    (left, right) if keeps && (left == right || right == Unit::Plain) => left,
                    (Unit::Plain, right) if keeps => right,
                    _ => Unit::Unknown,
                }
            }
        })
    }

    fn unit_of_call(&mut self, name: &str, args: &[Node]) -> Result<Unit> {
        let of_arg = |evaluation: &mut Evaluation<'_>, at: usize| match args.get(at) {
            Some(arg) => evaluation.unit(arg),
            None => Ok(Unit::Unknown),
        };
        let own = |unit: &str| unit.to_owned();
        Ok(match name {
            "time" | "timestamp" | "start_timestamp" => Unit::named("s"),
            "histogram_count" => Unit::named("values"),
            "histogram_count_above" | "histogram_count_below" | "histogram_count_between" => {
                Unit::named("values")
            }
            "users_harmed" => Unit::named("users"),
            "histogram_fraction" | "histogram_inverse_quantile" => Unit::named("share, 0 to 1"),
            "histogram_quantile" => of_arg(self, 1)?.of_values(own),
            "histogram_quantiles"
            | "histogram_sum"
            | "histogram_avg"
            | "histogram_stddev"
            | "histogram_max"
            | "histogram_min" => of_arg(self, 0)?.of_values(own),
            "histogram_stdvar" => of_arg(self, 0)?.of_values(|unit| format!("{unit}²")),
            "abs" | "ceil" | "floor" | "round" | "clamp" | "clamp_min" | "clamp_max" | "sort"
            | "sort_desc" | "sort_by_label" | "sort_by_label_desc" | "label_replace"
            | "label_join" | "scalar" | "vector" | "info" | "running_total" => of_arg(self, 0)?,
            _ => Unit::Unknown,
        })
    }

    fn unit_of_ranged(&mut self, ranged: &Ranged) -> Result<Unit> {
        match &ranged.of {
            RangedOf::Series(fetch) => self.unit_of_fetch(fetch),
            RangedOf::Subquery { inner, .. } => self.unit(inner),
        }
    }

    fn unit_of_fetch(&mut self, fetch: &Fetch) -> Result<Unit> {
        let handles = self.source.select(&fetch.selector)?;
        let unit = |handle: &crate::source::Handle| match handle.kind {
            model::Kind::Histogram(_) => Unit::Distributions(handle.unit.clone()),
            _ => Unit::Numbers(handle.unit.clone()),
        };
        let Some(first) = handles.first().map(unit) else { return Ok(Unit::Unknown) };
        Ok(if handles.iter().all(|handle| unit(handle) == first) { first } else { Unit::Unknown })
    }
}
