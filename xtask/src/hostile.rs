//! The part `hostile`: attacks by misbehaving clients, next to a well-behaved (innocent) client.
//!
//! Each attack runs against its own server with small limits. It fails if
//!
//! * the server uses too much memory during the attack or one minute after it;
//! * the innocent client gets a wrong answer, or acknowledged values are missing, also after a
//!   restart;
//! * the server stops responding.
//!
//! Latencies of the innocent client are shown as multiples of its latencies without an attack; they
//! do not affect the outcome.
//!
//! `TOPDECK_HOSTILE=NAME` runs one attack; `TOPDECK_BIN=PATH` attacks another program than the one
//! that `make run` builds.

mod attack_target;
mod attacks;
mod bytes;
mod client;
mod innocent_client;
mod memory;

use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use self::attack_target::AttackTarget;
use self::innocent_client::{ClientLatencies, InnocentClient, METRIC};
use crate::ci_part::PartOutcome;
use crate::clients::TempDir;
use crate::command_line::CommandLine;
use crate::part_log::PartLog;
use crate::suite;
use crate::test_report::{TestEnd, TestReport};

/// Limit of resident memory during an attack, above its value before. Bytes.
const PEAK_BYTES_MAX: u64 = 500 << 20;
/// Limit of resident memory after an attack, above its value before. Bytes.
const AFTER_BYTES_MAX: u64 = 100 << 20;
/// Time within which the server must release memory.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Duration of the measurement of the innocent client before an attack.
const IDLE: Duration = Duration::from_secs(2);
const VARIABLE: &str = "TOPDECK_HOSTILE";

/// Something that a client must not do.
struct Attack {
    name: &'static str,
    /// Settings of `[store]`.
    store: &'static str,
    /// Settings of `[http.limits]`.
    limits: &'static str,
    /// Runs the attack. Returns a remark for the table; an error is a defect of the server.
    run: fn(&AttackTarget) -> Result<String>,
}

/// Outcome of an attack.
struct AttackReport {
    name: &'static str,
    before: u64,
    peak: u64,
    after: u64,
    /// Time until the memory was released.
    settled: Duration,
    idle: ClientLatencies,
    during: ClientLatencies,
    acknowledged: u64,
    remark: String,
    failures: Vec<String>,
}

pub(crate) fn run(log: &PartLog) -> Result<PartOutcome> {
    if !CommandLine::new("curl --version").succeeds() {
        let reason = "curl is not installed (Debian package curl)";
        return Ok(PartOutcome::Skipped(reason.to_owned()));
    }
    if memory::resident_bytes(std::process::id()) == 0 {
        return Ok(PartOutcome::Skipped("cannot measure memory: /proc is missing".to_owned()));
    }
    let topdeck = match std::env::var_os("TOPDECK_BIN") {
        Some(path) => PathBuf::from(path),
        None => suite::build_topdeck(log)?,
    };
    let dir = TempDir::new("hostile")?;
    let named = std::env::var(VARIABLE).ok();
    let is_named = |attack: &&Attack| named.as_ref().is_none_or(|name| name == attack.name);
    let mut report = TestReport::default();
    let mut table = vec![TABLE_HEADER.to_owned()];
    for attack in attacks::ALL.iter().filter(is_named) {
        let began = Instant::now();
        let name = attack.name.replace(|c: char| !c.is_alphanumeric(), "-");
        let made = attack.run_against(&topdeck, &dir.0.join(name));
        let (row, wrong) = match made {
            Ok(made) => (made.row(), made.failures),
            Err(error) => (format!("{:22} {error:#}", attack.name), vec![format!("{error:#}")]),
        };
        log.note(&row);
        table.push(row);
        let end = match wrong.is_empty() {
            true => TestEnd::Passed,
            false => {
                let repeat = format!("{VARIABLE}=\"{}\" cargo xtask system hostile", attack.name);
                TestEnd::Failed { repeat }
            }
        };
        report.add_test(attack.name, end, began.elapsed().as_secs_f64(), &wrong.join("\n"));
    }
    ensure!(report.count() > 0, "unknown attack {named:?}");
    log.write(&table.join("\n"));
    Ok(PartOutcome::Tests(report))
}

impl Attack {
    fn run_against(&self, program: &Path, dir: &Path) -> Result<AttackReport> {
        let scene = AttackTarget::new(program, dir, self.store, self.limits)?;
        let innocent = InnocentClient::new(&scene.innocent_token);
        let address = || scene.address();
        let ((), idle) = innocent.run_during(&address, || sleep(IDLE));
        let before = memory::resident_bytes(scene.pid());
        let pid = || scene.pid();
        let ((outcome, during), peak) =
            memory::measure_peak(&pid, || innocent.run_during(&address, || (self.run)(&scene)));
        let began = Instant::now();
        let mut after = memory::resident_bytes(scene.pid());
        while after > before + AFTER_BYTES_MAX && began.elapsed() < SETTLE_TIMEOUT {
            sleep(Duration::from_millis(100));
            after = memory::resident_bytes(scene.pid());
        }
        let settled = began.elapsed();

        let mut wrong = [&idle, &during].map(|met| met.errors.clone()).concat();
        let (note, outcome) = match outcome {
            Ok(note) => (note, Ok(())),
            Err(error) => (String::new(), Err(error)),
        };
        let mib = |bytes: u64| bytes >> 20;
        let memory = || {
            let (peak, after) = (peak.saturating_sub(before), after.saturating_sub(before));
            ensure!(
                peak <= PEAK_BYTES_MAX,
                "resident memory grew by {} MiB during the attack",
                mib(peak)
            );
            ensure!(
                after <= AFTER_BYTES_MAX,
                "resident memory is {} MiB higher a minute after the attack",
                mib(after)
            );
            Ok(())
        };
        let acknowledged = innocent.acknowledged();
        let stored = || scene.wait_until_stored(METRIC, acknowledged);
        let checks = [
            outcome,
            memory(),
            check_alive(&scene),
            stored(),
            scene.restart_with(|_| Ok(())).map(drop),
            check_alive(&scene),
            stored(),
        ];
        wrong.extend(checks.into_iter().filter_map(|check| Some(format!("{:#}", check.err()?))));
        if !wrong.is_empty() {
            wrong.push(scene.log());
        }
        let name = self.name;
        Ok(AttackReport {
            name,
            before,
            peak,
            after,
            settled,
            idle,
            during,
            acknowledged,
            remark: note,
            failures: wrong,
        })
    }
}

/// Checks that the server responds and reports no problem.
fn check_alive(scene: &AttackTarget) -> Result<()> {
    for path in ["/health", "/v1/status"] {
        scene.wait_until(path, &200, || {
            Ok(scene.request_as(&scene.other_token, "GET", path, &[], b"")?.status)
        })?;
    }
    Ok(())
}

const TABLE_HEADER: &str = "attack                 RSS in MiB: before, peak, after | innocent \
                            client: values, retries; p50/p99 of ingest, query, status as \
                            multiples of idle";

impl AttackReport {
    fn row(&self) -> String {
        let mib = |bytes: u64| bytes >> 20;
        let (idle, during) = (&self.idle, &self.during);
        let ratios = [
            ratios(&idle.ingest, &during.ingest),
            ratios(&idle.query, &during.query),
            ratios(&idle.status, &during.status),
        ];
        format!(
            "{:22} {:5} {:5} {:5} in {:4.1} s | {:6} {:5}; {} {}{}",
            self.name,
            mib(self.before),
            mib(self.peak),
            mib(self.after),
            self.settled.as_secs_f64(),
            self.acknowledged,
            self.during.deferred,
            ratios.join(" "),
            if self.failures.is_empty() { "ok" } else { "WRONG" },
            match (self.remark.as_str(), self.failures.first()) {
                (_, Some(wrong)) => format!("; {wrong}"),
                ("", None) => String::new(),
                (note, None) => format!("; {note}"),
            },
        )
    }
}

/// Median and p99 as multiples of their values without an attack.
fn ratios(idle: &[Duration], during: &[Duration]) -> String {
    let of = |times: &[Duration], percent: usize| {
        let mut times = times.to_vec();
        times.sort_unstable();
        let rank = (times.len() * percent).div_ceil(100).max(1);
        times.get(rank - 1).map(Duration::as_secs_f64)
    };
    let ratio = |percent| match (of(idle, percent), of(during, percent)) {
        (Some(idle), Some(during)) => format!("{:.1}", during / idle.max(1e-9)),
        _ => "-".to_owned(),
    };
    format!("{}/{}", ratio(50), ratio(99))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_percentiles() {
        let ms = |range: std::ops::RangeInclusive<u64>| range.map(Duration::from_millis).collect();
        let (idle, during): (Vec<_>, Vec<_>) = (ms(1..=100), ms(101..=200));
        assert_eq!(ratios(&idle, &during), "3.0/2.0");
        assert_eq!(ratios(&idle, &[]), "-/-");
    }
}
