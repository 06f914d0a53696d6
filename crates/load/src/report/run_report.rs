//! The result of a run as text.

use std::collections::BTreeMap;

use crate::{
    Calibration, InvalidReason, Requirement, RequirementMetric, RequirementOutcome, RunResult,
    Sessions, format_rate,
};
use hist::{Bracket, Histogram};

use crate::report::push_sink::PushSummary;
use crate::report::run_plan::{self, RunPlan};
use crate::report::sessions;
use crate::report::statistics::{self, StatisticsTable, estimate_formatter};
use render::table::TextTable;
use render::terminal::{Terminal, TextStyle};
use render::text::escape_control;
use render::text::wrap_text;
use render::time::{format_ns, format_time};
use render::value_formatter::count;

/// Data of the reports of a run.
pub struct RunReport {
    /// Settings of the run.
    pub plan: RunPlan,
    /// Result of the calibration, unless skipped.
    pub calibration: Option<Calibration>,
    /// Result of the run.
    pub run: RunResult,
    /// Requirements with their outcomes.
    pub requirements: Vec<RequirementResult>,
    /// Service times by the second of the response.
    pub services: BTreeMap<u64, Histogram>,
    /// Session size, if requested.
    pub sessions: Option<Sessions>,
    /// Result of the push, if requested.
    pub push: Option<PushSummary>,
}

/// A requirement with its outcome.
pub struct RequirementResult {
    /// The requirement.
    pub requirement: Requirement,
    /// The measured value, if any.
    pub measured: Option<Bracket>,
    pub(crate) outcome: RequirementOutcome,
}

impl RequirementResult {
    /// Evaluates a requirement against a run.
    pub fn new(requirement: &Requirement, run: &RunResult) -> RequirementResult {
        let (measured, outcome) = requirement.evaluate(run);
        RequirementResult { requirement: requirement.clone(), measured, outcome }
    }

    /// Whether it is met.
    pub fn is_met(&self) -> bool {
        self.outcome == RequirementOutcome::Pass
    }

    /// Name of the outcome.
    pub fn label(&self) -> &'static str {
        match self.outcome {
            RequirementOutcome::Pass => "PASS",
            RequirementOutcome::Fail => "FAIL",
            RequirementOutcome::Inconclusive => "INCONCLUSIVE",
        }
    }

    /// The measured value, with its bounds if they matter.
    pub fn text(&self) -> String {
        let Some(measured) = self.measured else { return "not measured".to_owned() };
        let text = match self.requirement.metric {
            RequirementMetric::Latency(..) if measured.lower == f64::INFINITY => {
                return "not reached: too many failures".to_owned();
            }
            RequirementMetric::Latency(..) => {
                let formatter = estimate_formatter();
                let (value, bounds) = (formatter.value(measured), formatter.bounds(measured));
                if bounds.is_empty() { value } else { format!("{value} ({bounds})") }
            }
            RequirementMetric::FailedShare => {
                format!("{} %", significant(measured.estimate * 100.0))
            }
            RequirementMetric::CompletedRate => format_rate(measured.estimate),
        };
        match self.outcome {
            RequirementOutcome::Inconclusive => {
                format!("{text}: the limit is within the bounds")
            }
            _ => text,
        }
    }
}

/// Formats a small number with few digits.
fn significant(number: f64) -> String {
    match number {
        0.0 => "0".to_owned(),
        number if number >= 0.01 => format!("{number:.2}"),
        number => format!("{number:.1e}"),
    }
}

/// Heading of an invalid result.
pub const INVALID: &str = "INVALID RESULT";

/// The heading with the reasons.
pub(crate) fn invalid_heading(reasons: &[InvalidReason]) -> String {
    let is_bug = |reason: &InvalidReason| matches!(reason, InvalidReason::CountMismatch { .. });
    let is_clock = |reason: &InvalidReason| matches!(reason, InvalidReason::ClockInaccurate { .. });
    let reason = if reasons.iter().any(is_bug) {
        "count mismatch (bug)"
    } else if !reasons.is_empty() && reasons.iter().all(is_clock) {
        "clock error too large"
    } else {
        "the generator was the bottleneck"
    };
    format!("{INVALID}: {reason}")
}

/// The run as text.
pub fn text(report: &RunReport, terminal: &Terminal) -> String {
    let (plan, run) = (&report.plan, &report.run);
    let mut text = String::new();
    if !run.invalid_reasons.is_empty() {
        text.push_str(&terminal.paint(TextStyle::Max, &invalid_heading(&run.invalid_reasons)));
        text.push('\n');
        for reason in &run.invalid_reasons {
            paragraph(&mut text, &reason.to_string(), terminal);
        }
        text.push('\n');
    }
    let heading = format!("{}  {}", escape_control(&plan.target), escape_control(&plan.schedule));
    text.push_str(&terminal.paint(TextStyle::Heading, &heading));
    text.push('\n');
    for line in run_conditions(report) {
        text.push_str(&format!("  {line}\n"));
    }
    text.push('\n');
    let mut table = TextTable::new(&[("", false), ("requests", true), ("", true), ("", false)]);
    let count_rows = statistics::count_rows(&run.tally);
    count_rows.into_iter().for_each(|row| table.row(row.to_vec()));
    text.push_str(&table.text(terminal));
    let first = statistics::first_errors(run);
    if !first.is_empty() {
        text.push('\n');
    }
    for (failure, detail) in first {
        paragraph(&mut text, &format!("first {failure}: {}", escape_control(detail)), terminal);
    }
    text.push('\n');
    grid(&mut text, &statistics::percentiles(&run.tally), terminal);
    if run.per_request.len() > 1 {
        text.push('\n');
        grid(&mut text, &statistics::per_request(run), terminal);
    }
    text.push('\n');
    let facts = statistics::facts(run, plan);
    for (name, value) in &facts {
        text.push_str(&format!("  {name:<11}  {value}\n"));
    }
    if !report.requirements.is_empty() {
        text.push('\n');
        let mut table = TextTable::new(&[("", false), ("", false), ("", false)]);
        for one in &report.requirements {
            // The last lines of a long report are what is read: no PASS stands alone there.
            let label = match (one.label(), run.invalid_reasons.is_empty()) {
                ("PASS", false) => format!("PASS, but {INVALID}"),
                (label, _) => label.to_owned(),
            };
            let cells =
                [label, escape_control(&one.requirement.expression).to_string(), one.text()];
            table.row(cells.to_vec());
        }
        text.push_str(&table.text(terminal));
    }
    if let Some(of) = report.sessions {
        text.push('\n');
        text.push_str(&sessions::text(of, Some(&run.tally.response), terminal));
    }
    if let Some(push) = &report.push {
        text.push_str(&format!("\n  {}\n", escape_control(&push.text())));
    }
    text
}

/// Conditions of the run, one per line.
pub(crate) fn run_conditions(report: &RunReport) -> Vec<String> {
    let (plan, run) = (&report.plan, &report.run);
    let mut lines = vec![
        settings_line(plan),
        format!(
            "started {}, took {}",
            format_time(run.start_unix_ns),
            format_ns(run.duration_ns as f64)
        ),
        escape_control(&plan.machine.text()),
    ];
    lines.extend(calibration_lines(report.calibration.as_ref()));
    if run.is_interrupted {
        lines.push("interrupted: later requests are not counted".to_owned());
    }
    lines
}

/// Seed, threads, connections and timeouts.
pub(crate) fn settings_line(plan: &RunPlan) -> String {
    let settings = &plan.settings;
    let threads = if settings.threads == 1 { "thread" } else { "threads" };
    let unverified = match plan.is_verified() {
        Some(false) => ", server certificate NOT verified",
        _ => "",
    };
    let most = count(settings.max_connections as u64);
    let limits = match plan.is_command() {
        true => format!("up to {most} concurrent processes"),
        false => format!("{} to {most} connections", count(settings.connections as u64)),
    };
    format!(
        "seed {}, {} {threads}, {limits}, timeout {}, grace period {}{unverified}",
        settings.seed,
        settings.threads,
        run_plan::format_duration(settings.timeout_ns),
        run_plan::format_duration(settings.grace_period_ns),
    )
}

/// Result of the calibration, one fact per line.
pub(crate) fn calibration_lines(found: Option<&Calibration>) -> Vec<String> {
    match found {
        Some(found) => found
            .to_string()
            .lines()
            .map(|line| format!("calibration, {}", escape_control(line)))
            .collect(),
        None => {
            vec!["calibration skipped (--no-calibration): generator capacity unknown".to_owned()]
        }
    }
}

/// Appends wrapped, indented text.
pub fn paragraph(text: &mut String, content: &str, terminal: &Terminal) {
    for (at, line) in wrap_text(content, terminal.width.saturating_sub(4)).into_iter().enumerate() {
        let mark = if at == 0 { "- " } else { "  " };
        text.push_str(&format!("  {mark}{line}\n"));
    }
}

fn grid(text: &mut String, grid: &StatisticsTable, terminal: &Terminal) {
    let columns: Vec<(&str, bool)> =
        grid.head.iter().enumerate().map(|(at, name)| (name.as_str(), at > 0)).collect();
    let mut table = TextTable::new(&columns);
    for row in &grid.rows {
        table.row(row.iter().map(|cell| escape_control(cell)).collect());
    }
    text.push_str(&table.text(terminal));
    if let Some(note) = &grid.note {
        text.push_str(&terminal.paint(TextStyle::Faint, &format!("  {note}")));
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::stored_run::tests::report;
    use render::terminal::ColourDepth;

    /// The table splits rows that exceed the width of the terminal.
    #[test]
    fn outcomes_fit_on_a_terminal_of_80_columns() {
        let terminal = Terminal {
            width: 80,
            raw_width: 80,
            height: 24,
            ascii: true,
            colour_depth: ColourDepth::None,
        };
        let text = text(&report(), &terminal);
        let row = text.lines().find(|line| line.starts_with("  observed late")).unwrap();
        assert!(row.ends_with("response during a generator stall"), "{text}");
    }
}
