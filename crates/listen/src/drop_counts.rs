//! Listener counters and drop reasons.

use intake::{EventCounter, Meter, Producer};

use crate::series_aggregate::{AggregateValue, SeriesAggregate};

/// Drop reason of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DropReason {
    /// Series limit per interval reached.
    SeriesLimit,
    /// Memory limit reached.
    MemoryLimit,
    /// Limit of distinct set members reached.
    SetMembersLimit,
    /// Timestamp too far in the future.
    TimestampInFuture,
    /// The intake rejected the series or the value.
    Rejected,
    /// The journal was full for too long.
    JournalFull,
    /// A journal write failed.
    JournalFailed,
    /// The kernel's receive buffer was full.
    SocketBuffer,
    /// Processing of the values panicked.
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

    /// Label value.
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

    /// Text in a gap.
    pub(crate) fn description(self) -> &'static str {
        match self {
            DropReason::SeriesLimit => "series limit per interval reached",
            DropReason::MemoryLimit => "memory limit per interval reached",
            DropReason::SetMembersLimit => "limit of distinct set members per interval reached",
            DropReason::TimestampInFuture => "timestamp more than a day in the future",
            DropReason::Rejected => "series or value rejected by the store",
            DropReason::JournalFull => "journal full for too long",
            DropReason::JournalFailed => "the journal failed",
            DropReason::SocketBuffer => "datagrams dropped by the kernel: receive buffer full",
            DropReason::Panic => "processing of the values panicked",
        }
    }
}

/// Dropped values by reason.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DropCounts([DropCount; DropReason::ALL.len()]);

#[derive(Clone, Copy, Debug, Default)]
struct DropCount {
    /// Values as sent.
    values: u64,
    /// Those of `values` that the producer's ledger already counts as received.
    reported: u64,
    /// Number of samples that the reported values stand for.
    weight: u64,
}

impl DropCounts {
    pub(crate) fn add(&mut self, reason: DropReason, n: u64) {
        self.0[reason as usize].values += n;
    }

    /// Adds all values of a series in an interval.
    pub(crate) fn add_aggregate(&mut self, reason: DropReason, aggregate: &SeriesAggregate) {
        let loss = &mut self.0[reason as usize];
        loss.values += aggregate.received;
        if let AggregateValue::Histogram(histogram) = &aggregate.value {
            loss.reported += aggregate.received;
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

    /// Reasons with a nonzero count.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL.into_iter().map(|reason| (reason, self.get(reason))).filter(|&(_, n)| n > 0)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|loss| loss.values == 0)
    }
}

/// Listener counters. Values are counted as sent: a line with three values counts three, at any
/// sample rate.
///
/// The producer's ledger counts stored samples. A timing counts as many samples as its sample rate
/// implies and enters the ledger when received. Any other kind counts one per written number and
/// enters the ledger when written, because the number is unknown before.
#[derive(Clone, Debug)]
pub(crate) struct ListenerCounters {
    pub(crate) producer: Producer,
    pub(crate) received: EventCounter,
    pub(crate) accepted: EventCounter,
    dropped: Vec<EventCounter>,
    pub(crate) lines_rejected: EventCounter,
    pub(crate) lines_skipped: EventCounter,
    pub(crate) connections: EventCounter,
    pub(crate) connections_rejected: EventCounter,
    pub(crate) connections_idle_closed: EventCounter,
}

impl ListenerCounters {
    pub(crate) fn new(meter: &Meter, producer: Producer, source: &'static str) -> ListenerCounters {
        let values = |outcome| {
            meter.counter(
                "topdeck_listen_values_total",
                "values received, by outcome; datagrams for socket_buffer_full",
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
                "connections: accepted, rejected at the limit, or closed as idle",
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
            let DropCount { values, reported, weight } = lost.0[reason as usize];
            let unreported = values - reported;
            self.producer.add_received(unreported);
            self.producer.add_dropped(unreported.saturating_add(weight), reason.description());
        }
    }
}
