//! Input of a sender that a decoder rejects: counted per source, with the text of the last problem,
//! and logged when a source begins and ends to send such input, not per request.
//!
//! Samples beyond a limit of series are not here: they are in `rejections.rs`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use journal::log::LogLevel;

use crate::meter::Meter;
use crate::producer::Producer;

/// Time without rejected input after which a source is healthy again.
const QUIET_NS: i64 = 5 * 60 * 1_000_000_000;
/// Maximum length of the text of a problem, in characters.
const TEXT_CHARS_MAX: usize = 500;
/// Reason of dropped values in the audit.
const DROP_REASON: &str = "rejected: invalid samples";
const COUNTER: &str = "topdeck_ingest_rejected_total";

/// Input that was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RejectedInput {
    /// Samples of a request whose other samples are stored.
    Samples(u64),
    /// A request of which nothing is stored.
    Request,
}

/// The last problem with the input of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceProblem {
    /// When, in nanoseconds since the Unix epoch.
    pub time: i64,
    /// What was wrong, as the sender was told.
    pub text: String,
}

/// Rejected input of all sources since the start of the process.
#[derive(Debug, Default)]
pub(crate) struct RejectedInputs {
    /// By the number of the producer.
    sources: Mutex<BTreeMap<u64, RejectedSource>>,
}

#[derive(Debug)]
struct RejectedSource {
    name: String,
    problem: SourceProblem,
    /// Input rejected since the source was healthy; `None` if it is healthy.
    rejected: Option<RejectedCounts>,
}

#[derive(Clone, Copy, Debug, Default)]
struct RejectedCounts {
    samples: u64,
    requests: u64,
}

impl RejectedCounts {
    fn text(self) -> String {
        let part = |n: u64, name: &str| {
            let end = if n == 1 { "" } else { "s" };
            (n > 0).then(|| format!("{n} {name}{end}"))
        };
        let parts = [part(self.samples, "sample"), part(self.requests, "request")];
        parts.into_iter().flatten().collect::<Vec<_>>().join(" and ")
    }
}

impl RejectedInputs {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, RejectedSource>> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts rejected input. Returns a log line if the source was healthy before.
    pub(crate) fn add(
        &self,
        producer: &Producer,
        input: RejectedInput,
        text: &str,
        (now, meter): (i64, &Arc<Meter>),
    ) -> Option<(LogLevel, String)> {
        let (reason, n) = match input {
            RejectedInput::Samples(n) => ("sample", n),
            RejectedInput::Request => ("request", 1),
        };
        let about = "Samples that a decoder rejected, and requests of which nothing is stored \
                     because they are invalid, by sender";
        let labels = [("source", producer.name()), ("reason", reason)];
        meter.counter(COUNTER, about, &labels).add(n);
        if let RejectedInput::Samples(n) = input {
            producer.add_dropped(n, DROP_REASON);
        }
        let text = text.chars().take(TEXT_CHARS_MAX);
        let text: String = text.map(|c| if c.is_control() { ' ' } else { c }).collect();
        let problem = SourceProblem { time: now, text };
        let mut sources = self.lock();
        let source = sources.entry(producer.id()).or_insert_with(|| RejectedSource {
            name: producer.name().to_owned(),
            problem: problem.clone(),
            rejected: None,
        });
        source.problem = problem;
        let is_new = source.rejected.is_none();
        let rejected = source.rejected.get_or_insert_default();
        match input {
            RejectedInput::Samples(n) => rejected.samples = rejected.samples.saturating_add(n),
            RejectedInput::Request => rejected.requests = rejected.requests.saturating_add(1),
        }
        let line = || {
            format!(
                "input of {:?} rejected: {}; {COUNTER} counts it, `topdeck audit` has the last \
                 problem",
                source.name, source.problem.text
            )
        };
        is_new.then(|| (LogLevel::Warn, line()))
    }

    /// Log lines of the sources that are healthy again.
    pub(crate) fn check(&self, now: i64) -> Vec<(LogLevel, String)> {
        let mut lines = Vec::new();
        for source in self.lock().values_mut() {
            let is_quiet = now.saturating_sub(source.problem.time) >= QUIET_NS;
            let Some(rejected) = source.rejected.take_if(|_| is_quiet) else { continue };
            lines.push((
                LogLevel::Info,
                format!(
                    "input of {:?} accepted for {} min: {} rejected before",
                    source.name,
                    Duration::from_nanos(QUIET_NS.unsigned_abs()).as_secs() / 60,
                    rejected.text()
                ),
            ));
        }
        lines
    }

    /// The last problem of a producer.
    pub(crate) fn problem(&self, producer: u64) -> Option<SourceProblem> {
        self.lock().get(&producer).map(|source| source.problem.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sender had no trace of its rejected points; a line per request would fill the log.
    #[test]
    fn a_source_is_logged_when_it_begins_and_ends_to_send_invalid_input() {
        let (inputs, meter) = (RejectedInputs::default(), Arc::<Meter>::default());
        let producer = Producer::new("otlp", 7);
        let add = |input, text: &str, now| inputs.add(&producer, input, text, (now, &meter));
        let (_, line) = add(RejectedInput::Samples(2), "metric \"a\":\nno temporality", 1).unwrap();
        assert!(line.starts_with("input of \"otlp\" rejected: metric \"a\": no temp"), "{line}");
        assert_eq!(add(RejectedInput::Samples(1), "metric \"b\"", 2), None);
        assert_eq!(add(RejectedInput::Request, "truncated", 3), None);
        let problem = SourceProblem { time: 3, text: "truncated".to_owned() };
        assert_eq!(inputs.problem(7), Some(problem.clone()));
        assert_eq!(inputs.problem(8), None);
        assert!(inputs.check(QUIET_NS + 2).is_empty());
        let expected = "input of \"otlp\" accepted for 5 min: 3 samples and 1 request rejected \
                        before";
        assert_eq!(inputs.check(QUIET_NS + 3), [(LogLevel::Info, expected.to_owned())]);
        assert!(inputs.check(QUIET_NS + 4).is_empty());
        assert_eq!(inputs.problem(7), Some(problem));
        assert!(add(RejectedInput::Request, "again", QUIET_NS + 5).is_some());
        let count = |reason| meter.counter(COUNTER, "", &[("source", "otlp"), ("reason", reason)]);
        assert_eq!((count("sample").get(), count("request").get()), (3, 2));
        assert_eq!(producer.counts().1, [(DROP_REASON.to_owned(), 3)]);
    }
}
