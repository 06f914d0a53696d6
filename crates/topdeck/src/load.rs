//! `topdeck load`: load on an open schedule, and what users would have felt.
//!
//! [`options`] is what can be asked for, [`plan`] makes of it what the engine (the crate `load`) runs. [`watch`] is told each second: it
//! shows [`live`] how it goes and hands on to [`push`]. What a run came to is a [`report::Report`], which is written as text, as JSON
//! ([`document`]), as a page ([`page`]) and as a log ([`log`]). With `--search` there are many runs: [`search`], [`searched`].

mod compare;
mod document;
mod live;
mod log;
mod machine;
mod options;
mod page;
mod plan;
mod push;
mod recorded;
mod report;
mod search;
mod searched;
mod sessions;
mod spectra;
mod statistics;
mod watch;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use load::Calibration;
use signal_hook::consts::{SIGCHLD, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::command::{print, print_aside, say};
use crate::hist::terminal::Terminal;
pub(crate) use crate::load::options::Options;
use crate::load::options::{Command, RunOptions};
use crate::load::plan::Plan;
use crate::load::push::Push;
use crate::load::report::{Judged, Report};
use crate::load::watch::Watch;

/// The generator was what limited the run.
const UNTRUSTED: u8 = 3;
/// Something that was required was not met.
const NOT_MET: u8 = 4;
/// Ctrl-C came twice, as a shell has it of any program that it ended.
const GIVEN_UP: u8 = 128 + SIGINT as u8;
/// What has not ended so long after that stays behind.
const GIVE_UP: Duration = Duration::from_secs(2);
/// Where a file goes that is none.
const STDOUT: &str = "-";

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    match &options.subcommand {
        Some(Command::Compare(options)) => compare::run(options),
        Some(Command::Sessions(options)) => sessions::run(options),
        None if options.run.search => highest(&options.run),
        None => once(&options.run),
    }
}

/// One run.
fn once(options: &RunOptions) -> Result<ExitCode> {
    let plan = Plan::of(options)?;
    files(options).try_for_each(check_writable)?;
    let stop = stopping(&plan)?;
    let calibration = calibrated(options, &stop)?;
    let push = options.push.as_ref().map(|to| Push::start(to, options, &plan)).transpose()?;
    let mut watch = Watch::new(&plan, options.quiet, push);
    let ran = load::run(&plan.settings, &stop, &mut watch);
    if plan.settings.give_up.load(Ordering::Relaxed) {
        return Ok(ExitCode::from(GIVEN_UP));
    }
    let (services, pushed) = watch.finish();
    let mut run = ran?;
    if let Some(found) = &calibration {
        let known = found.doubts(&plan.settings.schedule, plan.settings.threads);
        run.doubts.splice(0..0, known);
    }
    let judged = options.require.iter().map(|one| Judged::of(one, &run)).collect();
    let sessions = options.sessions();
    let report = Report { plan, calibration, judged, services, pushed, sessions, run };
    let text = report::text(&report, &Terminal::new(options.ascii));
    tell(options, &text, || format!("{}\n", document::of(&report)), Some(&report))?;
    Ok(ExitCode::from(match &report {
        report if !report.run.doubts.is_empty() => UNTRUSTED,
        report if !report.judged.iter().all(Judged::is_met) => NOT_MET,
        _ => 0,
    }))
}

/// Many, for the highest rate that meets what is required.
fn highest(options: &RunOptions) -> Result<ExitCode> {
    let search = search::of(options);
    let plan = Plan::of(options)?;
    files(options).try_for_each(check_writable)?;
    let stop = stopping(&plan)?;
    let calibration = calibrated(options, &stop)?;
    let searched = search::run(options, search, plan, calibration, &stop)?;
    let text = search::text(&searched, &Terminal::new(options.ascii));
    tell(options, &text, || format!("{}\n", searched::of(&searched)), None)?;
    Ok(ExitCode::from(match (searched.is_trusted(), searched.is_met()) {
        (false, _) => UNTRUSTED,
        (true, false) => NOT_MET,
        (true, true) => 0,
    }))
}

/// What ctrl-C and SIGTERM set; the second one ends the program at once.
fn stopping(plan: &Plan) -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        let second = if plan.is_command() { Arc::default() } else { Arc::clone(&stop) };
        signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, second)
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .context("cannot wait for ctrl-C")?;
    }
    if plan.is_command() {
        let give_up = Arc::clone(&plan.settings.give_up);
        end_with_processes(give_up).context("cannot wait for ctrl-C")?;
    }
    Ok(stop)
}

/// What this machine can be trusted with, unless nobody asks.
fn calibrated(options: &RunOptions, stop: &Arc<AtomicBool>) -> Result<Option<Calibration>> {
    if options.no_calibration {
        return Ok(None);
    }
    let found = load::calibrate(stop).context("calibration")?;
    // Ended early, it found what is not true of this machine.
    if stop.load(Ordering::Relaxed) {
        bail!("ended during the calibration, before anything was sent to the target");
    }
    Ok(Some(found))
}

/// What is written beside the report.
fn files(options: &RunOptions) -> impl Iterator<Item = &Path> {
    let all = [&options.json, &options.html, &options.hlog];
    all.into_iter().flatten().map(|path| path.as_path())
}

/// A file that cannot be written is told before the run, which may take hours, as far as that can be known.
fn check_writable(path: &Path) -> Result<()> {
    if path.as_os_str() == STDOUT {
        return Ok(());
    }
    let found = match std::fs::metadata(path) {
        Ok(found) if found.is_file() || found.is_dir() => {
            std::fs::OpenOptions::new().append(true).open(path).map(drop)
        }
        // A pipe that is opened and closed would be at its end.
        Ok(_) => Ok(()),
        Err(_) => {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            std::fs::read_dir(folder.unwrap_or(Path::new("."))).map(drop)
        }
    };
    found.with_context(|| format!("cannot write {}", path.display()))
}

/// The second signal ends it at once, and every process with it.
fn end_with_processes(give_up: Arc<AtomicBool>) -> std::io::Result<()> {
    // Where it is ignored, as whoever started us may have it, the kernel tells nobody how a process ended.
    signal_hook::flag::register(SIGCHLD, Arc::default())?;
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().nth(1) {
            give_up.store(true, Ordering::Relaxed);
            std::thread::sleep(GIVE_UP);
            std::process::exit(128 + signal);
        }
    });
    Ok(())
}

/// Writes what was asked for; forms that only one run has need its report. A file that cannot be written keeps nothing else from being
/// told.
fn tell(
    options: &RunOptions,
    text: &str,
    json: impl FnOnce() -> String,
    report: Option<&Report>,
) -> Result<()> {
    let mut trouble = tell_text(options, text);
    let mut write = |path: &Path, text: Result<Vec<u8>>| {
        let written = text.and_then(|text| {
            if path.as_os_str() == STDOUT {
                return print(&text);
            }
            std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
        });
        if let Err(error) = written {
            match &trouble {
                Ok(()) => trouble = Err(error),
                Err(_) => say(format_args!("{error:#}")),
            }
        }
    };
    if let Some(path) = &options.json {
        write(path, Ok(json().into_bytes()));
    }
    if let (Some(path), Some(report)) = (&options.hlog, report) {
        write(path, log::of(report));
    }
    if let (Some(path), Some(report)) = (&options.html, report) {
        write(path, page::of(report).map(String::into_bytes));
    }
    trouble
}

/// Writes what people read: not where it would be mixed with what is piped on.
fn tell_text(options: &RunOptions, text: &str) -> Result<()> {
    match files(options).any(|path| path.as_os_str() == STDOUT) {
        true => print_aside(text),
        false => print(text.as_bytes())?,
    }
    Ok(())
}
