//! Counter calibration: rate, current error, next segment.
//!
//! The system's monotonic clock is read between two readings of the counter; the half of the time between them is how
//! well the moment is known. The rate is that of a long baseline, as long as the latest stretch agrees with it. The next
//! line begins where the present one ends and is tilted so that it meets the system's clock at its end: nothing ever
//! jumps, and time never goes back. Where a line is off by more than it said, or has ended before another was drawn,
//! readers ask the system until a new one begins: at the latest moment that the system can have had, so that it is behind
//! nothing that anybody has read.

use std::collections::VecDeque;

use crate::clock_segment::{ClockSegment, ErrorBound, slope};

/// Comparisons that the rate comes from. At one a second, half a minute: what is known to 20 ns is then known to 1 in 10^9.
const BASELINE: usize = 32;
/// How much a line may be tilted. The kernel's own limit for steering its clock (`MAXFREQ` in `include/linux/timex.h`).
const SLEW_MAX: f64 = 500e-6;
/// Nanoseconds of a tick: from 10 GHz to 500 MHz. No processor's counter is faster or slower.
const RATES: std::ops::RangeInclusive<f64> = 0.1..=2.0;
/// How far the rate of a steered clock may change between two comparisons: from one end of that limit to the other.
const RATE_CHANGE_MAX: f64 = 2.0 * SLEW_MAX;
/// What the rate of a counter may change by within seconds, by warmth: quartz moves by 1 in 10^8 a degree and more, but slowly.
const WANDER: f64 = 5e-9;
/// A comparison that took longer is none: somebody else ran meanwhile.
pub(crate) const HALF_WIDTH_MAX_NS: u64 = 1_000;
/// A line that is ahead of the system by more cannot be tilted back: the system is asked until it has caught up.
const AHEAD_MAX_NS: u64 = 100_000;

/// One comparison of the CPU counter with the system clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ClockComparison {
    pub(crate) tick: u64,
    pub(crate) ns: u64,
    /// How far the two may be apart.
    pub(crate) half_width_ns: u64,
}

impl ClockComparison {
    /// The best of some attempts. `read` gives the counter before, the system's clock, and the counter after.
    pub(crate) fn best(
        attempts: impl Iterator<Item = (u64, u64, u64)>,
        ns_per_tick: f64,
    ) -> Option<ClockComparison> {
        let (before, ns, after) = attempts
            .filter(|&(before, _, after)| after > before)
            .min_by_key(|&(before, _, after)| after - before)?;
        let half_width_ns = ((after - before) as f64 / 2.0 * ns_per_tick).ceil() as u64 + 1;
        let tick = before + (after - before) / 2;
        Some(ClockComparison { tick, ns, half_width_ns })
    }
}

/// Result of a comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ComparisonOutcome {
    /// Not enough is known to draw a line.
    Wait,
    /// A line to publish.
    Publish(ClockSegment),
    /// The same line as before, which is off by more than it said, to publish.
    WidenError(ClockSegment),
}

/// Calibration state: comparison history, current segment, discontinuity count.
#[derive(Debug, Default)]
pub(crate) struct CounterCalibration {
    history: VecDeque<ClockComparison>,
    /// The line that was published last.
    segment: ClockSegment,
    /// The line that is valid now, which is the one before until that begins.
    previous: ClockSegment,
    /// How far the line was off at the last comparison, in nanoseconds; positive is ahead of the system.
    pub(crate) residual_ns: Option<i64>,
    /// How often a line was off by more than it said.
    pub(crate) discontinuities: u64,
    /// The line that is valid was off by more than it said, and has said so.
    is_error_widened: bool,
}

impl CounterCalibration {
    /// Nanoseconds of a tick, if that is known, and how far it may be off as a share of it.
    pub(crate) fn rate(&self) -> Option<(f64, f64)> {
        let (oldest, newest) = (self.history.front()?, self.history.back()?);
        if oldest.tick == newest.tick {
            return None;
        }
        let before = self.history[self.history.len() - 2];
        let (long, short) =
            (CounterRate::between(oldest, newest), CounterRate::between(&before, newest));
        let apart = (long.ns_per_tick / short.ns_per_tick - 1.0).abs();
        match apart <= long.error + short.error + WANDER {
            // What they differ by may be chance, or the beginning of another rate.
            true => Some((long.ns_per_tick, (long.error + apart).min(short.error))),
            false => Some((short.ns_per_tick, short.error)),
        }
    }

    /// Takes a comparison. A line that comes of it is `length_ns` nanoseconds long. `is_disciplined` is whether the rate of the system's clock may
    /// change at any time.
    pub(crate) fn add_comparison(
        &mut self,
        comparison: ClockComparison,
        length_ns: u64,
        is_disciplined: bool,
    ) -> ComparisonOutcome {
        if self
            .history
            .back()
            .is_some_and(|last| last.tick >= comparison.tick || last.ns > comparison.ns)
        {
            // The counter went back, as after a suspend: nothing that is known holds.
            self.record_discontinuity();
        }
        self.residual_ns = None;
        if let Some((line, said_ns)) = self.valid_segment(comparison.tick) {
            let residual = said_ns as i64 - comparison.ns as i64;
            self.residual_ns = Some(residual);
            let off = residual.unsigned_abs();
            if off > line.error_ns(comparison.tick) + comparison.half_width_ns {
                if !self.is_error_widened {
                    self.record_discontinuity();
                }
                self.is_error_widened = true;
                self.history.push_back(comparison);
                // Nothing is known of its rate: it may stand, or be twice as fast.
                let base_ns = off + comparison.half_width_ns;
                let error = ErrorBound { at_tick: comparison.tick, base_ns, slope: line.slope };
                // It lapses at its end, and the next one begins anew.
                self.segment = ClockSegment { error, ..line };
                self.previous = self.segment;
                return ComparisonOutcome::WidenError(self.segment);
            }
        } else if self.is_discontinuity(&comparison, is_disciplined) {
            self.record_discontinuity();
        }
        self.history.push_back(comparison);
        while self.history.len() > BASELINE {
            self.history.pop_front();
        }
        let Some((rate, rate_error)) = self.rate() else { return ComparisonOutcome::Wait };
        if !RATES.contains(&rate) {
            // It jumped between the first two comparisons.
            self.record_discontinuity();
            return ComparisonOutcome::Wait;
        }
        self.prune_inconsistent(rate);
        let error = rate_error + WANDER + if is_disciplined { RATE_CHANGE_MAX } else { 0.0 };
        let ticks = (length_ns as f64 / rate) as u64;
        let next = if self.segment.ns_at(comparison.tick).is_some() {
            self.slew_segment(&comparison, rate, error, ticks)
        } else if self.previous.ns_at(comparison.tick).is_some() {
            // The next line is known already.
            None
        } else {
            self.fresh_segment(&comparison, rate, error, ticks)
        };
        let Some(next) = next else { return ComparisonOutcome::Wait };
        self.is_error_widened = false;
        self.previous = std::mem::replace(&mut self.segment, next);
        ComparisonOutcome::Publish(next)
    }

    /// Whether counter and system are elsewhere than the rate says. For when no line is valid that could tell.
    fn is_discontinuity(&self, comparison: &ClockComparison, is_disciplined: bool) -> bool {
        let (Some((rate, error)), Some(last)) = (self.rate(), self.history.back()) else {
            return false;
        };
        let ns = (comparison.tick.saturating_sub(last.tick)) as f64 * rate;
        let off = (comparison.ns.saturating_sub(last.ns) as f64 - ns).abs();
        let widths = (comparison.half_width_ns + last.half_width_ns) as f64;
        off > widths + ns * (error + WANDER + if is_disciplined { RATE_CHANGE_MAX } else { 0.0 })
    }

    fn record_discontinuity(&mut self) {
        self.discontinuities += 1;
        self.history.clear();
    }

    /// Forgets everything but what the last line says at its end: nothing later may be less. None, if there is no line, or
    /// while somebody may still read it.
    pub(crate) fn reset(&mut self, tick: impl FnOnce() -> u64) -> Option<u64> {
        // Where there is no line there may be no counter.
        if self.segment.ticks == 0 || self.valid_segment(tick()).is_some() {
            return None;
        }
        let floor_ns = self.segment.end_ns();
        let line = ClockSegment { base_ns: floor_ns, ..ClockSegment::default() };
        *self = CounterCalibration {
            segment: line,
            previous: line,
            discontinuities: self.discontinuities,
            ..CounterCalibration::default()
        };
        Some(floor_ns)
    }

    /// What does not agree with the latest rate is of another time.
    fn prune_inconsistent(&mut self, rate: f64) {
        let Some(newest) = self.history.back().copied() else { return };
        let agrees = |one: &ClockComparison| {
            let ticks = (newest.tick - one.tick) as f64;
            let off = ((newest.ns - one.ns) as f64 - ticks * rate).abs();
            off <= (newest.half_width_ns + one.half_width_ns) as f64 + ticks * rate * WANDER
        };
        while self.history.len() > 2 && !agrees(&self.history[0]) {
            self.history.pop_front();
        }
    }

    /// Whether a line is valid at a tick.
    pub(crate) fn is_published(&self, tick: u64) -> bool {
        self.valid_segment(tick).is_some()
    }

    /// The line that was drawn last was not made known in time: it is as if it had not been drawn.
    pub(crate) fn rollback(&mut self) {
        self.segment = self.previous;
    }

    fn valid_segment(&self, tick: u64) -> Option<(ClockSegment, u64)> {
        [self.segment, self.previous].into_iter().find_map(|line| Some((line, line.ns_at(tick)?)))
    }

    /// The line that begins where the present one ends, unless that is too far off to be tilted back.
    fn slew_segment(
        &self,
        comparison: &ClockComparison,
        rate: f64,
        error: f64,
        ticks: u64,
    ) -> Option<ClockSegment> {
        let (from, base_ns) = (self.segment.valid_until(), self.segment.end_ns());
        let truly = |tick: u64| comparison.ns as f64 + (tick - comparison.tick) as f64 * rate;
        let off = base_ns as f64 - truly(from);
        let tilt = -off / (ticks as f64 * rate);
        (tilt.abs() <= SLEW_MAX).then(|| ClockSegment {
            first_tick: from,
            ticks,
            base_ns,
            slope: slope(rate * (1.0 + tilt)),
            error: ErrorBound {
                at_tick: comparison.tick,
                base_ns: off.abs().ceil() as u64 + comparison.half_width_ns + ROUNDING_NS,
                slope: slope(rate * error) + 1,
            },
        })
    }

    /// A line that begins now, since none is valid. Nothing that the system or the line before has said may be after it.
    fn fresh_segment(
        &self,
        comparison: &ClockComparison,
        rate: f64,
        error: f64,
        ticks: u64,
    ) -> Option<ClockSegment> {
        let latest_ns = comparison.ns + comparison.half_width_ns;
        let base_ns = latest_ns.max(self.segment.end_ns());
        let ahead_ns = base_ns - comparison.ns;
        if base_ns - latest_ns > AHEAD_MAX_NS {
            return None;
        }
        Some(ClockSegment {
            first_tick: comparison.tick,
            ticks,
            base_ns,
            // Rather too fast than behind what the system said to somebody while this is made known.
            slope: slope(rate * (1.0 + error)) + 1,
            error: ErrorBound {
                at_tick: comparison.tick,
                base_ns: ahead_ns + comparison.half_width_ns + ROUNDING_NS,
                slope: slope(rate * 2.0 * error) + 2,
            },
        })
    }
}

/// Of the line, of the comparison, and of the system's clock, half a nanosecond each.
const ROUNDING_NS: u64 = 2;

/// Counter rate between two comparisons, with its error bound.
struct CounterRate {
    ns_per_tick: f64,
    error: f64,
}

impl CounterRate {
    fn between(a: &ClockComparison, b: &ClockComparison) -> CounterRate {
        let (ticks, ns) = ((b.tick - a.tick) as f64, (b.ns - a.ns) as f64);
        CounterRate {
            ns_per_tick: ns / ticks,
            error: (a.half_width_ns + b.half_width_ns) as f64 / ns.max(1.0),
        }
    }
}
