//! Load tests of the demonstration: what two runs of `topdeck load --push` would have stored.

use std::ops::Range;

use anyhow::Result;
use decode::SeriesSink;
use hist::Histogram;
use hist::codec::header::Temporality;
use model::{SampleValue, Series, SeriesKind};
use synthetic::{MINUTE_NS, Shop};

use crate::sample_writer::write_sample;

/// A load test, which took two minutes.
pub(crate) struct LoadTest {
    run: &'static str,
    /// Whether it is of the version that failed.
    pub(crate) is_failing: bool,
    /// Time from the rollback to its start, in minutes.
    after_rollback_min: i64,
}

/// Of the version that failed, and of the one before it.
pub(crate) const LOAD_TESTS: [LoadTest; 2] = [
    LoadTest { run: "payment 3.8.0", is_failing: true, after_rollback_min: 40 },
    LoadTest { run: "payment 3.7.2", is_failing: false, after_rollback_min: 50 },
];

impl LoadTest {
    pub(crate) fn range(&self, shop: &Shop) -> Range<i64> {
        let start = shop.incident().end + self.after_rollback_min * MINUTE_NS;
        start..start + 2 * MINUTE_NS
    }

    fn series(&self, name: &str, kind: SeriesKind) -> Series {
        Series::new(name, kind)
            .with_label("run", self.run)
            .with_label("target", "http://pay-2:8080/pay")
            .with_label("protocol", "http")
    }
}

/// A second of a run: no request failed or was sent late.
pub(crate) fn write_second(
    batch: &mut dyn SeriesSink,
    test: &LoadTest,
    second: &Range<i64>,
    durations: &Histogram,
) -> Result<()> {
    let distribution = SeriesKind::Histogram(Temporality::Delta);
    // Each request was sent at its time.
    let mut queue_times = Histogram::default();
    queue_times.record_n(0.0, durations.count());
    for (name, times) in [
        ("load_response_time", durations),
        ("load_service_time", durations),
        ("load_queue_time", &queue_times),
    ] {
        let value = SampleValue::Histogram(Box::new(times.clone()));
        write_sample(batch, test.series(name, distribution).with_unit("ns"), second, value)?;
    }
    let requests = durations.count() as f64;
    for (name, count) in [
        ("load_scheduled_requests_total", requests),
        ("load_completed_requests_total", requests),
        ("load_unfinished_requests_total", 0.0),
        ("load_not_sent_requests_total", 0.0),
        ("load_observed_late_requests_total", 0.0),
    ] {
        let counter = test.series(name, SeriesKind::Counter(Temporality::Delta));
        let value = SampleValue::Number(count);
        write_sample(batch, counter.with_unit("requests"), second, value)?;
    }
    // Little's law: as many as the sum of their durations in a second.
    let in_flight = (durations.sum().estimate / 1e9).ceil();
    let peak = test.series("load_in_flight_requests_peak", SeriesKind::Gauge);
    let at = second.end..second.end;
    write_sample(batch, peak.with_unit("requests"), &at, SampleValue::Number(in_flight))
}

/// What the generator says of a run at its end.
pub(crate) fn write_texts(batch: &mut dyn SeriesSink, test: &LoadTest, end: i64) -> Result<()> {
    for (name, text) in
        [("load_run_schedule", "poisson, 100 requests/s"), ("load_run_validity", "valid")]
    {
        let series = test.series(name, SeriesKind::Text);
        write_sample(batch, series, &(end..end), SampleValue::Text(text.to_owned()))?;
    }
    Ok(())
}
