//! Scrape job.
//!
//! It adds the report metrics of Prometheus with the same names (`REPORT_METRICS`), and the reason
//! of a failed scrape as the text `scrape_error`; series that disappeared are marked as stale. As
//! in Prometheus, nothing of a malformed response is stored. Samples with valid syntax and invalid
//! values (falling cumulative counts, duplicate labels) are dropped and counted, and the rest is
//! stored.

mod body;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use decode::SeriesSink as _;
use decode::mapper::{MappingDefaults, RowMapper};
use decode::staleness::{ignore_limit_error, mark_series_stale};
use http::{HeaderValue, Request, StatusCode, header};
use intake::{EventCounter, Intake};
use model::{Sample, SampleValue, Series, SeriesKind};
use net::Endpoint;
use net::dial::{Dialer, ResponseLimits};
use tokio::time::Instant;

use crate::attempt_log::{AttemptBatches, AttemptLog};
use crate::error::{Error, Result};
use crate::pull::{PullJob, run_blocking};
use crate::schedule::measured_from;
use crate::scrape::body::{ScrapeBody, WithTargetLabels};
use crate::settings::{JobCommon, MISSED_STARTS_MAX, ScrapeJobSettings, resolve_target};
use crate::staleness::{ScrapedSeries, SeriesTracker};
use crate::target_state::TargetState;

/// Accept header: protobuf has native histograms, text does not.
const ACCEPT: &str = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;\
    encoding=delimited;q=0.9,application/openmetrics-text;version=2.0.0;q=0.8,\
    application/openmetrics-text;version=1.0.0;q=0.7,text/plain;version=0.0.4;q=0.6,*/*;q=0.1";

/// Report metrics of each scrape; gauges.
const REPORT_METRICS: [&str; 5] = [
    "up",
    "scrape_duration_seconds",
    "scrape_samples_scraped",
    "scrape_samples_post_metric_relabeling",
    "scrape_series_added",
];

/// Validated scrape settings.
#[derive(Debug)]
pub(crate) struct ScrapeConfig {
    scrape: ScrapeJobSettings,
    target: Endpoint,
    dialer: Dialer,
    authorization: Option<HeaderValue>,
    labels: Vec<(String, String)>,
    report_series: Vec<Series>,
    failure_series: Series,
}

impl ScrapeConfig {
    pub(crate) fn new(scrape: &ScrapeJobSettings) -> Result<ScrapeConfig> {
        let wrong = |what: String| Error::Setting {
            job: format!("scrape {:?}", scrape.name),
            message: what,
        };
        let (target, dialer) = resolve_target(&JobCommon {
            kind: "scrape",
            name: &scrape.name,
            endpoint: Endpoint::parse(&scrape.url),
            interval: scrape.interval,
            timeout: scrape.timeout,
            labels: &scrape.labels,
            tls: &scrape.tls,
            alpn: &[],
        })?;
        let bearer = scrape.token.as_ref().map(|token| {
            net::bearer(token).map_err(|_| {
                wrong("token has characters that are not allowed in a header".to_owned())
            })
        });
        if scrape.timeout > scrape.interval {
            return Err(wrong("timeout is longer than interval".to_owned()));
        }
        let is_configured = |name: &str| scrape.labels.iter().any(|label| label.0 == name);
        let job = [("job", scrape.name.clone()), ("instance", instance_label(&target))];
        let job = job.into_iter().filter(|label| !is_configured(label.0));
        let job = job.map(|(name, value)| (name.to_owned(), value));
        // As in Prometheus, an empty label removes the default label.
        let labels = job.chain(scrape.labels.iter().cloned());
        let labels: Vec<_> = labels.filter(|label| !label.1.is_empty()).collect();
        let series = |name: &str, kind| {
            let series = Series::new(name, kind);
            let labels = labels.iter();
            let series =
                labels.fold(series, |series, label| series.with_label(&*label.0, &*label.1));
            series.validate().map_err(|error| wrong(error.to_string()))
        };
        Ok(ScrapeConfig {
            authorization: bearer.transpose()?,
            report_series: REPORT_METRICS
                .map(|name| series(name, SeriesKind::Gauge))
                .into_iter()
                .collect::<Result<_>>()?,
            failure_series: series("scrape_error", SeriesKind::Text)?,
            scrape: scrape.clone(),
            target,
            dialer,
            labels,
        })
    }

    /// Fetches the response, or returns the reason of the failure.
    async fn fetch(&self) -> Result<ScrapeBody, String> {
        let (mut connection, _) =
            self.dialer.dial(&self.target).await.map_err(|error| error.to_string())?;
        let timeout = self.scrape.timeout;
        let mut request = Request::get(&self.target.path)
            .header(header::ACCEPT, ACCEPT)
            .header(header::ACCEPT_ENCODING, "gzip")
            .header(header::USER_AGENT, concat!("topdeck/", env!("CARGO_PKG_VERSION")))
            .header("X-Prometheus-Scrape-Timeout-Seconds", timeout.as_secs_f64().to_string());
        if let Some(authorization) = &self.authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        let request = request.body(Bytes::new()).map_err(|error| error.to_string())?;
        let allowed = ResponseLimits {
            timeout: timeout * MISSED_STARTS_MAX,
            max_bytes: self.scrape.bytes_max,
        };
        let answer = connection.send(request, allowed).await.map_err(|error| error.to_string())?;
        let status = answer.response.status();
        if status.is_redirection() {
            return Err(format!("HTTP {status}; redirects are not followed"));
        }
        // Prometheus also accepts only 200.
        if status != StatusCode::OK {
            return Err(format!("HTTP {status}"));
        }
        ScrapeBody::decompress(&answer.response, self.scrape.bytes_max)
    }
}

/// Host and port.
fn instance_label(target: &Endpoint) -> String {
    match target.host.contains(':') {
        true => format!("[{}]:{}", target.host, target.port),
        false => format!("{}:{}", target.host, target.port),
    }
}

/// Scrape job of one target.
#[derive(Debug)]
pub(crate) struct ScrapeJob {
    config: ScrapeConfig,
    attempts: AttemptLog,
    target: Arc<TargetState>,
    rejected: EventCounter,
    state: Mutex<ScrapeState>,
}

/// State kept between attempts.
#[derive(Debug, Default)]
struct ScrapeState {
    scraped: ScrapedSeries,
    /// Scheduled time of the scrape in `seen`. An attempt scheduled earlier does not change it.
    at: i64,
}

/// Result of one scrape.
struct ScrapeResult<'a> {
    batches: AttemptBatches<'a>,
    scraped: ScrapedSeries,
    /// Stored samples, and samples that could not be stored.
    stored: u64,
    rejected: u64,
    failure: Option<String>,
}

impl ScrapeJob {
    pub(crate) fn new(plan: ScrapeConfig, intake: &Arc<Intake>) -> ScrapeJob {
        let name = &plan.scrape.name;
        let about = "scraped samples with invalid values, rejected";
        let refused =
            intake.meter().counter("topdeck_pull_rejected_samples_total", about, &[("job", name)]);
        let ledger = AttemptLog::new(intake, "scrape", name);
        let ScrapeJobSettings { url, interval, timeout, .. } = &plan.scrape;
        let times = (*interval, *timeout);
        let target = TargetState::new(("scrape", name), url.clone(), plan.labels.clone(), times);
        ScrapeJob {
            config: plan,
            attempts: ledger,
            target: Arc::new(target),
            rejected: refused,
            state: Mutex::default(),
        }
    }

    /// Stores a response, or the failure of the scrape.
    fn store_result(&self, page: Result<ScrapeBody, String>, at: i64, took: Duration) {
        let found = page.and_then(|page| self.parse_body(&page, at));
        let failed = match found {
            Ok(found) => {
                let samples = found.stored;
                match self.append(found, at, took) {
                    Ok(()) => {
                        self.attempts.record_target(&self.target, at, took, Ok(samples));
                        return self.attempts.success.add(1);
                    }
                    // The target is up: the journal is full, which the server reports.
                    Err(error) if error.is_retryable() => {
                        self.attempts.record_target(&self.target, at, took, Ok(samples));
                        self.target.set_last_error(at, format!("cannot store the result: {error}"));
                        return self.attempts.not_stored.add(1);
                    }
                    Err(error) => error.to_string(),
                }
            }
            Err(reason) => reason,
        };
        self.attempts.record_target(&self.target, at, took, Err(failed.clone()));
        let nothing = ScrapeResult {
            batches: self.attempts.batches(),
            scraped: ScrapedSeries::default(),
            stored: 0,
            rejected: 0,
            failure: Some(failed),
        };
        match self.append(nothing, at, took) {
            Ok(()) => self.attempts.failed.add(1),
            Err(_) => self.attempts.not_stored.add(1),
        }
    }

    fn parse_body(&self, page: &ScrapeBody, at: i64) -> Result<ScrapeResult<'_>, String> {
        let mut batches = self.attempts.batches();
        let mut watching = SeriesTracker::new(&mut batches, at);
        let rules = MappingDefaults { time: Some(at), ..MappingDefaults::default() };
        let mut attached = WithTargetLabels {
            mapper: RowMapper::new(rules, &mut watching),
            labels: &self.config.labels,
            honor_labels: self.config.scrape.honor_labels,
            honor_timestamps: self.config.scrape.honor_timestamps,
            first_error: None,
        };
        page.parse(&mut attached);
        if let Some(damage) = attached.first_error {
            return Err(format!("cannot parse the response: {damage}"));
        }
        let summary = attached.mapper.finish();
        self.rejected.add(summary.rejected);
        let scraped_before = watching.scraped;
        Ok(ScrapeResult {
            batches,
            scraped: scraped_before,
            stored: summary.samples,
            rejected: summary.rejected,
            failure: None,
        })
    }

    fn append(&self, found: ScrapeResult<'_>, at: i64, took: Duration) -> intake::Result<()> {
        let ScrapeResult { mut batches, scraped: seen, stored, rejected: refused, failure: failed } =
            found;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_last = at >= state.at;
        if is_last {
            state.scraped.mark_stale(&seen, at, &mut batches)?;
        }
        let report = [
            f64::from(u8::from(failed.is_none())),
            took.as_secs_f64(),
            stored.saturating_add(refused) as f64,
            stored as f64,
            seen.count_added(&state.scraped) as f64,
        ];
        let mut row = |series: &Series, value: SampleValue| {
            batches.series(&series.canonical_key(), &mut || Ok(series.clone()))?;
            ignore_limit_error(batches.sample(&Sample { start: at, end: at, value }))
        };
        for (series, value) in self.config.report_series.iter().zip(report) {
            row(series, SampleValue::Number(value))?;
        }
        if let Some(reason) = failed {
            row(&self.config.failure_series, SampleValue::Text(reason))?;
        }
        self.attempts.append(batches, at)?;
        if is_last {
            *state = ScrapeState { scraped: seen, at };
        }
        Ok(())
    }

    fn mark_stale(&self) -> intake::Result<()> {
        let at = self.attempts.now();
        let mut batches = self.attempts.batches();
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.scraped.mark_stale(&ScrapedSeries::default(), at, &mut batches)?;
        // Before the first attempt, no series exist.
        if state.at > 0 {
            for series in &self.config.report_series {
                mark_series_stale(series.clone(), at, &mut batches)?;
            }
            self.attempts.append(batches, at)?;
        }
        Ok(())
    }
}

impl PullJob for ScrapeJob {
    fn name(&self) -> &str {
        &self.config.scrape.name
    }

    fn interval_and_timeout(&self) -> (Duration, Duration) {
        (self.config.scrape.interval, self.config.scrape.timeout)
    }

    fn attempts(&self) -> &AttemptLog {
        &self.attempts
    }

    fn target(&self) -> &Arc<TargetState> {
        &self.target
    }

    async fn attempt(self: Arc<ScrapeJob>, intended: Instant) {
        let start_delay = i64::try_from(intended.elapsed().as_nanos()).unwrap_or(i64::MAX);
        let at = self.attempts.now().saturating_sub(start_delay);
        let began = measured_from(intended);
        let remaining = self.config.scrape.timeout.saturating_sub(began.elapsed());
        let page = match tokio::time::timeout(remaining, self.config.fetch()).await {
            Ok(page) => page,
            Err(_) => {
                Err(format!("no response within {} ms", self.config.scrape.timeout.as_millis()))
            }
        };
        let took = began.elapsed();
        // Parsing a large response takes CPU time and the journal may block, so neither runs on an
        // async thread.
        run_blocking(move || self.store_result(page, at, took)).await;
    }

    fn close(&self, is_removed: bool) {
        if is_removed {
            // The attempt log reports results that cannot be stored, if possible.
            let _ = self.mark_stale();
        }
        self.attempts.write_gaps();
        if is_removed {
            self.attempts.retire();
        }
    }
}
