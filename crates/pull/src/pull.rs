//! All jobs, begun and ended together.

use std::sync::Arc;
use std::time::Duration;

use intake::{Counter, Intake};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use crate::check::Checking;
use crate::error::Result;
use crate::schedule::Schedule;
use crate::scrape::Scraping;
use crate::settings::Settings;

/// Attempts of all jobs that are on their way at a time.
const ATTEMPTS_MAX: usize = 256;
/// Attempts of one job.
const ATTEMPTS_PER_JOB_MAX: usize = 4;
/// How long attempts that are on their way are waited for at a stop.
const STOP_MAX: Duration = Duration::from_secs(5);

/// Jobs that run.
#[derive(Debug)]
pub struct Pull {
    stop: watch::Sender<bool>,
    jobs: JoinSet<()>,
}

/// What a job does at each of its times.
pub(crate) trait Job: Send + Sync + 'static {
    fn name(&self) -> &str;
    fn interval(&self) -> Duration;
    /// One attempt; `intended` is when it should have begun.
    fn attempt(self: Arc<Self>, intended: Instant) -> impl Future<Output = ()> + Send;
    /// Attempts that were not made, because as many as may be were on their way or nobody was there to begin.
    fn missed(&self, attempts: u64);
}

impl Pull {
    /// Begins all jobs; inside a runtime of tokio.
    pub fn start(settings: &Settings, intake: &Arc<Intake>) -> Result<Pull> {
        let (stop, stopped) = watch::channel(false);
        let room = Arc::new(Semaphore::new(ATTEMPTS_MAX));
        // All are looked at before the first begins.
        let scrapes: Vec<Scraping> = settings
            .scrapes
            .iter()
            .map(|scrape| Scraping::new(scrape, intake))
            .collect::<Result<_>>()?;
        let checks: Vec<Checking> = settings
            .checks
            .iter()
            .map(|check| Checking::new(check, intake))
            .collect::<Result<_>>()?;
        let mut jobs = JoinSet::new();
        for scrape in scrapes {
            jobs.spawn(run(Arc::new(scrape), stopped.clone(), Arc::clone(&room)));
        }
        for check in checks {
            jobs.spawn(run(Arc::new(check), stopped.clone(), Arc::clone(&room)));
        }
        Ok(Pull { stop, jobs })
    }

    /// Begins nothing more, and waits a little for what is on its way.
    pub async fn stop(mut self) {
        let _ = self.stop.send(true);
        let all = async { while self.jobs.join_next().await.is_some() {} };
        let _ = timeout(STOP_MAX, all).await;
    }
}

async fn run<J: Job>(job: Arc<J>, mut stopped: watch::Receiver<bool>, room: Arc<Semaphore>) {
    let mut schedule = Schedule::new(Instant::now(), job.interval(), job.name());
    let mut attempts = JoinSet::new();
    loop {
        let (intended, missed) = schedule.next(Instant::now());
        if missed > 0 {
            job.missed(missed);
        }
        tokio::select! {
            () = sleep_until(intended) => {}
            _ = stopped.wait_for(|stopped| *stopped) => break,
        }
        while attempts.try_join_next().is_some() {}
        let place = match attempts.len() < ATTEMPTS_PER_JOB_MAX {
            true => Arc::clone(&room).try_acquire_owned().ok(),
            false => None,
        };
        match place {
            None => job.missed(1),
            Some(place) => {
                let job = Arc::clone(&job);
                attempts.spawn(async move {
                    job.attempt(intended).await;
                    drop(place);
                });
            }
        }
    }
    while attempts.join_next().await.is_some() {}
}

/// What became of attempts, counted.
#[derive(Debug)]
pub(crate) struct Outcomes {
    pub(crate) well: Counter,
    pub(crate) failed: Counter,
    pub(crate) missed: Counter,
}

impl Outcomes {
    pub(crate) fn new(intake: &Intake, kind: &str, job: &str) -> Outcomes {
        let counter = |outcome| {
            intake.meter().counter(
                "topdeck_pull_attempts_total",
                "scrapes and checks by what became of them; those that were missed were not made",
                &[("kind", kind), ("job", job), ("outcome", outcome)],
            )
        };
        Outcomes { well: counter("well"), failed: counter("failed"), missed: counter("missed") }
    }
}
