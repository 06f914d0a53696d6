//! Units of CAQL results.

use super::sources::{MetricQuery, MetricStatistic};
use super::stage::{CallStage, PlanStage, StageKind};
use crate::error::Result;
use crate::eval::Evaluation;
use crate::plan::PlanNode;
use crate::unit::ValueUnit;

impl PlanStage {
    pub(crate) fn unit(&self, evaluation: &mut Evaluation<'_>) -> Result<ValueUnit> {
        match &self.kind {
            StageKind::Null => Ok(ValueUnit::Dimensionless),
            StageKind::Find(find) | StageKind::Merge { find, .. } => unit_of_find(find, evaluation),
            StageKind::Delay { sources, .. } => common_unit(sources, evaluation),
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

/// Whether all sources count values in each slot.
pub(super) fn are_counts(sources: &[PlanNode], evaluation: &mut Evaluation<'_>) -> Result<bool> {
    Ok(common_unit(sources, evaluation)? == ValueUnit::Numbers("values".to_owned()))
}

/// The unit of all sources, if it is one.
fn common_unit(sources: &[PlanNode], evaluation: &mut Evaluation<'_>) -> Result<ValueUnit> {
    let mut all = ValueUnit::Dimensionless;
    for source in sources {
        let unit = evaluation.unit(source)?;
        if all == ValueUnit::Dimensionless {
            all = unit;
        } else if unit != ValueUnit::Dimensionless && unit != all {
            return Ok(ValueUnit::Unknown);
        }
    }
    Ok(all)
}

fn unit_of_call(call: &CallStage, evaluation: &mut Evaluation<'_>) -> Result<ValueUnit> {
    let (package, word) = match call.function.computes.split_once(':') {
        Some((package, word)) => (package, word),
        None => ("", call.function.computes.as_str()),
    };
    let named = |unit: &str| Ok(ValueUnit::Numbers(unit.to_owned()));
    let all = |evaluation: &mut Evaluation<'_>| common_unit(&call.sources, evaluation);
    // The values of distributions, or numbers put into them.
    let values = |unit| match unit {
        ValueUnit::Distributions(unit) | ValueUnit::Numbers(unit) if !unit.is_empty() => Some(unit),
        _ => None,
    };
    match (package, word) {
        ("histogram", "count" | "count_above" | "count_below" | "count_between" | "count_bin") => {
            named("values")
        }
        ("histogram", "rate" | "rate_above" | "rate_below" | "rate_bin") => {
            match call.arguments.duration("period") {
                None | Some(store::SECOND) => named("values/s"),
                Some(_) => Ok(ValueUnit::Unknown),
            }
        }
        ("histogram", "ratio_above" | "ratio_below" | "ratio_between") => named("share, 0 to 1"),
        ("histogram" | "window" | "rolling", "inverse_percentile") => named("percent"),
        (
            "histogram",
            "percentile" | "median" | "min" | "max" | "mean" | "stddev" | "sum" | "IQR",
        ) => Ok(values(all(evaluation)?).map_or(ValueUnit::Unknown, ValueUnit::Numbers)),
        ("histogram" | "window" | "rolling" | "aggregate", "create" | "histogram") => {
            Ok(values(all(evaluation)?).map_or(ValueUnit::Unknown, ValueUnit::Distributions))
        }
        ("histogram", "merge" | "subtract") => all(evaluation),
        ("time", "epoch") => named("s"),
        (
            "stats" | "group_by",
            "var" | "popvar" | "prod" | "div" | "ratio" | "alwaysone" | "absent",
        ) => Ok(ValueUnit::Unknown),
        ("stats" | "group_by", "count") | ("", "count") => named("streams"),
        ("window" | "rolling" | "aggregate", word) => match word {
            "count" | "popvar" | "changes" | "resets" | "present" | "absent" => {
                Ok(ValueUnit::Unknown)
            }
            _ => all(evaluation),
        },
        ("op" | "each", "sum" | "sub" | "add" | "neg" | "coalesce") => all(evaluation),
        (
            "stats" | "group_by" | "label" | "tag" | "fill" | "filter" | "exclude" | "sort"
            | "vector",
            _,
        ) => all(evaluation),
        ("math", "abs" | "ceil" | "floor" | "round" | "roundx") => all(evaluation),
        ("forecasting", _) => all(evaluation),
        ("", "pass" | "coalesce" | "top" | "bottom" | "label" | "fill") => all(evaluation),
        _ => Ok(ValueUnit::Unknown),
    }
}
