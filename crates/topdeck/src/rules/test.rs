//! `topdeck rules test`: test files of `promtool test rules`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::alerts::{find_rule_files, rule_promql_options};
use ::rules::{RuleTestFailure, parse_rule_test_file, run_rule_tests};
use anyhow::{Context as _, Result};
use client::{print_stderr, print_stdout};
use render::text::escape_control;

/// Run the tests of rule files
///
/// The files are those of `promtool test rules`: series, expected alerts and expected results of
/// expressions. The time is simulated. Rule files are named relative to the test file.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Test files (YAML)
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,

    /// Run only the tests whose name contains this text
    #[arg(long, value_name = "TEXT", default_value = "")]
    run: String,
}

const AFTER: &str = "\
Example:
  topdeck rules test rules/shop_test.yaml

Exit status:
  0  all tests passed
  1  a test failed, or a file has an error or cannot be read
  2  usage error";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let mut has_failed = false;
    for path in &options.files {
        let name = escape_control(&path.display().to_string());
        let messages = test_file(path, &name, &options.run)?;
        let outcome = if messages.is_empty() { "passed" } else { "FAILED" };
        print_stdout(format!("{name}: {outcome}\n").as_bytes())?;
        has_failed |= !messages.is_empty();
        messages.iter().for_each(|line| print_stderr(&format!("{}\n", escape_control(line))));
    }
    Ok(if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Problems of the file, or failures of its tests.
fn test_file(path: &Path, name: &str, selected: &str) -> Result<Vec<String>> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read test file {name}"))?;
    let (tests, problems) = parse_rule_test_file(name, &text);
    if !problems.is_empty() {
        return Ok(problems.iter().map(ToString::to_string).collect());
    }
    let dir = path.parent().unwrap_or(Path::new("."));
    let mut rule_files = Vec::new();
    for pattern in &tests.rule_files {
        for file in find_rule_files(&dir.join(pattern))? {
            let shown = file.display().to_string();
            if file.extension().is_some_and(|extension| extension == "toml") {
                return Ok(vec![format!(
                    "{name}: cannot test {}: rule_files takes rules of Prometheus (YAML); check \
                     own rules with `topdeck rules check`, and try them on stored data with \
                     `topdeck rules replay`",
                    escape_control(&shown)
                )]);
            }
            let text = std::fs::read_to_string(&file)
                .with_context(|| format!("cannot read rule file {shown} of {name}"))?;
            rule_files.push((shown, text));
        }
    }
    let is_selected = |test: &str| test.contains(selected);
    let failures = run_rule_tests(&tests, &rule_files, &rule_promql_options(), &is_selected);
    let line = |failure: &RuleTestFailure| {
        let position = failure.position.map_or_else(String::new, |at| format!("{at}: "));
        format!("{name}:{position} test {:?}: {}", failure.test, failure.message)
    };
    Ok(failures.iter().map(line).collect())
}
