//! Tables of services, statements, requests in flight, and completeness.

use hist::{Bracket, Histogram};
use render::bytes::format_bytes;
use render::table::TextTable;
use render::terminal::{Terminal, TextStyle};
use render::text::{escape_control, plural};
use render::time::{format_ns, format_time};
use render::value_formatter::{count, share};
use wire::{
    ConnectionTracker, KeyLogCounts, ServiceStatistics, StatementStatistics, TlsTotals,
    UndecodedReason, WaitRules,
};

use super::{CaptureSummary, TlsSummary};

/// Characters of a statement in a table.
const STATEMENT_CHARS: usize = 72;
/// Requests in flight that are listed.
const IN_FLIGHT_ROWS: usize = 20;

/// The whole report.
pub fn capture_text(
    tracker: &ConnectionTracker,
    summary: &CaptureSummary,
    statements: usize,
    terminal: &Terminal,
) -> String {
    let mut text = headline(tracker, summary);
    if tracker.services().is_empty() {
        return text + &other_traffic(tracker, summary);
    }
    text.push('\n');
    text.push_str(&services(tracker, terminal));
    for service in tracker.services() {
        let title = format!("{} ({})", service.name, service.protocol.name);
        let has_operations = service.completeness.measured > 0;
        if has_operations {
            text.push_str(&heading(&title, terminal));
            text.push_str(&statement_table(service, tracker, statements, terminal));
            text.push_str(&connection_times(service));
            text.push_str(&proposed_waits(service));
        }
    }
    text.push_str(&in_flight(tracker, terminal));
    text.push_str(&heading("Completeness", terminal));
    text.push_str(&completeness(tracker, terminal));
    text + &other_traffic(tracker, summary)
}

pub(crate) fn heading(title: &str, terminal: &Terminal) -> String {
    format!("\n{}\n", terminal.paint(TextStyle::Heading, &escape_control(title)))
}

pub(crate) fn headline(tracker: &ConnectionTracker, summary: &CaptureSummary) -> String {
    let packets = plural(tracker.totals().packets, "packet", "packets");
    let range = tracker.time_range().map_or_else(String::new, |(first, last)| {
        let start = format_time(i64::try_from(first).unwrap_or(i64::MAX));
        format!(" in {} from {start}", format_ns((last - first) as f64))
    });
    let of = if summary.has_port_filter { " of the ports of services" } else { "" };
    escape_control(&format!("{}: {packets}{of}{range}", summary.source)) + "\n"
}

/// Seconds of the capture; `None` if it has no length.
fn seconds(tracker: &ConnectionTracker) -> Option<f64> {
    let (first, last) = tracker.time_range()?;
    (last > first).then(|| (last - first) as f64 / 1e9)
}

fn rate(operations: u64, seconds: Option<f64>) -> String {
    let Some(seconds) = seconds else { return String::new() };
    let rate = operations as f64 / seconds;
    match rate < 10.0 {
        true => format!("{rate:.2}/s"),
        false => format!("{}/s", count(rate.round() as u64)),
    }
}

/// p50, p99, p99.9 and maximum.
pub(crate) fn quantiles(times: &Histogram) -> [String; 4] {
    let text = |found: Option<Bracket>| found.map_or_else(String::new, |b| format_ns(b.estimate));
    let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|q| text(times.quantile(q)));
    [p50, p99, p999, text(times.max())]
}

/// A count that matters only if it is not zero.
pub(crate) fn nonzero(n: u64) -> String {
    if n == 0 { String::new() } else { count(n) }
}

/// Services in the last interval, for a terminal.
pub fn live_table(tracker: &mut ConnectionTracker, elapsed_s: f64, terminal: &Terminal) -> String {
    let recent = tracker.take_recent();
    service_table(tracker, Some(elapsed_s), true, terminal, |index| {
        let recent = &recent[index];
        (quantiles(&recent.last_byte), recent.last_byte.count(), nonzero(recent.errors))
    })
}

fn services(tracker: &ConnectionTracker, terminal: &Terminal) -> String {
    service_table(tracker, seconds(tracker), false, terminal, |index| {
        let total = tracker.services()[index].statements.total();
        (quantiles(&total.work().last_byte), total.operations(), count(total.errors()))
    })
}

/// Table of services; `of` returns quantiles, number of operations and errors of one of them. A
/// live table has no columns of operations and waits.
fn service_table(
    tracker: &ConnectionTracker,
    elapsed_s: Option<f64>,
    is_live: bool,
    terminal: &Terminal,
    of: impl Fn(usize) -> ([String; 4], u64, String),
) -> String {
    let columns = [
        ("service", false),
        ("protocol", false),
        ("operations", true),
        ("rate", true),
        ("p50", true),
        ("p99", true),
        ("p99.9", true),
        ("max", true),
        ("errors", true),
        ("waits", true),
        ("in flight", true),
        ("not measured", true),
    ];
    let is_shown = |name: &str| !is_live || !["operations", "waits"].contains(&name);
    let shown = columns.map(|(name, _)| is_shown(name));
    let columns: Vec<_> = columns.into_iter().filter(|(name, _)| is_shown(name)).collect();
    let mut table = TextTable::new(&columns);
    let in_flight = tracker.in_flight();
    for (index, service) in tracker.services().iter().enumerate() {
        let ([p50, p99, p999, max], operations, errors) = of(index);
        let own = in_flight.iter().filter(|summary| summary.service == index);
        let row = [
            escape_control(&service.name),
            service.protocol.name.to_owned(),
            count(operations),
            rate(operations, elapsed_s),
            p50,
            p99,
            p999,
            max,
            errors,
            nonzero(service.completeness.waits),
            nonzero(own.map(|summary| summary.requests).sum()),
            count(service.completeness.not_measured.total()),
        ];
        let cells = row.into_iter().zip(shown).filter(|(_, is_shown)| *is_shown);
        table.row(cells.map(|(cell, _)| cell).collect());
    }
    table.text(terminal)
}

fn statement_table(
    service: &ServiceStatistics,
    tracker: &ConnectionTracker,
    shown: usize,
    terminal: &Terminal,
) -> String {
    let columns = [
        ("statement", false),
        ("operations", true),
        ("rate", true),
        ("time", true),
        ("p50", true),
        ("p99", true),
        ("p99.9", true),
        ("max", true),
        ("errors", true),
    ];
    let mut table = TextTable::new(&columns);
    let total_ns = service.statements.total().total_time_ns;
    let statements = service.statements.statements();
    let mut add = |name: String, of: &StatementStatistics| {
        if of.operations() > 0 {
            let [p50, p99, p999, max] = quantiles(&of.work().last_byte);
            table.row(vec![
                name.clone(),
                count(of.operations()),
                rate(of.operations(), seconds(tracker)),
                time_share(of.total_time_ns, total_ns),
                p50,
                p99,
                p999,
                max,
                errors(of),
            ]);
        }
        if of.waits.last_byte.count() > 0 {
            let [p50, p99, p999, max] = quantiles(&of.waits.last_byte);
            let waits = of.waits.last_byte.count();
            table.row(vec![
                format!("{name} (wait)"),
                count(waits),
                rate(waits, seconds(tracker)),
                String::new(),
                p50,
                p99,
                p999,
                max,
                String::new(),
            ]);
        }
    };
    for statement in statements.iter().take(shown) {
        add(statement_name(statement), statement);
    }
    let mut rest = service.statements.other().clone();
    let hidden = statements.get(shown..).unwrap_or_default();
    hidden.iter().for_each(|statement| rest.merge(statement));
    add(format!("other ({})", rest_note(service, hidden.len())), &rest);
    table.text(terminal)
}

fn rest_note(service: &ServiceStatistics, hidden: usize) -> String {
    let hidden = plural(hidden as u64, "statement", "statements");
    match service.statements.merged_statements() {
        0 => hidden,
        merged => {
            let limit = count(service.statements.limit() as u64);
            format!("{hidden}, and {} merged at the limit of {limit}", count(merged))
        }
    }
}

fn time_share(part: u128, total: u128) -> String {
    let bounded = |ns: u128| u64::try_from(ns).unwrap_or(u64::MAX);
    share(bounded(part), bounded(total))
}

/// Errors with their most frequent classes.
fn errors(of: &StatementStatistics) -> String {
    if of.errors() == 0 {
        return String::new();
    }
    let mut classes: Vec<(&str, u64)> =
        of.failed.iter().map(|(class, failed)| (&**class, failed.last_byte.count())).collect();
    model::sort::by_key(&mut classes, |(class, errors)| (std::cmp::Reverse(*errors), *class));
    let names: Vec<&str> = classes.iter().take(3).map(|(class, _)| *class).collect();
    format!("{} ({})", count(of.errors()), escape_control(&names.join(", ")))
}

fn statement_name(statement: &StatementStatistics) -> String {
    let name = match (statement.verb.is_empty(), statement.statement.is_empty()) {
        (_, true) => statement.verb.to_string(),
        (true, false) => statement.statement.to_string(),
        (false, false) => format!("{} {}", statement.verb, statement.statement),
    };
    let name = escape_control(&name);
    match name.char_indices().nth(STATEMENT_CHARS) {
        Some((end, _)) => format!("{}...", &name[..end]),
        None => name,
    }
}

/// Times of the transport and of the clients.
fn connection_times(service: &ServiceStatistics) -> String {
    let times = [
        ("connect", &service.connect),
        ("round trip", &service.round_trip),
        ("acknowledgement", &service.acknowledgement),
        ("client think time", &service.client_think),
    ];
    let mut text = String::new();
    for (name, times) in times {
        if let (Some(p50), Some(p99)) = (times.quantile(0.5), times.quantile(0.99)) {
            let (p50, p99) = (format_ns(p50.estimate), format_ns(p99.estimate));
            text.push_str(&format!("  {name}: p50 {p50}, p99 {p99} of {}\n", count(times.count())));
        }
    }
    text
}

/// Statements that may wait by design.
fn proposed_waits(service: &ServiceStatistics) -> String {
    let mut text = String::new();
    for statement in service.statements.statements() {
        let Some(proposed) = statement.timeouts.proposal() else { continue };
        let rule = WaitRules::rule_of(&statement.verb, &statement.statement);
        let rule = escape_control(&rule);
        text.push_str(&format!(
            "  proposed wait: {rule}: {proposed}; --wait '{rule}' counts them as waits\n"
        ));
    }
    text
}

fn in_flight(tracker: &ConnectionTracker, terminal: &Terminal) -> String {
    let summaries = tracker.in_flight();
    let Some((_, now)) = tracker.time_range().filter(|_| !summaries.is_empty()) else {
        return String::new();
    };
    let columns = [("request", false), ("service", false), ("requests", true), ("oldest", true)];
    let mut table = TextTable::new(&columns);
    for summary in summaries.iter().take(IN_FLIGHT_ROWS) {
        let statement = StatementStatistics {
            verb: summary.verb.as_str().into(),
            statement: summary.statement.as_str().into(),
            ..StatementStatistics::default()
        };
        let wait = if summary.is_wait { " (wait)" } else { "" };
        table.row(vec![
            statement_name(&statement) + wait,
            escape_control(&tracker.services()[summary.service].name),
            count(summary.requests),
            format_ns(now.saturating_sub(summary.oldest) as f64),
        ]);
    }
    let more = summaries.len().saturating_sub(IN_FLIGHT_ROWS);
    if more > 0 {
        table.remark(format!("and {} more", count(more as u64)));
    }
    heading("In flight at the end", terminal) + &table.text(terminal)
}

/// Requests, and what is missing of them.
fn completeness(tracker: &ConnectionTracker, terminal: &Terminal) -> String {
    let columns = [
        ("service", false),
        ("requests", true),
        ("measured", true),
        ("not measured", true),
        ("in flight", true),
        ("connections", true),
        ("from the middle", true),
        ("gaps", true),
        ("gap bytes", true),
        ("unparsed", true),
        ("encrypted", true),
    ];
    let mut table = TextTable::new(&columns);
    let in_flight = tracker.in_flight();
    for (index, service) in tracker.services().iter().enumerate() {
        let found = &service.completeness;
        let own = in_flight.iter().filter(|summary| summary.service == index);
        let pending: u64 = own.map(|summary| summary.requests).sum();
        let not_measured = found.not_measured.total();
        let connections = found.connections_from_start + found.connections_from_middle;
        table.row(vec![
            escape_control(&service.name),
            count(found.measured + not_measured + pending),
            count(found.measured),
            not_measured_text(service),
            count(pending),
            count(connections),
            nonzero(found.connections_from_middle),
            nonzero(found.gaps),
            bytes(found.gap_bytes),
            bytes(found.unparsed_bytes),
            encrypted(service),
        ]);
    }
    table.text(terminal)
}

fn bytes(n: u64) -> String {
    if n == 0 { String::new() } else { format_bytes(n) }
}

fn encrypted(service: &ServiceStatistics) -> String {
    let found = &service.completeness;
    let mut parts = Vec::new();
    if found.encrypted_connections > 0 {
        let connections = plural(found.encrypted_connections, "connection", "connections");
        parts.push(format!("{connections}, {}", format_bytes(found.encrypted_bytes)));
    }
    if found.library_sessions > 0 {
        let sessions = plural(found.library_sessions, "session", "sessions");
        let size = format_bytes(found.library_bytes);
        parts.push(format!("{sessions}, {size} read at the library"));
    }
    parts.join("; ")
}

fn not_measured_text(service: &ServiceStatistics) -> String {
    let counts = &service.completeness.not_measured;
    let reasons: Vec<String> = counts
        .by_reason()
        .iter()
        .filter(|(_, requests)| *requests > 0)
        .map(|(reason, requests)| format!("{} {}", reason.replace('_', " "), count(*requests)))
        .collect();
    match reasons.is_empty() {
        true => "0".to_owned(),
        false => format!("{} ({})", count(counts.total()), reasons.join(", ")),
    }
}

/// What was decrypted with a key log, and which sessions were not, to their end.
fn key_log_line(counts: &KeyLogCounts) -> String {
    let sessions = plural(counts.sessions, "session", "sessions");
    let mut line =
        format!("decrypted with the key log: {sessions}, {}", format_bytes(counts.bytes));
    let failures = counts.failures.iter().filter(|(_, sessions)| *sessions > 0);
    let failures: Vec<String> = failures
        .map(|(reason, sessions)| format!("{} {}", reason.replace('_', " "), count(*sessions)))
        .collect();
    if !failures.is_empty() {
        line.push_str(&format!("; not to the end: {}", failures.join(", ")));
    }
    line
}

/// What was read at TLS libraries, and which of it was not measured.
fn tls_line(summary: &TlsSummary, totals: &TlsTotals) -> String {
    let files = plural(summary.files.len() as u64, "library", "libraries");
    let sessions = plural(totals.sessions, "session", "sessions");
    let mut line = format!("TLS read at {files}: {sessions}, {}", format_bytes(totals.bytes));
    for (bytes, what) in [
        (totals.without_socket_bytes, "before the socket was known"),
        (totals.without_service_bytes, "of ports without a known protocol"),
        (totals.other_end_bytes, "at clients of servers that are read too"),
    ] {
        if bytes > 0 {
            line.push_str(&format!(", {} {what}", format_bytes(bytes)));
        }
    }
    if summary.left_out.count > 0 {
        let files = plural(summary.left_out.count, "library", "libraries");
        line.push_str(&format!("; {files} not read"));
    }
    if summary.lost_events > 0 {
        line.push_str(&format!("; {} lost", plural(summary.lost_events, "chunk", "chunks")));
    }
    line
}

/// Packets that belong to no service.
fn other_traffic(tracker: &ConnectionTracker, summary: &CaptureSummary) -> String {
    let totals = tracker.totals();
    let mut lines = Vec::new();
    for (traffic, name) in [(totals.other_tcp, "TCP"), (totals.other_udp, "UDP")] {
        if traffic.packets > 0 {
            let packets = plural(traffic.packets, "packet", "packets");
            let size = format_bytes(traffic.bytes);
            lines.push(format!("{packets} ({size}) of {name} ports without a known protocol"));
        }
    }
    let ports = tracker.other_ports();
    if !ports.is_empty() {
        let first: Vec<String> = ports.iter().take(5).map(|(port, _)| port.to_string()).collect();
        lines.push(format!("their ports with the most bytes: {}", first.join(", ")));
    }
    for (reason, packets) in UndecodedReason::ALL.iter().zip(totals.undecoded) {
        if packets > 0 {
            let packets = plural(packets, "packet", "packets");
            lines.push(format!("{packets} not decoded: {}", reason.label().replace('_', " ")));
        }
    }
    lines.extend(summary.tls.as_ref().map(|tls| tls_line(tls, tracker.tls_totals())));
    lines.extend(summary.key_log.as_ref().map(key_log_line));
    if summary.reported_drops > 0 {
        let packets = plural(summary.reported_drops, "packet", "packets");
        lines.push(format!("{packets} dropped by the capture"));
    }
    if totals.without_time > 0 {
        let packets = plural(totals.without_time, "packet", "packets");
        lines.push(format!("{packets} without a time"));
    }
    lines.iter().map(|line| format!("  {line}\n")).collect()
}
