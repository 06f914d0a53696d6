//! `topdeck load --search`: searches for the highest rate that meets all requirements, and for the
//! knee of the response time. The crate `load` decides what to measure; this module measures and
//! reports each trial.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result, bail};
use load::report::run_plan::{RunPlan, format_duration};
use load::report::run_report::RequirementResult;
use load::report::search_report::{self, SearchReport, p99};
use load::{
    ArrivalProcess, Calibration, CapacitySearch, InvalidReason, LatencyLimit, RunResult, Schedule,
    Settings, TrialMeasurement, TrialSpec, format_rate,
};

use crate::load::options::RunOptions;
use crate::load::write_text;
use crate::usage_error::exit_with_usage_error;
use render::terminal::Terminal;
use render::text::escape_control;
use render::value_formatter::count;

/// Settings of a search. Exits with status 2 if the options are inconsistent.
pub(crate) fn search_settings(options: &RunOptions) -> CapacitySearch {
    let limits =
        options.require.iter().map(|one| LatencyLimit::try_from(one).map_err(|e| e.to_string()));
    let limits: Vec<LatencyLimit> = match limits.collect() {
        Ok(limits) => limits,
        Err(message) => usage_error(&message),
    };
    if let Some(longest) = longest(&limits).filter(|limit| *limit >= options.timeout) {
        usage_error(&format!(
            "limit {} is not below --timeout {}: requests time out before they can exceed it; \
             raise --timeout",
            format_duration(longest),
            format_duration(options.timeout)
        ));
    }
    let default = CapacitySearch::default();
    let max_duration_ns = options.duration.unwrap_or(default.max_duration_ns);
    CapacitySearch {
        requirements: limits,
        first_rate: options.rate.unwrap_or(default.first_rate),
        max_rate: options.max_rate.unwrap_or(default.max_rate),
        tolerance: options.tolerance.unwrap_or(default.tolerance),
        min_duration_ns: default.min_duration_ns.min(max_duration_ns),
        max_duration_ns,
        ..default
    }
}

/// Reports a usage error.
fn usage_error(message: &str) -> ! {
    exit_with_usage_error("load", message.to_owned())
}

fn longest(limits: &[LatencyLimit]) -> Option<u64> {
    limits.iter().map(|one| one.limit_ns).max()
}

/// Runs a search and reports each trial on standard error.
pub(crate) fn run(
    options: &RunOptions,
    search: CapacitySearch,
    mut plan: RunPlan,
    calibration: Option<Calibration>,
    stop: &Arc<AtomicBool>,
) -> Result<SearchReport> {
    // The grace period must cover the longest limit.
    let settings = &mut plan.settings;
    settings.grace_period_ns =
        longest(&search.requirements).unwrap_or(0).max(settings.grace_period_ns);
    plan.schedule = match options.poisson {
        true => "Poisson".to_owned(),
        false => "evenly spaced".to_owned(),
    };
    let (start_ns, start_unix_ns) = (clock::now(), clock::wall().unix_ns);
    let mut measure = |trial: TrialSpec| -> Result<TrialMeasurement> {
        // A new seed for each trial, so that their arrivals are independent.
        let seed = plan.settings.seed.wrapping_add(trial.number as u64);
        let arrival_process = if options.poisson {
            ArrivalProcess::Poisson { seed }
        } else {
            ArrivalProcess::Constant
        };
        let schedule = Schedule::constant(trial.rate, trial.duration_ns, arrival_process);
        let run = load::run(&Settings { schedule, seed, ..plan.settings.clone() }, stop, &mut ())?;
        if stop.load(Ordering::Relaxed) {
            bail!("interrupted before the rate was found");
        }
        let measurement = TrialMeasurement::from(&run);
        if !options.quiet {
            let line = trial_line(trial, options, &run, &measurement);
            // Output errors are ignored.
            let _ = writeln!(std::io::stderr(), "{line}");
        }
        Ok(measurement)
    };
    let result = match search.run(&mut measure) {
        Ok(result) => result,
        Err((error, trials)) => {
            // The trials so far took long enough to be reported.
            if !trials.is_empty() {
                let text = search_report::table(&trials).text(&Terminal::new(options.ascii));
                write_text(options, &text)?;
            }
            return Err(error).context("search");
        }
    };
    let highest = result.sustained.map_or(search.first_rate, |sustained| sustained.rate);
    let schedule = Schedule::constant(highest, search.min_duration_ns, ArrivalProcess::Constant);
    let threads = plan.settings.threads;
    let invalid_reasons =
        calibration.as_ref().map(|one| one.invalid_reasons(&schedule, threads)).unwrap_or_default();
    Ok(SearchReport {
        plan,
        calibration,
        requirements: options.require.clone(),
        search,
        result,
        invalid_reasons,
        start_unix_ns,
        duration_ns: clock::now().saturating_sub(start_ns),
    })
}

/// One line for a trial.
fn trial_line(
    trial: TrialSpec,
    options: &RunOptions,
    run: &RunResult,
    measurement: &TrialMeasurement,
) -> String {
    let mut line = format!(
        "trial {}: {} for {}",
        trial.number + 1,
        format_rate(trial.rate),
        format_duration(trial.duration_ns)
    );
    for requirement in &options.require {
        let evaluated = RequirementResult::new(requirement, run);
        let label = evaluated.label();
        let expression = escape_control(&requirement.expression);
        line.push_str(&format!(", {expression} {label}: {}", evaluated.text()));
    }
    if options.require.is_empty() {
        line.push_str(&format!(
            ", p99 {}, service p99 {}",
            p99(&run.tally.response),
            p99(&run.tally.service)
        ));
    }
    if measurement.failed_requests > 0 {
        line.push_str(&format!(", {} failed", count(measurement.failed_requests)));
    }
    if !measurement.invalid_reasons.is_empty() {
        let kinds: Vec<&str> =
            measurement.invalid_reasons.iter().map(InvalidReason::kind).collect();
        line.push_str(&format!(", generator: {}", kinds.join(", ")));
    }
    line
}
