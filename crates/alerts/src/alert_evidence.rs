//! Evidence of an alert for its notification: how many it affected, and a picture.
//!
//! It is read when a state is submitted, within a time that all notifications of a second share:
//! what is not read by then is left out, and no notification waits for it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::{Duration, Instant};

use notify::{AlertImpact, Picture};
use query::StoreSource;
use rules::slo::{SLO_ALERT_FILE, Slo};
use rules::{AffectedRule, AffectedSeries, Alert, EvaluatedGroup};
use store::{ReadView, Store};

use crate::alert_picture::alert_picture;
use crate::read_time_budget::ReadTimeBudget;
use crate::worker_control::WorkerControl;

/// Time to read impacts in a second: a fifth of the time of the worker.
const IMPACT_TIME_MAX: Duration = Duration::from_millis(200);
/// Time for pictures.
const PICTURE_TIME_MAX: Duration = Duration::from_millis(100);

/// Labels that tell users apart, by the name of the SLO.
pub(crate) type UserLabels = BTreeMap<String, String>;

/// The labels of the SLOs that have one.
pub(crate) fn user_labels(slos: &[Slo]) -> UserLabels {
    let label = |slo: &Slo| Some((slo.name.clone(), slo.user_label.clone()?));
    slos.iter().filter_map(label).collect()
}

/// What is read of an alert.
#[derive(Clone, Debug, Default)]
pub(crate) struct AlertEvidence {
    pub(crate) impact: AlertImpact,
    pub(crate) picture: Option<Picture>,
}

/// Time that the worker spends on evidence, of all groups together.
#[derive(Debug)]
pub(crate) struct EvidenceBudgets {
    impact: ReadTimeBudget,
    picture: ReadTimeBudget,
}

impl EvidenceBudgets {
    pub(crate) fn new(now: Instant) -> EvidenceBudgets {
        EvidenceBudgets {
            impact: ReadTimeBudget::new(IMPACT_TIME_MAX, now),
            picture: ReadTimeBudget::new(PICTURE_TIME_MAX, now),
        }
    }
}

/// What an [`EvidenceReader`] needs of the worker.
#[derive(Clone, Copy)]
pub(crate) struct EvidenceSources<'a> {
    pub(crate) store: &'a Store,
    pub(crate) control: &'a WorkerControl,
    pub(crate) user_labels: &'a UserLabels,
    pub(crate) now_ns: i64,
    /// Whether a contact shows pictures.
    pub(crate) draws_pictures: bool,
}

/// Reads the evidence of the notifications of a group.
pub(crate) struct EvidenceReader<'a> {
    sources: EvidenceSources<'a>,
    budgets: &'a mut EvidenceBudgets,
    group: &'a EvaluatedGroup,
    /// By position of the rule.
    rules: BTreeMap<usize, AffectedRule<'a>>,
    view: Option<Option<ReadView>>,
}

impl<'a> EvidenceReader<'a> {
    pub(crate) fn new(
        sources: EvidenceSources<'a>,
        budgets: &'a mut EvidenceBudgets,
        group: &'a EvaluatedGroup,
    ) -> EvidenceReader<'a> {
        EvidenceReader { sources, budgets, group, rules: BTreeMap::new(), view: None }
    }

    /// What an alert of the rule at a position affected so far, and its picture.
    pub(crate) fn evidence(&mut self, rule: usize, alert: &Alert) -> AlertEvidence {
        let Some(series) = self.series(rule, alert) else { return AlertEvidence::default() };
        let impact = self.impact(&series).unwrap_or_default();
        let picture = if self.sources.draws_pictures { self.picture(&series) } else { None };
        AlertEvidence { impact, picture }
    }

    fn series(&mut self, rule: usize, alert: &Alert) -> Option<AffectedSeries> {
        let affected = match self.rules.entry(rule) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                new.insert(AffectedRule::of(self.group.rules().get(rule)?.rule()))
            }
        };
        affected.series(alert)
    }

    fn impact(&mut self, series: &AffectedSeries) -> Option<AlertImpact> {
        let EvidenceSources { user_labels, now_ns, .. } = self.sources;
        let is_slo = self.group.file() == SLO_ALERT_FILE;
        let user_label = user_labels.get(self.group.name()).filter(|_| is_slo);
        let began = Instant::now();
        let left = self.budgets.impact.left(began);
        let found = self.read(began, left, |source| {
            series.count(source, now_ns, user_label.map(String::as_str)).ok()
        });
        self.budgets.impact.spend(began.elapsed());
        found.map(|counts| AlertImpact { requests: counts.requests, users: counts.users })
    }

    fn picture(&mut self, series: &AffectedSeries) -> Option<Picture> {
        let now_ns = self.sources.now_ns;
        let began = Instant::now();
        let left = self.budgets.picture.left(began);
        let found = self.read(began, left, |source| alert_picture(series, source, now_ns));
        self.budgets.picture.spend(began.elapsed());
        found
    }

    /// Reads within the time that is left. An error is logged by nobody: the evaluation, which
    /// reads the same series, has it.
    fn read<T>(
        &mut self,
        began: Instant,
        left: Duration,
        read: impl FnOnce(&StoreSource<'_>) -> Option<T>,
    ) -> Option<T> {
        if left.is_zero() {
            return None;
        }
        let EvidenceSources { store, control, .. } = self.sources;
        let is_cancelled = || began.elapsed() >= left || control.is_stopping();
        let view = self.view.get_or_insert_with(|| store.view().ok());
        read(&StoreSource::new(view.as_ref()?).with_context(&is_cancelled))
    }
}
