//! What several metrics say together, by their roles: how full something is, how often a cache had it, calls per request.

use shm::Role;
use shm::show::{Metric, Number, Value};

use crate::hist::show::{count, share};
use crate::processes::values;

/// What follows for a metric from those it is linked to; empty where nothing does.
pub(crate) fn remark(metrics: &[Metric], at: usize) -> String {
    let Some(metric) = metrics.get(at) else { return String::new() };
    let Some(linked) = metric.link.and_then(|link| metrics.get(link)) else { return String::new() };
    match (metric.role, linked.role) {
        (Role::Used | Role::Queue | Role::Size, Role::Capacity) => {
            full(metric, linked).unwrap_or_default()
        }
        (Role::Hit | Role::Miss, _) => looked_up(metrics, metric),
        (Role::Calls, _) => per_call(metric, linked).unwrap_or_default(),
        (Role::Error, _) => match (whole(metric), times(linked)) {
            (Some(failed), Some(all)) if failed <= all && all > 0 => {
                format!("{} of {}", share(failed, all), values::series(linked))
            }
            _ => String::new(),
        },
        _ => String::new(),
    }
}

fn full(metric: &Metric, capacity: &Metric) -> Option<String> {
    let (Value::Gauge(used) | Value::Counter(used)) = metric.value else { return None };
    let (Value::Gauge(most) | Value::Counter(most)) = capacity.value else { return None };
    let percent = used.as_float() / most.as_float() * 100.0;
    let most = values::number(values::unit(&capacity.unit).as_ref(), most);
    if !percent.is_finite() {
        return Some(format!("of {most}"));
    }
    Some(format!("{percent:.2} % of {most}"))
}

/// Of all that a cache was asked for, how much it had.
fn looked_up(metrics: &[Metric], of: &Metric) -> String {
    let sum = |role: Role| -> Option<u64> {
        let all = metrics.iter().filter(|metric| metric.role == role && metric.link == of.link);
        all.map(whole).try_fold(0u64, |sum, n| sum.checked_add(n?))
    };
    match (sum(Role::Hit), sum(Role::Miss)) {
        (Some(hits), Some(misses)) if hits.checked_add(misses).is_some_and(|all| all > 0) => {
            let (part, what) =
                if of.role == Role::Hit { (hits, "hits") } else { (misses, "misses") };
            let all = hits + misses;
            format!("{what} are {} of {} looks", share(part, all), count(all))
        }
        _ => String::new(),
    }
}

fn per_call(calls: &Metric, parent: &Metric) -> Option<String> {
    let (calls, parents) = (whole(calls)?, times(parent)?);
    if parents == 0 {
        return None;
    }
    Some(format!("{:.2} per {}", calls as f64 / parents as f64, values::series(parent)))
}

fn whole(metric: &Metric) -> Option<u64> {
    match metric.value {
        Value::Counter(Number::Unsigned(n)) => Some(n),
        Value::Counter(Number::Signed(n)) => n.try_into().ok(),
        _ => None,
    }
}

/// How often something was done.
fn times(metric: &Metric) -> Option<u64> {
    match &metric.value {
        Value::Histogram(of) => Some(of.count()),
        Value::InFlight(of) => Some(of.started),
        _ => whole(metric),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metric(name: &str, role: Role, link: Option<usize>, value: Value) -> Metric {
        let (labels, unit, help) = (Vec::new(), String::new(), String::new());
        Metric { name: name.into(), labels, unit, help, role, link, value }
    }

    #[test]
    fn roles_say_what_follows() {
        let counter = |n| Value::Counter(Number::Unsigned(n));
        let gauge = |n| Value::Gauge(Number::Signed(n));
        let metrics = [
            metric("most", Role::Capacity, None, gauge(64)),
            metric("queue", Role::Queue, Some(0), gauge(16)),
            metric("size", Role::Size, None, gauge(1)),
            metric("hits", Role::Hit, Some(2), counter(900)),
            metric("misses", Role::Miss, Some(2), counter(100)),
            metric("requests", Role::Other, None, counter(400)),
            metric("calls", Role::Calls, Some(5), counter(1000)),
            metric("failed", Role::Error, Some(5), counter(4)),
            metric("damaged", Role::Queue, Some(77), counter(4)),
            metric("itself", Role::Used, Some(9), counter(4)),
            metric("nothing", Role::Capacity, None, gauge(0)),
            metric("of nothing", Role::Used, Some(10), gauge(0)),
        ];
        let remarks: Vec<String> = (0..metrics.len()).map(|at| remark(&metrics, at)).collect();
        let expected = [
            "",
            "25.00 % of 64",
            "",
            "hits are 90.00 % of 1,000 looks",
            "misses are 10.00 % of 1,000 looks",
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
