//! `topdeck doctor checks`: one attempt of each check in a settings file.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Error, Result, bail};
use client::print_stdout;
use pull::{CheckTrial, PullRole};
use render::text::escape_control;

use crate::node::ROLES;
use crate::output::print_problems;
use crate::settings::Settings;

/// Run each [[check]] of a settings file once, and show what it measures
///
/// The checks run at the same time, from this host and with the rights of this command. Nothing is
/// stored.
#[derive(clap::Args)]
#[command(after_long_help = AFTER)]
pub(crate) struct Options {
    /// Settings file (TOML)
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Run the check of this name only
    #[arg(long, value_name = "NAME")]
    check: Option<String>,
}

const AFTER: &str = "\
Examples:
  topdeck doctor checks /etc/topdeck.toml
  topdeck doctor checks /etc/topdeck.toml --check 'front page'

Exit status:
  0  all of them succeed
  1  one fails, or the settings are invalid; the reasons are printed
  2  usage error";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let settings = match Settings::read_with_contents(&options.file, ROLES) {
        Ok((settings, problems)) if problems.is_empty() => settings,
        Ok((_, problems)) | Err(problems) => {
            print_problems(&problems);
            return Ok(ExitCode::FAILURE);
        }
    };
    let checks = settings.roles.get::<PullRole>().map(|pull| pull.checks()).transpose();
    let mut checks = checks.map_err(Error::from_boxed)?.unwrap_or_default();
    let names: Vec<String> = checks.iter().map(|check| check.name.clone()).collect();
    checks.retain(|check| options.check.as_ref().is_none_or(|name| *name == check.name));
    match &options.check {
        None if checks.is_empty() => bail!("{} has no [[check]]", options.file.display()),
        Some(name) if checks.is_empty() => {
            let names = escape_control(&names.join(", "));
            bail!("{} has no check {name:?}; it has: {names}", options.file.display())
        }
        _ => {}
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut is_success = true;
    runtime.block_on(async {
        let running: Vec<_> = checks
            .into_iter()
            .map(|check| tokio::spawn(async move { CheckTrial::run(&check).await }))
            .collect();
        for ended in running {
            let trial = ended.await??;
            is_success &= trial.failure.is_none();
            print_stdout(trial_text(&trial).as_bytes())?;
        }
        Ok::<_, Error>(())
    })?;
    Ok(if is_success { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A line with the outcome, and one for each phase and value.
fn trial_text(trial: &CheckTrial) -> String {
    let outcome = match &trial.failure {
        None => "success".to_owned(),
        Some(reason) => format!("FAILED: {}", escape_control(reason)),
    };
    let (name, target) = (escape_control(&trial.name), escape_control(&trial.target));
    let mut text = format!("{name} ({target}): {outcome}\n");
    for (phase, time) in trial.phases.iter().chain([&("total", trial.took)]) {
        let _ = writeln!(text, "  {phase:10} {:10.3} ms", time.as_secs_f64() * 1e3);
    }
    for (series, value) in &trial.values {
        let _ = writeln!(text, "  {} {value}", escape_control(series));
    }
    text
}
