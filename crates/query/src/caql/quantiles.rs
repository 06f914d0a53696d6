//! Rejection of averages over quantiles, with the correct query.

use super::arguments::{ArgumentValue, Arguments};
use super::ast::Literal;
use super::bind::{BoundExpr, BoundKind};
use super::function_table::{AverageOver, QuantileRule};
use super::signature::Signature;
use crate::error::{Error, Result};

/// Rejects a query that averages quantiles, over streams or over time. Recursive, as deep as the
/// tree.
pub(super) fn reject_averages(bound: &BoundExpr, text: &str) -> Result<()> {
    let inputs = inputs_of(bound);
    inputs.iter().try_for_each(|input| reject_averages(input, text))?;
    let BoundKind::Call { function, arguments, name_span: name_place, .. } = &bound.bound_kind
    else {
        return Ok(());
    };
    let QuantileRule::Average(average) = function.traits.quantiles else { return Ok(()) };
    let length = |name: &str| Literal::Duration(arguments.duration(name).unwrap_or(0));
    let (over, merge) = match average {
        AverageOver::Streams => ("streams", "histogram:merge()".to_owned()),
        AverageOver::Groups => ("streams", format!("group_by:merge({})", texts(arguments))),
        AverageOver::Windows => {
            let package = function.canonical_name.split(':').next().unwrap_or_default();
            ("time", format!("{package}:merge({})", length("window_duration")))
        }
        AverageOver::Period => ("time", format!("window:merge({})", length("period"))),
    };
    let mut quantiles = Vec::new();
    inputs.iter().for_each(|input| find(input, &mut quantiles));
    let Some(first) = quantiles.first() else { return Ok(()) };
    let right = suggest_replacement(&quantiles, &merge, text);
    let quantile = format_quantile(first);
    let message = format!(
        "cannot average quantiles over {over}: the result is not a quantile; merge the histograms \
         and take the quantile of the result: {right} | {quantile}"
    );
    Err(Error::Parse { span: *name_place, message })
}

fn inputs_of(bound: &BoundExpr) -> &[BoundExpr] {
    match &bound.bound_kind {
        BoundKind::Constant(_) => &[],
        BoundKind::Call { inputs, .. } => inputs,
        BoundKind::Operation { operands, .. } => operands,
    }
}

/// Collects the quantiles in the result of a node, up to scale and name. Recursive, as deep as the
/// tree.
fn find<'a>(bound: &'a BoundExpr, found: &mut Vec<&'a BoundExpr>) {
    let rule = match &bound.bound_kind {
        BoundKind::Constant(_) => QuantileRule::NotQuantile,
        BoundKind::Call { function, .. } => function.traits.quantiles,
        BoundKind::Operation { operator, .. } => Signature::find(operator.function())
            .map_or(QuantileRule::NotQuantile, |function| function.traits.quantiles),
    };
    let keeps = match rule {
        QuantileRule::Quantile => {
            found.push(bound);
            return;
        }
        QuantileRule::Kept => true,
        QuantileRule::KeptWithConstants => has_constant(bound),
        QuantileRule::NotQuantile | QuantileRule::Average(_) => false,
    };
    if keeps {
        inputs_of(bound).iter().for_each(|input| find(input, found));
    }
}

/// Whether a node combines one stream with constants only.
fn has_constant(bound: &BoundExpr) -> bool {
    let constants = |bound: &&BoundExpr| matches!(bound.bound_kind, BoundKind::Constant(_));
    let inputs = inputs_of(bound);
    inputs.len() == inputs.iter().filter(constants).count() + 1
}

/// Suggested query: the quantile of the merged histograms.
fn suggest_replacement(quantiles: &[&BoundExpr], merge: &str, text: &str) -> String {
    const LENGTH_MAX: usize = 200;
    let of: Vec<&str> = quantiles
        .iter()
        .flat_map(|quantile| inputs_of(quantile))
        .filter_map(|input| text.get(input.span.start..input.span.end))
        .map(|input| input.split(" | histogram:merge()").next().unwrap_or(input).trim())
        .collect();
    let length: usize = of.iter().map(|input| input.len()).sum();
    match of[..] {
        [one] if length <= LENGTH_MAX => format!("{one} | {merge}"),
        [_, ..] if length <= LENGTH_MAX => format!("pass{{{}}} | {merge}", of.join(", ")),
        _ => format!("… | {merge}"),
    }
}

/// Quantile call without its input.
fn format_quantile(quantile: &BoundExpr) -> String {
    let BoundKind::Call { function, arguments, .. } = &quantile.bound_kind else {
        return String::new();
    };
    let percents = arguments.variadic().iter().filter_map(ArgumentValue::number);
    let percents: Vec<String> = percents.map(|percent| percent.to_string()).collect();
    format!("{}({})", function.name, percents.join(", "))
}

fn texts(arguments: &Arguments) -> String {
    let texts = arguments.variadic().iter().filter_map(ArgumentValue::text);
    texts.map(|text| format!("{text:?}")).collect::<Vec<_>>().join(", ")
}
