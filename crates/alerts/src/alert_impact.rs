//! How many requests and users an alert affected, for its notification.
//!
//! The numbers are read when a state is submitted, within a time that all notifications of an
//! evaluation share: what is not read by then is unknown, and no notification waits for it.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use notify::AlertImpact;
use query::StoreSource;
use rules::slo::{SLO_ALERT_FILE, Slo};
use rules::{AffectedSeries, Alert, EvaluatedGroup, Rule};
use store::{ReadView, Store};

use crate::worker_control::WorkerControl;

/// Time for the numbers of all notifications of an evaluation.
const READ_TIME_MAX: Duration = Duration::from_millis(200);

/// Labels that tell users apart, by the name of the SLO.
pub(crate) type UserLabels = BTreeMap<String, String>;

/// The labels of the SLOs that have one.
pub(crate) fn user_labels(slos: &[Slo]) -> UserLabels {
    let label = |slo: &Slo| Some((slo.name.clone(), slo.user_label.clone()?));
    slos.iter().filter_map(label).collect()
}

/// Reads the numbers of the notifications of an evaluation.
pub(crate) struct ImpactReader<'a> {
    store: &'a Store,
    control: &'a WorkerControl,
    user_labels: &'a UserLabels,
    now_ns: i64,
    /// When the first number was asked for.
    began: OnceCell<Instant>,
    view: OnceCell<Option<ReadView>>,
}

impl<'a> ImpactReader<'a> {
    pub(crate) fn new(
        store: &'a Store,
        control: &'a WorkerControl,
        user_labels: &'a UserLabels,
        now_ns: i64,
    ) -> ImpactReader<'a> {
        let (began, view) = (OnceCell::new(), OnceCell::new());
        ImpactReader { store, control, user_labels, now_ns, began, view }
    }

    /// What an alert affected so far. An error is logged by nobody: the evaluation, which reads the
    /// same series, has it.
    pub(crate) fn impact(&self, group: &EvaluatedGroup, rule: &Rule, alert: &Alert) -> AlertImpact {
        let Some(series) = AffectedSeries::of(rule, alert) else { return AlertImpact::default() };
        let began = *self.began.get_or_init(Instant::now);
        let is_cancelled = || began.elapsed() >= READ_TIME_MAX || self.control.is_stopping();
        let view = self.view.get_or_init(|| self.store.view().ok());
        let Some(view) = view.as_ref().filter(|_| !is_cancelled()) else {
            return AlertImpact::default();
        };
        let source = StoreSource::new(view).with_context(&is_cancelled);
        let is_slo = group.file() == SLO_ALERT_FILE;
        let user_label = self.user_labels.get(group.name()).filter(|_| is_slo);
        let found = series.count(&source, self.now_ns, user_label.map(String::as_str));
        let counts = found.unwrap_or_default();
        AlertImpact { requests: counts.requests, users: counts.users }
    }
}
