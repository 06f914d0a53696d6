//! What becomes of what comes, in numbers.

use intake::{Counter, Meter, Producer};

use crate::held::{Held, What};

/// Why values are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reason {
    /// Too many series in an interval.
    Series,
    /// Too much in memory.
    Memory,
    /// Too many members of a set.
    Members,
    /// A time that is too far ahead.
    Time,
    /// The intake does not take the series or the value.
    Refused,
    /// There was no room for too long.
    Full,
    /// Storage failed.
    Broken,
    /// The kernel's buffer was full.
    Kernel,
    /// Work on the values panicked.
    Panic,
}

impl Reason {
    pub(crate) const ALL: [Reason; 9] = [
        Reason::Series,
        Reason::Memory,
        Reason::Members,
        Reason::Time,
        Reason::Refused,
        Reason::Full,
        Reason::Broken,
        Reason::Kernel,
        Reason::Panic,
    ];

    /// The label's value.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Reason::Series => "series_max",
            Reason::Memory => "memory_max",
            Reason::Members => "set_members_max",
            Reason::Time => "future",
            Reason::Refused => "refused",
            Reason::Full => "full",
            Reason::Broken => "broken",
            Reason::Kernel => "kernel",
            Reason::Panic => "panic",
        }
    }

    /// As a gap says it.
    pub(crate) fn about(self) -> &'static str {
        match self {
            Reason::Series => "more series in an interval than the setting series allows",
            Reason::Memory => "more in an interval than there is memory for",
            Reason::Members => "a set had more members in an interval than are counted",
            Reason::Time => "the values said they were of more than a day ahead",
            Reason::Refused => "the store refused the series or the value",
            Reason::Full => "the journal had no room for too long",
            Reason::Broken => "the journal failed",
            Reason::Kernel => "datagrams: the kernel's receive buffer was full",
            Reason::Panic => "work on the values panicked",
        }
    }
}

/// What was lost, by reason.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lost([Loss; Reason::ALL.len()]);

#[derive(Clone, Copy, Debug, Default)]
struct Loss {
    /// As they came.
    values: u64,
    /// Those of them that are in the producer's books as received, and as how many.
    booked: u64,
    weight: u64,
}

impl Lost {
    pub(crate) fn add(&mut self, reason: Reason, n: u64) {
        self.0[reason as usize].values += n;
    }

    /// All that is known of a series in an interval.
    pub(crate) fn add_held(&mut self, reason: Reason, held: &Held) {
        let loss = &mut self.0[reason as usize];
        loss.values += held.received;
        if let What::Times(histogram) = &held.what {
            loss.booked += held.received;
            loss.weight = loss.weight.saturating_add(histogram.count());
        }
    }

    pub(crate) fn get(&self, reason: Reason) -> u64 {
        self.0[reason as usize].values
    }

    pub(crate) fn merge(&mut self, other: &Lost) {
        for (ours, theirs) in self.0.iter_mut().zip(other.0) {
            ours.values += theirs.values;
            ours.booked += theirs.booked;
            ours.weight = ours.weight.saturating_add(theirs.weight);
        }
    }

    /// Those of which there are any.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Reason, u64)> + '_ {
        Reason::ALL.into_iter().map(|reason| (reason, self.get(reason))).filter(|&(_, n)| n > 0)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|loss| loss.values == 0)
    }
}

/// Values are single numbers as they came: a line of three has three, whatever its sample rate.
///
/// The producer's books are in what is stored: of a timing as many as it stands for, booked when it comes; of
/// anything else one for each number that is written, booked then, for only then is it known how many there are.
#[derive(Clone, Debug)]
pub(crate) struct Counters {
    pub(crate) producer: Producer,
    pub(crate) received: Counter,
    pub(crate) taken: Counter,
    lost: Vec<Counter>,
    pub(crate) lines_refused: Counter,
    pub(crate) lines_skipped: Counter,
    pub(crate) connections: Counter,
    pub(crate) connections_refused: Counter,
    pub(crate) connections_idle: Counter,
}

impl Counters {
    pub(crate) fn new(meter: &Meter, producer: Producer, source: &'static str) -> Counters {
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
                "lines that hold no metric: refused could not be read, skipped are events and the like",
                &[("source", source), ("outcome", outcome)],
            )
        };
        let connections = |outcome| {
            meter.counter(
                "topdeck_listen_connections_total",
                "connections: taken, refused at the limit, closed because no line came",
                &[("source", source), ("outcome", outcome)],
            )
        };
        Counters {
            producer,
            received: values("received"),
            taken: values("taken"),
            lost: Reason::ALL.iter().map(|reason| values(reason.name())).collect(),
            lines_refused: lines("refused"),
            lines_skipped: lines("skipped"),
            connections: connections("taken"),
            connections_refused: connections("refused"),
            connections_idle: connections("idle"),
        }
    }

    pub(crate) fn lost(&self, lost: &Lost) {
        for (reason, n) in lost.iter() {
            self.lost[reason as usize].add(n);
            let Loss { values, booked, weight } = lost.0[reason as usize];
            self.producer.received(values - booked);
            self.producer.dropped((values - booked).saturating_add(weight), reason.about());
        }
    }
}
