//! Generators and servers as separate processes of this program, so that each can be stopped.

use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Result;
use load::{
    ArrivalProcess, RequestTemplate, Requests, Schedule, ServiceModel, Settings, StubProtocol,
    StubServer, Target, Template,
};

/// Service time of a stub.
pub(crate) const SERVICE_NS: u64 = 1_000_000;
const SECOND_NS: f64 = 1e9;

/// Runs a server until end of input. The first line of output is its address; the second follows
/// the first request.
pub(crate) fn run_stub(how: &str) -> Result<()> {
    let service =
        ServiceModel { service_ns: SERVICE_NS, is_serial: how == "in-turn", is_spinning: true };
    let stub = Arc::new(StubServer::with_model(StubProtocol::Http1, service)?);
    println!("{}", stub.address());
    std::io::stdout().flush()?;
    let watched = Arc::clone(&stub);
    std::thread::spawn(move || {
        // One minute: a tool that does not start sends nothing.
        for _ in 0..300_000 {
            if watched.received() > 0 {
                break;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        println!("begun");
    });
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// Generates load with these arguments: URL, rate, duration and grace period in seconds, initial
/// connections and connection limit. Prints the figures with their names.
pub(crate) fn run_load(what: &[String]) -> Result<()> {
    let [url, rate, seconds, drain, connections, max_connections] = what else {
        anyhow::bail!("six arguments are needed");
    };
    let (target, path) = Target::parse(url)?;
    let request = RequestTemplate {
        name: "one".to_owned(),
        method: "GET".to_owned(),
        path: Template::text(path),
        ..RequestTemplate::default()
    };
    let duration_ns = (seconds.parse::<f64>()? * SECOND_NS) as u64;
    let settings = Settings {
        target: Some(target),
        tls: Default::default(),
        schedule: Schedule::constant(rate.parse()?, duration_ns, ArrivalProcess::Constant),
        requests: Requests::single(request),
        seed: 1,
        threads: 1,
        processors: std::thread::available_parallelism().map_or(1, usize::from),
        connections: connections.parse()?,
        max_connections: max_connections.parse()?,
        timeout_ns: 300_000_000_000,
        grace_period_ns: (drain.parse::<f64>()? * SECOND_NS) as u64,
        abort: Default::default(),
    };
    let run = load::run(&settings, &Arc::new(AtomicBool::new(false)), &mut ())?;
    let tally = &run.tally;
    let ms = |found: Option<hist::Bracket>| found.map_or(0.0, |found| found.estimate * 1e-6);
    for (name, histogram) in
        [("response", &tally.response), ("service", &tally.service), ("own", &tally.generator_lag)]
    {
        println!("{name} mean {}", ms(histogram.mean()));
        for (label, q) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("p99.99", 0.9999)] {
            println!("{name} {label} {}", ms(histogram.quantile(q)));
        }
        println!("{name} max {}", ms(histogram.max()));
    }
    println!("rate {}", tally.completed as f64 / (run.duration_ns as f64 / SECOND_NS));
    println!("cpu_us {}", tally.cpu_ns as f64 / 1e3 / tally.completed.max(1) as f64);
    println!("invalid_reasons {}", run.invalid_reasons.len());
    println!("lost {}", tally.scheduled.abs_diff(tally.accounted()));
    println!("opened {}", tally.connections_opened);
    let status = std::fs::read_to_string("/proc/self/status")?;
    let most =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
    println!("memory_kb {}", most.unwrap_or("0").trim());
    Ok(())
}
