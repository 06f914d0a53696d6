//! A page of metrics, fetched and read.
//!
//! What Prometheus adds to a page is added here, by the same names: `up`, `scrape_duration_seconds`,
//! `scrape_samples_scraped`, `scrape_series_added`; and series that went are marked as ended.

mod page;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use collect::Rows;
use collect::place::{Placed, Placing, Rules};
use http::{HeaderValue, Request, header};
use intake::{Intake, Producer, Writer};
use model::{Gap, Kind, Sample, Series, Value};
use net::Target;
use net::dial::{Allowance, Dialer, Limits};
use tokio::time::Instant;

use crate::error::{Error, Result};
use crate::pull::{Job, Outcomes};
use crate::scrape::page::{Attached, Page};
use crate::settings::Scrape;
use crate::stale::{Seen, Watching};

/// The source's number for keys of series, as `intake` asks for it.
const WAY: u8 = 6;
/// What is asked for: protocol buffers have native histograms, which text has not.
const ACCEPT: &str = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;\
    encoding=delimited;q=0.9,application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.7,*/*;q=0.1";

/// One page, and what is known of it.
#[derive(Debug)]
pub(crate) struct Scraping {
    scrape: Scrape,
    target: Target,
    dialer: Dialer,
    authorization: Option<HeaderValue>,
    intake: Arc<Intake>,
    producer: Producer,
    outcomes: Outcomes,
    state: Mutex<State>,
}

/// What one attempt leaves to the next.
#[derive(Debug, Default)]
struct State {
    seen: Seen,
    /// When the page was that `seen` is of; an attempt that began before says nothing about it.
    at: i64,
    /// What was read and could not be taken.
    lost: Option<Gap>,
}

impl Scraping {
    pub(crate) fn new(scrape: &Scrape, intake: &Arc<Intake>) -> Result<Scraping> {
        let job = || format!("scrape {:?}", scrape.name);
        let target =
            Target::parse(&scrape.url).map_err(|source| Error::Target { job: job(), source })?;
        let tls = match target.secure {
            true => {
                let config = scrape.tls.config();
                Some(Arc::new(config.map_err(|source| Error::Tls { job: job(), source })?))
            }
            false => None,
        };
        let bearer = scrape.token.as_ref().map(|token| {
            let mut value = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| {
                let what = "its token has characters that no header can have".to_owned();
                Error::Setting { job: job(), what }
            })?;
            value.set_sensitive(true);
            Ok(value)
        });
        let limit = scrape.timeout;
        Ok(Scraping {
            target,
            dialer: Dialer::new(Limits { resolve: limit, connect: limit, tls: limit }, tls),
            authorization: bearer.transpose()?,
            producer: intake.producer(&format!("scrape {}", scrape.name)),
            outcomes: Outcomes::new(intake, "scrape", &scrape.name),
            intake: Arc::clone(intake),
            scrape: scrape.clone(),
            state: Mutex::default(),
        })
    }

    /// The page, or why there is none.
    async fn fetch(&self) -> std::result::Result<Page, String> {
        let (mut connection, _) =
            self.dialer.dial(&self.target).await.map_err(|error| error.to_string())?;
        let mut request = Request::get(&self.target.path)
            .header(header::ACCEPT, ACCEPT)
            .header(header::ACCEPT_ENCODING, "gzip")
            .header(header::USER_AGENT, concat!("topdeck/", env!("CARGO_PKG_VERSION")))
            .header(
                "X-Prometheus-Scrape-Timeout-Seconds",
                self.scrape.timeout.as_secs_f64().to_string(),
            );
        if let Some(authorization) = &self.authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        let request = request.body(Bytes::new()).map_err(|error| error.to_string())?;
        let allowed = Allowance { time: self.scrape.timeout, bytes: self.scrape.bytes_max };
        let answer = connection.send(request, allowed).await.map_err(|error| error.to_string())?;
        let status = answer.response.status();
        if !status.is_success() {
            return Err(format!("the page answers {status}"));
        }
        Page::unpack(&answer.response, self.scrape.bytes_max)
    }

    /// Writes what was fetched, and takes it in.
    fn keep(
        &self,
        page: std::result::Result<Page, String>,
        at: i64,
        took: Duration,
    ) -> Option<intake::Receipt> {
        let mut writer = self.intake.writer(WAY);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_last = at > state.at;
        let (up, seen, samples) = match &page {
            Ok(page) => match self.read(page, at, &mut writer) {
                Ok((placed, seen, samples)) => {
                    (placed.refused == 0 || placed.readings > 0, seen, samples)
                }
                Err(_) => (false, Seen::default(), 0),
            },
            Err(_) => (false, Seen::default(), 0),
        };
        let added = seen.added(&state.seen);
        let mut written = Ok(());
        if is_last {
            written = state.seen.end(&seen, at, &mut writer);
        }
        let told = [
            ("up", f64::from(u8::from(up))),
            ("scrape_duration_seconds", took.as_secs_f64()),
            ("scrape_samples_scraped", samples as f64),
            ("scrape_series_added", added as f64),
        ];
        for (name, value) in told {
            written = written.and_then(|()| self.tell(name, value, at, &mut writer));
        }
        if let Some(gap) = state.lost.clone() {
            writer.gap(gap);
        }
        match up {
            true => self.outcomes.well.add(1),
            false => self.outcomes.failed.add(1),
        }
        let lost = writer.samples();
        let taken = match written {
            Ok(()) => self.intake.take(&self.producer, writer).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        if is_last {
            (state.seen, state.at) = (seen, at);
        }
        match taken {
            Ok(receipt) => {
                state.lost = None;
                Some(receipt)
            }
            Err(why) => {
                let before = state.lost.take();
                let start = before.as_ref().map_or(at, |gap| gap.start);
                let lost = lost + before.and_then(|gap| gap.lost).unwrap_or(0);
                let reason = format!("a scrape of {} was not taken: {why}", self.scrape.name);
                let producer = Some(self.producer.id());
                state.lost = Some(Gap { start, end: at, producer, lost: Some(lost), reason });
                None
            }
        }
    }

    fn labels(&self) -> Vec<(String, String)> {
        let job = [
            ("job".to_owned(), self.scrape.name.clone()),
            ("instance".to_owned(), format!("{}:{}", self.target.host, self.target.port)),
        ];
        let own = |name: &String| self.scrape.labels.iter().any(|label| label.0 == *name);
        let job = job.into_iter().filter(|label| !own(&label.0));
        job.chain(self.scrape.labels.iter().cloned()).collect()
    }

    fn read(
        &self,
        page: &Page,
        at: i64,
        writer: &mut Writer,
    ) -> model::Result<(Placed, Seen, u64)> {
        let mut watching = Watching::new(writer);
        let labels = self.labels();
        let rules = Rules { time: Some(at), ..Rules::default() };
        let placing = Placing::new(rules, &mut watching);
        let mut attached = Attached {
            placing,
            labels: &labels,
            honor_labels: self.scrape.honor_labels,
            honor_timestamps: self.scrape.honor_timestamps,
        };
        page.read(&mut attached);
        let placed = attached.placing.finish();
        Ok((placed, watching.seen, watching.samples))
    }

    fn tell(&self, name: &str, value: f64, at: i64, rows: &mut dyn Rows) -> model::Result<()> {
        let mut series = Series::new(name, Kind::Gauge);
        for (name, value) in self.labels() {
            series = series.with_label(name, value);
        }
        let series = series.checked()?;
        rows.series(&series.form(), &mut || Ok(series.clone()))?;
        rows.sample(&Sample { start: at, end: at, value: Value::Number(value) })
    }
}

impl Job for Scraping {
    fn name(&self) -> &str {
        &self.scrape.name
    }

    fn interval(&self) -> Duration {
        self.scrape.interval
    }

    async fn attempt(self: Arc<Scraping>, intended: Instant) {
        let late = intended.elapsed();
        let at = self.intake.now() - i64::try_from(late.as_nanos()).unwrap_or(0);
        let left = self.scrape.timeout.saturating_sub(late);
        let page = match tokio::time::timeout(left, self.fetch()).await {
            Ok(page) => page,
            Err(_) => Err(format!("no page within {} ms", self.scrape.timeout.as_millis())),
        };
        let took = intended.elapsed();
        let this = Arc::clone(&self);
        // Reading a large page is work; it does not belong where others wait for their turn.
        let kept = tokio::task::spawn_blocking(move || this.keep(page, at, took)).await;
        if let Ok(Some(receipt)) = kept {
            // Nobody is told: what is in the journal becomes durable by itself, or the journal says that it cannot.
            let _ = receipt.settled().await;
        }
    }

    fn missed(&self, attempts: u64) {
        self.outcomes.missed.add(attempts);
    }
}
