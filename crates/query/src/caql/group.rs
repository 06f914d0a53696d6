//! `group_by:*`: one stream for each combination of tag values.

use std::collections::BTreeMap;
use std::sync::Arc;

use hist::Mixture;

use super::function_table::{AverageOver, FunctionTable, MergeRule, QuantileRule, StreamUnitRule};
use super::kernel::{Kernel, KernelInput};
use super::names::common_labels;
use super::points::point;
use super::signature::ArgumentType::Text;
use super::signature::InputKind::{Histograms, Numbers};
use super::signature::OutputShape;
use super::stats::{each_slot, reduce};
use crate::error::{Error, Result};
use crate::stream::Stream;
use crate::value::StepValue;

/// Adds the functions of this package.
pub(super) fn add_functions(table: &mut FunctionTable) {
    for name in ["count", "sum", "mean", "max", "min", "stddev", "popvar", "alwaysone", "prod"] {
        let unit = match name {
            "count" => StreamUnitRule::Named("streams"),
            "popvar" | "alwaysone" | "prod" => StreamUnitRule::Unknown,
            _ => StreamUnitRule::SameAsInputs,
        };
        let row = table
            .add_fold(format!("group_by:{name}"), Numbers, Kernel::without_margin(numbers))
            .variadic("category", Text)
            .shape(OutputShape::Groups)
            .unit(unit);
        if name == "mean" {
            row.quantiles(QuantileRule::Average(AverageOver::Groups));
        }
    }
    table
        .add_fold("group_by:merge", Histograms, Kernel::without_margin(merge))
        .variadic("category", Text)
        .shape(OutputShape::Groups)
        .unit(StreamUnitRule::SameAsInputs)
        .merges(MergeRule::ByTags);
}

/// Groups by the values of the requested tags; streams without a tag form a group.
fn groups(call: &mut KernelInput<'_>) -> impl Iterator<Item = Vec<Stream>> + use<> {
    let categories: Vec<&str> =
        call.arguments.variadic().iter().filter_map(|given| given.text()).collect();
    let mut groups: BTreeMap<Vec<String>, Vec<Stream>> = BTreeMap::new();
    for stream in std::mem::take(&mut call.inputs) {
        // Graphite functions use this name for the metric name.
        let value = |category: &&str| match *category {
            "__name" => stream.labels.name().to_owned(),
            category => stream.labels.get(category).to_owned(),
        };
        let group = categories.iter().map(value).collect();
        groups.entry(group).or_default().push(stream);
    }
    groups.into_values()
}

fn numbers(mut call: KernelInput<'_>) -> Result<Vec<Stream>> {
    let operator = call.name.strip_prefix("group_by:").unwrap_or_default();
    let slots = call.steps.count;
    let one = |group: Vec<Stream>| {
        let mut points = Vec::with_capacity(slots);
        each_slot(&group, None, slots, |row| points.push(point(reduce(operator, row))));
        Stream::new(common_labels(group.iter().map(|stream| &stream.labels)), points)
    };
    Ok(groups(&mut call).map(one).collect())
}

fn merge(mut call: KernelInput<'_>) -> Result<Vec<Stream>> {
    let span = call.span;
    let wrong = |error: hist::MergeError| Error::Execution {
        span,
        message: format!("{error}; group by more tags or use shorter periods"),
    };
    let mut streams = Vec::new();
    for group in groups(&mut call) {
        let mut points = Vec::with_capacity(call.steps.count);
        for at in 0..call.steps.count {
            let mut sum = Mixture::default();
            for stream in &group {
                if let Some(StepValue::Distribution(mixture)) = &stream.points[at] {
                    mixture
                        .components()
                        .iter()
                        .try_for_each(|part| sum.add(part))
                        .map_err(wrong)?;
                }
            }
            points.push(Some(StepValue::Distribution(Arc::new(sum))));
        }
        streams.push(Stream::new(common_labels(group.iter().map(|stream| &stream.labels)), points));
    }
    Ok(streams)
}
