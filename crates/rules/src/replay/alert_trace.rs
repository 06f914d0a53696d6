//! Changes of state of the alerts of a rule.

use std::collections::BTreeMap;
use std::ops::Range;

use query::LabelSet;

use crate::alert_table::{AlertState, AlertTable};

/// Changes of state of an alert that are listed. More are counted.
const TRANSITIONS_MAX: usize = 1_000;

/// State of an alert in a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayState {
    /// State.
    pub state: AlertState,
    /// Whether there was no data, so that it is the last known one.
    pub is_unknown: bool,
}

/// Change of state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReplayTransition {
    /// Time of the evaluation.
    pub time_ns: i64,
    /// State from then on.
    pub to: ReplayState,
    /// Value of the expression.
    pub value: f64,
}

/// Alert with its changes of state.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplayedAlert {
    /// Labels, which identify the alert.
    pub labels: LabelSet,
    /// Labels of the element, without those of the rule.
    pub series: LabelSet,
    /// State before the range.
    pub state_at_start: ReplayState,
    /// The first 1,000 changes.
    pub transitions: Vec<ReplayTransition>,
    /// Number of further changes.
    pub omitted_transitions: u64,
    /// How often it began to fire.
    pub fired: u64,
    /// How long it fired.
    pub firing_ns: i64,
    /// When it fired: the first 1,000 periods.
    pub firing: Vec<Range<i64>>,
}

const INACTIVE: ReplayState = ReplayState { state: AlertState::Inactive, is_unknown: false };

/// Alerts of a rule so far.
#[derive(Debug, Default)]
pub(super) struct RuleTrace {
    alerts: BTreeMap<LabelSet, TracedAlert>,
    pub(super) evaluations: u64,
    pub(super) failures: u64,
    pub(super) first_failure: Option<(i64, String)>,
}

#[derive(Debug)]
struct TracedAlert {
    alert: ReplayedAlert,
    current: ReplayState,
    value: f64,
    /// Start of firing in the range.
    firing_since_ns: Option<i64>,
    is_present: bool,
}

impl RuleTrace {
    pub(super) fn alert_count(&self) -> usize {
        self.alerts.len()
    }

    pub(super) fn count_evaluation(&mut self, time_ns: i64, failure: Option<&str>) {
        self.evaluations += 1;
        if let Some(cause) = failure {
            self.failures += 1;
            self.first_failure.get_or_insert_with(|| (time_ns, cause.to_owned()));
        }
    }

    /// Compares the alerts with those of the evaluation before. Changes before the range give the
    /// state at its start.
    pub(super) fn record(&mut self, table: &AlertTable, time_ns: i64, start_ns: i64) {
        self.alerts.values_mut().for_each(|traced| traced.is_present = false);
        for (labels, alert) in table.alerts() {
            if alert.state == AlertState::Inactive {
                continue;
            }
            let traced = self
                .alerts
                .entry(labels.clone())
                .or_insert_with(|| TracedAlert::new(labels.clone(), alert.series.clone()));
            traced.is_present = true;
            traced.value = alert.value;
            let state = ReplayState { state: alert.state, is_unknown: alert.is_unknown() };
            traced.change(state, time_ns, start_ns);
        }
        for traced in self.alerts.values_mut().filter(|traced| !traced.is_present) {
            traced.change(INACTIVE, time_ns, start_ns);
        }
    }

    /// Alerts that were active in the range.
    pub(super) fn finish(self, end_ns: i64) -> Vec<ReplayedAlert> {
        let finished = self.alerts.into_values().map(|mut traced| {
            traced.end_firing(end_ns);
            traced.alert
        });
        let was_active = |alert: &ReplayedAlert| {
            alert.state_at_start != INACTIVE || !alert.transitions.is_empty()
        };
        finished.filter(was_active).collect()
    }
}

impl TracedAlert {
    fn new(labels: LabelSet, series: LabelSet) -> TracedAlert {
        TracedAlert {
            alert: ReplayedAlert {
                labels,
                series,
                state_at_start: INACTIVE,
                transitions: Vec::new(),
                omitted_transitions: 0,
                fired: 0,
                firing_ns: 0,
                firing: Vec::new(),
            },
            current: INACTIVE,
            value: f64::NAN,
            firing_since_ns: None,
            is_present: true,
        }
    }

    fn change(&mut self, to: ReplayState, time_ns: i64, start_ns: i64) {
        if self.current == to {
            return;
        }
        let from = std::mem::replace(&mut self.current, to);
        let is_before = time_ns < start_ns;
        if is_before {
            self.alert.state_at_start = to;
        } else {
            let transition = ReplayTransition { time_ns, to, value: self.value };
            match self.alert.transitions.len() < TRANSITIONS_MAX {
                true => self.alert.transitions.push(transition),
                false => self.alert.omitted_transitions += 1,
            }
        }
        match (from.state, to.state) {
            (AlertState::Firing, AlertState::Firing) => {}
            (_, AlertState::Firing) => {
                self.firing_since_ns = Some(time_ns.max(start_ns));
                self.alert.fired += u64::from(!is_before);
            }
            (AlertState::Firing, _) => self.end_firing(time_ns.max(start_ns)),
            _ => {}
        }
    }

    fn end_firing(&mut self, time_ns: i64) {
        let Some(since_ns) = self.firing_since_ns.take().filter(|since| *since < time_ns) else {
            return;
        };
        self.alert.firing_ns = self.alert.firing_ns.saturating_add(time_ns - since_ns);
        if self.alert.firing.len() < TRANSITIONS_MAX {
            self.alert.firing.push(since_ns..time_ns);
        }
    }
}
