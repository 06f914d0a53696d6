//! Binding of call arguments to parameters.

use model::selector::{NAME, Pattern};
use model::{Selector, SelectorError};

use super::ast::{CallExpr, Constant, Literal};
use super::label::LabelFormat;
use super::signature::{ArgumentType, DefaultValue, FunctionParameter, Signature, nearest_name};
use crate::error::{Error, Result, SourceSpan};

/// Parameters of a CAQL evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaqlContext {
    /// Time range of the query.
    pub view_range_ns: i64,
    /// Smallest period of the query.
    pub view_period_ns: i64,
    /// Whether only functions available to checks are allowed.
    pub is_serial: bool,
}

/// Argument value.
#[derive(Clone, Debug)]
pub enum ArgumentValue {
    /// Finite number.
    Number(f64),
    /// Duration in nanoseconds.
    Duration(i64),
    /// String.
    Text(String),
    /// Selector from a metric name or a tag search.
    Selector(Selector),
    /// Regex, unanchored.
    Regex(regex::Regex),
    /// Label format.
    Format(LabelFormat),
}

/// Arguments of a call. The names passed to the accessors must be parameters or options of the
/// function.
#[derive(Clone, Debug)]
pub struct Arguments {
    by_name: Vec<(&'static str, ArgumentValue)>,
    variadic: Vec<ArgumentValue>,
}

impl Arguments {
    /// Empty argument list.
    pub(crate) fn none() -> Arguments {
        Arguments { by_name: Vec::new(), variadic: Vec::new() }
    }

    /// Value of a parameter or an option; `None` if it is omitted and has no default.
    pub fn get(&self, name: &str) -> Option<&ArgumentValue> {
        self.by_name.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Value of a parameter that is a number.
    pub fn number(&self, name: &str) -> Option<f64> {
        self.get(name).and_then(ArgumentValue::number)
    }

    /// Value of a parameter that is a duration, in nanoseconds.
    pub fn duration(&self, name: &str) -> Option<i64> {
        self.get(name).and_then(ArgumentValue::duration)
    }

    /// Value of a parameter that is a string.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(ArgumentValue::text)
    }

    /// Value of a parameter that is a selector.
    pub fn selector(&self, name: &str) -> Option<&Selector> {
        match self.get(name) {
            Some(ArgumentValue::Selector(selector)) => Some(selector),
            _ => None,
        }
    }

    /// Value of a parameter that is a regex.
    pub fn regex(&self, name: &str) -> Option<&regex::Regex> {
        match self.get(name) {
            Some(ArgumentValue::Regex(regex)) => Some(regex),
            _ => None,
        }
    }

    /// Value of a parameter that is a label format.
    pub fn format(&self, name: &str) -> Option<&LabelFormat> {
        match self.get(name) {
            Some(ArgumentValue::Format(format)) => Some(format),
            _ => None,
        }
    }

    /// Variadic arguments.
    pub fn variadic(&self) -> &[ArgumentValue] {
        &self.variadic
    }

    /// All argument values.
    pub fn values(&self) -> impl Iterator<Item = &ArgumentValue> {
        self.by_name.iter().map(|(_, value)| value).chain(&self.variadic)
    }
}

impl ArgumentValue {
    /// Number, if the value is one.
    pub fn number(&self) -> Option<f64> {
        if let ArgumentValue::Number(number) = self { Some(*number) } else { None }
    }

    /// Nanoseconds, if the value is a duration.
    pub fn duration(&self) -> Option<i64> {
        if let ArgumentValue::Duration(ns) = self { Some(*ns) } else { None }
    }

    /// String, if the value is one.
    pub fn text(&self) -> Option<&str> {
        if let ArgumentValue::Text(text) = self { Some(text) } else { None }
    }
}

/// Assigns the arguments of a call to the parameters of its function and adds defaults.
pub(super) fn arguments(
    function: &Signature,
    call: &CallExpr,
    context: &CaqlContext,
) -> Result<Arguments> {
    let name = &function.name;
    let refused = |span: SourceSpan, message: String| Err(Error::Parse { span, message });
    let mut found = Arguments { by_name: Vec::new(), variadic: Vec::new() };
    let is_alone = call.arguments.iter().filter(|argument| argument.name.is_none()).count() == 1;
    for (at, argument) in call.arguments.iter().enumerate() {
        let parameter = match &argument.name {
            None => function.parameters.get(at).or(function.variadic.as_ref()),
            Some(word) => {
                let mut known = function.parameters.iter().chain(&function.options);
                known.find(|parameter| parameter.name == word)
            }
        };
        let Some(parameter) = parameter else {
            return refused(argument.span, unexpected_argument(function, argument.name.as_deref()));
        };
        if found.get(parameter.name).is_some() {
            let message =
                format!("argument {} is given twice, by name and by position", parameter.name);
            return refused(argument.span, message);
        }
        let wants = match parameter.argument_type {
            ArgumentType::Name if is_alone && is_search(&argument.value) => ArgumentType::Search,
            wants => wants,
        };
        let value = match parse_value(wants, &argument.value, context) {
            Ok(value) => value,
            Err(reason) => {
                let parameter = parameter.name;
                return refused(
                    argument.span,
                    format!("invalid {parameter} of {name}: expected {wants}; {reason}"),
                );
            }
        };
        if argument.name.is_none() && at >= function.parameters.len() {
            found.variadic.push(value);
        } else {
            found.by_name.push((parameter.name, value));
        }
    }
    for parameter in function.parameters.iter().chain(&function.options) {
        if found.get(parameter.name).is_some() {
            continue;
        }
        if parameter.default == DefaultValue::Required {
            return refused(call.name_span, missing_argument(function, parameter));
        }
        let value = match parameter.default {
            DefaultValue::As(other) => found.get(other).cloned(),
            default => default_value(default, context),
        };
        found.by_name.extend(value.map(|value| (parameter.name, value)));
    }
    match &function.variadic {
        Some(rest) if found.variadic.is_empty() => {
            refused(call.name_span, missing_argument(function, rest))
        }
        _ => Ok(found),
    }
}

fn missing_argument(function: &Signature, parameter: &FunctionParameter) -> String {
    format!(
        "{} requires {}, {}: {function}",
        function.name, parameter.name, parameter.argument_type
    )
}

fn unexpected_argument(function: &Signature, word: Option<&str>) -> String {
    let name = &function.name;
    let Some(word) = word else {
        let count = match function.parameters.len() {
            0 => "no arguments".to_owned(),
            1 => "one argument".to_owned(),
            count => format!("{count} arguments"),
        };
        let hint = match function.options.first() {
            Some(option) => format!("named arguments, such as {}=…", option.name),
            None => "no named arguments".to_owned(),
        };
        return match (function.parameters.is_empty(), function.options.is_empty()) {
            (true, false) => format!("{name} takes only {hint}: {function}"),
            _ => format!("{name} takes {count} by position and {hint}: {function}"),
        };
    };
    let known = function.parameters.iter().chain(&function.options);
    let hint = match nearest_name(word, known.map(|parameter| parameter.name)) {
        Some(near) => format!("; did you mean {near}?"),
        None => format!(": {function}"),
    };
    format!("{name} has no argument {word}{hint}")
}

fn default_value(default: DefaultValue, context: &CaqlContext) -> Option<ArgumentValue> {
    match default {
        DefaultValue::Number(number) => Some(ArgumentValue::Number(number)),
        DefaultValue::Duration(ns) => Some(ArgumentValue::Duration(ns)),
        DefaultValue::Text(text) => Some(ArgumentValue::Text(text.to_owned())),
        DefaultValue::Constant(constant) => match resolve_constant(constant, context)? {
            Literal::Number(number) => Some(ArgumentValue::Number(number)),
            Literal::Duration(ns) => Some(ArgumentValue::Duration(ns)),
            Literal::Text(_) | Literal::Constant(_) => None,
        },
        DefaultValue::Required | DefaultValue::Absent | DefaultValue::As(_) => None,
    }
}

// Literals.

const SECOND_NS: f64 = 1e9;
const MINUTE_NS: f64 = 60e9;

/// Value of a constant; `None` is the missing value.
fn resolve_constant(constant: Constant, context: &CaqlContext) -> Option<Literal> {
    let (range, period) = (context.view_range_ns, context.view_period_ns);
    Some(match constant {
        Constant::Null => return None,
        Constant::ViewPeriod => Literal::Duration(period),
        Constant::ViewRange => Literal::Duration(range),
        Constant::ViewPeriodMinutes => Literal::Number(period as f64 / MINUTE_NS),
        Constant::ViewRangeMinutes => Literal::Number(range as f64 / MINUTE_NS),
        Constant::ViewPeriodSeconds => Literal::Number(period as f64 / SECOND_NS),
        Constant::ViewRangeSeconds => Literal::Number(range as f64 / SECOND_NS),
    })
}

/// Converts a literal to a constant stream. A duration becomes a number of minutes.
pub(super) fn constant_stream(
    literal: &Literal,
    context: &CaqlContext,
) -> Result<Option<f64>, String> {
    match literal {
        Literal::Number(number) => Ok(Some(*number)),
        Literal::Duration(ns) => Ok(Some(*ns as f64 / MINUTE_NS)),
        Literal::Text(_) => {
            Err("a string is not a stream; use it as an argument, as in find(\"name\")".to_owned())
        }
        Literal::Constant(constant) => match resolve_constant(*constant, context) {
            Some(literal) => constant_stream(&literal, context),
            None => Ok(None),
        },
    }
}

/// Converts a literal to the argument type, or describes the error.
fn parse_value(
    wants: ArgumentType,
    literal: &Literal,
    context: &CaqlContext,
) -> Result<ArgumentValue, String> {
    if let Literal::Constant(constant) = literal {
        return match resolve_constant(*constant, context) {
            Some(literal) => parse_value(wants, &literal, context)
                .map_err(|_| format!("{} is {}", constant.name(), describe(&literal))),
            None => Err("found NULL".to_owned()),
        };
    }
    let within = |number: f64, lo: f64, hi: f64, is_whole: bool| {
        let is_fine = (lo..=hi).contains(&number) && (!is_whole || number.fract() == 0.0);
        is_fine.then_some(ArgumentValue::Number(number))
    };
    let minutes = |number: f64| {
        let ns = (number * MINUTE_NS).round();
        // Above three centuries, the number of nanoseconds exceeds an i64.
        (ns.abs() <= 9.2e18).then_some(ns as i64)
    };
    let found = match (wants, literal) {
        (ArgumentType::Number, Literal::Number(number)) => Some(ArgumentValue::Number(*number)),
        (ArgumentType::NumberWithin(lo, hi), Literal::Number(number)) => {
            within(*number, lo, hi, false)
        }
        (ArgumentType::IntegerWithin(lo, hi), Literal::Number(number)) => {
            within(*number, lo, hi, true)
        }
        (ArgumentType::Time, Literal::Number(number)) => Some(ArgumentValue::Number(*number)),
        (ArgumentType::ShiftOrZone, Literal::Number(number)) => {
            minutes(*number).map(ArgumentValue::Duration)
        }
        (ArgumentType::DurationOrMinutes, Literal::Number(number)) => {
            minutes(*number).filter(|ns| *ns >= 0).map(ArgumentValue::Duration)
        }
        (ArgumentType::PositiveDuration, Literal::Duration(ns)) => {
            (*ns > 0).then_some(ArgumentValue::Duration(*ns))
        }
        (
            ArgumentType::Duration | ArgumentType::DurationOrMinutes | ArgumentType::DurationOr(_),
            Literal::Duration(ns),
        ) => (*ns >= 0).then_some(ArgumentValue::Duration(*ns)),
        (
            ArgumentType::Shift | ArgumentType::ShiftOrZone | ArgumentType::Time,
            Literal::Duration(ns),
        ) => Some(ArgumentValue::Duration(*ns)),
        (wants, Literal::Text(text)) => return parse_text_value(wants, text),
        _ => None,
    };
    found.ok_or_else(|| {
        let hint = match (wants, literal) {
            (
                ArgumentType::Duration | ArgumentType::PositiveDuration | ArgumentType::Shift,
                Literal::Number(number),
            ) => {
                format!(": write {number}s or {number}m")
            }
            (_, Literal::Duration(ns)) if *ns < 0 => ", below 0".to_owned(),
            _ => String::new(),
        };
        format!("found {}{hint}", describe(literal))
    })
}

fn parse_text_value(wants: ArgumentType, text: &str) -> Result<ArgumentValue, String> {
    let owned = || ArgumentValue::Text(text.to_owned());
    match wants {
        ArgumentType::Text | ArgumentType::ShiftOrZone => Ok(owned()),
        ArgumentType::OneOf(words) if words.contains(&text) => Ok(owned()),
        ArgumentType::DurationOr(word) if word == text => Ok(owned()),
        ArgumentType::Uuid if is_uuid(text) => Ok(owned()),
        ArgumentType::Name => name_selector(text).map(ArgumentValue::Selector),
        ArgumentType::Search => search(text).map(ArgumentValue::Selector),
        ArgumentType::Format => LabelFormat::parse(text).map(ArgumentValue::Format),
        ArgumentType::Regex => {
            // The limits are those of selectors.
            model::selector::Regex::search(text).map_err(without_column)?;
            let mut builder = regex::RegexBuilder::new(text);
            builder.size_limit(model::selector::REGEX_BYTES_MAX);
            builder.dfa_size_limit(model::selector::REGEX_BYTES_MAX);
            builder.build().map(ArgumentValue::Regex).map_err(|error| error.to_string())
        }
        _ => Err(format!("found {}", describe(&Literal::Text(text.to_owned())))),
    }
}

/// Error text without the column, which is always that of the start of the text.
fn without_column(error: SelectorError) -> String {
    format!("found {}, expected {}", error.found, error.expected)
}

fn describe(literal: &Literal) -> String {
    match literal {
        Literal::Number(number) => format!("the number {number}"),
        Literal::Duration(_) => format!("the duration {literal}"),
        Literal::Text(text) if text.len() > 100 => "a long string".to_owned(),
        Literal::Text(text) => format!("the string {text:?}"),
        Literal::Constant(constant) => constant.name().to_owned(),
    }
}

fn is_uuid(text: &str) -> bool {
    let mut lengths = text.split('-').map(str::len);
    [8, 4, 4, 4, 12].into_iter().all(|length| lengths.next() == Some(length))
        && lengths.next().is_none()
        && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

// Selectors.

const SEARCHES: [&str; 4] = ["and(", "or(", "not(", "hint("];

fn is_search(literal: &Literal) -> bool {
    let Literal::Text(text) = literal else { return false };
    SEARCHES.into_iter().any(|word| text.trim_start().starts_with(word))
}

/// Parses the first argument of find: `/regex/`, a glob, or a literal name with any characters.
fn name_selector(text: &str) -> Result<Selector, String> {
    let between = text.strip_prefix('/').and_then(|inner| inner.strip_suffix('/'));
    let pattern =
        match between {
            _ if text.is_empty() => {
                return Err("found an empty string; match every name with \"*\"".to_owned());
            }
            Some(regex) if !regex.is_empty() => {
                let regex = model::selector::Regex::search(regex);
                Pattern::Regex(regex.map_err(|error| {
                    format!("found {}, expected {}", error.found, error.expected)
                })?)
            }
            _ if text.contains(['*', '?']) => Pattern::Glob(text.to_owned()),
            _ => Pattern::Exact(text.to_owned()),
        };
    Ok(Selector::tag(NAME, pattern))
}

/// Parses a tag search. Unlike other selectors, it may not be a name or labels in braces.
fn search(text: &str) -> Result<Selector, String> {
    let text = text.trim();
    if !SEARCHES.into_iter().any(|word| text.starts_with(word)) {
        return Err(format!("a search starts with and(, or( or not(; write and({text})"));
    }
    if text.starts_with("hint(") {
        return Err("hint(…) is not supported; use its first argument alone".to_owned());
    }
    Selector::parse(text).map_err(|error| format!("invalid search: {error}"))
}
