//! `vector:*`: streams bundled under keys; operations on several vectors pair streams by key.
//!
//! A vector is not a value: each of its streams carries the key and the vector's id as labels. A
//! function that computes one stream from several runs once for each key that all vectors have;
//! streams outside a vector are used for all keys.

use std::collections::HashSet;

use super::function_table::{FunctionTable, QuantileRule, SWITCH, StreamUnitRule};
use super::kernel::{Kernel, KernelInput, LEGEND};
use super::names::{KEY, StreamIdentities, VECTOR};
use super::signature::ArgumentType::{Format, Text};
use super::signature::InputKind::Either;
use super::signature::{DefaultValue, InputArity, OutputShape, Signature};
use crate::error::{Error, Result};
use crate::labels::LabelSet;
use crate::stream::Stream;

/// Adds the functions of this package.
pub(super) fn add_functions(table: &mut FunctionTable) {
    table
        .add_fold("vector:pack", Either, Kernel::without_margin(pack))
        .required("format", Format)
        .option("sloppy", SWITCH, DefaultValue::Number(0.0))
        .option("meta", SWITCH, DefaultValue::Number(1.0))
        .unit(StreamUnitRule::SameAsInputs)
        .quantiles(QuantileRule::Kept);
    table.add_alias("vector", "vector:pack");
    table
        .add_map("vector:unpack", Either, Kernel::without_margin(unpack))
        .inputs(InputArity::Exactly(1))
        .shape(OutputShape::Other)
        .unit(StreamUnitRule::SameAsInputs)
        .quantiles(QuantileRule::Kept);
    table
        .add_map("vector:drop", Either, Kernel::without_margin(drop_keys))
        .variadic("key", Text)
        .unit(StreamUnitRule::SameAsInputs)
        .quantiles(QuantileRule::Kept);
}

fn pack(call: KernelInput<'_>) -> Result<Vec<Stream>> {
    let KernelInput { mut inputs, arguments, span, .. } = call;
    let Some(format) = arguments.format("format") else { return Ok(inputs) };
    let is_on = |name: &str| arguments.number(name).is_some_and(|number| number != 0.0);
    let (is_sloppy, keep_labels) = (is_on("sloppy"), is_on("meta"));
    let keys = StreamIdentities::from_streams(&inputs).texts(std::slice::from_ref(format));
    let mut known_keys = HashSet::new();
    if let Some(duplicate) = keys.iter().find(|key| !known_keys.insert(key.as_str()))
        && !is_sloppy
    {
        let message = format!(
            "duplicate vector key {duplicate:?}; extend the format, as with %cn, or set sloppy=1 \
             to keep the first stream"
        );
        return Err(Error::Execution { span, message });
    }
    let mut label_sets = HashSet::new();
    let vector = span.start.to_string();
    for (stream, key) in inputs.iter_mut().zip(&keys) {
        let labels = if keep_labels { stream.labels.clone() } else { LabelSet::default() };
        // A label must not be empty, but a key may be.
        stream.labels = labels.with(KEY, &format!("={key}")).with(VECTOR, &vector);
    }
    inputs.retain(|stream| label_sets.insert(stream.labels.get(KEY).to_owned()));
    Ok(inputs)
}

/// Key of a stream that is in a vector.
pub(super) fn key_of(labels: &LabelSet) -> Option<&str> {
    labels.get(KEY).strip_prefix('=')
}

fn unpack(call: KernelInput<'_>) -> Result<Vec<Stream>> {
    let mut streams = call.inputs;
    for stream in &mut streams {
        let Some(key) = key_of(&stream.labels) else {
            let message =
                "vector:unpack requires a vector, such as the result of vector(\"%tv{host}\")";
            return Err(Error::Execution { span: call.span, message: message.to_owned() });
        };
        stream.labels = stream.labels.with(LEGEND, key).with(KEY, "").with(VECTOR, "");
    }
    Ok(streams)
}

fn drop_keys(call: KernelInput<'_>) -> Result<Vec<Stream>> {
    let KernelInput { mut inputs, arguments, .. } = call;
    let dropped: Vec<&str> = arguments.variadic().iter().filter_map(|given| given.text()).collect();
    inputs.retain(|stream| key_of(&stream.labels).is_none_or(|key| !dropped.contains(&key)));
    Ok(inputs)
}

/// Whether a function runs once per key.
pub(super) fn is_elementwise(function: &Signature, inputs: &[Stream]) -> bool {
    matches!(function.output_shape, OutputShape::One | OutputShape::OnePerArgument)
        && !function.canonical_name.starts_with("vector:")
        && inputs.iter().any(|stream| key_of(&stream.labels).is_some())
}

/// Number of operands: a vector counts as one.
pub(super) fn count(inputs: &[Stream]) -> usize {
    let mut counter = VectorCounter::default();
    inputs.iter().map(|stream| counter.advance(&stream.labels)).filter(|goes_on| !goes_on).count()
}

/// Detects vector boundaries in a list of streams.
#[derive(Default)]
struct VectorCounter {
    vector: String,
    keys: HashSet<String>,
}

impl VectorCounter {
    /// Advances to the next stream. Returns whether it is in the same vector as the previous one.
    fn advance(&mut self, labels: &LabelSet) -> bool {
        let Some(key) = key_of(labels) else {
            self.vector.clear();
            return false;
        };
        if self.vector != labels.get(VECTOR) || self.keys.contains(key) {
            labels.get(VECTOR).clone_into(&mut self.vector);
            self.keys.clear();
            self.keys.insert(key.to_owned());
            return false;
        }
        self.keys.insert(key.to_owned())
    }
}

/// Runs a function for each key that all vectors have, in the order of the first vector.
pub(super) fn for_each_key(
    inputs: Vec<Stream>,
    call: &mut dyn FnMut(Vec<Stream>) -> Result<Vec<Stream>>,
) -> Result<Vec<Stream>> {
    let mut operands: Vec<Vec<Stream>> = Vec::new();
    let mut counter = VectorCounter::default();
    for stream in inputs {
        match (counter.advance(&stream.labels), operands.last_mut()) {
            (true, Some(operand)) => operand.push(stream),
            _ => operands.push(vec![stream]),
        }
    }
    let is_vector = |operand: &&Vec<Stream>| key_of(&operand[0].labels).is_some();
    let keys: Vec<(String, String)> = operands.iter().find(is_vector).map_or(Vec::new(), |first| {
        let key_and_vector = |stream: &Stream| {
            (stream.labels.get(KEY).to_owned(), stream.labels.get(VECTOR).to_owned())
        };
        first.iter().map(key_and_vector).collect()
    });
    let mut outputs = Vec::with_capacity(keys.len());
    for (key, vector) in keys {
        let stream_for_key = |operand: &Vec<Stream>| match key_of(&operand[0].labels) {
            None => operand.first().cloned(),
            Some(_) => operand.iter().find(|stream| stream.labels.get(KEY) == key).cloned(),
        };
        let Some(inputs) = operands.iter().map(stream_for_key).collect::<Option<Vec<_>>>() else {
            continue;
        };
        for mut stream in call(inputs)? {
            stream.labels = stream.labels.with(KEY, &key).with(VECTOR, &vector);
            outputs.push(stream);
        }
    }
    Ok(outputs)
}
