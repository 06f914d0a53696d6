//! Averages of quantiles, which say nothing about anybody: refused, with what to write instead.

use super::arguments::{Arguments, Given};
use super::ast::Literal;
use super::bind::{Bound, Meaning};
use crate::error::{Error, Result};

/// An error where a query averages quantiles, over streams or over time. Recursive, as deep as the tree.
pub(super) fn refuse_averages(bound: &Bound, text: &str) -> Result<()> {
    let sources = sources_of(bound);
    sources.iter().try_for_each(|source| refuse_averages(source, text))?;
    let Meaning::Call { function, arguments, name_place, .. } = &bound.meaning else {
        return Ok(());
    };
    let (over, merge) = match function.computes.as_str() {
        "stats:mean" => ("streams", "histogram:merge()".to_owned()),
        "group_by:mean" => ("streams", format!("group_by:merge({})", texts(arguments))),
        name @ ("window:mean" | "rolling:mean") => {
            let package = name.split(':').next().unwrap_or_default();
            let length = arguments.duration("window_duration").unwrap_or(0);
            ("time", format!("{package}:merge({})", Literal::Duration(length)))
        }
        "aggregate:mean" => {
            let length = arguments.duration("period").unwrap_or(0);
            ("time", format!("window:merge({})", Literal::Duration(length)))
        }
        _ => return Ok(()),
    };
    let mut quantiles = Vec::new();
    sources.iter().for_each(|source| find(source, &mut quantiles));
    let Some(first) = quantiles.first() else { return Ok(()) };
    let right = instead(&quantiles, &merge, text);
    let quantile = shown(first);
    let message = format!(
        "an average of quantiles over {over} is not a quantile of anything: where few had a bad time it \
         says that all had a fair one. merge the histograms and take the quantile of the whole: \
         {right} | {quantile}"
    );
    Err(Error::Parse { place: *name_place, message })
}

fn sources_of(bound: &Bound) -> &[Bound] {
    match &bound.meaning {
        Meaning::Constant(_) => &[],
        Meaning::Call { sources, .. } => sources,
        Meaning::Operation { operands, .. } => operands,
    }
}

/// Adds the quantiles that a node gives, but for their scale or name. Recursive, as deep as the tree.
fn find<'a>(bound: &'a Bound, found: &mut Vec<&'a Bound>) {
    let keeps = match &bound.meaning {
        Meaning::Constant(_) => false,
        Meaning::Call { function, .. } => {
            let name = function.computes.as_str();
            if matches!(name, "histogram:percentile" | "histogram:median") {
                found.push(bound);
                return;
            }
            let package = name.split(':').next().unwrap_or_default();
            let is_label = matches!(package, "label" | "tag" | "fill" | "filter" | "exclude");
            let is_choice =
                matches!(package, "sort" | "top" | "bottom" | "pass" | "delay" | "vector");
            let is_scale = matches!(name, "each:add" | "each:sub" | "each:mul" | "each:div")
                || matches!(name, "each:coalesce" | "op:neg" | "stats:clamp" | "coalesce")
                || matches!(
                    name,
                    "math:abs" | "math:ceil" | "math:floor" | "math:round" | "math:roundx"
                );
            is_label || is_choice || is_scale || is_arithmetic(name) && has_constant(bound)
        }
        Meaning::Operation { operator, .. } => {
            operator.function() == "op:neg"
                || is_arithmetic(operator.function()) && has_constant(bound)
        }
    };
    if keeps {
        sources_of(bound).iter().for_each(|source| find(source, found));
    }
}

fn is_arithmetic(name: &str) -> bool {
    matches!(name, "op:sum" | "op:sub" | "op:prod" | "op:div" | "op:div2")
}

/// Whether a node puts one stream together with constants alone.
fn has_constant(bound: &Bound) -> bool {
    let constants = |bound: &&Bound| matches!(bound.meaning, Meaning::Constant(_));
    let sources = sources_of(bound);
    sources.len() == sources.iter().filter(constants).count() + 1
}

/// What the quantiles are of, merged.
fn instead(quantiles: &[&Bound], merge: &str, text: &str) -> String {
    const LENGTH_MAX: usize = 200;
    let of: Vec<&str> = quantiles
        .iter()
        .flat_map(|quantile| sources_of(quantile))
        .filter_map(|source| text.get(source.place.start..source.place.end))
        .map(|source| source.split(" | histogram:merge()").next().unwrap_or(source).trim())
        .collect();
    let length: usize = of.iter().map(|source| source.len()).sum();
    match of[..] {
        [one] if length <= LENGTH_MAX => format!("{one} | {merge}"),
        [_, ..] if length <= LENGTH_MAX => format!("pass{{{}}} | {merge}", of.join(", ")),
        _ => format!("… | {merge}"),
    }
}

/// A call that takes a quantile, without what it is taken of.
fn shown(quantile: &Bound) -> String {
    let Meaning::Call { function, arguments, .. } = &quantile.meaning else {
        return String::new();
    };
    let percents = arguments.rest().iter().filter_map(Given::number);
    let percents: Vec<String> = percents.map(|percent| percent.to_string()).collect();
    format!("{}({})", function.name, percents.join(", "))
}

fn texts(arguments: &Arguments) -> String {
    let texts = arguments.rest().iter().filter_map(Given::text);
    texts.map(|text| format!("{text:?}")).collect::<Vec<_>>().join(", ")
}
