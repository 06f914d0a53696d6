//! Function signatures.
//!
//! Positional arguments come first; trailing ones with a default may be omitted. Options are always
//! passed by name. The table of all functions is in `functions.rs`.

use std::fmt::{Display, Formatter};

use crate::edit_distance::edit_distance;

use super::ast::{Constant, Literal};
use super::function_traits::FunctionTraits;

/// Signature of a CAQL function.
#[derive(Clone, Debug, PartialEq)]
pub struct Signature {
    /// Name as written in a query, package included.
    pub name: String,
    /// Name of the implemented function: that of another function if this one is an alias.
    pub canonical_name: String,
    /// Positional parameters.
    pub parameters: Vec<FunctionParameter>,
    /// Variadic parameter: any number of arguments after the positional ones, at least one.
    pub variadic: Option<FunctionParameter>,
    /// Named parameters.
    pub options: Vec<FunctionParameter>,
    /// Kind of input streams.
    pub inputs_kind: InputKind,
    /// Number of input streams, checked when they are evaluated.
    pub arity: InputArity,
    /// Kind of output streams.
    pub output_kind: OutputKind,
    /// Number of output streams.
    pub output_shape: OutputShape,
    /// Whether a value depends only on itself and earlier ones, so that checks and `#serial` can
    /// use the function.
    pub is_serial: bool,
    /// Stability level.
    pub stability: Stability,
    pub(crate) traits: FunctionTraits,
}

/// Parameter of a function.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionParameter {
    /// Name of the parameter.
    pub name: &'static str,
    /// Type of the argument.
    pub argument_type: ArgumentType,
    /// Default if the argument is omitted.
    pub default: DefaultValue,
}

/// Type of an argument.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ArgumentType {
    /// Any number.
    Number,
    /// Number within inclusive bounds.
    NumberWithin(f64, f64),
    /// Integer within inclusive bounds.
    IntegerWithin(f64, f64),
    /// Non-negative duration.
    Duration,
    /// Positive duration.
    PositiveDuration,
    /// Duration of any sign.
    Shift,
    /// Non-negative duration, or a number of minutes.
    DurationOrMinutes,
    /// Duration of any sign, a number of minutes, or a time zone name.
    ShiftOrZone,
    /// Non-negative duration, or this keyword.
    DurationOr(&'static str),
    /// Duration before now, or seconds since 1970.
    Time,
    /// Any string.
    Text,
    /// One of these strings.
    OneOf(&'static [&'static str]),
    /// UUID of a check.
    Uuid,
    /// Metric name: exact, a glob, or a regex between slashes; a single one may also be a tag
    /// search.
    Name,
    /// Tag search.
    Search,
    /// Regex.
    Regex,
    /// Label format (`label.rs`).
    Format,
}

/// Default of a parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DefaultValue {
    /// No default: the argument is required.
    Required,
    /// No value.
    Absent,
    /// Number.
    Number(f64),
    /// Duration in nanoseconds.
    Duration(i64),
    /// String.
    Text(&'static str),
    /// Constant of the range.
    Constant(Constant),
    /// Value of another parameter.
    As(&'static str),
}

/// Input kind of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputKind {
    /// No input: the function is a source.
    Nothing,
    /// Streams of numbers.
    Numbers,
    /// Streams of histograms.
    Histograms,
    /// Streams of both.
    Either,
}

/// Number of input streams. A constant passed as the last one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputArity {
    /// Any number.
    Any,
    /// Exactly this many.
    Exactly(usize),
    /// At least this many.
    AtLeast(usize),
}

/// Output kind of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputKind {
    /// Numbers.
    Numbers,
    /// Histograms.
    Histograms,
    /// Kind of the input.
    AsInput,
}

/// Number of output streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputShape {
    /// Streams found by a selector or generated.
    Source,
    /// One stream in total.
    One,
    /// One stream for each argument.
    OnePerArgument,
    /// One stream for each input.
    Each,
    /// One stream for each pair of input and argument.
    EachPerArgument,
    /// A subset of the inputs, unchanged.
    Some,
    /// One stream for each group.
    Groups,
    /// Any number.
    Other,
}

/// Stability level of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stability {
    /// In use.
    Current,
    /// Deprecated, with its replacement.
    Deprecated(&'static str),
    /// Removed, with its replacement.
    Removed(&'static str),
}

/// Known name of which the given name may be a misspelling.
pub(super) fn nearest_name<'a>(
    name: &str,
    known: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    let max = (name.len() / 4).clamp(1, 3);
    // A name no longer than the allowed number of edits matches everything.
    let near = known.filter(|known| known.len() > max);
    near.filter_map(|known| Some((edit_distance(name, known, max)?, known)))
        .min()
        .map(|(_, near)| near)
}

/// Call syntax: `find(name, [tag_query], limit=1000)`.
impl Display for Signature {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}(", self.name)?;
        let parts = self.parameters.iter().map(|parameter| match parameter.default {
            DefaultValue::Required => parameter.name.to_owned(),
            default => format!("[{}{default}]", parameter.name),
        });
        let rest = self.variadic.iter().map(|parameter| format!("{}, …", parameter.name));
        let options = self.options.iter().map(|parameter| match parameter.default {
            DefaultValue::Required | DefaultValue::Absent => format!("{}=…", parameter.name),
            default => format!("{}{default}", parameter.name),
        });
        let parts: Vec<String> = parts.chain(rest).chain(options).collect();
        write!(f, "{})", parts.join(", "))
    }
}

impl Display for DefaultValue {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            DefaultValue::Required | DefaultValue::Absent => Ok(()),
            DefaultValue::Number(number) => write!(f, "={number}"),
            DefaultValue::Duration(ns) => write!(f, "={}", Literal::Duration(*ns)),
            DefaultValue::Text(text) => write!(f, "={text:?}"),
            DefaultValue::Constant(constant) => write!(f, "={}", constant.name()),
            DefaultValue::As(name) => write!(f, "={name}"),
        }
    }
}

/// Expected value as a noun phrase with an example.
impl Display for ArgumentType {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let bounds = |f: &mut Formatter<'_>, lo: f64, hi: f64| match hi.is_finite() {
            true if lo.is_finite() => write!(f, " from {lo} to {hi}"),
            false if lo.is_finite() => write!(f, " not below {lo}"),
            _ => Ok(()),
        };
        match self {
            ArgumentType::Number => f.write_str("a number"),
            ArgumentType::NumberWithin(lo, hi) => {
                f.write_str("a number")?;
                bounds(f, *lo, *hi)
            }
            ArgumentType::IntegerWithin(lo, hi) => {
                f.write_str("a whole number")?;
                bounds(f, *lo, *hi)
            }
            ArgumentType::Duration | ArgumentType::Shift => f.write_str("a duration, such as 5m"),
            ArgumentType::PositiveDuration => f.write_str("a duration above 0, such as 5m"),
            ArgumentType::DurationOrMinutes => f.write_str("a duration, such as 5m, or minutes"),
            ArgumentType::ShiftOrZone => {
                f.write_str("a duration, such as 5m, or a time zone, such as \"Europe/Berlin\"")
            }
            ArgumentType::DurationOr(word) => write!(f, "a duration, such as 5m, or {word:?}"),
            ArgumentType::Time => {
                f.write_str("a duration before now, such as 5m, or seconds since 1970")
            }
            ArgumentType::Text => f.write_str("a string in quotes"),
            ArgumentType::OneOf(words) => {
                let words: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
                write!(f, "one of {}", words.join(", "))
            }
            ArgumentType::Uuid => {
                f.write_str("a UUID in quotes, such as \"1b4e28ba-2fa1-11d2-883f-0016d3cca427\"")
            }
            ArgumentType::Name => f.write_str("a metric's name in quotes, such as \"http_*\""),
            ArgumentType::Search => {
                f.write_str("a tag search in quotes, such as \"and(host:web-1)\"")
            }
            ArgumentType::Regex => f.write_str("a regex in quotes, such as \"^web-\""),
            ArgumentType::Format => f.write_str("a label in quotes, such as \"%n %tv{host}\""),
        }
    }
}
