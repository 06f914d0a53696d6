//! Command probe: runs a program that checks something, as Nagios does.
//!
//! Exit status and performance data: Monitoring Plugins Development Guidelines, sections 2 and 2.6.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use net::{Endpoint, EndpointError};
use role::settings::{SettingsCheck, TableRef};
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;
use tokio::runtime::Handle;

use crate::probe::{Attempt, Probe, ProbeReport, ProbeValue};

/// Output of a program that is read.
const OUTPUT_BYTES_MAX: u64 = 1 << 20;
/// Bytes of the output in the reason of a failure.
const MESSAGE_BYTES_MAX: usize = 200;
/// Interval at which a program that has closed its output is asked for its exit status.
const EXIT_POLL: Duration = Duration::from_millis(5);

/// `command = ["/usr/lib/nagios/plugins/check_disk", "-w", "10%"]`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct CommandProbe {
    /// Program, by its absolute path, and its arguments. No shell is used.
    pub command: Vec<String>,
}

/// Killed programs that have not ended: one that waits for a device cannot.
static ENDING: AtomicUsize = AtomicUsize::new(0);
const ENDING_MAX: usize = 16;

/// Program that runs in a process group of its own; dropping it kills the group.
struct CheckProcess {
    child: Option<Child>,
}

impl CheckProcess {
    fn start(command: &[String]) -> io::Result<(CheckProcess, pipe::Receiver)> {
        if ENDING.load(Ordering::Relaxed) >= ENDING_MAX {
            let what = format!("{ENDING_MAX} programs that were killed have not ended");
            return Err(io::Error::other(what));
        }
        let (program, arguments) =
            command.split_first().ok_or_else(|| io::Error::other("no program is named"))?;
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let output = child.stdout.take().expect("BUG: the output is a pipe");
        let process = CheckProcess { child: Some(child) };
        let output = pipe::Receiver::from_owned_fd(output.into())?;
        Ok((process, output))
    }

    /// Waits for the end of the program, whose output has ended.
    async fn wait(&mut self) -> io::Result<Option<i32>> {
        loop {
            let Some(child) = &mut self.child else { return Ok(None) };
            if let Some(status) = child.try_wait()? {
                self.child = None;
                return Ok(status.code());
            }
            tokio::time::sleep(EXIT_POLL).await;
        }
    }
}

impl Drop for CheckProcess {
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        // The child was not reaped, so the number of the group is still its own, also if it ended
        // and its children go on.
        if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        ENDING.fetch_add(1, Ordering::Relaxed);
        let mut reap = move || {
            let _ = child.wait();
            ENDING.fetch_sub(1, Ordering::Relaxed);
        };
        // A program that waits for a device may take long to end: a worker must not wait for it.
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(reap)),
            Err(_) => reap(),
        }
    }
}

/// One item of performance data.
#[derive(Debug, PartialEq)]
struct PerformanceValue {
    label: String,
    value: f64,
    unit: &'static str,
}

/// Reads performance data: `'label'=value[unit];[warn];[crit];[min];[max]`, separated by spaces. An
/// item without a number is left out, as one with the value `U` (unknown) is.
fn read_performance_data(mut text: &str) -> Vec<PerformanceValue> {
    let mut values = Vec::new();
    loop {
        text = text.trim_start();
        let (label, rest) = match text.strip_prefix('\'') {
            Some(quoted) => {
                // Two quotes in a label are one.
                let mut label = String::new();
                let mut rest = quoted;
                loop {
                    let Some((part, after)) = rest.split_once('\'') else { return values };
                    label.push_str(part);
                    rest = after;
                    match rest.strip_prefix('\'') {
                        Some(after) => {
                            label.push('\'');
                            rest = after;
                        }
                        None => break,
                    }
                }
                (label, rest)
            }
            None => {
                let end = text.find('=').unwrap_or(text.len());
                (text[..end].to_owned(), &text[end..])
            }
        };
        let Some(rest) = rest.strip_prefix('=') else { return values };
        let (item, rest) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        text = rest;
        let value = item.split(';').next().unwrap_or_default();
        let end = value.find(|byte: char| !"+-0123456789.eE".contains(byte));
        let (number, unit) = value.split_at(end.unwrap_or(value.len()));
        if let Ok(number) = number.parse::<f64>()
            && !label.is_empty()
        {
            let (factor, unit) = scale(unit);
            values.push(PerformanceValue { label, value: number * factor, unit });
        }
    }
}

/// Factor to the base unit, and that unit.
fn scale(unit: &str) -> (f64, &'static str) {
    match unit {
        "s" => (1.0, "s"),
        "ms" => (1e-3, "s"),
        "us" => (1e-6, "s"),
        "%" => (1.0, "%"),
        "B" => (1.0, "By"),
        "KB" => (1e3, "By"),
        "MB" => (1e6, "By"),
        "GB" => (1e9, "By"),
        "TB" => (1e12, "By"),
        _ => (1.0, ""),
    }
}

/// Adds the values of the output to the report; returns its first line without them.
fn read_output(output: &str, report: &mut ProbeReport) -> String {
    let first = output.lines().next().unwrap_or_default();
    let message = first.split('|').next().unwrap_or_default().trim();
    // The first line has data behind `|`, and so has what follows it, up to the end.
    let (head, long) = output.split_once('\n').unwrap_or((output, ""));
    for part in [head, long] {
        let data = part.split_once('|').map_or("", |(_, data)| data);
        for PerformanceValue { label, value, unit } in read_performance_data(data) {
            let labels = vec![("perfdata", label)];
            report.add_labelled(ProbeValue { name: "probe_perfdata", unit, labels, value });
        }
    }
    let mut message = message.to_owned();
    message.truncate(message.floor_char_boundary(MESSAGE_BYTES_MAX));
    message
}

/// Whether the check has succeeded.
fn judge(code: Option<i32>, message: &str) -> Result<(), String> {
    let state = match code {
        Some(0) => return Ok(()),
        Some(1) => "WARNING".to_owned(),
        Some(2) => "CRITICAL".to_owned(),
        Some(3) => "UNKNOWN".to_owned(),
        Some(code) => format!("exit status {code}"),
        None => "ended by a signal".to_owned(),
    };
    match message {
        "" => Err(state),
        _ => Err(format!("{state}: {message}")),
    }
}

impl Probe for CommandProbe {
    const KEY: &'static str = "command";
    const KEYS: &'static [&'static str] = &["command"];

    fn check(&self, table: TableRef<'_>, check: &mut SettingsCheck<'_>) {
        let what = match self.command.first() {
            None => "command is empty: name a program by its absolute path".to_owned(),
            Some(program) if !Path::new(program).is_absolute() => {
                format!("{program:?} is not an absolute path")
            }
            Some(_) => return,
        };
        check.problem(table, "command", what);
    }

    fn url(&self) -> String {
        format!("command:{}", self.command.first().map_or("", String::as_str))
    }

    /// A command has no peer.
    fn endpoint(&self) -> Result<Endpoint, EndpointError> {
        let (host, path) = ("localhost".to_owned(), "/".to_owned());
        Ok(Endpoint { secure: false, host, port: 0, path })
    }

    async fn run(&self, attempt: &mut Attempt<'_>) -> Result<(), String> {
        let began = Instant::now();
        let started = CheckProcess::start(&self.command);
        let (mut process, mut output) = started.map_err(|error| {
            format!("cannot start {}: {error}", self.command.first().map_or("", String::as_str))
        })?;
        attempt.report.phases.push(("start", began.elapsed()));
        let began = Instant::now();
        let mut bytes = Vec::new();
        let read = (&mut output).take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes).await;
        // A program that writes more gets SIGPIPE.
        drop(output);
        read.map_err(|error| format!("cannot read the output: {error}"))?;
        let code = process.wait().await.map_err(|error| format!("cannot wait: {error}"))?;
        attempt.report.phases.push(("run", began.elapsed()));
        let message = read_output(&String::from_utf8_lossy(&bytes), attempt.report);
        if let Some(code) = code {
            attempt.report.add("probe_exit_status", "", code.into());
        }
        judge(code, &message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[(&str, f64, &str)]) {
        let found = read_performance_data(text);
        let found: Vec<_> =
            found.iter().map(|value| (value.label.as_str(), value.value, value.unit)).collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn performance_data_has_base_units() {
        check("time=12ms;100;200;0 size=3KB", &[("time", 0.012, "s"), ("size", 3e3, "By")]);
        check("/=80%;90;95;0;100", &[("/", 80.0, "%")]);
        check("'a b'=1 'it''s'=-2.5e3c", &[("a b", 1.0, ""), ("it's", -2500.0, "")]);
        check("x=U y=1", &[("y", 1.0, "")]);
        check("=1 z=2", &[("z", 2.0, "")]);
        for nothing in ["", "   ", "abc", "'abc", "'abc'", "a=", "a=;;"] {
            check(nothing, &[]);
        }
    }

    #[test]
    fn output_has_a_message_and_values() {
        let mut report = ProbeReport::default();
        let output = "DISK OK - free | /=10MB;;\nmore\nlines | /var=1GB\n/tmp=2GB\n";
        assert_eq!(read_output(output, &mut report), "DISK OK - free");
        let labels: Vec<_> = report.values().iter().map(|value| &*value.labels[0].1).collect();
        assert_eq!(labels, ["/", "/var", "/tmp"]);
        assert_eq!(read_output("", &mut report), "");
        assert_eq!(read_output(&"ä".repeat(200), &mut report).len(), 200);
    }

    #[test]
    fn exit_status_is_the_state() {
        assert_eq!(judge(Some(0), "fine"), Ok(()));
        assert_eq!(judge(Some(2), "full").unwrap_err(), "CRITICAL: full");
        assert_eq!(judge(Some(1), "").unwrap_err(), "WARNING");
        assert_eq!(judge(Some(127), "").unwrap_err(), "exit status 127");
        assert_eq!(judge(None, "x").unwrap_err(), "ended by a signal: x");
    }
}
