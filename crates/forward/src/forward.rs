//! Forwarder: one task per remote.

use std::sync::{Arc, Weak};
use std::time::Instant;

use intake::{DownstreamStage, Intake};
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

/// Name prefix of a remote's subscriber. The names are stored in journals, and a subscriber and its
/// ledger cannot be renamed atomically, so the prefix of earlier versions stays.
const PREFIX: &str = "site ";

/// Name of a remote in the audit and in thread names.
fn stage_name(remote: &str) -> String {
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
    /// Starts a task per remote in the current runtime. A new remote gets everything that is in the
    /// journal.
    pub fn start(settings: Settings, intake: Arc<Intake>) -> Result<Forward> {
        settings.check()?;
        let (stop, stopped) = watch::channel(None);
        let mut forward =
            Forward { intake, statuses: Vec::new(), tasks: Vec::new(), stop, settings };
        // All remotes are opened before any task starts: an invalid one prevents the start.
        let remotes = forward.settings.remotes.clone();
        let signer = match remotes.is_empty() {
            true => None,
            false => Some(Arc::new(key::open(forward.intake.write_target().journal().dir())?)),
        };
        let task = |signer: &Arc<Signer>, remote| forward.remote_task(remote, signer, &stopped);
        let tasks: Vec<RemoteTask> = signer
            .iter()
            .flat_map(|signer| remotes.iter().map(|remote| task(signer, remote)))
            .collect::<Result<_>>()?;
        for task in tasks {
            let name = stage_name(&task.name);
            let progress = Arc::clone(&task.progress) as Arc<dyn DownstreamStage>;
            forward.intake.add_stage(name.clone(), progress);
            forward.statuses.push(task.status.clone());
            let supervised = forward.intake.supervisor().thread(name);
            forward.tasks.push(tokio::spawn(intake::keep_running(supervised, task)));
        }
        Ok(forward)
    }

    fn remote_task(
        &self,
        remote: &Remote,
        signer: &Arc<Signer>,
        stop: &watch::Receiver<Option<Instant>>,
    ) -> Result<RemoteTask> {
        let target = remote.target()?;
        let subscriber = format!("{PREFIX}{}", remote.name);
        let (position, is_new) = self.ensure_subscriber(&subscriber)?;
        let progress = Arc::new(RemoteProgress::open(&self.intake, &subscriber, position, is_new)?);
        // Without ALPN, the protocol is HTTP/1.1: one request is in flight at a time.
        let dialer = Dialer::for_target(&target, &remote.tls, &[], DialTimeouts::default())
            .map_err(|error| remote.invalid(error.to_string()))?;
        let status = StatusCell::new(RemoteStatus {
            name: remote.name.clone(),
            url: remote.url.clone(),
            position: progress.position(),
            warning: progress.warning.clone(),
            ..RemoteStatus::default()
        });
        Ok(RemoteTask {
            name: remote.name.clone(),
            subscriber,
            target,
            authorization: remote.authorization()?,
            user_agent: self.settings.agent_header()?,
            dialer,
            signer: Arc::clone(signer),
            settings: self.settings.clone(),
            metrics: RemoteMetrics::new(&self.intake, &remote.name, &status),
            intake: Arc::clone(&self.intake),
            status,
            progress,
            stop: stop.clone(),
        })
    }

    /// Creates the subscriber if it is missing. Returns its position, and whether it is new.
    fn ensure_subscriber(&self, name: &str) -> Result<(u64, bool)> {
        let journal = self.intake.write_target().journal();
        match journal.checkpoint(name) {
            Ok(checkpoint) => Ok((checkpoint.position, false)),
            Err(journal::Error::NoCheckpoint { .. }) => {
                Ok((journal.add_subscriber(name, StartPosition::First, true)?.position, true))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Whether changed settings require a restart. The content of certificate files may have
    /// changed, so TLS files always require one.
    pub(crate) fn needs_restart(&self, settings: &Settings) -> bool {
        self.settings != *settings || settings.remotes.iter().any(|remote| remote.tls.has_files())
    }

    /// Status of each remote.
    pub fn status(&self) -> Vec<RemoteStatus> {
        self.status_handle().status()
    }

    /// Subscribers of remotes that are no longer configured. They block retention, so the journal
    /// fills up until the remote is configured again or the subscriber is removed.
    pub fn orphaned_subscribers(&self) -> Result<Vec<OrphanedSubscriber>> {
        self.status_handle().orphaned_subscribers()
    }

    /// Handle for reading the status, valid after the forwarder has stopped.
    pub(crate) fn status_handle(&self) -> ForwardStatusHandle {
        let names = self.settings.remotes.iter().map(|remote| remote.name.clone()).collect();
        ForwardStatusHandle {
            intake: Arc::downgrade(&self.intake),
            statuses: self.statuses.clone(),
            names,
        }
    }

    /// Sends remaining records within the configured time and stops the tasks. Unacknowledged
    /// records stay in the journal.
    pub async fn stop(self) {
        self.stop.send_replace(Some(Instant::now() + self.settings.stop_grace));
        for task in self.tasks {
            // The supervisor reports panics.
            let _ = task.await;
        }
        for remote in &self.settings.remotes {
            self.intake.remove_stage(&stage_name(&remote.name));
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
    /// Status of each remote.
    pub fn status(&self) -> Vec<RemoteStatus> {
        let Some(intake) = self.intake.upgrade() else { return Vec::new() };
        self.statuses
            .iter()
            .map(|status| status.snapshot(intake.write_target().journal()))
            .collect()
    }

    /// Subscribers of removed remotes, see [`Forward::orphaned_subscribers`].
    pub fn orphaned_subscribers(&self) -> Result<Vec<OrphanedSubscriber>> {
        let Some(intake) = self.intake.upgrade() else { return Ok(Vec::new()) };
        let stat = intake.write_target().journal().stat()?;
        let found = stat.checkpoints.iter().filter(|it| it.kind == CheckpointKind::Subscriber);
        let orphans = found.filter_map(|it| {
            let name = it.name.strip_prefix(PREFIX)?;
            let lag = stat.watermarks.end.saturating_sub(it.position);
            let is_used = self.names.iter().any(|used| used == name);
            let (name, position, committed_at) = (name.to_owned(), it.position, it.committed_at);
            (!is_used).then_some(OrphanedSubscriber { name, position, committed_at, lag })
        });
        Ok(orphans.collect())
    }
}
