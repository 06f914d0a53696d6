//! `label:*` and `tag:*`: names and tags of streams.

use super::function_table::StreamUnitRule::SameAsInputs;
use super::function_table::{FunctionTable, QuantileRule};
use super::kernel::{Kernel, KernelInput, LEGEND};
use super::label::LabelFormat;
use super::names::{StreamIdentities, is_tag};
use super::signature::ArgumentType::{Format, Regex, Text};
use super::signature::DefaultValue::Absent;
use super::signature::InputKind::Either;
use crate::error::{Error, Result};
use crate::labels::{LabelSet, NAME};
use crate::stream::Stream;

/// Adds the functions of this package.
pub(super) fn add_functions(table: &mut FunctionTable) {
    let label =
        Kernel::without_margin(|call| set_labels(call, |labels, text| labels.with(LEGEND, text)));
    for (name, kernel) in
        [("label", label), ("label:name", Kernel::without_margin(|call| set_labels(call, rename)))]
    {
        table
            .add_map(name, Either, kernel)
            .variadic("format", Format)
            .unit(SameAsInputs)
            .quantiles(QuantileRule::Kept);
    }
    table
        .add_map("label:replace", Either, Kernel::without_margin(replace))
        .required("format", Format)
        .required("regex", Regex)
        .required("replacement", Text)
        .unit(SameAsInputs)
        .quantiles(QuantileRule::Kept);
    table
        .add_map("tag:add", Either, Kernel::without_margin(add))
        .variadic("tag", Text)
        .unit(SameAsInputs)
        .quantiles(QuantileRule::Kept);
    table.add_alias("tag", "tag:add");
    table
        .add_map("tag:remove", Either, Kernel::without_margin(remove))
        .required("category", Text)
        .optional("value", Text, Absent)
        .unit(SameAsInputs)
        .quantiles(QuantileRule::Kept);
    table
        .add_map("tag:synth", Either, Kernel::without_margin(synth))
        .required("format", Format)
        .required("regex", Regex)
        .required("category", Text)
        .required("value", Text)
        .unit(SameAsInputs)
        .quantiles(QuantileRule::Kept);
}

/// Applies format i to stream i.
fn set_labels(call: KernelInput<'_>, set: fn(&LabelSet, &str) -> LabelSet) -> Result<Vec<Stream>> {
    let KernelInput { mut inputs, arguments, .. } = call;
    let formats: Vec<LabelFormat> = arguments
        .variadic()
        .iter()
        .filter_map(|given| match given {
            super::ArgumentValue::Format(format) => Some(format.clone()),
            _ => None,
        })
        .collect();
    let texts = StreamIdentities::from_streams(&inputs).texts(&formats);
    for (stream, text) in inputs.iter_mut().zip(texts) {
        stream.labels = set(&stream.labels, &text);
    }
    Ok(inputs)
}

/// Renames to another canonical name. If that has no tags, the existing tags stay.
fn rename(labels: &LabelSet, canonical: &str) -> LabelSet {
    let Some((name, list)) = canonical.split_once("|ST[") else {
        return labels.with(NAME, canonical);
    };
    let list = list.split_once(']').map_or(list, |(list, _)| list);
    let untagged = labels.filter(|name| !is_tag(name)).with(NAME, name);
    let tags = list.split(',').filter_map(|tag| tag.split_once(':'));
    tags.fold(untagged, |labels, (category, value)| labels.with(category, value))
}

fn replace(call: KernelInput<'_>) -> Result<Vec<Stream>> {
    let KernelInput { mut inputs, arguments, .. } = call;
    let (Some(format), Some(regex)) = (arguments.format("format"), arguments.regex("regex")) else {
        return Ok(inputs);
    };
    let replacement = arguments.text("replacement").unwrap_or_default();
    let texts = StreamIdentities::from_streams(&inputs).texts(std::slice::from_ref(format));
    for (stream, text) in inputs.iter_mut().zip(texts) {
        stream.labels = stream.labels.with(LEGEND, &regex.replace_all(&text, replacement));
    }
    Ok(inputs)
}

/// Adds a tag. If a category has several values, all are kept.
fn with_tag(labels: &LabelSet, category: &str, value: &str) -> LabelSet {
    match labels.get(category) {
        "" => labels.with(category, value),
        current if current.split(',').any(|current| current == value) => labels.clone(),
        current => labels.with(category, &format!("{current},{value}")),
    }
}

fn add(call: KernelInput<'_>) -> Result<Vec<Stream>> {
    let KernelInput { mut inputs, arguments, span, .. } = call;
    for tag in arguments.variadic().iter().filter_map(|given| given.text()) {
        let parts = tag.split_once(':').filter(|(category, value)| {
            is_tag(category) && !category.is_empty() && !value.is_empty()
        });
        let Some((category, value)) = parts else {
            let message =
                format!("{tag:?} is not a tag; write \"category:value\", as in \"svc:shop\"");
            return Err(Error::Parse { span, message });
        };
        for stream in &mut inputs {
            stream.labels = with_tag(&stream.labels, category, value);
        }
    }
    Ok(inputs)
}

fn remove(call: KernelInput<'_>) -> Result<Vec<Stream>> {
    let KernelInput { mut inputs, arguments, .. } = call;
    let category = arguments.text("category").unwrap_or_default();
    if !is_tag(category) {
        return Ok(inputs);
    }
    for stream in &mut inputs {
        let left: Vec<&str> = match arguments.text("value") {
            None => Vec::new(),
            Some(value) => {
                stream.labels.get(category).split(',').filter(|current| *current != value).collect()
            }
        };
        stream.labels = stream.labels.with(category, &left.join(","));
    }
    Ok(inputs)
}

/// Tag from the match of a regex.
fn synth(call: KernelInput<'_>) -> Result<Vec<Stream>> {
    let KernelInput { mut inputs, arguments, span, .. } = call;
    let (Some(format), Some(regex)) = (arguments.format("format"), arguments.regex("regex")) else {
        return Ok(inputs);
    };
    let category = arguments.text("category").unwrap_or_default();
    let value = arguments.text("value").unwrap_or_default();
    if !is_tag(category) || category.is_empty() {
        let message = format!("{category:?} is not a tag category");
        return Err(Error::Parse { span, message });
    }
    let texts = StreamIdentities::from_streams(&inputs).texts(std::slice::from_ref(format));
    for (stream, text) in inputs.iter_mut().zip(texts) {
        if let Some(captures) = regex.captures(&text) {
            let mut found = String::new();
            captures.expand(value, &mut found);
            stream.labels = with_tag(&stream.labels, category, &found);
        }
    }
    Ok(inputs)
}
