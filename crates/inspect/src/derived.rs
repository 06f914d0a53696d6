//! Values derived from several metrics by their roles: utilisation, cache hit ratio, calls per
//! request.

use shm::MetricRole;
use shm::snapshot::{MetricValue, NumericValue, ProcessSeries};

use crate::values;
use render::value_formatter::{count, share};

/// Remark on a metric, derived from its related metrics; empty if there is none.
pub(crate) fn derived_remark(metrics: &[ProcessSeries], at: usize) -> String {
    let Some(metric) = metrics.get(at) else { return String::new() };
    let Some(linked) = metric.related_metric.and_then(|link| metrics.get(link)) else {
        return String::new();
    };
    match (metric.role, linked.role) {
        (MetricRole::Usage | MetricRole::Queue | MetricRole::Size, MetricRole::Capacity) => {
            utilisation(metric, linked).unwrap_or_default()
        }
        (MetricRole::Hit | MetricRole::Miss, _) => hit_ratio(metrics, metric),
        (MetricRole::Subcalls, _) => per_call(metric, linked).unwrap_or_default(),
        (MetricRole::Error, _) => match (integer_value(metric), event_count(linked)) {
            (Some(failed), Some(all)) if failed <= all && all > 0 => {
                format!("{} of {}", share(failed, all), values::series_name(linked))
            }
            _ => String::new(),
        },
        _ => String::new(),
    }
}

fn utilisation(metric: &ProcessSeries, capacity: &ProcessSeries) -> Option<String> {
    let (MetricValue::Gauge(used) | MetricValue::Counter(used)) = metric.value else { return None };
    let (MetricValue::Gauge(most) | MetricValue::Counter(most)) = capacity.value else {
        return None;
    };
    let percent = used.as_float() / most.as_float() * 100.0;
    let most = values::format_number(values::parse_unit(&capacity.unit).as_ref(), most);
    if !percent.is_finite() {
        return Some(format!("of {most}"));
    }
    Some(format!("{percent:.2} % of {most}"))
}

/// Hit ratio of a cache.
fn hit_ratio(metrics: &[ProcessSeries], of: &ProcessSeries) -> String {
    let sum = |role: MetricRole| -> Option<u64> {
        let all = metrics
            .iter()
            .filter(|metric| metric.role == role && metric.related_metric == of.related_metric);
        all.map(integer_value).try_fold(0u64, |sum, n| sum.checked_add(n?))
    };
    match (sum(MetricRole::Hit), sum(MetricRole::Miss)) {
        (Some(hits), Some(misses)) if hits.checked_add(misses).is_some_and(|all| all > 0) => {
            let (part, what) =
                if of.role == MetricRole::Hit { (hits, "hits") } else { (misses, "misses") };
            let all = hits + misses;
            format!("{what} are {} of {} lookups", share(part, all), count(all))
        }
        _ => String::new(),
    }
}

fn per_call(calls: &ProcessSeries, parent: &ProcessSeries) -> Option<String> {
    let (calls, parents) = (integer_value(calls)?, event_count(parent)?);
    if parents == 0 {
        return None;
    }
    Some(format!("{:.2} per {}", calls as f64 / parents as f64, values::series_name(parent)))
}

fn integer_value(metric: &ProcessSeries) -> Option<u64> {
    match metric.value {
        MetricValue::Counter(NumericValue::Unsigned(n)) => Some(n),
        MetricValue::Counter(NumericValue::Signed(n)) => n.try_into().ok(),
        _ => None,
    }
}

/// Number of events of a metric.
fn event_count(metric: &ProcessSeries) -> Option<u64> {
    match &metric.value {
        MetricValue::Histogram(of) => Some(of.count()),
        MetricValue::InFlight(of) => Some(of.started),
        _ => integer_value(metric),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_metric(
        name: &str,
        role: MetricRole,
        link: Option<usize>,
        value: MetricValue,
    ) -> ProcessSeries {
        let (labels, unit, help) = (Vec::new(), String::new(), String::new());
        ProcessSeries { name: name.into(), labels, unit, help, role, related_metric: link, value }
    }

    #[test]
    fn roles_give_derived_values() {
        let counter = |n| MetricValue::Counter(NumericValue::Unsigned(n));
        let gauge = |n| MetricValue::Gauge(NumericValue::Signed(n));
        let metrics = [
            test_metric("most", MetricRole::Capacity, None, gauge(64)),
            test_metric("queue", MetricRole::Queue, Some(0), gauge(16)),
            test_metric("size", MetricRole::Size, None, gauge(1)),
            test_metric("hits", MetricRole::Hit, Some(2), counter(900)),
            test_metric("misses", MetricRole::Miss, Some(2), counter(100)),
            test_metric("requests", MetricRole::Other, None, counter(400)),
            test_metric("calls", MetricRole::Subcalls, Some(5), counter(1000)),
            test_metric("failed", MetricRole::Error, Some(5), counter(4)),
            test_metric("damaged", MetricRole::Queue, Some(77), counter(4)),
            test_metric("itself", MetricRole::Usage, Some(9), counter(4)),
            test_metric("nothing", MetricRole::Capacity, None, gauge(0)),
            test_metric("of nothing", MetricRole::Usage, Some(10), gauge(0)),
        ];
        let remarks: Vec<String> =
            (0..metrics.len()).map(|at| derived_remark(&metrics, at)).collect();
        let expected = [
            "",
            "25.00 % of 64",
            "",
            "hits are 90.00 % of 1,000 lookups",
            "misses are 10.00 % of 1,000 lookups",
            "",
            "2.50 per requests",
            "1.00 % of requests",
            "",
            "",
            "",
            "of 0",
        ];
        assert_eq!(remarks, expected);
    }
}
