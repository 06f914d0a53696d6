//! What the attempts of a job write, on its way into the journal. What is not taken, and attempts that were not made,
//! are gaps in what is taken next.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use collect::Rows;
use intake::{Counter, Intake, Producer, Way, Writer};
use model::{Gap, Sample, Series};

/// A batch that has so many bytes gets no more series: a page may be larger than what is taken at once.
const BATCH_BYTES: usize = 4 << 20;

/// What became of attempts, counted; and what has to be said of those of which nothing is stored.
#[derive(Debug)]
pub(crate) struct Ledger {
    intake: Arc<Intake>,
    producer: Producer,
    job: String,
    /// Attempts that went well.
    pub(crate) well: Counter,
    /// Attempts that failed, and are stored as that.
    pub(crate) failed: Counter,
    /// Attempts that were made, and there was no room for what they found.
    pub(crate) untaken: Counter,
    missed: Counter,
    gaps: Mutex<Gaps>,
}

/// What the next batch has to tell.
#[derive(Debug, Default)]
struct Gaps {
    missed: Option<Gap>,
    untaken: Option<Gap>,
}

impl Ledger {
    pub(crate) fn new(intake: &Arc<Intake>, kind: &str, name: &str) -> Ledger {
        let counter = |outcome| {
            intake.meter().counter(
                "topdeck_pull_attempts_total",
                "scrapes and checks by outcome; missed were not made, untaken were made and could not be stored",
                &[("kind", kind), ("job", name), ("outcome", outcome)],
            )
        };
        Ledger {
            producer: intake.producer(&format!("{kind} {name}")),
            job: format!("{kind} {name:?}"),
            well: counter("well"),
            failed: counter("failed"),
            missed: counter("missed"),
            untaken: counter("untaken"),
            gaps: Mutex::default(),
            intake: Arc::clone(intake),
        }
    }

    pub(crate) fn now(&self) -> i64 {
        self.intake.now()
    }

    pub(crate) fn batches(&self) -> Batches<'_> {
        let (intake, producer) = (&*self.intake, self.producer.id());
        let last = intake.writer_of(producer, Way::Form);
        Batches { intake, producer, full: Vec::new(), last }
    }

    fn gaps(&self) -> MutexGuard<'_, Gaps> {
        self.gaps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands over what an attempt at `at` has written. Nobody waits until it is durable: nobody was told that it is.
    /// What is not taken will be a gap.
    pub(crate) fn take(&self, batches: Batches<'_>, at: i64) -> intake::Result<()> {
        let mut writers = batches.full;
        writers.push(batches.last);
        let mut gaps = self.gaps();
        for gap in [&gaps.missed, &gaps.untaken].into_iter().flatten() {
            writers[0].gap(gap.clone());
        }
        let values: Vec<(u64, u64)> = writers.iter().map(|w| (w.samples(), w.values())).collect();
        self.producer.received(values.iter().map(|of| of.1).sum());
        for (place, writer) in writers.into_iter().enumerate() {
            match self.intake.take(&self.producer, writer) {
                Ok(_) => *gaps = Gaps::default(),
                Err(error) => {
                    let left = &values[place..];
                    let lost = left.iter().map(|of| of.0).sum();
                    self.producer.dropped(left.iter().map(|of| of.1).sum(), "not taken");
                    let reason = format!("of {} something was not taken: {error}", self.job);
                    self.widen(&mut gaps.untaken, (at, at.saturating_add(1)), lost, reason);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Attempts that were to begin in a stretch of time and were not made, or were cut off.
    pub(crate) fn miss(&self, attempts: u64, stretch: (i64, i64), why: &str) {
        self.missed.add(attempts);
        let reason = format!("attempts of {} were not made or not ended: {why}", self.job);
        self.widen(&mut self.gaps().missed, stretch, attempts, reason);
    }

    /// The gap and one more loss in one, with the later reason.
    fn widen(&self, gap: &mut Option<Gap>, stretch: (i64, i64), lost: u64, reason: String) {
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

    /// Tells what nothing more will be taken behind.
    pub(crate) fn close(&self) {
        let is_empty = {
            let gaps = self.gaps();
            gaps.missed.is_none() && gaps.untaken.is_none()
        };
        if !is_empty {
            // Where the journal takes nothing now, the counters of this process are all that is left.
            let _ = self.take(self.batches(), self.now());
        }
    }
}

/// Rows of one attempt, in as many batches as it takes.
pub(crate) struct Batches<'a> {
    intake: &'a Intake,
    producer: u64,
    full: Vec<Writer>,
    last: Writer,
}

impl Rows for Batches<'_> {
    fn series(
        &mut self,
        key: &[u8],
        series: &mut dyn FnMut() -> model::Result<Series>,
    ) -> model::Result<()> {
        if self.last.bytes() >= BATCH_BYTES {
            let next = self.intake.writer_of(self.producer, Way::Form);
            self.full.push(std::mem::replace(&mut self.last, next));
        }
        self.last.series(key, series)
    }

    fn sample(&mut self, sample: &Sample) -> model::Result<()> {
        self.last.sample(sample)
    }

    fn gap(&mut self, gap: Gap) {
        self.last.gap(gap);
    }
}
