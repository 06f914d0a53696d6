//! The Miri part: tests named `miri_`, in an interpreter that sees undefined behaviour and races.

use anyhow::{Result, ensure};

use crate::line::Line;
use crate::part::Outcome;

/// The crates whose threads share memory.
const CRATES: [&str; 4] = ["hist", "disk", "shm", "journal"];

/// Installs nightly and Miri if they are missing, and skips the part where that is not possible.
pub(crate) fn run(part: &str) -> Result<Outcome> {
    if let Err(reason) = prepare(part) {
        return Ok(Outcome::Skipped(format!("{reason:#}")));
    }
    for name in CRATES {
        let test = format!("cargo +nightly miri test -p topdeck-{name} --locked --lib -- miri_");
        let passed_count = Line::new(&test).run_tests(part)?;
        ensure!(passed_count > 0, "no test of `{name}` is named miri_: nothing was checked");
    }
    Ok(Outcome::Passed)
}

fn prepare(part: &str) -> Result<()> {
    if !present() {
        let install = "rustup toolchain install nightly --profile minimal";
        Line::new(&format!("{install} --component miri,rust-src")).run(part)?;
    }
    // Builds Miri's own std once, which may have to fetch: a reason to skip, not to fail.
    Line::new("cargo +nightly miri setup").run(part)
}

/// Asking neither installs nor updates anything, whatever RUSTUP_AUTO_INSTALL says.
fn present() -> bool {
    let list = Line::new("rustup component list --toolchain nightly --installed");
    let names = list.stdout().unwrap_or_default();
    let names = String::from_utf8_lossy(&names);
    // A line is `rust-src` or `miri-x86_64-unknown-linux-gnu`.
    ["miri", "rust-src"].iter().all(|name| names.lines().any(|line| line.starts_with(name)))
}
