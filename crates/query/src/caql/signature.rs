//! Function signatures.
//!
//! Positional arguments come first and may be left out from the end where they have a default;
//! options are always given by name. The table of all functions is in `functions.rs`.

use std::fmt::{Display, Formatter};

use super::ast::{Constant, Literal};
use super::function_traits::FunctionTraits;

/// Signature of a CAQL function.
#[derive(Clone, Debug, PartialEq)]
pub struct Signature {
    /// As it is written in a query, package included.
    pub name: String,
    /// The name that stands for what it computes: that of another function, if this is a second
    /// name for it.
    pub computes: String,
    /// Arguments by position.
    pub parameters: Vec<FunctionParameter>,
    /// What may follow them any number of times, but at least once.
    pub variadic: Option<FunctionParameter>,
    /// Arguments by name.
    pub options: Vec<FunctionParameter>,
    /// Which streams.
    pub inputs_kind: InputKind,
    /// How many of them, as known only when they are there.
    pub arity: InputArity,
    /// Of what kind its own streams are.
    pub output_kind: OutputKind,
    /// How many they are.
    pub output_shape: OutputShape,
    /// Whether a value depends on no other than those before it, so that checks and `#serial` can
    /// have it.
    pub is_serial: bool,
    /// Whether it should be used.
    pub stability: Stability,
    pub(crate) traits: FunctionTraits,
}

/// Parameter of a function.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionParameter {
    /// What it is called.
    pub name: &'static str,
    /// What fits.
    pub argument_type: ArgumentType,
    /// What is taken if it is left out.
    pub default: DefaultValue,
}

/// Type of an argument.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ArgumentType {
    /// Any number.
    Number,
    /// A number not below the first and not above the second.
    NumberWithin(f64, f64),
    /// The same without fraction.
    IntegerWithin(f64, f64),
    /// A duration not below 0.
    Duration,
    /// A duration above 0.
    Span,
    /// A duration, negative ones too.
    Shift,
    /// A duration not below 0, or a number of minutes.
    DurationOrMinutes,
    /// A duration of any sign, a number of minutes, or a time zone's name.
    ShiftOrZone,
    /// A duration not below 0, or this word.
    DurationOr(&'static str),
    /// A duration, which is before now, or seconds since 1970.
    Time,
    /// Any text.
    Text,
    /// One of these texts.
    OneOf(&'static [&'static str]),
    /// The number of a check.
    Uuid,
    /// A metric's name, exact, as a glob or as a regex between slashes; alone, a tag search too.
    Name,
    /// A tag search.
    Search,
    /// A regex.
    Regex,
    /// A label, as in `label.rs`.
    Format,
}

/// Default of a parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DefaultValue {
    /// It may not be left out.
    Required,
    /// Nothing.
    Absent,
    /// A number.
    Number(f64),
    /// A duration in nanoseconds.
    Duration(i64),
    /// A text.
    Text(&'static str),
    /// What the range says.
    Constant(Constant),
    /// What is given for this other parameter.
    As(&'static str),
}

/// Input kind of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputKind {
    /// None: it is a source.
    Nothing,
    /// Streams of numbers.
    Numbers,
    /// Streams of histograms.
    Histograms,
    /// Streams of both.
    Either,
}

/// Number of input streams. A constant given for the last one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputArity {
    /// Any number.
    Any,
    /// So many.
    Exactly(usize),
    /// So many or more.
    AtLeast(usize),
}

/// Output kind of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputKind {
    /// Numbers.
    Numbers,
    /// Histograms.
    Histograms,
    /// What they were made of.
    AsInput,
}

/// Number of output streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputShape {
    /// What is found, or what it makes by itself.
    Source,
    /// One of all.
    One,
    /// One for each argument, of all.
    OnePerArgument,
    /// One for each.
    Each,
    /// One for each and each argument.
    EachPerArgument,
    /// Some of them, as they are.
    Some,
    /// One for each group.
    Groups,
    /// As many as it says.
    Other,
}

/// Stability level of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stability {
    /// It should.
    Current,
    /// It can be, but there is something better.
    Deprecated(&'static str),
    /// It cannot be: what to use instead.
    Removed(&'static str),
}

/// The one of some names that another may be a misspelling of.
pub(super) fn nearest_name<'a>(
    name: &str,
    known: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    let max = (name.len() / 4).clamp(1, 3);
    // What is shorter than all that may be changed resembles everything.
    let near = known.filter(|known| known.len() > max);
    near.filter_map(|known| Some((edit_distance(name, known, max)?, known)))
        .min()
        .map(|(_, near)| near)
}

/// Letters to change, add or leave out to get from one to the other, if they are so few.
fn edit_distance(a: &str, b: &str, max: usize) -> Option<usize> {
    if a.len().abs_diff(b.len()) > max {
        return None;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let changed = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row.last().copied().filter(|found| *found <= max)
}

/// How it is called: `find(name, [tag_query], limit=1000)`.
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

/// What is wanted, as a noun with an example.
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
            ArgumentType::Span => f.write_str("a duration above 0, such as 5m"),
            ArgumentType::DurationOrMinutes => f.write_str("a duration, such as 5m, or minutes"),
            ArgumentType::ShiftOrZone => {
                f.write_str("a duration, such as 5m, or a time zone, such as \"Europe/Berlin\"")
            }
            ArgumentType::DurationOr(word) => write!(f, "a duration, such as 5m, or {word:?}"),
            ArgumentType::Time => {
                f.write_str("a duration before now, such as 5m, or seconds since 1970")
            }
            ArgumentType::Text => f.write_str("a text in quotes"),
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
