//! Tables of the comparison of two captures: counts, times, and clocks.

use hist::Histogram;
use render::table::TextTable;
use render::terminal::Terminal;
use render::text::{escape_control, plural};
use render::time::format_ns;
use render::value_formatter::count;
use wire::{
    BoundedTimes, ConnectTimes, EndComparison, EndCounts, OffsetInterval, ServiceComparison,
};

use super::CaptureEnd;
use super::capture_text::{heading, headline, nonzero, quantiles};

/// The whole comparison as text.
pub fn ends_text(
    comparison: &EndComparison,
    ends: &[CaptureEnd; 2],
    terminal: &Terminal,
) -> String {
    let mut text = String::new();
    for (name, CaptureEnd { tracker, summary }) in ["client", "server"].iter().zip(ends) {
        text.push_str(&format!("{name}: {}", headline(tracker, summary)));
    }
    if comparison.services.is_empty() {
        return text;
    }
    for service in comparison.services.iter().filter(|service| service.matched > 0) {
        let title = format!("{} ({})", service.name, service.protocol.name);
        text.push_str(&heading(&title, terminal));
        text.push_str(&time_table(service, terminal));
    }
    text.push_str(&heading("Completeness", terminal));
    text.push_str(&completeness(comparison, terminal));
    for remark in remarks(comparison) {
        text.push_str(&format!("  {remark}\n"));
    }
    text.push_str(&heading("Clocks", terminal));
    text + &clocks(comparison)
}

/// Distributions of a service.
fn time_table(service: &ServiceComparison, terminal: &Terminal) -> String {
    let columns = [
        ("", false),
        ("count", true),
        ("p50", true),
        ("p99", true),
        ("p99.9", true),
        ("max", true),
    ];
    let mut table = TextTable::new(&columns);
    let mut add = |name: &str, times: u64, quantiles: [String; 4]| {
        if times > 0 {
            let [p50, p99, p999, max] = quantiles;
            table.row(vec![name.to_owned(), count(times), p50, p99, p999, max]);
        }
    };
    let mut add_exact = |name: &str, times: &Histogram| add(name, times.count(), quantiles(times));
    add_exact("latency at the client", &service.latency[0]);
    add_exact("latency at the server", &service.latency[1]);
    add_exact("network, both directions", &service.network);
    for (name, times) in
        [("  to the server", &service.to_server), ("  to the client", &service.to_client)]
    {
        add(name, times.least.count(), bounded_quantiles(times));
    }
    let ConnectTimes { ends: [connect_client, connect_server], network: connect_network } =
        &service.connect;
    for (name, times) in [
        ("server time, first requests", &service.first_server_time),
        ("server time, others", &service.server_time),
        ("connect at the client", connect_client),
        ("connect at the server", connect_server),
        ("connect, network", connect_network),
    ] {
        add(name, times.count(), quantiles(times));
    }
    table.text(terminal)
}

/// As [`quantiles`], of times that are known within bounds.
fn bounded_quantiles(times: &BoundedTimes) -> [String; 4] {
    let (least, most) = (quantiles(&times.least), quantiles(&times.most));
    std::array::from_fn(|at| match least[at] == most[at] {
        true => least[at].clone(),
        false => format!("{} to {}", least[at], most[at]),
    })
}

/// Requests of each service at both ends.
fn completeness(comparison: &EndComparison, terminal: &Terminal) -> String {
    let columns = [
        ("service", false),
        ("requests", true),
        ("matched", true),
        ("waits", true),
        ("later statements", true),
        ("client only", true),
        ("server only", true),
        ("client not measured", true),
        ("server not measured", true),
    ];
    let mut table = TextTable::new(&columns);
    for service in &comparison.services {
        let [client, server] = &service.ends;
        let missing = |counts: &EndCounts| nonzero(counts.not_measured + counts.in_flight);
        table.row(vec![
            escape_control(&service.name),
            count(service.requests()),
            count(service.matched),
            nonzero(service.waits),
            nonzero(service.later_statements),
            unmatched(client),
            unmatched(server),
            missing(client),
            missing(server),
        ]);
    }
    table.text(terminal)
}

/// Requests of one end only, with the reasons.
fn unmatched(counts: &EndCounts) -> String {
    let reasons = [
        ("connection", counts.missing_connection),
        ("request", counts.missing_request),
        ("sequence", counts.missing_sequence),
    ];
    let reasons: Vec<String> = reasons
        .iter()
        .filter(|(_, requests)| *requests > 0)
        .map(|(reason, requests)| format!("{reason} {}", count(*requests)))
        .collect();
    match reasons.is_empty() {
        true => "0".to_owned(),
        false => format!("{} ({})", count(counts.unmatched()), reasons.join(", ")),
    }
}

/// What the counts do not say by themselves.
fn remarks(comparison: &EndComparison) -> Vec<String> {
    let [client, server] = comparison.connections;
    let shared = comparison.shared_connections;
    let mut remarks = vec![format!(
        "{} at the client, {} at the server, {} at both",
        plural(client, "connection", "connections"),
        count(server),
        count(shared)
    )];
    if shared == 0 && client > 0 && server > 0 {
        remarks.push(
            "no connection is in both: addresses are translated (NAT, a proxy), or the times differ"
                .to_owned(),
        );
    }
    let sum = |of: fn(&ServiceComparison) -> u64| comparison.services.iter().map(of).sum::<u64>();
    let negative = sum(|service| service.negative);
    if negative > 0 {
        remarks.push(format!(
            "{} took longer at the server than at the client and have no time in the network: \
             the time stamps are inexact, or the files are exchanged (the client's comes first)",
            plural(negative, "matched request", "matched requests")
        ));
    }
    let without_one_way = sum(|service| service.without_one_way);
    if without_one_way > 0 {
        remarks.push(format!(
            "{} have no times of both directions: the difference of the clocks is contradictory \
             there (a clock was set, or time stamps are inexact)",
            plural(without_one_way, "matched request", "matched requests")
        ));
    }
    let dropped: u64 = comparison.dropped_requests.iter().sum();
    if dropped > 0 {
        remarks.push(format!(
            "{} were not compared because a capture has too many; compare shorter captures",
            plural(dropped, "request", "requests")
        ));
    }
    remarks
}

/// The server's clock compared with the client's.
fn clocks(comparison: &EndComparison) -> String {
    let Some(offset) = &comparison.offset else {
        return "  the difference of the clocks is not known\n".to_owned();
    };
    let mut text = String::new();
    for (name, interval) in [
        ("first request", &offset.first),
        ("last request", &offset.last),
        ("best known", &offset.narrowest),
    ] {
        text.push_str(&format!("  server minus client, {name}: {}\n", interval_text(interval)));
    }
    let error = |of: Option<hist::Bracket>| of.map_or_else(String::new, |b| format_ns(b.estimate));
    let (p50, max) = (error(offset.width.quantile(0.5)), error(offset.width.max()));
    text + &format!("  width of the interval: p50 {p50}, max {max}\n")
}

/// Both bounds, in seconds with all digits.
fn interval_text(interval: &OffsetInterval) -> String {
    let seconds = |ns: i64| {
        let sign = if ns < 0 { '-' } else { '+' };
        let ns = ns.unsigned_abs();
        format!("{sign}{}.{:09} s", ns / 1_000_000_000, ns % 1_000_000_000)
    };
    format!("{} to {}", seconds(interval.lower), seconds(interval.upper))
}
