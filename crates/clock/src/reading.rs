//! Reading the clock: current segment, or the system clock as fallback.

use crate::clock_segment::{ClockSegment, SegmentLookup, SegmentSeqlock};

/// Timestamp with its error bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoundedTime {
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    pub ns: u64,
    /// Maximum difference from that clock at the same time, in nanoseconds.
    pub error_ns: u64,
}

/// Nanoseconds now. `system` reads the fallback clock.
#[inline(always)]
pub(crate) fn now(lines: &SegmentSeqlock, tick: impl Fn() -> u64, system: impl Fn() -> u64) -> u64 {
    match lines.find_valid(&tick) {
        SegmentLookup::Valid(line, at) => ns_on_segment(&line, at),
        SegmentLookup::Invalid { .. } => read_system(lines, tick, system).ns,
    }
}

/// [`now`] with its error bound.
#[inline(always)]
pub(crate) fn now_bounded(
    lines: &SegmentSeqlock,
    tick: impl Fn() -> u64,
    system: impl Fn() -> u64,
) -> BoundedTime {
    match lines.find_valid(&tick) {
        SegmentLookup::Valid(line, at) => {
            BoundedTime { ns: ns_on_segment(&line, at), error_ns: line.error_ns(at) }
        }
        SegmentLookup::Invalid { .. } => read_system(lines, tick, system),
    }
}

#[inline(always)]
fn ns_on_segment(line: &ClockSegment, at: u64) -> u64 {
    line.ns_at(at).expect("BUG: the segment found is not valid")
}

/// Reads the system clock. The result counts only if no segment was published meanwhile, which may
/// be ahead of it.
#[cold]
#[inline(never)]
fn read_system(
    lines: &SegmentSeqlock,
    tick: impl Fn() -> u64,
    system: impl Fn() -> u64,
) -> BoundedTime {
    loop {
        let version = lines.is_version();
        match lines.find_valid(&tick) {
            SegmentLookup::Valid(line, at) => {
                return BoundedTime { ns: ns_on_segment(&line, at), error_ns: line.error_ns(at) };
            }
            SegmentLookup::Invalid { floor_ns } => {
                let ns = system();
                if lines.is_version() == version {
                    return BoundedTime {
                        ns: ns.max(floor_ns),
                        error_ns: floor_ns.saturating_sub(ns),
                    };
                }
            }
        }
    }
}
