//! Write path: batches are appended to the journal before the sender is acknowledged.
//!
//! A source fills an [`IngestWriter`] with rows and passes it to [`Intake::append`]. It gets a
//! [`PendingAck`]: the batch is in the journal, and [`PendingAck::wait_durable`] or
//! [`PendingAck::until_durable`] return when it has reached the configured durability level.
//! Concurrent senders share one sync (group commit). A batch has an identity, its own or a
//! generated one, so that a duplicate is counted once. Each producer has an entry in the ledger.
#![forbid(unsafe_code)]

mod counts;

mod ledger;
mod ledger_file;
mod ledger_reader;

mod absence_monitor;
mod error;
mod exemplar_intake;
mod group_commit;
mod housekeeping;
mod ingest_writer;
mod intake;
mod intake_state;
mod key_encoding;
mod known_keys;
mod last_sequences;
mod meter;
mod metric_descriptions;
mod producer;
mod recent_batches;
mod rejected_input;
mod rejections;
mod restartable;
mod self_metrics;
mod series_cache;
mod settings;
mod space_monitor;
mod span_bytes;
mod span_intake;
mod span_ranks;
mod trace_buffer;
mod unit_conflict;
mod volatile_sources;
mod write_target;

mod acknowledged_damage;
mod audit;
mod batch_outcomes;

pub use absence_monitor::{AbsenceSettings, SourceActivity, SourceState};
pub use audit::{Audit, DownstreamStage, ProducerAudit, SourceCounts, StageAudit};
pub use counts::{Loss, ProducerCounts};
pub use error::{Error, Result};
pub use exemplar_intake::ExemplarPolicy;
pub use group_commit::PendingAck;
pub use ingest_writer::IngestWriter;
pub use intake::{
    Intake, JOURNAL_SEQUENCE_JUMP_MAX, SEQUENCE_JUMP_MAX, UNAUTHENTICATED_SEQUENCE_JUMP_MAX,
};
pub use journal::log::{LogFn, LogLevel};
pub use journal::supervisor::{
    DamageAcknowledgement, DamageReport, QuarantinedInput, SupervisedThread, Supervisor,
    ThreadStatus, panic_message,
};
pub use key_encoding::SeriesKeyEncoding;
pub use known_keys::ProducerKey;
pub use ledger::{CountedRecord, Ledger, LedgerEntry, PRODUCERS_MAX};
pub use ledger_file::{LedgerFile, LedgerLoad, VERSION as LEDGER_VERSION};
pub use meter::{EventCounter, LatencyHistogram, Meter, MetricSnapshot, SnapshotValue};
pub use producer::Producer;
pub use rejected_input::{RejectedInput, SourceProblem};
pub use restartable::{Restartable, catch_panic_async, keep_running};
pub use settings::Settings;
pub use trace_buffer::{TraceFate, TracePolicy};
pub use unit_conflict::UnitConflict;
pub use write_target::WriteTarget;
