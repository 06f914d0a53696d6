//! Calibrator: publishes segments and decides whether the counter is used. `tick` runs one
//! iteration, so that tests control its timing.

use std::time::Duration;

use hist::{Histogram, Scheme};

use crate::calibration::{ComparisonOutcome, CounterCalibration, HALF_WIDTH_MAX_NS};
use crate::clock_segment::{ClockSegment, ErrorBound, SegmentSeqlock, slope};
use crate::machine::MachineClocks;
use crate::status::{ClockMode, ClockStatus};
use crate::wall::WallOffset;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

/// Lengths of the first segments: comparisons are more frequent until the rate is known to a few
/// nanoseconds per second.
const FIRST_SEGMENTS_NS: [u64; 2] = [20 * MS, 200 * MS];
/// Length of later segments. The next one is computed in the middle, so the thread may be half of
/// it late.
const SEGMENT_NS: u64 = SECOND;
/// Length of segments while NTP disciplines the system clock, whose rate may change at any time.
const DISCIPLINED_SEGMENT_NS: u64 = 250 * MS;
/// Without a comparison for this long, the calibration is discarded.
const COMPARISON_TIMEOUT_NS: u64 = 15 * SECOND;
/// A counter that jumps this often within `JUMP_WINDOW_NS` is not used for
/// `BACKOFF_NS`.
const JUMPS_MAX: usize = 3;
const JUMP_WINDOW_NS: u64 = 60 * SECOND;
const BACKOFF_NS: u64 = 3_600 * SECOND;
/// Interval of the check whether the kernel still trusts the counter.
const TRUST_CHECK_NS: u64 = 10 * SECOND;
/// Maximum cost ratio of the cheaper clock to the other: a smaller difference is noise.
const COST_RATIO_MAX: f64 = 0.98;
/// Nanoseconds per tick before the rate is known: a counter of 500 MHz, below every real one.
const FIRST_RATE: f64 = 2.0;

pub(crate) struct Calibrator {
    calibration: CounterCalibration,
    status: ClockStatus,
    /// Segments published since the last restart of the calibration.
    segments_published: usize,
    /// System time of the last successful comparison.
    last_comparison_ns: u64,
    /// System times of the counter's jumps.
    jumps: Vec<u64>,
    /// System time until which the counter is not used.
    backoff_until_ns: u64,
    /// System time of the last assessment of the counter.
    last_assessment_ns: Option<u64>,
    /// System time of the last check of the kernel's clocksource.
    last_trust_check_ns: u64,
}

impl Calibrator {
    pub(crate) fn new() -> Calibrator {
        Calibrator {
            calibration: CounterCalibration::default(),
            status: ClockStatus {
                mode: ClockMode::Starting,
                reason: None,
                ticks_per_second: 0.0,
                rate_error: 0.0,
                comparisons: 0,
                rejected_comparisons: 0,
                discontinuities: 0,
                steps: 0,
                residuals: Histogram::new(Scheme::default()),
                is_disciplined: false,
            },
            segments_published: 0,
            last_comparison_ns: 0,
            jumps: Vec::new(),
            backoff_until_ns: 0,
            last_assessment_ns: None,
            last_trust_check_ns: 0,
        }
    }

    pub(crate) fn status(&self) -> &ClockStatus {
        &self.status
    }

    /// Nanoseconds per tick times 2^40; 0 if the counter is not used.
    pub(crate) fn rate(&self) -> u64 {
        match (self.status.mode, self.calibration.rate()) {
            (ClockMode::Counter, Some((rate, _))) => slope(rate),
            _ => 0,
        }
    }

    /// Checks the wall clock for a step.
    pub(crate) fn check_wall_clock(
        &mut self,
        machine: &mut impl MachineClocks,
        offset: &WallOffset,
    ) {
        self.status.steps += u64::from(offset.update(machine.offset_ns()));
    }

    /// Compares, publishes a segment if one is due, and returns the time until the next call.
    pub(crate) fn tick(
        &mut self,
        machine: &mut impl MachineClocks,
        lines: &SegmentSeqlock,
    ) -> Duration {
        let now_ns = machine.system_ns();
        if self.last_assessment_ns.is_none_or(|last| now_ns.saturating_sub(last) >= BACKOFF_NS) {
            self.assess_counter(machine, now_ns);
        } else if now_ns.saturating_sub(self.last_trust_check_ns) >= TRUST_CHECK_NS
            && self.backoff_until_ns <= now_ns
        {
            // The kernel compares the counters of all CPUs and may stop trusting one.
            self.check_trust(machine, now_ns);
        }
        if self.backoff_until_ns > now_ns {
            // No comparison was attempted, so this is not a failure.
            self.last_comparison_ns = now_ns;
            self.fall_back_to_system(machine, lines);
            return Duration::from_nanos(SEGMENT_NS);
        }
        let rate = self.calibration.rate().map_or(FIRST_RATE, |(rate, _)| rate);
        let comparison = machine.compare(rate);
        let Some(comparison) = comparison.filter(|one| one.half_width_ns <= HALF_WIDTH_MAX_NS)
        else {
            self.status.rejected_comparisons += 1;
            if now_ns.saturating_sub(self.last_comparison_ns) > COMPARISON_TIMEOUT_NS {
                let seconds = COMPARISON_TIMEOUT_NS / SECOND;
                self.disable_counter(
                    now_ns,
                    format!("no successful clock comparison for {seconds} s"),
                );
            }
            // The thread was preempted; retry soon.
            return Duration::from_nanos(FIRST_SEGMENTS_NS[0] / 2);
        };
        self.last_comparison_ns = now_ns;
        self.status.comparisons += 1;
        self.status.is_disciplined = machine.is_disciplined();
        if !self.calibration.has_valid_segment(comparison.tick) {
            // Short segments first, also after a pause, so that an error is slewed soon.
            self.segments_published = 0;
        }
        let usual = if self.status.is_disciplined { DISCIPLINED_SEGMENT_NS } else { SEGMENT_NS };
        let length_ns =
            FIRST_SEGMENTS_NS.get(self.segments_published).copied().unwrap_or(usual).min(usual);
        let jumps_before = self.calibration.discontinuities;
        let outcome =
            self.calibration.add_comparison(comparison, length_ns, self.status.is_disciplined);
        if let Some(residual) = self.calibration.residual_ns {
            self.status.residuals.record(residual.unsigned_abs() as f64);
        }
        if self.calibration.discontinuities > jumps_before {
            self.status.discontinuities = self.calibration.discontinuities;
            self.segments_published = 0;
            self.record_jump(now_ns);
        }
        let wait_ns = self.publish_outcome(machine, lines, comparison.tick, outcome);
        if let Some((rate, error)) = self.calibration.rate() {
            (self.status.ticks_per_second, self.status.rate_error) = (1e9 / rate, error);
        }
        Duration::from_nanos(wait_ns)
    }

    /// Publishes what a comparison at `tick` led to. After how many nanoseconds to compare again.
    fn publish_outcome(
        &mut self,
        machine: &mut impl MachineClocks,
        lines: &SegmentSeqlock,
        tick: u64,
        outcome: ComparisonOutcome,
    ) -> u64 {
        match outcome {
            ComparisonOutcome::NoSegment => FIRST_SEGMENTS_NS[0] / 2,
            ComparisonOutcome::WidenError(line) => {
                lines.publish(&line);
                FIRST_SEGMENTS_NS[0] / 2
            }
            ComparisonOutcome::Publish(line) if is_late(machine.tick(), tick, &line) => {
                // After the planned start, readers may have used the system clock, which may be
                // ahead of the segment.
                self.calibration.rollback();
                FIRST_SEGMENTS_NS[0] / 2
            }
            ComparisonOutcome::Publish(line) => {
                lines.publish(&line);
                self.segments_published += 1;
                (self.status.mode, self.status.reason) = (ClockMode::Counter, None);
                // Wake in the middle of the segment, wherever it begins.
                let ticks = line.first_tick.saturating_sub(tick) + line.ticks / 2;
                (ticks as f64 * segment_rate(&line)) as u64
            }
        }
    }

    /// Whether the counter is usable and cheaper than the system clock.
    fn assess_counter(&mut self, machine: &mut impl MachineClocks, now_ns: u64) {
        if self.last_assessment_ns.is_none() {
            self.last_comparison_ns = now_ns;
        }
        self.last_assessment_ns = Some(now_ns);
        if self.check_trust(machine, now_ns) {
            return;
        }
        let (counter, system) = machine.costs_ns();
        if counter > system * COST_RATIO_MAX {
            let reason = format!(
                "reading the counter takes {counter:.1} ns, the system clock {system:.1} ns"
            );
            self.disable_counter(now_ns + BACKOFF_NS, reason);
        }
    }

    /// Whether the kernel stopped trusting the counter.
    fn check_trust(&mut self, machine: &mut impl MachineClocks, now_ns: u64) -> bool {
        self.last_trust_check_ns = now_ns;
        let refusal = machine.unusable_reason();
        let is_refused = refusal.is_some();
        if let Some(reason) = refusal {
            self.disable_counter(now_ns + BACKOFF_NS, reason);
        }
        is_refused
    }

    fn record_jump(&mut self, now_ns: u64) {
        self.jumps.retain(|&at| now_ns.saturating_sub(at) < JUMP_WINDOW_NS);
        self.jumps.push(now_ns);
        if self.jumps.len() >= JUMPS_MAX {
            let reason = format!(
                "counter and system clock diverged {JUMPS_MAX} times within {} s",
                JUMP_WINDOW_NS / SECOND
            );
            self.disable_counter(now_ns + BACKOFF_NS, reason);
            self.jumps.clear();
        }
    }

    fn disable_counter(&mut self, until_ns: u64, reason: String) {
        self.backoff_until_ns = until_ns;
        (self.status.mode, self.status.reason) = (ClockMode::System, Some(reason));
    }

    /// Switches to the system clock; the counter is no longer read.
    fn fall_back_to_system(&mut self, machine: &impl MachineClocks, lines: &SegmentSeqlock) {
        let Some(floor_ns) = self.calibration.reset(|| machine.tick()) else { return };
        lines.publish(&ClockSegment {
            base_ns: floor_ns,
            error: ErrorBound::default(),
            ..ClockSegment::default()
        });
        self.segments_published = 0;
    }
}

/// Whether a follow-up segment would be published less than an eighth of its length before it
/// begins.
fn is_late(now: u64, compared: u64, line: &ClockSegment) -> bool {
    line.first_tick > compared && now + (line.first_tick - compared) / 8 >= line.first_tick
}

fn segment_rate(line: &ClockSegment) -> f64 {
    line.slope as f64 / slope(1.0) as f64
}

#[cfg(test)]
mod tests;
