//! Job manager: start, reload, stop.

use std::sync::Arc;
use std::time::Duration;

use intake::{Intake, LatencyHistogram, Restartable, catch_panic, keep_running};
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};

use crate::attempt_log::AttemptLog;
use crate::check::{self, CheckJob};
use crate::error::Result;
use crate::schedule::PullSchedule;
use crate::scrape::{self, ScrapeJob};
use crate::settings::{CheckJobSettings, ScrapeJobSettings, Settings};

/// Attempts of all jobs that are on their way at a time.
const ATTEMPTS_MAX: usize = 1024;
/// Attempts of a job beyond those that fit its timeout: what was found is being stored.
const ATTEMPTS_STORING: u128 = 2;
/// How long is waited at a stop until what was found is stored, after attempts were waited for.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Why an attempt is missed that a defect kept from being made, or whose outcome a defect took
/// along.
const PANICKED: &str = "work on it panicked";

/// Jobs that run.
#[derive(Debug)]
pub struct Pull {
    intake: Arc<Intake>,
    permits: Arc<Semaphore>,
    jobs: Vec<RunningJob>,
    stop_timeout: Duration,
}

/// One of them.
#[derive(Debug)]
struct RunningJob {
    config: JobConfig,
    state: watch::Sender<JobState>,
    task: JoinHandle<()>,
}

#[derive(Clone, Debug, PartialEq)]
enum JobConfig {
    Scrape(ScrapeJobSettings),
    Check(CheckJobSettings),
}

impl JobConfig {
    /// Whether files may say something else now.
    fn reads_files(&self) -> bool {
        let (JobConfig::Scrape(ScrapeJobSettings { tls, .. })
        | JobConfig::Check(CheckJobSettings { tls, .. })) = self;
        tls.has_files()
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum JobState {
    Running,
    /// The process stops; the job goes on after a restart.
    Stopping,
    /// There is no such job any more.
    Removed,
}

/// A job on the schedule.
pub(crate) trait PullJob: Send + Sync + 'static {
    fn name(&self) -> &str;
    /// From one intended beginning to the next, and how long an attempt may take.
    fn interval_and_timeout(&self) -> (Duration, Duration);
    fn attempts(&self) -> &AttemptLog;
    /// One attempt; `intended` is when it should have begun.
    fn attempt(self: Arc<Self>, intended: Instant) -> impl Future<Output = ()> + Send;
    /// Says what is still to be said; if the job is no more, that too. It may wait for the journal.
    fn close(&self, is_ended: bool);
}

/// A job that makes sense.
enum JobSpec {
    Scrape(scrape::ScrapeConfig),
    Check(check::CheckConfig),
}

fn job_specs(settings: &Settings) -> Result<Vec<(JobConfig, JobSpec)>> {
    let scrapes = settings.scrapes.iter().map(|scrape| {
        Ok((JobConfig::Scrape(scrape.clone()), JobSpec::Scrape(scrape::ScrapeConfig::new(scrape)?)))
    });
    let checks = settings.checks.iter().map(|check| {
        Ok((JobConfig::Check(check.clone()), JobSpec::Check(check::CheckConfig::new(check)?)))
    });
    scrapes.chain(checks).collect()
}

impl Settings {
    /// Looks at all jobs, and at the files they name, and begins none.
    pub fn check(&self) -> Result<()> {
        job_specs(self).map(drop)
    }
}

impl Pull {
    /// Begins all jobs; inside a runtime of tokio.
    pub fn start(settings: &Settings, intake: &Arc<Intake>) -> Result<Pull> {
        let plans = job_specs(settings)?;
        let room = Arc::new(Semaphore::new(ATTEMPTS_MAX));
        let mut pull = Pull {
            intake: Arc::clone(intake),
            permits: room,
            jobs: Vec::new(),
            stop_timeout: settings.stop_timeout,
        };
        plans.into_iter().for_each(|(what, plan)| pull.spawn_job(what, plan));
        Ok(pull)
    }

    /// Goes over to other jobs. Those that stay the same go on undisturbed; those that are no more,
    /// or other ones, end, and so do their series. Jobs whose TLS is in files begin anew, with what
    /// is in them now. Where one of the jobs makes no sense, all stays as it was.
    pub async fn reload(&mut self, settings: &Settings) -> Result<()> {
        let plans = job_specs(settings)?;
        let stays = |what: &JobConfig| {
            !what.reads_files() && plans.iter().any(|(wanted, _)| wanted == what)
        };
        let before = std::mem::take(&mut self.jobs);
        let (staying, ending): (Vec<_>, Vec<_>) =
            before.into_iter().partition(|job| stays(&job.config));
        self.jobs = staying;
        close_jobs(ending, JobState::Removed, self.stop_timeout).await;
        self.stop_timeout = settings.stop_timeout;
        for (what, plan) in plans {
            if !self.jobs.iter().any(|job| job.config == what) {
                self.spawn_job(what, plan);
            }
        }
        Ok(())
    }

    fn spawn_job(&mut self, what: JobConfig, plan: JobSpec) {
        let (state, seen) = watch::channel(JobState::Running);
        let room = Arc::clone(&self.permits);
        let late = self.intake.meter().histogram(
            "topdeck_pull_start_delay",
            "how long after its intended beginning an attempt began, by this process' fault",
            &[],
        );
        let (intake, stop_max) = (&self.intake, self.stop_timeout);
        let supervised = intake.supervisor().thread("pull");
        let task = match plan {
            JobSpec::Scrape(plan) => {
                let job = Arc::new(ScrapeJob::new(plan, intake));
                tokio::spawn(keep_running(
                    supervised,
                    JobRunner::new(job, seen, room, late, stop_max),
                ))
            }
            JobSpec::Check(plan) => {
                let job = Arc::new(CheckJob::new(plan, intake));
                tokio::spawn(keep_running(
                    supervised,
                    JobRunner::new(job, seen, room, late, stop_max),
                ))
            }
        };
        self.jobs.push(RunningJob { config: what, state, task });
    }

    /// Begins nothing more, waits a little for what is on its way, and says of the rest that it was
    /// cut off.
    pub async fn stop(mut self) {
        close_jobs(std::mem::take(&mut self.jobs), JobState::Stopping, self.stop_timeout).await;
    }
}

impl Drop for Pull {
    fn drop(&mut self) {
        self.jobs.iter().for_each(|job| job.task.abort());
    }
}

async fn close_jobs(jobs: Vec<RunningJob>, state: JobState, stop_max: Duration) {
    // A job that is over hears nothing, and need not.
    for job in &jobs {
        let _ = job.state.send(state);
    }
    let end = Instant::now() + stop_max + CLOSE_TIMEOUT;
    for mut job in jobs {
        let left = end.saturating_duration_since(Instant::now());
        if timeout(left, &mut job.task).await.is_err() {
            job.task.abort();
        }
    }
}

/// Runner: starts the attempts of a job on schedule.
struct JobRunner<J> {
    job: Arc<J>,
    state: watch::Receiver<JobState>,
    permits: Arc<Semaphore>,
    start_delay: LatencyHistogram,
    stop_timeout: Duration,
    schedule: PullSchedule,
    attempts: JoinSet<()>,
    attempts_max: u128,
    /// The beginning that is being worked on.
    current: Option<Instant>,
}

impl<J: PullJob> JobRunner<J> {
    fn new(
        job: Arc<J>,
        state: watch::Receiver<JobState>,
        room: Arc<Semaphore>,
        late: LatencyHistogram,
        stop_max: Duration,
    ) -> JobRunner<J> {
        let (interval, longest) = job.interval_and_timeout();
        let attempts_max =
            longest.as_nanos().div_ceil(interval.as_nanos().max(1)) + ATTEMPTS_STORING;
        let schedule =
            PullSchedule::new(Instant::now(), job.attempts().now(), interval, job.name());
        let attempts = JoinSet::new();
        JobRunner {
            job,
            state,
            permits: room,
            start_delay: late,
            stop_timeout: stop_max,
            schedule,
            attempts,
            attempts_max,
            current: None,
        }
    }

    /// One attempt begins, or is missed.
    fn attempt(&mut self, intended: Instant) {
        while self.attempts.try_join_next().is_some() {}
        let place = match (self.attempts.len() as u128) < self.attempts_max {
            true => Arc::clone(&self.permits).try_acquire_owned().ok(),
            false => None,
        };
        let Some(place) = place else {
            return record_skipped(&*self.job, 1, intended, "too many others were on their way");
        };
        self.start_delay.record(intended.elapsed());
        let job = Arc::clone(&self.job);
        self.attempts.spawn(async move {
            let attempt = async {
                job.attempts().supervisor().fault_point("pull attempt");
                Arc::clone(&job).attempt(intended).await;
            };
            if let Err(panic) = catch_panic(attempt).await {
                job.attempts().supervisor().thread("pull attempt").record_caught_panic(&*panic);
                record_skipped(&*job, 1, intended, PANICKED);
            }
            drop(place);
        });
    }
}

impl<J: PullJob> Restartable for JobRunner<J> {
    async fn run(&mut self) {
        let (interval, _) = self.job.interval_and_timeout();
        if let Some(intended) = self.current.take() {
            record_skipped(&*self.job, 1, intended, PANICKED);
        }
        loop {
            let (intended, missed) = self.schedule.next(Instant::now());
            if missed > 0 {
                record_skipped(
                    &*self.job,
                    missed,
                    intended - interval,
                    "nothing of this process ran",
                );
            }
            tokio::select! {
                () = sleep_until(intended) => {}
                _ = self.state.wait_for(|state| *state != JobState::Running) => break,
            }
            self.current = Some(intended);
            self.job.attempts().supervisor().fault_point("pull");
            self.attempt(intended);
            self.current = None;
        }
        let attempts = &mut self.attempts;
        let all = async { while attempts.join_next().await.is_some() {} };
        if timeout(self.stop_timeout, all).await.is_err() {
            while self.attempts.try_join_next().is_some() {}
            let left = self.attempts.len() as u64;
            record_skipped(&*self.job, left, Instant::now(), "topdeck or the job was stopped");
            self.attempts.abort_all();
        }
        let is_ended = *self.state.borrow() == JobState::Removed;
        let job = Arc::clone(&self.job);
        run_blocking(move || job.close(is_ended)).await;
    }

    async fn wait_for_stop(&mut self) {
        // An error is a stop without a word.
        let _ = self.state.wait_for(|state| *state != JobState::Running).await;
    }
}

/// Does something that takes a while where nobody waits for his turn.
pub(crate) async fn run_blocking(work: impl FnOnce() + Send + 'static) {
    // It is not done where the runtime ends, and only there.
    if let Err(error) = tokio::task::spawn_blocking(work).await
        && error.is_panic()
    {
        std::panic::resume_unwind(error.into_panic());
    }
}

/// `last` is when the last of them should have begun.
fn record_skipped<J: PullJob>(job: &J, attempts: u64, last: Instant, why: &str) {
    if attempts == 0 {
        return;
    }
    let ns = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
    let (interval, _) = job.interval_and_timeout();
    let end = job.attempts().now().saturating_sub(ns(last.elapsed())).saturating_add(1);
    let before = ns(interval).saturating_mul(i64::try_from(attempts).unwrap_or(i64::MAX) - 1);
    job.attempts().record_skipped(
        attempts,
        (end.saturating_sub(before).saturating_sub(1), end),
        why,
    );
}
