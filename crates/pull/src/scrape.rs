//! A page of metrics, fetched and read.
//!
//! What Prometheus adds to a page is added here, by the same names (`REPORT`), and why there is no page as the text
//! `scrape_failure`; series that went are marked as ended. As in Prometheus, of a page that is damaged nothing is
//! stored. What is written as it should be and cannot be (a histogram whose counts fall, a label twice) is left out and
//! counted, and the rest of the page is stored.

mod page;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use collect::Rows as _;
use collect::place::{Placing, Rules};
use http::{HeaderValue, Request, StatusCode, header};
use intake::{Counter, Intake};
use model::{Kind, Sample, Series, Value};
use net::Target;
use net::dial::{Allowance, Dialer};
use tokio::time::Instant;

use crate::error::{Error, Result};
use crate::ledger::{Batches, Ledger};
use crate::pull::{Job, aside};
use crate::schedule::counts_from;
use crate::scrape::page::{Attached, Page};
use crate::settings::{BEYOND, Common, Scrape, way};
use crate::stale::{Seen, Watching, end, left_out_at_limit};

/// What is asked for: protocol buffers have native histograms, which text has not.
const ACCEPT: &str = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;\
    encoding=delimited;q=0.9,application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.7,*/*;q=0.1";

/// What is told of each scrape, gauges.
const REPORT: [&str; 5] = [
    "up",
    "scrape_duration_seconds",
    "scrape_samples_scraped",
    "scrape_samples_post_metric_relabeling",
    "scrape_series_added",
];

/// A scrape that makes sense.
#[derive(Debug)]
pub(crate) struct Plan {
    scrape: Scrape,
    target: Target,
    dialer: Dialer,
    authorization: Option<HeaderValue>,
    labels: Vec<(String, String)>,
    report: Vec<Series>,
    failure: Series,
}

impl Plan {
    pub(crate) fn new(scrape: &Scrape) -> Result<Plan> {
        let wrong =
            |what: String| Error::Setting { job: format!("scrape {:?}", scrape.name), what };
        let (target, dialer) = way(&Common {
            kind: "scrape",
            name: &scrape.name,
            url: &scrape.url,
            interval: scrape.interval,
            timeout: scrape.timeout,
            labels: &scrape.labels,
            tls: &scrape.tls,
            alpn: &[],
        })?;
        let bearer = scrape.token.as_ref().map(|token| {
            net::bearer(token)
                .map_err(|_| wrong("its token has characters that no header can have".to_owned()))
        });
        if scrape.timeout > scrape.interval {
            return Err(wrong("its timeout is longer than its interval".to_owned()));
        }
        let own = |name: &str| scrape.labels.iter().any(|label| label.0 == name);
        let job = [("job", scrape.name.clone()), ("instance", instance(&target))];
        let job = job.into_iter().filter(|label| !own(label.0));
        let job = job.map(|(name, value)| (name.to_owned(), value));
        // As in Prometheus, a label that is set to nothing takes away the one that would be there.
        let labels = job.chain(scrape.labels.iter().cloned());
        let labels: Vec<_> = labels.filter(|label| !label.1.is_empty()).collect();
        let series = |name: &str, kind| {
            let series = Series::new(name, kind);
            let labels = labels.iter();
            let series =
                labels.fold(series, |series, label| series.with_label(&*label.0, &*label.1));
            series.checked().map_err(|error| wrong(error.to_string()))
        };
        Ok(Plan {
            authorization: bearer.transpose()?,
            report: REPORT
                .map(|name| series(name, Kind::Gauge))
                .into_iter()
                .collect::<Result<_>>()?,
            failure: series("scrape_failure", Kind::Text)?,
            scrape: scrape.clone(),
            target,
            dialer,
            labels,
        })
    }

    /// The page, or why there is none.
    async fn fetch(&self) -> Result<Page, String> {
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
        let allowed = Allowance { time: timeout * BEYOND, bytes: self.scrape.bytes_max };
        let answer = connection.send(request, allowed).await.map_err(|error| error.to_string())?;
        let status = answer.response.status();
        if status.is_redirection() {
            return Err(format!("the page answers {status}; redirects are not followed"));
        }
        // Prometheus takes nothing else either.
        if status != StatusCode::OK {
            return Err(format!("the page answers {status}"));
        }
        Page::unpack(&answer.response, self.scrape.bytes_max)
    }
}

/// Host and port.
fn instance(target: &Target) -> String {
    match target.host.contains(':') {
        true => format!("[{}]:{}", target.host, target.port),
        false => format!("{}:{}", target.host, target.port),
    }
}

/// One page, and what is known of it.
#[derive(Debug)]
pub(crate) struct Scraping {
    plan: Plan,
    ledger: Ledger,
    refused: Counter,
    state: Mutex<State>,
}

/// What one attempt leaves to the next.
#[derive(Debug, Default)]
struct State {
    seen: Seen,
    /// When the page was that `seen` is of; an attempt that began before says nothing about it.
    at: i64,
}

/// What an attempt found: a page, or nothing.
struct Found<'a> {
    batches: Batches<'a>,
    seen: Seen,
    /// Samples that are stored, and those that could not be.
    stored: u64,
    refused: u64,
    failed: Option<String>,
}

impl Scraping {
    pub(crate) fn new(plan: Plan, intake: &Arc<Intake>) -> Scraping {
        let name = &plan.scrape.name;
        let about = "samples on pages that are written as they should be and cannot be";
        let refused = intake.meter().counter("topdeck_pull_refused_total", about, &[("job", name)]);
        let ledger = Ledger::new(intake, "scrape", name);
        Scraping { plan, ledger, refused, state: Mutex::default() }
    }

    /// Takes in what was fetched, or that nothing was.
    fn keep(&self, page: Result<Page, String>, at: i64, took: Duration) {
        let found = page.and_then(|page| self.read(&page, at));
        let failed = match found {
            Ok(found) => match self.take(found, at, took) {
                Ok(()) => return self.ledger.well.add(1),
                // There is no room for that it failed either; the ledger will tell.
                Err(error) if error.is_temporary() => return self.ledger.untaken.add(1),
                Err(error) => error.to_string(),
            },
            Err(why) => why,
        };
        let nothing = Found {
            batches: self.ledger.batches(),
            seen: Seen::default(),
            stored: 0,
            refused: 0,
            failed: Some(failed),
        };
        match self.take(nothing, at, took) {
            Ok(()) => self.ledger.failed.add(1),
            Err(_) => self.ledger.untaken.add(1),
        }
    }

    fn read(&self, page: &Page, at: i64) -> Result<Found<'_>, String> {
        let mut batches = self.ledger.batches();
        let mut watching = Watching::new(&mut batches, at);
        let rules = Rules { time: Some(at), ..Rules::default() };
        let mut attached = Attached {
            placing: Placing::new(rules, &mut watching),
            labels: &self.plan.labels,
            honor_labels: self.plan.scrape.honor_labels,
            honor_timestamps: self.plan.scrape.honor_timestamps,
            damage: None,
        };
        page.read(&mut attached);
        if let Some(damage) = attached.damage {
            return Err(format!("the page is damaged: {damage}"));
        }
        let placed = attached.placing.finish();
        self.refused.add(placed.refused);
        let seen = watching.seen;
        Ok(Found { batches, seen, stored: placed.readings, refused: placed.refused, failed: None })
    }

    fn take(&self, found: Found<'_>, at: i64, took: Duration) -> intake::Result<()> {
        let Found { mut batches, seen, stored, refused, failed } = found;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_last = at >= state.at;
        if is_last {
            state.seen.end(&seen, at, &mut batches)?;
        }
        let told = [
            f64::from(u8::from(failed.is_none())),
            took.as_secs_f64(),
            stored.saturating_add(refused) as f64,
            stored as f64,
            seen.added(&state.seen) as f64,
        ];
        let mut row = |series: &Series, value: Value| {
            batches.series(&series.form(), &mut || Ok(series.clone()))?;
            left_out_at_limit(batches.sample(&Sample { start: at, end: at, value }))
        };
        for (series, value) in self.plan.report.iter().zip(told) {
            row(series, Value::Number(value))?;
        }
        if let Some(why) = failed {
            row(&self.plan.failure, Value::Text(why))?;
        }
        self.ledger.take(batches, at)?;
        if is_last {
            *state = State { seen, at };
        }
        Ok(())
    }

    fn end(&self) -> intake::Result<()> {
        let at = self.ledger.now();
        let mut batches = self.ledger.batches();
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.seen.end(&Seen::default(), at, &mut batches)?;
        // Before the first attempt there is nothing to end.
        if state.at > 0 {
            for series in &self.plan.report {
                end(series.clone(), at, &mut batches)?;
            }
            self.ledger.take(batches, at)?;
        }
        Ok(())
    }
}

impl Job for Scraping {
    fn name(&self) -> &str {
        &self.plan.scrape.name
    }

    fn times(&self) -> (Duration, Duration) {
        (self.plan.scrape.interval, self.plan.scrape.timeout)
    }

    fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    async fn attempt(self: Arc<Scraping>, intended: Instant) {
        let late = i64::try_from(intended.elapsed().as_nanos()).unwrap_or(i64::MAX);
        let at = self.ledger.now().saturating_sub(late);
        let began = counts_from(intended);
        let left = self.plan.scrape.timeout.saturating_sub(began.elapsed());
        let page = match tokio::time::timeout(left, self.plan.fetch()).await {
            Ok(page) => page,
            Err(_) => Err(format!("no page within {} ms", self.plan.scrape.timeout.as_millis())),
        };
        let took = began.elapsed();
        // Reading a large page is work, and the journal may be slow; that does not belong where others wait for
        // their turn.
        aside(move || self.keep(page, at, took)).await;
    }

    fn close(&self, is_ended: bool) {
        if is_ended {
            // What is not taken the ledger tells, if that can be.
            let _ = self.end();
        }
        self.ledger.close();
    }
}
