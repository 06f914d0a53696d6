//! `topdeck rules check`: problems of rule files, as `promtool check rules` reports them.

use std::path::PathBuf;
use std::process::ExitCode;

use ::alerts::read_rule_file;
use ::rules::ProblemSeverity;
use anyhow::Result;
use client::{print_stderr, print_stdout};
use render::text::{escape_control, plural};

/// Check rule files
///
/// Files whose names end with .toml have own rules, others those of Prometheus. Checks selectors,
/// criteria, expressions, templates, names, durations and labels, and prints each problem with
/// file, line and column. A server uses the other rules of a file with errors; duplicate rules of
/// Prometheus are a warning.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Rule files (TOML or YAML)
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
}

const AFTER: &str = "\
Example:
  topdeck rules check /etc/topdeck/rules/*.yaml

Exit status:
  0  no errors
  1  a file has an error or cannot be read
  2  usage error";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let mut has_errors = false;
    for path in &options.files {
        let name = escape_control(&path.display().to_string());
        let file = read_rule_file(path, &name)?;
        for problem in &file.problems {
            has_errors |= problem.severity == ProblemSeverity::Error;
            print_stderr(&format!("{}\n", escape_control(&problem.to_string())));
        }
        let rules = file.groups.iter().map(|group| group.rules.len()).sum::<usize>();
        let groups = plural(file.groups.len() as u64, "group", "groups");
        let rules = plural(rules as u64, "usable rule", "usable rules");
        print_stdout(format!("{name}: {groups}, {rules}\n").as_bytes())?;
    }
    Ok(if has_errors { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
