//! `topdeck load --search`: searches for the highest rate that meets all requirements, and for the
//! knee of the response time. The crate `load` decides what to measure; this module measures and
//! reports each trial.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result, bail};
use load::{
    ArrivalProcess, Calibration, CapacitySearch, Requirement, RunResult, Schedule, SearchResult,
    SearchTrial, Settings, SloCondition, TrialMeasurement, TrialPurpose, TrialSpec, UpperBound,
    ValidityWarning, format_rate,
};

use crate::load::options::RunOptions;
use crate::load::run_plan::{RunPlan, format_duration};
use crate::load::run_report::{
    RequirementResult, calibration_lines, invalid_heading, paragraph, settings_line,
};
use crate::load::statistics::{at, numbers};
use crate::load::write_text;
use render::table::TextTable;
use render::terminal::{Terminal, TextStyle};
use render::text::escape_control;
use render::time::format_time;
use render::value_formatter::count;

/// Everything that reports of a search contain.
pub(crate) struct SearchReport {
    pub(crate) plan: RunPlan,
    pub(crate) calibration: Option<Calibration>,
    pub(crate) requirements: Vec<Requirement>,
    pub(crate) search: CapacitySearch,
    pub(crate) result: SearchResult,
    /// Validity warnings of the calibration for the result.
    pub(crate) warnings: Vec<ValidityWarning>,
    pub(crate) start_unix_ns: i64,
    pub(crate) duration_ns: u64,
}

/// Settings of a search. Exits with status 2 if the options are inconsistent.
pub(crate) fn search_settings(options: &RunOptions) -> CapacitySearch {
    let limits =
        options.require.iter().map(|one| SloCondition::try_from(one).map_err(|e| e.to_string()));
    let limits: Vec<SloCondition> = match limits.collect() {
        Ok(limits) => limits,
        Err(message) => usage_error(&message),
    };
    if let Some(longest) = longest(&limits).filter(|limit| *limit >= options.timeout) {
        usage_error(&format!(
            "limit {} is not below --timeout {}: requests time out before they can exceed it; raise \
             --timeout",
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
    use clap::CommandFactory as _;
    let mut command = crate::command::Topdeck::command();
    command.build();
    let load = command.find_subcommand_mut("load").expect("BUG: load is a subcommand");
    load.error(clap::error::ErrorKind::ValueValidation, message).exit()
}

fn longest(limits: &[SloCondition]) -> Option<u64> {
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
                let text = table(&trials).text(&Terminal::new(options.ascii));
                write_text(options, &text)?;
            }
            return Err(error).context("search");
        }
    };
    let highest = result.sustained.map_or(search.first_rate, |sustained| sustained.rate);
    let schedule = Schedule::constant(highest, search.min_duration_ns, ArrivalProcess::Constant);
    let threads = plan.settings.threads;
    let warnings = calibration
        .as_ref()
        .map(|one| one.validity_warnings(&schedule, threads))
        .unwrap_or_default();
    Ok(SearchReport {
        plan,
        calibration,
        requirements: options.require.clone(),
        search,
        result,
        warnings,
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
    if measurement.failed > 0 {
        line.push_str(&format!(", {} failed", count(measurement.failed)));
    }
    if !measurement.warnings.is_empty() {
        let kinds: Vec<&str> = measurement.warnings.iter().map(ValidityWarning::kind).collect();
        line.push_str(&format!(", generator: {}", kinds.join(", ")));
    }
    line
}

fn p99(of: &hist::Histogram) -> String {
    at(of, 0.99).map_or("-".to_owned(), |result| numbers().value(result))
}

impl SearchReport {
    /// Whether the result is about the target.
    pub(crate) fn is_valid(&self) -> bool {
        self.warnings.is_empty() && !self.is_generator_limited()
    }

    /// Whether no rate passed because of the generator.
    fn is_generator_limited(&self) -> bool {
        self.result.sustained.is_none()
            && matches!(self.result.upper_bound, UpperBound::GeneratorLimited(_))
    }

    /// Whether a rate meets all requirements.
    pub(crate) fn is_met(&self) -> bool {
        self.requirements.is_empty() || self.result.sustained.is_some()
    }
}

pub(crate) fn purpose(trial: &SearchTrial) -> &'static str {
    match trial.purpose {
        TrialPurpose::Search => "search",
        TrialPurpose::Confirmation => "confirmation",
        TrialPurpose::Knee => "knee",
    }
}

pub(crate) fn text(report: &SearchReport, terminal: &Terminal) -> String {
    let SearchReport { plan, result, .. } = report;
    let mut text = String::new();
    if !report.is_valid() {
        text.push_str(&terminal.paint(TextStyle::Max, &invalid_heading(&report.warnings)));
        text.push('\n');
        for warning in &report.warnings {
            paragraph(&mut text, &warning.to_string(), terminal);
        }
        if report.is_generator_limited() {
            let detail = "the generator was the limit even at the lowest rates; add threads, or \
                          use another machine";
            paragraph(&mut text, detail, terminal);
        }
        text.push('\n');
    }
    let expressions: Vec<&str> = report.requirements.iter().map(|one| &*one.expression).collect();
    let what = match expressions[..] {
        [] => "knee search".to_owned(),
        _ => {
            format!("search for the highest rate with {}", escape_control(&expressions.join(", ")))
        }
    };
    let heading = format!("{}  {what}, arrivals {}", escape_control(&plan.target), plan.schedule);
    text.push_str(&terminal.paint(TextStyle::Heading, &heading));
    text.push('\n');
    let started = format_time(report.start_unix_ns);
    let mut lines = vec![
        settings_line(plan),
        format!("started {started}, took {}", format_duration(report.duration_ns)),
        escape_control(&plan.machine.text()),
    ];
    lines.extend(calibration_lines(report.calibration.as_ref()));
    lines.iter().for_each(|line| text.push_str(&format!("  {line}\n")));
    text.push('\n');
    text.push_str(&table(&result.trials).text(terminal));
    text.push('\n');
    result.to_string().lines().for_each(|line| paragraph(&mut text, line, terminal));
    text
}

/// Table of trials.
fn table(trials: &[SearchTrial]) -> TextTable {
    let has_failed = trials.iter().any(|trial| trial.measurement.failed > 0);
    let mut columns = vec![
        ("rate", true),
        ("duration", true),
        ("purpose", false),
        ("result", false),
        ("p99", true),
        ("max", true),
        ("service p99", true),
    ];
    columns.extend(has_failed.then_some(("failed", true)));
    let mut table = TextTable::new(&columns);
    for trial in trials {
        let of = &trial.measurement;
        let max = of.response.max().map_or("-".to_owned(), |max| numbers().value(max));
        let outcome = match (trial.is_passed, trial.is_generator_limited) {
            (true, _) => "pass",
            (false, false) => "fail",
            (false, true) => "generator",
        };
        let mut cells = vec![
            format_rate(trial.rate),
            format_duration(trial.duration_ns),
            purpose(trial).to_owned(),
            outcome.to_owned(),
            p99(&of.response),
            max,
            p99(&of.service),
        ];
        cells.extend(has_failed.then(|| count(of.failed)));
        table.row(cells);
    }
    table
}
