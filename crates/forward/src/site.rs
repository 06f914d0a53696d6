//! The task of a site: read, send, wait for the answer, move the place in the journal; after a failure wait, and
//! read again from there.
//!
//! One parcel is under way at a time, so that what arrives arrives in order, whatever fails.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderValue, Request, header};
use intake::{Intake, Restartable};
use net::dial::{Allowance, Connection, Dialer};
use net::signature::{Signer, hex};
use net::{Target, parcels};
use tokio::sync::watch;

use crate::answer::{Answer, Verdict};
use crate::aside::Aside;
use crate::error::{Error, Result};
use crate::ledger::Ledger;
use crate::load::{Fate, Load};
use crate::measure::Measure;
use crate::retry::Retry;
use crate::settings::Settings;
use crate::status::Board;
use crate::supply::{Condemned, Supply};

/// How long a look into the journal waits for something to come. A stop waits as long at the most.
const LOOK: Duration = Duration::from_millis(200);
/// Bytes of an answer that are read.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// A site, with all that its task needs.
pub(crate) struct Task {
    pub(crate) name: String,
    /// Its subscriber in the journal.
    pub(crate) subscriber: String,
    pub(crate) target: Target,
    pub(crate) authorization: Option<HeaderValue>,
    pub(crate) agent: HeaderValue,
    pub(crate) dialer: Dialer,
    pub(crate) signer: Arc<Signer>,
    pub(crate) settings: Settings,
    pub(crate) intake: Arc<Intake>,
    pub(crate) board: Board,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) measure: Measure,
    /// Until when to go on after a stop was asked for; none as long as it was not.
    pub(crate) stop: watch::Receiver<Option<Instant>>,
}

/// A batch that was refused, and how often.
struct Suspect {
    sequence: u64,
    refusals: u32,
}

/// What a task remembers between parcels.
struct State {
    supply: Option<Supply>,
    connection: Option<Connection>,
    retry: Retry,
    suspect: Option<Suspect>,
    condemned: Option<Condemned>,
}

/// What to do next.
enum Next {
    GoOn,
    /// Nothing came.
    Idle,
    Wait(Duration),
}

/// After a panic everything behind the last acknowledgement is read and sent again: the site knows
/// repeats.
impl Restartable for Task {
    /// Runs until a stop is asked for.
    async fn run(&mut self) {
        let mut state = State {
            supply: None,
            connection: None,
            retry: Retry::new(self.settings.retry),
            suspect: None,
            condemned: None,
        };
        loop {
            let next = match self.round(&mut state).await {
                Ok(next) => next,
                Err(error) => self.failed(&mut state, error.to_string(), None, false),
            };
            // Whoever started it is gone without a word.
            if self.stop.has_changed().is_err() {
                break;
            }
            let stopping = *self.stop.borrow_and_update();
            let is_over = stopping.is_some_and(|end| Instant::now() >= end);
            match next {
                Next::GoOn if is_over => break,
                // Nothing is left, or it cannot be sent: the journal keeps it.
                Next::Idle | Next::Wait(_) if stopping.is_some() => break,
                Next::GoOn | Next::Idle => {}
                Next::Wait(time) => {
                    // What it ends with is looked at above.
                    let _ = tokio::time::timeout(time, self.stop.changed()).await;
                }
            }
        }
        self.board.set().connected = None;
        if let Err(error) = self.save(state.supply.take()).await {
            self.board.set().trouble = Some((self.intake.now(), error.to_string()));
        }
    }

    async fn stopped(&mut self) {
        // An error is a stop without a word.
        let _ = self.stop.wait_for(Option::is_some).await;
    }
}

impl Task {
    /// Writes the book of what the site has, and moves its subscriber; that is moved after the next start if it is
    /// not open now.
    async fn save(&self, supply: Option<Supply>) -> Result<()> {
        let (ledger, now) = (Arc::clone(&self.ledger), self.intake.now());
        let work = move || match supply {
            Some(mut supply) => supply.save(now),
            None => ledger.save(now).map(drop),
        };
        blocking(work).await
    }

    /// One parcel.
    async fn round(&mut self, state: &mut State) -> Result<Next> {
        let Some(load) = self.read(state).await? else {
            self.board.set().oldest = None;
            return Ok(Next::Idle);
        };
        self.note(&load);
        self.intake.supervisor().fault_point(format_args!("site {}", self.name));
        let answer = tokio::select! {
            answer = self.send(state, &load) => answer,
            () = over(self.stop.clone()) => Answer::none("stopped".to_owned()),
        };
        self.intake.supervisor().fault_point(format_args!("site {} answered", self.name));
        if let Some(accepted) = answer.accepted {
            self.accepted(state, accepted, &load);
        }
        Ok(match answer.verdict {
            Verdict::Taken => {
                self.board.set().trouble = None;
                Next::GoOn
            }
            Verdict::Later { why, after, slowly } => self.failed(state, why, after, slowly),
            Verdict::Refused { sequence, why } => self.refused(state, sequence, why),
        })
    }

    /// Reads on a thread that may wait: for files, and for something to come.
    async fn read(&self, state: &mut State) -> Result<Option<Load>> {
        let (supply, condemned) = (state.supply.take(), state.condemned.clone());
        let intake = Arc::clone(&self.intake);
        let (site, subscriber) = (self.name.clone(), self.subscriber.clone());
        let aside = Aside::new(&self.settings.aside, &site);
        let (ledger, signer) = (Arc::clone(&self.ledger), Arc::clone(&self.signer));
        let work = move || -> Result<_> {
            let mut supply = match supply {
                Some(supply) => supply,
                None => Supply::open(intake.home(), &site, &subscriber, aside, &ledger)?,
            };
            if let Some(condemned) = condemned {
                supply.condemn(condemned);
            }
            let load = supply.next(intake.now(), LOOK, &signer)?;
            Ok((supply, load))
        };
        let (supply, load) = blocking(work).await?;
        self.board.set().position = supply.position();
        state.supply = Some(supply);
        Ok(load)
    }

    fn note(&self, load: &Load) {
        let mut status = self.board.set();
        status.oldest = load.oldest;
        status.sent_bytes += load.body.len() as u64;
        drop(status);
        self.measure.sent.add(load.parts.len() as u64);
        self.measure.bytes.add(load.body.len() as u64);
    }

    async fn send(&self, state: &mut State, load: &Load) -> Answer {
        let committed = self.board.set().position;
        let began = Instant::now();
        match self.ask(state, load).await {
            Ok(answer) => {
                let answer = Answer::of(&answer.response, committed, load.last());
                if answer.verdict == Verdict::Taken {
                    self.measure.answering.record(began.elapsed());
                } else if answer.accepted.is_none() {
                    // What it said may be about something else: the next answer is to be about the next question.
                    state.connection = None;
                }
                answer
            }
            Err(error) => {
                state.connection = None;
                Answer::none(error.to_string())
            }
        }
    }

    async fn ask(&self, state: &mut State, load: &Load) -> net::dial::Result<net::dial::Answer> {
        let usable = state.connection.take().filter(Connection::is_open);
        let mut connection = match usable {
            Some(connection) => connection,
            None => {
                self.board.set().connected = None;
                let (connection, _) = self.dialer.dial(&self.target).await?;
                self.board.set().connected = Some(self.intake.now());
                connection
            }
        };
        let allowed = Allowance { time: self.settings.answer_max, bytes: ANSWER_BYTES_MAX };
        // From here on it may be taken and the answer lost.
        self.ledger.send(load.last());
        let answer = connection.send(self.request(load), allowed).await?;
        state.connection = Some(connection);
        Ok(answer)
    }

    fn request(&self, load: &Load) -> Request<Bytes> {
        let mut request = Request::post(self.target.path.as_str())
            .header(header::CONTENT_TYPE, HeaderValue::from_static(parcels::CONTENT_TYPE))
            .header(header::CONTENT_ENCODING, HeaderValue::from_static("zstd"))
            .header(parcels::AGENT, self.agent.clone())
            .header(parcels::KEY, hex(&self.signer.public_key()))
            .header(parcels::SIGNATURE, hex(&load.signature));
        if let Some(authorization) = &self.authorization {
            request = request.header(header::AUTHORIZATION, authorization.clone());
        }
        request.body(load.body.clone()).expect("BUG: the target's path is one")
    }

    /// The site has everything up to `accepted`.
    fn accepted(&self, state: &mut State, accepted: u64, load: &Load) {
        self.ledger.add(load.done(accepted));
        state.retry.reset();
        if state.suspect.as_ref().is_some_and(|suspect| suspect.sequence <= accepted) {
            (state.suspect, state.condemned) = (None, None);
        }
        let mut status = self.board.set();
        status.position = accepted;
        status.acknowledged = Some(self.intake.now());
        for part in load.done(accepted) {
            match part.fate {
                Fate::Sent => status.records += part.records,
                Fate::Missing => status.missing += part.records,
                Fate::SetAside => status.set_aside += part.records,
            }
            self.measure.done(part);
        }
    }

    /// A batch was refused by name: again, and at last it is condemned.
    fn refused(&self, state: &mut State, sequence: u64, why: String) -> Next {
        let refusals = match &state.suspect {
            Some(suspect) if suspect.sequence == sequence => suspect.refusals + 1,
            _ => 1,
        };
        state.suspect = Some(Suspect { sequence, refusals });
        if refusals >= self.settings.refusals_max {
            state.condemned = Some(Condemned { sequence, why: why.clone() });
        }
        self.failed(state, format!("batch {sequence} refused {refusals} times: {why}"), None, false)
    }

    /// Everything after the last acknowledgement is read again, after a while.
    fn failed(
        &self,
        state: &mut State,
        why: String,
        after: Option<Duration>,
        slowly: bool,
    ) -> Next {
        state.supply = None;
        self.measure.retries.add(1);
        let mut status = self.board.set();
        status.trouble = Some((self.intake.now(), why));
        if state.connection.is_none() {
            status.connected = None;
        }
        Next::Wait(state.retry.after(after, slowly, journal::random_id() as u64))
    }
}

/// Ends when the time after a stop is over.
async fn over(mut stop: watch::Receiver<Option<Instant>>) {
    let Ok(end) = stop.wait_for(Option::is_some).await.map(|end| *end) else { return };
    if let Some(end) = end {
        tokio::time::sleep_until(end.into()).await;
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Err(Error::Stopped),
    }
}
