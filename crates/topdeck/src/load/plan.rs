//! A plan: what was asked for, as the engine takes it and as reports tell it.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use load::{
    Piece, Protocol, Request, Requests, Schedule, Search, Settings, Spacing, Target, Template,
    per_second,
};

use crate::hist::intervals::length;
use crate::hist::show::count;
use crate::load::machine::Machine;
use crate::load::options::RunOptions;

/// What is run, and where.
pub(crate) struct Plan {
    pub(crate) settings: Settings,
    /// As it was written, without a password; of a command the program, and how many arguments.
    pub(crate) target: String,
    /// What is spoken, as the target's beginning says.
    pub(crate) protocol: String,
    /// In words.
    pub(crate) schedule: String,
    pub(crate) machine: Machine,
}

/// For how long, unless asked otherwise.
const DURATION_NS: u64 = 10_000_000_000;
/// Connections at the beginning, unless asked otherwise.
const CONNECTIONS: usize = 16;
/// Processes at once, unless asked otherwise: more of them share the processors of one machine, and would only wait for each other.
const PROCESSES_MAX: usize = 100;
/// Connections at the most, unless asked otherwise and as far as files may be open.
const CONNECTIONS_MAX: u64 = 10_000;
/// Files that are open beside connections, and some more.
const FILES_ELSE: u64 = 128;

impl Plan {
    pub(crate) fn of(options: &RunOptions) -> Result<Plan> {
        let Aimed { target, requests, shown, protocol } = Aimed::of(options)?;
        let is_command = target.protocol == Protocol::Command;
        // Another each time, so that runs are independent; the report tells it.
        let seed = options.seed.unwrap_or_else(|| clock::wall().unix_ns as u64 % 1_000_000_000);
        let schedule = schedule(options, seed)?;
        let checked = requests.check(&target.protocol);
        checked.with_context(|| match &options.requests {
            Some(file) => format!("{}, sent to {shown}", name(file)),
            None => format!("what is sent to {shown}"),
        })?;
        let usual_max = || if is_command { PROCESSES_MAX } else { allowed() };
        let connections_max = options.connections_max.unwrap_or_else(usual_max);
        let connections = options.connections.unwrap_or(CONNECTIONS).min(connections_max);
        let connections = if is_command { 0 } else { connections };
        let words = words(options, &schedule);
        let machine = Machine::this();
        let settings = Settings {
            target,
            tls: net::tls::ClientTls {
                ca: options.ca.clone(),
                certificate: options.cert.clone(),
                key: options.key.clone(),
            },
            schedule,
            requests,
            seed,
            threads: options.threads,
            processors: machine.processors,
            connections,
            connections_max,
            timeout_ns: options.timeout,
            drain_ns: options.drain,
            give_up: Arc::default(),
        };
        // Before the calibration, which takes its time.
        settings.check()?;
        Ok(Plan { settings, target: shown, protocol, schedule: words, machine })
    }

    /// Whether requests are commands: then there are processes, and no connections.
    pub(crate) fn is_command(&self) -> bool {
        self.settings.target.protocol == Protocol::Command
    }

    /// In TLS, whether the server has to show a certificate that is trusted.
    pub(crate) fn is_verified(&self) -> Option<bool> {
        let target = &self.settings.target;
        target.is_tls.then_some(target.is_verified)
    }
}

/// Where requests go, and what they are.
struct Aimed {
    target: Target,
    requests: Requests,
    /// The target, for those who read of it.
    shown: String,
    protocol: String,
}

impl Aimed {
    fn of(options: &RunOptions) -> Result<Aimed> {
        if let Some(written) = options.target.as_deref() {
            let (target, path) = Target::parse(written)?;
            let requests = requests(options, &path)?;
            let protocol = written.split("://").next().unwrap_or_default().to_owned();
            return Ok(Aimed { target, requests, shown: Target::shown(written), protocol });
        }
        let (requests, shown) = match (&options.requests, &options.command[..]) {
            (Some(file), _) => {
                let asked = [("connections", options.connections.is_some())];
                let asked = asked
                    .into_iter()
                    .chain([("ca", options.ca.is_some()), ("cert", options.cert.is_some())]);
                if let Some((name, _)) = asked.into_iter().find(|one| one.1) {
                    bail!(
                        "--{name} is for a server: write a TARGET that says which, or leave it out"
                    );
                }
                let requests = requests(options, "/")?;
                let n = requests.names().count() as u64;
                let many = if n == 1 { "command" } else { "commands" };
                (requests, format!("{} {many} of {}", count(n), name(file)))
            }
            (None, command) => (one_command(options, command)?, shown(command)),
        };
        Ok(Aimed { target: Target::command(), requests, shown, protocol: "command".to_owned() })
    }
}

/// A command as it is told of: arguments may be secrets.
fn shown(command: &[OsString]) -> String {
    let program = command.first().map(|program| program.display().to_string()).unwrap_or_default();
    match command.len().saturating_sub(1) {
        0 => program,
        1 => format!("{program} with 1 argument"),
        n => format!("{program} with {} arguments", count(n as u64)),
    }
}

fn one_command(options: &RunOptions, command: &[OsString]) -> Result<Requests> {
    let words = command.iter().map(|word| Template::bytes(word.as_bytes()));
    Ok(Requests::one(Request {
        name: shown(command),
        command: words.collect(),
        body: body(options)?,
        ..Request::default()
    }))
}

fn schedule(options: &RunOptions, seed: u64) -> Result<Schedule> {
    if let Some(path) = &options.replay {
        let text = read(path)?;
        return Schedule::replay(&text, options.duration).with_context(|| name(path));
    }
    let length_ns = options.duration.unwrap_or(DURATION_NS);
    let spacing = if options.poisson { Spacing::Poisson { seed } } else { Spacing::Even };
    let rate = options.rate.or(options.search.then(|| Search::default().first_rate));
    let pieces = match (rate, options.ramp) {
        (Some(rate), _) => vec![Piece { from_rate: rate, to_rate: rate, length_ns }],
        (None, Some((from_rate, to_rate))) => vec![Piece { from_rate, to_rate, length_ns }],
        (None, None) => {
            let steps = options.steps.len().max(1) as u64;
            // What does not divide goes to the first ones, so that the whole is as long as asked for.
            let length_of =
                |at: usize| length_ns / steps + u64::from((at as u64) < length_ns % steps);
            let piece = |(at, rate): (usize, &f64)| Piece {
                from_rate: *rate,
                to_rate: *rate,
                length_ns: length_of(at),
            };
            options.steps.iter().enumerate().map(piece).collect()
        }
    };
    Ok(Schedule::Rate { pieces, spacing })
}

fn words(options: &RunOptions, schedule: &Schedule) -> String {
    let whole = nanoseconds(schedule.length_ns());
    let times = match schedule {
        Schedule::Replay(times) => {
            let path = options.replay.as_deref().map(name).unwrap_or_default();
            return format!("{} requests as {path} has them", count(times.len() as u64));
        }
        Schedule::Rate { pieces, .. } => pieces,
    };
    let spacing = if options.poisson { "at random (Poisson)" } else { "at even distances" };
    let rates = match (&times[..], options.ramp) {
        (_, Some((from, to))) => format!("from {} to {}", per_second(from), per_second(to)),
        ([one], _) => per_second(one.from_rate),
        (several, _) => {
            let rates: Vec<String> =
                several.iter().map(|piece| per_second(piece.from_rate)).collect();
            let each = several.first().map_or(0, |piece| piece.length_ns);
            let each = nanoseconds(each);
            format!("{} ({each} each)", rates.join(", then "))
        }
    };
    format!("{rates} {spacing} for {whole}")
}

/// A length of time, with its unit.
pub(crate) fn nanoseconds(ns: u64) -> String {
    length(i64::try_from(ns).unwrap_or(i64::MAX))
}

fn requests(options: &RunOptions, path: &str) -> Result<Requests> {
    if let Some(file) = &options.requests {
        if path != "/" {
            bail!(
                "{path} stands in the target, and paths in {} too: write the target without it",
                name(file)
            );
        }
        let folder = file.parent().unwrap_or(Path::new(""));
        return Requests::parse(&read(file)?, folder).with_context(|| name(file));
    }
    let body = body(options)?;
    let usual = if body == Template::default() { "GET" } else { "POST" };
    let headers = options.header.iter();
    let headers = headers.map(|(name, value)| (name.clone(), Template::text(value.clone())));
    Ok(Requests::one(Request {
        name: path.to_owned(),
        method: options.method.clone().unwrap_or_else(|| usual.to_owned()),
        path: Template::text(path),
        headers: headers.collect(),
        body,
        arguments: options.argument.iter().cloned().map(Template::text).collect(),
        ..Request::default()
    }))
}

fn body(options: &RunOptions) -> Result<Template> {
    Ok(match (&options.body, &options.body_file) {
        (Some(text), _) => Template::text(text.clone()),
        (None, Some(file)) => {
            let bytes = std::fs::read(file);
            Template::bytes(bytes.with_context(|| format!("cannot read {}", name(file)))?)
        }
        (None, None) => Template::default(),
    })
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn name(path: &Path) -> String {
    path.display().to_string()
}

/// As many connections as this process may have, up to what is usual.
fn allowed() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let files = limit.maximum.unwrap_or(u64::MAX).saturating_sub(FILES_ELSE);
    files.clamp(1, CONNECTIONS_MAX) as usize
}
