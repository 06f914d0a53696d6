//! The freeze test: a server with a known truth is stopped (SIGSTOP) for part of a run, or the tool itself is.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::child::SERVICE_NS;
use super::tools::{Plan, Said, Tool};

/// What is stopped, and when.
#[derive(Clone, Copy)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) rate: f64,
    /// Of the whole length: when it is stopped, and when it goes on; beyond 1: not before the run has ended.
    pub(crate) from: f64,
    pub(crate) to: f64,
    pub(crate) is_tool_stopped: bool,
}

pub(crate) const SCENARIOS: [Scenario; 5] = [
    Scenario {
        name: "server stopped in the middle third, 100/s",
        rate: 100.0,
        from: 1.0 / 3.0,
        to: 2.0 / 3.0,
        is_tool_stopped: false,
    },
    Scenario {
        name: "server stopped in the middle third, 1,000/s",
        rate: 1_000.0,
        from: 1.0 / 3.0,
        to: 2.0 / 3.0,
        is_tool_stopped: false,
    },
    Scenario {
        name: "server stopped in the first sixth, 100/s",
        rate: 100.0,
        from: 0.0,
        to: 1.0 / 6.0,
        is_tool_stopped: false,
    },
    Scenario {
        name: "server stopped in the last third, to the end, 100/s",
        rate: 100.0,
        from: 2.0 / 3.0,
        to: 1.1,
        is_tool_stopped: false,
    },
    Scenario {
        name: "the tool itself stopped in the middle sixth, 100/s",
        rate: 100.0,
        from: 0.4,
        to: 0.4 + 1.0 / 6.0,
        is_tool_stopped: true,
    },
];

/// A server in a process of its own.
pub(crate) struct Server {
    process: Child,
    says: BufReader<ChildStdout>,
    pub(crate) url: String,
}

impl Server {
    pub(crate) fn start() -> Result<Server> {
        let mut process = Command::new(std::env::current_exe()?)
            .arg("--load-stub")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut says = BufReader::new(process.stdout.take().context("its output")?);
        let mut line = String::new();
        says.read_line(&mut line)?;
        Ok(Server { process, says, url: format!("http://{}/", line.trim()) })
    }

    /// Waits until its first request has come, which in a schedule is due at the start.
    fn begun(&mut self) -> Result<()> {
        self.says.read_line(&mut String::new())?;
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What a tool says of a scenario.
pub(crate) fn run(tool: Tool, scenario: &Scenario, seconds: f64) -> Result<Said> {
    let mut server = Server::start()?;
    let url = server.url.clone();
    let plan = Plan {
        url: &url,
        rate: Some(scenario.rate),
        seconds,
        drain: 0.0,
        connections: 10,
        processor: None,
    };
    let mut command = tool.command(&plan)?;
    // With what it starts itself, so that all of it can be stopped.
    let mut process = std::os::unix::process::CommandExt::process_group(&mut command, 0).spawn()?;
    server.begun()?;
    let began = Instant::now();
    let group = Pid::from_child(&process);
    let stopped = Pid::from_child(&server.process);
    let signal = |signal: Signal| match scenario.is_tool_stopped {
        true => kill_process_group(group, signal),
        false => kill_process(stopped, signal),
    };
    let at = |share: f64| {
        let moment = Duration::from_secs_f64(seconds * share);
        thread::sleep(moment.saturating_sub(began.elapsed()));
    };
    at(scenario.from);
    signal(Signal::STOP)?;
    at(scenario.to);
    signal(Signal::CONT)?;
    let mut said = String::new();
    process.stdout.take().context("its output")?.read_to_string(&mut said)?;
    let mut complained = String::new();
    process.stderr.take().context("its output")?.read_to_string(&mut complained)?;
    process.wait()?;
    tool.read(&said).with_context(|| complained)
}

/// The truth of it, if the server takes `service_ns` for each answer.
pub(crate) fn truth(scenario: &Scenario, seconds: f64, service_ns: u64) -> hist::Histogram {
    let ns = |share: f64| (seconds * share * 1e9) as u64;
    let length = ns(1.0);
    let schedule = load::Schedule::constant(scenario.rate, length, load::Spacing::Even);
    // Users of the server felt nothing of a tool that stood still.
    let freeze = match scenario.is_tool_stopped {
        true => load::Freeze { from_ns: 0, to_ns: 0 },
        false => load::Freeze { from_ns: ns(scenario.from), to_ns: ns(scenario.to) },
    };
    load::truth(schedule.arrivals(), service_ns, freeze, length)
}

/// What an answer takes at rest on this machine, as topdeck finds it: the median, nanoseconds.
pub(crate) fn at_rest() -> Result<u64> {
    let server = Server::start()?;
    let plan = Plan {
        url: &server.url,
        rate: Some(100.0),
        seconds: 2.0,
        drain: 1.0,
        connections: 10,
        processor: None,
    };
    let output = Tool::Topdeck.command(&plan)?.output()?;
    let said = Tool::Topdeck.read(&String::from_utf8_lossy(&output.stdout))?;
    Ok(said.p50.map_or(SERVICE_NS, |ms| (ms * 1e6) as u64))
}
