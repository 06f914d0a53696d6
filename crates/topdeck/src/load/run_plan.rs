//! Resolves the command line to the plan of a run: settings of the engine, and texts for reports.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use load::{
    ArrivalProcess, CapacitySearch, RequestTemplate, Requests, Schedule, ScheduleSegment, Settings,
    Target, Template, format_rate,
};

use load::report::machine_info::MachineInfo;
use load::report::run_plan::{RunPlan, format_duration};

use crate::load::options::RunOptions;
use render::value_formatter::count;

/// Default duration.
const DURATION_NS: u64 = 10_000_000_000;
/// Default initial connections.
const CONNECTIONS: usize = 16;
/// Default limit of processes: more would only compete for the CPUs of one machine.
const PROCESSES_MAX: usize = 100;
/// Default limit of connections, subject to the limit of open files.
const CONNECTIONS_MAX: u64 = 10_000;
/// Open files besides connections, with a reserve.
const FILES_ELSE: u64 = 128;

/// The plan that the options ask for.
pub(crate) fn resolve(options: &RunOptions) -> Result<RunPlan> {
    let ResolvedTarget { target, requests, description, protocol } = ResolvedTarget::new(options)?;
    let is_command = target.is_none();
    // Different for each run, so that runs are independent; the report contains it.
    let seed = options.seed.unwrap_or_else(|| clock::wall().unix_ns as u64 % 1_000_000_000);
    let schedule = schedule(options, seed)?;
    let checked = requests.check(target.as_ref());
    checked.with_context(|| match &options.requests {
        Some(file) => format!("cannot send {} to {description}", name(file)),
        None => format!("cannot send the request to {description}"),
    })?;
    let default_max = || if is_command { PROCESSES_MAX } else { default_max_connections() };
    let max_connections = options.max_connections.unwrap_or_else(default_max);
    let connections = options.connections.unwrap_or(CONNECTIONS).min(max_connections);
    let connections = if is_command { 0 } else { connections };
    let schedule_text = schedule_text(options, &schedule);
    let machine = MachineInfo::local();
    let settings = Settings {
        target,
        tls: net::tls::ClientTls {
            ca: options.ca.clone(),
            certificate: options.cert.clone(),
            key: options.key.clone(),
            pins: Vec::new(),
        },
        schedule,
        requests,
        seed,
        threads: options.threads,
        processors: machine.cpus,
        connections,
        max_connections,
        timeout_ns: options.timeout,
        grace_period_ns: options.grace_period,
        abort: Arc::default(),
    };
    // Before the calibration, which takes time.
    settings.check()?;
    Ok(RunPlan { settings, target: description, protocol, schedule: schedule_text, machine })
}

/// Target and requests.
struct ResolvedTarget {
    /// `None` for commands.
    target: Option<Target>,
    requests: Requests,
    /// Target for reports.
    description: String,
    protocol: String,
}

impl ResolvedTarget {
    fn new(options: &RunOptions) -> Result<ResolvedTarget> {
        if let Some(written) = options.target.as_deref() {
            let (target, path) = Target::parse(written)?;
            let requests = requests(options, &path)?;
            let protocol = written.split("://").next().unwrap_or_default().to_owned();
            return Ok(ResolvedTarget {
                target: Some(target),
                requests,
                description: Target::redacted(written),
                protocol,
            });
        }
        let (requests, description) = match (&options.requests, &options.command[..]) {
            (Some(file), _) => {
                let server_options = [("connections", options.connections.is_some())];
                let server_options = server_options
                    .into_iter()
                    .chain([("ca", options.ca.is_some()), ("cert", options.cert.is_some())]);
                if let Some((name, _)) = server_options.into_iter().find(|one| one.1) {
                    bail!("--{name} needs a server; add a TARGET, or remove --{name}");
                }
                let requests = requests(options, "/")?;
                let n = requests.names().count() as u64;
                let many = if n == 1 { "command" } else { "commands" };
                (requests, format!("{} {many} of {}", count(n), name(file)))
            }
            (None, command) => (one_command(options, command)?, describe_command(command)),
        };
        Ok(ResolvedTarget { target: None, requests, description, protocol: "command".to_owned() })
    }
}

/// A command for reports, without its arguments, which may be secrets.
fn describe_command(command: &[OsString]) -> String {
    let program = command.first().map(|program| program.display().to_string()).unwrap_or_default();
    match command.len().saturating_sub(1) {
        0 => program,
        1 => format!("{program} with 1 argument"),
        n => format!("{program} with {} arguments", count(n as u64)),
    }
}

fn one_command(options: &RunOptions, command: &[OsString]) -> Result<Requests> {
    let words = command.iter().map(|word| Template::bytes(word.as_bytes()));
    Ok(Requests::single(RequestTemplate {
        name: describe_command(command),
        command: words.collect(),
        body: body(options)?,
        ..RequestTemplate::default()
    }))
}

fn schedule(options: &RunOptions, seed: u64) -> Result<Schedule> {
    if let Some(path) = &options.replay {
        let text = read(path)?;
        return Schedule::replay(&text, options.duration).with_context(|| name(path));
    }
    let duration_ns = options.duration.unwrap_or(DURATION_NS);
    let arrival_process =
        if options.poisson { ArrivalProcess::Poisson { seed } } else { ArrivalProcess::Constant };
    let rate = options.rate.or(options.search.then(|| CapacitySearch::default().first_rate));
    let segments = match (rate, options.ramp) {
        (Some(rate), _) => vec![ScheduleSegment { from_rate: rate, to_rate: rate, duration_ns }],
        (None, Some((from_rate, to_rate))) => {
            vec![ScheduleSegment { from_rate, to_rate, duration_ns }]
        }
        (None, None) => {
            let steps = options.steps.len().max(1) as u64;
            // The remainder goes to the first steps, so that the total is exact.
            let length_of =
                |at: usize| duration_ns / steps + u64::from((at as u64) < duration_ns % steps);
            let segment = |(at, rate): (usize, &f64)| ScheduleSegment {
                from_rate: *rate,
                to_rate: *rate,
                duration_ns: length_of(at),
            };
            options.steps.iter().enumerate().map(segment).collect()
        }
    };
    Ok(Schedule::Rate { segments, arrival_process })
}

fn schedule_text(options: &RunOptions, schedule: &Schedule) -> String {
    let total_duration = format_duration(schedule.duration_ns());
    let times = match schedule {
        Schedule::Replay(times) => {
            let path = options.replay.as_deref().map(name).unwrap_or_default();
            return format!("{} requests recorded in {path}", count(times.len() as u64));
        }
        Schedule::Rate { segments, .. } => segments,
    };
    let arrival_process = if options.poisson { "Poisson" } else { "evenly spaced" };
    let rates = match (&times[..], options.ramp) {
        (_, Some((from, to))) => format!("from {} to {}", format_rate(from), format_rate(to)),
        ([one], _) => format_rate(one.from_rate),
        (several, _) => {
            let rates: Vec<String> =
                several.iter().map(|segment| format_rate(segment.from_rate)).collect();
            let each = several.first().map_or(0, |segment| segment.duration_ns);
            let each = format_duration(each);
            format!("{} ({each} each)", rates.join(", then "))
        }
    };
    format!("{rates} {arrival_process} for {total_duration}")
}

fn requests(options: &RunOptions, path: &str) -> Result<Requests> {
    if let Some(file) = &options.requests {
        if path != "/" {
            bail!(
                "path {path} in the target conflicts with the paths in {}; remove it from the \
                 target",
                name(file)
            );
        }
        let dir = file.parent().unwrap_or(Path::new(""));
        return Requests::parse(&read(file)?, dir).with_context(|| name(file));
    }
    let body = body(options)?;
    let usual = if body == Template::default() { "GET" } else { "POST" };
    let headers = options.header.iter();
    let headers = headers.map(|(name, value)| (name.clone(), Template::text(value.clone())));
    Ok(Requests::single(RequestTemplate {
        name: path.to_owned(),
        method: options.method.clone().unwrap_or_else(|| usual.to_owned()),
        path: Template::text(path),
        headers: headers.collect(),
        body,
        arguments: options.arg.iter().cloned().map(Template::text).collect(),
        ..RequestTemplate::default()
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

/// Default limit of connections, given the limit of open files.
fn default_max_connections() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let files = limit.maximum.unwrap_or(u64::MAX).saturating_sub(FILES_ELSE);
    files.clamp(1, CONNECTIONS_MAX) as usize
}
