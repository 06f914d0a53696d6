//! `label:*` and `tag:*`: what streams are called.

use super::label::Format;
use super::names::{Named, is_tag};
use super::work::{Kernel, LABEL, Work};
use crate::error::{Error, Result};
use crate::labels::{Labels, NAME};
use crate::stream::Stream;

pub(super) fn kernel(name: &str) -> Option<Kernel> {
    let work: fn(Work<'_>) -> Result<Vec<Stream>> = match name {
        "label" => |work| named(work, |labels, text| labels.with(LABEL, text)),
        "label:name" => |work| named(work, renamed),
        "label:replace" => replace,
        "tag:add" => add,
        "tag:remove" => remove,
        "tag:synth" => synth,
        _ => return None,
    };
    Some(Kernel::slotwise(work))
}

/// The i-th format is for the i-th stream.
fn named(work: Work<'_>, set: fn(&Labels, &str) -> Labels) -> Result<Vec<Stream>> {
    let Work { mut inputs, arguments, .. } = work;
    let formats: Vec<Format> = arguments
        .rest()
        .iter()
        .filter_map(|given| match given {
            super::Given::Format(format) => Some(format.clone()),
            _ => None,
        })
        .collect();
    let texts = Named::of(&inputs).labels(&formats);
    for (stream, text) in inputs.iter_mut().zip(texts) {
        stream.labels = set(&stream.labels, &text);
    }
    Ok(inputs)
}

/// Under another canonical name; without tags in it, those that are there stay.
fn renamed(labels: &Labels, canonical: &str) -> Labels {
    let Some((name, list)) = canonical.split_once("|ST[") else {
        return labels.with(NAME, canonical);
    };
    let list = list.split_once(']').map_or(list, |(list, _)| list);
    let untagged = labels.keep(|name| !is_tag(name)).with(NAME, name);
    let tags = list.split(',').filter_map(|tag| tag.split_once(':'));
    tags.fold(untagged, |labels, (category, value)| labels.with(category, value))
}

fn replace(work: Work<'_>) -> Result<Vec<Stream>> {
    let Work { mut inputs, arguments, .. } = work;
    let (Some(format), Some(regex)) = (arguments.format("format"), arguments.regex("regex")) else {
        return Ok(inputs);
    };
    let replacement = arguments.text("replacement").unwrap_or_default();
    let texts = Named::of(&inputs).labels(std::slice::from_ref(format));
    for (stream, text) in inputs.iter_mut().zip(texts) {
        stream.labels = stream.labels.with(LABEL, &regex.replace_all(&text, replacement));
    }
    Ok(inputs)
}

/// With one more tag. Of several values of a category, all stand in it.
fn with_tag(labels: &Labels, category: &str, value: &str) -> Labels {
    match labels.get(category) {
        "" => labels.with(category, value),
        held if held.split(',').any(|held| held == value) => labels.clone(),
        held => labels.with(category, &format!("{held},{value}")),
    }
}

fn add(work: Work<'_>) -> Result<Vec<Stream>> {
    let Work { mut inputs, arguments, place, .. } = work;
    for tag in arguments.rest().iter().filter_map(|given| given.text()) {
        let parts = tag.split_once(':').filter(|(category, value)| {
            is_tag(category) && !category.is_empty() && !value.is_empty()
        });
        let Some((category, value)) = parts else {
            let message = format!("{tag:?} is no tag: write \"category:value\", as \"svc:shop\"");
            return Err(Error::Parse { place, message });
        };
        for stream in &mut inputs {
            stream.labels = with_tag(&stream.labels, category, value);
        }
    }
    Ok(inputs)
}

fn remove(work: Work<'_>) -> Result<Vec<Stream>> {
    let Work { mut inputs, arguments, .. } = work;
    let category = arguments.text("category").unwrap_or_default();
    if !is_tag(category) {
        return Ok(inputs);
    }
    for stream in &mut inputs {
        let left: Vec<&str> = match arguments.text("value") {
            None => Vec::new(),
            Some(value) => {
                stream.labels.get(category).split(',').filter(|held| *held != value).collect()
            }
        };
        stream.labels = stream.labels.with(category, &left.join(","));
    }
    Ok(inputs)
}

/// A tag out of what a regex finds.
fn synth(work: Work<'_>) -> Result<Vec<Stream>> {
    let Work { mut inputs, arguments, place, .. } = work;
    let (Some(format), Some(regex)) = (arguments.format("format"), arguments.regex("regex")) else {
        return Ok(inputs);
    };
    let category = arguments.text("category").unwrap_or_default();
    let value = arguments.text("value").unwrap_or_default();
    if !is_tag(category) || category.is_empty() {
        let message = format!("{category:?} is no category of tags");
        return Err(Error::Parse { place, message });
    }
    let texts = Named::of(&inputs).labels(std::slice::from_ref(format));
    for (stream, text) in inputs.iter_mut().zip(texts) {
        if let Some(captures) = regex.captures(&text) {
            let mut found = String::new();
            captures.expand(value, &mut found);
            stream.labels = with_tag(&stream.labels, category, &found);
        }
    }
    Ok(inputs)
}
