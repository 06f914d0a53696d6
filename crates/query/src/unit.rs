//! Units of query results. A number that was multiplied by another is in nothing that we could
//! name.

use crate::error::Result;
use crate::eval::Evaluation;
use crate::plan::{PlanNode, PlanOp, RangeSelection, RangeSource, SeriesFetch};
use crate::promql::{AggregateOp, BinaryOp};

/// Unit of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ValueUnit {
    /// It cannot be known.
    Unknown,
    /// A number that is written in the expression: of whatever it meets.
    Dimensionless,
    /// Numbers of this.
    Numbers(String),
    /// Distributions of values that are in this.
    Distributions(String),
}

impl ValueUnit {
    /// What a reader is told; `None` where it is not known.
    pub(crate) fn text(self) -> Option<String> {
        match self {
            ValueUnit::Unknown | ValueUnit::Dimensionless => None,
            ValueUnit::Numbers(unit) | ValueUnit::Distributions(unit) => {
                Some(unit).filter(|unit| !unit.is_empty())
            }
        }
    }

    fn from_name(unit: &str) -> ValueUnit {
        ValueUnit::Numbers(unit.to_owned())
    }

    /// Of distributions of values, the numbers that have their unit.
    fn map_distributions(self, with: impl Fn(&str) -> String) -> ValueUnit {
        match self {
            ValueUnit::Distributions(unit) if !unit.is_empty() => ValueUnit::Numbers(with(&unit)),
            _ => ValueUnit::Unknown,
        }
    }

    /// Of numbers, what follows from their unit; distributions stay what they are.
    fn map_numbers(self, with: impl Fn(&str) -> String) -> ValueUnit {
        match self {
            ValueUnit::Numbers(unit) if !unit.is_empty() => ValueUnit::Numbers(with(&unit)),
            ValueUnit::Distributions(unit) => ValueUnit::Distributions(unit),
            _ => ValueUnit::Unknown,
        }
    }
}

impl Evaluation<'_> {
    /// The unit of a node's values.
    pub(crate) fn unit(&mut self, node: &PlanNode) -> Result<ValueUnit> {
        Ok(match &node.op {
            PlanOp::Number(_) => ValueUnit::Dimensionless,
            PlanOp::Text(_) => ValueUnit::Unknown,
            PlanOp::Stage(stage) => stage.unit(self)?,
            PlanOp::Latest(fetch) => self.unit_of_fetch(fetch)?,
            PlanOp::RangeSelection(ranged) => self.unit_of_ranged(ranged)?,
            PlanOp::Exact(exact) => {
                let unit = self.unit_of_fetch(&exact.fetch)?;
                if exact.is_rate { unit.map_numbers(|unit| format!("{unit}/s")) } else { unit }
            }
            PlanOp::Once(inner) | PlanOp::Negate(inner) => self.unit(inner)?,
            PlanOp::RangeFunction(over) => {
                let unit = self.unit_of_ranged(&over.input)?;
                match over.function.name {
                    "rate" | "irate" | "deriv" => unit.map_numbers(|unit| format!("{unit}/s")),
                    "stdvar_over_time" => unit.map_numbers(|unit| format!("{unit}²")),
                    "count_over_time" | "changes" | "resets" | "present_over_time"
                    | "absent_over_time" => ValueUnit::Unknown,
                    name if name.starts_with("ts_of_") => ValueUnit::from_name("s"),
                    _ => unit,
                }
            }
            PlanOp::Call { function, args } => self.unit_of_call(function.name, args)?,
            PlanOp::Aggregate(aggregate) => {
                let unit = self.unit(&aggregate.input)?;
                match aggregate.op {
                    AggregateOp::Count | AggregateOp::CountValues => ValueUnit::from_name("series"),
                    AggregateOp::Group => ValueUnit::Unknown,
                    AggregateOp::Stdvar => unit.map_numbers(|unit| format!("{unit}²")),
                    _ => unit,
                }
            }
            PlanOp::Binary(binary) => {
                let (left, right) = (self.unit(&binary.left.1)?, self.unit(&binary.right.1)?);
                let keeps = match binary.operator {
                    BinaryOp::Add | BinaryOp::Subtract | BinaryOp::Or => true,
                    BinaryOp::And | BinaryOp::Unless => return Ok(left),
                    BinaryOp::TrimUpper | BinaryOp::TrimLower => return Ok(left),
                    operator => operator.is_comparison() && !binary.is_bool,
                };
                match (left, right) {
                    (left, right)
                        if keeps && (left == right || right == ValueUnit::Dimensionless) =>
                    {
                        left
                    }
                    (ValueUnit::Dimensionless, right) if keeps => right,
                    _ => ValueUnit::Unknown,
                }
            }
        })
    }

    fn unit_of_call(&mut self, name: &str, args: &[PlanNode]) -> Result<ValueUnit> {
        let of_arg = |evaluation: &mut Evaluation<'_>, at: usize| match args.get(at) {
            Some(arg) => evaluation.unit(arg),
            None => Ok(ValueUnit::Unknown),
        };
        let own = |unit: &str| unit.to_owned();
        Ok(match name {
            "time" | "timestamp" | "start_timestamp" => ValueUnit::from_name("s"),
            "histogram_count" => ValueUnit::from_name("values"),
            "histogram_count_above" | "histogram_count_below" | "histogram_count_between" => {
                ValueUnit::from_name("values")
            }
            "users_affected" => ValueUnit::from_name("users"),
            "histogram_fraction" | "histogram_inverse_quantile" => {
                ValueUnit::from_name("share, 0 to 1")
            }
            "histogram_quantile" => of_arg(self, 1)?.map_distributions(own),
            "histogram_quantiles"
            | "histogram_sum"
            | "histogram_avg"
            | "histogram_stddev"
            | "histogram_max"
            | "histogram_min" => of_arg(self, 0)?.map_distributions(own),
            "histogram_stdvar" => of_arg(self, 0)?.map_distributions(|unit| format!("{unit}²")),
            "abs" | "ceil" | "floor" | "round" | "clamp" | "clamp_min" | "clamp_max" | "sort"
            | "sort_desc" | "sort_by_label" | "sort_by_label_desc" | "label_replace"
            | "label_join" | "scalar" | "vector" | "info" | "running_total" => of_arg(self, 0)?,
            _ => ValueUnit::Unknown,
        })
    }

    fn unit_of_ranged(&mut self, ranged: &RangeSelection) -> Result<ValueUnit> {
        match &ranged.source {
            RangeSource::Series(fetch) => self.unit_of_fetch(fetch),
            RangeSource::Subquery { inner, .. } => self.unit(inner),
        }
    }

    fn unit_of_fetch(&mut self, fetch: &SeriesFetch) -> Result<ValueUnit> {
        let handles = self.source.select(&fetch.selector)?;
        let unit = |handle: &crate::source::SeriesHandle| match handle.kind {
            model::SeriesKind::Histogram(_) => ValueUnit::Distributions(handle.unit.clone()),
            _ => ValueUnit::Numbers(handle.unit.clone()),
        };
        let Some(first) = handles.first().map(unit) else { return Ok(ValueUnit::Unknown) };
        Ok(if handles.iter().all(|handle| unit(handle) == first) {
            first
        } else {
            ValueUnit::Unknown
        })
    }
}
