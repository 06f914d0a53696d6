//! All jobs, begun and ended together or one by one.

use std::sync::Arc;
use std::time::Duration;

use intake::{Intake, Restartable, Timer, caught, keep_running};
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};

use crate::check::{self, Checking};
use crate::error::Result;
use crate::ledger::Ledger;
use crate::schedule::Schedule;
use crate::scrape::{self, Scraping};
use crate::settings::{Check, Scrape, Settings};

/// Attempts of all jobs that are on their way at a time.
const ATTEMPTS_MAX: usize = 1024;
/// Attempts of a job beyond those that fit its timeout: what was found is being stored.
const ATTEMPTS_STORING: u128 = 2;
/// How long is waited at a stop until what was found is stored, after attempts were waited for.
const CLOSE_MAX: Duration = Duration::from_secs(5);

/// Why an attempt is missed that a defect kept from being made, or whose outcome a defect took
/// along.
const PANICKED: &str = "work on it panicked";

/// Jobs that run.
#[derive(Debug)]
pub struct Pull {
    intake: Arc<Intake>,
    room: Arc<Semaphore>,
    jobs: Vec<Running>,
    stop_max: Duration,
}

/// One of them.
#[derive(Debug)]
struct Running {
    what: What,
    state: watch::Sender<State>,
    task: JoinHandle<()>,
}

#[derive(Clone, Debug, PartialEq)]
enum What {
    Scrape(Scrape),
    Check(Check),
}

impl What {
    /// Whether files may say something else now.
    fn has_files(&self) -> bool {
        let (What::Scrape(Scrape { tls, .. }) | What::Check(Check { tls, .. })) = self;
        tls.has_files()
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Runs,
    /// The process stops; the job goes on after a restart.
    Stops,
    /// There is no such job any more.
    Ends,
}

/// What a job does at each of its times.
pub(crate) trait Job: Send + Sync + 'static {
    fn name(&self) -> &str;
    /// From one intended beginning to the next, and how long an attempt may take.
    fn times(&self) -> (Duration, Duration);
    fn ledger(&self) -> &Ledger;
    /// One attempt; `intended` is when it should have begun.
    fn attempt(self: Arc<Self>, intended: Instant) -> impl Future<Output = ()> + Send;
    /// Says what is still to be said; if the job is no more, that too. It may wait for the journal.
    fn close(&self, is_ended: bool);
}

/// A job that makes sense.
enum Plan {
    Scrape(scrape::Plan),
    Check(check::Plan),
}

fn plans(settings: &Settings) -> Result<Vec<(What, Plan)>> {
    let scrapes = settings
        .scrapes
        .iter()
        .map(|scrape| Ok((What::Scrape(scrape.clone()), Plan::Scrape(scrape::Plan::new(scrape)?))));
    let checks = settings
        .checks
        .iter()
        .map(|check| Ok((What::Check(check.clone()), Plan::Check(check::Plan::new(check)?))));
    scrapes.chain(checks).collect()
}

impl Settings {
    /// Looks at all jobs, and at the files they name, and begins none.
    pub fn check(&self) -> Result<()> {
        plans(self).map(drop)
    }
}

impl Pull {
    /// Begins all jobs; inside a runtime of tokio.
    pub fn start(settings: &Settings, intake: &Arc<Intake>) -> Result<Pull> {
        let plans = plans(settings)?;
        let room = Arc::new(Semaphore::new(ATTEMPTS_MAX));
        let mut pull = Pull {
            intake: Arc::clone(intake),
            room,
            jobs: Vec::new(),
            stop_max: settings.stop_max,
        };
        plans.into_iter().for_each(|(what, plan)| pull.begin(what, plan));
        Ok(pull)
    }

    /// Goes over to other jobs. Those that stay the same go on undisturbed; those that are no more, or other ones, end, and
    /// so do their series. Jobs whose TLS is in files begin anew, with what is in them now. Where one of the jobs makes
    /// no sense, all stays as it was.
    pub async fn reload(&mut self, settings: &Settings) -> Result<()> {
        let plans = plans(settings)?;
        let stays =
            |what: &What| !what.has_files() && plans.iter().any(|(wanted, _)| wanted == what);
        let before = std::mem::take(&mut self.jobs);
        let (staying, ending): (Vec<_>, Vec<_>) =
            before.into_iter().partition(|job| stays(&job.what));
        self.jobs = staying;
        close(ending, State::Ends, self.stop_max).await;
        self.stop_max = settings.stop_max;
        for (what, plan) in plans {
            if !self.jobs.iter().any(|job| job.what == what) {
                self.begin(what, plan);
            }
        }
        Ok(())
    }

    fn begin(&mut self, what: What, plan: Plan) {
        let (state, seen) = watch::channel(State::Runs);
        let room = Arc::clone(&self.room);
        let late = self.intake.meter().timer(
            "topdeck_pull_late",
            "how long after its intended beginning an attempt began, by this process' fault",
            &[],
        );
        let (intake, stop_max) = (&self.intake, self.stop_max);
        let supervised = intake.supervisor().thread("pull");
        let task = match plan {
            Plan::Scrape(plan) => {
                let job = Arc::new(Scraping::new(plan, intake));
                tokio::spawn(keep_running(supervised, Runner::new(job, seen, room, late, stop_max)))
            }
            Plan::Check(plan) => {
                let job = Arc::new(Checking::new(plan, intake));
                tokio::spawn(keep_running(supervised, Runner::new(job, seen, room, late, stop_max)))
            }
        };
        self.jobs.push(Running { what, state, task });
    }

    /// Begins nothing more, waits a little for what is on its way, and says of the rest that it was cut off.
    pub async fn stop(mut self) {
        close(std::mem::take(&mut self.jobs), State::Stops, self.stop_max).await;
    }
}

impl Drop for Pull {
    fn drop(&mut self) {
        self.jobs.iter().for_each(|job| job.task.abort());
    }
}

async fn close(jobs: Vec<Running>, state: State, stop_max: Duration) {
    // A job that is over hears nothing, and need not.
    for job in &jobs {
        let _ = job.state.send(state);
    }
    let end = Instant::now() + stop_max + CLOSE_MAX;
    for mut job in jobs {
        let left = end.saturating_duration_since(Instant::now());
        if timeout(left, &mut job.task).await.is_err() {
            job.task.abort();
        }
    }
}

/// Begins the attempts of a job, each at its time.
struct Runner<J> {
    job: Arc<J>,
    state: watch::Receiver<State>,
    room: Arc<Semaphore>,
    late: Timer,
    stop_max: Duration,
    schedule: Schedule,
    attempts: JoinSet<()>,
    attempts_max: u128,
    /// The beginning that is being worked on.
    in_hand: Option<Instant>,
}

impl<J: Job> Runner<J> {
    fn new(
        job: Arc<J>,
        state: watch::Receiver<State>,
        room: Arc<Semaphore>,
        late: Timer,
        stop_max: Duration,
    ) -> Runner<J> {
        let (interval, longest) = job.times();
        let attempts_max =
            longest.as_nanos().div_ceil(interval.as_nanos().max(1)) + ATTEMPTS_STORING;
        let schedule = Schedule::new(Instant::now(), job.ledger().now(), interval, job.name());
        let attempts = JoinSet::new();
        Runner { job, state, room, late, stop_max, schedule, attempts, attempts_max, in_hand: None }
    }

    /// One attempt begins, or is missed.
    fn attempt(&mut self, intended: Instant) {
        while self.attempts.try_join_next().is_some() {}
        let place = match (self.attempts.len() as u128) < self.attempts_max {
            true => Arc::clone(&self.room).try_acquire_owned().ok(),
            false => None,
        };
        let Some(place) = place else {
            return miss(&*self.job, 1, intended, "too many others were on their way");
        };
        self.late.record(intended.elapsed());
        let job = Arc::clone(&self.job);
        self.attempts.spawn(async move {
            let attempt = async {
                job.ledger().supervisor().fault_point("pull attempt");
                Arc::clone(&job).attempt(intended).await;
            };
            if let Err(panic) = caught(attempt).await {
                job.ledger().supervisor().thread("pull attempt").caught(&*panic);
                miss(&*job, 1, intended, PANICKED);
            }
            drop(place);
        });
    }
}

impl<J: Job> Restartable for Runner<J> {
    async fn run(&mut self) {
        let (interval, _) = self.job.times();
        if let Some(intended) = self.in_hand.take() {
            miss(&*self.job, 1, intended, PANICKED);
        }
        loop {
            let (intended, missed) = self.schedule.next(Instant::now());
            if missed > 0 {
                miss(&*self.job, missed, intended - interval, "nothing of this process ran");
            }
            tokio::select! {
                () = sleep_until(intended) => {}
                _ = self.state.wait_for(|state| *state != State::Runs) => break,
            }
            self.in_hand = Some(intended);
            self.job.ledger().supervisor().fault_point("pull");
            self.attempt(intended);
            self.in_hand = None;
        }
        let attempts = &mut self.attempts;
        let all = async { while attempts.join_next().await.is_some() {} };
        if timeout(self.stop_max, all).await.is_err() {
            while self.attempts.try_join_next().is_some() {}
            let left = self.attempts.len() as u64;
            miss(&*self.job, left, Instant::now(), "topdeck or the job was stopped");
            self.attempts.abort_all();
        }
        let is_ended = *self.state.borrow() == State::Ends;
        let job = Arc::clone(&self.job);
        aside(move || job.close(is_ended)).await;
    }

    async fn stopped(&mut self) {
        // An error is a stop without a word.
        let _ = self.state.wait_for(|state| *state != State::Runs).await;
    }
}

/// Does something that takes a while where nobody waits for his turn.
pub(crate) async fn aside(work: impl FnOnce() + Send + 'static) {
    // It is not done where the runtime ends, and only there.
    if let Err(error) = tokio::task::spawn_blocking(work).await
        && error.is_panic()
    {
        std::panic::resume_unwind(error.into_panic());
    }
}

/// `last` is when the last of them should have begun.
fn miss<J: Job>(job: &J, attempts: u64, last: Instant, why: &str) {
    if attempts == 0 {
        return;
    }
    let ns = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
    let (interval, _) = job.times();
    let end = job.ledger().now().saturating_sub(ns(last.elapsed())).saturating_add(1);
    let before = ns(interval).saturating_mul(i64::try_from(attempts).unwrap_or(i64::MAX) - 1);
    job.ledger().miss(attempts, (end.saturating_sub(before).saturating_sub(1), end), why);
}
