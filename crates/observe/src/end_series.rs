//! Series of matched requests.

use std::sync::Arc;

use hist::Histogram;
use wire::{
    BoundedTimes, ConnectionEnd, EndInterval, MatchedService, MatchedTotals, PairOffset,
    ReportedService,
};

use crate::interval_queue::QueuedIntervals;
use crate::metrics::{self, WireMetric};
use crate::operation_series::NumberSample;
use crate::pending_samples::{WireLabels, WireSeries};

/// Adds an interval: its start and its end.
pub(crate) fn add_interval(
    intervals: &mut QueuedIntervals,
    interval: &EndInterval,
    [start, end]: [i64; 2],
) {
    for service in &interval.services {
        add_times(intervals, service, start);
        add_counts(&mut intervals.numbers, service, start);
    }
    for service in &interval.reported {
        add_reported(&mut intervals.numbers, service, start);
    }
    for clock in &interval.clocks {
        add_clock(&mut intervals.numbers, clock, end);
    }
    let (metric, value) = (&metrics::ENDS_WAITING, interval.waiting as f64);
    intervals.numbers.push(NumberSample { metric, labels: Vec::new(), value, start: end });
}

fn labels(service: &MatchedService) -> WireLabels {
    vec![
        ("client_host", Arc::clone(&service.client_host)),
        ("server_host", Arc::clone(&service.server_host)),
        ("service", service.comparison.name.as_str().into()),
        ("protocol", service.comparison.protocol.name.into()),
    ]
}

fn with(labels: &WireLabels, name: &'static str, value: &str) -> WireLabels {
    labels.iter().cloned().chain([(name, value.into())]).collect()
}

fn add_times(intervals: &mut QueuedIntervals, service: &MatchedService, start: i64) {
    let (own, found) = (labels(service), &service.comparison);
    let mut add = |metric: &'static WireMetric, labels: WireLabels, times: &Histogram| {
        intervals.distributions.add(WireSeries { metric, labels }, start, times);
    };
    for (end, times) in ["client", "server"].into_iter().zip(&found.latency) {
        add(&metrics::ENDS_LATENCY, with(&own, "end", end), times);
    }
    add(&metrics::ENDS_NETWORK, own.clone(), &found.network);
    for (direction, BoundedTimes { least, most }) in
        [("to_server", &found.to_server), ("to_client", &found.to_client)]
    {
        let own = with(&own, "direction", direction);
        add(&metrics::ENDS_ONE_WAY, with(&own, "bound", "least"), least);
        add(&metrics::ENDS_ONE_WAY, with(&own, "bound", "most"), most);
    }
    for (request, times) in [("first", &found.first_server_time), ("other", &found.server_time)] {
        add(&metrics::ENDS_SERVER, with(&own, "request", request), times);
    }
    let [at_client, at_server] = &found.connect.ends;
    for (part, times) in
        [("client", at_client), ("server", at_server), ("network", &found.connect.network)]
    {
        add(&metrics::ENDS_CONNECT, with(&own, "part", part), times);
    }
}

fn add_counts(numbers: &mut Vec<NumberSample>, service: &MatchedService, start: i64) {
    // A clock may have been set back.
    let began = service.start.min(start);
    let own = labels(service);
    let MatchedTotals { matched, waits, later_statements, negative, without_one_way } =
        service.totals;
    let mut add = |metric, labels, count: u64| {
        numbers.push(NumberSample { metric, labels, value: count as f64, start: began });
    };
    add(&metrics::ENDS_MATCHED, own.clone(), matched);
    for (reason, count) in [
        ("wait", waits),
        ("later_statement", later_statements),
        ("negative", negative),
        ("clock", without_one_way),
    ] {
        add(&metrics::ENDS_UNTIMED, with(&own, "reason", reason), count);
    }
}

fn labels_of_reported(service: &ReportedService) -> WireLabels {
    let end = match service.end {
        ConnectionEnd::Client => "client",
        ConnectionEnd::Server => "server",
    };
    vec![
        ("reporter", Arc::clone(&service.host)),
        ("end", end.into()),
        ("service", Arc::clone(&service.service)),
        ("protocol", service.protocol.into()),
    ]
}

fn add_reported(numbers: &mut Vec<NumberSample>, service: &ReportedService, start: i64) {
    // A clock may have been set back.
    let began = service.start.min(start);
    let own = labels_of_reported(service);
    let mut add = |metric, labels, count: u64| {
        numbers.push(NumberSample { metric, labels, value: count as f64, start: began });
    };
    add(&metrics::ENDS_REPORTED, own.clone(), service.reported);
    for (reason, count) in [
        ("connection", service.missing_connection),
        ("request", service.missing_request),
        ("limit", service.limit),
        ("ambiguous", service.ambiguous),
    ] {
        add(&metrics::ENDS_UNMATCHED, with(&own, "reason", reason), count);
    }
}

fn add_clock(numbers: &mut Vec<NumberSample>, clock: &PairOffset, end: i64) {
    let hosts = vec![
        ("client_host", Arc::clone(&clock.client_host)),
        ("server_host", Arc::clone(&clock.server_host)),
    ];
    for (bound, ns) in [("lower", clock.offset.lower), ("upper", clock.offset.upper)] {
        numbers.push(NumberSample {
            metric: &metrics::ENDS_CLOCK_OFFSET,
            labels: with(&hosts, "bound", bound),
            value: ns as f64 / 1e9,
            start: end,
        });
    }
}
