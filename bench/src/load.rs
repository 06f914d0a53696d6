//! Load generators: what each says of a server that was stopped, the highest rate that it holds, and what it takes.

pub(crate) mod child;
mod freeze;
mod held;
mod packets;
mod tools;

use self::freeze::{SCENARIOS, Scenario};
use self::tools::{Said, Tool};
use crate::Effort;
use crate::report::{Samples, Section, Table, Target, number};

const METHOD: &str = "\
Freeze test: a server that answers each request after 1 ms, however many there are, is stopped (SIGSTOP) for part of a run with a \
constant schedule, or the tool itself is stopped. The truth follows from the schedule by arithmetic, with the median that an answer \
takes at rest on this machine as the server's time. wrk has no schedule: it sends as fast as answers come, on 10 connections. Tools \
that do not print a figure have a dash. Highest rate: tool and nginx have a processor each; a rate is held if 99 % of it is \
answered; wrk's is what it gets when it sends as fast as it can. \
Error added: what a tool says of 10,000 requests per second to nginx, less what the stamps of their packets say (tcpdump); for \
topdeck its service time, which begins with the send as that of the others does.";

/// One bucket of the scheme that all are compared in.
const BUCKET: f64 = 0.0219;

pub(crate) fn run(effort: &Effort) -> Section {
    let mut section = Section {
        name: "load",
        title: "Load generators",
        method: METHOD.to_owned(),
        tables: Vec::new(),
        targets: Vec::new(),
        samples: Vec::new(),
    };
    let seconds = if effort.quick { 6.0 } else { 30.0 };
    match freeze::at_rest() {
        Err(error) => section.method += &format!("\n\nThe freeze test was not made: {error:#}."),
        Ok(service_ns) => {
            for scenario in &SCENARIOS {
                frozen(scenario, seconds, service_ns, &mut section);
            }
        }
    }
    match held::Nginx::start() {
        Err(error) => {
            section.method += &format!("\n\nNothing was measured against nginx: {error:#}.")
        }
        Ok(nginx) => {
            rates(effort, &nginx, &mut section);
            errors(effort, &nginx, &mut section);
        }
    }
    section
}

fn frozen(scenario: &Scenario, seconds: f64, service_ns: u64, section: &mut Section) {
    let truth = freeze::truth(scenario, seconds, service_ns);
    let ms = |found: Option<hist::Bracket>| found.map(|found| found.estimate * 1e-6);
    let truth = Said {
        mean: ms(truth.mean()),
        p50: ms(truth.quantile(0.5)),
        p99: ms(truth.quantile(0.99)),
        p99_9: ms(truth.quantile(0.999)),
        p99_99: ms(truth.quantile(0.9999)),
        max: ms(truth.max()),
        ..Said::default()
    };
    let caption = format!("Of {seconds} s, {}: milliseconds.", scenario.name);
    let header =
        ["", "mean", "p50", "p99", "p99.9", "p99.99", "greatest", "says that it cannot be trusted"];
    let mut table = Table::new(&caption, 1, &header);
    table.rows.push(row("truth", &truth));
    for tool in Tool::ALL {
        eprintln!("        {}: {} …", scenario.name, tool.name());
        match freeze::run(tool, scenario, seconds) {
            Err(error) => {
                section.method += &format!("\n\n{}, {}: {error:#}.", tool.name(), scenario.name)
            }
            Ok(said) => {
                table.rows.push(row(&tool.name(), &said));
                if tool == Tool::Topdeck {
                    let what = format!("{}: farthest of all figures from the truth", scenario.name);
                    let worst = farthest(&truth, &said);
                    section.targets.push(Target::at_most(&what, BUCKET, "of it", Some(worst)));
                    if scenario.is_tool_stopped {
                        let said = said.doubts.map(f64::from);
                        let what = format!("{}: it says so", scenario.name);
                        section.targets.push(Target::at_least(&what, 1.0, "times", said));
                    }
                }
            }
        }
    }
    section.tables.push(table);
}

fn row(name: &str, said: &Said) -> Vec<String> {
    let cell = |value: Option<f64>| value.map_or("–".to_owned(), number);
    let mut row = vec![name.to_owned()];
    row.extend([said.mean, said.p50, said.p99, said.p99_9, said.p99_99, said.max].map(cell));
    row.push(match said.doubts {
        Some(true) => "yes".to_owned(),
        Some(false) => "no".to_owned(),
        None => "–".to_owned(),
    });
    row
}

/// How far a figure is off at the most, as a share of the truth.
fn farthest(truth: &Said, said: &Said) -> f64 {
    let figures = |one: &Said| [one.mean, one.p50, one.p99, one.p99_9, one.p99_99, one.max];
    let pairs = figures(truth).into_iter().zip(figures(said));
    let off = pairs.filter_map(|(truth, said)| Some((said? - truth?).abs() / truth?));
    off.fold(0.0, f64::max)
}

fn rates(effort: &Effort, nginx: &held::Nginx, section: &mut Section) {
    let seconds = if effort.quick { 1.0 } else { 5.0 };
    let rounds = if effort.quick { 1 } else { 3 };
    let header = ["", "requests per second: median (least–greatest)"];
    let mut table = Table::new("The highest rate that is held on one processor.", 1, &header);
    let mut medians = Vec::new();
    for tool in [Tool::Topdeck, Tool::Vegeta, Tool::Wrk] {
        let mut samples = Samples::new(&tool.name(), "");
        for _ in 0..rounds {
            eprintln!("        the highest rate: {} …", tool.name());
            let found = match tool {
                Tool::Wrk => held::against(tool, nginx, None, seconds, 64)
                    .map(|said| said.rate.unwrap_or(0.0)),
                _ => held::highest(tool, nginx, seconds),
            };
            match found {
                Ok(rate) => samples.values.push(rate),
                Err(error) => section.method += &format!("\n\n{}: {error:#}.", tool.name()),
            }
        }
        if !samples.values.is_empty() {
            medians.push((tool, samples.median()));
            table.rows.push(vec![tool.name(), samples.cell()]);
            section.samples.push(("highest rate, 1/s".to_owned(), vec![samples]));
        }
    }
    section.tables.push(table);
    let of = |wanted: Tool| medians.iter().find(|one| one.0 == wanted).map(|one| one.1);
    let ours = of(Tool::Topdeck);
    for (peer, limit) in [(Tool::Vegeta, 1.0), (Tool::Wrk, 0.8)] {
        let ratio = ours.zip(of(peer)).map(|(ours, theirs)| ours / theirs);
        let what = format!("highest rate on one processor, against {}", peer.name());
        section.targets.push(Target::at_least(&what, limit, "× its rate", ratio));
    }
    let many = held::against(Tool::Topdeck, nginx, Some(10_000.0), seconds, 10_000);
    let opened = many.as_ref().ok().and_then(|said| tools::own(said, "opened"));
    let memory = many.as_ref().ok().and_then(|said| tools::own(said, "memory_kb"));
    let memory = memory.filter(|_| opened >= Some(10_000.0)).map(|kb| kb / 1024.0);
    section.targets.push(Target::at_most("memory with 10,000 connections", 200.0, "MiB", memory));
    if let Err(error) = many {
        section.method += &format!("\n\n10,000 connections: {error:#}.");
    }
}

fn errors(effort: &Effort, nginx: &held::Nginx, section: &mut Section) {
    let seconds = if effort.quick { 2.0 } else { 10.0 };
    let header =
        ["", "p50, packets", "p50, said", "p50, added", "p99, packets", "p99, said", "p99, added"];
    let mut table = Table::new("Error added at 10,000/s, microseconds.", 1, &header);
    let mut added = Vec::new();
    for tool in [Tool::Topdeck, Tool::Vegeta, Tool::Hey] {
        eprintln!("        error added: {} …", tool.name());
        match packets::beside(tool, nginx, seconds) {
            Err(error) => section.method += &format!("\n\n{}: {error:#}.", tool.name()),
            Ok((said, packets)) => {
                let of =
                    |q: f64| packets.quantile(q).map_or(f64::NAN, |found| found.estimate * 1e-3);
                let us = |ms: Option<f64>| ms.map_or(f64::NAN, |ms| ms * 1e3);
                let own = |name: &str, else_ms: Option<f64>| match tool {
                    Tool::Topdeck => us(tools::own(&said, name)),
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
        section.targets.push(Target::at_most(&what, 1.0, "× its error", ratio));
    }
}
