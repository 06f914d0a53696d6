//! Job manager: start, reload, stop.

use std::sync::Arc;
use std::time::Duration;

use intake::{Intake, LatencyHistogram, Restartable, catch_panic_async, keep_running};
use role::json::Json;
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};

use crate::attempt_log::AttemptLog;
use crate::check::{self, CheckJob};
use crate::error::Result;
use crate::schedule::PullSchedule;
use crate::scrape::{self, ScrapeJob};
use crate::settings::{CheckJobSettings, ScrapeJobSettings, Settings};
use crate::target_state::TargetState;

/// Concurrent attempts of all jobs.
const ATTEMPTS_MAX: usize = 1024;
/// Concurrent attempts of a job in addition to those within its timeout: their results are being
/// stored.
const ATTEMPTS_STORING: u128 = 2;
/// Longest wait for storing results at a stop, after the attempts have ended.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Skip reason of an attempt that panicked or whose result was lost in a panic.
const PANICKED: &str = "the attempt panicked";

/// Running jobs.
#[derive(Debug)]
pub struct Pull {
    intake: Arc<Intake>,
    permits: Arc<Semaphore>,
    jobs: Vec<RunningJob>,
    stop_timeout: Duration,
}

/// A running job.
#[derive(Debug)]
struct RunningJob {
    config: JobConfig,
    target: Arc<TargetState>,
    state: watch::Sender<JobState>,
    task: JoinHandle<()>,
}

#[derive(Clone, Debug, PartialEq)]
enum JobConfig {
    Scrape(ScrapeJobSettings),
    Check(CheckJobSettings),
}

impl JobConfig {
    /// Whether the job has settings in files, which may have changed.
    fn reads_files(&self) -> bool {
        let (JobConfig::Scrape(ScrapeJobSettings { tls, .. })
        | JobConfig::Check(CheckJobSettings { tls, .. })) = self;
        tls.has_files()
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum JobState {
    Running,
    /// The process stops; the job continues after a restart.
    Stopping,
    /// The job was removed.
    Removed,
}

/// A job on the schedule.
pub(crate) trait PullJob: Send + Sync + 'static {
    fn name(&self) -> &str;
    /// Interval between scheduled starts, and timeout of an attempt.
    fn interval_and_timeout(&self) -> (Duration, Duration);
    fn attempts(&self) -> &AttemptLog;
    fn target(&self) -> &Arc<TargetState>;
    /// Runs one attempt scheduled at `intended`.
    fn attempt(self: Arc<Self>, intended: Instant) -> impl Future<Output = ()> + Send;
    /// Writes pending gaps, and staleness markers if the job has been removed. May block on the
    /// journal.
    fn close(&self, is_removed: bool);
}

/// Validated job.
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
    /// Validates all jobs and the files they refer to, without starting any.
    pub fn check(&self) -> Result<()> {
        job_specs(self).map(drop)
    }
}

impl Pull {
    /// Starts all jobs; must be called inside a tokio runtime.
    pub fn start(settings: &Settings, intake: &Arc<Intake>) -> Result<Pull> {
        let specs = job_specs(settings)?;
        let permits = Arc::new(Semaphore::new(ATTEMPTS_MAX));
        let mut pull = Pull {
            intake: Arc::clone(intake),
            permits,
            jobs: Vec::new(),
            stop_timeout: settings.stop_timeout,
        };
        specs.into_iter().for_each(|(config, spec)| pull.spawn_job(config, spec));
        Ok(pull)
    }

    /// Changes the set of jobs. Unchanged jobs continue without interruption; removed or changed
    /// ones end, and so do their series. Jobs with TLS files restart with the current content of
    /// the files. If any job is invalid, nothing changes.
    pub async fn reload(&mut self, settings: &Settings) -> Result<()> {
        let specs = job_specs(settings)?;
        let is_unchanged = |config: &JobConfig| {
            !config.reads_files() && specs.iter().any(|(wanted, _)| wanted == config)
        };
        let before = std::mem::take(&mut self.jobs);
        let (staying, ending): (Vec<_>, Vec<_>) =
            before.into_iter().partition(|job| is_unchanged(&job.config));
        self.jobs = staying;
        close_jobs(ending, JobState::Removed, self.stop_timeout).await;
        self.stop_timeout = settings.stop_timeout;
        for (config, spec) in specs {
            if !self.jobs.iter().any(|job| job.config == config) {
                self.spawn_job(config, spec);
            }
        }
        Ok(())
    }

    fn spawn_job(&mut self, config: JobConfig, spec: JobSpec) {
        let (state, states) = watch::channel(JobState::Running);
        let permits = Arc::clone(&self.permits);
        let start_delay = self.intake.meter().histogram(
            "topdeck_pull_start_delay",
            "delay of the start of an attempt after its scheduled time, caused by this process",
            &[],
        );
        let (intake, stop_timeout) = (&self.intake, self.stop_timeout);
        let supervised = intake.supervisor().thread("pull");
        let (target, task) = match spec {
            JobSpec::Scrape(spec) => {
                let job = Arc::new(ScrapeJob::new(spec, intake));
                let target = Arc::clone(job.target());
                let task = tokio::spawn(keep_running(
                    supervised,
                    JobRunner::new(job, states, permits, start_delay, stop_timeout),
                ));
                (target, task)
            }
            JobSpec::Check(spec) => {
                let job = Arc::new(CheckJob::new(spec, intake));
                let target = Arc::clone(job.target());
                let task = tokio::spawn(keep_running(
                    supervised,
                    JobRunner::new(job, states, permits, start_delay, stop_timeout),
                ));
                (target, task)
            }
        };
        self.jobs.push(RunningJob { config, target, state, task });
    }

    /// The targets of all jobs, as JSON. The function stays valid until the next reload.
    pub fn read_targets(&self) -> impl Fn() -> Json + Send + Sync + 'static {
        let targets: Vec<_> = self.jobs.iter().map(|job| Arc::clone(&job.target)).collect();
        move || Json::List(targets.iter().map(|target| target.to_json()).collect())
    }

    /// Stops starting attempts, waits briefly for those in flight, and records the rest as
    /// interrupted.
    pub async fn stop(mut self) {
        close_jobs(std::mem::take(&mut self.jobs), JobState::Stopping, self.stop_timeout).await;
    }
}

impl Drop for Pull {
    fn drop(&mut self) {
        self.jobs.iter().for_each(|job| job.task.abort());
    }
}

async fn close_jobs(jobs: Vec<RunningJob>, state: JobState, stop_timeout: Duration) {
    // The job has ended and its receiver is dropped; the error is harmless.
    for job in &jobs {
        let _ = job.state.send(state);
    }
    let end = Instant::now() + stop_timeout + CLOSE_TIMEOUT;
    for mut job in jobs {
        let remaining = end.saturating_duration_since(Instant::now());
        if timeout(remaining, &mut job.task).await.is_err() {
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
    /// Scheduled start that is being processed.
    current: Option<Instant>,
}

impl<J: PullJob> JobRunner<J> {
    fn new(
        job: Arc<J>,
        state: watch::Receiver<JobState>,
        permits: Arc<Semaphore>,
        start_delay: LatencyHistogram,
        stop_timeout: Duration,
    ) -> JobRunner<J> {
        let (interval, attempt_timeout) = job.interval_and_timeout();
        let attempts_max =
            attempt_timeout.as_nanos().div_ceil(interval.as_nanos().max(1)) + ATTEMPTS_STORING;
        let schedule =
            PullSchedule::new(Instant::now(), job.attempts().now(), interval, job.name());
        let attempts = JoinSet::new();
        JobRunner {
            job,
            state,
            permits,
            start_delay,
            stop_timeout,
            schedule,
            attempts,
            attempts_max,
            current: None,
        }
    }

    /// Starts an attempt, or skips it.
    fn attempt(&mut self, intended: Instant) {
        while self.attempts.try_join_next().is_some() {}
        let (in_flight, max) = (self.attempts.len() as u128, self.attempts_max);
        let permit = match in_flight < max {
            true => Arc::clone(&self.permits)
                .try_acquire_owned()
                .map_err(|_| format!("limit of attempts of all jobs ({ATTEMPTS_MAX}) reached")),
            false => Err(format!("limit of attempts of a job ({max}) reached")),
        };
        let permit = match permit {
            Ok(permit) => permit,
            Err(reason) => return record_skipped(&*self.job, 1, intended, &reason),
        };
        self.start_delay.record(intended.elapsed());
        let job = Arc::clone(&self.job);
        self.attempts.spawn(async move {
            let attempt = async {
                job.attempts().supervisor().failpoint("pull attempt");
                Arc::clone(&job).attempt(intended).await;
            };
            if let Err(panic) = catch_panic_async(attempt).await {
                job.attempts().supervisor().thread("pull attempt").record_caught_panic(&*panic);
                record_skipped(&*job, 1, intended, PANICKED);
            }
            drop(permit);
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
                record_skipped(&*self.job, missed, intended - interval, "the process was stalled");
            }
            tokio::select! {
                () = sleep_until(intended) => {}
                _ = self.state.wait_for(|state| *state != JobState::Running) => break,
            }
            self.current = Some(intended);
            self.job.attempts().supervisor().failpoint("pull");
            self.attempt(intended);
            self.current = None;
        }
        let attempts = &mut self.attempts;
        let all = async { while attempts.join_next().await.is_some() {} };
        if timeout(self.stop_timeout, all).await.is_err() {
            while self.attempts.try_join_next().is_some() {}
            let running_attempts = self.attempts.len() as u64;
            record_skipped(
                &*self.job,
                running_attempts,
                Instant::now(),
                "the process or the job was stopped",
            );
            self.attempts.abort_all();
        }
        let is_removed = *self.state.borrow() == JobState::Removed;
        let job = Arc::clone(&self.job);
        run_blocking(move || job.close(is_removed)).await;
    }

    async fn wait_for_stop(&mut self) {
        // A closed channel counts as a stop.
        let _ = self.state.wait_for(|state| *state != JobState::Running).await;
    }
}

/// Runs blocking work on a thread where it delays no other task.
pub(crate) async fn run_blocking(work: impl FnOnce() + Send + 'static) {
    // The task fails only if the runtime shuts down.
    if let Err(error) = role::run_blocking(work).await
        && error.is_panic()
    {
        std::panic::resume_unwind(error.into_panic());
    }
}

/// `last` is the scheduled start of the last skipped attempt.
fn record_skipped<J: PullJob>(job: &J, attempts: u64, last: Instant, reason: &str) {
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
        reason,
    );
}
