//! Load generators: accuracy against a stopped server, highest rate, and resource use.

pub(crate) mod child;
mod packets;
mod stall;
mod sustained;
mod tools;

use self::stall::{SCENARIOS, Scenario};
use self::tools::{FIGURES, Tool, ToolResult, ToolRun};
use crate::Effort;
use crate::report::{ReportSection, ReportTable, ReportTarget, Samples, number};

const METHOD: &str = "Method:

* **Coordinated-omission test**: a server answers each request after 1 ms, in parallel, and is stopped
  (SIGSTOP) for part of a run with a constant schedule; or the tool itself is stopped. At 1,200/s the
  server answers one request after the other, each in 1 ms. It has a processor for itself, so that its
  wake-up latency is not in the times.
* **Expected values** follow from the schedule by arithmetic. The server's time is the median
  between the packets of request and response at the same rate, before the run, without a stop.
* **Connections**: all tools start with 10. topdeck (its engine, without the calibration) opens up to
  1,000, vegeta as many as it needs, k6 has one user per connection. wrk has no schedule: it sends as
  fast as responses arrive. A dash marks figures that a tool does not print.
* **Highest rate**: tool and nginx have one CPU each; a rate counts if 99 % of it is answered. For
  wrk it is the rate it reaches. topdeck, oha and wrk have 64 connections; vegeta opens more, as does
  topdeck without a limit; k6 has one user per connection.
* **Error added**: what a tool reports at 10,000 requests per second to nginx, minus the time between
  the packets (tcpdump). For topdeck that is the service time, which starts with the send like that of
  the other tools.";

/// Initial connections of a tool against nginx.
const CONNECTIONS: usize = 64;
/// Connection limit.
const CONNECTIONS_MAX: usize = 10_000;
/// Requests per second of the error measurement, and of the run with many connections.
const RATE: f64 = 10_000.0;
/// One bucket of the scheme that all tools are compared in.
const BUCKET: f64 = 0.0219;

pub(crate) fn run(effort: &Effort) -> ReportSection {
    let mut section = ReportSection {
        name: "load",
        title: "Load generators",
        method: METHOD.to_owned(),
        tables: Vec::new(),
        targets: Vec::new(),
        samples: Vec::new(),
    };
    let seconds = if effort.quick { 6.0 } else { 30.0 };
    for scenario in &SCENARIOS {
        match stall::idle_response_ns(scenario.rate) {
            Ok(service_ns) => stall_section(scenario, seconds, service_ns, &mut section),
            Err(error) => section.method += &format!("\n\n{}: {error:#}.", scenario.name),
        }
    }
    match sustained::Nginx::start() {
        Err(error) => section.method += &format!("\n\nNot measured against nginx: {error:#}."),
        Ok(nginx) => {
            rates(effort, &nginx, &mut section);
            errors(effort, &nginx, &mut section);
        }
    }
    section
}

fn stall_section(scenario: &Scenario, seconds: f64, service_ns: u64, section: &mut ReportSection) {
    let truth = stall::expected_histogram(scenario, seconds, service_ns);
    let ms = |found: Option<hist::Bracket>| found.map(|found| found.estimate * 1e-6);
    let truth = ToolResult {
        mean: ms(truth.mean()),
        p50: ms(truth.quantile(0.5)),
        p99: ms(truth.quantile(0.99)),
        p99_9: ms(truth.quantile(0.999)),
        p99_99: ms(truth.quantile(0.9999)),
        max: ms(truth.max()),
        ..ToolResult::default()
    };
    let caption = format!("Of {seconds} s, {}: milliseconds.", scenario.name);
    let mut header = vec![""];
    header.extend(FIGURES);
    header.push("reports an invalid result");
    let mut table = ReportTable::new(&caption, 1, &header);
    table.rows.push(row("expected", &truth));
    for tool in Tool::ALL {
        eprintln!("        {}: {} …", scenario.name, tool.name());
        match stall::run(tool, scenario, seconds, true) {
            Err(error) => {
                section.method += &format!("\n\n{}, {}: {error:#}.", tool.name(), scenario.name)
            }
            Ok(said) => {
                table.rows.push(row(&tool.name(), &said));
                if tool == Tool::Topdeck {
                    targets(scenario, &truth, &said, section);
                }
            }
        }
    }
    // The delay of the machine itself, which the expected values do not include.
    if scenario.is_tool_stopped() {
        match stall::run(Tool::Topdeck, scenario, seconds, false) {
            Err(error) => section.method += &format!("\n\nWithout a stop: {error:#}."),
            Ok(said) => table.rows.push(row("topdeck load, nothing stopped", &said)),
        }
    }
    section.tables.push(table);
}

fn targets(
    scenario: &Scenario,
    truth: &ToolResult,
    said: &ToolResult,
    section: &mut ReportSection,
) {
    let name = scenario.name;
    let (figure, worst) = largest_deviation(truth, said);
    let what = format!("{name}: largest relative error, {figure}");
    section.targets.push(ReportTarget::at_most(&what, BUCKET * 100.0, "%", Some(worst * 100.0)));
    if scenario.is_tool_stopped() {
        let what = format!("{name}: it reports the stall");
        let said = said.invalid_reasons.map(f64::from);
        section.targets.push(ReportTarget::at_least(&what, 1.0, "times", said));
    }
}

fn row(name: &str, said: &ToolResult) -> Vec<String> {
    let cell = |value: Option<f64>| value.map_or("–".to_owned(), number);
    let mut row = vec![name.to_owned()];
    row.extend(said.figures().map(cell));
    row.push(match said.invalid_reasons {
        Some(true) => "yes".to_owned(),
        Some(false) => "no".to_owned(),
        None => "–".to_owned(),
    });
    row
}

/// The figure with the largest relative error, and that error.
fn largest_deviation(truth: &ToolResult, said: &ToolResult) -> (&'static str, f64) {
    let pairs = truth.figures().into_iter().zip(said.figures()).zip(FIGURES);
    let off =
        pairs.filter_map(|((truth, said), name)| Some((name, (said? - truth?).abs() / truth?)));
    off.max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or(("none", f64::NAN))
}

fn rates(effort: &Effort, nginx: &sustained::Nginx, section: &mut ReportSection) {
    let seconds = if effort.quick { 1.0 } else { 3.0 };
    let rounds = if effort.quick { 1 } else { 3 };
    let header = ["", "requests per second: median (min–max)"];
    let mut table = ReportTable::new("Highest rate on one CPU.", 1, &header);
    let mut medians = Vec::new();
    let few = (CONNECTIONS, CONNECTIONS);
    let contenders = [
        (Tool::Topdeck, few),
        (Tool::Topdeck, (CONNECTIONS, CONNECTIONS_MAX)),
        (Tool::Vegeta, few),
        (Tool::Oha, few),
        (Tool::K6, few),
        (Tool::Wrk, few),
    ];
    for (tool, connections) in contenders {
        let name = match connections == few {
            true => tool.name(),
            false => format!("{}, which opens more", tool.name()),
        };
        let mut samples = Samples::new(&name, "");
        for _ in 0..rounds {
            eprintln!("        the highest rate: {name} …");
            let found = match tool {
                Tool::Wrk => sustained::run_against_nginx(tool, nginx, None, seconds, connections)
                    .map(|said| said.rate.unwrap_or(0.0)),
                _ => sustained::find_sustained_rate(tool, nginx, seconds, connections),
            };
            match found {
                Ok(rate) => samples.values.push(rate),
                Err(error) => section.method += &format!("\n\n{name}: {error:#}."),
            }
        }
        if !samples.values.is_empty() {
            medians.push((tool, samples.median()));
            table.rows.push(vec![name, samples.cell()]);
            section.samples.push(("highest rate, 1/s".to_owned(), vec![samples]));
        }
    }
    section.tables.push(table);
    let of = |wanted: Tool| medians.iter().find(|one| one.0 == wanted).map(|one| one.1);
    let ours = of(Tool::Topdeck);
    let honest = [Tool::Vegeta, Tool::Oha, Tool::K6].into_iter().filter_map(of);
    let best = honest.reduce(f64::max);
    for (peer, theirs, limit) in
        [("the best peer with a schedule", best, 1.0), ("wrk", of(Tool::Wrk), 0.8)]
    {
        let ratio = ours.zip(theirs).map(|(ours, theirs)| ours / theirs);
        let what = format!("highest rate on one CPU, against {peer}");
        section.targets.push(ReportTarget::at_least(&what, limit, "× its rate", ratio));
    }
    let many = sustained::run_against_nginx(
        Tool::Topdeck,
        nginx,
        Some(RATE),
        seconds,
        (CONNECTIONS_MAX, CONNECTIONS_MAX),
    );
    let opened = many.as_ref().ok().and_then(|said| tools::topdeck_figure(said, "opened"));
    let memory = many.as_ref().ok().and_then(|said| tools::topdeck_figure(said, "memory_kb"));
    let memory = memory.filter(|_| opened >= Some(10_000.0)).map(|kb| kb / 1024.0);
    section.targets.push(ReportTarget::at_most(
        "memory with 10,000 connections",
        200.0,
        "MiB",
        memory,
    ));
    if let Err(error) = many {
        section.method += &format!("\n\n10,000 connections: {error:#}.");
    }
}

fn errors(effort: &Effort, nginx: &sustained::Nginx, section: &mut ReportSection) {
    let seconds = if effort.quick { 2.0 } else { 10.0 };
    let header = [
        "",
        "p50, packets",
        "p50, reported",
        "p50, added",
        "p99, packets",
        "p99, reported",
        "p99, added",
    ];
    let mut table = ReportTable::new("Error added at 10,000/s, microseconds.", 1, &header);
    let mut added = Vec::new();
    for tool in [Tool::Topdeck, Tool::Vegeta, Tool::Oha, Tool::K6, Tool::Hey] {
        eprintln!("        error added: {} …", tool.name());
        let plan = ToolRun {
            url: &nginx.url,
            rate: Some(RATE),
            seconds,
            grace_period: 1.0,
            connections: CONNECTIONS,
            max_connections: CONNECTIONS_MAX,
            processor: None,
        };
        match packets::run_with_capture(tool, &plan) {
            Err(error) => section.method += &format!("\n\n{}: {error:#}.", tool.name()),
            Ok((said, packets)) => {
                let of =
                    |q: f64| packets.quantile(q).map_or(f64::NAN, |found| found.estimate * 1e-3);
                let us = |ms: Option<f64>| ms.map_or(f64::NAN, |ms| ms * 1e3);
                let own = |name: &str, else_ms: Option<f64>| match tool {
                    Tool::Topdeck => us(tools::topdeck_figure(&said, name)),
                    _ => us(else_ms),
                };
                let pairs = [
                    (of(0.5), own("service p50", said.p50)),
                    (of(0.99), own("service p99 ", said.p99)),
                ];
                let cells =
                    pairs.iter().flat_map(|(packets, said)| [*packets, *said, said - packets]);
                table.rows.push([tool.name()].into_iter().chain(cells.map(number)).collect());
                added.push((tool, pairs.map(|(packets, said)| (said - packets).abs())));
            }
        }
    }
    section.tables.push(table);
    let ours = added.iter().find(|one| one.0 == Tool::Topdeck).map(|one| one.1);
    for (at, name) in ["p50", "p99"].into_iter().enumerate() {
        let peers = added.iter().filter(|one| one.0 != Tool::Topdeck).map(|one| one.1[at]);
        let best = peers.reduce(f64::min);
        let ratio = ours.zip(best).map(|(ours, best)| ours[at] / best);
        let what = format!("error added at 10,000/s, {name}, against the best peer");
        section.targets.push(ReportTarget::at_most(&what, 1.0, "× its error", ratio));
    }
}
