//! Arguments of a call: each as the value its function wants, or a word on why not.

use model::selector::{NAME, Pattern};
use model::{Selector, SelectorError};

use super::ast::{Call, Constant, Literal};
use super::label::Format;
use super::signature::{Default, Parameter, Signature, Wants, nearest_of};
use crate::error::{Error, Place, Result};

/// What a query is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// The span that is drawn.
    pub view_range_ns: i64,
    /// The smallest span that is drawn.
    pub view_period_ns: i64,
    /// Whether only what checks can have is allowed.
    pub is_serial: bool,
}

/// A value of an argument.
#[derive(Clone, Debug)]
pub enum Given {
    /// Always finite.
    Number(f64),
    /// In nanoseconds.
    Duration(i64),
    /// Any text.
    Text(String),
    /// Of a metric's name or of a tag search.
    Selector(Selector),
    /// To be searched for.
    Regex(regex::Regex),
    /// Of labels.
    Format(Format),
}

/// The arguments of a call. What is asked for by name is always a parameter or an option of the function.
#[derive(Clone, Debug)]
pub struct Arguments {
    named: Vec<(&'static str, Given)>,
    rest: Vec<Given>,
}

impl Arguments {
    /// None at all.
    pub(crate) fn none() -> Arguments {
        Arguments { named: Vec::new(), rest: Vec::new() }
    }

    /// The value of a parameter or an option, unless it is left out and has no default.
    pub fn get(&self, name: &str) -> Option<&Given> {
        self.named.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// If it is a number.
    pub fn number(&self, name: &str) -> Option<f64> {
        self.get(name).and_then(Given::number)
    }

    /// If it is a duration: its nanoseconds.
    pub fn duration(&self, name: &str) -> Option<i64> {
        self.get(name).and_then(Given::duration)
    }

    /// If it is a text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(Given::text)
    }

    /// If it is a selector.
    pub fn selector(&self, name: &str) -> Option<&Selector> {
        match self.get(name) {
            Some(Given::Selector(selector)) => Some(selector),
            _ => None,
        }
    }

    /// If it is a regex.
    pub fn regex(&self, name: &str) -> Option<&regex::Regex> {
        match self.get(name) {
            Some(Given::Regex(regex)) => Some(regex),
            _ => None,
        }
    }

    /// If it is a label.
    pub fn format(&self, name: &str) -> Option<&Format> {
        match self.get(name) {
            Some(Given::Format(format)) => Some(format),
            _ => None,
        }
    }

    /// Those of which there may be any number.
    pub fn rest(&self) -> &[Given] {
        &self.rest
    }

    /// All.
    pub fn values(&self) -> impl Iterator<Item = &Given> {
        self.named.iter().map(|(_, value)| value).chain(&self.rest)
    }
}

impl Given {
    /// If it is a number.
    pub fn number(&self) -> Option<f64> {
        if let Given::Number(number) = self { Some(*number) } else { None }
    }

    /// If it is a duration: its nanoseconds.
    pub fn duration(&self) -> Option<i64> {
        if let Given::Duration(ns) = self { Some(*ns) } else { None }
    }

    /// If it is a text.
    pub fn text(&self) -> Option<&str> {
        if let Given::Text(text) = self { Some(text) } else { None }
    }
}

/// Puts the arguments of a call where its function wants them, and adds defaults.
pub(super) fn arguments(function: &Signature, call: &Call, context: &Context) -> Result<Arguments> {
    let name = &function.name;
    let refused = |place: Place, message: String| Err(Error::Parse { place, message });
    let mut found = Arguments { named: Vec::new(), rest: Vec::new() };
    let is_alone = call.arguments.iter().filter(|argument| argument.name.is_none()).count() == 1;
    for (at, argument) in call.arguments.iter().enumerate() {
        let parameter = match &argument.name {
            None => function.parameters.get(at).or(function.rest.as_ref()),
            Some(word) => {
                let mut known = function.parameters.iter().chain(&function.options);
                known.find(|parameter| parameter.name == word)
            }
        };
        let Some(parameter) = parameter else {
            return refused(argument.place, superfluous(function, argument.name.as_deref()));
        };
        if found.get(parameter.name).is_some() {
            let message = format!("{} is given twice, here and by its position", parameter.name);
            return refused(argument.place, message);
        }
        let wants = match parameter.wants {
            Wants::Name if is_alone && is_search(&argument.value) => Wants::Search,
            wants => wants,
        };
        let value = match value(wants, &argument.value, context) {
            Ok(value) => value,
            Err(why) => {
                let parameter = parameter.name;
                return refused(argument.place, format!("{parameter} of {name} is {wants}; {why}"));
            }
        };
        if argument.name.is_none() && at >= function.parameters.len() {
            found.rest.push(value);
        } else {
            found.named.push((parameter.name, value));
        }
    }
    for parameter in function.parameters.iter().chain(&function.options) {
        if found.get(parameter.name).is_some() {
            continue;
        }
        if parameter.default == Default::Required {
            return refused(call.name_place, missing(function, parameter));
        }
        let value = match parameter.default {
            Default::As(other) => found.get(other).cloned(),
            default => value_of_default(default, context),
        };
        found.named.extend(value.map(|value| (parameter.name, value)));
    }
    match &function.rest {
        Some(rest) if found.rest.is_empty() => refused(call.name_place, missing(function, rest)),
        _ => Ok(found),
    }
}

fn missing(function: &Signature, parameter: &Parameter) -> String {
    format!("{} wants {}, {}: {function}", function.name, parameter.name, parameter.wants)
}

fn superfluous(function: &Signature, word: Option<&str>) -> String {
    let name = &function.name;
    let Some(word) = word else {
        let count = match function.parameters.len() {
            0 => "no arguments".to_owned(),
            1 => "one argument".to_owned(),
            count => format!("{count} arguments"),
        };
        let hint = match function.options.first() {
            Some(option) => format!("others have one, such as {}=…", option.name),
            None => "there are no others".to_owned(),
        };
        return format!("{name} takes {count} without a name, and {hint}: {function}");
    };
    let known = function.parameters.iter().chain(&function.options);
    let hint = match nearest_of(word, known.map(|parameter| parameter.name)) {
        Some(near) => format!("; did you mean {near}?"),
        None => format!(": {function}"),
    };
    format!("{name} has no argument {word}{hint}")
}

fn value_of_default(default: Default, context: &Context) -> Option<Given> {
    match default {
        Default::Number(number) => Some(Given::Number(number)),
        Default::Duration(ns) => Some(Given::Duration(ns)),
        Default::Text(text) => Some(Given::Text(text.to_owned())),
        Default::Constant(constant) => match resolved(constant, context)? {
            Literal::Number(number) => Some(Given::Number(number)),
            Literal::Duration(ns) => Some(Given::Duration(ns)),
            Literal::Text(_) | Literal::Constant(_) => None,
        },
        Default::Required | Default::Absent | Default::As(_) => None,
    }
}

// Literals.

const SECOND_NS: f64 = 1e9;
const MINUTE_NS: f64 = 60e9;

/// What a constant stands for; `None` is the missing value.
fn resolved(constant: Constant, context: &Context) -> Option<Literal> {
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

/// A literal as a constant stream. Durations are minutes there.
pub(super) fn stream_of(literal: &Literal, context: &Context) -> Result<Option<f64>, String> {
    match literal {
        Literal::Number(number) => Ok(Some(*number)),
        Literal::Duration(ns) => Ok(Some(*ns as f64 / MINUTE_NS)),
        Literal::Text(_) => {
            Err("a text is no stream: it may only be an argument, as in find(\"name\")".to_owned())
        }
        Literal::Constant(constant) => match resolved(*constant, context) {
            Some(literal) => stream_of(&literal, context),
            None => Ok(None),
        },
    }
}

/// The value, or what is wrong with the literal.
fn value(wants: Wants, literal: &Literal, context: &Context) -> Result<Given, String> {
    if let Literal::Constant(constant) = literal {
        return match resolved(*constant, context) {
            Some(literal) => value(wants, &literal, context)
                .map_err(|_| format!("{} is {}", constant.name(), described(&literal))),
            None => Err("found NULL".to_owned()),
        };
    }
    let within = |number: f64, lo: f64, hi: f64, is_whole: bool| {
        let is_fine = (lo..=hi).contains(&number) && (!is_whole || number.fract() == 0.0);
        is_fine.then_some(Given::Number(number))
    };
    let minutes = |number: f64| {
        let ns = (number * MINUTE_NS).round();
        // Above three centuries, the number of nanoseconds would leave an i64.
        (ns.abs() <= 9.2e18).then_some(ns as i64)
    };
    let found = match (wants, literal) {
        (Wants::Number, Literal::Number(number)) => Some(Given::Number(*number)),
        (Wants::NumberWithin(lo, hi), Literal::Number(number)) => within(*number, lo, hi, false),
        (Wants::WholeWithin(lo, hi), Literal::Number(number)) => within(*number, lo, hi, true),
        (Wants::Moment, Literal::Number(number)) => Some(Given::Number(*number)),
        (Wants::ShiftOrZone, Literal::Number(number)) => minutes(*number).map(Given::Duration),
        (Wants::DurationOrMinutes, Literal::Number(number)) => {
            minutes(*number).filter(|ns| *ns >= 0).map(Given::Duration)
        }
        (Wants::Span, Literal::Duration(ns)) => (*ns > 0).then_some(Given::Duration(*ns)),
        (
            Wants::Duration | Wants::DurationOrMinutes | Wants::DurationOr(_),
            Literal::Duration(ns),
        ) => (*ns >= 0).then_some(Given::Duration(*ns)),
        (Wants::Shift | Wants::ShiftOrZone | Wants::Moment, Literal::Duration(ns)) => {
            Some(Given::Duration(*ns))
        }
        (wants, Literal::Text(text)) => return value_of_text(wants, text),
        _ => None,
    };
    found.ok_or_else(|| {
        let hint = match (wants, literal) {
            (Wants::Duration | Wants::Span | Wants::Shift, Literal::Number(number)) => {
                format!(": write {number}s or {number}m")
            }
            (_, Literal::Duration(ns)) if *ns < 0 => ", below 0".to_owned(),
            _ => String::new(),
        };
        format!("found {}{hint}", described(literal))
    })
}

fn value_of_text(wants: Wants, text: &str) -> Result<Given, String> {
    let owned = || Given::Text(text.to_owned());
    match wants {
        Wants::Text | Wants::ShiftOrZone => Ok(owned()),
        Wants::OneOf(words) if words.contains(&text) => Ok(owned()),
        Wants::DurationOr(word) if word == text => Ok(owned()),
        Wants::Uuid if is_uuid(text) => Ok(owned()),
        Wants::Name => name_selector(text).map(Given::Selector),
        Wants::Search => search(text).map(Given::Selector),
        Wants::Format => Format::parse(text).map(Given::Format),
        Wants::Regex => {
            // The limits are those of selectors.
            model::selector::Regex::search(text).map_err(found_and_expected)?;
            let mut builder = regex::RegexBuilder::new(text);
            builder.size_limit(model::selector::REGEX_BYTES_MAX);
            builder.dfa_size_limit(model::selector::REGEX_BYTES_MAX);
            builder.build().map(Given::Regex).map_err(|error| error.to_string())
        }
        _ => Err(format!("found {}", described(&Literal::Text(text.to_owned())))),
    }
}

/// Without the column, which is always that of the text's beginning.
fn found_and_expected(error: SelectorError) -> String {
    format!("found {}, expected {}", error.found, error.expected)
}

fn described(literal: &Literal) -> String {
    match literal {
        Literal::Number(number) => format!("the number {number}"),
        Literal::Duration(_) => format!("the duration {literal}"),
        Literal::Text(text) if text.len() > 100 => "a long text".to_owned(),
        Literal::Text(text) => format!("the text {text:?}"),
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

/// The first argument of find: `/regex/`, a glob, or a whole name with whatever characters.
fn name_selector(text: &str) -> Result<Selector, String> {
    let between = text.strip_prefix('/').and_then(|inner| inner.strip_suffix('/'));
    let pattern = match between {
        _ if text.is_empty() => return Err("found the empty text: every name is \"*\"".to_owned()),
        Some(regex) if !regex.is_empty() => {
            let regex = model::selector::Regex::search(regex);
            Pattern::Regex(
                regex.map_err(|error| {
                    format!("found {}, expected {}", error.found, error.expected)
                })?,
            )
        }
        _ if text.contains(['*', '?']) => Pattern::Glob(text.to_owned()),
        _ => Pattern::Exact(text.to_owned()),
    };
    Ok(Selector::tag(NAME, pattern))
}

/// A tag search. Unlike other selectors, it may not be a name, or labels in braces.
fn search(text: &str) -> Result<Selector, String> {
    let text = text.trim();
    if !SEARCHES.into_iter().any(|word| text.starts_with(word)) {
        return Err(format!("a search begins with and(, or( or not(: write and({text})"));
    }
    if text.starts_with("hint(") {
        return Err("hint(…) is not read: write its first part alone".to_owned());
    }
    Selector::parse(text).map_err(|error| format!("in it, {error}"))
}
