//! The coordinated-omission test: a server with known response times is stopped (SIGSTOP) during a
//! part of a run, or the tool itself is.

use std::io::{BufRead as _, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::child::SERVICE_NS;
use super::packets;
use super::tools::{Tool, ToolResult, ToolRun};

/// Below the listen backlog of a server (4,096): beyond it the kernel retries after one to three
/// seconds.
const CONNECTIONS_MAX: usize = 1_000;

/// Event during a run.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Disturbance {
    /// The server is stopped between these shares of the duration.
    ServerStall(f64, f64),
    /// The tool is stopped between these shares of the duration.
    ToolStall(f64, f64),
    /// The server is stopped for `length` seconds every `every` seconds.
    PeriodicStalls { length: f64, every: f64 },
    /// The server responds serially, and falls behind.
    Overload,
}

/// A run with an event.
#[derive(Clone, Copy)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) rate: f64,
    pub(crate) disturbance: Disturbance,
}

const fn scenario(name: &'static str, rate: f64, happens: Disturbance) -> Scenario {
    Scenario { name, rate, disturbance: happens }
}

const THIRD: f64 = 1.0 / 3.0;
const SIXTH: f64 = 1.0 / 6.0;

pub(crate) const SCENARIOS: [Scenario; 8] = [
    scenario(
        "server stopped in the middle third, 100/s",
        100.0,
        Disturbance::ServerStall(THIRD, 2.0 * THIRD),
    ),
    scenario(
        "server stopped in the middle third, 1,000/s",
        1_000.0,
        Disturbance::ServerStall(THIRD, 2.0 * THIRD),
    ),
    scenario(
        "server stopped in the first sixth, 100/s",
        100.0,
        Disturbance::ServerStall(0.0, SIXTH),
    ),
    scenario(
        "server stopped in the last third, to the end, 100/s",
        100.0,
        Disturbance::ServerStall(2.0 * THIRD, 1.0),
    ),
    scenario(
        "server stopped in the last third, to the end, 1,000/s",
        1_000.0,
        Disturbance::ServerStall(2.0 * THIRD, 1.0),
    ),
    scenario("1,200/s to a server that answers 1,000/s", 1_200.0, Disturbance::Overload),
    scenario(
        "server stopped for 50 ms every 1.5 s, 1,000/s",
        1_000.0,
        Disturbance::PeriodicStalls { length: 0.05, every: 1.5 },
    ),
    scenario(
        "the tool itself stopped in the middle sixth, 100/s",
        100.0,
        Disturbance::ToolStall(0.4, 0.4 + SIXTH),
    ),
];

impl Scenario {
    /// Start and end of each stop, in seconds of a run of this duration.
    fn stops(&self, seconds: f64) -> Vec<(f64, f64)> {
        match self.disturbance {
            Disturbance::ServerStall(from, to) | Disturbance::ToolStall(from, to) => {
                vec![(from * seconds, to * seconds)]
            }
            Disturbance::PeriodicStalls { length, every } => {
                let count = (seconds / every) as usize;
                let begins = (0..count).map(|number| (number as f64 + 0.5) * every);
                begins.map(|from| (from, from + length)).collect()
            }
            Disturbance::Overload => Vec::new(),
        }
    }

    pub(crate) fn is_tool_stopped(&self) -> bool {
        matches!(self.disturbance, Disturbance::ToolStall(..))
    }
}

/// A server in a separate process.
pub(crate) struct StallServer {
    process: Child,
    stdout: BufReader<ChildStdout>,
    pub(crate) url: String,
}

impl StallServer {
    pub(crate) fn start(is_in_turn: bool) -> Result<StallServer> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(["--load-stub", if is_in_turn { "in-turn" } else { "at-once" }])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut says = BufReader::new(process.stdout.take().context("its output")?);
        let mut line = String::new();
        says.read_line(&mut line)?;
        Ok(StallServer { process, stdout: says, url: format!("http://{}/", line.trim()) })
    }

    /// Waits for the first request, which a schedule sends at its start.
    fn wait_first_request(&mut self) -> Result<()> {
        self.stdout.read_line(&mut String::new())?;
        Ok(())
    }
}

impl Drop for StallServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Result of a tool for a scenario, or for one without an event.
pub(crate) fn run(
    tool: Tool,
    scenario: &Scenario,
    seconds: f64,
    happens_something: bool,
) -> Result<ToolResult> {
    let is_overload = scenario.disturbance == Disturbance::Overload;
    let mut server = StallServer::start(is_overload)?;
    let url = server.url.clone();
    let plan = ToolRun {
        url: &url,
        rate: Some(scenario.rate),
        seconds,
        // After an overload, responses arrive as long after the end as the server has fallen
        // behind.
        grace_period: if is_overload { seconds } else { 0.0 },
        connections: 10,
        max_connections: CONNECTIONS_MAX,
        processor: None,
    };
    let mut command = tool.command(&plan)?;
    // A process group, so that its child processes are stopped too.
    let mut process = std::os::unix::process::CommandExt::process_group(&mut command, 0).spawn()?;
    // Drains the output: a full pipe would block the tool.
    let says = process.stdout.take().context("its output")?;
    let complains = process.stderr.take().context("its output")?;
    let [said, complained] =
        [Box::new(says) as Box<dyn Read + Send>, Box::new(complains)].map(|mut from| {
            thread::spawn(move || {
                let mut text = String::new();
                from.read_to_string(&mut text).map(|_| text)
            })
        });
    server.wait_first_request()?;
    let began = Instant::now();
    let group = Pid::from_child(&process);
    let stopped = Pid::from_child(&server.process);
    let signal = |signal: Signal| match scenario.is_tool_stopped() {
        true => kill_process_group(group, signal),
        false => kill_process(stopped, signal),
    };
    let at = |seconds: f64| {
        thread::sleep(Duration::from_secs_f64(seconds).saturating_sub(began.elapsed()));
    };
    for (from, to) in scenario.stops(seconds).into_iter().filter(|_| happens_something) {
        at(from);
        signal(Signal::STOP)?;
        at(to);
        signal(Signal::CONT)?;
    }
    process.wait()?;
    let text = |reader: thread::JoinHandle<std::io::Result<String>>| -> Result<String> {
        Ok(reader.join().map_err(|_| anyhow::anyhow!("the reader of the output panicked"))??)
    };
    let complained = text(complained)?;
    tool.read(&text(said)?).with_context(|| complained)
}

/// Expected response times if the server takes `service_ns` per response.
pub(crate) fn expected_histogram(
    scenario: &Scenario,
    seconds: f64,
    service_ns: u64,
) -> hist::Histogram {
    let ns = |seconds: f64| (seconds * 1e9) as u64;
    let length = ns(seconds);
    let schedule = load::Schedule::constant(scenario.rate, length, load::ArrivalProcess::Constant);
    if scenario.disturbance == Disturbance::Overload {
        let (mut recorder, mut free_ns) = (hist::Recorder::new(), 0);
        for due_ns in schedule.arrivals() {
            free_ns = due_ns.max(free_ns) + SERVICE_NS;
            recorder.record(free_ns - due_ns + service_ns.saturating_sub(SERVICE_NS));
        }
        return recorder.snapshot();
    }
    // A stopped tool does not affect users of the server.
    let stops = scenario.stops(seconds).into_iter().filter(|_| !scenario.is_tool_stopped());
    let stalls: Vec<load::ServerStall> =
        stops.map(|(from, to)| load::ServerStall { from_ns: ns(from), to_ns: ns(to) }).collect();
    load::expected_response_times(schedule.arrivals(), service_ns, &stalls, length)
}

/// Median response time of the server in nanoseconds at this rate without a stop, from its packets.
pub(crate) fn idle_response_ns(rate: f64) -> Result<u64> {
    let server = StallServer::start(false)?;
    let plan = ToolRun {
        url: &server.url,
        rate: Some(rate),
        seconds: 3.0,
        grace_period: 1.0,
        connections: 10,
        max_connections: CONNECTIONS_MAX,
        processor: None,
    };
    let (_, packets) = packets::run_with_capture(Tool::Topdeck, &plan)?;
    Ok(packets.quantile(0.5).map_or(SERVICE_NS, |found| found.estimate as u64))
}
