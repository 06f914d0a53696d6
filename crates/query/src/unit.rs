//! Units of query results. The product of two numbers has no unit that has a name.

use model::SeriesKind;

use crate::error::Result;
use crate::eval::Evaluation;
use crate::plan::{PlanNode, PlanOp, RangeSelection, RangeSource, SeriesFetch};
use crate::promql::{AggregateOp, BinaryOp, UnitRule};
use crate::source::{shared_unit, unit_of_all};

/// Unit of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ValueUnit {
    /// Unknown unit.
    Unknown,
    /// Number literal: takes the unit of the other operand.
    Dimensionless,
    /// Numbers with this unit.
    Numbers(String),
    /// Distributions of values with this unit.
    Distributions(String),
}

impl ValueUnit {
    /// Unit as shown to users; `None` if unknown.
    pub(crate) fn text(self) -> Option<String> {
        match self {
            ValueUnit::Unknown | ValueUnit::Dimensionless => None,
            ValueUnit::Numbers(unit) | ValueUnit::Distributions(unit) => {
                Some(unit).filter(|unit| !unit.is_empty())
            }
        }
    }

    /// Unit of series, by their kind and unit if all have the same.
    fn of(shared: Option<(SeriesKind, String)>) -> ValueUnit {
        match shared {
            None => ValueUnit::Unknown,
            Some((SeriesKind::Histogram(_), unit)) => ValueUnit::Distributions(unit),
            Some((_, unit)) => ValueUnit::Numbers(unit),
        }
    }

    fn from_name(unit: &str) -> ValueUnit {
        ValueUnit::Numbers(unit.to_owned())
    }

    /// Unit of numbers derived from the values of distributions.
    fn map_distributions(self, with: impl Fn(&str) -> String) -> ValueUnit {
        match self {
            ValueUnit::Distributions(unit) if !unit.is_empty() => ValueUnit::Numbers(with(&unit)),
            _ => ValueUnit::Unknown,
        }
    }

    /// Unit derived from that of numbers; distributions are unchanged.
    fn map_numbers(self, with: impl Fn(&str) -> String) -> ValueUnit {
        match self {
            ValueUnit::Numbers(unit) if !unit.is_empty() => ValueUnit::Numbers(with(&unit)),
            ValueUnit::Distributions(unit) => ValueUnit::Distributions(unit),
            _ => ValueUnit::Unknown,
        }
    }
}

impl Evaluation<'_> {
    /// Unit of a node's values.
    pub(crate) fn unit(&mut self, node: &PlanNode) -> Result<ValueUnit> {
        Ok(match &node.op {
            PlanOp::Number(_) | PlanOp::Duration(_) => ValueUnit::Dimensionless,
            PlanOp::Text(_) => ValueUnit::Unknown,
            PlanOp::Stage(stage) => stage.unit(self)?,
            PlanOp::Latest(fetch) => self.unit_of_fetch(fetch)?,
            PlanOp::RangeSelection(ranged) => self.unit_of_ranged(ranged)?,
            PlanOp::Exact(exact) => {
                let unit = match exact.finds_classic() {
                    true => self.unit_with_classic(&exact.fetch)?,
                    false => self.unit_of_fetch(&exact.fetch)?,
                };
                if exact.is_rate { unit.map_numbers(|unit| format!("{unit}/s")) } else { unit }
            }
            PlanOp::Once(inner) | PlanOp::Negate(inner) => self.unit(inner)?,
            PlanOp::Shared(shared) => self.unit(&shared.node)?,
            PlanOp::RangeFunction(over) => {
                let unit = self.unit_of_ranged(&over.input)?;
                match over.function.unit {
                    UnitRule::Samples => unit,
                    UnitRule::PerSecond => unit.map_numbers(|unit| format!("{unit}/s")),
                    UnitRule::Squared => unit.map_numbers(|unit| format!("{unit}²")),
                    UnitRule::Named(name) => ValueUnit::from_name(name),
                    _ => ValueUnit::Unknown,
                }
            }
            PlanOp::Call { function, args } => self.unit_of_call(function.unit, args)?,
            PlanOp::Aggregate(aggregate) => match aggregate.op {
                // Whatever is counted: the labels of its series need not be read.
                AggregateOp::Count | AggregateOp::CountValues => ValueUnit::from_name("series"),
                AggregateOp::Group => ValueUnit::Unknown,
                AggregateOp::Stdvar => {
                    self.unit(&aggregate.input)?.map_numbers(|unit| format!("{unit}²"))
                }
                _ => self.unit(&aggregate.input)?,
            },
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

    /// Number of a node's units in a second; 1 if the unit is not one of time.
    pub(crate) fn units_per_second(&mut self, node: &PlanNode) -> Result<f64> {
        Ok(match self.unit(node)?.text().as_deref() {
            Some("ns") => 1e9,
            Some("us") => 1e6,
            Some("ms") => 1e3,
            Some("min") => 1.0 / 60.0,
            Some("h") => 1.0 / 3600.0,
            Some("d") => 1.0 / 86_400.0,
            _ => 1.0,
        })
    }

    fn unit_of_call(&mut self, rule: UnitRule, args: &[PlanNode]) -> Result<ValueUnit> {
        let of_arg = |evaluation: &mut Evaluation<'_>, at: usize| match args.get(at) {
            Some(arg) => evaluation.unit(arg),
            None => Ok(ValueUnit::Unknown),
        };
        Ok(match rule {
            UnitRule::Named(name) => ValueUnit::from_name(name),
            UnitRule::Argument(at) => of_arg(self, at)?,
            UnitRule::ValuesOf(at) => of_arg(self, at)?.map_distributions(str::to_owned),
            UnitRule::SquaredValuesOf(at) => {
                of_arg(self, at)?.map_distributions(|unit| format!("{unit}²"))
            }
            _ => ValueUnit::Unknown,
        })
    }

    fn unit_of_ranged(&mut self, ranged: &RangeSelection) -> Result<ValueUnit> {
        match &ranged.source {
            RangeSource::Series(fetch) => self.unit_of_fetch(fetch),
            RangeSource::Subquery { inner, .. } => self.unit(inner),
        }
    }

    /// The same, with the classic histograms that the selector means.
    fn unit_with_classic(&mut self, fetch: &SeriesFetch) -> Result<ValueUnit> {
        if self.source.bucket_count(&fetch.selector) == 0 {
            return self.unit_of_fetch(fetch);
        }
        let found = self.source.select_with_classic(&fetch.selector)?;
        let shared = if self.keeps_units_apart { unit_of_all } else { shared_unit };
        Ok(ValueUnit::of(shared(&found)))
    }

    fn unit_of_fetch(&mut self, fetch: &SeriesFetch) -> Result<ValueUnit> {
        Ok(ValueUnit::of(match self.keeps_units_apart {
            true => unit_of_all(&self.source.select(&fetch.selector)?),
            false => self.source.shared_unit(&fetch.selector)?,
        }))
    }
}
