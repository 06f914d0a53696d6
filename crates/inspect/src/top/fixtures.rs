//! Test fixtures.

use hist::{Histogram, Integers, Scheme};
use shm::snapshot::{
    InFlightSnapshot, MetricRole, MetricValue, NumericValue, OperationSnapshot, ProcessSeries,
};

use crate::top::partial_value::SampledSeries;
use crate::top::process_sample::ProcessSample;

pub(crate) const S: u64 = 1_000_000_000;

pub(crate) fn recorded(values: &[u64]) -> MetricValue {
    let mut histogram = Histogram::new(Scheme::Exp2(Integers::<5>::grid()));
    values.iter().for_each(|&value| histogram.record(value as f64));
    MetricValue::Histogram(Box::new(histogram))
}

pub(crate) fn metric(name: &str, unit: &str, value: MetricValue) -> ProcessSeries {
    ProcessSeries {
        name: name.into(),
        labels: Vec::new(),
        unit: unit.into(),
        help: String::new(),
        role: MetricRole::Other,
        related_metric: None,
        value,
    }
}

pub(crate) fn labelled(name: &str, label: &str, value: MetricValue) -> ProcessSeries {
    ProcessSeries { labels: vec![("route".into(), label.into())], ..metric(name, "ns", value) }
}

pub(crate) fn errors(name: &str, count: u64) -> ProcessSeries {
    ProcessSeries {
        role: MetricRole::Error,
        ..metric(name, "1", MetricValue::Counter(NumericValue::Unsigned(count)))
    }
}

/// In-flight operations with these start times.
pub(crate) fn in_flight(name: &str, starts: &[u64]) -> ProcessSeries {
    let operations = starts.iter().map(|&start_ns| OperationSnapshot {
        start_ns,
        tags: vec![("device".into(), "sda".into())],
        number: 1,
    });
    let started = 100 + starts.len() as u64;
    let operations = operations.collect();
    metric(
        name,
        "",
        MetricValue::InFlight(InFlightSnapshot { started, ended: 100, untracked: 0, operations }),
    )
}

pub(crate) fn process_sample(
    pid: u32,
    program: &str,
    at_ns: u64,
    metrics: Vec<ProcessSeries>,
) -> ProcessSample {
    ProcessSample {
        path: format!("/dev/shm/{pid}").into(),
        pid,
        program: program.into(),
        command: format!("/usr/bin/{program} --serve"),
        format: "topdeck",
        state: shm::ProcessState::Running { pid },
        at_ns,
        metrics: Ok(metrics.into_iter().map(SampledSeries::New).collect()),
        dropped: 0,
        rejected: 0,
    }
}

/// A server with these response times in each second, and an idle worker, after two samples.
pub(crate) fn two(at_s: u64, times: &[u64]) -> Vec<ProcessSample> {
    let all: Vec<u64> = times.iter().cycle().take(times.len() * at_s as usize).copied().collect();
    let half = &all[..all.len() / 2];
    vec![
        process_sample(
            812,
            "shop",
            at_s * S,
            vec![
                labelled("answer_duration", "cart", recorded(&all)),
                labelled("answer_duration", "search", recorded(half)),
                metric("query_duration", "ns", recorded(half)),
                errors("answers_failed_total", 3 * at_s),
                in_flight(
                    "answers",
                    &[(at_s * S).saturating_sub(2_500_000_000), at_s * S - 1_000_000],
                ),
                metric("cache_bytes", "By", MetricValue::Gauge(NumericValue::Signed(12_000_000))),
            ],
        ),
        process_sample(
            77,
            "worker",
            at_s * S,
            vec![metric("job_duration", "ns", recorded(&[3_000_000]))],
        ),
    ]
}
