//! Attempt log: stores results of a job; skipped and not stored attempts become gaps.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use decode::{ExemplarProblem, SeriesSink};
use intake::{EventCounter, IngestWriter, Intake, Producer, SeriesKeyEncoding, Supervisor};
use model::{Exemplar, Gap, Sample, Series};

use crate::target_state::TargetState;

/// A batch that has reached this size gets no further series: a scrape may exceed the size limit of
/// one write.
const BATCH_BYTES: usize = 4 << 20;

/// Outcome counters of a job and its pending gaps.
#[derive(Debug)]
pub(crate) struct AttemptLog {
    intake: Arc<Intake>,
    producer: Producer,
    job: String,
    /// Successful attempts.
    pub(crate) success: EventCounter,
    /// Failed attempts, stored as failed.
    pub(crate) failed: EventCounter,
    /// Completed attempts whose result could not be stored.
    pub(crate) not_stored: EventCounter,
    skipped: EventCounter,
    pending_gaps: Mutex<PendingGaps>,
}

/// Gaps to report with the next batch.
#[derive(Debug, Default)]
struct PendingGaps {
    skipped: Option<Gap>,
    not_stored: Option<Gap>,
}

impl AttemptLog {
    pub(crate) fn new(intake: &Arc<Intake>, kind: &str, name: &str) -> AttemptLog {
        let counter = |outcome| {
            intake.meter().counter(
                "topdeck_pull_attempts_total",
                "scrapes and checks, by outcome: success, failed, skipped (not started, or \
                 interrupted by a stop), not_stored (result lost)",
                &[("kind", kind), ("job", name), ("outcome", outcome)],
            )
        };
        AttemptLog {
            producer: intake.producer(&format!("{kind} {name}")),
            job: format!("{kind} {name:?}"),
            success: counter("success"),
            failed: counter("failed"),
            skipped: counter("skipped"),
            not_stored: counter("not_stored"),
            pending_gaps: Mutex::default(),
            intake: Arc::clone(intake),
        }
    }

    pub(crate) fn supervisor(&self) -> &Supervisor {
        self.intake.supervisor()
    }

    pub(crate) fn now(&self) -> i64 {
        self.intake.now()
    }

    /// Records the outcome of an attempt, and logs a change of the target's state.
    pub(crate) fn record_target(
        &self,
        target: &TargetState,
        at: i64,
        took: Duration,
        outcome: Result<u64, String>,
    ) {
        if let Some((level, line)) = target.record(at, took, outcome) {
            (self.intake.settings().log)(level, &line);
        }
    }

    /// The job was removed: its source is not absent.
    pub(crate) fn retire(&self) {
        self.intake.retire_source(&self.producer);
    }

    pub(crate) fn batches(&self) -> AttemptBatches<'_> {
        let (intake, producer) = (&*self.intake, self.producer.id());
        let last = intake.writer_for(producer, SeriesKeyEncoding::CANONICAL);
        AttemptBatches { intake, producer, full: Vec::new(), current: last }
    }

    fn lock_gaps(&self) -> MutexGuard<'_, PendingGaps> {
        self.pending_gaps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends the rows of an attempt at `at`, without waiting for durability, because no sender
    /// waits for a response. A failed append becomes a gap.
    pub(crate) fn append(&self, batches: AttemptBatches<'_>, at: i64) -> intake::Result<()> {
        let mut writers = batches.full;
        writers.push(batches.current);
        let mut gaps = self.lock_gaps();
        for gap in [&gaps.skipped, &gaps.not_stored].into_iter().flatten() {
            writers[0].gap(gap.clone());
        }
        let values: Vec<(u64, u64)> = writers.iter().map(|w| (w.samples(), w.values())).collect();
        self.producer.add_received(values.iter().map(|of| of.1).sum());
        for (index, writer) in writers.into_iter().enumerate() {
            match self.intake.append(&self.producer, writer) {
                Ok(_) => *gaps = PendingGaps::default(),
                Err(error) => {
                    let remaining = &values[index..];
                    let lost = remaining.iter().map(|of| of.0).sum();
                    self.producer.add_dropped(remaining.iter().map(|of| of.1).sum(), "not stored");
                    let reason = format!("result of {} not stored: {error}", self.job);
                    self.merge_gap(&mut gaps.not_stored, (at, at.saturating_add(1)), lost, reason);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Records attempts scheduled in an interval that were not started or were interrupted.
    pub(crate) fn record_skipped(&self, attempts: u64, stretch: (i64, i64), cause: &str) {
        self.skipped.add(attempts);
        let reason = format!("attempts of {} skipped or interrupted: {cause}", self.job);
        self.merge_gap(&mut self.lock_gaps().skipped, stretch, attempts, reason);
    }

    /// Merges one more loss into the gap, with the later reason.
    fn merge_gap(&self, gap: &mut Option<Gap>, stretch: (i64, i64), lost: u64, reason: String) {
        let (start, end) = stretch;
        let before = gap.take();
        let of = |of: fn(&Gap) -> i64, default| before.as_ref().map_or(default, of);
        *gap = Some(Gap {
            start: start.min(of(|gap| gap.start, start)),
            end: end.max(of(|gap| gap.end, end)),
            producer: Some(self.producer.id()),
            lost: Some(before.as_ref().and_then(|gap| gap.lost).unwrap_or(0).saturating_add(lost)),
            reason,
        });
    }

    /// Writes the pending gaps when no batch follows.
    pub(crate) fn write_gaps(&self) {
        let is_empty = {
            let gaps = self.lock_gaps();
            gaps.skipped.is_none() && gaps.not_stored.is_none()
        };
        if !is_empty {
            // If the journal is full now, only the counters of this process record the loss.
            let _ = self.append(self.batches(), self.now());
        }
    }
}

/// Rows of one attempt, split into batches.
pub(crate) struct AttemptBatches<'a> {
    intake: &'a Intake,
    producer: u64,
    full: Vec<IngestWriter>,
    current: IngestWriter,
}

impl SeriesSink for AttemptBatches<'_> {
    fn series(
        &mut self,
        key: &[u8],
        series: &mut dyn FnMut() -> model::Result<Series>,
    ) -> model::Result<()> {
        if self.current.bytes() >= BATCH_BYTES {
            let next = self.intake.writer_for(self.producer, SeriesKeyEncoding::CANONICAL);
            self.full.push(std::mem::replace(&mut self.current, next));
        }
        self.current.series(key, series)
    }

    fn sample(&mut self, sample: &Sample) -> model::Result<()> {
        self.current.sample(sample)
    }

    fn gap(&mut self, gap: Gap) {
        self.current.gap(gap);
    }

    fn description(&mut self, metric: &str, text: &str) {
        self.current.description(metric, text);
    }

    fn exemplar(
        &mut self,
        key: &[u8],
        series: &mut dyn FnMut() -> model::Result<Series>,
        exemplar: &Exemplar,
    ) -> bool {
        self.current.exemplar(key, series, exemplar)
    }

    fn exemplar_problem(&mut self, problem: ExemplarProblem) {
        self.current.exemplar_problem(problem);
    }
}
