//! An alert: one element of the result of a rule, and its state.

use hist::Bracket;
use query::LabelSet;

use super::RESOLVED_RETENTION_NS;
use crate::alert_acknowledgement::AlertAcknowledgements;
use crate::rule_file::LabelMap;

/// Evaluations for which a firing alert is unknown before that is a change of state, and the least
/// time: a query that failed once, or a source that sends late, is none.
const UNKNOWN_INTERVALS: i64 = 5;
const UNKNOWN_MIN_NS: i64 = 30 * 1_000_000_000;

/// State of an alert, the most severe last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AlertState {
    /// The alert fired, and the condition no longer holds.
    Inactive,
    /// The condition holds, but not yet for long enough.
    Pending,
    /// The condition holds.
    Firing,
}

impl AlertState {
    /// Name, as in the label `alertstate`.
    pub fn text(self) -> &'static str {
        match self {
            AlertState::Pending => "pending",
            AlertState::Firing => "firing",
            AlertState::Inactive => "inactive",
        }
    }
}

/// Criterion of an own rule that holds, and what it measured.
#[derive(Clone, Debug, PartialEq)]
pub struct CriterionMatch {
    /// Index in the list of the rule.
    pub criterion: usize,
    /// 1 (worst) to 5.
    pub severity: u8,
    /// Measured value.
    pub value: Bracket,
    /// Threshold in the unit of the value; `None` for texts and formulas.
    pub threshold: Option<f64>,
    /// Unit of value and threshold; empty if unknown.
    pub unit: String,
}

/// Why an alert holds its state whatever its criteria say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HoldCause {
    /// There is no data.
    NoData,
    /// The rule that it depends on fires at severity 1.
    Parent,
}

/// Alert: one element of the result of a rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Alert {
    /// State.
    pub state: AlertState,
    /// Expanded annotations.
    pub annotations: LabelMap,
    /// Labels of the element without its metric name and without the labels of the rule.
    pub series: LabelSet,
    /// Value at the last evaluation with an element.
    pub value: f64,
    /// When the element appeared.
    pub active_at_ns: i64,
    /// When it appeared, by the rows that it was measured from, if they are known. With the labels
    /// it identifies the alert.
    pub began_ns: i64,
    /// When the alert fired.
    pub fired_at_ns: Option<i64>,
    /// When it became inactive.
    pub resolved_at_ns: Option<i64>,
    /// When the last notice was due.
    pub last_sent_at_ns: Option<i64>,
    /// When the receiver may consider it resolved.
    pub valid_until_ns: Option<i64>,
    /// First evaluation without an element since the last one with it.
    pub keep_firing_since_ns: Option<i64>,
    /// First evaluation since which there is no data.
    pub unknown_since_ns: Option<i64>,
    /// When it had been unknown for so long that this is a change of state.
    pub unknown_reported_at_ns: Option<i64>,
    /// Acknowledgements.
    pub acknowledgements: AlertAcknowledgements,
    /// Worst severity while it is acknowledged: a worse one ends the acknowledgements.
    pub acknowledged_severity: Option<u8>,
    /// Number of the last change of state or severity, or of whether it is reported unknown: of the
    /// changes of an alert, the later one has the greater number.
    pub transition: u64,
    /// Criterion that holds, or did when there was data; `None` for a rule of Prometheus.
    pub matched: Option<CriterionMatch>,
    /// When the severity last changed while the alert fired.
    pub severity_changed_at_ns: Option<i64>,
    /// Whether the parent of the rule holds the alert.
    pub is_held: bool,
}

/// Element of the result of a rule, with the labels and annotations of the rule.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AlertElement {
    pub(crate) labels: LabelSet,
    pub(crate) annotations: LabelMap,
    pub(crate) series: LabelSet,
    pub(crate) value: f64,
    pub(crate) matched: Option<CriterionMatch>,
}

impl Alert {
    pub(super) fn new(element: AlertElement, time_ns: i64, began_ns: i64) -> Alert {
        Alert {
            state: AlertState::Pending,
            annotations: element.annotations,
            series: element.series,
            value: element.value,
            active_at_ns: time_ns,
            began_ns,
            fired_at_ns: None,
            resolved_at_ns: None,
            last_sent_at_ns: None,
            valid_until_ns: None,
            keep_firing_since_ns: None,
            unknown_since_ns: None,
            unknown_reported_at_ns: None,
            acknowledgements: AlertAcknowledgements::default(),
            acknowledged_severity: None,
            transition: 0,
            matched: element.matched,
            severity_changed_at_ns: None,
            is_held: false,
        }
    }

    /// Whether there is no data, so that the state is the last known one.
    pub fn is_unknown(&self) -> bool {
        self.unknown_since_ns.is_some()
    }

    /// Severity of the criterion that holds.
    pub fn severity(&self) -> Option<u8> {
        self.matched.as_ref().map(|matched| matched.severity)
    }

    pub(super) fn is_due(&self, time_ns: i64, resend_delay_ns: i64) -> bool {
        if self.state == AlertState::Pending {
            return false;
        }
        let Some(sent) = self.last_sent_at_ns else { return true };
        self.resolved_at_ns.is_some_and(|resolved| resolved > sent)
            || self.severity_changed_at_ns.is_some_and(|changed| changed > sent)
            || sent.saturating_add(resend_delay_ns) < time_ns
            // The wall clock was set back: the receiver would wait in vain.
            || time_ns < sent
    }

    /// Notes the severity for which it is acknowledged.
    pub(super) fn note_acknowledged_severity(&mut self) {
        let worst = |known: u8| self.severity().map_or(known, |severity| severity.min(known));
        self.acknowledged_severity = match self.acknowledgements.current() {
            Some(_) => self.acknowledged_severity.map(worst).or(self.severity()),
            None => None,
        };
    }

    /// Whether it has just been unknown for so long that those who take care of it have to know: as
    /// long as [`UNKNOWN_INTERVALS`] evaluations, and [`UNKNOWN_MIN_NS`]. Whoever acknowledged it
    /// looks at it.
    pub(super) fn report_unknown(&mut self, time_ns: i64, interval_ns: i64) -> bool {
        let delay_ns = interval_ns.saturating_mul(UNKNOWN_INTERVALS).max(UNKNOWN_MIN_NS);
        let is_due = self.state == AlertState::Firing
            && self.acknowledgements.current().is_none()
            && self.unknown_reported_at_ns.is_none()
            && self.unknown_since_ns.is_some_and(|at| time_ns.saturating_sub(at) >= delay_ns);
        if is_due {
            self.unknown_reported_at_ns = Some(time_ns);
        }
        is_due
    }

    /// Keeps the state.
    pub(super) fn hold(&mut self, cause: HoldCause, time_ns: i64) {
        self.is_held = cause == HoldCause::Parent;
        match cause {
            HoldCause::NoData => drop(self.unknown_since_ns.get_or_insert(time_ns)),
            HoldCause::Parent => self.unknown_since_ns = None,
        }
    }

    /// Handles an absent element. Returns whether the alert stays in the table.
    pub(super) fn miss(&mut self, keep_firing_for_ns: i64, time_ns: i64) -> bool {
        match self.state {
            AlertState::Pending => return false,
            AlertState::Inactive => {
                let age_ns = self.resolved_at_ns.map_or(0, |at| time_ns.saturating_sub(at));
                return age_ns <= RESOLVED_RETENTION_NS;
            }
            AlertState::Firing => {}
        }
        if keep_firing_for_ns > 0 {
            let since_ns = *self.keep_firing_since_ns.get_or_insert(time_ns);
            if time_ns.saturating_sub(since_ns) < keep_firing_for_ns {
                return true;
            }
        }
        self.state = AlertState::Inactive;
        self.resolved_at_ns = Some(time_ns);
        self.acknowledgements = AlertAcknowledgements::default();
        true
    }

    pub(super) fn age_when_fired_ns(&self) -> i64 {
        self.fired_at_ns.map_or(0, |fired| fired.saturating_sub(self.active_at_ns))
    }

    /// Moves between pending and firing by age.
    pub(super) fn apply_for(&mut self, for_ns: i64, time_ns: i64) {
        let age_ns = time_ns.saturating_sub(self.active_at_ns);
        match self.state {
            AlertState::Pending if age_ns >= for_ns => {
                self.state = AlertState::Firing;
                self.fired_at_ns = Some(time_ns);
            }
            // `for` was raised. The age alone does not tell: the wall clock may have been set back.
            AlertState::Firing if age_ns < for_ns && self.age_when_fired_ns() < for_ns => {
                self.state = AlertState::Pending;
                self.fired_at_ns = None;
                self.last_sent_at_ns = None;
                self.keep_firing_since_ns = None;
            }
            _ => {}
        }
    }
}
