//! Writes the shop through the intake of a server.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use decode::SeriesSink;
use disk::OsDisk;
use hist::codec::header::Temporality;
use intake::{Intake, PendingAck, Producer, SeriesKeyEncoding};
use model::{SampleValue, Series, SeriesKind};
use synthetic::{MINUTE_NS, Shop, ShopNumbers, ShopStatement};

use crate::alert_history::{evaluate_rules, write_series};
use crate::load_test::{LOAD_TESTS, write_second, write_texts};
use crate::sample_writer::write_sample;

/// Interval of new data.
const INTERVAL_NS: i64 = 10_000_000_000;
const SECOND_NS: i64 = 1_000_000_000;
const DAY_NS: i64 = 24 * 60 * MINUTE_NS;
/// A day in minutes, the days before it in intervals of ten minutes.
const HISTORY: [(i64, i64); 2] = [(7 * DAY_NS, 10 * MINUTE_NS), (DAY_NS, MINUTE_NS)];
/// Time before the incident from which on alerts have a history.
const QUIET_NS: i64 = 30 * MINUTE_NS;
/// What is written.
const REQUESTS: &str = "a week of requests";
const ALERTS: &str = "alerts, as the rules would have fired";
/// Metric of the requests.
const METRIC: &str = "request_duration";

/// What of the history is being written, and the share of it that is done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HistoryProgress {
    /// Noun phrase.
    pub what: &'static str,
    /// 0 to 1.
    pub share: f64,
}

/// Gets the progress of a history.
pub(crate) type ProgressFn<'a> = &'a mut dyn FnMut(HistoryProgress);

/// Writes data of the shop through the intake.
pub struct ShopWriter {
    intake: Arc<Intake>,
    producer: Producer,
    shop: Shop,
    start: i64,
}

impl ShopWriter {
    /// Interval of new data.
    pub const INTERVAL: Duration = Duration::from_nanos(INTERVAL_NS.unsigned_abs());

    /// A shop whose history ends now.
    pub fn new(intake: Arc<Intake>) -> ShopWriter {
        let now = intake.now();
        let start = now - now.rem_euclid(INTERVAL_NS);
        let producer = intake.producer("demo");
        ShopWriter { intake, producer, shop: Shop::new(start), start }
    }

    /// Start and end of the incident, in nanoseconds since the Unix epoch.
    pub fn incident(&self) -> Range<i64> {
        self.shop.incident()
    }

    /// Writes everything up to the start of the demonstration; returns that time too.
    pub fn write_history(
        self,
        directory: &Path,
        progress: ProgressFn<'_>,
    ) -> Result<(ShopWriter, i64)> {
        // Whole minutes first, then the intervals of the current minute.
        let rounded_start = self.start - self.start.rem_euclid(10 * MINUTE_NS);
        let [(week, coarse), (day, fine)] = HISTORY;
        let first = rounded_start - week;
        // A day in minutes takes as long as ten in intervals of ten minutes.
        let work = |at: i64| {
            let coarse_end = rounded_start - day;
            (at.min(coarse_end) - first) / coarse + (at - coarse_end).max(0) / fine
        };
        let total = work(self.start).max(1);
        let mut written = |at: i64| {
            let share = work(at) as f64 / total as f64;
            progress(HistoryProgress { what: REQUESTS, share });
        };
        written(first);
        let mut last = self.write_intervals(first..rounded_start - day, coarse, &mut written)?;
        last =
            self.write_intervals(rounded_start - day..rounded_start, fine, &mut written)?.or(last);
        last = self.write_intervals(rounded_start..self.start, INTERVAL_NS, &mut written)?.or(last);
        self.write_events()?;
        self.write_load_tests(progress)?;
        if let Some(pending_ack) = last {
            pending_ack.wait_durable()?;
        }
        self.write_alerts(directory, progress)?;
        let start = self.start;
        Ok((self, start))
    }

    /// Writes the history of the alerts, from before the incident up to the start: their states as
    /// samples, which the page draws, and the changes of these, which commands list.
    fn write_alerts(&self, directory: &Path, progress: ProgressFn<'_>) -> Result<()> {
        let Some(store) = self.intake.write_target().store() else { return Ok(()) };
        let range = self.shop.incident().start - QUIET_NS..self.start;
        let encoding = SeriesKeyEncoding::CANONICAL;
        let mut batch = self.intake.writer_for(self.producer.id(), encoding);
        let mut evaluated = |share| progress(HistoryProgress { what: ALERTS, share });
        evaluated(0.0);
        let (writes, changes) = evaluate_rules(store, &range, &mut evaluated)?;
        for write in writes {
            let Some(number) = write.value.number() else { continue };
            let at = write.time_ns..write.time_ns;
            write_sample(&mut batch, write_series(&write), &at, SampleValue::Number(number))?;
        }
        self.intake.append(&self.producer, batch)?.wait_durable()?;
        Ok(changes.write(Arc::new(OsDisk), directory)?)
    }

    /// Writes the intervals that have ended since `written_end`.
    pub fn write_until_now(&self, written_end: &mut i64) -> Result<()> {
        let now = self.intake.now();
        // After a pause of the host, the interval is longer.
        let end = now - now.rem_euclid(INTERVAL_NS);
        if end > *written_end {
            self.write_intervals(*written_end..end, INTERVAL_NS, &mut |_| ())?;
            *written_end = end;
        }
        Ok(())
    }

    /// Writes a range in intervals; returns the pending acknowledgement of the last batch.
    /// `written` gets the end of what was written.
    fn write_intervals(
        &self,
        range: Range<i64>,
        length: i64,
        written: &mut dyn FnMut(i64),
    ) -> Result<Option<PendingAck>> {
        let encoding = SeriesKeyEncoding::CANONICAL;
        let new_batch = || self.intake.writer_for(self.producer.id(), encoding);
        let (mut batch, mut last, mut start) = (new_batch(), None, range.start);
        while start < range.end {
            let interval = start..(start + length).min(range.end);
            self.write_interval(&interval, &mut batch)?;
            start = interval.end;
            written(start);
            if batch.is_half_full() || start == range.end {
                let full = std::mem::replace(&mut batch, new_batch());
                last = Some(self.intake.append(&self.producer, full)?);
            }
        }
        Ok(last)
    }

    fn write_interval(&self, interval: &Range<i64>, batch: &mut dyn SeriesSink) -> Result<()> {
        for requests in self.shop.requests(interval) {
            if requests.durations.count() == 0 {
                continue;
            }
            let kind = SeriesKind::Histogram(Temporality::Delta);
            let series = Series::new(METRIC, kind).with_unit("ns");
            let labels = requests.labels.iter();
            let series =
                labels.fold(series, |series, (name, value)| series.with_label(*name, value));
            let value = SampleValue::Histogram(Box::new(requests.durations));
            write_sample(batch, series, interval, value)?;
        }
        // Operations on the network are of the last day: the capture began then.
        if interval.end - interval.start <= MINUTE_NS {
            self.write_statements(interval, batch)?;
        }
        for ShopNumbers { region, orders, queue_depth } in self.shop.numbers(interval) {
            let of = |name, kind| Series::new(name, kind).with_label("region", region);
            let total = of("orders_total", SeriesKind::Counter(Temporality::Delta));
            write_sample(batch, total, interval, SampleValue::Number(orders))?;
            let at = interval.end..interval.end;
            let depth = of("payment_queue_depth", SeriesKind::Gauge);
            write_sample(batch, depth, &at, SampleValue::Number(queue_depth))?;
        }
        Ok(())
    }

    /// Statements of the database, as the role `wire` measures them.
    fn write_statements(&self, interval: &Range<i64>, batch: &mut dyn SeriesSink) -> Result<()> {
        for ShopStatement { verb, statement, durations } in self.shop.statements(interval) {
            if durations.count() == 0 {
                continue;
            }
            let kind = SeriesKind::Histogram(Temporality::Delta);
            let labels = [
                ("host", "db-1"),
                ("service", "ledger"),
                ("protocol", "postgres"),
                ("verb", verb),
                ("statement", statement),
                ("outcome", "ok"),
            ];
            let series = Series::new("wire_latency", kind).with_unit("ns").with_labels(labels);
            write_sample(batch, series, interval, SampleValue::Histogram(Box::new(durations)))?;
        }
        Ok(())
    }

    /// Load tests of both versions of `payment`, as `topdeck load --push` sends them.
    fn write_load_tests(&self, progress: ProgressFn<'_>) -> Result<()> {
        let encoding = SeriesKeyEncoding::CANONICAL;
        for (at, test) in LOAD_TESTS.iter().enumerate() {
            let share = at as f64 / LOAD_TESTS.len() as f64;
            progress(HistoryProgress { what: "load tests", share });
            let mut batch = self.intake.writer_for(self.producer.id(), encoding);
            let range = test.range(&self.shop);
            for start in range.clone().step_by(SECOND_NS as usize) {
                let second = start..start + SECOND_NS;
                let durations = self.shop.load_test(test.is_failing, &second);
                write_second(&mut batch, test, &second, &durations)?;
            }
            write_texts(&mut batch, test, range.end)?;
            self.intake.append(&self.producer, batch)?.wait_durable()?;
        }
        Ok(())
    }

    /// Deployment and rollback as annotations, and the version as a text.
    fn write_events(&self) -> Result<()> {
        let incident = self.shop.incident();
        let encoding = SeriesKeyEncoding::CANONICAL;
        let mut batch = self.intake.writer_for(self.producer.id(), encoding);
        let events = [
            (incident.start, "deployed payment 3.8.0 on pay-2"),
            (incident.end, "rolled back payment to 3.7.2 on pay-2"),
        ];
        for (at, text) in events {
            let series = Series::new(api::ANNOTATION_METRIC, SeriesKind::Text)
                .with_label("host", "pay-2")
                .with_label("service", "payment");
            write_sample(&mut batch, series, &(at..at), SampleValue::Text(text.to_owned()))?;
        }
        for at in [incident.start - DAY_NS, incident.start, incident.end] {
            let version = self.shop.payment_version(at).to_owned();
            let series = Series::new("payment_version", SeriesKind::Text)
                .with_label("host", "pay-2")
                .with_label("region", "eu");
            write_sample(&mut batch, series, &(at..at), SampleValue::Text(version))?;
        }
        Ok(self.intake.append(&self.producer, batch)?.wait_durable()?)
    }
}
