//! Values of processes as text, each with its unit.

use decode::Unit;
use hist::{Bracket, Histogram};
use shm::snapshot::{
    HeartbeatSnapshot, InFlightSnapshot, MetricValue, NumericValue, ProcessSeries,
};

use crate::reference_time::ReferenceTime;
use render::time::format_ns;
use render::value_formatter::{ValueFormatter, count};

/// `name{label="value"}`.
pub(crate) fn series_name(metric: &ProcessSeries) -> String {
    if metric.labels.is_empty() {
        return metric.name.clone();
    }
    let labels = metric.labels.iter().map(|(name, value)| format!("{name}={value:?}"));
    format!("{}{{{}}}", metric.name, labels.collect::<Vec<_>>().join(","))
}

/// Parses a UCUM unit; `None` if there is none. Text in braces names what is counted.
pub fn parse_unit(text: &str) -> Option<Unit> {
    match text {
        "" | "1" => None,
        "By" => Some(Unit::Bytes),
        _ => match text.strip_prefix('{').and_then(|text| text.strip_suffix('}')) {
            Some("") => None,
            Some(counted) => Some(Unit::Other(counted.to_owned())),
            None => Unit::parse(text).or_else(|| Some(Unit::Other(text.to_owned()))),
        },
    }
}

/// Formatter of a metric's values.
pub(crate) fn metric_formatter(metric: &ProcessSeries) -> ValueFormatter {
    ValueFormatter::new(parse_unit(&metric.unit).as_ref())
}

/// Number with its unit. A number without a unit keeps all digits.
pub(crate) fn format_number(unit: Option<&Unit>, number: NumericValue) -> String {
    match (unit, number) {
        (None, NumericValue::Unsigned(n)) => count(n),
        (None, NumericValue::Signed(n)) => format_signed(n.into()),
        (unit, number) => ValueFormatter::new(unit).exact(number.as_float()),
    }
}

/// Integer with thousands separators.
pub(crate) fn format_signed(n: i128) -> String {
    let size = count(u64::try_from(n.unsigned_abs()).unwrap_or(u64::MAX));
    if n < 0 { format!("-{size}") } else { size }
}

/// Rate per second. With a unit it is formatted by [`ValueFormatter`]; else with three digits:
/// `3.20 /s`, `12.3 k/s`.
pub(crate) fn format_rate(unit: Option<&Unit>, per_second: f64) -> String {
    if unit.is_some() {
        return format!("{}/s", ValueFormatter::new(unit).estimate(per_second));
    }
    match per_second {
        0.0 => "0 /s".into(),
        ..0.0 => "unknown".into(),
        ..0.01 => "<0.01 /s".into(),
        ..9_999.5 => format!("{} /s", format_three_digits(per_second)),
        ..999_500.0 => format!("{} k/s", format_three_digits(per_second / 1e3)),
        ..999_500_000.0 => format!("{} M/s", format_three_digits(per_second / 1e6)),
        f64::INFINITY => "unknown".into(),
        _ if per_second.is_nan() => "unknown".into(),
        _ => format!("{} G/s", format_three_digits(per_second / 1e9)),
    }
}

/// Number with three digits.
pub(crate) fn format_three_digits(number: f64) -> String {
    let is_integer = number.fract() == 0.0;
    match number {
        _ if is_integer || number >= 99.95 => count(number.round() as u64),
        9.995.. => format!("{number:.1}"),
        _ => format!("{number:.2}"),
    }
}

/// Count, p50, p99 and max of a distribution. `~` marks a maximum of which only the bucket is
/// known.
pub(crate) fn distribution_cells(formatter: &ValueFormatter, of: &Histogram) -> [String; 4] {
    let quantile =
        |q| of.quantile(q).map_or_else(|| "none".to_owned(), |value| formatter.value(value));
    [count(of.count()), quantile(0.5), quantile(0.99), format_max(formatter, of.max())]
}

/// Maximum, with `~` if only its bucket is known.
pub(crate) fn format_max(formatter: &ValueFormatter, max: Option<Bracket>) -> String {
    match max {
        None => "none".to_owned(),
        Some(max) if max.is_exact() => formatter.value(max),
        Some(max) => format!("~{}", formatter.value(max)),
    }
}

/// Current value of a metric.
pub(crate) fn format_value(metric: &ProcessSeries, as_of: &ReferenceTime) -> String {
    match &metric.value {
        MetricValue::Counter(n) | MetricValue::Gauge(n) => {
            format_number(parse_unit(&metric.unit).as_ref(), *n)
        }
        MetricValue::Text(text) => format!("{text:?}"),
        MetricValue::Histogram(of) if of.is_empty() => "nothing recorded yet".to_owned(),
        MetricValue::Histogram(of) => {
            let [count, p50, p99, max] = distribution_cells(&metric_formatter(metric), of);
            format!("{count} values, p50 {p50}, p99 {p99}, max {max}")
        }
        MetricValue::InFlight(of) => format_in_flight(of, as_of),
        MetricValue::Heartbeat(beat) => format_heartbeat(beat, as_of),
        MetricValue::Unknown(reason) => format!("unknown: {reason}"),
        _ => "unknown: a kind that this command does not know".to_owned(),
    }
}

fn format_in_flight(of: &InFlightSnapshot, as_of: &ReferenceTime) -> String {
    let mut text = format!("{} in flight", count(of.count()));
    if let Some(oldest) = of.operations.first() {
        text.push_str(&format!(", the oldest for {}", as_of.age(oldest.start_ns)));
    }
    let untracked = of.count_untracked();
    if untracked > 0 {
        text.push_str(&format!(", {} of them untracked", count(untracked)));
    }
    text.push_str(&format!("; {} started", count(of.started)));
    text
}

fn format_heartbeat(of: &HeartbeatSnapshot, as_of: &ReferenceTime) -> String {
    if of.beats == 0 {
        return "never beat".to_owned();
    }
    let mut text = format!("{} beats, the last {} before", count(of.beats), as_of.age(of.last_ns));
    if of.every_ns > 0 {
        text.push_str(&format!("; one is due every {}", format_ns(of.every_ns as f64)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_metric(unit: &str, value: MetricValue) -> ProcessSeries {
        ProcessSeries {
            name: "a".into(),
            labels: Vec::new(),
            unit: unit.into(),
            help: String::new(),
            role: shm::MetricRole::Other,
            related_metric: None,
            value,
        }
    }

    #[test]
    fn numbers_have_units() {
        let as_of = ReferenceTime::unknown();
        for (unit, n, expected) in [
            ("ns", NumericValue::Unsigned(1_500_000), "1.5 ms"),
            ("By", NumericValue::Signed(-4096), "-4.096 kB"),
            ("{requests}", NumericValue::Signed(12), "12 requests"),
            ("1", NumericValue::Unsigned(u64::MAX), "18,446,744,073,709,551,615"),
            ("", NumericValue::Signed(i64::MIN), "-9,223,372,036,854,775,808"),
            ("%", NumericValue::Float(12.5), "12.5 %"),
            ("", NumericValue::Float(f64::NAN), "unknown"),
        ] {
            assert_eq!(
                format_value(&test_metric(unit, MetricValue::Gauge(n)), &as_of),
                expected,
                "{unit}"
            );
        }
    }

    #[test]
    fn rates_are_short_and_have_units() {
        for (per_second, expected) in [
            (0.0, "0 /s"),
            (0.001, "<0.01 /s"),
            (0.5, "0.50 /s"),
            (12.34, "12.3 /s"),
            (1_234.0, "1,234 /s"),
            (12_345.0, "12.3 k/s"),
            (999_600.0, "1.00 M/s"),
            (2.5e9, "2.50 G/s"),
            (f64::NAN, "unknown"),
            (f64::INFINITY, "unknown"),
        ] {
            assert_eq!(format_rate(None, per_second), expected);
        }
        assert_eq!(format_rate(parse_unit("By").as_ref(), 12_345.0), "12.35 kB/s");
        assert_eq!(format_rate(parse_unit("{requests}").as_ref(), 12.0), "12 requests/s");
    }

    #[test]
    fn labels_are_quoted() {
        let mut metric = test_metric("", MetricValue::Text("\x1b[2J\u{202e}".into()));
        metric.labels = vec![("a".into(), "\"} 1\n\x1b".into())];
        assert_eq!(series_name(&metric), r#"a{a="\"} 1\n\u{1b}"}"#);
        assert_eq!(format_value(&metric, &ReferenceTime::unknown()), r#""\u{1b}[2J\u{202e}""#);
    }
}
