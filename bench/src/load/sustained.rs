//! The highest rate that a tool sustains on one CPU, against nginx on another.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::tools::{Tool, ToolResult, ToolRun};

/// A tool sustains a rate if it receives this share of the scheduled responses.
const SHARE: f64 = 0.99;
/// A rate that fails in this many runs is not sustained.
const ATTEMPTS: usize = 3;
/// First rate. Requests per second.
const FIRST: f64 = 2_000.0;
/// Ratio of the lowest failing to the highest sustained rate at which the search ends.
const NARROW: f64 = 1.05;
const PORT: u16 = 18_097;

/// nginx on the second CPU; its response has five bytes.
pub(crate) struct Nginx {
    process: Child,
    _dir: tempfile::TempDir,
    pub(crate) url: String,
}

impl Nginx {
    pub(crate) fn start() -> Result<Nginx> {
        let dir = tempfile::tempdir()?;
        let path = dir.path().display();
        let settings = format!(
            "worker_processes 1; daemon off; pid {path}/pid; error_log {path}/errors;\nevents {{ \
             worker_connections 20000; }}\nhttp {{ access_log off; keepalive_requests \
             100000000;\nserver {{ listen 127.0.0.1:{PORT} backlog=4096; location / {{ return 200 \
             \"hello\"; }} }} }}\n"
        );
        let file = dir.path().join("settings");
        std::fs::write(&file, settings)?;
        let process = Command::new("taskset")
            .args(["-c", "1", "nginx", "-c"])
            .arg(&file)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start nginx with taskset")?;
        let nginx = Nginx { process, _dir: dir, url: format!("http://127.0.0.1:{PORT}/") };
        for _ in 0..100 {
            if std::net::TcpStream::connect(("127.0.0.1", PORT)).is_ok() {
                return Ok(nginx);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        anyhow::bail!("nginx does not respond; is it installed?")
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // Ends its worker too.
        let _ = kill_process(Pid::from_child(&self.process), Signal::TERM);
        let _ = self.process.wait();
    }
}

/// Result of a tool against nginx with this number of connections and this limit.
pub(crate) fn run_against_nginx(
    tool: Tool,
    nginx: &Nginx,
    rate: Option<f64>,
    seconds: f64,
    (connections, connections_max): (usize, usize),
) -> Result<ToolResult> {
    let (url, drain, processor) = (nginx.url.as_str(), 1.0, Some(0));
    let plan = ToolRun {
        url,
        rate,
        seconds,
        grace_period: drain,
        connections,
        max_connections: connections_max,
        processor,
    };
    let output = tool.command(&plan)?.output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    tool.read(&String::from_utf8_lossy(&output.stdout))
}

/// The highest sustained rate: doubled until one fails, then bisected until the interval is narrow.
pub(crate) fn find_sustained_rate(
    tool: Tool,
    nginx: &Nginx,
    seconds: f64,
    connections: (usize, usize),
) -> Result<f64> {
    let is_held = |rate: f64| -> Result<bool> {
        for _ in 0..ATTEMPTS {
            let got =
                run_against_nginx(tool, nginx, Some(rate.round()), seconds, connections)?.rate;
            if got.is_some_and(|got| got >= rate.round() * SHARE) {
                return Ok(true);
            }
        }
        Ok(false)
    };
    let (mut held, mut not_held) = (0.0, FIRST);
    while is_held(not_held)? {
        (held, not_held) = (not_held, not_held * 2.0);
    }
    while held > 0.0 && not_held > held * NARROW {
        let between = (held * not_held).sqrt();
        match is_held(between)? {
            true => held = between,
            false => not_held = between,
        }
    }
    Ok(held)
}
