//! `topdeck wire` beside a load: its report, CPU time and memory.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use super::load_truth::OperationSelector;
use super::observer_cost::PinnedCpu;

/// Time for the start of the capture, and for reading what was captured, on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(5);
/// An observer that takes less CPU time than `IDLE_NS` in `IDLE_INTERVAL` has read all packets.
const IDLE_INTERVAL: Duration = Duration::from_millis(100);
const IDLE_NS: u64 = 1_000_000;
/// Bit of SIGTERM in a mask of signals.
const SIGTERM_BIT: u64 = 1 << 14;

/// A running capture of the loopback interface.
pub(super) struct CaptureProcess {
    child: Child,
    dir: PathBuf,
    /// CPU time until the capture had started.
    start_ns: u64,
}

/// What an observer reports at its end.
pub(super) struct ObserverReport {
    json: Value,
    /// CPU time of the capture, in user and kernel mode, without its start and end. `None` if the
    /// kernel does not tell.
    pub(super) cpu_ns: Option<u64>,
    /// Largest resident memory, with the touched part of the ring.
    pub(super) memory_bytes: u64,
}

/// One service of a report; `None` inside if it had no packet.
#[derive(Clone, Copy)]
pub(super) struct ServiceReport<'a>(Option<&'a Value>);

/// Bounds of a quantile in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct QuantileBounds {
    pub(super) lower: f64,
    pub(super) estimate: f64,
    pub(super) upper: f64,
}

impl CaptureProcess {
    /// Starts a capture of `services` (`PORT/PROTOCOL`), with TLS at the library of process `tls`.
    pub(super) fn start(
        topdeck: &Path,
        dir: &Path,
        services: &[String],
        tls: Option<u32>,
    ) -> Result<CaptureProcess> {
        CaptureProcess::start_on(None, topdeck, dir, services, tls)
    }

    /// As [`Self::start`], on one CPU.
    pub(super) fn start_on(
        cpu: Option<&PinnedCpu>,
        topdeck: &Path,
        dir: &Path,
        services: &[String],
        tls: Option<u32>,
    ) -> Result<CaptureProcess> {
        let (out, errors) = (dir.join("observer.json"), dir.join("observer.err"));
        let mut command = match cpu {
            None => Command::new(topdeck),
            Some(cpu) => {
                let [taskset, rest @ ..] = cpu.words(topdeck);
                let mut command = Command::new(taskset);
                command.args(rest);
                command
            }
        };
        command.args(["wire", "--interface", "lo", "--only", "--json"]);
        command.args(services.iter().flat_map(|service| ["--service", service]));
        command.args(tls.map(|pid| format!("--tls={pid}")));
        command.stdin(Stdio::null()).stdout(File::create(out)?).stderr(File::create(errors)?);
        let child = command.spawn().context("cannot start topdeck")?;
        let mut observer = CaptureProcess { child, dir: dir.to_owned(), start_ns: 0 };
        let deadline = Instant::now() + TIMEOUT;
        // It handles signals from the start of the capture on.
        while observer.handled_signals() & SIGTERM_BIT == 0 {
            if observer.child.try_wait()?.is_some() {
                bail!("{}", observer.errors().trim());
            }
            ensure!(Instant::now() < deadline, "topdeck wire has not started in {TIMEOUT:?}");
            sleep(PAUSE);
        }
        observer.start_ns = observer.cpu_ns();
        Ok(observer)
    }

    /// Ends the capture when all packets are read.
    pub(super) fn stop(mut self) -> Result<ObserverReport> {
        let deadline = Instant::now() + TIMEOUT;
        let mut cpu_ns = self.cpu_ns();
        loop {
            sleep(IDLE_INTERVAL);
            let now_ns = self.cpu_ns();
            let is_idle = now_ns.saturating_sub(cpu_ns) < IDLE_NS;
            cpu_ns = now_ns;
            if is_idle || Instant::now() > deadline {
                break;
            }
        }
        let memory_bytes = self.status_field("VmHWM:").unwrap_or(0) << 10;
        let kill = Command::new("kill").args(["-INT", &self.child.id().to_string()]).status()?;
        ensure!(kill.success(), "cannot send SIGINT to topdeck");
        let status = self.child.wait()?;
        ensure!(status.success(), "topdeck wire exited with {status}: {}", self.errors().trim());
        let json = fs::read(self.dir.join("observer.json"))?;
        let json = serde_json::from_slice(&json).context("topdeck wire wrote no JSON")?;
        let cpu_ns = (self.start_ns > 0).then(|| cpu_ns.saturating_sub(self.start_ns));
        Ok(ObserverReport { json, cpu_ns, memory_bytes })
    }

    fn errors(&self) -> String {
        fs::read_to_string(self.dir.join("observer.err")).unwrap_or_default()
    }

    fn proc(&self, name: &str) -> PathBuf {
        Path::new("/proc").join(self.child.id().to_string()).join(name)
    }

    /// CPU time of all threads.
    fn cpu_ns(&self) -> u64 {
        let tasks = fs::read_dir(self.proc("task")).into_iter().flatten().flatten();
        let of_task = |path: PathBuf| {
            let text = fs::read_to_string(path.join("schedstat")).ok()?;
            text.split(' ').next()?.parse::<u64>().ok()
        };
        tasks.filter_map(|task| of_task(task.path())).sum()
    }

    fn status_line(&self, name: &str) -> Option<String> {
        let text = fs::read_to_string(self.proc("status")).ok()?;
        let value = text.lines().find_map(|line| line.strip_prefix(name))?;
        Some(value.trim().to_owned())
    }

    fn status_field(&self, name: &str) -> Option<u64> {
        self.status_line(name)?.split(' ').next()?.parse().ok()
    }

    fn handled_signals(&self) -> u64 {
        let mask = self.status_line("SigCgt:");
        mask.and_then(|mask| u64::from_str_radix(&mask, 16).ok()).unwrap_or(0)
    }
}

impl Drop for CaptureProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl ObserverReport {
    /// The service at a port of the loopback interface.
    pub(super) fn service(&self, port: u16) -> ServiceReport<'_> {
        let name = format!("{}:{port}", super::server_process::ADDRESS);
        let services = self.json["services"].as_array();
        ServiceReport(services.into_iter().flatten().find(|one| one["service"] == name.as_str()))
    }

    /// Packets that the kernel dropped, and chunks of plaintext that were lost.
    pub(super) fn lost(&self) -> u64 {
        number(&self.json["reported_drops"]) + number(&self.json["tls"]["lost_events"])
    }
}

impl<'a> ServiceReport<'a> {
    fn statements(self) -> impl Iterator<Item = &'a Value> {
        self.0.into_iter().flat_map(|service| {
            let statements = service["statements"].as_array();
            statements.into_iter().flatten().chain([&service["other"]])
        })
    }

    fn completeness(self, name: &str) -> u64 {
        self.0.map_or(0, |service| number(&service["completeness"][name]))
    }

    pub(super) fn gaps(self) -> u64 {
        self.completeness("gaps")
    }

    pub(super) fn in_flight(self) -> u64 {
        self.completeness("in_flight")
    }

    pub(super) fn measured(self) -> u64 {
        self.completeness("measured")
    }

    /// Requests that are not measured, by reason, without those that have none.
    pub(super) fn not_measured(self) -> Vec<(&'a str, u64)> {
        let reasons =
            self.0.and_then(|service| service["completeness"]["not_measured"].as_object());
        let reasons = reasons.into_iter().flatten();
        let reasons = reasons.map(|(reason, requests)| (reason.as_str(), number(requests)));
        reasons.filter(|(_, requests)| *requests > 0).collect()
    }

    /// Statements with their numbers of operations, of a verb.
    pub(super) fn operations_of(self, verb: &str) -> Vec<(&'a str, u64)> {
        let chosen = self.statements().filter(|one| one["verb"] == verb);
        let of = |one: &'a Value| {
            (one["statement"].as_str().unwrap_or_default(), number(&one["operations"]))
        };
        chosen.map(of).collect()
    }

    /// Bytes of the responses to successful operations whose statement contains `part`.
    pub(super) fn response_bytes(self, part: &str) -> u64 {
        let contains =
            |one: &&Value| one["statement"].as_str().is_some_and(|text| text.contains(part));
        let bytes = |one: &Value| one["succeeded"]["response_bytes"]["sum"]["estimate"].as_f64();
        self.statements().filter(contains).filter_map(bytes).sum::<f64>() as u64
    }

    /// Number of the selected operations.
    pub(super) fn count(self, selector: &OperationSelector) -> u64 {
        self.selected(selector).map(|one| selector.count(one)).sum()
    }

    fn selected(self, selector: &OperationSelector) -> impl Iterator<Item = &'a Value> {
        self.statements().filter(|one| selector.selects(one))
    }

    /// A quantile (`p50`) of the latencies, if all selected operations are of one statement and
    /// succeeded.
    pub(super) fn latency(
        self,
        selector: &OperationSelector,
        quantile: &str,
    ) -> Option<QuantileBounds> {
        let mut chosen = self.selected(selector).filter(|one| selector.count(one) > 0);
        let (statement, None) = (chosen.next()?, chosen.next()) else { return None };
        let found = &statement["succeeded"]["last_byte_ns"];
        if number(&found["count"]) != selector.count(statement) {
            return None;
        }
        let bound = |name: &str| found[quantile][name].as_f64();
        Some(QuantileBounds {
            lower: bound("lower")?,
            estimate: bound("estimate")?,
            upper: bound("upper")?,
        })
    }
}

pub(super) fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A report of one service, of which 7 of 9 requests are measured.
    pub(crate) fn report(statements: &str, lost: u64) -> ObserverReport {
        let json = format!(
            r#"{{"reported_drops": {lost}, "tls": null, "services": [{{"service": "127.0.0.1:1",
            "completeness": {{"measured": 7, "in_flight": 0, "gaps": 0,
            "not_measured": {{"gap": 0, "connection_end": 2}}}}, "statements": [{statements}],
            "other": {{"operations": 0}}}}]}}"#
        );
        let json = serde_json::from_str(&json).unwrap();
        ObserverReport { json, cpu_ns: Some(9_000), memory_bytes: 1 << 20 }
    }

    const SELECT: &str = r#"{"verb": "Query", "statement": "select $1", "operations": 5,
        "errors": 2, "failed": {"22": {"last_byte_ns": {"count": 2}}},
        "succeeded": {"last_byte_ns": {"count": 3}}, "waits": null}"#;

    #[test]
    fn operations_are_selected_and_counted() {
        let report = report(SELECT, 0);
        let service = report.service(1);
        let all = OperationSelector::new("Query", "select");
        assert_eq!(service.count(&all), 5);
        assert_eq!(service.count(&OperationSelector { error: Some("22"), ..all }), 2);
        assert_eq!(service.count(&OperationSelector::new("Query", "insert")), 0);
        assert_eq!(service.not_measured(), [("connection_end", 2)]);
        assert_eq!(service.latency(&OperationSelector::new("Query", "select"), "p50"), None);
        assert_eq!(report.service(2).measured(), 0);
    }
}
