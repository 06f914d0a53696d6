//! Clock segment: linear mapping from ticks to nanoseconds with an error bound.
//!
//! A segment is valid for a range of ticks that is known before its first tick. The next segment
//! begins where it ends, with the value of its end. The meaning of a tick therefore does not depend
//! on when a thread learns of a segment, and threads never disagree. If no segment is valid,
//! readers use the system clock.
//!
//! Two segments are stored, and a version tells the newer one. Only the older one is overwritten,
//! so a reader that finds the version unchanged has read consistent data, and never waits for the
//! writer.

use crate::sync::{AtomicU64, Ordering, fence};

/// A `const fn`, except under loom, whose atomics are created at run time.
macro_rules! constant {
    (fn $name:ident() -> $of:ty $body:block) => {
        #[cfg(not(loom))]
        pub(crate) const fn $name() -> $of $body
        #[cfg(loom)]
        pub(crate) fn $name() -> $of $body
    };
}

/// Fraction bits of the length of a tick in nanoseconds.
///
/// 40 bits: over 8 s of a 5 GHz counter, longer than any segment, the rounding error is 0.04 ns.
const FRACTION_BITS: u32 = 40;

/// Linear mapping from counter ticks to nanoseconds, valid for a range of ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClockSegment {
    /// The first tick.
    pub(crate) first_tick: u64,
    /// Number of ticks; 0 means never valid.
    pub(crate) ticks: u64,
    /// Nanoseconds at the first tick.
    pub(crate) base_ns: u64,
    /// Nanoseconds per tick, times 2^40.
    pub(crate) slope: u64,
    /// Error bound as a function of the tick.
    pub(crate) error: ErrorBound,
}

/// Error bound of a segment: a constant at one tick plus a slope per tick.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ErrorBound {
    /// Tick of the comparison with the system clock.
    pub(crate) at_tick: u64,
    /// Maximum error at that tick.
    pub(crate) base_ns: u64,
    /// Additional error per tick, times 2^40.
    pub(crate) slope: u64,
}

/// Slope of this many nanoseconds per tick.
pub(crate) fn slope(ns_per_tick: f64) -> u64 {
    (ns_per_tick * (1u64 << FRACTION_BITS) as f64).round() as u64
}

/// Nanoseconds of `ticks` ticks.
#[inline(always)]
pub(crate) fn ticks_to_ns(ticks: u64, slope: u64) -> u64 {
    ((u128::from(ticks) * u128::from(slope)) >> FRACTION_BITS) as u64
}

impl ClockSegment {
    /// Nanoseconds at a tick, if the segment is valid there.
    #[inline(always)]
    pub(crate) fn ns_at(&self, tick: u64) -> Option<u64> {
        // A tick before the first one wraps to a very large number.
        let ticks = tick.wrapping_sub(self.first_tick);
        (ticks < self.ticks).then(|| self.base_ns + ticks_to_ns(ticks, self.slope))
    }

    /// First tick after the segment.
    pub(crate) fn valid_until(&self) -> u64 {
        self.first_tick + self.ticks
    }

    /// Value at the end: no later reading may be lower.
    pub(crate) fn end_ns(&self) -> u64 {
        self.base_ns + ticks_to_ns(self.ticks, self.slope)
    }

    /// Error bound at a tick.
    pub(crate) fn error_ns(&self, tick: u64) -> u64 {
        self.error.base_ns + ticks_to_ns(tick.saturating_sub(self.error.at_tick), self.error.slope)
    }
}

/// Segment in atomics, read under the seqlock version.
#[repr(align(64))]
struct SegmentSlot {
    from: AtomicU64,
    length: AtomicU64,
    base_ns: AtomicU64,
    slope: AtomicU64,
    error_at: AtomicU64,
    error_base_ns: AtomicU64,
    error_slope: AtomicU64,
}

impl SegmentSlot {
    constant! {
        fn new() -> SegmentSlot {
            SegmentSlot {
                from: AtomicU64::new(0),
                length: AtomicU64::new(0),
                base_ns: AtomicU64::new(0),
                slope: AtomicU64::new(0),
                error_at: AtomicU64::new(0),
                error_base_ns: AtomicU64::new(0),
                error_slope: AtomicU64::new(0),
            }
        }
    }

    /// Consistent if no write is in progress, which the version tells.
    #[inline(always)]
    fn read(&self) -> ClockSegment {
        let of = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let error = ErrorBound {
            at_tick: of(&self.error_at),
            base_ns: of(&self.error_base_ns),
            slope: of(&self.error_slope),
        };
        let (from, length) = (of(&self.from), of(&self.length));
        ClockSegment {
            first_tick: from,
            ticks: length,
            base_ns: of(&self.base_ns),
            slope: of(&self.slope),
            error,
        }
    }

    fn write(&self, line: &ClockSegment) {
        let to = |word: &AtomicU64, value| word.store(value, Ordering::Relaxed);
        to(&self.from, line.first_tick);
        to(&self.length, line.ticks);
        to(&self.base_ns, line.base_ns);
        to(&self.slope, line.slope);
        to(&self.error_at, line.error.at_tick);
        to(&self.error_base_ns, line.error.base_ns);
        to(&self.error_slope, line.error.slope);
    }
}

/// Seqlock over the two newest segments.
pub(crate) struct SegmentSeqlock {
    /// Increases by two with each segment; odd during a write. Half of it, modulo 2, is the slot of
    /// the newer segment.
    version: AtomicU64,
    slots: [SegmentSlot; 2],
}

/// Result of a segment lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentLookup {
    /// A valid segment, and the tick.
    Valid(ClockSegment, u64),
    /// No valid segment; no reading may be below this.
    Invalid { floor_ns: u64 },
}

impl SegmentSeqlock {
    constant! {
        fn new() -> SegmentSeqlock {
            SegmentSeqlock { version: AtomicU64::new(0), slots: [SegmentSlot::new(), SegmentSlot::new()] }
        }
    }

    /// The segment valid at a tick that is read now. Never waits for the writer.
    #[inline(always)]
    pub(crate) fn find_valid(&self, tick: impl Fn() -> u64) -> SegmentLookup {
        loop {
            let version = self.version.load(Ordering::Acquire);
            let newer = self.slots[newer_slot(version)].read();
            // The counter is not read if there is none or it is not trusted.
            let found = if newer.ticks == 0 {
                SegmentLookup::Invalid { floor_ns: newer.base_ns }
            } else {
                let at = tick();
                if newer.ns_at(at).is_some() {
                    SegmentLookup::Valid(newer, at)
                } else {
                    self.find_older(version, newer, at)
                }
            };
            fence(Ordering::Acquire);
            if self.version.load(Ordering::Relaxed) == version {
                return found;
            }
        }
    }

    /// A segment is published before it begins: until then the older one is valid.
    #[inline(never)]
    fn find_older(&self, version: u64, newer: ClockSegment, at: u64) -> SegmentLookup {
        let older = self.slots[1 - self::newer_slot(version)].read();
        match older.ns_at(at) {
            Some(_) if older.valid_until() == newer.first_tick => SegmentLookup::Valid(older, at),
            _ => SegmentLookup::Invalid { floor_ns: newer.end_ns() },
        }
    }

    /// Publishes a segment. One writer at a time.
    pub(crate) fn publish(&self, line: &ClockSegment) {
        // Odd in a process that was forked during a write.
        let version = self.version.load(Ordering::Relaxed) & !1;
        // A reader that sees this reads ticks after the older segment's end.
        self.version.store(version + 1, Ordering::Release);
        fence(Ordering::Release);
        self.slots[1 - newer_slot(version)].write(line);
        self.version.store(version + 2, Ordering::Release);
    }

    /// Whether the version is unchanged since a reader saw it, so that its result is still valid.
    pub(crate) fn is_version(&self) -> u64 {
        fence(Ordering::Acquire);
        self.version.load(Ordering::Acquire)
    }
}

fn newer_slot(version: u64) -> usize {
    (version >> 1) as usize & 1
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// 2 ns per tick from tick 100, which is 1,000 ns, for 50 ticks.
    fn line() -> ClockSegment {
        let error = ErrorBound { at_tick: 100, base_ns: 7, slope: slope(0.5) };
        ClockSegment { first_tick: 100, ticks: 50, base_ns: 1_000, slope: slope(2.0), error }
    }

    #[test]
    fn segment_is_valid_from_its_first_to_its_last_tick() {
        assert_eq!(line().ns_at(99), None);
        assert_eq!(line().ns_at(100), Some(1_000));
        assert_eq!(line().ns_at(149), Some(1_098));
        assert_eq!(line().ns_at(150), None);
        assert_eq!((line().valid_until(), line().end_ns()), (150, 1_100));
        assert_eq!([90, 100, 120].map(|tick| line().error_ns(tick)), [7, 7, 17]);
    }

    #[test]
    fn longest_segment_rounding_is_below_a_twentieth_ns() {
        for mhz in [1_000.0, 2_100.0, 2_596.1, 5_000.0] {
            let (ticks, ns_per_tick) = ((8.0 * mhz * 1e6) as u64, 1e3 / mhz);
            let exact = ticks as f64 * ns_per_tick;
            let found = ticks_to_ns(ticks, slope(ns_per_tick)) as f64;
            assert!((found - exact).abs() < 1.05, "{mhz} MHz: {found} of {exact}");
        }
    }

    #[test]
    fn older_segment_is_used_until_the_newer_begins() {
        let lines = SegmentSeqlock::new();
        assert_eq!(
            lines.find_valid(|| panic!("there is no counter")),
            SegmentLookup::Invalid { floor_ns: 0 }
        );
        lines.publish(&line());
        assert_eq!(lines.find_valid(|| 120), SegmentLookup::Valid(line(), 120));
        assert_eq!(lines.find_valid(|| 160), SegmentLookup::Invalid { floor_ns: 1_100 });
        let next = ClockSegment { first_tick: 150, ticks: 30, base_ns: 1_100, ..line() };
        lines.publish(&next);
        assert_eq!(lines.find_valid(|| 149), SegmentLookup::Valid(line(), 149));
        assert_eq!(lines.find_valid(|| 150), SegmentLookup::Valid(next, 150));
        assert_eq!(lines.find_valid(|| 99), SegmentLookup::Invalid { floor_ns: 1_160 });
        // A segment that does not continue the one before.
        lines.publish(&ClockSegment { first_tick: 300, base_ns: 2_000, ..line() });
        assert_eq!(lines.find_valid(|| 170), SegmentLookup::Invalid { floor_ns: 2_100 });
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU64 as Ticks;

    /// Segments of 1 ns per tick, ten ticks each, whose tick and nanosecond are equal.
    fn line(number: u64) -> ClockSegment {
        let from = 10 * number;
        ClockSegment {
            first_tick: from,
            ticks: 10,
            base_ns: from,
            slope: slope(1.0),
            error: ErrorBound::default(),
        }
    }

    /// A reader sees a consistent segment during any write.
    #[test]
    fn loom_segments_are_never_mixed() {
        loom::model(|| {
            let lines = Arc::new(SegmentSeqlock::new());
            lines.publish(&line(1));
            lines.publish(&line(2));
            let tick = Arc::new(Ticks::new(15));
            let writer = {
                let (lines, tick) = (Arc::clone(&lines), Arc::clone(&tick));
                loom::thread::spawn(move || {
                    // The older segment may be overwritten only after its last use.
                    tick.store(25, Ordering::Release);
                    lines.publish(&line(3));
                })
            };
            match lines.find_valid(|| tick.load(Ordering::Acquire)) {
                SegmentLookup::Valid(found, at) => {
                    assert_eq!(found.ns_at(at), Some(at));
                    assert!([1, 2, 3].iter().any(|&number| found == line(number)));
                }
                SegmentLookup::Invalid { floor_ns } => assert!(floor_ns <= 25, "{floor_ns}"),
            }
            writer.join().unwrap();
        });
    }
}
