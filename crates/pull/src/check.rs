//! Check job: probes a target on schedule and measures each phase.
//!
//! Each attempt records a value per phase in the histogram `probe_duration`, in nanoseconds with
//! the label `phase`: `resolve`, `connect`, `tls`, `wait` (until the response begins), `read`, and
//! `total`, measured from the scheduled start. A failed attempt is recorded in `total` with the
//! time until the failure, labelled `outcome="failed"`, as are its completed phases: users wait for
//! slow failures too.

use std::sync::Arc;
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
use crate::probe::{Attempt, ProbeReport};
use crate::pull::{PullJob, run_blocking};
use crate::schedule::measured_from;
use crate::settings::{CheckJobSettings, JobCommon, resolve_target};
use crate::target_state::TargetState;

/// Labels that the check itself sets.
pub(crate) const RESERVED_LABELS: [&str; 3] = ["check", "phase", "outcome"];

/// Validated check settings.
#[derive(Debug)]
pub(crate) struct CheckConfig {
    check: CheckJobSettings,
    target: Endpoint,
    dialer: Dialer,
    success_series: Series,
    status_series: Series,
    cert_expiry_ns: Series,
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
        let url = check.target.url();
        let alpn: [&[u8]; 2] = [b"h2", b"http/1.1"];
        let (target, dialer) = resolve_target(&JobCommon {
            kind: "check",
            name: &check.name,
            url: &url,
            interval: check.interval,
            timeout: check.timeout,
            labels: &check.labels,
            tls: &check.tls,
            alpn: &alpn,
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
            status_series: series("probe_http_status_code", SeriesKind::Gauge)?,
            cert_expiry_ns: series("probe_ssl_earliest_cert_expiry", SeriesKind::Gauge)?,
            failure_series: series("probe_failure_reason", SeriesKind::Text)?,
            check: check.clone(),
            target,
            dialer,
        })
    }

    /// Runs the probe. `found` has the measurements so far if the future is dropped.
    async fn probe(&self, found: &mut ProbeReport) -> Result<(), String> {
        let (mut connection, phases) =
            self.dialer.dial(&self.target).await.map_err(|error| error.to_string())?;
        found.phases = vec![("resolve", phases.resolve), ("connect", phases.connect)];
        if self.target.secure {
            found.phases.push(("tls", phases.tls));
        }
        found.expires = connection.expires();
        let (target, timeout) = (&self.target, self.check.timeout);
        let mut attempt = Attempt { connection: &mut connection, target, timeout, found };
        self.check.target.run(&mut attempt).await
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
    let unit = match name {
        "probe_duration" => "ns",
        "probe_ssl_earliest_cert_expiry" => "s",
        _ => "",
    };
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
}

impl CheckJob {
    pub(crate) fn new(config: CheckConfig, intake: &Arc<Intake>) -> CheckJob {
        let ledger = AttemptLog::new(intake, "check", &config.check.name);
        let CheckJobSettings { name, target, interval, timeout, labels, .. } = &config.check;
        let (url, times) = (target.url().to_string(), (*interval, *timeout));
        let target = TargetState::new(("check", name), url, labels.clone(), times);
        CheckJob { plan: config, attempts: ledger, target: Arc::new(target) }
    }

    fn write(
        &self,
        found: &ProbeReport,
        took: Duration,
        end: i64,
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
        if let Some(status) = found.status {
            row(&self.plan.status_series, end, SampleValue::Number(f64::from(status)))?;
        }
        if let Some(expires) = found.expires {
            row(&self.plan.cert_expiry_ns, end, SampleValue::Number(expires as f64))?;
        }
        if let Some(reason) = &found.failed {
            row(&self.plan.failure_series, end, SampleValue::Text(reason.clone()))?;
        }
        Ok(())
    }

    fn store_result(&self, found: &ProbeReport, took: Duration) {
        let end = self.attempts.now();
        let mut batches = self.attempts.batches();
        let written = self.write(found, took, end, &mut batches);
        written.expect("BUG: check series were validated at the start");
        self.attempts.record_target(
            &self.target,
            end,
            took,
            found.failed.clone().map_or(Ok(1), Err),
        );
        match (self.attempts.append(batches, end), &found.failed) {
            (Ok(()), None) => self.attempts.success.add(1),
            (Ok(()), Some(_)) => self.attempts.failed.add(1),
            (Err(_), _) => self.attempts.not_stored.add(1),
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
        let began = measured_from(intended);
        let remaining = self.plan.check.timeout.saturating_sub(began.elapsed());
        let mut found = ProbeReport::default();
        let outcome = tokio::time::timeout(remaining, self.plan.probe(&mut found)).await;
        let took = began.elapsed();
        found.failed = match outcome {
            Ok(outcome) => outcome.err(),
            Err(_) => {
                let what = if found.phases.is_empty() { "cannot connect" } else { "no response" };
                Some(format!("{what} within {} ms", self.plan.check.timeout.as_millis()))
            }
        };
        // The journal may block.
        run_blocking(move || self.store_result(&found, took)).await;
    }

    fn close(&self, is_removed: bool) {
        if is_removed {
            let at = self.attempts.now();
            let mut batches = self.attempts.batches();
            for series in
                [&self.plan.success_series, &self.plan.status_series, &self.plan.cert_expiry_ns]
            {
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
