//! What a run came to, as text.

use std::collections::BTreeMap;

use hist::{Bracket, Histogram};
use load::{Calibration, Doubt, Requirement, Run, Sessions, Verdict, What, per_second};

use crate::command::plain;
use crate::compare::show::wrapped;
use crate::hist::show::count;
use crate::hist::terminal::{Paint, Terminal};
use crate::journal::show::{nanoseconds, time};
use crate::load::plan::{self, Plan};
use crate::load::push::Pushed;
use crate::load::sessions;
use crate::load::statistics::{self, Grid, numbers};
use crate::query::table::Table;

/// All that is told of a run.
pub(crate) struct Report {
    pub(crate) plan: Plan,
    /// What this machine can be trusted with, if it was looked at.
    pub(crate) calibration: Option<Calibration>,
    pub(crate) run: Run,
    pub(crate) judged: Vec<Judged>,
    /// Service times by the second in which answers came.
    pub(crate) services: BTreeMap<u64, Histogram>,
    pub(crate) sessions: Option<Sessions>,
    pub(crate) pushed: Option<Pushed>,
}

/// A requirement, and whether it was met.
pub(crate) struct Judged {
    pub(crate) requirement: Requirement,
    pub(crate) found: Option<Bracket>,
    pub(crate) verdict: Verdict,
}

impl Judged {
    pub(crate) fn of(requirement: &Requirement, run: &Run) -> Judged {
        let (found, verdict) = requirement.judge(run);
        Judged { requirement: requirement.clone(), found, verdict }
    }

    pub(crate) fn is_met(&self) -> bool {
        self.verdict == Verdict::Met
    }

    pub(crate) fn word(&self) -> &'static str {
        match self.verdict {
            Verdict::Met => "met",
            Verdict::Missed => "NOT MET",
            Verdict::Unclear => "NOT SURE",
        }
    }

    /// What was found, with its bounds where they decide.
    pub(crate) fn words(&self) -> String {
        let Some(found) = self.found else { return "nothing was measured".to_owned() };
        let words = match self.requirement.what {
            What::Time(..) if found.lower == f64::INFINITY => {
                return "never: more failed than that".to_owned();
            }
            What::Time(..) => {
                let (value, bounds) = (numbers().value(found), numbers().bounds(found));
                if bounds.is_empty() { value } else { format!("{value} ({bounds})") }
            }
            What::Failed => format!("{} %", significant(found.estimate * 100.0)),
            What::Rate => per_second(found.estimate),
        };
        match self.verdict {
            Verdict::Unclear => {
                format!("{words}: the limit lies between")
            }
            _ => words,
        }
    }
}

/// Few digits of a small number, none of zero.
fn significant(number: f64) -> String {
    match number {
        0.0 => "0".to_owned(),
        number if number >= 0.01 => format!("{number:.2}"),
        number => format!("{number:.1e}"),
    }
}

/// What stands above everything else where a run is not to be trusted.
pub(crate) const UNTRUSTED: &str = "NOT TO BE TRUSTED";

/// The same with whose fault it is.
pub(crate) fn untrusted(doubts: &[Doubt]) -> String {
    let is_topdecks = |doubt: &Doubt| matches!(doubt, Doubt::Books { .. });
    let is_clocks = |doubt: &Doubt| matches!(doubt, Doubt::Clock { .. });
    let why = if doubts.iter().any(is_topdecks) {
        "topdeck lost count"
    } else if !doubts.is_empty() && doubts.iter().all(is_clocks) {
        "the clock is not good enough"
    } else {
        "the generator was the bottleneck"
    };
    format!("{UNTRUSTED}: {why}")
}

pub(crate) fn text(report: &Report, terminal: &Terminal) -> String {
    let (plan, run) = (&report.plan, &report.run);
    let mut text = String::new();
    if !run.doubts.is_empty() {
        text.push_str(&terminal.paint(Paint::Max, &untrusted(&run.doubts)));
        text.push('\n');
        for doubt in &run.doubts {
            paragraph(&mut text, &doubt.to_string(), terminal);
        }
        text.push('\n');
    }
    let heading = format!("{}  {}", plain(&plan.target), plain(&plan.schedule));
    text.push_str(&terminal.paint(Paint::Heading, &heading));
    text.push('\n');
    for line in circumstances(report) {
        text.push_str(&format!("  {line}\n"));
    }
    text.push('\n');
    let mut table = Table::new(&[("", false), ("requests", true), ("", true), ("", false)]);
    let account = statistics::account(&run.tally);
    account.into_iter().for_each(|row| table.row(row.to_vec()));
    text.push_str(&table.text(terminal));
    let first = statistics::first_failures(run);
    if !first.is_empty() {
        text.push('\n');
    }
    for (failure, words) in first {
        paragraph(&mut text, &format!("the first {failure}: {}", plain(words)), terminal);
    }
    text.push('\n');
    grid(&mut text, &statistics::percentiles(&run.tally), terminal);
    if run.by_request.len() > 1 {
        text.push('\n');
        grid(&mut text, &statistics::by_request(run), terminal);
    }
    text.push('\n');
    let facts = statistics::facts(run, plan);
    for (name, words) in &facts {
        text.push_str(&format!("  {name:<11}  {words}\n"));
    }
    if !report.judged.is_empty() {
        text.push('\n');
        let mut table = Table::new(&[("", false), ("", false), ("", false)]);
        for one in &report.judged {
            let cells = [one.word(), &plain(&one.requirement.written), &one.words()];
            table.row(cells.map(str::to_owned).to_vec());
        }
        text.push_str(&table.text(terminal));
    }
    if let Some(of) = report.sessions {
        text.push('\n');
        text.push_str(&sessions::text(of, Some(&run.tally.response), terminal));
    }
    if let Some(pushed) = &report.pushed {
        text.push_str(&format!("\n  {}\n", plain(&pushed.words())));
    }
    text
}

/// How it was run, in lines.
pub(crate) fn circumstances(report: &Report) -> Vec<String> {
    let (plan, run) = (&report.plan, &report.run);
    let mut lines = vec![
        manner(plan),
        format!("began {}, took {}", time(run.began_unix_ns), nanoseconds(run.length_ns as f64)),
        plain(&plan.machine.words()),
    ];
    lines.extend(calibrated(report.calibration.as_ref()));
    if run.is_interrupted {
        lines.push(
            "ended before its time: what would have been due later is not counted".to_owned(),
        );
    }
    lines
}

/// Seed, threads, connections, and how long is waited.
pub(crate) fn manner(plan: &Plan) -> String {
    let settings = &plan.settings;
    let threads = if settings.threads == 1 { "thread" } else { "threads" };
    let unverified = match plan.is_verified() {
        Some(false) => ", the server's certificate NOT verified",
        _ => "",
    };
    let most = count(settings.connections_max as u64);
    let places = match plan.is_command() {
        true => format!("up to {most} processes at once"),
        false => format!("{} to {most} connections", count(settings.connections as u64)),
    };
    format!(
        "seed {}, {} {threads}, {places}, timeout {}, {} for answers at the end{unverified}",
        settings.seed,
        settings.threads,
        plan::nanoseconds(settings.timeout_ns),
        plan::nanoseconds(settings.drain_ns),
    )
}

/// What this machine can be trusted with, in lines.
pub(crate) fn calibrated(found: Option<&Calibration>) -> Vec<String> {
    match found {
        Some(found) => {
            found.to_string().lines().map(|line| format!("calibration, {}", plain(line))).collect()
        }
        None => vec![
            "calibration was left out: nothing says what this machine can be trusted with"
                .to_owned(),
        ],
    }
}

/// Words on lines that fit, a little to the right.
pub(crate) fn paragraph(text: &mut String, words: &str, terminal: &Terminal) {
    for (at, line) in wrapped(words, terminal.width.saturating_sub(4)).into_iter().enumerate() {
        let mark = if at == 0 { "- " } else { "  " };
        text.push_str(&format!("  {mark}{line}\n"));
    }
}

fn grid(text: &mut String, grid: &Grid, terminal: &Terminal) {
    let columns: Vec<(&str, bool)> =
        grid.head.iter().enumerate().map(|(at, name)| (name.as_str(), at > 0)).collect();
    let mut table = Table::new(&columns);
    for row in &grid.rows {
        table.row(row.iter().map(|cell| plain(cell)).collect());
    }
    text.push_str(&table.text(terminal));
    if let Some(note) = &grid.note {
        text.push_str(&terminal.paint(Paint::Faint, &format!("  {note}")));
        text.push('\n');
    }
}
