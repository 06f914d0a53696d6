//! Cost of reading the metrics of a running process.

use std::hint::black_box;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{add_note, child};
use crate::Effort;
use crate::clock::cpu_time;
use crate::report::{ReportSection, ReportTable, ReportTarget, Samples};

/// Attaches, reads, and counts system calls.
pub(super) fn run(effort: &Effort, section: &mut ReportSection) {
    // A process with one thread and a thousand counters, the usual setup for peers; this process
    // has had more threads.
    let one = child::CounterProcess::start(1_000).expect("this program starts once more");
    let path = &one.path;
    let mut table = ReportTable::new("Reading.", 1, &["", "median (min–max)"]);
    let mut note = |name: &str, unit: &str, samples: Samples, section: &mut ReportSection| {
        table.rows.push(vec![format!("{name}, {unit}"), samples.cell()]);
        let median = samples.median();
        section.samples.push((format!("{name}, {unit}"), vec![samples]));
        median
    };
    let rounds = effort.rounds * 20;
    let mut attach = Samples::new("attach", "");
    for _ in 0..rounds {
        let began = Instant::now();
        black_box(shm::MetricsFileReader::attach(path).expect("it can be read"));
        attach.values.push(began.elapsed().as_secs_f64() * 1e6);
    }
    let attached = note("attach to a process with 1,000 counters", "us", attach, section);
    let mut reader = shm::MetricsFileReader::attach(path).expect("it can be read");
    reader.refresh().expect("it can be read");
    let mut counts = vec![0; reader.len()];
    let mut per_value = Samples::new("per value", "");
    for _ in 0..rounds {
        let before = cpu_time();
        for _ in 0..1_000 {
            reader.counts(black_box(&mut counts)).expect("it can be read");
        }
        let took = (cpu_time() - before).as_secs_f64() * 1e9;
        per_value.values.push(took / 1_000.0 / counts.len() as f64);
    }
    let value = note("a counter, of 1,000 that are read together", "ns", per_value, section);
    section.targets.push(ReportTarget::at_most("read a value", 0.5, "ns", Some(value)));
    section.targets.push(ReportTarget::at_most("attach to a process", 100.0, "us", Some(attached)));
    match jstat_samples() {
        Ok(samples) => {
            note("jstat -gc of a running JVM, once", "ms", samples, section);
        }
        Err(reason) => add_note(section, &format!("jstat is missing: {reason}.")),
    }
    section.tables.push(table);
    let calls = |what: &str, more: &str| {
        let found = child::count_calls(&[what, more]);
        found.map(|calls| calls as f64)
    };
    section.targets.push(ReportTarget::at_most(
        "system calls of 2 × 100,000 records, each counted twice",
        0.0,
        "calls",
        calls("--record-shm", "100000"),
    ));
    section.targets.push(ReportTarget::at_most(
        "system calls of reading 1,000 counters 10,000 times",
        0.0,
        "calls",
        calls("--read-shm", "10000"),
    ));
}

/// Wall time in milliseconds of reading a JVM with its own tool.
fn jstat_samples() -> Result<Samples, String> {
    let mut program =
        tempfile::Builder::new().suffix(".java").tempfile().map_err(|e| e.to_string())?;
    let text =
        "class A { public static void main(String[] a) throws Exception { System.in.read(); } }";
    std::io::Write::write_all(&mut program, text.as_bytes()).map_err(|e| e.to_string())?;
    let mut java = Command::new("java")
        .arg(program.path())
        .stdin(Stdio::piped())
        .spawn()
        .map_err(|error| format!("java does not start: {error}"))?;
    std::thread::sleep(Duration::from_secs(4));
    let mut samples = Samples::new("jstat", "");
    for _ in 0..5 {
        let began = Instant::now();
        let status = Command::new("jstat")
            .args(["-gc", &java.id().to_string()])
            .stdout(Stdio::null())
            .status();
        if status.is_ok_and(|status| status.success()) {
            samples.values.push(began.elapsed().as_secs_f64() * 1e3);
        }
    }
    let _ = java.kill();
    let _ = java.wait();
    if samples.values.is_empty() { Err("it does not run".to_owned()) } else { Ok(samples) }
}
