//! The web UI: installs its packages, checks it, and bundles `web/`, which the program embeds.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::ci_part::PartOutcome;
use crate::command_line::{CommandLine, root, target};
use crate::part_log::PartLog;
use crate::passed_tests::run_unless_unchanged;
use crate::test_report::{TestEnd, TestFailure, TestReport, Timing};

/// Build the web UI, which the next build of the program embeds; does nothing without Node.js
#[derive(clap::Args)]
pub(crate) struct Options {}

pub(crate) fn build(_: &Options) -> Result<ExitCode> {
    let log = PartLog::console("page");
    match install_packages(&log)? {
        Some(reason) => eprintln!(
            "the web UI is not built, and topdeck will have none unless web/dist is there: \
             {reason}"
        ),
        None => bundle(&log)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Lets a release build go on without the page if it is not built.
pub(crate) fn permit_missing(line: CommandLine) -> CommandLine {
    match root().join("web/dist/index.html").exists() {
        true => line,
        false => line.env("TOPDECK_WITHOUT_PAGE", "1"),
    }
}

/// Builds the page.
pub(crate) fn build_page(log: &PartLog) -> Result<PartOutcome> {
    if let Some(reason) = install_packages(log)? {
        return Ok(PartOutcome::Skipped(reason));
    }
    bundle(log)?;
    Ok(PartOutcome::Passed)
}

/// Sources of the page and of its tests.
const SOURCES: [&str; 5] = [
    "web/",
    "crates/api/src/dashboards/renames.json",
    "crates/postgres/dashboard.json",
    "testdata/dashboards/",
    "docs/formats/dashboard.md",
];

/// Checks the page, and runs the tests that need no browser.
pub(crate) fn check_and_test(log: &PartLog) -> Result<PartOutcome> {
    if let Some(reason) = install_packages(log)? {
        return Ok(PartOutcome::Skipped(reason));
    }
    run_unless_unchanged(log, &SOURCES, &[], || {
        npm_in_background("run check").run(log)?;
        vitest(log, "test", None)
    })
}

/// Runs the browser tests against the page of a real server, the program `topdeck`.
pub(crate) fn test_in_browser(log: &PartLog, topdeck: &Path) -> Result<PartOutcome> {
    if let Some(reason) = missing_browser() {
        return Ok(PartOutcome::Skipped(reason));
    }
    if let Some(reason) = install_packages(log)? {
        return Ok(PartOutcome::Skipped(reason));
    }
    run_unless_unchanged(log, &SOURCES, &[topdeck], || vitest(log, "browser", Some(topdeck)))
}

/// Runs the script `name` of web/package.json, which is a Vitest run, and parses its report.
/// `topdeck`: the program whose page the browser loads.
fn vitest(log: &PartLog, name: &str, topdeck: Option<&Path>) -> Result<PartOutcome> {
    let path = target().join(format!("ci/vitest-{name}.json"));
    // Removes the report of an earlier run.
    drop(fs::remove_file(&path));
    let report = format!("--outputFile={}", path.display());
    let line = match topdeck {
        Some(_) => npm("run"),
        None => npm_in_background("run"),
    };
    let line = line.arg(name).arg("--").arg("--reporter=default");
    let mut line = line.arg("--reporter=json").arg(&report);
    if let Some(topdeck) = topdeck {
        line = line.env("TOPDECK_BIN", topdeck.to_str().context("the path is not UTF-8")?);
    }
    let ended = line.run(log);
    let report = fs::read(&path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let report = report.map(|report| read_vitest(&report, &line.to_string()));
    match report {
        Some(report) if report.count() > 0 && !(ended.is_err() && report.failed.is_empty()) => {
            Ok(PartOutcome::Tests(report))
        }
        // Vitest wrote no report, or failed without a failed test.
        _ => {
            ended?;
            bail!("`{line}` ran no tests")
        }
    }
}

/// Parses the output of Vitest's reporter `json`.
fn read_vitest(report: &Value, repeat: &str) -> TestReport {
    let mut sum = TestReport::default();
    for file in report["testResults"].as_array().into_iter().flatten() {
        let tests = file["assertionResults"].as_array().into_iter().flatten();
        let seconds_before: f64 = sum.tests.iter().map(|test| test.seconds).sum();
        for test in tests {
            let text = |key: &str| test[key].as_str().unwrap_or_default();
            let seconds = test["duration"].as_f64().unwrap_or(0.0) / 1000.0;
            let name = text("fullName");
            match text("status") {
                "passed" => sum.add_test(name, TestEnd::Passed, seconds, ""),
                "failed" => {
                    let output = test["failureMessages"].to_string();
                    let repeat = format!("{repeat} -t {}", shell_pattern(name));
                    sum.add_test(name, TestEnd::Failed { repeat }, seconds, &output);
                }
                other => {
                    let reason = format!("unknown test status of Vitest: {other:?}");
                    sum.add_test(name, TestEnd::Passed, 0.0, &format!("skipped: {reason}"));
                }
            }
        }
        let seconds = sum.tests.iter().map(|test| test.seconds).sum::<f64>() - seconds_before;
        let name = file["name"].as_str().unwrap_or_default();
        let name = name.rsplit_once("/web/").map_or(name, |(_, name)| name).to_owned();
        if file["status"] == "failed" && file["assertionResults"] == Value::Array(Vec::new()) {
            let (repeat, output) = (repeat.to_owned(), file["message"].to_string());
            sum.failed.push(TestFailure { name: name.clone(), repeat, output });
        }
        sum.programs.push(Timing { name, seconds });
    }
    sum
}

/// The name of a test as a regular expression for Vitest's `-t`, quoted for a shell.
fn shell_pattern(name: &str) -> String {
    let escape = |letter: char| match letter {
        '\'' => "'\\''".to_owned(),
        letter if "\\^$.*+?()[]{}|".contains(letter) => format!("\\{letter}"),
        letter => letter.to_string(),
    };
    format!("'{}'", name.chars().map(escape).collect::<String>())
}

/// Why the page cannot be opened in a browser.
pub(crate) fn missing_browser() -> Option<String> {
    let reason = "chromium is not installed (Debian package chromium)";
    (!CommandLine::new("chromium --version").succeeds()).then(|| reason.to_owned())
}

/// Why the page cannot be built.
fn missing_tool() -> Option<String> {
    // The minimum version that Vite requires.
    let is_new_enough = "const [a, b] = process.versions.node.split('.').map(Number); \
         process.exit(a > 20 || a === 20 && b >= 19 ? 0 : 1)";
    match (
        CommandLine::new("node -e").arg(is_new_enough).succeeds(),
        CommandLine::new("npm --version").succeeds(),
    ) {
        (true, true) => None,
        (false, _) => {
            Some("Node.js 20.19 or newer is not installed (Debian package nodejs)".to_owned())
        }
        (true, false) => Some("npm is not installed (Debian package npm)".to_owned()),
    }
}

fn npm(what: &str) -> CommandLine {
    CommandLine::new(&format!("npm --prefix web --no-update-notifier {what}"))
}

/// The same at low priority: it runs beside the build. Its tests have time limits, which they could
/// exceed on idle CPU alone.
fn npm_in_background(what: &str) -> CommandLine {
    CommandLine::new(&format!("nice -n 10 npm --prefix web --no-update-notifier {what}"))
}

/// Builds web/dist. Unchanged files are not written, because cargo would rebuild the program.
fn bundle(log: &PartLog) -> Result<()> {
    let made = target().join("ci/page");
    let dir = made.to_str().context("the path of the build directory is not UTF-8")?;
    let line = npm("run").arg("build").arg("--").arg("--emptyOutDir").arg("--outDir");
    line.arg(dir).run(log)?;
    mirror(&made, &root().join("web/dist"))
}

/// Makes the directory `to` equal to `from`.
fn mirror(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    let names = |dir: &Path| -> Result<BTreeSet<OsString>> {
        let entries =
            fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))?;
        entries.map(|entry| Ok(entry?.file_name())).collect()
    };
    let made = names(from)?;
    for name in names(to)?.difference(&made) {
        let path = to.join(name);
        let removed = match path.is_dir() {
            true => fs::remove_dir_all(&path),
            false => fs::remove_file(&path),
        };
        removed.with_context(|| format!("cannot remove {}", path.display()))?;
    }
    for name in made {
        let (from, to) = (from.join(&name), to.join(&name));
        if from.is_dir() {
            mirror(&from, &to)?;
            continue;
        }
        let bytes = fs::read(&from).with_context(|| format!("cannot read {}", from.display()))?;
        if !fs::read(&to).is_ok_and(|held| held == bytes) {
            fs::write(&to, bytes).with_context(|| format!("cannot write {}", to.display()))?;
        }
    }
    Ok(())
}

/// Installs the packages of the lock file unless they are installed. Returns the reason if they are
/// not available.
pub(crate) fn install_packages(log: &PartLog) -> Result<Option<String>> {
    if let Some(reason) = missing_tool() {
        return Ok(Some(reason));
    }
    let web = root().join("web");
    let lock = fs::read(web.join("package-lock.json")).context("reading web/package-lock.json")?;
    let provided = web.join("node_modules/.provided");
    if fs::read(&provided).is_ok_and(|held| held == lock) {
        return Ok(None);
    }
    let fetch = npm("ci --no-audit --no-fund --fetch-retries=1 --fetch-timeout=60000");
    if let Some(reason) = fetch.fetch(log)? {
        return Ok(Some(format!("cannot download the packages of web/: {reason}")));
    }
    fs::write(&provided, lock).context("cannot write to web/node_modules")?;
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_report_of_vitest_is_read() {
        let test = |name: &str, status: &str| {
            json!({"fullName": name, "status": status, "duration": 1500.0,
                   "failureMessages": ["expected 1"]})
        };
        let report = json!({"testResults": [
            {"name": "/x/web/test/a.test.ts", "status": "failed", "assertionResults":
                [test("a", "passed"), test("b", "failed"), test("c", "pending")]},
            {"name": "/x/web/test/b.test.ts", "status": "failed", "message": "no such module",
             "assertionResults": []},
        ]});
        let report = read_vitest(&report, "npm run test --");
        assert_eq!((report.passed, report.skipped.len(), report.failed.len()), (1, 1, 2));
        assert_eq!(report.failed[0].repeat, "npm run test -- -t 'b'");
        assert_eq!(report.failed[1].name, "test/b.test.ts");
        assert_eq!(report.programs[0].seconds, 3.0);
    }

    #[test]
    fn shell_pattern_is_one_word_and_matches_the_name() {
        assert_eq!(shell_pattern("a host's board (2)"), r"'a host'\''s board \(2\)'");
    }

    #[test]
    fn a_mirrored_file_that_is_the_same_is_not_written() {
        let dir = std::env::temp_dir().join(format!("topdeck-mirror-{}", std::process::id()));
        let (from, to) = (dir.join("from"), dir.join("to"));
        fs::create_dir_all(from.join("assets")).unwrap();
        fs::write(from.join("index.html"), "a").unwrap();
        fs::write(from.join("assets/old.js"), "b").unwrap();
        mirror(&from, &to).unwrap();
        let written = fs::metadata(to.join("index.html")).unwrap().modified().unwrap();
        fs::remove_file(from.join("assets/old.js")).unwrap();
        fs::write(from.join("assets/new.js"), "c").unwrap();
        mirror(&from, &to).unwrap();
        assert_eq!(fs::read(to.join("assets/new.js")).unwrap(), b"c");
        assert!(!to.join("assets/old.js").exists());
        assert_eq!(fs::metadata(to.join("index.html")).unwrap().modified().unwrap(), written);
        fs::remove_dir_all(&dir).unwrap();
    }
}
