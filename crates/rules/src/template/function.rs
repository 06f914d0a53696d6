//! Functions of templates: the table of names, and what Prometheus adds to Go's own.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::builtin;
use super::float::{FloatPrecision, format_float, parse_float};
use super::go_time::time_text;
use super::quote::quoted;
use super::signature::{GoSignature, ParameterType, list_of};
use super::title::title;
use super::value::{TemplateTime, TemplateValue};
use super::{TemplateContext, duration};

type Outcome = Result<TemplateValue, String>;

/// Limit of queries of one expansion.
pub(super) const QUERY_COUNT_MAX: usize = 100;

/// What functions may use beyond their arguments.
pub(super) struct FunctionState<'a> {
    pub(super) context: &'a TemplateContext<'a>,
    query_count: usize,
    /// Compiled patterns of this expansion.
    patterns: HashMap<String, regex::Regex>,
}

impl<'a> FunctionState<'a> {
    pub(super) fn new(context: &'a TemplateContext<'a>) -> FunctionState<'a> {
        FunctionState { context, query_count: 0, patterns: HashMap::new() }
    }

    /// Whether a call compiles a pattern, which costs more than other calls.
    pub(super) fn compiles(&self, name: &str, arguments: &[TemplateValue]) -> bool {
        let is_pattern = matches!(name, "match" | "reReplaceAll");
        is_pattern && !self.patterns.contains_key(text(&arguments[0]))
    }

    fn pattern(&mut self, source: &str) -> Result<&regex::Regex, String> {
        if !self.patterns.contains_key(source) {
            let regex = query::promql::unanchored_regex(source)?;
            self.patterns.insert(source.to_owned(), regex);
        }
        self.patterns.get(source).ok_or_else(String::new)
    }
}

/// How the evaluator calls a function.
#[derive(Clone, Copy)]
pub(super) enum FunctionKind {
    /// Evaluates arguments only until one decides: `and` stops at false.
    ShortCircuit {
        stops_at: bool,
    },
    /// `tmpl`, which needs the evaluator.
    Template,
    /// `call`, which always fails: no value of a template is a function.
    Call,
    Plain(fn(&mut FunctionState<'_>, &[TemplateValue]) -> Outcome),
}

/// A function of templates.
pub(super) struct TemplateFunction {
    pub(super) name: &'static str,
    pub(super) signature: GoSignature,
    pub(super) kind: FunctionKind,
}

/// The function `name`.
pub(super) fn find(name: &str) -> Option<&'static TemplateFunction> {
    FUNCTIONS.iter().find(|function| function.name == name)
}

const fn plain(
    name: &'static str,
    fixed: &'static [ParameterType],
    variadic: Option<ParameterType>,
    call: fn(&mut FunctionState<'_>, &[TemplateValue]) -> Outcome,
) -> TemplateFunction {
    let signature = GoSignature { fixed, variadic };
    TemplateFunction { name, signature, kind: FunctionKind::Plain(call) }
}

const fn logic(name: &'static str, stops_at: bool) -> TemplateFunction {
    let signature = GoSignature { fixed: &[Raw], variadic: Some(Raw) };
    TemplateFunction { name, signature, kind: FunctionKind::ShortCircuit { stops_at } }
}

use ParameterType::{Any, Raw, Sample, Text, Vector};

/// All functions: Go's in the first part, Prometheus' in the second.
const FUNCTIONS: &[TemplateFunction] = &[
    logic("and", false),
    logic("or", true),
    TemplateFunction {
        name: "call",
        signature: GoSignature { fixed: &[Raw], variadic: Some(Raw) },
        kind: FunctionKind::Call,
    },
    plain("eq", &[Raw], Some(Raw), |_, values| builtin::equal(values).map(TemplateValue::Bool)),
    plain("ne", &[Raw, Raw], None, |_, values| {
        builtin::equal(values).map(|equal| TemplateValue::Bool(!equal))
    }),
    plain("lt", &[Raw, Raw], None, |_, values| {
        builtin::less(&values[0], &values[1]).map(TemplateValue::Bool)
    }),
    plain("le", &[Raw, Raw], None, |_, values| {
        builtin::less_or_equal(values).map(TemplateValue::Bool)
    }),
    plain("gt", &[Raw, Raw], None, |_, values| {
        builtin::less_or_equal(values).map(|is_at_most| TemplateValue::Bool(!is_at_most))
    }),
    plain("ge", &[Raw, Raw], None, |_, values| {
        builtin::less(&values[0], &values[1]).map(|is_less| TemplateValue::Bool(!is_less))
    }),
    plain("not", &[Raw], None, |_, values| Ok(TemplateValue::Bool(!values[0].is_true()))),
    plain("len", &[Raw], None, |_, values| builtin::length(&values[0])),
    plain("index", &[Raw], Some(Raw), |_, values| builtin::index(values)),
    plain("slice", &[Raw], Some(Raw), |_, values| builtin::slice(values)),
    plain("print", &[], Some(Any), |_, values| builtin::print_values(values)),
    plain("println", &[], Some(Any), |_, values| builtin::print_values_line(values)),
    plain("printf", &[Text], Some(Any), |_, values| builtin::print_values_format(values)),
    plain("html", &[], Some(Any), |_, values| builtin::html(values)),
    plain("js", &[], Some(Any), |_, values| builtin::js(values)),
    plain("urlquery", &[], Some(Any), |_, values| builtin::url_query(values)),
    plain("query", &[Text], None, run_query),
    plain("first", &[Vector], None, |_, values| {
        let first = list_of(&values[0]).and_then(|list| list.items.first());
        first.cloned().ok_or_else(|| "first() called on vector with no elements".to_owned())
    }),
    plain("label", &[Text, Sample], None, |_, values| label(&values[1], text(&values[0]))),
    plain("value", &[Sample], None, |_, values| match &values[0] {
        TemplateValue::Sample(Some(sample)) => Ok(sample.value.clone()),
        _ => Err(NIL_POINTER.to_owned()),
    }),
    plain("strvalue", &[Sample], None, |_, values| label(&values[0], "__value__")),
    plain("args", &[], Some(Any), |_, values| {
        let entries = values.iter().enumerate();
        let entries = entries.map(|(index, value)| (format!("arg{index}"), value.clone()));
        TemplateValue::map(model::sort::map(entries)).ok_or_else(|| {
            format!("nesting limit of values ({}) reached", super::value::VALUE_DEPTH_MAX)
        })
    }),
    TemplateFunction {
        name: "tmpl",
        signature: GoSignature { fixed: &[Text, Any], variadic: None },
        kind: FunctionKind::Template,
    },
    plain("sortByLabel", &[Text, Vector], None, sort_by_label),
    plain("reReplaceAll", &[Text, Text, Text], None, |state, values| {
        let source = text(&values[0]);
        let failed = |message| format!("regexp: Compile({}): {message}", go_literal(source));
        let regex = state.pattern(source).map_err(failed)?;
        replace_all(regex, text(&values[2]), text(&values[1])).map(TemplateValue::text)
    }),
    plain("match", &[Text, Text], None, |state, values| {
        let regex = state.pattern(text(&values[0]))?;
        Ok(TemplateValue::Bool(regex.is_match(text(&values[1]))))
    }),
    plain("title", &[Text], None, |_, values| Ok(TemplateValue::text(title(text(&values[0]))))),
    plain("toUpper", &[Text], None, |_, values| Ok(mapped(&values[0], char::to_uppercase))),
    plain("toLower", &[Text], None, |_, values| Ok(mapped(&values[0], char::to_lowercase))),
    plain("stripPort", &[Text], None, |_, values| {
        let address = text(&values[0]);
        Ok(TemplateValue::text(split_port(address).map_or(address, |(host, _)| host)))
    }),
    plain("stripDomain", &[Text], None, |_, values| {
        Ok(TemplateValue::text(strip_domain(text(&values[0]))))
    }),
    plain("humanize", &[Any], None, |_, values| {
        to_float(&values[0]).map(|number| TemplateValue::text(humanize(number)))
    }),
    plain("humanize1024", &[Any], None, |_, values| {
        to_float(&values[0]).map(|number| TemplateValue::text(humanize_1024(number)))
    }),
    plain("humanizePercentage", &[Any], None, |_, values| {
        let number = to_float(&values[0])?;
        Ok(TemplateValue::text(format!("{}%", four_digits(number * 100.0))))
    }),
    plain("humanizeDuration", &[Any], None, |_, values| {
        to_float(&values[0]).map(|seconds| TemplateValue::text(humanize_duration(seconds)))
    }),
    plain("humanizeTimestamp", &[Any], None, |_, values| {
        let seconds = to_float(&values[0])?;
        Ok(TemplateValue::text(match seconds.is_finite() {
            true => time_text(to_time(seconds)?),
            false => four_digits(seconds),
        }))
    }),
    plain("toTime", &[Any], None, |_, values| {
        let time_ns = to_time(to_float(&values[0])?)?;
        Ok(TemplateValue::Time(TemplateTime { time_ns, is_pointer: true }))
    }),
    plain("toDuration", &[Any], None, |_, values| {
        let span_ns = to_float(&values[0])? * 1e9;
        // Go's conversion on amd64.
        let fits = (-9.223_372_036_854_776e18..9.223_372_036_854_776e18).contains(&span_ns);
        Ok(TemplateValue::Duration(if fits { span_ns as i64 } else { i64::MIN }, true))
    }),
    plain("now", &[], None, |state, _| {
        let milliseconds = state.context.time_ns.div_euclid(1_000_000);
        Ok(TemplateValue::Float(milliseconds as f64 / 1000.0))
    }),
    plain("parseDuration", &[Text], None, |_, values| {
        let span_ns = duration::parse(text(&values[0]))?;
        Ok(TemplateValue::Float(span_ns as f64 / 1e9))
    }),
    plain("urlQueryEscape", &[Text], None, |_, values| {
        Ok(TemplateValue::text(builtin::query_escape(text(&values[0]))))
    }),
    plain("safeHtml", &[Text], None, |_, values| Ok(TemplateValue::Html(text(&values[0]).into()))),
    plain("graphLink", &[Text], None, |_, values| Ok(link(&values[0], 0))),
    plain("tableLink", &[Text], None, |_, values| Ok(link(&values[0], 1))),
    plain("pathPrefix", &[], None, |state, _| {
        Ok(TemplateValue::text(url_path(state.context.external_url)))
    }),
    plain("externalURL", &[], None, |state, _| Ok(TemplateValue::text(state.context.external_url))),
];

const NIL_POINTER: &str = "runtime error: invalid memory address or nil pointer dereference";

/// The text of an argument that [`ParameterType::Text`] accepted.
fn text(value: &TemplateValue) -> &str {
    match value {
        TemplateValue::Text(text) => text,
        _ => "",
    }
}

fn run_query(state: &mut FunctionState<'_>, values: &[TemplateValue]) -> Outcome {
    state.query_count += 1;
    if state.query_count > QUERY_COUNT_MAX {
        return Err(format!("query limit ({QUERY_COUNT_MAX}) reached"));
    }
    let samples = state.context.query.query(text(&values[0]), state.context.time_ns)?;
    let samples = samples.into_iter().map(|sample| TemplateValue::Sample(Some(Arc::new(sample))));
    Ok(TemplateValue::vector(samples.collect()))
}

fn label(sample: &TemplateValue, name: &str) -> Outcome {
    match sample {
        TemplateValue::Sample(Some(sample)) => {
            Ok(TemplateValue::text(sample.labels.get(name).map_or("", String::as_str)))
        }
        _ => Err(NIL_POINTER.to_owned()),
    }
}

fn sort_by_label(_: &mut FunctionState<'_>, values: &[TemplateValue]) -> Outcome {
    let key = |value: &TemplateValue| match value {
        TemplateValue::Sample(Some(sample)) => {
            sample.labels.get(text(&values[0])).cloned().unwrap_or_default()
        }
        _ => String::new(),
    };
    let mut items = list_of(&values[1]).map(|list| list.items.clone()).unwrap_or_default();
    items.sort_by_cached_key(key);
    Ok(TemplateValue::vector(items))
}

/// A pattern as Go's panic quotes it.
fn go_literal(source: &str) -> String {
    match source.contains('`') || source.chars().any(|c| c.is_control() && c != '\t') {
        true => quoted(source),
        false => format!("`{source}`"),
    }
}

/// Replaces all matches, but stops at the size limit: each match may insert the whole text.
fn replace_all(regex: &regex::Regex, text: &str, replacement: &str) -> Result<String, String> {
    let mut out = String::new();
    let mut end = 0;
    for found in regex.captures_iter(text) {
        let whole = found.get_match();
        out.push_str(&text[end..whole.start()]);
        found.expand(replacement, &mut out);
        end = whole.end();
        if out.len() > super::format::TEXT_SIZE_MAX {
            let limit = super::format::TEXT_SIZE_MAX >> 10;
            return Err(format!("text size limit ({limit} KiB) reached"));
        }
    }
    out.push_str(&text[end..]);
    Ok(out)
}

/// Maps each character by itself, as Go does: `ß` stays, because its upper case is two characters.
fn mapped<Case: Iterator<Item = char>>(
    value: &TemplateValue,
    map: fn(char) -> Case,
) -> TemplateValue {
    let map_one = |c: char| {
        let mut mapped = map(c);
        match (mapped.next(), mapped.next()) {
            (Some(mapped), None) => mapped,
            // The lower case of `İ` is `i` with a mark.
            (Some('i'), Some(_)) => 'i',
            _ => c,
        }
    };
    TemplateValue::text(text(value).chars().map(map_one).collect::<String>())
}

/// Host and port of an address, if it has both.
fn split_port(address: &str) -> Option<(&str, &str)> {
    let colon = address.rfind(':')?;
    let port = &address[colon + 1..];
    let host = match address.strip_prefix('[') {
        Some(inner) => {
            let end = inner.find(']')?;
            if end + 2 != colon || inner[..end].contains('[') || inner[end + 1..].contains(']') {
                return None;
            }
            &inner[..end]
        }
        None if address[..colon].contains(':') || address.contains(['[', ']']) => return None,
        None => &address[..colon],
    };
    (!port.contains(['[', ']'])).then_some((host, port))
}

fn strip_domain(address: &str) -> String {
    let (host, port) = split_port(address).unwrap_or((address, ""));
    if host.parse::<IpAddr>().is_ok() {
        return address.to_owned();
    }
    let name = host.split('.').next().unwrap_or_default();
    match port {
        "" => name.to_owned(),
        _ if name.contains([':', '%']) => format!("[{name}]:{port}"),
        _ => format!("{name}:{port}"),
    }
}

/// A number for the `humanize` family.
fn to_float(value: &TemplateValue) -> Result<f64, String> {
    match value {
        TemplateValue::Float(number) => Ok(*number),
        TemplateValue::Int(number) => Ok(*number as f64),
        TemplateValue::Duration(span_ns, false) => {
            let (seconds, rest) = (span_ns / 1_000_000_000, span_ns % 1_000_000_000);
            Ok(seconds as f64 + rest as f64 / 1e9)
        }
        TemplateValue::Text(text) => {
            let failed = |reason: &str| {
                Err(format!("strconv.ParseFloat: parsing {}: {reason}", quoted(text)))
            };
            match parse_float(text) {
                Some(number) if number.is_infinite() && text.contains(|c: char| c.is_numeric()) => {
                    failed("value out of range")
                }
                Some(number) => Ok(number),
                None => failed("invalid syntax"),
            }
        }
        TemplateValue::Missing | TemplateValue::Nil => {
            Err("can't convert <nil> to float".to_owned())
        }
        _ => Err(format!("can't convert {} to float", value.type_name())),
    }
}

fn four_digits(number: f64) -> String {
    format_float(number, 'g', FloatPrecision::Digits(4))
}

/// Divides or multiplies `number` by `step` until it is near 1; returns it and the prefix.
fn scaled<'a>(number: f64, step: f64, prefixes: &[&'a str]) -> (f64, &'a str) {
    let mut scaled = (number, "");
    for prefix in prefixes {
        let enough = if step > 1.0 { scaled.0.abs() < step } else { scaled.0.abs() >= 1.0 };
        if enough {
            break;
        }
        scaled = (if step > 1.0 { scaled.0 / step } else { scaled.0 * 1000.0 }, prefix);
    }
    scaled
}

const SMALL: [&str; 8] = ["m", "u", "n", "p", "f", "a", "z", "y"];

fn humanize(number: f64) -> String {
    let (number, prefix) = match number {
        _ if number == 0.0 || !number.is_finite() => (number, ""),
        _ if number.abs() >= 1.0 => {
            scaled(number, 1000.0, &["k", "M", "G", "T", "P", "E", "Z", "Y"])
        }
        _ => scaled(number, 0.001, &SMALL),
    };
    format!("{}{prefix}", four_digits(number))
}

fn humanize_1024(number: f64) -> String {
    let (number, prefix) = match number {
        _ if number.abs() <= 1.0 || !number.is_finite() => (number, ""),
        _ => scaled(number, 1024.0, &["ki", "Mi", "Gi", "Ti", "Pi", "Ei", "Zi", "Yi"]),
    };
    format!("{}{prefix}", four_digits(number))
}

fn humanize_duration(seconds: f64) -> String {
    if !seconds.is_finite() {
        return four_digits(seconds);
    }
    if seconds == 0.0 {
        return format!("{}s", four_digits(seconds));
    }
    if seconds.abs() < 1.0 {
        let (number, prefix) = scaled(seconds, 0.001, &SMALL);
        return format!("{}{prefix}s", four_digits(number));
    }
    let sign = if seconds < 0.0 { "-" } else { "" };
    let seconds = seconds.abs();
    // Go's conversion on amd64.
    let total = if seconds < 9.223_372_036_854_776e18 { seconds as i64 } else { i64::MIN };
    let (days, hours) = (total / 86_400, (total / 3_600) % 24);
    let (minutes, rest) = ((total / 60) % 60, total % 60);
    if days != 0 {
        format!("{sign}{days}d {hours}h {minutes}m {rest}s")
    } else if hours != 0 {
        format!("{sign}{hours}h {minutes}m {rest}s")
    } else if minutes != 0 {
        format!("{sign}{minutes}m {rest}s")
    } else {
        format!("{sign}{}s", four_digits(seconds))
    }
}

/// Nanoseconds since 1970, in whole milliseconds as Prometheus has them.
fn to_time(seconds: f64) -> Result<i64, String> {
    if !seconds.is_finite() {
        return Err("value is NaN or Inf".to_owned());
    }
    let nanoseconds = seconds * 1e9;
    if !(-9.223_372_036_854_776e18..=9.223_372_036_854_776e18).contains(&nanoseconds) {
        let number = format_float(seconds, 'g', FloatPrecision::Shortest);
        return Err(format!(
            "{number} cannot be represented as a nanoseconds timestamp since it overflows int64"
        ));
    }
    Ok(nanoseconds as i64 / 1_000_000 * 1_000_000)
}

fn link(expression: &TemplateValue, tab: u8) -> TemplateValue {
    let expression = builtin::query_escape(text(expression));
    TemplateValue::text(format!("/graph?g0.expr={expression}&g0.tab={tab}"))
}

/// The decoded path of a URL.
fn url_path(url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let path = rest.find('/').map_or("", |start| &rest[start..]);
    let mut bytes = Vec::with_capacity(path.len());
    let mut tail = path;
    while let Some(c) = tail.chars().next() {
        let code = (c == '%').then(|| tail.get(1..3)).flatten();
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                tail = &tail[3..];
            }
            None => {
                bytes.extend(c.encode_utf8(&mut [0; 4]).as_bytes());
                tail = &tail[c.len_utf8()..];
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
