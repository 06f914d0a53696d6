//! Metric snapshot types, independent of the format.

use std::fmt;

use hist::Histogram;

/// Series of a process with its value.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessSeries {
    /// Name of the metric.
    pub name: String,
    /// Labels, sorted by name.
    pub labels: Vec<(String, String)>,
    /// Unit in UCUM ("ns", "By"); empty if there is none or it is unknown.
    pub unit: String,
    /// Help text; may be empty.
    pub help: String,
    /// Role of the metric.
    pub role: MetricRole,
    /// Index of the related metric in the same list.
    pub related_metric: Option<usize>,
    /// The value.
    pub value: MetricValue,
}

/// Number of one of the supported types.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NumericValue {
    /// Unsigned integer.
    Unsigned(u64),
    /// Signed integer.
    Signed(i64),
    /// Floating-point number.
    Float(f64),
}

/// Value of a metric.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum MetricValue {
    /// Monotonic counter since the start of the program.
    Counter(NumericValue),
    /// Current value.
    Gauge(NumericValue),
    /// Text.
    Text(String),
    /// Distribution of all values since the start of the program.
    Histogram(Box<Histogram>),
    /// In-flight operations.
    InFlight(InFlightSnapshot),
    /// Heartbeat.
    Heartbeat(HeartbeatSnapshot),
    /// Unsupported value, with the reason.
    Unknown(&'static str),
}

/// In-flight operations of a table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InFlightSnapshot {
    /// Operations started since the start of the program.
    pub started: u64,
    /// Operations ended since the start of the program.
    pub ended: u64,
    /// Operations started while the table was full, or beyond the limits of a read: counted, but
    /// not in `operations`.
    pub untracked: u64,
    /// Operations in the table, oldest first.
    pub operations: Vec<OperationSnapshot>,
}

/// In-flight operation.
#[derive(Clone, Debug, PartialEq)]
pub struct OperationSnapshot {
    /// Start time: nanoseconds of `CLOCK_MONOTONIC`.
    pub start_ns: u64,
    /// Tags: name and value.
    pub tags: Vec<(String, String)>,
    /// Number chosen by the program: of a request, of a block.
    pub number: u64,
}

/// Heartbeat.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HeartbeatSnapshot {
    /// Number of beats.
    pub beats: u64,
    /// Time of the last beat: nanoseconds of `CLOCK_MONOTONIC`; 0 if there was none.
    pub last_ns: u64,
    /// Intended period in nanoseconds; 0 if not stated.
    pub every_ns: u64,
}

/// Role of a metric. It allows readers to combine several metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MetricRole {
    /// No role.
    #[default]
    Other,
    /// Duration.
    Timing,
    /// Capacity of a resource; its usage refers to it.
    Capacity,
    /// Usage of a resource; refers to its capacity.
    Usage,
    /// Cache hits; refers to the size of the cache.
    Hit,
    /// Cache misses; refers to the size of the cache.
    Miss,
    /// Size of a cache.
    Size,
    /// Queue length.
    Queue,
    /// Failures.
    Error,
    /// Calls of another operation; refers to the calling operation.
    Subcalls,
}

impl MetricRole {
    /// All roles, indexed by their number in files and in the C header.
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

    /// Name of the role.
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
    /// Nearest floating-point number, for rates and graphs.
    pub fn as_float(self) -> f64 {
        match self {
            NumericValue::Unsigned(number) => number as f64,
            NumericValue::Signed(number) => number as f64,
            NumericValue::Float(number) => number,
        }
    }
}

impl InFlightSnapshot {
    /// Number of in-flight operations.
    pub fn count(&self) -> u64 {
        // Both counters wrap, and the counters and the table are read at different times.
        let between = self.started.wrapping_sub(self.ended).cast_signed().max(0).cast_unsigned();
        between.max(self.count_tracked())
    }

    /// In-flight operations that are not listed: the table was full when they started, or a read
    /// has a limit.
    pub fn count_untracked(&self) -> u64 {
        self.untracked.min(self.count() - self.count_tracked())
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

    /// Expected number of in-flight operations, and of those not in the table.
    #[track_caller]
    fn check(counts: [u64; 3], listed: usize, expected: (u64, u64)) {
        let [started, ended, untracked] = counts;
        let one = OperationSnapshot { start_ns: 1, tags: Vec::new(), number: 0 };
        let of = InFlightSnapshot { started, ended, untracked, operations: vec![one; listed] };
        assert_eq!((of.count(), of.count_untracked()), expected, "{counts:?} {listed}");
    }

    #[test]
    fn started_minus_ended_is_in_flight() {
        check([0, 0, 0], 0, (0, 0));
        check([10, 7, 0], 3, (3, 0));
        // All operations without a slot have ended except one.
        check([30, 26, 12], 3, (4, 1));
        check([30, 20, 5], 3, (10, 5));
    }

    #[test]
    fn counters_wrap_and_are_not_read_at_one_instant() {
        check([2, u64::MAX - 1, 0], 4, (4, 0));
        check([2, u64::MAX - 1, 1], 3, (4, 1));
        // One operation ended between the two reads.
        check([7, 8, 0], 0, (0, 0));
        check([0, u64::MAX, 9], 0, (1, 1));
        check([u64::MAX, 0, 9], 0, (0, 0));
        // The table has more operations than the counters.
        check([5, 4, 3], 6, (6, 0));
    }

    #[test]
    fn roles_have_a_name_each() {
        let names: std::collections::HashSet<&str> = MetricRole::ALL.map(MetricRole::name).into();
        assert_eq!(names.len(), MetricRole::ALL.len());
    }
}
