//! Load generators and the parsers of their output. Times are milliseconds.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::journal::program::{build_dir, run_tool, source_dir, version};

const VEGETA: &str = include_str!("../../peers/vegeta/go.mod");
const K6: &str = include_str!("../../peers/k6/go.mod");
const OHA: &str = "1.16.0";
/// Virtual users, which k6 has instead of connections: enough to send its requests on time.
const K6_USERS: usize = 5_000;

/// A load generator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tool {
    Topdeck,
    Vegeta,
    Oha,
    K6,
    Wrk,
    Hey,
}

/// Parameters of a run.
#[derive(Clone, Copy)]
pub(crate) struct ToolRun<'a> {
    pub(crate) url: &'a str,
    /// Requests per second; `None`: closed loop, as fast as possible.
    pub(crate) rate: Option<f64>,
    pub(crate) seconds: f64,
    /// Grace period of topdeck; the other tools have their own.
    pub(crate) grace_period: f64,
    pub(crate) connections: usize,
    /// Connection limit of topdeck; the other tools have their own.
    pub(crate) max_connections: usize,
    /// The CPU to run on, if only one is used.
    pub(crate) processor: Option<usize>,
}

/// Parsed result of a tool.
#[derive(Clone, Debug, Default)]
pub(crate) struct ToolResult {
    pub(crate) mean: Option<f64>,
    pub(crate) p50: Option<f64>,
    pub(crate) p99: Option<f64>,
    pub(crate) p99_9: Option<f64>,
    pub(crate) p99_99: Option<f64>,
    pub(crate) max: Option<f64>,
    /// Responses per second.
    pub(crate) rate: Option<f64>,
    /// Whether it reported its result as invalid, if it supports that.
    pub(crate) invalid_reasons: Option<bool>,
    pub(crate) text: String,
}

/// Reported statistics, in order.
pub(crate) const FIGURES: [&str; 6] = ["mean", "p50", "p99", "p99.9", "p99.99", "max"];

impl ToolResult {
    pub(crate) fn figures(&self) -> [Option<f64>; 6] {
        [self.mean, self.p50, self.p99, self.p99_9, self.p99_99, self.max]
    }
}

impl Tool {
    pub(crate) const ALL: [Tool; 6] =
        [Tool::Topdeck, Tool::Vegeta, Tool::Oha, Tool::K6, Tool::Wrk, Tool::Hey];

    pub(crate) fn name(self) -> String {
        match self {
            Tool::Topdeck => "topdeck load".to_owned(),
            Tool::Vegeta => {
                format!("vegeta {}", version(VEGETA, "github.com/tsenart/vegeta/v12 v", "\n"))
            }
            Tool::Oha => format!("oha {OHA} (latency correction)"),
            Tool::K6 => format!("k6 {} ({K6_USERS} users)", version(K6, "go.k6.io/k6 v", "\n")),
            Tool::Wrk => "wrk (as fast as possible)".to_owned(),
            Tool::Hey => "hey".to_owned(),
        }
    }

    /// Command line of a run; an error states what is missing.
    pub(crate) fn command(self, plan: &ToolRun) -> Result<Command> {
        let seconds = plan.seconds.to_string();
        let connections = plan.connections.to_string();
        let program = match self {
            Tool::Topdeck => std::env::current_exe()?,
            Tool::Vegeta => vegeta()?,
            Tool::Oha => oha()?,
            Tool::K6 => k6()?,
            Tool::Wrk => find_installed("wrk")?,
            Tool::Hey => find_installed("hey")?,
        };
        let mut command = match plan.processor {
            None => Command::new(program),
            Some(processor) => {
                let mut command = Command::new("taskset");
                command.args(["-c", &processor.to_string()]).arg(program);
                command
            }
        };
        let rate = plan.rate.unwrap_or(0.0);
        match self {
            Tool::Topdeck => command.arg("--load-run").args([
                plan.url,
                &rate.to_string(),
                &seconds,
                &plan.grace_period.to_string(),
                &connections,
                &plan.max_connections.to_string(),
            ]),
            Tool::Vegeta => {
                let line = "echo \"GET $1\" | \"$0\" attack -rate=$2 -duration=$3 \
                            -max-workers=20000 | \"$0\" report -type=json";
                let vegeta = command.get_program().to_owned();
                let arguments: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
                let mut shell = Command::new(&vegeta);
                // With one CPU, the whole pipe runs on it.
                let program = match plan.processor {
                    None => {
                        shell = Command::new("sh");
                        vegeta
                    }
                    Some(_) => {
                        shell.args(&arguments[..2]).arg("sh");
                        arguments[2].clone()
                    }
                };
                shell.args(["-c", line]).arg(program).arg(plan.url);
                shell.arg(rate.to_string()).arg(format!("{seconds}s"));
                command = shell;
                &mut command
            }
            Tool::Wrk => {
                let duration = format!("-d{seconds}s");
                command
                    .args(["-t1", "--latency", "--timeout", "300", &duration, "-c", &connections])
                    .arg(plan.url)
            }
            Tool::Hey => {
                let each = rate / plan.connections as f64;
                let duration = format!("{seconds}s");
                command
                    .args([
                        "-t",
                        "300",
                        "-z",
                        &duration,
                        "-c",
                        &connections,
                        "-q",
                        &each.to_string(),
                    ])
                    .arg(plan.url)
            }
            // With this option response times start at the scheduled time, as far as oha supports
            // it, and the last responses are awaited.
            Tool::Oha => command
                .args(["--no-tui", "--output-format", "json", "--latency-correction"])
                .args(["--wait-ongoing-requests-after-deadline", "-t", "300s"])
                .args(["-z", &format!("{seconds}s"), "-q", &rate.to_string()])
                .args(["-c", &connections])
                .arg(plan.url),
            Tool::K6 => command
                .env("TARGET", plan.url)
                .env("RATE", rate.to_string())
                .env("DURATION", format!("{seconds}s"))
                .env("USERS", K6_USERS.to_string())
                .args(["run", "--quiet", "--no-usage-report", "--summary-trend-stats"])
                .arg("avg,p(50),p(99),p(99.9),p(99.99),max")
                .arg(source_dir("k6").join("rate.js")),
        };
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(command)
    }

    /// Parses the output.
    pub(crate) fn read(self, text: &str) -> Result<ToolResult> {
        let after = |mark: &str| {
            text.lines().find_map(|line| line.trim().strip_prefix(mark)).map(|rest| rest.trim())
        };
        let number = |mark: &str| after(mark)?.split_whitespace().next()?.parse::<f64>().ok();
        let text_of = text.to_owned();
        let said = match self {
            Tool::Topdeck => ToolResult {
                mean: number("response mean"),
                p50: number("response p50"),
                p99: number("response p99 "),
                p99_9: number("response p99.9 "),
                p99_99: number("response p99.99"),
                max: number("response max"),
                rate: number("rate"),
                invalid_reasons: number("invalid_reasons").map(|count| count > 0.0),
                text: text_of,
            },
            Tool::Vegeta => {
                let json: serde_json::Value = serde_json::from_str(text)?;
                let ms = |name: &str| json["latencies"][name].as_f64().map(|ns| ns * 1e-6);
                ToolResult {
                    mean: ms("mean"),
                    p50: ms("50th"),
                    p99: ms("99th"),
                    max: ms("max"),
                    rate: json["throughput"].as_f64(),
                    text: text_of,
                    ..ToolResult::default()
                }
            }
            Tool::Wrk => {
                // The first line has mean, standard deviation and maximum.
                let stats: Vec<&str> =
                    after("Latency ").unwrap_or_default().split_whitespace().collect();
                ToolResult {
                    mean: stats.first().and_then(|one| time_ms(one)),
                    p50: after("50%").and_then(time_ms),
                    p99: after("99%").and_then(time_ms),
                    max: stats.get(2).and_then(|one| time_ms(one)),
                    rate: number("Requests/sec:"),
                    text: text_of,
                    ..ToolResult::default()
                }
            }
            Tool::Hey => {
                let ms = |mark: &str| number(mark).map(|seconds| seconds * 1e3);
                ToolResult {
                    mean: ms("Average:"),
                    p50: ms("50% in"),
                    p99: ms("99% in"),
                    max: ms("Slowest:"),
                    rate: number("Requests/sec:"),
                    text: text_of,
                    ..ToolResult::default()
                }
            }
            Tool::Oha => {
                let json: serde_json::Value = serde_json::from_str(text)?;
                let ms = |group: &str, name: &str| json[group][name].as_f64().map(|s| s * 1e3);
                ToolResult {
                    mean: ms("summary", "average"),
                    p50: ms("latencyPercentiles", "p50"),
                    p99: ms("latencyPercentiles", "p99"),
                    p99_9: ms("latencyPercentiles", "p99.9"),
                    p99_99: ms("latencyPercentiles", "p99.99"),
                    max: ms("summary", "slowest"),
                    rate: json["summary"]["requestsPerSec"].as_f64(),
                    text: text_of,
                    ..ToolResult::default()
                }
            }
            Tool::K6 => {
                let json: serde_json::Value = serde_json::from_str(text)?;
                let of = |metric: &str, name: &str| json[metric]["values"][name].as_f64();
                let ms = |name: &str| of("http_req_duration", name);
                ToolResult {
                    mean: ms("avg"),
                    p50: ms("p(50)"),
                    p99: ms("p(99)"),
                    p99_9: ms("p(99.9)"),
                    p99_99: ms("p(99.99)"),
                    max: ms("max"),
                    rate: of("http_reqs", "rate"),
                    text: text_of,
                    ..ToolResult::default()
                }
            }
        };
        ensure!(said.mean.is_some(), "cannot parse the output of {}: {text}", self.name());
        Ok(said)
    }
}

/// A figure that only topdeck reports.
pub(crate) fn topdeck_figure(said: &ToolResult, name: &str) -> Option<f64> {
    said.text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

fn find_installed(name: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|dir| dir.join(name)).find(|one| one.is_file());
    match found {
        Some(found) => Ok(found),
        None => bail!("{name} is not installed"),
    }
}

fn vegeta() -> Result<PathBuf> {
    let version = version(VEGETA, "github.com/tsenart/vegeta/v12 v", "\n");
    build_go_tool("vegeta", version, "github.com/tsenart/vegeta/v12")
}

fn k6() -> Result<PathBuf> {
    build_go_tool("k6", version(K6, "go.k6.io/k6 v", "\n"), "go.k6.io/k6")
}

fn build_go_tool(name: &str, version: &str, package: &str) -> Result<PathBuf> {
    let program = build_dir(name)?.join(format!("{name}-{version}"));
    if !program.exists() {
        eprintln!("        building {name} …");
        let mut build = Command::new("go");
        build.current_dir(source_dir(name));
        build.args(["build", "-mod=readonly", "-o"]).arg(&program);
        run_tool(build.arg(package)).with_context(|| format!("building {name}"))?;
    }
    Ok(program)
}

fn oha() -> Result<PathBuf> {
    let root = build_dir(&format!("oha-{OHA}"))?;
    let program = root.join("bin/oha");
    if !program.exists() {
        eprintln!("        building oha …");
        let mut install = Command::new("cargo");
        install.args(["install", "--locked", "--version", OHA, "oha", "--root"]).arg(&root);
        install.arg("--target-dir").arg(root.join("build"));
        run_tool(&mut install).context("building oha")?;
    }
    Ok(program)
}

/// Parses `1.23ms` and similar.
fn time_ms(text: &str) -> Option<f64> {
    let text = text.split_whitespace().next()?;
    let end = text.find(|c: char| c.is_ascii_alphabetic())?;
    let factor = match &text[end..] {
        "us" => 1e-3,
        "ms" => 1.0,
        "s" => 1e3,
        "m" => 6e4,
        _ => return None,
    };
    Some(text[..end].parse::<f64>().ok()? * factor)
}
