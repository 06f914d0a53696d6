//! Prometheus naming conventions: kind and unit from the name, number labels.
//!
//! Suffixes: <https://prometheus.io/docs/practices/naming/>. `le` and `quantile` are spelled `1.0`,
//! not `1`, as Prometheus 3 stores them (`labels.FormatOpenMetricsFloat`).

use crate::unit::Unit;

/// Suffixes of monotonic counters.
const MONOTONIC_SUFFIXES: [&str; 4] = ["_total", "_count", "_sum", "_bucket"];
/// Suffixes of counts of values. Their unit is not the unit of the values.
const COUNT_SUFFIXES: [&str; 3] = ["_count", "_bucket", "_gcount"];
/// Suffixes that follow the unit.
const AFTER_UNIT_SUFFIXES: [&str; 3] = ["_total", "_sum", "_gsum"];

/// Whether a number of unknown type is a monotonic counter, by its name in Prometheus.
pub fn is_monotonic(name: &str) -> bool {
    MONOTONIC_SUFFIXES.iter().any(|end| name.ends_with(end))
}

/// Whether a part of a histogram or summary is a count of values, by its name.
pub(crate) fn is_count_of_values(name: &str) -> bool {
    COUNT_SUFFIXES.iter().any(|end| name.ends_with(end))
}

/// Unit of the values of a series of unknown type, by its name in Prometheus.
pub fn unit_of_name(name: &str) -> Option<Unit> {
    unit_suffix(name).filter(|_| !is_count_of_values(name))
}

/// Unit of a number, from the suffix of its name.
pub(crate) fn unit_suffix(name: &str) -> Option<Unit> {
    Unit::from_metric_name(
        AFTER_UNIT_SUFFIXES.iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name),
    )
}

/// Unit from a source's unit name; `None` if the name is empty.
pub(crate) fn parse_unit(text: &str) -> Option<Unit> {
    match text {
        "" => None,
        text => Some(Unit::parse(text).unwrap_or_else(|| Unit::Other(text.to_owned()))),
    }
}

/// Start and end of a cumulative value, from its creation time and its timestamp. The start is the
/// creation time, limited to the timestamp; without a creation time, it is the timestamp.
pub(crate) fn cumulative_range(
    created: Option<i64>,
    time: Option<i64>,
) -> (Option<i64>, Option<i64>) {
    match (created, time) {
        (Some(created), Some(time)) => (Some(created.min(time)), Some(time)),
        (None, time) => (time, time),
        (created, None) => (created, None),
    }
}

/// Formats a number as a label value.
pub(crate) fn number_label(number: f64) -> String {
    match number {
        f64::INFINITY => "+Inf".to_owned(),
        f64::NEG_INFINITY => "-Inf".to_owned(),
        number => format!("{number:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(name: &str, expected_grows: bool, expected_unit: Option<Unit>) {
        assert_eq!(
            (is_monotonic(name), unit_suffix(name)),
            (expected_grows, expected_unit),
            "{name}"
        );
    }

    #[test]
    fn kind_and_unit_follow_from_names() {
        check("http_requests_total", true, None);
        check("process_cpu_seconds_total", true, Some(Unit::Seconds));
        check("rpc_duration_seconds_sum", true, Some(Unit::Seconds));
        check("rpc_duration_seconds_count", true, None);
        check("rpc_duration_seconds_bucket", true, None);
        check("process_start_time_seconds", false, Some(Unit::Seconds));
        check("up", false, None);
    }

    #[test]
    fn number_labels_are_formatted_as_in_prometheus() {
        assert_eq!([0.5, 1.0, f64::INFINITY].map(number_label), ["0.5", "1.0", "+Inf"]);
    }

    #[test]
    fn start_in_the_future_is_ignored() {
        assert_eq!(cumulative_range(Some(5), Some(9)), (Some(5), Some(9)));
        assert_eq!(cumulative_range(Some(12), Some(9)), (Some(9), Some(9)));
        assert_eq!(cumulative_range(Some(5), None), (Some(5), None));
    }
}
