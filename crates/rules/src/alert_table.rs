//! States of the alerts of one rule, as in Prometheus 3, plus what Prometheus lacks.
//!
//! From Prometheus (`rules/alerting.go`):
//!
//! * A new element is pending, and fires once it has existed for `for`; with `for: 0` at once. With
//!   a `for` below the evaluation interval it fires at the second evaluation.
//! * A pending alert without its element is deleted. A firing one is inactive, unless
//!   `keep_firing_for` has not passed since the first miss; any match restarts that time. An
//!   inactive alert is kept, and sent again, for 15 minutes.
//! * A rule whose `for` was raised demotes alerts that fire too early.
//! * Two elements with the same labels are an error, and so is exceeding the limit, which also
//!   clears all alerts.
//! * A notice, which Prometheus sends to Alertmanager, is due when the state changed, and then each
//!   time more than the resend delay has passed. The receiver may consider the alert resolved
//!   4 × max(interval, resend delay) later.
//!
//! Not in Prometheus: a severity, whose change is a transition; missing data can hold an alert (see
//! [`MissingData`]), and that a firing alert has been unknown for a while is a transition;
//! acknowledgements with an expiry; a flapping counter; a transition number, which with the labels
//! identifies a notification, and is the same at all nodes that evaluate the rule at the same
//! times; and all of this survives a restart. The times of `for` and `keep_firing_for` exclude time
//! without evaluations across a restart, because nobody saw the condition hold.
//!
//! [`MissingData`]: crate::rule_file::MissingData

mod alert;

use std::collections::{BTreeMap, BTreeSet};

use query::LabelSet;

pub use alert::{Alert, AlertState, CriterionMatch};
pub(crate) use alert::{AlertElement, HoldCause};

use crate::alert_acknowledgement::AcknowledgementChange;
use crate::alert_clearance::AlertClearance;
use crate::alert_table_error::AlertTableError;
use crate::flap_counter::FlapCounter;
use crate::rule_file::AlertSettings;

/// Factor between the larger of interval and resend delay, and the validity of a notice: two
/// evaluations or deliveries may fail.
const VALIDITY_FACTOR: i64 = 4;
/// How long an inactive alert is kept and sent again (Prometheus: `resolvedRetention`).
pub const RESOLVED_RETENTION_NS: i64 = 15 * 60 * 1_000_000_000;

/// Notice of a firing or resolved alert that is due.
#[derive(Clone, Debug, PartialEq)]
pub struct AlertNotice {
    /// Labels, which identify the alert.
    pub labels: LabelSet,
    /// Alert when the notice was due.
    pub alert: Alert,
    /// Whether the alert is flapping.
    pub is_flapping: bool,
}

impl AlertNotice {
    /// End of a resolved alert; of a firing one, when the receiver may consider it resolved.
    pub fn ends_at_ns(&self) -> Option<i64> {
        self.alert.resolved_at_ns.or(self.alert.valid_until_ns)
    }
}

/// Alerts of one rule.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AlertTable {
    pub(crate) alerts: BTreeMap<LabelSet, Alert>,
    /// Counters outlive their alerts, which are deleted while they are not firing.
    pub(crate) flapping: BTreeMap<LabelSet, FlapCounter>,
    /// Number of the last change of any alert.
    pub(crate) transitions: u64,
    /// Of an own rule: an alert that begins with rows up to this time may be one whose end was
    /// already told. Its begin is that of the evaluation.
    pub(crate) rows_after_ns: Option<i64>,
    /// Last evaluation before a restart, until the first one after it.
    pub(crate) stopped_at_ns: Option<i64>,
}

/// Time of the newest row of a series.
type RowTime<'a> = dyn Fn(&LabelSet) -> Option<i64> + 'a;

/// An evaluation of a rule.
pub(crate) struct AlertEvaluation<'a> {
    pub(crate) settings: &'a AlertSettings,
    pub(crate) elements: Vec<AlertElement>,
    /// Why the alert of a series without an element holds its state; `None` if the condition does
    /// not hold.
    pub(crate) hold: &'a dyn Fn(&LabelSet) -> Option<HoldCause>,
    /// Of an own rule: time of the newest row of a series, if it is as good as that of the
    /// evaluation.
    pub(crate) row_time: Option<&'a RowTime<'a>>,
    pub(crate) limit: usize,
    pub(crate) time_ns: i64,
    /// Time between evaluations.
    pub(crate) interval_ns: i64,
}

impl AlertTable {
    /// Alerts by labels: pending, firing, and inactive for at most 15 minutes.
    pub fn alerts(&self) -> impl Iterator<Item = (&LabelSet, &Alert)> {
        self.alerts.iter()
    }

    /// Flapping counter of an alert.
    pub fn flap_counter(&self, labels: &LabelSet) -> FlapCounter {
        self.flapping.get(labels).copied().unwrap_or_default()
    }

    /// Changes the acknowledgements of an alert. Returns whether there is a pending or firing one
    /// with these labels.
    pub(crate) fn change_acknowledgements(
        &mut self,
        labels: &LabelSet,
        change: &AcknowledgementChange,
    ) -> bool {
        let Some(alert) = self.active_alert(labels) else { return false };
        let is_change = alert.acknowledgements.apply(change);
        alert.note_acknowledged_severity();
        if is_change {
            self.count_transition(labels);
        }
        true
    }

    /// Ends an alert by hand, whatever its condition. Returns whether there was a pending or firing
    /// one with these labels.
    pub(crate) fn clear(&mut self, labels: &LabelSet, clearance: &AlertClearance) -> bool {
        let Some(alert) = self.active_alert(labels) else { return false };
        if alert.state == AlertState::Pending {
            self.alerts.remove(labels);
            return true;
        }
        alert.state = AlertState::Inactive;
        alert.resolved_at_ns = Some(clearance.at_ns);
        (alert.keep_firing_since_ns, alert.is_held) = (None, false);
        (alert.unknown_since_ns, alert.unknown_reported_at_ns) = (None, None);
        (alert.acknowledgements, alert.acknowledged_severity) = Default::default();
        clearance.annotate(&mut alert.annotations);
        self.count_transition(labels);
        true
    }

    fn active_alert(&mut self, labels: &LabelSet) -> Option<&mut Alert> {
        self.alerts.get_mut(labels).filter(|alert| alert.state != AlertState::Inactive)
    }

    fn count_transition(&mut self, labels: &LabelSet) {
        if let Some(alert) = self.alerts.get_mut(labels) {
            self.transitions += 1;
            alert.transition = self.transitions;
        }
    }

    /// Number of the changes of an evaluation: its time in milliseconds, so that two nodes that
    /// evaluate the rule at the same times give a change the same number. If the wall clock was set
    /// back, the number after the last one.
    fn next_transition(&self, time_ns: i64) -> u64 {
        milliseconds(time_ns).max(self.transitions + 1)
    }

    /// Applies the result of a query.
    pub(crate) fn evaluate(
        &mut self,
        evaluation: AlertEvaluation<'_>,
    ) -> Result<(), AlertTableError> {
        let AlertEvaluation { settings, elements, hold, row_time, limit, time_ns, interval_ns } =
            evaluation;
        let mut matched_labels = BTreeSet::new();
        for element in &elements {
            if !matched_labels.insert(element.labels.clone()) {
                let labels = element.labels.to_string();
                return Err(AlertTableError::DuplicateLabels { labels });
            }
        }
        let has_rows = row_time.is_some();
        let row_time = |series: &LabelSet| row_time.and_then(|of| of(series));
        if has_rows {
            self.rows_after_ns.get_or_insert(time_ns);
        }
        self.expire_acknowledgements(time_ns);
        let severities = self.add_all(settings, elements, time_ns, &row_time);
        let transition = self.next_transition(time_ns);
        let mut last_transition = None;
        let mut active_count = 0;
        self.alerts.retain(|labels, alert| {
            let before = alert.state;
            let (for_ns, keep_firing_for_ns) = settings.delays_ns(&alert.series);
            let was_reported = alert.unknown_reported_at_ns.is_some();
            let is_kept = if matched_labels.contains(labels) {
                alert.keep_firing_since_ns = None;
                (alert.unknown_since_ns, alert.is_held) = (None, false);
                true
            } else if alert.state != AlertState::Inactive
                && let Some(cause) = hold(&alert.series)
            {
                alert.hold(cause, time_ns);
                active_count += 1;
                // Whether streams are absent is not known for a while after each start.
                if !settings.is_absence(&alert.series) && alert.report_unknown(time_ns, interval_ns)
                {
                    alert.transition = transition.max(alert.transition + 1);
                    last_transition = last_transition.max(Some(alert.transition));
                }
                return true;
            } else {
                (alert.unknown_since_ns, alert.is_held) = (None, false);
                alert.miss(keep_firing_for_ns, time_ns)
            };
            if !is_kept && before == AlertState::Inactive {
                raise(&mut self.rows_after_ns, alert.began_ns);
            }
            if is_kept && alert.state != AlertState::Inactive {
                active_count += 1;
                alert.apply_for(for_ns, time_ns);
            }
            let has_new_severity = alert.state == AlertState::Firing
                && before == AlertState::Firing
                && severities.contains(labels);
            if has_new_severity {
                alert.severity_changed_at_ns = Some(time_ns);
            }
            alert.unknown_reported_at_ns = None;
            // Whoever acknowledged it was told neither.
            let is_known_again = was_reported
                && alert.state == AlertState::Firing
                && alert.acknowledgements.current().is_none();
            if is_kept && (alert.state != before || has_new_severity || is_known_again) {
                alert.transition = match row_time(&alert.series) {
                    Some(row_ns) => milliseconds(row_ns).max(alert.transition + 1),
                    None => transition.max(alert.transition + 1),
                };
                last_transition = last_transition.max(Some(alert.transition));
            }
            is_kept
        });
        self.transitions = last_transition.unwrap_or(0).max(self.transitions);
        let found = active_count;
        let result = match limit > 0 && found > limit {
            true => {
                self.alerts.clear();
                self.rows_after_ns = self.rows_after_ns.map(|_| time_ns);
                Err(AlertTableError::Limit { limit, found })
            }
            false => Ok(()),
        };
        self.count_flaps();
        result
    }

    /// Marks all active alerts unknown: the query failed. They hold their states.
    pub(crate) fn hold(&mut self, time_ns: i64, interval_ns: i64) {
        self.expire_acknowledgements(time_ns);
        let transition = self.next_transition(time_ns);
        let active = |alert: &&mut Alert| alert.state != AlertState::Inactive;
        for alert in self.alerts.values_mut().filter(active) {
            alert.unknown_since_ns.get_or_insert(time_ns);
            if alert.report_unknown(time_ns, interval_ns) {
                alert.transition = transition.max(alert.transition + 1);
                self.transitions = self.transitions.max(alert.transition);
            }
        }
    }

    /// Notices that are due, which count as sent. They are in the order of the labels.
    pub(crate) fn take_due_notices(
        &mut self,
        time_ns: i64,
        resend_delay_ns: i64,
        interval_ns: i64,
    ) -> Vec<AlertNotice> {
        let validity_ns = resend_delay_ns.max(interval_ns).saturating_mul(VALIDITY_FACTOR);
        let mut notices = Vec::new();
        for (labels, alert) in &mut self.alerts {
            if !alert.is_due(time_ns, resend_delay_ns) {
                continue;
            }
            alert.last_sent_at_ns = Some(time_ns);
            alert.valid_until_ns = Some(time_ns.saturating_add(validity_ns));
            let is_flapping = self.flapping.get(labels).is_some_and(|flaps| flaps.is_flapping());
            notices.push(AlertNotice { labels: labels.clone(), alert: alert.clone(), is_flapping });
        }
        notices
    }

    /// Adds elements. Returns the labels of the active alerts whose severity is another one, or of
    /// which more streams are absent.
    fn add_all(
        &mut self,
        settings: &AlertSettings,
        elements: Vec<AlertElement>,
        time_ns: i64,
        row_time: &RowTime<'_>,
    ) -> BTreeSet<LabelSet> {
        let value = |of: &AlertElement| of.matched.as_ref().map(|matched| matched.value.estimate);
        let mut severities = BTreeSet::new();
        for element in elements {
            let labels = element.labels.clone();
            match self.alerts.get_mut(&labels) {
                Some(alert) if alert.state != AlertState::Inactive => {
                    let severity = alert.severity();
                    let is_wider = settings.is_absence(&element.series)
                        && value(&element)
                            > alert.matched.as_ref().map(|matched| matched.value.estimate);
                    alert.value = element.value;
                    alert.annotations = element.annotations;
                    alert.series = element.series;
                    alert.matched = element.matched;
                    if alert.severity() != severity || is_wider {
                        severities.insert(labels);
                    }
                    // 1 is the worst. Whoever took care of the lesser problem may not know.
                    let is_worse = alert.severity() < alert.acknowledged_severity.or(severity);
                    if is_worse || is_wider {
                        alert.acknowledgements.end();
                    }
                    alert.note_acknowledged_severity();
                }
                before => {
                    // Another alert than the one before.
                    if let Some(began_ns) = before.map(|before| before.began_ns) {
                        raise(&mut self.rows_after_ns, began_ns);
                    }
                    let least_ns = self.rows_after_ns;
                    let row_ns =
                        row_time(&element.series).filter(|row_ns| Some(*row_ns) > least_ns);
                    let alert = Alert::new(element, time_ns, row_ns.unwrap_or(time_ns));
                    self.alerts.insert(labels, alert);
                }
            }
        }
        severities
    }

    /// Starts an evaluation, successful or not.
    ///
    /// Moves the clocks of `for` and `keep_firing_for` by the time in which evaluations were due
    /// but nobody was running. A wall clock that was set back moves nothing. Returns the time of
    /// the last evaluation before a restart, if this is the first one after it.
    pub(crate) fn resume_clocks(&mut self, time_ns: i64, interval_ns: i64) -> Option<i64> {
        let stopped_at_ns = self.stopped_at_ns.take()?;
        let missed_ns = time_ns.saturating_sub(stopped_at_ns).saturating_sub(interval_ns).max(0);
        for alert in self.alerts.values_mut() {
            if alert.state == AlertState::Pending {
                alert.active_at_ns = alert.active_at_ns.saturating_add(missed_ns);
            }
            let since = [&mut alert.keep_firing_since_ns, &mut alert.unknown_since_ns];
            for since_ns in since.into_iter().flatten() {
                *since_ns = since_ns.saturating_add(missed_ns);
            }
        }
        Some(stopped_at_ns)
    }

    /// Removes the acknowledgements that have expired. Returns whether there are some.
    pub(crate) fn expire_acknowledgements(&mut self, time_ns: i64) -> bool {
        let mut is_changed = false;
        for alert in self.alerts.values_mut() {
            let is_due = |until_ns: i64| until_ns <= time_ns;
            if alert.acknowledgements.next_expiry_ns().is_some_and(is_due) {
                is_changed = true;
                if alert.acknowledgements.expire(time_ns) {
                    self.transitions += 1;
                    alert.transition = self.transitions;
                }
            }
        }
        is_changed
    }

    fn count_flaps(&mut self) {
        let firing = |labels: &LabelSet| {
            self.alerts.get(labels).is_some_and(|alert| alert.state == AlertState::Firing)
        };
        for (labels, counter) in &mut self.flapping {
            counter.record(firing(labels));
        }
        for (labels, alert) in &self.alerts {
            if alert.state == AlertState::Firing && !self.flapping.contains_key(labels) {
                let mut counter = FlapCounter::default();
                counter.record(true);
                self.flapping.insert(labels.clone(), counter);
            }
        }
        self.flapping.retain(|_, counter| !counter.is_empty());
    }
}

/// Of an own rule: contacts know of an alert that began with rows up to this time.
fn raise(rows_after_ns: &mut Option<i64>, began_ns: i64) {
    *rows_after_ns = rows_after_ns.map(|after_ns| after_ns.max(began_ns));
}

fn milliseconds(time_ns: i64) -> u64 {
    u64::try_from(time_ns / 1_000_000).unwrap_or(0)
}
