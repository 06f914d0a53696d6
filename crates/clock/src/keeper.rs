//! Draws line after line, and decides whether the counter is to be used at all. One turn at a time, so that tests can turn it.

use std::time::Duration;

use hist::{Histogram, Scheme};

use crate::calibration::{Calibration, HALF_WIDTH_MAX_NS, Outcome};
use crate::line::{Error, Line, Lines, slope};
use crate::machine::Machine;
use crate::status::{Mode, Status};
use crate::wall::Offset;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

/// Lengths of the first lines: until the rate is known to within some nanoseconds a second, it is looked at more often.
const FIRST_NS: [u64; 2] = [20 * MS, 200 * MS];
/// And of all others. In the middle of one the next is drawn, so the keeper may be half of it late.
const LENGTH_NS: u64 = SECOND;
/// Where somebody steers the system's clock, it may be steered differently from any moment on.
const DISCIPLINED_NS: u64 = 250 * MS;
/// Without a comparison for so long, nothing is known of the counter any more.
const FAILING_NS: u64 = 15 * SECOND;
/// A counter that jumps so often within `STEADY_NS` is not used for `SHUN_NS`.
const JUMPS_MAX: usize = 3;
const STEADY_NS: u64 = 60 * SECOND;
const SHUN_NS: u64 = 3_600 * SECOND;
/// How often the kernel is asked whether it still trusts the counter.
const LOOK_NS: u64 = 10 * SECOND;
/// What the cheaper reading must gain to be the better one: less is noise.
const GAIN: f64 = 0.98;
/// Before a rate is known: of a counter of 500 MHz, which is slower than any that there is.
const FIRST_RATE: f64 = 2.0;

pub(crate) struct Keeper {
    calibration: Calibration,
    status: Status,
    /// Lines drawn since the last beginning.
    drawn: usize,
    /// When the last comparison succeeded, by the system's clock.
    compared_ns: u64,
    /// When the counter jumped, by the system's clock.
    jumps: Vec<u64>,
    /// Until when the counter is not used.
    shunned_until_ns: u64,
    /// When the machine was asked last whether its counter is good.
    judged_ns: Option<u64>,
    /// And whether it is still allowed.
    looked_ns: u64,
}

impl Keeper {
    pub(crate) fn new() -> Keeper {
        Keeper {
            calibration: Calibration::default(),
            status: Status {
                mode: Mode::Starting,
                reason: None,
                ticks_per_second: 0.0,
                rate_error: 0.0,
                comparisons: 0,
                rejected: 0,
                disruptions: 0,
                steps: 0,
                residuals: Histogram::new(Scheme::default()),
                is_disciplined: false,
            },
            drawn: 0,
            compared_ns: 0,
            jumps: Vec::new(),
            shunned_until_ns: 0,
            judged_ns: None,
            looked_ns: 0,
        }
    }

    pub(crate) fn status(&self) -> &Status {
        &self.status
    }

    /// Nanoseconds of a tick times 2^40; 0 if the counter is not used.
    pub(crate) fn rate(&self) -> u64 {
        match (self.status.mode, self.calibration.rate()) {
            (Mode::Counter, Some((rate, _))) => slope(rate),
            _ => 0,
        }
    }

    /// Looks at the time of day.
    pub(crate) fn look_at_wall(&mut self, machine: &mut impl Machine, offset: &Offset) {
        self.status.steps += u64::from(offset.measured(machine.offset_ns()));
    }

    /// Compares, draws, and says when to come again.
    pub(crate) fn turn(&mut self, machine: &mut impl Machine, lines: &Lines) -> Duration {
        let now_ns = machine.system_ns();
        if self.judged_ns.is_none_or(|last| now_ns.saturating_sub(last) >= SHUN_NS) {
            self.judge(machine, now_ns);
        } else if now_ns.saturating_sub(self.looked_ns) >= LOOK_NS
            && self.shunned_until_ns <= now_ns
        {
            // The kernel watches the counters of all processors, and may find one that it no longer trusts.
            self.look(machine, now_ns);
        }
        if self.shunned_until_ns > now_ns {
            // Nobody has tried: that is no failure.
            self.compared_ns = now_ns;
            self.close(machine, lines);
            return Duration::from_nanos(LENGTH_NS);
        }
        let rate = self.calibration.rate().map_or(FIRST_RATE, |(rate, _)| rate);
        let comparison = machine.compare(rate);
        let Some(comparison) = comparison.filter(|one| one.half_width_ns <= HALF_WIDTH_MAX_NS)
        else {
            self.status.rejected += 1;
            if now_ns.saturating_sub(self.compared_ns) > FAILING_NS {
                let seconds = FAILING_NS / SECOND;
                self.give_up(
                    now_ns,
                    format!("counter and system could not be compared for {seconds} s"),
                );
            }
            // Somebody else ran. The next attempt may be luckier.
            return Duration::from_nanos(FIRST_NS[0] / 2);
        };
        self.compared_ns = now_ns;
        self.status.comparisons += 1;
        self.status.is_disciplined = machine.is_disciplined();
        if !self.calibration.is_drawn(comparison.tick) {
            // Short ones first, also after a pause: what is off is tilted back soon.
            self.drawn = 0;
        }
        let usual = if self.status.is_disciplined { DISCIPLINED_NS } else { LENGTH_NS };
        let length_ns = FIRST_NS.get(self.drawn).copied().unwrap_or(usual).min(usual);
        let jumps_before = self.calibration.disruptions;
        let outcome = self.calibration.take(comparison, length_ns, self.status.is_disciplined);
        if let Some(residual) = self.calibration.residual_ns {
            self.status.residuals.record(residual.unsigned_abs() as f64);
        }
        if self.calibration.disruptions > jumps_before {
            self.status.disruptions = self.calibration.disruptions;
            self.drawn = 0;
            self.jumped(now_ns);
        }
        let wait_ns = match outcome {
            Outcome::Wait => FIRST_NS[0] / 2,
            Outcome::Doubt(line) => {
                lines.publish(&line);
                FIRST_NS[0] / 2
            }
            Outcome::Next(line) if is_late(machine.tick(), comparison.tick, &line) => {
                // Where it was to begin others may have asked the system, which may be ahead of it.
                self.calibration.withdraw();
                FIRST_NS[0] / 2
            }
            Outcome::Next(line) => {
                lines.publish(&line);
                self.drawn += 1;
                (self.status.mode, self.status.reason) = (Mode::Counter, None);
                // In the middle of the line, wherever it begins.
                let ticks = line.from.saturating_sub(comparison.tick) + line.length / 2;
                (ticks as f64 * rate_of(&line)) as u64
            }
        };
        if let Some((rate, error)) = self.calibration.rate() {
            (self.status.ticks_per_second, self.status.rate_error) = (1e9 / rate, error);
        }
        Duration::from_nanos(wait_ns)
    }

    /// Whether the counter can be used, and is the cheaper one.
    fn judge(&mut self, machine: &mut impl Machine, now_ns: u64) {
        if self.judged_ns.is_none() {
            self.compared_ns = now_ns;
        }
        self.judged_ns = Some(now_ns);
        if self.look(machine, now_ns) {
            return;
        }
        let (counter, system) = machine.costs_ns();
        if counter > system * GAIN {
            let reason = format!(
                "the counter takes {counter:.1} ns to read, the system's clock {system:.1} ns"
            );
            self.give_up(now_ns + SHUN_NS, reason);
        }
    }

    /// Whether the counter is refused.
    fn look(&mut self, machine: &mut impl Machine, now_ns: u64) -> bool {
        self.looked_ns = now_ns;
        let refusal = machine.refusal();
        let is_refused = refusal.is_some();
        if let Some(reason) = refusal {
            self.give_up(now_ns + SHUN_NS, reason);
        }
        is_refused
    }

    fn jumped(&mut self, now_ns: u64) {
        self.jumps.retain(|&at| now_ns.saturating_sub(at) < STEADY_NS);
        self.jumps.push(now_ns);
        if self.jumps.len() >= JUMPS_MAX {
            let reason = format!(
                "counter and system moved apart {JUMPS_MAX} times within {} s",
                STEADY_NS / SECOND
            );
            self.give_up(now_ns + SHUN_NS, reason);
            self.jumps.clear();
        }
    }

    fn give_up(&mut self, until_ns: u64, reason: String) {
        self.shunned_until_ns = until_ns;
        (self.status.mode, self.status.reason) = (Mode::System, Some(reason));
    }

    /// From here on the system is asked, and the counter is not read.
    fn close(&mut self, machine: &impl Machine, lines: &Lines) {
        let Some(floor_ns) = self.calibration.close(|| machine.tick()) else { return };
        lines.publish(&Line { base_ns: floor_ns, error: Error::default(), ..Line::default() });
        self.drawn = 0;
    }
}

/// Whether a line that goes on from another one would hardly be known before it begins: an eighth of the time is left.
fn is_late(now: u64, compared: u64, line: &Line) -> bool {
    line.from > compared && now + (line.from - compared) / 8 >= line.from
}

fn rate_of(line: &Line) -> f64 {
    line.slope as f64 / slope(1.0) as f64
}

#[cfg(test)]
mod tests;
