//! `topdeck rules test`: test files of `promtool test rules`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::alerts::{find_rule_files, read_rule_file, rule_promql_options};
use ::rules::{RuleTestFailure, parse_rule_test_file, run_rule_tests};
use anyhow::{Context as _, Result};
use client::{print_stderr, print_stdout};
use render::text::escape_control;

/// Run the tests of rule files
///
/// The files are those of `promtool test rules`: series, expected alerts and expected results of
/// expressions. Rule files may be those of Prometheus and own rules (TOML), and are named relative
/// to the test file. The time is simulated.
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
        let files = find_rule_files(&dir.join(pattern))?;
        if files.is_empty() {
            let pattern = escape_control(pattern);
            print_stderr(&format!("{name}: warning: rule_files: no file matches {pattern:?}\n"));
        }
        for file in files {
            let shown = file.display().to_string();
            let read = read_rule_file(&file, &shown);
            rule_files.push(read.with_context(|| format!("cannot run the tests of {name}"))?);
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
