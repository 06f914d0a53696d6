//! Something that is tried: a page or a connection, with the time of each phase.
//!
//! Each attempt is a value in a distribution, `check_duration` in nanoseconds with the label `phase`: `resolve`,
//! `connect`, `tls`, `wait` (until the answer begins), `read`, and `total`, which counts from the intended beginning.
//! A failed attempt counts in `total` with the time it took to fail, labelled `outcome="failed"`: slow failures are
//! people who waited.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use collect::Rows;
use hist::Histogram;
use hist::codec::header::Temporality;
use http::{Request, header};
use intake::{Intake, Producer, Receipt};
use model::{Kind, Sample, Series, Value};
use net::Target;
use net::dial::{Allowance, Dialer, Limits};
use tokio::time::Instant;

use crate::error::{Error, Result};
use crate::pull::{Job, Outcomes};
use crate::settings::{Check, Try};

/// The source's number for keys of series, as `intake` asks for it; as scrapes, whose keys are made alike.
const WAY: u8 = 6;
/// Of an answer's body that is read.
const BODY_BYTES_MAX: usize = 1 << 20;

/// One check.
#[derive(Debug)]
pub(crate) struct Checking {
    check: Check,
    target: Target,
    dialer: Dialer,
    intake: Arc<Intake>,
    producer: Producer,
    outcomes: Outcomes,
}

/// What an attempt found.
#[derive(Debug, Default)]
struct Found {
    phases: Vec<(&'static str, Duration)>,
    status: Option<u16>,
    failed: Option<String>,
}

impl Checking {
    pub(crate) fn new(check: &Check, intake: &Arc<Intake>) -> Result<Checking> {
        let job = || format!("check {:?}", check.name);
        let url = match &check.what {
            Try::Http { url, .. } => url.clone(),
            Try::Tcp { address } => format!("http://{address}"),
        };
        let target = Target::parse(&url).map_err(|source| Error::Target { job: job(), source })?;
        let tls = match target.secure {
            true => {
                let mut config =
                    check.tls.config().map_err(|source| Error::Tls { job: job(), source })?;
                config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
                Some(Arc::new(config))
            }
            false => None,
        };
        let limit = check.timeout;
        Ok(Checking {
            target,
            dialer: Dialer::new(Limits { resolve: limit, connect: limit, tls: limit }, tls),
            producer: intake.producer(&format!("check {}", check.name)),
            outcomes: Outcomes::new(intake, "check", &check.name),
            intake: Arc::clone(intake),
            check: check.clone(),
        })
    }

    async fn look(&self) -> Found {
        let mut found = Found::default();
        let (mut connection, phases) = match self.dialer.dial(&self.target).await {
            Ok(dialled) => dialled,
            Err(error) => {
                found.failed = Some(error.to_string());
                return found;
            }
        };
        found.phases = vec![("resolve", phases.resolve), ("connect", phases.connect)];
        if self.target.secure {
            found.phases.push(("tls", phases.tls));
        }
        let Try::Http { statuses, body, .. } = &self.check.what else { return found };
        let request = Request::get(&self.target.path)
            .header(header::USER_AGENT, concat!("topdeck/", env!("CARGO_PKG_VERSION")))
            .body(Bytes::new());
        let allowed = Allowance { time: self.check.timeout, bytes: BODY_BYTES_MAX };
        let answer = match request {
            Ok(request) => {
                connection.send(request, allowed).await.map_err(|error| error.to_string())
            }
            Err(error) => Err(error.to_string()),
        };
        match answer {
            Err(why) => found.failed = Some(why),
            Ok(answer) => {
                found.phases.extend([("wait", answer.waited), ("read", answer.reading)]);
                let status = answer.response.status().as_u16();
                found.status = Some(status);
                if !statuses.holds(status) {
                    found.failed = Some(format!("it answers {status}"));
                } else if let Some(text) = body.as_ref().filter(|text| {
                    let bytes = text.as_bytes();
                    !bytes.is_empty()
                        && !answer.response.body().windows(bytes.len()).any(|w| w == bytes)
                }) {
                    found.failed = Some(format!("{text:?} does not stand in the answer"));
                }
            }
        }
        found
    }

    fn series(&self, name: &str, kind: Kind, labels: &[(&str, &str)]) -> model::Result<Series> {
        let unit = if matches!(kind, Kind::Histogram(_)) { "ns" } else { "" };
        let mut series =
            Series::new(name, kind).with_unit(unit).with_label("check", &*self.check.name);
        for (name, value) in labels {
            series = series.with_label(*name, *value);
        }
        for (name, value) in &self.check.labels {
            series = series.with_label(name.as_str(), value.as_str());
        }
        series.checked()
    }

    fn write(&self, found: &Found, took: Duration, rows: &mut dyn Rows) -> model::Result<()> {
        let end = self.intake.now();
        let ns = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        let start = end.saturating_sub(ns(took));
        let outcome = if found.failed.is_none() { "well" } else { "failed" };
        let mut row = |series: Series, start: i64, value: Value| {
            rows.series(&series.form(), &mut || Ok(series.clone()))?;
            rows.sample(&Sample { start, end, value })
        };
        let delta = Kind::Histogram(Temporality::Delta);
        let total = [("total", took)];
        for (phase, time) in found.phases.iter().chain(&total) {
            let mut histogram = Histogram::default();
            histogram.record(ns(*time) as f64);
            let labels = [("phase", *phase), ("outcome", outcome)];
            let series = self.series("check_duration", delta, &labels)?;
            row(series, start, Value::Histogram(Box::new(histogram)))?;
        }
        let up = Value::Number(f64::from(u8::from(found.failed.is_none())));
        row(self.series("check_up", Kind::Gauge, &[])?, end, up)?;
        if let Some(status) = found.status {
            let status = Value::Number(f64::from(status));
            row(self.series("check_status", Kind::Gauge, &[])?, end, status)?;
        }
        if let Some(why) = &found.failed {
            row(self.series("check_failure", Kind::Text, &[])?, end, Value::Text(why.clone()))?;
        }
        Ok(())
    }

    fn keep(&self, found: &Found, took: Duration) -> Option<Receipt> {
        let mut writer = self.intake.writer(WAY);
        let written = self.write(found, took, &mut writer);
        match found.failed {
            None => self.outcomes.well.add(1),
            Some(_) => self.outcomes.failed.add(1),
        }
        let taken = written.map_err(intake::Error::from);
        match taken.and_then(|()| self.intake.take(&self.producer, writer)) {
            Ok(receipt) => Some(receipt),
            // It was made, but nobody will know.
            Err(_) => {
                self.outcomes.missed.add(1);
                None
            }
        }
    }
}

impl Job for Checking {
    fn name(&self) -> &str {
        &self.check.name
    }

    fn interval(&self) -> Duration {
        self.check.interval
    }

    async fn attempt(self: Arc<Checking>, intended: Instant) {
        let left = self.check.timeout.saturating_sub(intended.elapsed());
        let found = match tokio::time::timeout(left, self.look()).await {
            Ok(found) => found,
            Err(_) => Found {
                failed: Some(format!("not done within {} ms", self.check.timeout.as_millis())),
                ..Found::default()
            },
        };
        if let Some(receipt) = self.keep(&found, intended.elapsed()) {
            // As with scrapes: nobody waits for this.
            let _ = receipt.settled().await;
        }
    }

    fn missed(&self, attempts: u64) {
        self.outcomes.missed.add(attempts);
    }
}
