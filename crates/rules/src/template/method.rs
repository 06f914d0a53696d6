//! Methods of times and durations, such as `(toTime $value).Format "15:04"`.

use super::go_time::{civil, duration_text, format_time, month_name, time_text, weekday_name};
use super::signature::{GoSignature, ParameterType};
use super::value::{TemplateRecord, TemplateTime, TemplateValue};
use std::sync::Arc;

/// A method of a value.
pub(super) struct Method {
    name: &'static str,
    pub(super) signature: GoSignature,
    call: fn(i64, &[TemplateValue]) -> TemplateValue,
}

impl Method {
    /// Calls the method of `receiver` with arguments that the signature accepted.
    pub(super) fn call(&self, receiver: &TemplateValue, values: &[TemplateValue]) -> TemplateValue {
        let receiver_ns = match receiver {
            TemplateValue::Time(time) => time.time_ns,
            TemplateValue::Duration(span_ns, _) => *span_ns,
            _ => 0,
        };
        (self.call)(receiver_ns, values)
    }
}

/// The method `name` of `receiver`.
pub(super) fn find(receiver: &TemplateValue, name: &str) -> Option<&'static Method> {
    let methods = match receiver {
        TemplateValue::Time(_) => TIME_METHODS,
        TemplateValue::Duration(..) => DURATION_METHODS,
        _ => return None,
    };
    methods.iter().find(|method| method.name == name)
}

const fn method(
    name: &'static str,
    fixed: &'static [ParameterType],
    call: fn(i64, &[TemplateValue]) -> TemplateValue,
) -> Method {
    Method { name, signature: GoSignature { fixed, variadic: None }, call }
}

const TIME_METHODS: &[Method] = &[
    method("Add", &[ParameterType::Duration], |time_ns, values| {
        TemplateValue::time(time_ns.saturating_add(nanoseconds(values)))
    }),
    method("After", &[ParameterType::Time], |time_ns, values| {
        TemplateValue::Bool(time_ns > nanoseconds(values))
    }),
    method("Before", &[ParameterType::Time], |time_ns, values| {
        TemplateValue::Bool(time_ns < nanoseconds(values))
    }),
    method("Day", &[], |time_ns, _| TemplateValue::Int(civil(time_ns).day().into())),
    method("Equal", &[ParameterType::Time], |time_ns, values| {
        TemplateValue::Bool(time_ns == nanoseconds(values))
    }),
    method("Format", &[ParameterType::Text], |time_ns, values| match values {
        [TemplateValue::Text(layout)] => TemplateValue::text(format_time(time_ns, layout)),
        _ => TemplateValue::Missing,
    }),
    method("Hour", &[], |time_ns, _| TemplateValue::Int(civil(time_ns).hour().into())),
    method("Minute", &[], |time_ns, _| TemplateValue::Int(civil(time_ns).minute().into())),
    method("Month", &[], |time_ns, _| named("time.Month", month_name(civil(time_ns).month()))),
    method("Nanosecond", &[], |time_ns, _| TemplateValue::Int(time_ns.rem_euclid(1_000_000_000))),
    method("Second", &[], |time_ns, _| TemplateValue::Int(civil(time_ns).second().into())),
    method("String", &[], |time_ns, _| TemplateValue::text(time_text(time_ns))),
    method("Sub", &[ParameterType::Time], |time_ns, values| {
        TemplateValue::Duration(time_ns.saturating_sub(nanoseconds(values)), false)
    }),
    method("UTC", &[], |time_ns, _| TemplateValue::time(time_ns)),
    method("Unix", &[], |time_ns, _| TemplateValue::Int(time_ns.div_euclid(1_000_000_000))),
    method("UnixMilli", &[], |time_ns, _| TemplateValue::Int(time_ns.div_euclid(1_000_000))),
    method("UnixNano", &[], |time_ns, _| TemplateValue::Int(time_ns)),
    method("Weekday", &[], |time_ns, _| named("time.Weekday", weekday_name(civil(time_ns)))),
    method("Year", &[], |time_ns, _| TemplateValue::Int(civil(time_ns).year().into())),
    method("YearDay", &[], |time_ns, _| TemplateValue::Int(civil(time_ns).day_of_year().into())),
];

const DURATION_METHODS: &[Method] = &[
    method("Abs", &[], |span_ns, _| TemplateValue::Duration(span_ns.saturating_abs(), false)),
    method("Hours", &[], |span_ns, _| parts(span_ns, 3_600_000_000_000)),
    method("Microseconds", &[], |span_ns, _| TemplateValue::Int(span_ns / 1_000)),
    method("Milliseconds", &[], |span_ns, _| TemplateValue::Int(span_ns / 1_000_000)),
    method("Minutes", &[], |span_ns, _| parts(span_ns, 60_000_000_000)),
    method("Nanoseconds", &[], |span_ns, _| TemplateValue::Int(span_ns)),
    method("Round", &[ParameterType::Duration], |span_ns, values| {
        TemplateValue::Duration(round(span_ns, nanoseconds(values)), false)
    }),
    method("Seconds", &[], |span_ns, _| parts(span_ns, 1_000_000_000)),
    method("String", &[], |span_ns, _| TemplateValue::text(duration_text(span_ns))),
    method("Truncate", &[ParameterType::Duration], |span_ns, values| {
        let step_ns = nanoseconds(values);
        let rest = if step_ns > 0 { span_ns % step_ns } else { 0 };
        TemplateValue::Duration(span_ns - rest, false)
    }),
];

/// The time or duration of the only argument.
fn nanoseconds(values: &[TemplateValue]) -> i64 {
    match values {
        [TemplateValue::Time(TemplateTime { time_ns, .. })] => *time_ns,
        [TemplateValue::Duration(span_ns, _)] => *span_ns,
        _ => 0,
    }
}

/// A constant of a type with names, which prints as its name.
fn named(type_name: &str, name: &str) -> TemplateValue {
    let record = TemplateRecord::new(type_name, Vec::new(), Some(name.to_owned()));
    TemplateValue::Record(Arc::new(record))
}

/// `span_ns` in units: whole and fraction apart, as Go adds them.
fn parts(span_ns: i64, unit_ns: i64) -> TemplateValue {
    let (whole, rest) = (span_ns / unit_ns, span_ns % unit_ns);
    TemplateValue::Float(whole as f64 + rest as f64 / unit_ns as f64)
}

/// Half a step and more is rounded away from zero.
fn round(span_ns: i64, step_ns: i64) -> i64 {
    if step_ns <= 0 {
        return span_ns;
    }
    let rest = span_ns % step_ns;
    let down = span_ns - rest;
    match rest.unsigned_abs() * 2 >= step_ns.unsigned_abs() {
        true => down.saturating_add(step_ns * span_ns.signum()),
        false => down,
    }
}
