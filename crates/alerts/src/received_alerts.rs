//! Alerts from outside, as an Alertmanager receives them: in memory, and durable in the file
//! `received-alerts` of the data directory.
//!
//! The semantics are those of Alertmanager 0.35 (`api/v2/api.go`, `types/types.go`, `Merge`): an
//! alert without an end ends 5 minutes after it was last received; one that overlaps the known one
//! of the same labels is merged with it. A new state is written before it is confirmed; an end that
//! only moves is written with the next one, or after 10 s. Only alerts that changed are written.
//! Time in which the node was down does not
//! count: an alert that fired gets 5 more minutes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use disk::Disk;
use notify::AlertLabels;
use rules::{AcknowledgementChange, AlertAcknowledgements, AlertClearance};

use crate::received_file::ReceivedChange;
use crate::received_log::ReceivedLog;

/// Alertmanager's default of `resolve_timeout`.
pub(crate) const RESOLVE_TIMEOUT_NS: i64 = 5 * 60 * 1_000_000_000;
/// A source that says that an alert has ended gives an end that is at most this much later than the
/// request: its clock may be ahead. Prometheus gives an alert that fires at least 4 minutes.
const GIVEN_END_AHEAD_MAX_NS: i64 = 60 * 1_000_000_000;
/// How long a resolved alert is kept: as long as those of rules.
const RESOLVED_RETENTION_NS: i64 = rules::RESOLVED_RETENTION_NS;
/// Greatest age of the begin that a source gives, if it is a part of the identity of an alert. It
/// is less than [`RESOLVED_RETENTION_NS`], by the time that a clock may be ahead: an alert of the
/// same begin that ended is then still known, and the new one is told apart from it.
const SHARED_BEGIN_AGE_MAX_NS: i64 = 13 * 60 * 1_000_000_000;
/// How far the clock of a source may be ahead.
const SHARED_BEGIN_AHEAD_MAX_NS: i64 = 60 * 1_000_000_000;
/// Maximum number of alerts: that of the notifier.
pub(crate) const ALERTS_MAX: usize = 100_000;
/// Maximum size of the texts of all alerts: half of what the notifier holds.
const TEXT_BYTES_MAX: usize = 128 << 20;

/// An alert from outside.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReceivedAlert {
    pub(crate) labels: AlertLabels,
    pub(crate) annotations: BTreeMap<String, String>,
    /// Begin, as its source says.
    pub(crate) starts_ns: i64,
    /// End, or when it counts as ended.
    pub(crate) ends_ns: i64,
    /// When it was last received.
    pub(crate) updated_ns: i64,
    /// Whether the source gave no end.
    pub(crate) is_timeout: bool,
    pub(crate) generator_url: String,
    /// Begin since it last resolved: with the labels its identity. It is the begin that its source
    /// says, so that sites that get the same alert have the same identity; if that is too old, or
    /// that of an alert that ended, it is when the alert was first received.
    pub(crate) began_ns: i64,
    pub(crate) is_firing: bool,
    /// Number of its last change of state.
    pub(crate) transition: u64,
    pub(crate) acknowledgements: AlertAcknowledgements,
}

/// An alert of a request, with its times completed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SubmittedAlert {
    pub(crate) labels: AlertLabels,
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) starts_ns: i64,
    pub(crate) ends_ns: i64,
    pub(crate) is_timeout: bool,
    pub(crate) generator_url: String,
}

/// Why alerts were not stored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ReceivedAlertsError {
    /// A limit.
    #[error("cannot accept alerts: limit of {ALERTS_MAX} alerts reached; group them at the source")]
    Count,
    /// A limit.
    #[error(
        "cannot accept alerts: size limit ({} MiB) of all alerts reached; shorten their \
         annotations, or group them at the source",
        TEXT_BYTES_MAX >> 20
    )]
    Size,
    /// The file cannot be written.
    #[error("cannot store alerts: {0}; send them again")]
    Write(String),
    /// The file cannot be written; the alerts are as before.
    #[error("cannot store changes of alerts from other programs: {0}")]
    Change(String),
}

/// All alerts from outside.
pub(crate) struct ReceivedAlerts {
    text_bytes_max: usize,
    state: Mutex<ReceivedState>,
    /// Held while the file is written, so that requests that wait for each other share a write.
    written: Mutex<WrittenAlerts>,
}

struct WrittenAlerts {
    log: ReceivedLog,
    /// Version of the state in the file.
    version: u64,
}

#[derive(Default)]
struct ReceivedState {
    alerts: BTreeMap<AlertLabels, Arc<ReceivedAlert>>,
    /// Alerts that changed, or were forgotten, since the file was written.
    unwritten: BTreeSet<AlertLabels>,
    /// Size of the texts of all alerts.
    text_bytes: usize,
    /// Number of changes.
    version: u64,
    /// Version of the last change that must be durable before anything follows from it.
    durable_version: u64,
}

impl fmt::Debug for ReceivedAlerts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceivedAlerts").finish_non_exhaustive()
    }
}

impl ReceivedAlerts {
    /// Reads the file. If it is damaged, it is kept under another name, and the problem is
    /// returned: the sources send what fires again.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        data: &Path,
        now_ns: i64,
    ) -> (ReceivedAlerts, Option<String>) {
        let (log, decoded, problem) = ReceivedLog::open(disk, data);
        let mut state = ReceivedState::default();
        for (labels, mut alert) in decoded.alerts {
            if alert.is_firing {
                alert.ends_ns = alert.ends_ns.max(now_ns.saturating_add(RESOLVE_TIMEOUT_NS));
            }
            state.alerts.insert(labels, Arc::new(alert));
        }
        state.measure();
        let (state, written) = (Mutex::new(state), Mutex::new(WrittenAlerts { log, version: 0 }));
        (ReceivedAlerts { text_bytes_max: TEXT_BYTES_MAX, state, written }, problem)
    }

    /// All alerts: firing ones, and resolved ones for 15 minutes.
    pub(crate) fn alerts(&self) -> Vec<Arc<ReceivedAlert>> {
        lock(&self.state).alerts.values().cloned().collect()
    }

    /// Number that changes with each change of a state.
    pub(crate) fn state_version(&self) -> u64 {
        lock(&self.state).durable_version
    }

    /// All alerts, and the number of their states. The states are durable when it returns, so that
    /// others may hear of them.
    pub(crate) fn durable_alerts(
        &self,
    ) -> Result<(Vec<Arc<ReceivedAlert>>, u64), ReceivedAlertsError> {
        let (alerts, version) = {
            let state = lock(&self.state);
            (state.alerts.values().cloned().collect(), state.durable_version)
        };
        self.write_version(version)?;
        Ok((alerts, version))
    }

    /// Takes alerts. What they change is durable when it returns. Returns whether a state changed.
    /// Of a known alert whose new texts exceed the limit only the times are taken, so that it does
    /// not end.
    pub(crate) fn put(
        &self,
        alerts: Vec<SubmittedAlert>,
        now_ns: i64,
    ) -> Result<bool, ReceivedAlertsError> {
        let mut is_changed = false;
        let mut refusal = None;
        {
            let mut state = lock(&self.state);
            let state = &mut *state;
            for mut new in alerts {
                // Only somebody who clears an alert here says so.
                AlertClearance::remove(&mut new.annotations);
                let count = state.alerts.len();
                match state.alerts.get_mut(&new.labels) {
                    Some(known) => {
                        let known = Arc::make_mut(known);
                        let others = state.text_bytes.saturating_sub(known.text_bytes());
                        if others + new.text_bytes() > self.text_bytes_max.max(state.text_bytes) {
                            new.annotations.clone_from(&known.annotations);
                            AlertClearance::remove(&mut new.annotations);
                            new.generator_url.clone_from(&known.generator_url);
                            refusal = Some(ReceivedAlertsError::Size);
                        }
                        let labels = new.labels.clone();
                        is_changed |= merge(known, new, now_ns);
                        state.text_bytes = others + known.text_bytes();
                        state.unwritten.insert(labels);
                    }
                    // The end of an alert that nobody knows.
                    None if new.ends_ns <= now_ns => {}
                    None if count >= ALERTS_MAX => refusal = Some(ReceivedAlertsError::Count),
                    None if state.text_bytes + new.text_bytes() > self.text_bytes_max => {
                        refusal = Some(ReceivedAlertsError::Size);
                    }
                    None => {
                        state.text_bytes += new.text_bytes();
                        let alert = ReceivedAlert::new(new, now_ns);
                        state.unwritten.insert(alert.labels.clone());
                        state.alerts.insert(alert.labels.clone(), Arc::new(alert));
                        is_changed = true;
                    }
                }
            }
            state.count(is_changed);
        }
        self.write_changes()?;
        refusal.map_or(Ok(is_changed), Err)
    }

    /// Changes alerts; `change` returns whether the state of one changed, which is durable when
    /// this returns. Returns whether any did. After an error the alerts are as before.
    pub(crate) fn change(
        &self,
        change: impl FnMut(&mut ReceivedAlert) -> bool,
    ) -> Result<bool, ReceivedAlertsError> {
        // Nobody else writes a change that may be undone.
        let mut written = lock(&self.written);
        let (changed, version, version_before) = {
            let mut state = lock(&self.state);
            let version_before = state.durable_version;
            (state.change(change), state.durable_version, version_before)
        };
        if changed.is_empty() {
            return Ok(false);
        }
        self.write_to(&mut written, version).map_err(|error| {
            lock(&self.state).undo(changed, version, version_before);
            match error {
                ReceivedAlertsError::Write(cause) => ReceivedAlertsError::Change(cause),
                other => other,
            }
        })?;
        Ok(true)
    }

    /// Ends alerts and acknowledgements whose time is over, and forgets alerts that resolved long
    /// ago. Returns whether a state changed. It is durable when this returns.
    pub(crate) fn apply_due_changes(&self, now_ns: i64) -> Result<bool, ReceivedAlertsError> {
        if self.next_deadline_ns().is_none_or(|deadline_ns| deadline_ns > now_ns) {
            // After a failed write.
            return self.write_changes().map(|()| false);
        }
        let changed = {
            let mut state = lock(&self.state);
            let state = &mut *state;
            state.alerts.retain(|labels, alert| {
                let is_kept = alert.is_firing || alert.forgotten_ns() > now_ns;
                if !is_kept {
                    state.unwritten.insert(labels.clone());
                }
                is_kept
            });
            state.change(|alert| alert.apply_due_changes(now_ns)).len()
        };
        self.write_changes()?;
        Ok(changed > 0)
    }

    /// Time at which [`ReceivedAlerts::apply_due_changes`] has something to do.
    pub(crate) fn next_deadline_ns(&self) -> Option<i64> {
        let state = lock(&self.state);
        let deadline = |alert: &Arc<ReceivedAlert>| {
            let expiry = alert.acknowledgements.next_expiry_ns();
            let end_ns = match alert.is_firing {
                true => alert.ends_ns,
                false => alert.forgotten_ns(),
            };
            expiry.map_or(end_ns, |expiry_ns| expiry_ns.min(end_ns))
        };
        state.alerts.values().map(deadline).min()
    }

    /// Writes ends that only moved, if there are some.
    pub(crate) fn write_all(&self) -> Result<(), ReceivedAlertsError> {
        let version = lock(&self.state).version;
        self.write_version(version)
    }

    fn write_changes(&self) -> Result<(), ReceivedAlertsError> {
        let version = lock(&self.state).durable_version;
        self.write_version(version)
    }

    fn write_version(&self, version: u64) -> Result<(), ReceivedAlertsError> {
        self.write_to(&mut lock(&self.written), version)
    }

    fn write_to(
        &self,
        written: &mut WrittenAlerts,
        version: u64,
    ) -> Result<(), ReceivedAlertsError> {
        if written.version >= version {
            return Ok(());
        }
        let is_replaced = written.log.is_replaced_next();
        let (unwritten, alerts, changes, version) = {
            let mut state = lock(&self.state);
            let unwritten = std::mem::take(&mut state.unwritten);
            let (alerts, changes) = match is_replaced {
                true => (state.alerts.values().cloned().collect(), Vec::new()),
                false => (Vec::new(), state.changes(&unwritten)),
            };
            (unwritten, alerts, changes, state.version)
        };
        let outcome = match is_replaced {
            true => written.log.replace(&alerts),
            false => written.log.append(&changes),
        };
        if let Err(error) = outcome {
            lock(&self.state).unwritten.extend(unwritten);
            return Err(ReceivedAlertsError::Write(error.to_string()));
        }
        written.version = version;
        Ok(())
    }
}

/// An alert that was changed, before and after.
type ChangedAlert = (Arc<ReceivedAlert>, Arc<ReceivedAlert>);

impl ReceivedState {
    /// Changes alerts; `change` returns whether the state of one changed.
    fn change(&mut self, mut change: impl FnMut(&mut ReceivedAlert) -> bool) -> Vec<ChangedAlert> {
        let mut changed = Vec::new();
        for (labels, alert) in &mut self.alerts {
            let mut new = ReceivedAlert::clone(alert);
            if change(&mut new) {
                let new = Arc::new(new);
                changed.push((std::mem::replace(alert, Arc::clone(&new)), new));
                self.unwritten.insert(labels.clone());
            }
        }
        self.measure();
        self.count(!changed.is_empty());
        changed
    }

    /// Undoes changes that could not be stored. An alert that its source sent meanwhile stays as
    /// it is: what was sent is newer.
    fn undo(&mut self, changed: Vec<ChangedAlert>, version: u64, version_before: u64) {
        for (before, after) in changed {
            let alert = self.alerts.get_mut(&before.labels);
            if let Some(alert) = alert.filter(|alert| Arc::ptr_eq(alert, &after)) {
                *alert = before;
            }
        }
        self.measure();
        self.count(false);
        // The alerts are those of the file.
        if self.durable_version == version {
            self.durable_version = version_before;
        }
    }

    /// Changes of some alerts.
    fn changes(&self, changed: &BTreeSet<AlertLabels>) -> Vec<ReceivedChange> {
        let change = |labels: &AlertLabels| match self.alerts.get(labels) {
            Some(alert) => ReceivedChange::Stored(Arc::clone(alert)),
            None => ReceivedChange::Forgotten(labels.clone()),
        };
        changed.iter().map(change).collect()
    }

    fn measure(&mut self) {
        self.text_bytes = self.alerts.values().map(|alert| alert.text_bytes()).sum();
    }

    fn count(&mut self, is_state_change: bool) {
        self.version += 1;
        if is_state_change {
            self.durable_version = self.version;
        }
    }
}

impl SubmittedAlert {
    fn text_bytes(&self) -> usize {
        text_bytes(&self.labels, &self.annotations, &self.generator_url)
    }
}

/// Size of the texts of an alert.
fn text_bytes(labels: &AlertLabels, annotations: &BTreeMap<String, String>, url: &str) -> usize {
    let pairs = labels.iter().chain(annotations);
    pairs.map(|(name, value)| name.len() + value.len()).sum::<usize>() + url.len()
}

impl ReceivedAlert {
    fn text_bytes(&self) -> usize {
        text_bytes(&self.labels, &self.annotations, &self.generator_url)
    }

    fn new(new: SubmittedAlert, now_ns: i64) -> ReceivedAlert {
        let began_ns = shared_begin_ns(new.starts_ns, now_ns).unwrap_or(now_ns);
        ReceivedAlert {
            labels: new.labels,
            annotations: new.annotations,
            starts_ns: new.starts_ns,
            ends_ns: new.ends_ns,
            updated_ns: now_ns,
            is_timeout: new.is_timeout,
            generator_url: new.generator_url,
            began_ns,
            is_firing: true,
            transition: 1,
            acknowledgements: AlertAcknowledgements::default(),
        }
    }

    /// Changes the acknowledgements of a firing alert; returns whether they are others.
    pub(crate) fn change_acknowledgements(&mut self, change: &AcknowledgementChange) -> bool {
        let before = self.acknowledgements.clone();
        self.transition += u64::from(self.acknowledgements.apply(change));
        self.acknowledgements != before
    }

    /// Ends a firing alert by hand; it begins anew when its source sends it again.
    pub(crate) fn clear(&mut self, clearance: &AlertClearance) -> bool {
        (self.is_firing, self.ends_ns) = (false, clearance.at_ns);
        self.acknowledgements = AlertAcknowledgements::default();
        clearance.annotate(&mut self.annotations);
        self.transition += 1;
        true
    }

    /// Whether an alert that does not fire ended because it was not received again.
    pub(crate) fn ended_by_itself(&self) -> bool {
        let ahead_ns = self.ends_ns.saturating_sub(self.updated_ns);
        self.is_timeout || ahead_ns >= GIVEN_END_AHEAD_MAX_NS
    }

    /// When a resolved alert is forgotten. Its source may have given an end long ago.
    fn forgotten_ns(&self) -> i64 {
        self.ends_ns.max(self.updated_ns).saturating_add(RESOLVED_RETENTION_NS)
    }

    /// Returns whether the alert or its acknowledgements ended.
    fn apply_due_changes(&mut self, now_ns: i64) -> bool {
        if self.is_firing && self.ends_ns <= now_ns {
            self.is_firing = false;
            self.acknowledgements = AlertAcknowledgements::default();
            self.transition += 1;
            return true;
        }
        let is_due = self.acknowledgements.next_expiry_ns().is_some_and(|until| until <= now_ns);
        self.transition += u64::from(self.acknowledgements.expire(now_ns));
        is_due
    }
}

/// Merges a newer alert into the known one of the same labels; returns whether its state or its
/// annotations changed.
fn merge(known: &mut ReceivedAlert, new: SubmittedAlert, now_ns: i64) -> bool {
    let has_ended = known.apply_due_changes(now_ns);
    let is_overlapping = new.ends_ns > known.starts_ns && new.ends_ns < known.ends_ns
        || new.starts_ns > known.starts_ns && new.starts_ns < known.ends_ns;
    let is_resolved = new.ends_ns <= now_ns;
    if is_resolved && !known.is_firing {
        return has_ended;
    }
    let (mut starts_ns, mut ends_ns) = (new.starts_ns, new.ends_ns);
    let begin_ns = shared_begin_ns(starts_ns, now_ns).filter(|begin| *begin > known.began_ns);
    if is_overlapping {
        starts_ns = starts_ns.min(known.starts_ns);
        // A later end that was given, rather than a timeout, holds.
        if !is_resolved && known.ends_ns > ends_ns && !known.is_timeout {
            ends_ns = known.ends_ns;
        }
    }
    let is_text_changed =
        (&known.annotations, &known.generator_url) != (&new.annotations, &new.generator_url);
    (known.starts_ns, known.ends_ns) = (starts_ns, ends_ns);
    (known.annotations, known.generator_url) = (new.annotations, new.generator_url);
    (known.is_timeout, known.updated_ns) = (new.is_timeout, now_ns);
    if !known.is_firing {
        known.is_firing = true;
        // Later than before also if the clock stepped back.
        known.began_ns = begin_ns.unwrap_or(now_ns.max(known.began_ns.saturating_add(1)));
        known.transition += 1;
        return true;
    }
    known.apply_due_changes(now_ns) || is_text_changed
}

/// Begin of an alert for its identity, if other sites that get it see the same one.
fn shared_begin_ns(starts_ns: i64, now_ns: i64) -> Option<i64> {
    let age_ns = now_ns.saturating_sub(starts_ns);
    (-SHARED_BEGIN_AHEAD_MAX_NS..=SHARED_BEGIN_AGE_MAX_NS).contains(&age_ns).then_some(starts_ns)
}

/// A panic leaves each of these values usable: they change in single steps.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod compliance_tests;
#[cfg(test)]
mod tests;
