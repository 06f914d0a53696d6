//! Servers under load: ingest, response times, and cost at idle.
//!
//! `bodies.rs` encodes requests, `server_node.rs` starts the servers, `ingest_run.rs` sends,
//! `statsd.rs` sends datagrams, `idle.rs` measures idle servers.
//! `TOPDECK_BENCH_SERVE="idle,remote write 1,topdeck"` restricts the run to parts whose name
//! contains one of these, and to the named servers if any is named; each figure is printed as soon
//! as it is known.

mod bodies;
mod grpc;
mod idle;
mod ingest_run;
mod server_node;
mod statsd;

use std::time::Duration;

use anyhow::Result;

use self::bodies::{BUCKETS, Bodies, LABELS, LANES, RequestFormat};
use self::idle::IdleUsage;
use self::ingest_run::{IngestRun, RequestPace};
use self::server_node::{ServerKind, ServerNode, ServerRole};
use self::statsd::{DatagramTransport, OfferedLoad};
use crate::Effort;
use crate::report::{ReportSection, ReportTable, ReportTarget, Samples, number};

/// Samples per request: in the closed loop, and on a schedule.
const NUMBERS: usize = 2_000;
const NUMBERS_SCHEDULED: usize = 500;
const HISTOGRAMS: usize = 200;
const HISTOGRAMS_SCHEDULED: usize = 100;
/// Target rate. Points per second.
const NUMBERS_RATE: f64 = 500_000.0;
const HISTOGRAMS_RATE: f64 = 150_000.0;
const TIMINGS_RATE: f64 = 1e6;

const FORMATS: [RequestFormat; 4] = [
    RequestFormat::RemoteWrite1,
    RequestFormat::RemoteWrite2,
    RequestFormat::OtlpHttp,
    RequestFormat::OtlpGrpc,
];
const SERVERS: [ServerKind; 3] =
    [ServerKind::Topdeck, ServerKind::Prometheus, ServerKind::VictoriaMetrics];
const ROLES: [ServerRole; 4] =
    [ServerRole::ServeWithHost, ServerRole::Serve, ServerRole::AgentWithHost, ServerRole::Agent];

/// Results of one server and one format.
struct ServerResult {
    server: ServerKind,
    format: RequestFormat,
    fast: Vec<IngestRun>,
    scheduled: Option<IngestRun>,
    failed: Option<String>,
}

struct DatagramRun {
    transport: DatagramTransport,
    per_datagram: usize,
    rounds: Vec<OfferedLoad>,
}

/// Size of the run.
struct ServeWork {
    rounds: usize,
    /// Duration of a load at the target rate.
    fast: f64,
    scheduled: f64,
    idle: Duration,
}

/// Runs the whole comparison.
pub(crate) fn run(effort: &Effort) -> ReportSection {
    let work = match effort.quick {
        true => ServeWork { rounds: 1, fast: 2.0, scheduled: 4.0, idle: Duration::from_secs(5) },
        false => {
            ServeWork { rounds: 3, fast: 10.0, scheduled: 20.0, idle: Duration::from_secs(60) }
        }
    };
    let mut method = method(effort);
    let mut loads = Vec::new();
    if let Err(error) = server_node::build_topdeck() {
        method += &format!("\n\ncannot build topdeck: {error:#}.");
    }
    for format in FORMATS.into_iter().filter(|format| is_selected(format.name())) {
        loads.extend(run_format(format, &work));
    }
    let mut streams = Vec::new();
    for (way, per_datagram) in [
        (DatagramTransport::Udp, 10),
        (DatagramTransport::Udp, 1),
        (DatagramTransport::Unix, 10),
        (DatagramTransport::Unix, 1),
    ] {
        if !is_selected("StatsD") {
            continue;
        }
        print_progress(&format!("StatsD, {way:?}, {per_datagram} in a datagram …"));
        let mut rounds = Vec::new();
        for _ in 0..work.rounds {
            let during = Duration::from_secs_f64(work.fast / 2.0);
            match statsd::run_offer(way, per_datagram, TIMINGS_RATE, during) {
                Ok(offered) => rounds.push(offered),
                Err(error) => method += &format!("\n\nStatsD, {way:?}: {error:#}."),
            }
        }
        streams.push(DatagramRun { transport: way, per_datagram, rounds });
    }
    let mut idles = Vec::new();
    for role in ROLES.into_iter().filter(|_| is_selected("idle")) {
        print_progress(&format!("idle: {} …", role.name()));
        match idle::watch(role, work.idle) {
            Ok(idle) => idles.push(idle),
            Err(error) => method += &format!("\n\n{}: {error:#}.", role.name()),
        }
    }
    for one in &loads {
        if let Some(why) = &one.failed {
            let why = why.replace(['|', '\n'], " ");
            method += &format!("\n\n{}, {}: {why}.", one.server.name(), one.format.name());
        }
    }
    ReportSection {
        name: crate::SERVE,
        title: "Servers under load",
        method,
        tables: vec![
            throughput_table(&loads),
            latency_table(&loads),
            datagram_table(&streams),
            idle_table(&idles),
        ],
        targets: targets(&loads, &streams, &idles),
        samples: samples(&loads, &streams),
    }
}

/// The requested parts; `None` for all.
fn parts() -> Option<String> {
    std::env::var("TOPDECK_BENCH_SERVE").ok()
}

fn is_selected(name: &str) -> bool {
    parts().is_none_or(|parts| parts.split(',').any(|part| name.contains(part)))
}

fn is_server_selected(who: ServerKind) -> bool {
    let named = |who: ServerKind| who.name().to_lowercase();
    let Some(parts) = parts() else { return true };
    let of =
        |who: ServerKind| parts.split(',').any(|part| named(who).contains(&part.to_lowercase()));
    of(who) || !SERVERS.into_iter().any(of)
}

fn print_progress(what: &str) {
    eprintln!("        {what}");
}

/// Runs all servers in turn in each round.
fn run_format(format: RequestFormat, work: &ServeWork) -> Vec<ServerResult> {
    let (points, scheduled, rate) = match format.is_otlp() {
        true => (HISTOGRAMS, HISTOGRAMS_SCHEDULED, HISTOGRAMS_RATE),
        false => (NUMBERS, NUMBERS_SCHEDULED, NUMBERS_RATE),
    };
    let takes = |who: &ServerKind| who.path(format).is_some() && is_server_selected(*who);
    let servers = SERVERS.into_iter().filter(takes);
    let mut loads: Vec<ServerResult> = servers
        .map(|who| ServerResult {
            server: who,
            format,
            fast: Vec::new(),
            scheduled: None,
            failed: None,
        })
        .collect();
    let requests = |seconds: f64, points: usize| (rate * seconds / points as f64) as usize;
    let bodies = Bodies::new(format, points, requests(work.fast, points));
    for round in 0..work.rounds {
        for one in loads.iter_mut().filter(|one| one.failed.is_none()) {
            print_progress(&format!("{}, {}, round {round} …", one.server.name(), format.name()));
            match run_once(one.server, &bodies, RequestPace::Closed) {
                Ok(taken) => one.fast.push(taken),
                Err(error) => one.failed = Some(format!("{error:#}")),
            }
        }
    }
    drop(bodies);
    let half = rate / 2.0;
    let bodies = Bodies::new(format, scheduled, requests(work.scheduled, scheduled) / 2);
    for one in loads.iter_mut().filter(|one| one.failed.is_none()) {
        print_progress(&format!("{}, {}, on a schedule …", one.server.name(), format.name()));
        match run_once(one.server, &bodies, RequestPace::Open(half)) {
            Ok(taken) => one.scheduled = Some(taken),
            Err(error) => one.failed = Some(format!("{error:#}")),
        }
    }
    loads
}

fn run_once(who: ServerKind, bodies: &Bodies, pace: RequestPace) -> Result<IngestRun> {
    let mut node = ServerNode::start(who, ServerRole::Serve)?;
    let taken = ingest_run::send(&mut node, who, bodies, pace)?;
    node.stop()?;
    if parts().is_some() {
        print_progress(&format!(
            "{:.0} points/s, server {:.2} s ({:.2} s until idle) of {:.2} s, sender {:.2} s, \
             deferred {}, {} MB, {:.0} B a request, p50 {:.2} p99 {:.2} p99.9 {:.2} max {:.2} ms",
            taken.per_second(),
            taken.cpu.as_secs_f64(),
            taken.cpu_until_idle.as_secs_f64(),
            taken.wall.as_secs_f64(),
            taken.sender_cpu.as_secs_f64(),
            taken.deferred,
            taken.memory_bytes / 1_000_000,
            bodies.bytes(),
            taken.latency_ms(0.5),
            taken.latency_ms(0.99),
            taken.latency_ms(0.999),
            taken.latency_ms(1.0),
        ));
    }
    Ok(taken)
}

fn method(effort: &Effort) -> String {
    let mut text = format!(
        "Real servers as separate processes, each with an empty directory on the same disk, loaded \
         over loopback by this program, which shares the two CPUs with them. Requests are \
         encoded before the measurement. CPU time is that of the whole process, user and system, \
         from `/proc/PID/stat`; that of the senders is listed separately.\n\nNumbers: {LANES} \
         connections, each with {NUMBERS} series of {LABELS} labels; a request has one sample of \
         each ({NUMBERS_SCHEDULED} on a schedule), in snappy. Histograms: cumulative exponential \
         histograms of {BUCKETS} buckets and 4 attributes, {HISTOGRAMS} in a request \
         ({HISTOGRAMS_SCHEDULED} on a schedule), uncompressed. Timestamps of a series increase \
         by 5 s per request. The series are created before the measurement. “As fast as \
         possible” (closed loop): each connection sends the next request after the last \
         response; a deferred request (429) is retried and its time is included. “Until idle” is \
         the CPU time until the server was idle. On a schedule (open loop), requests are sent at \
         half the target rate, and the latency starts at the scheduled time, so that requests \
         delayed by a late response count as late.\n\nAcknowledgements have different meanings: \
         topdeck acknowledges a request that is on disk and survives a power failure \
         (`durability = \"disk\"`, the default); Prometheus has written its WAL without waiting \
         for the disk; VictoriaMetrics has the data in memory. Neither of them has a setting to \
         wait for the disk. Prometheus does not support OTLP over gRPC; VictoriaMetrics is the \
         package of Debian, which supports neither remote write 2 nor OTLP.\n\nStatsD: two \
         senders offer a million timings of 1,000 series per second, with lines of equal length; \
         over UDP one system call sends several datagrams (`UDP_SEGMENT`), so that the sender is \
         not the bottleneck. Datagrams that a sender cannot send in time are not offered. \
         Dropped datagrams are those for which the socket buffer had no space, as reported by \
         topdeck. Neither peer supports StatsD."
    );
    if effort.quick {
        text += "\n\nQuick run: one round, reduced sizes.";
    }
    text
}

fn to_samples(what: &str, values: impl IntoIterator<Item = f64>) -> Samples {
    Samples { values: values.into_iter().collect(), ..Samples::new(what, "") }
}

fn throughput_table(loads: &[ServerResult]) -> ReportTable {
    let header = [
        "as fast as possible",
        "server",
        "acknowledged means",
        "points/s",
        "server, CPU µs/point",
        "until idle",
        "senders, CPU µs/point",
        "deferred",
        "memory MB",
    ];
    let mut table = ReportTable::new("Acknowledged points: median (min–max).", 3, &header);
    for one in loads {
        let per_point = |time: fn(&IngestRun) -> Duration| {
            let us = |taken: &IngestRun| time(taken).as_secs_f64() * 1e6 / taken.points as f64;
            to_samples("", one.fast.iter().map(us)).cell()
        };
        table.rows.push(vec![
            one.format.name().to_owned(),
            one.server.name(),
            one.server.promise().to_owned(),
            to_samples("", one.fast.iter().map(IngestRun::per_second)).cell(),
            per_point(|taken| taken.cpu),
            per_point(|taken| taken.cpu_until_idle),
            per_point(|taken| taken.sender_cpu),
            number(to_samples("", one.fast.iter().map(|taken| taken.deferred as f64)).median()),
            number(
                to_samples("", one.fast.iter().map(|taken| taken.memory_bytes as f64 / 1e6))
                    .median(),
            ),
        ]);
    }
    table
}

fn latency_table(loads: &[ServerResult]) -> ReportTable {
    let header = [
        "on a schedule",
        "server",
        "acknowledged means",
        "intended points/s",
        "answered points/s",
        "p50 ms",
        "p99 ms",
        "p99.9 ms",
        "greatest ms",
        "server, CPU %",
        "senders, CPU %",
        "requests",
    ];
    let mut table = ReportTable::new("Response times.", 3, &header);
    for one in loads {
        let Some(taken) = &one.scheduled else { continue };
        let percent =
            |time: Duration| number(time.as_secs_f64() / taken.wall.as_secs_f64() * 100.0);
        let mut row = vec![
            one.format.name().to_owned(),
            one.server.name(),
            one.server.promise().to_owned(),
            number(rate(one.format) / 2.0),
            number(taken.per_second()),
        ];
        row.extend([0.5, 0.99, 0.999, 1.0].map(|share| number(taken.latency_ms(share))));
        row.extend([percent(taken.cpu), percent(taken.sender_cpu)]);
        row.push(taken.latencies.len().to_string());
        table.rows.push(row);
    }
    table
}

fn rate(format: RequestFormat) -> f64 {
    if format.is_otlp() { HISTOGRAMS_RATE } else { NUMBERS_RATE }
}

fn datagram_table(streams: &[DatagramRun]) -> ReportTable {
    let header = [
        "StatsD timings",
        "in a datagram",
        "offered/s",
        "taken/s",
        "dropped by the kernel",
        "dropped by topdeck",
        "not accounted for",
        "server, CPU µs/timing",
        "senders, CPU µs/timing",
    ];
    let mut table = ReportTable::new("Datagrams: median (min–max).", 1, &header);
    for stream in streams {
        let cell = |of_one: fn(&OfferedLoad) -> f64| {
            to_samples("", stream.rounds.iter().map(of_one)).cell()
        };
        table.rows.push(vec![
            match stream.transport {
                DatagramTransport::Udp => "UDP".to_owned(),
                DatagramTransport::Unix => "Unix socket".to_owned(),
            },
            stream.per_datagram.to_string(),
            cell(offered_per_second),
            cell(|one| one.accepted as f64 / one.wall.as_secs_f64()),
            cell(|one| one.dropped as f64),
            cell(|one| one.rejected as f64),
            cell(|one| unaccounted(one) as f64),
            cell(|one| one.cpu.as_secs_f64() * 1e6 / one.offered as f64),
            cell(|one| one.sender_cpu.as_secs_f64() * 1e6 / one.offered as f64),
        ]);
    }
    table
}

fn offered_per_second(one: &OfferedLoad) -> f64 {
    one.offered as f64 / one.wall.as_secs_f64()
}

/// Neither accepted nor reported as dropped.
fn unaccounted(one: &OfferedLoad) -> i64 {
    one.offered as i64 - (one.accepted + one.dropped + one.rejected) as i64
}

fn idle_table(idles: &[IdleUsage]) -> ReportTable {
    let header =
        ["idle", "CPU % of one CPU", "resident MB", "of it file pages", "peak since the start"];
    let mut table = ReportTable::new("At rest.", 1, &header);
    for one in idles {
        table.rows.push(vec![
            one.role.name().to_owned(),
            number(one.cpu_percent),
            number(one.resident_bytes as f64 / 1e6),
            number(one.file_bytes as f64 / 1e6),
            number(one.peak_bytes as f64 / 1e6),
        ]);
    }
    table
}

fn targets(
    loads: &[ServerResult],
    streams: &[DatagramRun],
    idles: &[IdleUsage],
) -> Vec<ReportTarget> {
    let mut targets = Vec::new();
    for stream in streams {
        let median = |of_one: fn(&OfferedLoad) -> f64| {
            let values = to_samples("", stream.rounds.iter().map(of_one));
            (!values.values.is_empty()).then(|| values.median())
        };
        let name = match stream.transport {
            DatagramTransport::Udp => "UDP",
            DatagramTransport::Unix => "Unix socket",
        };
        let what = format!("StatsD, {name}, {} in a datagram", stream.per_datagram);
        let offered = median(offered_per_second);
        targets.push(ReportTarget::at_least(
            &format!("{what}, offered"),
            TIMINGS_RATE * 0.999,
            "timings/s",
            offered,
        ));
        let lost = median(|one| unaccounted(one).unsigned_abs() as f64);
        targets.push(ReportTarget::at_most(
            &format!("{what}, not accounted for"),
            0.0,
            "timings",
            lost,
        ));
    }
    for one in loads.iter().filter(|one| one.server == ServerKind::Topdeck) {
        let name = one.format.name();
        let fast = to_samples("", one.fast.iter().map(IngestRun::per_second));
        let fast = (!fast.values.is_empty()).then(|| fast.median());
        let what = match one.format.is_otlp() {
            true => format!("{name}, exponential histograms acknowledged"),
            false => format!("{name}, samples acknowledged"),
        };
        targets.push(ReportTarget::at_least(&what, rate(one.format), "points/s", fast));
        let late = one.scheduled.as_ref().map(|taken| taken.latency_ms(0.999));
        let what = format!("{name}, p99.9 of an acknowledgement on disk at half that rate");
        targets.push(ReportTarget::at_most(&what, 50.0, "ms", late));
    }
    for one in idles {
        let (cpu, memory) = match one.role {
            ServerRole::Serve | ServerRole::ServeWithHost => (1.0, 64.0),
            ServerRole::Agent | ServerRole::AgentWithHost => (1.0, 16.0),
        };
        let what = format!("at rest, {}", one.role.name());
        targets.push(ReportTarget::at_most(&what, cpu, "% of a CPU", Some(one.cpu_percent)));
        let megabytes = one.resident_bytes as f64 / 1e6;
        targets.push(ReportTarget::at_most(
            &format!("{what}, resident memory"),
            memory,
            "MB",
            Some(megabytes),
        ));
    }
    targets
}

fn samples(loads: &[ServerResult], streams: &[DatagramRun]) -> Vec<(String, Vec<Samples>)> {
    let mut sets = Vec::new();
    for format in FORMATS {
        let rows = |value: fn(&IngestRun) -> f64| -> Vec<Samples> {
            let loads = loads.iter().filter(|one| one.format == format);
            loads.map(|one| to_samples(&one.server.name(), one.fast.iter().map(value))).collect()
        };
        let name = format.name();
        sets.push((format!("{name}, points/s"), rows(IngestRun::per_second)));
        sets.push((format!("{name}, server CPU s"), rows(|taken| taken.cpu.as_secs_f64())));
        let of_format = loads.iter().filter(|one| one.format == format);
        let latencies = of_format.filter_map(|one| {
            let ms = one.scheduled.as_ref()?.latencies.iter().map(|it| it.as_secs_f64() * 1e3);
            Some(to_samples(&one.server.name(), ms))
        });
        sets.push((format!("{name}, latency on a schedule, ms, sorted"), latencies.collect()));
    }
    for one in streams {
        let set = format!("StatsD, {:?}, {} in a datagram", one.transport, one.per_datagram);
        sets.push((
            set,
            vec![
                to_samples("offered", one.rounds.iter().map(|round| round.offered as f64)),
                to_samples("taken", one.rounds.iter().map(|round| round.accepted as f64)),
                to_samples("dropped", one.rounds.iter().map(|round| round.dropped as f64)),
            ],
        ));
    }
    sets
}
