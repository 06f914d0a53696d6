//! Progress of a run: redrawn each second on a terminal, otherwise one line per second.

use std::io::{self, IsTerminal as _};

use crate::report::run_plan::{RunPlan, format_duration};
use crate::report::statistics::time_formatter;
use crate::{Arrivals, InvalidReason, Tally, format_rate};
use hist::Histogram;
use render::terminal::{ColourDepth, Terminal, TextStyle};
use render::value_formatter::{ValueFormatter, count};

/// Progress output and its state.
pub struct LiveView {
    to_stdout: bool,
    /// Lines drawn last, to be overwritten.
    lines: usize,
    /// Reasons already printed to a log: each is printed once.
    printed: usize,
    arrivals: Arrivals,
    next_due_ns: Option<u64>,
    total: Tally,
    before_ns: u64,
    planned_ns: u64,
    threads: usize,
}

const SECOND_NS: u64 = 1_000_000_000;

impl LiveView {
    /// The view of a run before its first second.
    pub fn new(plan: &RunPlan) -> LiveView {
        let mut arrivals = plan.settings.schedule.arrivals();
        LiveView {
            to_stdout: io::stdout().is_terminal(),
            lines: 0,
            printed: 0,
            next_due_ns: arrivals.next(),
            arrivals,
            total: Tally::default(),
            before_ns: 0,
            planned_ns: plan.settings.schedule.duration_ns(),
            threads: plan.settings.threads,
        }
    }

    /// Draws the state after a second of the run.
    pub fn second_ended(&mut self, end_ns: u64, tally: &Tally) {
        // The size may have changed.
        let terminal = match self.to_stdout {
            true => Terminal::for_stream(&io::stdout(), false),
            false => Terminal::for_stream(&io::stderr(), false),
        };
        let text = self.text(end_ns, tally, &terminal);
        // Output errors are ignored.
        let _ = match self.to_stdout {
            true => write(io::stdout().lock(), &text),
            false => write(io::stderr().lock(), &text),
        };
    }

    fn text(&mut self, end_ns: u64, tally: &Tally, terminal: &Terminal) -> String {
        let length_s = end_ns.saturating_sub(self.before_ns).max(1) as f64 * 1e-9;
        let rate = |number: u64| format_rate((number as f64 / length_s).round());
        let mut due_count = 0;
        while self.next_due_ns.is_some_and(|due_count| due_count < end_ns) {
            due_count += 1;
            self.next_due_ns = self.arrivals.next();
        }
        self.before_ns = end_ns;
        self.total.merge(tally);
        let last = LastInterval {
            at: progress_text(end_ns, self.planned_ns),
            scheduled: rate(due_count),
            sent: rate(tally.queue_time.count()),
            completed: rate(tally.completed),
            tally,
        };
        let reasons = self.invalid_reasons(end_ns);
        // A terminal without colours cannot, or shall not, be redrawn.
        if terminal.colour_depth == ColourDepth::None {
            let is_known = reasons.len() <= self.printed;
            self.printed = self.printed.max(reasons.len());
            return last.line(if is_known { &[] } else { &reasons });
        }
        let lines = last.lines(&self.total, &reasons, terminal);
        let up = match self.lines {
            0 => String::new(),
            lines => format!("\x1b[{lines}A"),
        };
        self.lines = lines.len();
        // Erases the rest of each line and everything below.
        format!(
            "{up}{}\x1b[J",
            lines.iter().map(|line| format!("{line}\x1b[K\n")).collect::<String>()
        )
    }

    fn invalid_reasons(&self, end_ns: u64) -> Vec<String> {
        let (not_sent, observed_late) = (self.total.not_sent, self.total.observed_late);
        let stalled = (not_sent + observed_late > 0).then(|| {
            format!(
                "the generator stalled: {} requests not sent, {} responses observed late",
                count(not_sent),
                count(observed_late)
            )
        });
        let others = InvalidReason::interim(&self.total, end_ns, self.threads);
        stalled.into_iter().chain(others.iter().map(InvalidReason::to_string)).collect()
    }
}

fn write(mut out: impl io::Write, text: &str) -> io::Result<()> {
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Elapsed of planned time. Responses that are still missing at the end take longer than planned.
fn progress_text(end_ns: u64, planned_ns: u64) -> String {
    let planned = format_duration(planned_ns);
    match end_ns.saturating_sub(planned_ns) {
        0 => format!("{} s of {planned}", seconds(end_ns)),
        more => format!("{planned}, then {} s of waiting for responses", seconds(more)),
    }
}

/// Seconds, whole if possible.
fn seconds(ns: u64) -> String {
    match ns % SECOND_NS {
        0 => count(ns / SECOND_NS),
        _ => format!("{:.1}", ns as f64 * 1e-9),
    }
}

/// Values of the last second.
struct LastInterval<'a> {
    at: String,
    scheduled: String,
    sent: String,
    completed: String,
    tally: &'a Tally,
}

impl LastInterval<'_> {
    /// One line, for logs.
    fn line(&self, reasons: &[String]) -> String {
        let LastInterval { at, scheduled, sent, completed, tally } = self;
        let mut line = format!(
            "{at}: {scheduled} scheduled, {sent} sent, {completed} completed, {} in flight (peak); \
             response {}; service {}; {} failed",
            count(tally.in_flight_peak),
            times(&tally.response),
            times(&tally.service),
            count(tally.failures()),
        );
        for reason in reasons {
            line.push_str("; INVALID: ");
            line.push_str(reason);
        }
        line + "\n"
    }

    /// Several lines, for a terminal.
    fn lines(&self, total: &Tally, reasons: &[String], terminal: &Terminal) -> Vec<String> {
        let LastInterval { at, scheduled, sent, completed, tally } = self;
        let mut lines = vec![
            format!("{at}   {scheduled} scheduled, {sent} sent, {completed} completed"),
            format!("  in flight  peak {}", count(tally.in_flight_peak)),
            format!("  response   {}", times(&tally.response)),
            format!("  service    {}", times(&tally.service)),
            format!(
                "  failed     {} in the last second, {} in total",
                count(tally.failures()),
                count(total.failures())
            ),
        ];
        match reasons {
            [] => lines.push("  validity   valid so far".to_owned()),
            reasons => lines.extend(reasons.iter().map(|reason| format!("  invalid    {reason}"))),
        }
        let painted = lines.iter().enumerate().map(|(number, line)| {
            // A wrapped line would be overwritten only in part.
            let line: String = line.chars().take(terminal.raw_width.saturating_sub(1)).collect();
            match number {
                0 => terminal.paint(TextStyle::Heading, &line),
                5.. if !reasons.is_empty() => terminal.paint(TextStyle::Max, &line),
                _ => line,
            }
        });
        painted.collect()
    }
}

/// Percentiles, always with the maximum.
fn times(of: &Histogram) -> String {
    let formatter: ValueFormatter = time_formatter();
    let value =
        |value: Option<hist::Bracket>| value.map(|value| formatter.estimate(value.estimate));
    let all = [value(of.quantile(0.5)), value(of.quantile(0.99)), value(of.max())];
    match all {
        [Some(p50), Some(p99), Some(max)] => format!("p50 {p50}, p99 {p99}, max {max}"),
        _ => "none".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use crate::{ArrivalProcess, Schedule};

    use super::*;

    fn terminal(colours: ColourDepth) -> Terminal {
        Terminal { width: 60, raw_width: 60, height: 24, ascii: false, colour_depth: colours }
    }

    fn live() -> LiveView {
        let mut arrivals =
            Schedule::constant(100.0, 2 * SECOND_NS, ArrivalProcess::Constant).arrivals();
        LiveView {
            to_stdout: false,
            lines: 0,
            printed: 0,
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
            scheduled: 100,
            completed: 90,
            in_flight_peak: 12,
            response: times.clone(),
            queue_time: times.clone(),
            service: times,
            ..Tally::default()
        }
    }

    #[test]
    fn log_line_has_all_values() {
        let (mut live, terminal) = (live(), terminal(ColourDepth::None));
        let line = live.text(SECOND_NS, &tally(), &terminal);
        assert!(line.starts_with("1 s of 2 s: 100/s scheduled, 90/s sent, 90/s completed, 12 in"));
        assert!(line.contains("max 90.00 ms; service p50"), "{line}");
        let line = live.text(2 * SECOND_NS + 500_000_000, &Tally::default(), &terminal);
        assert!(
            line.starts_with("2 s, then 0.5 s of waiting for responses: 67/s scheduled"),
            "{line}"
        );
        assert!(line.contains("response none"), "{line}");
    }

    #[test]
    fn redraw_overwrites_earlier_lines() {
        let (mut live, terminal) = (live(), terminal(ColourDepth::Ansi16));
        let first = live.text(SECOND_NS, &tally(), &terminal);
        assert_eq!(first.lines().count(), 7);
        assert!(!first.starts_with("\x1b[6A"));
        let second = live.text(2 * SECOND_NS, &Tally { not_sent: 3, ..tally() }, &terminal);
        // No line is wrapped, whatever its text and colour.
        let plain = second.replace("\x1b[K", "").replace("\x1b[6A", "").replace("\x1b[J", "");
        let plain = ["\x1b[1m", "\x1b[1;33m", "\x1b[0m"]
            .iter()
            .fold(plain, |text, one| text.replace(one, ""));
        assert!(
            plain.lines().all(|line| line.chars().count() < 60 && !line.contains('\x1b')),
            "{plain:?}"
        );
        assert!(second.starts_with("\x1b[6A"), "{second:?}");
        assert!(second.contains("stalled"), "{second}");
    }

    #[test]
    fn progress_does_not_exceed_the_planned_time() {
        assert_eq!(progress_text(19 * SECOND_NS, 20 * SECOND_NS), "19 s of 20 s");
        assert_eq!(progress_text(20 * SECOND_NS, 20 * SECOND_NS), "20 s of 20 s");
        let late = "20 s, then 1 s of waiting for responses";
        assert_eq!(progress_text(21 * SECOND_NS, 20 * SECOND_NS), late);
    }
}
