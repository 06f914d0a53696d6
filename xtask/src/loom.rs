//! The loom part: all interleavings of the lock-free code's threads, up to some preemptions.

use anyhow::{Result, ensure};

use crate::libtest::run_cargo_test;
use crate::line::Line;
use crate::log::Log;
use crate::part::Outcome;
use crate::report::TestReport;

/// The crates with lock-free code of their own.
const CRATES: [&str; 4] = ["hist", "clock", "shm", "journal"];

/// `preemptions`: how often threads may be stopped mid-way in one execution; `None` is no bound.
pub(crate) fn run(log: &Log, preemptions: Option<u32>) -> Result<Outcome> {
    let mut sum = TestReport::default();
    for name in CRATES {
        let test = format!("cargo test -p topdeck-{name} --release --locked --lib loom_");
        let line = Line::new(&test)
            .env("RUSTFLAGS", "--cfg loom")
            // The flag reaches every dependency; its own folder keeps the usual build from being
            // redone.
            .env("CARGO_TARGET_DIR", "target/loom");
        let line = match preemptions {
            Some(count) => line.env("LOOM_MAX_PREEMPTIONS", &count.to_string()),
            None => line.unset("LOOM_MAX_PREEMPTIONS"),
        };
        let report = run_cargo_test(log, &line, "cargo xtask ci loom")?;
        ensure!(report.count() > 0, "no test of `{name}` is named loom_: nothing was checked");
        sum.add(report);
    }
    Ok(Outcome::Tests(sum))
}
