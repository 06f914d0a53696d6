//! From ticks of the processor's counter to nanoseconds: a straight line for a stretch of ticks, and how the line of
//! the moment reaches all threads.
//!
//! A line is valid from a tick up to another one, both known before its first tick comes, and the next line begins where
//! it ends, at the value that it ends with. What a tick means thus never depends on when a thread learns of a line, so
//! no two threads disagree. Where no line is valid (nobody drew one in time), readers ask the system.
//!
//! Two lines are held, and a version says which is the newer one. Only the older one is ever written, so a reader that
//! finds the version unchanged has read what was meant, and none ever waits for the writer.

use crate::sync::{AtomicU64, Ordering, fence};

/// A `const fn`, but for loom, whose atomics are made while it runs.
macro_rules! constant {
    (fn $name:ident() -> $of:ty $body:block) => {
        #[cfg(not(loom))]
        pub(crate) const fn $name() -> $of $body
        #[cfg(loom)]
        pub(crate) fn $name() -> $of $body
    };
}

/// Bits of a tick's length in nanoseconds after the point.
///
/// 40 bits: over 8 s of a 5 GHz counter, more than any line is long, the rounding adds up to 0.04 ns.
const FRACTION_BITS: u32 = 40;

/// Nanoseconds of a stretch of ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Line {
    /// The first tick.
    pub(crate) from: u64,
    /// How many ticks it is valid for; 0 is a line that is valid for none.
    pub(crate) length: u64,
    /// Nanoseconds at the first tick.
    pub(crate) base_ns: u64,
    /// Nanoseconds of a tick, times 2^40.
    pub(crate) slope: u64,
    /// How far it may be off, and from when on.
    pub(crate) error: Error,
}

/// How far a line may be off: so much at a tick, and more with every tick since then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Error {
    /// When it was compared with the system.
    pub(crate) at: u64,
    /// By how much it was off then at the most.
    pub(crate) base_ns: u64,
    /// What each tick may add, times 2^40.
    pub(crate) slope: u64,
}

/// The slope of so many nanoseconds a tick.
pub(crate) fn slope(ns_per_tick: f64) -> u64 {
    (ns_per_tick * (1u64 << FRACTION_BITS) as f64).round() as u64
}

/// Nanoseconds of so many ticks.
#[inline(always)]
pub(crate) fn scaled(ticks: u64, slope: u64) -> u64 {
    ((u128::from(ticks) * u128::from(slope)) >> FRACTION_BITS) as u64
}

impl Line {
    /// Nanoseconds at a tick, if it is valid there.
    #[inline(always)]
    pub(crate) fn at(&self, tick: u64) -> Option<u64> {
        // A tick before the first one is a very long way after it.
        let ticks = tick.wrapping_sub(self.from);
        (ticks < self.length).then(|| self.base_ns + scaled(ticks, self.slope))
    }

    /// The first tick that it is not valid for.
    pub(crate) fn until(&self) -> u64 {
        self.from + self.length
    }

    /// What it says at its end: no later reading may be less.
    pub(crate) fn end_ns(&self) -> u64 {
        self.base_ns + scaled(self.length, self.slope)
    }

    /// How far it may be off at a tick.
    pub(crate) fn error_ns(&self, tick: u64) -> u64 {
        self.error.base_ns + scaled(tick.saturating_sub(self.error.at), self.error.slope)
    }
}

/// A line in memory that threads share.
#[repr(align(64))]
struct Slot {
    from: AtomicU64,
    length: AtomicU64,
    base_ns: AtomicU64,
    slope: AtomicU64,
    error_at: AtomicU64,
    error_base_ns: AtomicU64,
    error_slope: AtomicU64,
}

impl Slot {
    constant! {
        fn new() -> Slot {
            Slot {
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

    /// As it was written, if nobody is writing it: the version tells.
    #[inline(always)]
    fn line(&self) -> Line {
        let of = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let error = Error {
            at: of(&self.error_at),
            base_ns: of(&self.error_base_ns),
            slope: of(&self.error_slope),
        };
        let (from, length) = (of(&self.from), of(&self.length));
        Line { from, length, base_ns: of(&self.base_ns), slope: of(&self.slope), error }
    }

    fn write(&self, line: &Line) {
        let to = |word: &AtomicU64, value| word.store(value, Ordering::Relaxed);
        to(&self.from, line.from);
        to(&self.length, line.length);
        to(&self.base_ns, line.base_ns);
        to(&self.slope, line.slope);
        to(&self.error_at, line.error.at);
        to(&self.error_base_ns, line.error.base_ns);
        to(&self.error_slope, line.error.slope);
    }
}

/// The newest line and the one before it.
pub(crate) struct Lines {
    /// Counts up by two with each line; odd while the older one is written. Half of it, modulo 2, is the newer one.
    version: AtomicU64,
    slots: [Slot; 2],
}

/// What a reader found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// A line that is valid, and the tick.
    Line(Line, u64),
    /// None is valid; nothing may be less than this.
    Nothing { floor_ns: u64 },
}

impl Lines {
    constant! {
        fn new() -> Lines {
            Lines { version: AtomicU64::new(0), slots: [Slot::new(), Slot::new()] }
        }
    }

    /// The line that is valid at a tick which is read now. Never waits for the writer.
    #[inline(always)]
    pub(crate) fn find(&self, tick: impl Fn() -> u64) -> Found {
        loop {
            let version = self.version.load(Ordering::Acquire);
            let newer = self.slots[newer(version)].line();
            // Where there is no counter, or none that can be trusted, it is not read.
            let found = if newer.length == 0 {
                Found::Nothing { floor_ns: newer.base_ns }
            } else {
                let at = tick();
                if newer.at(at).is_some() {
                    Found::Line(newer, at)
                } else {
                    self.older(version, newer, at)
                }
            };
            fence(Ordering::Acquire);
            if self.version.load(Ordering::Relaxed) == version {
                return found;
            }
        }
    }

    /// A line is made known before it begins: until then the older one is valid.
    #[inline(never)]
    fn older(&self, version: u64, newer: Line, at: u64) -> Found {
        let older = self.slots[1 - self::newer(version)].line();
        match older.at(at) {
            Some(_) if older.until() == newer.from => Found::Line(older, at),
            _ => Found::Nothing { floor_ns: newer.end_ns() },
        }
    }

    /// Makes a line known. For one thread at a time.
    pub(crate) fn publish(&self, line: &Line) {
        // Odd in a process that was forked off while the other wrote.
        let version = self.version.load(Ordering::Relaxed) & !1;
        // Whoever sees this reads ticks of after the older line's end.
        self.version.store(version + 1, Ordering::Release);
        fence(Ordering::Release);
        self.slots[1 - newer(version)].write(line);
        self.version.store(version + 2, Ordering::Release);
    }

    /// Whether the version is still the one that a reader has seen: what it found is then still so.
    pub(crate) fn version(&self) -> u64 {
        fence(Ordering::Acquire);
        self.version.load(Ordering::Acquire)
    }
}

fn newer(version: u64) -> usize {
    (version >> 1) as usize & 1
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// 2 ns a tick from tick 100, which is 1,000 ns, for 50 ticks.
    fn line() -> Line {
        let error = Error { at: 100, base_ns: 7, slope: slope(0.5) };
        Line { from: 100, length: 50, base_ns: 1_000, slope: slope(2.0), error }
    }

    #[test]
    fn a_line_is_valid_from_its_first_tick_to_its_last() {
        assert_eq!(line().at(99), None);
        assert_eq!(line().at(100), Some(1_000));
        assert_eq!(line().at(149), Some(1_098));
        assert_eq!(line().at(150), None);
        assert_eq!((line().until(), line().end_ns()), (150, 1_100));
        assert_eq!([90, 100, 120].map(|tick| line().error_ns(tick)), [7, 7, 17]);
    }

    #[test]
    fn the_longest_line_is_exact_to_a_twentieth_of_a_nanosecond() {
        for mhz in [1_000.0, 2_100.0, 2_596.1, 5_000.0] {
            let (ticks, ns_per_tick) = ((8.0 * mhz * 1e6) as u64, 1e3 / mhz);
            let exact = ticks as f64 * ns_per_tick;
            let found = scaled(ticks, slope(ns_per_tick)) as f64;
            assert!((found - exact).abs() < 1.05, "{mhz} MHz: {found} of {exact}");
        }
    }

    #[test]
    fn the_older_line_is_used_until_the_newer_one_begins() {
        let lines = Lines::new();
        assert_eq!(lines.find(|| panic!("there is no counter")), Found::Nothing { floor_ns: 0 });
        lines.publish(&line());
        assert_eq!(lines.find(|| 120), Found::Line(line(), 120));
        assert_eq!(lines.find(|| 160), Found::Nothing { floor_ns: 1_100 });
        let next = Line { from: 150, length: 30, base_ns: 1_100, ..line() };
        lines.publish(&next);
        assert_eq!(lines.find(|| 149), Found::Line(line(), 149));
        assert_eq!(lines.find(|| 150), Found::Line(next, 150));
        assert_eq!(lines.find(|| 99), Found::Nothing { floor_ns: 1_160 });
        // One that does not go on where the other ends.
        lines.publish(&Line { from: 300, base_ns: 2_000, ..line() });
        assert_eq!(lines.find(|| 170), Found::Nothing { floor_ns: 2_100 });
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU64 as Ticks;

    /// Lines of 1 ns a tick, each ten ticks long, on which tick and nanosecond are the same.
    fn line(number: u64) -> Line {
        let from = 10 * number;
        Line { from, length: 10, base_ns: from, slope: slope(1.0), error: Error::default() }
    }

    /// A reader sees a whole line, whatever the writer does meanwhile.
    #[test]
    fn loom_lines_are_never_mixed() {
        loom::model(|| {
            let lines = Arc::new(Lines::new());
            lines.publish(&line(1));
            lines.publish(&line(2));
            let tick = Arc::new(Ticks::new(15));
            let writer = {
                let (lines, tick) = (Arc::clone(&lines), Arc::clone(&tick));
                loom::thread::spawn(move || {
                    // The line before may be written only when nobody needs it any more.
                    tick.store(25, Ordering::Release);
                    lines.publish(&line(3));
                })
            };
            match lines.find(|| tick.load(Ordering::Acquire)) {
                Found::Line(found, at) => {
                    assert_eq!(found.at(at), Some(at));
                    assert!([1, 2, 3].iter().any(|&number| found == line(number)));
                }
                Found::Nothing { floor_ns } => assert!(floor_ns <= 25, "{floor_ns}"),
            }
            writer.join().unwrap();
        });
    }
}
