//! `topdeck load`: load test with an open-loop schedule.
//!
//! [`options`] parses the command line, [`run_plan`] turns it into settings of the engine (crate
//! `load`). [`run_observer`] receives progress each second: it updates
//! [`load::report::live_view`] and forwards to a push sink. [`load::report`] has the outputs of a
//! run. `--search` makes many runs: [`search`].

mod compare;
mod options;
mod run_observer;
mod run_plan;
mod search;
mod sessions;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use client::{print_message, print_stderr, print_stdout};
use load::Calibration;
use load::report::{hlog, page, run_document, run_report, search_document, search_report};
use signal_hook::consts::{SIGCHLD, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::background;
pub(crate) use crate::load::options::Options;
use crate::load::options::{Command, RunOptions};
use crate::load::run_observer::RunObserver;
use load::report::push_sink::{PushSink, PushTarget};
use load::report::run_plan::RunPlan;
use load::report::run_report::{RequirementResult, RunReport};
use render::terminal::Terminal;

/// Exit status: the result is invalid.
const INVALID_RESULT: u8 = 3;
/// Exit status: a requirement was not met.
const REQUIREMENT_FAILED: u8 = 4;
/// Exit status after the second Ctrl-C, as shells report it.
const ABORTED: u8 = 128 + SIGINT as u8;
/// Time for processes to end after the second signal.
const ABORT_TIMEOUT: Duration = Duration::from_secs(2);
/// File name of standard output.
const STDOUT: &str = "-";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    match &options.subcommand {
        Some(Command::Compare(options)) => compare::run(options),
        Some(Command::Sessions(options)) => sessions::run(options),
        None if options.run.search => run_search(&options.run),
        None => run_once(&options.run),
    }
}

/// A single run.
fn run_once(options: &RunOptions) -> Result<ExitCode> {
    let plan = run_plan::resolve(options)?;
    output_files(options).try_for_each(check_writable)?;
    let stop = stop_on_signals(&plan)?;
    let calibration = run_calibration(options, &stop)?;
    let push = options
        .push
        .as_ref()
        .map(|to| PushSink::start(push_target(to, options), &plan))
        .transpose()?;
    let mut observer = RunObserver::new(&plan, options.quiet, push);
    let ran = load::run(&plan.settings, &stop, &mut observer);
    if plan.settings.abort.load(Ordering::Relaxed) {
        return Ok(ExitCode::from(ABORTED));
    }
    let (services, push) = observer.into_parts();
    let mut run = match ran {
        Ok(run) => run,
        Err(error) => {
            // The seconds before the failure are delivered.
            if let Some(sink) = push {
                sink.finish(None);
            }
            return Err(error.into());
        }
    };
    if let Some(found) = &calibration {
        let calibration_reasons =
            found.invalid_reasons(&plan.settings.schedule, plan.settings.threads);
        run.invalid_reasons.splice(0..0, calibration_reasons);
    }
    let push = push.map(|sink| sink.finish(Some(&run.invalid_reasons)));
    let requirements =
        options.require.iter().map(|one| RequirementResult::new(one, &run)).collect();
    let sessions = options.sessions();
    let report = RunReport { plan, calibration, requirements, services, push, sessions, run };
    let text = run_report::text(&report, &Terminal::new(options.ascii));
    write_outputs(
        options,
        &text,
        || format!("{}\n", run_document::to_json(&report)),
        Some(&report),
    )?;
    Ok(ExitCode::from(match &report {
        report if !report.run.invalid_reasons.is_empty() => INVALID_RESULT,
        report if !report.requirements.iter().all(RequirementResult::is_met) => REQUIREMENT_FAILED,
        _ => 0,
    }))
}

/// Where seconds are pushed to.
fn push_target(endpoint: &net::Endpoint, options: &RunOptions) -> PushTarget {
    PushTarget {
        endpoint: endpoint.clone(),
        run_name: options.run_name.clone(),
        ca: options.push_ca.clone(),
        token_file: options.push_token_file.clone(),
        secret: journal::random_id(),
        producer_id: |name| {
            let text = format!("topdeck load\0{name}\0{}", std::process::id());
            let hash = blake3::hash(text.as_bytes());
            hash.as_bytes().first_chunk().map_or(1, |bytes| u64::from_le_bytes(*bytes))
        },
    }
}

/// A search: many runs.
fn run_search(options: &RunOptions) -> Result<ExitCode> {
    let search = search::search_settings(options);
    let plan = run_plan::resolve(options)?;
    output_files(options).try_for_each(check_writable)?;
    let stop = stop_on_signals(&plan)?;
    let calibration = run_calibration(options, &stop)?;
    let report = search::run(options, search, plan, calibration, &stop)?;
    let text = search_report::text(&report, &Terminal::new(options.ascii));
    write_outputs(options, &text, || format!("{}\n", search_document::to_json(&report)), None)?;
    Ok(ExitCode::from(match (report.is_valid(), report.is_met()) {
        (false, _) => INVALID_RESULT,
        (true, false) => REQUIREMENT_FAILED,
        (true, true) => 0,
    }))
}

/// Installs handlers of SIGINT and SIGTERM: the first sets the flag, the second ends the program at
/// once.
fn stop_on_signals(plan: &RunPlan) -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        let second = if plan.is_command() { Arc::default() } else { Arc::clone(&stop) };
        signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, second)
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .context("cannot wait for ctrl-C")?;
    }
    if plan.is_command() {
        let abort = Arc::clone(&plan.settings.abort);
        abort_on_second_signal(abort).context("cannot wait for ctrl-C")?;
    }
    Ok(stop)
}

/// Calibrates, unless `--no-calibration`.
fn run_calibration(options: &RunOptions, stop: &Arc<AtomicBool>) -> Result<Option<Calibration>> {
    if options.no_calibration {
        return Ok(None);
    }
    let found = load::calibrate(stop).context("calibration")?;
    // A partial calibration is wrong.
    if stop.load(Ordering::Relaxed) {
        bail!("interrupted during the calibration, before any request was sent");
    }
    Ok(Some(found))
}

/// Files written in addition to the report.
fn output_files(options: &RunOptions) -> impl Iterator<Item = &Path> {
    let all = [&options.json, &options.html, &options.hlog];
    all.into_iter().flatten().map(|path| path.as_path())
}

/// Checks before the run, which may take hours, that a file is writable, as far as possible.
fn check_writable(path: &Path) -> Result<()> {
    if path.as_os_str() == STDOUT {
        return Ok(());
    }
    let found = match std::fs::metadata(path) {
        Ok(found) if found.is_file() || found.is_dir() => {
            std::fs::OpenOptions::new().append(true).open(path).map(drop)
        }
        // Opening and closing a pipe would end it.
        Ok(_) => Ok(()),
        Err(_) => {
            let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
            std::fs::read_dir(dir.unwrap_or(Path::new("."))).map(drop)
        }
    };
    found.with_context(|| format!("cannot write {}", path.display()))
}

/// For commands: the second signal ends the run with all its processes.
fn abort_on_second_signal(abort: Arc<AtomicBool>) -> std::io::Result<()> {
    // If the parent ignored SIGCHLD, the kernel would not report exit statuses.
    signal_hook::flag::register(SIGCHLD, Arc::default())?;
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let wait = move || {
        if let Some(signal) = signals.forever().nth(1) {
            abort.store(true, Ordering::Relaxed);
            std::thread::sleep(ABORT_TIMEOUT);
            std::process::exit(128 + signal);
        }
    };
    background::spawn("signals", wait).map(drop)
}

/// Writes all outputs; some need the report of a single run. An unwritable file does not prevent
/// the others.
fn write_outputs(
    options: &RunOptions,
    text: &str,
    json: impl FnOnce() -> String,
    report: Option<&RunReport>,
) -> Result<()> {
    let mut result = write_text(options, text);
    let mut write = |path: &Path, text: Result<Vec<u8>>| {
        let written = text.and_then(|text| {
            if path.as_os_str() == STDOUT {
                return print_stdout(&text);
            }
            std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
        });
        if let Err(error) = written {
            match &result {
                Ok(()) => result = Err(error),
                Err(_) => print_message(format_args!("{error:#}")),
            }
        }
    };
    if let Some(path) = &options.json {
        write(path, Ok(json().into_bytes()));
    }
    if let (Some(path), Some(report)) = (&options.hlog, report) {
        write(path, hlog::encode(report).map_err(Into::into));
    }
    if let (Some(path), Some(report)) = (&options.html, report) {
        write(path, page::to_html(report).map(String::into_bytes).map_err(Into::into));
    }
    result
}

/// Writes the text: to standard error if standard output carries a file.
fn write_text(options: &RunOptions, text: &str) -> Result<()> {
    match output_files(options).any(|path| path.as_os_str() == STDOUT) {
        true => print_stderr(text),
        false => print_stdout(text.as_bytes())?,
    }
    Ok(())
}
