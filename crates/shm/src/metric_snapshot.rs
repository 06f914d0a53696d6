//! Metric snapshot types, independent of the format.

use std::fmt;

use hist::Histogram;

/// One series of a process.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessMetric {
    /// What is measured.
    pub name: String,
    /// Labels, by ascending name.
    pub labels: Vec<(String, String)>,
    /// Unit as UCUM writes it ("ns", "By"); empty where there is none or it is not known.
    pub unit: String,
    /// What it means; may be empty.
    pub help: String,
    /// What it is to the program.
    pub role: MetricRole,
    /// The place in the same list of what the role refers to.
    pub related_metric: Option<usize>,
    /// The value.
    pub value: MetricValue,
}

/// A number of one of the kinds that programs count in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NumericValue {
    /// A whole number, zero or more.
    Unsigned(u64),
    /// A whole number.
    Signed(i64),
    /// Any number.
    Float(f64),
}

/// A value.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum MetricValue {
    /// Counted since the program began; never less than before.
    Counter(NumericValue),
    /// As it is now.
    Gauge(NumericValue),
    /// A text.
    Text(String),
    /// Everything recorded since the program began.
    Histogram(Box<Histogram>),
    /// What has begun and has not ended.
    InFlight(InFlightSnapshot),
    /// A sign of life.
    Heartbeat(HeartbeatSnapshot),
    /// What cannot be told, and why.
    Unknown(&'static str),
}

/// Operations that have begun and have not ended.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InFlightSnapshot {
    /// How many began, ever.
    pub started: u64,
    /// How many ended, ever.
    pub ended: u64,
    /// How many began while the table was full: they are counted, but not among `operations`.
    pub unlisted: u64,
    /// Those that are in the table now, the oldest first.
    pub operations: Vec<OperationSnapshot>,
}

/// An operation that has begun and has not ended.
#[derive(Clone, Debug, PartialEq)]
pub struct OperationSnapshot {
    /// When it began: nanoseconds of `CLOCK_MONOTONIC`.
    pub start_ns: u64,
    /// What the program says of it: name and value.
    pub tags: Vec<(String, String)>,
    /// A number of the program's own: a request's, a block's.
    pub number: u64,
}

/// A sign of life.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HeartbeatSnapshot {
    /// How many times it beat.
    pub beats: u64,
    /// When it last did: nanoseconds of `CLOCK_MONOTONIC`; 0 if never.
    pub last_ns: u64,
    /// How often it means to: nanoseconds; 0 if it does not say.
    pub every_ns: u64,
}

/// Role of a metric. With it, what several metrics say together can be told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MetricRole {
    /// Nothing is said.
    #[default]
    Other,
    /// How long something takes.
    Timing,
    /// How much there is at the most; linked from what is used of it.
    Capacity,
    /// How much is used; linked to its capacity.
    Usage,
    /// How often a cache had it; linked to its size.
    Hit,
    /// How often a cache did not have it; linked to its size.
    Miss,
    /// How much a cache holds.
    Size,
    /// How much waits.
    Queue,
    /// How often something failed.
    Error,
    /// How often something else was called; linked to the operation that called it.
    Subcalls,
}

impl MetricRole {
    /// All of them, each at the number that it has in files and in the C header.
    pub const ALL: [MetricRole; 10] = [
        MetricRole::Other,
        MetricRole::Timing,
        MetricRole::Capacity,
        MetricRole::Usage,
        MetricRole::Hit,
        MetricRole::Miss,
        MetricRole::Size,
        MetricRole::Queue,
        MetricRole::Error,
        MetricRole::Subcalls,
    ];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            MetricRole::Other => "other",
            MetricRole::Timing => "timing",
            MetricRole::Capacity => "capacity",
            MetricRole::Usage => "usage",
            MetricRole::Hit => "hit",
            MetricRole::Miss => "miss",
            MetricRole::Size => "size",
            MetricRole::Queue => "queue",
            MetricRole::Error => "error",
            MetricRole::Subcalls => "subcalls",
        }
    }
}

impl NumericValue {
    /// The number that is nearest to it, as rates and pictures use it.
    pub fn as_float(self) -> f64 {
        match self {
            NumericValue::Unsigned(number) => number as f64,
            NumericValue::Signed(number) => number as f64,
            NumericValue::Float(number) => number,
        }
    }
}

impl InFlightSnapshot {
    /// How many have begun and have not ended.
    pub fn count(&self) -> u64 {
        // Both counters wrap, and neither they nor the table are read at the same instant.
        let between = self.started.wrapping_sub(self.ended).cast_signed().max(0).cast_unsigned();
        between.max(self.count_tracked())
    }

    /// How many of them are not in the table, because it was full when they began.
    pub fn count_untracked(&self) -> u64 {
        self.unlisted.min(self.count() - self.count_tracked())
    }

    fn count_tracked(&self) -> u64 {
        self.operations.len() as u64
    }
}

impl fmt::Display for NumericValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NumericValue::Unsigned(number) => number.fmt(f),
            NumericValue::Signed(number) => number.fmt(f),
            NumericValue::Float(number) => number.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Outstanding, and those of them that are not in the table.
    #[track_caller]
    fn check(counts: [u64; 3], listed: usize, expected: (u64, u64)) {
        let [started, ended, unlisted] = counts;
        let one = OperationSnapshot { start_ns: 1, tags: Vec::new(), number: 0 };
        let of = InFlightSnapshot { started, ended, unlisted, operations: vec![one; listed] };
        assert_eq!((of.count(), of.count_untracked()), expected, "{counts:?} {listed}");
    }

    #[test]
    fn started_minus_ended_is_in_flight() {
        check([0, 0, 0], 0, (0, 0));
        check([10, 7, 0], 3, (3, 0));
        // All that found no room has ended but for one.
        check([30, 26, 12], 3, (4, 1));
        check([30, 20, 5], 3, (10, 5));
    }

    #[test]
    fn counters_wrap_and_are_not_read_at_one_instant() {
        check([2, u64::MAX - 1, 0], 4, (4, 0));
        check([2, u64::MAX - 1, 1], 3, (4, 1));
        // One ended between the two.
        check([7, 8, 0], 0, (0, 0));
        check([0, u64::MAX, 9], 0, (1, 1));
        check([u64::MAX, 0, 9], 0, (0, 0));
        // More in the table than the counters know of.
        check([5, 4, 3], 6, (6, 0));
    }

    #[test]
    fn roles_have_a_name_each() {
        let names: std::collections::HashSet<&str> = MetricRole::ALL.map(MetricRole::name).into();
        assert_eq!(names.len(), MetricRole::ALL.len());
    }
}
