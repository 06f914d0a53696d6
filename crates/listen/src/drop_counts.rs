//! Listener counters and drop reasons.

use intake::{Counter, Meter, Producer};

use crate::series_aggregate::{AggregateValue, SeriesAggregate};

/// Drop reason of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DropReason {
    /// Too many series in an interval.
    SeriesLimit,
    /// Too much in memory.
    MemoryLimit,
    /// Too many members of a set.
    SetMembersLimit,
    /// A time that is too far ahead.
    TimestampInFuture,
    /// The intake does not take the series or the value.
    Rejected,
    /// There was no room for too long.
    JournalFull,
    /// Storage failed.
    JournalFailed,
    /// The kernel's buffer was full.
    SocketBuffer,
    /// Work on the values panicked.
    Panic,
}

impl DropReason {
    pub(crate) const ALL: [DropReason; 9] = [
        DropReason::SeriesLimit,
        DropReason::MemoryLimit,
        DropReason::SetMembersLimit,
        DropReason::TimestampInFuture,
        DropReason::Rejected,
        DropReason::JournalFull,
        DropReason::JournalFailed,
        DropReason::SocketBuffer,
        DropReason::Panic,
    ];

    /// The label's value.
    pub(crate) fn name(self) -> &'static str {
        match self {
            DropReason::SeriesLimit => "series_limit",
            DropReason::MemoryLimit => "memory_limit",
            DropReason::SetMembersLimit => "set_members_limit",
            DropReason::TimestampInFuture => "timestamp_in_future",
            DropReason::Rejected => "rejected",
            DropReason::JournalFull => "journal_full",
            DropReason::JournalFailed => "journal_error",
            DropReason::SocketBuffer => "socket_buffer_full",
            DropReason::Panic => "panic",
        }
    }

    /// As a gap says it.
    pub(crate) fn description(self) -> &'static str {
        match self {
            DropReason::SeriesLimit => "more series in an interval than the setting series allows",
            DropReason::MemoryLimit => "more in an interval than there is memory for",
            DropReason::SetMembersLimit => "a set had more members in an interval than are counted",
            DropReason::TimestampInFuture => "the values said they were of more than a day ahead",
            DropReason::Rejected => "the store refused the series or the value",
            DropReason::JournalFull => "the journal had no room for too long",
            DropReason::JournalFailed => "the journal failed",
            DropReason::SocketBuffer => "datagrams: the kernel's receive buffer was full",
            DropReason::Panic => "work on the values panicked",
        }
    }
}

/// Dropped values by reason.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DropCounts([DropCount; DropReason::ALL.len()]);

#[derive(Clone, Copy, Debug, Default)]
struct DropCount {
    /// As they came.
    values: u64,
    /// Those of them that are in the producer's books as received, and as how many.
    reported: u64,
    weight: u64,
}

impl DropCounts {
    pub(crate) fn add(&mut self, reason: DropReason, n: u64) {
        self.0[reason as usize].values += n;
    }

    /// All that is known of a series in an interval.
    pub(crate) fn add_aggregate(&mut self, reason: DropReason, held: &SeriesAggregate) {
        let loss = &mut self.0[reason as usize];
        loss.values += held.received;
        if let AggregateValue::Histogram(histogram) = &held.value {
            loss.reported += held.received;
            loss.weight = loss.weight.saturating_add(histogram.count());
        }
    }

    pub(crate) fn get(&self, reason: DropReason) -> u64 {
        self.0[reason as usize].values
    }

    pub(crate) fn merge(&mut self, other: &DropCounts) {
        for (ours, theirs) in self.0.iter_mut().zip(other.0) {
            ours.values += theirs.values;
            ours.reported += theirs.reported;
            ours.weight = ours.weight.saturating_add(theirs.weight);
        }
    }

    /// Those of which there are any.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL.into_iter().map(|reason| (reason, self.get(reason))).filter(|&(_, n)| n > 0)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|loss| loss.values == 0)
    }
}

/// Listener counters. Values are counted as sent: a line with three values counts three, whatever
/// its sample rate. Values are single numbers as they came: a line of three has three, whatever its
/// sample rate.
///
/// The producer's books are in what is stored: of a timing as many as it stands for, booked when it
/// comes; of anything else one for each number that is written, booked then, for only then is it
/// known how many there are.
#[derive(Clone, Debug)]
pub(crate) struct ListenerCounters {
    pub(crate) producer: Producer,
    pub(crate) received: Counter,
    pub(crate) accepted: Counter,
    dropped: Vec<Counter>,
    pub(crate) lines_rejected: Counter,
    pub(crate) lines_skipped: Counter,
    pub(crate) connections: Counter,
    pub(crate) connections_rejected: Counter,
    pub(crate) connections_idle_closed: Counter,
}

impl ListenerCounters {
    pub(crate) fn new(meter: &Meter, producer: Producer, source: &'static str) -> ListenerCounters {
        let values = |outcome| {
            meter.counter(
                "topdeck_listen_values_total",
                "values that came, as they came, and what became of them; of the kernel, datagrams",
                &[("source", source), ("outcome", outcome)],
            )
        };
        let lines = |outcome| {
            meter.counter(
                "topdeck_listen_lines_total",
                "lines without a metric: rejected (parse error) or skipped (events, service \
                 checks)",
                &[("source", source), ("outcome", outcome)],
            )
        };
        let connections = |outcome| {
            meter.counter(
                "topdeck_listen_connections_total",
                "connections: accepted, rejected at the limit, or closed because they were idle",
                &[("source", source), ("outcome", outcome)],
            )
        };
        ListenerCounters {
            producer,
            received: values("received"),
            accepted: values("accepted"),
            dropped: DropReason::ALL.iter().map(|reason| values(reason.name())).collect(),
            lines_rejected: lines("rejected"),
            lines_skipped: lines("skipped"),
            connections: connections("accepted"),
            connections_rejected: connections("rejected"),
            connections_idle_closed: connections("idle_closed"),
        }
    }

    pub(crate) fn count_drops(&self, lost: &DropCounts) {
        for (reason, n) in lost.iter() {
            self.dropped[reason as usize].add(n);
            let DropCount { values, reported: booked, weight } = lost.0[reason as usize];
            self.producer.add_received(values - booked);
            self.producer
                .add_dropped((values - booked).saturating_add(weight), reason.description());
        }
    }
}
