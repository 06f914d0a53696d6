//! `exclude:*`: removes streams by tags or legend.

use model::{Series, SeriesKind};

use super::function_table::{FunctionTable, QuantileRule, StreamUnitRule};
use super::kernel::{Kernel, KernelInput};
use super::names::{legend, tags};
use super::signature::ArgumentType::{Regex, Search};
use super::signature::InputKind::Either;
use crate::error::Result;
use crate::stream::Stream;

/// Adds the functions of this package.
pub(super) fn add_functions(table: &mut FunctionTable) {
    table
        .add_choice("exclude:tags", Either, Kernel::without_margin(by_tags))
        .required("tag_query", Search)
        .unit(StreamUnitRule::SameAsInputs)
        .quantiles(QuantileRule::Kept);
    table.add_alias("exclude", "exclude:tags");
    table
        .add_choice("exclude:label", Either, Kernel::without_margin(by_legend))
        .required("regex", Regex)
        .unit(StreamUnitRule::SameAsInputs)
        .quantiles(QuantileRule::Kept);
}

fn by_tags(call: KernelInput<'_>) -> Result<Vec<Stream>> {
    let KernelInput { mut inputs, arguments, .. } = call;
    if let Some(selector) = arguments.selector("tag_query") {
        inputs.retain(|stream| {
            let series = Series::new(stream.labels.name(), SeriesKind::Gauge);
            let series = series.with_labels(tags(&stream.labels));
            !selector.matches(&series)
        });
    }
    Ok(inputs)
}

fn by_legend(call: KernelInput<'_>) -> Result<Vec<Stream>> {
    let KernelInput { mut inputs, arguments, .. } = call;
    if let Some(regex) = arguments.regex("regex") {
        inputs.retain(|stream| !regex.is_match(&legend(&stream.labels)));
    }
    Ok(inputs)
}
