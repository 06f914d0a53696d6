//! What the observer costs a server: throughput of nginx with and without it, in turns, with the
//! server alone on core 0 and the observer beside the client on core 1, and without pinning.
//!
//! The numbers need a machine that does nothing else: they fail the part only if
//! `TOPDECK_WIRE_TARGETS` is set.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::capture_process::CaptureProcess;
use super::http::{self, HttpTools};
use super::server_process::{
    ADDRESS, ServerDir, ServerProcess, find_program, free_port, number_after,
};
use super::{client_output, has_targets, load_average};
use crate::command_line::CommandLine;

/// Pairs of runs.
const ROUNDS: usize = 5;
const SECONDS: u64 = 4;
/// Largest loss of throughput of a server that is alone on its core.
const LOSS_MAX: f64 = 0.01;
const SERVER_CPU: u32 = 0;
const CLIENT_CPU: u32 = 1;

/// Throughput of a mode, and whether it is good enough.
pub(super) struct CostResult {
    pub(super) row: String,
    pub(super) failure: Option<String>,
}

/// Names of the modes: with the server on a core of its own, and without pinning.
pub(super) const MODES: [&str; 2] = ["pinned", "unpinned"];

/// One run of the client.
struct Throughput {
    requests: u64,
    /// CPU time of the server per request, in nanoseconds.
    server_ns: f64,
}

/// Runs a mode; the reason if a program is missing.
pub(super) fn run(topdeck: &Path, dir: &Path, mode: &str) -> Result<Result<CostResult, String>> {
    let tools = match http::tools() {
        Ok(tools) => tools,
        Err(reason) => return Ok(Err(reason)),
    };
    let Some(taskset) = find_program("taskset") else {
        return Ok(Err("taskset is not installed (Debian package util-linux)".to_owned()));
    };
    let is_pinned = mode == MODES[0];
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    if is_pinned && cpus < 2 {
        return Ok(Err("a machine with one CPU has no core for the server alone".to_owned()));
    }
    let pinned = |cpu| is_pinned.then(|| PinnedCpu { taskset: taskset.clone(), cpu });
    let (server_cpu, client_cpu) = (pinned(SERVER_CPU), pinned(CLIENT_CPU));
    let bench = CostBench::start(dir, mode, &tools, server_cpu.as_ref())?;
    let (mut without, mut with) = (Vec::new(), Vec::new());
    let services = [format!("{}/http", bench.port)];
    for round in 0..ROUNDS {
        // In turns, so that a drift of the machine is in both.
        for is_observed in [round % 2 == 0, round % 2 == 1] {
            let observer = is_observed.then(|| {
                CaptureProcess::start_on(client_cpu.as_ref(), topdeck, dir, &services, None)
            });
            let observer = observer.transpose()?;
            let run = bench.run(&tools.wrk, client_cpu.as_ref())?;
            match observer {
                None => without.push(run),
                Some(observer) => {
                    observer.stop()?;
                    with.push(run);
                }
            }
        }
    }
    Ok(Ok(result(mode, is_pinned, &without, &with)))
}

fn result(mode: &str, is_pinned: bool, without: &[Throughput], with: &[Throughput]) -> CostResult {
    let rate = |runs: &[Throughput]| {
        median(runs.iter().map(|run| run.requests as f64 / SECONDS as f64).collect())
    };
    let cpu = |runs: &[Throughput]| median(runs.iter().map(|run| run.server_ns).collect()) / 1e3;
    let losses: Vec<f64> = without
        .iter()
        .zip(with)
        .map(|(without, with)| 1.0 - with.requests as f64 / without.requests.max(1) as f64)
        .collect();
    let all: Vec<String> = losses.iter().map(|loss| format!("{:.1}", loss * 100.0)).collect();
    let loss = median(losses);
    let row = format!(
        "cost, {mode:8}: nginx {:.0}/s without, {:.0}/s with the observer; loss {:.1} % (rounds: \
         {} %); CPU of nginx {:.1} and {:.1} us per request",
        rate(without),
        rate(with),
        loss * 100.0,
        all.join(", "),
        cpu(without),
        cpu(with),
    );
    let row = format!("{row}; {}", load_average());
    let is_missed = is_pinned && loss > LOSS_MAX;
    let row = if is_missed { format!("{row}; target of 1 % missed") } else { row };
    let failure = (is_missed && has_targets()).then(|| row.clone());
    CostResult { row, failure }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// A CPU on which programs run.
pub(super) struct PinnedCpu {
    taskset: PathBuf,
    cpu: u32,
}

impl PinnedCpu {
    /// Arguments of a program that runs `program` on the CPU.
    pub(super) fn words(&self, program: &Path) -> [String; 4] {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        [text(&self.taskset), "-c".to_owned(), self.cpu.to_string(), text(program)]
    }
}

/// A server with one worker, and where its client finds it.
struct CostBench {
    server: ServerProcess,
    port: u16,
}

impl CostBench {
    fn start(
        dir: &Path,
        mode: &str,
        tools: &HttpTools,
        cpu: Option<&PinnedCpu>,
    ) -> Result<CostBench> {
        let dir = ServerDir::new(dir, &format!("nginx-{mode}"), "www-data")?;
        let port = free_port()?;
        let listen = format!("listen {ADDRESS}:{port};");
        let command = http::configure(&dir, cpu, &tools.nginx, &listen)?;
        Ok(CostBench { server: dir.start(command, port, "-TERM")?, port })
    }

    fn run(&self, wrk: &Path, cpu: Option<&PinnedCpu>) -> Result<Throughput> {
        let words = cpu.map_or_else(
            || vec![wrk.to_string_lossy().into_owned()],
            |cpu| cpu.words(wrk).to_vec(),
        );
        let line = CommandLine::from_path(Path::new(&words[0]));
        let line = words[1..].iter().fold(line, |line, word| line.arg(word));
        let url = format!("http://{ADDRESS}:{}/index.html", self.port);
        let before = self.cpu_ns();
        let line = line.arg("-t1").arg("-c8").arg(&format!("-d{SECONDS}s")).arg(&url);
        let report = client_output(line)?;
        let count = report.lines().find(|line| line.contains(" requests in "));
        let requests = count.and_then(|line| number_after(line, "")).context("wrk has no count")?;
        let server_ns = self.cpu_ns().saturating_sub(before) as f64 / requests.max(1) as f64;
        Ok(Throughput { requests, server_ns })
    }

    /// CPU time of nginx and its worker.
    fn cpu_ns(&self) -> u64 {
        let of = |pid: &str| {
            let text = fs::read_to_string(format!("/proc/{pid}/schedstat")).ok()?;
            text.split(' ').next()?.parse::<u64>().ok()
        };
        let pid = self.server.pid().to_string();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let children = children.unwrap_or_default();
        let all = children.split_whitespace().chain([pid.as_str()]);
        all.filter_map(of).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loss_is_the_median_of_the_pairs() {
        let runs = |requests: [u64; 3]| {
            requests.map(|requests| Throughput { requests, server_ns: 8_000.0 })
        };
        let found = result("pinned", true, &runs([100, 200, 400]), &runs([99, 190, 300]));
        assert!(found.row.contains("loss 5.0 % (rounds: 1.0, 5.0, 25.0 %)"), "{}", found.row);
        assert!(found.row.ends_with("target of 1 % missed"), "{}", found.row);
        let found = result("unpinned", false, &runs([100, 200, 400]), &runs([99, 190, 300]));
        assert!(found.row.contains("8.0 and 8.0 us per request; load average "), "{}", found.row);
    }
}
