//! The tools that make load, and how each says what it found. Times are milliseconds.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::journal::program::{build_folder, run_tool, source_folder, version};

const VEGETA: &str = include_str!("../../peers/vegeta/go.mod");

/// A tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tool {
    Topdeck,
    Vegeta,
    Wrk,
    Hey,
    H2load,
}

/// What a run is to be.
#[derive(Clone, Copy)]
pub(crate) struct Plan<'a> {
    pub(crate) url: &'a str,
    /// Requests per second; `None`: as fast as it goes.
    pub(crate) rate: Option<f64>,
    pub(crate) seconds: f64,
    /// How long topdeck waits for answers at the end; the others do as they do.
    pub(crate) drain: f64,
    pub(crate) connections: usize,
    /// Where it runs, if it is to be one processor.
    pub(crate) processor: Option<usize>,
}

/// What a tool said.
#[derive(Clone, Debug, Default)]
pub(crate) struct Said {
    pub(crate) mean: Option<f64>,
    pub(crate) p50: Option<f64>,
    pub(crate) p99: Option<f64>,
    pub(crate) p99_9: Option<f64>,
    pub(crate) p99_99: Option<f64>,
    pub(crate) max: Option<f64>,
    /// Answers per second.
    pub(crate) rate: Option<f64>,
    /// Whether it said that it is not to be trusted, if it can.
    pub(crate) doubts: Option<bool>,
    pub(crate) text: String,
}

impl Tool {
    pub(crate) const ALL: [Tool; 5] =
        [Tool::Topdeck, Tool::Vegeta, Tool::Wrk, Tool::Hey, Tool::H2load];

    pub(crate) fn name(self) -> String {
        match self {
            Tool::Topdeck => "topdeck load".to_owned(),
            Tool::Vegeta => {
                format!("vegeta {}", version(VEGETA, "github.com/tsenart/vegeta/v12 v", "\n"))
            }
            Tool::Wrk => "wrk (as fast as it goes)".to_owned(),
            Tool::Hey => "hey".to_owned(),
            Tool::H2load => "h2load".to_owned(),
        }
    }

    /// How it is started; an error says what is missing.
    pub(crate) fn command(self, plan: &Plan) -> Result<Command> {
        let seconds = plan.seconds.to_string();
        let connections = plan.connections.to_string();
        let program = match self {
            Tool::Topdeck => std::env::current_exe()?,
            Tool::Vegeta => vegeta()?,
            Tool::Wrk => installed("wrk")?,
            Tool::Hey => installed("hey")?,
            Tool::H2load => installed("h2load")?,
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
                &plan.drain.to_string(),
                &connections,
            ]),
            Tool::Vegeta => {
                let line = "echo \"GET $1\" | \"$0\" attack -rate=$2 -duration=$3 -max-workers=20000 | \"$0\" report -type=json";
                let vegeta = command.get_program().to_owned();
                let arguments: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
                let mut shell = Command::new(&vegeta);
                // With one processor, all of the pipe is on it.
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
            Tool::H2load => {
                let each = rate / plan.connections as f64;
                command
                    .args([
                        "--h1",
                        "-t1",
                        "-D",
                        &seconds,
                        "-c",
                        &connections,
                        "--rps",
                        &each.to_string(),
                    ])
                    .arg(plan.url)
            }
        };
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(command)
    }

    /// What it said on its output.
    pub(crate) fn read(self, text: &str) -> Result<Said> {
        let after = |mark: &str| {
            text.lines().find_map(|line| line.trim().strip_prefix(mark)).map(|rest| rest.trim())
        };
        let number = |mark: &str| after(mark)?.split_whitespace().next()?.parse::<f64>().ok();
        let text_of = text.to_owned();
        let said = match self {
            Tool::Topdeck => Said {
                mean: number("response mean"),
                p50: number("response p50"),
                p99: number("response p99 "),
                p99_9: number("response p99.9 "),
                p99_99: number("response p99.99"),
                max: number("response max"),
                rate: number("rate"),
                doubts: number("doubts").map(|count| count > 0.0),
                text: text_of,
            },
            Tool::Vegeta => {
                let json: serde_json::Value = serde_json::from_str(text)?;
                let ms = |name: &str| json["latencies"][name].as_f64().map(|ns| ns * 1e-6);
                Said {
                    mean: ms("mean"),
                    p50: ms("50th"),
                    p99: ms("99th"),
                    max: ms("max"),
                    rate: json["throughput"].as_f64(),
                    text: text_of,
                    ..Said::default()
                }
            }
            Tool::Wrk => {
                // The first says mean, deviation and greatest.
                let stats: Vec<&str> =
                    after("Latency ").unwrap_or_default().split_whitespace().collect();
                Said {
                    mean: stats.first().and_then(|one| time_ms(one)),
                    p50: after("50%").and_then(time_ms),
                    p99: after("99%").and_then(time_ms),
                    max: stats.get(2).and_then(|one| time_ms(one)),
                    rate: number("Requests/sec:"),
                    text: text_of,
                    ..Said::default()
                }
            }
            Tool::Hey => {
                let ms = |mark: &str| number(mark).map(|seconds| seconds * 1e3);
                Said {
                    mean: ms("Average:"),
                    p50: ms("50% in"),
                    p99: ms("99% in"),
                    max: ms("Slowest:"),
                    rate: number("Requests/sec:"),
                    text: text_of,
                    ..Said::default()
                }
            }
            Tool::H2load => {
                let stats: Vec<&str> =
                    after("time for request:").unwrap_or_default().split_whitespace().collect();
                let finished = after("finished in").unwrap_or_default();
                let rate = finished.split(", ").find_map(|one| one.strip_suffix(" req/s"));
                Said {
                    mean: stats.get(2).and_then(|one| time_ms(one)),
                    max: stats.get(1).and_then(|one| time_ms(one)),
                    rate: rate.and_then(|one| one.parse().ok()),
                    text: text_of,
                    ..Said::default()
                }
            }
        };
        ensure!(said.mean.is_some(), "{} said nothing that is understood: {text}", self.name());
        Ok(said)
    }
}

/// A figure of topdeck's own that is none of the others.
pub(crate) fn own(said: &Said, name: &str) -> Option<f64> {
    said.text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

fn installed(name: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found =
        std::env::split_paths(&path).map(|folder| folder.join(name)).find(|one| one.is_file());
    match found {
        Some(found) => Ok(found),
        None => bail!("there is no {name} on this machine"),
    }
}

fn vegeta() -> Result<PathBuf> {
    let pinned = version(VEGETA, "github.com/tsenart/vegeta/v12 v", "\n");
    let program = build_folder("vegeta")?.join(format!("vegeta-{pinned}"));
    if !program.exists() {
        let mut build = Command::new("go");
        build.current_dir(source_folder("vegeta"));
        build.args(["build", "-mod=readonly", "-o"]).arg(&program);
        run_tool(build.arg("github.com/tsenart/vegeta/v12")).context("building vegeta")?;
    }
    Ok(program)
}

/// `1.23ms` and its like.
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
