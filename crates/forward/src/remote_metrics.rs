//! Metrics of a remote.

use std::sync::Arc;

use intake::{EventCounter, Intake, LatencyHistogram};

use crate::encoded_request::{EntryKind, RequestEntry};
use crate::status::StatusCell;

/// Metrics of one remote.
#[derive(Clone, Debug)]
pub(crate) struct RemoteMetrics {
    pub(crate) sent: EventCounter,
    acknowledged: EventCounter,
    samples: EventCounter,
    dead_lettered: EventCounter,
    missing: EventCounter,
    pub(crate) retries: EventCounter,
    pub(crate) bytes: EventCounter,
    pub(crate) request_duration: LatencyHistogram,
}

impl RemoteMetrics {
    /// Counts acknowledged entries.
    pub(crate) fn record_acknowledged(&self, entry: &RequestEntry) {
        let records = match entry.kind {
            EntryKind::Batch => &self.acknowledged,
            EntryKind::Gap => &self.missing,
            EntryKind::DeadLettered => &self.dead_lettered,
        };
        records.add(entry.records);
        self.samples.add(entry.samples);
    }

    pub(crate) fn new(intake: &Arc<Intake>, remote: &str, status: &StatusCell) -> RemoteMetrics {
        let meter = intake.meter();
        let labels = &[("remote", remote)];
        let records = |outcome| {
            meter.counter(
                "topdeck_forward_records_total",
                "records forwarded to a remote, by outcome; sent counts each transmission of a \
                 batch",
                &[("remote", remote), ("outcome", outcome)],
            )
        };
        // A weak reference: the intake owns the meter, so the meter must not keep the intake alive.
        let (status, weak) = (status.clone(), Arc::downgrade(intake));
        meter.gauge(
            "topdeck_forward_lag_records",
            "records not acknowledged by a remote",
            labels,
            move || {
                weak.upgrade().map_or(0.0, |intake| {
                    status.snapshot(intake.write_target().journal()).lag as f64
                })
            },
        );
        RemoteMetrics {
            sent: records("sent"),
            acknowledged: records("acknowledged"),
            dead_lettered: records("dead_lettered"),
            missing: records("missing"),
            samples: meter.counter(
                "topdeck_forward_samples_total",
                "samples acknowledged by a remote",
                labels,
            ),
            retries: meter.counter(
                "topdeck_forward_retries_total",
                "requests to a remote that failed in whole or in part and were retried",
                labels,
            ),
            bytes: meter.counter(
                "topdeck_forward_bytes_total",
                "compressed bytes sent to a remote, retries included",
                labels,
            ),
            request_duration: meter.histogram(
                "topdeck_forward_request_duration",
                "time from sending a request to its durable acknowledgement",
                labels,
            ),
        }
    }
}
