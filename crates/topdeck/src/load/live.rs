//! A run while it goes on: drawn anew each second on a terminal, a line a second elsewhere.

use std::io::{self, IsTerminal as _};

use hist::Histogram;
use load::{Arrivals, Doubt, Tally, per_second};

use crate::hist::show::{Show, count};
use crate::hist::terminal::{Colours, Paint, Terminal};
use crate::load::plan::{Plan, nanoseconds};
use crate::load::statistics::show;

/// Where it is shown, and what was seen so far.
pub(crate) struct Live {
    to_stdout: bool,
    /// So many lines were drawn, which are drawn over.
    lines: usize,
    /// Of doubts, in a log: each is told when it is new.
    told: usize,
    arrivals: Arrivals,
    next_due_ns: Option<u64>,
    total: Tally,
    before_ns: u64,
    planned_ns: u64,
    threads: usize,
}

const SECOND_NS: u64 = 1_000_000_000;

impl Live {
    pub(crate) fn new(plan: &Plan) -> Live {
        let mut arrivals = plan.settings.schedule.arrivals();
        Live {
            to_stdout: io::stdout().is_terminal(),
            lines: 0,
            told: 0,
            next_due_ns: arrivals.next(),
            arrivals,
            total: Tally::default(),
            before_ns: 0,
            planned_ns: plan.settings.schedule.length_ns(),
            threads: plan.settings.threads,
        }
    }

    pub(crate) fn second(&mut self, end_ns: u64, tally: &Tally) {
        // As wide as it is by now.
        let terminal = match self.to_stdout {
            true => Terminal::of(&io::stdout(), false),
            false => Terminal::of(&io::stderr(), false),
        };
        let text = self.text(end_ns, tally, &terminal);
        // Nobody has to listen.
        let _ = match self.to_stdout {
            true => write(io::stdout().lock(), &text),
            false => write(io::stderr().lock(), &text),
        };
    }

    fn text(&mut self, end_ns: u64, tally: &Tally, terminal: &Terminal) -> String {
        let length_s = end_ns.saturating_sub(self.before_ns).max(1) as f64 * 1e-9;
        let rate = |number: u64| per_second((number as f64 / length_s).round());
        let mut due = 0;
        while self.next_due_ns.is_some_and(|due| due < end_ns) {
            due += 1;
            self.next_due_ns = self.arrivals.next();
        }
        self.before_ns = end_ns;
        self.total.merge(tally);
        let now = Now {
            at: format!("{} s of {}", seconds(end_ns), nanoseconds(self.planned_ns)),
            asked: rate(due),
            sent: rate(tally.send_lag.count()),
            answered: rate(tally.completed),
            tally,
        };
        let doubts = self.doubts(end_ns);
        // A screen without colours is none that can be drawn over, or not wanted to be.
        if terminal.colours == Colours::None {
            let is_known = doubts.len() <= self.told;
            self.told = self.told.max(doubts.len());
            return now.line(if is_known { &[] } else { &doubts });
        }
        let lines = now.lines(&self.total, &doubts, terminal);
        let up = match self.lines {
            0 => String::new(),
            lines => format!("\x1b[{lines}A"),
        };
        self.lines = lines.len();
        // Each line to its end, so that nothing of a longer one is left; then all that is below.
        format!(
            "{up}{}\x1b[J",
            lines.iter().map(|line| format!("{line}\x1b[K\n")).collect::<String>()
        )
    }

    fn doubts(&self, end_ns: u64) -> Vec<String> {
        let (missed, seen_late) = (self.total.missed, self.total.seen_late);
        let stalled = (missed + seen_late > 0).then(|| {
            format!(
                "the generator itself stood still: {} requests not sent, {} answers seen late",
                count(missed),
                count(seen_late)
            )
        });
        let others = Doubt::so_far(&self.total, end_ns, self.threads);
        stalled.into_iter().chain(others.iter().map(Doubt::to_string)).collect()
    }
}

fn write(mut out: impl io::Write, text: &str) -> io::Result<()> {
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Whole seconds where they are whole.
fn seconds(ns: u64) -> String {
    match ns % SECOND_NS {
        0 => count(ns / SECOND_NS),
        _ => format!("{:.1}", ns as f64 * 1e-9),
    }
}

/// The last second.
struct Now<'a> {
    at: String,
    asked: String,
    sent: String,
    answered: String,
    tally: &'a Tally,
}

impl Now<'_> {
    /// For logs.
    fn line(&self, doubts: &[String]) -> String {
        let Now { at, asked, sent, answered, tally } = self;
        let mut line = format!(
            "{at}: {asked} asked, {sent} sent, {answered} answered, {} in flight at the most; response {}; service {}; {} failed",
            count(tally.in_flight_max),
            times(&tally.response),
            times(&tally.service),
            count(tally.failures()),
        );
        for doubt in doubts {
            line.push_str("; DOUBT: ");
            line.push_str(doubt);
        }
        line + "\n"
    }

    /// For people at a terminal.
    fn lines(&self, total: &Tally, doubts: &[String], terminal: &Terminal) -> Vec<String> {
        let Now { at, asked, sent, answered, tally } = self;
        let mut lines = vec![
            format!("{at}   {asked} asked, {sent} sent, {answered} answered"),
            format!("  in flight  {} at the most", count(tally.in_flight_max)),
            format!("  response   {}", times(&tally.response)),
            format!("  service    {}", times(&tally.service)),
            format!(
                "  failed     {} in the last second, {} in all",
                count(tally.failures()),
                count(total.failures())
            ),
        ];
        match doubts {
            [] => lines.push("  doubts     none so far".to_owned()),
            doubts => lines.extend(doubts.iter().map(|doubt| format!("  doubt      {doubt}"))),
        }
        let painted = lines.iter().enumerate().map(|(number, line)| {
            // A line that is broken in two would be drawn over by half.
            let line: String = line.chars().take(terminal.wide.saturating_sub(1)).collect();
            match number {
                0 => terminal.paint(Paint::Heading, &line),
                5.. if !doubts.is_empty() => terminal.paint(Paint::Max, &line),
                _ => line,
            }
        });
        painted.collect()
    }
}

/// Never a percentile without the maximum.
fn times(of: &Histogram) -> String {
    let show: Show = show();
    let value = |value: Option<hist::Bracket>| value.map(|value| show.estimate(value.estimate));
    let all = [value(of.quantile(0.5)), value(of.quantile(0.99)), value(of.max())];
    match all {
        [Some(p50), Some(p99), Some(max)] => format!("p50 {p50}, p99 {p99}, max {max}"),
        _ => "none".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use load::{Schedule, Spacing};

    use super::*;

    fn terminal(colours: Colours) -> Terminal {
        Terminal { width: 60, wide: 60, height: 24, ascii: false, colours }
    }

    fn live() -> Live {
        let mut arrivals = Schedule::constant(100.0, 2 * SECOND_NS, Spacing::Even).arrivals();
        Live {
            to_stdout: false,
            lines: 0,
            told: 0,
            next_due_ns: arrivals.next(),
            arrivals,
            total: Tally::default(),
            before_ns: 0,
            planned_ns: 2 * SECOND_NS,
            threads: 1,
        }
    }

    fn tally() -> Tally {
        let mut recorder = hist::Recorder::new();
        (1..=90).for_each(|ms| recorder.record(ms * 1_000_000));
        let times = recorder.snapshot();
        Tally {
            intended: 100,
            completed: 90,
            in_flight_max: 12,
            response: times.clone(),
            send_lag: times.clone(),
            service: times,
            ..Tally::default()
        }
    }

    #[test]
    fn a_line_a_second_says_it_all() {
        let (mut live, terminal) = (live(), terminal(Colours::None));
        let line = live.text(SECOND_NS, &tally(), &terminal);
        assert!(line.starts_with("1 s of 2 s: 100/s asked, 90/s sent, 90/s answered, 12 in"));
        assert!(line.contains("max 90.00 ms; service p50"), "{line}");
        let line = live.text(2 * SECOND_NS + 500_000_000, &Tally::default(), &terminal);
        assert!(line.starts_with("2.5 s of 2 s: 67/s asked, 0/s sent"), "{line}");
        assert!(line.contains("response none"), "{line}");
    }

    #[test]
    fn what_was_drawn_is_drawn_over() {
        let (mut live, terminal) = (live(), terminal(Colours::Few));
        let first = live.text(SECOND_NS, &tally(), &terminal);
        assert_eq!(first.lines().count(), 7);
        assert!(!first.starts_with("\x1b[6A"));
        let second = live.text(2 * SECOND_NS, &Tally { missed: 3, ..tally() }, &terminal);
        // No line is broken in two, whatever it says and in whatever colour.
        let plain = second.replace("\x1b[K", "").replace("\x1b[6A", "").replace("\x1b[J", "");
        let plain = ["\x1b[1m", "\x1b[1;33m", "\x1b[0m"]
            .iter()
            .fold(plain, |text, one| text.replace(one, ""));
        assert!(
            plain.lines().all(|line| line.chars().count() < 60 && !line.contains('\x1b')),
            "{plain:?}"
        );
        assert!(second.starts_with("\x1b[6A"), "{second:?}");
        assert!(second.contains("stood still"), "{second}");
    }
}
