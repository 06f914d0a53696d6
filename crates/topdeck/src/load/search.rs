//! `topdeck load --search`: the highest rate at which the target meets what is required of it, and from which on its response time parts
//! from its service time. The crate `load` says what to measure next; here it is measured, and told step by step.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result, bail};
use load::{
    Above, Aim, Ask, Calibration, Doubt, Found, Limit, Measured, Requirement, Run, Schedule,
    Search, Settings, Spacing, Step, per_second,
};

use crate::command::plain;
use crate::hist::show::count;
use crate::hist::terminal::{Paint, Terminal};
use crate::journal::show::time;
use crate::load::options::RunOptions;
use crate::load::plan::{Plan, nanoseconds};
use crate::load::report::{Judged, calibrated, manner, paragraph, untrusted};
use crate::load::statistics::{at, numbers};
use crate::load::tell_text;
use crate::query::table::Table;

/// All that is told of a search.
pub(crate) struct Searched {
    pub(crate) plan: Plan,
    pub(crate) calibration: Option<Calibration>,
    pub(crate) requirements: Vec<Requirement>,
    pub(crate) search: Search,
    pub(crate) found: Found,
    /// What the calibration says against the rate that was found.
    pub(crate) doubts: Vec<Doubt>,
    pub(crate) began_unix_ns: i64,
    pub(crate) length_ns: u64,
}

/// A search that can be made, or the end of the program, as of any command line that makes no sense.
pub(crate) fn of(options: &RunOptions) -> Search {
    let limits = options.require.iter().map(|one| Limit::try_from(one).map_err(|e| e.to_string()));
    let limits: Vec<Limit> = match limits.collect() {
        Ok(limits) => limits,
        Err(message) => refuse(&message),
    };
    if let Some(longest) = longest(&limits).filter(|limit| *limit >= options.timeout) {
        refuse(&format!(
            "a limit of {} is never told from a failure, for a request has failed after --timeout {}: ask for a longer --timeout",
            nanoseconds(longest),
            nanoseconds(options.timeout)
        ));
    }
    let usual = Search::default();
    let length_max_ns = options.duration.unwrap_or(usual.length_max_ns);
    Search {
        requirements: limits,
        first_rate: options.rate.unwrap_or(usual.first_rate),
        rate_max: options.rate_max.unwrap_or(usual.rate_max),
        precision: options.precision.unwrap_or(usual.precision),
        length_min_ns: usual.length_min_ns.min(length_max_ns),
        length_max_ns,
        ..usual
    }
}

/// A check that the command line makes no sense of: exit status 2 as for any other.
fn refuse(message: &str) -> ! {
    use clap::CommandFactory as _;
    let mut command = crate::command::Topdeck::command();
    command.build();
    let load = command.find_subcommand_mut("load").expect("BUG: load is a subcommand");
    load.error(clap::error::ErrorKind::ValueValidation, message).exit()
}

fn longest(limits: &[Limit]) -> Option<u64> {
    limits.iter().map(|one| one.limit_ns).max()
}

/// Searches, and tells each step on standard error.
pub(crate) fn run(
    options: &RunOptions,
    search: Search,
    mut plan: Plan,
    calibration: Option<Calibration>,
    stop: &Arc<AtomicBool>,
) -> Result<Searched> {
    // What is not answered within the longest limit must be known to be so.
    let settings = &mut plan.settings;
    settings.drain_ns = longest(&search.requirements).unwrap_or(0).max(settings.drain_ns);
    plan.schedule = match options.poisson {
        true => "at random (Poisson)".to_owned(),
        false => "at even distances".to_owned(),
    };
    let (began_ns, began_unix_ns) = (clock::now(), clock::wall().unix_ns);
    let mut measure = |ask: Ask| -> Result<Measured> {
        // Another each time: what is alike in all runs is not chance.
        let seed = plan.settings.seed.wrapping_add(ask.number as u64);
        let spacing = if options.poisson { Spacing::Poisson { seed } } else { Spacing::Even };
        let schedule = Schedule::constant(ask.rate, ask.length_ns, spacing);
        let run = load::run(&Settings { schedule, seed, ..plan.settings.clone() }, stop, &mut ())?;
        if stop.load(Ordering::Relaxed) {
            bail!("ended before the rate was found");
        }
        let measured = Measured::from(&run);
        if !options.quiet {
            let line = step_line(ask, options, &run, &measured);
            // Nobody has to listen.
            let _ = writeln!(std::io::stderr(), "{line}");
        }
        Ok(measured)
    };
    let found = match search.run(&mut measure) {
        Ok(found) => found,
        Err((error, steps)) => {
            // What was tried until then took long enough.
            if !steps.is_empty() {
                let text = table(&steps).text(&Terminal::new(options.ascii));
                tell_text(options, &text)?;
            }
            return Err(error).context("search");
        }
    };
    let highest = found.held.map_or(search.first_rate, |held| held.rate);
    let known = Schedule::constant(highest, search.length_min_ns, Spacing::Even);
    let threads = plan.settings.threads;
    let doubts = calibration.as_ref().map(|one| one.doubts(&known, threads)).unwrap_or_default();
    Ok(Searched {
        plan,
        calibration,
        requirements: options.require.clone(),
        search,
        found,
        doubts,
        began_unix_ns,
        length_ns: clock::now().saturating_sub(began_ns),
    })
}

/// A step while the search goes on.
fn step_line(ask: Ask, options: &RunOptions, run: &Run, measured: &Measured) -> String {
    let mut line = format!(
        "step {}: {} for {}",
        ask.number + 1,
        per_second(ask.rate),
        nanoseconds(ask.length_ns)
    );
    for requirement in &options.require {
        let judged = Judged::of(requirement, run);
        let word = if judged.is_met() { "met" } else { "NOT met" };
        let (written, found) = (plain(&requirement.written), judged.words());
        line.push_str(&format!(", {written} {word}: {found}"));
    }
    if options.require.is_empty() {
        line.push_str(&format!(
            ", p99 {}, of service {}",
            p99(&run.tally.response),
            p99(&run.tally.service)
        ));
    }
    if measured.failed > 0 {
        line.push_str(&format!(", {} failed", count(measured.failed)));
    }
    if !measured.doubts.is_empty() {
        let kinds: Vec<&str> = measured.doubts.iter().map(Doubt::kind).collect();
        line.push_str(&format!(", generator: {}", kinds.join(", ")));
    }
    line
}

fn p99(of: &hist::Histogram) -> String {
    at(of, 0.99).map_or("-".to_owned(), |found| numbers().value(found))
}

impl Searched {
    /// Whether what was found says something of the target.
    pub(crate) fn is_trusted(&self) -> bool {
        self.doubts.is_empty() && !self.is_generators()
    }

    /// Whether the generator kept every rate from being held.
    fn is_generators(&self) -> bool {
        self.found.held.is_none() && matches!(self.found.above, Above::Generator(_))
    }

    /// Whether any rate meets what is required.
    pub(crate) fn is_met(&self) -> bool {
        self.requirements.is_empty() || self.found.held.is_some()
    }
}

pub(crate) fn aim(step: &Step) -> &'static str {
    match step.aim {
        Aim::Requirements => "requirements",
        Aim::Repeat => "repeat",
        Aim::Knee => "knee",
    }
}

pub(crate) fn text(searched: &Searched, terminal: &Terminal) -> String {
    let Searched { plan, found, .. } = searched;
    let mut text = String::new();
    if !searched.is_trusted() {
        text.push_str(&terminal.paint(Paint::Max, &untrusted(&searched.doubts)));
        text.push('\n');
        for doubt in &searched.doubts {
            paragraph(&mut text, &doubt.to_string(), terminal);
        }
        if searched.is_generators() {
            let words = "at the lowest rates that were tried the generator itself was the limit; give it more threads or another machine";
            paragraph(&mut text, words, terminal);
        }
        text.push('\n');
    }
    let written: Vec<&str> = searched.requirements.iter().map(|one| &*one.written).collect();
    let what = match written[..] {
        [] => "search for the knee".to_owned(),
        _ => format!("search for the highest rate with {}", plain(&written.join(", "))),
    };
    let heading = format!("{}  {what}, requests {}", plain(&plan.target), plan.schedule);
    text.push_str(&terminal.paint(Paint::Heading, &heading));
    text.push('\n');
    let began = time(searched.began_unix_ns);
    let mut lines = vec![
        manner(plan),
        format!("began {began}, took {}", nanoseconds(searched.length_ns)),
        plain(&plan.machine.words()),
    ];
    lines.extend(calibrated(searched.calibration.as_ref()));
    lines.iter().for_each(|line| text.push_str(&format!("  {line}\n")));
    text.push('\n');
    text.push_str(&table(&found.steps).text(terminal));
    text.push('\n');
    found.to_string().lines().for_each(|line| paragraph(&mut text, line, terminal));
    text
}

/// What was tried, a row for each run.
fn table(steps: &[Step]) -> Table {
    let has_failed = steps.iter().any(|step| step.measured.failed > 0);
    let mut columns = vec![
        ("rate", true),
        ("length", true),
        ("for", false),
        ("held", false),
        ("p99", true),
        ("max", true),
        ("service p99", true),
    ];
    columns.extend(has_failed.then_some(("failed", true)));
    let mut table = Table::new(&columns);
    for step in steps {
        let of = &step.measured;
        let max = of.response.max().map_or("-".to_owned(), |max| numbers().value(max));
        let held = match (step.is_held, step.is_generators) {
            (true, _) => "yes",
            (false, false) => "no",
            (false, true) => "generator",
        };
        let mut cells = vec![
            per_second(step.rate),
            nanoseconds(step.length_ns),
            match step.aim {
                Aim::Requirements => "search".to_owned(),
                _ => aim(step).to_owned(),
            },
            held.to_owned(),
            p99(&of.response),
            max,
            p99(&of.service),
        ];
        cells.extend(has_failed.then(|| count(of.failed)));
        table.row(cells);
    }
    table
}
