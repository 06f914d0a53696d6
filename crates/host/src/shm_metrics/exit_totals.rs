//! Sums of the final values of exited processes that hold no generation.
//!
//! Counters and distributions are added up, as deltas of the interval since the previous sum.
//! Gauges and texts of a process that has exited cannot be added up, and are left out.

use std::collections::BTreeMap;

use hist::Accumulator;
use hist::codec::header::Temporality;
use intake::IngestWriter;
use model::{Sample, SampleValue, SeriesKind};
use shm::snapshot::{MetricValue, ProcessSeries};

use crate::shm_metrics::generation_table::{ProgramName, SeriesShare};
use crate::shm_metrics::rows::{self, MetricDescriptor};
use crate::shm_metrics::tracked_process::{self, BEATS, END, ENDED, STARTED, prepend_label};

/// Number of processes added to a sum.
const SUMMED: &str = "process_summed_total";

#[derive(Debug)]
enum SumValue {
    Count(f64),
    Distribution(Box<Accumulator>),
    Text(String),
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SumKey {
    program: ProgramName,
    share: SeriesShare,
    name: String,
    unit: String,
    labels: Vec<(String, String)>,
}

/// Sums of one batch.
#[derive(Debug, Default)]
pub(crate) struct ExitTotals {
    values: BTreeMap<SumKey, SumValue>,
    /// Start of the rows of each program's sums.
    starts: BTreeMap<(ProgramName, SeriesShare), i64>,
    /// Values that could not be added.
    pub(crate) rejected: u64,
}

impl ExitTotals {
    /// Adds the final values of a process. `start` is the start of its counters, or the end of the
    /// last row of the sum if that is later; `exit` is how it ended.
    pub(crate) fn add(
        &mut self,
        program: &ProgramName,
        share: SeriesShare,
        start: i64,
        metrics: Vec<ProcessSeries>,
        exit: Option<String>,
    ) {
        let first = self.starts.entry((program.clone(), share)).or_insert(start);
        *first = start.min(*first);
        let key = |name: String, unit: String, labels| SumKey {
            program: program.clone(),
            share,
            name,
            unit,
            labels,
        };
        self.count(key(SUMMED.to_owned(), String::new(), Vec::new()), 1.0);
        if let Some(exit) = exit {
            let key = key(END.to_owned(), String::new(), Vec::new());
            self.values.insert(key, SumValue::Text(exit));
        }
        for ProcessSeries { name, labels, unit, value, .. } in metrics {
            match value {
                MetricValue::Counter(number) => {
                    self.count(key(name, unit, labels), number.as_float());
                }
                MetricValue::Histogram(histogram) => {
                    self.distribution(key(name, unit, labels), &histogram);
                }
                MetricValue::InFlight(found) => {
                    let labels = prepend_label(&labels, "operation", &name);
                    for (name, count) in [(STARTED, found.started), (ENDED, found.ended)] {
                        let key = key(name.to_owned(), String::new(), labels.clone());
                        self.count(key, count as f64);
                    }
                }
                MetricValue::Heartbeat(beat) => {
                    let labels = prepend_label(&labels, "heartbeat", &name);
                    self.count(key(BEATS.to_owned(), String::new(), labels), beat.beats as f64);
                }
                _ => {}
            }
        }
    }

    fn count(&mut self, key: SumKey, more: f64) {
        match self.values.entry(key).or_insert(SumValue::Count(0.0)) {
            SumValue::Count(sum) => *sum += more,
            _ => self.rejected += 1,
        }
    }

    fn distribution(&mut self, key: SumKey, histogram: &hist::Histogram) {
        let empty =
            || SumValue::Distribution(Box::new(Accumulator::new(histogram.scheme().clone())));
        let is_added = match self.values.entry(key).or_insert_with(empty) {
            SumValue::Distribution(sum) => sum.add(histogram).is_ok(),
            _ => false,
        };
        self.rejected += u64::from(!is_added);
    }

    /// Writes a row for each sum that is not zero.
    pub(crate) fn write(&mut self, host: &str, end: i64, writer: &mut IngestWriter) {
        let mut key_buffer = Vec::new();
        for (key, value) in &self.values {
            let (kind, value) = match value {
                SumValue::Count(0.0) => continue,
                SumValue::Count(sum) => {
                    (SeriesKind::Counter(Temporality::Delta), SampleValue::Number(*sum))
                }
                SumValue::Distribution(sum) => {
                    let sum = sum.to_histogram();
                    if sum.is_empty() {
                        continue;
                    }
                    let kind = SeriesKind::Histogram(Temporality::Delta);
                    (kind, SampleValue::Histogram(Box::new(sum)))
                }
                SumValue::Text(text) => (SeriesKind::Text, SampleValue::Text(text.clone())),
            };
            let start = match kind {
                SeriesKind::Text => end,
                _ => self.starts[&(key.program.clone(), key.share)].min(end.saturating_sub(1)),
            };
            let labels = tracked_process::labels(&key.program, key.share);
            let metric = MetricDescriptor { name: &key.name, unit: &key.unit, labels: &key.labels };
            let labels = rows::labels(host, &labels, metric.labels);
            let sample = Sample { start, end, value };
            let written = rows::write_row(writer, &mut key_buffer, kind, &metric, &labels, &sample);
            self.rejected += u64::from(written.is_err());
        }
    }
}
