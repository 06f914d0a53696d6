//! What load is made with and made on, in processes of their own, so that each can be stopped: this program once more.

use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Result;
use load::{
    Answers, Request, Requests, Schedule, Service, Settings, Spacing, Stub, Target, Template,
};

/// How long a stub takes for an answer.
pub(crate) const SERVICE_NS: u64 = 1_000_000;
const SECOND_NS: f64 = 1e9;

/// A server until the input ends. Its first line says where, the next comes with the first request.
pub(crate) fn stub(how: &str) -> Result<()> {
    let service = Service { ns: SERVICE_NS, is_in_turn: how == "in-turn", is_awake: true };
    let stub = Arc::new(Stub::serving(Answers::Http1, service)?);
    println!("{}", stub.address());
    std::io::stdout().flush()?;
    let watched = Arc::clone(&stub);
    std::thread::spawn(move || {
        // A minute: a tool that does not start never sends anything.
        for _ in 0..300_000 {
            if watched.taken() > 0 {
                break;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        println!("begun");
    });
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// Makes load as `what` says: URL, rate, seconds, seconds waited for the rest, connections at
/// the start and at the most. Prints figures by their names.
pub(crate) fn run(what: &[String]) -> Result<()> {
    let [url, rate, seconds, drain, connections, connections_max] = what else {
        anyhow::bail!("six arguments are needed");
    };
    let (target, path) = Target::parse(url)?;
    let request = Request {
        name: "one".to_owned(),
        method: "GET".to_owned(),
        path: Template::text(path),
        ..Request::default()
    };
    let length_ns = (seconds.parse::<f64>()? * SECOND_NS) as u64;
    let settings = Settings {
        target,
        tls: Default::default(),
        schedule: Schedule::constant(rate.parse()?, length_ns, Spacing::Even),
        requests: Requests::one(request),
        seed: 1,
        threads: 1,
        processors: std::thread::available_parallelism().map_or(1, usize::from),
        connections: connections.parse()?,
        connections_max: connections_max.parse()?,
        timeout_ns: 300_000_000_000,
        drain_ns: (drain.parse::<f64>()? * SECOND_NS) as u64,
        give_up: Default::default(),
    };
    let run = load::run(&settings, &Arc::new(AtomicBool::new(false)), &mut ())?;
    let tally = &run.tally;
    let ms = |found: Option<hist::Bracket>| found.map_or(0.0, |found| found.estimate * 1e-6);
    for (name, histogram) in
        [("response", &tally.response), ("service", &tally.service), ("own", &tally.own_lag)]
    {
        println!("{name} mean {}", ms(histogram.mean()));
        for (label, q) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("p99.99", 0.9999)] {
            println!("{name} {label} {}", ms(histogram.quantile(q)));
        }
        println!("{name} max {}", ms(histogram.max()));
    }
    println!("rate {}", tally.completed as f64 / (run.length_ns as f64 / SECOND_NS));
    println!("cpu_us {}", tally.cpu_ns as f64 / 1e3 / tally.completed.max(1) as f64);
    println!("doubts {}", run.doubts.len());
    println!("lost {}", tally.intended.abs_diff(tally.accounted()));
    println!("opened {}", tally.opened);
    let status = std::fs::read_to_string("/proc/self/status")?;
    let most =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
    println!("memory_kb {}", most.unwrap_or("0").trim());
    Ok(())
}
