//! Forwarder: one task per remote.

use std::sync::{Arc, Weak};
use std::time::Instant;

use intake::{DownstreamHop, Intake};
use journal::{CheckpointKind, StartPosition};
use net::dial::{DialTimeouts, Dialer};
use net::signature::Signer;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::error::Result;
use crate::key;
use crate::remote_metrics::RemoteMetrics;
use crate::remote_progress::RemoteProgress;
use crate::remote_task::RemoteTask;
use crate::settings::{Remote, Settings};
use crate::status::{OrphanedSubscriber, RemoteStatus, StatusCell};

/// What subscribers of remotes begin with. They are in journals on disk, and a subscriber and its
/// ledger cannot be renamed in one step: the name of earlier versions stays.
const PREFIX: &str = "site ";

/// The name of a remote in the audit and among threads.
fn hop_name(remote: &str) -> String {
    format!("remote {remote}")
}

/// Running forwarder.
#[derive(Debug)]
pub struct Forward {
    intake: Arc<Intake>,
    settings: Settings,
    statuses: Vec<StatusCell>,
    tasks: Vec<JoinHandle<()>>,
    stop: watch::Sender<Option<Instant>>,
}

impl Forward {
    /// Starts a task for each site, in the runtime in which it is called. A site that is new gets
    /// everything that the journal still has.
    pub fn start(settings: Settings, intake: Arc<Intake>) -> Result<Forward> {
        settings.check()?;
        let (stop, stopped) = watch::channel(None);
        let mut forward =
            Forward { intake, statuses: Vec::new(), tasks: Vec::new(), stop, settings };
        // All of them first: one that cannot be made keeps all from starting.
        let sites = forward.settings.remotes.clone();
        let signer = match sites.is_empty() {
            true => None,
            false => Some(Arc::new(key::open(forward.intake.target().journal().dir())?)),
        };
        let task = |signer: &Arc<Signer>, site| forward.remote_task(site, signer, &stopped);
        let tasks: Vec<RemoteTask> = signer
            .iter()
            .flat_map(|signer| sites.iter().map(|site| task(signer, site)))
            .collect::<Result<_>>()?;
        for task in tasks {
            let name = hop_name(&task.name);
            let progress = Arc::clone(&task.progress) as Arc<dyn DownstreamHop>;
            forward.intake.add_hop(name.clone(), progress);
            forward.statuses.push(task.status.clone());
            let supervised = forward.intake.supervisor().thread(name);
            forward.tasks.push(tokio::spawn(intake::keep_running(supervised, task)));
        }
        Ok(forward)
    }

    fn remote_task(
        &self,
        site: &Remote,
        signer: &Arc<Signer>,
        stop: &watch::Receiver<Option<Instant>>,
    ) -> Result<RemoteTask> {
        let target = site.target()?;
        let subscriber = format!("{PREFIX}{}", site.name);
        let (position, is_new) = self.ensure_subscriber(&subscriber)?;
        let ledger = Arc::new(RemoteProgress::open(&self.intake, &subscriber, position, is_new)?);
        // Without ALPN it is HTTP/1.1: one request is under way at a time.
        let dialer = Dialer::for_target(&target, &site.tls, &[], DialTimeouts::default())
            .map_err(|error| site.invalid(error.to_string()))?;
        let board = StatusCell::new(RemoteStatus {
            name: site.name.clone(),
            url: site.url.clone(),
            position: ledger.position(),
            warning: ledger.warning.clone(),
            ..RemoteStatus::default()
        });
        Ok(RemoteTask {
            name: site.name.clone(),
            subscriber,
            target,
            authorization: site.authorization()?,
            user_agent: self.settings.agent_header()?,
            dialer,
            signer: Arc::clone(signer),
            settings: self.settings.clone(),
            metrics: RemoteMetrics::new(&self.intake, &site.name, &board),
            intake: Arc::clone(&self.intake),
            status: board,
            progress: ledger,
            stop: stop.clone(),
        })
    }

    /// Sees to it that there is one that holds; where it is, and whether it is new.
    fn ensure_subscriber(&self, name: &str) -> Result<(u64, bool)> {
        let journal = self.intake.target().journal();
        match journal.checkpoint(name) {
            Ok(checkpoint) => Ok((checkpoint.position, false)),
            Err(journal::Error::NoCheckpoint { .. }) => {
                Ok((journal.add_subscriber(name, StartPosition::First, true)?.position, true))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Whether other settings make it another one. What is in files of certificates may have
    /// changed: these count.
    pub fn needs_restart(&self, settings: &Settings) -> bool {
        self.settings != *settings || settings.remotes.iter().any(|site| site.tls.has_files())
    }

    /// How it is with each site.
    pub fn status(&self) -> Vec<RemoteStatus> {
        self.status_handle().status()
    }

    /// Places of sites that are in the settings no more. They hold what those sites did not get,
    /// and so the journal fills up, until the sites come back or their subscribers are removed.
    pub fn orphaned_subscribers(&self) -> Result<Vec<OrphanedSubscriber>> {
        self.status_handle().orphaned_subscribers()
    }

    /// What can be asked how it is, by whoever does not own this, also when it has ended.
    pub fn status_handle(&self) -> ForwardStatusHandle {
        let names = self.settings.remotes.iter().map(|site| site.name.clone()).collect();
        ForwardStatusHandle {
            intake: Arc::downgrade(&self.intake),
            statuses: self.statuses.clone(),
            names,
        }
    }

    /// Sends what is left, for as long as the settings allow, and ends the tasks. What was not
    /// acknowledged stays in the journal.
    pub async fn stop(self) {
        self.stop.send_replace(Some(Instant::now() + self.settings.stop_grace));
        for task in self.tasks {
            // A panic is told by the supervisor.
            let _ = task.await;
        }
        for site in &self.settings.remotes {
            self.intake.remove_hop(&hop_name(&site.name));
        }
    }
}

/// Status of all remotes, through weak references.
#[derive(Clone, Debug)]
pub struct ForwardStatusHandle {
    intake: Weak<Intake>,
    statuses: Vec<StatusCell>,
    names: Vec<String>,
}

impl ForwardStatusHandle {
    /// How it is with each site.
    pub fn status(&self) -> Vec<RemoteStatus> {
        let Some(intake) = self.intake.upgrade() else { return Vec::new() };
        self.statuses.iter().map(|board| board.snapshot(intake.target().journal())).collect()
    }

    /// Places of sites that are in the settings no more, see [`Forward::orphans`].
    pub fn orphaned_subscribers(&self) -> Result<Vec<OrphanedSubscriber>> {
        let Some(intake) = self.intake.upgrade() else { return Ok(Vec::new()) };
        let stat = intake.target().journal().stat()?;
        let found = stat.checkpoints.iter().filter(|it| it.kind == CheckpointKind::Subscriber);
        let orphans = found.filter_map(|it| {
            let name = it.name.strip_prefix(PREFIX)?;
            let lag = stat.watermarks.end.saturating_sub(it.position);
            let is_used = self.names.iter().any(|used| used == name);
            let (name, position, moved) = (name.to_owned(), it.position, it.committed_at);
            (!is_used).then_some(OrphanedSubscriber { name, position, committed: moved, lag })
        });
        Ok(orphans.collect())
    }
}
