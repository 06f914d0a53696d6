//! Check job: probes a target on schedule and measures each phase.
//!
//! Each attempt records a value per phase in the histogram `probe_duration`, in nanoseconds with
//! the label `phase`: `resolve`, `connect`, `tls`, `wait` (until the response begins), `read`,
//! those that a kind has besides, and `total`, measured from the scheduled start. A failed attempt
//! is recorded in `total` with the time until the failure, labelled `outcome="failed"`, as are its
//! completed phases: users wait for slow failures too.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use decode::SeriesSink;
use decode::staleness;
use hist::Histogram;
use hist::codec::header::Temporality;
use intake::Intake;
use model::{Sample, SampleValue, Series, SeriesKind};
use net::Endpoint;
use net::dial::Dialer;
use tokio::time::Instant;

use crate::attempt_log::AttemptLog;
use crate::error::{Error, Result};
use crate::probe::{Attempt, ProbeReport, ProbeValue};
use crate::pull::{PullJob, run_blocking};
use crate::schedule::measured_from;
use crate::settings::{CheckJobSettings, JobCommon, resolve_target};
use crate::target_state::TargetState;

/// Labels that the check itself sets: of all series, or of a kind's values.
pub(crate) const RESERVED_LABELS: [&str; 6] =
    ["check", "phase", "outcome", "json_path", "oid", "perfdata"];

/// Validated check settings.
#[derive(Debug)]
pub(crate) struct CheckConfig {
    check: CheckJobSettings,
    target: Endpoint,
    dialer: Dialer,
    success_series: Series,
    failure_series: Series,
}

impl CheckConfig {
    pub(crate) fn new(check: &CheckJobSettings) -> Result<CheckConfig> {
        let wrong =
            |what: String| Error::Setting { job: format!("check {:?}", check.name), message: what };
        if let Some((name, _)) = check.labels.iter().find(|of| RESERVED_LABELS.contains(&&*of.0)) {
            return Err(wrong(format!(
                "invalid label {name:?}: the check sets it; choose another name"
            )));
        }
        let (target, dialer) = resolve_target(&JobCommon {
            kind: "check",
            name: &check.name,
            endpoint: check.target.endpoint(),
            interval: check.interval,
            timeout: check.timeout,
            labels: &check.labels,
            tls: &check.tls,
            alpn: check.target.alpn(),
        })?;
        let series = |name, kind| {
            check_series(check, name, kind, &[]).map_err(|error| wrong(error.to_string()))
        };
        // The largest possible series must be valid too.
        self::check_series(
            check,
            "probe_duration",
            DURATION_KIND,
            &[("phase", "resolve"), ("outcome", "failed")],
        )
        .map_err(|error| wrong(error.to_string()))?;
        Ok(CheckConfig {
            success_series: series("probe_success", SeriesKind::Gauge)?,
            failure_series: series("probe_failure_reason", SeriesKind::Text)?,
            check: check.clone(),
            target,
            dialer,
        })
    }

    /// Runs the probe once. Its time begins with `began`.
    async fn attempt(&self, began: Instant) -> (ProbeReport, Duration) {
        let mut report = ProbeReport::default();
        let timeout = self.check.timeout;
        let (dialer, target) = (&self.dialer, &self.target);
        let mut attempt = Attempt { dialer, target, timeout, report: &mut report };
        let run = self.check.target.run(&mut attempt);
        let outcome = tokio::time::timeout(timeout.saturating_sub(began.elapsed()), run).await;
        let took = began.elapsed();
        report.failed = match outcome {
            Ok(outcome) => outcome.err(),
            Err(_) => {
                let what = if report.phases.is_empty() { "cannot connect" } else { "no response" };
                Some(format!("{what} within {} ms", timeout.as_millis()))
            }
        };
        (report, took)
    }

    /// Series of the values of an attempt. A value that is no series makes the attempt fail.
    fn value_rows(&self, report: &mut ProbeReport) -> Vec<(Series, f64)> {
        let (mut rows, mut wrong) = (Vec::new(), None);
        for ProbeValue { name, unit, labels, value } in report.values() {
            let labels: Vec<_> = labels.iter().map(|(name, value)| (*name, &**value)).collect();
            let series = check_series(&self.check, name, SeriesKind::Gauge, &labels);
            match series.and_then(|series| series.with_unit(*unit).validate()) {
                Ok(series) => rows.push((series, *value)),
                Err(error) => wrong = wrong.or(Some(error)),
            }
        }
        if let Some(error) = wrong {
            report.failed.get_or_insert(format!("cannot store a value: {error}"));
        }
        if report.dropped_values > 0 {
            let (kept, dropped) = (report.values().len(), report.dropped_values);
            report.failed.get_or_insert(format!(
                "cannot store all values: the first {kept} are stored, {dropped} are not; select \
                 fewer"
            ));
        }
        rows
    }
}

/// Result of one attempt of a check outside of its schedule, of which nothing is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckTrial {
    /// Name of the check.
    pub name: String,
    /// The target as a URL.
    pub target: String,
    /// From the start of the attempt to its end.
    pub took: Duration,
    /// Phases that were completed, in their order.
    pub phases: Vec<(&'static str, Duration)>,
    /// Gauges: series and value.
    pub values: Vec<(String, f64)>,
    /// The reason of a failure.
    pub failure: Option<String>,
}

impl CheckTrial {
    /// Runs a check once.
    pub async fn run(check: &CheckJobSettings) -> Result<CheckTrial> {
        let plan = CheckConfig::new(check)?;
        let (mut report, took) = plan.attempt(Instant::now()).await;
        let values = plan.value_rows(&mut report).into_iter();
        Ok(CheckTrial {
            name: check.name.clone(),
            target: check.target.url(),
            took,
            values: values.map(|(series, value)| (series.to_string(), value)).collect(),
            phases: report.phases,
            failure: report.failed,
        })
    }
}

/// Series kind of phase durations.
const DURATION_KIND: SeriesKind = SeriesKind::Histogram(Temporality::Delta);

fn check_series(
    check: &CheckJobSettings,
    name: &str,
    kind: SeriesKind,
    check_labels: &[(&str, &str)],
) -> model::Result<Series> {
    let unit = if kind == DURATION_KIND { "ns" } else { "" };
    let series = Series::new(name, kind).with_unit(unit).with_label("check", &*check.name);
    let labels = check.labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let labels = check_labels.iter().copied().chain(labels);
    labels.fold(series, |series, (name, value)| series.with_label(name, value)).validate()
}

/// Check job of one target.
#[derive(Debug)]
pub(crate) struct CheckJob {
    plan: CheckConfig,
    attempts: AttemptLog,
    target: Arc<TargetState>,
    /// Series of the values of the last attempt.
    value_series: Mutex<Vec<Series>>,
}

impl CheckJob {
    pub(crate) fn new(config: CheckConfig, intake: &Arc<Intake>) -> CheckJob {
        let ledger = AttemptLog::new(intake, "check", &config.check.name);
        let CheckJobSettings { name, target, interval, timeout, labels, .. } = &config.check;
        let (url, times) = (target.url().to_string(), (*interval, *timeout));
        let target = TargetState::new(("check", name), url, labels.clone(), times);
        let value_series = Mutex::default();
        CheckJob { plan: config, attempts: ledger, target: Arc::new(target), value_series }
    }

    fn write(
        &self,
        found: &ProbeReport,
        values: &[(Series, f64)],
        (took, end): (Duration, i64),
        sink: &mut dyn SeriesSink,
    ) -> model::Result<()> {
        let ns = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        let start = end.saturating_sub(ns(took));
        let outcome = if found.failed.is_none() { "success" } else { "failed" };
        let mut row = |series: &Series, start: i64, value: SampleValue| {
            sink.series(&series.canonical_key(), &mut || Ok(series.clone()))?;
            staleness::ignore_limit_error(sink.sample(&Sample { start, end, value }))
        };
        let total = [("total", took)];
        for (phase, time) in found.phases.iter().chain(&total) {
            let mut histogram = Histogram::default();
            histogram.record(ns(*time) as f64);
            let labels = [("phase", *phase), ("outcome", outcome)];
            let series = check_series(&self.plan.check, "probe_duration", DURATION_KIND, &labels)?;
            row(&series, start, SampleValue::Histogram(Box::new(histogram)))?;
        }
        let up = f64::from(u8::from(found.failed.is_none()));
        row(&self.plan.success_series, end, SampleValue::Number(up))?;
        for (series, value) in values {
            row(series, end, SampleValue::Number(*value))?;
        }
        if let Some(reason) = &found.failed {
            row(&self.plan.failure_series, end, SampleValue::Text(reason.clone()))?;
        }
        for series in &*self.value_series() {
            if !values.iter().any(|value| value.0 == *series) {
                staleness::mark_series_stale(series.clone(), end, sink)?;
            }
        }
        Ok(())
    }

    fn value_series(&self) -> MutexGuard<'_, Vec<Series>> {
        self.value_series.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn store_result(&self, mut found: ProbeReport, took: Duration) {
        let end = self.attempts.now();
        let mut batches = self.attempts.batches();
        let values = self.plan.value_rows(&mut found);
        let written = self.write(&found, &values, (took, end), &mut batches);
        written.expect("BUG: check series were validated at the start");
        self.attempts.record_target(
            &self.target,
            end,
            took,
            found.failed.clone().map_or(Ok(1), Err),
        );
        match self.attempts.append(batches, end) {
            Ok(()) => {
                *self.value_series() = values.into_iter().map(|(series, _)| series).collect();
                match &found.failed {
                    None => self.attempts.success.add(1),
                    Some(_) => self.attempts.failed.add(1),
                }
            }
            // The next attempt ends what this one would have ended.
            Err(_) => self.attempts.not_stored.add(1),
        }
    }
}

impl PullJob for CheckJob {
    fn name(&self) -> &str {
        &self.plan.check.name
    }

    fn interval_and_timeout(&self) -> (Duration, Duration) {
        (self.plan.check.interval, self.plan.check.timeout)
    }

    fn attempts(&self) -> &AttemptLog {
        &self.attempts
    }

    fn target(&self) -> &Arc<TargetState> {
        &self.target
    }

    async fn attempt(self: Arc<CheckJob>, intended: Instant) {
        let (found, took) = self.plan.attempt(measured_from(intended)).await;
        // The journal may block.
        run_blocking(move || self.store_result(found, took)).await;
    }

    fn close(&self, is_removed: bool) {
        if is_removed {
            let at = self.attempts.now();
            let mut batches = self.attempts.batches();
            for series in self.value_series().iter().chain([&self.plan.success_series]) {
                let ended = staleness::mark_series_stale(series.clone(), at, &mut batches);
                ended.expect("BUG: check series were validated at the start");
            }
            // The attempt log reports results that cannot be stored, if possible.
            let _ = self.attempts.append(batches, at);
        }
        self.attempts.write_gaps();
        if is_removed {
            self.attempts.retire();
        }
    }
}
