//! The page: its packages, its checks, and what `web/` is built into, which the program packs.

use std::fs;
use std::process::ExitCode;

use anyhow::{Context as _, Result};

use crate::line::{Line, TESTS, root};
use crate::part::Outcome;

/// Build the page, so that the program built next has it; does nothing where Node.js is missing.
#[derive(clap::Args)]
pub(crate) struct Options {}

pub(crate) fn build(_: &Options) -> Result<ExitCode> {
    match provide("page")? {
        Some(reason) => eprintln!("the page is left out: {reason}"),
        None => bundle("page")?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Checks it, tests what needs no browser, and builds it.
pub(crate) fn run(part: &str) -> Result<Outcome> {
    if let Some(reason) = provide(part)? {
        return Ok(Outcome::Skipped(reason));
    }
    npm("run check").run(part)?;
    npm("test").run(part)?;
    bundle(part)?;
    Ok(Outcome::Passed)
}

/// A browser looks at the page of a real server.
pub(crate) fn browser(part: &str) -> Result<Outcome> {
    if !Line::new("chromium --version").succeeds() {
        let reason = "chromium is not installed (Debian package chromium)";
        return Ok(Outcome::Skipped(reason.to_owned()));
    }
    if let Some(reason) = provide(part)? {
        return Ok(Outcome::Skipped(reason));
    }
    bundle(part)?;
    Line::new(&format!("{TESTS} --no-run")).run(part)?;
    npm("run browser").run(part)?;
    Ok(Outcome::Passed)
}

/// Why there can be no page.
fn missing() -> Option<String> {
    // As vite wants it.
    let is_new_enough = "const [a, b] = process.versions.node.split('.').map(Number); \
         process.exit(a > 20 || a === 20 && b >= 19 ? 0 : 1)";
    match (
        Line::new("node -e").word(is_new_enough).succeeds(),
        Line::new("npm --version").succeeds(),
    ) {
        (true, true) => None,
        (false, _) => {
            Some("Node.js 20.19 or newer is not installed (Debian package nodejs)".to_owned())
        }
        (true, false) => Some("npm is not installed (Debian package npm)".to_owned()),
    }
}

fn npm(what: &str) -> Line {
    Line::new(&format!("npm --prefix web --no-update-notifier {what}"))
}

fn bundle(part: &str) -> Result<()> {
    npm("run build").run(part)
}

/// The packages as the lock file has them, fetched unless they are there; why there can be none, otherwise.
fn provide(part: &str) -> Result<Option<String>> {
    if let Some(reason) = missing() {
        return Ok(Some(reason));
    }
    let web = root().join("web");
    let lock = fs::read(web.join("package-lock.json")).context("reading web/package-lock.json")?;
    let provided = web.join("node_modules/.provided");
    if fs::read(&provided).is_ok_and(|held| held == lock) {
        return Ok(None);
    }
    // No network is no fault of ours, and soon known.
    if let Err(error) =
        npm("ci --no-audit --no-fund --fetch-retries=1 --fetch-timeout=60000").run(part)
    {
        return Ok(Some(format!("the packages of web/ cannot be fetched: {error:#}")));
    }
    fs::write(&provided, lock).context("writing below web/node_modules")?;
    Ok(None)
}
