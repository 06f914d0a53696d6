//! What a reader does: the line of the moment, or the system where there is none.

use crate::line::{Found, Line, Lines};

/// A reading and how far it may be off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounded {
    /// Nanoseconds of `CLOCK_MONOTONIC`.
    pub ns: u64,
    /// By how many nanoseconds they may differ from what that clock said at the same moment.
    pub error_ns: u64,
}

/// Nanoseconds now. `system` is the clock to ask where no line is valid.
#[inline(always)]
pub(crate) fn now(lines: &Lines, tick: impl Fn() -> u64, system: impl Fn() -> u64) -> u64 {
    match lines.find(&tick) {
        Found::Line(line, at) => on(&line, at),
        Found::Nothing { .. } => asked(lines, tick, system).ns,
    }
}

/// The same with the bound of its error.
#[inline(always)]
pub(crate) fn bounded(lines: &Lines, tick: impl Fn() -> u64, system: impl Fn() -> u64) -> Bounded {
    match lines.find(&tick) {
        Found::Line(line, at) => Bounded { ns: on(&line, at), error_ns: line.error_ns(at) },
        Found::Nothing { .. } => asked(lines, tick, system),
    }
}

#[inline(always)]
fn on(line: &Line, at: u64) -> u64 {
    line.at(at).expect("BUG: a line was found that is not valid")
}

/// Asks the system. What it says counts only if no line became known meanwhile: a line may be ahead of it.
#[cold]
#[inline(never)]
fn asked(lines: &Lines, tick: impl Fn() -> u64, system: impl Fn() -> u64) -> Bounded {
    loop {
        let version = lines.version();
        match lines.find(&tick) {
            Found::Line(line, at) => {
                return Bounded { ns: on(&line, at), error_ns: line.error_ns(at) };
            }
            Found::Nothing { floor_ns } => {
                let ns = system();
                if lines.version() == version {
                    return Bounded { ns: ns.max(floor_ns), error_ns: floor_ns.saturating_sub(ns) };
                }
            }
        }
    }
}
