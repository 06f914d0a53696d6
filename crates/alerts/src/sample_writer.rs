//! Samples of rules on the ordinary write path: `ALERTS`, `ALERTS_FOR_STATE`, recorded series.

use std::sync::{Arc, OnceLock};

use decode::SeriesSink as _;
use intake::{Intake, Producer, SeriesKeyEncoding};
use model::{Sample, SampleValue, Series, SeriesKind};
use query::NAME;
use rules::RuleWrite;

/// Name of the producer in the ledger.
pub(crate) const RULES_PRODUCER: &str = "rules";

/// Writer of the samples of rules.
pub(crate) struct SampleWriter {
    intake: Arc<Intake>,
    /// Set by the first sample: a node without rules has no such source.
    producer: OnceLock<Producer>,
}

/// What an iteration stored.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct WriteOutcome {
    pub(crate) stored: u64,
    /// Samples that were not stored, and the first cause.
    pub(crate) dropped: u64,
    pub(crate) cause: Option<String>,
}

impl SampleWriter {
    pub(crate) fn new(intake: Arc<Intake>) -> SampleWriter {
        SampleWriter { intake, producer: OnceLock::new() }
    }

    fn producer(&self) -> &Producer {
        self.producer.get_or_init(|| {
            let producer = self.intake.producer(RULES_PRODUCER);
            // Rules may have nothing to write for hours.
            producer.disable_absence_monitor();
            producer
        })
    }

    /// Appends the samples of an iteration as one batch, and waits until it is durable.
    pub(crate) fn write(&self, writes: &[RuleWrite]) -> WriteOutcome {
        let mut outcome = WriteOutcome::default();
        if writes.is_empty() {
            return outcome;
        }
        let encoding = SeriesKeyEncoding::CANONICAL;
        let mut writer = self.intake.writer_for(self.producer().id(), encoding);
        for write in writes {
            let Some(value) = write.value.number() else {
                outcome.drop(1, "a recorded histogram cannot be stored");
                continue;
            };
            let series = write.labels.iter().filter(|(name, _)| *name != NAME).fold(
                Series::new(write.labels.name(), SeriesKind::Gauge),
                |series, (name, value)| series.with_label(name, value),
            );
            let sample = Sample {
                start: write.time_ns,
                end: write.time_ns,
                value: SampleValue::Number(value),
            };
            let added = series.validate().and_then(|series| {
                writer.series(&series.canonical_key(), &mut || Ok(series.clone()))?;
                writer.sample(&sample)
            });
            match added {
                Ok(()) => outcome.stored += 1,
                Err(error) => outcome.drop(1, &error.to_string()),
            }
        }
        if writer.is_empty() {
            return outcome;
        }
        let appended = self.intake.append(self.producer(), writer);
        if let Err(error) = appended.and_then(|pending_ack| pending_ack.wait_durable()) {
            let lost = std::mem::take(&mut outcome.stored);
            outcome.drop(lost, &error.to_string());
        }
        outcome
    }
}

impl WriteOutcome {
    fn drop(&mut self, samples: u64, cause: &str) {
        self.dropped += samples;
        self.cause.get_or_insert_with(|| cause.to_owned());
    }
}
