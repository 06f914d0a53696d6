//! Submission: what the notifier does not know of the alerts of rules.

use std::ops::Range;

use intake::LogLevel;
use notify::RoutedNotification;
use rules::{Alert, Rule};

use super::{RuleWorker, ScheduledGroup, key};
use crate::alert_evidence::{EvidenceReader, EvidenceSources};
use crate::alert_link::alert_link;

impl RuleWorker {
    /// Submits what the notifier does not know of all groups, and the end of alerts of groups that
    /// are gone.
    pub(super) fn submit_all(&mut self) {
        self.enqueue_received_notifications();
        self.submit_groups(0..self.groups.len());
        let groups = self.groups.iter().map(|scheduled| &scheduled.group);
        for (key, end) in self.submitted.ends_of_removed(groups, self.intake.now()) {
            self.submit_one(key, end);
        }
    }

    /// Submits what the notifier does not know of a group.
    pub(super) fn enqueue_notifications(&mut self, at: usize) {
        self.submit_groups(at..at + 1);
    }

    /// Submits what the notifier does not know of some groups.
    fn submit_groups(&mut self, groups: Range<usize>) {
        if !self.notifier.is_running() {
            return;
        }
        let now_ns = self.intake.now();
        let mut changes = Vec::new();
        let sources = EvidenceSources {
            store: &self.store,
            control: &self.control,
            user_labels: &self.user_labels,
            now_ns,
            draws_pictures: self.notifier.shows_pictures(),
        };
        let routes = self.published.routes();
        for ScheduledGroup { group, .. } in &self.groups[groups] {
            let mut reader = EvidenceReader::new(sources, &mut self.evidence_budgets, group);
            let mut evidence = |rule: usize, alert: &Alert| reader.evidence(rule, alert);
            let link = |rule: &Rule, alert: &Alert| alert_link(&routes.external_url, rule, alert);
            let found = self.submitted.changes(group, now_ns, &mut evidence, &link);
            changes.extend(found.into_iter().map(|found| (key(group), found)));
        }
        for (key, submitted) in changes {
            self.submit_one(key, submitted);
        }
        let panics = self.submitted.take_panics();
        if !panics.is_empty() {
            let thread = self.intake.supervisor().thread("alert-messages");
            panics.iter().for_each(|message| thread.record_caught_panic(message));
        }
    }

    /// Submits a notification; after an error it is submitted again with the next evaluation. A
    /// failure is logged when its cause changes.
    fn submit_one(&mut self, group: (String, String), submitted: RoutedNotification) {
        let error = match self.notifier.submit(submitted.clone()) {
            Ok(()) => {
                self.resolved_notifications.note(&submitted.notification);
                self.submitted.record(group, submitted);
                None
            }
            Err(error) => {
                Some(format!("alert {:?} is not sent: {error}", submitted.notification.name))
            }
        };
        if let Some(error) = error.as_ref().filter(|_| self.submit_error != error) {
            (self.log)(LogLevel::Error, error);
        }
        self.submit_error = error;
    }
}
