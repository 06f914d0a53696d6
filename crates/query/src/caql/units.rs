//! Units of CAQL results.

use super::function_table::StreamUnitRule;
use crate::error::Result;
use crate::eval::Evaluation;
use crate::plan::{CallStage, MetricQuery, MetricStatistic, PlanNode, PlanStage, StageKind};
use crate::unit::ValueUnit;

impl PlanStage {
    pub(crate) fn unit(&self, evaluation: &mut Evaluation<'_>) -> Result<ValueUnit> {
        match &self.kind {
            StageKind::Null => Ok(ValueUnit::Dimensionless),
            StageKind::Find(find) | StageKind::Merge { find, .. } => unit_of_find(find, evaluation),
            StageKind::Delay { inputs, .. } => common_unit(inputs, evaluation),
            StageKind::Call(call) => unit_of_call(call, evaluation),
        }
    }
}

fn unit_of_find(find: &MetricQuery, evaluation: &mut Evaluation<'_>) -> Result<ValueUnit> {
    let Some(unit) = find.unit(evaluation)? else { return Ok(ValueUnit::Unknown) };
    Ok(match find.statistic {
        MetricStatistic::Histogram => ValueUnit::Distributions(unit),
        MetricStatistic::Count => ValueUnit::Numbers("values".to_owned()),
        MetricStatistic::Average | MetricStatistic::Sum | MetricStatistic::Stddev => {
            ValueUnit::Numbers(unit)
        }
        _ if unit.is_empty() => ValueUnit::Unknown,
        _ => ValueUnit::Numbers(format!("{unit}/s")),
    })
}

/// Whether all inputs count values per slot.
pub(super) fn are_counts(inputs: &[PlanNode], evaluation: &mut Evaluation<'_>) -> Result<bool> {
    Ok(common_unit(inputs, evaluation)? == ValueUnit::Numbers("values".to_owned()))
}

/// Unit of all inputs, if they agree.
fn common_unit(inputs: &[PlanNode], evaluation: &mut Evaluation<'_>) -> Result<ValueUnit> {
    let mut all = ValueUnit::Dimensionless;
    for input in inputs {
        let unit = evaluation.unit(input)?;
        if all == ValueUnit::Dimensionless {
            all = unit;
        } else if unit != ValueUnit::Dimensionless && unit != all {
            return Ok(ValueUnit::Unknown);
        }
    }
    Ok(all)
}

fn unit_of_call(call: &CallStage, evaluation: &mut Evaluation<'_>) -> Result<ValueUnit> {
    // Values of distributions, or numbers added to them.
    let values = |unit| match unit {
        ValueUnit::Distributions(unit) | ValueUnit::Numbers(unit) if !unit.is_empty() => Some(unit),
        _ => None,
    };
    let all = |evaluation: &mut Evaluation<'_>| common_unit(&call.inputs, evaluation);
    Ok(match call.function.traits.unit {
        StreamUnitRule::Unknown => ValueUnit::Unknown,
        StreamUnitRule::Named(unit) => ValueUnit::Numbers(unit.to_owned()),
        StreamUnitRule::SameAsInputs => all(evaluation)?,
        StreamUnitRule::Rate => match call.arguments.duration("period") {
            None | Some(store::SECOND) => ValueUnit::Numbers("values/s".to_owned()),
            Some(_) => ValueUnit::Unknown,
        },
        StreamUnitRule::Values => {
            values(all(evaluation)?).map_or(ValueUnit::Unknown, ValueUnit::Numbers)
        }
        StreamUnitRule::Distributions => {
            values(all(evaluation)?).map_or(ValueUnit::Unknown, ValueUnit::Distributions)
        }
    })
}
