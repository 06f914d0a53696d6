//! Something that is tried, with the time of each phase; what is tried is its probe.
//!
//! Each attempt is a value in distributions, `check_duration` in nanoseconds with the label `phase`: `resolve`,
//! `connect`, `tls`, `wait` (until the answer begins), `read`, and `total`, which counts from the intended beginning.
//! A failed attempt counts in `total` with the time it took to fail, labelled `outcome="failed"`, as do the phases that
//! it came through: slow failures are people who waited.

use std::sync::Arc;
use std::time::Duration;

use collect::Rows;
use hist::Histogram;
use hist::codec::header::Temporality;
use intake::Intake;
use model::{Kind, Sample, Series, Value};
use net::Target;
use net::dial::Dialer;
use tokio::time::Instant;

use crate::error::{Error, Result};
use crate::ledger::Ledger;
use crate::probe::{Attempt, Found};
use crate::pull::{Job, aside};
use crate::schedule::counts_from;
use crate::settings::{Check, Common, way};
use crate::stale;

/// Labels that a check has of itself.
const OWN_LABELS: [&str; 3] = ["check", "phase", "outcome"];

/// A check that makes sense.
#[derive(Debug)]
pub(crate) struct Plan {
    check: Check,
    target: Target,
    dialer: Dialer,
    up: Series,
    status: Series,
    expires: Series,
    failure: Series,
}

impl Plan {
    pub(crate) fn new(check: &Check) -> Result<Plan> {
        let wrong = |what: String| Error::Setting { job: format!("check {:?}", check.name), what };
        if let Some((name, _)) = check.labels.iter().find(|of| OWN_LABELS.contains(&&*of.0)) {
            return Err(wrong(format!(
                "it has the label {name:?} of itself; name yours otherwise"
            )));
        }
        let url = check.what.url();
        let alpn: [&[u8]; 2] = [b"h2", b"http/1.1"];
        let (target, dialer) = way(&Common {
            kind: "check",
            name: &check.name,
            url: &url,
            interval: check.interval,
            timeout: check.timeout,
            labels: &check.labels,
            tls: &check.tls,
            alpn: &alpn,
        })?;
        let series =
            |name, kind| series(check, name, kind, &[]).map_err(|error| wrong(error.to_string()));
        // The largest of them has to be possible, too.
        self::series(
            check,
            "check_duration",
            DURATIONS,
            &[("phase", "resolve"), ("outcome", "failed")],
        )
        .map_err(|error| wrong(error.to_string()))?;
        Ok(Plan {
            up: series("check_up", Kind::Gauge)?,
            status: series("check_status", Kind::Gauge)?,
            expires: series("check_certificate_expires", Kind::Gauge)?,
            failure: series("check_failure", Kind::Text)?,
            check: check.clone(),
            target,
            dialer,
        })
    }

    /// Tries; what was found until it is dropped is in `found`.
    async fn look(&self, found: &mut Found) -> Result<(), String> {
        let (mut connection, phases) =
            self.dialer.dial(&self.target).await.map_err(|error| error.to_string())?;
        found.phases = vec![("resolve", phases.resolve), ("connect", phases.connect)];
        if self.target.secure {
            found.phases.push(("tls", phases.tls));
        }
        found.expires = connection.expires();
        let (target, timeout) = (&self.target, self.check.timeout);
        let mut attempt = Attempt { connection: &mut connection, target, timeout, found };
        self.check.what.run(&mut attempt).await
    }
}

/// How long phases took.
const DURATIONS: Kind = Kind::Histogram(Temporality::Delta);

fn series(check: &Check, name: &str, kind: Kind, own: &[(&str, &str)]) -> model::Result<Series> {
    let unit = match name {
        "check_duration" => "ns",
        "check_certificate_expires" => "s",
        _ => "",
    };
    let series = Series::new(name, kind).with_unit(unit).with_label("check", &*check.name);
    let labels = check.labels.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let labels = own.iter().copied().chain(labels);
    labels.fold(series, |series, (name, value)| series.with_label(name, value)).checked()
}

/// One check.
#[derive(Debug)]
pub(crate) struct Checking {
    plan: Plan,
    ledger: Ledger,
}

impl Checking {
    pub(crate) fn new(plan: Plan, intake: &Arc<Intake>) -> Checking {
        let ledger = Ledger::new(intake, "check", &plan.check.name);
        Checking { plan, ledger }
    }

    fn write(
        &self,
        found: &Found,
        took: Duration,
        end: i64,
        rows: &mut dyn Rows,
    ) -> model::Result<()> {
        let ns = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        let start = end.saturating_sub(ns(took));
        let outcome = if found.failed.is_none() { "well" } else { "failed" };
        let mut row = |series: &Series, start: i64, value: Value| {
            rows.series(&series.form(), &mut || Ok(series.clone()))?;
            stale::left_out_at_limit(rows.sample(&Sample { start, end, value }))
        };
        let total = [("total", took)];
        for (phase, time) in found.phases.iter().chain(&total) {
            let mut histogram = Histogram::default();
            histogram.record(ns(*time) as f64);
            let labels = [("phase", *phase), ("outcome", outcome)];
            let series = series(&self.plan.check, "check_duration", DURATIONS, &labels)?;
            row(&series, start, Value::Histogram(Box::new(histogram)))?;
        }
        let up = f64::from(u8::from(found.failed.is_none()));
        row(&self.plan.up, end, Value::Number(up))?;
        if let Some(status) = found.status {
            row(&self.plan.status, end, Value::Number(f64::from(status)))?;
        }
        if let Some(expires) = found.expires {
            row(&self.plan.expires, end, Value::Number(expires as f64))?;
        }
        if let Some(why) = &found.failed {
            row(&self.plan.failure, end, Value::Text(why.clone()))?;
        }
        Ok(())
    }

    fn keep(&self, found: &Found, took: Duration) {
        let end = self.ledger.now();
        let mut batches = self.ledger.batches();
        let written = self.write(found, took, end, &mut batches);
        written.expect("BUG: a series of a check was looked at when it began");
        match (self.ledger.take(batches, end), &found.failed) {
            (Ok(()), None) => self.ledger.well.add(1),
            (Ok(()), Some(_)) => self.ledger.failed.add(1),
            (Err(_), _) => self.ledger.untaken.add(1),
        }
    }
}

impl Job for Checking {
    fn name(&self) -> &str {
        &self.plan.check.name
    }

    fn times(&self) -> (Duration, Duration) {
        (self.plan.check.interval, self.plan.check.timeout)
    }

    fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    async fn attempt(self: Arc<Checking>, intended: Instant) {
        let began = counts_from(intended);
        let left = self.plan.check.timeout.saturating_sub(began.elapsed());
        let mut found = Found::default();
        let looked = tokio::time::timeout(left, self.plan.look(&mut found)).await;
        let took = began.elapsed();
        found.failed = match looked {
            Ok(looked) => looked.err(),
            Err(_) => {
                let what = if found.phases.is_empty() { "no connection" } else { "no answer" };
                Some(format!("{what} within {} ms", self.plan.check.timeout.as_millis()))
            }
        };
        // The journal may be slow.
        aside(move || self.keep(&found, took)).await;
    }

    fn close(&self, is_ended: bool) {
        if is_ended {
            let at = self.ledger.now();
            let mut batches = self.ledger.batches();
            for series in [&self.plan.up, &self.plan.status, &self.plan.expires] {
                let ended = stale::end(series.clone(), at, &mut batches);
                ended.expect("BUG: a series of a check was looked at when it began");
            }
            // What is not taken the ledger tells, if that can be.
            let _ = self.ledger.take(batches, at);
        }
        self.ledger.close();
    }
}
