//! What has no place, counted: `facade_refused_total{metric,reason}`.

use crate::lazy::Lazy;

const NAME: &str = "facade_refused_total";
const HELP: &str = "Values that could not be recorded, and descriptions that came too late.";
/// A metric's name is cut after so many bytes: what is refused may be the name.
const METRIC_BYTES_MAX: usize = 512;

/// Why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// Histograms count from 0 on.
    Negative,
    /// It is not a number.
    NotANumber,
    /// The unit's whole numbers do not reach so far.
    TooLarge,
    /// The name has another kind or cannot be one, or there are too many series.
    NoSeries,
    /// Values of this name were recorded before, in another unit or with another help.
    LateDescription,
}

const REASONS: [&str; 5] =
    ["negative", "not a number", "too large", "no series", "late description"];

/// Counters of one metric.
pub(super) struct Refused {
    metric: Box<str>,
    counters: [Lazy<shm::Counter>; REASONS.len()],
}

impl Refused {
    pub(super) fn new(metric: &str) -> Refused {
        let metric = metric[..metric.floor_char_boundary(METRIC_BYTES_MAX)].into();
        Refused { metric, counters: [const { Lazy::new() }; REASONS.len()] }
    }

    #[cold]
    pub(super) fn count(&self, reason: Reason) {
        self.count_many(reason, 1);
    }

    #[cold]
    pub(super) fn count_many(&self, reason: Reason, n: u64) {
        let counter = self.counters[reason as usize].get(|| {
            let description =
                shm::Description::new(NAME).help(HELP).unit("").role(shm::Role::Error);
            let reason = REASONS[reason as usize];
            description.label("metric", &*self.metric).label("reason", reason).counter()
        });
        if let Ok(counter) = counter {
            counter.add(n);
        }
    }
}
