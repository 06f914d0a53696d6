//! In what the values of CAQL's functions are, as far as that is simple.

use super::sources::{Find, What};
use super::stage::{Call, Form, Stage};
use crate::error::Result;
use crate::eval::Evaluation;
use crate::plan::Node;
use crate::unit::Unit;

impl Stage {
    pub(crate) fn unit(&self, evaluation: &mut Evaluation<'_>) -> Result<Unit> {
        match &self.form {
            Form::Null => Ok(Unit::Plain),
            Form::Find(find) | Form::Merge { find, .. } => of_find(find, evaluation),
            Form::Delay { sources, .. } => of_all(sources, evaluation),
            Form::Call(call) => of_call(call, evaluation),
        }
    }
}

fn of_find(find: &Find, evaluation: &mut Evaluation<'_>) -> Result<Unit> {
    let Some(unit) = find.unit(evaluation)? else { return Ok(Unit::Unknown) };
    Ok(match find.what {
        What::Histogram => Unit::Distributions(unit),
        What::Count => Unit::Numbers("values".to_owned()),
        What::Average | What::Sum | What::Stddev => Unit::Numbers(unit),
        _ if unit.is_empty() => Unit::Unknown,
        _ => Unit::Numbers(format!("{unit}/s")),
    })
}

/// Whether all sources count values in each slot.
pub(super) fn are_counts(sources: &[Node], evaluation: &mut Evaluation<'_>) -> Result<bool> {
    Ok(of_all(sources, evaluation)? == Unit::Numbers("values".to_owned()))
}

/// The unit of all sources, if it is one.
fn of_all(sources: &[Node], evaluation: &mut Evaluation<'_>) -> Result<Unit> {
    let mut all = Unit::Plain;
    for source in sources {
        let unit = evaluation.unit(source)?;
        if all == Unit::Plain {
            all = unit;
        } else if unit != Unit::Plain && unit != all {
            return Ok(Unit::Unknown);
        }
    }
    Ok(all)
}

fn of_call(call: &Call, evaluation: &mut Evaluation<'_>) -> Result<Unit> {
    let (package, word) = match call.function.computes.split_once(':') {
        Some((package, word)) => (package, word),
        None => ("", call.function.computes.as_str()),
    };
    let named = |unit: &str| Ok(Unit::Numbers(unit.to_owned()));
    let all = |evaluation: &mut Evaluation<'_>| of_all(&call.sources, evaluation);
    // The values of distributions, or numbers put into them.
    let values = |unit| match unit {
        Unit::Distributions(unit) | Unit::Numbers(unit) if !unit.is_empty() => Some(unit),
        _ => None,
    };
    match (package, word) {
        ("histogram", "count" | "count_above" | "count_below" | "count_between" | "count_bin") => {
            named("values")
        }
        ("histogram", "rate" | "rate_above" | "rate_below" | "rate_bin") => {
            match call.arguments.duration("period") {
                None | Some(store::SECOND) => named("values/s"),
                Some(_) => Ok(Unit::Unknown),
            }
        }
        ("histogram", "ratio_above" | "ratio_below" | "ratio_between") => named("share, 0 to 1"),
        ("histogram" | "window" | "rolling", "inverse_percentile") => named("percent"),
        (
            "histogram",
            "percentile" | "median" | "min" | "max" | "mean" | "stddev" | "sum" | "IQR",
        ) => Ok(values(all(evaluation)?).map_or(Unit::Unknown, Unit::Numbers)),
        ("histogram" | "window" | "rolling" | "aggregate", "create" | "histogram") => {
            Ok(values(all(evaluation)?).map_or(Unit::Unknown, Unit::Distributions))
        }
        ("histogram", "merge" | "subtract") => all(evaluation),
        ("time", "epoch") => named("s"),
        (
            "stats" | "group_by",
            "var" | "popvar" | "prod" | "div" | "ratio" | "alwaysone" | "absent",
        ) => Ok(Unit::Unknown),
        ("stats" | "group_by", "count") | ("", "count") => named("streams"),
        ("window" | "rolling" | "aggregate", word) => match word {
            "count" | "popvar" | "changes" | "resets" | "present" | "absent" => Ok(Unit::Unknown),
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
        _ => Ok(Unit::Unknown),
    }
}
