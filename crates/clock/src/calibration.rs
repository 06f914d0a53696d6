//! Counter calibration: rate, current error, next segment.
//!
//! A comparison reads the system's monotonic clock between two readings of the counter. Half the
//! time between these is the error of the comparison. The rate comes from a long baseline while the
//! latest interval agrees with it. The next segment begins where the current one ends, with a slope
//! that meets the system clock at its end, so time never jumps and never goes back. After a
//! discontinuity, or after the end of the last segment, readers use the system clock until a new
//! segment begins. The new segment starts at the highest value that the system clock may have
//! returned, so it is never behind a value that was read.

use std::collections::VecDeque;

use crate::clock_segment::{ClockSegment, ErrorBound, slope};

/// Comparisons in the baseline of the rate. At one per second, a baseline is 32 s long; an error of
/// 20 ns is then a rate error of 1e-9.
const BASELINE: usize = 32;
/// Maximum slew of a segment: the kernel's limit for slewing its clock (`MAXFREQ` in
/// `include/linux/timex.h`).
const SLEW_MAX: f64 = 500e-6;
/// Nanoseconds per tick: 10 GHz to 500 MHz. No CPU counter is outside this range.
const NS_PER_TICK: std::ops::RangeInclusive<f64> = 0.1..=2.0;
/// Maximum change of a slewed clock's rate between two comparisons: from one slew limit to the
/// other.
const RATE_CHANGE_MAX: f64 = 2.0 * SLEW_MAX;
/// Change of a counter's rate within seconds, by temperature: quartz drifts by 1e-8 per degree and
/// more, but slowly.
const WANDER: f64 = 5e-9;
/// A comparison that took longer is rejected: the thread was preempted.
pub(crate) const HALF_WIDTH_MAX_NS: u64 = 1_000;
/// A segment that is further ahead of the system clock is not slewed back: readers use the system
/// clock until it has caught up.
const AHEAD_MAX_NS: u64 = 100_000;

/// One comparison of the CPU counter with the system clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ClockComparison {
    pub(crate) tick: u64,
    pub(crate) ns: u64,
    /// Error bound of the comparison.
    pub(crate) half_width_ns: u64,
}

impl ClockComparison {
    /// The best of several attempts. `read` returns the counter, the system clock, and the counter
    /// again.
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
    /// Too few comparisons, a jump of the counter, or a next segment that exists already.
    NoSegment,
    /// A new segment to publish.
    Publish(ClockSegment),
    /// The current segment with a larger error bound, because its error exceeded the bound.
    WidenError(ClockSegment),
}

/// Calibration state: comparison history, current segment, discontinuity count.
#[derive(Debug, Default)]
pub(crate) struct CounterCalibration {
    history: VecDeque<ClockComparison>,
    /// The segment published last.
    segment: ClockSegment,
    /// The segment before it, which is valid until `segment` begins.
    previous: ClockSegment,
    /// Error of the segment at the last comparison, in nanoseconds; positive if it is ahead of the
    /// system clock.
    pub(crate) residual_ns: Option<i64>,
    /// Comparisons at which a segment's error exceeded its bound.
    pub(crate) discontinuities: u64,
    /// Whether the current segment's error exceeded its bound and a wider bound was published.
    is_error_widened: bool,
}

impl CounterCalibration {
    /// Nanoseconds per tick, if known, and the relative error of that rate.
    pub(crate) fn rate(&self) -> Option<(f64, f64)> {
        let (oldest, newest) = (self.history.front()?, self.history.back()?);
        if oldest.tick == newest.tick {
            return None;
        }
        let before = self.history[self.history.len() - 2];
        let (long, short) =
            (CounterRate::between(oldest, newest), CounterRate::between(&before, newest));
        let difference = (long.ns_per_tick / short.ns_per_tick - 1.0).abs();
        match difference <= long.error + short.error + WANDER {
            // The difference may be noise, or the first sign of a new rate.
            true => Some((long.ns_per_tick, (long.error + difference).min(short.error))),
            false => Some((short.ns_per_tick, short.error)),
        }
    }

    /// Adds a comparison. The segment that results is `length_ns` nanoseconds long.
    /// `is_disciplined`: whether the rate of the system clock may change at any time.
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
            // The counter went back, as after a suspend: earlier comparisons are invalid.
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
                // The rate is unknown: the counter may have stopped or doubled its rate.
                let base_ns = off + comparison.half_width_ns;
                let error = ErrorBound { at_tick: comparison.tick, base_ns, slope: line.slope };
                // The segment expires at its end, and the next one starts without a predecessor.
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
        let Some((rate, rate_error)) = self.rate() else { return ComparisonOutcome::NoSegment };
        if !NS_PER_TICK.contains(&rate) {
            // The counter jumped between the first two comparisons.
            self.record_discontinuity();
            return ComparisonOutcome::NoSegment;
        }
        self.prune_inconsistent(rate);
        let error = rate_error + WANDER + if is_disciplined { RATE_CHANGE_MAX } else { 0.0 };
        let ticks = (length_ns as f64 / rate) as u64;
        let next = if self.segment.ns_at(comparison.tick).is_some() {
            self.slew_segment(&comparison, rate, error, ticks)
        } else if self.previous.ns_at(comparison.tick).is_some() {
            // The next segment is published already.
            None
        } else {
            self.fresh_segment(&comparison, rate, error, ticks)
        };
        let Some(next) = next else { return ComparisonOutcome::NoSegment };
        self.is_error_widened = false;
        self.previous = std::mem::replace(&mut self.segment, next);
        ComparisonOutcome::Publish(next)
    }

    /// Whether counter and system clock differ from what the rate predicts. Used while no segment
    /// is valid.
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

    /// Forgets all but the last segment's end value, which no later reading may be below. Returns
    /// `None` if there is no segment, or while a reader may still use one.
    pub(crate) fn reset(&mut self, tick: impl FnOnce() -> u64) -> Option<u64> {
        // Without a segment there may be no counter.
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

    /// Comparisons that disagree with the latest rate are obsolete.
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

    /// Whether a segment is valid at a tick.
    pub(crate) fn has_valid_segment(&self, tick: u64) -> bool {
        self.valid_segment(tick).is_some()
    }

    /// Discards the newest segment, which was not published in time.
    pub(crate) fn rollback(&mut self) {
        self.segment = self.previous;
    }

    fn valid_segment(&self, tick: u64) -> Option<(ClockSegment, u64)> {
        [self.segment, self.previous].into_iter().find_map(|line| Some((line, line.ns_at(tick)?)))
    }

    /// The segment that begins where the current one ends, unless its error is too large to slew.
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

    /// A segment that begins now, when none is valid. It starts at or above every value that the
    /// system clock or the previous segment returned.
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
            // Rounded up, so that the segment is not behind a system reading that somebody takes
            // while it is published.
            slope: slope(rate * (1.0 + error)) + 1,
            error: ErrorBound {
                at_tick: comparison.tick,
                base_ns: ahead_ns + comparison.half_width_ns + ROUNDING_NS,
                slope: slope(rate * 2.0 * error) + 2,
            },
        })
    }
}

/// Rounding of segment, comparison and system clock, half a nanosecond each.
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
