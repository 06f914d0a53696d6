//! All sites together.

use std::sync::{Arc, Weak};
use std::time::Instant;

use intake::{Hop, Intake};
use journal::{Kind, Start};
use net::dial::{Dialer, Limits};
use net::signature::Signer;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::error::Result;
use crate::key;
use crate::ledger::Ledger;
use crate::measure::Measure;
use crate::settings::{Settings, Site};
use crate::site::Task;
use crate::status::{Board, Orphan, Status};

/// What subscribers of sites begin with.
const PREFIX: &str = "site ";

/// Batches on their way to other sites.
#[derive(Debug)]
pub struct Forward {
    intake: Arc<Intake>,
    settings: Settings,
    boards: Vec<Board>,
    tasks: Vec<JoinHandle<()>>,
    stop: watch::Sender<Option<Instant>>,
}

impl Forward {
    /// Starts a task for each site, in the runtime in which it is called. A site that is new gets everything that
    /// the journal still has.
    pub fn start(settings: Settings, intake: Arc<Intake>) -> Result<Forward> {
        settings.check()?;
        let (stop, stopped) = watch::channel(None);
        let mut forward = Forward { intake, boards: Vec::new(), tasks: Vec::new(), stop, settings };
        // All of them first: one that cannot be made keeps all from starting.
        let sites = forward.settings.sites.clone();
        let signer = match sites.is_empty() {
            true => None,
            false => Some(Arc::new(key::open(forward.intake.home().journal().dir())?)),
        };
        let task = |signer: &Arc<Signer>, site| forward.task(site, signer, &stopped);
        let tasks: Vec<Task> = signer
            .iter()
            .flat_map(|signer| sites.iter().map(|site| task(signer, site)))
            .collect::<Result<_>>()?;
        for task in tasks {
            forward
                .intake
                .add_hop(task.subscriber.clone(), Arc::clone(&task.ledger) as Arc<dyn Hop>);
            forward.boards.push(task.board.clone());
            let supervised = forward.intake.supervisor().thread(task.subscriber.clone());
            forward.tasks.push(tokio::spawn(intake::keep_running(supervised, task)));
        }
        Ok(forward)
    }

    fn task(
        &self,
        site: &Site,
        signer: &Arc<Signer>,
        stop: &watch::Receiver<Option<Instant>>,
    ) -> Result<Task> {
        let target = site.target()?;
        let subscriber = format!("{PREFIX}{}", site.name);
        let (position, is_new) = self.subscriber(&subscriber)?;
        let ledger = Arc::new(Ledger::open_book(&self.intake, &subscriber, position, is_new)?);
        // Without ALPN it is HTTP/1.1: one request is under way at a time.
        let dialer = Dialer::to(&target, &site.tls, &[], Limits::default())
            .map_err(|error| site.wrong(error.to_string()))?;
        let board = Board::new(Status {
            name: site.name.clone(),
            url: site.url.clone(),
            position: ledger.position(),
            note: ledger.note.clone(),
            ..Status::default()
        });
        Ok(Task {
            name: site.name.clone(),
            subscriber,
            target,
            authorization: site.authorization()?,
            agent: self.settings.agent_header()?,
            dialer,
            signer: Arc::clone(signer),
            settings: self.settings.clone(),
            measure: Measure::new(&self.intake, &site.name, &board),
            intake: Arc::clone(&self.intake),
            board,
            ledger,
            stop: stop.clone(),
        })
    }

    /// Sees to it that there is one that holds; where it is, and whether it is new.
    fn subscriber(&self, name: &str) -> Result<(u64, bool)> {
        let journal = self.intake.home().journal();
        match journal.checkpoint(name) {
            Ok(checkpoint) => Ok((checkpoint.position, false)),
            Err(journal::Error::NoCheckpoint { .. }) => {
                Ok((journal.add_subscriber(name, Start::Begin, true)?.position, true))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Whether other settings make it another one. What is in files of certificates may have changed: these count.
    pub fn is_changed_by(&self, settings: &Settings) -> bool {
        self.settings != *settings || settings.sites.iter().any(|site| site.tls.has_files())
    }

    /// How it is with each site.
    pub fn status(&self) -> Vec<Status> {
        self.watch().status()
    }

    /// Places of sites that are in the settings no more. They hold what those sites did not get, and so the
    /// journal fills up, until the sites come back or their subscribers are removed.
    pub fn orphans(&self) -> Result<Vec<Orphan>> {
        self.watch().orphans()
    }

    /// What can be asked how it is, by whoever does not own this, also when it has ended.
    pub fn watch(&self) -> Watch {
        let names = self.settings.sites.iter().map(|site| site.name.clone()).collect();
        Watch { intake: Arc::downgrade(&self.intake), boards: self.boards.clone(), names }
    }

    /// Sends what is left, for as long as the settings allow, and ends the tasks. What was not acknowledged
    /// stays in the journal.
    pub async fn stop(self) {
        self.stop.send_replace(Some(Instant::now() + self.settings.grace));
        for task in self.tasks {
            // A panic is told by the supervisor.
            let _ = task.await;
        }
        for site in &self.settings.sites {
            self.intake.remove_hop(&format!("{PREFIX}{}", site.name));
        }
    }
}

/// How it is with all sites; holds nothing.
#[derive(Clone, Debug)]
pub struct Watch {
    intake: Weak<Intake>,
    boards: Vec<Board>,
    names: Vec<String>,
}

impl Watch {
    /// How it is with each site.
    pub fn status(&self) -> Vec<Status> {
        let Some(intake) = self.intake.upgrade() else { return Vec::new() };
        self.boards.iter().map(|board| board.now(intake.home().journal())).collect()
    }

    /// Places of sites that are in the settings no more, see [`Forward::orphans`].
    pub fn orphans(&self) -> Result<Vec<Orphan>> {
        let Some(intake) = self.intake.upgrade() else { return Ok(Vec::new()) };
        let stat = intake.home().journal().stat()?;
        let found = stat.checkpoints.iter().filter(|it| it.kind == Kind::Subscriber);
        let orphans = found.filter_map(|it| {
            let name = it.name.strip_prefix(PREFIX)?;
            let lag = stat.marks.end.saturating_sub(it.position);
            let is_used = self.names.iter().any(|used| used == name);
            let (name, position, moved) = (name.to_owned(), it.position, it.moved);
            (!is_used).then_some(Orphan { name, position, moved, lag })
        });
        Ok(orphans.collect())
    }
}
