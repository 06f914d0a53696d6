//! What is counted of a site.

use std::sync::Arc;

use intake::{Counter, Intake, Timer};

use crate::load::{Fate, Part};
use crate::status::Board;

/// Counters and times of one site.
#[derive(Clone, Debug)]
pub(crate) struct Measure {
    pub(crate) sent: Counter,
    acknowledged: Counter,
    samples: Counter,
    set_aside: Counter,
    missing: Counter,
    pub(crate) retries: Counter,
    pub(crate) bytes: Counter,
    pub(crate) answering: Timer,
}

impl Measure {
    /// The site has it.
    pub(crate) fn done(&self, part: &Part) {
        let records = match part.fate {
            Fate::Sent => &self.acknowledged,
            Fate::Missing => &self.missing,
            Fate::SetAside => &self.set_aside,
        };
        records.add(part.records);
        self.samples.add(part.samples);
    }

    pub(crate) fn new(intake: &Arc<Intake>, site: &str, board: &Board) -> Measure {
        let meter = intake.meter();
        let labels = &[("site", site)];
        let records = |outcome| {
            meter.counter(
                "topdeck_forward_records_total",
                "records for another site, by what became of them; sent counts batches, each time they go out",
                &[("site", site), ("outcome", outcome)],
            )
        };
        // The meter is the intake's own: it must not hold it.
        let (board, weak) = (board.clone(), Arc::downgrade(intake));
        meter.gauge(
            "topdeck_forward_lag",
            "records that another site does not have yet",
            labels,
            move || {
                weak.upgrade().map_or(0.0, |intake| board.now(intake.home().journal()).lag as f64)
            },
        );
        Measure {
            sent: records("sent"),
            acknowledged: records("acknowledged"),
            set_aside: records("set_aside"),
            missing: records("missing"),
            samples: meter.counter(
                "topdeck_forward_samples_total",
                "samples that another site has acknowledged",
                labels,
            ),
            retries: meter.counter(
                "topdeck_forward_retries_total",
                "requests to another site that failed, in whole or in part, and were made again",
                labels,
            ),
            bytes: meter.counter(
                "topdeck_forward_bytes_total",
                "compressed bytes sent to another site, with what was sent again",
                labels,
            ),
            answering: meter.timer(
                "topdeck_forward_acknowledgement",
                "from sending a parcel until the other site says that it is durable there",
                labels,
            ),
        }
    }
}
