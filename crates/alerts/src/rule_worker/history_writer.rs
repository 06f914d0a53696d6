//! History of alerts: changes of state are recorded before anything follows from them.

use std::sync::Arc;

use intake::{EventCounter, LogLevel, Meter};

use super::RuleWorker;
use crate::alert_history::AlertHistory;
use crate::history_entry::HistoryEntry;
use crate::history_recorder::HistoryRecorder;

/// What the worker knows of the history.
pub(super) struct HistoryWriter {
    history: Arc<AlertHistory>,
    recorder: HistoryRecorder,
    dropped: EventCounter,
    error: Option<String>,
    /// Version of the alerts from outside that are recorded.
    received_version: Option<u64>,
}

impl HistoryWriter {
    pub(super) fn new(history: Arc<AlertHistory>, meter: &Meter) -> HistoryWriter {
        let dropped = meter.counter(
            "topdeck_alert_history_dropped_total",
            "Changes of alerts that were not stored in their history",
            &[],
        );
        let recorder = HistoryRecorder::default();
        HistoryWriter { history, recorder, dropped, error: None, received_version: None }
    }
}

impl RuleWorker {
    /// Takes the states before a restart as recorded.
    pub(super) fn mark_states_recorded(&mut self) {
        let now_ns = self.intake.now();
        let recorder = &mut self.history_writer.recorder;
        for scheduled in &self.groups {
            recorder.of_group(&scheduled.group, now_ns);
        }
        recorder.of_received(&self.received.alerts(), now_ns);
        self.history_writer.received_version = Some(self.received.state_version());
    }

    /// Records the changes of a group.
    pub(super) fn append_group_history(&mut self, at: usize) {
        let now_ns = self.intake.now();
        let entries = self.history_writer.recorder.of_group(&self.groups[at].group, now_ns);
        self.append_history(entries);
    }

    /// Records the changes of all groups, and the ends of alerts of groups that are gone.
    pub(super) fn record_all(&mut self) {
        (0..self.groups.len()).for_each(|at| self.append_group_history(at));
        let now_ns = self.intake.now();
        let groups = self.groups.iter().map(|scheduled| &scheduled.group);
        let entries = self.history_writer.recorder.of_removed(groups, now_ns);
        self.append_history(entries);
    }

    /// Records the changes of alerts from outside.
    pub(super) fn append_received_history(&mut self) {
        // Before the alerts: a change in between is recorded with the next one.
        let version = self.received.state_version();
        if self.history_writer.received_version == Some(version) {
            return;
        }
        let now_ns = self.intake.now();
        let entries = self.history_writer.recorder.of_received(&self.received.alerts(), now_ns);
        self.history_writer.received_version = Some(version);
        if !entries.is_empty() {
            self.append_history(entries);
            // Clients that follow the history wait for it.
            self.published.advance_revision();
        }
    }

    /// Stores changes. A failure is logged when its cause changes.
    fn append_history(&mut self, entries: Vec<HistoryEntry>) {
        let count = entries.len() as u64;
        if count == 0 {
            return;
        }
        let error = self.history_writer.history.append(entries).err();
        if let Some(error) = &error {
            self.history_writer.dropped.add(count);
            if self.history_writer.error.as_ref() != Some(error) {
                (self.log)(LogLevel::Error, error);
            }
        }
        self.history_writer.error = error;
    }
}
