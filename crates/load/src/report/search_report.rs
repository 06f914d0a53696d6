//! The result of a search as text.

use hist::Histogram;
use render::table::TextTable;
use render::terminal::{Terminal, TextStyle};
use render::text::escape_control;
use render::time::format_time;
use render::value_formatter::count;

use crate::report::run_plan::{RunPlan, format_duration};
use crate::report::run_report::{calibration_lines, invalid_heading, paragraph, settings_line};
use crate::report::statistics::{estimate_formatter, quantile_or_max};
use crate::{
    Calibration, CapacitySearch, InvalidReason, Requirement, SearchResult, SearchTrial,
    TrialPurpose, UpperBound, format_rate,
};

/// Data of the reports of a search.
pub struct SearchReport {
    /// Settings of the runs.
    pub plan: RunPlan,
    /// Result of the calibration, unless skipped.
    pub calibration: Option<Calibration>,
    /// Requirements.
    pub requirements: Vec<Requirement>,
    /// Settings of the search.
    pub search: CapacitySearch,
    /// Result of the search.
    pub result: SearchResult,
    /// Why the result is invalid according to the calibration.
    pub invalid_reasons: Vec<InvalidReason>,
    /// Start in nanoseconds since the Unix epoch.
    pub start_unix_ns: i64,
    /// Duration in nanoseconds.
    pub duration_ns: u64,
}

impl SearchReport {
    /// Whether the result is valid for the target.
    pub fn is_valid(&self) -> bool {
        self.invalid_reasons.is_empty() && !self.is_generator_limited()
    }

    /// Whether no rate passed because the generator was the limit.
    fn is_generator_limited(&self) -> bool {
        self.result.sustained.is_none()
            && matches!(self.result.upper_bound, UpperBound::GeneratorLimited(_))
    }

    /// Whether a rate meets all requirements.
    pub fn is_met(&self) -> bool {
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

/// The search as text.
pub fn text(report: &SearchReport, terminal: &Terminal) -> String {
    let SearchReport { plan, result, .. } = report;
    let mut text = String::new();
    if !report.is_valid() {
        text.push_str(&terminal.paint(TextStyle::Max, &invalid_heading(&report.invalid_reasons)));
        text.push('\n');
        for reason in &report.invalid_reasons {
            paragraph(&mut text, &reason.to_string(), terminal);
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
pub fn table(trials: &[SearchTrial]) -> TextTable {
    let has_failed = trials.iter().any(|trial| trial.measurement.failed_requests > 0);
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
        let max = of.response.max().map_or("-".to_owned(), |max| estimate_formatter().value(max));
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
        cells.extend(has_failed.then(|| count(of.failed_requests)));
        table.row(cells);
    }
    table
}

/// The 99th percentile as text.
pub fn p99(of: &Histogram) -> String {
    quantile_or_max(of, 0.99).map_or("-".to_owned(), |result| estimate_formatter().value(result))
}
